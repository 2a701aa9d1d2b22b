//! What all must show: of each page of each space and file, what it holds.

use std::collections::BTreeMap;

use quietmm::{Advice, Error, PageNumber, PageRange, Prot, Term, UserAccess};

use super::Seen;
use super::work::{Out, Step, words_of};
use crate::machine::pages;

/// What a mapping shows: which file, from which page on, and whether privately.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Backs {
    Zeros,
    File(usize, u64),
    Private(usize, u64),
}

impl Backs {
    pub fn page(self, n: u64) -> Backs {
        match self {
            Backs::Zeros => Backs::Zeros,
            Backs::File(file, first) => Backs::File(file, first + n),
            Backs::Private(file, first) => Backs::Private(file, first + n),
        }
    }
}

/// What a page holds, or zeros, if that may be lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Value {
    pub is: u64,
    pub or_zero: bool,
}

impl Value {
    fn is(is: u64) -> Value {
        Value { is, or_zero: false }
    }

    pub fn allows(self, seen: u64) -> bool {
        seen == self.is || self.or_zero && seen == 0
    }

    pub fn seen(self, seen: u64) -> Value {
        Value { is: seen, or_zero: self.or_zero && seen != 0 }
    }
}

/// A page of a space.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub shows: Backs,
    /// What was written there, where that is the space's own.
    pub own: Option<Value>,
    pub prot: Prot,
    /// It is locked, and was there since.
    pub stays: bool,
    /// Which memory of its own it is, for devices.
    pub cell: u64,
}

impl Page {
    pub fn is_like(&self, other: &Page) -> bool {
        (self.shows, self.own, self.prot, self.stays) == (other.shows, other.own, other.prot, other.stays)
    }
}

/// What a pin is of.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    Own(u64),
    File(usize, u64, u64),
}

#[derive(Clone, Default)]
pub struct Shown {
    pub len: u64,
    pub content: BTreeMap<u64, u64>,
    /// How often each page was cut off.
    pub cuts: BTreeMap<u64, u64>,
}

/// What all of it must show.
#[derive(Clone, Default)]
pub struct Model {
    pub spaces: Vec<BTreeMap<u64, Page>>,
    pub files: Vec<Shown>,
    pub pins: Vec<(Target, UserAccess)>,
    pub cells: u64,
}

/// Whether an operation was refused for want of memory, and can be done later.
pub fn is_refused(out: Out) -> bool {
    matches!(out, Err(Error::OutOfMemory | Error::LimitReached(_)))
}

pub fn numbers(range: PageRange) -> std::ops::Range<u64> {
    range.start.0..range.end().0
}

pub fn must<T: PartialEq + std::fmt::Debug>(is: T, wanted: T) -> Seen {
    if is == wanted { Ok(()) } else { Err(format!("{is:?}, and not {wanted:?}")) }
}

impl Model {
    pub fn cell(&mut self) -> u64 {
        self.cells += 1;
        self.cells
    }

    fn hole(&self, space: usize, range: PageRange) -> Result<(), Error> {
        let hole = numbers(range).find(|page| !self.spaces[space].contains_key(page));
        hole.map_or(Ok(()), |page| Err(Error::NotMapped(PageNumber(page))))
    }

    fn clash(&self, space: usize, range: PageRange) -> Result<(), Error> {
        let clash = numbers(range).find(|page| self.spaces[space].contains_key(page));
        clash.map_or(Ok(()), |page| Err(Error::Overlaps(PageNumber(page))))
    }

    pub fn content(&self, file: usize, page: u64) -> u64 {
        self.files[file].content.get(&page).copied().unwrap_or(0)
    }

    /// Why an access to a page is an error.
    pub fn error(&self, space: usize, page: u64, access: UserAccess) -> Option<Error> {
        let Some(found) = self.spaces[space].get(&page) else {
            return Some(Error::NotMapped(PageNumber(page)));
        };
        match found.shows {
            _ if !found.prot.permits(access) => Some(Error::NotPermitted(PageNumber(page))),
            Backs::File(file, n) if n >= self.files[file].len => Some(Error::BeyondFile),
            Backs::Private(file, n) if found.own.is_none() && n >= self.files[file].len => {
                Some(Error::BeyondFile)
            }
            _ => None,
        }
    }

