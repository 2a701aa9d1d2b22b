//! Files read and written by copy, made longer and shorter, and with holes, while programs map them: against a vector of bytes.

use crate::machine;

use std::panic::catch_unwind;

use machine::faults::reclaim_all;
use machine::showing::{AT, mapped, private, shared};
use machine::swapping::take_free;
use machine::{Host, Mm, Setup, bare, give_back, settled};
use quietmm::{Error, FileId, Rule, SpaceId};

const PAGE: u64 = 4096;
/// Pages that the file has at most, all of which programs map.
const MOST: u64 = 24;

/// A generator of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A byte of the file, often one at a border of pages.
    fn place(&mut self) -> u64 {
        let page = self.below(MOST) * PAGE;
        page + [0, 1, PAGE - 1, PAGE / 2][self.below(4) as usize]
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = 1 + self.below(most);
        let first = self.next() | 1;
        (0..len).map(|i| (first.rotate_left(i as u32) ^ i) as u8).collect()
    }
}

/// A file, what it should have, and spaces that map it.
struct Scene<'a, 'p> {
    mm: &'a Mm<'p>,
    file: FileId,
    bytes: Vec<u8>,
    spaces: [SpaceId; 2],
    /// A space that has copied no page.
    looks: SpaceId,
}

/// An operation that says no has changed nothing; with devices that fail it may say so.
fn refused(host: &Host, error: Error) {
    let fails = host.fail_reads.get() || host.fail_writes.get() || host.fail_discards.get();
    assert!(error == Error::Device && fails, "{error:?}");
}

impl<'a, 'p> Scene<'a, 'p> {
    fn new(mm: &'a Mm<'p>) -> Self {
        let file = mm.create_file(MOST).unwrap();
        let space = |cpu, backing| {
            let id = mapped(mm, backing, MOST);
            mm.platform().on(cpu, || mm.space(id).switch_to().unwrap());
            id
        };
        let looks = space(2, private(file));
        let spaces = [space(1, shared(file)), space(0, shared(file))];
        let bytes = vec![0; (MOST * PAGE) as usize];
        Scene { mm, file, bytes, spaces, looks }
    }

    fn host(&self) -> &'p Host {
        self.mm.platform()
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn reads(&self, at: u64, count: u64) {
        let mut into = vec![0xee; count as usize];
        match self.mm.file(self.file).read(at, &mut into) {
            Ok(read) => {
                let want = self.bytes.get(at as usize..).unwrap_or(&[]);
                let want = &want[..want.len().min(into.len())];
                assert!(
                    read == want.len() || self.host().fail_reads.get(),
                    "{read} of {} bytes at {at}",
                    want.len()
                );
                assert!(into[..read] == want[..read], "{count} bytes at {at}");
                assert!(into[read..].iter().all(|&byte| byte == 0xee), "behind what was read");
            }
            Err(error) => refused(self.host(), error),
        }
    }

    fn writes(&mut self, at: u64, from: &[u8]) {
        match self.mm.file(self.file).write(at, from) {
            Ok(written) => {
                assert!(written == from.len() || self.host().fail_reads.get());
                let end = at as usize + written;
                self.bytes.resize(self.bytes.len().max(end), 0);
                self.bytes[at as usize..end].copy_from_slice(&from[..written]);
            }
            Err(error) => refused(self.host(), error),
        }
        assert_eq!(self.mm.file(self.file).size(), Ok(self.len()));
    }

    fn is_made(&mut self, len: u64) {
        match self.mm.file(self.file).set_size(len) {
            Ok(()) => self.bytes.resize(len as usize, 0),
            Err(error) => refused(self.host(), error),
        }
        assert_eq!(self.mm.file(self.file).size(), Ok(self.len()));
    }

    fn gets_hole(&mut self, at: u64, count: u64) {
        if self.host().fail_discards.get() {
            // What is not there yet would be lost, and nothing else.
            self.mm.file(self.file).write_back().unwrap();
        }
        match self.mm.file(self.file).punch_hole(at, count) {
            Ok(()) => {
                let end = (at + count).min(self.len());
                self.bytes[at.min(end) as usize..end as usize].fill(0);
            }
            Err(error) => refused(self.host(), error),
        }
    }

