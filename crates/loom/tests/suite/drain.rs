//! Frames on one CPU's lists that another one drains: each is somebody's, once, and whole (INV-7).
use quietmm::{AllocFrom, Certainty, Config, FrameNumber, ListLimits, Rule};
use quietmm_loom::case::bare;
use quietmm_loom::words::Place;
use quietmm_loom::{Fault, Mm, Model, Setup};

const TWO: Setup = Setup { cpus: 2, tags: 1 };
const THREE: Setup = Setup { cpus: 3, tags: 1 };

fn config(policy: &str) -> Config {
    Config { page_lists: Some(ListLimits { batch: 1, high: 4 }), ..bare(policy) }
}

fn take(mm: &Mm) -> FrameNumber {
    let frame = mm.frames().alloc(0, AllocFrom::NOW).unwrap().into_raw().0;
    mm.platform().use_frame(frame, true);
    frame
}

fn give(mm: &Mm, frame: FrameNumber) {
    mm.platform().use_frame(frame, true);
    mm.frames().free_at(frame, 0).unwrap();
}

/// All frames, and one that CPU 1 has.
type Case = (u64, FrameNumber);

fn pcp_on_1(mm: &'static Mm) -> Case {
    let all = mm.frames().available() + mm.frames().on_lists();
    mm.platform().on(1, || {
        let frames = [take(mm), take(mm)];
        give(mm, frames[0]);
        (all, frames[1])
    })
}

fn all_there(mm: &'static Mm, (all, _): Case) {
    mm.platform().become_cpu(0);
    assert_eq!(mm.frames().available() + mm.frames().on_lists(), all);
}

/// CPU 0 drains and takes what it finds, while CPU 1 frees.
fn drain_and_free(policy: &'static str) -> Model<Case> {
    Model::new(TWO, config(policy), pcp_on_1)
        .cpu(|mm, _| {
            mm.frames().drain(Certainty::Certain);
            let frames = [take(mm), take(mm)];
            frames.into_iter().for_each(|frame| give(mm, frame));
        })
        .cpu(|mm, (_, frame)| give(mm, frame))
        .after(all_there)
        .bound(2)
}

/// Two drain at the same time.
fn two_drain(policy: &'static str) -> Model<Case> {
    Model::new(THREE, config(policy), pcp_on_1)
        .cpu(|mm, _| _ = mm.frames().drain(Certainty::Likely))
        .cpu(|mm, (_, frame)| give(mm, frame))
        .cpu(|mm, _| _ = mm.frames().drain(Certainty::Likely))
        .after(all_there)
        .bound(2)
        .most(60_000)
}

#[test]
fn every_frame_is_somewhere() {
    drain_and_free("vanilla+drain=holding-cpus").holds();
    drain_and_free("vanilla+drain=remote").holds();
    two_drain("vanilla+drain=holding-cpus").holds();
}

#[test]
fn broken_rules_are_seen() {
    drain_and_free("vanilla+drain=remote").fails(Fault::Broken(Rule::RemoteTakesLock));
}

#[test]
fn orderings_that_are_missing_are_seen() {
    let place = |file, code| Place::of(file, code, code);
    // A chain is handed over by its own step, and once more by the acknowledgement behind it.
    drain_and_free("vanilla+drain=holding-cpus").fails(Fault::Without(vec![
        place("memmap/frame_chain.rs", "chain.first().0 + 1, Ordering::Release"),
        place("ipi.rs", "request.awaited.0.fetch_sub(p, 1, Ordering::Release)"),
    ]));
}

#[test]
#[ignore = "long: says which orderings these cases miss"]
fn sweep() {
    drain_and_free("vanilla+drain=holding-cpus").sweep("drain_and_free(holding-cpus)");
    drain_and_free("vanilla+drain=remote").sweep("drain_and_free(remote)");
}
