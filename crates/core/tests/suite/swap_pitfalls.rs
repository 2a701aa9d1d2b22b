//! The faults that grown systems had with swap, one test each, by the numbers of `docs/rules.md`: what is to be expected of
//! a sound core, and that the fault is seen when it is put back.

use crate::machine;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use machine::race::{Place, at, at_every_touch, every_third, race};
use machine::swapping::{
    AT, DEVICE, anonymous, end, is_out, read, sound, squeeze, swapping, take_free, write, written,
};
use machine::{Mm, Setup, give_back, pages, settled};
use quietmm::platform::DeviceError;
use quietmm::{Advice, AllocFrom, Backing, Config, Counter, Error, PageNumber, Prot, Rule, SpaceId};

/// Something done to a space; returns the space in which to look.
type Way = fn(&Mm<'_>, SpaceId) -> SpaceId;

fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 768, ..Setup::default() }
}

/// CPU 0 swaps out eight pages that CPU 1 has written to. CPU 1 wants to write to each while the device has it: how many
/// it could, and how many of those writes are lost.
fn written_during_pageout(policy: &str, broken: Option<Rule>) -> (u32, u32) {
    at(&setup(2), &Config { scan_batch: 8, ..swapping(policy) }, broken, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = host.on(1, || anonymous(mm, 8));
        let done = Rc::new(Cell::new(0));
        for _ in 0..8 {
            let done = Rc::clone(&done);
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                let could = host.on(1, || host.try_write(host.goes_out.get(), 2));
                done.set(done.get() + u32::from(could));
            }));
        }
        squeeze(mm);
        let kept = host.on(1, || (AT..AT + 8).filter(|&page| host.read(mm, id, page) == Ok(2)).count());
        (done.get(), done.get() - kept as u32)
    })
}

#[test]
fn p03_a_dirty_page_is_flushed_before_it_goes_to_swap() {
    for policy in ["linux", "quiet+unmap=batch"] {
        assert_eq!(written_during_pageout(policy, None), (0, 0));
        assert_eq!(written_during_pageout(policy, Some(Rule::FlushBeforeIo)), (8, 8));
    }
    for policy in ["vanilla", "linux+unmap=batch-clean"] {
        assert_eq!(written_during_pageout(policy, None), (0, 0));
    }
}

/// A page is read back, its slot kept, and changed to 5: what it shows after this, to whom this gives.
fn changed_in_memory(broken: Option<Rule>, then: Way) -> u64 {
    at(&setup(1), &swapping("linux"), broken, |mm| {
        let id = written(mm, 512, 1);
        squeeze(mm);
        assert_eq!(read(mm, id, AT), Ok(AT));
        write(mm, id, AT, 5).unwrap();
        let of = then(mm, id);
        squeeze(mm);
        read(mm, of, AT).unwrap()
    })
}

#[test]
fn p04_what_an_entry_knew_of_a_page_with_a_slot_is_the_pages_before_anybody_looks() {
    let ways: [(&str, Way); 5] = [
        ("reclaimed", |_, id| id),
        ("made read-only", |mm, id| {
            mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
            id
        }),
        ("unmapped by one of two", |mm, id| {
            let child = mm.space(id).fork().unwrap();
            mm.space(id).unmap(pages(AT, 1)).unwrap();
            child
        }),
        ("dropped by one of two", |mm, id| {
            let child = mm.space(id).fork().unwrap();
            mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
            child
        }),
        ("copied by one of two", |mm, id| {
            let child = mm.space(id).fork().unwrap();
            write(mm, id, AT, 6).unwrap();
            child
        }),
    ];
    for (name, way) in ways {
        assert_eq!(changed_in_memory(None, way), 5, "{name}");

        assert_eq!(changed_in_memory(Some(Rule::DirtyBeforeUnlock), way), AT, "{name}");
    }
}

