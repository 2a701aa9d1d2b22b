//! From a path to a file.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::errno::Errno;
use crate::procfs::is_of_proc;
use crate::tree::{Body, Inode};

/// Links that are followed on one way.
const MOST_LINKS: u32 = 40;
/// Bytes of a path, with the zero at its end.
pub const LONGEST: usize = 4096;
const LONGEST_NAME: usize = 255;

/// What a way may not do that its caller does not trust (`openat2`).
#[derive(Clone, Copy, Default)]
pub struct Within {
    /// Follow links.
    pub no_links: bool,
    /// Follow links of `/proc` that lead to what a process has.
    pub no_magic: bool,
    /// Leave the directory that it begins at.
    pub beneath: bool,
    /// The same, which is its root.
    pub in_root: bool,
    /// Come from one file system to another.
    pub one_mount: bool,
}

/// Where a way begins.
pub struct From<'a> {
    /// The root: nothing lies above it.
    pub root: &'a Arc<Inode>,
    /// The directory that paths without a slash at their start begin at.
    pub directory: &'a Arc<Inode>,
    /// The process that looks: what `/proc/self` leads to.
    pub process: u32,
    /// Its thread: what `/proc/thread-self` leads to.
    pub thread: u32,
    /// What is shown below `/proc` of a process, and below its `task` of a thread.
    pub shown: &'a dyn Fn(&Inode, u64) -> Option<Arc<Inode>>,
    /// Whether something is open under this number, by a process; of 0, by the one that looks.
    pub is_open: &'a dyn Fn(u32, u64) -> bool,
    /// The directory that is open so, if it is one.
    pub directory_open: &'a dyn Fn(u32, u64) -> Option<Arc<Inode>>,
    /// Whether whoever looks may look for names in a directory.
    pub may_search: &'a dyn Fn(&Inode) -> bool,
    /// What it may not do.
    pub within: Within,
}

/// Where a way ends.
pub struct Found {
    /// The directory that has the last name.
    pub directory: Arc<Inode>,
    /// The last name; empty if the path ends at a directory itself: `/`, `..`.
    pub name: Vec<u8>,
    /// What is there.
    pub inode: Option<Arc<Inode>>,
    /// The path said that it is a directory, by a slash at its end.
    pub directory_meant: bool,
}

/// Walks along a path; with `follow` also a link at its end.
///
/// # Errors
/// `ENOENT`: a directory on the way does not exist, or the path is empty; `ENOTDIR`; `EACCES`: no names may be looked for there; `ELOOP`;
/// `ENAMETOOLONG`; `EXDEV`: it leads out of where it is to stay.
pub fn walk(from: &From<'_>, path: &[u8], follow: bool) -> Result<Found, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if path.len() >= LONGEST {
        return Err(Errno::ENAMETOOLONG);
    }
    let within = from.within;
    let root = if within.in_root { from.directory } else { from.root };
    if within.beneath && path[0] == b'/' {
        return Err(Errno::EXDEV);
    }
    let mut at = if path[0] == b'/' { root.clone() } else { from.directory.clone() };
    let mount = within.one_mount && is_of_proc(&at);
    // What is left of the path, and of the links on the way, the next one last: as they are, since they may name very much.
    let mut left: Vec<(Vec<u8>, usize)> = alloc::vec![(path.to_vec(), 0)];
    let mut links = 0;
    loop {
        let Some(name) = next_name(&mut left) else {
            return Ok(Found {
                directory: at.clone(),
                name: Vec::new(),
                inode: Some(at),
                directory_meant: true,
            });
        };
        if name.len() > LONGEST_NAME {
            return Err(Errno::ENAMETOOLONG);
        }
        if !at.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if !(from.may_search)(&at) {
            return Err(Errno::EACCES);
        }
        if name == b"." {
            continue;
        }
        if name == b".." {
            if within.beneath && Arc::ptr_eq(&at, from.directory) {
                return Err(Errno::EXDEV);
            }
            if !Arc::ptr_eq(&at, root) {
                at = at.parent().unwrap_or(at);
            }
            continue;
        }
        let inode = match &at.body {
            Body::OpenFiles(_) => {
                let process = crate::procfs::process_of(&at).unwrap_or(0);
                let number = number_of(&name).filter(|&number| (from.is_open)(process, number));
                number.map(|number| match crate::procfs::tells_of(&at) {
                    Some(process) => crate::procfs::told(process, number),
                    None => Inode::opened_by(process, number),
                })
            }
            _ => match at.get(&name)? {
                None if number_of(&name).is_some() && is_proc(from, &at)? => {
                    number_of(&name).and_then(|number| (from.shown)(&at, number))
                }
                found => found,
            },
        };
        let last = left.iter().all(|(path, at)| path[*at..].iter().all(|&byte| byte == b'/'));
        // A slash behind it, in the path or in a link that leads here, says that it is a directory.
        let directory_meant = left.iter().any(|(path, at)| *at < path.len());
        let follow = follow || directory_meant;
        if let Some(inode) = &inode {
            may_pass(from, inode, !last || follow, mount)?;
        }
        let target = match inode.as_ref().map(|inode| &inode.body) {
            Some(Body::Link(target)) if !last || follow => Some(target.clone()),
            Some(Body::Itself(thread)) if !last || follow => {
                Some(itself(from.process, thread.then_some(from.thread)))
            }
            _ => None,
        };
        if let Some(target) = target {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP);
            }
            if target.is_empty() {
                return Err(Errno::ENOENT);
            }
            if target[0] == b'/' {
                if within.beneath {
                    return Err(Errno::EXDEV);
                }
                at = root.clone();
            }
            left.push((target, 0));
            continue;
        }
        if last {
            return Ok(Found { directory: at, name, inode, directory_meant });
        }
        at = inode.ok_or(Errno::ENOENT)?;
        // By way of what is open.
        if let Body::Opened(number) = at.body {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP);
            }
            at = (from.directory_open)(at.opener(), number).ok_or(Errno::ENOTDIR)?;
        }
    }
}

