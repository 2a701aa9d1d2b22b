//! Pages that are unmapped while other CPUs use them: the inbox, the request, the acknowledgement (INV-1, INV-5, INV-8).
use quietmm::{Rule, SpaceId};
use quietmm_loom::case::{PAGE, bare, page, pages, space, used_on_1};
use quietmm_loom::words::Place;
use quietmm_loom::{Fault, Model, Setup};

const TWO: Setup = Setup { cpus: 2, tags: 1 };
const THREE: Setup = Setup { cpus: 3, tags: 1 };

/// One unmaps what the other uses.
fn unmap_and_use() -> Model<SpaceId> {
    Model::new(TWO, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        used_on_1(mm, id, 1);
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(pages(1)).unwrap())
    .cpu(|mm, _| {
        mm.platform().read(PAGE);
        mm.platform().deliver();
        mm.platform().read(PAGE);
    })
}

/// The request is used again at once.
fn unmap_twice() -> Model<SpaceId> {
    Model::new(TWO, bare("vanilla"), |mm| {
        let id = space(mm, 2);
        used_on_1(mm, id, 2);
        id
    })
    .cpu(|mm, id| {
        mm.space(id).unmap(page(0)).unwrap();
        mm.space(id).unmap(page(1)).unwrap();
    })
    .cpu(|mm, _| {
        mm.platform().read(PAGE + 1);
        mm.platform().deliver();
        mm.platform().read(PAGE);
    })
}

/// Each wants something of the other at the same time.
fn flush_each_other() -> Model<SpaceId> {
    Model::new(TWO, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        used_on_1(mm, id, 1);
        id
    })
    .cpu(|mm, id| mm.space(id).flush().unwrap())
    .cpu(|mm, id| mm.space(id).flush().unwrap())
}

/// Two want something of the third: one of them finds its inbox full, and does not ring.
fn two_ask_one() -> Model<SpaceId> {
    Model::new(THREE, bare("vanilla"), |mm| {
        let id = space(mm, 2);
        used_on_1(mm, id, 2);
        mm.platform().on(0, || mm.unload());
        // What CPU 1 would do if it read an old request of CPU 2's.
        mm.platform().on(2, || mm.space(id).flush_range(page(0)).unwrap());
        id
    })
    .cpu(|mm, id| mm.space(id).flush_range(page(0)).unwrap())
    .cpu(|mm, _| {
        mm.platform().deliver();
        mm.platform().read(PAGE + 1);
    })
    .cpu(|mm, id| mm.space(id).unmap(page(1)).unwrap())
    .bound(2)
}

#[test]
fn unmap_waits_for_who_uses() {
    unmap_and_use().holds();
    unmap_twice().holds();
}

#[test]
fn who_waits_serves() {
    flush_each_other().holds();
    two_ask_one().holds();
}

#[test]
fn broken_rules_are_seen() {
    unmap_and_use().fails(Fault::Broken(Rule::WaitForAcknowledgement));
    unmap_and_use().fails(Fault::Broken(Rule::AcknowledgeAfterFlush));
    unmap_and_use().fails(Fault::Broken(Rule::FlushBeforeUnmapReturns));
}

#[test]
fn orderings_that_are_missing_are_seen() {
    let ipi = |code| Fault::without("ipi.rs", code);
    unmap_and_use().fails(ipi("request.awaited.0.fetch_sub(p, 1, Ordering::Release)"));
    unmap_and_use().fails(ipi("awaited.load(p, Ordering::Acquire) != 0"));
    let place = |code| Place::of("ipi.rs", code, code);
    // The bit and the summary publish the request one for the other, but where the target comes in between.
    two_ask_one().fails(Fault::Without(vec![
        place("inbox.senders[word].fetch_or(p, bit, Ordering::AcqRel)"),
        place("inbox.summary.fetch_or(p, 1 << word, Ordering::AcqRel)"),
    ]));
    two_ask_one().fails(Fault::Without(vec![
        place("in bits(inbox.summary.swap(p, 0, Ordering::AcqRel))"),
        place("let senders = inbox.senders[word as usize].swap(p, 0, Ordering::AcqRel)"),
    ]));
    two_ask_one().fails(Fault::WeakInterrupts);
}

#[test]
#[ignore = "long: says which orderings these cases miss"]
fn sweep() {
    unmap_and_use().sweep("unmap_and_use");
    unmap_twice().sweep("unmap_twice");
    flush_each_other().sweep("flush_each_other");
    two_ask_one().sweep("two_ask_one");
}
