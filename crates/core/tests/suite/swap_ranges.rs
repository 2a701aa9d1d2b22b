//! Pages that are out, and what is done around them, with them at once, or when nobody needs them any more.

use crate::machine;

use machine::race::{at_every_touch, race};
use machine::swapping::{
    AT, DEVICE, end, is_out, read, reclaim, sound, squeeze, swapping, take_free, written,
};
use machine::{Happened, Host, Mm, Setup, give_back, pages, settled};
use quietmm::platform::Store;
use quietmm::{Advice, Counter, NodeId, PageNumber, Prot, SpaceId};

/// All pages of a space are out, or have their slots in memory. What is done to some in the middle leaves the others as they are.
#[test]
fn an_operation_on_a_range_leaves_what_is_out_around_it_alone() {
    type Operation = fn(&Mm<'_>, SpaceId);
    let operations: [(&str, Operation); 6] = [
        ("move", |mm, id| mm.space(id).move_range(pages(AT + 4, 4), PageNumber(AT + 0x2000)).unwrap()),
        ("migrate", |mm, id| _ = mm.space(id).migrate(pages(AT + 4, 4), NodeId(0)).unwrap()),
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT + 4, 4)).unwrap()),
        ("read-only", |mm, id| mm.space(id).protect(pages(AT + 4, 4), Prot::Read).unwrap()),
        ("none", |mm, id| mm.space(id).protect(pages(AT + 4, 4), Prot::None).unwrap()),
        ("drop", |mm, id| mm.space(id).advise(pages(AT + 4, 4), Advice::Drop).unwrap()),
    ];
    for (name, operation) in operations {
        for back in [false, true] {
            let host = Host::new(Setup { frames: 768, ..Setup::default() });
            host.run(swapping("linux"), |mm| {
                let id = written(mm, 512, 12);
                squeeze(mm);
                if back {
                    (AT..AT + 12).step_by(3).for_each(|page| assert_eq!(read(mm, id, page), Ok(page)));
                }
                let around = || (AT..AT + 4).chain(AT + 8..AT + 12);
                let before: Vec<_> = around().map(|page| mm.space(id).lookup(PageNumber(page))).collect();
                operation(mm, id);
                let after: Vec<_> = around().map(|page| mm.space(id).lookup(PageNumber(page))).collect();
                assert_eq!(before, after, "{name}");
                assert!(around().all(|page| read(mm, id, page) == Ok(page)), "{name}");
                if name == "move" {
                    assert!((0..4).all(|n| read(mm, id, AT + 0x2000 + n) == Ok(AT + 4 + n)));
                }
                sound(mm);
                end(mm, &[id], &[DEVICE]);
            });
        }
    }
}

/// Two CPUs come to a page that is out, the second while the first stands still.
#[test]
fn a_page_that_two_bring_back_at_once_comes_once() {
    let setup = Setup { cpus: 2, frames: 768, ..Setup::default() };
    type Second = fn(&Mm<'_>, SpaceId);
    let seconds: [Second; 2] = [
        |mm, id| assert_eq!(mm.platform().read(mm, id, AT), Ok(AT)),
        |mm, id| mm.space(id).unmap(pages(AT, 1)).unwrap(),
    ];
    for second in seconds {
        let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
            let host = mm.platform();
            let id = written(mm, 512, 1);
            host.on(1, || mm.space(id).switch_to().unwrap());
            squeeze(mm);
            assert!(is_out(mm, id, AT));
            let first = || _ = host.read(mm, id, AT).inspect(|&found| assert_eq!(found, AT));
            race(mm, place, first, || second(mm, id));
            sound(mm);
            assert!(settled(mm).anon <= 1);
            end(mm, &[id], &[DEVICE]);
        });
        assert!(cases.results.len() > 20, "{} cases", cases.results.len());
    }
}

/// A program lets go of its pages while reclaim has one in hand: nobody needs what was in it, and it goes nowhere.
#[test]
fn what_nobody_needs_any_more_is_not_written_out() {
    let setup = Setup { cpus: 2, frames: 768, ..Setup::default() };
    for shared in [false, true] {
        let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
            let host = mm.platform();
            let id = written(mm, 512, 1);
            let child = shared.then(|| mm.space(id).fork().unwrap());
            mm.drain_lru_batch();
            host.on(1, || mm.space(id).switch_to().unwrap());
            let held = take_free(mm);
            let goes = || {
                mm.space(id).unmap(pages(AT, 1)).unwrap();
                child.into_iter().for_each(|child| mm.space(child).destroy().unwrap());
            };
            race(mm, place, || reclaim(mm), goes);
            give_back(mm, held);
            let audit = settled(mm);
            assert_eq!((audit.broken, audit.anon, mm.swap().usage().used), (None, 0, 0));
            let elsewhere = host.count(|what| matches!(what, Happened::DiskWrite(Store::File(_), ..)));
            assert_eq!(elsewhere, 0, "a page that no file has is written to one");
            let written = mm.counter(Counter::PswpOut);
            end(mm, &[id], &[DEVICE]);
            written
        });
        let none = cases.results.iter().filter(|&&written| written == 0).count();
        assert!(none > 10 && none < cases.results.len(), "{none} of {}", cases.results.len());
    }
}
