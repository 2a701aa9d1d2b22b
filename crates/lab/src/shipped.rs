//! The traces that come with the command.

/// A recorded trace inside the command.
pub struct Shipped {
    /// What `--trace` calls it.
    pub name: &'static str,
    /// What was recorded, in a line.
    pub about: &'static str,
    /// The trace, in the format of `quietmm trace import`.
    pub bytes: &'static [u8],
}

/// All of them; the first is what the workload `trace` replays unless told otherwise.
pub static SHIPPED: &[Shipped] = &[
    Shipped {
        name: "sort",
        about: "GNU sort on 4 MiB of text: 2908 pages, 94 % of them written",
        bytes: include_bytes!("../../../traces/sort.qtrace"),
    },
    Shipped {
        name: "sqlite",
        about: "sqlite3 makes, indexes and joins two tables: 3052 pages, 84 % of them written",
        bytes: include_bytes!("../../../traces/sqlite.qtrace"),
    },
];
