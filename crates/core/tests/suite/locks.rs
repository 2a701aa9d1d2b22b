//! Locks whose holders may wait: whoever makes them free wakes those who sleep.

use crate::machine;

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;

use machine::faults::own;
use machine::{Aside, Host, Setup, bare};
use quietmm::platform::{Cpus, WaitKey};
use quietmm::sync::{RwLock, SpinLock};
use quietmm::{Counter, Rule};

type Guards = Rc<RefCell<Vec<Box<dyn Held>>>>;

/// Something that is dropped.
trait Held {}
impl<T> Held for T {}

fn unlocked() -> &'static RwLock {
    // SAFETY: all zeros is unlocked, as the type's documentation says.
    Box::leak(Box::new(unsafe { MaybeUninit::<RwLock>::zeroed().assume_init() }))
}

/// A machine and a lock that stay, so that guards can be dropped by whoever comes along.
fn setting() -> (&'static Host, &'static RwLock, Guards) {
    (Box::leak(Box::new(Host::new(Setup { cpus: 8, ..Setup::default() }))), unlocked(), Rc::default())
}

fn release_while_asleep(host: &Host, guards: &Guards) {
    let guards = Rc::clone(guards);
    host.on_wait.borrow_mut().push_back(Box::new(move || guards.borrow_mut().clear()));
}

#[test]
fn a_reader_asleep_behind_a_writer_is_woken() {
    let (host, lock, guards) = setting();
    guards.borrow_mut().push(Box::new(lock.write(host)));
    release_while_asleep(host, &guards);
    drop(lock.read(host));
    drop(lock.write(host));
}

#[test]
fn a_writer_asleep_behind_readers_or_a_writer_is_woken() {
    let (host, lock, guards) = setting();
    guards.borrow_mut().push(Box::new(lock.read(host)));
    guards.borrow_mut().push(Box::new(lock.read(host)));
    release_while_asleep(host, &guards);
    drop(lock.write(host));
    guards.borrow_mut().push(Box::new(lock.write(host)));
    release_while_asleep(host, &guards);
    drop(lock.write(host));
    drop(lock.read(host));
}

#[test]
fn readers_share() {
    let (host, lock, _) = setting();
    let (a, b) = (lock.read(host), lock.read(host));
    drop((a, b));
    drop(lock.write(host));
}

#[test]
fn who_only_tries_takes_a_free_lock_and_leaves_a_taken_one_alone() {
    let (host, lock, guards) = setting();
    let writer = lock.try_write(host).expect("nobody has it");
    assert!(lock.try_write(host).is_none());
    drop(writer);
    let reader = lock.read(host);
    assert!(lock.try_write(host).is_none(), "a reader has it");
    // The try has left nothing behind: others come and go as before.
    drop((lock.read(host), reader));
    drop(lock.write(host));
    // One that waits behind readers is not overtaken.
    guards.borrow_mut().push(Box::new(lock.read(host)));
    host.on_wait.borrow_mut().push_back(Box::new({
        let guards = Rc::clone(&guards);
        move || {
            assert!(lock.try_write(host).is_none(), "a writer waits");
            guards.borrow_mut().clear();
        }
    }));
    drop(lock.write(host));
    drop(lock.try_write(host).expect("free again"));
}

#[test]
fn who_finds_a_lock_free_takes_it_at_once_and_wakes_nobody() {
    let (host, lock, _) = setting();
    for _ in 0..5 {
        drop(lock.read(host));
        drop(lock.write(host));
        drop(lock.try_write(host).expect("nobody has it"));
        drop((lock.read(host), lock.read(host)));
    }
    assert_eq!(host.take_woken(), []);
    assert!(host.pauses.borrow().is_empty(), "nobody spins");
}

