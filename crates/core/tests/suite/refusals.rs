//! Operations that are refused in their middle: each of a list, by each cause, at each place. What is refused leaves what there was; once
//! the cause is gone the same operation does what it would have done at first; and in the end nothing is left of either.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::machine;
use crate::pairs;

use machine::race::at;
use machine::showing::{private, shared};
use machine::swapping::{DEVICE, squeeze, take_free};
use machine::{Mm, give_back, pages, settled};
use pairs::{AWAY, COUNT, Make, Operation, SCENES, SMALL, Scene, Telling, config, fill, look, setup, space};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{DeviceError, Store};
use quietmm::{
    Backing, Config, Error, Frames, GroupId, PageNumber, PageRange, Prot, ReadAhead, SpaceId, Term,
    UserAccess,
};

/// What refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// No more frames than these are free: whoever wants one reclaims.
    Frames,
    /// The same without swap.
    Memory,
    /// The group may be charged with no more pages than these.
    Limit,
    /// The device reads so many pages, and fails at the next.
    Read,
    /// The same of pages that it writes.
    Write,
    /// It lets go of no blocks.
    Discard,
    /// No more mappings than these are allowed.
    Mappings,
}

/// The most mappings of a space.
const MAPPINGS: u32 = 12;
/// Where mappings are that stand in the way of others.
const ELSEWHERE: u64 = 0x50_0000;

thread_local! {
    /// Transfers that the device carries out before it fails once.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

fn fail_once(_: Store, _: u64) -> Option<DeviceError> {
    let left = LEFT.get()?;
    LEFT.set(left.checked_sub(1));
    (left == 0).then_some(DeviceError::Failed)
}

/// A file that was written out and left memory.
const ON_DISK: [(&str, Make); 2] = [
    ("a file on the disk", |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let id = space(mm, shared(file), SMALL, COUNT);
        fill(mm, id, SMALL, COUNT);
        mm.file(file).write_back().unwrap();
        (0..2).for_each(|_| squeeze(mm));
        Scene::of(SMALL, vec![id], Some(file))
    }),
    ("a file on the disk, and copies in swap", |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let (other, id) = (space(mm, shared(file), SMALL, COUNT), space(mm, private(file), SMALL, COUNT));
        fill(mm, other, SMALL, COUNT);
        mm.file(file).write_back().unwrap();
        fill(mm, id, SMALL + 1, 2);
        (0..3).for_each(|_| squeeze(mm));
        Scene::of(SMALL, vec![id, other], Some(file))
    }),
];

fn unpin(mm: &Mm<'_>, scene: &Scene) -> Result<(), Error> {
    scene.pins.take().into_iter().for_each(|pins| mm.unpin(pins));
    Ok(())
}

/// Pins and what a device writes there.
fn pin(mm: &Mm<'_>, scene: &Scene, access: UserAccess, term: Term) -> Result<(), Error> {
    let pins = mm.space(scene.id()).pin(scene.part(0, COUNT), access, term)?;
    if access == UserAccess::Write {
        pins.frames().iter().for_each(|&n| mm.platform().word(n, 0).store(83, Ordering::SeqCst));
    }
    scene.pins.borrow_mut().push(pins);
    Ok(())
}

/// Beside those of the pairs.
const MORE: [Operation; 9] = [
    ("pin to read", &[|mm, scene| pin(mm, scene, UserAccess::Read, Term::Short), unpin]),
    ("pin to read for long", &[|mm, scene| pin(mm, scene, UserAccess::Read, Term::Long), unpin]),
    ("pin to write", &[|mm, scene| pin(mm, scene, UserAccess::Write, Term::Short), unpin]),
    (
        "lock and unlock",
        &[
            |mm, scene| mm.space(scene.id()).lock(scene.part(1, 3)),
            |mm, scene| mm.space(scene.id()).unlock(scene.part(0, COUNT)),
        ],
    ),
    ("populate", &[|mm, scene| mm.space(scene.id()).populate(scene.part(0, COUNT), UserAccess::Write)]),
    (
        "remap: longer and away",
        &[|mm, scene| {
            mm.space(scene.id()).remap(scene.part(1, 2), PageRange::new(PageNumber(scene.at + AWAY), 4))
        }],
    ),
    ("protect one", &[|mm, scene| mm.space(scene.id()).protect(scene.part(1, 1), Prot::Read)]),
    (
        "change groups",
        &[|mm, scene| {
            let space = mm.space(scene.id());
            let group = space.group()?;
            space.set_group(None)?;
            space.set_group(group)
        }],
    ),
    (
        "map elsewhere",
        &[|mm, scene| {
            let there = PageRange::new(PageNumber(scene.at + AWAY), 2);
            if mm.space(scene.id()).lookup(there.start)?.is_present() {
                return Ok(());
            }
            mm.space(scene.id()).map(there, Backing::Anonymous, Prot::ReadWrite)?;
            mm.space(scene.id()).fault(there.start.addr(), UserAccess::Write).inspect_err(|_| {
                mm.space(scene.id()).unmap(there).unwrap();
            })
        }],
    ),
];

