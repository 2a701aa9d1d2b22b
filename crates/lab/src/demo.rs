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

const OPENING: &str = "When memory runs short, pages that other CPUs may have cached are unmapped, and those CPUs \
    must be interrupted to forget them. You will see what 48 CPUs do to each other when this happens for every \
    page (per-page) and once for a batch of pages (batch): first with one reader of a large file per CPU, then \
    with the recorded accesses of a real program; and then what goes wrong when one flush is left out. All of it \
    is computed by the memory manager of this repository on a simulated machine.";

const NEXT: [(&str, &str); 3] = [
    ("quietmm compare --explain", "what each row above means"),
    ("quietmm compare tlb-bystander", "who pays for full flushes"),
    ("quietmm list", "workloads, machines, policies, rules to break"),
];

/// Shows all parts; Ctrl-C ends after the part that it falls into.
pub fn demo(args: &DemoArgs, output: &mut Output) -> Result<Ending, Failure> {
    interrupt::listen();
    output.text(&hanging("", OPENING))?;

    let mut parts = vec![part("One reader per CPU, each with its own file", "lru-file-mmap-read", &POLICIES)];
    if let Some(trace) = SHIPPED.first() {
        let mut replay = part("The recorded accesses of a real program", "trace", &POLICIES);
        replay.common.trace = Some(trace.name.to_string());
        parts.push(replay);
    }
    let mut broken = part("The same memory manager, with one flush left out", "revisit", &POLICIES[1..]);
    broken.form = Form::Run;
    broken.common.broken = Some(BROKEN.to_string());
    parts.push(broken);

    let mut ending = Ending::Good;
    for (nth, part) in parts.iter().enumerate() {
        output.text(&format!("\n{}. {}\n\n", nth + 1, part.title))?;
        output.flush()?;
        let plans = plans(part.form, &part.workloads, &part.policies, &part.common)?;
        let studies = measure(plans, jobs::workers(args.jobs))?;
        for study in &studies {
            let text = match part.form {
                Form::Compare => text::study(study, Depth::default()),
                Form::Run => text::stories_alone(study, 1),
            };
            output.text(&text)?;
        }
        ending = ending.worse(compare::ending(&studies));
        if ending == Ending::Interrupted {
            return Ok(ending);
        }
    }
    output.text("\nTo go on\n\n")?;
    for (command, about) in NEXT {
        output.text(&format!("  {command:<32}{about}\n"))?;
    }
    Ok(ending)
}

/// One part: what it is called, and what it runs.
struct Part {
    title: &'static str,
    form: Form,
    workloads: Vec<String>,
    policies: Vec<String>,
    common: Common,
}

fn part(title: &'static str, workload: &str, policies: &[&str]) -> Part {
    Part {
        title,
        form: Form::Compare,
        workloads: vec![workload.to_string()],
        policies: policies.iter().map(|policy| policy.to_string()).collect(),
        common: Common::default(),
    }
}
