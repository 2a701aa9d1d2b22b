//! Pages are cut off a file while others use them, or are about to.

use crate::machine;

use std::cell::Cell;

use machine::faults::{AT, read_all, reclaim_all, run_in, showing, showing_as, write_first};
use machine::race::{Cases, Place, at, at_every_touch, at_places, race};
use machine::showing::frame;
use machine::{Mm, Setup, bare, settled};
use quietmm::platform::Memory;
use quietmm::{Backing, Config, Error, FileId, Rule, SpaceId};

const PAGE: u64 = 4096;

fn setup() -> Setup {
    Setup { cpus: 3, frames: 512, ..Setup::default() }
}

fn config() -> Config {
    bare("linux")
}

/// What a program on CPU `cpu` reads at the first page.
fn shows(mm: &Mm<'_>, id: SpaceId, cpu: u16) -> Result<u64, Error> {
    let host = mm.platform();
    host.on(cpu, || host.read(mm, id, AT))
}

fn write_word(mm: &Mm<'_>, file: FileId, word: u64) {
    assert_eq!(mm.file(file).write(0, &word.to_ne_bytes()), Ok(8));
}

fn word(mm: &Mm<'_>, file: FileId) -> u64 {
    let mut word = [0; 8];
    assert_eq!(mm.file(file).read(0, &mut word), Ok(8));
    u64::from_ne_bytes(word)
}

/// A file of so many pages is emptied, and is as long as before.
fn emptied(mm: &Mm<'_>, file: FileId, count: u64) {
    mm.file(file).set_size(0).unwrap();
    mm.file(file).set_size(count * PAGE).unwrap();
}

fn without(rule: Rule) -> [Option<Rule>; 2] {
    [None, Some(rule)]
}

#[test]
fn what_is_cut_off_is_mapped_nowhere_and_costs_one_flush() {
    for broken in without(Rule::CutPagesAreUnmapped) {
        let seen = at(&setup(), &config(), broken, |mm| {
            let host = mm.platform();
            let (id, file) = showing(mm, 32, &[1, 2]);
            write_first(mm, id, 1, 7);
            read_all(mm, id, 2, 32);
            host.forget();
            mm.file(file).set_size(0).unwrap();
            let interrupts = [host.interrupts_to(1), host.interrupts_to(2)];
            let beyond = shows(mm, id, 2) == Err(Error::BeyondFile);
            mm.file(file).set_size(32 * PAGE).unwrap();
            write_word(mm, file, 9);
            (interrupts, beyond, [1, 2].map(|cpu| shows(mm, id, cpu)), host.on_disk(file, 0))
        });
        let sound = ([1, 1], true, [Ok(9), Ok(9)], None);
        assert_eq!(seen == sound, broken.is_none(), "{broken:?}: {seen:?}");
    }
}

/// A mapping may be longer than its file, and lie behind it: what the file gains later shows there, and what it loses does not.
#[test]
fn a_mapping_beyond_a_files_end_shows_what_the_file_gains() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let file = mm.create_file(1).unwrap();
        let id = showing_as(mm, Backing::File { file, offset: 0 }, 4, &[0, 1]);
        let other = showing_as(mm, Backing::Private { file, offset: 1 << 20 }, 2, &[2]);
        write_word(mm, file, 7);
        assert_eq!(shows(mm, id, 0), Ok(7));
        for page in AT + 1..AT + 4 {
            assert_eq!(host.read(mm, id, page), Err(Error::BeyondFile));
            assert_eq!(host.write(mm, id, page, 1), Err(Error::BeyondFile));
        }
        host.on(2, || assert_eq!(host.write(mm, other, AT, 1), Err(Error::BeyondFile)));
        assert_eq!(mm.file(file).cached_pages(), Ok(1), "whoever was refused has left nothing");
        mm.file(file).set_size(2 * PAGE + 8).unwrap();
        assert_eq!(mm.file(file).write(2 * PAGE, &9_u64.to_ne_bytes()), Ok(8));
        assert_eq!(
            [1, 2, 3].map(|page| host.read(mm, id, AT + page)),
            [Ok(0), Ok(9), Err(Error::BeyondFile)]
        );
        host.on(1, || assert_eq!(host.read(mm, id, AT + 2), Ok(9)));
        host.forget();
        mm.file(file).set_size(PAGE).unwrap();
        assert_eq!(host.interrupts_to(1), 1);
        host.on(1, || assert_eq!(host.read(mm, id, AT + 2), Err(Error::BeyondFile)));
        mm.file(file).set_size((1 << 20) * PAGE + 8).unwrap();
        host.on(2, || assert_eq!(host.write(mm, other, AT, 1), Ok(())));
        run_in(mm, id, &[2]);
        settled(mm);
    });
}

