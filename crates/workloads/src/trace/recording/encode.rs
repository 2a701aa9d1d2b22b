//! Writing a recording, event by event.

use super::super::checksum::Checksum;
use super::super::encode::EncodeError;
use super::event::{Backing, Context, Event, Victim, What};
use super::header::Sums;

/// Writes the body of a recording and adds it up. What it takes `Recording::parse` accepts.
#[derive(Clone, Debug)]
pub struct RecordingEncoder {
    cpus: u16,
    context: Context,
    files: u32,
    stacks: u32,
    sum: Checksum,
    sums: Sums,
}

impl RecordingEncoder {
    /// Has written nothing, on a machine of so many CPUs.
    #[must_use]
    pub fn new(cpus: u16) -> Self {
        let (context, sum) = (Context::default(), Checksum::new());
        Self { cpus, context, files: 0, stacks: 0, sum, sums: Sums::default() }
    }

    /// Appends an event to `out`. One that is before the one before it is taken for simultaneous: clocks of different CPUs
    /// may differ a little.
    ///
    /// # Errors
    /// It names a thread, file, stack or CPU that is not there. Nothing is written then.
    pub fn push(&mut self, event: &Event<'_>, out: &mut impl Extend<u8>) -> Result<(), EncodeError> {
        let event = Event { at: event.at.max(self.context.at), ..*event };
        let refused = |what| EncodeError::Unknown { what, event: self.sums.events };
        let mut known =
            Known { cpus: self.cpus, threads: self.sums.threads, files: self.files, stacks: self.stacks };
        known.take(&event).map_err(refused)?;
        (self.sums.threads, self.files, self.stacks) = (known.threads, known.files, known.stacks);
        let (sum, bytes) = (&mut self.sum, &mut self.sums.bytes);
        event.write(&mut self.context, &mut |piece: &[u8]| {
            sum.add(piece);
            *bytes += piece.len() as u64;
            out.extend(piece.iter().copied());
        });
        self.sums.events += 1;
        Ok(())
    }

    /// When the last event was.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.context.at
    }

    /// What the body adds up to, for [`super::RecordingHeader::sums`].
    #[must_use]
    pub fn finish(&self) -> Sums {
        Sums { checksum: self.sum.value(), ..self.sums }
    }
}

/// What events may name: the encoder and the decoder ask the same.
pub(super) struct Known {
    pub cpus: u16,
    pub threads: u32,
    pub files: u32,
    pub stacks: u32,
}

impl Known {
    /// Takes an event in, or says what it names that is not there.
    pub(super) fn take(&mut self, event: &Event<'_>) -> Result<(), &'static str> {
        let thread = |thread: u32, threads: u32| if thread < threads { Ok(()) } else { Err("thread") };
        if event.cpu >= self.cpus {
            return Err("CPU");
        }
        if let What::Start { by, .. } = event.what {
            if event.thread != self.threads || by > event.thread || event.thread == u32::MAX {
                return Err("thread");
            }
            self.threads += 1;
        }
        thread(event.thread, self.threads)?;
        match event.what {
            What::File(_) => self.files = self.files.checked_add(1).ok_or("file")?,
            What::Stack(_) => self.stacks = self.stacks.checked_add(1).ok_or("stack")?,
            What::Join(other) => thread(other, self.threads)?,
            What::Shootdown { victim: Victim::Thread(victim), .. } => thread(victim, self.threads)?,
            What::Map { backing: Backing::Private { file, .. } | Backing::Shared { file, .. }, .. }
                if file >= self.files =>
            {
                return Err("file");
            }
            _ => {}
        }
        match event.what {
            What::Start { call, .. }
            | What::Map { call, .. }
            | What::Unmap { call, .. }
            | What::Protect { call, .. }
            | What::Advise { call, .. }
            | What::Move { call, .. }
                if call.stack > self.stacks =>
            {
                Err("stack")
            }
            _ => Ok(()),
        }
    }
}
