//! `quietmm compare` and `quietmm run`: the second is the first with one policy, and shows every counter.

use crate::cli::{Common, CompareArgs, RunArgs};
use crate::ending::{Ending, Failure};
use crate::measure::{Study, measure};
use crate::metal::args::On;
use crate::output::Output;
use crate::plan::{Form, Plan, plans};
use crate::text::{self, Depth};
use crate::{interrupt, jobs, json, metal};

/// Several policies side by side.
pub fn compare(args: &CompareArgs, output: &mut Output) -> Result<Ending, Failure> {
    if args.on != On::Sim {
        return metal::compare(args, output);
    }
    if let Some(flag) = args.metal.given() {
        return Err(Failure::Input(format!(
            "{flag}: only for a machine that boots; with --on metal or both"
        )));
    }
    let plans = plans(Form::Compare, &args.workloads, &args.policies, &args.common)?;
    print(plans, Form::Compare, &args.common, output)
}

/// One policy, every counter.
pub fn run(args: &RunArgs, output: &mut Output) -> Result<Ending, Failure> {
    let (workloads, policies) = ([args.workload.clone()], [args.policy.clone()]);
    let plans = plans(Form::Run, &workloads, &policies, &args.common)?;
    print(plans, Form::Run, &args.common, output)
}

fn print(plans: Vec<Plan>, form: Form, common: &Common, output: &mut Output) -> Result<Ending, Failure> {
    interrupt::listen();
    let studies = measure(plans, jobs::workers(common.jobs))?;
    if common.json {
        output.text(&json::studies(&studies, common.stats))?;
    } else {
        for (nth, study) in studies.iter().enumerate() {
            if nth > 0 {
                output.text("\n\n")?;
            }
            output.text(&text::study(study, Depth::of(form, common)))?;
        }
    }
    Ok(ending(&studies))
}

/// The worst of all endings.
pub fn ending(studies: &[Study]) -> Ending {
    studies.iter().map(Study::ending).fold(Ending::Good, Ending::worse)
}
