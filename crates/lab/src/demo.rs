//! `quietmm demo`: what `make run` shows.

use crate::cli::{Common, DemoArgs};
use crate::compare;
use crate::ending::{Ending, Failure};
use crate::measure::measure;
use crate::output::Output;
use crate::plan::{Form, plans};
use crate::shipped::SHIPPED;
use crate::text::{self, Depth};
use crate::wrap::hanging;
use crate::{interrupt, jobs};

/// The comparison of every part: one mechanism changed.
const POLICIES: [&str; 2] = ["linux+unmap=per-page", "linux"];

/// The rule that the last part breaks.
const BROKEN: &str = "flush-before-free";

/// How small the last part is: its story comes at once.
const BROKEN_SCALE: u32 = 1024;

const OPENING: &str = "When memory runs short, a CPU that takes pages away must interrupt every CPU that may still have \
    them cached. You will see what this costs when it is done for every page (per-page) and once for a batch of pages \
    (batch): on a machine with 48 CPUs, beside the published measurement; with the recorded accesses of a real program; \
    and last, what happens when one flush is left out. The memory manager of this repository computes it on simulated \
    machines, in less than a minute.";

const READERS: &str = "Each of 48 CPUs reads a file of its own, and together the files are ten times as large as memory. \
    A gain in brackets is positive where it is better.";

const LEFT_OUT: &str = "Half the threads of a process use the same few pages over and over, through their TLBs, while \
    reclaim takes such pages away. Now the flush that must come before a page's frame is freed is left out:";

const NEXT: [(&str, &str); 3] = [
    ("quietmm compare --explain", "part 1 again, and what each row means"),
    ("quietmm compare tlb-bystander", "who pays for a batch: refills elsewhere"),
    ("quietmm list", "workloads, machines, policies, rules to break"),
];

/// Shows all parts; Ctrl-C ends after the part that it falls into.
pub fn demo(args: &DemoArgs, output: &mut Output) -> Result<Ending, Failure> {
    interrupt::listen();
    output.text(&hanging("", OPENING))?;
    let mut ending = Ending::Good;
    for (nth, part) in parts().iter().enumerate() {
        output.text(&format!("\n{}. {}\n\n{}\n", nth + 1, part.title, hanging("", &part.lead)))?;
        output.flush()?;
        let plans = plans(part.form, &part.workloads, &part.policies, &part.common)?;
        let studies = measure(plans, jobs::workers(args.jobs))?;
        for study in &studies {
            let text = match part.form {
                Form::Compare => text::study(study, Depth { brief: nth > 0, ..Depth::default() }),
                Form::Run => text::stories_alone(study, 1),
            };
            output.text(&text)?;
        }
        ending = ending.worse(compare::ending(&studies));
        if ending == Ending::Interrupted {
            return Ok(ending);
        }
    }
    output.text(&format!("\nTo go on{}\n\n", called()))?;
    for (command, about) in NEXT {
        output.text(&format!("  {command:<32}{about}\n"))?;
    }
    Ok(ending)
}

fn parts() -> Vec<Part> {
    let mut parts = vec![part("One reader per CPU", READERS.to_string(), "lru-file-mmap-read", &POLICIES)];
    if let Some(trace) = SHIPPED.first() {
        let lead = format!("{}. Each CPU replays it, in memory that is too small for all.", trace.about);
        let mut replay = part("The recorded accesses of a real program", lead, "trace", &POLICIES);
        replay.common.trace = Some(trace.name.to_string());
        parts.push(replay);
    }
    let title = "The same memory manager, with one flush left out";
    let mut broken = part(title, LEFT_OUT.to_string(), "tlb-bystander", &POLICIES[1..]);
    broken.form = Form::Run;
    broken.common.broken = Some(BROKEN.to_string());
    broken.common.machine = Some("uma-8".to_string());
    broken.common.scale = Some(BROKEN_SCALE);
    parts.push(broken);
    parts
}

/// Where the command is, if the shell would not find it by its name: `make run` calls it by its path.
fn called() -> String {
    match std::env::args().next() {
        Some(path) if path.contains('/') => format!(" (here, quietmm is {path})"),
        _ => String::new(),
    }
}

/// One part: what it is called, what to look at, and what it runs.
struct Part {
    title: &'static str,
    lead: String,
    form: Form,
    workloads: Vec<String>,
    policies: Vec<String>,
    common: Common,
}

fn part(title: &'static str, lead: String, workload: &str, policies: &[&str]) -> Part {
    Part {
        title,
        lead,
        form: Form::Compare,
        workloads: vec![workload.to_string()],
        policies: policies.iter().map(|policy| policy.to_string()).collect(),
        common: Common::default(),
    }
}