fn file<'m, 'p>(mm: &'m Mm<'p>, scene: &Scene) -> quietmm::File<'m, 'p, machine::Host> {
    mm.file(scene.file.unwrap())
}

const HALF: u64 = PAGE_SIZE / 2;

/// The same, where a file is shown.
const MORE_OF_FILES: [Operation; 6] = [
    (
        "read with a descriptor",
        &[|mm, scene| {
            let (open, mut into) = (ReadAhead::new(), [0; 2 * PAGE_SIZE as usize]);
            let read = file(mm, scene).read_with(&open, 0, &mut into)?;
            if read < into.len() { Err(Error::Device) } else { Ok(()) }
        }],
    ),
    (
        "write and make longer",
        &[|mm, scene| {
            let from = [9; (COUNT * PAGE_SIZE) as usize];
            let written = file(mm, scene).write(HALF, &from)?;
            if written < from.len() {
                // Others must not find what is behind the end; and what was written is there.
                assert_eq!(file(mm, scene).size()?, (COUNT * PAGE_SIZE).max(HALF + written as u64));
                return Err(Error::Device);
            }
            Ok(())
        }],
    ),
    (
        "write inside, in parts of pages",
        &[|mm, scene| {
            let from = [7; 2 * PAGE_SIZE as usize];
            let written = file(mm, scene).write(HALF, &from)?;
            if written < from.len() { Err(Error::Device) } else { Ok(()) }
        }],
    ),
    ("punch from middle to middle", &[|mm, scene| file(mm, scene).punch_hole(HALF, 3 * PAGE_SIZE)]),
    (
        "shorter, in the middle of a page, and longer",
        &[
            |mm, scene| file(mm, scene).set_size(PAGE_SIZE + HALF),
            |mm, scene| file(mm, scene).set_size(COUNT * PAGE_SIZE),
        ],
    ),
    ("longer", &[|mm, scene| file(mm, scene).set_size((COUNT + 3) * PAGE_SIZE - HALF)]),
];

/// What stands in the way.
struct Obstacle {
    held: Vec<Frames>,
    mapped: Vec<PageRange>,
}

/// Mappings that can be added to a space: they are.
fn fill_mappings(mm: &Mm<'_>, id: SpaceId) -> Vec<PageRange> {
    let places = (0..).map(|n| pages(ELSEWHERE + 2 * n, 1));
    places.take_while(|&place| mm.space(id).map(place, Backing::Anonymous, Prot::Read).is_ok()).collect()
}

fn unmap(mm: &Mm<'_>, id: SpaceId, mapped: Vec<PageRange>) {
    mapped.into_iter().for_each(|place| mm.space(id).unmap(place).unwrap());
}

fn impose(mm: &Mm<'_>, id: SpaceId, group: GroupId, cause: Cause, n: u32) -> Obstacle {
    let host = mm.platform();
    let mut obstacle = Obstacle { held: Vec::new(), mapped: Vec::new() };
    match cause {
        Cause::Frames | Cause::Memory => {
            if cause == Cause::Memory {
                mm.swap().off(DEVICE).unwrap();
            }
            let mut all = take_free(mm);
            give_back(mm, all.split_off(all.len().saturating_sub(n as usize)));
            obstacle.held = all;
        }
        Cause::Limit => {
            let group = mm.group(group);
            group.set_limit(group.usage().unwrap().charged + u64::from(n)).unwrap();
        }
        Cause::Read => {
            LEFT.set(Some(n));
            host.refuse_reads.set(Some(fail_once));
        }
        Cause::Write => {
            LEFT.set(Some(n));
            host.refuse_writes.set(Some(fail_once));
        }
        Cause::Discard => host.fail_discards.set(true),
        Cause::Mappings => {
            obstacle.mapped = fill_mappings(mm, id);
            let some = obstacle.mapped.len().saturating_sub(n as usize);
            unmap(mm, id, obstacle.mapped.split_off(some));
        }
    }
    obstacle
}

