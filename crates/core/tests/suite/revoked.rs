//! What a machine is told that programs cannot use any more: of each operation what it takes away, where, and once.

use crate::machine;

use machine::showing::{ANON, AT, TO, private, shared};
use machine::swapping::{DEVICE, swapping};
use machine::{Happened, Host, Mm, Setup, bare, pages};
use quietmm::event::Revoked;
use quietmm::{Advice, Backing, Config, Event, PageNumber, PageRange, Prot, SpaceId};

const COUNT: u64 = 8;

/// What the machine was told since it forgot, and of which space.
pub fn told(host: &Host) -> Vec<(SpaceId, PageRange, Revoked)> {
    let log = host.log.borrow();
    let one = |what: &Happened| match *what {
        Happened::Event(Event::Revoked { space, range, what, .. }) => Some((space, range, what)),
        _ => None,
    };
    log.iter().filter_map(one).collect()
}

type Op = fn(&Mm<'_>, SpaceId);

/// Does this in a space in which both CPUs have everything cached; says what was taken away.
fn takes(backing: fn(&Mm<'_>) -> Backing, prot: Prot, op: Op) -> Told {
    let host = &Host::new(Setup { cpus: 2, frames: 1024, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, COUNT), backing(mm), prot).unwrap();
        for cpu in [1, 0] {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                (AT..AT + COUNT).for_each(|page| assert!(host.read(mm, id, page).is_ok()));
            });
        }
        host.forget();
        op(mm, id);
        let told = told(host);
        assert!(told.iter().all(|one| one.0 == id));
        // What gives way in between tells of parts, one after the other.
        told.into_iter().fold(Vec::new(), |mut parts: Told, (_, range, what)| {
            match parts.last_mut() {
                Some((last, same)) if last.end() == range.start && *same == what => last.pages += range.pages,
                _ => parts.push((range, what)),
            }
            parts
        })
    })
}

fn anonymous(_: &Mm<'_>) -> Backing {
    ANON
}

/// What is told, in order.
type Told = Vec<(PageRange, Revoked)>;

fn of_a_file(mm: &Mm<'_>) -> Backing {
    shared(mm.create_file(COUNT).unwrap())
}

fn copies(mm: &Mm<'_>) -> Backing {
    private(mm.create_file(COUNT).unwrap())
}

#[test]
fn what_an_operation_takes_away_is_told_once() {
    let all = |at, count| vec![(pages(at, count), Revoked::All)];
    let ops: [(&str, Op, Told); 7] = [
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, COUNT)).unwrap(), all(AT, COUNT)),
        ("unmap a part", |mm, id| mm.space(id).unmap(pages(AT + 2, 3)).unwrap(), all(AT + 2, 3)),
        ("drop", |mm, id| mm.space(id).advise(pages(AT + 1, 6), Advice::Drop).unwrap(), all(AT + 1, 6)),
        (
            "move",
            |mm, id| mm.space(id).move_range(pages(AT + 1, 2), quietmm::PageNumber(TO)).unwrap(),
            all(AT + 1, 2),
        ),
        ("protect from all", |mm, id| mm.space(id).protect(pages(AT, 3), Prot::None).unwrap(), all(AT, 3)),
        ("map elsewhere", |mm, id| mm.space(id).map(pages(TO, COUNT), ANON, Prot::Read).unwrap(), vec![]),
        (
            "populate",
            |mm, id| mm.space(id).populate(pages(AT, COUNT), quietmm::UserAccess::Read).unwrap(),
            vec![],
        ),
    ];
    for backing in [anonymous, of_a_file, copies] {
        for (name, op, expected) in &ops {
            assert_eq!(&takes(backing, Prot::ReadWrite, *op), expected, "{name}");
        }
    }
}

#[test]
fn rights_that_go_are_told_of_and_no_others() {
    let part = pages(AT + 1, 5);
    let (writes, executes) = ((part, Revoked::Writes), (part, Revoked::Execution));
    let to_read: Op = |mm, id| mm.space(id).protect(pages(AT + 1, 5), Prot::Read).unwrap();
    let to_write: Op = |mm, id| mm.space(id).protect(pages(AT + 1, 5), Prot::ReadWrite).unwrap();
    let to_execute: Op = |mm, id| mm.space(id).protect(pages(AT + 1, 5), Prot::ReadExecute).unwrap();
    let to_both: Op = |mm, id| mm.space(id).protect(pages(AT + 1, 5), Prot::ReadWriteExecute).unwrap();
    for backing in [anonymous, of_a_file, copies] {
        let takes = |prot, op| takes(backing, prot, op);
        assert_eq!(takes(Prot::ReadWrite, to_read), [writes]);
        assert_eq!(takes(Prot::ReadWriteExecute, to_read), [writes, executes]);
        assert_eq!(takes(Prot::ReadWriteExecute, to_execute), [writes]);
        assert_eq!(takes(Prot::ReadWriteExecute, to_write), [executes]);
        assert_eq!(takes(Prot::ReadExecute, to_write), [executes]);
        for op in [to_write, to_both] {
            assert_eq!(takes(Prot::Read, op), []);
            assert_eq!(takes(Prot::ReadWrite, op), []);
        }
    }
}

/// What a drop leaves alone may come meanwhile, and is not to be told of; what reclaim took before was there.
#[test]
fn a_drop_tells_of_what_was_there_and_of_nothing_else() {
    let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
    host.run(Config { resched_after: 1 << 12, lru_batch: 1, ..swapping("linux") }, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, COUNT), ANON, Prot::ReadWrite).unwrap();
        [1, 0].iter().for_each(|&cpu| host.on(cpu, || mm.space(id).switch_to().unwrap()));
        (AT..AT + COUNT).filter(|&page| page != AT + 3).for_each(|page| host.write(mm, id, page, 1).unwrap());
        mm.space(id).advise(pages(AT + 6, 2), Advice::Free).unwrap();
        mm.space(id).advise(pages(AT + 6, 2), Advice::PageOut).unwrap();
        let gone = mm.space(id).lookup(PageNumber(AT + 6)).unwrap();
        assert!(!gone.is_present() && !gone.is_swapped(), "{gone:?}");
        host.forget();
        mm.space(id).advise(pages(AT, COUNT), Advice::Drop).unwrap();
        let parts = [(AT, 3), (AT + 4, 4)].map(|(at, count)| (id, pages(at, count), Revoked::All));
        assert_eq!(told(&host), parts);
    });
}

/// What both have from then on neither may write to; a file's pages they share as before.
#[test]
fn a_fork_takes_the_right_to_write_from_what_is_not_shared() {
    let fork: Op = |mm, id| _ = mm.space(id).fork().unwrap();
    let whole = (pages(AT, COUNT), Revoked::Writes);
    assert_eq!(takes(anonymous, Prot::ReadWrite, fork), [whole]);
    assert_eq!(takes(copies, Prot::ReadWrite, fork), [whole]);
    assert_eq!(takes(of_a_file, Prot::ReadWrite, fork), []);
}
