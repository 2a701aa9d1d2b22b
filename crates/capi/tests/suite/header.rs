//! The header is what cbindgen makes of the source.

use std::fs;
use std::path::{Path, PathBuf};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The rooms, in the order of the header.
const ROOMS: [&str; 13] = [
    "error", "config", "platform", "device", "kernel", "space", "group", "pins", "file", "frames", "memory",
    "vmap", "swap",
];

fn room(name: &str) -> PathBuf {
    Path::new(HERE).join("src").join(name).with_extension("rs")
}

/// What cbindgen makes of these.
fn made(rooms: impl IntoIterator<Item = PathBuf>) -> String {
    let config = cbindgen::Config::from_file(Path::new(HERE).join("cbindgen.toml")).expect("it is read");
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = rooms.into_iter().fold(builder, cbindgen::Builder::with_src);
    let mut header = Vec::new();
    builder.generate().expect("cbindgen understands it").write(&mut header);
    String::from_utf8(header).expect("text")
}

/// `UPDATE=1` writes it.
#[test]
fn the_header_is_what_the_source_says() {
    let at = Path::new(HERE).join("include/quietmm.h");
    let now = made(ROOMS.map(room));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&at, &now).expect("it is written");
    }
    let kept = fs::read_to_string(&at).unwrap_or_default();
    assert!(kept == now, "the header is not made of this source: UPDATE=1 cargo test -p quietmm-capi header");
}

/// The control: one parameter is another, and so is the header.
#[test]
fn another_source_makes_another_header() {
    let text = fs::read_to_string(room("swap")).expect("a room");
    let changed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("swap.rs");
    fs::write(&changed, text.replace("priority: i16", "priority: i32")).expect("it is written");
    let other = made(ROOMS.map(|name| if name == "swap" { changed.clone() } else { room(name) }));
    let now = made(ROOMS.map(room));
    let differs = |line: &&str| !now.contains(*line);
    assert_eq!(other.lines().filter(differs).count(), 1);
}

/// C's names are in small letters: who adds a type says which.
#[test]
fn names_of_types_are_c_s() {
    let header = made(ROOMS.map(room));
    let names: Vec<_> = header.split("quietmm_").skip(1).filter_map(|rest| rest.chars().next()).collect();
    assert!(
        names.len() > 300 && names.iter().all(char::is_ascii_lowercase),
        "a type without a name in cbindgen.toml"
    );
}

/// What is in no room that the test knows would be in no header.
#[test]
fn each_function_for_c_is_in_the_header() {
    let header = made(ROOMS.map(room));
    let rooms = fs::read_dir(Path::new(HERE).join("src")).expect("the source");
    let text: String =
        rooms.map(|room| fs::read_to_string(room.expect("a room").path()).expect("text")).collect();
    let names: Vec<_> = text.split("extern \"C\" fn quietmm_").skip(1).collect();
    assert!(names.len() > 70, "{}", names.len());
    for rest in names {
        let name = rest.split('(').next().expect("a name");
        assert!(header.contains(&format!("quietmm_{name}(")), "quietmm_{name} is not in the header");
    }
}
