//! Groups: what they are charged with, that limits hold, and that nobody else pays for them.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::race::{at_every_touch, race};
use machine::swapping::{AT, DEVICE, end, is_out, read, sound, swapping, take_free, write};
use machine::{Host, Mm, Setup, bare, give_back, pages, settled};
use quietmm::{
    Advice, AllocFrom, Backing, Config, Error, GroupId, NodeId, PageNumber, Prot, SpaceId, UserAccess,
};

/// Page tables of a space with pages at one place: the root, and one on each level below.
pub(crate) const TABLES: u64 = 4;

pub(crate) fn config(groups: u32) -> Config {
    Config { groups, ..swapping("linux") }
}

pub(crate) fn host(frames: u32) -> Host {
    Host::new(Setup { frames, ..Setup::default() })
}

/// A space of a group's, which this CPU has loaded, with room for `count` anonymous pages. Its root was made before it belonged there.
pub(crate) fn space_in(mm: &Mm<'_>, group: Option<GroupId>, count: u64) -> SpaceId {
    mm.unload();
    let id = mm.create_space().unwrap();
    mm.space(id).set_group(group).unwrap();
    mm.space(id).map(pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    id
}

pub(crate) fn write_all(mm: &Mm<'_>, id: SpaceId, count: u64) {
    (AT..AT + count).for_each(|page| write(mm, id, page, page).unwrap());
}

pub(crate) fn charged(mm: &Mm<'_>, group: GroupId) -> u64 {
    let usage = mm.group(group).usage().unwrap();
    usage.charged - usage.stocked
}

#[test]
fn a_group_is_charged_with_what_its_spaces_want_and_with_nothing_else() {
    let host = host(4096);
    host.run(config(2), |mm| {
        let (a, b) = (mm.create_group(1000).unwrap(), mm.create_group(1000).unwrap());
        assert_ne!(a, b);
        let [in_a, in_b, in_none] = [Some(a), Some(b), None].map(|group| space_in(mm, group, 32));
        assert_eq!(mm.space(in_a).group(), Ok(Some(a)));
        assert_eq!(mm.space(in_none).group(), Ok(None));
        write_all(mm, in_a, 32);
        write_all(mm, in_none, 32);
        // The root came before it was in the group.
        assert_eq!((charged(mm, a), charged(mm, b)), (32 + TABLES - 1, 0));
        write_all(mm, in_b, 7);
        assert_eq!((charged(mm, a), charged(mm, b)), (32 + TABLES - 1, 7 + TABLES - 1));
        // Whoever counts what there is to reclaim counts the lists of all.
        mm.drain_lru_batch();
        assert_eq!(mm.frames().lru_pages().inactive_anon, 32 + 32 + 7);
        mm.space(in_a).unmap(pages(AT, 30)).unwrap();
        assert_eq!(charged(mm, a), 2 + TABLES - 1);
        assert_eq!(mm.group(a).usage().unwrap().spaces, 1);
        sound(mm);
        end(mm, &[in_a, in_b, in_none], &[]);
        assert_eq!((charged(mm, a), charged(mm, b)), (0, 0));
        assert_eq!(mm.group(a).usage().unwrap().spaces, 0);
        sound(mm);
    });
}

#[test]
fn pages_of_a_file_are_charged_to_the_first_that_wants_them() {
    let host = host(4096);
    host.run(config(2), |mm| {
        let (a, b) = (mm.create_group(1000).unwrap(), mm.create_group(1000).unwrap());
        let file = mm.create_file(16).unwrap();
        let spaces = [a, b].map(|group| {
            let id = space_in(mm, Some(group), 1);
            mm.space(id).map(pages(2 * AT, 16), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
            id
        });
        // `b` reads four by a mapping and four by a call; then `a` all of them.
        (0..4).for_each(|page| _ = read(mm, spaces[1], 2 * AT + page).unwrap());
        let tables = charged(mm, b) - 4;
        let mut bytes = [0; 4 * 4096];
        mm.file(file).read(4 * 4096, &mut bytes).unwrap();
        assert_eq!(charged(mm, b), tables + 8);
        (0..16).for_each(|page| _ = read(mm, spaces[0], 2 * AT + page).unwrap());
        assert_eq!((charged(mm, a), charged(mm, b)), (tables + 8, tables + 8));
        // A task that runs in no space of its own is nobody's.
        mm.file(file).evict(0, 16).unwrap();
        mm.space(spaces[0]).unmap(pages(2 * AT, 16)).unwrap();
        mm.space(spaces[1]).unmap(pages(2 * AT, 16)).unwrap();
        assert_eq!(mm.file(file).evict(0, 16), Ok(16));
        let before = (charged(mm, a), charged(mm, b));
        mm.enter_lazy();
        mm.file(file).read(0, &mut bytes).unwrap();
        mm.leave_lazy();
        assert_eq!((charged(mm, a), charged(mm, b)), before);
        sound(mm);
        mm.file(file).destroy().unwrap();
        end(mm, &spaces, &[]);
    });
}

/// A space of a group with this limit, or of none, writes to 256 pages; another one beside it has 256 that it does not use. Returns the most
/// that was charged, how many pages of each are out, and whether each kept its content.
fn beside(limit: Option<u64>) -> (u64, u64, u64) {
    let host = host(4096);
    host.run(config(2), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let neighbour = space_in(mm, None, 256);
        write_all(mm, neighbour, 256);
        let group = mm.create_group(limit.unwrap_or(u64::MAX)).unwrap();
        let id = space_in(mm, Some(group), 256);
        let most = (AT..AT + 256).map(|page| {
            write(mm, id, page, page).unwrap();
            mm.group(group).usage().unwrap().charged
        });
        let most = most.max().unwrap();
        let out = |id| (AT..AT + 256).filter(|&page| is_out(mm, id, page)).count() as u64;
        let found = (most, out(id), out(neighbour));
        assert!((AT..AT + 256).all(|page| read(mm, id, page) == Ok(page)));
        assert!((AT..AT + 256).all(|page| read(mm, neighbour, page) == Ok(page)));
        sound(mm);
        end(mm, &[id, neighbour], &[DEVICE]);
        found
    })
}

#[test]
fn a_limit_holds_and_the_neighbours_pages_stay() {
    let (most, out, neighbours) = beside(Some(64));
    assert_eq!((most, neighbours), (64, 0));
    assert!((192..=200).contains(&out), "{out} of 256 pages are out where 64 may stay");
    // Control: without a limit nothing goes.
    let (most, out, neighbours) = beside(None);
    assert!(most >= 256, "{most}");
    assert_eq!((out, neighbours), (0, 0));
}

#[test]
fn where_nothing_can_be_reclaimed_the_limit_is_an_error_and_the_state_is_as_it_was() {
    let host = host(4096);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(16).unwrap();
        let id = space_in(mm, Some(group), 64);
        write_all(mm, id, 13);
        let (before, free) = (settled(mm), mm.frames().available());
        assert!(free > 1000, "memory is there in plenty");
        assert_eq!(write(mm, id, AT + 13, 1), Err(Error::LimitReached(group)));
        let asked: Vec<_> = mm.platform().shortages.take().iter().map(|short| short.group).collect();
        assert_eq!(asked, [Some(group)], "a victim is looked for in the group, once");
        assert_eq!((settled(mm), mm.frames().available()), (before, free));
        assert!((AT..AT + 13).all(|page| read(mm, id, page) == Ok(page)));
        assert_eq!(mm.group(group).usage().unwrap().hits, 1);
        // Others have what they want, and so has this one where it lets go of something.
        let other = space_in(mm, None, 64);
        write_all(mm, other, 64);
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        assert_eq!(write(mm, id, AT + 13, 1), Ok(()));
        mm.group(group).set_limit(17).unwrap();
        assert_eq!(write(mm, id, AT + 14, 1), Ok(()));
        end(mm, &[id, other], &[]);
    });
}

