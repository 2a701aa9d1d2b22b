//! A device reads and writes through pins while programs read, write, fork, unmap, drop, protect and move, files are cut, and memory is short: all
//! of it as in a model in which memory is a list of values, and a pin is the place of one.

use crate::machine;

use std::sync::atomic::Ordering;

use machine::race::at;
use machine::showing::{private, shared};
use machine::swapping::{DEVICE, read, squeeze, swapping, write};
use machine::{Mm, Setup, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, Backing, Error, FileId, FrameNumber, NodeId, PageNumber, Pins, Prot, Region, Rule, SpaceId, Term,
    UserAccess,
};

/// Pages of each kind, one kind after the other: anonymous, shared, private.
const EACH: u64 = 4;
const AT: u64 = 0xfff8;
const AWAY: u64 = 0x4000;
const SPACES: usize = 4;
const STEPS: u32 = 150;
const SEEDS: u64 = 40;

/// A place of the model's memory.
type Cell = usize;

/// What a page of a space shows.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Shows {
    /// Its own.
    Own(Cell),
    /// This page of the file, whatever that is.
    File(u64),
}

#[derive(Default)]
struct Model {
    values: Vec<u64>,
    /// What each page of the file is.
    file: Vec<Cell>,
    spaces: Vec<(SpaceId, Vec<Shows>)>,
    pins: Vec<(Pins, Vec<Cell>)>,
}

impl Model {
    fn new_cell(&mut self, value: u64) -> Cell {
        self.values.push(value);
        self.values.len() - 1
    }

    fn cell(&self, shows: Shows) -> Cell {
        match shows {
            Shows::Own(cell) => cell,
            Shows::File(page) => self.file[page as usize],
        }
    }

    /// What a new mapping of this page shows.
    fn fresh(&mut self, page: u64) -> Shows {
        if page < EACH { Shows::Own(self.new_cell(0)) } else { Shows::File(page % EACH) }
    }

    /// The page becomes the space's own, if it is not and is to be.
    fn own(&mut self, space: usize, page: u64) -> Cell {
        let shows = self.spaces[space].1[page as usize];
        let cell = self.cell(shows);
        if matches!(shows, Shows::Own(_)) || page < 2 * EACH {
            return cell;
        }
        let copy = self.new_cell(self.values[cell]);
        self.spaces[space].1[page as usize] = Shows::Own(copy);
        copy
    }
}

/// Numbers by chance, the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }
}

struct Play<'m, 'p> {
    mm: &'m Mm<'p>,
    file: FileId,
    model: Model,
    chance: Chance,
    written: u64,
}

/// What is not as in the model.
type Seen = Result<(), String>;

impl Play<'_, '_> {
    fn map(&self, id: SpaceId, page: u64) {
        let one = |file| Backing::File { file, offset: page % EACH };
        let backing = match page / EACH {
            0 => Backing::Anonymous,
            1 => one(self.file),
            _ => Backing::Private { file: self.file, offset: page % EACH },
        };
        self.mm.space(id).map(pages(AT + page, 1), backing, Prot::ReadWrite).unwrap();
    }

    fn begin(&mut self) {
        self.model.file = (0..EACH).map(|_| self.model.new_cell(0)).collect();
        let id = self.mm.create_space().unwrap();
        let kinds = [Backing::Anonymous, shared(self.file), private(self.file)];
        for (kind, n) in kinds.into_iter().zip(0..) {
            self.mm.space(id).map(pages(AT + n * EACH, EACH), kind, Prot::ReadWrite).unwrap();
        }
        let shows = (0..3 * EACH).map(|page| self.model.fresh(page)).collect();
        self.model.spaces.push((id, shows));
    }

    fn value(&mut self) -> u64 {
        self.written += 1;
        self.written
    }

    /// One thing, by chance.
    fn step(&mut self) -> Seen {
        let (mm, space) = (self.mm, self.chance.next(self.model.spaces.len() as u64) as usize);
        let (id, page) = (self.model.spaces[space].0, self.chance.next(3 * EACH));
        match self.chance.next(16) {
            0..=2 => {
                let value = self.value();
                write(mm, id, AT + page, value).unwrap();
                let cell = self.model.own(space, page);
                self.model.values[cell] = value;
            }
            3..=4 => self.check(space, page)?,
            5..=6 => self.pin(space, page),
            7..=8 if !self.model.pins.is_empty() => self.device()?,
            9 if !self.model.pins.is_empty() => {
                let one = self.chance.next(self.model.pins.len() as u64) as usize;
                mm.unpin(self.model.pins.swap_remove(one).0);
            }
            10 if self.model.spaces.len() < SPACES => {
                let child = mm.space(id).fork().unwrap();
                let shows = self.model.spaces[space].1.clone();
                let copies = shows.into_iter().map(|shows| match shows {
                    Shows::Own(cell) => Shows::Own(self.model.new_cell(self.model.values[cell])),
                    file => file,
                });
                let copies = copies.collect();
                self.model.spaces.push((child, copies));
            }
            10 if space > 0 => {
                mm.unload();
                mm.space(id).destroy().unwrap();
                self.model.spaces.swap_remove(space);
            }
            11 => {
                mm.space(id).unmap(pages(AT + page, 1)).unwrap();
                self.map(id, page);
                let fresh = self.model.fresh(page);
                self.model.spaces[space].1[page as usize] = fresh;
            }
            12 => {
                mm.space(id).advise(pages(AT + page, 1), Advice::Drop).unwrap();
                let fresh = self.model.fresh(page);
                self.model.spaces[space].1[page as usize] = fresh;
            }
            13 => match self.chance.next(3) {
                0 => {
                    mm.space(id).protect(pages(AT + page, 1), Prot::None).unwrap();
                    mm.space(id).protect(pages(AT + page, 1), Prot::ReadWrite).unwrap();
                }
                1 => {
                    mm.space(id).move_range(pages(AT + page, 1), PageNumber(AWAY)).unwrap();
                    mm.space(id).move_range(pages(AWAY, 1), PageNumber(AT + page)).unwrap();
                }
                _ => {
                    _ = mm.space(id).migrate(pages(AT, 3 * EACH), NodeId(self.chance.next(2) as u16)).unwrap()
                }
            },
            14 => {
                let cut = page % EACH;
                mm.file(self.file).punch_hole(cut * PAGE_SIZE, PAGE_SIZE).unwrap();
                self.model.file[cut as usize] = self.model.new_cell(0);
            }
            _ => match self.chance.next(3) {
                0 => squeeze(mm),
                1 => _ = mm.file(self.file).write_back().unwrap(),
                _ => mm.drain_lru_batch(),
            },
        }
        Ok(())
    }

