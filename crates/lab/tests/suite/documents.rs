//! What documents show of a command's output is what the command prints. `scripts/docs` makes it, this holds it.
//!
//! A block in a document:
//!
//! ```text
//! <!-- command: quietmm run revisit; drop: How long, workload -->
//! (the output, in a fence if there was one)
//! <!-- made at 7165b04 -->
//! ```
//!
//! The command runs in the repository's root. `drop` leaves out paragraphs that begin with one of these words, `keep` all
//! others. With `long` it is not run here; with `sample: quietmm run revisit --scale 2048 --csv` that is, and what it prints
//! has the number at the end of the block: if it changes, so does what stands in the document. `needs: emulator, idle` says
//! what a command needs besides the build: it is long, too, and `scripts/docs --without idle` leaves it as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

const FIX: &str = "scripts/docs makes it again";

/// A block of a document, by its lines.
#[derive(Default)]
struct Block {
    /// Of the first line behind the comment, and of the comment at the end.
    from: usize,
    until: usize,
    command: String,
    long: bool,
    needs: Vec<String>,
    sample: Option<String>,
    dropped: Vec<String>,
    kept: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// All blocks of a document, or what is wrong with one.
fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(head) = line.strip_prefix("<!-- command: ").and_then(|line| line.strip_suffix(" -->"))
        else {
            continue;
        };
        let end = lines[at..].iter().position(|line| line.starts_with("<!-- made at "));
        let until = at + end.ok_or_else(|| format!("line {}: the block has no end", at + 1))?;
        let mut block = Block { from: at + 1, until, ..Block::default() };
        for (nth, part) in head.split("; ").enumerate() {
            match part.split_once(": ") {
                None if part == "long" => block.long = true,
                Some(("sample", words)) => block.sample = Some(words.to_string()),
                Some(("needs", words)) => {
                    block.long = true;
                    block.needs = words.split(", ").map(str::to_string).collect();
                }
                Some(("drop", words)) => block.dropped = words.split(", ").map(str::to_string).collect(),
                Some(("keep", words)) => block.kept = words.split(", ").map(str::to_string).collect(),
                _ if nth == 0 => block.command = part.to_string(),
                _ => return Err(format!("line {}: what is '{part}'?", at + 1)),
            }
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// What a shell command prints in the repository, with the tested `quietmm` first in the path, or the one that `$QUIETMM_DOCS_BINARY` names.
fn printed(command: &str) -> Result<String, String> {
    let named =
        std::env::var_os("QUIETMM_DOCS_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_quietmm").into());
    let binary = Path::new(&named);
    let folder = binary.parent().expect("a folder").display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let run = Command::new("sh")
        .args(["-c", command])
        .current_dir(root())
        .envs([("PATH", path), ("QUIETMM", binary.display().to_string())])
        .output()
        .map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() {
        return Err(format!("`{command}` failed: {stderr}"));
    }
    String::from_utf8(run.stdout).map_err(|error| error.to_string())
}

impl Block {
    /// The lines that belong into the document now.
    fn made(&self, fenced: bool) -> Result<Vec<String>, String> {
        let text = printed(&self.command)?;
        let kept = text.split("\n\n").filter(|paragraph| {
            let first = paragraph.trim_start_matches('\n');
            let begins = |words: &[String]| words.iter().any(|word| first.starts_with(word.as_str()));
            !begins(&self.dropped) && (self.kept.is_empty() || begins(&self.kept))
        });
        let body = kept.collect::<Vec<_>>().join("\n\n");
        let mut lines: Vec<String> =
            body.trim_end().trim_start_matches('\n').lines().map(str::to_string).collect();
        if fenced {
            let head = [format!("```text\n$ {}", self.command)];
            lines = head.into_iter().chain(lines).chain(["```".to_string()]).collect();
        }
        Ok(lines.join("\n").lines().map(str::to_string).collect())
    }

    /// The number of what the sample prints, for the end of the block.
    fn digest(&self) -> Result<String, String> {
        let Some(sample) = &self.sample else { return Ok(String::new()) };
        let text = printed(sample)?;
        // FNV-1a: the same number with any compiler.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Ok(format!(", sample {:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step)))
    }

    /// Where it was made, and the number of its sample.
    fn words<'a>(&self, lines: &[&'a str]) -> &'a str {
        let end = lines[self.until];
        end.strip_prefix("<!-- made at ").and_then(|end| end.strip_suffix(" -->")).unwrap_or("")
    }

    fn revision<'a>(&self, lines: &[&'a str]) -> &'a str {
        self.words(lines).split(',').next().unwrap_or("")
    }

    /// What is wrong with it, if anything.
    fn wrong(&self, lines: &[&str]) -> Result<(), String> {
        if self.revision(lines).is_empty() {
            return Err(format!("line {}: made at no revision", self.until + 1));
        }
        if !self.words(lines).ends_with(&self.digest()?) {
            return Err(format!(
                "line {}: the simulation prints other figures now than when `{}` was run; {FIX}",
                self.from, self.command
            ));
        }
        let there = &lines[self.from..self.until];
        if !self.long && self.made(there.first().is_some_and(|line| line.starts_with("```")))? != there {
            return Err(format!("line {}: `{}` prints something else now; {FIX}", self.from, self.command));
        }
        Ok(())
    }
}

