//! Who interrupts whom in a recording, by which call, and what it took: the shootdowns that the kernel counted, each with the
//! call of its sender in which it fell.

use std::collections::{BTreeMap, BTreeSet};

use quietmm_workloads::trace::Recording;
use quietmm_workloads::trace::recording::{Call, Pages, Victim, What};

use crate::syscall::flushes;

/// Calls of a thread that follow each other faster, in nanoseconds, could be one.
const BURST: u64 = 1_000_000;
/// A shootdown so soon after a fault is the fault's.
const FAULT: u64 = 100_000;
/// Fewer calls, of those that interrupt or of the others, say nothing of how long such calls take.
const FEW: usize = 5;

macro_rules! causes {
    ($($variant:ident $key:literal $name:literal $about:literal $advice:literal;)*) => {
        /// What made the kernel flush.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Cause { $(#[doc = $about] $variant,)* }

        impl Cause {
            /// For programs.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Cause::$variant => $key,)* }
            }

            /// For people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$variant => $name,)* }
            }

            /// What a program can do about it.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self { $(Cause::$variant => $advice,)* }
            }
        }
    };
}

causes! {
    Munmap "munmap" "munmap" "`munmap`, and `brk` that gives back."
        "Keep memory and use it again instead of unmapping it: a pool in the program, or an allocator that keeps more (glibc: \
         M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt, or MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ in the environment).";
    Madvise "madvise" "madvise" "`madvise` that takes pages away, or their accessed bits."
        "Give memory back later and in larger pieces (jemalloc: dirty_decay_ms; Go: GOGC and GOMEMLIMIT).";
    Mprotect "mprotect" "mprotect" "`mprotect`."
        "Change the rights of larger ranges at once, or map with the final rights; glibc grows the heaps of its arenas by mprotect: \
         fewer arenas (MALLOC_ARENA_MAX). For rights that change all the time protection keys need no flush (pkey_mprotect once, then pkey_set).";
    Mremap "mremap" "mremap" "`mremap`."
        "Leave room to grow in place, or copy: a move of a few pages costs more than it saves.";
    Mmap "mmap" "mmap over a mapping" "`mmap` over what was there."
        "Map elsewhere instead of over what is there (MAP_FIXED), and unmap the old in one piece later.";
    Fork "fork" "fork" "A new process."
        "Start programs by posix_spawn or vfork, which copy no tables and flush nothing; fork before there are threads.";
    Fault "fault" "page fault" "A page fault: a write to a page that was only read before, or the copy of a page after a fork."
        "Write to new memory before it is read: the first write to a page that was only read replaces the shared zero page, and flushes that. After a fork \
         each first write copies a page and flushes the old one: fork less, or write less to what was there before.";
    Other "other" "none of its calls" "The end of a program, or the kernel's own: reclaim, migration."
        "Nothing that the program asks for: reclaim, migration between nodes, the end of a process.";
}

/// Who was interrupted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Whom {
    /// Recorded threads of this name.
    Threads(String),
    /// CPUs that had nothing to do.
    Idle,
    /// CPUs that had left the space before, of which the kernel had not taken note.
    Left,
    /// Other programs, or nobody knows.
    Others,
}

/// Calls of one kind by threads of one name.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The threads' name.
    pub name: String,
    /// What they asked for.
    pub cause: Cause,
    /// All such calls.
    pub calls: u64,
    /// Those during which other threads lived in the space: they may interrupt.
    pub shared: u64,
    /// Those that did.
    pub guilty: u64,
    /// Interrupts that they caused.
    pub shootdowns: u64,
    /// Nanoseconds of all calls, and of those that interrupted somebody.
    pub took: [u64; 2],
    /// So many nanoseconds half of the calls that interrupted somebody took at most, and half of the others.
    pub medians: [Option<u64>; 2],
    /// What an interrupt adds to a call, where calls can be compared.
    pub alike: Option<Alike>,
    /// How many there would be if of the guilty ones those that follow each other at once were one.
    pub bursts: u64,
    /// Pages of the guilty ones.
    pub pages: u64,
    /// Who was interrupted, most often first.
    pub victims: Vec<(Whom, u64)>,
    /// Interrupts by call stack, where recorded, most often first; where interrupts were not recorded, calls that may interrupt.
    pub stacks: Vec<(String, u64)>,
}