#[test]
fn a_victim_in_the_group_lets_the_others_go_on() {
    let host = host(4096);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(32).unwrap();
        let victim = space_in(mm, Some(group), 64);
        write_all(mm, victim, 20);
        let id = space_in(mm, Some(group), 64);
        let asked = Rc::new(Cell::new(0));
        let count = asked.clone();
        mm.platform().on_out_of_memory.replace(Some(Box::new(move |mm| {
            count.set(count.get() + 1);
            // Its memory goes; what kills it is the embedding kernel's.
            mm.space(victim).advise(pages(AT, 20), Advice::Drop).unwrap();
            true
        })));
        write_all(mm, id, 20);
        assert_eq!(asked.get(), 1);
        sound(mm);
        end(mm, &[victim, id], &[]);
    });
}

#[test]
fn a_stream_through_a_file_stays_within_the_limit_and_takes_no_page_of_others() {
    let host = host(4096);
    host.run(config(1), |mm| {
        let (kept, streamed) = (mm.create_file(64).unwrap(), mm.create_file(1024).unwrap());
        let mut bytes = [0; 4096];
        (0..64).for_each(|page| _ = mm.file(kept).read(page * 4096, &mut bytes).unwrap());
        let group = mm.create_group(32).unwrap();
        let id = space_in(mm, Some(group), 1);
        for page in 0..1024 {
            mm.file(streamed).read(page * 4096, &mut bytes).unwrap();
            assert!(mm.group(group).usage().unwrap().charged <= 32);
        }
        assert_eq!(mm.file(kept).cached_pages(), Ok(64));
        let streamed_pages = mm.file(streamed).cached_pages().unwrap();
        assert!((20..=32).contains(&streamed_pages), "{streamed_pages}");
        sound(mm);
        end(mm, &[id], &[]);
    });
}

