//! C reaches all of the core's public interface, or the guide says what it does not reach and why.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const CORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src");
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// What C calls by another name, or has no use for.
const LEFT_OUT: [&str; 8] = [
    // C has these itself: it gave them, or they are what it was told.
    "Manager::config",
    "Manager::platform",
    "Pins::access",
    // By its frames, one by one.
    "FrameAllocator::free_contiguous",
    // In C these are fields.
    "Leaving::first",
    "Offline::first",
    // By number, and by `quietmm_space_advise`.
    "FrameAllocator::free_in_handler",
    "Space::populate",
];

/// Sources of a folder.
fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            into.push(fs::read_to_string(&path).expect("a source"));
        }
    }
}

fn all(folder: &str) -> Vec<String> {
    let mut all = Vec::new();
    sources(Path::new(folder), &mut all);
    all
}

/// The public methods of the core's manager, its views, and what they give out.
fn methods(sources: &[String]) -> BTreeSet<String> {
    const TYPES: [&str; 10] =
        ["File", "FrameAllocator", "Group", "Leaving", "Manager", "Offline", "Pins", "Space", "Swap", "Vmap"];
    let mut found = BTreeSet::new();
    for source in sources {
        for item in syn::parse_file(source).expect("a source").items {
            let syn::Item::Impl(item) = item else { continue };
            let syn::Type::Path(of) = &*item.self_ty else { continue };
            let of = of.path.segments.last().expect("a name").ident.to_string();
            if item.trait_.is_some() || !TYPES.contains(&&*of) {
                continue;
            }
            for method in item.items {
                if let syn::ImplItem::Fn(method) = method
                    && matches!(method.vis, syn::Visibility::Public(_))
                {
                    found.insert(format!("{of}::{}", method.sig.ident));
                }
            }
        }
    }
    found
}

/// What a platform may bring, all traits but the laboratory's and the one that puts them together.
fn brought(sources: &[String]) -> BTreeSet<String> {
    const TRAITS: [&str; 8] =
        ["BlockDevice", "Broadcast", "Cpus", "KernelTlb", "Memory", "Services", "Shrinker", "UserTlb"];
    let mut found = BTreeSet::new();
    for source in sources {
        for item in syn::parse_file(source).expect("a source").items {
            let syn::Item::Trait(item) = item else { continue };
            let of = item.ident.to_string();
            if !TRAITS.contains(&&*of) {
                continue;
            }
            for method in item.items {
                if let syn::TraitItem::Fn(method) = method {
                    found.insert(format!("{of}::{}", method.sig.ident));
                }
            }
        }
    }
    found
}

/// The last word of a path.
fn name(path: &str) -> &str {
    path.rsplit("::").next().expect("a name")
}

#[test]
fn c_reaches_each_method_of_the_core() {
    let (methods, here) = (methods(&all(CORE)), all(HERE).concat());
    assert!(methods.len() > 100, "{}", methods.len());
    let calls = |method: &str| {
        let name = name(method);
        here.contains(&format!(".{name}(")) || here.contains(&format!("::{name}("))
    };
    let gone: Vec<_> = LEFT_OUT.iter().filter(|&&method| !methods.contains(method)).collect();
    assert!(gone.is_empty(), "left out, and not there: {gone:?}");
    let needless: Vec<_> = LEFT_OUT.iter().filter(|&&method| calls(method)).collect();
    assert!(needless.is_empty(), "left out, and called: {needless:?}");
    let missing: Vec<_> =
        methods.iter().filter(|method| !calls(method) && !LEFT_OUT.contains(&method.as_str())).collect();
    assert!(missing.is_empty(), "not for C: {missing:?}");
}

#[test]
fn c_may_bring_all_that_a_platform_brings() {
    let (brought, here) = (brought(&all(CORE)), all(HERE).concat());
    assert!(brought.len() > 40, "{}", brought.len());
    let missing: Vec<_> = brought.iter().filter(|it| !here.contains(&format!("fn {}(", name(it)))).collect();
    assert!(missing.is_empty(), "not from C: {missing:?}");
}

/// The control: what is nowhere is missed.
#[test]
fn a_new_method_is_missed() {
    let source = "impl<P: Platform> Space<'_, '_, P> { pub fn brand_new(&self) {} fn own(&self) {} }";
    let found = methods(&[source.to_owned()]);
    assert_eq!(found, BTreeSet::from(["Space::brand_new".to_owned()]));
    assert!(!all(HERE).concat().contains("brand_new"));
}
