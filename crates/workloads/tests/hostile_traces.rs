//! Traces of any bytes, and with any header whose checksums are right: read in full or refused in one line, without a
//! byte of memory. The file's own words on how much there is are believed nowhere.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use quietmm_workloads::trace::{BodyEncoder, FIXED_BYTES, Header, MAGIC, Record, Trace, TraceError};

thread_local! {
    /// Bytes that this thread has allocated.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
struct Counting;

// SAFETY: all is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that `work` allocates.
fn allocated<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = ALLOCATED.get();
    let result = work();
    (result, ALLOCATED.get() - before)
}

/// FNV-1a with 64 bits, as the format has it.
fn sum(pieces: &[&[u8]]) -> u64 {
    pieces
        .iter()
        .copied()
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A header's numbers as they stand in the file: offset, width in bytes, value.
type Field = (usize, usize, u64);

/// All of them but the magic number, the lengths of the texts and the checksums.
const FIELDS: [(usize, usize); 12] = [
    (8, 2),
    (10, 2),
    (16, 4),
    (20, 4),
    (24, 4),
    (28, 4),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 8),
];

/// A file with these fields changed, this body, and checksums that are right.
fn forged(good: &[u8], fields: &[Field], body: Option<&[u8]>) -> Vec<u8> {
    let mut file = good.to_vec();
    let texts = usize::from(u16::from_le_bytes([file[12], file[13]]))
        + usize::from(u16::from_le_bytes([file[14], file[15]]));
    if let Some(body) = body {
        file.truncate(FIXED_BYTES + texts);
        file.extend(body);
        file[80..88].copy_from_slice(&(body.len() as u64).to_le_bytes());
    }
    for &(at, width, value) in fields {
        file[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    let body = sum(&[&file[FIXED_BYTES + texts..]]);
    file[88..96].copy_from_slice(&body.to_le_bytes());
    let header = sum(&[&file[..96], &file[FIXED_BYTES..FIXED_BYTES + texts]]);
    file[96..104].copy_from_slice(&header.to_le_bytes());
    file
}

/// A sound trace.
fn sound(records: &[Record]) -> Vec<u8> {
    let (mut encoder, mut body) = (BodyEncoder::new(), Vec::new());
    for &record in records {
        encoder.push(record, &mut body).expect("a record with accesses");
    }
    let mut pages: Vec<u32> = records.iter().map(|record| record.page).collect();
    pages.sort_unstable();
    pages.dedup();
    let header = Header {
        program: "räume",
        command: "sort x",
        fetches: true,
        bounded: false,
        page_bytes: 4096,
        window: 128,
        epoch: 65536,
        gap: 512,
        pages: pages.len() as u64,
        span: encoder.span(),
        totals: encoder.finish(),
    };
    let mut file = Vec::new();
    header.encode(&mut file).expect("short texts");
    file.extend(body);
    file
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let count = || prop_oneof![Just(1u32), 1u32..300, Just(u32::MAX)];
    let page = prop_oneof![0u32..600, any::<u32>()];
    vec((page, count(), count()).prop_map(|(page, reads, writes)| Record { page, reads, writes }), 0..30)
}

fn field() -> impl Strategy<Value = Field> {
    let value = prop_oneof![
        any::<u64>(),
        0u64..40,
        (0u32..64).prop_map(|bit| 1 << bit),
        (0u32..64).prop_map(|bit| u64::MAX >> bit),
    ];
    (select(FIELDS.to_vec()), value).prop_map(|((at, width), value)| (at, width, value))
}

/// What must hold whatever the bytes. Returns what `parse` says.
fn judge(bytes: &[u8]) -> Result<Result<(), TraceError>, TestCaseError> {
    let (parsed, memory) = allocated(|| Trace::parse(bytes));
    prop_assert_eq!(memory, 0, "parse allocates");
    let trace = match parsed {
        Ok(trace) => trace,
        Err(error) => {
            prop_assert!(error.at <= bytes.len(), "{}", error);
            let line = error.to_string();
            prop_assert!(line.len() < 300 && !line.contains(char::is_control), "{line}");
            return Ok(Err(error));
        }
    };
    let add = |(records, reads, writes): (u64, u64, u64), record: Record| {
        (records + 1, reads + u64::from(record.reads), writes + u64::from(record.writes))
    };
    let (sums, memory) = allocated(|| trace.records().fold((0, 0, 0), add));
    prop_assert_eq!(memory, 0, "iterating allocates");
    let header = trace.header();
    prop_assert_eq!(sums, (header.totals.records, header.totals.reads, header.totals.writes));
    prop_assert!(trace.records().all(|record| u64::from(record.page) < header.span && record.accesses() > 0));
    // One way to write it: what was read gives the same bytes again.
    let (mut encoder, mut again) = (BodyEncoder::new(), Vec::new());
    for record in trace.records() {
        encoder.push(record, &mut again).expect("a record that was read");
    }
    let mut file = Vec::new();
    Header { totals: encoder.finish(), ..*header }.encode(&mut file).expect("texts that were read");
    file.extend(again);
    prop_assert!(file == bytes, "another form of the same trace was taken");
    Ok(Ok(()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_a_trace_or_one_line(bytes in vec(any::<u8>(), 0..400), magic in any::<bool>()) {
        let bytes = if magic { [&MAGIC[..], &[1, 0], &bytes].concat() } else { bytes };
        let _ = judge(&bytes)?;
    }

    #[test]
    fn any_header_with_right_checksums_is_held_against_its_body(records in records(), fields in vec(field(), 1..4)) {
        let _ = judge(&forged(&sound(&records), &fields, None))?;
    }

    #[test]
    fn any_body_with_right_checksums_is_read_in_full_or_refused(
        records in records(),
        fields in vec(field(), 0..4),
        body in vec(prop_oneof![any::<u8>(), 0u8..8, Just(0xff), Just(0x80)], 0..80),
    ) {
        let _ = judge(&forged(&sound(&records), &fields, Some(&body)))?;
    }

    #[test]
    fn a_trace_cut_or_grown_anywhere_is_refused(records in records(), cut in 0usize..2000, tail in vec(any::<u8>(), 1..9)) {
        let file = sound(&records);
        judge(&file)?.expect("sound");
        let cut = &file[..cut % file.len()];
        prop_assert!(judge(cut)?.is_err());
        prop_assert!(judge(&[&file[..], &tail].concat())?.is_err());
    }
}

/// The control: the allocator does count, and the forged checksums are right.
#[test]
fn an_allocation_is_counted_and_a_forged_checksum_is_believed() {
    assert_eq!(allocated(|| Vec::<u8>::with_capacity(1000)).1, 1000);
    let file = sound(&[Record { page: 3, reads: 1, writes: 2 }]);
    assert_eq!(forged(&file, &[], None), file);
    let huge = forged(&file, &[(56, 8, u64::MAX)], None);
    assert!(
        Trace::parse(&huge).unwrap_err().to_string().contains("the header says 18446744073709551615 records")
    );
}
