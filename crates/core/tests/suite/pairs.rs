//! Two operations at once: each of a list with each, the second while the first stands still at some place in its middle.
//! Whatever a page holds in the end, and whatever the two returned, is what one after the other leaves.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use crate::machine;

use machine::race::{Place, at, race, take_turns};
use machine::showing::{LARGE, private, shared};
use machine::swapping::{DEVICE, reclaim, sound, squeeze, take_free};
use machine::{Mm, Setup, bare, give_back, pages, pcp};
use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, Backing, Config, Error, FileId, FrameNumber, Frames, NodeId, NodeSet, PageNumber, PageRange,
    Pins, Prot, Region, SpaceId, Term, UserAccess,
};

/// Pages before the end of a table, and of the range that large pages may be in.
pub const SMALL: u64 = 0xfffe;
pub const COUNT: u64 = 4;
/// How far away a range is moved to.
pub const AWAY: u64 = 0x2400;

/// What is there at the start.
pub struct Scene {
    /// The first page of those that the operations are about.
    pub at: u64,
    pub spaces: RefCell<Vec<SpaceId>>,
    pub file: Option<FileId>,
    held: RefCell<Vec<Frames>>,
    /// What a device uses.
    pub pins: RefCell<Vec<Pins>>,
    /// Whether the first operation has begun: from then on a task does not take memory away to make it short.
    begun: Cell<bool>,
}

impl Scene {
    pub fn of(at: u64, spaces: Vec<SpaceId>, file: Option<FileId>) -> Scene {
        let (held, pins, begun) = Default::default();
        Scene { at, spaces: RefCell::new(spaces), file, held, pins, begun }
    }

    pub fn id(&self) -> SpaceId {
        self.spaces.borrow()[0]
    }

    /// So many pages, from this one of its pages on.
    pub fn part(&self, from: u64, count: u64) -> quietmm::PageRange {
        pages(self.at + from, count)
    }
}

pub fn space(mm: &Mm<'_>, backing: Backing, at: u64, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(at, count), backing, Prot::ReadWrite).unwrap();
    id
}

pub fn fill(mm: &Mm<'_>, id: SpaceId, at: u64, count: u64) {
    mm.space(id).switch_to().unwrap();
    (at..at + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
    mm.drain_lru_batch();
}

/// A space, its backing and what is in it.
pub type Make = fn(&Mm<'_>) -> Scene;

pub const SCENES: [(&str, Make); 6] = [
    ("pages of its own", |mm| {
        let id = space(mm, Backing::Anonymous, SMALL, COUNT);
        fill(mm, id, SMALL, COUNT);
        Scene::of(SMALL, vec![id], None)
    }),
    ("swapped pages, two of them read back, shared with a child", |mm| {
        let id = space(mm, Backing::Anonymous, SMALL, COUNT);
        fill(mm, id, SMALL, COUNT);
        let child = mm.space(id).fork().unwrap();
        squeeze(mm);
        (SMALL..SMALL + 2).for_each(|page| assert_eq!(mm.platform().read(mm, id, page), Ok(page)));
        mm.drain_lru_batch();
        Scene::of(SMALL, vec![id, child], None)
    }),
    ("pages of a file that two spaces share", |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let (id, other) = (space(mm, shared(file), SMALL, COUNT), space(mm, shared(file), SMALL, COUNT));
        fill(mm, other, SMALL, COUNT);
        mm.file(file).write_back().unwrap();
        fill(mm, id, SMALL + 1, 2);
        Scene::of(SMALL, vec![id, other], Some(file))
    }),
    ("pages of a file, and copies of them", |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let (other, id) = (space(mm, shared(file), SMALL, COUNT), space(mm, private(file), SMALL, COUNT));
        fill(mm, other, SMALL, COUNT);
        fill(mm, id, SMALL + 1, 2);
        Scene::of(SMALL, vec![id, other], Some(file))
    }),
    ("a large page", |mm| {
        let id = space(mm, Backing::Anonymous, LARGE, 512);
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        fill(mm, id, LARGE, COUNT);
        Scene::of(LARGE, vec![id], None)
    }),
    ("small pages of what could be a large one", |mm| {
        let id = space(mm, Backing::Anonymous, LARGE, 512);
        fill(mm, id, LARGE, COUNT);
        Scene::of(LARGE, vec![id], None)
    }),
];

