//! A file without a name: it is gone with whoever has it open, however that ends.

use std::fs::{self, File};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file of so many zeros, which take no room, in the host's directory for temporary files.
pub fn nameless(bytes: u64) -> io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: it only hands out numbers.
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("quietmm-disk-{}-{nth}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.set_len(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};

    use super::*;

    #[test]
    fn it_holds_what_is_written_and_has_no_name() {
        let before = names();
        let mut file = nameless(1 << 20).unwrap();
        assert_eq!(names(), before);
        file.seek(SeekFrom::End(-4)).unwrap();
        file.write_all(b"last").unwrap();
        file.seek(SeekFrom::End(-5)).unwrap();
        let mut back = [0xff; 5];
        file.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"\0last");
    }

    fn names() -> usize {
        let mine = format!("quietmm-disk-{}-", std::process::id());
        let all = fs::read_dir(std::env::temp_dir()).unwrap();
        all.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(&mine)).count()
    }
}
