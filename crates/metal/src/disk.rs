//! The disk: virtio-blk, memory-mapped. A task that waits for it sleeps; whether its command is done is looked for by an
//! alarm.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

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
/// How long between two looks, in nanoseconds.
const LOOK_NS: u64 = 50_000;

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

struct Disk(VirtIOBlk<Memory, MmioTransport<'static>>);

// SAFETY: the device and its rings are used under the lock only, from whatever CPU has it.
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
    DISK.with(|place| *place = Some(Disk(disk)));
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
    let sector = page as usize * SECTORS;
    let (mut request, mut response) = (BlkReq::default(), BlkResp::default());
    // SAFETY: the frame is the caller's for so long. A program that may still write there, which it must not while the page
    // goes out, would be seen in what the disk holds.
    let bytes = unsafe { core::slice::from_raw_parts_mut(direct(frame.phys().0), PAGE_SIZE as usize) };
    let token = loop {
        let begun = DISK.with(|disk| {
            let disk = &mut disk.as_mut().ok_or(Error::NotReady)?.0;
            // SAFETY: nothing of these is touched or dropped before the command is complete: this function waits for it.
            unsafe {
                match way {
                    Way::In => disk.read_blocks_nb(sector, &mut request, bytes, &mut response),
                    Way::Out => disk.write_blocks_nb(sector, &mut request, bytes, &mut response),
                }
            }
        });
        match begun {
            Ok(token) => break token,
            Err(Error::QueueFull) => rest(),
            Err(_) => return Err(DeviceError::Failed),
        }
    };
    loop {
        let ended = DISK.with(|disk| {
            let disk = &mut disk.as_mut()?.0;
            if disk.peek_used() != Some(token) {
                return None;
            }
            // SAFETY: the same as the command was begun with.
            Some(unsafe {
                match way {
                    Way::In => disk.complete_read_blocks(token, &request, bytes, &mut response),
                    Way::Out => disk.complete_write_blocks(token, &request, bytes, &mut response),
                }
            })
        });
        match ended {
            Some(result) => {
                DONE[way as usize].fetch_add(1, Ordering::Relaxed);
                return result.map_err(|_| DeviceError::Failed);
            }
            None => rest(),
        }
    }
}

/// This task sleeps for a moment.
fn rest() {
    let until = clock::now() + LOOK_NS;
    let Some(kernel) = interrupts::kernel() else { return clock::spin(LOOK_NS) };
    let key = WaitKey::Own((1 << 61) | u64::from(cpu::here().task.get()));
    alarm::set(until, key);
    kernel.wait(key, &mut || clock::now() >= until);
}