#[test]
fn a_lower_limit_takes_what_is_above_it() {
    let host = host(4096);
    host.run(config(1), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 128);
        write_all(mm, id, 128);
        mm.group(group).set_limit(40).unwrap();
        let now = mm.group(group).usage().unwrap();
        assert!(now.charged <= 40 && now.charged > 30 && now.limit == 40, "{now:?}");
        // What no reclaim can take stays, and the limit stands.
        mm.group(group).set_limit(0).unwrap();
        assert_eq!(charged(mm, group), TABLES - 1);
        assert_eq!(read(mm, id, AT), Err(Error::LimitReached(group)));
        mm.group(group).set_limit(1000).unwrap();
        assert!((AT..AT + 128).all(|page| read(mm, id, page) == Ok(page)));
        end(mm, &[id], &[DEVICE]);
    });
}

#[test]
fn groups_end_when_no_space_belongs_to_them_and_their_places_are_used_again() {
    let host = host(4096);
    host.run(config(1), |mm| {
        let group = mm.create_group(100).unwrap();
        assert_eq!(mm.create_group(100), Err(Error::TooMany));
        let id = space_in(mm, Some(group), 8);
        write_all(mm, id, 8);
        assert_eq!(mm.group(group).destroy(), Err(Error::Busy));
        let file = mm.create_file(16).unwrap();
        let mut bytes = [0; 4096];
        (0..16).for_each(|page| _ = mm.file(file).read(page * 4096, &mut bytes).unwrap());
        mm.space(id).set_group(None).unwrap();
        assert_eq!(mm.group(group).destroy(), Ok(()));
        for call in
            [mm.group(group).destroy(), mm.group(group).set_limit(1), mm.space(id).set_group(Some(group))]
        {
            assert_eq!(call, Err(Error::NoSuchGroup));
        }
        // The space's pages are still charged to it: its place is not free, and cannot be made so.
        assert_eq!(mm.create_group(100), Err(Error::TooMany));
        sound(mm);
        assert_eq!(mm.file(file).cached_pages(), Ok(0), "what could be reclaimed was");
        mm.unload();
        mm.space(id).destroy().unwrap();
        let next = mm.create_group(50).unwrap();
        assert_eq!((next.index(), mm.group(group).usage()), (group.index(), Err(Error::NoSuchGroup)));
        let usage = mm.group(next).usage().unwrap();
        assert_eq!((usage.charged, usage.limit, usage.hits, usage.spaces), (0, 50, 0, 0));
        sound(mm);
    });
    let host = self::host(4096);
    host.run(config(0), |mm| {
        assert_eq!(mm.create_group(1), Err(Error::NoGroups));
        let id = mm.create_space().unwrap();
        assert_eq!((mm.space(id).group(), mm.space(id).set_group(None)), (Ok(None), Ok(())));
    });
}