/// Something done by the CPU that this is, which runs in the scene's first space.
pub type Do = fn(&Mm<'_>, &Scene) -> Result<(), Error>;

/// A name, and steps: between two of them others may see what they like.
pub type Operation = (&'static str, &'static [Do]);

fn touch(mm: &Mm<'_>, scene: &Scene, page: u64, value: Option<u64>) -> Result<(), Error> {
    let (host, page) = (mm.platform(), scene.at + page);
    match value {
        Some(value) => host.write(mm, scene.id(), page, value),
        None => host.read(mm, scene.id(), page).map(|_| ()),
    }
}

const OPERATIONS: [Operation; 30] = [
    ("read", &[|mm, scene| touch(mm, scene, 1, None)]),
    ("write", &[|mm, scene| touch(mm, scene, 1, Some(71))]),
    ("write elsewhere", &[|mm, scene| touch(mm, scene, 2, Some(72))]),
    ("write what is there", &[|mm, scene| touch(mm, scene, 1, Some(scene.at + 1))]),
    ("unmap", &[|mm, scene| mm.space(scene.id()).unmap(scene.part(1, 2))]),
    ("unmap all", &[|mm, scene| mm.space(scene.id()).unmap(scene.part(0, COUNT))]),
    (
        "map anew",
        &[
            |mm, scene| mm.space(scene.id()).unmap(scene.part(1, 1)),
            |mm, scene| mm.space(scene.id()).map(scene.part(1, 1), Backing::Anonymous, Prot::ReadWrite),
        ],
    ),
    ("protect: read", &[|mm, scene| mm.space(scene.id()).protect(scene.part(0, COUNT), Prot::Read)]),
    ("protect: none", &[|mm, scene| mm.space(scene.id()).protect(scene.part(1, 2), Prot::None)]),
    (
        "protect: none and back",
        &[
            |mm, scene| mm.space(scene.id()).protect(scene.part(0, 3), Prot::None),
            |mm, scene| mm.space(scene.id()).protect(scene.part(0, 3), Prot::ReadWrite),
        ],
    ),
    (
        "protect: read and back",
        &[
            |mm, scene| mm.space(scene.id()).protect(scene.part(1, 3), Prot::Read),
            |mm, scene| mm.space(scene.id()).protect(scene.part(1, 3), Prot::ReadWrite),
        ],
    ),
    ("drop", &[|mm, scene| mm.space(scene.id()).advise(scene.part(1, 2), Advice::Drop)]),
    (
        "drop all, and give the tables back",
        &[
            |mm, scene| mm.space(scene.id()).advise(scene.part(0, COUNT), Advice::Drop),
            |mm, scene| mm.space(scene.id()).free_empty_tables().map(|_| ()),
        ],
    ),
    (
        "collapse",
        &[|mm, scene| {
            // Where it is no whole large page, or another has part of it, that is told.
            match mm.space(scene.id()).advise(pages(scene.at & !511, 512), Advice::Collapse) {
                Err(Error::NotMapped(_) | Error::NotCollapsible(_)) => Ok(()),
                result => result,
            }
        }],
    ),
    (
        "grow",
        &[|mm, scene| {
            // Where what begins there is a file's, or gone, it does not.
            let _ = mm.space(scene.id()).grow_down(PageNumber(scene.at), COUNT + 8);
            let _ = mm.platform().write(mm, scene.id(), scene.at - 3, 70);
            Ok(())
        }],
    ),
    ("small", &[|mm, scene| mm.space(scene.id()).advise(scene.part(0, COUNT), Advice::Small)]),
    ("page out", &[|mm, scene| mm.space(scene.id()).advise(scene.part(0, COUNT), Advice::PageOut)]),
    ("will need", &[|mm, scene| mm.space(scene.id()).advise(scene.part(0, COUNT), Advice::WillNeed)]),
    (
        "remap: shorter and away",
        &[|mm, scene| {
            mm.space(scene.id()).remap(scene.part(1, 2), PageRange::new(PageNumber(scene.at + AWAY), 1))
        }],
    ),
    (
        "fork",
        &[|mm, scene| {
            let child = mm.space(scene.id()).fork()?;
            scene.spaces.borrow_mut().push(child);
            Ok(())
        }],
    ),
    ("move", &[|mm, scene| mm.space(scene.id()).move_range(scene.part(1, 2), PageNumber(scene.at + AWAY))]),
    (
        "migrate",
        &[|mm, scene| {
            mm.space(scene.id()).migrate(scene.part(0, COUNT), NodeId(1))?;
            mm.space(scene.id()).migrate(scene.part(0, COUNT), NodeId(0)).map(|_| ())
        }],
    ),
    (
        "migrate all",
        &[|mm, scene| {
            let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
            mm.space(scene.id()).migrate_all(scene.part(0, COUNT), anywhere, NodeId(1))?;
            mm.space(scene.id()).migrate_all(scene.part(0, COUNT), anywhere, NodeId(0)).map(|_| ())
        }],
    ),
    ("write back", &[|mm, scene| scene.file.map_or(Ok(()), |file| mm.file(file).write_back().map(|_| ()))]),
    ("swap off", &[|mm, _| mm.swap().off(DEVICE)]),
    ("swap on", &[|mm, _| mm.swap().on(DEVICE + 1, 512, 1)]),
    (
        "reclaim",
        &[|mm, scene| {
            let mut held = scene.held.take();
            if !scene.begun.get() || held.is_empty() {
                held.extend(take_free(mm));
            }
            reclaim(mm);
            give_back(mm, held);
            Ok(())
        }],
    ),
    (
        "sweep",
        &[|mm, _| {
            mm.begin_sweep();
            mm.tick();
            Ok(())
        }],
    ),
    (
        "a device writes",
        &[
            |mm, scene| {
                let pins = mm.space(scene.id()).pin(scene.part(1, 1), UserAccess::Write, Term::Short)?;
                scene.pins.borrow_mut().push(pins);
                Ok(())
            },
            |mm, scene| {
                for pins in scene.pins.take() {
                    mm.platform().word(pins.frames()[0], 0).store(81, Ordering::SeqCst);
                    mm.unpin(pins);
                }
                Ok(())
            },
        ],
    ),
    (
        "go and come back",
        &[|mm, scene| {
            mm.cpu_offline()?;
            mm.cpu_online()?;
            mm.space(scene.id()).switch_to()
        }],
    ),
];

/// The same, where a file is shown.
const OF_FILES: [Operation; 5] = [
    (
        "empty and make longer",
        &[
            |mm, scene| mm.file(scene.file.unwrap()).set_size(0),
            |mm, scene| mm.file(scene.file.unwrap()).set_size(COUNT * PAGE_SIZE),
        ],
    ),
    ("punch a hole", &[|mm, scene| mm.file(scene.file.unwrap()).punch_hole(PAGE_SIZE, 2 * PAGE_SIZE)]),
    (
        "copy in",
        &[|mm, scene| {
            mm.file(scene.file.unwrap())
                .write(PAGE_SIZE, &73_u64.to_ne_bytes())
                .map(|written| assert_eq!(written, 8))
        }],
    ),
    ("bring in", &[|mm, scene| mm.file(scene.file.unwrap()).read_ahead(0, 8).map(|_| ())]),
    ("copy out", &[|mm, scene| mm.file(scene.file.unwrap()).read(PAGE_SIZE, &mut [0; 8]).map(|_| ())]),
];

/// What can be done in a scene.
pub fn operations((_, make): &(&str, Make)) -> impl Iterator<Item = &'static Operation> + Clone {
    let shows = at(&setup(), &config("linux"), None, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let scene = make(mm);
        scene.file.is_some()
    });
    let of_files = if shows { &OF_FILES[..] } else { &[] };
    OPERATIONS.iter().chain(of_files)
}

