//! Contiguous kernel addresses alone: four threads map scattered frames in a range of one gigabyte and unmap them, and other
//! CPUs are interrupted once for thousands of unmaps.
//!
//!     cargo run --release --example kernel_addresses

mod threads;

use std::sync::OnceLock;

use quietmm::policy::{Drain, VmapPolicy};
use quietmm::{
    AllocFrom, Alone, Config, Error, FrameNumber, KernelProt, PageNumber, PageRange, Policy, VmapPlace,
};
use threads::{MEMORY, Threads};

static MACHINE: Threads = Threads::new(|| KERNEL.get().into_iter().for_each(Alone::on_interrupt));
static KERNEL: OnceLock<Alone<'static, Threads>> = OnceLock::new();

const ROUNDS: u32 = 10_000;

fn main() -> Result<(), Error> {
    let policy = Policy { drain: Drain::Remote, vmap: VmapPolicy::Lazy, ..Policy::VANILLA };
    let range = PageRange::new(PageNumber::KERNEL_START, 1 << 18);
    let config = Config { vmap: Some(range), ..Config::new(policy) };
    // SAFETY: each thread is one CPU, all memory is in one block, what is copied stays in its frames, and nothing translates the
    // addresses, so a flush has flushed all there is.
    let made = unsafe { Alone::new(&MACHINE, &MEMORY, config) }?;
    let kernel = KERNEL.get_or_init(|| made);

    MACHINE.run(kernel, |cpu| {
        let block = kernel.frames().alloc(3, AllocFrom::HERE)?;
        let first = block.first().0;
        // Last frame first: contiguous they are not.
        let frames = [3, 2, 1, 0].map(|n| FrameNumber(first + n));
        for round in 0..ROUNDS {
            let mapped = kernel.vmap().map(&frames, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
            assert_eq!(kernel.vmap().frame_at(mapped.start)?, frames[0]);
            if cpu == 0 && round == 0 {
                println!("the first four pages are at {:#x}", mapped.start.addr().0);
            }
            kernel.vmap().unmap(mapped.start)?;
        }
        // Nobody sees the frames through an old mapping once they are another's.
        kernel.vmap().unmap_aliases()?;
        kernel.frames().free(block);
        Ok(())
    })?;
    kernel.frames().drain_here();

    let unmaps = 4 * ROUNDS;
    println!("{unmaps} maps and unmaps, {} interrupts", MACHINE.interrupts());
    assert_eq!(kernel.validate().broken, None);
    assert!(MACHINE.interrupts() < unmaps / 10);
    Ok(())
}
