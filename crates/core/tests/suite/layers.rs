//! The rooms of the core stand on each other as ARCHITECTURE.md draws them: no import goes up, and no files import each other in a
//! circle. What is exempt: everything may name [`Manager`](quietmm::Manager), which all rooms are methods of; what of these is called
//! from below, a table says. In the other crates files of one folder may import each other, but no circle goes through two folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use syn::visit::{self, Visit};

type Name = Vec<String>;

/// Methods of `Manager` that a room calls although they belong to a room above: each is a thing that only the whole can do.
const CALLS_UP: &[(&str, &str, &[&str])] = &[
    ("file", "reclaim", &["drain_lru_batch", "lru_add", "note_refault", "unlist"]),
    ("file", "space", &["put_page"]),
    ("frame", "reclaim", &["stall", "wake_kswapd"]),
    ("group", "reclaim", &["make_room"]),
    ("hotplug", "space", &["move_out_of", "unpark"]),
    ("ipi", "handlers", &["carry_out"]),
    ("paging", "tlb", &["epoch", "stamps"]),
    ("reclaim", "file", &["file_at", "move_to_swap", "note_used", "remove_cached", "replace_cached"]),
    (
        "reclaim",
        "space",
        &["nodes_of_page", "put_page", "reclaim_tables", "split_idle", "swap_in_at", "unpark"],
    ),
    ("rmap", "file", &["file_at"]),
    ("swap", "file", &["bring_files_back", "file_id"]),
    ("swap", "reclaim", &["lru_add", "note_refault", "unlist"]),
    ("swap", "space", &["next_swapped", "put_page", "swap_in_at"]),
    ("swap", "vma", &["live_space", "space_slots"]),
    ("vma", "file", &["file_at"]),
    ("writeback", "file", &["file_at"]),
    ("writeback", "swap", &["is_swappable", "kept_in", "note_gone", "slot_of", "swap_backoff"]),
];

/// Circles through two folders that there are: in the image, the command line says which test runs, and tests are programs for
/// the machine that it starts.
const ROUND: &[(&str, &str)] =
    &[("metal", "command imports from test"), ("metal", "test imports from platform")];

/// The doors of `Manager`, and the view that each makes.
const DOORS: &[(&str, &str)] =
    &[("file", "File"), ("frames", "FrameAllocator"), ("space", "Space"), ("swap", "Swap"), ("vmap", "Vmap")];

/// A file, and what it names.
#[derive(Default)]
struct File {
    /// The folder in which it lies.
    folder: Name,
    /// What a `use` brings in, by the name that it has here, and whether others may take it from here.
    uses: BTreeMap<String, (Name, bool)>,
    /// Paths that are written out.
    paths: Vec<Name>,
    /// First words of all paths.
    words: BTreeSet<String>,
    /// Methods of `Manager` that are made here, and of its views, as `Space::map`.
    methods: BTreeSet<String>,
    /// Methods of it that are called here.
    calls: BTreeSet<String>,
    /// Whether `self` is one.
    in_manager: bool,
    /// Or which view it is.
    in_view: Option<String>,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg")
            && it.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

fn flatten(tree: &syn::UseTree, before: &Name, each: &mut impl FnMut(Name, String)) {
    let with = |word: &syn::Ident| before.iter().cloned().chain([word.to_string()]).collect::<Name>();
    match tree {
        syn::UseTree::Path(path) => flatten(&path.tree, &with(&path.ident), each),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, each)),
        syn::UseTree::Name(name) if name.ident == "self" => {
            each(before.clone(), before.last().expect("`self` in a group").clone());
        }
        syn::UseTree::Name(name) => each(with(&name.ident), name.ident.to_string()),
        syn::UseTree::Rename(name) => each(with(&name.ident), name.rename.to_string()),
        syn::UseTree::Glob(_) => {
            let ours = matches!(before.first().map(String::as_str), Some("crate" | "self" | "super"));
            assert!(!ours, "a glob hides what is imported: {}", before.join("::"));
        }
    }
}

impl File {
    fn is_manager(&self, it: &syn::Expr) -> bool {
        match it {
            syn::Expr::Paren(inner) => self.is_manager(&inner.expr),
            syn::Expr::Path(path) => {
                path.path.is_ident("mm") || self.in_manager && path.path.is_ident("self")
            }
            syn::Expr::Field(field) => matches!(&field.member, syn::Member::Named(name) if name == "mm"),
            _ => false,
        }
    }
}