/// All orders of the steps of two: who is next, each time.
fn orders(one: usize, two: usize) -> Vec<Vec<bool>> {
    if one == 0 || two == 0 {
        return vec![(0..one).map(|_| true).chain((0..two).map(|_| false)).collect()];
    }
    let then = |first: bool, (one, two): (usize, usize)| {
        orders(one, two).into_iter().map(move |rest| [vec![first], rest].concat()).collect::<Vec<_>>()
    };
    [then(true, (one - 1, two)), then(false, (one, two - 1))].concat()
}

/// What can be seen afterwards: of both operations what they returned, of each page of each space what it holds.
type Seen = ([Vec<Result<(), Error>>; 2], Vec<Vec<Result<u64, Error>>>);

/// What the pages hold, by a CPU that reads them now, and by one that has been in the space all along.
pub fn look(mm: &Mm<'_>, scene: &Scene) -> Vec<Vec<Result<u64, Error>>> {
    let host = mm.platform();
    let all = || [0, AWAY].into_iter().flat_map(|away| (0..COUNT).map(move |page| scene.at + away + page));
    let cached: Vec<_> = host.on(2, || all().map(|page| host.try_read(page)).collect());
    let spaces = scene.spaces.borrow().clone();
    let read = |id: SpaceId| {
        mm.space(id).switch_to().unwrap();
        all().map(|page| host.read(mm, id, page)).collect::<Vec<_>>()
    };
    let seen: Vec<Vec<_>> = spaces.into_iter().map(read).collect();
    for (cached, now) in cached.into_iter().zip(&seen[0]) {
        assert!(
            cached.is_none_or(|cached| *now == Ok(cached)),
            "a CPU has cached {cached:?} where there is {now:?}"
        );
    }
    seen
}

