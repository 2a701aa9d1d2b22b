//! One line of lackey's output.
//!
//! Lackey prints an access as three characters for its kind, the address in hexadecimal, a comma and
//! the size in bytes: `I  0023C790,2` (fetch), ` L 04222C50,8` (load), ` S BE80199C,4` (store), ` M 0025747C,1`
//! (modify: a load and a store). Valgrind's own lines begin with `==PID==` or `--PID--`. All else is the program's
//! own output that ran into the same file.

/// The largest access that is believed, in bytes. Lackey's own bound is 512 for data.
const LARGEST: u64 = 4096;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fetch,
    Load,
    Store,
    Modify,
}

/// An access: `size` is 1 to [`LARGEST`], and `address + size - 1` does not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) kind: Kind,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Access(Access),
    /// Valgrind's own, without its prefix.
    Valgrind(&'a [u8]),
    Foreign,
}

impl<'a> Line<'a> {
    /// Reads a line without its line feed.
    pub(super) fn read(text: &'a [u8]) -> Self {
        if let Some(access) = access(text) {
            return Self::Access(access);
        }
        valgrind(text).map_or(Self::Foreign, Self::Valgrind)
    }
}

fn access(text: &[u8]) -> Option<Access> {
    let (prefix, mut rest) = text.split_first_chunk::<3>()?;
    let kind = match prefix {
        b"I  " => Kind::Fetch,
        b" L " => Kind::Load,
        b" S " => Kind::Store,
        b" M " => Kind::Modify,
        _ => return None,
    };
    let address = number(&mut rest, 16, 16)?;
    let (b',', mut rest) = rest.split_first()? else { return None };
    let size = number(&mut rest, 10, 4)?;
    let sound = rest.is_empty() && (1..=LARGEST).contains(&size) && address.checked_add(size - 1).is_some();
    sound.then_some(Access { kind, address, size })
}

/// Takes 1 to `most` digits from the front.
fn number(text: &mut &[u8], radix: u32, most: usize) -> Option<u64> {
    let mut value = 0;
    let mut digits = 0;
    while let Some((&first, rest)) = text.split_first() {
        let Some(digit) = char::from(first).to_digit(radix) else { break };
        if digits == most {
            return None;
        }
        // At most 16 hexadecimal or 4 decimal digits: no overflow.
        value = value * u64::from(radix) + u64::from(digit);
        digits += 1;
        *text = rest;
    }
    (digits > 0).then_some(value)
}

fn valgrind(text: &[u8]) -> Option<&[u8]> {
    let (mark, rest) = text.split_first_chunk::<2>()?;
    if !matches!(mark, b"==" | b"--" | b"**") {
        return None;
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest[digits..].strip_prefix(mark.as_slice())?;
    (digits > 0).then(|| rest.strip_prefix(b" ").unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_in_either_case_are_read() {
        let read = |kind, address, size| Line::Access(Access { kind, address, size });
        assert_eq!(Line::read(b"I  0023C790,2"), read(Kind::Fetch, 0x23_c790, 2));
        assert_eq!(Line::read(b" L 04222c50,8"), read(Kind::Load, 0x422_2c50, 8));
        assert_eq!(Line::read(b" S BE80199C,4"), read(Kind::Store, 0xbe80_199c, 4));
        assert_eq!(Line::read(b" M 0025747C,1"), read(Kind::Modify, 0x25_747c, 1));
        assert_eq!(Line::read(b" L ffffffffffffffff,1"), read(Kind::Load, u64::MAX, 1));
    }

    #[test]
    fn valgrinds_lines_lose_their_prefix() {
        assert_eq!(Line::read(b"==12== Command: ls -l"), Line::Valgrind(b"Command: ls -l"));
        assert_eq!(Line::read(b"==12=="), Line::Valgrind(b""));
        assert_eq!(Line::read(b"--7-- warning"), Line::Valgrind(b"warning"));
    }

    #[test]
    fn anything_else_is_foreign() {
        for text in [
            "",
            "I",
            "hello",
            " L ",
            " L x,8",
            " L 04222C50",
            " L 04222C50,",
            " L 04222C50,0",
            " L 04222C50,4097",
            " L 04222C50,8 ",
            " L 00000000000000001,8",
            " L ffffffffffffffff,2",
            "I 0023C790,2",
            "== 12 ==",
            "==x==",
            "==12--",
            " L 04222C50,8\r",
        ] {
            assert_eq!(Line::read(text.as_bytes()), Line::Foreign, "{text:?}");
        }
    }
}
