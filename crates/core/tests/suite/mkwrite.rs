//! A file system is asked before a page of its file can be written to through a shared mapping: each time anew once it was written out.

use std::sync::atomic::Ordering;

use crate::machine;

use machine::faults::{AT, TO, reclaim_all, run_in, showing_as};
use machine::race::{Place, at, at_every_touch, race};
use machine::showing::{entry, shared};
use machine::{Mm, Setup, bare, counted, pages, settled};
use quietmm::{Advice, Config, Counter, Error, FileId, PageNumber, Prot, Rule, SpaceId, Term, UserAccess};

fn setup() -> Setup {
    Setup { cpus: 3, frames: 512, ..Setup::default() }
}

fn config() -> Config {
    bare("linux")
}

fn without(rule: Rule) -> [Option<Rule>; 2] {
    [None, Some(rule)]
}

/// A space in which these CPUs run, with so many pages of a watched file, to which nobody writes but through mappings.
fn watched(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> (SpaceId, FileId) {
    let file = mm.create_file(count).unwrap();
    mm.file(file).watch_writes().unwrap();
    mm.platform().watched_file.set(Some(file));
    (showing_as(mm, shared(file), count, cpus), file)
}

/// How often the file system was asked since this was last called.
fn asked(mm: &Mm<'_>) -> usize {
    mm.platform().mkwrites.take().len()
}

fn may_write(mm: &Mm<'_>, id: SpaceId, page: u64) -> bool {
    entry(mm, id, page).permits(UserAccess::Write)
}

#[test]
fn a_file_system_is_asked_once_until_the_page_is_written_out() {
    for broken in without(Rule::AskBeforeWrite) {
        let seen = at(&setup(), &config(), broken, |mm| {
            let host = mm.platform();
            let (id, file) = watched(mm, 4, &[0, 1]);
            let other = showing_as(mm, shared(file), 4, &[2]);
            let mut seen = Vec::new();
            host.read(mm, id, AT).unwrap();
            seen.push((asked(mm), may_write(mm, id, AT)));
            host.write(mm, id, AT, 1).unwrap();
            host.on(1, || host.write(mm, id, AT, 2)).unwrap();
            host.on(2, || host.write(mm, other, AT, 3)).unwrap();
            seen.push((asked(mm), may_write(mm, id, AT)));
            assert_eq!(mm.file(file).write_back(), Ok(1));
            seen.push((asked(mm), may_write(mm, id, AT) || may_write(mm, other, AT)));
            // The first access is a write, and then it is reclaim that writes it out.
            host.on(2, || host.write(mm, other, AT + 1, 4)).unwrap();
            host.write(mm, id, AT, 5).unwrap();
            seen.push((asked(mm), true));
            mm.drain_lru_batch();
            host.on(2, || mm.drain_lru_batch());
            reclaim_all(mm);
            assert_eq!((host.on_disk(file, 0), host.on_disk(file, 1)), (Some(5), Some(4)));
            host.write(mm, id, AT, 6).unwrap();
            seen.push((asked(mm), true));
            assert_eq!(mm.file(file).write_back(), Ok(1));
            (seen, host.unasked.get())
        });
        let sound = (vec![(0, false), (1, true), (0, false), (2, true), (1, true)], 0);
        assert_eq!(seen == sound, broken.is_none(), "{broken:?}: {seen:?}");
    }
}

#[test]
fn a_file_that_is_not_watched_costs_no_fault_and_no_question() {
    at(&setup(), &config(), None, |mm| {
        let file = mm.create_file(4).unwrap();
        let id = showing_as(mm, shared(file), 4, &[0]);
        mm.platform().read(mm, id, AT).unwrap();
        let faults = counted(mm, Counter::PgFault);
        mm.platform().write(mm, id, AT, 1).unwrap();
        assert_eq!((counted(mm, Counter::PgFault), asked(mm)), (faults, 0));
        assert_eq!(counted(mm, Counter::MkwriteAsked), 0);
    });
}

#[test]
fn what_the_file_system_refuses_is_an_error_and_nothing_else() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let (id, file) = watched(mm, 4, &[0]);
        host.refuse_mkwrite.set(true);
        for page in [AT, AT + 1] {
            if page == AT {
                host.read(mm, id, page).unwrap();
            }
            let before = entry(mm, id, page);
            assert_eq!(host.write(mm, id, page, 1), Err(Error::WriteRefused(PageNumber(page))));
            assert_eq!(entry(mm, id, page), before);
            assert_eq!(host.read(mm, id, page), Ok(0), "what is there can be read");
        }
        assert_eq!(mm.file(file).write_back(), Ok(0));
        assert_eq!((asked(mm), counted(mm, Counter::MkwriteRefused)), (2, 2));
        // Its own calls are not asked for.
        assert_eq!(mm.file(file).write(8, &[1]), Ok(1));
        assert_eq!(asked(mm), 0);
        host.refuse_mkwrite.set(false);
        host.write(mm, id, AT + 1, 2).unwrap();
        assert_eq!((asked(mm), host.read(mm, id, AT + 1)), (1, Ok(2)));
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn a_file_is_watched_before_anybody_maps_it() {
    at(&setup(), &config(), None, |mm| {
        let file = mm.create_file(1).unwrap();
        let id = showing_as(mm, shared(file), 1, &[0]);
        assert_eq!(mm.file(file).watch_writes(), Err(Error::Busy));
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        assert_eq!(mm.file(file).watch_writes(), Ok(()));
        mm.file(file).destroy().unwrap();
        assert_eq!(mm.file(file).watch_writes(), Err(Error::NoSuchFile));
        // Its slot is the next one's, which is not.
        let next = mm.create_file(1).unwrap();
        mm.space(id).map(pages(AT, 1), shared(next), Prot::ReadWrite).unwrap();
        mm.platform().write(mm, id, AT, 1).unwrap();
        assert_eq!(asked(mm), 0);
    });
}

/// Something after which the page can be written to at the address that it returns.
type Way = fn(&Mm<'_>, SpaceId) -> u64;

const WAYS: [(&str, Way); 8] = [
    ("a fault", |_, _| AT),
    ("rights taken and given", |mm, id| {
        mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
        mm.space(id).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
        AT
    }),
    ("all rights taken and given", |mm, id| {
        mm.space(id).protect(pages(AT, 1), Prot::None).unwrap();
        mm.space(id).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
        AT
    }),
    ("a fork", |mm, id| {
        let child = mm.space(id).fork().unwrap();
        mm.space(child).switch_to().unwrap();
        AT
    }),
    ("a move", |mm, id| {
        mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap();
        TO
    }),
    ("a migration", |mm, id| {
        mm.space(id).migrate(pages(AT, 1), quietmm::NodeId(0)).unwrap();
        AT
    }),
    ("a drop", |mm, id| {
        mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
        mm.platform().read(mm, id, AT).unwrap();
        AT
    }),
    ("another mapping", |mm, id| {
        let file = mm.platform().watched_file.get().unwrap();
        mm.space(id).map(pages(TO, 1), shared(file), Prot::ReadWrite).unwrap();
        TO
    }),
];

#[test]
fn no_way_to_the_right_to_write_goes_around_the_file_system() {
    for (name, way) in WAYS {
        for clean in [false, true] {
            at(&setup(), &config(), None, |mm| {
                let host = mm.platform();
                let (id, file) = watched(mm, 1, &[0, 1]);
                host.write(mm, id, AT, 1).unwrap();
                if clean {
                    mm.file(file).write_back().unwrap();
                }
                asked(mm);
                let page = way(mm, id);
                host.write(mm, mm.loaded_space().unwrap(), page, 2).unwrap();
                assert_eq!(asked(mm), usize::from(clean), "{name}, clean: {clean}");
                assert_eq!((mm.file(file).write_back(), host.unasked.get()), (Ok(1), 0), "{name}");
                run_in(mm, id, &[0]);
            });
        }
    }
}

/// CPU 0 does something and CPU 1 writes the file back in the midst of it, and once more; in how many cases a page was written to
/// without leave.
fn written_back_under(broken: Option<Rule>, work: fn(&Mm<'_>, SpaceId) -> u64) -> usize {
    let cases = at_every_touch(&setup(), &config(), broken, |mm, place| {
        let (id, file) = watched(mm, 1, &[0, 2]);
        let host = mm.platform();
        host.write(mm, id, AT, 1).unwrap();
        let page = std::cell::Cell::new(AT);
        race(mm, place, || page.set(work(mm, id)), || mm.file(file).write_back().unwrap());
        host.on(2, || host.write(mm, id, page.get(), 3)).unwrap();
        mm.file(file).write_back().unwrap();
        assert_eq!((host.on_disk(file, 0), host.torn.get()), (Some(3), 0));
        if broken.is_none() {
            settled(mm);
        }
        host.unasked.get()
    });
    cases.count(|&unasked| unasked > 0)
}

#[test]
fn a_page_that_is_written_out_while_somebody_writes_to_it_is_asked_for_again() {
    let writes = |mm: &Mm<'_>, id| {
        for value in 10..13 {
            mm.platform().write(mm, id, AT, value).unwrap();
        }
        AT
    };
    assert_eq!(written_back_under(None, writes), 0);
    assert!(written_back_under(Some(Rule::AskBeforeWrite), writes) > 0);
}

#[test]
fn a_page_that_is_written_out_while_it_moves_is_asked_for_again() {
    let moves: Way = |mm, id| {
        mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap();
        TO
    };
    assert_eq!(written_back_under(None, moves), 0);
    assert!(written_back_under(Some(Rule::MovedIsReadOnly), moves) > 0);
}

/// While the file system is asked others do this; then what the write said.
fn while_asked(does: fn(&Mm<'_>, SpaceId, FileId)) -> (Result<(), Error>, usize) {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let (id, file) = watched(mm, 2, &[0, 1]);
        host.place();
        host.patient.set(true);
        let result = std::cell::Cell::new(Ok(()));
        host.on_mkwrite.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
        host.aside(
            0,
            || result.set(host.write(mm, id, AT + 1, 7)),
            |_| {
                host.resume();
                host.on(1, || does(mm, id, file));
            },
        );
        host.all_placed();
        assert_eq!(settled(mm).broken, None);
        (result.get(), asked(mm))
    })
}

#[test]
fn all_is_looked_at_again_once_the_file_system_has_answered() {
    assert_eq!(while_asked(|_, _, _| {}), (Ok(()), 1));
    // The VMAs were let go meanwhile.
    let unmapped = while_asked(|mm, id, _| mm.space(id).unmap(pages(AT, 2)).unwrap());
    assert_eq!(unmapped, (Err(Error::NotMapped(PageNumber(AT + 1))), 1));
    let read_only = while_asked(|mm, id, _| mm.space(id).protect(pages(AT, 2), Prot::Read).unwrap());
    assert_eq!(read_only, (Err(Error::NotPermitted(PageNumber(AT + 1))), 1));
    let ended = while_asked(|mm, id, file| {
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        mm.file(file).destroy().unwrap();
    });
    assert_eq!(ended, (Err(Error::NotMapped(PageNumber(AT + 1))), 1));
    // These wait for the answer: the page is locked.
    let shorter = while_asked(|mm, id, file| {
        mm.file(file).set_size(4096).unwrap();
        assert_eq!(mm.platform().write(mm, id, AT + 1, 8), Err(Error::BeyondFile));
    });
    assert_eq!(shorter, (Ok(()), 1));
    let hole = while_asked(|mm, id, file| {
        mm.file(file).punch_hole(4096, 4096).unwrap();
        assert_eq!(mm.platform().read(mm, id, AT + 1), Ok(0));
        // It is another page now.
        mm.platform().write(mm, id, AT + 1, 8).unwrap();
    });
    assert_eq!(hole, (Ok(()), 2));
}

#[test]
fn a_page_that_is_cut_off_while_somebody_writes_to_it_is_asked_for_again() {
    let counting = Config { dirty_limit: 1000, ..config() };
    for cut in [
        |mm: &Mm<'_>, file| mm.file(file).punch_hole(0, 4096).unwrap(),
        |mm: &Mm<'_>, file| {
            mm.file(file).set_size(0).unwrap();
            mm.file(file).set_size(4096).unwrap();
        },
    ] {
        let cases = at_every_touch(&setup(), &counting, None, |mm, place: Place| {
            let (id, file) = watched(mm, 1, &[0, 2]);
            let host = mm.platform();
            let write = || assert!(matches!(host.write(mm, id, AT, 7), Ok(()) | Err(Error::BeyondFile)));
            race(mm, place, write, || cut(mm, file));
            let held = host.read(mm, id, AT).unwrap();
            host.on(2, || host.write(mm, id, AT, 8)).unwrap();
            mm.file(file).write_back().unwrap();
            assert_eq!(mm.dirty_pages(), 0, "what was cut off counts no more");
            (held, asked(mm), host.unasked.get())
        });
        assert_eq!(cases.count(|&(_, asked, unasked)| asked == 0 || unasked > 0), 0);
        assert!(cases.count(|&(held, ..)| held == 0) > 0 && cases.count(|&(held, ..)| held == 7) > 0);
    }
}

