//! A file is written to or runs, not both: who opens it to write, or runs it, is refused while others do the other.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::errno::Errno;
use crate::tree::Inode;

/// How a file is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It is open to write.
    Written = 0,
    /// It is the program of a space.
    Runs = 1,
}

/// How often a file is used in each way.
#[derive(Default)]
pub struct Uses([AtomicU32; 2]);

impl Uses {
    /// Whether it runs. It may have begun since, or ended.
    pub fn runs(&self) -> bool {
        self.0[How::Runs as usize].load(Ordering::SeqCst) > 0
    }
}

/// A file is used in a way, as long as this is there.
pub struct Use(Arc<Inode>, How);

impl Use {
    /// Begins.
    ///
    /// # Errors
    /// `ETXTBSY`: it is used in the other way.
    pub fn begin(inode: &Arc<Inode>, how: How) -> Result<Use, Errno> {
        let other = if how == How::Runs { How::Written } else { How::Runs };
        let new = Use::also(inode, how);
        // SeqCst: of two who begin in both ways at once one at least sees the other.
        if inode.uses.0[other as usize].load(Ordering::SeqCst) > 0 { Err(Errno::ETXTBSY) } else { Ok(new) }
    }

    fn also(inode: &Arc<Inode>, how: How) -> Use {
        inode.uses.0[how as usize].fetch_add(1, Ordering::SeqCst);
        Use(inode.clone(), how)
    }
}

impl Clone for Use {
    fn clone(&self) -> Use {
        Use::also(&self.0, self.1)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.uses.0[self.1 as usize].fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Body;

    #[test]
    fn who_writes_and_who_runs_keep_each_other_out() {
        let inode = Inode::new(1, 0o100_755, 0, Body::Socket);
        let writes = [How::Written; 2].map(|how| Use::begin(&inode, how).ok());
        assert!(writes.iter().all(Option::is_some) && !inode.uses.runs());
        assert_eq!(Use::begin(&inode, How::Runs).err(), Some(Errno::ETXTBSY));
        drop(writes);
        let runs = Use::begin(&inode, How::Runs).ok();
        let child = runs.clone();
        drop(runs);
        assert_eq!(Use::begin(&inode, How::Written).err(), Some(Errno::ETXTBSY));
        assert!(inode.uses.runs());
        drop(child);
        assert!(!inode.uses.runs() && Use::begin(&inode, How::Written).is_ok());
    }
}
