//! The frame allocator alone: four threads allocate blocks and free those of each other, and no CPU is interrupted.
//!
//!     cargo run --release --example frames

mod threads;

use std::sync::{Mutex, OnceLock};

use quietmm::policy::Drain;
use quietmm::{AllocFrom, Alone, Config, Counter, Error, Policy};
use threads::{MEMORY, Threads};

static MACHINE: Threads = Threads::new(|| KERNEL.get().into_iter().for_each(Alone::on_interrupt));
static KERNEL: OnceLock<Alone<'static, Threads>> = OnceLock::new();

fn main() -> Result<(), Error> {
    let policy = Policy { drain: Drain::Remote, ..Policy::VANILLA };
    // SAFETY: each thread is one CPU, all memory is in one block, and what is copied stays in its frames.
    let made = unsafe { Alone::new(&MACHINE, &MEMORY, Config::new(policy)) }?;
    let kernel = KERNEL.get_or_init(|| made);
    println!("{} frames are free", kernel.frames().available());

    let shelf = Mutex::new(Vec::new());
    MACHINE.run(kernel, |_| {
        for round in 0..10_000_u32 {
            let block = kernel.frames().alloc((round % 4) as u8, AllocFrom::HERE)?;
            let mut shelf = shelf.lock().expect("nobody panics");
            shelf.push(block);
            // Mostly another thread's.
            let other = if shelf.len() > 64 { Some(shelf.swap_remove(round as usize % 64)) } else { None };
            drop(shelf);
            other.into_iter().for_each(|block| kernel.frames().free(block));
        }
        Ok(())
    })?;
    shelf.into_inner().expect("nobody panics").into_iter().for_each(|block| kernel.frames().free(block));
    // What this CPU has on its lists goes back, as the others' went when they went offline.
    kernel.frames().drain_here();

    println!(
        "{} frames are free, {} interrupts were sent",
        kernel.frames().available(),
        MACHINE.interrupts()
    );
    println!(
        "{} frames were taken, {} freed",
        kernel.counter(Counter::PgAlloc),
        kernel.counter(Counter::PgFree)
    );
    assert_eq!(kernel.validate().broken, None);
    assert_eq!(MACHINE.interrupts(), 0);
    Ok(())
}
