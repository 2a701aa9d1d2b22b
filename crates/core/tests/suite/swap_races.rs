//! What others do to a page while it goes out or comes back: each at every place where two CPUs can be.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::race::{Cases, Place, at_every_touch, at_places, race};
use machine::swapping::{
    AT, DEVICE, anonymous, end, is_out, read, reclaim, sound, squeeze, swapping, take_free, write, written,
};
use machine::{Host, Mm, Setup, exhaust, give_back, pages};
use quietmm::platform::{Cpus, DeviceError, Store};
use quietmm::{Advice, Backing, Error, NodeId, PageNumber, Prot, SpaceId};

fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 256, ..Setup::default() }
}

/// Parent and child share a page, which the parent has read back and the child has not.
fn shared(mm: &Mm<'_>, slots: u64) -> (SpaceId, SpaceId) {
    let parent = written(mm, slots, 1);
    let child = mm.space(parent).fork().unwrap();
    squeeze(mm);
    assert_eq!(read(mm, parent, AT), Ok(AT));
    assert!(is_out(mm, child, AT));
    (parent, child)
}

#[test]
fn rights_given_back_do_not_let_write_to_what_another_has_in_swap() {
    let host = Host::new(setup(1));
    host.run(swapping("linux"), |mm| {
        let (parent, child) = shared(mm, 512);
        mm.space(parent).protect(pages(AT, 1), Prot::Read).unwrap();
        mm.space(parent).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
        assert_eq!(write(mm, parent, AT, 1), Ok(()));
        assert_eq!((read(mm, child, AT), read(mm, parent, AT)), (Ok(AT), Ok(1)));
        end(mm, &[parent, child], &[DEVICE]);
    });
}

#[test]
fn a_page_that_moved_to_another_node_goes_to_swap_too() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        let far = |page| !(0xfc00..0x10400).contains(&machine::showing::frame(mm, id, page).0);
        let to = NodeId(u16::from(!far(AT)));
        assert_eq!(mm.space(id).migrate(pages(AT, 8), to), Ok(8));
        squeeze(mm);
        assert!((AT..AT + 8).all(|page| is_out(mm, id, page)));
        assert!((AT..AT + 8).all(|page| read(mm, id, page) == Ok(page)));
        end(mm, &[id], &[DEVICE]);
    });
}

#[test]
fn a_page_that_gets_a_slot_on_its_way_to_another_node_keeps_it_to_itself() {
    let setup = Setup { frames: 1024, ..setup(2) };
    let region = |node: u16| quietmm::Region {
        start: quietmm::FrameNumber(setup.base + 512 * u32::from(node)),
        frames: 512,
        node: NodeId(node),
    };
    let setup = Setup { nodes: 2, regions: Some(vec![region(0), region(1)]), ..setup };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let id = written(mm, 512, 2);
        let here = machine::showing::frame(mm, id, AT).0 < 0xfe00;
        let to = NodeId(u16::from(here));
        race(mm, place, || _ = mm.space(id).migrate(pages(AT, 2), to).unwrap(), || squeeze(mm));
        sound(mm);
        let other = mm.create_space().unwrap();
        mm.space(other).map(pages(AT, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
        (AT..AT + 8).for_each(|page| write(mm, other, page, 7).unwrap());
        squeeze(mm);
        sound(mm);
        assert!((AT..AT + 2).all(|page| read(mm, id, page) == Ok(page)));
        assert!((AT..AT + 8).all(|page| read(mm, other, page) == Ok(7)));
        end(mm, &[id, other], &[DEVICE]);
    });
    assert!(cases.results.len() > 50, "{}", cases.results.len());
}

#[test]
fn a_swap_device_for_which_memory_does_not_suffice_can_be_asked_for_later() {
    let host = Host::new(setup(1));
    host.run(swapping("linux"), |mm| {
        let all = exhaust(mm);
        assert_eq!(mm.swap().on(DEVICE, 4096, 0), Err(Error::OutOfMemory));
        sound(mm);
        give_back(mm, all);
        sound(mm);
        assert_eq!(mm.swap().on(DEVICE, 4096, 0), Ok(()));
        let id = anonymous(mm, 8);
        squeeze(mm);
        assert!((AT..AT + 8).all(|page| read(mm, id, page) == Ok(page)));
        end(mm, &[id], &[DEVICE]);
    });
}

