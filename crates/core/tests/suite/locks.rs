//! Locks whose holders may wait: whoever makes them free wakes those who sleep.

use crate::machine;

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;

use machine::{Host, Setup};
use quietmm::sync::RwLock;

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
    (Box::leak(Box::new(Host::new(Setup::default()))), unlocked(), Rc::default())
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
