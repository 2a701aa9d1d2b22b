//! What a program links to: its interpreter and the libraries that it names, as far as the file says.

/// What an ELF file needs of others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The path of its interpreter.
    pub interpreter: Option<String>,
    /// The libraries that it names.
    pub libraries: Vec<String>,
    /// Directories in which it looks for them first.
    pub directories: Vec<String>,
}

struct File<'a>(&'a [u8]);

impl File<'_> {
    fn long(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        Some(u64::from_le_bytes(self.0.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }

    fn half(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        Some(u16::from_le_bytes(self.0.get(at..at.checked_add(2)?)?.try_into().ok()?).into())
    }

    fn text(&self, at: u64) -> Option<String> {
        let rest = self.0.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    }
}

/// Reads a file; `None` if it is no program or library for this machine, or is cut off.
pub fn links(bytes: &[u8]) -> Option<Links> {
    const LOAD: u64 = 1;
    const DYNAMIC: u64 = 2;
    const INTERPRETER: u64 = 3;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let file = File(bytes);
    if file.half(18)? != 62 {
        return None;
    }
    let (table, count) = (file.long(32)?, file.half(56)?);
    let mut links = Links::default();
    let (mut loads, mut dynamic) = (Vec::new(), None);
    for index in 0..count {
        let at = table.checked_add(index * 56)?;
        let (kind, offset, address, len) =
            (file.long(at)? & 0xffff_ffff, file.long(at + 8)?, file.long(at + 16)?, file.long(at + 32)?);
        match kind {
            LOAD => loads.push((address, offset, len)),
            DYNAMIC => dynamic = Some((offset, len)),
            INTERPRETER => links.interpreter = Some(file.text(offset)?),
            _ => {}
        }
    }
    let Some((offset, len)) = dynamic else { return Some(links) };
    let mut entries = Vec::new();
    for at in (offset..offset.checked_add(len)?).step_by(16) {
        entries.push((file.long(at)?, file.long(at + 8)?));
    }
    let texts = entries.iter().find(|&&(tag, _)| tag == 5).map(|&(_, address)| address);
    let Some(texts) = texts else { return Some(links) };
    let &(start, from, _) =
        loads.iter().find(|&&(start, _, len)| (start..start.saturating_add(len)).contains(&texts))?;
    let text = |place: u64| file.text((texts - start).checked_add(from)?.checked_add(place)?);
    for &(tag, value) in entries.iter().take_while(|&&(tag, _)| tag != 0) {
        match tag {
            1 => links.libraries.push(text(value)?),
            15 | 29 => links.directories.extend(text(value)?.split(':').map(str::to_string)),
            _ => {}
        }
    }
    Some(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_itself_links_to_the_c_library() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let links = links(&own).unwrap();
        assert!(links.libraries.iter().any(|name| name.starts_with("libc.so")), "{links:?}");
        assert!(links.interpreter.is_some_and(|path| path.contains("ld-linux")));
    }

    #[test]
    fn a_file_that_is_cut_off_says_nothing_wrong() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(links(b"#!/bin/sh"), None);
        assert_eq!(links(&own[..100]), None);
        for len in (0..own.len()).step_by(own.len() / 50) {
            // No panic, whatever is missing.
            let _ = links(&own[..len]);
        }
    }
}
