//! Records of a ring, taken apart. Every event is opened with the same kinds of fields, so one shape fits all.

use perf_event_open_sys::bindings as sys;

/// What every sample has.
pub const SAMPLE: u64 = (sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ADDR
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_RAW) as u64;

const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
const COMM_EXEC: u16 = 1 << 13;

/// Where and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct At {
    pub tid: i32,
    pub time: u64,
    pub cpu: u16,
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Of an event of ours: its number, an address, and what its tracepoint has.
    Sample { id: u64, address: u64, raw: Vec<u8> },
    /// A mapping.
    Mapped { address: u64, length: u64, offset: u64, prot: u64, flags: u64, path: String },
    /// A thread has another name, or another program.
    Name { tid: i32, name: String, exec: bool },
    /// A thread was made.
    Made { tid: i32, process: i32, maker: i32 },
    /// It has ended.
    Gone { tid: i32 },
    /// It has a CPU.
    On,
    /// It has lost it.
    Off { preempted: bool },
    /// Records were lost.
    Lost(u64),
}

/// Fields from front to back.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn double(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> String {
        let text = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Takes a record apart; nothing if it says nothing here.
pub fn read(kind: u32, misc: u16, bytes: &[u8]) -> Option<(At, Record)> {
    if kind == sys::PERF_RECORD_SAMPLE {
        return sample(bytes);
    }
    // Behind all others stand thread, time, CPU and the event's number.
    let (body, trailer) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    let mut tail = Fields(trailer);
    let (_, tid) = (tail.word()?, tail.word()?);
    let (time, cpu) = (tail.double()?, tail.word()?);
    let at = At { tid: tid as i32, time, cpu: cpu as u16 };
    let mut body = Fields(body);
    let record = match kind {
        sys::PERF_RECORD_MMAP2 => {
            let _ = body.double()?;
            let (address, length, offset) = (body.double()?, body.double()?, body.double()?);
            // Device and inode.
            body.bytes(24)?;
            let (prot, flags) = (body.word()?.into(), body.word()?.into());
            Record::Mapped { address, length, offset, prot, flags, path: body.text() }
        }
        sys::PERF_RECORD_COMM => {
            let (_, tid) = (body.word()?, body.word()?);
            Record::Name { tid: tid as i32, name: body.text(), exec: misc & COMM_EXEC != 0 }
        }
        sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
            let (process, _, tid, maker) = (body.word()?, body.word()?, body.word()?, body.word()?);
            if kind == sys::PERF_RECORD_EXIT {
                Record::Gone { tid: tid as i32 }
            } else {
                Record::Made { tid: tid as i32, process: process as i32, maker: maker as i32 }
            }
        }
        sys::PERF_RECORD_LOST => {
            let _ = body.double()?;
            Record::Lost(body.double()?)
        }
        sys::PERF_RECORD_LOST_SAMPLES => Record::Lost(body.double()?),
        sys::PERF_RECORD_SWITCH if misc & SWITCH_OUT == 0 => Record::On,
        sys::PERF_RECORD_SWITCH => Record::Off { preempted: misc & SWITCH_OUT_PREEMPT != 0 },
        _ => return None,
    };
    Some((at, record))
}

fn sample(bytes: &[u8]) -> Option<(At, Record)> {
    let mut fields = Fields(bytes);
    let id = fields.double()?;
    let (_, tid) = (fields.word()?, fields.word()?);
    let (time, address) = (fields.double()?, fields.double()?);
    let cpu = fields.double()? as u16;
    let size = fields.word()? as usize;
    let raw = fields.bytes(size)?.to_vec();
    Some((At { tid: tid as i32, time, cpu }, Record::Sample { id, address, raw }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_nothing() {
        let whole: Vec<u8> = (0..96).collect();
        for kind in 0..20 {
            for length in 0..whole.len() {
                let _ = read(kind, 0, &whole[..length]);
            }
        }
        assert_eq!(read(sys::PERF_RECORD_LOST, 0, &[0; 12]), None);
    }

    #[test]
    fn a_switch_says_who_where_and_why() {
        let mut bytes = Vec::new();
        bytes.extend(7u32.to_le_bytes());
        bytes.extend(8u32.to_le_bytes());
        bytes.extend(99u64.to_le_bytes());
        bytes.extend(3u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        let at = At { tid: 8, time: 99, cpu: 3 };
        let switch = |misc| read(sys::PERF_RECORD_SWITCH, misc, &bytes);
        assert_eq!(switch(0), Some((at, Record::On)));
        assert_eq!(switch(SWITCH_OUT), Some((at, Record::Off { preempted: false })));
        assert_eq!(switch(SWITCH_OUT | SWITCH_OUT_PREEMPT), Some((at, Record::Off { preempted: true })));
    }
}