#[test]
fn two_who_write_to_one_page_ask_once() {
    let cases = at_every_touch(&setup(), &config(), None, |mm, place: Place| {
        let (id, file) = watched(mm, 1, &[0, 1]);
        let host = mm.platform();
        let write = |value| move || host.write(mm, id, AT, value).unwrap();
        race(mm, place, write(1), write(2));
        mm.file(file).write_back().unwrap();
        (asked(mm), host.unasked.get())
    });
    // Also where both came before the first was answered.
    assert_eq!(cases.count(|&(asked, unasked)| asked != 1 || unasked > 0), 0);
}

/// A device that has a page pinned writes to it after it was written out.
#[test]
fn what_a_device_may_write_to_is_asked_for_again_as_soon_as_it_is_written_out() {
    for refuse in [false, true] {
        at(&setup(), &config(), None, |mm| {
            let host = mm.platform();
            let (id, file) = watched(mm, 40, &[0]);
            (0..40).for_each(|page| host.write(mm, id, AT + page, page + 1).unwrap());
            let pin = |page, access| mm.space(id).pin(pages(AT + page, 1), access, Term::Short).unwrap();
            // The second is only read; both the first and the last of those that go together are written to, and one of the next.
            let pins = [
                (0, UserAccess::Write),
                (1, UserAccess::Read),
                (31, UserAccess::Write),
                (33, UserAccess::Write),
            ]
            .map(|(page, access)| pin(page, access));
            assert_eq!(asked(mm), 40);
            host.refuse_mkwrite.set(refuse);
            assert_eq!(mm.file(file).write_back(), Ok(40));
            let again: Vec<u64> = host.mkwrites.take().iter().map(|&(_, index)| index).collect();
            assert_eq!(again, [0, 1, 31, 33]);
            host.refuse_mkwrite.set(false);
            if !refuse {
                for pins in &pins {
                    host.word(pins.frames()[0], 0).store(77, Ordering::SeqCst);
                }
                pins.into_iter().for_each(|pins| mm.unpin(pins));
                assert_eq!(mm.file(file).write_back(), Ok(4));
                assert_eq!((host.on_disk(file, 31), host.unasked.get(), asked(mm)), (Some(77), 0, 0));
                // Nobody has it pinned any more: it is clean.
                assert_eq!(mm.file(file).write_back(), Ok(0));
            } else {
                pins.into_iter().for_each(|pins| mm.unpin(pins));
            }
            assert_eq!(settled(mm).broken, None);
        });
    }
}

