//! Recording by perf events: the kernel writes what happens into a ring for each CPU, in the order of time on that CPU. What
//! belongs to threads is opened on them and passes on to all that they make; flushes are opened on whole CPUs, since
//! those that are interrupted may be anybody's.

pub mod files;
mod hurry;
mod ring;
mod sample;
mod tracefs;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use perf_event_open_sys::bindings as sys;

use super::child::{Child, Ended, wait_for};
use super::{Method, Missing, RecordError, Session, Told, What, proc};
use crate::assemble::Assembly;
use crate::seen::{Saw, Seen};
use crate::syscall::{CLONE_THREAD, CLONE_VM, Syscall};
use crate::write::Writer;
use hurry::Hurry;
use ring::{Of, Ring};
use sample::{At, Record};
use tracefs::Tracepoint;

/// Pages of a CPU's ring: on a busy host a program writes many MiB while the recorder waits for a CPU. 16 MiB, and from 8 CPUs on
/// less, down to 2 MiB.
fn ring_pages(cpus: usize) -> usize {
    ((32 << 10) / cpus.next_power_of_two()).clamp(512, 4096)
}

/// How long to wait for a ring to fill, in milliseconds.
const ROUND: i32 = 20;

/// A reason to flush: the CPU had left that space before. 1 is a remote shootdown.
const LEFT: u64 = 5;

/// What an event is good for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Source {
    Enter,
    Leave,
    UserFault,
    KernelFault,
    SoftwareFault,
    NewTask,
    Flush,
    Ask,
    SendMask,
    SendOne,
}

/// Everything that is opened.
pub struct Events {
    rings: Vec<Ring>,
    /// Kept open; their samples go into the rings.
    others: Vec<File>,
    by_id: BTreeMap<u64, Source>,
    points: BTreeMap<Source, Tracepoint>,
}

/// Records by tracepoints.
pub fn record(session: &Session<'_>) -> Result<Told, RecordError> {
    let folder = tracefs::folder().map_err(|error| {
        let command = match error.kind() {
            io::ErrorKind::NotFound => "sudo mount -t tracefs nodev /sys/kernel/tracing".to_owned(),
            _ => super::allow(),
        };
        RecordError::lacks(Method::Perf, format!("tracepoints cannot be read ({error})"), command)
    })?;
    let (mut child, threads) = subject(session)?;
    let mut missing = Vec::new();
    let _hurry = Hurry::begin();
    // A process that runs has events from when they are opened.
    let began = now();
    let opened = Events::of_tracepoints(&folder, &threads, &mut missing);
    let events = match opened {
        Ok(events) => events,
        Err(error) => {
            child.into_iter().for_each(Child::abandon);
            if let Some(missing) = files::missing(&error, &threads) {
                return Err(RecordError::NotAllowed(vec![(Method::Perf, missing)]));
            }
            let paranoid = proc::perf_event_paranoid()
                .map_or(String::new(), |level| format!(", perf_event_paranoid is {level}"));
            let what = format!("tracepoints cannot be opened ({error}{paranoid})");
            return Err(RecordError::lacks(Method::Perf, what, super::allow()));
        }
    };
    let shootdowns = events.points.contains_key(&Source::Flush);
    let mut assembly = session.assembly(Method::Perf, true)?;
    begin(session, began, &threads, &mut assembly)?;
    if let Some(child) = &mut child {
        child.release()?;
    }
    let mut pump = Pump::new(events);
    let ended = pump.run(session, child.as_ref(), &threads, &mut assembly)?;
    if let Some(failure) = child.as_mut().filter(|_| ended.is_some()).and_then(Child::failure) {
        return Err(failure);
    }
    Ok(Told { assembled: assembly.finish(), missing, faults: true, times: true, shootdowns, ended })
}

/// The child that waits to begin, or the threads that run already.
fn subject(session: &Session<'_>) -> Result<(Option<Child>, Vec<i32>), RecordError> {
    match &session.options.what {
        What::Command(words) => {
            let child = Child::hold(words)?;
            let pid = child.pid;
            Ok((Some(child), vec![pid]))
        }
        What::Process(process) => Ok((None, proc::threads(*process))),
    }
}

/// What is there before the first event: threads, and what is mapped.
pub fn begin(
    session: &Session<'_>,
    now: u64,
    threads: &[i32],
    assembly: &mut Assembly<Writer>,
) -> io::Result<()> {
    let Some(&first) = threads.first() else { return Ok(()) };
    assembly.known(now, first, threads)?;
    if let What::Process(process) = session.options.what {
        for map in proc::maps(process) {
            let (address, length, offset, prot) = (map.address, map.length, map.offset, map.prot);
            let flags = if map.shared { crate::syscall::MAP_SHARED } else { 0 };
            let saw = Saw::Mapped { address, length, offset, prot, flags, path: &map.path };
            assembly.take(Seen { at: now, cpu: 0, tid: first, saw })?;
        }
    }
    Ok(())
}