#[test]
fn a_fork_belongs_where_its_parent_does_and_copies_are_charged_to_who_makes_them() {
    let host = host(4096);
    host.run(config(2), |mm| {
        let (a, b) = (mm.create_group(100).unwrap(), mm.create_group(100).unwrap());
        let parent = space_in(mm, Some(a), 8);
        write_all(mm, parent, 8);
        let child = mm.space(parent).fork().unwrap();
        assert_eq!(mm.group(a).usage().unwrap().spaces, 2);
        mm.space(child).set_group(Some(b)).unwrap();
        assert_eq!([a, b].map(|group| mm.group(group).usage().unwrap().spaces), [1, 1]);
        let before = charged(mm, a);
        (AT..AT + 5).for_each(|page| write(mm, child, page, 1).unwrap());
        assert_eq!((charged(mm, a), charged(mm, b)), (before, 5));
        // The parent lets go of all: what the child still shows stays charged to `a`.
        mm.unload();
        mm.space(parent).destroy().unwrap();
        assert_eq!(charged(mm, b), 5);
        assert_eq!(charged(mm, a), 3 + TABLES);
        assert!((5..8).all(|page| read(mm, child, AT + page) == Ok(AT + page)));
        sound(mm);
        end(mm, &[child], &[]);
        assert_eq!((charged(mm, a), charged(mm, b)), (0, 0));
    });
}

#[test]
fn large_pages_are_charged_whole_where_there_is_room_and_in_parts_once_they_are_split() {
    for (limit, large) in [(2048, true), (500, false)] {
        let host = Host::new(Setup { frames: 8192, ..Setup::default() });
        host.run(config(1), |mm| {
            let group = mm.create_group(limit).unwrap();
            mm.unload();
            let id = mm.create_space().unwrap();
            mm.space(id).set_group(Some(group)).unwrap();
            let range = pages(0x1000, 512);
            mm.space(id).map(range, Backing::Anonymous, Prot::ReadWrite).unwrap();
            mm.space(id).advise(range, Advice::Large).unwrap();
            write(mm, id, 0x1000, 1).unwrap();
            assert_eq!(charged(mm, group) > 512, large);
            if large {
                let before = charged(mm, group);
                mm.space(id).unmap(pages(0x1000, 100)).unwrap();
                assert_eq!(charged(mm, group), before - 100);
            }
            sound(mm);
            end(mm, &[id], &[]);
            assert_eq!(charged(mm, group), 0);
        });
    }
}

#[test]
fn a_page_that_moves_to_another_node_stays_charged_and_needs_no_room() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(config(1), |mm| {
        let group = mm.create_group(8 + TABLES - 1).unwrap();
        let id = space_in(mm, Some(group), 8);
        write_all(mm, id, 8);
        let usage = mm.group(group).usage().unwrap();
        assert_eq!(usage.charged, usage.limit);
        let far = !(0xfc00..0x10400).contains(&machine::showing::frame(mm, id, AT).0);
        assert_eq!(mm.space(id).migrate(pages(AT, 8), NodeId(u16::from(!far))), Ok(8));
        assert_eq!(mm.group(group).usage().unwrap(), usage);
        assert!((AT..AT + 8).all(|page| read(mm, id, page) == Ok(page)));
        sound(mm);
        end(mm, &[id], &[]);
        assert_eq!(charged(mm, group), 0);
    });
}

