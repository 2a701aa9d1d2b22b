//! A copy of the workspace whose core holds the mutants, and what the compiler says to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, iter};

use serde::Deserialize;

use crate::emit::{self, Emitted};
use crate::find::Found;
use crate::mutant::{Key, Kind, Mutant};
use crate::source::Source;

/// Where things are.
pub struct Places {
    /// The project.
    pub root: PathBuf,
    /// What belongs to the mutants alone.
    pub ours: PathBuf,
}

impl Places {
    pub fn new(root: PathBuf) -> Places {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Places { root, ours: target.join("mutants") }
    }
    pub fn copy(&self) -> PathBuf {
        self.ours.join("workspace")
    }

    /// Two at a time would change each other's copy.
    pub fn lock(&self) -> io::Result<fs::File> {
        let file = fs::File::create(self.ours.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(_) => Err(io::Error::other(format!("another run is under way in {}", self.ours.display()))),
        }
    }
}

/// The mutants that compile, and their numbers.
pub struct Compiled {
    pub mutants: Vec<Mutant>,
    pub numbers: Vec<u32>,
}

/// Writes a copy in which all mutants stand that compile: whoever does not is taken out until the rest does.
pub fn compile(places: &Places, sources: &[Source], found: Found) -> io::Result<Compiled> {
    copy_workspace(places)?;
    let mut mutants = found.mutants;
    let mut refused = refused(places);
    let mut keep_const: BTreeSet<(usize, usize)> = BTreeSet::new();
    let before = mutants.len();
    mutants.retain(|mutant| !refused.contains(&mutant.key));
    for round in 1.. {
        let numbers = emit::numbers(&mutants);
        let emitted = write_core(places, sources, &mutants, &numbers, &found.numbers)?;
        let errors = check(places)?;
        println!("round {round}: {} of {before} mutants, {} errors", mutants.len(), errors.len());
        if errors.is_empty() {
            fs::write(places.ours.join(REFUSED), serde_json::to_vec(&refused)?)?;
            return Ok(Compiled { mutants, numbers });
        }
        let mut out: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut kept = false;
        for error in &errors {
            if let Some(name) = error.called_in_const() {
                kept |= keep(sources, &mutants, &name, &mut keep_const);
                continue;
            }
            let blamed = error.blame(sources, &mutants, &emitted);
            if blamed.is_empty() {
                return Err(io::Error::other(format!("the copy does not compile:\n{}", error.rendered)));
            }
            for (file, at) in blamed {
                out.entry(at).or_default().insert(file);
            }
        }
        if out.is_empty() && !kept {
            return Err(io::Error::other("the copy does not compile, and nobody is to blame"));
        }
        let mut left = Vec::new();
        for (at, mut mutant) in mutants.into_iter().enumerate() {
            if let Some(files) = out.get(&at) {
                // A constant is used in many places: those that the compiler minds stay as they are.
                if mutant.key.kind == Kind::Constant {
                    mutant.edits.retain(|edit| !files.contains(&edit.file));
                } else {
                    mutant.edits.clear();
                }
                if mutant.edits.is_empty() {
                    refused.insert(mutant.key.clone());
                }
            }
            let in_const = |edit: &crate::mutant::Edit| {
                edit.const_fn.as_ref().is_some_and(|range| keep_const.contains(&(edit.file, range.start)))
            };
            let before = mutant.edits.len();
            mutant.edits.retain(|edit| !in_const(edit));
            if mutant.edits.is_empty() && before > 0 {
                refused.insert(mutant.key.clone());
            }
            if !mutant.edits.is_empty() {
                left.push(mutant);
            }
        }
        mutants = left;
    }
    unreachable!("it ends when nothing is left")
}

/// Mutants that do not compile, from last time.
const REFUSED: &str = "refused.json";

