//! A file is written to or runs, not both: who opens it to write, or runs it, is refused while others do the other.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::errno::Errno;
use crate::tree::Inode;

/// How a file is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It is open to write.
    Written = 1,
    /// It is the program of a space.
    Runs = -1,
}

/// How often a file is used: more than 0, so often to write; less, so often to run.
#[derive(Default)]
pub struct Uses(AtomicI32);

impl Uses {
    /// Whether it runs. It may have begun since, or ended.
    pub fn runs(&self) -> bool {
        self.0.load(Ordering::SeqCst) < 0
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
        // In one step: of two who begin in both ways at once one does.
        let more = |now: i32| Some(now + how as i32).filter(|new| new.signum() == how as i32);
        let begun = inode.uses.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        begun.map(|_| Use(inode.clone(), how)).map_err(|_| Errno::ETXTBSY)
    }
}

impl Clone for Use {
    fn clone(&self) -> Use {
        self.0.uses.0.fetch_add(self.1 as i32, Ordering::SeqCst);
        Use(self.0.clone(), self.1)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.uses.0.fetch_sub(self.1 as i32, Ordering::SeqCst);
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