#[test]
fn pages_of_an_ended_file_that_wait_in_another_cpus_batch_add_up() {
    at(&setup(), &config(), None, |mm| {
        let file = mm.create_file(4).unwrap();
        mm.platform().on(1, || write_word(mm, file, 7));
        mm.file(file).destroy().unwrap();
        let audit = mm.validate();
        assert_eq!(
            (audit.broken, audit.file),
            (None, 1),
            "the page is CPU 1's until it looks through its batch"
        );
    });
}

/// Something done to a file, and something done with it.
type Cut = fn(&Mm<'_>, FileId);
type Use = fn(&Mm<'_>, SpaceId, FileId);

/// CPU 0's fault and what CPU 1 does to the file; then both see what is written to it.
fn fault_and(broken: Option<Rule>, cached: bool, does: Cut) -> Cases<bool> {
    at_every_touch(&setup(), &config(), broken, |mm, place| {
        let (id, file) = showing(mm, 2, &[0, 2]);
        if cached {
            // And mapped nowhere.
            write_word(mm, file, 7);
        }
        let host = mm.platform();
        let faults = || match host.read(mm, id, AT) {
            Ok(_) | Err(Error::BeyondFile) => {}
            Err(error) => panic!("{error:?}"),
        };
        race(mm, place, faults, || does(mm, file));
        write_word(mm, file, 9);
        let sound = [0, 2].iter().all(|&cpu| shows(mm, id, cpu) == Ok(9)) && host.stale.get() == 0;
        if broken.is_none() {
            settled(mm);
        }
        sound
    })
}

#[test]
fn a_fault_on_a_page_that_is_cut_off_does_not_map_it() {
    let cuts: [(&str, Cut); 2] = [
        ("emptied", |mm, file| emptied(mm, file, 2)),
        ("a hole", |mm, file| mm.file(file).punch_hole(0, PAGE).unwrap()),
    ];
    for (name, cut) in cuts {
        for cached in [false, true] {
            assert_eq!(fault_and(None, cached, cut).count(|sound| !sound), 0, "{name}, cached: {cached}");
        }
        assert!(fault_and(Some(Rule::LookForCut), true, cut).count(|sound| !sound) > 0, "{name}");
    }
}

/// CPU 0 cuts, and CPU 1 reads by its mapping and by copy, and writes, meanwhile.
fn cut_and_used(part: usize) {
    let uses: [(&str, Use); 4] = [
        ("reads", |mm, id, _| _ = mm.platform().read(mm, id, AT)),
        ("writes", |mm, id, _| _ = mm.platform().write(mm, id, AT, 5)),
        ("copies out", |mm, _, file| _ = mm.file(file).read(0, &mut [0; 8]).unwrap()),
        ("writes back", |mm, _, file| _ = mm.file(file).write_back().unwrap()),
    ];
    let (name, uses) = uses[part];
    let cases = at_every_touch(&setup(), &config(), None, |mm, place| {
        let (id, file) = showing(mm, 2, &[1, 2]);
        write_first(mm, id, 2, 7);
        race(mm, place, || emptied(mm, file, 2), || uses(mm, id, file));
        let content = word(mm, file);
        let same = [1, 2].iter().all(|&cpu| shows(mm, id, cpu) == Ok(content));
        // Nothing of what was there before.
        let sound = same && (content == 0 || content == 5) && mm.platform().stale.get() == 0;
        mm.file(file).write_back().unwrap();
        reclaim_all(mm);
        settled(mm);
        sound && word(mm, file) == content
    });
    assert!(cases.results.len() > 20 && cases.count(|sound| !sound) == 0, "{name}");
}

parts!(
    who_cuts_and_who_uses_the_file_meanwhile_leave_one_content,
    |part, parts| at_places((part / 4, parts / 4), || cut_and_used(part % 4)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11
    ]
);

/// While the device is about to forget the blocks of a hole CPU 1 reads the page.
#[test]
fn nothing_of_a_hole_is_read_before_the_device_knows_of_it() {
    for broken in without(Rule::ClosedWhileDiscarded) {
        let content = at(&setup(), &config(), broken, |mm| {
            let (id, file) = showing(mm, 2, &[1]);
            write_first(mm, id, 1, 7);
            mm.file(file).write_back().unwrap();
            let punches = || mm.file(file).punch_hole(0, 2 * PAGE).unwrap();
            race(mm, Place::Discard(0), punches, || _ = mm.platform().read(mm, id, AT).unwrap());
            [word(mm, file), shows(mm, id, 1).unwrap()]
        });
        assert_eq!(content, if broken.is_none() { [0; 2] } else { [7; 2] }, "{broken:?}");
    }
}

/// While the device reads the page CPU 1 copies something into it.
#[test]
fn nobody_writes_into_a_page_that_a_device_reads() {
    for broken in without(Rule::WriteLocksPage) {
        let torn = at(&setup(), &config(), broken, |mm| {
            let (id, file) = showing(mm, 2, &[2]);
            write_first(mm, id, 2, 7);
            let order = Cell::new(0);
            let writes_back = || {
                assert_eq!(mm.file(file).write_back(), Ok(1));
                order.set(order.get() + 1);
            };
            race(mm, Place::Write(0), writes_back, || write_word(mm, file, 8));
            assert_eq!(mm.file(file).write_back(), Ok(1));
            assert_eq!((word(mm, file), mm.platform().on_disk(file, 0)), (8, Some(8)));
            mm.platform().torn.get()
        });
        assert_eq!(torn, u32::from(broken.is_some()), "{broken:?}");
    }
}

/// CPU 0 makes the file longer by what it writes, within a page and over two borders, with a hole before it or none, while CPU 1 stores into the first
/// page that the file gains and reads the last.
fn longer(broken: Option<Rule>, (old, at): (u64, u64), memory: bool) -> Cases<bool> {
    at_every_touch(&setup(), &config(), broken, |mm, place| {
        let host = mm.platform();
        let file = if memory { mm.create_memory_file(1) } else { mm.create_file(1) }.unwrap();
        mm.file(file).set_size(old).unwrap();
        let id = showing_as(mm, Backing::File { file, offset: 0 }, 4, &[1]);
        let words: Vec<u8> = (at..at + 2 * PAGE).map(|byte| if byte % 8 == 0 { 7 } else { 0 }).collect();
        let meanwhile = || (host.write(mm, id, AT + 1, 5), host.read(mm, id, AT + 2));
        let writes = || assert_eq!(mm.file(file).write(at, &words), Ok(words.len()));
        let (stored, read) = race(mm, place, writes, meanwhile);
        let page = |page| host.on(1, || host.read(mm, id, AT + page).unwrap());
        // What is stored in a page that is shown stays, and what is read there was written.
        let first = if stored.is_ok() { 5 } else { 7 };
        let sound = matches!(stored, Ok(()) | Err(Error::BeyondFile))
            && matches!(read, Ok(7) | Err(Error::BeyondFile))
            && (page(1), page(2)) == (first, 7)
            && mm.file(file).size() == Ok(at + 2 * PAGE);
        if broken.is_none() {
            settled(mm);
        }
        sound
    })
}

#[test]
fn who_maps_a_file_that_becomes_longer_sees_what_is_written_there() {
    for memory in [false, true] {
        for ends in [(PAGE, PAGE), (PAGE, PAGE / 2 + 64), (64, PAGE), (64, 64)] {
            let cases = longer(None, ends, memory);
            assert!(
                cases.results.len() > 20 && cases.count(|sound| !sound) == 0,
                "{ends:?}, memory: {memory}"
            );
            let broken = longer(Some(Rule::ContentBeforeLength), ends, memory);
            assert!(broken.count(|sound| !sound) > 0, "{ends:?}, memory: {memory}");
        }
    }
}

/// Whatever the frame had before: of a part of a page, at its start, inside it and at its end.
#[test]
fn around_what_a_file_gains_by_a_write_are_zeros() {
    for (at, len) in [(PAGE, 100), (PAGE + 100, 200), (2 * PAGE - 50, 50), (2 * PAGE - 50, PAGE + 60)] {
        for memory in [false, true] {
            at_soiled(|mm| {
                let file = if memory { mm.create_memory_file(1) } else { mm.create_file(1) }.unwrap();
                let id = showing_as(mm, Backing::File { file, offset: 0 }, 4, &[0]);
                assert_eq!(mm.file(file).write(at, &vec![7; len as usize]), Ok(len as usize));
                for page in 1..(at + len).div_ceil(PAGE) {
                    mm.platform().read(mm, id, AT + page).unwrap();
                    let mut bytes = [1; PAGE as usize];
                    mm.platform().read_frame(frame(mm, id, AT + page), 0, &mut bytes);
                    for (byte, &shown) in (page * PAGE..).zip(&bytes) {
                        let want = if (at..at + len).contains(&byte) { 7 } else { 0 };
                        assert_eq!(shown, want, "byte {byte} after {len} at {at}, memory: {memory}");
                    }
                }
            });
        }
    }
}

/// On a machine whose memory is full of something.
fn at_soiled(case: impl FnOnce(&Mm<'_>)) {
    at(&Setup { soiled: true, ..setup() }, &config(), None, case);
}

#[test]
fn what_a_file_cannot_be_made_is_refused_and_changes_nothing() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let file = mm.create_file(2).unwrap();
        write_word(mm, file, 7);
        let most = (1 << 40) * PAGE;
        assert_eq!(mm.file(file).set_size(most + 1), Err(Error::BadRange));
        assert_eq!(mm.file(file).write(most, &[1]), Err(Error::BadRange));
        assert_eq!(mm.file(file).write(u64::MAX, &[1, 2]), Err(Error::BadRange));
        assert_eq!(mm.file(file).punch_hole(5, 0), Err(Error::BadRange));
        assert_eq!(mm.file(file).punch_hole(5, u64::MAX), Err(Error::BadRange));
        assert_eq!(mm.file(file).punch_hole(most, 1), Ok(()), "there is nothing");
        host.fail_discards.set(true);
        assert_eq!(mm.file(file).set_size(3 * PAGE), Err(Error::Device));
        assert_eq!(mm.file(file).write(2 * PAGE, &[1]), Err(Error::Device));
        host.fail_discards.set(false);
        assert_eq!((mm.file(file).size(), word(mm, file)), (Ok(2 * PAGE), 7));
        // Of the longest file only what is written takes memory.
        assert_eq!(mm.file(file).set_size(most), Ok(()));
        assert_eq!(mm.file(file).write(most - 8, &9_u64.to_ne_bytes()), Ok(8));
        let mut last = [0; 8];
        assert_eq!(mm.file(file).read(most - 8, &mut last), Ok(8));
        assert_eq!((u64::from_ne_bytes(last), word(mm, file), mm.file(file).cached_pages()), (9, 7, Ok(2)));
        mm.file(file).set_size(PAGE).unwrap();
        assert_eq!((word(mm, file), mm.file(file).cached_pages()), (7, Ok(1)));
        mm.file(file).destroy().unwrap();
        assert_eq!(mm.file(file).size(), Err(Error::NoSuchFile));
        assert_eq!(mm.file(file).set_size(1), Err(Error::NoSuchFile));
        assert_eq!(mm.file(file).punch_hole(0, 1), Err(Error::NoSuchFile));
        assert_eq!(mm.file(file).evict(0, 1), Err(Error::NoSuchFile));
        assert_eq!(mm.file(file).read(0, &mut last), Err(Error::NoSuchFile));
        assert_eq!(mm.file(file).write(0, &last), Err(Error::NoSuchFile));
        settled(mm);
    });
}