    pub fn value(&self, page: &Page) -> Value {
        match (page.own, page.shows) {
            (Some(own), _) => own,
            (None, Backs::Zeros) => Value::is(0),
            (None, Backs::File(file, n) | Backs::Private(file, n)) => Value::is(self.content(file, n)),
        }
    }

    pub fn page(&mut self, space: usize, page: u64) -> &mut Page {
        self.spaces[space].get_mut(&page).expect("it is mapped")
    }

    pub fn write(&mut self, space: usize, page: u64, value: u64) {
        let cell = self.cell();
        let found = self.page(space, page);
        match found.shows {
            Backs::File(file, n) => _ = self.files[file].content.insert(n, value),
            Backs::Private(..) if found.own.is_none() => {
                (found.own, found.cell) = (Some(Value::is(value)), cell)
            }
            _ => found.own = Some(Value::is(value)),
        }
    }

    /// A private page becomes the space's own.
    fn copy(&mut self, space: usize, page: u64) {
        let (found, cell) = (self.spaces[space][&page], self.cell());
        if matches!(found.shows, Backs::Private(..)) && found.own.is_none() {
            let value = self.value(&found);
            let found = self.page(space, page);
            (found.own, found.cell) = (Some(value), cell);
        }
    }

    /// Pages of a file are cut off.
    fn cut(&mut self, file: usize, part: std::ops::Range<u64>) {
        for n in part.clone() {
            *self.files[file].cuts.entry(n).or_default() += 1;
            self.files[file].content.remove(&n);
        }
        for page in self.spaces.iter_mut().flat_map(BTreeMap::values_mut) {
            page.stays &= match page.shows {
                Backs::File(of, n) => of != file || !part.contains(&n),
                Backs::Private(of, n) => page.own.is_some() || of != file || !part.contains(&n),
                Backs::Zeros => true,
            };
        }
    }

    /// All pages of a range are brought, each for this access.
    fn brought(
        &mut self,
        space: usize,
        range: PageRange,
        out: Out,
        access: impl Fn(&Page) -> UserAccess,
    ) -> Seen {
        let wants =
            |model: &Model, page: u64| model.spaces[space].get(&page).map_or(UserAccess::Read, &access);
        let errors: Vec<_> =
            numbers(range).filter_map(|page| self.error(space, page, wants(self, page))).collect();
        for page in numbers(range) {
            let access = wants(self, page);
            if self.error(space, page, access).is_some() {
                break;
            }
            if access == UserAccess::Write {
                self.copy(space, page);
            }
        }
        match out {
            Ok(_) => must(errors.first(), None),
            Err(error) if errors.contains(&error) => Ok(()),
            Err(error) => Err(format!("{error:?}, and none of {errors:?}")),
        }
    }

    /// What brings pages one after the other, and fails at one, may have brought others before something else was done.
    pub fn begun(&mut self, step: Step, out: Out) {
        if let Step::Lock(space, range) | Step::Advise(space, range, Advice::PopulateWrite) = step
            && out.is_err()
        {
            let ready = |model: &Self, page| model.error(space, page, UserAccess::Write).is_none();
            numbers(range).for_each(|page| {
                if ready(self, page) {
                    self.copy(space, page)
                }
            });
        }
    }

