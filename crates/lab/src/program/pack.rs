//! The archive that a program finds as its root directory: a directory of the host's, the program, and what they link to.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::links::links;
use crate::process::ending::Failure;

/// Where the kernel finds what it is to run.
const PROGRAM: &str = ".program";
const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];
const LIBRARIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// What is opened by its name, and no file says so: by the C library when a thread is cancelled or ends itself, and parts of that library by runtimes of
/// other languages.
const BY_NAME: [&str; 7] = [
    "libgcc_s.so.1",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libutil.so.1",
];
const C_LIBRARY: &str = "libc.so.6";
/// Links that each system has today, by which a program is found under either path.
const MERGED: [(&str, &str); 4] =
    [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")];
/// What the C library reads when a program wants another character set: the list, and those that programs ask for.
const CHARACTERS: &str = "/usr/lib/x86_64-linux-gnu/gconv";
const SETS: [&str; 7] = [
    "gconv-modules.cache",
    "ISO8859-1.so",
    "ISO8859-15.so",
    "UTF-16.so",
    "UTF-32.so",
    "UTF-7.so",
    "CP1252.so",
];
/// Which machine is where.
const HOSTS: &str = "/etc/hosts";
/// What the C library looks up for programs: who there is, which machines and services. Of the host's, where the directory has none.
const TABLES: [&str; 7] = [
    "/etc/passwd",
    "/etc/group",
    HOSTS,
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/localtime",
];
/// The locale of the C library that is no language's, for texts in UTF-8.
const LOCALE: &str = "/usr/lib/locale/C.utf8";
/// Bytes of the line by which a script says what runs it.
const LONGEST_HEAD: u64 = 256;
/// Links that are followed on one way.
const MOST_LINKS: u32 = 40;
/// An archive that no machine has memory for, in bytes.
const MOST: usize = 1 << 30;

/// One that is only on the way to something, or the system's own.
const DIRECTORY: Member = Member::Directory { mode: 0o755, modified: 0 };

/// Something in the archive.
enum Member {
    Directory { mode: u32, modified: u32 },
    File { mode: u32, modified: u32, bytes: Vec<u8> },
    Link(String),
}

/// An archive on its way.
#[derive(Default)]
struct Pack {
    members: BTreeMap<String, Member>,
    bytes: usize,
}

/// Packs what a command needs.
pub fn pack(
    words: &[String],
    more: &[String],
    root: Option<&Path>,
    environment: &[(&str, &str)],
) -> Result<Vec<u8>, Failure> {
    let mut pack = Pack::default();
    if let Some(root) = root {
        let found = fs::metadata(root).map_err(|error| unreadable(root, &error))?;
        if !found.is_dir() {
            return Err(Failure::Input(format!("--root {}: not a directory", root.display())));
        }
        pack.take_directory(root, "")?;
    }
    pack.take_links();
    let mut words = words.to_vec();
    if let Some(place) = pack.take_program("--program", &words[0])?
        && words[0].contains('/')
    {
        words[0] = place;
    }
    for name in more {
        pack.take_program("--with", name)?;
    }
    pack.take_libraries()?;
    let mut start = Vec::new();
    for word in words.iter().map(String::as_str).chain([""]) {
        start.extend(word.bytes().chain([0]));
    }
    for (key, value) in environment {
        start.extend(format!("{key}={value}\0").bytes());
    }
    pack.members.insert(PROGRAM.to_string(), Member::File { mode: 0o400, modified: 0, bytes: start });
    Ok(pack.archive())
}

/// What others may do with something of the host's, and when it was last written: what an archive has of it.
fn rights_and_time(found: &fs::Metadata) -> (u32, u32) {
    (found.permissions().mode() & 0o7777, found.mtime().clamp(0, u32::MAX.into()) as u32)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Input(format!("{}: {error}", path.display()))
}

/// What a script that begins so is run by: a program, and if that is `env` the one that it looks for.
fn interpreters(head: &[u8]) -> Vec<String> {
    let Some(line) = head.strip_prefix(b"#!").and_then(|rest| rest.split(|&byte| byte == b'\n').next())
    else {
        return Vec::new();
    };
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace().map(String::from);
    let first = words.next().filter(|word| word.starts_with('/'));
    let is_env = first.as_ref().is_some_and(|first| first.ends_with("/env"));
    let second = if is_env { words.find(|word| !word.starts_with('-')) } else { None };
    first.into_iter().chain(second).collect()
}

/// A program of the host's, by name or path.
fn on_host(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    PATH.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

impl Pack {
    /// Where a path leads to that may have links on its way.
    fn resolve(&self, place: &str) -> String {
        let mut done: Vec<String> = Vec::new();
        let mut left: Vec<String> = place.split('/').rev().map(String::from).collect();
        let mut links = 0;
        while let Some(name) = left.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop();
                    continue;
                }
                _ => done.push(name),
            }
            if let Some(Member::Link(target)) = self.members.get(&done.join("/"))
                && links < MOST_LINKS
            {
                links += 1;
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                left.extend(target.split('/').rev().map(String::from));
            }
        }
        done.join("/")
    }

    /// Whether there is a file at this path.
    fn has(&self, path: &str) -> bool {
        matches!(self.members.get(&self.resolve(path)), Some(Member::File { .. }))
    }

    /// What the system has as links, unless the directory has something else there.
    fn take_links(&mut self) {
        for (name, target) in MERGED {
            self.members.entry(name.to_string()).or_insert_with(|| Member::Link(target.to_string()));
        }
    }

    fn put(&mut self, place: &str, member: Member) -> Result<(), Failure> {
        for (at, _) in place.match_indices('/') {
            self.members.entry(place[..at].to_string()).or_insert(DIRECTORY);
        }
        if let Member::File { bytes, .. } = &member {
            self.bytes += bytes.len();
            if self.bytes > MOST {
                return Err(Failure::Input(
                    "--root: more than 1 GiB of files; an archive lies in memory".to_string(),
                ));
            }
        }
        self.members.insert(place.to_string(), member);
        Ok(())
    }

    /// A program of the host's, unless there is one of its name; says where it lies then.
    fn take_program(&mut self, flag: &str, name: &str) -> Result<Option<String>, Failure> {
        let known = match name.contains('/') {
            true => self.has(name),
            false => PATH.iter().any(|directory| self.has(&format!("{directory}/{name}"))),
        };
        if known {
            return Ok(None);
        }
        let host = on_host(name)
            .ok_or_else(|| Failure::Input(format!("{flag}: {name} is neither in --root nor on this host")))?;
        let place = if name.starts_with('/') {
            name.to_string()
        } else if name.contains('/') {
            format!("/bin/{}", name.rsplit('/').next().unwrap_or(name))
        } else {
            // Others may know its whole path.
            host.to_string_lossy().into_owned()
        };
        let resolved = self.resolve(&place);
        // One that is a link lies elsewhere, and looks for what it needs from there.
        let real = fs::canonicalize(&host).map_err(|error| unreadable(&host, &error))?;
        let real = real.to_string_lossy().into_owned();
        let there = self.resolve(&real);
        if there != resolved && fs::symlink_metadata(&host).is_ok_and(|found| found.is_symlink()) {
            if !self.has(&real) {
                self.take_file(&host, &there)?;
            }
            self.put(&resolved, Member::Link(real))?;
        } else {
            self.take_file(&host, &resolved)?;
        }
        if let Some(base) = place.strip_prefix("/usr/bin/") {
            // Where both are directories it is found in both.
            let other = self.resolve(&format!("/bin/{base}"));
            self.members.entry(other).or_insert_with(|| Member::Link(place.clone()));
        }
        let mut head = Vec::new();
        let read = fs::File::open(&host).and_then(|file| file.take(LONGEST_HEAD).read_to_end(&mut head));
        read.map_err(|error| unreadable(&host, &error))?;
        for name in interpreters(&head) {
            // A script whose interpreter is nowhere says so when it is run.
            if on_host(&name).is_some() && name != place {
                self.take_program(flag, &name)?;
            }
        }
        Ok(Some(place))
    }

    /// A file of the host's; links are followed.
    fn take_file(&mut self, path: &Path, place: &str) -> Result<(), Failure> {
        let found = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
        let (mode, modified) = rights_and_time(&found);
        self.put(place, Member::File { mode, modified, bytes })
    }

    fn take_directory(&mut self, path: &Path, place: &str) -> Result<(), Failure> {
        let entries = fs::read_dir(path).map_err(|error| unreadable(path, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(path, &error))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                Failure::Input(format!("{}: a name that is no text", entry.path().display()))
            })?;
            let below = if place.is_empty() { name.to_string() } else { format!("{place}/{name}") };
            let kind = entry.file_type().map_err(|error| unreadable(&entry.path(), &error))?;
            if kind.is_dir() {
                let found = entry.metadata().map_err(|error| unreadable(&entry.path(), &error))?;
                let (mode, modified) = rights_and_time(&found);
                self.put(&below, Member::Directory { mode, modified })?;
                self.take_directory(&entry.path(), &below)?;
            } else if kind.is_symlink() {
                let target =
                    fs::read_link(entry.path()).map_err(|error| unreadable(&entry.path(), &error))?;
                self.put(&below, Member::Link(target.to_string_lossy().into_owned()))?;
            } else if kind.is_file() {
                self.take_file(&entry.path(), &below)?;
            }
        }
        Ok(())
    }

    /// What all programs in it link to, and what that links to.
    fn take_libraries(&mut self) -> Result<(), Failure> {
        let mut todo: Vec<String> = self.members.keys().cloned().collect();
        while let Some(place) = todo.pop() {
            let Some(Member::File { bytes, .. }) = self.members.get(&place) else { continue };
            let Some(links) = links(bytes) else { continue };
            let own = Path::new(&place)
                .parent()
                .map(|directory| format!("/{}", directory.display()))
                .unwrap_or_default();
            let places: Vec<String> =
                links.directories.iter().map(|directory| directory.replace("$ORIGIN", &own)).collect();
            let mut wanted: Vec<Vec<String>> = links.interpreter.into_iter().map(|path| vec![path]).collect();
            let by_name =
                if links.libraries.iter().any(|name| name == C_LIBRARY) { &BY_NAME[..] } else { &[] };
            wanted.extend(links.libraries.iter().map(String::as_str).chain(by_name.iter().copied()).map(
                |name| {
                    let all = places.iter().map(String::as_str).chain(LIBRARIES);
                    all.map(|directory| format!("{directory}/{name}")).collect()
                },
            ));
            for paths in wanted {
                if paths.iter().any(|path| self.has(path)) {
                    continue;
                }
                // What is nowhere the program will say itself.
                let Some(path) = paths.into_iter().find(|path| Path::new(path).is_file()) else { continue };
                let place = self.resolve(&path);
                self.take_file(Path::new(&path), &place)?;
                todo.push(place);
            }
        }
        if self.has(&format!("/lib/x86_64-linux-gnu/{C_LIBRARY}")) {
            for path in TABLES {
                if Path::new(path).is_file() && !self.members.contains_key(&self.resolve(path)) {
                    self.take_file(Path::new(path), &self.resolve(path))?;
                    self.name_machine(path);
                }
            }
            if Path::new(LOCALE).is_dir() && !self.has(&format!("{LOCALE}/LC_CTYPE")) {
                self.take_directory(Path::new(LOCALE), &self.resolve(LOCALE))?;
            }
            for name in SETS {
                let path = format!("{CHARACTERS}/{name}");
                if Path::new(&path).is_file() && !self.has(&path) {
                    self.take_file(Path::new(&path), &self.resolve(&path))?;
                }
            }
        }
        Ok(())
    }

    /// The machine finds itself by its name in the table of machines, as it does where somebody has set it up.
    fn name_machine(&mut self, path: &str) {
        if path == HOSTS
            && let Some(Member::File { bytes, .. }) = self.members.get_mut(&self.resolve(path))
        {
            bytes.extend(b"127.0.1.1\tquietmm\n");
        }
    }

    /// All of it as cpio, `newc`: directories stand before what they have.
    fn archive(&self) -> Vec<u8> {
        let mut archive = Vec::new();
        let mut put = |place: &str, mode: u32, modified: u32, bytes: &[u8]| {
            let fields =
                [0, mode, 0, 0, 1, modified, bytes.len() as u32, 0, 0, 0, 0, place.len() as u32 + 1, 0];
            archive.extend(b"070701");
            fields.iter().for_each(|field| archive.extend(format!("{field:08x}").bytes()));
            archive.extend(place.bytes().chain([0]));
            archive.resize(archive.len().next_multiple_of(4), 0);
            archive.extend(bytes);
            archive.resize(archive.len().next_multiple_of(4), 0);
        };
        for (place, member) in &self.members {
            match member {
                Member::Directory { mode, modified } => put(place, 0o40_000 | mode, *modified, &[]),
                Member::File { mode, modified, bytes } => put(place, 0o100_000 | mode, *modified, bytes),
                Member::Link(target) => put(place, 0o120_777, 0, target.as_bytes()),
            }
        }
        put("TRAILER!!!", 0, 0, &[]);
        archive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(all: &[(&str, &str)]) -> Pack {
        let mut pack = Pack::default();
        for &(place, target) in all {
            let member = match target {
                "" => Member::File { mode: 0o755, modified: 0, bytes: Vec::new() },
                "/" => DIRECTORY,
                target => Member::Link(target.to_string()),
            };
            pack.members.insert(place.to_string(), member);
        }
        pack
    }

    #[test]
    fn a_script_says_what_runs_it() {
        let found = |head: &str| interpreters(head.as_bytes());
        assert_eq!(found("#!/bin/sh -e\necho #!x"), ["/bin/sh"]);
        assert_eq!(found("#! /usr/bin/env -S perl -w\n"), ["/usr/bin/env", "perl"]);
        assert_eq!([found("\x7fELF"), found("#!"), found("#!sh\n")], [const { Vec::<String>::new() }; 3]);
    }

    #[test]
    fn what_is_opened_by_its_name_comes_with_the_c_library() {
        let mut all = Pack::default();
        all.take_links();
        // These tests link to it.
        all.take_file(&std::env::current_exe().expect("it runs"), "tests").expect("it can be read");
        all.take_libraries().expect("they can be read");
        let place = |name: &str| format!("/lib/x86_64-linux-gnu/{name}");
        let there = BY_NAME.iter().filter(|name| Path::new(&place(name)).is_file());
        let missing: Vec<_> = there.filter(|name| !all.has(&place(name))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn what_lies_behind_links_is_found_by_either_path() {
        let mut merged = pack(&[("usr/bin/x", ""), ("a", "b"), ("b", "a"), ("c", "/usr/../usr/./bin")]);
        merged.take_links();
        assert!(merged.has("/bin/x") && merged.has("/usr/bin/x") && merged.has("c/x"));
        assert!(!merged.has("/sbin/x") && !merged.has("/bin"));
        assert_eq!(merged.resolve("/lib64/ld.so"), "usr/lib64/ld.so");
        // A circle leads nowhere, and ends.
        assert!(!merged.has("/a/x"));
        let mut apart = pack(&[("bin", "/"), ("bin/x", "")]);
        apart.take_links();
        assert!(apart.has("/bin/x") && !apart.has("/usr/bin/x"));
    }

    #[test]
    fn a_program_of_the_hosts_is_found_where_others_look_for_it() {
        for root in [&[][..], &[("bin", "/"), ("usr", "/"), ("usr/bin", "/")]] {
            let mut pack = pack(root);
            pack.take_links();
            let place = pack.take_program("--with", "sh").unwrap().unwrap();
            assert!(pack.has(&place));
            let (merged, other) = (pack.resolve("/bin/sh"), pack.resolve("/usr/bin/sh"));
            assert!(merged == other && pack.has("/bin/sh"), "{merged} {other}");
            pack.take_libraries().unwrap();
            assert!(
                pack.has("/lib64/ld-linux-x86-64.so.2")
                    && pack.take_program("--with", "sh").unwrap().is_none()
            );
        }
    }
}
