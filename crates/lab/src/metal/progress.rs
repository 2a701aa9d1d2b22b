//! What is going on, on a terminal, once it has taken a second.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown before.
const QUIET: Duration = Duration::from_secs(1);

/// A line on standard error, if that is a terminal.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    shown: Cell<bool>,
}

impl Progress {
    /// It begins with this message.
    pub fn new(message: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(message.to_string());
        Progress { bar, began: Instant::now(), shown: Cell::new(false) }
    }

    /// From now on it says this.
    pub fn says(&self, message: String) {
        self.bar.set_message(message);
    }

    /// To be called all the time.
    pub fn look(&self) {
        if !self.shown.get() && self.began.elapsed() > QUIET {
            self.shown.set(true);
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        }
        self.bar.tick();
    }

    /// Takes it off the screen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
