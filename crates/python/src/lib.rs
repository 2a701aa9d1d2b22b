//! The laboratory for Python: `quietmm._quietmm`, on which the package in `python/quietmm` rests.
//!
//! All that is here are calls of [`quietmm_lab`] with the words of a command line. They run on a thread of their own, without the
//! interpreter's lock; the thread that called waits, and looks for signals meanwhile: so Ctrl-C stops the call as it stops the command.

use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quietmm_lab::{Answer, Caller, figures};

/// How often the thread that waits looks for signals, and tells how far it is.
const LOOK: Duration = Duration::from_millis(50);

create_exception!(_quietmm, Failed, PyException, "A command failed: its exit code, and its complaints.");

/// An exit code, what was printed, complaints.
type Answered = (u8, Py<PyBytes>, Vec<String>);

fn answered(py: Python<'_>, answer: Answer) -> Answered {
    (answer.code, PyBytes::new(py, &answer.output).unbind(), answer.complaints)
}

fn failed(answer: Answer) -> PyErr {
    Failed::new_err((answer.code, answer.complaints))
}

/// Does it on another thread. If a signal's handler, or `tell`, raises something, the work is stopped, and that is raised when it has ended.
fn aside<T: Send>(
    py: Python<'_>,
    tell: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Caller) -> T + Send,
) -> PyResult<T> {
    let caller = Caller::default();
    let (send, receive) = sync_channel(1);
    let receive = Mutex::new(receive);
    thread::scope(|scope| {
        let theirs = caller.clone();
        let working = move || {
            let done = work(&theirs);
            // Whoever waits does so until it comes.
            let _ = send.send(done);
        };
        let begun = thread::Builder::new().name("quietmm".to_string()).spawn_scoped(scope, working);
        let worker = begun.map_err(|error| PyRuntimeError::new_err(format!("no thread: {error}")))?;
        let mut raised = None;
        loop {
            match py.detach(|| receive.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK)) {
                Ok(done) => {
                    if raised.is_none()
                        && let Some(tell) = tell
                    {
                        raised = tell.call1(caller.progress()).err();
                    }
                    return raised.map_or(Ok(done), Err);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // A panic ends here.
                    let _ = worker.join();
                    return Err(PyRuntimeError::new_err(
                        "a bug of quietmm: the run panicked; standard error says where",
                    ));
                }
                Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let told = py
                        .check_signals()
                        .and_then(|()| tell.map_or(Ok(()), |tell| tell.call1(caller.progress()).map(|_| ())));
                    if let Err(error) = told {
                        caller.stop();
                        raised = Some(error);
                    }
                }
            }
        }
    })
}

/// Does what the command does with these words: its exit code, what it prints, its complaints. `tell(done, all)` is called now and then, in
/// thousandths of runs; what it raises stops the command.
#[pyfunction]
#[pyo3(signature = (words, tell=None))]
fn obey(py: Python<'_>, words: Vec<String>, tell: Option<&Bound<'_, PyAny>>) -> PyResult<Answered> {
    let answer = aside(py, tell, |caller| quietmm_lab::obey(&words, caller))?;
    Ok(answered(py, answer))
}

/// What the figure with this key is: its label, unit, which way is better ("less", "more" or ""), and what it means.
#[pyfunction]
fn figure(key: &str) -> PyResult<(&'static str, &'static str, &'static str, &'static str)> {
    let figure = figures::named(key).map_err(PyValueError::new_err)?;
    let better = match figure.better {
        figures::Better::Less => "less",
        figures::Better::More => "more",
        figures::Better::Neither => "",
    };
    Ok((figure.label, figure.unit, better, figure.about))
}

/// The line of a JSON object, with a checksum at its end.
#[pyfunction]
fn sealed(json: &str) -> String {
    quietmm_lab::sealed(json)
}

/// The text of such a line, or nothing if it is not as it was written.
#[pyfunction]
fn opened(line: &[u8]) -> Option<&str> {
    quietmm_lab::opened(line)
}

/// The lines of a sweep's file: see `quietmm_lab::SweepReader`. What is wrong with one is a `ValueError`.
#[pyclass(frozen)]
struct SweepReader(quietmm_lab::SweepReader);

#[pymethods]
impl SweepReader {
    /// Of a file with this first line.
    #[new]
    fn new(line: &[u8]) -> PyResult<SweepReader> {
        quietmm_lab::SweepReader::of(line).map(SweepReader).map_err(PyValueError::new_err)
    }

    /// How many points it has when it is done.
    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    /// The point of another of its lines.
    fn point(&self, line: &[u8]) -> PyResult<u64> {
        self.0.point(line).map_err(PyValueError::new_err)
    }
}

/// The points of a sweep, one by one: see `quietmm_lab::Sweep`.
#[pyclass(frozen)]
struct Sweep(RwLock<quietmm_lab::Sweep>);

impl Sweep {
    /// Whoever takes lines and panics leaves what can be read.
    fn read(&self) -> impl Deref<Target = quietmm_lab::Sweep> + '_ {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> impl DerefMut<Target = quietmm_lab::Sweep> + '_ {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Sweep {
    /// The grid of the words that follow `quietmm sweep`; with `file` its file, too, which they name.
    #[new]
    #[pyo3(signature = (words, file=false))]
    fn new(py: Python<'_>, words: Vec<String>, file: bool) -> PyResult<Sweep> {
        let made = py
            .detach(|| if file { quietmm_lab::Sweep::open(&words) } else { quietmm_lab::Sweep::of(&words) });
        made.map(|sweep| Sweep(RwLock::new(sweep))).map_err(failed)
    }

    /// The first line of its file.
    #[getter]
    fn header(&self) -> String {
        self.read().header()
    }

    /// Points that the file should have, and has.
    #[getter]
    fn counts(&self) -> (u64, u64) {
        self.read().counts()
    }

    /// Points whose lines the file has not yet.
    fn missing(&self) -> Vec<u64> {
        self.read().missing()
    }

    /// Runs these points, and returns their lines.
    #[pyo3(signature = (points, tell=None))]
    fn run(
        &self,
        py: Python<'_>,
        points: Vec<u64>,
        tell: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<String>> {
        aside(py, tell, |caller| self.read().run(&points, caller))?.map_err(failed)
    }

    /// Puts lines into the file; returns how many of them were missing.
    fn take(&self, py: Python<'_>, lines: Vec<String>) -> PyResult<usize> {
        let taken = py.detach(|| {
            let mut sweep = self.write();
            lines.iter().try_fold(0, |count, line| sweep.take(line).map(|new| count + usize::from(new)))
        });
        taken.map_err(failed)
    }

    /// Lets go of the file: others may write it.
    fn close(&self) {
        self.write().close();
    }

    /// The end of the command, with the points that are there.
    fn conclude(&self, py: Python<'_>) -> Answered {
        let answer = py.detach(|| self.write().conclude(&Caller::default()));
        answered(py, answer)
    }
}

/// The extension.
#[pymodule]
#[pyo3(name = "_quietmm")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Failed", module.py().get_type::<Failed>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("__revision__", quietmm_lab::REVISION)?;
    module.add_function(wrap_pyfunction!(obey, module)?)?;
    module.add_function(wrap_pyfunction!(figure, module)?)?;
    module.add_function(wrap_pyfunction!(sealed, module)?)?;
    module.add_function(wrap_pyfunction!(opened, module)?)?;
    module.add_class::<SweepReader>()?;
    module.add_class::<Sweep>()
}
