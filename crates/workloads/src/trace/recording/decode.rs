//! Reading a recording: everything is checked once, then iteration cannot fail.

use super::super::checksum::Checksum;
use super::super::error::{Fault, TraceError};
use super::encode::Known;
use super::event::{Context, Event};
use super::header::RecordingHeader;

/// A checked recording. Borrows the bytes; copying it is cheap.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    header: RecordingHeader<'a>,
    body: &'a [u8],
}

impl<'a> Recording<'a> {
    /// Checks `bytes` from the first to the last. Takes time in proportion to the length, no memory.
    ///
    /// # Errors
    /// Says at which byte the file is wrong. Never panics, whatever the bytes.
    pub(in super::super) fn parse(bytes: &'a [u8]) -> Result<Self, TraceError> {
        let (header, body) = RecordingHeader::decode(bytes)?;
        let start = bytes.len() - body.len();
        let computed = Checksum::of(&[body]);
        if computed != header.sums.checksum {
            return Err(Fault::BodyChecksum { found: header.sums.checksum, computed }.at(start));
        }
        let recording = Self { header, body };
        recording.check(start)?;
        Ok(recording)
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &RecordingHeader<'a> {
        &self.header
    }

    /// The events in the order of time. Needs no memory.
    #[must_use]
    pub fn events(&self) -> Events<'a> {
        Events { body: self.body, at: 0, context: Context::default() }
    }

    fn check(&self, start: usize) -> Result<(), TraceError> {
        let mut known = Known { cpus: self.header.about.cpus, threads: 0, files: 0, stacks: 0 };
        let (mut at, mut context, mut events) = (0, Context::default(), 0);
        while at < self.body.len() {
            let from = at;
            let event =
                Event::read(self.body, &mut at, &mut context).map_err(|fault| fault.at(start + at))?;
            known.take(&event).map_err(|of| Fault::Unknown { of }.at(start + from))?;
            events += 1;
        }
        let sums = &self.header.sums;
        let (threads, found) = (u64::from(sums.threads), u64::from(known.threads));
        for (of, at, header, body) in [("threads", 24, threads, found), ("events", 32, sums.events, events)] {
            if header != body {
                return Err(Fault::Total { of, header, body }.at(at));
            }
        }
        if self.header.about.duration < context.at {
            let (header, body) = (self.header.about.duration, context.at);
            return Err(Fault::Total { of: "nanoseconds", header, body }.at(40));
        }
        Ok(())
    }
}

/// The events of a recording, from [`Recording::events`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    body: &'a [u8],
    at: usize,
    context: Context,
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        // `parse` has read every event, so this fails only at the end of the body.
        Event::read(self.body, &mut self.at, &mut self.context).ok()
    }
}

impl core::iter::FusedIterator for Events<'_> {}