/// Of a page that is pinned the file system is asked anew because it is clean: not of one that its device did not take.
#[test]
fn what_a_device_may_write_to_and_was_not_written_out_is_not_asked_for_again() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let (id, file) = watched(mm, 40, &[0]);
        (0..40).for_each(|page| host.write(mm, id, AT + page, page + 1).unwrap());
        let pins = [2, 5, 30, 31, 32, 39]
            .map(|page| mm.space(id).pin(pages(AT + page, 1), UserAccess::Write, Term::Short).unwrap());
        assert_eq!(asked(mm), 40);
        host.refuse_writes.set(Some(|_, block| {
            [2, 31, 32].contains(&block).then_some(quietmm::platform::DeviceError::Failed)
        }));
        assert_eq!(mm.file(file).write_back(), Err(Error::Device));
        let again: Vec<u64> = host.mkwrites.take().iter().map(|&(_, index)| index).collect();
        assert_eq!(again, [5, 30, 39]);
        host.refuse_writes.set(None);
        pins.into_iter().for_each(|pins| mm.unpin(pins));
        // Three that were not taken, and three that their device may have written to.
        assert_eq!(mm.file(file).write_back(), Ok(6));
        assert_eq!((mm.file(file).write_back(), host.unasked.get()), (Ok(0), 0));
    });
}