#[test]
fn what_is_clean_and_unused_leaves_memory_when_asked() {
    at(&setup(), &config(), None, |mm| {
        let (id, file) = showing(mm, 8, &[0, 1]);
        assert_eq!(mm.file(file).write(0, &[7; 8 * PAGE as usize]), Ok(8 * PAGE as usize));
        assert_eq!(mm.file(file).evict(0, 8), Ok(0), "all is dirty");
        mm.file(file).write_back().unwrap();
        read_all(mm, id, 0, 2);
        mm.platform().forget();
        assert_eq!(mm.file(file).evict(1, 3), Ok(2), "one of these is mapped");
        assert_eq!(mm.platform().interrupts(), 0);
        assert_eq!(mm.file(file).cached_pages(), Ok(6));
        assert_eq!(mm.file(file).evict(0, u64::MAX), Ok(4));
        let mut all = [0; 8 * PAGE as usize];
        assert_eq!(mm.file(file).read(0, &mut all), Ok(all.len()));
        assert!(all.iter().all(|&byte| byte == 7));
        settled(mm);
    });
}

/// Without memory for a batch each entry is flushed by itself.
#[test]
fn what_is_cut_off_goes_where_there_is_no_memory_for_a_batch() {
    let no_reserve = Config { min_free: Some(0), ..config() };
    at(&setup(), &no_reserve, None, |mm| {
        let (id, file) = showing(mm, 4, &[0, 1]);
        read_all(mm, id, 1, 4);
        // CPUs 1 and 2 keep the two batches that there are, and nothing is free.
        let other = mm.create_file(2).unwrap();
        assert_eq!(mm.file(other).read(0, &mut [0; 2 * PAGE as usize]), Ok(2 * PAGE as usize));
        for cpu in [1, 2] {
            assert_eq!(mm.platform().on(cpu, || mm.file(other).write_back()), Ok(0));
        }
        let held = machine::swapping::take_free(mm);
        mm.platform().forget();
        mm.file(file).set_size(0).unwrap();
        assert_eq!(mm.platform().interrupts_to(1), 4);
        assert_eq!(shows(mm, id, 1), Err(Error::BeyondFile));
        held.into_iter().for_each(|frames| mm.frames().free(frames));
        assert_eq!(mm.platform().stale.get(), 0);
        settled(mm);
    });
}