/// What hardware that does not walk again for a write through a clean entry leaves of a write before a fork.
#[test]
fn what_was_written_silently_before_a_fork_is_not_lost() {
    let host = Host::new(Setup { guarantees: false, ..setup(2) });
    host.run(swapping("vanilla"), |mm| {
        let a = written(mm, 512, 1);
        squeeze(mm);
        // Read back, its slot kept; its entry is cached clean and writable, and nobody notes the write.
        host.on(1, || assert_eq!(read(mm, a, AT), Ok(AT)));
        host.hold_interrupts.set(true);
        host.on_pause.borrow_mut().push_back(Box::new(|mm| {
            // The fork has narrowed the entry, and its flush is on its way.
            mm.platform().uses_windows.set(true);
            assert!(mm.platform().on(1, || mm.platform().try_write(AT, 5)));
        }));
        let b = mm.space(a).fork().unwrap();
        host.hold_interrupts.set(false);
        squeeze(mm);
        assert_eq!((read(mm, a, AT), read(mm, b, AT)), (Ok(5), Ok(5)));
        end(mm, &[a, b], &[DEVICE]);
    });
}

#[test]
fn pages_whose_device_is_gone_go_to_another_once_they_are_back() {
    let host = Host::new(setup(1));
    host.run(swapping("linux"), |mm| {
        mm.swap().on(1, 512, 5).unwrap();
        mm.swap().on(2, 512, 1).unwrap();
        let id = anonymous(mm, 64);
        host.refuse_writes.set(Some(|store, _| (store == Store::Swap(1)).then_some(DeviceError::Gone)));
        squeeze(mm);
        let out = (0..512).filter(|&block| host.kept(Store::Swap(2), block).is_some()).count();
        assert!(out > 40 && out < 64, "{out}: the others go on, and what was on its way stays");
        assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)));
        (AT..AT + 64).for_each(|page| write(mm, id, page, page + 1).unwrap());
        squeeze(mm);
        let out = (0..512).filter(|&block| host.kept(Store::Swap(2), block).is_some()).count();
        assert_eq!(out, 64, "none of them has a slot on the device that is gone");
        assert_eq!(mm.swap().off(1), Ok(()));
        assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page + 1)));
        end(mm, &[id], &[2]);
    });
}

/// While the parent is about to be let write to a page, the child, which has it in swap, reads it, and perhaps no slot is
/// free: the page has a slot no more, and two entries.
fn written_while_shared(slots: u64) -> Cases<bool> {
    at_every_touch(&Setup { frames: 1536, ..setup(2) }, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let (parent, child) = shared(mm, 512);
        host.on(1, || mm.space(child).switch_to().unwrap());
        // Another space has all slots but so many.
        let other = anonymous(mm, 511 - slots);
        mm.unload();
        squeeze(mm);
        assert_eq!(read(mm, parent, AT), Ok(AT));
        assert!(is_out(mm, child, AT));
        race(
            mm,
            place,
            || host.write(mm, parent, AT, 1).unwrap(),
            || {
                assert_eq!(host.read(mm, child, AT), Ok(AT));
            },
        );
        let right = host.on(1, || host.read(mm, child, AT)) == Ok(AT);
        assert_eq!(host.read(mm, parent, AT), Ok(1));
        sound(mm);
        end(mm, &[parent, child, other], &[DEVICE]);
        right
    })
}

parts!(
    a_write_fault_and_the_other_spaces_fault_do_not_share_what_is_written,
    |part, parts| {
        let slots = [0, 8][part % 2];
        let cases = at_places((part / 2, parts / 2), || written_while_shared(slots));
        assert!(cases.results.len() > 1, "{}", cases.results.len());
        assert_eq!(cases.count(|&right| !right), 0, "{slots} slots free");
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15
    ]
);

