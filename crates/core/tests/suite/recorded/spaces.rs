//! Programs: spaces, files, faults, reclaim, swap, frames, CPUs that come and go.

use quietmm::platform::{Cpus, DeviceError};
use quietmm::{
    Advice, AllocFrom, Backing, Certainty, Config, FileId, FrameNumber, Frames, NodeId, Offline, PageNumber,
    Prot, Region, SpaceId,
};

use super::{Dice, Record, begin, recorded};
use crate::machine::{Host, Mm, Setup, bare, pages, pcp};

const CPUS: u16 = 4;
/// A little before the end of a table, and before page numbers pass 2^16; beside large pages.
const AT: u64 = 0xffc0;

struct Day<'m, 'p> {
    mm: &'m Mm<'p>,
    dice: Dice,
    spaces: Vec<SpaceId>,
    files: Vec<FileId>,
    frames: Vec<Frames>,
    /// Nodes whose kswapd was woken, and has not run.
    kswapd: Vec<NodeId>,
    offline: Vec<Offline>,
}

impl Day<'_, '_> {
    fn range(&mut self) -> (u64, u64) {
        match self.dice.below(9) {
            8 => (0x1_0400 + 16 * self.dice.below(36), 24),
            0 => (0x1_0000, 512),
            1 => (0x1_0000 + 512 * self.dice.below(3), 1024),
            2 => (AT + self.dice.below(80), 1 + self.dice.below(40)),
            _ => (AT + 8 * self.dice.below(9), 8 * (1 + self.dice.below(4))),
        }
    }

    fn backing(&mut self) -> Backing {
        let (file, offset) = (self.dice.pick(&self.files), self.dice.below(20));
        match self.dice.below(4) {
            0 | 1 => Backing::Anonymous,
            2 => Backing::File { file, offset },
            _ => Backing::Private { file, offset },
        }
    }

    /// A step, and what came of it.
    fn step(&mut self, cpu: u16) -> (String, String) {
        let (mm, host) = (self.mm, self.mm.platform());
        let id = self.dice.pick(&self.spaces);
        let (at, count) = self.range();
        let range = pages(at, count);
        let prot = self.dice.pick(&[Prot::ReadWrite, Prot::ReadWrite, Prot::Read, Prot::None]);
        let said = |name: &str, gave: &dyn std::fmt::Debug| (name.to_string(), format!("{gave:?}"));
        match self.dice.below(36) {
            0..=3 => {
                let backing = self.backing();
                said(
                    &format!("map {at:#x}+{count} {prot:?} {backing:?}"),
                    &mm.space(id).map(range, backing, prot),
                )
            }
            4..=8 => {
                let mut gave = Vec::new();
                let entered = mm.space(id).switch_to();
                if entered.is_ok() {
                    for n in 0..count.min(24) {
                        gave.push(if (n + at) % 3 == 0 {
                            host.read(mm, id, at + n)
                        } else {
                            host.write(mm, id, at + n, at + n).map(|()| 0)
                        });
                    }
                }
                gave.dedup();
                said(&format!("use {at:#x}+{count}"), &(entered, gave))
            }
            9 => said(&format!("unmap {at:#x}+{count}"), &mm.space(id).unmap(range)),
            10 => said(&format!("protect {at:#x}+{count} {prot:?}"), &mm.space(id).protect(range, prot)),
            11 => {
                let to = PageNumber(AT + 0x400 + 16 * self.dice.below(4));
                said(&format!("move {at:#x}+{count} to {to:?}"), &mm.space(id).move_range(range, to))
            }
            12 if self.spaces.len() < 5 => {
                let made = mm.space(id).fork();
                self.spaces.extend(made);
                said("fork", &made)
            }
            13 if self.spaces.len() > 1 => {
                let done = mm.space(id).destroy();
                if done.is_ok() {
                    self.spaces.retain(|&other| other != id);
                }
                said("destroy", &done)
            }
            14 => {
                let made = mm.create_space();
                if self.spaces.len() < 5 {
                    self.spaces.extend(made);
                    said("create", &made)
                } else {
                    said("create and destroy", &made.and_then(|id| mm.space(id).destroy()))
                }
            }
            15 => said("write back", &mm.file(self.dice.pick(&self.files)).write_back()),
            16 => {
                let advice = self.dice.pick(&[Advice::Drop, Advice::Large, Advice::Large, Advice::Small]);
                said(&format!("advise {at:#x}+{count} {advice:?}"), &mm.space(id).advise(range, advice))
            }
            17 => {
                let node = NodeId(self.dice.below(3) as u16);
                said(&format!("migrate {at:#x}+{count} to {node:?}"), &mm.space(id).migrate(range, node))
            }
            18 => {
                mm.enter_lazy();
                said("lazy", &())
            }
            19 => said("leave lazy", &mm.leave_lazy()),
            20 if self.dice.one_in(2) => {
                mm.unload();
                said("unload", &())
            }
            20 => {
                assert!(host.irqs_off());
                mm.tick();
                host.irqs_on();
                said("tick", &mm.sweep_is_over())
            }
            21 => said(&format!("flush {at:#x}+{count}"), &mm.space(id).flush_range(range)),
            22 => {
                mm.drain_lru_batches();
                said("drain lru", &())
            }
            23 | 24 => {
                mm.drain_lru_batch();
                let mut held = Vec::new();
                while held.len() < 2500 {
                    let Ok(frame) = mm.frames().alloc(0, AllocFrom::HERE) else { break };
                    held.push(frame);
                }
                let got = held.len();
                held.into_iter().for_each(|frame| mm.frames().free(frame));
                said("squeeze", &(got > 100))
            }
            25 if !self.kswapd.is_empty() => {
                let node = self.kswapd.remove(0);
                said(&format!("kswapd of {node:?}"), &mm.kswapd(node))
            }
            25 => said("kswapd of no node", &mm.kswapd(NodeId(7))),
            26 | 27 => {
                let order = self.dice.below(12) as u8;
                let node = self.dice.pick(&[None, Some(NodeId(0)), Some(NodeId(1))]);
                let from = AllocFrom { node, may_reclaim: self.dice.one_in(2) };
                let made = mm.frames().alloc(order, from);
                let gave = made.as_ref().map(|_| ()).map_err(|error| *error);
                self.frames.extend(made);
                said(&format!("alloc {order} {from:?}"), &gave)
            }
            28 | 29 => {
                let few = self.frames.len().min(3);
                let some: Vec<_> = self.frames.drain(..few).collect();
                some.into_iter().for_each(|block| mm.frames().free(block));
                said("free", &few)
            }
            30 => {
                let certainty = self.dice.pick(&[Certainty::Likely, Certainty::Certain]);
                mm.frames().drain(certainty);
                said(&format!("drain {certainty:?}"), &())
            }
            31 => {
                if mm.is_online(quietmm::CpuId(cpu)) && cpu != 0 {
                    said("offline", &mm.cpu_offline())
                } else {
                    said("drain own", &mm.frames().drain_here())
                }
            }
            32 => {
                let (device, priority) = (self.dice.below(2) as u32, self.dice.below(2) as i16);
                if self.dice.one_in(3) {
                    said(&format!("swap off {device}"), &mm.swap().off(device))
                } else {
                    said(&format!("swap on {device} {priority}"), &mm.swap().on(device, 1024, priority))
                }
            }
            33 => {
                let first = FrameNumber(0xfc00 + 1024 * self.dice.below(3) as u32);
                match mm.frames().begin_offline(first) {
                    Ok(leaving) => match mm.frames().finish_offline(leaving) {
                        Ok(block) => {
                            self.offline.push(block);
                            said("memory offline", &"gone")
                        }
                        Err(remains) => {
                            let said = said("memory offline", &(remains.kind, remains.frame));
                            mm.frames().cancel_offline(remains.leaving);
                            said
                        }
                    },
                    Err(error) => said("memory offline", &error),
                }
            }
            34 => {
                let some = self.offline.pop();
                let was = some.is_some();
                some.into_iter().for_each(|block| mm.frames().bring_online(block));
                said("memory online", &was)
            }
            _ => {
                host.fail_writes.set(self.dice.one_in(4));
                let refuses = self.dice.one_in(4);
                host.refuse_reads
                    .set(refuses.then_some(|_, block| (block % 7 == 3).then_some(DeviceError::Failed)));
                said("device", &(host.fail_writes.get(), refuses))
            }
        }
    }
}

