//! Who sleeps at which word of memory.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quietmm::platform::WaitKey;

use crate::sync::{Spin, key_of};

/// A word: of a space, or of a file that several map; and its address or place there.
pub type Word = (u64, u64);

/// Somebody who sleeps.
pub struct Sleeper {
    woken: AtomicBool,
    bits: u32,
    /// How far in front it stands.
    priority: u32,
    /// It waits for a lock whose word names its owner.
    heir: bool,
    /// Where it stands: it may be moved.
    at: Spin<Word>,
    /// It stands at several words, and this is what they have in common.
    whole: Option<Arc<Whole>>,
}

/// Who sleeps at several words at once: whether any of them was woken.
#[derive(Default)]
pub struct Whole(AtomicBool);

impl Whole {
    /// Whether it has been woken at one of its words.
    pub fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Sleeper {
    /// Whether it has been woken.
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// What it waits for.
    pub fn key(&self) -> WaitKey {
        self.whole.as_ref().map_or_else(|| key_of(self), |whole| key_of(&**whole))
    }
}

/// All who sleep: those of the highest priority first, and of these who came first.
#[derive(Default)]
pub struct Futexes {
    all: Spin<BTreeMap<Word, VecDeque<Arc<Sleeper>>>>,
    /// How many ever stood for a lock whose word names its owner, less those that were woken when a thread ended.
    heirs: AtomicU64,
}

/// Puts one behind those of its priority.
fn queue_up(queue: &mut VecDeque<Arc<Sleeper>>, sleeper: Arc<Sleeper>) {
    let behind = queue.iter().rposition(|other| other.priority >= sleeper.priority);
    queue.insert(behind.map_or(0, |last| last + 1), sleeper);
}

impl Futexes {
    /// One more stands at a word. It looks at the word only now: whoever changes it and wakes finds the sleeper, or the sleeper
    /// finds the change.
    pub fn stand(&self, word: Word, bits: u32, priority: u32) -> Arc<Sleeper> {
        self.stand_as(word, (bits, priority), false, None)
    }

    /// The same at one of several words.
    pub fn stand_also(&self, word: Word, whole: &Arc<Whole>, priority: u32) -> Arc<Sleeper> {
        self.stand_as(word, (u32::MAX, priority), false, Some(whole.clone()))
    }

    /// The same for a lock whose word names its owner.
    pub fn stand_as_heir(&self, word: Word) -> Arc<Sleeper> {
        self.stand_as(word, (u32::MAX, 0), true, None)
    }

    fn stand_as(
        &self,
        word: Word,
        (bits, priority): (u32, u32),
        heir: bool,
        whole: Option<Arc<Whole>>,
    ) -> Arc<Sleeper> {
        let (woken, at) = (AtomicBool::new(false), Spin::new(word));
        let sleeper = Arc::new(Sleeper { woken, bits, priority, heir, at, whole });
        self.all.with(|all| {
            queue_up(all.entry(word).or_default(), sleeper.clone());
            self.heirs.fetch_add(u64::from(heir), Ordering::SeqCst);
        });
        // Partner: the look for sleepers in `wake`, after the waker's change.
        core::sync::atomic::fence(Ordering::SeqCst);
        sleeper
    }

    /// It no longer wants to sleep. False if it was woken before.
    pub fn leave(&self, sleeper: &Arc<Sleeper>) -> bool {
        self.all.with(|all| {
            let word = sleeper.at.with(|at| *at);
            let Some(queue) = all.get_mut(&word) else { return false };
            let before = queue.len();
            queue.retain(|other| !Arc::ptr_eq(other, sleeper));
            let left = queue.len() < before;
            if queue.is_empty() {
                all.remove(&word);
            }
            left
        })
    }

    /// Takes out up to `count` who stand at a word for any of these bits; the caller wakes them.
    pub fn wake(&self, word: Word, count: u32, bits: u32) -> alloc::vec::Vec<Arc<Sleeper>> {
        self.all.with(|all| {
            let mut woken = alloc::vec::Vec::new();
            let Some(queue) = all.get_mut(&word) else { return woken };
            queue.retain(|sleeper| {
                let meant = woken.len() < count as usize && sleeper.bits & bits != 0;
                if meant {
                    sleeper.woken.store(true, Ordering::SeqCst);
                    sleeper.whole.iter().for_each(|whole| whole.0.store(true, Ordering::SeqCst));
                    woken.push(sleeper.clone());
                }
                !meant
            });
            if queue.is_empty() {
                all.remove(&word);
            }
            woken
        })
    }

    /// Takes out all who stand for locks whose words name their owners: an owner is gone, and they look whether it is theirs. The caller
    /// wakes them.
    pub fn wake_heirs(&self) -> alloc::vec::Vec<Arc<Sleeper>> {
        // Whoever comes only now finds that the owner is gone.
        if self.heirs.load(Ordering::SeqCst) == 0 {
            return alloc::vec::Vec::new();
        }
        self.all.with(|all| {
            self.heirs.store(0, Ordering::SeqCst);
            let mut woken = alloc::vec::Vec::new();
            all.retain(|_, queue| {
                queue.retain(|sleeper| {
                    if sleeper.heir {
                        sleeper.woken.store(true, Ordering::SeqCst);
                        woken.push(sleeper.clone());
                    }
                    !sleeper.heir
                });
                !queue.is_empty()
            });
            woken
        })
    }

