//! All tests of this crate from outside, in one binary: the core is generic, and would be compiled anew for each.

/// Long work as tests of its parts, each of which takes a moment: so that one that hangs or fails says where, and all of them run beside each
/// other. `work` gets a part's number and how many there are.
macro_rules! parts {
    ($name:ident, $work:expr, [$($part:ident)+]) => {
        mod $name {
            #[allow(unused_imports, reason = "what the work names")]
            use super::*;

            #[allow(non_camel_case_types, reason = "named as the tests")]
            #[derive(Clone, Copy)]
            enum Part { $($part),+ }

            const PARTS: usize = [$(stringify!($part)),+].len();

            $(
                #[test]
                fn $part() {
                    let work: fn(usize, usize) = $work;
                    work(Part::$part as usize, PARTS);
                }
            )+
        }
    };
}

mod allocation;
mod alone;
mod architectures;
mod audits;
mod backoff;
mod biased;
mod broadcast;
mod collapse;
mod contiguous;
mod demotion;
mod documents;
mod drain;
mod drops;
mod edges;
mod emptied;
mod ends;
mod entries;
mod execute;
mod fault_around;
mod fault_retry;
mod file_cut;
mod file_io;
mod file_parallel;
mod filesystem;
mod flusher;
mod group_limits;
mod group_stocks;
mod groups;
mod grow;
mod handler_frames;
mod handles;
mod hotplug;
mod interface;
mod ipis;
mod large;
mod large_file;
mod large_file_parallel;
mod later;
mod layers;
mod lazy;
mod locked_ranges;
mod locks;
mod machine;
mod many_cpus;
mod marks;
mod memory_file_model;
mod memory_file_races;
mod memory_files;
mod memory_files_beside;
mod migrate;
mod mixed;
mod mkwrite;
mod model;
mod node_policy;
mod obligations;
mod offline;
mod one_page;
mod operations;
mod outstanding;
mod pairs;
mod parallel;
mod parked;
mod pcp_orders;
mod pins;
mod pins_model;
mod pitfalls;
mod pool_readers;
mod pool_slabs;
mod pools;
mod prot_none;
mod quiet;
mod read_ahead;
mod readme;
// Without debug assertions a CPU's slot is smaller, and other frames are free.
mod reclaim;
#[cfg(debug_assertions)]
mod recorded;
mod refaults;
mod refusals;
mod remap;
mod resched;
mod residency;
mod reverse_map;
mod revoked;
mod seldom;
mod shootdown;
mod shootdown_batch;
mod shrinker;
mod sleepers;
mod spaces;
mod split;
mod stall;
mod steps;
mod swap;
mod swap_numbers;
mod swap_parallel;
mod swap_pitfalls;
mod swap_races;
mod swap_ranges;
mod tables;
mod threads;
mod unmap_beside;
mod unmap_many;
mod vma_gates;
mod vmap;
mod vmap_blocks;
mod vmap_model;
mod vmap_parallel;
mod vmap_pitfalls;
mod vmap_purge;
mod vmap_sweep;
mod writeback;
