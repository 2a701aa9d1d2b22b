//! Handles: they name what they were given for, and nothing that comes after it.

use crate::machine;

use std::cell::Cell;

use machine::race::{Cases, at_every_touch, race};
use machine::showing::ANON;
use machine::{Host, Mm, Setup, bare, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Store;
use quietmm::{
    Advice, Backing, Config, Error, FileId, NodeId, PageNumber, PageRange, Prot, ReadAhead, SpaceId, Term,
    UserAccess, VirtAddr,
};

const AT: u64 = 0x1000;

fn file(file: FileId) -> Backing {
    Backing::File { file, offset: 0 }
}

/// A space that has ended, and the one that has its slot now, with a page at `AT`.
fn reused(mm: &Mm<'_>) -> (SpaceId, SpaceId) {
    let old = mm.create_space().unwrap();
    mm.space(old).map(pages(AT, 1), ANON, Prot::ReadWrite).unwrap();
    mm.space(old).destroy().unwrap();
    let new = mm.create_space().unwrap();
    assert_eq!(new.index(), old.index(), "the test is about a slot that is used again");
    mm.space(new).map(pages(AT, 1), ANON, Prot::ReadWrite).unwrap();
    mm.space(new).switch_to().unwrap();
    mm.platform().write(mm, new, AT, 7).unwrap();
    (old, new)
}

/// Numbers that somebody made up name nothing but what lives: not a slot in which nothing does, nor one that there is not.
#[test]
fn numbers_name_what_their_handle_named_or_nothing() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let (old, new) = reused(mm);
        let named = |(index, life)| SpaceId::from_raw(index, life);
        assert_eq!((named(old.into_raw()), named(new.into_raw())), (Some(old), Some(new)));
        let (index, life) = new.into_raw();
        // The control: this one lives.
        assert!(mm.space(new).flush().is_ok());
        mm.space(new).destroy().unwrap();
        // Even numbers are those of a slot that is free, as this one is now; the last bit is the slot's own.
        for made_up in [0, life - 1, life + 1, life | 1 << 63] {
            assert_eq!(SpaceId::from_raw(index, made_up), None);
        }
        for (index, made_up) in [(index, life), (index, life + 2), (u32::MAX, 1), (1 << 20, 1)] {
            let space = SpaceId::from_raw(index, made_up).expect("a handle looks so");
            assert_eq!(mm.space(space).destroy(), Err(Error::NoSuchSpace));
            let file = FileId::from_raw(index, made_up).expect("a handle looks so");
            assert_eq!(mm.file(file).destroy(), Err(Error::NoSuchFile));
        }
    });
}

/// A slot that was used more than two thousand million times.
#[test]
fn the_number_of_a_file_counts_in_64_bits() {
    let lives = [1, (1 << 32) + 1, (1 << 33) + 1, (1 << 63) - 1];
    let files = lives.map(|life| FileId::from_raw(3, life).expect("a handle looks so"));
    assert_eq!(files.map(|file| file.into_raw().1), lives);
    assert!(files.is_sorted_by(|one, next| one < next));
}

#[test]
fn an_old_handle_does_not_reach_the_next_space() {
    let host = Host::new(Setup { nodes: 2, cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let (old, new) = reused(mm);
        assert_ne!(old, new);
        let (page, at) = (pages(AT, 1), VirtAddr(AT << 12));
        let gone = Err(Error::NoSuchSpace);
        assert_eq!(mm.space(old).fault(at, UserAccess::Read), gone);
        assert_eq!(mm.space(old).map(pages(AT + 1, 1), ANON, Prot::Read), gone);
        assert_eq!(mm.space(old).unmap(page), gone);
        assert_eq!(mm.space(old).protect(page, Prot::None), gone);
        assert_eq!(mm.space(old).move_range(page, PageNumber(AT + 9)), gone);
        assert_eq!(mm.space(old).advise(page, Advice::Drop), gone);
        assert_eq!(mm.space(old).migrate(page, NodeId(1)), Err(Error::NoSuchSpace));
        assert_eq!(mm.space(old).fork(), Err(Error::NoSuchSpace));
        assert_eq!(mm.space(old).lookup(PageNumber(AT)).map(drop), gone);
        assert_eq!(mm.space(old).flush_range(page), gone);
        assert_eq!(mm.space(old).flush(), gone);
        assert_eq!(mm.space(old).destroy(), gone);
        host.on(1, || assert_eq!(mm.space(old).switch_to(), gone));
        assert_eq!(mm.loaded_space(), Some(new), "the CPU says which of the two it has");
        // Nothing of it reached the new one; its own handle does.
        assert_eq!(host.read(mm, new, AT), Ok(7));
        mm.space(new).destroy().unwrap();
    });
}