/// The clock of all events.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn attributes(kind: u32, config: u64) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr {
        type_: kind,
        size: size_of::<sys::perf_event_attr>() as u32,
        config,
        sample_type: sample::SAMPLE,
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_watermark = 256 << 10;
    attr.set_watermark(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr
}

impl Events {
    fn none() -> Events {
        Events { rings: Vec::new(), others: Vec::new(), by_id: BTreeMap::new(), points: BTreeMap::new() }
    }

    fn of_tracepoints(folder: &Path, threads: &[i32], missing: &mut Vec<Missing>) -> io::Result<Events> {
        let mut events = Events::none();
        files::raise(threads);
        let find = |group: &str, name: &str| Tracepoint::find(folder, group, name);
        let calls: Vec<String> = Syscall::ALL.iter().map(|call| format!("id == {}", call.number())).collect();
        let calls = calls.join(" || ");
        let of_threads = [
            (Source::Enter, find("raw_syscalls", "sys_enter")?, calls.as_str()),
            (Source::Leave, find("raw_syscalls", "sys_exit")?, calls.as_str()),
            (Source::UserFault, find("exceptions", "page_fault_user")?, ""),
            (Source::KernelFault, find("exceptions", "page_fault_kernel")?, "address < 0x800000000000"),
            (Source::NewTask, find("task", "task_newtask")?, ""),
        ];
        events.open_rings(threads, true)?;
        for (source, point, filter) in of_threads {
            for &tid in threads {
                events.open(source, sys::PERF_TYPE_TRACEPOINT, point.id, Of::Thread(tid), filter)?;
            }
            events.points.insert(source, point);
        }
        events.open_of_all(
            folder,
            missing,
            (Source::Flush, "tlb", "tlb_flush", "reason == 1 || reason == 5"),
        );
        // Who asks whom to flush, since Linux 6.3: also CPUs that have nothing to do, which then flush without an event. Before, and where
        // the kernel hides where its functions are, who sends interrupts.
        let asks = match tracefs::flush_functions() {
            Some(filter) => {
                events.open_of_all(folder, missing, (Source::Ask, "csd", "csd_queue_cpu", &filter))
            }
            None => {
                let what = "/proc/kallsyms does not say where flush_tlb_func is: requests to idle CPUs are not counted";
                missing.push(Missing::new(what.to_owned(), "sudo sysctl kernel.kptr_restrict=1"));
                false
            }
        };
        if !asks {
            events.open_of_all(folder, missing, (Source::SendMask, "ipi", "ipi_send_cpumask", ""));
            events.open_of_all(folder, missing, (Source::SendOne, "ipi", "ipi_send_cpu", ""));
        }
        Ok(events)
    }

    /// Opens a tracepoint for whoever runs. Returns whether that is possible.
    fn open_of_all(
        &mut self,
        folder: &Path,
        missing: &mut Vec<Missing>,
        (source, group, name, filter): (Source, &str, &str, &str),
    ) -> bool {
        let opened = Tracepoint::find(folder, group, name).and_then(|point| {
            self.open(source, sys::PERF_TYPE_TRACEPOINT, point.id, Of::All, filter)?;
            Ok(point)
        });
        match opened {
            Ok(point) => {
                self.points.insert(source, point);
                true
            }
            Err(error) => {
                missing.push(Missing::new(format!("{group}:{name} is not recorded ({error})"), ""));
                false
            }
        }
    }

