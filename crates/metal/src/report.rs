//! What a run prints: a JSON object a line.

use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::Ordering;

use quietmm::{Counter, Manager};
use quietmm_workloads::{TaskKind, TaskReport};

use crate::command::{Command, What};
use crate::cpu;
use crate::disk::{self, Way};
use crate::line;
use crate::machine::{self, Notes, tallies};
use crate::platform::Metal;

/// What runs, and on what.
pub fn begin(command: &Command, frames: u64) {
    let (kind, name) = match command.what {
        What::Workload(work) => ("workload", work.name()),
        What::Test(test) => ("test", test.name),
        What::Program => ("program", "archive"),
    };
    line!(
        "{{\"{kind}\":\"{name}\",\"policy\":\"{}\",\"seed\":{},\"cpus\":{},\"frames\":{frames}}}",
        command.policy,
        command.seed,
        cpu::count()
    );
}

/// All that was counted.
pub fn counters<const FAULTS: bool>(mm: &Manager<'_, Metal<FAULTS>>, notes: &Notes, tasks: &[TaskReport]) {
    let mut text = String::new();
    let mut put = |name: &str, value: u64| {
        let comma = if text.is_empty() { "" } else { "," };
        // A string takes everything.
        let _ = write!(text, "{comma}\"{name}\":{value}");
    };
    for &counter in Counter::ALL {
        put(counter.name(), mm.counter(counter));
    }
    let reclaimed = mm.counter(Counter::PgStealKswapd) + mm.counter(Counter::PgStealDirect);
    put("pages_reclaimed", reclaimed);
    let sum = |of: fn(&cpu::Cpu) -> u64| cpu::all().map(of).sum::<u64>();
    put("ticks", sum(|cpu| cpu.ticks.load(Ordering::Relaxed)));
    put("kicks", sum(|cpu| cpu.kicks.load(Ordering::Relaxed)));
    put("alarms", sum(|cpu| cpu.alarms.load(Ordering::Relaxed)));
    put("user_faults", sum(|cpu| cpu.faults.load(Ordering::Relaxed)));
    put("disk_reads", disk::DONE[Way::In as usize].load(Ordering::Relaxed));
    put("disk_writes", disk::DONE[Way::Out as usize].load(Ordering::Relaxed));
    put("wrong_contents", notes.wrong.load(Ordering::Relaxed));
    put("pages_checked", notes.checked.load(Ordering::Relaxed));
    put("counted", notes.counted.load(Ordering::Relaxed));
    put("progress", notes.progress.load(Ordering::Relaxed));
    for (what, count) in tallies() {
        put(what.name(), count);
    }
    let users = || tasks.iter().filter(|task| matches!(task.kind, TaskKind::User(_)));
    let (began, ended) =
        (users().map(|task| task.started).min(), users().filter_map(|task| task.ended).max());
    put("stack_bytes", crate::tasks::deepest());
    put("elapsed_ns", ended.unwrap_or(0).saturating_sub(began.unwrap_or(0)));
    line!("{{\"counters\":{{{text}}}}}");
    // In millionths: no floating-point numbers are needed.
    let received = mm.counter(Counter::RemoteFlushReceived);
    if let Some(micro) = (received * 1_000_000).checked_div(reclaimed) {
        line!("{{\"flushes_received_per_reclaimed_page\":{}.{:06}}}", micro / 1_000_000, micro % 1_000_000);
    }
}

/// How long operations took, in nanoseconds; under `icount` that is instructions.
pub fn times() {
    for (op, all) in machine::times() {
        let mean = all.sum * 1000 / all.count.max(1);
        line!(
            "{{\"operation\":\"{}\",\"count\":{},\"mean_ns\":{}.{:03},\"least_ns\":{},\"most_ns\":{}}}",
            op.name(),
            all.count,
            mean / 1000,
            mean % 1000,
            all.least,
            all.most
        );
    }
}
