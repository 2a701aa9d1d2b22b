//! Sockets on their way by way of sockets, and those that nobody can receive any more.
//!
//! An open socket may lie in its own inbox, or two in each other's: then they would keep each other for ever once nobody else has them
//! open, with all else that lies there. So whoever may have let go of the last has them looked for: a socket that is had only by
//! inboxes of sockets that nobody can reach is one of these, and their inboxes are emptied.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use crate::open::{Kind, Open};
use crate::socket::Socket;
use crate::sync::Spin;

/// As many are looked through whenever one is closed; more only when they have become twice as many, or a process has ended.
const FEW: usize = 64;

/// Sockets that were ever sent by way of a socket, as far as somebody has them still.
#[derive(Default)]
pub struct Flights {
    sent: Spin<Vec<Weak<Open>>>,
    count: AtomicUsize,
    /// How often files were received, or looked at.
    taken: AtomicU64,
    /// It is worth a look when there are as many.
    next: AtomicUsize,
    due: AtomicBool,
}

fn socket(open: &Open) -> Option<&Arc<Socket>> {
    if let Kind::Socket(socket) = &open.kind { Some(socket) } else { None }
}

impl Flights {
    /// These are about to be sent.
    pub fn send(&self, files: &[Arc<Open>]) {
        let sockets = files.iter().filter(|open| socket(open).is_some());
        let count = self.sent.with(|sent| {
            sent.extend(sockets.map(Arc::downgrade));
            self.count.store(sent.len(), Ordering::SeqCst);
            sent.len()
        });
        if count >= self.next.load(Ordering::Relaxed).max(FEW) {
            self.due.store(true, Ordering::SeqCst);
        }
    }

    /// Files were received, or looked at, from an inbox whose lock is held.
    pub fn take(&self) {
        self.taken.fetch_add(1, Ordering::SeqCst);
    }

    /// Somebody has let go of a socket, or of all that a process had.
    pub fn let_go(&self, all: bool) {
        let count = self.count.load(Ordering::SeqCst);
        if count > 0 && (all || count <= FEW) {
            self.due.store(true, Ordering::SeqCst);
        }
    }

    /// What lies in inboxes that nobody can reach, if it is time to look; the caller lets go of it.
    pub fn lost(&self) -> Vec<Arc<Open>> {
        self.lost_but_for(|| {})
    }

