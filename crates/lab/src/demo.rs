//! `quietmm demo`: what `make run` shows.

use crate::cli::{self, Command, DemoArgs};
use crate::process::ending::{Ending, Failure};
use crate::process::interrupt;
use crate::process::output::Output;
use crate::shipped::SHIPPED;
use crate::show::text::{self, Depth};
use crate::show::wrap::hanging;
use crate::show::{self};
use crate::study::{Ask, Form, Study, measure};

const OPENING: &str = "When memory runs short, a CPU that takes pages away must interrupt every CPU that may still have \
    them cached. You will see what this costs when it is done for every page (linux+unmap=per-page) and once for a batch of \
    pages (linux), on a machine with 48 CPUs, beside the published measurement; then without any interrupt, because only \
    pages go that no CPU can have cached (quiet); with the recorded accesses of a real program; and last, what happens when \
    one flush is left out. The memory manager of this repository computes it on simulated \
    machines, in less than a minute.";

const READERS: &str = "Each of 48 CPUs reads a file of its own, and together the files are ten times as large as memory. \
    A gain in brackets is positive where it is better.";

const THREADS: &str = "The same by 48 threads of one process: each batch interrupts most of them. Or nobody: each CPU \
    flushes once by itself, at its next tick, and reclaim takes only what was not used since (docs/quiet.md).";

const LEFT_OUT: &str = "Half the threads of a process use the same few pages over and over, through their TLBs, while \
    reclaim takes such pages away. Now the flush that must come before a page's frame is freed is left out:";

const NEXT: [(&str, &str); 3] = [
    ("quietmm compare --explain", "part 1 with twice the memory, each row explained"),
    ("quietmm compare tlb-bystander", "who pays for a batch: refills elsewhere"),
    ("quietmm list", "workloads, machines, policies, rules to break"),
];

/// One part: what it is called, what to look at, and the command line that it is.
struct Part {
    title: &'static str,
    lead: String,
    line: &'static str,
}

fn parts() -> [Part; 4] {
    let about = SHIPPED.first().map_or("", |trace| trace.about);
    [
        Part {
            title: "One reader per CPU",
            lead: READERS.to_string(),
            line: "compare lru-file-mmap-read --scale 128",
        },
        Part {
            title: "Nobody is interrupted",
            lead: THREADS.to_string(),
            line: "compare lru-file-mmap-read-shared --policies linux,quiet --scale 256",
        },
        Part {
            title: "The recorded accesses of a real program",
            lead: format!("{about}. Each CPU replays it, in memory that is too small for all."),
            line: "compare trace",
        },
        Part {
            title: "The same memory manager, with one flush left out",
            lead: LEFT_OUT.to_string(),
            line: "run tlb-bystander --machine uma-8 --scale 1024 --break flush-before-free",
        },
    ]
}

/// Shows all parts; Ctrl-C ends after the part that it falls into.
pub fn demo(args: &DemoArgs, output: &mut Output) -> Result<Ending, Failure> {
    interrupt::listen();
    let width = output.width();
    output.text(&hanging(width, "", OPENING))?;
    let mut ending = Ending::Good;
    for (nth, part) in parts().iter().enumerate() {
        output.text(&format!("\n{}. {}\n\n{}\n", nth + 1, part.title, hanging(width, "", &part.lead)))?;
        output.flush()?;
        let command = cli::fixed(part.line).map_err(Failure::Run)?;
        let ask = match &command {
            Command::Run(args) => Ask::run(args),
            Command::Compare(args) => Ask::compare(args),
            _ => continue,
        };
        let study = Study { jobs: args.jobs, ..Study::of(&ask)? };
        let all = measure::measure(&study)?;
        for comparison in &all {
            let depth = Depth { all: false, explain: false, profile: false, brief: nth > 0, width };
            output.text(&match ask.form {
                Form::Run => text::harm_alone(comparison, 1, width),
                _ => text::comparison(comparison, &depth),
            })?;
        }
        ending = ending.worse(show::ending(&all));
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

/// Where the command is, if the shell would not find it by its name: `make run` calls it by its path.
fn called() -> String {
    match std::env::args().next() {
        Some(path) if path.contains('/') => format!(" (here, quietmm is {path})"),
        _ => String::new(),
    }
}