/// Whether a way may go by way of this, and follow it if it is a link.
fn may_pass(from: &From<'_>, inode: &Inode, follow: bool, mount: bool) -> Result<(), Errno> {
    let within = from.within;
    let is_link = matches!(inode.body, Body::Link(_) | Body::Itself(_) | Body::Opened(_));
    let is_magic = is_link && !matches!(inode.body, Body::Itself(_)) && crate::procfs::is_made_up(inode)
        || matches!(inode.body, Body::Opened(_));
    if follow && (is_link && within.no_links || is_magic && within.no_magic) {
        return Err(Errno::ELOOP);
    }
    if follow && is_magic && (within.beneath || within.in_root)
        || within.one_mount && !is_link && is_of_proc(inode) != mount
    {
        return Err(Errno::EXDEV);
    }
    Ok(())
}

/// Where a process, or its thread, is shown below `/proc`.
pub fn itself(process: u32, thread: Option<u32>) -> Vec<u8> {
    match thread {
        None => alloc::format!("{process}"),
        Some(thread) => alloc::format!("{process}/task/{thread}"),
    }
    .into_bytes()
}

/// Takes the next name from what is left of paths.
fn next_name(left: &mut Vec<(Vec<u8>, usize)>) -> Option<Vec<u8>> {
    loop {
        let (path, at) = left.last_mut()?;
        let start = *at + path[*at..].iter().take_while(|&&byte| byte == b'/').count();
        let len = path[start..].iter().take_while(|&&byte| byte != b'/').count();
        if len > 0 {
            *at = start + len;
            return Some(path[start..start + len].to_vec());
        }
        left.pop();
    }
}

/// Whether a directory is the one of processes, or one of threads.
fn is_proc(from: &From<'_>, directory: &Arc<Inode>) -> Result<bool, Errno> {
    let is_proc = from.root.get(b"proc")?.is_some_and(|proc| Arc::ptr_eq(&proc, directory));
    Ok(is_proc || crate::procfs::threads_of(directory).is_some())
}

/// A name that is a number, as it is written.
fn number_of(name: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(name).ok().filter(|text| *text == "0" || !text.starts_with(['0', '+']));
    text.and_then(|text| text.parse().ok())
}

