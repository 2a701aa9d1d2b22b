//! Recordings of any text, with any options; and whatever trace can be read can be shown.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use quietmm_workloads::trace::{BodyEncoder, Header, Record, Trace};

use super::import::translate;
use super::options::Options;
use super::show::Shown;

/// A line that is lackey's, nearly lackey's, valgrind's, or anything.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let kind = select(vec!["I  ", " L ", " S ", " M ", "I ", " X ", "", "  "]);
    let address = prop_oneof![
        4 => (0u64..0x20_0000).prop_map(|at| format!("{at:08x}")),
        4 => any::<u64>().prop_map(|at| format!("{at:x}")),
        1 => Just("ffffffffffffffff".to_owned()),
        1 => "[0-9a-fA-FxX-]{0,20}",
    ];
    let size = prop_oneof![
        6 => (0u64..70).prop_map(|size| size.to_string()),
        1 => (4090u64..4100).prop_map(|size| size.to_string()),
        1 => any::<u64>().prop_map(|size| size.to_string()),
        1 => "[0-9-]{0,30}",
    ];
    let access = (kind, address, size).prop_map(|(kind, at, size)| format!("{kind}{at},{size}").into_bytes());
    prop_oneof![
        12 => access,
        1 => "==[0-9]{0,5}== (Command: .{0,60}|Exit code: .{0,10}|Process terminating.*)".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..200),
        1 => (1usize..80_000).prop_map(|length| vec![b'x'; length]),
        1 => (1usize..80_000).prop_map(|length| [&b"==1== Command: "[..], &vec![0xff; length]].concat()),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let edge = || prop_oneof![0u32..5, Just(128), any::<u32>(), Just(u32::MAX)];
    let limit =
        prop_oneof![3 => Just(None), 1 => (0u64..30).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
    let skip = prop_oneof![4 => Just(0u64), 1 => 0u64..30, 1 => any::<u64>()];
    let command = proptest::option::of(".{0,40}");
    (edge(), edge(), limit, skip, edge(), any::<bool>(), command).prop_map(
        |(window, epoch, limit, skip, foreign_percent, fetches, command)| Options {
            window,
            epoch,
            limit,
            skip,
            foreign_percent,
            fetches,
            command,
            ..Options::new("any.lackey")
        },
    )
}

/// A trace that can be read can be shown, whatever its header says beyond what is checked.
fn can_be_shown(file: &[u8]) -> Result<Shown, TestCaseError> {
    let trace = Trace::parse(file).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let shown = Shown::of(&trace, file.len() as u64);
    let text = shown.to_string();
    prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    // The lines of the summary, and no more: a name cannot add one.
    prop_assert!(text.lines().count() <= 8 + 4 + 64, "{text}");
    prop_assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("command ")), "{text}");
    let _ = serde_json::to_value(&shown);
    Ok(shown)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_recording_becomes_a_trace_or_one_line(
        lines in vec(line(), 0..60),
        whole in prop::bool::weighted(0.9),
        options in options(),
    ) {
        let mut text = lines.join(&b'\n');
        if whole {
            text.push(b'\n');
        }
        match translate(&mut &text[..], &options) {
            Ok((summary, file)) => {
                let shown = can_be_shown(&file)?;
                prop_assert_eq!((shown.accesses, shown.pages), (summary.accesses, summary.pages));
                prop_assert!(summary.accesses > 0);
                // An access is at most two pages, each read and written.
                prop_assert!(summary.accesses <= 4 * lines.len() as u64);
            }
            Err(error) => {
                let line = error.to_string();
                prop_assert!(line.len() < 500 && !line.contains(char::is_control), "{line}");
            }
        }
    }

    #[test]
    fn any_trace_that_can_be_read_can_be_shown(
        records in vec((any::<u32>(), prop_oneof![0u32..3, any::<u32>()], prop_oneof![1u32..3, any::<u32>()]), 0..40),
        (window, epoch, gap, page) in (any::<u32>(), any::<u32>(), prop_oneof![0u32..3, any::<u32>()], 0u32..32),
        (program, command) in (".{0,20}", "[\u{0}-\u{ff}\u{2020}-\u{2070}]{0,20}"),
    ) {
        let (mut encoder, mut body) = (BodyEncoder::new(), Vec::new());
        for &(page, reads, writes) in &records {
            let _ = encoder.push(Record { page, reads, writes }, &mut body);
        }
        let mut pages: Vec<u32> = records.iter().filter(|r| r.1 | r.2 != 0).map(|r| r.0).collect();
        pages.sort_unstable();
        pages.dedup();
        let header = Header {
            program: &program,
            command: &command,
            fetches: false,
            bounded: true,
            page_bytes: 1 << page,
            window,
            epoch,
            gap,
            pages: pages.len() as u64,
            span: encoder.span(),
            totals: encoder.finish(),
        };
        let mut file = Vec::new();
        header.encode(&mut file).expect("short texts");
        file.extend(body);
        can_be_shown(&file)?;
    }
}