    /// The same, when `meanwhile` happens between the first look and the last.
    fn lost_but_for(&self, meanwhile: impl FnOnce()) -> Vec<Arc<Open>> {
        if !self.due.load(Ordering::Relaxed) || !self.due.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        let taken = self.taken.load(Ordering::SeqCst);
        let at = |open: &Arc<Open>| Arc::as_ptr(open).addr();
        let all: BTreeMap<usize, Arc<Open>> = self.sent.with(|sent| {
            let mut all = BTreeMap::new();
            sent.retain(|open| {
                // Each is listed once.
                let open = open.upgrade();
                open.is_some_and(|open| all.insert(at(&open), open).is_none())
            });
            self.count.store(all.len(), Ordering::SeqCst);
            self.next.store(2 * all.len(), Ordering::Relaxed);
            all
        });
        // First what lies where, and only then who is had elsewhere: one that is sent meanwhile is had by one more than was seen.
        let mut lies_in: Vec<(usize, usize)> = Vec::new();
        let mut inside: BTreeMap<usize, usize> = BTreeMap::new();
        for (&outer, open) in &all {
            let Some(socket) = socket(open) else { continue };
            socket.each_file(&mut |file| {
                if all.contains_key(&at(file)) {
                    lies_in.push((outer, at(file)));
                    *inside.entry(at(file)).or_default() += 1;
                }
            });
        }
        meanwhile();
        // One reference is ours.
        let elsewhere = |(at, open): &(&usize, &Arc<Open>)| {
            Arc::strong_count(open) > 1 + inside.get(*at).copied().unwrap_or(0)
        };
        let mut reached: Vec<usize> = all.iter().filter(elsewhere).map(|(&at, _)| at).collect();
        // Whoever has received one, and then let go of that from which it came, has said so before. SeqCst: partner of `take`.
        fence(Ordering::SeqCst);
        if self.taken.load(Ordering::SeqCst) != taken {
            self.due.store(true, Ordering::SeqCst);
            return Vec::new();
        }
        let mut lost: BTreeMap<usize, &Arc<Open>> = all.iter().map(|(&at, open)| (at, open)).collect();
        lost.retain(|at, _| reached.binary_search(at).is_err());
        lies_in.sort_unstable();
        while let Some(outer) = reached.pop() {
            let first = lies_in.partition_point(|&(at, _)| at < outer);
            for &(_, inner) in lies_in[first..].iter().take_while(|&&(at, _)| at == outer) {
                if lost.remove(&inner).is_some() {
                    reached.push(inner);
                }
            }
        }
        lost.values().filter_map(|open| socket(open)).flat_map(|socket| socket.empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::left::Left;
    use crate::socket::{Sender, Sent, kind};

    struct Pair {
        sends: Arc<Socket>,
        open: Arc<Open>,
    }

    /// A socket that is open, and one that sends to it.
    fn pair(left: &Arc<Left>) -> Pair {
        let names = Arc::default();
        let new = || Socket::new(1, kind::STREAM, &names, left);
        let (sends, receives) = (new(), new());
        sends.join(&receives);
        Pair { sends, open: Open::new(Kind::Socket(receives), 2, Vec::new()) }
    }

    impl Pair {
        fn send(&self, left: &Arc<Left>, open: &Arc<Open>) {
            let files = alloc::vec![open.clone()];
            left.flights.send(&files);
            let inbox = self.sends.peer().unwrap().inbox;
            assert_eq!(
                inbox.send(b"x", &Sender::at(&self.sends.own()), files, true, crate::socket::ROOM),
                Sent::Bytes(1)
            );
        }
    }

    /// Closes all that can be closed.
    fn settle(left: &Arc<Left>) {
        left.flights.let_go(true);
        left.add_open(left.flights.lost());
        while let Some(open) = left.take_open() {
            drop(open);
        }
    }

    #[test]
    fn sockets_that_lie_in_each_other_go_once_nobody_else_has_them() {
        let left = Arc::<Left>::default();
        let other = Open::new(Kind::Console(1), 1, Vec::new());
        let all: Vec<Pair> = (0..3).map(|_| pair(&left)).collect();
        for (n, one) in all.iter().enumerate() {
            one.send(&left, &all[(n + 1) % 3].open);
            one.send(&left, &other);
        }
        // One lies in itself too.
        all[1].send(&left, &all[1].open);
        let kept: Vec<_> = all.iter().map(|one| Arc::downgrade(&one.open)).collect();
        let mut all: Vec<_> = all.into_iter().map(|one| one.open).collect();
        settle(&left);
        all.truncate(1);
        settle(&left);
        assert!(kept.iter().all(|one| one.strong_count() > 0), "the one that is open leads to the others");
        assert_eq!(Arc::strong_count(&other), 4);
        drop(all);
        settle(&left);
        assert!(kept.iter().all(|one| one.strong_count() == 0));
        assert_eq!(Arc::strong_count(&other), 1);
    }

    #[test]
    fn what_lies_in_a_socket_that_waits_to_be_accepted_keeps_nothing() {
        let left = Arc::<Left>::default();
        let names = Arc::default();
        let new = || Socket::new(1, kind::STREAM, &names, &left);
        let (listener, client, waits) = (new(), new(), new());
        client.join(&waits);
        listener.state.with(|state| state.waiting = Some(([waits].into_iter().collect(), 4)));
        let open = Open::new(Kind::Socket(listener), 2, Vec::new());
        let kept = Arc::downgrade(&open);
        left.flights.send(core::slice::from_ref(&open));
        assert_eq!(
            client.peer().unwrap().inbox.send(
                b"x",
                &Sender::at(&client.own()),
                alloc::vec![open.clone()],
                true,
                client.sends()
            ),
            Sent::Bytes(1)
        );
        settle(&left);
        assert_eq!(kept.strong_count(), 2);
        drop(open);
        settle(&left);
        assert_eq!(kept.strong_count(), 0);
    }

    /// It was in its own inbox, and is received and closed there between the looks: nobody has it elsewhere at either.
    #[test]
    fn what_is_received_meanwhile_is_not_judged() {
        let left = Arc::<Left>::default();
        let (one, other) = (pair(&left), pair(&left));
        one.send(&left, &other.open);
        other.send(&left, &one.open);
        other.send(&left, &one.open);
        let kept = [Arc::downgrade(&one.open), Arc::downgrade(&other.open)];
        let Pair { open: first, .. } = one;
        drop(other);
        left.flights.let_go(true);
        let mut received = Vec::new();
        let mut first = Some(first);
        let lost = left.flights.lost_but_for(|| {
            let open = first.take().unwrap();
            received.extend(socket(&open).unwrap().inbox.receive(1, true, false).unwrap().files);
        });
        assert!(lost.is_empty() && received.len() == 1, "the other one is open now");
        // Both are still in the other's inbox, which can be read.
        let files = socket(&received[0]).unwrap().inbox.receive(9, true, false).unwrap().files;
        assert_eq!(files.len(), 1);
        drop((files, received));
        settle(&left);
        assert!(kept.iter().all(|one| one.strong_count() == 0));
    }
}