fn lift(mm: &Mm<'_>, id: SpaceId, group: GroupId, obstacle: Obstacle) {
    let host = mm.platform();
    LEFT.set(None);
    host.refuse_reads.set(None);
    host.refuse_writes.set(None);
    host.fail_discards.set(false);
    give_back(mm, obstacle.held);
    unmap(mm, id, obstacle.mapped);
    // It is on already, unless it was taken away.
    let _ = mm.swap().on(DEVICE, 512, 0);
    mm.group(group).set_limit(1 << 20).unwrap();
}

/// What an operation of one step that is refused leaves as it was: mappings, and locked pages.
fn kept(mm: &Mm<'_>, id: SpaceId) -> (usize, u64, u64) {
    let mapped = fill_mappings(mm, id);
    let count = mapped.len();
    unmap(mm, id, mapped);
    (count, mm.space(id).locked_pages().unwrap(), mm.validate().pinned)
}

/// What the pages show in the end, and whether the operation was refused.
type Outcome = (Vec<Vec<Result<u64, Error>>>, bool);

fn played(make: Make, (_, steps): &Operation, cause: Option<(Cause, u32)>) -> Outcome {
    let config = Config { groups: 1, max_map_count: MAPPINGS, read_ahead: 8, ..config("linux") };
    at(&setup(), &config, None, |mm| {
        let host = mm.platform();
        let start = settled(mm);
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let scene = make(mm);
        let group = mm.create_group(1 << 20).unwrap();
        let spaces = scene.spaces.borrow().clone();
        spaces.iter().for_each(|&id| mm.space(id).set_group(Some(group)).unwrap());
        let id = scene.id();
        for cpu in [1, 2, 0] {
            host.on(cpu, || mm.space(id).switch_to().unwrap());
        }
        let mut refused = false;
        for step in *steps {
            let before = kept(mm, id);
            let obstacle = cause.map(|(cause, n)| impose(mm, id, group, cause, n));
            let mut result = step(mm, &scene);
            assert_eq!(mm.validate().broken, None);
            obstacle.into_iter().for_each(|obstacle| lift(mm, id, group, obstacle));
            if let Err(error) = result {
                refused = true;
                assert!(cause.is_some(), "{error} without a cause");
                assert_eq!(
                    kept(mm, id),
                    before,
                    "mappings, locked pages and pins of an operation refused by {error}"
                );
                result = step(mm, &scene);
            }
            assert_eq!(result, Ok(()), "later");
        }
        let seen = look(mm, &scene);
        finish(mm, &scene, group);
        let left = settled(mm);
        let counts = |audit: quietmm::Audit| {
            [audit.anon, audit.file, audit.tables, audit.kernel, audit.leaked, audit.batches, audit.pinned]
        };
        assert_eq!((left.broken, counts(left)), (None, counts(start)));
        (seen, refused)
    })
}

/// The end: all goes, and nobody is charged with anything.
fn finish(mm: &Mm<'_>, scene: &Scene, group: GroupId) {
    pairs::end(mm, scene);
    let usage = mm.group(group).usage().unwrap();
    assert_eq!((usage.charged, usage.spaces), (usage.stocked, 0), "charged, and spaces");
    mm.group(group).destroy().unwrap();
    if mm.swap().off(DEVICE).is_err() {
        // It went off, or another came.
        let _ = mm.swap().off(DEVICE + 1);
    }
}

/// No operation needs as much as that.
const MOST: u32 = 40;

/// Each operation in a scene that can be refused so.
fn operations_of<'a>(scene: &'a (&'static str, Make)) -> impl Iterator<Item = &'static Operation> + use<'a> {
    let shows_file = pairs::operations(scene).any(|operation| operation.0 == "copy in");
    let of_files = if shows_file { &MORE_OF_FILES[..] } else { &[] };
    // How a large page is refused is in `collapse.rs`: what is given back here need not be in one piece.
    let others = ["collapse", "reclaim", "swap off", "swap on", "go and come back"];
    let all = pairs::operations(scene).chain(&MORE).chain(of_files);
    all.filter(move |operation| !others.contains(&operation.0))
}