#[test]
fn an_old_handle_does_not_reach_the_next_file() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let old = mm.create_file(4).unwrap();
        mm.file(old).destroy().unwrap();
        let new = mm.create_file(4).unwrap();
        assert_eq!(new.index(), old.index(), "the test is about a slot that is used again");
        let id = mm.create_space().unwrap();
        assert_eq!(mm.space(id).map(pages(AT, 4), file(old), Prot::Read), Err(Error::NoSuchFile));
        let private = Backing::Private { file: old, offset: 0 };
        assert_eq!(mm.space(id).map(pages(AT, 4), private, Prot::Read), Err(Error::NoSuchFile));
        assert_eq!(mm.file(old).cached_pages(), Err(Error::NoSuchFile));
        assert_eq!(mm.file(old).write_back(), Err(Error::NoSuchFile));
        assert_eq!(mm.file(old).destroy(), Err(Error::NoSuchFile));
        mm.space(id).map(pages(AT, 4), file(new), Prot::Read).unwrap();
    });
}

/// Handles are what the device is asked with, so one that forgets nothing does not mix up two files.
#[test]
fn the_device_tells_a_file_from_its_successor() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).switch_to().unwrap();
        let mut written = Vec::new();
        for value in 1..=3 {
            let f = mm.create_file(1).unwrap();
            mm.space(id).map(pages(AT, 1), file(f), Prot::ReadWrite).unwrap();
            assert_eq!(host.read(mm, id, AT), Ok(0), "a new file is zeros");
            host.write(mm, id, AT, value).unwrap();
            assert_eq!(mm.file(f).write_back(), Ok(1));
            mm.space(id).unmap(pages(AT, 1)).unwrap();
            mm.file(f).destroy().unwrap();
            written.push((f, value));
        }
        assert!(written.iter().all(|(f, _)| f.index() == written[0].0.index()));
        assert!(written.iter().all(|&(f, value)| host.kept(Store::File(f), 0) == Some(value)));
        settled(mm);
    });
}

/// Write-back of a file that ends in the middle, at every place, and whose slot another file has by then.
#[test]
fn write_back_does_not_go_on_with_the_next_file() {
    let setup = Setup { cpus: 2, ..Setup::default() };
    let Cases { results, .. } = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = mm.create_space().unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        let dirty = |file, value| {
            mm.space(id).map(pages(AT, 2), self::file(file), Prot::ReadWrite).unwrap();
            (AT..AT + 2).for_each(|page| host.write(mm, id, page, value).unwrap());
            mm.space(id).unmap(pages(AT, 2)).unwrap();
        };
        let old = mm.create_file(2).unwrap();
        host.on(1, || dirty(old, 1));
        let result = Cell::new(Ok(0));
        let (new, gone) = race(
            mm,
            place,
            || result.set(mm.file(old).write_back()),
            || {
                mm.file(old).destroy().unwrap();
                let new = mm.create_file(2).unwrap();
                dirty(new, 2);
                (new, result.get() == Ok(0))
            },
        );
        assert_eq!(host.kept(Store::File(new), 0), None, "{place:?}: nobody has asked for that");
        assert_eq!(mm.file(new).write_back(), Ok(2));
        // Both pages were dirty: what was not written went with the file.
        assert!(matches!(result.get(), Ok(1..=2) | Err(Error::NoSuchFile)), "{place:?}: {:?}", result.get());
        settled(mm);
        (new.index() == old.index() && gone, result.get())
    });
    let in_the_middle = results.iter().filter(|(reused, _)| *reused);
    assert!(in_the_middle.clone().count() > 10, "a new file in the old one's place");
    assert!(in_the_middle.clone().any(|(_, result)| *result == Err(Error::NoSuchFile)));
}

/// What is done with a file of two pages, and what it says: the length, or how many, or what is in its first page.
type Use = (&'static str, fn(&Mm<'_>, FileId) -> Result<u64, Error>);

