//! The shared mask of CPUs: its summary hides nobody, and who reads that a CPU has left sees what it did before.
use quietmm::cpumask::CpuMask;
use quietmm::platform::Memory;
use quietmm::{AllocFrom, CpuId, FrameNumber};
use quietmm_loom::case::bare;
use quietmm_loom::words::Place;
use quietmm_loom::{Fault, Mm, Model, Setup};

const THREE: Setup = Setup { cpus: 3, tags: 1 };

/// An empty mask, in a frame of the machine's memory, and a frame that its CPUs use.
fn mask(mm: &Mm) -> (&'static CpuMask, FrameNumber) {
    let frame = || mm.frames().alloc(0, AllocFrom::HERE).unwrap().into_raw().0;
    let at = frame();
    mm.platform().clear_frame(at);
    // SAFETY: a frame of zeros that nobody else has, aligned and large enough; all zeros is an empty mask; the machine's
    // memory is never given back.
    (unsafe { &*mm.platform().direct(at.phys()).cast() }, frame())
}

/// Two CPUs enter, in one word or in two, while a third reads: whoever is certain to be in is found.
fn enter(first: u16, second: u16) -> Model<(&'static CpuMask, FrameNumber)> {
    Model::new(THREE, bare("vanilla"), mask)
        .cpu(move |mm, (mask, _)| mask.insert(mm.platform(), CpuId(first)))
        .cpu(move |mm, (mask, _)| mask.insert(mm.platform(), CpuId(second)))
        .cpu(move |mm, (mask, _)| {
            let p = mm.platform();
            mask.insert(p, CpuId(second ^ 1));
            mask.remove(p, CpuId(second ^ 1));
        })
        .after(move |mm, (mask, _)| {
            let mut found = Vec::new();
            mask.for_each(mm.platform(), |cpu| found.push(cpu.0));
            assert_eq!(found, [first, second]);
        })
        .bound(3)
}

/// One uses a frame and leaves; whoever finds it gone has the frame for itself.
fn leave() -> Model<(&'static CpuMask, FrameNumber)> {
    Model::new(THREE, bare("vanilla"), |mm| {
        let (mask, frame) = mask(mm);
        mask.insert(mm.platform(), CpuId(0));
        mask.insert(mm.platform(), CpuId(1));
        (mask, frame)
    })
    .cpu(|mm, (mask, frame)| {
        mm.platform().use_frame(frame, false);
        mask.remove(mm.platform(), CpuId(0));
    })
    .cpu(|mm, (mask, frame)| {
        mm.platform().use_frame(frame, false);
        mask.remove(mm.platform(), CpuId(1));
    })
    .cpu(|mm, (mask, frame)| {
        if mask.is_empty_but(mm.platform(), CpuId(2)) {
            mm.platform().use_frame(frame, true);
        }
    })
}

#[test]
fn nobody_is_hidden() {
    enter(0, 2).holds();
    enter(0, 64).holds();
    enter(63, 64).holds();
}

#[test]
fn who_is_gone_has_left_before() {
    leave().holds();
}

#[test]
fn orderings_that_are_missing_are_seen() {
    leave().fails(Fault::without("cpumask.rs", "fetch_and(p, !cpu.bit(), Ordering::Release)"));
    let look = |from| Fault::Without(vec![Place::of("cpumask.rs", from, "load(p, Ordering::Acquire)")]);
    leave().fails(look("pub fn is_empty_but"));
}

#[test]
#[ignore = "long: says which orderings these cases miss"]
fn sweep() {
    enter(0, 64).sweep("enter");
    leave().sweep("leave");
}
