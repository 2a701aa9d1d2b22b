//! A thread's life: what it does next, and CPUs that go and come meanwhile.

use quietmm::{Backing, Counter, CpuId, Error, PageNumber, PageRange, Prot};
use rand_core::Rng;

use super::{LEAVES, OWN, PLAIN, RETURNS, SLOTS, STEPS, Thread, plain};
use crate::machine::Machine;

impl<M: Machine> Thread<'_, '_, M> {
    /// Takes CPUs away that this seed does not want, and writes the file that private mappings show.
    pub(super) fn prepare(&mut self, machine_cpus: u64) -> Result<(), Error> {
        for cpu in self.world.cpus..machine_cpus {
            self.system.take_offline(CpuId(cpu as u16));
        }
        let range = PageRange::new(self.slot(0), PLAIN.min(SLOTS));
        for offset in (0..PLAIN).step_by(range.pages as usize) {
            let backing = Backing::File { file: self.world.plain, offset };
            self.system.syscall(|mm| mm.space(self.process.space).map(range, backing, Prot::ReadWrite))?;
            for i in 0..range.pages {
                self.system.store(PageNumber(range.start.0 + i).addr(), plain(offset + i))?;
            }
            self.system.syscall(|mm| mm.space(self.process.space).unmap(range))?;
        }
        self.world.ready.with(&self.system.mm, |ready| *ready = true);
        Ok(())
    }

    pub(super) fn live(&mut self) -> Result<(), Error> {
        // Whatever chance says, in each run a CPU goes and comes back.
        let last = CpuId(self.world.cpus as u16 - 1);
        self.map_heap();
        for step in 0..STEPS {
            match (self.index, step) {
                (0, LEAVES) => _ = self.system.take_offline(last),
                (0, RETURNS) => _ = self.system.bring_online(last),
                _ => {}
            }
            let heap = !self.heap.is_empty() && self.pick(2) == 0;
            match self.process.calm {
                _ if heap => self.heap_step(),
                true => self.calm_step(),
                false => self.stormy_step(),
            }
            self.system.mm.platform().progressed(1);
        }
        if self.index == 0 && self.system.mm.counter(Counter::CpuOnline) == 0 {
            self.one_comes_back();
        }
        (0..SLOTS).for_each(|slot| self.check_own(slot));
        (0..self.heap.len() as u64).for_each(|i| self.check_heap(i));
        Ok(())
    }

    /// A CPU that is offline, or one that goes for this.
    pub(super) fn one_comes_back(&self) {
        let all = || (0..self.world.cpus as u16).map(CpuId);
        if !all().any(|cpu| self.system.bring_online(cpu)) {
            let gone = all().find(|&cpu| self.system.take_offline(cpu));
            gone.map(|cpu| self.system.bring_online(cpu));
        }
    }

    pub(super) fn calm_step(&mut self) {
        let step: fn(&mut Self) = match self.pick(64) {
            0..34 => Self::linger_in_the_file,
            34..38 => Self::write_own_page,
            38..58 => Self::cold_pages,
            58 => Self::write_back,
            59 => Self::cpus_come_and_go,
            _ => Self::nap,
        };
        step(self);
    }

    pub(super) fn stormy_step(&mut self) {
        let step: fn(&mut Self) = match self.pick(64) {
            0..12 => Self::store_own,
            12..22 => Self::check_some,
            22..28 => Self::look_at_another,
            28..33 => Self::look_at_some_page,
            33..35 => Self::write_own_page,
            35 => Self::linger,
            36..39 => Self::cold_pages,
            39..44 => Self::map,
            44..47 => Self::unmap,
            47..51 => Self::protect,
            51..53 => Self::drop_content,
            53..55 => Self::move_slots,
            55 => Self::migrate,
            56..58 => Self::fork,
            58 => Self::large,
            59 => Self::write_back,
            60 => Self::cpus_come_and_go,
            61 => Self::shoot_deaf,
            _ => Self::nap,
        };
        step(self);
    }

    fn check_some(&mut self) {
        let slot = self.pick(SLOTS);
        self.check_own(slot);
    }

    fn look_at_some_page(&mut self) {
        let page = self.pick(self.world.threads * OWN);
        self.look_at_page(page);
    }

    pub(super) fn nap(&mut self) {
        let ns = 1_000 + self.pick(20_000);
        self.system.nap(ns);
    }

    pub(super) fn pick(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    pub(super) fn cpus_come_and_go(&mut self) {
        let cpu = CpuId(self.pick(self.world.cpus) as u16);
        if !self.system.take_offline(cpu) {
            self.system.bring_online(cpu);
        }
    }

    /// A flush that nobody owes, by a CPU that hears no interrupt while it waits: others do so at the same time.
    pub(super) fn shoot_deaf(&mut self) {
        let (space, range) = (self.process.space, self.range(0, 4));
        self.system
            .syscall(|mm| {
                let were_on = mm.platform().irqs_off();
                let done = mm.space(space).flush_range(range);
                if were_on {
                    mm.platform().irqs_on();
                }
                done
            })
            .unwrap_or_default();
    }
}