/// To the byte, and nothing beside it.
#[test]
fn a_hole_and_an_end_in_the_middle_of_a_page_are_exact() {
    at(&setup(), &config(), None, |mm| {
        let all = 3 * PAGE as usize;
        for (from, to) in [(100, 4246), (1, 2), (4095, 4097), (0, 4096), (4096, 8193), (4095, 12287)] {
            let file = mm.file(mm.create_file(3).unwrap());
            let (mut want, mut shows) = (vec![0xaa; all], vec![0; all]);
            assert_eq!(file.write(0, &want), Ok(all));
            file.punch_hole(from, to - from).unwrap();
            want[from as usize..to as usize].fill(0);
            assert_eq!(file.read(0, &mut shows), Ok(all));
            assert!(shows == want, "a hole from {from} to {to}");
            file.set_size(from).unwrap();
            file.set_size(all as u64).unwrap();
            want[from as usize..].fill(0);
            assert_eq!(file.read(0, &mut shows), Ok(all));
            assert!(shows == want, "an end at {from}");
            file.destroy().unwrap();
        }
    });
}

#[test]
fn what_is_let_go_of_is_told_to_the_device_and_needs_no_list() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let file = mm.create_file(4).unwrap();
        write_word(mm, file, 7);
        mm.file(file).write_back().unwrap();
        // On its way to a list, where this CPU has it.
        let told = std::rc::Rc::new(Cell::new(false));
        let tells = told.clone();
        host.on_forget.borrow_mut().push_back(Box::new(move |_| tells.set(true)));
        assert_eq!((mm.file(file).evict(0, 4), told.get()), (Ok(1), true));
        // What a file loses its device loses, too, when it loses it.
        assert_eq!(host.on_disk(file, 0), Some(7));
        mm.file(file).set_size(0).unwrap();
        assert_eq!(host.on_disk(file, 0), None);
        settled(mm);
    });
}

