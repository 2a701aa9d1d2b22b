//! Events of Chrome's "Trace Event Format", written one by one.

use std::io::{self, Write};

use serde::ser::{Serialize, Serializer};
use serde_json::Value;

/// One event; what does not apply is left out.
#[derive(serde::Serialize)]
pub struct Event<'a> {
    /// What is shown.
    pub name: &'a str,
    /// What kind of event it is.
    pub ph: Kind,
    /// What it can be found by.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cat: &'static str,
    /// When, in microseconds: a whole number of nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<f64>,
    /// How long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<f64>,
    /// Of which run.
    pub pid: u32,
    /// On which track, if it is not the run's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Both ends of an arrow have this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// An arrow's end belongs to what encloses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bp: Option<&'static str>,
    /// What happens, happens on its track only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s: Option<&'static str>,
    /// What more there is to say.
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "map")]
    pub args: &'a [(&'static str, Said<'a>)],
}

/// Kinds of events, by the letters that the format has for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub enum Kind {
    /// Something lasts.
    #[serde(rename = "X")]
    Lasts,
    /// Something happens.
    #[serde(rename = "i")]
    Happens,
    /// An arrow begins.
    #[serde(rename = "s")]
    ArrowBegins,
    /// And ends.
    #[serde(rename = "f")]
    ArrowEnds,
    /// A number has a value from now on.
    #[serde(rename = "C")]
    Counts,
    /// What a track is called, and where it stands.
    #[serde(rename = "M")]
    Names,
}

/// A value that is told.
#[derive(Clone, Copy, serde::Serialize)]
#[serde(untagged)]
pub enum Said<'a> {
    /// A number.
    Number(u64),
    /// A word.
    Word(&'a str),
}

impl<'a> Event<'a> {
    /// An event without time.
    pub fn new(ph: Kind, pid: u32, tid: Option<u32>, name: &'a str) -> Event<'a> {
        let (ts, dur, id, bp, s) = (None, None, None, None, None);
        Event { name, ph, cat: "", ts, dur, pid, tid, id, bp, s, args: &[] }
    }

    /// At a moment of the run, in nanoseconds.
    pub fn at(self, ns: u64) -> Event<'a> {
        Event { ts: Some(us(ns)), ..self }
    }
}

/// Microseconds from nanoseconds, and a hundredth of a nanosecond more: some numbers in binary are a trifle too small, and a reader
/// that cuts what is less than a nanosecond, as Perfetto does, would come to one less.
pub fn us(ns: u64) -> f64 {
    (ns as f64 + 0.01) / 1e3
}

fn map<S: Serializer>(said: &[(&'static str, Said<'_>)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(said.iter().map(|(key, value)| (key, value)))
}

/// All events of a file.
pub struct Events<'w> {
    to: &'w mut dyn Write,
    first: bool,
    /// The last arrow's number.
    arrows: u64,
}

impl<'w> Events<'w> {
    /// The beginning of the file.
    pub fn begin(to: &'w mut dyn Write) -> io::Result<Events<'w>> {
        to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Events { to, first: true, arrows: 0 })
    }

    /// Writes one.
    pub fn write(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.to.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        event.serialize(&mut serde_json::Serializer::new(&mut *self.to)).map_err(io::Error::from)
    }

    /// A number for an arrow.
    pub fn arrow(&mut self) -> u64 {
        self.arrows += 1;
        self.arrows
    }

    /// The end of the file, with what there is to say of all of it.
    pub fn end(self, about: &Value) -> io::Result<()> {
        write!(self.to, "\n],\"otherData\":{about}}}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nanosecond_is_the_same_for_who_cuts_and_for_who_rounds() {
        // The last two are the longest that a run may be.
        let all = (0..200_000)
            .chain((1..20_000).map(|n| n * 1_000_003))
            .chain([2_251_799_813_685, 4_503_599_627_370]);
        let mut mended = 0;
        for ns in all {
            // As a reader has it.
            let read: f64 = serde_json::to_string(&us(ns)).unwrap().parse().unwrap();
            for us in [read, read.next_down(), read.next_up()] {
                assert_eq!(((us * 1e3) as u64, (us * 1e3).round() as u64), (ns, ns));
            }
            mended += u32::from((ns as f64 / 1e3 * 1e3) as u64 != ns);
        }
        assert!(mended > 0, "the control: it would have been right without");
    }
}
