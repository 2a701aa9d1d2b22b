//! Writing dirty pages out, after their flush (INV-2).

use crate::Manager;
use crate::addr::FrameNumber;
use crate::event::Event;
use crate::frame::flag;
use crate::platform::{Platform, Store};

/// Writes a page that nobody maps and every CPU has flushed. Gives whether the device has its content now;
/// if not, the page stays dirty. The caller holds and has locked it. May wait.
pub(crate) fn write<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> bool {
    let p = mm.platform();
    let frame = mm.frames().get(n);
    let Some(device) = p.device() else { return false };
    // Before the write: who dirties the page from here on finds it clean and makes it dirty again.
    frame.clear_flags(p, flag::DIRTY);
    mm.emit(Event::WriteBegins { frame: n });
    let ok = device.write(Store::File(frame.owner.get(p)), frame.index.get(p), n).is_ok();
    mm.emit(Event::WriteEnds { frame: n, ok });
    if !ok {
        frame.set_flags(p, flag::DIRTY);
    }
    ok
}
