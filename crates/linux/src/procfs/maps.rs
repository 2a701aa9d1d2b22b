//! What is mapped, as `/proc` shows it: `maps` and `smaps`.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use quietmm::{PageNumber, PageRange};

use crate::areas::{Area, PAGE, What, rights};
use crate::kernel::Linux;
use crate::layout::text;
use crate::machine::Machine;
use crate::process::{Mapped, Process};

impl<M: Machine> Linux<'_, M> {
    /// Memory that it takes at most to say what is mapped, with so many bytes for each area.
    pub(crate) fn bytes_of_maps(&self, process: &Process, each: u64) -> u64 {
        let Some(memory) = process.memory.with(|memory| memory.clone()) else { return 0 };
        memory.layout.with(self.machine, |layout| each * layout.areas.iter().count() as u64)
    }

    /// Pages of a range that are there.
    fn resident(&self, space: quietmm::SpaceId, range: core::ops::Range<u64>) -> u64 {
        const AT_ONCE: u64 = 512;
        let mut bytes = [0; AT_ONCE as usize];
        let (mut at, end) = (range.start / PAGE, range.end / PAGE);
        let mut sum = 0;
        while at < end {
            let pages = (end - at).min(AT_ONCE);
            let part = PageRange::new(PageNumber(at), pages);
            sum += self.mm.space(space).residency(part, &mut bytes[..pages as usize]).unwrap_or(0);
            at += pages;
            self.machine.cond_resched();
        }
        sum
    }

    /// A line for each area of what is mapped; with `more` what `smaps` says of it, too.
    pub(super) fn maps(&self, process: &Process, more: bool) -> String {
        let Some(memory) = process.memory.with(|memory| memory.clone()) else { return String::new() };
        memory.layout.with(self.machine, |layout| {
            let line = |(at, area): (u64, &Area<Mapped>)| {
                let right = |bit: u8, letter: char| if area.rights & bit != 0 { letter } else { '-' };
                let (shared, page, number, path) = match &area.what {
                    What::Own(name) => ('p', 0, 0, String::from(*name)),
                    What::File { file, page, shared } => {
                        (if *shared { 's' } else { 'p' }, *page, file.inode.number, text(&file.path))
                    }
                };
                let head = format!(
                    "{at:08x}-{:08x} {}{}{}{shared} {:08x} 00:{:02x} {number}",
                    area.end,
                    right(rights::READ, 'r'),
                    right(rights::WRITE, 'w'),
                    right(rights::EXECUTE, 'x'),
                    page * PAGE,
                    u8::from(number != 0),
                );
                let mut line =
                    if path.is_empty() { format!("{head} \n") } else { format!("{head:<72} {path}\n") };
                if more {
                    let own = matches!(area.what, What::Own(_));
                    self.tell_area(
                        &mut line,
                        (area.end - at) / 1024,
                        4 * self.resident(memory.space, at..area.end),
                        area.rights,
                        own,
                    );
                }
                line
            };
            layout.areas.iter().map(line).collect()
        })
    }

    /// What `smaps` says of an area.
    fn tell_area(&self, out: &mut String, kib: u64, resident: u64, of: u8, own: bool) {
        out.reserve(BYTES_OF_AREA);
        let (own_kib, file) = if own { (resident, 0) } else { (0, resident) };
        let locked = if of & rights::LOCKED != 0 { resident } else { 0 };
        let lines = [
            ("Size", kib),
            ("KernelPageSize", 4),
            ("MMUPageSize", 4),
            ("Rss", resident),
            ("Pss", resident),
            ("Pss_Dirty", own_kib),
            ("Shared_Clean", 0),
            ("Shared_Dirty", 0),
            ("Private_Clean", file),
            ("Private_Dirty", own_kib),
            ("Referenced", resident),
            ("Anonymous", own_kib),
            ("KSM", 0),
            ("LazyFree", 0),
            ("AnonHugePages", 0),
            ("ShmemPmdMapped", 0),
            ("FilePmdMapped", 0),
            ("Shared_Hugetlb", 0),
            ("Private_Hugetlb", 0),
            ("Swap", 0),
            ("SwapPss", 0),
            ("Locked", locked),
        ];
        lines.into_iter().for_each(|(name, kib)| tell(out, name, kib));
        let flags = [(rights::READ, "rd "), (rights::WRITE, "wr "), (rights::EXECUTE, "ex ")];
        let flags: String = flags.iter().filter(|(bit, _)| of & bit != 0).map(|(_, flag)| *flag).collect();
        let lo = if of & rights::LOCKED != 0 { "lo " } else { "" };
        let _ = writeln!(out, "THPeligible:           0\nVmFlags: {flags}mr mw me {lo}ac ");
    }
}

/// What `smaps` says of an area takes about so many bytes.
const BYTES_OF_AREA: usize = 700;

/// A line of `smaps`, with its number in eight columns. By hand: a file has thousands of them, and what formats anything takes ten times as long.
fn tell(out: &mut String, name: &str, kib: u64) {
    const BEFORE: &str = "               ";
    out.push_str(name);
    out.push(':');
    out.push_str(&BEFORE[(name.len() + 1).min(BEFORE.len())..]);
    let (mut digits, mut at, mut rest) = ([b' '; 20], 20, kib);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push(' ');
    out.push_str(core::str::from_utf8(&digits[at.min(12)..]).unwrap_or_default());
    out.push_str(" kB\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_number_in_columns() {
        let line = |name: &str, kib| {
            let mut out = String::new();
            tell(&mut out, name, kib);
            out
        };
        for (name, kib) in [
            ("Size", 0),
            ("Rss", 9),
            ("Pss_Dirty", 99_999_999),
            ("Private_Hugetlb", 100_000_000),
            ("Locked", u64::MAX),
        ] {
            assert_eq!(line(name, kib), format!("{:<15} {kib:>8} kB\n", format!("{name}:")));
        }
    }
}