#[test]
fn where_no_frame_is_free_all_groups_give_in_proportion_to_what_they_have() {
    let host = host(4096);
    host.run(config(3), |mm| {
        mm.swap().on(DEVICE, 2048, 0).unwrap();
        let groups = [0; 3].map(|_| Some(mm.create_group(u64::MAX).unwrap()));
        let sizes = [200u64, 400, 800, 400];
        let spaces: Vec<SpaceId> = [groups[0], groups[1], groups[2], None]
            .into_iter()
            .zip(sizes)
            .map(|(group, size)| {
                let id = space_in(mm, group, size);
                write_all(mm, id, size);
                id
            })
            .collect();
        mm.drain_lru_batch();
        mm.unload();
        // Nobody uses any of them; memory is short by 600 pages.
        let all = take_free(mm);
        let more: Vec<_> = (0..600).map(|_| mm.frames().alloc(0, AllocFrom::HERE).unwrap()).collect();
        let shares: Vec<f64> = spaces
            .iter()
            .zip(sizes)
            .map(|(&id, size)| {
                (AT..AT + size).filter(|&page| is_out(mm, id, page)).count() as f64 / size as f64
            })
            .collect();
        assert!(
            shares.iter().all(|share| (0.23..=0.43).contains(share)),
            "a third of each, or so: {shares:?}"
        );
        give_back(mm, all);
        give_back(mm, more);
        sound(mm);
        end(mm, &spaces, &[DEVICE]);
    });
}

/// Spaces of three groups do all that spaces can, in an order drawn from a seed; a model says what they should see. Returns how many
/// operations were refused for a limit.
fn played(seed: u64) -> u64 {
    let host = host(2048);
    host.run(config(3), |mm| {
        mm.swap().on(DEVICE, 2048, 0).unwrap();
        let mut state = seed * 2 + 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let limits = [24, 48, 400];
        let groups = limits.map(|limit| mm.create_group(limit).unwrap());
        let mut spaces: Vec<(SpaceId, std::collections::BTreeMap<u64, u64>)> =
            groups.map(|group| (space_in(mm, Some(group), 64), Default::default())).into();
        let mut refused = 0;
        for value in 0..1500 {
            let at = random(spaces.len() as u64) as usize;
            let page = AT + random(64);
            let count = spaces.len();
            let (id, model) = &mut spaces[at];
            match random(20) {
                0..10 => match write(mm, *id, page, value) {
                    Ok(()) => _ = model.insert(page, value),
                    Err(Error::LimitReached(_)) => refused += 1,
                    Err(error) => panic!("{error}"),
                },
                10..15 => match read(mm, *id, page) {
                    Ok(found) => assert_eq!(found, model.get(&page).copied().unwrap_or(0)),
                    Err(Error::LimitReached(_)) => refused += 1,
                    Err(error) => panic!("{error}"),
                },
                15 => {
                    mm.space(*id).advise(pages(page, 1), Advice::Drop).unwrap();
                    model.remove(&page);
                }
                16 => mm.space(*id).set_group(Some(groups[random(3) as usize])).unwrap(),
                17 if count < 8 => match mm.space(*id).fork() {
                    Ok(child) => {
                        let model = model.clone();
                        spaces.push((child, model));
                    }
                    Err(error) => assert!(matches!(error, Error::LimitReached(_)), "{error}"),
                },
                18 if count > 3 => {
                    mm.unload();
                    mm.space(*id).destroy().unwrap();
                    spaces.remove(at);
                }
                _ => {
                    let group = random(3) as usize;
                    mm.group(groups[group]).set_limit(limits[group] + random(8)).unwrap();
                }
            }
            for (group, limit) in groups.iter().zip(limits) {
                // What nobody could reclaim when a limit was lowered is at most what it was raised by.
                assert!(mm.group(*group).usage().unwrap().charged <= limit + 8);
            }
            if value % 100 == 0 {
                sound(mm);
            }
        }
        for group in groups {
            mm.group(group).set_limit(u64::MAX).unwrap();
        }
        for (id, model) in &spaces {
            model.iter().for_each(|(&page, &value)| assert_eq!(read(mm, *id, page), Ok(value)));
        }
        let ids: Vec<SpaceId> = spaces.iter().map(|(id, _)| *id).collect();
        end(mm, &ids, &[DEVICE]);
        assert!(groups.iter().all(|&group| charged(mm, group) == 0));
        refused
    })
}