/// A page that cannot be read leaves the cache by itself, and is cut off meanwhile.
#[test]
fn a_page_that_cannot_be_read_and_is_cut_off_is_let_go_of_once() {
    let cases = at_every_touch(&setup(), &config(), None, |mm, place| {
        let host = mm.platform();
        let (id, file) = showing(mm, 2, &[0, 1]);
        host.fail_reads.set(true);
        let reads = || match host.read(mm, id, AT) {
            Err(Error::Device | Error::BeyondFile) => {}
            other => panic!("{other:?}"),
        };
        race(mm, place, reads, || mm.file(file).set_size(0).unwrap());
        host.fail_reads.set(false);
        mm.file(file).set_size(2 * PAGE).unwrap();
        assert_eq!(settled(mm).broken, None);
        write_word(mm, file, 9);
        [0, 1].map(|cpu| shows(mm, id, cpu)) == [Ok(9); 2] && mm.file(file).cached_pages() == Ok(1)
    });
    assert!(cases.results.len() > 20 && cases.count(|sound| !sound) == 0);
}

/// A device that does not let go of the blocks still has them: then nothing is cleared in the pages at the ends either.
#[test]
fn a_hole_that_the_device_refuses_clears_no_byte() {
    const HALF: u64 = PAGE / 2;
    at(&setup(), &config(), None, |mm| {
        let (host, file) = (mm.platform(), mm.create_file(4).unwrap());
        let all = |mm: &Mm<'_>| {
            let mut bytes = vec![0; 4 * PAGE as usize];
            assert_eq!(mm.file(file).read(0, &mut bytes), Ok(bytes.len()));
            bytes
        };
        mm.file(file).write(0, &[9; 4 * PAGE as usize]).unwrap();
        mm.file(file).write_back().unwrap();
        host.fail_discards.set(true);
        for (start, len) in [(HALF, 3 * PAGE), (0, PAGE + HALF), (HALF, PAGE + HALF)] {
            assert_eq!(mm.file(file).punch_hole(start, len), Err(Error::Device));
            assert!(all(mm).iter().all(|&byte| byte == 9), "{start} and {len} more");
        }
        host.fail_discards.set(false);
        mm.file(file).punch_hole(HALF, 3 * PAGE).unwrap();
        let is_gone = |at| (HALF..HALF + 3 * PAGE).contains(&at);
        assert!((0..).zip(all(mm)).all(|(at, byte)| byte == if is_gone(at) { 0 } else { 9 }));
    });
}