#[test]
fn the_last_reader_wakes_the_writer_and_no_other_does() {
    let (host, lock, guards) = setting();
    for _ in 0..3 {
        guards.borrow_mut().push(Box::new(lock.read(host)));
    }
    let woken: Rc<RefCell<Vec<usize>>> = Rc::default();
    host.on_wait.borrow_mut().push_back(Box::new({
        let (guards, woken) = (Rc::clone(&guards), Rc::clone(&woken));
        move || {
            for _ in 0..3 {
                drop(guards.borrow_mut().pop());
                woken.borrow_mut().push(host.take_woken().len());
            }
        }
    }));
    drop(lock.write(host));
    assert_eq!(*woken.borrow(), [0, 0, 1], "by the last one alone");
}

/// Whoever has a lock lets go of it at each step of somebody who comes: whoever comes gets it, at once or after a sleep, and
/// afterwards it is free for all.
#[test]
fn a_lock_that_is_let_go_of_at_any_step_of_who_comes_is_his() {
    type Take = fn(&'static RwLock, &'static Host) -> Box<dyn Held>;
    let takes: [Take; 2] = [|lock, host| Box::new(lock.read(host)), |lock, host| Box::new(lock.write(host))];
    for (has, comes) in [(0, 1), (1, 0), (1, 1)] {
        let mut steps = 0;
        for n in 0.. {
            let (lock, host): (_, &'static Host) =
                (unlocked(), Box::leak(Box::new(Host::new(Setup::default()))));
            let guards = Guards::default();
            guards.borrow_mut().push(takes[has](lock, host));
            let let_go = |guards: &Guards| {
                let guards = Rc::clone(guards);
                move || {
                    let held = std::mem::take(&mut *guards.borrow_mut());
                    drop(held);
                }
            };
            host.on_wait.borrow_mut().push_back(Box::new(let_go(&guards)));
            let left = host.run(bare("linux"), |_| {
                let let_go = let_go(&guards);
                host.place();
                host.patient.set(true);
                host.at_touch(0, n, move |_| let_go());
                let got = takes[comes](lock, host);
                let placed = host.all_placed();
                assert!(guards.borrow().is_empty(), "both have it");
                drop(got);
                placed
            });
            drop((lock.read(host), lock.read(host)));
            drop(lock.write(host));
            drop(lock.try_write(host).expect("free"));
            if !left {
                break;
            }
            steps += 1;
        }
        assert!(steps > 1, "{steps} steps");
    }
}

#[test]
fn each_lock_wakes_its_own() {
    let (host, one, guards) = setting();
    let two = unlocked();
    let keys = [one, two].map(|lock| {
        guards.borrow_mut().push(Box::new(lock.read(host)));
        release_while_asleep(host, &guards);
        drop(lock.write(host));
        let woken = host.take_woken();
        assert!(matches!(woken[..], [WaitKey::Lock(_)]), "{woken:?}");
        woken[0]
    });
    assert_ne!(keys[0], keys[1]);
}

/// Does `each` on CPUs 1, 2, 3, ..., in this order, each on a stack of its own until it sleeps; then `last`, and all by turns
/// until they are through.
fn one_after_the_other(host: &Host, each: &[&dyn Fn()], begun: &[Rc<Aside>], last: &dyn Fn()) {
    let Some((first, rest)) = each.split_first() else {
        last();
        for _ in 0..1000 {
            begun.iter().for_each(|aside| _ = host.resume_one(aside));
        }
        return;
    };
    host.aside(begun.len() as u16 + 1, first, |aside| {
        host.resume();
        one_after_the_other(host, rest, &[begun, &[Rc::clone(aside)]].concat(), last);
    });
}

#[test]
fn writers_go_in_the_order_in_which_they_came_and_readers_between_two_of_them() {
    let (host, lock, guards) = setting();
    host.place();
    let went: RefCell<Vec<&str>> = RefCell::default();
    let write = |name: &'static str| {
        let went = &went;
        move || {
            let _alone = lock.write(host);
            went.borrow_mut().push(name);
        }
    };
    let read = |name: &'static str| {
        let went = &went;
        move || {
            let _shared = lock.read(host);
            went.borrow_mut().push(name);
        }
    };
    let (a, r, b, s, c) = (write("a"), read("r"), write("b"), read("s"), write("c"));
    guards.borrow_mut().push(Box::new(lock.read(host)));
    host.take_woken();
    one_after_the_other(host, &[&a, &r, &b, &s, &c], &[], &|| guards.borrow_mut().clear());
    let went = went.borrow().clone();
    assert_eq!(went.iter().filter(|name| "abc".contains(**name)).copied().collect::<String>(), "abc");
    let at = |name| went.iter().position(|other| *other == name).expect("it went");
    // Both came behind the first writer, and go when it leaves.
    assert!(at("a") < at("r") && at("a") < at("s"), "{went:?}");
    assert!(at("r") < at("c") && at("s") < at("c"), "{went:?}");
    // Nobody is left, and nothing.
    host.take_woken();
    drop(lock.try_write(host).expect("free"));
    assert_eq!(host.take_woken(), []);
}