/// Tries again where memory was short: the other CPU has it, and gives it back.
fn insist<T>(mm: &Mm<'_>, attempt: impl Fn() -> Result<T, Error>) -> T {
    for _ in 0..1000 {
        match attempt() {
            Err(Error::OutOfMemory) => mm.platform().pause(1),
            done => return done.unwrap(),
        }
    }
    panic!("no memory came back");
}

/// Something done to a space with four pages, perhaps with a child for its result; and what shows that it was done.
#[derive(Clone, Copy)]
struct Op {
    name: &'static str,
    run: fn(&Mm<'_>, SpaceId) -> Option<SpaceId>,
    /// Page, and what is read there.
    shows: fn(u64) -> Result<u64, Error>,
}

const NOT_THERE: fn(u64) -> Result<u64, Error> = |page| Err(Error::NotMapped(PageNumber(page)));
/// Where ranges are moved to.
const TO: u64 = 0x9000;

const OPS: [Op; 7] = [
    Op {
        name: "unmap",
        run: |mm, id| {
            insist(mm, || mm.space(id).unmap(pages(AT + 1, 2)));
            None
        },
        shows: |page| if (AT + 1..AT + 3).contains(&page) { NOT_THERE(page) } else { Ok(page) },
    },
    Op { name: "fork", run: |mm, id| Some(insist(mm, || mm.space(id).fork())), shows: Ok },
    Op {
        name: "move",
        run: |mm, id| {
            insist(mm, || mm.space(id).move_range(pages(AT + 1, 2), PageNumber(TO + 1)));
            None
        },
        shows: |page| match page {
            page if (AT + 1..AT + 3).contains(&page) => NOT_THERE(page),
            page if page >= TO => Ok(page - TO + AT),
            page => Ok(page),
        },
    },
    Op {
        name: "protect",
        run: |mm, id| {
            insist(mm, || mm.space(id).protect(pages(AT + 1, 2), Prot::Read));
            insist(mm, || mm.space(id).protect(pages(AT + 1, 1), Prot::ReadWrite));
            None
        },
        shows: Ok,
    },
    Op {
        name: "drop",
        run: |mm, id| {
            insist(mm, || mm.space(id).advise(pages(AT + 1, 2), quietmm::Advice::Drop));
            None
        },
        shows: |page| if (AT + 1..AT + 3).contains(&page) { Ok(0) } else { Ok(page) },
    },
    Op {
        name: "swap off",
        run: |mm, _| {
            insist(mm, || mm.swap().off(DEVICE));
            insist(mm, || mm.swap().on(DEVICE, 512, 0));
            None
        },
        shows: Ok,
    },
    Op {
        name: "faults",
        run: |mm, id| {
            assert_eq!(insist(mm, || mm.platform().read(mm, id, AT)), AT);
            insist(mm, || mm.platform().write(mm, id, AT + 3, AT + 3));
            None
        },
        shows: Ok,
    },
];

/// Reclaim takes pages, as a task that needs memory would.
fn take_pages(mm: &Mm<'_>, _: SpaceId) -> Option<SpaceId> {
    give_back(mm, exhaust(mm));
    None
}

/// One CPU works on the space, in whose middle the other works on it too. Two of its pages are out, two are back.
fn meet(mm: &Mm<'_>, place: Place, first: Op, second: Op) {
    let host = mm.platform();
    // Every fifth touch, not quite regularly; of reclaim, which looks again and again, fewer.
    let stride = if first.name == "reclaim" { 29 } else { 5 };
    let place = if let Place::Touch(n) = place { Place::Touch(n * stride + n % stride) } else { place };
    let id = written(mm, 512, 4);
    host.on(1, || mm.space(id).switch_to().unwrap());
    // So that reclaim finds no memory left, and is short.
    let mut all = exhaust(mm);
    let spare = all.split_off(all.len() - 40);
    give_back(mm, spare);
    assert!(is_out(mm, id, AT));
    (AT + 2..AT + 4).for_each(|page| host.write(mm, id, page, page).unwrap());
    let child = std::cell::Cell::new(None);
    let other = race(mm, place, || child.set((first.run)(mm, id)), || (second.run)(mm, id));
    give_back(mm, all);
    assert_eq!(host.torn.get(), 0);
    for _ in 0..2 {
        sound(mm);
        for page in [AT, AT + 1, AT + 2, AT + 3, TO + 1, TO + 2] {
            let moved = [first, second].iter().any(|op| op.name == "move");
            if page > TO && !moved {
                continue;
            }
            let shown = [(first.shows)(page), (second.shows)(page)];
            // Whichever of them changed it.
            let plain = if page > TO { page - TO + AT } else { page };
            let want =
                shown.into_iter().find(|&shown| shown != Ok(plain) && shown != Ok(page)).unwrap_or(Ok(plain));
            assert_eq!(read(mm, id, page), want, "{:#x} after {} and {}", page, first.name, second.name);
        }
        for child in [child.get(), other].into_iter().flatten() {
            assert!((AT..AT + 4).all(|page| read(mm, child, page) == Ok(page)), "{}", first.name);
        }
        squeeze(mm);
    }
    let spaces: Vec<_> = [Some(id), child.get(), other].into_iter().flatten().collect();
    end(mm, &spaces, &[DEVICE]);
}

const RECLAIM: Op = Op { name: "reclaim", run: take_pages, shows: Ok };

/// These two at every place, or at those of this part of all.
fn meet_everywhere(first: Op, second: Op, (part, parts): (usize, usize), least: usize) {
    let played =
        || at_every_touch(&setup(2), &swapping("linux"), None, |mm, place| meet(mm, place, first, second));
    let cases = at_places((part, parts), played);
    let count = cases.results.len();
    assert!(count * parts >= least, "{} and {}: {count}", first.name, second.name);
}

/// Each operation, and its places in as many parts as there are then.
fn op_of((part, parts): (usize, usize)) -> (Op, (usize, usize)) {
    (OPS[part % OPS.len()], (part / OPS.len(), parts / OPS.len()))
}

parts!(
    whatever_is_done_in_the_middle_of_reclaim_is_done,
    |part, parts| {
        let (op, places) = op_of((part, parts));
        meet_everywhere(RECLAIM, op, places, 40);
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26 p27
    ]
);

parts!(
    reclaim_in_the_middle_of_whatever_is_done_takes_nothing_away,
    |part, parts| {
        let (op, places) = op_of((part, parts));
        meet_everywhere(op, RECLAIM, places, 15);
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26 p27
    ]
);

parts!(
    faults_in_the_middle_of_whatever_is_done_find_every_page,
    |part, parts| {
        // What is unmapped or dropped is not there to be found.
        let ops: Vec<_> = OPS.iter().filter(|op| !matches!(op.name, "unmap" | "drop")).collect();
        assert!(parts.is_multiple_of(ops.len()), "all of them");
        let (op, places) = (*ops[part % ops.len()], (part / ops.len(), parts / ops.len()));
        meet_everywhere(op, OPS[6], places, 15);
        meet_everywhere(OPS[6], op, places, 0);
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19
    ]
);

/// Whoever goes round and round gives way each time; others get on meanwhile.
fn gives_up_after(mm: &Mm<'_>, times: u32) {
    let before = mm.platform().rescheds.get();
    mm.platform().at_cond_resched(move |mm| {
        assert!(mm.platform().rescheds.get() - before < times, "it goes round, and the others stand still");
    });
}

/// What a space has in swap is nowhere to be found while it ends, and is in use until it has.
#[test]
fn a_device_goes_off_while_a_space_ends_that_has_pages_there() {
    let cases = at_every_touch(&setup(2), &swapping("linux"), None, |mm, place| {
        let id = written(mm, 512, 4);
        squeeze(mm);
        mm.unload();
        assert!((AT..AT + 4).all(|page| is_out(mm, id, page)));
        gives_up_after(mm, 100_000);
        let ends = || mm.space(id).destroy().unwrap();
        assert_eq!(race(mm, place, ends, || mm.swap().off(DEVICE)), Ok(()));
        assert_eq!(mm.swap().usage(), quietmm::SwapUsage::default());
        sound(mm);
    });
    assert!(cases.results.len() > 50);
}

/// Two who touch a page for the first time at once get one page, and the other goes back.
#[test]
fn a_page_that_two_touch_first_at_once_is_one_page() {
    let cases = at_every_touch(&setup(2), &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = anonymous(mm, 1);
        mm.space(id).map(pages(AT + 1, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        let before = sound_counts(mm);
        race(mm, place, || host.write(mm, id, AT + 1, 1).unwrap(), || host.write(mm, id, AT + 1, 2).unwrap());
        let [anon, free] = sound_counts(mm);
        assert_eq!([anon, free], [before[0] + 1, before[1] - 1]);
        end(mm, &[id], &[]);
    });
    assert!(cases.results.len() > 20);
}

fn sound_counts(mm: &Mm<'_>) -> [u64; 2] {
    let audit = machine::settled(mm);
    assert_eq!((audit.broken, audit.leaked), (None, 0));
    [audit.anon, audit.free]
}

/// A page comes back, and the one beside it with it, to which another CPU does this meanwhile: nothing of it is left in the end.
fn comes_back_with_another(second: fn(&Mm<'_>, SpaceId)) {
    let cases = at_every_touch(&setup(2), &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 2);
        host.on(1, || mm.space(id).switch_to().unwrap());
        squeeze(mm);
        assert!(is_out(mm, id, AT) && is_out(mm, id, AT + 1));
        race(mm, place, || assert_eq!(host.read(mm, id, AT), Ok(AT)), || second(mm, id));
        sound(mm);
        end(mm, &[id], &[DEVICE]);
        mm.counter(quietmm::Counter::SwapRa)
    });
    assert!(cases.results.len() > 50);
    assert!(cases.count(|&ahead| ahead > 0) > 0, "nothing was read ahead");
}

#[test]
fn what_is_read_ahead_meets_who_wants_it_and_who_drops_it() {
    comes_back_with_another(|mm, id| assert_eq!(mm.platform().read(mm, id, AT + 1), Ok(AT + 1)));
    comes_back_with_another(|mm, id| mm.space(id).unmap(pages(AT + 1, 1)).unwrap());
}

/// A write began before a fork, and the dirty bit comes after the entry was narrowed. The parent takes a copy, and the original, which
/// is the child's then, goes to the device with what was written.
#[test]
fn what_was_begun_before_a_fork_is_not_lost_with_the_copy() {
    let host = Host::new(setup(2));
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 1);
        squeeze(mm);
        host.on(1, || {
            assert_eq!(read(mm, id, AT), Ok(AT));
            assert!(host.begin_write(AT, 5), "its slot is kept, and the entry is clean");
        });
        let child = mm.space(id).fork().unwrap();
        host.end_write(1);
        assert_eq!((write(mm, id, AT, 9), read(mm, child, AT)), (Ok(()), Ok(5)));
        squeeze(mm);
        assert!(is_out(mm, child, AT));
        assert_eq!((read(mm, id, AT), read(mm, child, AT)), (Ok(9), Ok(5)));
        end(mm, &[id, child], &[DEVICE]);
    });
}