/// Calls that interrupted somebody beside calls that did not and took out about as many pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alike {
    /// So many nanoseconds half of the former take longer than half of the latter; less if negative.
    pub longer: i64,
    /// Calls that interrupted somebody and have others like them.
    pub calls: u64,
}

impl Group {
    /// What a call takes that interrupts somebody, and one that does not: half of them at most, in nanoseconds, where both are known.
    #[must_use]
    pub fn took_each(&self) -> Option<[u64; 2]> {
        let [Some(guilty), Some(innocent)] = self.medians else { return None };
        (guilty > 0 && innocent > 0).then_some([guilty, innocent])
    }
}

/// Who interrupts whom.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Blame {
    /// By name of the sender and cause: most shootdowns first, then most calls that may interrupt.
    pub groups: Vec<Group>,
    /// All shootdowns.
    pub shootdowns: u64,
}

impl Blame {
    /// Of a recording.
    #[must_use]
    pub fn of(recording: &Recording<'_>) -> Blame {
        let about = recording.header().about;
        let program = about.program;
        let mut court = Court { seen: about.shootdowns, ..Court::default() };
        court.name(program);
        for event in recording.events() {
            court.hear(event.thread, event.at, &event.what);
        }
        court.close()
    }
}

/// A thread on the way.
#[derive(Clone, Default)]
struct Thread {
    name: usize,
    space: usize,
    ended: bool,
    /// Shootdowns that it has sent and that no call was found for yet: when, and whose.
    open: Vec<(u64, Victim)>,
    /// When it faulted last.
    fault: Option<u64>,
    /// Its last guilty call.
    last: Option<(Cause, u64)>,
}

/// A call that has ended.
#[derive(Clone, Copy)]
struct Done {
    cause: Cause,
    at: u64,
    call: Call,
    pages: u64,
    /// Pages that faults had brought there, as far as they were recorded.
    present: u64,
}

/// Whom somebody interrupted, threads by the number of their name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hit {
    Name(usize),
    Idle,
    Left,
    Others,
}

#[derive(Clone, Default)]
struct Tally {
    calls: u64,
    shared: u64,
    guilty: u64,
    shootdowns: u64,
    took: [u64; 2],
    /// Of each call that interrupted somebody, and of each that did not; calls with about as many pages present together.
    times: BTreeMap<u32, [Vec<u64>; 2]>,
    bursts: u64,
    pages: u64,
    victims: BTreeMap<Hit, u64>,
    stacks: BTreeMap<u32, u64>,
}

#[derive(Default)]
struct Court {
    names: Vec<String>,
    numbers: BTreeMap<String, usize>,
    threads: Vec<Thread>,
    /// Threads that live in each space.
    spaces: Vec<u32>,
    /// Pages of each that faults have brought and nothing has taken away. What a fork copies is not known.
    present: Vec<BTreeSet<u64>>,
    stacks: Vec<String>,
    tallies: BTreeMap<(usize, Cause), Tally>,
    shootdowns: u64,
    /// Shootdowns were recorded.
    seen: bool,
}

impl Court {
    fn hear(&mut self, thread: u32, at: u64, what: &What<'_>) {
        let me = thread as usize;
        match *what {
            What::Start { by, call, shares } => {
                let maker = self.threads.get(by as usize).cloned().filter(|_| by != thread);
                let space = match &maker {
                    Some(maker) if shares => maker.space,
                    _ => self.new_space(),
                };
                self.spaces[space] += 1;
                let name = maker.as_ref().map_or(0, |maker| maker.name);
                self.threads.push(Thread { name, space, ..Thread::default() });
                if maker.is_some() && !shares {
                    self.settle(
                        by as usize,
                        Some(Done { cause: Cause::Fork, at, call, pages: 0, present: 0 }),
                    );
                }
            }
            What::Name(name) => self.threads[me].name = self.name(name),
            What::Exec(path) => {
                self.settle(me, None);
                self.leave(me);
                let space = self.new_space();
                self.spaces[space] += 1;
                let name = self.name(path.rsplit('/').next().unwrap_or(path));
                (self.threads[me].space, self.threads[me].name) = (space, name);
            }
            What::Stack(text) => self.stacks.push(text.to_owned()),
            What::Shootdown { victim, .. } => {
                self.shootdowns += 1;
                self.threads[me].open.push((at, victim));
            }
            What::Fault { page, .. } => {
                self.settle(me, None);
                self.threads[me].fault = Some(at);
                self.present[self.threads[me].space].insert(page);
            }
            What::End => {
                self.settle(me, None);
                if !self.threads[me].ended {
                    self.leave(me);
                    self.threads[me].ended = true;
                }
            }
            ref what => {
                if let Some((cause, call, pages)) = cause(what) {
                    let present = self.change(me, what);
                    self.settle(me, Some(Done { cause, at, call, pages, present }));
                }
            }
        }
    }

