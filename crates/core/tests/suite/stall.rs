//! A task that finds no memory: what it waits for, whom it asks, and that it comes to an end.

use crate::machine;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use machine::swapping::{AT, DEVICE, anonymous, end, read, swapping, take_free};
use machine::{Host, Mm, Setup, bare, give_back, keep_batches, pages, pcp, settled};
use quietmm::platform::WaitKey;
use quietmm::{Advice, AllocFrom, Backing, Config, Counter, Error, Frames, Prot, UserAccess};

fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 768, ..Setup::default() }
}

fn one_frame(mm: &Mm<'_>) -> Result<Frames, Error> {
    mm.frames().alloc(0, AllocFrom::HERE)
}

/// A task has sent the last pages that can be reclaimed to their device, which is at work. On CPU `cpu` another one wants a
/// frame. What it gets, and how often a victim was asked for.
fn while_pages_are_on_their_way(cpus: u32, cpu: u16, device_works: bool) -> (Result<(), Error>, u64) {
    let host = Host::new(setup(cpus));
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = anonymous(mm, 4);
        mm.drain_lru_batch();
        let held = take_free(mm);
        host.place();
        host.fail_writes.set(!device_works);
        let mut more = Vec::new();
        let got = host.aside(
            0,
            || more.extend(one_frame(mm)),
            |first| {
                host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
                assert!(host.resume_one(first), "the device is at work");
                host.on(cpu, || one_frame(mm))
            },
        );
        host.all_placed();
        let asked = mm.counter(Counter::OutOfMemory);
        give_back(mm, held);
        give_back(mm, more);
        let result = got.map(|frame| give_back(mm, vec![frame]));
        host.fail_writes.set(false);
        assert!((AT..AT + 4).all(|page| read(mm, id, page) == Ok(page)), "nothing is lost");
        end(mm, &[id], &[DEVICE]);
        (result, asked)
    })
}

#[test]
fn who_finds_nothing_waits_for_the_pages_that_are_on_their_way() {
    for (cpus, cpu) in [(1, 0), (2, 1)] {
        assert_eq!(while_pages_are_on_their_way(cpus, cpu, true), (Ok(()), 0), "{cpus} CPUs");
        // Each of the two asks once, when there is nothing to wait for any more.
        let failed = while_pages_are_on_their_way(cpus, cpu, false);
        assert_eq!(failed, (Err(Error::OutOfMemory), 2), "{cpus} CPUs");
    }
}

#[test]
fn other_tasks_run_while_one_finds_nothing_on_one_cpu_too() {
    for cpus in [1, 2] {
        let host = Host::new(setup(cpus));
        host.run(bare("linux"), |mm| {
            let mut held = take_free(mm);
            // Another task frees a frame the third time that it may run.
            let own = RefCell::new((2, held.pop()));
            host.at_cond_resched(move |mm| {
                let (left, frame) = &mut *own.borrow_mut();
                match *left {
                    0 => frame.take().into_iter().for_each(|frame| mm.frames().free(frame)),
                    _ => *left -= 1,
                }
            });
            let got = one_frame(mm);
            assert_eq!((got.is_ok(), mm.counter(Counter::OutOfMemory)), (true, 0), "{cpus} CPUs");
            held.extend(got);
            give_back(mm, held);
        });
    }
}