fn day(name: &str, policy: &str, swap: bool, seed: u64, steps: u32) {
    let region = |node: u16| Region {
        start: FrameNumber(0xfc00 + 1024 * u32::from(node)),
        frames: 1024,
        node: NodeId(node),
    };
    let regions = Some(vec![region(0), region(1)]);
    let host =
        Host::new(Setup { cpus: CPUS.into(), nodes: 2, tags: 2, frames: 2048, regions, ..Setup::default() });
    let config = Config {
        swap,
        shadows: swap,
        page_lists: pcp(4),
        min_free: Some(40),
        lru_batch: 3,
        scan_batch: 8,
        flush_ceiling: 7,
        pageout_limit: 16,
        ..bare(policy)
    };
    recorded(name, seed, |record: &mut Record, dice| {
        host.run(config, |mm| {
            let files = vec![mm.create_file(60).unwrap(), mm.create_file(2000).unwrap()];
            let spaces = vec![mm.create_space().unwrap()];
            let [small, large] = [files[0], files[1]];
            for (at, count, backing) in [
                (AT, 40, Backing::Anonymous),
                (AT + 40, 24, Backing::Private { file: small, offset: 3 }),
                (0x1_0000, 1024, Backing::Anonymous),
                (0x1_0400, 600, Backing::File { file: large, offset: 0 }),
            ] {
                mm.space(spaces[0]).map(pages(at, count), backing, Prot::ReadWrite).unwrap();
            }
            let (frames, kswapd, offline) = Default::default();
            let mut day = Day { mm, dice, spaces, files, frames, kswapd, offline };
            begin(&host);
            for _ in 0..steps {
                let cpu = day.dice.below(CPUS.into()) as u16;
                if !mm.is_online(quietmm::CpuId(cpu)) {
                    host.on(cpu, || mm.cpu_online().unwrap());
                    record.step(mm, "online", cpu, &());
                }
                let (step, gave) = host.on(cpu, || day.step(cpu));
                record.step(mm, &step, cpu, &format_args!("{gave}"));
                day.kswapd.append(&mut record.kswapd);
            }
            host.fail_writes.set(false);
            host.refuse_reads.set(None);
            for block in day.offline.drain(..) {
                mm.frames().bring_online(block);
            }
            day.frames.drain(..).for_each(|block| mm.frames().free(block));
            for cpu in 0..CPUS {
                if mm.is_online(quietmm::CpuId(cpu)) {
                    host.on(cpu, || mm.unload());
                }
            }
            day.spaces.iter().for_each(|&id| mm.space(id).destroy().unwrap());
            record.step(mm, "the end", 0, &());
        });
    });
}

#[test]
fn a_day_of_programs_without_swap() {
    day("programs-vanilla", "vanilla", false, 0x5eed_0001, 200);
}

#[test]
fn a_day_of_programs_with_swap() {
    day("programs-linux", "linux", true, 0x5eed_0002, 260);
}

#[test]
fn a_day_of_programs_quietly() {
    day("programs-quiet", "quiet", true, 0x5eed_0003, 260);
}