fn first_word(read: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Result<u64, Error> {
    let mut bytes = [0; PAGE_SIZE as usize + 8];
    read(&mut bytes).map(|_| u64::from_ne_bytes(*bytes.first_chunk().unwrap()))
}

const USES: [Use; 14] = [
    ("read", |mm, file| first_word(|into| mm.file(file).read(0, into))),
    ("read ahead of", |mm, file| first_word(|into| mm.file(file).read_with(&ReadAhead::new(), 0, into))),
    ("write", |mm, file| mm.file(file).write(PAGE_SIZE - 4, &[9; 8]).map(|_| 0)),
    ("write behind the end", |mm, file| mm.file(file).write(2 * PAGE_SIZE - 4, &[9; 8]).map(|_| 0)),
    ("make shorter", |mm, file| mm.file(file).set_size(1).map(|()| 0)),
    ("make longer", |mm, file| mm.file(file).set_size(9 * PAGE_SIZE).map(|()| 0)),
    ("punch", |mm, file| mm.file(file).punch_hole(4, 2 * PAGE_SIZE).map(|()| 0)),
    ("evict", |mm, file| mm.file(file).evict(0, 9)),
    ("bring", |mm, file| mm.file(file).read_ahead(0, 9)),
    ("write back", |mm, file| mm.file(file).write_back()),
    ("write part back", |mm, file| mm.file(file).write_back_range(0, 1)),
    ("watch", |mm, file| mm.file(file).watch_writes().map(|()| 0)),
    ("count", |mm, file| mm.file(file).cached_pages()),
    ("measure", |mm, file| mm.file(file).size().map(|bytes| bytes / PAGE_SIZE)),
];

/// CPU 0 uses a file that ends meanwhile, at every place, and CPU 1 makes another in its slot, which is as if nobody had.
#[test]
fn whoever_uses_a_file_that_ends_does_nothing_to_the_next() {
    const SECOND: u64 = 1_000_000_000;
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    let config = Config { read_ahead: 8, lru_batch: 1, dirty_expire: 30 * SECOND, ..bare("linux") };
    for (name, uses) in USES {
        let Cases { results, .. } = at_every_touch(&setup, &config, None, |mm, place| {
            let host = mm.platform();
            let word = |file, page: u64, value: u64| {
                assert_eq!(mm.file(file).write(page * PAGE_SIZE, &value.to_ne_bytes()), Ok(8));
            };
            host.clock.set(SECOND);
            let old = mm.create_file(2).unwrap();
            word(old, 0, 1);
            let said = Cell::new(Ok(0));
            // Of its six pages three are in memory, and one is dirty.
            let next = race(
                mm,
                place,
                || said.set(uses(mm, old)),
                || {
                    mm.file(old).destroy().unwrap();
                    let next = mm.create_file(6).unwrap();
                    (0..2).for_each(|page| word(next, page, 7));
                    mm.file(next).write_back().unwrap();
                    word(next, 2, 7);
                    next
                },
            );
            assert!(matches!(said.get(), Ok(0..=2) | Err(Error::NoSuchFile)), "{name}: {said:?}");
            let next_is = (mm.file(next).size(), mm.file(next).cached_pages(), mm.dirty_pages());
            assert_eq!(next_is, (Ok(6 * PAGE_SIZE), Ok(3), 1), "{name}");
            assert_eq!(host.on_disk(next, 2), None, "{name}: nobody has asked for that");
            // By age it goes as any other.
            host.clock.set(32 * SECOND);
            assert_eq!((mm.flusher(), mm.dirty_pages()), (1, 0), "{name}");
            let kept = [0, 1, 2, 3].map(|page| host.on_disk(next, page));
            assert_eq!(kept, [Some(7), Some(7), Some(7), None], "{name}");
            // Nobody has asked for leave to write to it.
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(AT, 1), file(next), Prot::ReadWrite).unwrap();
            mm.space(id).switch_to().unwrap();
            host.write(mm, id, AT, 9).unwrap();
            assert_eq!(host.mkwrites.take(), [], "{name}");
            assert_eq!(settled(mm).broken, None, "{name}");
            (next.index() == old.index(), said.get())
        });
        assert!(results.iter().any(|(reused, _)| *reused), "{name}: a new file in the old one's place");
    }
}

/// A file is mapped while it ends, at every place: it is mapped and goes on, or it ends, and nothing is left of the mapping.
#[test]
fn a_file_that_ends_while_it_is_mapped_is_mapped_or_ends() {
    let setup = Setup { cpus: 2, frames: 96, ..Setup::default() };
    let config = Config { swap: true, ..bare("linux") };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(4).unwrap());
        let mapped = Cell::new(Ok(()));
        let maps = || {
            let backing = Backing::Private { file, offset: 0 };
            mapped.set(mm.space(id).map(pages(AT, 4), backing, Prot::Read));
        };
        let ended = race(mm, place, maps, || mm.file(file).destroy());
        match (mapped.get(), ended) {
            (Ok(()), Err(Error::Busy)) => mm.space(id).unmap(pages(AT, 4)).unwrap(),
            (Err(Error::NoSuchFile), Ok(())) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(settled(mm).broken, None);
        ended.is_ok()
    });
    assert!(cases.count(|&ended| ended) > 0 && cases.count(|&ended| !ended) > 0);
}