    /// What a step, of which this came, leaves behind. What was refused for want of memory has changed nothing.
    pub fn apply(&mut self, step: Step, out: Out) -> Seen {
        if is_refused(out) {
            return Ok(());
        }
        let done = out.map(|_| ());
        match step {
            Step::Map(space, range, backs, prot) => {
                must(done, self.clash(space, range))?;
                for (n, page) in (0..).zip(numbers(range)).filter(|_| out.is_ok()) {
                    let cell = self.cell();
                    let new = Page { shows: backs.page(n), own: None, prot, stays: false, cell };
                    self.spaces[space].insert(page, new);
                }
            }
            Step::Unmap(space, range) => {
                must(done, self.hole(space, range))?;
                self.spaces[space].retain(|page, _| out.is_err() || !numbers(range).contains(page));
            }
            Step::Protect(space, range, prot) => {
                must(done, self.hole(space, range))?;
                numbers(range).filter(|_| out.is_ok()).for_each(|page| self.page(space, page).prot = prot);
            }
            Step::Move(space, range, to) => {
                let to = pages(to, range.pages);
                must(done, self.clash(space, to).and_then(|()| self.hole(space, range)))?;
                for (n, page) in (0..).zip(numbers(range)).filter(|_| out.is_ok()) {
                    let moved = self.spaces[space].remove(&page).expect("it is mapped");
                    self.spaces[space].insert(to.start.0 + n, moved);
                }
            }
            Step::Remap(space, from, to) => {
                let stays = from.pages.min(to.pages);
                let gained = pages(to.start.0 + stays, to.pages - stays);
                let clash = if from.start == to.start { gained } else { to };
                must(done, self.hole(space, from).and_then(|()| self.clash(space, clash)))?;
                if out.is_ok() {
                    let old: Vec<_> =
                        numbers(from).map(|page| self.spaces[space].remove(&page).unwrap()).collect();
                    for n in 0..to.pages {
                        let last = *old.last().unwrap();
                        let cell = self.cell();
                        let gained = || {
                            let shows = last.shows.page(n + 1 - from.pages);
                            Page { shows, own: None, stays: false, cell, ..last }
                        };
                        let new = old.get(n as usize).copied().unwrap_or_else(gained);
                        self.spaces[space].insert(to.start.0 + n, new);
                    }
                }
            }
            Step::Advise(space, range, Advice::PopulateRead) => {
                self.brought(space, range, out, |_| UserAccess::Read)?;
            }
            Step::Advise(space, range, Advice::PopulateWrite) => {
                self.brought(space, range, out, |_| UserAccess::Write)?;
            }
            Step::Advise(space, range, Advice::Collapse) => {
                let small = matches!(done, Err(Error::NotCollapsible(_)));
                must(if small { Ok(()) } else { done }, self.hole(space, range))?;
            }
            Step::Advise(space, range, advice) => {
                must(done, self.hole(space, range))?;
                for page in numbers(range).filter(|_| out.is_ok()) {
                    let cell = self.cell();
                    let page = self.page(space, page);
                    match (advice, &mut page.own) {
                        (Advice::Drop, _) => (page.own, page.stays, page.cell) = (None, false, cell),
                        (Advice::Free, Some(own)) if page.shows == Backs::Zeros => own.or_zero = own.is != 0,
                        _ => {}
                    }
                }
            }
            Step::Migrate(space, range, _)
            | Step::MigrateAll(space, range, _)
            | Step::Unlock(space, range) => {
                must(done, self.hole(space, range))?;
                if let Step::Unlock(..) = step {
                    numbers(range)
                        .filter(|_| out.is_ok())
                        .for_each(|page| self.page(space, page).stays = false);
                }
            }
            Step::Place(space, range, _) => {
                // Nodes may have no memory at the moment.
                must(if done == Err(Error::NoSuchNode) { Ok(()) } else { done }, self.hole(space, range))?;
            }
            Step::Lock(space, range) => {
                let copies = |page: &Page| {
                    let own = !matches!(page.shows, Backs::File(..)) && page.prot.permits(UserAccess::Write);
                    if own { UserAccess::Write } else { UserAccess::Read }
                };
                self.brought(space, range, out, copies)?;
                numbers(range).filter(|_| out.is_ok()).for_each(|page| self.page(space, page).stays = true);
            }
            Step::Fork(from, to) => {
                must(done, Ok(()))?;
                let mut child = self.spaces[from].clone();
                child.values_mut().for_each(|page| (page.stays, page.cell) = (false, self.cell()));
                self.spaces[to] = child;
            }
            Step::Renew(space) => self.spaces[space].clear(),
            Step::Read(space, page) => match (out, self.error(space, page, UserAccess::Read)) {
                (Err(error), wanted) => must(Some(error), wanted)?,
                (Ok(_), Some(error)) => must(out, Err(error))?,
                (Ok(seen), None) => {
                    let value = self.value(&self.spaces[space][&page]);
                    if !value.allows(seen) {
                        return Err(format!("{seen}, and not {value:?}"));
                    }
                    let page = self.page(space, page);
                    page.own = page.own.map(|own| own.seen(seen));
                }
            },
            Step::Write(space, page, value) => {
                must(done, self.error(space, page, UserAccess::Write).map_or(Ok(()), Err))?;
                if out.is_ok() {
                    self.write(space, page, value);
                }
            }
            Step::FileRead(file, page) => {
                let beyond = page >= self.files[file].len;
                must(out, Ok(if beyond { u64::MAX } else { self.content(file, page) }))?;
            }
            Step::FileWrite(file, page, value) => {
                must(done, Ok(()))?;
                // As far as there was memory.
                for (page, word) in (page..).zip(words_of(value)).take(out.unwrap() as usize) {
                    let shown = &mut self.files[file];
                    shown.len = shown.len.max(page + 1);
                    shown.content.insert(page, word);
                }
            }
            Step::SetSize(file, len) => {
                must(done, Ok(()))?;
                self.cut(file, len..self.files[file].len.max(len));
                self.files[file].len = len;
            }
            Step::Punch(file, first, count) => {
                must(done, Ok(()))?;
                self.cut(file, first..(first + count).min(self.files[file].len.max(first)));
            }
            Step::WriteBack(_) => must(if out == Err(Error::Device) { Ok(()) } else { done }, Ok(()))?,
            Step::Pin(space, page, access, term) => self.pinned(space, page, (access, term), out)?,
            Step::Unpin(nth) if !self.pins.is_empty() => {
                _ = self.pins.swap_remove((nth % self.pins.len() as u64) as usize);
            }
            Step::DeviceWrites(nth, value) if !self.pins.is_empty() => {
                let pin = self.pins[(nth % self.pins.len() as u64) as usize];
                self.device_wrote(pin, value, out.unwrap())?;
            }
            Step::WritePinned(space, page, value) => {
                must(done, self.error(space, page, UserAccess::Write).map_or(Ok(()), Err))?;
                if out.is_ok() {
                    self.write(space, page, value);
                }
            }
            Step::Tables(..) | Step::Evict(..) | Step::ReadAhead(..) | Step::MigrateFile(..) => {
                must(done, Ok(()))?
            }
            Step::Group(..) | Step::Limit(..) => {
                must(if done == Err(Error::NoSuchGroup) { Ok(()) } else { done }, Ok(()))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A page was pinned, and held this.
    fn pinned(&mut self, space: usize, page: u64, (access, term): (UserAccess, Term), out: Out) -> Seen {
        let mut wanted: Vec<_> = self.error(space, page, access).into_iter().collect();
        let found = self.spaces[space].get(&page).copied();
        let shared = found.is_some_and(|page| matches!(page.shows, Backs::File(..)));
        if shared && access == UserAccess::Write && term == Term::Long {
            wanted.push(Error::NotPinnable(PageNumber(page)));
        }
        let seen = match out {
            Err(error) if wanted.contains(&error) => return Ok(()),
            Ok(seen) if wanted.is_empty() => seen,
            _ => return Err(format!("{out:?}, and not {wanted:?}")),
        };
        if access == UserAccess::Write || term == Term::Long {
            self.copy(space, page);
        }
        let found = self.spaces[space][&page];
        let value = self.value(&found);
        if !value.allows(seen) {
            return Err(format!("the device reads {seen}, and not {value:?}"));
        }
        let new = self.page(space, page);
        new.own = found.own.map(|own| own.seen(seen));
        if access == UserAccess::Write {
            new.own = new.own.map(|own| Value::is(own.is));
        }
        let target = match (found.shows, found.own) {
            (Backs::File(file, n), _) | (Backs::Private(file, n), None) => {
                Target::File(file, n, self.files[file].cuts.get(&n).copied().unwrap_or(0))
            }
            _ => Target::Own(found.cell),
        };
        self.pins.push((target, access));
        Ok(())
    }

    /// A device has read this through a pin, and has then written something, if it may.
    fn device_wrote(&mut self, (target, access): (Target, UserAccess), value: u64, seen: u64) -> Seen {
        let writes = access == UserAccess::Write;
        match target {
            Target::Own(cell) => {
                let mut all = self.spaces.iter_mut().flat_map(BTreeMap::values_mut);
                let Some(page) = all.find(|page| page.cell == cell) else { return Ok(()) };
                let own = page.own.get_or_insert(Value::is(0));
                if !own.allows(seen) {
                    return Err(format!("the device reads {seen}, and not {own:?}"));
                }
                *own = if writes { Value::is(value) } else { own.seen(seen) };
            }
            Target::File(file, n, cuts) if self.files[file].cuts.get(&n).copied().unwrap_or(0) == cuts => {
                must(seen, self.content(file, n))?;
                if writes {
                    self.files[file].content.insert(n, value);
                }
            }
            Target::File(..) => {}
        }
        Ok(())
    }
}