#[test]
fn who_is_next_in_line_spins_for_20_microseconds_and_others_sleep() {
    let (host, lock, guards) = setting();
    guards.borrow_mut().push(Box::new(lock.write(host)));
    release_while_asleep(host, &guards);
    drop(lock.write(host));
    assert_eq!(*host.pauses.borrow(), [100; 200]);
    // It has the lock as soon as it sees it free.
    host.pauses.borrow_mut().clear();
    let writer = Rc::new(RefCell::new(Some(lock.write(host))));
    for n in 0..5 {
        let writer = Rc::clone(&writer);
        host.on_idle_pause.borrow_mut().push_back(Box::new(move || {
            if n == 4 {
                drop(writer.borrow_mut().take());
            }
        }));
    }
    drop(lock.write(host));
    assert_eq!(*host.pauses.borrow(), [100; 5]);
}

#[test]
fn who_got_a_lock_by_a_try_has_it_alone() {
    let (host, lock, guards) = setting();
    let inside = Rc::new(RefCell::new(true));
    guards.borrow_mut().push(Box::new(lock.try_write(host).expect("nobody has it")));
    host.on_wait.borrow_mut().push_back(Box::new({
        let (guards, inside) = (Rc::clone(&guards), Rc::clone(&inside));
        move || {
            *inside.borrow_mut() = false;
            guards.borrow_mut().clear();
        }
    }));
    drop(lock.read(host));
    assert!(!*inside.borrow(), "the reader waited until the writer had left");
    // The same for a writer that comes behind.
    guards.borrow_mut().push(Box::new(lock.try_write(host).expect("free again")));
    *inside.borrow_mut() = true;
    host.on_wait.borrow_mut().push_back(Box::new({
        let (guards, inside) = (Rc::clone(&guards), Rc::clone(&inside));
        move || {
            *inside.borrow_mut() = false;
            guards.borrow_mut().clear();
        }
    }));
    drop(lock.write(host));
    assert!(!*inside.borrow());
}

/// CPU 0 holds a spin lock, and CPU 2 waits for a flush by CPU 1, which has its interrupts off and wants the lock. How many requests
/// that one had carried out when it got it.
fn served_while_spinning(broken: Option<Rule>) -> u64 {
    let host = Host::new(Setup { cpus: 3, frames: 1024, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let (id, lock) = (own(mm, 1, &[1]), SpinLock::<0>::new());
        let served = || mm.counter(Counter::RemoteFlushReceived);
        host.place();
        host.on(1, || host.irqs_off());
        let flush = || mm.space(id).flush().unwrap();
        let seen = host.aside(2, flush, |_| {
            assert!(host.resume(), "it waits for CPU 1");
            let holds = || {
                let held = lock.lock(mm);
                host.stop();
                drop(held);
            };
            host.aside(0, holds, |_| {
                host.resume();
                host.on(1, || {
                    drop(lock.lock(mm));
                    let seen = served();
                    host.irqs_on();
                    seen
                })
            })
        });
        host.all_placed();
        assert_eq!(served(), 1);
        seen
    })
}

#[test]
fn who_spins_with_interrupts_off_serves_what_others_want() {
    assert_eq!(served_while_spinning(None), 1);
    assert_eq!(served_while_spinning(Some(Rule::ServeWhileWaiting)), 0);
}