    fn name(&mut self, name: &str) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.numbers.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.names.len() - 1
    }

    /// A call changes what is there. Returns how many pages it found.
    fn change(&mut self, thread: usize, what: &What<'_>) -> u64 {
        let present = &mut self.present[self.threads[thread].space];
        let mut found = |pages: Pages, leave: bool| {
            let all: Vec<u64> = present.range(pages.start..pages.end()).copied().collect();
            if !leave {
                all.iter().for_each(|page| {
                    present.remove(page);
                });
            }
            all
        };
        match *what {
            What::Protect { pages, .. } => found(pages, true).len() as u64,
            What::Unmap { pages, .. } | What::Advise { pages, .. } | What::Map { pages, .. } => {
                found(pages, false).len() as u64
            }
            What::Move { from, to, .. } => {
                let moved = found(from, false);
                if from.start != to.start {
                    found(to, false);
                }
                let there = moved.iter().map(|page| page - from.start).filter(|&nth| nth < to.count);
                present.extend(there.map(|nth| to.start + nth));
                moved.len() as u64
            }
            _ => 0,
        }
    }

    fn new_space(&mut self) -> usize {
        self.spaces.push(0);
        self.present.push(BTreeSet::new());
        self.spaces.len() - 1
    }

    fn leave(&mut self, thread: usize) {
        let space = self.threads[thread].space;
        self.spaces[space] = self.spaces[space].saturating_sub(1);
        if self.spaces[space] == 0 {
            self.present[space] = BTreeSet::new();
        }
    }

    fn hit(&self, victim: Victim) -> Hit {
        match victim {
            Victim::Thread(thread) => Hit::Name(self.threads[thread as usize].name),
            Victim::Idle => Hit::Idle,
            Victim::Left => Hit::Left,
            Victim::Other => Hit::Others,
        }
    }

    /// A thread has ended a call, or something else has happened to it: which of its open shootdowns are whose?
    fn settle(&mut self, thread: usize, done: Option<Done>) {
        let open = std::mem::take(&mut self.threads[thread].open);
        let Thread { name, space, fault, last, .. } = self.threads[thread];
        // What came before the call began is a fault's, if there was one just before.
        let began = done.map_or(u64::MAX, |done| done.at.saturating_sub(done.call.took));
        let (inside, before): (Vec<_>, Vec<_>) = open.into_iter().partition(|&(at, _)| at >= began);
        for (at, victim) in before {
            let soon = fault.is_some_and(|fault| fault <= at && at - fault < FAULT);
            let cause = if soon { Cause::Fault } else { Cause::Other };
            let hit = self.hit(victim);
            let tally = self.tallies.entry((name, cause)).or_default();
            for count in [&mut tally.calls, &mut tally.guilty, &mut tally.bursts, &mut tally.shootdowns] {
                *count += 1;
            }
            *tally.victims.entry(hit).or_default() += 1;
        }
        let Some(Done { cause, at, call, pages, present }) = done else { return };
        // A map that covers nothing, which is most of them, flushes nothing.
        let shared = self.spaces[space] > 1 && cause != Cause::Mmap;
        let may = !self.seen && shared && call.stack > 0;
        let hits: Vec<Hit> = inside.iter().map(|&(_, victim)| self.hit(victim)).collect();
        let tally = self.tallies.entry((name, cause)).or_default();
        tally.calls += 1;
        tally.shared += u64::from(shared);
        tally.took[0] = tally.took[0].saturating_add(call.took);
        if may {
            *tally.stacks.entry(call.stack).or_default() += 1;
        }
        // 0, 1, 2 and 3, 4 to 7, ...
        let size = u64::BITS - present.leading_zeros();
        tally.times.entry(size).or_default()[usize::from(hits.is_empty())].push(call.took);
        if hits.is_empty() {
            return;
        }
        tally.guilty += 1;
        tally.shootdowns += hits.len() as u64;
        tally.took[1] = tally.took[1].saturating_add(call.took);
        tally.pages = tally.pages.saturating_add(pages);
        let follows = last.is_some_and(|(last, when)| last == cause && began.saturating_sub(when) < BURST);
        tally.bursts += u64::from(!follows);
        if call.stack > 0 {
            *tally.stacks.entry(call.stack).or_default() += hits.len() as u64;
        }
        for hit in hits {
            *tally.victims.entry(hit).or_default() += 1;
        }
        self.threads[thread].last = Some((cause, at));
    }

    fn close(mut self) -> Blame {
        (0..self.threads.len()).for_each(|thread| self.settle(thread, None));
        let whom = |hit: Hit| match hit {
            Hit::Name(name) => Whom::Threads(self.names[name].clone()),
            Hit::Idle => Whom::Idle,
            Hit::Left => Whom::Left,
            Hit::Others => Whom::Others,
        };
        let stack = |number: u32| self.stacks.get(number as usize - 1).cloned().unwrap_or_default();
        let group = |((name, cause), tally): (&(usize, Cause), &Tally)| Group {
            name: self.names[*name].clone(),
            cause: *cause,
            calls: tally.calls,
            shared: tally.shared,
            guilty: tally.guilty,
            shootdowns: tally.shootdowns,
            took: tally.took,
            medians: [0, 1]
                .map(|which| median(tally.times.values().flat_map(|times| &times[which]).copied().collect())),
            alike: alike(tally.times.values()),
            bursts: tally.bursts,
            pages: tally.pages,
            victims: most_first(tally.victims.iter().map(|(&hit, &count)| (whom(hit), count))),
            stacks: most_first(tally.stacks.iter().map(|(&number, &count)| (stack(number), count))),
        };
        let mut groups: Vec<Group> = self.tallies.iter().map(group).collect();
        groups.sort_by(|a, b| {
            let key = |group: &Group| (group.shootdowns, group.shared);
            key(b).cmp(&key(a)).then_with(|| (&a.name, a.cause).cmp(&(&b.name, b.cause)))
        });
        Blame { groups, shootdowns: self.shootdowns }
    }
}