    /// Only page faults, by the kernel's software event, which says where and not whether it was a write. Good for
    /// the unprivileged.
    pub fn of_faults(threads: &[i32]) -> io::Result<Events> {
        let mut events = Events::none();
        files::raise(threads);
        events.open_rings(threads, false)?;
        for &tid in threads {
            let (kind, config) = (sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_PAGE_FAULTS));
            events.open(Source::SoftwareFault, kind, config, Of::Thread(tid), "")?;
        }
        Ok(events)
    }

    /// A ring for each CPU, of an event that tells of threads, mappings and switches, if `all`; else of nothing.
    fn open_rings(&mut self, threads: &[i32], all: bool) -> io::Result<()> {
        let cpus = proc::online_cpus();
        let pages = ring_pages(cpus.len());
        for cpu in cpus {
            for (nth, &tid) in threads.iter().enumerate() {
                let mut attr = attributes(sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_DUMMY));
                attr.set_inherit(1);
                attr.set_exclude_kernel(1);
                if all {
                    attr.set_mmap(1);
                    attr.set_mmap2(1);
                    attr.set_mmap_data(1);
                    attr.set_comm(1);
                    attr.set_comm_exec(1);
                    attr.set_task(1);
                    attr.set_context_switch(1);
                }
                let event = ring::open(&mut attr, Of::Thread(tid), cpu)?;
                if nth == 0 {
                    self.rings.push(Ring::new(event, pages)?);
                } else if let Some(ring) = self.rings.last() {
                    ring::redirect(&event, ring)?;
                    self.others.push(event);
                }
            }
        }
        Ok(())
    }

    /// Opens an event on each CPU.
    fn open(&mut self, source: Source, kind: u32, config: u64, of: Of, filter: &str) -> io::Result<()> {
        for (cpu, ring) in proc::online_cpus().into_iter().zip(&self.rings) {
            let mut attr = attributes(kind, config);
            attr.set_inherit(u64::from(of != Of::All));
            attr.set_exclude_kernel(u64::from(source == Source::SoftwareFault));
            let event = ring::open(&mut attr, of, cpu)?;
            if !filter.is_empty() {
                ring::filter(&event, filter)?;
            }
            ring::redirect(&event, ring)?;
            self.by_id.insert(ring::id(&event)?, source);
            self.others.push(event);
        }
        Ok(())
    }
}

/// Records of all CPUs, in the order of time.
pub struct Pump {
    events: Events,
    /// What was read and may still be overtaken.
    waiting: BinaryHeap<Reverse<Waiting>>,
    read: u64,
    /// When the last two rounds began. All that happened before the older one is in; a record may be written some time
    /// after the moment that it has.
    rounds: [u64; 2],
}

struct Waiting {
    key: (u64, u64),
    at: At,
    record: Record,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Pump {
    pub fn new(events: Events) -> Pump {
        Pump { events, waiting: BinaryHeap::new(), read: 0, rounds: [0; 2] }
    }

    /// Until the program has ended, or it is time. Returns how it ended.
    fn run(
        &mut self,
        session: &Session<'_>,
        child: Option<&Child>,
        threads: &[i32],
        assembly: &mut Assembly<Writer>,
    ) -> Result<Option<Ended>, RecordError> {
        let mut over = false;
        loop {
            let ended = match child {
                Some(child) => child.ended()?,
                None => None,
            };
            let gone =
                child.is_none() && threads.first().is_none_or(|&process| proc::name(process).is_none());
            self.round(assembly)?;
            if ended.is_some() || gone || over {
                // What was on its way is in now.
                self.all(assembly)?;
                return Ok(ended);
            }
            over = session.is_over();
            let polled: Vec<&dyn AsRawFd> =
                self.events.rings.iter().map(|ring| &ring.event as &dyn AsRawFd).collect();
            wait_for(&polled, if over { 0 } else { ROUND })?;
        }
    }

    /// Reads what is there, and hands on what nothing can come before any more.
    fn round(&mut self, assembly: &mut Assembly<Writer>) -> io::Result<()> {
        let now = now();
        self.read()?;
        let [before, last] = self.rounds;
        self.rounds = [last, now];
        self.hand_on(before, assembly)
    }

    /// Reads what is there, and hands all of it on.
    pub fn all(&mut self, assembly: &mut Assembly<Writer>) -> io::Result<()> {
        self.read()?;
        self.hand_on(u64::MAX, assembly)
    }

    fn read(&mut self) -> io::Result<()> {
        let (waiting, read) = (&mut self.waiting, &mut self.read);
        for ring in &mut self.events.rings {
            ring.drain(|kind, misc, bytes| {
                if let Some((at, record)) = sample::read(kind, misc, bytes) {
                    *read += 1;
                    waiting.push(Reverse(Waiting { key: (at.time, *read), at, record }));
                }
            })?;
        }
        Ok(())
    }