/// CPU 1 reads a page back, and the one beside it, which belongs to another space. That one unmaps it while the device
/// reads; the device is full, so its slot is the next to be taken, and the device takes nothing for a while. What the page
/// shows that is after the slot, and whether all adds up.
fn slot_beside(broken: Option<Rule>) -> (u64, bool) {
    at(&Setup { frames: 1536, ..setup(3) }, &swapping("linux"), broken, |mm| {
        let host = mm.platform();
        let (a, b) = (written(mm, 512, 1), anonymous(mm, 1));
        let c = anonymous(mm, 511);
        squeeze(mm);
        assert!(is_out(mm, a, AT) && is_out(mm, b, AT));
        let waits = (AT..AT + 511).find(|&page| !is_out(mm, c, page)).expect("one has no slot");
        host.on_disk_read.borrow_mut().push_back(Box::new(move |mm| {
            mm.platform().on(2, || mm.space(b).unmap(pages(AT, 1)).unwrap());
            mm.platform().fail_writes.set(true);
            squeeze(mm);
        }));
        let before = mm.counter(Counter::SwapRa);
        assert_eq!(host.on(1, || read(mm, a, AT)), Ok(AT));
        assert_eq!(mm.counter(Counter::SwapRa), before + 1);
        let fine = settled(mm).broken.is_none();
        squeeze(mm);
        host.fail_writes.set(false);
        let shown = read(mm, c, waits).unwrap();
        if broken.is_none() {
            end(mm, &[a, b, c], &[DEVICE]);
        }
        (shown - waits, fine)
    })
}

#[test]
fn p34_a_slot_is_nobody_elses_while_its_page_is_read_back() {
    assert_eq!(slot_beside(None), (0, true));
    let broken = std::panic::catch_unwind(|| slot_beside(Some(Rule::SlotHeldWhileRead)));
    assert!(broken.is_err() || broken.is_ok_and(|(off, fine)| off != 0 || !fine), "two pages in one slot");
}

/// A third of a device cannot be written: pages that show something else than what was written there.
fn a_third_fails(error: DeviceError, broken: Option<Rule>) -> (usize, u64) {
    at(&setup(1), &swapping("linux"), broken, |mm| {
        let host = mm.platform();
        let id = written(mm, 512, 90);
        host.refuse_writes.set(Some(match error {
            DeviceError::Failed => |_, block| (block % 3 == 0).then_some(DeviceError::Failed),
            DeviceError::Gone => |_, block| (block % 3 == 0).then_some(DeviceError::Gone),
        }));
        squeeze(mm);
        let failed = mm.counter(Counter::PgPgOutFailed);
        assert!(failed >= if error == DeviceError::Failed { 30 } else { 1 });
        let wrong = (AT..AT + 90).filter(|&page| read(mm, id, page) != Ok(page)).count();
        host.refuse_writes.set(None);
        if broken.is_none() {
            squeeze(mm);
            assert!((AT..AT + 90).all(|page| read(mm, id, page) == Ok(page)));
            end(mm, &[id], &[DEVICE]);
        }
        (wrong, mm.counter(Counter::PswpOut))
    })
}

#[test]
fn p34_a_page_that_the_device_does_not_take_is_not_lost_and_the_others_of_its_batch_go() {
    let (wrong, out) = a_third_fails(DeviceError::Failed, None);
    assert_eq!((wrong, out >= 90), (0, true));
    assert_eq!(a_third_fails(DeviceError::Failed, Some(Rule::KeepWhatFailed)).0, 30);
    assert_eq!(a_third_fails(DeviceError::Gone, None).0, 0);
    assert!(a_third_fails(DeviceError::Gone, Some(Rule::KeepWhatFailed)).0 > 0);
}

#[test]
fn p34_what_failed_can_be_unmapped_dropped_forked_moved_and_brought_back() {
    let ways: [(&str, Way); 6] = [
        ("unmapped", |mm, id| {
            mm.space(id).unmap(pages(AT + 4, 4)).unwrap();
            id
        }),
        ("dropped", |mm, id| {
            mm.space(id).advise(pages(AT + 4, 4), Advice::Drop).unwrap();
            id
        }),
        ("forked", |mm, id| mm.space(id).fork().unwrap()),
        ("forked and ended", |mm, id| {
            let child = mm.space(id).fork().unwrap();
            mm.unload();
            mm.space(id).destroy().unwrap();
            child
        }),
        ("moved", |mm, id| {
            mm.space(id).move_range(pages(AT + 4, 4), PageNumber(0x9000)).unwrap();
            id
        }),
        ("brought back", |mm, id| {
            mm.swap().off(DEVICE).unwrap();
            assert_eq!(settled(mm).swapped, 0);
            mm.swap().on(DEVICE, 512, 0).unwrap();
            id
        }),
    ];
    for (name, way) in ways {
        at(&setup(1), &swapping("linux"), None, |mm| {
            let id = written(mm, 512, 8);
            mm.platform().fail_writes.set(true);
            squeeze(mm);
            assert!(settled(mm).swapped > 0, "{name}: the entries name slots");
            let of = way(mm, id);
            sound(mm);
            squeeze(mm);
            assert!((AT..AT + 4).all(|page| read(mm, of, page) == Ok(page)), "{name}");
            mm.platform().fail_writes.set(false);
            squeeze(mm);
            assert!((AT..AT + 4).all(|page| read(mm, of, page) == Ok(page)), "{name}");
            let all = if name == "forked" { vec![id, of] } else { vec![of] };
            end(mm, &all, &[DEVICE]);
        });
    }
}