#[test]
fn spaces_of_groups_see_what_they_wrote_whatever_their_limits_take() {
    (0..8).for_each(|seed| _ = played(seed));
}

#[test]
fn usage_says_what_a_space_has_and_where() {
    let host = host(4096);
    host.run(config(0), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let file = mm.create_file(8).unwrap();
        let id = space_in(mm, None, 32);
        write_all(mm, id, 32);
        mm.space(id).map(pages(2 * AT, 8), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
        (0..8).for_each(|page| _ = read(mm, id, 2 * AT + page).unwrap());
        let usage = mm.space(id).usage().unwrap();
        assert_eq!((usage.anon, usage.file, usage.shared, usage.swapped), (32, 8, 0, 0));
        assert_eq!(usage.resident(), 40);
        assert_eq!(usage.tables, settled(mm).tables - 1, "all but the kernel's root");
        let child = mm.space(id).fork().unwrap();
        assert_eq!(mm.space(id).usage().unwrap().shared, 32);
        (AT..AT + 10).for_each(|page| write(mm, child, page, 0).unwrap());
        assert_eq!(mm.space(id).usage().unwrap().shared, 22);
        mm.unload();
        mm.space(child).destroy().unwrap();
        machine::swapping::squeeze(mm);
        let usage = mm.space(id).usage().unwrap();
        assert_eq!((usage.anon, usage.file, usage.swapped), (0, 0, 32));
        assert_eq!(mm.validate().swapped, 32);
        // What a child names, and another space has in memory, is not in swap.
        let child = mm.space(id).fork().unwrap();
        (AT..AT + 10).for_each(|page| _ = read(mm, id, page).unwrap());
        let usage = mm.space(child).usage().unwrap();
        let cached = mm.swap().usage().cached;
        assert!((10..32).contains(&cached), "{cached}");
        assert_eq!((usage.anon, usage.swapped), (0, 32 - cached));
        assert_eq!(mm.space(id).usage().unwrap().swapped, 32 - cached);
        mm.space(child).destroy().unwrap();
        assert_eq!(mm.space(child).usage(), Err(Error::NoSuchSpace));
        let large = mm.create_space().unwrap();
        let range = pages(0x1000, 512);
        mm.space(large).map(range, Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(large).advise(range, Advice::Large).unwrap();
        mm.space(large).fault(PageNumber(0x1000).addr(), UserAccess::Write).unwrap();
        let usage = mm.space(large).usage().unwrap();
        // The root, one on each of the two levels above large pages, and the one that lies ready for the page.
        assert_eq!((usage.anon, usage.tables), (512, 4));
        end(mm, &[id, large], &[DEVICE]);
    });
}

/// Groups whose numbers are alike in some of their bits have nothing of each other's.
#[test]
fn groups_that_are_many_are_charged_each_for_itself() {
    let host = host(4096);
    host.run(Config { groups: 300, ..bare("linux") }, |mm| {
        let groups: Vec<GroupId> = (0..300).map(|_| mm.create_group(1000).unwrap()).collect();
        assert_eq!(mm.create_group(1000), Err(Error::TooMany));
        let id = space_in(mm, Some(groups[0]), 64);
        let mut expected = vec![0; groups.len()];
        expected[0] = TABLES - 1;
        for (page, group) in (0..).zip([0, 256, 0, 16, 0, 4, 0, 1, 0, 64, 0, 2, 0, 299, 43, 299, 0, 8, 0, 32])
        {
            mm.space(id).set_group(Some(groups[group])).unwrap();
            write(mm, id, AT + page, page).unwrap();
            expected[group] += 1;
        }
        let found: Vec<u64> = groups.iter().map(|&group| charged(mm, group)).collect();
        assert_eq!(found, expected);
        sound(mm);
        end(mm, &[id], &[]);
        assert!(groups.iter().all(|&group| charged(mm, group) == 0));
        sound(mm);
    });
}

/// A group has all its pages on node 0, and a CPU of node 1 wants one more; and the other way round.
#[test]
fn a_full_group_gives_pages_of_whatever_node() {
    for cpu in [0, 1] {
        let host = Host::new(machine::showing::two_nodes());
        host.run(config(1), |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let group = mm.create_group(1000).unwrap();
            let id = space_in(mm, Some(group), 64);
            host.on(cpu, || write_all(mm, id, 16));
            host.on(cpu, || mm.drain_lru_batch());
            mm.group(group).set_limit(charged(mm, group)).unwrap();
            for page in AT + 16..AT + 32 {
                assert_eq!(host.on(1 - cpu, || write(mm, id, page, page)), Ok(()));
            }
            assert!((AT..AT + 32).all(|page| host.on(cpu, || read(mm, id, page)) == Ok(page)));
            sound(mm);
            end(mm, &[id], &[DEVICE]);
        });
    }
}

