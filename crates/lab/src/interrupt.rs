//! Ctrl-C: the first asks the runs to stop and lets what has finished be printed, the second ends at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::ending::INTERRUPTED;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Listens from now on. Called once, before the first run; where a handler cannot be installed Ctrl-C does
/// what it always does.
pub fn listen() {
    let _ = ctrlc::set_handler(|| {
        // Relaxed: the flag carries no data, and every reader only polls it.
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// Whether the user wants to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
