//! Swap devices as the machine drives them: what goes at once, what one interrupt serves, what a failed transfer leaves.

use std::cell::RefCell;
use std::rc::Rc;

use quietmm::addr::FrameNumber;
use quietmm::platform::{BlockDevice, Cpus, DeviceError, Hooks, Store, Transfer};
use quietmm::{Config, CpuId, Event, Kind, Policy};
use quietmm_workloads::TaskKind;

use crate::machine::Machine;
use crate::sim::{Sim, Stop, Watch};
use crate::ssd::{Done, GARBAGE};

struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

type Machined = Sim<'static, true>;

/// Frames that no program has: what they hold is a number all the same.
const FRAMES: FrameNumber = FrameNumber(1500);

fn machine(changes: &[(&str, &str)]) -> Machine {
    let mut machine = Machine::builtin("ssd-8").unwrap().with_cpus(2).unwrap();
    let usual = [
        ("memory", "8MiB"),
        ("swap.size", "4MiB"),
        ("swap.read_latency", "80us"),
        ("swap.write_latency", "20us"),
        // A page in a microsecond.
        ("read_bandwidth", "4096MB/s"),
        ("write_bandwidth", "4096MB/s"),
        ("swap.parallel", "8"),
    ];
    usual
        .iter()
        .chain(changes)
        .for_each(|(key, value)| machine.set(key, value).unwrap_or_else(|e| panic!("{e}")));
    machine
}

/// What a task on CPU 0 saw that did `work` on such a machine, how long it took in microseconds, and the machine.
fn with<R: 'static>(
    changes: &[(&str, &str)],
    work: impl FnOnce(&Machined) -> R + 'static,
) -> (R, u64, (Done, u64)) {
    let sim = Sim::<true>::new(machine(changes), 8, 1, None, &Nobody).unwrap();
    let system = sim.system(Config::new(Policy::parse("linux").unwrap())).unwrap();
    let space = system.mm.create_space().unwrap();
    let seen = Rc::new(RefCell::new(None));
    let told = Rc::clone(&seen);
    system.spawn("worker".into(), TaskKind::User(space), CpuId(0), move |system| {
        let m: *const () = std::ptr::from_ref(system.mm.platform()).cast();
        // SAFETY: the task ends before the machine does; only its lifetime is forgotten.
        let m = unsafe { &*m.cast::<Machined>() };
        let start = m.now().0;
        let result = work(m);
        *told.borrow_mut() = Some((result, (m.now().0 - start) / 1000));
        Ok(())
    });
    assert_eq!(sim.run(&system), Stop::Finished);
    let (result, us) = seen.borrow_mut().take().unwrap();
    let done = sim.ssds.borrow().iter().fold(Done::default(), |all, ssd| all.and(&ssd.done));
    let irqs = sim.cpus.iter().map(|cpu| cpu.io_irqs.get()).sum();
    (result, us, (done, irqs))
}

/// One transfer for each device and block.
fn transfers(places: &[(u32, u64)]) -> Vec<Transfer> {
    let one = |(i, &(device, block)): (usize, &(u32, u64))| {
        Transfer::new(Store::Swap(device), block, FRAMES.add(i as u32))
    };
    places.iter().enumerate().map(one).collect()
}

fn hold(m: &Machined, all: &[Transfer], content: impl Fn(usize) -> u64) {
    for (i, one) in all.iter().enumerate() {
        m.observe(&Event::Taken { frame: one.frame, order: 0, kind: Kind::Anon });
        m.set_content(one.frame, content(i));
    }
}

fn contents(m: &Machined, all: &[Transfer]) -> Vec<u64> {
    all.iter().map(|one| m.content(one.frame)).collect()
}

#[test]
fn what_was_written_is_read_back_from_the_device_that_has_it() {
    let places = [(0, 5), (1, 5), (0, 6), (3, 0), (2, 1023)];
    let (seen, ..) = with(&[], move |m| {
        let mut all = transfers(&places);
        hold(m, &all, |i| 100 + i as u64);
        m.write_all(&mut all);
        hold(m, &all, |_| 0);
        // In another order, beside a block that was never written.
        all.reverse();
        all.push(Transfer::new(Store::Swap(3), 1, FRAMES.add(9)));
        m.observe(&Event::Taken { frame: FRAMES.add(9), order: 0, kind: Kind::Anon });
        m.read_all(&mut all);
        assert!(all.iter().all(|one| one.result == Ok(())));
        contents(m, &all)
    });
    assert_eq!(seen, [104, 103, 102, 101, 100, GARBAGE]);
}

