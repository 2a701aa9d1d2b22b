//! What is going on, on a terminal; a pipe gets nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use quietmm_sim::Watch;

use crate::process::caller::{self, Caller};
use crate::process::interrupt;

/// One run counts as this many steps of the bar.
const STEPS: u64 = 1000;
/// An estimate is made once this long has passed,
const SETTLED: Duration = Duration::from_secs(2);
/// and told if the work takes longer than this.
const LONG: Duration = Duration::from_secs(10);

/// A bar over all runs. It is drawn on standard error, and only if that is a terminal; or whoever runs the command inside another
/// program asks for it.
pub struct Progress {
    bar: ProgressBar,
    runs: usize,
    workers: usize,
    began: Instant,
    /// An estimate has been made.
    estimated: AtomicBool,
    lanes: Vec<AtomicU64>,
    caller: Option<Caller>,
}

impl Progress {
    /// A bar over `runs` runs, so many at a time.
    pub fn new(runs: usize, workers: usize) -> Progress {
        let length = Some(STEPS * runs as u64);
        let caller = caller::current();
        caller.iter().for_each(|caller| caller.begins(STEPS * runs as u64));
        let target = match caller {
            Some(_) => ProgressDrawTarget::hidden(),
            None => ProgressDrawTarget::stderr_with_hz(10),
        };
        let bar = ProgressBar::with_draw_target(length, target);
        let template = "{msg} [{bar:30}] {percent:>3}% {elapsed}{left}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> ").with_key("left", left));
        }
        bar.set_message(count(runs));
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        let lanes = (0..runs).map(|_| AtomicU64::new(0)).collect();
        let (began, estimated) = (Instant::now(), AtomicBool::new(false));
        Progress { bar, runs, workers: workers.min(runs), began, estimated, lanes, caller }
    }

    /// Something that does not say how far it is.
    pub fn waiting(message: &'static str) -> Progress {
        let progress = Progress::new(1, 1);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            progress.bar.set_style(style);
        }
        progress.bar.set_message(message);
        progress
    }

    /// What the run with this index reports to.
    pub fn lane(&self, index: usize, name: &str) -> Lane<'_> {
        if self.workers == 1 && self.runs > 1 {
            self.bar.set_message(format!("run {} of {}: {name}", index + 1, self.runs));
        }
        Lane { progress: self, index }
    }

    /// How much of all runs was done, in per cent.
    pub fn percent(&self) -> u64 {
        // Relaxed: nobody works any more.
        let done: u64 = self.lanes.iter().map(|lane| lane.load(Ordering::Relaxed)).sum();
        100 * done / (STEPS * self.runs as u64).max(1)
    }

    /// Takes the bar off the screen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Says once how long all of it will take, if that is long.
    fn estimate(&self) {
        let passed = self.began.elapsed();
        if passed < SETTLED || self.estimated.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(all) = estimate(passed, self.bar.position(), STEPS * self.runs as u64) {
            let (runs, workers) = (count(self.runs), self.workers);
            self.bar.println(format!(
                "This takes about {}: {runs}, {workers} at a time. Ctrl-C ends with what has finished.",
                HumanDuration(all)
            ));
        }
    }
}

/// How long it goes on, once anything is known of that.
fn left(state: &ProgressState, to: &mut dyn fmt::Write) {
    if state.pos() > 0 {
        let _ = write!(to, ", about {:#} left", HumanDuration(state.eta()));
    }
}

/// How long all steps take, if that is long.
fn estimate(passed: Duration, done: u64, all: u64) -> Option<Duration> {
    let whole =
        passed.checked_mul(u32::try_from(all).ok()?)? / u32::try_from(done).ok().filter(|&n| n > 0)?;
    Some(whole).filter(|&whole| whole > LONG)
}

fn count(runs: usize) -> String {
    if runs == 1 { "1 run".to_string() } else { format!("{runs} runs") }
}

/// One run's part of the bar, and its ear for Ctrl-C.
pub struct Lane<'a> {
    progress: &'a Progress,
    index: usize,
}

impl Lane<'_> {
    /// The run is over.
    pub fn done(&self) {
        self.progress(1, 1);
    }
}

impl Watch for Lane<'_> {
    fn progress(&self, done: u64, total: u64) {
        let now = (u128::from(done.min(total)) * u128::from(STEPS) / u128::from(total.max(1))) as u64;
        // Relaxed: a figure to look at. Only this run writes its own lane.
        let before = self.progress.lanes[self.index].fetch_max(now, Ordering::Relaxed);
        if now > before {
            self.progress.bar.inc(now - before);
            self.progress.caller.iter().for_each(|caller| caller.advances(now - before));
            self.progress.estimate();
        }
    }

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_is_estimated_from_what_was_done_and_short_work_is_not() {
        let two = Duration::from_secs(2);
        assert_eq!(estimate(two, 10, 1000), Some(Duration::from_secs(200)));
        assert_eq!(estimate(two, 500, 1000), None);
        assert_eq!(estimate(two, 0, 1000), None);
    }
}
