//! Panics of the core on a coroutine's stack. While one unwinds, no other CPU may go on: the host's account of panics is the
//! thread's, and so is one for all of them.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// What a panic sets, while a run is under way on this thread.
    static RUN: Cell<Option<(*const Cell<bool>, *const Cell<bool>)>> = const { Cell::new(None) };
}

/// From now on panics within [`catch`] print nothing.
pub fn install() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let Some((running, falling)) = RUN.get() else { return before(info) };
            // SAFETY: set by `catch`, and reset when `UnderWay` is dropped, before either goes away.
            unsafe {
                (*running).set(false);
                (*falling).set(true);
            }
        }));
    });
}

/// Does `work`; a panic in it sets `running` to false and `falling` to true before anything is unwound.
pub fn catch(
    running: &Cell<bool>,
    falling: &Cell<bool>,
    work: impl FnOnce(),
) -> Result<(), Box<dyn Any + Send>> {
    RUN.set(Some((running, falling)));
    catch_unwind(AssertUnwindSafe(work))
}

/// As long as it lives a run is under way on this thread.
pub struct UnderWay;

impl Drop for UnderWay {
    fn drop(&mut self) {
        RUN.set(None);
    }
}
