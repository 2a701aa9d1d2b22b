//! Memory: caches, memory itself, and what a TLB miss adds, by following pointers that lead everywhere and nowhere twice.

use std::hint::black_box;
use std::io;
use std::ptr;

use super::Results;
use super::stats::{Spread, timed};

const PAGE: usize = 4096;
const LINE: usize = 64;
/// More pages than any TLB has entries.
const MANY: usize = 32_768;

/// Memory of our own.
pub struct Area {
    at: *mut u8,
    bytes: usize,
}

impl Area {
    /// Untouched memory in pages of the size that is asked for, where the host has them.
    pub fn new(bytes: usize, large: bool) -> io::Result<Area> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of nobody's memory.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = if large { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the whole of the mapping. That the host has no large pages is no error here.
        unsafe { libc::madvise(at, bytes, advice) };
        Ok(Area { at: at.cast(), bytes })
    }

    /// The byte at an offset inside.
    pub fn byte(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.bytes, "inside the area");
        // SAFETY: inside the mapping.
        unsafe { self.at.add(offset) }
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.at
    }

    /// Writes to each page, so that it is there.
    pub fn touch(&self) {
        (0..self.bytes).step_by(PAGE).for_each(|offset| {
            // SAFETY: inside the mapping, which nobody else has.
            unsafe { self.byte(offset).write_volatile(1) };
        });
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; its pointers end with it.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}

/// A generator of no quality, enough to go to and fro: the order must not be one that a prefetcher knows.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Makes a ring of pointers through these offsets in random order, and follows it. Returns what a step takes.
fn follow(area: &Area, offsets: &[usize]) -> Spread {
    let mut order = offsets.to_vec();
    let mut state = 42;
    for at in (1..order.len()).rev() {
        order.swap(at, next(&mut state) as usize % (at + 1));
    }
    for (nth, &offset) in order.iter().enumerate() {
        let to = area.byte(order[(nth + 1) % order.len()]);
        assert!(offset.is_multiple_of(8), "aligned");
        // SAFETY: eight bytes inside the area, aligned.
        unsafe { area.byte(offset).cast::<*mut u8>().write(to) };
    }
    let mut at = area.byte(order[0]);
    let steps = (4 * order.len()).clamp(4096, 1 << 18);
    timed(15, steps, |steps| {
        for _ in 0..steps {
            // SAFETY: every pointer of the ring leads to another of it.
            at = unsafe { at.cast::<*mut u8>().read_volatile() };
        }
        black_box(at);
    })
}

/// Caches, memory, and the TLB.
pub fn all(results: &mut Results) -> io::Result<()> {
    let lines = |count: usize| (0..count).map(|line| line * LINE).collect::<Vec<_>>();
    let area = Area::new(16 << 10, false)?;
    results.spread("cache_hit", follow(&area, &lines(128)), "a ring of pointers through 8 KiB");
    drop(area);

    let big = Area::new(256 << 20, true)?;
    big.touch();
    let words = (256 << 20) / 8;
    let sum = timed(3, words, |words| {
        let mut sum = 0u64;
        for word in 0..words {
            // SAFETY: an aligned word inside the area.
            sum = sum.wrapping_add(unsafe { big.at.cast::<u64>().add(word).read_volatile() });
        }
        black_box(sum);
    });
    results.spread("user_access", sum, "256 MiB read in order, 8 bytes at a time");
    let spread_out: Vec<usize> = (0..(256 << 20) / 2048).map(|nth| nth * 2048).collect();
    results.spread(
        "dram_local",
        follow(&big, &spread_out),
        "a ring of pointers through 256 MiB in large pages",
    );

    // The same number of lines close together in a large page, and each in a small page of its own.
    let extra = |pages: usize| -> io::Result<(Spread, Spread)> {
        let close = follow(&big, &lines(pages));
        let small = Area::new(pages * PAGE, false)?;
        small.touch();
        let apart: Vec<usize> = (0..pages).map(|page| page * PAGE + page % 64 * LINE).collect();
        Ok((close, follow(&small, &apart)))
    };
    let (close, apart) = extra(MANY)?;
    let walk = apart.median - close.median;
    let how = format!(
        "measured: a ring through a line of each of {MANY} pages, {apart}, less one through as many lines together, {close}"
    );
    results.time("walk_step", walk, format!("{how}; one level, since those above are cached"));
    // Up to its reach a page more costs what the second level does, beyond it a walk.
    let mut reach = None;
    for pages in (7..15).map(|log| 1 << log) {
        let (close, apart) = extra(pages)?;
        let more = apart.median - close.median;
        if more > walk / 3.0 {
            break;
        }
        reach = Some((pages, more, close, apart));
    }
    match reach {
        Some((pages, more, close, apart)) => {
            let how = format!(
                "measured: a ring through a line of each of {pages} pages, {apart}, less one through as many lines together, {close}"
            );
            results.time("tlb_l2_hit", more, how);
            // A processor that has more entries than its own description has room for says something else.
            let says = results.constants.iter().position(|constant| constant.name == "l2_entries");
            let entries = says.and_then(|at| results.constants[at].value.parse::<u64>().ok());
            if let (Some(at), Some(entries)) = (says, entries.filter(|&entries| entries < pages as u64)) {
                results.constants[at].value = pages.to_string();
                results.constants[at].source = format!(
                    "measured: {pages} pages at least are reached without a walk; CPUID says {entries}, which cannot be"
                );
            }
        }
        None => results.not("tlb_l2_hit", "no number of pages was told apart from a walk: the host is busy"),
    }
    Ok(())
}
