//! Ctrl-C: the first asks the runs to stop and lets what has finished be printed, the second ends at once.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::process::caller;
use crate::process::ending::INTERRUPTED;

/// Machines that run and will be ended as soon as the first Ctrl-C is seen.
static HELD: AtomicU32 = AtomicU32::new(0);
/// The second waits so long for them, in steps of [`STEP`]: half a minute, for a host that is very busy.
const STEPS: u32 = 3000;
const STEP: Duration = Duration::from_millis(10);

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Listens from now on. Called once, before the first run; where a handler cannot be installed Ctrl-C does
/// what it always does. Inside another program Ctrl-C is that program's.
pub fn listen() {
    if caller::current().is_some() {
        return;
    }
    let _ = ctrlc::set_handler(|| {
        // Relaxed: the flag carries no data, and every reader only polls it.
        if REQUESTED.swap(true, Ordering::Relaxed) {
            // Acquire: partner of the Release in `Held::drop`.
            for _ in (0..STEPS).take_while(|_| HELD.load(Ordering::Acquire) > 0) {
                thread::sleep(STEP);
            }
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// Whether the user wants to stop.
pub fn requested() -> bool {
    caller::stopped().unwrap_or_else(|| REQUESTED.load(Ordering::Relaxed))
}

/// A machine runs that would go on without this command.
pub struct Held(());

/// Until what is returned goes, Ctrl-C ends this command only once the machine has been ended.
pub fn hold() -> Held {
    HELD.fetch_add(1, Ordering::Relaxed);
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        // Release: partner of the Acquire in the handler; the machine is gone.
        HELD.fetch_sub(1, Ordering::Release);
    }
}
