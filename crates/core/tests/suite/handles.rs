//! Handles: they name what they were given for, and nothing that comes after it.

use crate::machine;

use std::cell::Cell;

use machine::race::{Cases, at_every_touch, race};
use machine::showing::ANON;
use machine::{Host, Mm, Setup, bare, pages, settled};
use quietmm::platform::Store;
use quietmm::{Advice, Backing, Error, FileId, NodeId, PageNumber, Prot, SpaceId, UserAccess, VirtAddr};

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
        assert!(matches!(result.get(), Ok(0..=2) | Err(Error::NoSuchFile)));
        settled(mm);
        (new.index() == old.index() && gone, result.get())
    });
    let in_the_middle = results.iter().filter(|(reused, _)| *reused);
    assert!(in_the_middle.clone().count() > 10, "a new file in the old one's place");
    assert!(in_the_middle.clone().any(|(_, result)| *result == Err(Error::NoSuchFile)));
}