/// The end: all goes, and nothing is left.
pub fn end(mm: &Mm<'_>, scene: &Scene) {
    let host = mm.platform();
    sound(mm);
    (0..3).for_each(|cpu| host.on(cpu, || mm.unload()));
    scene.spaces.borrow().iter().for_each(|&id| mm.space(id).destroy().unwrap());
    scene.file.into_iter().for_each(|file| mm.file(file).destroy().unwrap());
    let left = machine::settled(mm);
    assert_eq!((left.broken, left.anon, left.swapped, left.mapped), (None, 0, 0, 0));
}

/// Two nodes, on each of which a large page fits.
pub fn setup() -> Setup {
    let node = |node: u16| Region {
        start: FrameNumber(0xfc00 + 1024 * u32::from(node)),
        frames: 1024,
        node: NodeId(node),
    };
    Setup { cpus: 3, nodes: 2, frames: 2048, regions: Some(vec![node(0), node(1)]), ..Setup::default() }
}

pub fn config(policy: &str) -> Config {
    Config { swap: true, lru_batch: 1, scan_batch: 4, page_lists: pcp(1), ..bare(policy) }
}

/// Makes the scene, with CPUs 0, 1 and 2 in its first space, and has the work done.
fn play(policy: &str, make: Make, work: impl FnOnce(&Mm<'_>, &Scene) -> [Vec<Result<(), Error>>; 2]) -> Seen {
    at(&setup(), &config(policy), None, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let scene = make(mm);
        let host = mm.platform();
        for cpu in [1, 2, 0] {
            host.on(cpu, || {
                mm.space(scene.id()).switch_to().unwrap();
                // What is there is cached everywhere.
                (0..COUNT).for_each(|page| _ = host.try_read(scene.at + page));
            });
        }
        // While an operation goes on CPUs may use what it is about to flush; not after it.
        host.uses_windows.set(true);
        let results = work(mm, &scene);
        let stale = host.stale.get();
        let seen = (results, look(mm, &scene));
        assert_eq!(host.stale.get(), stale, "an access through a stale translation");
        end(mm, &scene);
        seen
    })
}

/// Tells which case it was, if it panics.
pub struct Telling(pub String);

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the case: {}", self.0);
        }
    }
}

/// What both did and left where one step came after the other, in each order; and how often CPU 0 touched memory that is
/// shared, where it came first.
fn one_after_the_other(policy: &str, make: Make, one: &Operation, two: &Operation) -> (Vec<Seen>, u32) {
    let touches = Cell::new(0);
    let orders = orders(one.1.len(), two.1.len()).into_iter();
    let allowed = orders.map(|order| {
        play(policy, make, |mm, scene| {
            let (host, mut results) = (mm.platform(), [vec![], vec![]]);
            let before = host.touches_of(0);
            for first in order {
                if first {
                    results[0].push((one.1[results[0].len()])(mm, scene));
                } else {
                    touches.set(touches.get().max(host.touches_of(0) - before));
                    results[1].push(host.on(1, || (two.1[results[1].len()])(mm, scene)));
                }
            }
            results
        })
    });
    (allowed.collect(), touches.get())
}