/// Whoever has a lock waits for a flush by the second in line for it, who has its interrupts off: it is carried out there.
#[test]
fn who_stands_further_back_in_line_serves_too() {
    let host = Host::new(Setup { cpus: 3, frames: 1024, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let (id, lock) = (own(mm, 1, &[1]), SpinLock::<0>::new());
        host.place();
        host.on(1, || host.irqs_off());
        let holds = || {
            let held = lock.lock(mm);
            host.stop();
            mm.space(id).flush().unwrap();
            drop(held);
        };
        host.aside(0, holds, |_| {
            host.resume();
            host.aside(
                2,
                || drop(lock.lock(mm)),
                |_| {
                    host.resume();
                    host.on(1, || {
                        drop(lock.lock(mm));
                        host.irqs_on();
                    });
                },
            );
        });
        host.all_placed();
        assert_eq!(mm.counter(Counter::RemoteFlushReceived), 1);
    });
}

/// So many stand in line behind the holder: each has the lock in its turn, and looks the less often the longer the line is.
#[test]
fn a_spin_lock_goes_to_each_in_its_turn() {
    let host = Host::new(Setup { cpus: 8, frames: 1024, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let (lock, went) = (SpinLock::<0>::new(), RefCell::new(Vec::new()));
        let take = |n: u16| {
            let (lock, went) = (&lock, &went);
            move || {
                let _held = lock.lock(mm);
                went.borrow_mut().push(n);
            }
        };
        host.place();
        let all: Vec<_> = (1..=5).map(take).collect();
        let each: Vec<&dyn Fn()> = all.iter().map(|each| each as &dyn Fn()).collect();
        let held = RefCell::new(Some(lock.lock(mm)));
        host.pauses.borrow_mut().clear();
        one_after_the_other(&host, &each, &[], &|| {
            // One, two, ... ahead of each: so many times what a holder takes.
            assert_eq!(*host.pauses.borrow(), [100, 200, 300, 400, 500]);
            drop(held.take());
        });
        host.all_placed();
        assert_eq!(*went.borrow(), [1, 2, 3, 4, 5]);
        host.pauses.borrow_mut().clear();
        drop(lock.lock(mm));
        assert!(host.pauses.borrow().is_empty(), "it is free");
    });
}

/// Of those who stand in line for a lock that may be held for long only the next four spin before they sleep.
#[test]
fn only_the_next_few_in_line_spin() {
    let (host, lock, guards) = setting();
    host.place();
    guards.borrow_mut().push(Box::new(lock.write(host)));
    let wait = || drop(lock.write(host));
    host.pauses.borrow_mut().clear();
    one_after_the_other(host, &[&wait as &dyn Fn(); 6], &[], &|| {
        // The next one looks more often.
        assert_eq!(*host.pauses.borrow(), [&[100; 200][..], &[500; 3 * 40]].concat());
        guards.borrow_mut().clear();
    });
    drop(lock.try_write(host).expect("all have gone"));
}

/// A reader has counted itself, and finds a writer that waits for those who came before it; the last of those goes meanwhile, and wakes nobody, since
/// this one is counted. When it stands back it does.
#[test]
fn a_reader_that_stands_back_wakes_the_writer_that_waits_for_it() {
    let (host, lock, guards) = setting();
    host.run(bare("vanilla"), |_| {
        guards.borrow_mut().push(Box::new(lock.read(host)));
        host.sound_sleep.set(true);
        host.place();
        host.aside(
            1,
            || drop(lock.write(host)),
            |writer| {
                // It spins for a while first.
                assert!((0..100).all(|_| host.resume_one(writer)), "it sleeps");
                host.at_touch(2, 1, |mm| mm.platform().stop());
                let reads = || drop(lock.read(host));
                host.aside(2, reads, |reader| {
                    assert!(host.resume_one(reader), "it stands still, and is counted");
                    guards.borrow_mut().clear();
                    assert!(host.resume_one(reader), "it stands behind the writer");
                    assert!(!host.resume_one(writer), "the writer is through");
                    assert!(!host.resume_one(reader), "and so is the reader");
                });
            },
        );
        assert!(host.all_placed());
        drop(lock.write(host));
    });
}