#[test]
fn who_is_told_that_no_memory_comes_does_without_at_once() {
    let host = Host::new(setup(1));
    let config = Config { min_free: Some(64), ..bare("linux") };
    host.run(config, |mm| {
        let mut held: Vec<_> = std::iter::from_fn(|| one_frame(mm).ok()).collect();
        assert_eq!(mm.counter(Counter::OutOfMemory), 1, "once for the one that failed");
        assert_eq!(mm.frames().available(), 64, "what is kept free is still there");
        for more in 1..4 {
            assert_eq!(one_frame(mm).unwrap_err(), Error::OutOfMemory);
            assert_eq!(mm.counter(Counter::OutOfMemory), 1 + more);
        }
        give_back(mm, held.split_off(held.len() - 32));
        // A fault that needs tables and a page is one failure, too.
        let id = mm.create_space().unwrap();
        mm.space(id)
            .map(machine::pages(AT, 8), quietmm::Backing::Anonymous, quietmm::Prot::ReadWrite)
            .unwrap();
        held.extend(std::iter::from_fn(|| one_frame(mm).ok()));
        let before = mm.counter(Counter::OutOfMemory);
        assert_eq!(
            mm.space(id).fault(quietmm::PageNumber(AT).addr(), UserAccess::Write),
            Err(Error::OutOfMemory)
        );
        assert_eq!(mm.counter(Counter::OutOfMemory) - before, 1);
        mm.space(id).destroy().unwrap();
        give_back(mm, held);
        let end = settled(mm);
        assert_eq!((end.broken, end.kernel, end.anon), (None, 0, 0));
    });
}

/// Nothing can be reclaimed. Whoever is asked for a victim does this with a frame that is the test's, and answers. How often it was
/// asked, and rounds of reclaim; whether a block of this order was had.
fn asked(order: u8, answer: fn(&Mm<'_>, &mut Vec<Frames>, u64) -> bool) -> (u64, u64, bool) {
    let host = Host::new(setup(1));
    host.run(bare("linux"), |mm| {
        let held = Rc::new(RefCell::new(take_free(mm)));
        let (own, asked) = (Rc::clone(&held), Rc::new(Cell::new(0)));
        let count = Rc::clone(&asked);
        *host.on_out_of_memory.borrow_mut() = Some(Box::new(move |mm| {
            count.set(count.get() + 1);
            answer(mm, &mut own.borrow_mut(), count.get())
        }));
        let got = mm.frames().alloc(order, AllocFrom::HERE);
        let had = got.is_ok();
        give_back(mm, got.into_iter().collect());
        give_back(mm, held.take());
        (asked.get(), mm.counter(Counter::DirectReclaim), had)
    })
}

#[test]
fn who_is_told_for_ever_that_memory_comes_gives_up_in_the_end() {
    for order in [0, 3, 10] {
        assert_eq!(asked(order, |_, _, _| true), (12, 16, false), "order {order}");
    }
}

/// The first victim frees nothing. What the next one frees comes later than that one was waited for, and in time.
#[test]
fn who_was_told_in_vain_waits_for_longer_the_next_time() {
    let late: fn(&Mm<'_>, &mut Vec<Frames>, u64) -> bool = |mm, held, asked| {
        let mut pauses = mm.platform().on_pause.borrow_mut();
        if asked == 2 {
            (0..20).for_each(|_| pauses.push_back(Box::new(|_| ())));
            let frames = held.pop().unwrap();
            pauses.push_back(Box::new(|mm| mm.frames().free(frames)));
        }
        true
    };
    assert_eq!(asked(0, late), (2, 16, true));
}

#[test]
fn as_long_as_something_is_freed_a_victim_is_believed_in() {
    // Each time a frame is freed, and gone again before the task looks.
    let freed: fn(&Mm<'_>, &mut Vec<Frames>, u64) -> bool = |mm, held, asked| {
        mm.frames().free(held.pop().unwrap());
        held.push(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        asked < 50
    };
    assert_eq!(asked(0, freed), (50, 50 * 16, false));
    assert_eq!(asked(3, freed), (50, 50 * 16, false));
    // That says nothing of a large block.
    assert_eq!(asked(4, freed), (12, 12 * 16, false));
}

#[test]
fn what_a_victim_frees_is_found() {
    let late = |mm: &Mm<'_>, held: &mut Vec<Frames>, asked| {
        if asked == 5 {
            mm.frames().free(held.pop().unwrap());
        }
        true
    };
    assert_eq!(asked(0, late), (5, 16, true));
}

/// Who waited for pages on their way is woken when they are through, and nobody from then on.
#[test]
fn what_comes_back_from_a_device_wakes_those_who_wait_and_nobody_else() {
    let host = Host::new(setup(2));
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = anonymous(mm, 4);
        let mut wakes = Vec::new();
        for waits in [false, true, false, false] {
            (AT..AT + 4).for_each(|page| host.write(mm, id, page, page + 1).unwrap());
            mm.drain_lru_batch();
            let (mut held, mut more) = (take_free(mm), Vec::new());
            host.take_woken();
            if waits {
                host.place();
                let last = host.aside(
                    0,
                    || more.extend(one_frame(mm)),
                    |first| {
                        host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
                        assert!(host.resume_one(first), "the device is at work");
                        host.on(1, || one_frame(mm))
                    },
                );
                host.all_placed();
                held.extend(last);
            } else {
                held.extend(one_frame(mm));
            }
            let woken = host.take_woken();
            wakes.push(woken.into_iter().filter(|key| *key == WaitKey::PageOut).count());
            give_back(mm, held);
            give_back(mm, more);
        }
        assert_eq!(wakes, [0, 1, 0, 0]);
        end(mm, &[id], &[DEVICE]);
    });
}

