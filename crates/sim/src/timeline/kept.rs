//! Records within a window and a bound.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::{Record, Wanted, What, Window};

/// Records, by about when they ended.
pub(super) struct Kept {
    wanted: Wanted,
    records: VecDeque<Record>,
    /// The latest of the CPUs' clocks.
    latest: u64,
    /// Records that had to go, and the latest end of one: what is kept is whole from there on.
    gone: u64,
    whole_from: u64,
}

impl Kept {
    pub fn new(wanted: Wanted) -> Kept {
        Kept { wanted, records: VecDeque::new(), latest: 0, gone: 0, whole_from: 0 }
    }

    /// The latest of the CPUs' clocks.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Time has come to this.
    pub fn reach(&mut self, ps: u64) {
        self.latest = self.latest.max(ps);
    }

    /// Keeps a record, if it is asked for.
    pub fn push(&mut self, record: Record) {
        self.reach(record.to);
        let oldest = match self.wanted.window {
            Window::Last(ps) => self.latest.saturating_sub(ps),
            Window::Between { from, to } if record.from < to => from,
            Window::Between { .. } => return,
        };
        if record.to < oldest {
            return;
        }
        while self.records.front().is_some_and(|first| first.to < oldest) {
            self.records.pop_front();
        }
        if self.records.len() >= self.wanted.most
            && let Some(first) = self.records.pop_front()
        {
            self.gone += 1;
            self.whole_from = self.whole_from.max(first.to);
        }
        self.records.push_back(record);
    }

    /// What is left: from when, until when, how many had to go, and the records, which are cut at these ends.
    pub fn close(self) -> (u64, u64, u64, Vec<Record>) {
        let (asked, to) = match self.wanted.window {
            Window::Last(ps) => (self.latest.saturating_sub(ps), self.latest),
            Window::Between { from, to } => (from, to.min(self.latest)),
        };
        let from = asked.max(self.whole_from).min(to);
        let mut records: Vec<Record> = self.records.into();
        records.retain(|record| record.is_in(from, to));
        records.iter_mut().filter(|record| record.lasts()).for_each(|record| {
            (record.from, record.to) = (record.from.max(from), record.to.min(to));
        });
        // What holds others ends after them, so it was kept later.
        records.reverse();
        records.sort_by_key(|record| (record.from, Reverse(record.to)));
        (from, to, self.gone, records)
    }
}

impl Record {
    /// Whether it lasts, and can be cut; an interrupt cannot, since it has two ends on two CPUs.
    fn lasts(&self) -> bool {
        !matches!(self.what, What::Ipi { .. } | What::Acknowledged { .. } | What::Free { .. } | What::Mark(_))
    }

    fn is_in(&self, from: u64, to: u64) -> bool {
        if self.lasts() {
            self.from < to && self.to > from
        } else {
            // Both ends of an interrupt.
            self.from >= from && self.to <= to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, to: u64) -> Record {
        Record { from, to, cpu: 0, what: What::IrqsOff }
    }

    fn closed(wanted: Wanted, records: &[Record]) -> (u64, u64, u64, Vec<(u64, u64)>) {
        let mut kept = Kept::new(wanted);
        records.iter().for_each(|&record| kept.push(record));
        let (from, to, gone, records) = kept.close();
        (from, to, gone, records.iter().map(|record| (record.from, record.to)).collect())
    }

    #[test]
    fn what_is_older_than_the_window_goes_and_what_reaches_into_it_is_cut() {
        let wanted = Wanted { window: Window::Last(50), most: 100 };
        let all = [span(0, 10), span(12, 60), span(61, 70), span(5, 100)];
        assert_eq!(closed(wanted, &all), (50, 100, 0, vec![(50, 100), (50, 60), (61, 70)]));
        let wanted = Wanted { window: Window::Between { from: 8, to: 62 }, most: 100 };
        assert_eq!(closed(wanted, &all), (8, 62, 0, vec![(8, 62), (8, 10), (12, 60), (61, 62)]));
        // All of it, and nothing of it.
        let wanted = Wanted { window: Window::Between { from: 0, to: u64::MAX }, most: 100 };
        assert_eq!(closed(wanted, &all).3.len(), 4);
        let wanted = Wanted { window: Window::Between { from: 200, to: 300 }, most: 100 };
        assert_eq!(closed(wanted, &all), (100, 100, 0, vec![]));
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many_and_what_is_left_is_whole() {
        let wanted = Wanted { window: Window::Last(u64::MAX), most: 3 };
        let all: Vec<Record> = (0..10).map(|n| span(10 * n, 10 * n + 9)).chain([span(0, 100)]).collect();
        assert_eq!(closed(wanted, &all), (79, 100, 8, vec![(79, 100), (80, 89), (90, 99)]));
    }

    #[test]
    fn an_interrupt_is_kept_with_both_ends_or_not_at_all() {
        let ipi = |from, to| Record { from, to, cpu: 0, what: What::Ipi { target: 1, taken: true } };
        let wanted = Wanted { window: Window::Between { from: 10, to: 20 }, most: 9 };
        let all = [ipi(5, 12), ipi(11, 15), ipi(18, 25), span(0, 30)];
        assert_eq!(closed(wanted, &all), (10, 20, 0, vec![(10, 20), (11, 15)]));
    }

    #[test]
    fn of_what_begins_and_ends_at_once_the_outer_comes_first() {
        let mut kept = Kept::new(Wanted { window: Window::Last(u64::MAX), most: 9 });
        for what in [What::IrqsOff, What::Task(3)] {
            kept.push(Record { what, ..span(1, 4) });
        }
        let whats: Vec<What> = kept.close().3.iter().map(|record| record.what).collect();
        assert_eq!(whats, [What::Task(3), What::IrqsOff]);
    }
}
