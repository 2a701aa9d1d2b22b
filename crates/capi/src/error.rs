//! Errors as numbers.

use core::ffi::{CStr, c_char};

/// What came of a call. Numbers keep their meaning; new ones come at the end.
///
/// After an error nothing has changed, unless the call says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Error {
    /// It is done.
    Ok = 0,
    /// No frame could be had, not even by reclaim.
    OutOfMemory = 1,
    /// As many spaces, mappings or files exist as the core can name.
    TooMany = 2,
    /// No memory was handed over, or too little for the bookkeeping.
    TooLittleMemory = 3,
    /// Two regions overlap, or one is empty or reaches beyond 8 TiB; or one that may come later is not of whole blocks of 1024 frames.
    BadRegion = 4,
    /// More CPUs than 4096 or none, or a node beyond 63.
    BadTopology = 5,
    /// A setting is out of its range.
    BadSetting = 6,
    /// The policy needs a guarantee that the platform does not declare, or hardware that it does not have.
    GuaranteeMissing = 7,
    /// Not a live address space.
    NoSuchSpace = 8,
    /// Not a live file.
    NoSuchFile = 9,
    /// The range is empty, reaches beyond user addresses, or wraps.
    BadRange = 10,
    /// No program may map this page.
    NotMappable = 11,
    /// What is asked of the file lies beyond its end.
    BeyondFile = 12,
    /// Something is mapped there already.
    Overlaps = 13,
    /// The space has as many mappings as it may.
    MapCount = 14,
    /// Nothing is mapped there.
    NotMapped = 15,
    /// The mapping does not allow this access.
    NotPermitted = 16,
    /// A CPU still runs in this space, a mapping still uses this file, or another block of the region is on its way
    /// offline.
    Busy = 17,
    /// The frame is not managed by the core.
    NoSuchFrame = 18,
    /// The frame is not allocated in a block of this order: a double free, or a wrong order.
    NotAllocated = 19,
    /// An order above 10.
    BadOrder = 20,
    /// Not the start of a block of memory that could go offline, or come.
    BadBlock = 21,
    /// The frame can never be freed: it holds the core's bookkeeping.
    NotMovable = 22,
    /// A node that does not exist.
    NoSuchNode = 23,
    /// The device could not read the page.
    Device = 24,
    /// The swap device that has this page cannot give it back.
    SwapDevice = 25,
    /// Swap was not asked for in the configuration.
    NoSwap = 26,
    /// Not a swap device that is in use, or one that is already.
    NoSuchSwapDevice = 27,
    /// No kernel range was given in the configuration.
    NoKernelRange = 28,
    /// An alignment that is not a power of two, or larger than the kernel range.
    BadAlignment = 29,
    /// No run of kernel addresses is long enough, not even after a purge.
    NoAddress = 30,
    /// The kernel pages from here on were not mapped by the call that this one belongs to.
    WrongRelease = 31,
    /// This CPU is offline, or has never come online.
    NotOnline = 32,
    /// This CPU is online already.
    AlreadyOnline = 33,
    /// Interrupts must be on: this policy waits for other CPUs here.
    NeedsInterrupts = 34,
    /// A device may not write to this page for an unbounded time: it is a file's.
    NotPinnable = 35,
    /// The page has as many pins as can be counted.
    TooManyPins = 36,
    /// Pages may not be written and executed at once.
    WriteAndExecute = 37,
    /// The file system lets nobody write to the page of its file.
    WriteRefused = 38,
    /// Groups were not asked for in the configuration.
    NoGroups = 39,
    /// Not a live group.
    NoSuchGroup = 40,
    /// The space's group is charged with all the memory that it may have, and none of it could be reclaimed.
    LimitReached = 41,
    /// These 2 MiB cannot be a large page: a page is pinned, or not all of it is one mapping of the program's own memory.
    NotCollapsible = 42,
    /// The block of memory came already, or was here from the start.
    AlreadyHere = 43,
    /// An error that this header does not know yet.
    Other = 255,
    /// The storage is too small, or not aligned: see `quietmm_storage_size`.
    BadStorage = 256,
    /// A function of the platform is missing that the core cannot do without.
    NoCallback = 257,
    /// Not the name of a policy.
    BadPolicy = 258,
    /// A number that none of its enum's values has.
    BadValue = 259,
    /// No counter has this name.
    NoSuchCounter = 260,
}

/// The core's errors that have a number here, each with that.
macro_rules! numbers {
    ($($name:ident $({ $($rest:tt)* })? $(( $($field:tt)* ))?),* $(,)?) => {
        impl From<quietmm::Error> for Error {
            fn from(error: quietmm::Error) -> Self {
                match error {
                    $(quietmm::Error::$name $({ $($rest)* })? $(( $($field)* ))? => Error::$name,)*
                    _ => Error::Other,
                }
            }
        }
    };
}