/// The last frames lie on this CPU's own list: they will do for the batch with which pages are written out.
#[test]
fn a_batch_is_made_of_the_last_frames_on_this_cpus_list() {
    let host = Host::new(setup(5));
    host.run(Config { page_lists: pcp(8), ..bare("linux") }, |mm| {
        keep_batches(mm);
        let file = mm.create_file(4).unwrap();
        mm.file(file).write(0, &[1; 8]).unwrap();
        mm.drain_lru_batch();
        let mut held = take_free(mm);
        give_back(mm, held.drain(..2).collect());
        assert_eq!(mm.frames().on_lists(), 2);
        assert_eq!(mm.file(file).write_back(), Ok(1));
        assert!(mm.frames().on_lists() < 2);
        give_back(mm, held);
    });
}

/// Tables that lead to nothing any more are what is left of memory: two that lie beside each other make a larger block.
#[test]
fn tables_that_go_when_memory_is_out_make_larger_blocks_too() {
    let host = Host::new(setup(1));
    host.run(Config { page_lists: pcp(31), ..swapping("linux") }, |mm| {
        const TABLE: u64 = 512;
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(TABLE, 40 * TABLE), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (1..=40).for_each(|table| host.write(mm, id, table * TABLE + 5, 1).unwrap());
        for table in 1..=40 {
            mm.space(id).advise(pages(table * TABLE + 5, 1), Advice::Drop).unwrap();
        }
        let held = take_free(mm);
        let tables = mm.space(id).usage().unwrap().tables;
        assert!(tables > 40, "{tables}");
        let block = mm.frames().alloc(1, AllocFrom::HERE).expect("of two tables");
        assert_eq!(mm.counter(Counter::OutOfMemory), 0);
        mm.frames().free(block);
        give_back(mm, held);
        end(mm, &[id], &[]);
    });
}

/// The device ends at each place in the middle of what a task does that waits for it: the task goes on, and does not sleep for what has been.
#[test]
fn a_device_that_ends_while_somebody_is_about_to_wait_for_it_is_not_missed() {
    let (cases, _) = machine::everywhere_as(&setup(2), &swapping("linux"), None, |mm, n| {
        let host = mm.platform();
        host.patient.set(true);
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = anonymous(mm, 4);
        mm.drain_lru_batch();
        let (held, mut more) = (take_free(mm), Vec::new());
        let got = host.aside(
            1,
            || more.extend(one_frame(mm)),
            |first| {
                host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
                assert!(host.resume_one(first), "the device is at work");
                host.at_touch(0, n, |mm| _ = mm.platform().resume_any());
                one_frame(mm)
            },
        );
        host.all_placed();
        assert!(got.is_ok(), "touch {n}");
        give_back(mm, held);
        give_back(mm, more);
        give_back(mm, got.into_iter().collect());
        end(mm, &[id], &[DEVICE]);
    });
    assert!(cases.len() > 100, "{}", cases.len());
}
