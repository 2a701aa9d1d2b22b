//! What the core does is written down, step by step: a long random day of each part, and for each step what it gave back,
//! how often what happened, and a hash of all that happened in its order. A change that nobody meant shows up here, whatever
//! it is; what was meant is written down again with `UPDATE=1 cargo test -p quietmm --test suite recorded`, and its difference
//! is read.
//!
//! Frames go by the order in which they turn up, for their numbers depend on the size of the core's bookkeeping.

mod kernel;
mod spaces;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

use quietmm::NodeId;
use quietmm::platform::WaitKey;

use crate::machine::{Happened, Host, Mm};

/// A generator of numbers (xorshift64*).
pub struct Dice(u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// FNV-1a.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What is written down.
pub struct Record {
    text: String,
    frames: BTreeMap<u32, usize>,
    steps: usize,
    /// Nodes whose kswapd was woken.
    pub kswapd: Vec<NodeId>,
}

impl Record {
    /// The text of something, with the names of frames in it.
    fn named(&mut self, what: &dyn Debug) -> String {
        let text = format!("{what:?}");
        let mut parts = text.split("frame 0x");
        let mut named = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let end = part.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            let next = self.frames.len();
            let number = u32::from_str_radix(number, 16).expect("the number of a frame");
            let name = *self.frames.entry(number).or_insert(next);
            write!(named, "f{name}{rest}").unwrap();
        }
        named
    }

    /// A step: what it is called, by which CPU, and what it gave.
    pub fn step(&mut self, mm: &Mm<'_>, name: &str, cpu: u16, gave: &dyn Debug) {
        let host = mm.platform();
        let mut happened = String::new();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let log = host.log.take();
        for what in &log {
            let text = match what {
                Happened::Event(event) => self.named(event),
                other => self.named(other),
            };
            let word = text.split([' ', '(', '{']).next().unwrap_or_default().to_string();
            *counts.entry(word).or_default() += 1;
            happened += &text;
            happened.push('\n');
        }
        for key in host.take_woken() {
            // A lock's address is nobody's business.
            let text = match key {
                WaitKey::Readers(_) | WaitKey::Lock(_) | WaitKey::Turn(..) => "a lock".to_string(),
                WaitKey::Kswapd(node) => {
                    self.kswapd.push(node);
                    format!("{key:?}")
                }
                key => self.named(&key),
            };
            writeln!(happened, "woken: {text}").unwrap();
        }
        writeln!(happened, "{:?}", host.pauses.take()).unwrap();
        if self.steps.is_multiple_of(10) {
            let audit = mm.validate();
            assert_eq!(audit.broken, None, "after step {}, {name}", self.steps);
            let sums = [
                audit.pcp,
                audit.tables,
                audit.pools,
                audit.kernel,
                audit.anon,
                audit.file,
                audit.mapped,
                audit.swapped,
                audit.vmalloc,
                audit.unpurged,
                audit.offline,
            ];
            writeln!(happened, "{sums:?}").unwrap();
        }
        let gave = self.named(gave);
        let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{word} {count}")).collect();
        writeln!(
            self.text,
            "{} cpu {cpu}: {name} = {gave}; {}; {:08x}",
            self.steps,
            counts.join(", "),
            hash(&happened)
        )
        .unwrap();
        self.steps += 1;
    }
}

/// Records what `day` does, and holds it against what is written down.
pub fn recorded(name: &str, seed: u64, day: impl FnOnce(&mut Record, Dice)) {
    let mut record = Record { text: String::new(), frames: BTreeMap::new(), steps: 0, kswapd: Vec::new() };
    day(&mut record, Dice(seed));
    let at = format!("{}/tests/suite/recorded/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&at, record.text).unwrap();
        return;
    }
    let held = std::fs::read_to_string(&at).unwrap_or_else(|error| panic!("{at}: {error}"));
    let differ = held.lines().zip(record.text.lines()).find(|(held, now)| held != now);
    assert!(
        held == record.text,
        "{name}: what the core does is not what is written down; first difference:\n{differ:#?}\n\
         If the change is meant: UPDATE=1 cargo test -p quietmm --test suite recorded, and read what changes"
    );
}

/// Nothing is left over from before.
fn begin(host: &Host) {
    host.forget();
    host.take_woken();
    host.pauses.borrow_mut().clear();
}
