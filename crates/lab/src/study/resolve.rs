//! What was asked for, held against what exists: what is in a [`Study`] can be run.

use std::sync::Arc;

use quietmm_sim::Workload;

use crate::backend::Beside;
use crate::backend::metal::Booted;
use crate::backend::sim::Simulated;
use crate::cli::flags::{On, WorkArgs};
use crate::process::ending::Failure;
use crate::study::ask::Ask;
use crate::study::named;
use crate::study::plan::{Backend, Plan, Study};

impl Study {
    /// The plans for what was asked, or what is wrong with the first thing that does not exist.
    pub fn of(ask: &Ask<'_>) -> Result<Study, Failure> {
        let workloads =
            ask.workloads.iter().map(|name| named::workload(name)).collect::<Result<Vec<_>, _>>()?;
        let policies = ask.policies.iter().map(|name| named::policy(name)).collect::<Result<Vec<_>, _>>()?;
        for (nth, name) in ask.policies.iter().enumerate() {
            if ask.policies[..nth].contains(name) {
                return Err(Failure::Input(format!("{name} is there twice; once is enough")));
            }
        }
        let (runs, &WorkArgs { seed, threads, .. }) = (ask.common.runs, &ask.common.work);
        let broken = ask.common.work.broken.as_deref().map(named::rule).transpose()?;
        let wrong = |why: String| Err(Failure::Input(why));
        if seed.checked_add(u64::from(runs) - 1).is_none() {
            return wrong(format!("--seed {seed} leaves no room for {runs} seeds"));
        }
        if ask.on == On::Sim
            && let Some(flag) = ask.metal.given()
        {
            return wrong(format!("{flag}: only for a machine that boots; with --on metal or both"));
        }
        if ask.on != On::Sim
            && let Some(flag) = ask.sim.only_simulated(ask.on == On::Both)
        {
            let on = if ask.on == On::Both { "both" } else { "metal" };
            return wrong(format!("{flag}: only the simulation has that; not with --on {on}"));
        }
        if ask.sim.machine.trace.is_some() && !workloads.iter().any(|workload| workload.needs_trace()) {
            return wrong("--trace: only the workload trace replays one".to_string());
        }
        let mut plans = Vec::new();
        for &workload in &workloads {
            if threads.is_some() && !workload.takes_threads() {
                let takers = Workload::ALL.iter().filter(|workload| workload.takes_threads());
                let takers: Vec<&str> = takers.map(|workload| workload.name()).collect();
                let (name, takers) = (workload.name(), takers.join(" and "));
                return wrong(format!(
                    "--threads: {name} has the threads that it has; only {takers} let you choose"
                ));
            }
            for backend in backends(ask, workload)? {
                if let Some(threads) = threads.filter(|&threads| threads > backend.place().cpus) {
                    let (machine, cpus) = (backend.place().machine, backend.place().cpus);
                    return wrong(format!("--threads {threads}: {machine} has {cpus} CPUs; 1 to {cpus}"));
                }
                let policies = policies.clone();
                plans.push(Plan { form: ask.form, workload, policies, seed, runs, broken, threads, backend });
            }
        }
        Ok(Study { plans, jobs: ask.sim.machine.jobs })
    }
}

/// Where a workload runs: on each machine that was named, or on its own.
fn backends(ask: &Ask<'_>, workload: Workload) -> Result<Vec<Arc<dyn Backend>>, Failure> {
    let of = |machine: Option<&str>| -> Result<Arc<dyn Backend>, Failure> {
        Ok(match ask.on {
            On::Sim => Arc::new(Simulated::of(ask, workload, machine)?),
            On::Metal => Arc::new(Booted::of(ask, workload)?),
            On::Both => Arc::new(Beside::of(ask, workload, machine)?),
        })
    };
    match &ask.sim.machine.names[..] {
        [] => Ok(vec![of(None)?]),
        machines => machines.iter().map(|machine| of(Some(machine))).collect(),
    }
}
