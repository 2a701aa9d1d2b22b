//! The disk: virtio-blk, memory-mapped. A task that waits for it sleeps; whether its command is done is looked for by an
//! alarm. Whoever looks ends all commands that are done, and wakes their tasks: none waits for another task to run.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use quietmm::platform::{DeviceError, WaitKey};
use quietmm::{FrameNumber, addr::PAGE_SIZE};
use virtio_drivers::device::blk::{BlkReq, BlkResp, SECTOR_SIZE, VirtIOBlk};
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport};
use virtio_drivers::{BufferDirection, Error, Hal, PhysAddr};

use crate::lock::Lock;
use crate::paging::{self, direct};
use crate::{alarm, clock, cpu, interrupts};

const SECTORS: usize = PAGE_SIZE as usize / SECTOR_SIZE;
/// How long between two looks, in nanoseconds: from, and to, twice as long each time. Many tasks that look often leave the device no
/// processor to work with.
const LOOK_NS: (u64, u64) = (50_000, 400_000);
/// Commands that the driver's queue holds.
const MOST: usize = 16;

/// Memory as the driver wants it.
struct Memory;

// SAFETY: what is handed out is mapped, the driver's own, and never freed; addresses are translated as the tables do, and
// buffers lie in one piece physically: frames, and stacks.
unsafe impl Hal for Memory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let at = paging::cut(pages as u64 * PAGE_SIZE);
        (at, NonNull::new(direct(at)).expect("the direct map does not begin at 0"))
    }
    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }
    unsafe fn mmio_phys_to_virt(at: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(direct(at)).expect("the direct map does not begin at 0")
    }
    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        paging::physical(buffer.cast::<u8>().addr().get() as u64)
    }
    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

struct Disk {
    driver: VirtIOBlk<Memory, MmioTransport<'static>>,
    /// Commands under way, by the driver's number for each.
    flights: [Option<Flight>; MOST],
}

impl Disk {
    /// Ends a command that is done, if one is; returns what its task waits for.
    fn end_one(&mut self) -> Option<WaitKey> {
        let token = self.driver.peek_used()?;
        let flight = self.flights[usize::from(token)].take()?;
        // SAFETY: the same as the command was begun with; its task waits until `ended` says so, and looks at none of it before.
        unsafe {
            let (request, bytes, response) = (&*flight.request, &mut *flight.bytes, &mut *flight.response);
            let result = match flight.way {
                Way::In => self.driver.complete_read_blocks(token, request, bytes, response),
                Way::Out => self.driver.complete_write_blocks(token, request, bytes, response),
            };
            let how = if result.is_ok() { ended::WELL } else { ended::BADLY };
            // Release: partner of the Acquire in `transfer`. From here on the command is its task's again.
            (*flight.ended).store(how, Ordering::Release);
        }
        Some(flight.key)
    }
}

/// What a command was begun with. All of it lies on the stack of a task that waits until it has ended, but for the frame, which that task
/// holds as long.
struct Flight {
    way: Way,
    request: *const BlkReq,
    response: *mut BlkResp,
    bytes: *mut [u8],
    ended: *const AtomicU8,
    key: WaitKey,
}

/// How a command has ended.
mod ended {
    pub const NOT: u8 = 0;
    pub const WELL: u8 = 1;
    pub const BADLY: u8 = 2;
}

// SAFETY: the device, its rings and what commands point to are used under the lock only, from whatever CPU has it.
unsafe impl Send for Disk {}

static DISK: Lock<Option<Disk>> = Lock::new(None);

/// Where `microvm` has its devices: so many places, one after the other.
const PLACES: (u64, u64) = (0xfeb0_0000, 24);
const REGISTERS: usize = 512;

/// Commands that were done so far: pages that came, and pages that went.
pub static DONE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Takes over the first disk, if there is one; returns how many pages it holds. On the first CPU, while it is alone.
pub fn open() -> Option<u64> {
    let (first, count) = PLACES;
    let disk = (0..count).find_map(|place| open_at(first + place * REGISTERS as u64))?;
    let pages = disk.capacity() / SECTORS as u64;
    DISK.with(|place| *place = Some(Disk { driver: disk, flights: [const { None }; MOST] }));
    Some(pages)
}