/// The path of a directory, from the root.
pub fn path_of(directory: &Arc<Inode>) -> Vec<u8> {
    let mut names = Vec::new();
    let mut at = directory.clone();
    while let Some(parent) = at.parent() {
        let shown = || crate::procfs::shows(&at).map(|pid| alloc::format!("{pid}").into_bytes());
        names.push(parent.name_of(&at).or_else(shown).unwrap_or_default());
        at = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

/// The whole path of what was found.
pub fn whole(found: &Found) -> Vec<u8> {
    let mut whole = path_of(&found.directory);
    if !found.name.is_empty() {
        if whole.len() > 1 {
            whole.push(b'/');
        }
        whole.extend_from_slice(&found.name);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Device, mode};

    fn device() -> Arc<Inode> {
        Inode::new(9, mode::DEVICE | 0o666, 0, Body::Device(Device::Null))
    }

    fn link(to: &str) -> Arc<Inode> {
        Inode::new(8, mode::LINK | 0o777, 0, Body::Link(to.as_bytes().to_vec()))
    }

    /// /a/b/null, /a/link -> b, /absolute -> /a/b/null, /loop -> /loop, /a/up -> ../a/b
    fn tree() -> Arc<Inode> {
        let root = Inode::directory(1, 0o755, 0);
        let (a, b) = (Inode::directory(2, 0o755, 0), Inode::directory(3, 0o755, 0));
        root.put(b"a", a.clone()).unwrap();
        a.put(b"b", b.clone()).unwrap();
        b.put(b"null", device()).unwrap();
        a.put(b"link", link("b")).unwrap();
        a.put(b"up", link("../a/b")).unwrap();
        root.put(b"absolute", link("/a/b/null")).unwrap();
        root.put(b"loop", link("/loop")).unwrap();
        root
    }

    fn number(root: &Arc<Inode>, path: &str, follow: bool) -> Result<Option<u64>, Errno> {
        let from = From {
            root,
            directory: root,
            process: 42,
            thread: 43,
            shown: &|_, number| [7, 42].contains(&number).then(|| Inode::directory(number + 4, 0o555, 0)),
            is_open: &|process, number| process == 0 && number < 12,
            directory_open: &|_, number| if number == 4 { root.get(b"a").unwrap() } else { None },
            may_search: &|directory| directory.number != 99,
            within: Within::default(),
        };
        walk(&from, path.as_bytes(), follow).map(|found| found.inode.map(|inode| inode.number))
    }

    #[test]
    fn names_dots_and_links_lead_there() {
        let root = tree();
        let there = [
            "/a/b/null",
            "a/b/null",
            "//a/./b//null",
            "/a/link/null",
            "/absolute",
            "/../../a/up/null",
            "a/../a/b/null",
        ];
        for path in there {
            assert_eq!(number(&root, path, true), Ok(Some(9)), "{path}");
        }
        for (path, expected) in
            [("/", 1), ("/a/..", 1), ("/a/", 2), ("a/b/..", 2), ("/a/link/", 3), ("/a/link", 3), ("/..", 1)]
        {
            assert_eq!(number(&root, path, true), Ok(Some(expected)), "{path}");
        }
        assert_eq!(number(&root, "/a/link", false), Ok(Some(8)));
        assert_eq!(number(&root, "/a/link/", false), Ok(Some(3)), "a slash at the end follows");
    }

    #[test]
    fn what_leads_nowhere_is_an_error() {
        let root = tree();
        assert_eq!(number(&root, "/a/new", true), Ok(None));
        let wrong = [
            ("", Errno::ENOENT),
            ("/new/a", Errno::ENOENT),
            ("/a/b/null/x", Errno::ENOTDIR),
            ("/loop", Errno::ELOOP),
            ("/loop/x", Errno::ELOOP),
        ];
        for (path, error) in wrong {
            assert_eq!(number(&root, path, true), Err(error), "{path}");
        }
        assert_eq!(number(&root, &"x".repeat(256), true), Err(Errno::ENAMETOOLONG));
        assert_eq!(number(&root, &"x/".repeat(2048), true), Err(Errno::ENAMETOOLONG));
    }

    #[test]
    fn names_are_not_found_where_they_may_not_be_looked_for() {
        let root = tree();
        let closed = Inode::directory(99, 0o600, 0);
        closed.put(b"x", device()).unwrap();
        root.put(b"closed", closed).unwrap();
        assert_eq!(number(&root, "/closed", true), Ok(Some(99)));
        for path in ["/closed/x", "/closed/none", "/closed/..", "/closed/."] {
            assert_eq!(number(&root, path, true), Err(Errno::EACCES), "{path}");
        }
    }

    #[test]
    fn what_is_open_has_a_link_and_nothing_else_has() {
        let root = tree();
        root.put(b"fd", Inode::open_files(7)).unwrap();
        for (path, is_there) in [
            ("/fd/0", true),
            ("/fd/11", true),
            ("/fd/12", false),
            ("/fd/01", false),
            ("/fd/+1", false),
            ("/fd/-1", false),
            ("/fd/x", false),
            ("/fd/99999999999999999999", false),
        ] {
            assert_eq!(number(&root, path, false).unwrap().is_some(), is_there, "{path}");
        }
        let directory = root.get(b"fd").unwrap().unwrap();
        assert_eq!(directory.put(b"12", device()), Err(Errno::EPERM));
        assert_eq!(number(&root, "/fd/..", true), Ok(Some(1)));
        assert_eq!(number(&root, "/fd/3/x", true), Err(Errno::ENOTDIR));
        assert_eq!(number(&root, "/fd/4/b/null", true), Ok(Some(9)), "by way of a directory");
        assert_eq!(number(&root, "/fd/4/b/../../zero", true), Ok(None), "which lies where it lies");
    }

    #[test]
    fn the_number_of_who_looks_means_itself_below_proc_alone() {
        let root = tree();
        let proc = Inode::directory(5, 0o755, 0);
        root.put(b"proc", proc.clone()).unwrap();
        proc.put(b"self", Inode::new(6, mode::LINK | 0o777, 0, Body::Itself(false))).unwrap();
        root.get(b"a").unwrap().unwrap().put(b"self", device()).unwrap();
        assert_eq!(number(&root, "/proc/42", true), Ok(Some(46)));
        assert_eq!(
            (number(&root, "/proc/self", true), number(&root, "/proc/self", false)),
            (Ok(Some(46)), Ok(Some(6)))
        );
        assert_eq!((number(&root, "/proc/7", true), number(&root, "/a/7", true)), (Ok(Some(11)), Ok(None)));
        for path in ["/proc/43", "/proc/042", "/a/42", "/42"] {
            assert_eq!(number(&root, path, true), Ok(None), "{path}");
        }
    }

    #[test]
    fn nothing_lies_above_a_root() {
        let root = tree();
        let a = root.get(b"a").unwrap().unwrap();
        assert_eq!(number(&a, "/../b/../../b/null", true), Ok(Some(9)));
        assert_eq!(number(&a, "/up", true), Err(Errno::ENOENT), "by a link neither");
    }

    #[test]
    fn a_directory_knows_its_path() {
        let root = tree();
        let from = From {
            root: &root,
            directory: &root,
            process: 0,
            thread: 0,
            shown: &|_, _| None,
            is_open: &|_, _| false,
            directory_open: &|_, _| None,
            may_search: &|_| true,
            within: Within::default(),
        };
        assert_eq!(path_of(&walk(&from, b"a/up", true).unwrap().inode.unwrap()), b"/a/b");
        assert_eq!(path_of(&root), b"/");
    }

    #[test]
    fn names_are_given_moved_and_taken() {
        let root = tree();
        let a = root.get(b"a").unwrap().unwrap();
        let b = a.get(b"b").unwrap().unwrap();
        assert_eq!(root.put(b"a", device()), Err(Errno::EEXIST));
        assert_eq!(root.take(b"a", false).err(), Some(Errno::EISDIR));
        assert_eq!(root.take(b"a", true).err(), Some(Errno::ENOTEMPTY));
        assert_eq!(b.take(b"null", true).err(), Some(Errno::ENOTDIR));
        assert_eq!(root.rename(b"a", &b, b"a", true).err(), Some(Errno::EINVAL), "into itself");
        b.rename(b"null", &root, b"zero", true).map(drop).unwrap();
        assert_eq!(number(&root, "/zero", true), Ok(Some(9)));
        a.rename(b"b", &root, b"c", true).map(drop).unwrap();
        assert_eq!(number(&root, "/c/..", true), Ok(Some(1)), "it has another parent now");
        assert_eq!(root.take(b"zero", false).unwrap().links.load(core::sync::atomic::Ordering::Relaxed), 0);
    }
}
