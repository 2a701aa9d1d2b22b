//! Whoever empties the rings must not wait for a CPU longer than they take to fill: on a busy host half of all events were lost
//! before it went first, and none after.

/// How nice this thread is while it records, where it may be less nice than others.
const NICE: libc::c_int = -15;

/// This thread goes before others until this is dropped.
pub struct Hurry {
    before: libc::c_int,
}

impl Hurry {
    /// Begins. What was started before, such as the program that is recorded, is as nice as it was. Whoever may not, does not.
    pub fn begin() -> Hurry {
        let hurry = Hurry { before: nice() };
        if hurry.before > NICE {
            set(NICE);
        }
        hurry
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // Being nicer is always allowed.
        set(self.before);
    }
}

/// On Linux, of this thread alone.
fn nice() -> libc::c_int {
    // SAFETY: numbers in, a number out.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Returns whether that is allowed.
fn set(nice: libc::c_int) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_thread_goes_first_and_only_for_as_long_as_it_records() {
        let others = std::thread::spawn(|| {
            let before = nice();
            let may = set(NICE);
            assert!(set(before));
            let hurry = Hurry::begin();
            assert_eq!(nice(), if may { before.min(NICE) } else { before });
            drop(hurry);
            assert_eq!(nice(), before);
            before
        });
        assert_eq!(nice(), others.join().unwrap());
    }
}
