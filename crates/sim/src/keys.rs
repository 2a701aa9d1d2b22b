//! By what tasks and alarms wait for devices. No task has such a number.

use std::ops::Range;

/// An alarm: the end of a command, with its number.
pub const COMMAND: u64 = 1 << 60;
/// Who waits for a call's commands, with its number.
pub const CALL: u64 = 1 << 59;
/// All who wait for commands.
pub const COMMANDS: Range<u64> = CALL..COMMAND;
