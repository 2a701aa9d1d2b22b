//! What a command line asks for, before anybody has looked whether it exists.

use std::borrow::Cow;

use crate::cli::flags::{BootArgs, Common, CompareArgs, MetalArgs, On, RunArgs, SimArgs};

/// What a command line asks for.
pub struct Ask<'a> {
    pub form: Form,
    pub on: On,
    pub workloads: &'a [String],
    pub policies: &'a [String],
    pub cpus: Option<u32>,
    pub sim: Cow<'a, SimArgs>,
    pub metal: Cow<'a, MetalArgs>,
    pub common: &'a Common,
}

/// Which command asked: it stands in the line that repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One policy, every counter.
    Run,
    /// Policies side by side.
    Compare,
    /// The same, booted.
    Boot,
}

impl<'a> Ask<'a> {
    /// `quietmm run`.
    pub fn run(args: &'a RunArgs) -> Ask<'a> {
        Ask {
            form: Form::Run,
            on: On::Sim,
            workloads: std::slice::from_ref(&args.workload),
            policies: std::slice::from_ref(&args.policy),
            cpus: args.sim.machine.cpus,
            sim: Cow::Borrowed(&args.sim),
            metal: Cow::default(),
            common: &args.common,
        }
    }

    /// `quietmm compare`.
    pub fn compare(args: &'a CompareArgs) -> Ask<'a> {
        Ask {
            form: Form::Compare,
            on: args.on,
            workloads: &args.workloads,
            policies: &args.policies,
            cpus: args.sim.machine.cpus,
            sim: Cow::Borrowed(&args.sim),
            metal: Cow::Borrowed(&args.metal),
            common: &args.common,
        }
    }

    /// `quietmm boot`.
    pub fn boot(args: &'a BootArgs) -> Ask<'a> {
        Ask {
            form: Form::Boot,
            on: On::Metal,
            workloads: args.workload.as_slice(),
            policies: &args.policies,
            cpus: args.cpus,
            sim: Cow::Owned(SimArgs { timeline: args.timeline.clone(), ..SimArgs::default() }),
            metal: Cow::Borrowed(&args.metal),
            common: &args.common,
        }
    }
}