/// A CPU began to write while it might, and ended before the page was written out: what it wrote is on the device, and whatever is done
/// with the entry afterwards, which is dirty, the page is as it is there.
#[test]
fn what_was_written_out_is_not_dirty_again_because_an_entry_is() {
    let ways: [Way; 4] = [
        |mm, id| {
            mm.space(id).unmap(pages(AT, 1)).unwrap();
            AT
        },
        |mm, id| {
            mm.space(id).protect(pages(AT, 1), Prot::None).unwrap();
            AT
        },
        |mm, id| {
            mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap();
            TO
        },
        |mm, id| {
            mm.space(id).advise(pages(AT, 1), quietmm::Advice::Drop).unwrap();
            AT
        },
    ];
    for (n, way) in ways.into_iter().enumerate() {
        at(&setup(), &config(), None, |mm| {
            let (host, (id, file)) = (mm.platform(), watched(mm, 1, &[0, 1]));
            mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap();
            assert!(host.on(1, || host.begin_write(AT, 7)), "it may write, and has not yet");
            assert_eq!((mm.file(file).write_back(), host.on_disk(file, 0)), (Ok(1), Some(7)));
            let entry = entry(mm, id, AT);
            assert!(!entry.permits(UserAccess::Write) && entry.has(quietmm::Entry::DIRTY), "{entry:?}");
            way(mm, id);
            assert_eq!((mm.file(file).write_back(), host.unasked.get()), (Ok(0), 0), "way {n}");
        });
    }
}