/// A reader has counted itself and not looked yet, another waits behind the writer, which leaves: both have the lock, and nobody else is counted.
#[test]
fn readers_that_have_just_come_have_the_lock_with_those_that_wait() {
    let (host, lock, guards) = setting();
    host.run(bare("vanilla"), |_| {
        guards.borrow_mut().push(Box::new(lock.write(host)));
        host.place();
        let read = |inside: &RefCell<u32>| {
            let _shared = lock.read(host);
            *inside.borrow_mut() += 1;
            host.stop();
        };
        let inside = RefCell::default();
        host.aside(
            1,
            || read(&inside),
            |waits| {
                assert!(host.resume_one(waits), "it stands behind the writer");
                host.at_touch(2, 1, |mm| mm.platform().stop());
                host.aside(
                    2,
                    || read(&inside),
                    |counted| {
                        assert!(host.resume_one(counted), "it is counted");
                        guards.borrow_mut().clear();
                        assert!(host.resume_one(waits) && host.resume_one(counted));
                        assert_eq!(*inside.borrow(), 2);
                        assert!(lock.try_write(host).is_none(), "both have it");
                        assert!(!host.resume_one(waits));
                        assert!(lock.try_write(host).is_none(), "one has it");
                        assert!(!host.resume_one(counted));
                    },
                );
            },
        );
        assert!(host.all_placed());
        drop(lock.try_write(host).expect("nobody has it"));
    });
}

/// Many writers stand in line. Each that comes near is woken, however late those before it find out that they have the lock.
#[test]
fn whoever_comes_near_in_a_long_line_is_woken() {
    fn line(host: &Host, lock: &'static RwLock, begun: &[Rc<Aside>], guards: &Guards) {
        if begun.len() == 9 {
            guards.borrow_mut().clear();
            // The last one looks first.
            let goes = || begun.iter().rev().filter(|writer| host.resume_one(writer)).count();
            assert!((0..10_000).any(|_| goes() == 0), "somebody sleeps for ever");
            return;
        }
        let wait = || drop(lock.write(host));
        host.aside(begun.len() as u16 % 8, wait, |writer| {
            // It spins before it sleeps.
            assert!((0..250).all(|_| host.resume_one(writer)));
            line(host, lock, &[begun, &[Rc::clone(writer)]].concat(), guards);
        });
    }
    let (host, lock, guards) = setting();
    host.place();
    guards.borrow_mut().push(Box::new(lock.write(host)));
    line(host, lock, &[], &guards);
    drop(lock.try_write(host).expect("all have gone"));
}

/// A writer tries while there is a reader; at each step another comes, which waits for its turn: it has the lock once the reader leaves.
#[test]
fn who_tries_in_vain_leaves_no_writer_asleep() {
    for n in 0.. {
        let (host, lock, guards) = setting();
        let placed = host.run(bare("linux"), |_| {
            guards.borrow_mut().push(Box::new(lock.read(host)));
            host.place();
            let tries = || assert!(lock.try_write(host).is_none());
            host.aside(0, tries, |tries| {
                host.at_touch(0, n, |mm| mm.platform().stop());
                if !host.resume_one(tries) {
                    return;
                }
                let writes = || drop(lock.write(host));
                host.aside(1, writes, |writes| {
                    // It spins before it sleeps.
                    (0..250).for_each(|_| assert!(host.resume_one(writes)));
                    assert!(!host.resume_one(tries));
                    assert!((0..250).all(|_| host.resume_one(writes)), "the reader has it");
                    guards.borrow_mut().clear();
                    assert!((0..250).any(|_| !host.resume_one(writes)));
                });
            });
            host.all_placed()
        });
        guards.borrow_mut().clear();
        drop(lock.try_write(host).expect("all have gone"));
        if !placed {
            assert!(n > 3, "{n} steps");
            break;
        }
    }
}