/// CPU 0 needs memory, and takes the four pages of a space in which CPUs 1 and 2 run; CPU 2 has them cached, clean or
/// dirty. CPU 1 writes to one in the middle of that and reads another; CPU 2 writes to a third if it still can. Whether
/// all see the same, no page changed while its device had it, and nothing was lost.
fn back_in_the_middle(policy: &str, clean: bool, mm: &Mm<'_>, place: Place) -> bool {
    let host = mm.platform();
    mm.swap().on(DEVICE, 512, 0).unwrap();
    let id = host.on(2, || anonymous(mm, 4));
    let other = mm.create_space().unwrap();
    mm.space(other).map(pages(AT, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
    assert_eq!(write(mm, other, AT + 7, 7), Ok(()), "its tables are made");
    host.on(1, || mm.space(id).switch_to().unwrap());
    if clean {
        squeeze(mm);
        host.on(2, || (AT..AT + 4).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page))));
    }
    let mut all = take_free(mm);
    let spare = all.split_off(all.len() - 4);
    let mine = Cell::new(false);
    let same = race(
        mm,
        place,
        || (AT..AT + 3).for_each(|page| host.write(mm, other, page, 9).unwrap()),
        || {
            give_back(mm, spare);
            host.write(mm, id, AT, 100).unwrap();
            let same = host.on(2, || host.read(mm, id, AT)) == Ok(100);
            mine.set(host.on(2, || host.try_write(AT + 1, 101)));
            same && host.read(mm, id, AT + 2) == Ok(AT + 2)
        },
    );
    give_back(mm, all);
    let second = if mine.get() { 101 } else { AT + 1 };
    let shown = |of, want: &[u64]| (AT..).zip(want).all(|(page, &value)| read(mm, of, page) == Ok(value));
    let right = |_| shown(id, &[100, second, AT + 2, AT + 3]) && shown(other, &[9, 9, 9]);
    let now = right(());
    squeeze(mm);
    let fine = same && now && right(()) && host.torn.get() == 0 && settled(mm).broken.is_none();
    if host.broken.get().is_none() {
        assert!(fine, "{policy}, clean {clean}, {place:?}: {same} {now} {}", host.torn.get());
        end(mm, &[id, other], &[DEVICE]);
    }
    fine
}

/// How many cases there are, and how many went wrong.
fn reclaimed_and_wanted(policy: &str, clean: bool, broken: Option<Rule>) -> (usize, usize) {
    let config = swapping(policy);
    // Every touch with one policy; every third is enough to see a fault, and every seventh with the other policies.
    let stride = if broken.is_some() {
        3
    } else if policy == "linux" {
        1
    } else {
        7
    };
    let case = |mm: &Mm<'_>, place| {
        let place = if let Place::Touch(n) = place { Place::Touch(n * stride + n % stride) } else { place };
        back_in_the_middle(policy, clean, mm, place)
    };
    let all = at_every_touch(&setup(3), &config, broken, case);
    let all = all.and_at((&setup(3), &config, broken), (0..6).map(Place::Write), case);
    (all.results.len() + all.fell, all.count(|&fine| !fine))
}

#[test]
fn p35_a_page_that_is_wanted_while_it_is_reclaimed_is_one_page() {
    for policy in ["linux", "vanilla", "linux+unmap=batch-clean"] {
        for clean in [false, true] {
            let (cases, wrong) = reclaimed_and_wanted(policy, clean, None);
            assert!(cases > 100 && wrong == 0, "{policy}: {wrong} of {cases}");
        }
    }
    for (rule, clean) in [
        (Rule::SwapInLocks, false),
        (Rule::FreezeBeforeFree, true),
        (Rule::FreezeBeforeFree, false),
        (Rule::CacheUntilFlush, true),
    ] {
        let (cases, wrong) = reclaimed_and_wanted("linux", clean, Some(rule));
        assert!(wrong > 0, "{rule}, clean {clean}: nothing was seen in {cases} cases");
    }
}

/// With the rule broken a page's lock is let go of by one and then by another, to whom it is not locked any more: the core says so where debug assertions are on.
#[test]
fn whoever_works_on_a_page_that_is_not_locked_is_told() {
    let broken = Some(Rule::SwapInLocks);
    let cases = at_every_touch(&setup(3), &swapping("linux"), broken, |mm, place| {
        let work = || back_in_the_middle("linux", false, mm, every_third(place));
        let payload = catch_unwind(AssertUnwindSafe(work)).err()?;
        if !payload.is::<String>() {
            resume_unwind(payload);
        }
        payload.downcast::<String>().ok()
    });
    let told = cases.results.iter().flatten().filter(|said| said.ends_with("is worked on, and not locked"));
    assert!(told.count() > 0, "{:?}", cases.results);
}

