//! Locks whose readers are visible instead of counted, once nobody has written for a while.

use crate::machine;

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::{Host, Mm, Setup, bare};
use quietmm::Rule;
use quietmm::sync::{BiasedRwLock, SharedGuard};

const CPUS: u32 = 4;

type Lock = &'static BiasedRwLock;
type Shared = SharedGuard<'static, Host>;
type Guards = Rc<RefCell<Vec<Shared>>>;

/// A machine that stays, so that guards can be dropped by whoever comes along: all are when `work` ends.
fn on_machine<R>(work: impl FnOnce(&'static Host, &'static Mm<'static>) -> R) -> R {
    let host: &'static Host = Box::leak(Box::new(Host::new(Setup { cpus: CPUS, ..Setup::default() })));
    host.run(bare("linux"), |mm| {
        // SAFETY: the machine stays, and `work` keeps nothing that looks at the manager.
        work(host, unsafe { std::mem::transmute::<&Mm<'_>, &'static Mm<'static>>(mm) })
    })
}

fn unlocked() -> Lock {
    // SAFETY: all zeros is unlocked, as the type's documentation says.
    Box::leak(Box::new(unsafe { MaybeUninit::<BiasedRwLock>::zeroed().assume_init() }))
}

/// As many readers come and go as make those after them visible.
fn bias(mm: &'static Mm<'static>, lock: Lock) {
    (0..=CPUS).for_each(|_| drop(lock.read(mm)));
}

fn biased(mm: &'static Mm<'static>) -> Lock {
    let lock = unlocked();
    bias(mm, lock);
    lock
}

/// Readers that are counted: the low bits of the lock's first word.
fn counted(lock: Lock) -> u64 {
    // SAFETY: the lock begins with this word.
    let word = unsafe { &*std::ptr::from_ref(lock).cast::<AtomicU64>() };
    word.load(Ordering::Relaxed) & 0xf_ffff
}

/// What somebody who waits finds: readers leave until one wakes him.
fn some_leave(host: &'static Host, guards: &Guards) {
    let guards = Rc::clone(guards);
    host.take_woken();
    host.on_wait.borrow_mut().push_back(Box::new(move || {
        while host.take_woken().is_empty() {
            let Some(reader) = ({ guards.borrow_mut().pop() }) else { return };
            drop(reader);
        }
    }));
}

#[test]
fn a_writer_waits_for_each_visible_reader_and_is_woken_by_it() {
    on_machine(|host, mm| {
        let lock = biased(mm);
        // Those of one CPU that do not fit into its slots are counted.
        for readers in 1..=12 {
            let guards = Guards::default();
            for reader in 0..readers {
                guards.borrow_mut().push(host.on(reader % 2, || lock.read(mm)));
                some_leave(host, &guards);
            }
            assert_eq!(counted(lock), u64::from(readers).saturating_sub(6));
            drop(lock.write(mm));
            assert!(guards.borrow().is_empty(), "{readers} readers, and the writer did not wait");
            host.on_wait.borrow_mut().clear();
            bias(mm, lock);
        }
    });
}

#[test]
fn a_writer_waits_for_a_visible_reader_on_whichever_cpu() {
    on_machine(|host, mm| {
        for cpu in 0..CPUS as u16 {
            let (lock, guards) = (biased(mm), Guards::default());
            guards.borrow_mut().push(host.on(cpu, || lock.read(mm)));
            assert_eq!(counted(lock), 0);
            assert!(lock.try_write(mm).is_none(), "CPU {cpu} has it");
            some_leave(host, &guards);
            drop(lock.write(mm));
            assert!(guards.borrow().is_empty(), "the writer did not wait for CPU {cpu}");
        }
    });
}

#[test]
fn a_writer_that_does_not_look_for_visible_readers_does_not_wait() {
    on_machine(|host, mm| {
        let lock = biased(mm);
        host.broken.set(Some(Rule::LookForVisibleReaders));
        let reader = lock.read(mm);
        drop(lock.write(mm));
        drop(reader);
    });
}

#[test]
fn who_only_tries_leaves_visible_readers_to_the_next_writer() {
    on_machine(|host, mm| {
        let lock = biased(mm);
        let guards = Guards::default();
        guards.borrow_mut().push(lock.read(mm));
        for _ in 0..2 {
            assert!(lock.try_write(mm).is_none(), "a reader has it");
        }
        // Nobody need be counted anew for that.
        guards.borrow_mut().push(lock.read(mm));
        assert_eq!(counted(lock), 0);
        (0..2).for_each(|_| some_leave(host, &guards));
        drop(lock.write(mm));
        assert!(guards.borrow().is_empty());
        drop(lock.try_write(mm).expect("nobody has it"));
        bias(mm, lock);
        drop(lock.try_write(mm).expect("nobody is in the slots"));
        host.on_wait.borrow_mut().clear();
    });
}

#[test]
fn readers_of_one_lock_do_not_hold_up_who_writes_another() {
    on_machine(|_, mm| {
        let (one, two) = (biased(mm), biased(mm));
        let reader = one.read(mm);
        drop(two.write(mm));
        drop(reader);
    });
}

#[test]
fn readers_are_counted_again_after_a_writer_until_as_many_have_come_as_there_are_cpus() {
    on_machine(|_, mm| {
        let lock = biased(mm);
        for _ in 0..3 {
            let reader = lock.read(mm);
            assert_eq!(counted(lock), 0, "it is visible");
            drop(reader);
            drop(lock.write(mm));
            for _ in 0..=CPUS {
                let reader = lock.read(mm);
                assert_eq!(counted(lock), 1);
                drop(reader);
            }
        }
    });
}

#[test]
fn who_has_waited_for_a_writer_does_not_count_those_before_it() {
    on_machine(|host, mm| {
        let lock = unlocked();
        // One less than would make the next one visible.
        (0..CPUS).for_each(|_| drop(lock.read(mm)));
        let writer = Rc::new(RefCell::new(Some(lock.write(mm))));
        let leaves = Rc::clone(&writer);
        host.on_wait.borrow_mut().push_back(Box::new(move || drop(leaves.borrow_mut().take())));
        drop(lock.read(mm));
        assert!(writer.borrow().is_none(), "it has waited");
        let reader = lock.read(mm);
        assert_eq!(counted(lock), 1);
        drop(reader);
    });
}

/// A reader leaves, or a reader comes and goes, at each step of a writer.
#[test]
fn readers_that_come_or_leave_at_any_step_of_a_writer_do_not_leave_it_asleep() {
    for comes in [false, true] {
        let mut steps = 0;
        for n in 0.. {
            let placed = on_machine(|host, mm| {
                let lock = biased(mm);
                let guards = Guards::default();
                guards.borrow_mut().push(lock.read(mm));
                some_leave(host, &guards);
                host.place();
                host.patient.set(true);
                let other = Rc::clone(&guards);
                host.at_touch(0, n, move |_| match comes {
                    true => drop(host.on(1, || lock.try_write(mm))),
                    false => drop(std::mem::take(&mut *other.borrow_mut())),
                });
                drop(lock.write(mm));
                assert!(guards.borrow().is_empty(), "both have it");
                host.on_wait.borrow_mut().clear();
                let placed = host.all_placed();
                drop(lock.try_write(mm).expect("free"));
                placed
            });
            if !placed {
                break;
            }
            steps += 1;
        }
        assert!(steps > 5, "{steps} steps");
    }
}

/// A writer comes at each step of a reader, and has the lock if it can: they do not both have it.
#[test]
fn a_writer_that_comes_at_any_step_of_a_reader_does_not_share_with_it() {
    let mut alone = 0;
    for n in 0.. {
        let placed = on_machine(|host, mm| {
            let lock = biased(mm);
            let writer = Rc::new(RefCell::new(None));
            let (comes, leaves) = (Rc::clone(&writer), Rc::clone(&writer));
            host.place();
            host.at_touch(0, n, move |_| *comes.borrow_mut() = host.on(1, || lock.try_write(mm)));
            host.on_wait.borrow_mut().push_back(Box::new(move || drop(leaves.borrow_mut().take())));
            let reader = lock.read(mm);
            let placed = host.all_placed();
            assert!(writer.borrow().is_none(), "both have it, at step {n}");
            // Whoever had to wait has waited for the writer.
            alone += u32::from(host.on_wait.borrow().is_empty());
            host.on_wait.borrow_mut().clear();
            drop(reader);
            drop(lock.try_write(mm).expect("free"));
            placed
        });
        if !placed {
            break;
        }
    }
    assert!(alone > 1, "the writer had it at {alone} steps");
}

/// Whoever has the lock alone is told that somebody waits for it as long as somebody does: a reader, or another who wants it alone.
#[test]
fn who_has_it_alone_knows_whether_somebody_waits() {
    for reads in [true, false] {
        on_machine(|host, mm| {
            let lock = unlocked();
            let alone = lock.write(mm);
            assert!(lock.is_written(host) && !lock.is_awaited(host), "nobody else is there");
            host.place();
            let waits = || if reads { drop(lock.read(mm)) } else { drop(lock.write(mm)) };
            host.aside(1, waits, |other| {
                assert!(host.resume_one(other), "it waits");
                assert!(lock.is_awaited(host), "{reads}");
                drop(alone);
            });
            host.all_placed();
            let alone = lock.write(mm);
            assert!(!lock.is_awaited(host), "{reads}: it has come and gone");
            drop(alone);
        });
    }
}