fn refused(places: &Places) -> BTreeSet<Key> {
    let text = fs::read(places.ours.join(REFUSED)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Those that compile, as far as that was tried.
pub fn without_refused(places: &Places, mut mutants: Vec<Mutant>) -> Vec<Mutant> {
    let refused = refused(places);
    mutants.retain(|mutant| !refused.contains(&mutant.key));
    mutants
}

/// Functions of this name stay `const`: one is called where a constant is worked out.
fn keep(
    sources: &[Source],
    mutants: &[Mutant],
    name: &str,
    keep_const: &mut BTreeSet<(usize, usize)>,
) -> bool {
    let mut any = false;
    for edit in mutants.iter().flat_map(|mutant| &mutant.edits) {
        let Some(range) = &edit.const_fn else { continue };
        let after = sources[edit.file].text[range.end..].trim_start();
        let called = after.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
        if called == Some(name) {
            any |= keep_const.insert((edit.file, range.start));
        }
    }
    any
}

fn write_core(
    places: &Places,
    sources: &[Source],
    mutants: &[Mutant],
    numbers: &[u32],
    cut: &[(usize, String, u32)],
) -> io::Result<Vec<Emitted>> {
    let core = places.copy().join("crates/core/src");
    let mut all = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        let mut emitted = emit::emit(&source.text, file, mutants, numbers);
        for (_, name, bits) in cut.iter().filter(|(at, ..)| *at == file) {
            let mask = (1u32 << bits) - 1;
            for (name_of_trait, method) in [("Cut", "cut"), ("Narrow", "narrow")] {
                emitted.text.push_str(&format!(
                    "\nimpl crate::mutation::{name_of_trait} for {name} {{\n    fn {method}(&self) -> Self {{ {name}(self.0 & {mask:#x}) }}\n}}\n"
                ));
            }
        }
        if source.path == "lib.rs" {
            emitted.text.push_str("\n#[doc(hidden)]\npub mod mutation;\n");
        }
        write_if_changed(&core.join(&source.path), emitted.text.as_bytes())?;
        all.push(emitted);
    }
    let runtime = include_str!("mutation.rs.in").replace("COUNT", &(mutants.len() + 1).to_string());
    write_if_changed(&core.join("mutation.rs"), runtime.as_bytes())?;
    Ok(all)
}

fn write_if_changed(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|before| before == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}

const JUDGE: &str = "\
[package]
name = \"quietmm-judge\"
edition.workspace = true

[dependencies]
quietmm-check = { workspace = true }
";

/// Copies what git knows, but for the core's source. What is gone in the project goes here too.
fn copy_workspace(places: &Places) -> io::Result<()> {
    let copy = places.copy();
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&places.root)
        .stderr(Stdio::inherit())
        .output()?;
    let listed: BTreeSet<String> = String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(String::from)
        .collect();
    let list = places.ours.join("copied.json");
    let before: BTreeSet<String> =
        fs::read(&list).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    for gone in before.difference(&listed) {
        let _ = fs::remove_file(copy.join(gone));
    }
    for path in &listed {
        if path.starts_with("crates/core/src/") || path == "Cargo.toml" {
            continue;
        }
        match fs::read(places.root.join(path)) {
            Ok(content) => write_if_changed(&copy.join(path), &content)?,
            // Deleted, and not committed yet.
            Err(_) => drop(fs::remove_file(copy.join(path))),
        }
    }
    // What runs the checker's scenarios as tests is a package of the copy alone.
    let judge = copy.join("crates/judge");
    write_if_changed(&judge.join("Cargo.toml"), JUDGE.as_bytes())?;
    write_if_changed(&judge.join("src/main.rs"), include_bytes!("judge.rs.in"))?;
    let manifest = fs::read_to_string(places.root.join("Cargo.toml"))?;
    let with = manifest.replacen("members = [", "members = [\"crates/judge\", ", 1);
    write_if_changed(&copy.join("Cargo.toml"), with.as_bytes())?;
    fs::write(list, serde_json::to_vec(&listed)?)
}

/// Cargo, for the copy. What the copy does to style is nobody's business.
pub fn cargo(places: &Places) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(places.copy())
        .env("CARGO_TARGET_DIR", places.ours.join("target"))
        .env("RUSTFLAGS", "--cap-lints=allow")
        // Compiling takes longer than the tests do: no more than what makes them bearable.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null());
    command
}

#[derive(Deserialize)]
struct Line {
    reason: String,
    message: Option<Message>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize, Clone)]
struct Message {
    level: String,
    message: String,
    code: Option<Code>,
    #[serde(default)]
    spans: Vec<Span>,
    #[serde(default)]
    children: Vec<Message>,
    rendered: Option<String>,
}

#[derive(Deserialize, Clone)]
struct Code {
    code: String,
}

#[derive(Deserialize, Clone)]
struct Span {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Deserialize, Clone)]
struct Expansion {
    span: Span,
}

/// What the compiler does not accept.
struct Refusal {
    message: Message,
    rendered: String,
}

impl Refusal {
    /// The function that is called where a constant is worked out, and is no longer `const`.
    fn called_in_const(&self) -> Option<String> {
        let code = self.message.code.as_ref()?;
        if code.code != "E0015" {
            return None;
        }
        let path = self.message.message.split('`').nth(1)?;
        let name = path.rsplit("::").next()?;
        Some(name.split('<').next().unwrap_or(name).to_string())
    }

