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
///
/// An entry: `Shipped { name: "sort", about: "...", bytes: include_bytes!("../../../traces/sort.qtrace") }`.
pub static SHIPPED: &[Shipped] = &[];