impl<'ast> Visit<'ast> for File {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        flatten(&item.tree, &Vec::new(), &mut |path, name| {
            self.uses.insert(name, (path, exported));
        });
    }

    /// Whoever may see it is no import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Name = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.words.insert(words[0].clone());
        self.paths.push(words);
        visit::visit_path(self, path);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = if let syn::Type::Path(of) = &*item.self_ty { of.path.segments.last() } else { None };
        let of = of.map_or(String::new(), |of| of.ident.to_string());
        self.in_manager = of == "Manager";
        let view = DOORS.iter().any(|(_, view)| *view == of);
        self.in_view = view.then(|| of.clone());
        if item.trait_.is_none() && (self.in_manager || view) {
            let functions = item.items.iter().filter_map(|it| {
                if let syn::ImplItem::Fn(it) = it { Some(it.sig.ident.to_string()) } else { None }
            });
            self.methods.extend(functions.map(|name| if view { format!("{of}::{name}") } else { name }));
        }
        visit::visit_item_impl(self, item);
        self.in_manager = false;
        self.in_view = None;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.is_manager(&call.receiver) {
            self.calls.insert(call.method.to_string());
        } else if let syn::Expr::MethodCall(door) = &*call.receiver
            && self.is_manager(&door.receiver)
            && let Some((_, view)) = DOORS.iter().find(|(name, _)| door.method == name)
        {
            self.calls.insert(format!("{view}::{}", call.method));
        } else if let (syn::Expr::Path(path), Some(view)) = (&*call.receiver, &self.in_view)
            && path.path.is_ident("self")
        {
            self.calls.insert(format!("{view}::{}", call.method));
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// All files of a crate, by their module.
struct House {
    files: BTreeMap<Name, File>,
    /// A room that everything may name.
    open: Option<&'static str>,
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            into.push(path);
        }
    }
}

impl House {
    fn of(open: Option<&'static str>, texts: impl Iterator<Item = (String, String)>) -> House {
        let files = texts.map(|(path, text)| {
            let mut module: Name = path.trim_end_matches(".rs").split('/').map(str::to_string).collect();
            let mut file = File { folder: module[..module.len() - 1].to_vec(), ..File::default() };
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            file.visit_file(&syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}")));
            (module, file)
        });
        House { files: files.collect(), open }
    }

    fn read(name: &str, open: Option<&'static str>) -> House {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let mut all = Vec::new();
        sources(&root, &mut all);
        let texts = all.into_iter().map(|path| {
            let name = path.strip_prefix(&root).expect("below").to_str().expect("UTF-8").to_string();
            (name, fs::read_to_string(&path).expect("a source"))
        });
        House::of(open, texts)
    }

    fn core() -> &'static House {
        static CORE: OnceLock<House> = OnceLock::new();
        CORE.get_or_init(|| House::read("core", Some("manager")))
    }

    /// From the root of the crate, where it leads into the crate.
    fn absolute(&self, here: &[String], path: &[String]) -> Option<Name> {
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([here, &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|word| *word == "super").count();
                Some([&here[..here.len().checked_sub(ups)?], &path[ups..]].concat())
            }
            first => {
                let child = [here, &[first.to_string()]].concat();
                self.files.contains_key(&child).then(|| [here, path].concat())
            }
        }
    }

    /// The file in which a name is made, behind all doors.
    fn made_in(&self, path: &[String]) -> Name {
        let depth = (0..=path.len()).rev().find(|&n| self.files.contains_key(&path[..n])).unwrap_or(0);
        let (file, rest) = (&path[..depth], &path[depth..]);
        let door = rest.first().and_then(|name| self.files.get(file)?.uses.get(name));
        match door.and_then(|(to, _)| self.absolute(file, to)) {
            Some(behind) => self.made_in(&[&behind, &rest[1..]].concat()),
            None => file.to_vec(),
        }
    }

    /// The files that a file imports from. What it only hands on is no import.
    fn imports(&self, here: &Name) -> BTreeSet<Name> {
        let file = &self.files[here];
        let used = |name: &String, exported: bool| !exported || file.words.contains(name);
        let named =
            file.uses.iter().filter(|(name, (_, exported))| used(name, *exported)).map(|(_, (path, _))| path);
        let written =
            file.paths.iter().filter(|path| path.len() > 1 && matches!(path[0].as_str(), "crate" | "super"));
        let found = named.chain(written).filter_map(|path| Some(self.made_in(&self.absolute(here, path)?)));
        found.filter(|to| to != here && !to.is_empty() && Some(&to[0][..]) != self.open).collect()
    }

    /// Imports that are part of a circle, each with the folders of both files.
    fn round(&self) -> Vec<(String, [&Name; 2])> {
        let names: Vec<&Name> = self.files.keys().collect();
        let numbers: BTreeMap<&Name, usize> = names.iter().enumerate().map(|(n, name)| (*name, n)).collect();
        let imports: Vec<Vec<usize>> =
            names.iter().map(|here| self.imports(here).iter().map(|to| numbers[to]).collect()).collect();
        let reached = |from: usize| {
            let (mut seen, mut next) = (vec![false; names.len()], vec![from]);
            while let Some(at) = next.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    next.extend(&imports[at]);
                }
            }
            seen
        };
        let reached: Vec<Vec<bool>> = (0..names.len()).map(reached).collect();
        let mut found = Vec::new();
        for (here, all) in imports.iter().enumerate() {
            for &to in all.iter().filter(|&&to| reached[to][here]) {
                let both = [names[here], names[to]];
                let import = both.map(|file| file.join("::")).join(" imports from ");
                found.push((import, both.map(|file| &self.files[file].folder)));
            }
        }
        found
    }

    /// Imports that go up, or to a room on the same floor.
    fn up(&self, floors: &BTreeMap<String, usize>) -> Vec<String> {
        let mut found = Vec::new();
        for here in self.files.keys().filter(|here| !here.is_empty()) {
            for to in self
                .imports(here)
                .into_iter()
                .filter(|to| to[0] != here[0] && floors[&to[0]] >= floors[&here[0]])
            {
                found.push(format!("{} imports from {}", here.join("::"), to.join("::")));
            }
        }
        found
    }

    /// Methods of `Manager` that are called from below: by room, the room above, and which.
    fn calls_up(&self, floors: &BTreeMap<String, usize>) -> BTreeMap<(String, String), BTreeSet<String>> {
        let mut made = BTreeMap::new();
        for (file, about) in self.files.iter().filter(|(file, _)| !file.is_empty() && file[0] != "manager") {
            made.extend(about.methods.iter().map(|method| (method, &file[0])));
        }
        let mut found: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (file, about) in self.files.iter().filter(|(file, _)| !file.is_empty()) {
            for call in &about.calls {
                if let Some(&room) = made.get(call)
                    && room != &file[0]
                    && floors[room] >= floors[&file[0]]
                {
                    found.entry((file[0].clone(), room.clone())).or_default().insert(call.clone());
                }
            }
        }
        found
    }
}

