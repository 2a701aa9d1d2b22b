//! Independent jobs on all host cores, with results that do not depend on how many there are.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::process::caller;

/// What a job gives: a result, nothing (it was told to stop), or an error.
pub type JobResult<T, E> = Result<Option<T>, E>;

/// How many host threads to use: what was asked for, or every core of the host.
pub fn workers(asked: Option<u16>) -> usize {
    asked.map_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get), usize::from)
}

/// Runs `job(0)` to `job(count - 1)` on at most `workers` threads and returns the results by index.
///
/// Jobs are handed out in order, and no more of them after an error or once `stop()` holds; `None` stands for
/// a job that was not finished. The error with the lowest index is returned: everything before it was handed
/// out earlier and has been waited for, so it is the same error with any number of workers.
pub fn in_order<T: Send, E: Send>(
    count: usize,
    workers: usize,
    stop: impl Fn() -> bool + Sync,
    job: impl Fn(usize) -> JobResult<T, E> + Sync,
) -> Result<Vec<Option<T>>, E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let done: Mutex<Vec<(usize, JobResult<T, E>)>> = Mutex::new(Vec::with_capacity(count));
    let work = || {
        // Relaxed everywhere: the counter only hands out numbers, the flag is a hint; results pass through the lock.
        while !failed.load(Ordering::Relaxed) && !stop() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            let result = job(index);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((index, result));
        }
    };
    let caller = caller::current();
    thread::scope(|scope| {
        for _ in 1..workers.clamp(1, count.max(1)) {
            // A host that has no more threads has the work done by those there are.
            if thread::Builder::new().spawn_scoped(scope, || caller::serve(caller.clone(), work)).is_err() {
                break;
            }
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(index, _)| *index);
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    for (index, result) in done {
        results[index] = result?;
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_with_any_number_of_workers() {
        for workers in [1, 2, 7, 100] {
            let got = in_order(20, workers, || false, |index| Ok::<_, ()>(Some(index * index))).unwrap();
            assert_eq!(got, (0..20).map(|index| Some(index * index)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_in_order_is_the_one_reported() {
        for workers in [1, 2, 5] {
            for _ in 0..50 {
                let job = |index| if index >= 3 { Err(index) } else { Ok(Some(index)) };
                assert_eq!(in_order(10, workers, || false, job), Err(3));
            }
        }
    }

    #[test]
    fn what_had_finished_before_a_stop_is_kept() {
        let stop = AtomicBool::new(false);
        let job = |index| {
            if index == 1 {
                stop.store(true, Ordering::Relaxed);
            }
            Ok::<_, ()>(Some(index))
        };
        let got = in_order(4, 1, || stop.load(Ordering::Relaxed), job).unwrap();
        assert_eq!(got, [Some(0), Some(1), None, None]);
    }

    #[test]
    fn nothing_to_do_is_done_at_once() {
        assert_eq!(in_order(0, 4, || false, |_| Err::<Option<u8>, _>(())), Ok(Vec::new()));
    }
}
