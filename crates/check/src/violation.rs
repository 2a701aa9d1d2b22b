//! What was broken, in words.

use quietmm::Rule;

/// Which step was left out, where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// The step.
    pub rule: Rule,
    /// Who left it out last.
    pub cpu: u16,
    /// At which point of the run.
    pub step: u32,
}

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its number, as in `INV-4`; `deadlock`, `livelock`, `panic`, `content`, `audit`, `freed`, `nowhere` where it has
    /// none.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
    /// The CPU that it concerns.
    pub cpu: u16,
    /// At which point of the run.
    pub step: u32,
    /// What had been left out by then, if anything.
    pub skipped: Option<Skipped>,
}

impl Violation {
    /// One that was seen now.
    pub fn new(invariant: &'static str, cpu: u16, what: String) -> Violation {
        Violation { invariant, what, cpu, step: 0, skipped: None }
    }

    /// What the invariant says.
    pub fn sentence(&self) -> &'static str {
        sentence(self.invariant)
    }
}

/// What an invariant says.
pub fn sentence(invariant: &str) -> &'static str {
    match invariant {
        "INV-1" => "No frame reaches the allocator while a CPU could still use a translation to it.",
        "INV-2" => "No I/O reads a page while a CPU may still write it through a cached translation.",
        "INV-3" => "No kernel address is reused before every CPU has flushed it since it was unmapped.",
        "INV-4" => {
            "An operation that promises a changed mapping returns with no flush of that space outstanding."
        }
        "INV-5" => "A CPU acknowledges after it has flushed, never before.",
        "INV-6" => "A CPU that is left alone provably uses nothing stale.",
        "INV-7" => {
            "After a forced drain no page that was on a per-CPU list when it was called is stranded there."
        }
        "INV-8" => "A CPU that waits keeps serving flush requests: no deadlock.",
        "INV-9" => "Page-table frames are freed only when no CPU can walk them any more, lazy CPUs included.",
        "INV-10" => "Clearing the accessed bit without a flush may age a page wrongly; it never loses data.",
        "INV-11" => "A dirty bit is cleared only together with write protection and a flush.",
        "INV-12" => {
            "An address unmapped with a deferred flush is not mapped to another frame in that space before the flush, \
             and a page of a file or of swap is never in two frames that CPUs can use."
        }
        "INV-13" => {
            "An entry that is not accessed, and whose accessed bit was cleared before the last sweep began, is cached by no CPU \
             that may use it."
        }
        "nowhere" => "What is not present leads nowhere: its address bits lie above all memory.",
        "freed" => "The core uses no memory of its own that it has given back.",
        "content" => "What a program wrote is what it reads, until it gives it up.",
        "audit" => "Every frame, entry and address is accounted for, once.",
        "deadlock" => "Somebody can always go on, until all are done.",
        "livelock" => "All that goes on comes to an end.",
        "panic" => "The core never panics.",
        _ => "What the scenario promises holds.",
    }
}
