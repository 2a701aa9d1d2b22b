//! Large pages, in whole and in parts.

use quietmm::{Advice, Backing, PageNumber, PageRange, Prot};

use super::ledger::Shown;
use super::{LARGE, Thread};
use crate::machine::Machine;

impl<M: Machine> Thread<'_, '_, M> {
    /// Large pages, in whole and in parts.
    pub(super) fn large(&mut self) {
        let space = self.process.space;
        let range = PageRange::new(PageNumber(LARGE + self.place * 1024), 1024);
        let mapped = self.system.syscall(|mm| {
            mm.space(space).map(range, Backing::Anonymous, Prot::ReadWrite)?;
            mm.space(space).advise(range, Advice::Large)
        });
        if !self.did("map large", range.start, mapped, true) {
            // Mapped perhaps, and not advised.
            let _ = self.system.syscall(|mm| mm.space(space).unmap(range));
            return;
        }
        let pages = [3, 511, 512, 700, 1023].map(|i| PageNumber(range.start.0 + i));
        let values = pages.map(|page| {
            let value = self.fresh();
            self.system.store(page.addr(), value).is_ok().then_some(value)
        });
        let part = PageRange::new(PageNumber(range.start.0 + self.pick(600)), 1 + self.pick(400));
        let (done, gone) = match self.pick(4) {
            0 => (self.system.syscall(|mm| mm.space(space).protect(part, Prot::Read)), None),
            1 => {
                (self.system.syscall(|mm| mm.space(space).advise(part, Advice::Drop)), Some(Shown::Value(0)))
            }
            2 => (self.system.syscall(|mm| mm.space(space).unmap(part)), Some(Shown::NotMapped)),
            _ => (Ok(()), None),
        };
        let done = self.did("change a part of a large page", part.start, done, true);
        for (page, value) in pages.into_iter().zip(values) {
            let inside = done && part.contains(page);
            let expected = match (gone, value) {
                (Some(gone), _) if inside => gone,
                (_, Some(value)) => Shown::Value(value),
                (_, None) => continue,
            };
            let found = Shown::of(self.system.load(page.addr()));
            if found.is_some_and(|found| found != expected) {
                self.wrong("loaded from a large page", page, found, expected);
            }
        }
        let (left, right) =
            (PageRange::between(range.start, part.start), PageRange::between(part.end(), range.end()));
        let rest = if gone == Some(Shown::NotMapped) && done {
            [left, right]
        } else {
            [range, PageRange::new(range.end(), 0)]
        };
        for range in rest.into_iter().filter(|range| range.pages > 0) {
            let ended = self.system.syscall(|mm| mm.space(space).unmap(range));
            self.did("unmap large", range.start, ended, true);
        }
    }
}