#[test]
fn p35_an_error_of_the_device_in_the_middle_is_the_faults_that_waits_too() {
    // Both want the same slot; whoever waits for the other's read, which fails, tries for himself, and that fails too.
    let cases = at_every_touch(&setup(2), &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 1);
        host.on(1, || mm.space(id).switch_to().unwrap());
        squeeze(mm);
        host.fail_reads.set(true);
        let error = Err(Error::SwapDevice(PageNumber(AT)));
        let first = Cell::new(Ok(0));
        let second = race(mm, place, || first.set(host.read(mm, id, AT)), || host.read(mm, id, AT));
        assert_eq!((first.get(), second), (error, error));
        sound(mm);
        host.fail_reads.set(false);
        assert_eq!(host.read(mm, id, AT), Ok(AT));
        end(mm, &[id], &[DEVICE]);
    });
    assert!(cases.results.len() > 50);
}

/// CPU 1 uses four pages that it has cached all the time, while CPU 0 needs one page more than there is. How many of them
/// reclaim took for idle at its second look, flushes of aging, and whether what CPU 1 wrote is there.
fn used_by_what_is_cached(policy: &str) -> (u64, usize, bool) {
    at(&setup(2), &swapping(policy), None, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = host.on(1, || anonymous(mm, 4));
        let all = take_free(mm);
        // In the middle of reclaim: each time that a page has got its second chance it is used again.
        for round in 0..4 {
            host.on_rotated.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                (AT..AT + 4).for_each(|page| _ = host.on(1, || host.try_write(page, page + 1000 + round)));
            }));
        }
        host.forget();
        mm.frames().free(mm.frames().alloc(0, AllocFrom::HERE).unwrap());
        let flushes = host.interrupts_to(1);
        give_back(mm, all);
        let out = mm.counter(Counter::PgEvicted);
        host.on_rotated.borrow_mut().clear();
        let values: Vec<_> =
            host.on(1, || (AT..AT + 4).map(|page| host.read(mm, id, page).unwrap() - page).collect());
        let whole = values.iter().all(|value| (1000..1004).contains(value));
        squeeze(mm);
        let again = host
            .on(1, || (AT..).zip(&values).all(|(page, value)| host.read(mm, id, page) == Ok(page + value)));
        end(mm, &[id], &[DEVICE]);
        (out, flushes, whole && again)
    })
}

/// INV-10: a use through a cached entry sets no bit. The page is taken though it is in use; what was written is not lost.
#[test]
fn a_page_that_is_used_through_a_cached_entry_looks_idle_and_loses_nothing() {
    let (out, flushes, whole) = used_by_what_is_cached("linux+aging=no-flush");
    assert_eq!((out, flushes, whole), (4, 1, true), "all four are taken, with one interrupt for the batch");
    let (_, with_flush, whole) = used_by_what_is_cached("linux+aging=flush");
    assert!(whole && with_flush > 4, "{with_flush}: one for each bit that was cleared");
}

/// CPU 0 reads a page back and the one beside it, which is another space's; CPU 1 lets go of that one, at every touch.
#[test]
fn a_page_that_is_read_ahead_can_be_let_go_of_meanwhile() {
    let case = |mm: &Mm<'_>, place| {
        let host = mm.platform();
        let (a, b) = host.on(2, || (written(mm, 512, 1), anonymous(mm, 1)));
        host.on(2, || squeeze(mm));
        let unmap = || mm.space(b).unmap(pages(AT, 1)).unwrap();
        race(mm, place, || assert_eq!(read(mm, a, AT), Ok(AT)), unmap);
        assert!(mm.counter(Counter::PswpIn) >= 1);
        sound(mm);
        squeeze(mm);
        assert_eq!(read(mm, a, AT), Ok(AT));
        let ahead = mm.counter(Counter::SwapRa);
        end(mm, &[a, b], &[DEVICE]);
        ahead
    };
    let (setup, config) = (setup(3), swapping("linux"));
    let cases = at_every_touch(&setup, &config, None, case);
    let cases = cases.and_at((&setup, &config, None), (0..2).map(Place::Read), case);
    assert!(cases.results.len() > 100 && cases.count(|&ahead| ahead > 0) > 50);
}
