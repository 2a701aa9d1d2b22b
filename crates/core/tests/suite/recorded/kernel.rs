//! A kernel range: maps of all sizes, small ones in blocks, frames of their own, purges.

use quietmm::{Config, FrameNumber, PageNumber, PageRange, VmapPlace};

use super::{Dice, Record, begin, recorded};
use crate::machine::kernel::{RW, at, frames, free, kernel};
use crate::machine::{Host, Mm, Setup};

const CPUS: u16 = 3;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Map,
    Own,
    Ram,
}

struct Day<'m, 'p> {
    mm: &'m Mm<'p>,
    dice: Dice,
    pages: u64,
    frames: Vec<FrameNumber>,
    live: Vec<(PageRange, Kind)>,
}

impl Day<'_, '_> {
    fn size(&mut self) -> u64 {
        match self.dice.below(6) {
            0 => 1 + self.dice.below(200),
            1 => 1 + self.dice.below(70),
            _ => 1 + self.dice.below(6),
        }
    }

    fn step(&mut self) -> (String, String) {
        let mm = self.mm;
        let said = |name: &str, gave: &dyn std::fmt::Debug| (name.to_string(), format!("{gave:?}"));
        let pages = self.size();
        let list: Vec<_> = self.frames[..pages as usize].to_vec();
        match self.dice.below(24) {
            0..=5 => {
                let within = self.dice.one_in(4).then(|| {
                    let from = self.dice.below(self.pages);
                    at(from, 1 + self.dice.below(self.pages - from))
                });
                let align = 1 << (self.dice.below(12).saturating_sub(6));
                let place = VmapPlace { align, within, guard: self.dice.one_in(2), node: None };
                let own = self.dice.one_in(3);
                let made =
                    if own { mm.vmap().alloc(pages, place, RW) } else { mm.vmap().map(&list, place, RW) };
                self.live.extend(made.map(|range| (range, if own { Kind::Own } else { Kind::Map })));
                said(&format!("map {pages} {place:?} {own}"), &made)
            }
            6..=11 => {
                let few = list.len().min(1 + self.dice.below(9) as usize);
                let made = mm.vmap().map_ram(&list[..few], RW);
                self.live.extend(made.map(|range| (range, Kind::Ram)));
                said(&format!("ram {few}"), &made)
            }
            12..=19 if !self.live.is_empty() => {
                let which = self.dice.below(self.live.len() as u64) as usize;
                let (range, kind) = self.live.swap_remove(which);
                let done = match kind {
                    Kind::Map => mm.vmap().unmap(range.start),
                    Kind::Own => mm.vmap().free(range.start),
                    Kind::Ram => mm.vmap().unmap_ram(range),
                };
                said(&format!("unmap {range:?}"), &done)
            }
            20 if !self.live.is_empty() => {
                let (range, _) = self.dice.pick(&self.live);
                let page = PageNumber(range.start.0 + self.dice.below(range.pages + 1));
                said(
                    &format!("look {page:?}"),
                    &(
                        mm.vmap().find(page),
                        mm.vmap()
                            .frame_at(page)
                            .map(|frame| self.frames.iter().position(|own| *own == frame)),
                        mm.platform().read_kernel(page).is_some(),
                        mm.vmap().unmap(PageNumber(page.0 ^ 1 << 30)),
                        mm.vmap().free(PageNumber(page.0 ^ 1 << 40)),
                    ),
                )
            }
            21 => said("purge", &mm.vmap().purge()),
            22 => said("aliases", &mm.vmap().unmap_aliases()),
            _ => said("waits", &mm.vmap().waits()),
        }
    }
}

fn day(name: &str, policy: &str, pages: u64, config: Config, seed: u64, steps: u32) {
    let host = Host::new(Setup { cpus: CPUS.into(), frames: 3072, ..Setup::default() });
    recorded(name, seed, |record: &mut Record, dice| {
        host.run(Config { flush_ceiling: 20, ..config }, |mm| {
            let own = frames(mm, 256);
            let mut day = Day { mm, dice, pages, frames: own.clone(), live: Vec::new() };
            begin(&host);
            for n in 0..steps {
                let cpu = day.dice.below(CPUS.into()) as u16;
                let (step, gave) = host.on(cpu, || day.step());
                record.step(mm, &step, cpu, &format_args!("{gave}"));
                if n % 40 == 39 {
                    // Somebody leaves, and comes back.
                    let cpu = 1 + (n / 40 % 2) as u16;
                    host.on(cpu, || mm.cpu_offline().unwrap());
                    record.step(mm, "offline", cpu, &());
                    host.on(cpu, || mm.cpu_online().unwrap());
                    record.step(mm, "online", cpu, &());
                }
            }
            for (range, kind) in day.live {
                let done = match kind {
                    Kind::Map => mm.vmap().unmap(range.start),
                    Kind::Own => mm.vmap().free(range.start),
                    Kind::Ram => mm.vmap().unmap_ram(range),
                };
                assert_eq!(done, Ok(()), "{policy}");
            }
            record.step(mm, "all unmapped", 0, &());
            mm.vmap().unmap_aliases().unwrap();
            record.step(mm, "the end", 0, &mm.vmap().waits());
            free(mm, own);
        });
    });
}

#[test]
fn a_day_in_a_small_kernel_range() {
    let config = Config { vmap_shards: Some(2), ..kernel("linux", 700) };
    day("kernel-small", "linux", 700, config, 0x5eed_0011, 400);
}

#[test]
fn a_day_in_a_large_kernel_range_that_purges_by_itself() {
    let config = Config { vmap_shards: Some(3), vmap_lazy: Some(150), ..kernel("linux", 1 << 16) };
    day("kernel-large", "linux", 1 << 16, config, 0x5eed_0012, 500);
}

#[test]
fn a_day_in_a_kernel_range_that_flushes_at_once() {
    day("kernel-vanilla", "vanilla", 2000, kernel("vanilla", 2000), 0x5eed_0013, 300);
}