#[test]
fn a_group_begins_with_nothing_of_the_one_that_had_its_place() {
    let host = host(4096);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(8).unwrap();
        let id = space_in(mm, Some(group), 16);
        let refused = (AT..AT + 16).filter(|&page| write(mm, id, page, 1).is_err()).count();
        assert_eq!(mm.group(group).usage().unwrap().hits, refused as u64);
        assert!(refused > 0);
        mm.unload();
        mm.space(id).destroy().unwrap();
        mm.group(group).destroy().unwrap();
        let next = mm.create_group(50).unwrap();
        let usage = mm.group(next).usage().unwrap();
        assert_eq!((next.index(), usage.hits, usage.charged, usage.spaces), (group.index(), 0, 0, 0));
        sound(mm);
    });
}

#[test]
fn who_finds_no_frame_is_charged_with_none() {
    let host = host(1024);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(100_000).unwrap();
        let id = space_in(mm, Some(group), 64);
        write_all(mm, id, 8);
        let held = take_free(mm);
        let before = charged(mm, group);
        for page in AT + 8..AT + 12 {
            assert_eq!(write(mm, id, page, 1), Err(Error::OutOfMemory));
        }
        assert_eq!(charged(mm, group), before);
        sound(mm);
        give_back(mm, held);
        write_all(mm, id, 12);
        assert_eq!(charged(mm, group), before + 4);
        end(mm, &[id], &[]);
    });
}

/// A space forks while it goes to another group, and its first one ends, at every place: the child is in a group that there is.
#[test]
fn a_child_is_in_no_group_that_ended_while_it_was_made() {
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    let cases = at_every_touch(&setup, &config(2), None, |mm, place| {
        let [first, other] = [0, 1].map(|_| mm.create_group(1000).unwrap());
        let id = space_in(mm, Some(first), 2);
        write_all(mm, id, 2);
        let child = Cell::new(None);
        let leaves = || {
            mm.space(id).set_group(Some(other)).unwrap();
            mm.group(first).destroy().is_ok()
        };
        let ended = race(mm, place, || child.set(mm.space(id).fork().ok()), leaves);
        let child = child.get().expect("there is memory");
        let of_child = mm.space(child).group().unwrap().expect("it is in one");
        assert_eq!(of_child, if ended { other } else { first }, "{place:?}");
        assert!(mm.group(of_child).usage().is_ok());
        assert_eq!(mm.group(other).usage().unwrap().spaces, 1 + u32::from(ended));
        sound(mm);
        ended
    });
    assert!(cases.count(|&ended| ended) > 10 && cases.count(|&ended| !ended) > 10);
}

