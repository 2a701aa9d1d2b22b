//! Who enters or leaves a space, or lazy mode, while another CPU flushes it or ends it (INV-6, INV-9).
use quietmm::{Error, Rule, SpaceId};
use quietmm_loom::case::{PAGE, bare, page, pages, space, space_of_nobody, used_on_1};
use quietmm_loom::{Fault, Model, Setup};

const TAGS: Setup = Setup { cpus: 2, tags: 2 };
const NO_TAGS: Setup = Setup { cpus: 2, tags: 1 };

/// CPU 1 has used the space, keeps its tag, and comes back while CPU 0 unmaps.
fn unmap_and_enter() -> Model<SpaceId> {
    Model::new(TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        let other = mm.create_space().unwrap();
        used_on_1(mm, id, 1);
        mm.platform().on(1, || mm.space(other).switch_to().unwrap());
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(pages(1)).unwrap())
    .cpu(|mm, id| {
        mm.space(id).switch_to().unwrap();
        mm.platform().read(PAGE);
    })
}

/// Two CPUs are the first that enter a space, side by side in its mask, while CPU 0 unmaps.
fn unmap_and_enter_first() -> Model<SpaceId> {
    let enter = |mm: &'static quietmm_loom::Mm, id| {
        mm.space(id).switch_to().unwrap();
        mm.platform().read(PAGE);
    };
    Model::new(Setup { cpus: 3, tags: 1 }, bare("vanilla"), |mm| {
        let id = space_of_nobody(mm, 2);
        // Who was lazy before looks again.
        for cpu in [1, 2] {
            mm.platform().on(cpu, || mm.leave_lazy());
        }
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(page(0)).unwrap())
    .cpu(enter)
    .cpu(enter)
    .bound(2)
}

/// The same, and it is lazy in the space that it leaves.
fn unmap_and_enter_from_lazy() -> Model<SpaceId> {
    Model::new(TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        let other = mm.create_space().unwrap();
        used_on_1(mm, id, 1);
        mm.platform().on(1, || {
            mm.space(other).switch_to().unwrap();
            mm.enter_lazy();
        });
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(pages(1)).unwrap())
    .cpu(|mm, id| {
        mm.space(id).switch_to().unwrap();
        mm.platform().read(PAGE);
    })
}

/// CPU 1 is lazy in the space, and goes on using it while CPU 0 unmaps. Another page keeps the table: else lazy CPUs would be
/// asked too.
fn unmap_and_leave_lazy() -> Model<SpaceId> {
    Model::new(NO_TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 2);
        used_on_1(mm, id, 2);
        mm.platform().on(1, || mm.enter_lazy());
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(page(0)).unwrap())
    .cpu(|mm, _| {
        mm.leave_lazy();
        mm.platform().read(PAGE);
    })
}

/// CPU 1 becomes lazy behind its last use, and CPU 0 leaves it alone.
fn unmap_and_enter_lazy() -> Model<SpaceId> {
    Model::new(NO_TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 2);
        used_on_1(mm, id, 2);
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(page(0)).unwrap())
    .cpu(|mm, _| {
        mm.platform().read(PAGE);
        mm.enter_lazy();
    })
}

/// CPU 1 switches to another space, and CPU 0 unmaps in the one that it left.
fn unmap_and_leave() -> Model<(SpaceId, SpaceId)> {
    Model::new(NO_TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        let other = mm.create_space().unwrap();
        used_on_1(mm, id, 1);
        (id, other)
    })
    .cpu(|mm, (id, _)| mm.space(id).unmap(pages(1)).unwrap())
    .cpu(|mm, (_, other)| {
        mm.platform().read(PAGE);
        mm.space(other).switch_to().unwrap();
    })
}

/// CPU 0 ends the space that CPU 1 leaves: its tables are freed.
fn end_and_leave() -> Model<(SpaceId, SpaceId)> {
    Model::new(NO_TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        let other = mm.create_space().unwrap();
        used_on_1(mm, id, 1);
        mm.platform().on(0, || mm.unload());
        (id, other)
    })
    .cpu(|mm, (id, _)| try_to_end(mm, id))
    .cpu(|mm, (_, other)| mm.space(other).switch_to().unwrap())
}

/// The same, and CPU 1 only becomes lazy in it.
fn end_and_enter_lazy() -> Model<SpaceId> {
    Model::new(NO_TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        used_on_1(mm, id, 1);
        mm.platform().on(0, || mm.unload());
        id
    })
    .cpu(try_to_end)
    .cpu(|mm, _| {
        mm.platform().read(PAGE);
        mm.enter_lazy();
        mm.platform().walk_loaded();
    })
}

