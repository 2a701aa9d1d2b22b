//! A cache line that goes to and fro between two CPUs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::stats::{Spread, median_of, timed};
use super::{Results, topology};

/// On larger machines each pair would take too long: then each CPU is paired with a few others.
const ALL_PAIRS: usize = 24;
/// Moves to and fro in a sample.
const MOVES: usize = 200;

#[repr(align(128))]
struct Line(AtomicU64);

/// What one move takes between each pair of CPUs.
pub fn all(results: &mut Results, online: &[u16]) -> io::Result<Vec<(u16, u16, Spread)>> {
    let mut pairs = Vec::new();
    for (nth, &a) in online.iter().enumerate() {
        for (step, &b) in online[nth + 1..].iter().enumerate() {
            if online.len() <= ALL_PAIRS
                || (step + 1).is_power_of_two() && nth % (online.len() / ALL_PAIRS) == 0
            {
                pairs.push((a, b, between(a, b)?));
            }
        }
    }
    topology::pin(online[0])?;
    if pairs.is_empty() {
        results.not("line_local, line_hop", "there is one CPU");
        return Ok(pairs);
    }
    let near = |pair: &&(u16, u16, Spread)| topology::node_of(pair.0) == topology::node_of(pair.1);
    let local = median_of(pairs.iter().filter(near).map(|pair| pair.2.median));
    let of = |keep: &dyn Fn(&&(u16, u16, Spread)) -> bool| {
        let list: Vec<f64> = pairs.iter().filter(keep).map(|pair| pair.2.median).collect();
        let least = list.iter().copied().fold(f64::INFINITY, f64::min);
        format!("{} pairs, {least:.0} to {:.0} ns", list.len(), list.iter().copied().fold(0.0, f64::max))
    };
    let how = "measured: a line goes to and fro between two CPUs, half a round";
    results.time("line_local", local, format!("{how}; the middle of {}", of(&near)));
    let far = |pair: &&(u16, u16, Spread)| !near(pair);
    let hop = pairs.iter().filter(far).map(|pair| {
        let hops = topology::hops(topology::node_of(pair.0), topology::node_of(pair.1));
        (pair.2.median - local) / hops.max(0.1)
    });
    let hop = median_of(hop);
    let how = if hop > 0.0 {
        format!("{how}; what nodes add, a hop of the distances; {}", of(&far))
    } else {
        "one node".into()
    };
    results.time("line_hop", hop, how);
    Ok(pairs)
}

fn between(a: u16, b: u16) -> io::Result<Spread> {
    let line = Line(AtomicU64::new(0));
    let spread = std::thread::scope(|scope| -> io::Result<Spread> {
        // The even numbers are ours, the odd ones the other's; it ends at the largest.
        scope.spawn(|| {
            let _ = topology::pin(b);
            loop {
                let now = line.0.load(Ordering::Acquire);
                if now == u64::MAX {
                    return;
                }
                if now % 2 == 1 {
                    // Relaxed on failure: whoever wrote meanwhile has ended it.
                    let _ = line.0.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        });
        topology::pin(a)?;
        let spread = timed(31, MOVES, |moves| {
            for _ in 0..moves {
                let now = line.0.load(Ordering::Relaxed);
                line.0.store(now + 1, Ordering::Release);
                while line.0.load(Ordering::Acquire) == now + 1 {}
            }
        });
        line.0.store(u64::MAX, Ordering::Release);
        Ok(spread)
    })?;
    // Each round moves the line there and back.
    Ok(Spread { median: spread.median / 2.0, low: spread.low / 2.0, high: spread.high / 2.0 })
}
