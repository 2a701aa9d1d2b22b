//! The trace that a run replays: a shipped one by its name, or a file.

use std::path::Path;
use std::sync::Arc;

use quietmm_host::own::{self, Own};
use quietmm_sim::near::unknown;
use quietmm_workloads::trace::AnyTrace;
use quietmm_workloads::trace::recording::What;

use crate::process::ending::Failure;
use crate::shipped::{SHIPPED, Shipped};
use crate::trace;

/// A trace and what it was called.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// As given to `--trace`.
    pub name: String,
    /// The whole trace.
    pub bytes: Arc<[u8]>,
}

impl Recorded {
    /// The distinct pages that it touches; `None` of one of threads and what they asked for, which needs the memory that it
    /// needs, at any scale.
    pub fn pages(&self) -> Option<u64> {
        match AnyTrace::parse(&self.bytes) {
            Ok(AnyTrace::Accesses(trace)) => Some(trace.header().pages),
            _ => None,
        }
    }
}

/// The bytes that come into memory in a recording of threads, at most: what is given back and comes again counts each time.
/// `None` of a trace of accesses.
pub fn brought_in(trace: &Recorded) -> Option<u64> {
    let Ok(AnyTrace::Operations(recording)) = AnyTrace::parse(&trace.bytes) else { return None };
    let pages = recording.events().map(|event| match event.what {
        What::Fault { .. } | What::Access { .. } => 1,
        What::Map { pages, populate: true, .. } => pages.count,
        _ => 0,
    });
    Some(pages.fold(0, u64::saturating_add).saturating_mul(4096))
}

/// Finds a trace; without a name, the first that is shipped.
pub fn find(name: Option<&str>) -> Result<Recorded, Failure> {
    let Some(name) = name else {
        return SHIPPED.first().map(shipped).ok_or_else(|| {
            Failure::Input("no trace is shipped with this command; give one with --trace FILE".to_string())
        });
    };
    if let Some(found) = SHIPPED.iter().find(|shipped| shipped.name == name) {
        return Ok(shipped(found));
    }
    if let Some(own) = own(name)? {
        let bytes = own.recording();
        return Ok(Recorded { name: name.to_string(), bytes: bytes.into() });
    }
    let path = Path::new(name);
    if !path.exists() && !name.contains(['/', '.']) {
        return Err(Failure::Input(unknown("trace", name, SHIPPED.iter().map(|shipped| shipped.name))));
    }
    // What is truncated, empty or foreign is refused before anything runs.
    let bytes = trace::load(path).map_err(|error| Failure::Input(error.to_string()))?;
    AnyTrace::parse(&bytes).map_err(|error| Failure::Input(format!("{name}: {error}")))?;
    Ok(Recorded { name: name.to_string(), bytes: bytes.into() })
}

/// A workload of one's own: after `own:`, or in a file that ends in .toml.
pub fn own(name: &str) -> Result<Option<Own>, Failure> {
    let text = match name.strip_prefix(own::PREFIX) {
        Some(text) => text.to_string(),
        // Opening a FIFO would wait for a writer.
        None if name.ends_with(".toml") && Path::new(name).is_file() => std::fs::read_to_string(name)
            .map_err(|error| Failure::Input(format!("{name}: {error}; a readable file is needed")))?,
        None => return Ok(None),
    };
    let file = !name.starts_with(own::PREFIX);
    Own::parse(&text).map(Some).map_err(|error| match error.line {
        Some(line) if file => Failure::Input(format!("{name}:{line}: {error}")),
        _ => Failure::Input(format!("{name}: {error}")),
    })
}

fn shipped(shipped: &Shipped) -> Recorded {
    Recorded { name: shipped.name.to_string(), bytes: shipped.bytes.into() }
}
