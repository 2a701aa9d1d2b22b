//! What a PVH loader hands over: a map of memory and the command line.

use core::ffi::CStr;

use crate::paging::direct;

/// `hvm_start_info` of the Xen public headers, version 1.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    modules_at: u64,
    command_line: u64,
    rsdp: u64,
    map: u64,
    map_entries: u32,
    reserved: u32,
}

/// `hvm_memmap_table_entry`.
#[repr(C)]
struct Entry {
    start: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;

/// What the loader said.
pub struct Handed {
    info: &'static StartInfo,
}

impl Handed {
    /// By the address that the loader gave.
    ///
    /// # Safety
    /// The address is the one that the loader left in `ebx`, and nothing has overwritten what it leads to.
    pub unsafe fn at(physical: u32) -> Handed {
        // SAFETY: the loader's structure, below 4 GiB, which the boot tables map.
        let info = unsafe { &*direct(physical.into()).cast::<StartInfo>() };
        assert!(info.magic == MAGIC && info.version >= 1, "not started by a PVH loader of version 1");
        Handed { info }
    }

    /// The command line; empty if it is not text.
    pub fn command_line(&self) -> &'static str {
        if self.info.command_line == 0 {
            return "";
        }
        // SAFETY: the loader's string ends with a zero and lies below 4 GiB.
        let text = unsafe { CStr::from_ptr(direct(self.info.command_line).cast()) };
        text.to_str().unwrap_or("")
    }

    /// Where the first module lies that the loader has brought, if it has: start and length in bytes.
    pub fn module(&self) -> Option<(u64, u64)> {
        if self.info.modules == 0 {
            return None;
        }
        // SAFETY: the loader's list of modules, below 4 GiB: an address and a length come first.
        let [start, bytes] = unsafe { direct(self.info.modules_at).cast::<[u64; 2]>().read() };
        Some((start, bytes))
    }

    /// Runs of memory, without the module, as start and length in bytes, in the loader's order.
    pub fn memory(&self) -> impl Iterator<Item = (u64, u64)> {
        let count = self.info.map_entries as usize;
        // SAFETY: the loader's table of so many entries, below 4 GiB.
        let map = unsafe { core::slice::from_raw_parts(direct(self.info.map).cast::<Entry>(), count) };
        let module = self.module().filter(|&(_, bytes)| bytes > 0);
        // Loaders put a module at the end of a run: what lies behind it is left alone too.
        let without = move |start: u64, bytes: u64| match module {
            Some((at, _)) if (start..start + bytes).contains(&at) => (start, at - start),
            _ => (start, bytes),
        };
        map.iter().filter(|entry| entry.kind == RAM).map(move |entry| without(entry.start, entry.bytes))
    }
}
