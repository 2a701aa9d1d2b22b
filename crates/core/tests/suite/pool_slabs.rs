//! Slabs of pools: how many stay with nothing in use, which go, and under which numbers others come. Counted in frames that the
//! core keeps for itself.

use crate::machine;

use machine::showing::ANON;
use machine::{Host, Mm, Setup, bare, pages};
use quietmm::{FileId, Prot, SpaceId};

const AT: u64 = 0x1000;

fn map(mm: &Mm<'_>, id: SpaceId, n: u64) {
    mm.space(id).map(pages(AT + 2 * n, 1), ANON, Prot::ReadWrite).unwrap();
}

fn pools(mm: &Mm<'_>) -> u64 {
    let audit = mm.validate();
    assert_eq!(audit.broken, None);
    audit.pools
}

/// So many mappings of one space come, and go from the last one on. Slabs that they needed, and by how many the pools shrink each time that
/// they do.
fn shrinks(cpus: u32, count: u64) -> (u64, Vec<u64>) {
    let host = Host::new(Setup { cpus, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        map(mm, id, 0);
        let first = pools(mm);
        (1..count).for_each(|n| map(mm, id, n));
        let mut last = pools(mm);
        let slabs = last - first;
        let mut steps = Vec::new();
        for n in (1..count).rev() {
            mm.space(id).unmap(pages(AT + 2 * n, 1)).unwrap();
            let now = pools(mm);
            steps.extend(last.checked_sub(now).filter(|&step| step > 0));
            last = now;
        }
        mm.space(id).destroy().unwrap();
        (slabs, steps)
    })
}

/// To ask all CPUs whether they read costs a line of each: the more there are, the more slabs go for it at once. One stays.
#[test]
fn slabs_that_others_may_read_go_when_there_are_enough_of_them() {
    for cpus in [1, 16, 79] {
        let (slabs, steps) = shrinks(cpus, 400);
        let enough = 1 + u64::from(cpus) / 16;
        assert!(slabs > 10, "{slabs}");
        assert_eq!(steps, vec![enough; (slabs as usize - 1) / enough as usize], "{cpus} CPUs");
    }
}

/// CPUs that have a batch each, two in a slab.
const CPUS: u16 = 2560;
/// Slabs that a directory names.
const NAMED: usize = 1024;

/// These CPUs take a batch, which they keep.
fn take(mm: &Mm<'_>, file: FileId, cpus: &[u16]) {
    for &cpu in cpus {
        mm.platform().on(cpu, || {
            let _ = mm.cpu_online();
            assert_eq!(mm.file(file).write_back(), Ok(0));
        });
    }
}

/// They give it back.
fn give(mm: &Mm<'_>, cpus: &[u16]) {
    cpus.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.cpu_offline()).unwrap());
}

/// Slabs of what nobody looks at unless it is in use go at once, but for one, and their directories with them; new ones come where the
/// first went. Were numbers not used again, or a directory not found missing, there would be more directories.
#[test]
fn slabs_and_directories_that_nobody_needs_go_and_the_lowest_numbers_are_used_again() {
    let host = Host::new(Setup { cpus: CPUS.into(), frames: 16 << 10, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let file = mm.create_file(1).unwrap();
        // CPUs 0 and 1 come last, and stay.
        let cpus: Vec<u16> = (2..CPUS).chain([0, 1]).collect();
        let all = cpus.len() / 2;
        let of = |slabs: std::ops::Range<usize>| &cpus[2 * slabs.start..2 * slabs.end];
        take(mm, file, of(0..1));
        let none = pools(mm) - 2;
        let check = |slabs: usize, directories: usize, what: &str| {
            assert_eq!((pools(mm) - none) as usize, slabs + directories, "{what}");
        };
        take(mm, file, of(1..all));
        check(all, 2, "each has one");
        // This one has nothing in use, and stays.
        give(mm, of(all - 2..all - 1));
        check(all, 2, "one stays");
        give(mm, of(NAMED..NAMED + 100));
        check(all - 100, 2, "the others go");
        // The one that stayed is taken first; no further directory is needed.
        take(mm, file, of(NAMED..NAMED + 100));
        check(all - 1, 2, "they come where they went");
        // However often.
        for _ in 0..9 {
            give(mm, of(NAMED..NAMED + 100));
            take(mm, file, of(NAMED..NAMED + 100));
        }
        check(all - 1, 2, "they come where they went, each time");
        give(mm, of(NAMED..NAMED + 1));
        give(mm, of(0..NAMED));
        check(all - 1 - NAMED, 1, "all of one directory went");
        give(mm, of(NAMED + 100..NAMED + 150));
        check(all - 1 - NAMED - 50, 1, "some of the other");
        take(mm, file, of(0..20));
        check(all - 2 - NAMED - 50 + 20, 2, "the lowest first: that is where no directory is");
        take(mm, file, of(20..NAMED));
        check(all - 2 - 50, 2, "all but those");
    });
}

/// Slabs that others may read go, and the directories that named them stay, for those that come next.
#[test]
fn directories_of_what_others_may_read_stay() {
    const PER_SLAB: u64 = 32;
    let host = Host::new(Setup { frames: 4096, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        let all = (NAMED as u64 + 4) * PER_SLAB;
        (0..all).for_each(|n| map(mm, id, n));
        let full = pools(mm);
        (1..all).for_each(|n| mm.space(id).unmap(pages(AT + 2 * n, 1)).unwrap());
        let audit = mm.validate();
        assert_eq!((audit.broken, audit.leaked), (None, 0));
        assert!(full - audit.pools > NAMED as u64);
        (1..all).for_each(|n| map(mm, id, n));
        assert_eq!(pools(mm), full);
    });
}