numbers!(
    OutOfMemory,
    TooMany,
    TooLittleMemory,
    BadRegion,
    BadTopology,
    BadSetting(_),
    GuaranteeMissing { .. },
    NoSuchSpace,
    NoSuchFile,
    BadRange,
    NotMappable(_),
    BeyondFile,
    Overlaps(_),
    MapCount { .. },
    NotMapped(_),
    NotPermitted(_),
    Busy,
    NoSuchFrame(_),
    NotAllocated(_),
    BadOrder(_),
    BadBlock(_),
    NotMovable(_),
    NoSuchNode,
    Device,
    SwapDevice(_),
    NoSwap,
    NoSuchSwapDevice,
    NoKernelRange,
    BadAlignment(_),
    NoAddress,
    WrongRelease(_),
    NotOnline,
    AlreadyOnline,
    NeedsInterrupts,
    NotPinnable(_),
    TooManyPins(_),
    WriteAndExecute,
    WriteRefused(_),
    NoGroups,
    NoSuchGroup,
    LimitReached(_),
    NotCollapsible(_),
    AlreadyHere(_),
);

/// Each in words.
const TEXTS: &[(Error, &CStr)] = &[
    (Error::Ok, c"done"),
    (Error::OutOfMemory, c"no frame is free and none could be reclaimed"),
    (Error::TooMany, c"too many spaces, mappings or files exist at once"),
    (Error::TooLittleMemory, c"too little memory for the core's bookkeeping; hand over more"),
    (Error::BadRegion, c"memory regions must be non-empty, disjoint, sorted, end at 8 TiB or before, whole blocks if they come later"),
    (Error::BadTopology, c"there must be 1 to 4096 CPUs on nodes 0 to 63"),
    (Error::BadSetting, c"a setting is out of its range"),
    (Error::GuaranteeMissing, c"the policy needs a guarantee that the platform does not declare"),
    (Error::NoSuchSpace, c"not a live address space"),
    (Error::NoSuchFile, c"not a live file"),
    (Error::BadRange, c"the range must be non-empty and inside user addresses"),
    (Error::NotMappable, c"no program may map this page"),
    (Error::BeyondFile, c"that lies beyond the end of the file"),
    (Error::Overlaps, c"something is mapped there already"),
    (Error::MapCount, c"the space has as many mappings as max_map_count allows"),
    (Error::NotMapped, c"nothing is mapped there"),
    (Error::NotPermitted, c"the mapping does not allow this access"),
    (Error::Busy, c"still in use"),
    (Error::NoSuchFrame, c"the frame is not managed"),
    (Error::NotAllocated, c"the frame is not allocated in this order"),
    (Error::BadOrder, c"an order is 0 to 10"),
    (Error::BadBlock, c"a block that can go offline or come is 1024 frames, aligned, whole in one region"),
    (Error::NotMovable, c"the frame holds the core's bookkeeping and cannot be freed"),
    (Error::NoSuchNode, c"no such node"),
    (Error::Device, c"the device could not read the page"),
    (Error::SwapDevice, c"the swap device cannot give the page back"),
    (Error::NoSwap, c"swap was not asked for: set `swap` in the configuration"),
    (Error::NoSuchSwapDevice, c"no swap device of this number is in use, or it is in use already"),
    (Error::NoKernelRange, c"no kernel range was given: set `vmap` in the configuration"),
    (Error::BadAlignment, c"an alignment must be a power of two within the kernel range"),
    (Error::NoAddress, c"no run of kernel addresses is long enough"),
    (Error::WrongRelease, c"not the start of what this call releases"),
    (Error::NotOnline, c"this CPU is not online: it must call `quietmm_cpu_online` first"),
    (Error::AlreadyOnline, c"this CPU is online already, by `is_online` or an earlier `quietmm_cpu_online`"),
    (Error::NeedsInterrupts, c"interrupts must be on: vmap=eager waits for other CPUs"),
    (Error::NotPinnable, c"a page of a file cannot be pinned long for writing"),
    (Error::TooManyPins, c"the page is pinned too often already"),
    (Error::WriteAndExecute, c"the configuration lets no page be written and executed at once"),
    (Error::WriteRefused, c"the file system lets nobody write to the page"),
    (Error::NoGroups, c"groups were not asked for: set `groups` in the configuration"),
    (Error::NoSuchGroup, c"not a live group"),
    (
        Error::LimitReached,
        c"the group is charged with all the memory that it may have, and none could be reclaimed",
    ),
    (
        Error::NotCollapsible,
        c"it cannot be a large page: a page is pinned, or not all of it is one mapping of own memory",
    ),
    (Error::AlreadyHere, c"the block of memory is here already"),
    (Error::Other, c"an error that this header does not know yet"),
    (Error::BadStorage, c"the storage is too small or not aligned"),
    (Error::NoCallback, c"a function of the platform is missing"),
    (Error::BadPolicy, c"not the name of a policy"),
    (Error::BadValue, c"a number that none of its enum's values has"),
    (Error::NoSuchCounter, c"no counter has this name"),
];

/// What a number says, in words; of one that is no error's, that too. Never null. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_error_text(error: u32) -> *const c_char {
    let known = TEXTS.iter().find(|known| known.0 as u32 == error);
    known.map_or(c"not a number of quietmm's", |known| known.1).as_ptr()
}

/// As a number.
pub(crate) fn number(result: Result<(), quietmm::Error>) -> Error {
    result.map_or_else(Error::from, |()| Error::Ok)
}

/// The same of what has an answer, which goes `into` there if C wants it.
pub(crate) fn answer<T>(
    result: Result<T, quietmm::Error>,
    into: Option<&mut core::mem::MaybeUninit<T>>,
) -> Error {
    match result {
        Ok(value) => {
            if let Some(into) = into {
                into.write(value);
            }
            Error::Ok
        }
        Err(error) => error.into(),
    }
}