/// Plays a pair at some places: of `one`, which CPU 0 does, and `two`, which CPU 1 does meanwhile, or by turns.
fn pair(
    policy: &str,
    scene: &(&str, Make),
    one: &Operation,
    two: &Operation,
    mut places: impl FnMut(u32) -> Vec<(u32, Vec<u32>)>,
) {
    let told = |how: &str| Telling(format!("{policy}, {}: {how} {:?} and {:?}", scene.0, one.0, two.0));
    let (allowed, touches) = {
        let _case = told("in some order");
        one_after_the_other(policy, scene.1, one, two)
    };
    for (n, turns) in places(touches) {
        let _case = told(&format!("at touch {n} of {touches} of the first, then by turns {turns:?},"));
        let (results, seen) = play(policy, scene.1, |mm, scene| {
            let all = |steps: &[Do]| steps.iter().map(|step| step(mm, scene)).collect::<Vec<_>>();
            let (first, second) = (RefCell::new(vec![]), RefCell::new(vec![]));
            if one.0 == "reclaim" {
                *scene.held.borrow_mut() = take_free(mm);
                scene.begun.set(true);
            }
            race(
                mm,
                Place::Touch(n),
                || *first.borrow_mut() = all(one.1),
                || {
                    take_turns(mm.platform(), &turns);
                    *second.borrow_mut() = all(two.1);
                },
            );
            [first.take(), second.take()]
        });
        let short = results.iter().flatten().any(|&result| result == Err(Error::OutOfMemory));
        for (who, name) in [one.0, two.0].into_iter().enumerate() {
            let known = allowed.iter().any(|known| known.0[who] == results[who]);
            assert!(known || short, "{name}: {:?} is what no order returns", results[who]);
        }
        if short {
            continue;
        }
        for (space, pages) in seen.iter().enumerate() {
            for (page, found) in pages.iter().enumerate() {
                let known: Vec<_> = allowed.iter().map(|known| &known.1[space][page]).collect();
                assert!(known.contains(&found), "space {space}, page {page}: {found:?}, not {known:?}");
            }
        }
    }
}

/// Numbers by chance, always the same.
fn chance(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % below.max(1)
    }
}

/// Each pair in a scene, of those in this part. `QUIETMM_PAIRS` is a seed of another chance, by which more places and policies are tried.
fn every_pair(scene: &(&str, Make), skip: usize, part: (usize, usize)) {
    every_pair_of(scene, skip, part, |_, _| true);
}

/// The same of those that are `wanted`.
fn every_pair_of(
    scene: &(&str, Make),
    skip: usize,
    (part, parts): (usize, usize),
    wanted: impl Fn(&Operation, &Operation) -> bool,
) {
    let asked = std::env::var("QUIETMM_PAIRS").ok().map(|seed| seed.parse().expect("a seed"));
    let (places, skip, policies): (u32, usize, &[&str]) = match asked {
        None => (1, skip, &["linux", "quiet"]),
        Some(_) => (6, 1, &["linux", "quiet", "vanilla", "linux+unmap=batch-clean", "quiet+unmap=batch"]),
    };
    let seed = asked.unwrap_or(1);
    let mut number = seed as usize;
    for one in operations(scene) {
        for two in operations(scene) {
            number += 1;
            if number.is_multiple_of(skip) && wanted(one, two) && number / skip % parts == part {
                let policy = policies[number / skip / parts % policies.len()];
                let mut chance = chance(seed << 32 | number as u64);
                let mut place = |touches| {
                    let n = chance(touches);
                    (n, (0..chance(3)).map(|_| chance(touches)).collect())
                };
                pair(policy, scene, one, two, |touches| (0..places).map(|_| place(touches)).collect());
            }
        }
    }
}

parts!(
    pairs_of_operations_on_pages_of_its_own,
    |part, parts| every_pair(&SCENES[0], 1, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23
    ]
);

parts!(
    pairs_of_operations_on_pages_in_swap,
    |part, parts| every_pair(&SCENES[1], 2, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26 p27 p28 p29 p30 p31 p32 p33 p34 p35 p36 p37 p38 p39 p40 p41 p42 p43 p44 p45 p46
        p47 p48 p49 p50 p51 p52 p53 p54 p55 p56 p57 p58 p59
    ]
);

parts!(
    pairs_of_operations_on_pages_of_a_file,
    |part, parts| every_pair(&SCENES[2], 2, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23
    ]
);

parts!(
    pairs_of_operations_on_pages_of_a_file_and_copies,
    |part, parts| every_pair(&SCENES[3], 2, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23
    ]
);