/// Of each size the difference, and of these the one that half of the calls have at most.
fn alike<'t>(sizes: impl Iterator<Item = &'t [Vec<u64>; 2]>) -> Option<Alike> {
    let mut differences: Vec<(i64, u64)> = sizes
        .filter(|times| times.iter().all(|times| times.len() >= FEW))
        .filter_map(|[guilty, others]| {
            let (longer, than) = (median(guilty.clone())?, median(others.clone())?);
            Some((longer as i64 - than as i64, guilty.len() as u64))
        })
        .collect();
    differences.sort_unstable();
    let calls = differences.iter().map(|(_, calls)| calls).sum();
    let mut before = 0;
    let middle = differences.iter().find(|(_, weight)| {
        before += weight;
        before * 2 >= calls
    });
    middle.map(|&(longer, _)| Alike { longer, calls })
}

/// Half of them are no larger.
fn median(mut times: Vec<u64>) -> Option<u64> {
    let middle = times.len().checked_sub(1)? / 2;
    Some(*times.select_nth_unstable(middle).1)
}

fn most_first<T: Ord>(counts: impl Iterator<Item = (T, u64)>) -> Vec<(T, u64)> {
    let mut counts: Vec<(T, u64)> = counts.collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

/// Calls that take something away.
fn cause(what: &What<'_>) -> Option<(Cause, Call, u64)> {
    Some(match *what {
        What::Unmap { pages, call } => (Cause::Munmap, call, pages.count),
        What::Advise { pages, advice, call } if flushes(advice) => (Cause::Madvise, call, pages.count),
        What::Protect { pages, call, .. } => (Cause::Mprotect, call, pages.count),
        What::Move { from, call, .. } => (Cause::Mremap, call, from.count),
        What::Map { pages, call, .. } => (Cause::Mmap, call, pages.count),
        _ => return None,
    })
}