    /// Moves up to `count` to another word; returns how many.
    pub fn requeue(&self, from: Word, to: Word, count: u32) -> u64 {
        self.all.with(|all| {
            let Some(mut queue) = all.remove(&from) else { return 0 };
            let moved: VecDeque<_> = queue.drain(..queue.len().min(count as usize)).collect();
            if !queue.is_empty() {
                all.insert(from, queue);
            }
            moved.iter().for_each(|sleeper| sleeper.at.with(|at| *at = to));
            let number = moved.len() as u64;
            let queue = all.entry(to).or_default();
            moved.into_iter().for_each(|sleeper| queue_up(queue, sleeper));
            if number == 0 && all.get(&to).is_some_and(VecDeque::is_empty) {
                all.remove(&to);
            }
            number
        })
    }

    /// Words at which somebody stands.
    pub fn words(&self) -> usize {
        self.all.with(|all| all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Word = (1, 0x1000);
    const B: Word = (1, 0x2000);

    #[test]
    fn the_first_to_stand_is_the_first_woken() {
        let futexes = Futexes::default();
        let sleepers = [1, 2, 4].map(|bits| futexes.stand(A, bits, 0));
        assert!(futexes.wake(B, 9, u32::MAX).is_empty());
        assert_eq!(futexes.wake(A, 1, u32::MAX).len(), 1);
        assert_eq!(sleepers.each_ref().map(|s| s.is_woken()), [true, false, false]);
        assert_eq!(futexes.wake(A, 9, 4).len(), 1);
        assert_eq!(sleepers.each_ref().map(|s| s.is_woken()), [true, false, true]);
        assert!(futexes.leave(&sleepers[1]) && !futexes.leave(&sleepers[0]));
        assert_eq!(futexes.words(), 0);
    }

    #[test]
    fn the_most_urgent_is_woken_first_where_it_was_moved_as_well() {
        let futexes = Futexes::default();
        let sleepers = [0, 2, 3, 3, 0].map(|priority| futexes.stand(A, u32::MAX, priority));
        let woken = || sleepers.each_ref().map(|sleeper| sleeper.is_woken());
        assert_eq!((futexes.wake(A, 1, u32::MAX).len(), woken()), (1, [false, false, true, false, false]));
        let last = futexes.stand(B, u32::MAX, 2);
        assert_eq!(futexes.requeue(A, B, 9), 4);
        assert_eq!((futexes.wake(B, 1, u32::MAX).len(), woken()), (1, [false, false, true, true, false]));
        assert_eq!((futexes.wake(B, 1, u32::MAX).len(), last.is_woken()), (1, true));
        assert_eq!((futexes.wake(B, 2, u32::MAX).len(), woken()), (2, [true, true, true, true, false]));
    }

    #[test]
    fn who_stands_at_several_words_waits_for_one_thing() {
        let futexes = Futexes::default();
        let whole = Arc::new(Whole::default());
        let both = [A, B].map(|word| futexes.stand_also(word, &whole, 0));
        let other = futexes.stand(A, u32::MAX, 0);
        assert!(both[0].key() == both[1].key() && both[0].key() != other.key());
        assert_eq!(futexes.wake(B, 9, u32::MAX).len(), 1);
        assert_eq!(both.each_ref().map(|s| s.is_woken()), [false, true]);
        assert!(whole.is_woken());
        assert!(futexes.leave(&both[0]) && !futexes.leave(&both[1]) && futexes.leave(&other));
        assert_eq!(futexes.words(), 0);
    }

    #[test]
    fn when_an_owner_goes_its_heirs_wake_and_no_others() {
        let futexes = Futexes::default();
        let (other, heirs) = (futexes.stand(A, u32::MAX, 0), [A, B].map(|word| futexes.stand_as_heir(word)));
        assert_eq!(futexes.wake_heirs().len(), 2);
        assert!(heirs.iter().all(|heir| heir.is_woken()) && !other.is_woken());
        assert_eq!((futexes.wake_heirs().len(), futexes.words()), (0, 1));
    }

    #[test]
    fn who_was_moved_is_woken_and_leaves_there() {
        let futexes = Futexes::default();
        let sleepers = [0; 3].map(|_| futexes.stand(A, u32::MAX, 0));
        assert_eq!(futexes.requeue(A, B, 2), 2);
        assert_eq!(futexes.wake(A, 9, u32::MAX).len(), 1);
        assert!(sleepers[2].is_woken());
        assert!(futexes.leave(&sleepers[0]));
        assert_eq!(futexes.wake(B, 9, u32::MAX).len(), 1);
        assert_eq!(futexes.requeue(A, B, 9), 0);
        assert_eq!(futexes.words(), 0);
    }
}