/// A page is looked for that another cuts off meanwhile, in a part of the tree that is made for it: what was made goes again.
#[test]
fn a_part_of_the_tree_for_a_page_that_was_cut_off_goes_again() {
    let cases = at_every_touch(&setup(), &config(), None, |mm, place| {
        let file = mm.create_file(1).unwrap();
        let id = showing_as(mm, Backing::File { file, offset: 2000 }, 1, &[0]);
        let host = mm.platform();
        mm.file(file).set_size(3000 * PAGE).unwrap();
        let free = settled(mm).free;
        let found = Cell::new(Ok(0));
        race(mm, place, || found.set(host.read(mm, id, AT)), || mm.file(file).set_size(PAGE).unwrap());
        assert!(matches!(found.get(), Ok(0) | Err(Error::BeyondFile)), "{found:?}");
        // But for the tables of the space.
        let tables = mm.space(id).usage().unwrap().tables - 1;
        assert_eq!(settled(mm).free + tables, free);
        found.get().is_ok()
    });
    assert!(cases.count(|&is_ok| is_ok) > 0 && cases.count(|&is_ok| !is_ok) > 0, "{:?}", cases.results);
}

/// A file that was longer grows again, and not as far: what it has kept is found where it was.
#[test]
fn a_file_that_grows_to_less_than_it_once_was_shows_what_it_kept() {
    at(&setup(), &config(), None, |mm| {
        let file = mm.create_file(2000).unwrap();
        write_word(mm, file, 7);
        [500, 600].iter().for_each(|pages| mm.file(file).set_size(pages * PAGE).unwrap());
        assert_eq!((word(mm, file), mm.file(file).cached_pages()), (7, Ok(1)));
        assert_eq!(mm.file(file).write(599 * PAGE, &[8; 8]), Ok(8));
        assert_eq!((word(mm, file), mm.file(file).cached_pages()), (7, Ok(2)));
        assert_eq!(settled(mm).broken, None);
    });
}

/// Files that just fill a tree of so many levels, and those that need one more: their first page and their last are two.
#[test]
fn the_first_and_the_last_page_of_a_file_are_two_however_long_it_is() {
    for pages in [2, 1023, 1024, 1025, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 30) + 1] {
        for grows in [false, true] {
            at(&setup(), &config(), None, |mm| {
                let file = mm.create_file(if grows { 1 } else { pages }).unwrap();
                write_word(mm, file, 1);
                mm.file(file).set_size(pages * PAGE).unwrap();
                let last = (pages - 1) * PAGE;
                assert_eq!(mm.file(file).write(last, &2_u64.to_ne_bytes()), Ok(8));
                let mut read = [0; 8];
                assert_eq!(mm.file(file).read(last, &mut read), Ok(8));
                assert_eq!((word(mm, file), u64::from_ne_bytes(read)), (1, 2), "{pages} pages");
                assert_eq!((mm.file(file).cached_pages(), settled(mm).broken), (Ok(2), None));
            });
        }
    }
}

