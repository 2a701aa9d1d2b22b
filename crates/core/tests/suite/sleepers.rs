//! Whoever sleeps for a page is woken, at whatever step of his the page becomes free.

use crate::machine;

use machine::showing::{AT, mapped, shared};
use machine::{Host, Mm, Setup, bare};
use quietmm::addr::PAGE_SIZE;
use quietmm::{FileId, PageNumber, SpaceId, UserAccess};

fn stop(mm: &Mm<'_>) {
    if mm.platform().is_aside() {
        mm.platform().stop();
    }
}

/// A page of a file, which may be out, is being read or written out by CPU 1; it is done at each step of what CPU 0 does, which wants the page. Returns how many steps that has.
fn becomes_free(is_out: bool, busy: fn(&Mm<'_>, FileId), wants: fn(&Mm<'_>, SpaceId, FileId)) -> u32 {
    for n in 0.. {
        let host = Host::new(Setup { cpus: 2, frames: 256, ..Setup::default() });
        let placed = host.run(bare("linux"), |mm| {
            let file = mm.create_file(1).unwrap();
            mm.file(file).write(0, &[7; PAGE_SIZE as usize]).unwrap();
            let id = mapped(mm, shared(file), 1);
            if is_out {
                mm.file(file).write_back().unwrap();
                mm.drain_lru_batch();
                assert_eq!(mm.file(file).evict(0, 1), Ok(1));
            }
            host.sound_sleep.set(true);
            host.place();
            host.on_disk_write.borrow_mut().push_back(Box::new(stop));
            host.on_disk_read.borrow_mut().push_back(Box::new(stop));
            host.aside(
                1,
                || busy(mm, file),
                |works| {
                    assert!(host.resume_one(works), "the page is on its way");
                    host.aside(
                        0,
                        || wants(mm, id, file),
                        |wants| {
                            host.at_touch(0, n, stop);
                            host.resume_one(wants);
                            while host.resume_one(works) {}
                            while host.resume_one(wants) {}
                        },
                    );
                },
            );
            host.all_placed()
        });
        if !placed {
            return n;
        }
    }
    unreachable!("it ends");
}

fn reads(mm: &Mm<'_>, file: FileId) {
    assert_eq!(mm.file(file).read(0, &mut [0; 8]), Ok(8));
}

fn writes_back(mm: &Mm<'_>, file: FileId) {
    mm.file(file).write_back().unwrap();
}

#[test]
fn whoever_wants_a_page_that_is_being_read_is_woken_when_it_is() {
    let read = |mm: &Mm<'_>, _, file| assert_eq!(mm.file(file).read(0, &mut [0; 8]), Ok(8));
    let fault = |mm: &Mm<'_>, id, _| mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Read).unwrap();
    assert!(becomes_free(true, reads, read) > 5);
    assert!(becomes_free(true, reads, fault) > 5);
}

#[test]
fn whoever_wants_a_page_that_is_being_written_out_is_woken_when_it_is() {
    let write = |mm: &Mm<'_>, id, _| mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap();
    let cut = |mm: &Mm<'_>, _, file| mm.file(file).set_size(0).unwrap();
    assert!(becomes_free(false, writes_back, write) > 5);
    assert!(becomes_free(false, writes_back, |mm, _, file| writes_back(mm, file)) > 5);
    assert!(becomes_free(false, writes_back, cut) > 5);
}