/// The node is full: nothing moves there, and what was found elsewhere goes back.
#[test]
fn where_the_other_node_is_full_nothing_moves_and_nothing_is_lost() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(swapping("linux"), |mm| {
        let id = anonymous(mm, 4);
        let from = quietmm::AllocFrom { node: Some(NodeId(1)), may_reclaim: false };
        let mut held: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, from).ok()).collect();
        // Some of this node are free.
        let near = |block: &quietmm::Frames| block.first().0 < host.regions()[1].start.0;
        let (mine, far): (Vec<_>, Vec<_>) = held.drain(..).partition(near);
        give_back(mm, mine);
        let free = machine::settled(mm).free;
        assert!(free > 16);
        assert_eq!(mm.space(id).migrate(pages(AT, 4), NodeId(1)), Ok(0));
        assert_eq!(machine::settled(mm).free, free);
        give_back(mm, far);
        assert_eq!(mm.space(id).migrate(pages(AT, 4), NodeId(1)), Ok(4));
        assert_eq!(machine::settled(mm).broken, None);
    });
}

/// The machine hears that a page has left memory when that is no longer so: it has come back and was changed, its device is off and
/// another has the number, and it went to the same block of that. Nothing is lost of what is there now.
#[test]
fn a_device_hears_late_that_a_page_has_left() {
    let out = |mm: &Mm<'_>, id| {
        mm.drain_lru_batch();
        mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        assert!(is_out(mm, id, AT));
    };
    let host = Host::new(setup(2));
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 1);
        let block = Rc::new(Cell::new(None));
        let found = Rc::clone(&block);
        host.on_forget.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.on(1, || {
                let old = host.kept(Store::Swap(DEVICE), 0);
                mm.space(id).switch_to().unwrap();
                assert_eq!(host.read(mm, id, AT), Ok(AT));
                mm.swap().off(DEVICE).unwrap();
                mm.swap().on(DEVICE, 512, 0).unwrap();
                host.write(mm, id, AT, 77).unwrap();
                out(mm, id);
                found.set(Some((old, host.kept(Store::Swap(DEVICE), 0))));
                mm.unload();
            });
        }));
        out(mm, id);
        assert_eq!(block.get(), Some((Some(AT), Some(77))), "the same block");
        assert_eq!(read(mm, id, AT), Ok(77));
        end(mm, &[id], &[DEVICE]);
    });
}