#[test]
fn all_transfers_of_a_call_go_at_once_and_neighbours_share_a_command() {
    let sixteen = || (0..16u64).map(|i| (i as u32 % 4, i / 4)).collect::<Vec<_>>();
    let (_, us, (done, irqs)) = with(&[], move |m| m.read_all(&mut transfers(&sixteen())));
    // Four commands of four pages, one for each device: the time of one, and what giving and ending them costs the CPU.
    assert_eq!((done.commands, done.pages), (4, 16));
    assert!((84..100).contains(&us), "{us}");
    assert!((1..=4).contains(&irqs), "{irqs}");

    // The same pages one call each.
    let (_, us, (done, irqs)) = with(&[], move |m| {
        for one in transfers(&sixteen()) {
            m.read(one.store, one.block, one.frame).unwrap();
        }
    });
    assert_eq!((done.commands, irqs), (16, 16));
    assert!((16 * 81..16 * 95).contains(&us), "{us}");

    // Far apart they are commands of their own, and one place is one at a time.
    let apart = || (0..6u64).map(|i| (0, 10 * i)).collect::<Vec<_>>();
    let (_, us, (done, _)) = with(&[("swap.parallel", "1")], move |m| m.read_all(&mut transfers(&apart())));
    assert_eq!(done.commands, 6);
    assert!((6 * 81..6 * 81 + 20).contains(&us), "{us}");
}

#[test]
fn one_interrupt_serves_what_a_device_has_done_by_then() {
    // All end in the same moment but for a microsecond each, which is less than an interrupt takes.
    let apart = |devices: u32| (0..8u64).map(|i| (i as u32 % devices, 10 * i)).collect::<Vec<_>>();
    let (_, _, (_, one)) = with(&[], move |m| m.read_all(&mut transfers(&apart(1))));
    let (_, _, (_, four)) = with(&[], move |m| m.read_all(&mut transfers(&apart(4))));
    assert!(one < 8 && four >= 4, "{one} {four}");
    let costly = [("io_complete", "0ns"), ("io_submit", "40us")];
    let (_, us, (_, irqs)) = with(&costly, move |m| m.read_all(&mut transfers(&apart(1))));
    assert!(irqs > one && irqs >= 6, "{irqs}: they come one by one where they are given one by one");
    assert!(us >= 8 * 40, "{us}: the CPU's cost is paid");
}

#[test]
fn a_page_that_fails_does_not_keep_others_from_going() {
    let many = || (0..512u64).map(|i| (i as u32 % 2, i / 2)).collect::<Vec<_>>();
    let run = |seed: &'static [(&str, &str)]| {
        with(seed, move |m| {
            let mut all = transfers(&many()[..64]);
            hold(m, &all, |i| 7 + i as u64);
            m.write_all(&mut all);
            assert!(all.iter().all(|one| one.result == Ok(())));
            m.read_all(&mut all);
            let seen = contents(m, &all);
            all.iter().map(|one| one.result.is_ok()).zip(seen).collect::<Vec<_>>()
        })
    };
    let (seen, _, (done, _)) = run(&[("read_errors", "200")]);
    let failed = seen.iter().filter(|(ok, _)| !ok).count();
    assert!((4..24).contains(&failed), "{failed}");
    assert_eq!(done.failed, failed as u64);
    for (i, &(ok, content)) in seen.iter().enumerate() {
        assert_eq!(content, if ok { 7 + i as u64 } else { GARBAGE }, "page {i}");
    }
    assert_eq!(run(&[("read_errors", "200")]).0, seen, "the same each time");
    assert_eq!(run(&[]).2.0.failed, 0);
}

#[test]
fn a_device_that_is_gone_says_so_at_once_and_one_that_does_not_exist_too() {
    let (results, us, (done, irqs)) = with(&[("gone_at", "1ns")], |m| {
        let mut all = transfers(&[(3, 1), (2, 1), (7, 1)]);
        m.read_all(&mut all);
        all.iter().map(|one| one.result).collect::<Vec<_>>()
    });
    assert_eq!(results, [Err(DeviceError::Gone), Ok(()), Err(DeviceError::Gone)]);
    assert_eq!((done.commands, done.failed, irqs), (1, 1, 1));
    assert!((81..95).contains(&us), "{us}");
    let (results, us, _) = with(&[("full_at", "1ns")], |m| {
        let mut all = transfers(&[(0, 1)]);
        m.write_all(&mut all);
        m.read_all(&mut transfers(&[(0, 1)]));
        all[0].result
    });
    assert_eq!(results, Err(DeviceError::Gone));
    assert!(us >= 80, "it was read");
}
