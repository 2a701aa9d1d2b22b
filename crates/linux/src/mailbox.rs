//! Queues of messages that have names (`mq_open`): the most urgent message comes first, and of those the oldest.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::numbered::Rights;
use crate::socket::Inbox;
use crate::sync::Spin;

/// How urgent a message is at most.
pub const MOST_URGENT: u32 = 32_767;

/// How somebody hears that a message has come.
#[derive(Clone)]
pub enum Hears {
    /// Not at all: it only has the place.
    Nothing,
    /// By this signal, with this value.
    Signal(u32, u64),
    /// By these bytes, in a socket's inbox.
    Bytes(Arc<Inbox>, Vec<u8>),
}

#[derive(Default)]
struct State {
    /// By how urgent they are, and by when they came.
    all: BTreeMap<(Reverse<u32>, u64), Vec<u8>>,
    next: u64,
    /// Who hears of the next message that finds none, and that process.
    hearer: Option<(u32, Hears)>,
    /// Threads that wait for a message.
    waiting: u32,
}

/// A queue.
pub struct Mailbox {
    /// Messages that fit, and bytes of each.
    pub most: (usize, usize),
    /// Whose it is, and who may use it.
    pub rights: Rights,
    state: Spin<State>,
    /// How often a message has come, and how often one has gone.
    pub changes: [AtomicU64; 2],
}

impl Mailbox {
    /// An empty one.
    pub fn new(most: (usize, usize), rights: Rights) -> Mailbox {
        Mailbox { most, rights, state: Spin::default(), changes: Default::default() }
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.state.with(|state| state.all.len())
    }

    /// Puts a message in, if there is room: then it has it, and says who hears of it. `None`: there is no room.
    pub fn send(&self, message: &mut Vec<u8>, urgency: u32) -> Option<Option<(u32, Hears)>> {
        let sent = self.state.with(|state| {
            if state.all.len() >= self.most.0 {
                return None;
            }
            // Whoever waits for a message has this one.
            let is_news = state.all.is_empty() && state.waiting == 0;
            state.all.insert((Reverse(urgency), state.next), core::mem::take(message));
            state.next += 1;
            Some(if is_news { state.hearer.take() } else { None })
        });
        self.changes[0].fetch_add(u64::from(sent.is_some()), Ordering::SeqCst);
        sent
    }

    /// Takes the first message out, with how urgent it is.
    pub fn receive(&self) -> Option<(Vec<u8>, u32)> {
        let found = self.state.with(|state| state.all.pop_first());
        self.changes[1].fetch_add(u64::from(found.is_some()), Ordering::SeqCst);
        found.map(|((Reverse(urgency), _), message)| (message, urgency))
    }

    /// So many more wait for a message.
    pub fn wait(&self, more: i32) {
        self.state.with(|state| state.waiting = state.waiting.saturating_add_signed(more));
    }

    /// A process wants to hear of messages, unless another one does that `is_there`; says whether.
    pub fn hear(&self, process: u32, how: Hears, is_there: impl Fn(u32) -> bool) -> bool {
        let (free, before) = self.state.with(|state| {
            let free = state.hearer.as_ref().is_none_or(|(other, _)| !is_there(*other));
            let before = if free { state.hearer.replace((process, how)) } else { None };
            (free, before)
        });
        drop(before);
        free
    }

    /// A process wants that no more.
    pub fn hear_no_more(&self, process: u32) {
        let mine = |(of, _): &mut (u32, Hears)| *of == process;
        let gone = self.state.with(|state| state.hearer.take_if(mine));
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Owner;

    #[test]
    fn the_most_urgent_comes_first_and_of_those_the_oldest() {
        let queue = Mailbox::new((3, 8), Rights::made(&Owner::default(), 0));
        let send = |text: &[u8], urgency| queue.send(&mut text.to_vec(), urgency).is_some();
        assert!(send(b"a", 1) && send(b"b", 5) && send(b"c", 5));
        assert!(!send(b"d", 9), "it is full");
        assert_eq!(queue.len(), 3);
        let all: Vec<_> = core::iter::from_fn(|| queue.receive()).collect();
        assert_eq!(all, [(b"b".to_vec(), 5), (b"c".to_vec(), 5), (b"a".to_vec(), 1)]);
    }

    #[test]
    fn one_hears_once_of_the_first_message_unless_somebody_waits() {
        let queue = Mailbox::new((3, 8), Rights::made(&Owner::default(), 0));
        let send = || queue.send(&mut alloc::vec![1], 0).flatten().map(|(process, _)| process);
        assert!(queue.hear(7, Hears::Nothing, |_| true) && !queue.hear(8, Hears::Nothing, |_| true));
        queue.wait(1);
        assert_eq!(send(), None, "who waits has it");
        queue.wait(-1);
        assert!(queue.receive().is_some());
        assert_eq!([send(), send()], [Some(7), None]);
        assert!(
            queue.hear(7, Hears::Nothing, |_| true) && queue.hear(8, Hears::Nothing, |_| false),
            "7 is gone"
        );
        queue.hear_no_more(7);
        assert!(!queue.hear(9, Hears::Nothing, |_| true));
        queue.hear_no_more(8);
        assert!(queue.hear(9, Hears::Nothing, |_| true));
    }
}