/// The same of a file: its page is back in memory, or it has ended and the next file has its place.
#[test]
fn a_device_hears_late_that_a_page_of_a_file_has_left() {
    let host = Host::new(setup(1));
    host.run(swapping("linux"), |mm| {
        let word = |mm: &Mm<'_>, file| {
            let mut word = [0; 8];
            mm.file(file).read(0, &mut word).unwrap();
            u64::from_ne_bytes(word)
        };
        let write = |mm: &Mm<'_>, file, word: u64| {
            mm.file(file).write(0, &word.to_ne_bytes()).unwrap();
            mm.file(file).write_back().unwrap();
        };
        // Its page leaves memory, and `then` comes before the device hears of it. Memory was short.
        let leaves = |then: Box<dyn FnOnce(&Mm<'_>)>| {
            mm.drain_lru_batch();
            let held = take_free(mm);
            host.on_forget.borrow_mut().push_back(Box::new(move |mm| {
                give_back(mm, held);
                then(mm);
            }));
            reclaim(mm);
            assert!(host.on_forget.borrow().is_empty(), "it went");
        };
        let file = mm.create_file(1).unwrap();
        write(mm, file, 7);
        leaves(Box::new(move |mm| {
            assert_eq!(word(mm, file), 7);
            write(mm, file, 8);
        }));
        assert_eq!(word(mm, file), 8);
        let next = Rc::new(Cell::new(None));
        let made = Rc::clone(&next);
        leaves(Box::new(move |mm| {
            mm.file(file).destroy().unwrap();
            let file = mm.create_file(1).unwrap();
            write(mm, file, 9);
            made.set(Some(file));
        }));
        let next = next.get().unwrap();
        assert_eq!((next.index(), word(mm, next)), (file.index(), 9));
        mm.file(next).destroy().unwrap();
        sound(mm);
    });
}

/// CPU 0 has found a device with a free slot. That goes off, and a larger one comes in its place, whose slots have other numbers.
#[test]
fn no_slot_is_taken_of_a_device_that_has_gone_off() {
    let setup = Setup { frames: 512, ..setup(2) };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 1);
        mm.swap().on(8, 512, -1).unwrap();
        let other = || {
            mm.swap().off(DEVICE).unwrap();
            mm.swap().on(9, 1024, 0).unwrap();
        };
        race(mm, place, || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap(), other);
        let beyond = |what: &machine::Happened| matches!(what, machine::Happened::DiskWrite(_, 1024..));
        assert_eq!((host.count(beyond), read(mm, id, AT)), (0, Ok(AT)));
        end(mm, &[id], &[8, 9]);
    });
    assert!(cases.results.len() > 100, "{}", cases.results.len());
}