/// All that is wrong with a document.
fn check(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    match blocks(text) {
        Err(wrong) => vec![wrong],
        Ok(blocks) => blocks.iter().filter_map(|block| block.wrong(&lines).err()).collect(),
    }
}

/// A block of a document that is to be made again.
struct Due {
    path: PathBuf,
    nth: usize,
    block: Block,
    fenced: bool,
}

/// All that are to be made again, but for those that need what is not `without`, and those that are of this revision: so one goes on where it was interrupted.
fn due(path: &Path, text: &str, revision: &str, without: &[&str]) -> Result<Vec<Due>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = Vec::new();
    for (nth, block) in blocks(text)?.into_iter().enumerate() {
        if block.revision(&lines) == revision {
            eprintln!("  made at {revision} before: {}", block.command);
            continue;
        }
        if let Some(need) = block.needs.iter().find(|need| without.contains(&need.as_str())) {
            eprintln!("  left as it is, without {need}: {}", block.command);
            continue;
        }
        let fenced = lines[block.from..block.until].first().is_some_and(|line| line.starts_with("```"));
        all.push(Due { path: path.to_path_buf(), nth, block, fenced });
    }
    Ok(all)
}

impl Due {
    /// The lines of it that belong into the document now, with the one at its end.
    fn made(&self, revision: &str) -> Result<Vec<String>, String> {
        let began = Instant::now();
        let mut lines = self.block.made(self.fenced)?;
        lines.push(format!("<!-- made at {revision}{} -->", self.block.digest()?));
        eprintln!("  made in {:.0} s: {}", began.elapsed().as_secs_f64(), self.block.command);
        Ok(lines)
    }

    /// The document with these lines in it: what else stands there may have changed meanwhile.
    fn placed(&self, text: &str, made: &[String]) -> Result<String, String> {
        let block = &blocks(text)?[self.nth];
        let (before, after) = (text.lines().take(block.from), text.lines().skip(block.until + 1));
        let lines = before.chain(made.iter().map(String::as_str)).chain(after);
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }

    /// Makes it and writes it into its document.
    fn write(&self, revision: &str, writes: &Mutex<()>) -> Result<(), String> {
        let made = self.made(revision)?;
        let _one = writes.lock().expect("nobody panics with it");
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        fs::write(&self.path, self.placed(&text, &made)?).map_err(|error| error.to_string())
    }
}

/// Makes all blocks again, some at once, then those alone that need an idle host. What fails does not end the others.
fn make(documents: &[PathBuf], revision: &str, without: &[&str], jobs: usize) -> Vec<String> {
    let mut all = Vec::new();
    for path in documents {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        all.extend(
            due(path, &text, revision, without).unwrap_or_else(|why| panic!("{}: {why}", path.display())),
        );
    }
    let (alone, together): (Vec<Due>, Vec<Due>) =
        all.into_iter().partition(|due| due.block.needs.iter().any(|need| need == "idle"));
    let (wrong, writes) = (Mutex::new(Vec::new()), Mutex::new(()));
    for (these, jobs) in [(together, jobs), (alone, 1)] {
        let next = Mutex::new(these.iter());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let Some(due) = next.lock().expect("nobody panics with it").next() else { break };
                        if let Err(why) = due.write(revision, &writes) {
                            eprintln!("  FAILED: {}: {why}", due.block.command);
                            let wrong = &mut wrong.lock().expect("nobody panics with it");
                            wrong.push(format!("{}: {why}", due.path.display()));
                        }
                    }
                });
            }
        });
    }
    wrong.into_inner().expect("nobody panics with it")
}

/// README.md and all of docs/, or those that `QUIETMM_DOCS` names.
fn documents() -> Vec<PathBuf> {
    let named = std::env::var("QUIETMM_DOCS").unwrap_or_default();
    if !named.trim().is_empty() {
        return named.split_whitespace().map(|name| root().join(name)).collect();
    }
    let folder = fs::read_dir(root().join("docs")).expect("docs");
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.push(root().join("README.md"));
    files.sort();
    files
}

