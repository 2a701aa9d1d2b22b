//! What comes to its end when the last who had it lets go.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quietmm::platform::WaitKey;
use quietmm::{FileId, SpaceId};

use crate::flights::Flights;
use crate::open::Open;
use crate::sync::Spin;

/// What has come to its end and is the core's to end, or somebody's to hear of: handed over when the last who had it lets go,
/// who may be anybody, and seen to when a system call returns.
#[derive(Default)]
pub struct Left {
    any: AtomicBool,
    /// Somebody is to look.
    tells: AtomicBool,
    list: Spin<Vec<Leaving>>,
    opened: Spin<Vec<Arc<Open>>>,
    /// How many spaces have come here so far, and how many of them have ended.
    pub(crate) spaces: [AtomicU64; 2],
    /// Sockets on their way.
    pub(crate) flights: Flights,
}

/// One of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// A file that nobody can open or map any more.
    File(FileId),
    /// A space in which nobody runs any more.
    Space(SpaceId),
    /// Whoever waits with this key should look.
    Key(WaitKey),
    /// A terminal without a master.
    Terminal(u32),
}

impl Left {
    /// One more.
    pub fn add(&self, what: Leaving) {
        if matches!(what, Leaving::Space(_)) {
            self.spaces[0].fetch_add(1, Ordering::SeqCst);
        }
        self.list.with(|list| list.push(what));
        self.any.store(true, Ordering::Release);
        if matches!(what, Leaving::Key(_)) {
            self.tells.store(true, Ordering::Release);
        }
    }

    /// Open files that were on their way to somebody who is gone. Those on their way by way of these come here too, and so none is
    /// closed inside another.
    pub(crate) fn add_open(&self, open: Vec<Arc<Open>>) {
        self.opened.with(|all| all.extend(open));
    }

    /// One of these, to be closed.
    pub(crate) fn take_open(&self) -> Option<Arc<Open>> {
        self.opened.with(Vec::pop)
    }

    /// Whether whoever waits for something should look, and nobody has told them yet.
    pub(crate) fn tells(&self) -> bool {
        self.tells.load(Ordering::Acquire)
    }

    /// What those wait for, alone.
    pub(crate) fn take_keys(&self) -> Vec<WaitKey> {
        if !self.tells() || !self.tells.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let key = |leaving: &mut Leaving| matches!(leaving, Leaving::Key(_));
        let all: Vec<_> = self.list.with(|list| list.extract_if(.., key).collect());
        all.into_iter()
            .filter_map(|leaving| if let Leaving::Key(key) = leaving { Some(key) } else { None })
            .collect()
    }

    /// All that there are.
    pub fn take(&self) -> Vec<Leaving> {
        if !self.any.load(Ordering::Acquire) || !self.any.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        self.list.with(core::mem::take)
    }
}
