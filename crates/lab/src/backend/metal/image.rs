//! The bootable image: one that was named, or the repository's, which is built when it is older than its sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::process::ending::Failure;
use crate::process::interrupt;
use crate::process::progress::Progress;

/// What builds the image and prints where it is.
const SCRIPT: &str = "scripts/metal";
/// What the image is made of, beside the script.
const SOURCES: [&str; 6] =
    ["Cargo.toml", "Cargo.lock", "crates/core", "crates/workloads", "crates/linux", "crates/metal"];
/// Where it lies, below the directory for what is built.
const BUILT: &str = "metal/x86_64-unknown-linux-gnu/metal/quietmm-metal";
/// How to get one.
const HOW: &str =
    "run quietmm in its repository, where scripts/metal builds the image, or name one with --image FILE";

/// The image to boot.
pub fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return match fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() > 0 => Ok(path.to_path_buf()),
            Ok(_) => Err(Failure::Input(format!("--image {}: this is no image", path.display()))),
            Err(error) => Err(Failure::Input(format!("--image {}: {error}", path.display()))),
        };
    }
    let Some(root) = repository() else {
        return Err(Failure::Input(format!("there is no bootable image; {HOW}")));
    };
    let built =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let image = built.join(BUILT);
    if is_stale(&image, &root) { build(&root) } else { Ok(image) }
}

/// The repository: where the command lies in it, or was called in it.
fn repository() -> Option<PathBuf> {
    let places = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    let is_root = |dir: &&Path| dir.join(SCRIPT).is_file() && dir.join("crates/metal/image.ld").is_file();
    places.iter().flatten().find_map(|place| place.ancestors().find(is_root)).map(Path::to_path_buf)
}

/// Whether the image is missing, or anything that it is made of is newer.
fn is_stale(image: &Path, root: &Path) -> bool {
    let Some(made) = fs::metadata(image).and_then(|found| found.modified()).ok() else { return true };
    SOURCES.iter().chain([&SCRIPT]).any(|source| newest(&root.join(source)).is_none_or(|at| at > made))
}

/// When anything in there was changed for the last time; directories count only by what is in them. `None` if it is gone.
fn newest(path: &Path) -> Option<SystemTime> {
    let found = fs::metadata(path).ok()?;
    if !found.is_dir() {
        return found.modified().ok();
    }
    let entries = fs::read_dir(path).ok()?;
    entries.filter_map(|entry| newest(&entry.ok()?.path())).max()
}

fn build(root: &Path) -> Result<PathBuf, Failure> {
    let failed = |why: &str| Failure::Run(format!("{SCRIPT} does not build the image: {why}"));
    let child = Command::new(root.join(SCRIPT))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    let progress = Progress::waiting("building the image");
    let built = child.wait_with_output();
    progress.clear();
    // Ctrl-C at the terminal ends the build by itself.
    if interrupt::requested() {
        return Err(Failure::Interrupted { percent: 0 });
    }
    let built = built.map_err(|error| failed(&error.to_string()))?;
    if !built.status.success() {
        return Err(failed(reason(&String::from_utf8_lossy(&built.stderr))));
    }
    // Relative to the root, if the directory for what is built is.
    let out = String::from_utf8_lossy(&built.stdout);
    out.lines().next_back().map(|line| root.join(line.trim())).ok_or_else(|| failed("it names none"))
}

/// The line that says most: the first error, or the last line.
fn reason(complaint: &str) -> &str {
    let lines = || complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    lines().find(|line| line.contains("error")).or_else(|| lines().next_back()).unwrap_or("it says nothing")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A repository with everything in it an hour old.
    fn tree(name: &str) -> (PathBuf, PathBuf) {
        let root = std::env::temp_dir().join(format!("quietmm-tree-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for file in [
            "Cargo.toml",
            "Cargo.lock",
            "crates/core/src/lib.rs",
            "crates/workloads/src/lib.rs",
            "crates/linux/src/lib.rs",
            "crates/metal/image.ld",
            SCRIPT,
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            set(&path, 3600);
        }
        let image = root.join("image");
        (root, image)
    }

    fn set(path: &Path, seconds_ago: u64) {
        let at = SystemTime::now() - Duration::from_secs(seconds_ago);
        fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    }

    #[test]
    fn an_image_is_stale_when_it_is_missing_or_older_than_what_it_is_made_of() {
        let (root, image) = tree("stale");
        assert!(is_stale(&image, &root), "missing");
        fs::write(&image, "x").unwrap();
        set(&image, 1800);
        assert!(!is_stale(&image, &root), "newer than all");
        for source in [
            "crates/core/src/lib.rs",
            "crates/linux/src/lib.rs",
            "crates/metal/image.ld",
            "Cargo.lock",
            SCRIPT,
        ] {
            set(&root.join(source), 60);
            assert!(is_stale(&image, &root), "{source} is newer");
            set(&root.join(source), 3600);
            assert!(!is_stale(&image, &root), "{source}");
        }
        fs::write(root.join("unrelated"), "").unwrap();
        assert!(!is_stale(&image, &root), "the image is not made of that");
        fs::remove_file(root.join("Cargo.lock")).unwrap();
        assert!(is_stale(&image, &root), "a part is gone");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_build_that_fails_is_told_by_its_first_error() {
        assert_eq!(
            reason("warning: x\nerror[E0425]: no such value\n --> src\nerror: aborting"),
            "error[E0425]: no such value"
        );
        assert_eq!(reason("scripts/metal: 12: cargo: not found\n"), "scripts/metal: 12: cargo: not found");
        assert_eq!(reason(""), "it says nothing");
    }
}
