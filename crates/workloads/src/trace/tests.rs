//! The codec against random traces, and against every way to damage one.

extern crate std;

use proptest::collection::vec;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

use super::*;

fn any_record() -> impl Strategy<Value = Record> {
    let page = prop_oneof![0u32..2000, any::<u32>()];
    let count = || prop_oneof![Just(0u32), Just(1), 0u32..300, any::<u32>()];
    (page, count(), count()).prop_filter_map("no access", |(page, reads, writes)| {
        (reads | writes != 0).then_some(Record { page, reads, writes })
    })
}

/// Writes a trace; `forge` may change the header before it is written with a right checksum.
fn written(records: &[Record], forge: impl FnOnce(&mut Header<'_>)) -> Vec<u8> {
    let mut body = Vec::new();
    let mut encoder = BodyEncoder::new();
    for record in records {
        encoder.push(*record, &mut body).unwrap();
    }
    let mut pages: Vec<u32> = records.iter().map(|record| record.page).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut header = Header {
        program: "sort 9.1",
        command: "sort räume.txt",
        fetches: true,
        bounded: false,
        page_bytes: 4096,
        window: 64,
        epoch: 65536,
        gap: 512,
        pages: pages.len() as u64,
        span: encoder.span(),
        totals: encoder.finish(),
    };
    forge(&mut header);
    let mut file = Vec::new();
    header.encode(&mut file).unwrap();
    file.extend(body);
    file
}

fn fault(bytes: &[u8]) -> Fault {
    Trace::parse(bytes).expect_err("a damaged trace was accepted").fault
}

const SOME: [Record; 4] = [
    Record { page: 7, reads: 1, writes: 0 },
    Record { page: 700_000, reads: 0, writes: 1 },
    Record { page: 7, reads: u32::MAX, writes: 300 },
    Record { page: 8, reads: 2, writes: 0 },
];

proptest! {
    #[test]
    fn what_is_written_is_read(records in vec(any_record(), 0..200)) {
        let file = written(&records, |_| ());
        let trace = Trace::parse(&file).unwrap();
        let read: Vec<Record> = trace.records().collect();
        prop_assert_eq!(&read, &records);
        prop_assert_eq!(trace.records().size_hint(), (records.len(), Some(records.len())));
        prop_assert_eq!(written(&read, |_| ()), file);
    }

    #[test]
    fn a_clone_of_the_iterator_goes_on_from_the_same_place(records in vec(any_record(), 1..50), skip in 0usize..50) {
        let file = written(&records, |_| ());
        let mut first = Trace::parse(&file).unwrap().records();
        first.by_ref().take(skip).for_each(drop);
        prop_assert!(first.clone().eq(first));
    }

    #[test]
    fn a_trace_cut_anywhere_is_refused(records in vec(any_record(), 0..40)) {
        let file = written(&records, |_| ());
        for length in 0..file.len() {
            let error = Trace::parse(&file[..length]).expect_err("cut");
            prop_assert_eq!(error.at, length);
            let short = matches!(error.fault, Fault::TooShort { need } if need > length as u64);
            prop_assert!(short);
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_refused(records in vec(any_record(), 0..20)) {
        let mut file = written(&records, |_| ());
        for bit in 0..file.len() * 8 {
            file[bit / 8] ^= 1 << (bit % 8);
            let error = Trace::parse(&file).expect_err("flipped");
            prop_assert!(error.at <= file.len());
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_foreign_file_is_refused(bytes in vec(any::<u8>(), 1..500)) {
        prop_assume!(bytes[0] != MAGIC[0]);
        prop_assert_eq!(fault(&bytes), Fault::NotATrace);
    }

    /// The checksums are right here, so that the bounds are what refuses: no byte of a body may make `parse` panic.
    #[test]
    fn a_forged_body_is_read_in_full_or_refused(body in vec(any::<u8>(), 0..60), span in 0u64..300, records in 0u64..40) {
        let mut file = written(&[], |header| {
            header.span = span;
            header.pages = u64::from(records.min(span) > 0);
            header.totals.records = records;
            header.totals.bytes = body.len() as u64;
            header.totals.checksum = checksum::Checksum::of(&[&body]);
        });
        file.extend(&body);
        if let Ok(trace) = Trace::parse(&file) {
            prop_assert!(trace.records().all(|record| u64::from(record.page) < span));
            prop_assert_eq!(trace.records().count() as u64, records);
        }
    }

    #[test]
    fn integers_have_one_form(value in any::<u64>(), small in 0u64..40_000) {
        for value in [value, small] {
            let written = varint::Varint::new(value);
            let mut at = 0;
            prop_assert_eq!(varint::read(written.bytes(), &mut at), Ok(value));
            prop_assert_eq!(at, written.bytes().len());
            prop_assert_eq!(varint::unzigzag(varint::zigzag(value as i64)), value as i64);
        }
    }

    #[test]
    fn random_bytes_as_an_integer_are_its_form_or_refused(bytes in vec(any::<u8>(), 0..14)) {
        let mut at = 0;
        if let Ok(value) = varint::read(&bytes, &mut at) {
            let form = varint::Varint::new(value);
            prop_assert_eq!(form.bytes(), &bytes[..at]);
        }
    }
}

#[test]
fn a_longer_form_of_an_integer_is_refused() {
    for bytes in
        [&[0x80, 0x00][..], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]]
    {
        assert_eq!(varint::read(bytes, &mut 0), Err(Fault::Integer), "{bytes:x?}");
    }
}

#[test]
fn a_common_record_is_three_bytes() {
    let mut body = Vec::new();
    let mut encoder = BodyEncoder::new();
    encoder.push(Record { page: 1000, reads: 12, writes: 0 }, &mut body).unwrap();
    assert_eq!(body.len(), 3);
}

#[test]
fn a_record_without_accesses_is_not_written() {
    let mut body = Vec::new();
    let nothing = Record { page: 3, reads: 0, writes: 0 };
    let error = BodyEncoder::new().push(nothing, &mut body).unwrap_err();
    assert_eq!(error, EncodeError::EmptyRecord { page: 3 });
    assert!(body.is_empty());
}

#[test]
fn a_text_that_is_too_long_is_not_written() {
    let text = "x".repeat(65_536);
    let trace = written(&SOME, |_| ());
    let header = Header { program: &text, ..*Trace::parse(&trace).unwrap().header() };
    let mut out = Vec::new();
    assert_eq!(header.encode(&mut out), Err(EncodeError::TextTooLong { bytes: 65_536 }));
    assert!(out.is_empty());
}

#[test]
fn totals_that_the_body_does_not_bear_out_are_refused() {
    let off = |change: fn(&mut Header<'_>)| fault(&written(&SOME, change));
    assert_eq!(off(|h| h.totals.records += 1), Fault::Total { of: "records", header: 5, body: 4 });
    assert!(matches!(off(|h| h.totals.reads += 1), Fault::Total { of: "reads", .. }));
    assert!(matches!(off(|h| h.totals.writes -= 1), Fault::Total { of: "writes", .. }));
    assert!(matches!(off(|h| h.span = 700_000), Fault::PageOutside { span: 700_000 }));
    assert!(matches!(off(|h| h.span = MAX_SPAN + 1), Fault::Span { .. }));
    assert!(matches!(off(|h| h.pages = 0), Fault::Pages { .. }));
    assert!(matches!(off(|h| h.pages = 5), Fault::Pages { found: 5, most: 4 }));
    assert!(matches!(off(|h| h.page_bytes = 4095), Fault::PageBytes { found: 4095 }));
    assert!(matches!(off(|h| h.totals.bytes -= 1), Fault::TooLong));
    assert!(matches!(off(|h| h.totals.bytes = u64::MAX), Fault::TooShort { need: u64::MAX }));
}

#[test]
fn errors_say_where_and_what_would_be_right() {
    let mut file = written(&SOME, |_| ());
    file[8] = 7;
    let error = Trace::parse(&file).unwrap_err();
    assert_eq!(error.to_string(), "byte 8: version 7; this build reads versions 1 and 2");
    let error = Trace::parse(b"\x7fELF").unwrap_err();
    assert_eq!(error.to_string(), "byte 0: not a trace; a .qtrace file begins with the bytes 89 'QTRACE' 0a");
    let error = Trace::parse(b"").unwrap_err();
    assert_eq!(error.to_string(), "byte 0: the file ends here; it needs 104 bytes (a header alone has 104)");
}
