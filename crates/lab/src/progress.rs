//! A progress bar over all runs, on a terminal; a pipe gets none.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quietmm_sim::Watch;

use crate::interrupt;

/// One run counts as this many steps of the bar.
const STEPS: u64 = 1000;

/// The bar. It is drawn on standard error, and only if that is a terminal.
pub struct Progress {
    bar: ProgressBar,
    lanes: Vec<AtomicU64>,
}

impl Progress {
    /// A bar over `runs` runs.
    pub fn new(runs: usize) -> Progress {
        let bar =
            ProgressBar::with_draw_target(Some(STEPS * runs as u64), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {percent:>3}% {elapsed}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(if runs == 1 { "1 run".to_string() } else { format!("{runs} runs") });
        Progress { bar, lanes: (0..runs).map(|_| AtomicU64::new(0)).collect() }
    }

    /// What the run with this index reports to.
    pub fn lane(&self, index: usize) -> Lane<'_> {
        Lane { progress: self, index }
    }

    /// Takes the bar off the screen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// One run's part of the bar, and its ear for Ctrl-C.
pub struct Lane<'a> {
    progress: &'a Progress,
    index: usize,
}

impl Watch for Lane<'_> {
    fn progress(&self, done: u64, total: u64) {
        let now = (u128::from(done.min(total)) * u128::from(STEPS) / u128::from(total.max(1))) as u64;
        // Relaxed: a figure to look at. Only this run writes its own lane.
        let before = self.progress.lanes[self.index].fetch_max(now, Ordering::Relaxed);
        if now > before {
            self.progress.bar.inc(now - before);
        }
    }

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }
}