/// What may be done at `AT` with a space that has nothing there.
type SpaceUse = fn(&Mm<'_>, SpaceId) -> Result<(), Error>;
const HERE: PageRange = PageRange::new(PageNumber(AT), 1);
const SPACE_USES: [(&str, SpaceUse); 14] = [
    ("look up", |mm, id| {
        let entry = mm.space(id).lookup(PageNumber(AT))?;
        if entry.is_present() { Ok(()) } else { Err(Error::NotMapped(PageNumber(AT))) }
    }),
    ("count", |mm, id| mm.space(id).residency(HERE, &mut [0]).map(drop)),
    ("fault", |mm, id| mm.space(id).fault(VirtAddr(AT << 12), UserAccess::Read)),
    ("pin", |mm, id| mm.space(id).pin(HERE, UserAccess::Read, Term::Short).map(|pins| mm.unpin(pins))),
    ("unmap", |mm, id| mm.space(id).unmap(HERE)),
    ("protect", |mm, id| mm.space(id).protect(HERE, Prot::None)),
    ("move", |mm, id| mm.space(id).move_range(HERE, PageNumber(AT + 9))),
    ("remap", |mm, id| mm.space(id).remap(HERE, pages(AT, 2))),
    ("lock", |mm, id| mm.space(id).lock(HERE)),
    ("migrate", |mm, id| mm.space(id).migrate(HERE, NodeId(0)).map(drop)),
    ("drop", |mm, id| mm.space(id).advise(HERE, Advice::Drop)),
    ("free", |mm, id| mm.space(id).advise(HERE, Advice::Free)),
    ("page out", |mm, id| mm.space(id).advise(HERE, Advice::PageOut)),
    ("policy", |mm, id| mm.space(id).node_policy(PageNumber(AT)).map(drop)),
];

/// CPU 0 uses a space that ends meanwhile, at every place, and CPU 1 makes another in its slot, which is as if nobody had.
fn uses_of_a_space_that_ends(all: &[(&str, SpaceUse)]) {
    let setup = Setup { cpus: 2, frames: 128, ..Setup::default() };
    let config = Config { swap: true, lru_batch: 1, ..bare("linux") };
    for &(name, uses) in all {
        let Cases { results, .. } = at_every_touch(&setup, &config, None, |mm, place| {
            let host = mm.platform();
            let old = mm.create_space().unwrap();
            mm.space(old).map(pages(AT + 4, 1), ANON, Prot::ReadWrite).unwrap();
            let said = Cell::new(Ok(()));
            let ends = || {
                mm.space(old).destroy().ok()?;
                let next = mm.create_space().unwrap();
                mm.space(next).map(pages(AT, 1), ANON, Prot::ReadWrite).unwrap();
                mm.space(next).switch_to().unwrap();
                host.write(mm, next, AT, 7).unwrap();
                Some(next)
            };
            let next = race(mm, place, || said.set(uses(mm, old)), ends);
            assert!(matches!(said.get(), Err(Error::NotMapped(_) | Error::NoSuchSpace)), "{name}: {said:?}");
            let next = next.expect("nobody runs in it");
            let usage = mm.space(next).usage().unwrap();
            assert_eq!((usage.anon, mm.space(next).locked_pages()), (1, Ok(0)), "{name}");
            host.on(1, || assert_eq!(host.read(mm, next, AT), Ok(7), "{name}"));
            assert_eq!(settled(mm).broken, None, "{name}");
            (next.index() == old.index(), said.get() == Err(Error::NoSuchSpace))
        });
        assert!(results.contains(&(true, true)), "{name}: it has ended, and another has its place");
    }
}

#[test]
fn whoever_looks_at_a_space_that_ends_does_nothing_to_the_next() {
    uses_of_a_space_that_ends(&SPACE_USES[..4]);
}

#[test]
fn whoever_changes_a_space_that_ends_does_nothing_to_the_next() {
    uses_of_a_space_that_ends(&SPACE_USES[4..9]);
}

#[test]
fn whoever_advises_of_a_space_that_ends_does_nothing_to_the_next() {
    uses_of_a_space_that_ends(&SPACE_USES[9..]);
}

/// Handles name one life of a slot among more than 2^15: who comes 65,536 beginnings and ends later is another.
#[test]
fn a_group_of_long_ago_is_not_the_one_that_has_its_slot() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let first = mm.create_group(1).unwrap();
        mm.group(first).destroy().unwrap();
        for _ in 1..1 << 15 {
            mm.group(mm.create_group(1).unwrap()).destroy().unwrap();
        }
        let last = mm.create_group(1).unwrap();
        assert_eq!(mm.group(first).usage().err(), Some(Error::NoSuchGroup));
        assert!(first != last && mm.group(last).usage().is_ok());
    });
}