/// Whoever looks for pages of a file finds those behind what is missing, also where a part of the tree begins with them.
#[test]
fn pages_behind_parts_of_the_tree_that_are_missing_are_found() {
    for indices in [&[1024][..], &[1023, 2048], &[1 << 20], &[5, 1024, 1 << 20, (1 << 20) + 1024]] {
        at(&setup(), &config(), None, |mm| {
            let file = mm.create_file((1 << 20) + 3000).unwrap();
            for index in indices {
                assert_eq!(mm.file(file).write(index * PAGE, &[1; 8]), Ok(8));
            }
            let count = indices.len() as u64;
            assert_eq!(mm.file(file).write_back(), Ok(count));
            assert_eq!(mm.file(file).evict(0, 1 << 30), Ok(count));
        });
    }
}

/// What a file that cannot be made longer, or in which no hole can be made, has in memory is nobody's but the cache's.
#[test]
fn a_change_that_a_device_refuses_keeps_no_page() {
    type Change = fn(&Mm<'_>, FileId) -> Result<(), Error>;
    // What is cut off for the hole has left memory by then.
    let changes: [(Change, u64); 2] = [
        (|mm, file| mm.file(file).set_size(5 * PAGE), 2),
        (|mm, file| mm.file(file).punch_hole(PAGE / 2, 3 * PAGE), 1),
    ];
    for (change, left) in changes {
        at(&setup(), &config(), None, |mm| {
            let file = mm.create_file(2).unwrap();
            mm.file(file).write(0, &[1; 2 * PAGE as usize]).unwrap();
            mm.file(file).set_size(PAGE + 100).unwrap();
            mm.file(file).write_back().unwrap();
            mm.platform().fail_discards.set(true);
            assert_eq!(change(mm, file), Err(Error::Device));
            mm.platform().fail_discards.set(false);
            assert_eq!(mm.file(file).evict(0, 2), Ok(left));
        });
    }
}

/// The page at one end of a hole was found, and that at the other cannot be read: the first is the cache's alone again.
#[test]
fn a_hole_of_which_one_end_cannot_be_read_keeps_no_page() {
    at(&setup(), &config(), None, |mm| {
        let (host, file) = (mm.platform(), mm.create_file(4).unwrap());
        mm.file(file).write(0, &[1; 4 * PAGE as usize]).unwrap();
        mm.file(file).write_back().unwrap();
        assert_eq!(mm.file(file).evict(0, 4), Ok(4));
        host.refuse_reads
            .set(Some(|_, block| (block == 3).then_some(quietmm::platform::DeviceError::Failed)));
        assert_eq!(mm.file(file).punch_hole(PAGE / 2, 3 * PAGE), Err(Error::Device));
        host.refuse_reads.set(None);
        assert_eq!((mm.file(file).cached_pages(), mm.file(file).evict(0, 4)), (Ok(1), Ok(1)));
    });
}

/// A program writes first to a copy of a page that is cut off meanwhile, at every place: of a copy of what was there nothing is kept.
#[test]
fn a_copy_of_what_is_cut_off_meanwhile_is_not_kept() {
    let cases = at_every_touch(&setup(), &config(), None, |mm, place| {
        let host = mm.platform();
        let file = mm.create_file(2).unwrap();
        write_word(mm, file, 5);
        let id = showing_as(mm, Backing::Private { file, offset: 0 }, 2, &[0]);
        let write = || assert_eq!(host.write(mm, id, AT, 7), Ok(()));
        race(mm, place, write, || mm.file(file).punch_hole(0, PAGE).unwrap());
        assert_eq!((shows(mm, id, 0), word(mm, file)), (Ok(7), 0));
        let now = settled(mm);
        assert_eq!((now.broken, now.anon, now.mapped), (None, 1, 1));
        now.free
    });
    assert!(cases.results.len() > 30);
    assert!(cases.results.iter().all(|free| *free == cases.results[0]), "{:?}", cases.results);
}
