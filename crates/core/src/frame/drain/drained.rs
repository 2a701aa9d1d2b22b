//! What a drain did.

/// What a drain did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Drained {
    /// Frames that are back in their zones.
    pub frames: u32,
    /// CPUs that were asked by interrupt.
    pub sent: u32,
    /// CPUs that seemed to hold frames, this one too. `None`: nobody looked.
    pub holders: Option<u32>,
}