parts!(
    pairs_of_operations_on_a_large_page,
    |part, parts| every_pair(&SCENES[4], 5, (part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11
    ]
);

/// What a large page is made of, and all others.
#[test]
fn pairs_of_operations_on_pages_that_may_become_large() {
    every_pair_of(&SCENES[5], 1, (0, 1), |one, two| [one.0, two.0].contains(&"collapse"));
}

/// Pairs that meet in few places only: at many.
const SELDOM: [(&str, usize, &str, &str); 12] = [
    ("linux", 0, "migrate", "fork"),
    ("quiet", 0, "migrate", "write"),
    ("linux", 1, "read", "swap off"),
    ("quiet", 1, "swap off", "fork"),
    ("linux", 1, "write", "fork"),
    ("linux", 2, "write", "write back"),
    ("quiet", 3, "write", "migrate"),
    ("linux", 1, "migrate all", "unmap"),
    ("linux", 1, "migrate all", "fork"),
    ("quiet", 1, "migrate all", "protect: read and back"),
    ("linux", 2, "migrate all", "write"),
    ("quiet", 3, "write", "migrate all"),
];

fn seldom_meet(part: usize, parts: usize) {
    const MANY: u32 = 120;
    let (policy, scene, one, two) = SELDOM[part % SELDOM.len()];
    let (first, step) = ((part / SELDOM.len()) as u32, (parts / SELDOM.len()) as u32);
    let find = |name| OPERATIONS.iter().find(|operation| operation.0 == name).expect("an operation");
    let stride = |touches: u32| (touches / MANY).max(1);
    let places = |touches: u32| {
        (first * stride(touches)..touches)
            .step_by((step * stride(touches)) as usize)
            .map(|n| (n, vec![]))
            .collect()
    };
    pair(policy, &SCENES[scene], find(one), find(two), places);
}

parts!(
    pairs_of_operations_that_seldom_meet,
    seldom_meet,
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26 p27 p28 p29 p30 p31 p32 p33 p34 p35
    ]
);

/// An operation where so many frames are free, and then, if it was refused for that, again with plenty: what it returned in
/// the end, what is left, and whether it was refused.
fn with_frames(policy: &str, make: Make, (name, steps): &Operation, frames: usize) -> (Seen, bool) {
    let refused = Cell::new(false);
    let seen = play(policy, make, |mm, scene| {
        let held = Cell::new(None);
        if *name != "reclaim" {
            let mut all = take_free(mm);
            let some = all.split_off(all.len().saturating_sub(frames));
            give_back(mm, some);
            held.set(Some(all));
        }
        let mut results: Vec<_> = steps.iter().map(|step| step(mm, scene)).collect();
        assert_eq!(mm.validate().broken, None);
        held.take().into_iter().for_each(|held| give_back(mm, held));
        if let Some(at) = results.iter().position(|&result| result == Err(Error::OutOfMemory)) {
            refused.set(true);
            for (step, result) in steps.iter().zip(&mut results).skip(at) {
                // Those behind it were done meanwhile, or refused for that.
                *result = if *result == Ok(()) { Ok(()) } else { step(mm, scene) };
            }
        }
        [results, vec![]]
    });
    (seen, refused.get())
}

/// Each operation with less and less memory: it is refused and nothing is lost or left behind, and later it works. Returns how often it was refused.
fn with_less_memory((part, parts): (usize, usize)) -> u32 {
    let mut times = 0;
    // A large page needs more than all that is given back here: `collapse.rs` has that.
    let all = SCENES.iter().flat_map(|scene| operations(scene).map(move |operation| (scene, operation)));
    let all = all.filter(|(_, operation)| operation.0 != "collapse");
    for (scene, operation) in all.skip(part).step_by(parts) {
        let _case = Telling(format!("{}: {:?}", scene.0, operation.0));
        let (plenty, _) = with_frames("linux", scene.1, operation, 600);
        for frames in 0.. {
            let (short, refused) = with_frames("linux", scene.1, operation, frames);
            assert_eq!(short, plenty, "with {frames} frames");
            times += u32::from(refused);
            if !refused {
                break;
            }
        }
    }
    times
}

parts!(
    operations_that_run_out_of_memory_can_be_done_later,
    |part, parts| _ = with_less_memory((part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23
    ]
);

#[test]
fn some_operations_run_out_of_memory() {
    let mut times = 0;
    let often = (0..240).any(|part| {
        times += with_less_memory((part, 240));
        times > 4
    });
    assert!(often, "{times} were refused");
}