/// A range for whose pages there is no room is not locked, however often that is tried; what was locked before still is.
#[test]
fn a_lock_that_fails_leaves_what_was_locked_before() {
    host(1024).run(config(1), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 32);
        write_all(mm, id, 8);
        mm.space(id).lock(pages(AT, 8)).unwrap();
        let charged = mm.group(group).usage().unwrap();
        mm.group(group).set_limit(charged.charged - charged.stocked + 8).unwrap();
        assert!(mm.space(id).lock(pages(AT, 32)).is_err());
        assert_eq!(mm.space(id).locked_pages(), Ok(8));
        (0..3).for_each(|_| machine::swapping::squeeze(mm));
        assert!((AT..AT + 8).all(|page| !is_out(mm, id, page)), "they are locked");
        mm.group(group).set_limit(1000).unwrap();
        mm.space(id).lock(pages(AT, 32)).unwrap();
        assert_eq!(mm.space(id).locked_pages(), Ok(32));
        end(mm, &[id], &[DEVICE]);
    });
}

/// Pages of several groups wait beside each other on a CPU's way to the lists: each comes to its own group's.
#[test]
fn pages_of_several_groups_come_to_the_lists_of_their_own() {
    host(1024).run(Config { lru_batch: 14, ..config(2) }, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let groups = [0, 1].map(|_| mm.create_group(1000).unwrap());
        let spaces = [None, Some(groups[0]), Some(groups[1])].map(|group| space_in(mm, group, 8));
        for (n, id) in (0..8).flat_map(|n| spaces.map(|id| (n, id))) {
            write(mm, id, AT + n, n).unwrap();
        }
        mm.drain_lru_batch();
        sound(mm);
        // What one must give up is its own.
        let usage = mm.group(groups[0]).usage().unwrap();
        mm.group(groups[0]).set_limit(usage.charged - usage.stocked - 8).unwrap();
        let out = spaces.map(|id| (AT..AT + 8).filter(|&page| is_out(mm, id, page)).count());
        assert_eq!((out[0], out[2], out[1] >= 8), (0, 0, true), "{out:?}");
        mm.group(groups[0]).set_limit(1000).unwrap();
        end(mm, &spaces, &[DEVICE]);
    });
}

/// All that a group could give up is on this CPU's way to the lists: a lower limit finds it there.
#[test]
fn a_lower_limit_finds_pages_that_are_on_their_way_to_the_lists() {
    host(1024).run(Config { lru_batch: 14, ..config(1) }, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 12);
        (0..12).for_each(|n| write(mm, id, AT + n, n).unwrap());
        let usage = mm.group(group).usage().unwrap();
        let limit = usage.charged - usage.stocked - 6;
        mm.group(group).set_limit(limit).unwrap();
        let usage = mm.group(group).usage().unwrap();
        assert!(usage.charged <= limit, "{usage:?}");
        mm.group(group).set_limit(1000).unwrap();
        assert!((0..12).all(|n| read(mm, id, AT + n) == Ok(n)));
        end(mm, &[id], &[DEVICE]);
    });
}

/// It has small ones: for a large page nobody's pages go.
#[test]
fn a_group_without_room_for_a_large_page_loses_nothing_for_it() {
    const LARGE: u64 = 0x40000;
    let host = host(4096);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(400).unwrap();
        let id = space_in(mm, Some(group), 1);
        mm.space(id).map(pages(LARGE, 512), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        let file = mm.create_file(100).unwrap();
        assert_eq!(mm.file(file).read_ahead(0, 100), Ok(100));
        mm.drain_lru_batch();
        assert!(charged(mm, group) >= 100);
        write(mm, id, LARGE, 1).unwrap();
        assert_eq!((mm.counter(quietmm::Counter::LargeFault), mm.file(file).cached_pages()), (0, Ok(100)));
        assert_eq!((mm.group(group).usage().unwrap().hits, host.shortages.borrow().len()), (0, 0));
    });
}

/// Whoever moves them, from whatever space.
#[test]
fn pages_that_one_of_no_group_moves_stay_charged() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(config(1), |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 8);
        write_all(mm, id, 8);
        let other = space_in(mm, None, 1);
        let before = charged(mm, group);
        assert_eq!(mm.space(id).migrate(pages(AT, 8), NodeId(1)), Ok(8));
        assert_eq!(charged(mm, group), before);
        end(mm, &[id, other], &[]);
    });
}