    fn hand_on(&mut self, before: u64, assembly: &mut Assembly<Writer>) -> io::Result<()> {
        while self.waiting.peek().is_some_and(|Reverse(first)| first.key.0 < before) {
            if let Some(Reverse(Waiting { at, record, .. })) = self.waiting.pop() {
                self.events.take(at, &record, assembly)?;
            }
        }
        Ok(())
    }
}

impl Events {
    fn take(&self, at: At, record: &Record, assembly: &mut Assembly<Writer>) -> io::Result<()> {
        let seen = |tid: i32, saw| Seen { at: at.time, cpu: at.cpu, tid, saw };
        match record {
            Record::Sample { id, address, raw } => {
                let Some(&source) = self.by_id.get(id) else { return Ok(()) };
                self.sample(source, at, *address, raw, assembly)
            }
            Record::Mapped { address, length, offset, prot, flags, path } => {
                let (address, length, offset) = (*address, *length, *offset);
                let saw = Saw::Mapped { address, length, offset, prot: *prot, flags: *flags, path };
                assembly.take(seen(at.tid, saw))
            }
            Record::Name { tid, name, exec } => {
                assembly.take(seen(*tid, if *exec { Saw::Exec(name) } else { Saw::Name(name) }))
            }
            // The tracepoint says more, and comes a moment later.
            Record::Made { .. } if self.points.contains_key(&Source::NewTask) => Ok(()),
            Record::Made { tid, process, maker } => {
                let saw = Saw::Made { tid: *tid, process: Some(*process), shares: None };
                assembly.take(seen(*maker, saw))
            }
            Record::Gone { tid } => assembly.take(seen(*tid, Saw::Gone)),
            Record::On => assembly.take(seen(at.tid, Saw::On)),
            Record::Off { preempted } => assembly.take(seen(at.tid, Saw::Off { preempted: *preempted })),
            Record::Lost(count) => assembly.take(seen(at.tid, Saw::Lost(*count))),
        }
    }

    fn sample(
        &self,
        source: Source,
        at: At,
        address: u64,
        raw: &[u8],
        assembly: &mut Assembly<Writer>,
    ) -> io::Result<()> {
        let point = self.points.get(&source);
        let field = |name: &str| point.and_then(|point| point.field(name, raw)).unwrap_or(0);
        let saw = match source {
            Source::Enter => {
                let Some(call) = Syscall::of_number(field("id")) else { return Ok(()) };
                let word = |nth| point.and_then(|point| point.word("args", nth, raw)).unwrap_or(0);
                Saw::Enter { call, args: [0, 1, 2, 3, 4, 5].map(word), path: None, stack: "" }
            }
            Source::Leave => {
                let Some(call) = Syscall::of_number(field("id")) else { return Ok(()) };
                Saw::Leave { call, result: field("ret") as i64 }
            }
            Source::UserFault | Source::KernelFault => {
                Saw::Fault { address: field("address"), write: field("error_code") & 2 != 0 }
            }
            // Whether it wrote is not known; most first touches do.
            Source::SoftwareFault => Saw::Fault { address, write: true },
            Source::NewTask => {
                let (tid, flags) = (field("pid") as i32, field("clone_flags"));
                let process = (flags & CLONE_THREAD != 0).then(|| assembly.process_of(at.tid)).flatten();
                Saw::Made { tid, process, shares: Some(flags & CLONE_VM != 0) }
            }
            Source::Flush => {
                let pages = field("pages") as i64;
                Saw::Flushed { pages: u64::try_from(pages).unwrap_or(0), left: field("reason") == LEFT }
            }
            Source::Ask => {
                let cpu = point.and_then(|point| point.field("cpu", raw)).map(u16::try_from);
                let Some(Ok(cpu)) = cpu else { return Ok(()) };
                Saw::Asks(cpu)
            }
            Source::SendMask | Source::SendOne => {
                // Without a function to call there it is for the scheduler. Which function it is the kernel says of masks only,
                // so what makes it a flush is that its target flushes next.
                if field("callback") == 0 {
                    return Ok(());
                }
                let mask = match source {
                    Source::SendOne => one(field("cpu")),
                    _ => words(point.and_then(|point| point.located("cpumask", raw)).unwrap_or_default()),
                };
                return assembly.take(Seen { at: at.time, cpu: at.cpu, tid: at.tid, saw: Saw::Sends(&mask) });
            }
        };
        assembly.take(Seen { at: at.time, cpu: at.cpu, tid: at.tid, saw })
    }
}

fn one(cpu: u64) -> Vec<u64> {
    let Ok(cpu) = u16::try_from(cpu) else { return Vec::new() };
    let mut mask = vec![0; usize::from(cpu / 64) + 1];
    mask[usize::from(cpu / 64)] = 1 << (cpu % 64);
    mask
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn rings_are_powers_of_two_and_no_more_memory_than_a_large_host_can_spare() {
        for cpus in 1..=4096 {
            let pages = super::ring_pages(cpus);
            assert!(pages.is_power_of_two() && (512..=4096).contains(&pages), "{cpus} CPUs");
            assert!(pages == 512 || cpus * pages * 4096 <= 128 << 20, "{cpus} CPUs");
        }
        assert_eq!((super::ring_pages(2), super::ring_pages(16), super::ring_pages(64)), (4096, 2048, 512));
    }
}
