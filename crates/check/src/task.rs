//! What a script can do: call the core, and run a program.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use quietmm::addr::FrameNumber;
use quietmm::{AllocFrom, Backing, Error, FileId, Frames, PageNumber, PageRange, Prot, SpaceId, UserAccess};

use crate::machine::{Machine, Mm, Place, What};
use crate::violation::Violation;

/// Faults at one access after which it will never succeed.
const FAULTS: u32 = 50;

/// What the scripts of a scenario share: filled by the part before, used by all.
#[derive(Default)]
pub struct World {
    /// Spaces, in the order in which they were made.
    pub spaces: RefCell<Vec<SpaceId>>,
    /// Files, likewise.
    pub files: RefCell<Vec<FileId>>,
    /// Frames that the scenario holds.
    pub frames: RefCell<Vec<Frames>>,
    /// Kernel ranges.
    pub ranges: RefCell<Vec<PageRange>>,
    /// Numbers, for whatever a scenario wants to remember.
    pub numbers: [Cell<u64>; 8],
    /// What each CPU wrote last, by space and page.
    ledger: RefCell<BTreeMap<(SpaceId, u64, u16), u64>>,
    written: Cell<u64>,
}

/// A CPU, as its script sees it.
pub struct Task<'a> {
    machine: &'a Machine,
    mm: &'a Mm<'a>,
    /// What the scripts share.
    pub world: &'a World,
    id: u16,
}

impl<'a> Task<'a> {
    pub(crate) fn new(machine: &'a Machine, mm: &'a Mm<'a>, world: &'a World, id: u16) -> Self {
        Task { machine, mm, world, id }
    }

    /// The CPU's number.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The core, for questions. What is to be explored goes through [`call`](Self::call).
    pub fn mm(&self) -> &'a Mm<'a> {
        self.mm
    }

    /// Does the same as another CPU: only before the scripts begin, and after they have ended.
    pub fn as_cpu<R>(&self, id: u16, work: impl FnOnce(&Task<'a>) -> R) -> R {
        assert!(!self.machine.running.get(), "scripts run on their own CPUs");
        let before = self.machine.current.replace(id);
        let result = work(&Task { id, ..*self });
        self.machine.current.set(before);
        result
    }

    /// Calls the core. Meanwhile no program runs on this CPU; afterwards it may use all that the CPU has cached.
    pub fn call<R>(&self, name: &'static str, work: impl FnOnce(&Mm<'a>) -> Result<R, Error>) -> Result<R, Error> {
        let cpu = self.machine.cpu();
        self.machine.note(|| What::Call(name));
        cpu.depth.set(cpu.depth.get() + 1);
        let result = work(self.mm);
        cpu.depth.set(cpu.depth.get() - 1);
        self.machine.note(|| What::Return(name, result.is_ok()));
        if cpu.in_user_mode() {
            self.machine.judge_user(self.id);
        }
        result
    }

