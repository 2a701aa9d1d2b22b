//! The public interface: each method of the manager and its views says which errors there are, and has an example that runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const TYPES: [&str; 8] = ["Alone", "File", "FrameAllocator", "Group", "Manager", "Space", "Swap", "Vmap"];

/// Of `Alone` each method names the one that it is in the whole, with its example.
const WITHOUT_EXAMPLE: [&str; 2] = ["Alone", "Manager::new"];

/// Public methods by type, and what is missing in their documentation.
fn look(sources: &[String]) -> (BTreeMap<String, u32>, Vec<String>) {
    let (mut methods, mut missing) = (BTreeMap::new(), Vec::new());
    for source in sources {
        for item in syn::parse_file(source).expect("a source").items {
            let syn::Item::Impl(item) = item else { continue };
            let syn::Type::Path(of) = &*item.self_ty else { continue };
            let of = of.path.segments.last().expect("a name").ident.to_string();
            if item.trait_.is_some() || !TYPES.contains(&&*of) {
                continue;
            }
            for method in item.items {
                let syn::ImplItem::Fn(method) = method else { continue };
                if !matches!(method.vis, syn::Visibility::Public(_)) {
                    continue;
                }
                *methods.entry(of.clone()).or_default() += 1;
                let name = format!("{of}::{}", method.sig.ident);
                let docs = method.attrs.iter().filter_map(|attribute| match &attribute.meta {
                    syn::Meta::NameValue(it) if it.path.is_ident("doc") => match &it.value {
                        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
                        _ => None,
                    },
                    _ => None,
                });
                let docs: Vec<String> = docs.collect();
                let has = |part: &str| docs.iter().any(|line| line.trim() == part);
                let fails = matches!(&method.sig.output, syn::ReturnType::Type(_, kind)
                    if matches!(&**kind, syn::Type::Path(kind) if kind.path.segments[0].ident == "Result"));
                if fails && !has("# Errors") {
                    missing.push(format!("{name}: # Errors"));
                }
                let exempt = WITHOUT_EXAMPLE.iter().any(|it| *it == of || *it == name);
                if !exempt && !has("# Examples") {
                    missing.push(format!("{name}: # Examples"));
                }
            }
        }
    }
    (methods, missing)
}

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

#[test]
fn each_method_has_its_errors_and_an_example() {
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    let (methods, missing) = look(&all);
    assert_eq!(missing, Vec::<String>::new());
    // One type is not all of it any more: an embedder sees a page for each thing.
    assert_eq!(methods.keys().collect::<Vec<_>>(), TYPES.iter().collect::<Vec<_>>());
    assert!(methods.values().all(|&count| count <= 37), "{methods:?}");
}

/// Methods of the small traits that a part which stands alone does not hand on, though the machine may have its own.
fn not_handed_on(platform: &str, alone: &str) -> Vec<String> {
    let (_, handed) = alone.split_once("hand_on! {").expect("the list");
    let items = syn::parse_file(platform).expect("a source").items.into_iter();
    let traits = items.filter_map(|item| if let syn::Item::Trait(it) = item { Some(it) } else { None });
    let wanted = traits.filter(|it| it.ident != "UserTlb" && it.ident != "Platform");
    let methods = wanted.flat_map(|it| it.items).filter_map(|item| match item {
        syn::TraitItem::Fn(method) => Some(method.sig.ident.to_string()),
        _ => None,
    });
    methods.filter(|name| !handed.contains(&format!("fn {name}("))).collect()
}

#[test]
fn what_stands_alone_hands_on_every_method_of_its_machine() {
    let platform = include_str!("../../src/platform.rs");
    let alone = include_str!("../../src/alone.rs");
    assert_eq!(not_handed_on(platform, alone), Vec::<String>::new());
    // The control: one that is forgotten.
    assert_eq!(not_handed_on(platform, &alone.replace("fn now(", "fn later(")), ["now"]);
}

/// The control.
#[test]
fn a_method_without_them_is_seen() {
    let source = "impl<P> Space<P> {
        /// Fails.
        pub fn fails(&self) -> Result<(), Error> {}
        fn hidden(&self) -> Result<(), Error> {}
    }";
    let (methods, missing) = look(&[source.to_string()]);
    assert_eq!(missing, ["Space::fails: # Errors", "Space::fails: # Examples"]);
    assert_eq!(methods, BTreeMap::from([("Space".to_string(), 1)]));
}
