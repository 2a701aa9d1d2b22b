//! The guard that says where a CPU is: its time is charged to a [`Scope`].

use crate::platform::Hooks;
use crate::profile::Scope;

/// From here until the guard is dropped this CPU's time is `scope`'s, but for what is entered within.
#[inline(always)]
pub(crate) fn charge<P: Hooks>(platform: &P, scope: Scope) -> Within<'_, P> {
    platform.enter(scope);
    Within { platform, scope }
}

/// Time is charged to a scope until this is dropped.
#[must_use = "a scope ends where this is dropped"]
pub(crate) struct Within<'a, P: Hooks> {
    platform: &'a P,
    scope: Scope,
}

impl<P: Hooks> Drop for Within<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.platform.leave(self.scope);
    }
}