/// Each operation by this cause, at each place; says how often it was refused.
fn refused_by(scene: &(&str, Make), operation: &Operation, cause: Cause) -> u32 {
    let (mut n, mut times) = (0, 0);
    let (plenty, _) = {
        let _case = Telling(format!("{}: {:?}", scene.0, operation.0));
        played(scene.1, operation, None)
    };
    while n < MOST {
        let _case = Telling(format!("{}: {:?}, {cause:?} {n}", scene.0, operation.0));
        let (short, refused) = played(scene.1, operation, Some((cause, n)));
        assert_eq!(short, plenty);
        times += u32::from(refused);
        if !refused || cause == Cause::Discard {
            break;
        }
        n += 1 + n / 4;
    }
    times
}

/// All operations of these scenes by each of these causes, of which this is a part.
fn every_cause(scenes: &[(&'static str, Make)], causes: &'static [Cause], (part, parts): (usize, usize)) {
    let operations =
        scenes.iter().flat_map(|scene| operations_of(scene).map(move |operation| (scene, operation)));
    let all =
        operations.flat_map(|(scene, operation)| causes.iter().map(move |&cause| (scene, operation, cause)));
    for (scene, operation, cause) in all.skip(part).step_by(parts) {
        refused_by(scene, operation, cause);
    }
}

const OF_ITS_OWN: [Cause; 4] = [Cause::Frames, Cause::Memory, Cause::Limit, Cause::Mappings];
const IN_SWAP: [Cause; 5] = [Cause::Frames, Cause::Memory, Cause::Limit, Cause::Read, Cause::Mappings];
// All of it, and of the next, is in memory.
const OF_A_FILE: [Cause; 4] = [Cause::Limit, Cause::Write, Cause::Discard, Cause::Mappings];
const AND_COPIES: [Cause; 4] = [Cause::Limit, Cause::Write, Cause::Discard, Cause::Mappings];
const LARGE: [Cause; 3] = [Cause::Memory, Cause::Limit, Cause::Mappings];
const ON_THE_DISK: [Cause; 5] = [Cause::Memory, Cause::Limit, Cause::Read, Cause::Discard, Cause::Mappings];

parts!(
    pages_of_its_own,
    |part, parts| every_cause(&SCENES[..1], &OF_ITS_OWN, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7
    ]
);

parts!(
    pages_in_swap,
    |part, parts| every_cause(&SCENES[1..2], &IN_SWAP, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19
    ]
);

parts!(
    pages_of_a_file,
    |part, parts| every_cause(&SCENES[2..3], &OF_A_FILE, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7
    ]
);

parts!(
    pages_of_a_file_and_copies,
    |part, parts| every_cause(&SCENES[3..4], &AND_COPIES, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7
    ]
);

parts!(
    a_large_page,
    |part, parts| every_cause(&SCENES[4..], &LARGE, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11
    ]
);

parts!(
    a_file_on_the_disk,
    |part, parts| every_cause(&ON_DISK, &ON_THE_DISK, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26 p27 p28 p29 p30 p31 p32 p33 p34 p35 p36 p37 p38 p39 p40 p41 p42 p43 p44 p45 p46
        p47 p48 p49 p50 p51 p52 p53 p54 p55 p56 p57 p58 p59 p60 p61 p62 p63
    ]
);

type Scenes = &'static [(&'static str, Make)];

#[test]
fn each_cause_refuses_something() {
    let all: [(Scenes, &[Cause]); 6] = [
        (&SCENES[..1], &OF_ITS_OWN),
        (&SCENES[1..2], &IN_SWAP),
        (&SCENES[2..3], &OF_A_FILE),
        (&SCENES[3..4], &AND_COPIES),
        (&SCENES[4..], &LARGE),
        (&ON_DISK, &ON_THE_DISK),
    ];
    for (scenes, causes) in all {
        for &cause in causes {
            let all = scenes.iter().flat_map(|scene| operations_of(scene).map(move |one| (scene, one)));
            let is_refused =
                |(scene, one): (&(&'static str, Make), _)| played(scene.1, one, Some((cause, 0))).1;
            assert!(all.into_iter().any(is_refused), "{cause:?} refuses nothing of {}", scenes[0].0);
        }
    }
}