#[test]
fn documents_show_what_the_command_prints() {
    let mut wrong = Vec::new();
    if std::env::var_os("QUIETMM_DOCS").is_some() {
        let revision = printed("git rev-parse --short HEAD").expect("a revision");
        let without = std::env::var("QUIETMM_DOCS_WITHOUT").unwrap_or_default();
        let without: Vec<&str> = without.split(',').collect();
        let jobs = std::env::var("QUIETMM_DOCS_JOBS").map_or(1, |jobs| jobs.parse().expect("a number"));
        wrong = make(&documents(), revision.trim(), &without, jobs);
    } else {
        for path in documents() {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            wrong.extend(check(&text).into_iter().map(|what| format!("{name}, {what}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The document with all blocks made again, but for those that need what is not `without`.
fn remade(text: &str, revision: &str, without: &[&str]) -> Result<String, String> {
    due(Path::new("a document"), text, revision, without)?
        .iter()
        .try_fold(text.to_string(), |text, due| due.placed(&text, &due.made(revision)?))
}

/// Each block that can be made is written, whatever becomes of the others, and is said if it cannot; what needs an idle host is made alone, after all others.
#[test]
fn a_block_that_fails_is_said_and_the_others_are_written() {
    let path = std::env::temp_dir().join(format!("quietmm-documents-{}.md", std::process::id()));
    let seen = path.with_extension("seen");
    let said = format!("echo one >> {0}; cat {0}", seen.display());
    let block = |head: &str| format!("<!-- command: {head} -->\nold\n<!-- made at x -->\n");
    let text =
        [format!("{said}; needs: idle"), "false".to_string(), said.clone(), "echo c; needs: ray".to_string()];
    // A command may have no `; ` in it: that begins what is said of it.
    let text = text.map(|head| block(&head.replacen("; cat", " && cat", 1))).concat();
    fs::write(&path, &text).expect("a directory for temporary files");
    let wrong = make(std::slice::from_ref(&path), "7165b04", &["ray"], 2);
    let made = fs::read_to_string(&path).expect("it is there");
    [&path, &seen].into_iter().for_each(|path| fs::remove_file(path).expect("it was made"));
    assert!(wrong.len() == 1 && wrong[0].contains("`false` failed"), "{wrong:?}");
    let bodies: Vec<&str> = made.split(" -->\n").skip(1).step_by(2).collect();
    assert_eq!(bodies[0], "one\none\n<!-- made at 7165b04", "it was made last");
    assert_eq!(bodies[1..], ["old\n<!-- made at x", "one\n<!-- made at 7165b04", "old\n<!-- made at x"]);
}

/// The controls: a digit that is not the command's, a sample of other figures, and a block that does not end are seen.
#[test]
fn a_document_that_shows_something_else_is_seen() {
    let short = "quietmm run no-pressure --machine uma-8 --scale 2048";
    let document = |head: &str, fence: &str| {
        format!("# A\n<!-- command: {short}{head} -->\n{fence}<!-- made at x -->\nB\n")
    };
    let good = remade(&document("; drop: workload", "```text\n```\n"), "7165b04", &[]).expect("it runs");
    assert!(good.contains(&format!("```text\n$ {short}\n")) && good.contains("pgfault"), "{good}");
    assert!(!good.contains("\nworkload") && good.ends_with("```\n<!-- made at 7165b04 -->\nB\n"), "{good}");
    assert_eq!(check(&good), Vec::<String>::new());
    let again = good.replace("7165b04", "x").replace("pgfault", "other");
    assert_eq!(remade(&again, "7165b04", &[]).as_ref(), Ok(&good), "it is made once more");
    let other = good.replace("pgfault", "other");
    assert_eq!(remade(&other, "7165b04", &[]).as_ref(), Ok(&other), "what was made there stays as it is");

    let row = good.lines().find(|line| line.starts_with("pgfault")).expect("a row");
    let other = row.replace(|digit: char| digit.is_ascii_digit(), "7");
    assert_ne!(row, other);
    assert_eq!(check(&good.replace(row, &other)).len(), 1);

    let long =
        remade(&document(&format!("; long; sample: {short} --seed 3"), ""), "7165b04", &[]).expect("it runs");
    assert_eq!(check(&long.replace("Ops", "Opt")), Vec::<String>::new(), "what is long is not run");
    assert_eq!(check(&long.replace("--seed 3", "--seed 4")).len(), 1, "but for its sample");

    let needs = document("; needs: emulator, idle", "");
    assert_eq!(check(&needs), Vec::<String>::new(), "what needs something is not run");
    assert_eq!(remade(&needs, "7165b04", &["linux", "idle"]).as_ref(), Ok(&needs), "nor made without it");
    assert!(remade(&needs, "7165b04", &["linux"]).expect("it runs").contains("made at 7165b04"));

    assert_eq!(check("<!-- command: true -->\n").len(), 1);
    assert_eq!(check("<!-- command: true; what -->\n<!-- made at x -->\n").len(), 1);
    assert_eq!(check("<!-- command: false -->\n<!-- made at x -->\n").len(), 1);
}
