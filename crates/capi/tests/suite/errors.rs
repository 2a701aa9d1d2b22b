//! Each error of the core has a number and a text.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;

use quietmm::{FrameNumber, PageNumber};
use quietmm_capi::{Error, quietmm_error_text};

fn text(error: u32) -> &'static str {
    // SAFETY: it is a text for ever.
    unsafe { CStr::from_ptr(quietmm_error_text(error)) }.to_str().expect("UTF-8")
}

/// The names in an enum of a source.
fn names(source: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(source).expect("the source");
    let body = text
        .split("pub enum Error {")
        .nth(1)
        .and_then(|rest| rest.split("\n}").next())
        .expect("it has the enum");
    let name = |line: &str| {
        let line = line.strip_prefix("    ")?;
        let end = line.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(line.len());
        line.starts_with(|c: char| c.is_ascii_uppercase()).then(|| line[..end].to_owned())
    };
    body.lines().filter_map(name).collect()
}

#[test]
fn each_error_of_the_core_has_a_number() {
    let of_core = names(concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src/error.rs"));
    let here = names(concat!(env!("CARGO_MANIFEST_DIR"), "/src/error.rs"));
    assert!(of_core.len() > 30);
    let missing: Vec<_> = of_core.difference(&here).collect();
    assert!(missing.is_empty(), "no number: {missing:?}");
    let own: Vec<_> = here.difference(&of_core).map(String::as_str).collect();
    assert_eq!(own, ["BadPolicy", "BadStorage", "BadValue", "NoCallback", "NoSuchCounter", "Ok", "Other"]);
}

#[test]
fn numbers_are_those_of_the_same_name() {
    let page = PageNumber(16);
    for (of_core, number) in [
        (quietmm::Error::OutOfMemory, Error::OutOfMemory),
        (quietmm::Error::BadSetting("x"), Error::BadSetting),
        (quietmm::Error::GuaranteeMissing { policy: "p", guarantee: "g" }, Error::GuaranteeMissing),
        (quietmm::Error::NotMappable(page), Error::NotMappable),
        (quietmm::Error::MapCount { most: 1 }, Error::MapCount),
        (quietmm::Error::NoSuchFrame(FrameNumber(1)), Error::NoSuchFrame),
        (quietmm::Error::NeedsInterrupts, Error::NeedsInterrupts),
    ] {
        assert_eq!(Error::from(of_core), number);
    }
}

/// Numbers are for ever: programs are compiled with them.
#[test]
fn numbers_stay() {
    let some = [Error::Ok, Error::OutOfMemory, Error::NoSuchSpace, Error::NotMapped, Error::NeedsInterrupts];
    assert_eq!(some.map(|error| error as u32), [0, 1, 8, 15, 34]);
}

#[test]
fn each_number_has_a_text_of_its_own() {
    let known = names(concat!(env!("CARGO_MANIFEST_DIR"), "/src/error.rs")).len();
    let unknown = text(999);
    let texts: Vec<_> = (0..=1000).map(text).filter(|&text| text != unknown).collect();
    assert_eq!(texts.len(), known);
    assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), known);
    // Where the core's needs nothing to be told, it is the same.
    assert_eq!(text(Error::OutOfMemory as u32), quietmm::Error::OutOfMemory.to_string());
    assert_eq!(text(Error::NoSuchSpace as u32), quietmm::Error::NoSuchSpace.to_string());
}