/// The floor of each room, from the ground up.
fn floors() -> BTreeMap<String, usize> {
    let text = include_str!("../../../../ARCHITECTURE.md");
    let drawn =
        text.split("```layers\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the layers");
    let rooms = drawn.lines().rev().enumerate().flat_map(|(floor, line)| {
        let (rooms, _) = line.split_once("  ").unwrap_or((line, ""));
        rooms.split(", ").map(move |room| (room.to_string(), floor)).collect::<Vec<_>>()
    });
    rooms.collect()
}

#[test]
fn no_import_goes_up() {
    let (house, floors) = (House::core(), floors());
    let rooms: BTreeSet<_> = house.files.keys().filter_map(|file| file.first()).collect();
    assert_eq!(rooms, floors.keys().collect(), "ARCHITECTURE.md draws each room once, and no other");
    assert_eq!(house.up(&floors), [""; 0]);
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    assert_eq!(House::core().round(), []);
}

#[test]
fn no_circle_goes_through_two_folders() {
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("the crates");
    let names = crates.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    // The core has no circle at all.
    let mut names: Vec<String> = names.filter(|name| name != "README.md" && name != "core").collect();
    names.sort();
    let mut found = Vec::new();
    for name in &names {
        // In `linux` too all rooms are methods of one object.
        let open = if name == "linux" { Some("kernel") } else { None };
        let house = House::read(name, open);
        let across = house.round().into_iter().filter(|(_, [from, to])| from != to);
        found.extend(across.map(|(import, _)| (name.clone(), import)));
    }
    let known: Vec<_> = ROUND.iter().map(|(name, import)| (name.to_string(), import.to_string())).collect();
    assert_eq!(found, known);
}

#[test]
fn what_is_called_from_below_is_known() {
    let known = CALLS_UP.iter().map(|(from, to, which)| {
        ((from.to_string(), to.to_string()), which.iter().map(|name| name.to_string()).collect())
    });
    assert_eq!(House::core().calls_up(&floors()), known.collect());
}

/// The control: a house that is built wrong.
#[test]
fn what_goes_up_or_round_is_seen() {
    let texts = [
        ("lib.rs", "mod low; mod high; pub use high::Door;"),
        (
            "low.rs",
            "use crate::Door; impl<P> Manager<P> { fn f(&self) { self.above(); self.space(1).seen(); } }",
        ),
        ("high/mod.rs", "mod inner; pub use inner::Door;"),
        (
            "high/inner.rs",
            "use crate::low; pub struct Door; impl<P> Manager<P> { fn above(&self) {} } impl<P> Space<P> { fn seen(&self) {} }",
        ),
    ];
    let texts = texts.into_iter().map(|(path, text)| (path.to_string(), text.to_string()));
    let house = House::of(Some("manager"), texts);
    let floors = BTreeMap::from([("low".to_string(), 0), ("high".to_string(), 1)]);
    assert_eq!(house.up(&floors), ["low imports from high::inner"]);
    let round: Vec<_> = house.round().into_iter().map(|(import, [from, to])| (import, from == to)).collect();
    let both = ["high::inner imports from low", "low imports from high::inner"];
    assert_eq!(round, both.map(|import| (import.to_string(), false)));
    let both = BTreeSet::from(["Space::seen", "above"].map(str::to_string));
    let up = BTreeMap::from([(("low".to_string(), "high".to_string()), both)]);
    assert_eq!(house.calls_up(&floors), up);
}
