//! Devices, and what they do with pages that are pinned. A device writes the number of the CPU whose script drives it.

use quietmm::{Pins, Term, UserAccess};

use super::{Task, range};

impl Task<'_> {
    /// Pins a page for a device.
    pub fn pin(&self, n: usize, page: u64, access: UserAccess) -> Pins {
        let id = self.space(n);
        self.must("pin", |mm| mm.space(id).pin(range(page, 1), access, Term::Short))
    }

    /// The device is through.
    pub fn unpin(&self, pins: Pins) {
        self.must("unpin", |mm| {
            mm.unpin(pins);
            Ok(())
        });
    }

    /// What the device reads.
    pub fn device_reads(&self, pins: &Pins) -> u64 {
        self.machine.device_access(pins.frames()[0], None)
    }

    /// It writes a new number there; returns it.
    pub fn device_writes(&self, pins: &Pins) -> u64 {
        let value = self.world.written.get() + 1;
        self.world.written.set(value);
        self.machine.device_access(pins.frames()[0], Some(value));
        value
    }

    /// What the program writes to the page the device sees, and the other way round.
    pub fn both_see(&self, pins: &Pins, n: usize, page: u64) {
        self.promise(self.write(n, page).is_ok(), "the program may write");
        self.promise(
            self.peek(n, page) == Ok(self.device_reads(pins)),
            "the device sees what the program writes",
        );
        if pins.access() == UserAccess::Write {
            let value = self.device_writes(pins);
            self.promise(self.peek(n, page) == Ok(value), "the program sees what the device writes");
            self.world.ledger.borrow_mut().insert((self.space(n), page, self.id), value);
        }
    }
}