    /// A program on CPU `who` uses the first word of a page.
    fn is_used(&mut self, who: usize, page: u64, write: Option<u64>) {
        let (mm, host) = (self.mm, self.host());
        let id = [self.spaces[1], self.spaces[0], self.looks][who];
        let write = write.filter(|_| who < 2);
        let done = host.on(who as u16, || match write {
            Some(value) => host.write(mm, id, AT + page, value).map(|()| value),
            None => host.read(mm, id, AT + page),
        });
        // What programs write behind the end is seen by nobody who reads the file, now or when it is longer.
        let at = (page * PAGE).min(self.len()) as usize;
        let end = (at + 8).min(self.bytes.len());
        match done {
            Ok(value) => {
                assert!(page < self.len().div_ceil(PAGE), "page {page} is there");
                let word = value.to_ne_bytes();
                if write.is_some() {
                    self.bytes[at..end].copy_from_slice(&word[..end - at]);
                }
                assert!(self.bytes[at..end] == word[..end - at], "page {page} shows {value:#x} to CPU {who}");
            }
            Err(Error::BeyondFile) => assert!(page >= self.len().div_ceil(PAGE), "page {page} is not there"),
            Err(error) => refused(host, error),
        }
    }

    fn step(&mut self, numbers: &mut Numbers) {
        let (at, count) = (numbers.place(), 1 + numbers.below(3 * PAGE));
        match numbers.below(16) {
            0..=2 => self.reads(at, count),
            3..=5 => {
                let bytes = numbers.bytes(3 * PAGE);
                let at = at.min(MOST * PAGE - bytes.len() as u64);
                self.writes(at, &bytes);
            }
            6 => {
                let page = numbers.bytes(1).repeat(PAGE as usize);
                self.writes(at - at % PAGE, &page);
            }
            7 | 8 => self.is_made(at),
            9 => self.gets_hole(at, count),
            10..=12 => {
                let (who, write) = (numbers.below(3) as usize, numbers.next().is_multiple_of(2));
                let value = numbers.next();
                self.is_used(who, at / PAGE, write.then_some(value));
            }
            13 => match self.mm.file(self.file).write_back() {
                Ok(_) => {}
                Err(error) => refused(self.host(), error),
            },
            14 => reclaim_all(self.mm),
            _ => _ = self.mm.file(self.file).evict(at / PAGE, 8).unwrap(),
        }
    }

    fn ends(mut self) {
        self.reads(0, MOST * PAGE + 1);
        (0..MOST).for_each(|page| self.is_used(1, page, None));
        self.mm.file(self.file).write_back().unwrap();
        reclaim_all(self.mm);
        self.reads(0, MOST * PAGE + 1);
        let [a, b] = self.spaces;
        let kernel = self.mm.create_space().unwrap();
        (0..3).for_each(|cpu| self.host().on(cpu, || self.mm.space(kernel).switch_to().unwrap()));
        [a, b, self.looks].into_iter().for_each(|id| self.mm.space(id).destroy().unwrap());
        self.mm.file(self.file).destroy().unwrap();
        settled(self.mm);
        assert_eq!((self.host().stale.get(), self.host().torn.get()), (0, 0));
    }
}