    fn pin(&mut self, space: usize, page: u64) {
        let id = self.model.spaces[space].0;
        let range = pages(AT + page, (1 + self.chance.next(3)).min(3 * EACH - page));
        let access = [UserAccess::Read, UserAccess::Write][self.chance.next(2) as usize];
        let term = [Term::Short, Term::Long][self.chance.next(2) as usize];
        let of_file = (range.start.0 - AT..range.end().0 - AT).find(|page| page / EACH == 1);
        let refused = of_file.filter(|_| (access, term) == (UserAccess::Write, Term::Long));
        let pins = match self.mm.space(id).pin(range, access, term) {
            Err(error) => {
                let page = refused.map(|page| PageNumber(AT + page));
                assert_eq!(Some(error), page.map(Error::NotPinnable));
                // Those before it are its own by now.
                (range.start.0 - AT..refused.unwrap()).for_each(|page| _ = self.model.own(space, page));
                return;
            }
            Ok(pins) => pins,
        };
        assert_eq!(refused, None);
        let own = access == UserAccess::Write || term == Term::Long;
        let cells = (range.start.0 - AT..range.end().0 - AT).map(|page| match own {
            true => self.model.own(space, page),
            false => self.model.cell(self.model.spaces[space].1[page as usize]),
        });
        let cells = cells.collect();
        self.model.pins.push((pins, cells));
    }

    /// The device reads what it has, and writes if it may.
    fn device(&mut self) -> Seen {
        let one = self.chance.next(self.model.pins.len() as u64) as usize;
        let (pins, cells) = &self.model.pins[one];
        let nth = self.chance.next(cells.len() as u64) as usize;
        let (cell, word) = (cells[nth], self.mm.platform().word(pins.frames()[nth], 0));
        let (seen, wanted) = (word.load(Ordering::SeqCst), self.model.values[cell]);
        if seen != wanted {
            return Err(format!("the device reads {seen}, and not {wanted}"));
        }
        if pins.access() == UserAccess::Write {
            self.written += 1;
            word.store(self.written, Ordering::SeqCst);
            self.model.values[cell] = self.written;
        }
        Ok(())
    }

    fn check(&self, space: usize, page: u64) -> Seen {
        let (id, shows) = &self.model.spaces[space];
        let (seen, wanted) = (
            read(self.mm, *id, AT + page).unwrap(),
            self.model.values[self.model.cell(shows[page as usize])],
        );
        if seen == wanted {
            return Ok(());
        }
        Err(format!("a program reads {seen} in page {page}, and not {wanted}"))
    }

    fn run(mut self) -> Seen {
        self.begin();
        (0..STEPS).try_for_each(|_| self.step())?;
        let everywhere =
            (0..self.model.spaces.len()).flat_map(|space| (0..3 * EACH).map(move |page| (space, page)));
        everywhere.clone().try_for_each(|(space, page)| self.check(space, page))?;
        let pinned: usize = self.model.pins.iter().map(|(_, cells)| cells.len()).sum();
        let audit = settled(self.mm);
        if (audit.broken, audit.pinned) != (None, pinned as u64) {
            return Err(format!("{pinned} pins are out: {audit:?}"));
        }
        let mm = self.mm;
        std::mem::take(&mut self.model.pins).into_iter().for_each(|(pins, _)| mm.unpin(pins));
        squeeze(mm);
        everywhere.clone().try_for_each(|(space, page)| self.check(space, page))
    }
}

fn play(policy: &str, broken: Option<Rule>, seed: u64) -> Seen {
    let node = |node: u16| Region {
        start: FrameNumber(0xfc00 + 256 * u32::from(node)),
        frames: 256,
        node: NodeId(node),
    };
    let setup =
        Setup { cpus: 2, nodes: 2, frames: 512, regions: Some(vec![node(0), node(1)]), ..Setup::default() };
    at(&setup, &swapping(policy), broken, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = mm.create_file(EACH).unwrap();
        Play { mm, file, model: Model::default(), chance: Chance(seed), written: 0 }.run()
    })
}

#[test]
fn a_device_and_programs_see_what_the_model_says() {
    for policy in ["linux", "quiet", "linux+free=sweep"] {
        for seed in 0..SEEDS {
            assert_eq!(play(policy, None, seed), Ok(()), "{policy}, seed {seed}");
        }
    }
}

#[test]
fn the_model_sees_each_rule_that_pins_rest_on() {
    for rule in [Rule::PinnedIsMapped, Rule::ForkCopiesPinned, Rule::PinOwnPage, Rule::DirtyBeforeUnpin] {
        let play = |seed| std::panic::catch_unwind(|| play("linux", Some(rule), seed));
        let seen = (0..8 * SEEDS).find(|&seed| !matches!(play(seed), Ok(Ok(()))));
        assert!(seen.is_some(), "{rule}");
    }
}