fn open_at(registers: u64) -> Option<VirtIOBlk<Memory, MmioTransport<'static>>> {
    let header = NonNull::new(direct(registers).cast::<VirtIOHeader>())?;
    // SAFETY: a place for a device of this machine, which the direct map covers; where there is none all reads give 0.
    let transport = unsafe { MmioTransport::new(header, REGISTERS) }.ok()?;
    (transport.device_type() == DeviceType::Block).then(|| VirtIOBlk::new(transport).ok())?
}

/// Which way a page goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the disk.
    In,
    /// To the disk.
    Out,
}

/// Moves a page between the disk and a frame, which the caller holds. Waits.
///
/// # Errors
/// The disk's.
pub fn transfer(way: Way, page: u64, frame: FrameNumber) -> Result<(), DeviceError> {
    let (mut request, mut response) = (BlkReq::default(), BlkResp::default());
    let ended = AtomicU8::new(ended::NOT);
    // SAFETY: the frame is the caller's for so long. A program that may still write there, which it must not while the page
    // goes out, would be seen in what the disk holds.
    let bytes = unsafe { core::slice::from_raw_parts_mut(direct(frame.phys().0), PAGE_SIZE as usize) };
    let key = WaitKey::Own((1 << 61) | u64::from(cpu::here().task()));
    let mut flight = Flight {
        way,
        request: &raw const request,
        response: &raw mut response,
        bytes,
        ended: &raw const ended,
        key,
    };
    let mut pause = LOOK_NS.0;
    loop {
        match begin(flight, page, &mut request) {
            Ok(()) => break,
            Err((Error::QueueFull, back)) => flight = back,
            Err(_) => return Err(DeviceError::Failed),
        }
        look();
        rest(key, &mut pause, || false);
    }
    let mut pause = LOOK_NS.0;
    loop {
        look();
        // Acquire: partner of the Release in `look`. What the command pointed to is this task's again.
        match ended.load(Ordering::Acquire) {
            ended::NOT => rest(key, &mut pause, || ended.load(Ordering::Relaxed) != ended::NOT),
            how => {
                DONE[way as usize].fetch_add(1, Ordering::Relaxed);
                return if how == ended::WELL { Ok(()) } else { Err(DeviceError::Failed) };
            }
        }
    }
}

/// Begins a command.
///
/// # Errors
/// The driver's, with the command.
fn begin(flight: Flight, page: u64, request: &mut BlkReq) -> Result<(), (Error, Flight)> {
    let sector = page as usize * SECTORS;
    DISK.with(|disk| {
        let Some(Disk { driver, flights }) = disk else { return Err((Error::NotReady, flight)) };
        // SAFETY: nothing of these is touched or dropped before the command is complete: `transfer` waits for it.
        let begun = unsafe {
            let (bytes, response) = (&mut *flight.bytes, &mut *flight.response);
            match flight.way {
                Way::In => driver.read_blocks_nb(sector, request, bytes, response),
                Way::Out => driver.write_blocks_nb(sector, request, bytes, response),
            }
        };
        match begun {
            Ok(token) => flights[usize::from(token)] = Some(flight),
            Err(error) => return Err((error, flight)),
        }
        Ok(())
    })
}

/// Ends all commands that are done, and wakes their tasks.
#[inline(always)]
fn look() {
    while let Some(key) = DISK.with(|disk| disk.as_mut().and_then(Disk::end_one)) {
        interrupts::kernel().into_iter().for_each(|kernel| kernel.wake(key));
    }
}

/// This task sleeps for a moment, or until `ready`; the next time longer.
fn rest(key: WaitKey, pause: &mut u64, ready: impl Fn() -> bool) {
    let until = clock::now() + *pause;
    let Some(kernel) = interrupts::kernel() else { return clock::spin(*pause) };
    *pause = (*pause * 2).min(LOOK_NS.1);
    alarm::set(until, key);
    kernel.wait(key, &mut || ready() || clock::now() >= until);
}