/// CPU 0 ends a space that CPU 1 switches to.
fn end_and_enter() -> Model<SpaceId> {
    Model::new(NO_TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        mm.platform().on(0, || mm.unload());
        id
    })
    .cpu(try_to_end)
    .cpu(|mm, id| {
        if mm.space(id).switch_to().is_ok() {
            mm.platform().read(PAGE);
            mm.platform().deliver();
            mm.platform().walk_loaded();
        }
    })
}

/// CPU 0 ends a space in which CPU 1 is lazy, and to which it comes back.
fn end_and_return() -> Model<SpaceId> {
    Model::new(NO_TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        used_on_1(mm, id, 1);
        mm.platform().on(0, || mm.unload());
        mm.platform().on(1, || mm.enter_lazy());
        id
    })
    .cpu(try_to_end)
    .cpu(|mm, _| {
        if mm.leave_lazy().is_some() {
            mm.platform().read(PAGE);
            mm.platform().deliver();
            mm.platform().walk_loaded();
        }
    })
}

fn try_to_end(mm: &'static quietmm_loom::Mm, id: SpaceId) {
    match mm.space(id).destroy() {
        Ok(()) | Err(Error::Busy) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn who_comes_to_a_space_that_ends_is_refused_or_there_first() {
    // All orders, not only these, are the sweep's.
    let (enter, comes_back) = (|| end_and_enter().bound(4), || end_and_return().bound(4));
    enter().holds();
    comes_back().holds();
    enter().fails(Fault::Broken(Rule::EndBeforeMask));
    enter().fails(Fault::Broken(Rule::LifeAfterMask));
    comes_back().fails(Fault::Broken(Rule::LifeAfterLazy));
    let switch = |from| Fault::without_fence("tlb/switch.rs", from);
    enter().fails(switch("space.life.decide(p);"));
    enter().fails(switch("space.cpus.0.insert(p, here.cpu)"));
    comes_back().fails(switch("space.life.decide(p);"));
    comes_back().fails(switch("if slot.presence.word.get(p) != Presence::LAZY"));
}

#[test]
fn who_enters_a_space_misses_no_flush() {
    unmap_and_enter().holds();
    unmap_and_enter_from_lazy().holds();
    unmap_and_enter_first().holds();
}

#[test]
fn who_leaves_lazy_mode_misses_no_flush() {
    unmap_and_leave_lazy().holds();
    unmap_and_enter_lazy().holds();
}

#[test]
fn tables_wait_for_who_leaves() {
    unmap_and_leave().holds();
    end_and_leave().holds();
    end_and_enter_lazy().holds();
}

#[test]
fn broken_rules_are_seen() {
    for rule in [Rule::MaskBeforeGeneration, Rule::GenerationBeforeMask, Rule::SwitchFlush] {
        unmap_and_enter().fails(Fault::Broken(rule));
    }
    unmap_and_leave_lazy().fails(Fault::Broken(Rule::LazyReturnFlush));
    end_and_leave().fails(Fault::Broken(Rule::LeaveMaskAfterLoad));
    end_and_enter_lazy().fails(Fault::Broken(Rule::TablesToLazy));
}

#[test]
fn orderings_that_are_missing_are_seen() {
    let switch = |from| Fault::without_fence("tlb/switch.rs", from);
    unmap_and_enter().fails(switch("space.cpus.0.insert(p, here.cpu)"));
    unmap_and_leave_lazy().fails(switch("if slot.presence.word.get(p) != Presence::LAZY"));
    unmap_and_enter_first().fails(switch("space.cpus.0.insert(p, here.cpu)"));
    let flush = Fault::without_fence("tlb/flush.rs", "let generation = space.raise(p);");
    unmap_and_enter().fails(flush.clone());
    unmap_and_leave_lazy().fails(flush);
    unmap_and_enter_lazy().fails(Fault::without("tlb/local.rs", "Presence::LAZY, Ordering::Release"));
    unmap_and_enter_lazy()
        .fails(Fault::without("tlb/targets.rs", "presence.word.load(p, Ordering::Acquire)"));
    end_and_leave().fails(Fault::without("cpumask.rs", "fetch_and(p, !cpu.bit(), Ordering::Release)"));
}

#[test]
#[ignore = "long: says which orderings these cases miss"]
fn sweep() {
    unmap_and_enter().sweep("unmap_and_enter");
    unmap_and_enter_from_lazy().sweep("unmap_and_enter_from_lazy");
    unmap_and_leave_lazy().sweep("unmap_and_leave_lazy");
    unmap_and_enter_lazy().sweep("unmap_and_enter_lazy");
    unmap_and_leave().sweep("unmap_and_leave");
    end_and_leave().sweep("end_and_leave");
    end_and_enter_lazy().sweep("end_and_enter_lazy");
    end_and_enter().sweep("end_and_enter");
    end_and_return().sweep("end_and_return");
}
