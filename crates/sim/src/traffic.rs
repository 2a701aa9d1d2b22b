//! Who interrupts whom, and what memory does over time: kept for whoever draws it, and only then.

use std::cell::RefCell;

use quietmm::Event;

use crate::machine::Machine;

/// Groups of CPUs that are told apart as senders and receivers, at most: more cannot be told apart in a picture either.
const MOST_GROUPS: u32 = 48;
/// With fewer groups than these, groups do not keep to the borders of nodes.
const FEW_GROUPS: u32 = 16;
/// Moments that are kept, at most: where there would be more, every second one goes.
const MOST_MOMENTS: usize = 512;
/// Picoseconds between two moments, at first.
const FIRST_STEP: u64 = 1_000_000;

/// What came of it: see [`RunSpec::traffic`](crate::RunSpec::traffic).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Interrupts that each CPU sent to others.
    pub sent: Vec<u64>,
    /// Interrupts that it received from others.
    pub received: Vec<u64>,
    /// CPUs in a group; the last group may have fewer.
    pub group: u32,
    /// How many groups there are.
    pub groups: u32,
    /// Interrupts from group to group: a row for each group that sends.
    pub pairs: Vec<u64>,
    /// Nodes of the machine, each of as many CPUs, one after another.
    pub nodes: u32,
    /// Frames of the machine.
    pub frames: u64,
    /// Memory over time, from first to last.
    pub moments: Vec<Moment>,
}

/// What had happened up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moment {
    /// When, in picoseconds.
    pub ps: u64,
    /// Frames in use.
    pub used: u64,
    /// Pages reclaimed so far.
    pub reclaimed: u64,
    /// Interrupts received from other CPUs so far.
    pub ipis: u64,
}

/// It is kept here while the machine runs.
pub(crate) struct Tally(RefCell<Kept>);

struct Kept {
    so_far: Traffic,
    now: Moment,
    next: u64,
    step: u64,
}

/// CPUs in a group: as few as can be told apart, and each group within a node or of whole nodes if there are enough of those.
fn group(cpus: u32, nodes: u32) -> u32 {
    let least = cpus.div_ceil(MOST_GROUPS).max(1);
    let node = (cpus / nodes.max(1)).max(1);
    let whole = |size: &u32| node.is_multiple_of(*size) || size.is_multiple_of(node);
    let even = (least..=cpus.max(1)).find(whole).filter(|size| cpus.div_ceil(*size) >= FEW_GROUPS.min(cpus));
    even.unwrap_or(least)
}

impl Tally {
    pub(crate) fn new(machine: &Machine) -> Tally {
        let (cpus, nodes) = (machine.cpus, machine.nodes);
        let group = group(cpus, nodes);
        let groups = cpus.div_ceil(group);
        let so_far = Traffic {
            sent: vec![0; cpus as usize],
            received: vec![0; cpus as usize],
            group,
            groups,
            pairs: vec![0; (groups * groups) as usize],
            nodes,
            frames: machine.all_memory() / 4096,
            moments: Vec::new(),
        };
        Tally(RefCell::new(Kept { so_far, now: Moment::default(), next: 0, step: FIRST_STEP }))
    }

    /// One CPU interrupts another.
    pub(crate) fn sent(&self, from: u16, to: u16) {
        let traffic = &mut self.0.borrow_mut().so_far;
        traffic.sent[usize::from(from)] += 1;
        let [row, column] = [from, to].map(|cpu| u32::from(cpu) / traffic.group);
        traffic.pairs[(row * traffic.groups + column) as usize] += 1;
    }

    /// Something happened on this CPU.
    pub(crate) fn observe(&self, event: &Event, cpu: u16, ps: u64) {
        let kept = &mut *self.0.borrow_mut();
        match *event {
            Event::IpiReceived => {
                kept.so_far.received[usize::from(cpu)] += 1;
                kept.now.ipis += 1;
            }
            Event::Taken { order, .. } => kept.now.used += 1 << order,
            Event::Freed { order, .. } => kept.now.used = kept.now.used.saturating_sub(1 << order),
            Event::Reclaimed { pages, .. } => kept.now.reclaimed += u64::from(pages),
            _ => return,
        }
        // Clocks of CPUs differ a little.
        kept.now.ps = kept.now.ps.max(ps);
        if kept.now.ps >= kept.next {
            kept.note();
        }
    }

    /// All of it, up to now.
    pub(crate) fn close(&self) -> Traffic {
        let kept = &mut *self.0.borrow_mut();
        if kept.so_far.moments.last() != Some(&kept.now) {
            kept.so_far.moments.push(kept.now);
        }
        kept.so_far.clone()
    }
}

impl Kept {
    fn note(&mut self) {
        let moments = &mut self.so_far.moments;
        moments.push(self.now);
        if moments.len() == MOST_MOMENTS {
            let mut nth = 0;
            moments.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.step *= 2;
        }
        self.next = self.now.ps + self.step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_can_be_told_apart_and_keep_to_nodes() {
        for (cpus, nodes, size) in [
            (1, 1, 1),
            (8, 1, 1),
            (48, 4, 1),
            (96, 4, 2),
            (120, 8, 3),
            (256, 2, 8),
            (4096, 32, 128),
            (251, 1, 6),
            (7, 4, 1),
        ] {
            assert_eq!(group(cpus, nodes), size, "{cpus} CPUs on {nodes} nodes");
            assert!(cpus.div_ceil(size) <= MOST_GROUPS);
        }
    }

    #[test]
    fn moments_are_bounded_in_order_and_end_with_the_last() {
        let machine = Machine::builtin("uma-8").unwrap();
        let tally = Tally::new(&machine);
        for nth in 0..100_000 {
            tally.observe(&Event::IpiReceived, 3, nth * 700_000);
        }
        tally.sent(1, 3);
        let traffic = tally.close();
        let moments = &traffic.moments;
        assert!((MOST_MOMENTS / 2..=MOST_MOMENTS).contains(&moments.len()), "{}", moments.len());
        assert!(moments.is_sorted_by(|a, b| a.ps < b.ps && a.ipis < b.ipis));
        assert_eq!(moments.last().map(|last| (last.ps, last.ipis)), Some((99_999 * 700_000, 100_000)));
        assert_eq!((traffic.received[3], traffic.sent[1], traffic.pairs[8 + 3]), (100_000, 1, 1));
    }
}