    /// The same for what cannot fail here: an error is a violation.
    pub fn must<R>(&self, name: &'static str, work: impl FnOnce(&Mm<'a>) -> Result<R, Error>) -> R {
        match self.call(name, work) {
            Ok(value) => value,
            Err(error) => self.fail("promise", format!("{name} failed: {error}")),
        }
    }

    /// Something does not hold that the scenario promises.
    pub fn fail(&self, invariant: &'static str, what: String) -> ! {
        self.machine.fail(Violation::new(invariant, self.id, what))
    }

    /// It does not hold, unless it does.
    pub fn promise(&self, holds: bool, what: &str) {
        if !holds {
            self.fail("promise", what.to_string());
        }
    }

    /// Says something for the timeline.
    pub fn say(&self, what: &'static str) {
        self.machine.note(|| What::Says(what));
    }

    /// The `n`th space.
    pub fn space(&self, n: usize) -> SpaceId {
        self.world.spaces.borrow()[n]
    }

    /// The `n`th file.
    pub fn file(&self, n: usize) -> FileId {
        self.world.files.borrow()[n]
    }

    /// Makes a space; gives its number in the world.
    pub fn create_space(&self) -> usize {
        let id = self.must("create_space", |mm| mm.create_space());
        self.world.spaces.borrow_mut().push(id);
        self.world.spaces.borrow().len() - 1
    }

    /// Makes a file of so many pages; gives its number in the world.
    pub fn create_file(&self, pages: u64) -> usize {
        let id = self.must("create_file", |mm| mm.create_file(pages));
        self.world.files.borrow_mut().push(id);
        self.world.files.borrow().len() - 1
    }

    /// Maps anonymous memory in the `n`th space, to read and write.
    pub fn map(&self, n: usize, page: u64, pages: u64) {
        self.map_as(n, page, pages, Backing::Anonymous, Prot::ReadWrite);
    }

    /// Maps whatever it is.
    pub fn map_as(&self, n: usize, page: u64, pages: u64, backing: Backing, prot: Prot) {
        let id = self.space(n);
        self.must("map", |mm| mm.map(id, range(page, pages), backing, prot));
    }

    /// Runs a program of the `n`th space from now on, outside of calls.
    pub fn run_in(&self, n: usize) {
        let id = self.space(n);
        self.must("switch_to", |mm| mm.switch_to(id));
        self.go_back();
    }

    /// The same, when the space may have ended.
    pub fn try_run_in(&self, n: usize) -> Result<(), Error> {
        let id = self.space(n);
        self.stop_program();
        self.call("switch_to", |mm| mm.switch_to(id))?;
        self.go_back();
        Ok(())
    }

    fn go_back(&self) {
        self.machine.cpu().user.set(true);
        self.machine.record(Place::Tlb(self.id), true);
        self.machine.judge_user(self.id);
    }

    fn stop_program(&self) {
        self.machine.cpu().user.set(false);
        self.machine.record(Place::Tlb(self.id), true);
    }

    /// No program runs here any more, and the space stays loaded.
    pub fn go_lazy(&self) {
        self.stop_program();
        let _ = self.call("enter_lazy", |mm| {
            mm.enter_lazy();
            Ok(())
        });
    }

    /// Back to the program, if its space is still loaded; says whether it is.
    pub fn leave_lazy(&self) -> bool {
        let loaded = self.call("leave_lazy", |mm| {
            mm.leave_lazy();
            Ok(mm.loaded_space().is_some())
        });
        if loaded == Ok(true) {
            self.go_back();
        }
        loaded == Ok(true)
    }

    /// No space is loaded here any more.
    pub fn unload(&self) {
        self.stop_program();
        let _ = self.call("unload", |mm| {
            mm.unload();
            Ok(())
        });
    }

    /// This CPU goes offline: it hears nothing any more.
    pub fn go_offline(&self) {
        self.stop_program();
        let _ = self.call("cpu_offline", |mm| {
            mm.cpu_offline();
            Ok(())
        });
        let cpu = self.machine.cpu();
        cpu.online.set(false);
        cpu.pending.set(false);
    }

    /// And comes back. Its TLB has kept what it had.
    pub fn come_online(&self) {
        let cpu = self.machine.cpu();
        cpu.leaves_or_comes.set(true);
        cpu.online.set(true);
        let _ = self.call("cpu_online", |mm| {
            mm.cpu_online();
            Ok(())
        });
        cpu.leaves_or_comes.set(false);
        self.machine.judge_arrival(self.id);
    }

    /// With interrupts off.
    pub fn deaf<R>(&self, work: impl FnOnce() -> R) -> R {
        use quietmm::Platform;
        let were_on = self.machine.irqs_off();
        let result = work();
        if were_on {
            self.machine.irqs_on();
        }
        result
    }

    /// The program reads its own number in a page; an error where that is not allowed (any more).
    pub fn peek(&self, n: usize, page: u64) -> Result<u64, Error> {
        self.access(n, page, None)
    }

    /// The same, and it must be what this CPU wrote last.
    pub fn read(&self, n: usize, page: u64) -> Result<(), Error> {
        let found = self.peek(n, page)?;
        let key = (self.space(n), page, self.id);
        let wanted = self.world.ledger.borrow().get(&key).copied();
        if let Some(wanted) = wanted.filter(|&wanted| wanted != found) {
            self.fail("content", format!("CPU {} reads {found} from page {page:#x}, and wrote {wanted}", self.id));
        }
        Ok(())
    }

    /// The program writes a new number there.
    pub fn write(&self, n: usize, page: u64) -> Result<(), Error> {
        let value = self.world.written.get() + 1;
        self.world.written.set(value);
        self.access(n, page, Some(value))?;
        self.world.ledger.borrow_mut().insert((self.space(n), page, self.id), value);
        Ok(())
    }

    /// What was written to these pages is given up.
    pub fn forget(&self, n: usize, page: u64, pages: u64) {
        let space = self.space(n);
        self.world.ledger.borrow_mut().retain(|key, _| key.0 != space || !(page..page + pages).contains(&key.1));
    }

    /// What was written in one space can be read in another: after a fork.
    pub fn inherit(&self, from: usize, to: usize) {
        let (from, to) = (self.space(from), self.space(to));
        let mut ledger = self.world.ledger.borrow_mut();
        let copies: Vec<_> = ledger.iter().filter(|(key, _)| key.0 == from).map(|(key, &value)| ((to, key.1, key.2), value)).collect();
        ledger.extend(copies);
    }

    /// What was written at some pages is at others from now on.
    pub fn moved(&self, n: usize, from: u64, to: u64, pages: u64) {
        let space = self.space(n);
        let mut ledger = self.world.ledger.borrow_mut();
        for page in 0..pages {
            for lane in 0..self.machine.setup().cpus {
                if let Some(value) = ledger.remove(&(space, from + page, lane)) {
                    ledger.insert((space, to + page, lane), value);
                }
            }
        }
    }

    fn access(&self, n: usize, page: u64, write: Option<u64>) -> Result<u64, Error> {
        let id = self.space(n);
        for _ in 0..FAULTS {
            if self.mm_loaded() != Some(id) || !self.machine.cpu().user.get() {
                return Err(Error::NoSuchSpace);
            }
            if let Some(value) = self.machine.access(page, write) {
                return Ok(value);
            }
            let access = if write.is_some() { UserAccess::Write } else { UserAccess::Read };
            self.machine.note(|| What::Fault(page));
            self.call("fault", |mm| mm.fault(id, PageNumber(page).addr(), access))?;
        }
        self.fail("livelock", format!("page {page:#x} faults again and again"))
    }

    /// What is loaded here, without a point.
    fn mm_loaded(&self) -> Option<SpaceId> {
        let running = self.machine.running.replace(false);
        let loaded = self.mm.loaded_space();
        self.machine.running.set(running);
        loaded
    }

    /// Takes all frames that are free, so that whoever wants one must reclaim.
    pub fn take_all_memory(&self) {
        while let Ok(frames) = self.mm.alloc_frames(0, AllocFrom::NOW) {
            self.lend(frames.first());
            self.world.frames.borrow_mut().push(frames);
        }
    }

    /// Gives back so many of the frames that the scenario holds.
    pub fn give_back(&self, count: usize) {
        for _ in 0..count {
            let Some(frames) = self.world.frames.borrow_mut().pop() else { return };
            self.mm.free_frames(frames);
        }
    }

    /// One frame for the scenario, by reclaim if there is no other; says whether there was one.
    pub fn reclaim(&self) -> bool {
        let frames = self.call("alloc_frames", |mm| mm.alloc_frames(0, AllocFrom::HERE));
        match frames {
            Ok(frames) => {
                self.lend(frames.first());
                self.world.frames.borrow_mut().push(frames);
                true
            }
            Err(_) => false,
        }
    }

    /// So many frames for the scenario, for kernel maps; all of order 0.
    pub fn frames(&self, count: usize) -> Vec<FrameNumber> {
        (0..count)
            .map(|_| {
                let frames = self.must("alloc_frames", |mm| mm.alloc_frames(0, AllocFrom::NOW));
                self.lend(frames.first());
                frames.into_raw().0
            })
            .collect()
    }

    /// Gives one of these back.
    pub fn free_frame(&self, frame: FrameNumber) {
        self.must("free_frames", |mm| mm.free_frames_at(frame, 0));
    }

    fn lend(&self, frame: FrameNumber) {
        if let Some(state) = self.machine.memory.state(frame) {
            state.lent.set(true);
        }
    }

    /// The core has just given these kernel addresses out.
    pub fn given(&self, range: PageRange) -> PageRange {
        self.machine.judge_given(range);
        range
    }

    /// The kernel uses a page of its own: it must lead to this frame.
    pub fn use_kernel(&self, page: PageNumber, frame: FrameNumber) {
        let found = self.machine.kernel_access(page.0);
        if found != Some(frame) {
            let said = format!("CPU {} finds {found:?} at kernel page {:#x}, where {frame:?} is mapped", self.id, page.0);
            self.fail("INV-3", said);
        }
    }

    /// No CPU may have this frame at any kernel address.
    pub fn no_alias(&self, frame: FrameNumber) {
        self.machine.judge_no_alias(frame);
    }

    /// Every CPU puts what it has on its way where it belongs. After the scripts.
    pub fn settle(&self) {
        for id in 0..self.machine.setup().cpus {
            if self.machine.cpus[usize::from(id)].online.get() {
                self.as_cpu(id, |task| {
                    task.mm.drain_lru_batch();
                    task.mm.drain_page_list();
                });
            }
        }
    }

    /// Reads again all that was ever written and not given up, and has the core look at itself.
    pub(crate) fn audit(&self) {
        let wanted: Vec<_> = self.world.ledger.borrow().iter().map(|(&key, &value)| (key, value)).collect();
        for ((space, page, lane), value) in wanted {
            self.as_cpu(lane, |task| {
                let switched = task.must("switch_to", |mm| mm.switch_to(space));
                let () = switched;
                task.go_back();
                let number = task.world.spaces.borrow().iter().position(|&known| known == space);
                let Some(number) = number else { return };
                match task.peek(number, page) {
                    Ok(found) if found == value => {}
                    Ok(found) => task.fail("content", format!("page {page:#x} holds {found} of CPU {lane}, who wrote {value}")),
                    Err(error) => task.fail("content", format!("page {page:#x}, which CPU {lane} wrote, cannot be read: {error}")),
                }
            });
        }
        self.settle();
        if let Some(broken) = self.mm.validate().broken {
            self.fail("audit", broken.to_string());
        }
    }
}

/// Pages from one on.
pub fn range(page: u64, pages: u64) -> PageRange {
    PageRange::new(PageNumber(page), pages)
}