fn play(policy: &str, seed: u64, fails: bool, broken: Option<Rule>) {
    let host = Host::new(Setup { cpus: 3, frames: 256, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare(policy), |mm| {
        let (mut scene, mut numbers) = (Scene::new(mm), Numbers(seed));
        for _ in 0..40 {
            let failing = fails && numbers.below(4) == 0;
            let which = numbers.below(3);
            host.fail_reads.set(failing && which == 0);
            host.fail_writes.set(failing && which == 1);
            host.fail_discards.set(failing && which == 2);
            scene.step(&mut numbers);
        }
        host.fail_reads.set(false);
        host.fail_writes.set(false);
        host.fail_discards.set(false);
        scene.ends();
    });
}

/// So many seeds, of which this is a part.
fn seeds(fails: bool, (part, parts): (usize, usize)) {
    for seed in (part as u64..500).step_by(parts) {
        play(["linux", "quiet", "vanilla"][seed as usize / parts % 3], seed, fails, None);
    }
}

parts!(
    a_file_has_what_was_written_to_it_by_whatever_way,
    |part, parts| seeds(false, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9
    ]
);

parts!(
    where_devices_fail_a_file_has_what_it_had_or_what_was_asked_for,
    |part, parts| seeds(true, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9
    ]
);

#[test]
fn the_model_sees_what_stays_mapped_when_it_is_cut_off() {
    let play = |seed| catch_unwind(|| play("linux", seed, false, Some(Rule::CutPagesAreUnmapped))).is_err();
    assert!((0..20).any(play));
}

/// Nothing that is written leaves memory, and so the write ends when that is full.
#[test]
fn a_write_that_gets_half_of_its_pages_leaves_the_file_as_long_as_what_it_got() {
    for old in [PAGE, PAGE - 100, 5 * PAGE] {
        let host = Host::new(Setup { frames: 256, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let file = mm.create_file(old.div_ceil(PAGE)).unwrap();
            mm.file(file).set_size(old).unwrap();
            let at = 4 * PAGE + 100;
            host.fail_writes.set(true);
            let written = mm.file(file).write(at, &[7; 256 * PAGE as usize]).unwrap();
            host.fail_writes.set(false);
            assert!((100 * PAGE as usize..256 * PAGE as usize).contains(&written), "{written}");
            assert_eq!(mm.file(file).size(), Ok(at + written as u64), "of {old}");
            assert!((at + written as u64).is_multiple_of(PAGE), "whole pages, but for the first");
            let mut bytes = vec![1; written + 200];
            assert_eq!(mm.file(file).read(at - 100, &mut bytes), Ok(written + 100));
            assert!(bytes[..100].iter().all(|&byte| byte == 0), "a hole before it");
            assert!(bytes[100..written + 100].iter().all(|&byte| byte == 7));
        });
    }
}

/// A page that a program has used, and that was read or written by copy too, was used twice.
#[test]
fn what_is_used_by_copy_counts_as_a_use() {
    let activated = |by_copy: fn(&Mm<'_>, FileId)| {
        let host = Host::new(Setup { frames: 256, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let file = mm.create_file(2).unwrap();
            let id = mapped(mm, shared(file), 2);
            host.read(mm, id, AT).unwrap();
            by_copy(mm, file);
            mm.drain_lru_batch();
            let held = machine::swapping::take_free(mm);
            machine::swapping::reclaim(mm);
            machine::give_back(mm, held);
            mm.counter(quietmm::Counter::PgActivate)
        })
    };
    assert_eq!(activated(|_, _| ()), 0);
    assert_eq!(activated(|mm, file| _ = mm.file(file).read(0, &mut [0; 8]).unwrap()), 1);
    assert_eq!(activated(|mm, file| _ = mm.file(file).write(0, &[1; 8]).unwrap()), 1);
}

/// Whoever reads on to where the device fails gets what came before, and is told how much that is.
#[test]
fn a_read_that_fails_half_way_says_how_far_it_came() {
    use quietmm::platform::{DeviceError, Store};
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(3).unwrap();
        mm.file(file).write(0, &[7; 3 * PAGE as usize]).unwrap();
        mm.file(file).write_back().unwrap();
        mm.drain_lru_batch();
        reclaim_all(mm);
        host.refuse_reads.set(Some(|_: Store, block| (block == 1).then_some(DeviceError::Failed)));
        let mut into = [0; 3 * PAGE as usize];
        assert_eq!(mm.file(file).read(100, &mut into), Ok(PAGE as usize - 100));
        assert!(into[..PAGE as usize - 100].iter().all(|&byte| byte == 7));
        assert!(into[PAGE as usize - 100..].iter().all(|&byte| byte == 0), "nothing was read there");
        assert_eq!(mm.file(file).read(PAGE, &mut into), Err(Error::Device));
        assert_eq!(settled(mm).broken, None);
    });
}

/// A file that ends in the middle of a page grows: the device forgets what lies behind that page, and not what is in it.
#[test]
fn a_file_that_grows_keeps_the_page_in_which_it_ended() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        mm.file(file).write(PAGE, &7u64.to_ne_bytes()).unwrap();
        mm.file(file).set_size(PAGE + 100).unwrap();
        mm.file(file).write_back().unwrap();
        assert_eq!(host.on_disk(file, 1), Some(7));
        mm.file(file).set_size(4 * PAGE).unwrap();
        assert_eq!(host.on_disk(file, 1), Some(7));
        // Cut in the middle likewise.
        mm.file(file).write_back().unwrap();
        mm.file(file).set_size(PAGE + 8).unwrap();
        assert_eq!(host.on_disk(file, 1), Some(7));
    });
}

/// A write to beyond a file's end that is out of memory before it has come to where that was: the file is as long as it was.
#[test]
fn a_write_that_stops_before_the_old_end_leaves_the_file_as_long_as_it_was() {
    for room in 1..4 {
        let host = Host::new(Setup { disk: false, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let file = mm.create_file(6).unwrap();
            // What leads to its pages is there.
            assert_eq!(mm.file(file).read(5 * PAGE, &mut [0]), Ok(1));
            let mut held = take_free(mm);
            let some = held.split_off(held.len() - room);
            give_back(mm, some);
            let written = mm.file(file).write(0, &[7; 8 * PAGE as usize]).unwrap() as u64;
            assert!((1..6 * PAGE).contains(&written), "{written} bytes");
            assert_eq!(mm.file(file).size(), Ok(6 * PAGE), "{written} bytes of a file of six pages");
            give_back(mm, held);
        });
    }
}
