//! What CPUs have in stock of a group's charge: it comes back before anybody is refused, and adds up.

use crate::groups::{TABLES, charged, config, host, space_in};
use crate::machine;

use machine::race::{at_every_touch, race};
use machine::showing::LARGE;
use machine::swapping::{AT, end, sound, swapping, write};
use machine::{Host, Setup, bare, pages, settled};
use quietmm::{Advice, Backing, Config, Counter, Error, Prot, Rule, SpaceId};

/// CPU 1 has a stock of a group's, and the limit is lowered to what is charged: whether CPU 0 gets a page.
fn behind_a_stock(broken: Option<Rule>) -> Result<(), Error> {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 64);
        write(mm, id, AT, 1).unwrap();
        mm.unload();
        host.on(1, || write(mm, id, AT + 1, 1)).unwrap();
        host.on(1, || mm.unload());
        let usage = mm.group(group).usage().unwrap();
        assert!(usage.stocked > 16, "{usage:?}");
        // Not by `set_limit`: others may find the limit near by charging, too.
        let more = space_in(mm, Some(group), 1000);
        let mut done = Ok(());
        for page in AT..AT + 1000 - 5 - TABLES {
            done = done.and_then(|()| write(mm, more, page, 1));
        }
        sound(mm);
        done
    })
}

#[test]
fn what_other_cpus_have_in_stock_comes_back_before_anybody_is_refused() {
    assert_eq!(behind_a_stock(None), Ok(()));
    assert!(matches!(behind_a_stock(Some(Rule::StocksBeforeRefusal)), Err(Error::LimitReached(_))));
}

#[test]
fn stocks_that_are_taken_filled_and_returned_at_once_add_up() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let config = Config { groups: 2, ..bare("linux") };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let (a, b) = (mm.create_group(200).unwrap(), mm.create_group(200).unwrap());
        let [in_a, also_in_a, in_b] = [a, a, b].map(|group| space_in(mm, Some(group), 64));
        write(mm, in_a, AT, 1).unwrap();
        race(
            mm,
            place,
            // The stock becomes another group's, and the first's again; frames go back in between.
            || {
                write(mm, in_b, AT, 1).unwrap();
                // The other may have all that there is.
                _ = write(mm, in_a, AT + 1, 1);
                mm.space(in_a).unmap(pages(AT, 2)).unwrap();
            },
            || {
                mm.group(a).set_limit(20).unwrap();
                _ = (0..20).try_for_each(|page| write(mm, also_in_a, AT + page, 1));
            },
        );
        sound(mm);
        [a, b].map(|group| mm.group(group).usage().unwrap().charged)
    });
    assert!(cases.results.len() > 50, "{}", cases.results.len());
    assert!(cases.results.iter().all(|[a, _]| *a <= 20));
}

/// Where a large page has room only with what all CPUs have in stock.
#[test]
fn all_stocks_come_back_for_a_large_page() {
    let host = Host::new(Setup { cpus: 4, ..Setup::default() });
    host.run(Config { groups: 1, ..swapping("linux") }, |mm| {
        let group = mm.create_group(4000).unwrap();
        let space_of = |page: u64, count: u64| -> SpaceId {
            let id = mm.create_space().unwrap();
            mm.space(id).set_group(Some(group)).unwrap();
            mm.space(id).map(pages(page, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
            mm.space(id).switch_to().unwrap();
            id
        };
        for cpu in 1..4 {
            host.on(cpu, || {
                let id = space_of(AT, 1);
                host.write(mm, id, AT, 1).unwrap();
            });
        }
        let id = space_of(LARGE, 512);
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        let usage = mm.group(group).usage().unwrap();
        assert!(usage.stocked > 64, "{usage:?}");
        // Beside the page itself, tables on the way there, and one for the time when it is split.
        mm.group(group).set_limit(usage.charged - usage.stocked + 512 + 3).unwrap();
        host.write(mm, id, LARGE, 1).unwrap();
        assert_eq!(mm.counter(Counter::LargeFault), 1);
        // It goes as a whole, and so does its charge.
        let with = charged(mm, group);
        mm.space(id).unmap(pages(LARGE, 512)).unwrap();
        assert!(charged(mm, group) + 512 <= with);
        (1..4).for_each(|cpu| host.on(cpu, || mm.unload()));
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn a_limit_that_is_what_a_group_has_takes_nothing_from_it() {
    let host = host(4096);
    host.run(config(1), |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 1);
        let file = mm.create_file(16).unwrap();
        mm.file(file).read(0, &mut [0; 16 * 4096]).unwrap();
        mm.drain_lru_batch();
        let before = mm.group(group).usage().unwrap();
        assert!(before.stocked > 0, "{before:?}");
        mm.group(group).set_limit(before.charged).unwrap();
        assert_eq!(mm.group(group).usage().unwrap().stocked, before.stocked, "it has that");
        // What CPUs may hand out goes before pages do.
        mm.group(group).set_limit(before.charged - before.stocked).unwrap();
        assert_eq!((mm.file(file).cached_pages(), mm.group(group).usage().unwrap().stocked), (Ok(16), 0));
        // Control.
        mm.group(group).set_limit(before.charged - before.stocked - 1).unwrap();
        assert!(mm.file(file).cached_pages().unwrap() < 16);
        sound(mm);
        mm.file(file).destroy().unwrap();
        end(mm, &[id], &[]);
    });
}

#[test]
fn what_is_to_be_had_for_nothing_is_what_other_cpus_have_in_stock_too() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let file = mm.create_file(16).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 8);
        host.on(1, || write(mm, id, AT, 1)).unwrap();
        let usage = mm.group(group).usage().unwrap();
        assert!(usage.stocked > 8, "{usage:?}");
        mm.group(group).set_limit(usage.charged).unwrap();
        // Nobody reclaims for it, and nobody has to.
        assert_eq!(mm.file(file).read_ahead(0, 8), Ok(8));
        let usage = mm.group(group).usage().unwrap();
        mm.group(group).set_limit(usage.charged - usage.stocked).unwrap();
        assert_eq!(mm.file(file).read_ahead(8, 8), Ok(0), "control");
        sound(mm);
        host.on(1, || mm.unload());
        mm.file(file).destroy().unwrap();
        end(mm, &[id], &[]);
    });
}

/// A CPU takes a stock for as long as there is room for one of each CPU, and one more.
#[test]
fn a_stock_is_taken_where_there_is_room_for_all_cpus_just_so() {
    const STOCK: u64 = 32;
    for (limit, stocks) in [(1 + 3 * STOCK, true), (3 * STOCK, false)] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(Config { groups: 1, ..bare("linux") }, |mm| {
            let group = mm.create_group(limit).unwrap();
            let id = space_in(mm, Some(group), 1);
            write(mm, id, AT, 1).unwrap();
            let usage = mm.group(group).usage().unwrap();
            assert_eq!(usage.stocked > 0, stocks, "{usage:?}");
            sound(mm);
        });
    }
}
