//! The archive that a machine gets its files from: cpio, with the headers of its "new" kind (`newc`), as Linux takes it.

use core::ops::Range;

/// A file of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member<'a> {
    /// Its path, without a slash at its start.
    pub path: &'a [u8],
    /// Kind and rights, as `stat` has them.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: u32,
    /// Where its bytes lie in the archive.
    pub bytes: Range<usize>,
}

/// The members of an archive; ends where it ends, or no longer makes sense.
pub struct Members<'a> {
    archive: &'a [u8],
    at: usize,
}

const HEADER: usize = 110;

/// Goes through an archive.
pub fn members(archive: &[u8]) -> Members<'_> {
    Members { archive, at: 0 }
}

impl<'a> Members<'a> {
    fn read(&mut self) -> Option<Member<'a>> {
        let header = self.archive.get(self.at..self.at.checked_add(HEADER)?)?;
        if &header[..6] != b"070701" {
            return None;
        }
        let field = |index: usize| {
            let digits = core::str::from_utf8(&header[6 + 8 * index..14 + 8 * index]).ok()?;
            u32::from_str_radix(digits, 16).ok()
        };
        let (mode, modified, size, name_size) = (field(1)?, field(5)?, field(6)?, field(11)?);
        let name = self.at + HEADER;
        let name_end = name.checked_add(name_size as usize)?;
        let path = self.archive.get(name..name_end)?.split_last()?.1;
        let start = name_end.checked_next_multiple_of(4)?;
        let end = start.checked_add(size as usize)?;
        self.archive.get(start..end)?;
        self.at = end.checked_next_multiple_of(4)?;
        Some(Member { path, mode, modified, bytes: start..end })
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        self.read().filter(|member| member.path != b"TRAILER!!!")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::format;

    fn member(path: &str, mode: u32, bytes: &[u8]) -> Vec<u8> {
        let fields = [1, mode, 0, 0, 1, 77, bytes.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        let mut all = b"070701".to_vec();
        fields.iter().for_each(|field| all.extend(format!("{field:08x}").bytes()));
        all.extend(path.bytes());
        all.push(0);
        all.resize(all.len().next_multiple_of(4), 0);
        all.extend(bytes);
        all.resize(all.len().next_multiple_of(4), 0);
        all
    }

    #[test]
    fn members_come_with_their_bytes() {
        let mut archive = member("bin", 0o40755, b"");
        archive.extend(member("bin/a", 0o100755, b"hello"));
        archive.extend(member("TRAILER!!!", 0, b""));
        let all: Vec<_> = members(&archive).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].path, all[0].mode), (&b"bin"[..], 0o40755));
        assert_eq!(&archive[all[1].bytes.clone()], b"hello");
        assert_eq!(all[1].modified, 77);
    }

    #[test]
    fn an_archive_that_is_cut_off_ends_there() {
        let mut archive = member("a", 0o100644, b"12345678");
        let first = archive.len();
        archive.extend(member("b", 0o100644, b"12345678"));
        for len in 0..archive.len() {
            let expected = usize::from(len >= first);
            assert!(members(&archive[..len]).count() <= expected, "{len} bytes");
        }
        archive[6 + 8 * 6..14 + 8 * 6].copy_from_slice(b"ffffffff");
        assert_eq!(members(&archive).count(), 0, "absurdly long");
    }
}