    /// The mutants that are to blame: by their own text, else the choice in whose midst the error is.
    fn blame(&self, sources: &[Source], mutants: &[Mutant], emitted: &[Emitted]) -> Vec<(usize, usize)> {
        let primary: Vec<&Span> = self.message.spans.iter().filter(|span| span.is_primary).collect();
        let others: Vec<&Span> = iter::once(&self.message)
            .chain(&self.message.children)
            .flat_map(|message| &message.spans)
            .filter(|span| !span.is_primary)
            .collect();
        for spans in [&primary, &others] {
            let mut blamed = Vec::new();
            for (file, start, end) in spans.iter().flat_map(|span| places(span, sources)) {
                let hit = emitted[file]
                    .spots
                    .iter()
                    .filter(|(spot, _)| start < spot.end && spot.start < end.max(start + 1));
                // One that holds several texts is about the choice, not about them.
                let hit: Vec<_> = hit.collect();
                let within: Vec<_> =
                    hit.iter().filter(|(spot, _)| spot.start <= start && end <= spot.end).collect();
                blamed.extend(within.iter().map(|(_, mutant)| (file, *mutant)));
            }
            if !blamed.is_empty() {
                return blamed;
            }
        }
        for (file, start, end) in primary.iter().chain(&others).flat_map(|span| places(span, sources)) {
            let around = emitted[file]
                .choices
                .iter()
                .filter(|(range, _)| range.start <= start && end <= range.end)
                .min_by_key(|(range, _)| range.len());
            if let Some((_, mutants)) = around {
                return mutants.iter().map(|&mutant| (file, mutant)).collect();
            }
            let inside =
                emitted[file].choices.iter().filter(|(range, _)| start <= range.start && range.end <= end);
            let inside: Vec<_> =
                inside.flat_map(|(_, mutants)| mutants.iter().map(|&mutant| (file, mutant))).collect();
            if !inside.is_empty() {
                return inside;
            }
        }
        // Somewhere between: a statement that leaves, and now perhaps does not.
        let Some((file, start, end)) = primary
            .iter()
            .chain(&others)
            .flat_map(|span| places(span, sources))
            .reduce(|one, two| (one.0, one.1.min(two.1), one.2.max(two.2)))
        else {
            return Vec::new();
        };
        let between =
            emitted[file].choices.iter().filter(|(range, _)| start <= range.start && range.end <= end);
        let between: Vec<usize> = between.flat_map(|(_, mutants)| mutants.iter().copied()).collect();
        let leaves = |at: &&usize| {
            ["return", "break", "continue"].iter().any(|word| mutants[**at].key.from.starts_with(word))
        };
        let leaving: Vec<usize> = between.iter().filter(leaves).copied().collect();
        let blamed = if leaving.is_empty() { between } else { leaving };
        blamed.into_iter().map(|mutant| (file, mutant)).collect()
    }
}

/// Where a span lies in files of the core, also through macros.
fn places(span: &Span, sources: &[Source]) -> Vec<(usize, usize, usize)> {
    let mut found = Vec::new();
    let mut next = Some(span);
    while let Some(span) = next {
        let file =
            sources.iter().position(|source| span.file_name == format!("crates/core/src/{}", source.path));
        found.extend(file.map(|file| (file, span.byte_start, span.byte_end)));
        next = span.expansion.as_ref().map(|expansion| &expansion.span);
    }
    found
}

/// What the compiler says to the core and its own tests.
fn check(places: &Places) -> io::Result<Vec<Refusal>> {
    let mut child = cargo(places)
        .args(["check", "-p", "quietmm", "--lib", "--profile", "test", "--message-format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut errors = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("asked for")).lines() {
        let Ok(Line { message: Some(message), .. }) = serde_json::from_str::<Line>(&line?) else { continue };
        if message.level.starts_with("error") && !message.spans.is_empty() {
            let rendered = message.rendered.clone().unwrap_or_else(|| message.message.clone());
            errors.push(Refusal { message, rendered });
        }
    }
    let status = child.wait()?;
    if !status.success() && errors.is_empty() {
        return Err(io::Error::other("cargo check failed without an error in the core: see it in the copy"));
    }
    Ok(errors)
}

/// Builds what judges, and returns the paths of the executables.
pub fn build(places: &Places, args: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut child = cargo(places)
        .args(args)
        .args(["--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut built = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("asked for")).lines() {
        let Ok(line) = serde_json::from_str::<Line>(&line?) else { continue };
        if line.reason == "compiler-artifact" {
            built.extend(line.executable);
        }
    }
    if child.wait()?.success() { Ok(built) } else { Err(io::Error::other("the copy does not build")) }
}
