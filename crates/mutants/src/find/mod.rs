//! Which mutants there are.

mod block;
mod expr;
mod names;
mod operators;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ReturnType, Signature, Type};

use crate::mutant::{Edit, Key, Kind, Mutant, Place, hash, squeeze, without_comments};
use crate::source::Source;

use names::{Names, type_name};

/// What has no behaviour that a test could see, or is itself what tests look with.
const NO_FUNCTIONS: [&str; 7] =
    ["fmt", "name", "about", "room", "left_nothing", "online_adds_up", "batches_in_use"];

/// Whether a function of this name is not mutated: see `NO_FUNCTIONS`; and what walks everything for `Manager::validate`.
fn is_left_alone(name: &str) -> bool {
    NO_FUNCTIONS.contains(&name) || name.starts_with("audit") || name.ends_with("_good")
}
/// Calls whose arguments change nothing but time, or what is told.
const NO_CALLS: [&str; 6] = ["pause", "scope", "touch", "broken", "emit", "emit_at"];

/// All mutants of these files, in order of their places.
pub fn find(sources: &[Source], in_rooms: &dyn Fn(&str) -> bool) -> Found {
    let mut names = Names::default();
    for (file, source) in sources.iter().enumerate() {
        names.read(file, &source.syntax);
    }
    let mut found = Vec::new();
    let mut uses: BTreeMap<usize, Vec<Edit>> = BTreeMap::new();
    for (file, source) in sources.iter().enumerate() {
        let wanted = in_rooms(&source.path);
        let mut walker = Walker {
            source,
            file,
            names: &names,
            functions: Vec::new(),
            this: String::new(),
            context: Context::Value,
            found: Vec::new(),
            uses: &mut uses,
        };
        walker.visit_file(&source.syntax);
        if wanted {
            found.append(&mut walker.found);
        }
    }
    for (constant, edits) in uses {
        let constant = &names.constants[constant];
        if in_rooms(&sources[constant.file].path) {
            constants(&mut found, &sources[constant.file].path, constant, &edits);
        }
    }
    number(&mut found);
    found.sort_by_key(|mutant| {
        let range = mutant.edits[0].place.range();
        (mutant.key.file.clone(), range.start, std::cmp::Reverse(range.end))
    });
    Found { mutants: found, numbers: names.numbers }
}

pub struct Found {
    pub mutants: Vec<Mutant>,
    /// Structs of one number: the file, the name, the bits that are left when it is cut.
    pub numbers: Vec<(usize, String, u32)>,
}

fn constants(found: &mut Vec<Mutant>, path: &str, constant: &names::Constant, edits: &[Edit]) {
    // A flag with another value is as good as before: those are mixed up where they are used.
    if constant.is_flag {
        return;
    }
    let name = if constant.owner.is_empty() {
        constant.name.clone()
    } else {
        format!("{}::{}", constant.owner, constant.name)
    };
    for change in ["+ 1", "/ 2"] {
        let edits: Vec<Edit> = edits
            .iter()
            .map(|edit| Edit { text: format!("({} {change})", edit.text), ..edit.clone() })
            .collect();
        let key = Key {
            file: path.to_string(),
            function: "const".to_string(),
            kind: Kind::Constant,
            from: name.clone(),
            to: format!("{name} {change}"),
            nth: 0,
            hash: 0,
        };
        found.push(Mutant { key, line: constant.line, edits });
    }
}

/// Tells those apart that look the same.
fn number(found: &mut [Mutant]) {
    let mut seen: BTreeMap<Key, u32> = BTreeMap::new();
    for mutant in found {
        let count = seen.entry(mutant.key.clone()).or_default();
        mutant.key.nth = *count;
        *count += 1;
    }
}

/// Whether this is compiled for tests or for a model checker only.
fn is_for_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && attr.meta.require_list().is_ok_and(|list| {
                let text = list.tokens.to_string();
                text == "test" || text == "loom" || text == "doctest"
            })
    })
}

/// How the value of an expression is used.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Context {
    #[default]
    Value,
    /// It decides what is done.
    Condition,
    /// It has none.
    Unit,
}

struct Function {
    name: String,
    hash: u64,
    const_fn: Option<Range<usize>>,
}

struct Walker<'a> {
    source: &'a Source,
    file: usize,
    names: &'a Names,
    functions: Vec<Function>,
    /// The type that is implemented.
    this: String,
    /// Of the expression that comes next.
    context: Context,
    found: Vec<Mutant>,
    /// Where constants are used.
    uses: &'a mut BTreeMap<usize, Vec<Edit>>,
}

impl<'a> Walker<'a> {
    fn range(&self, span: Span) -> Range<usize> {
        self.source.range(span)
    }

    fn text(&self, node: &impl Spanned) -> &'a str {
        &self.source.text[self.range(node.span())]
    }

    /// A mutant with one edit.
    fn add(&mut self, kind: Kind, place: Place, text: String) {
        let from = self.source.text[place.range()].to_string();
        self.add_named(kind, &from, &text.clone(), vec![(place, text)]);
    }

    fn add_named(&mut self, kind: Kind, from: &str, to: &str, edits: Vec<(Place, String)>) {
        let Some(function) = self.functions.last() else { return };
        let key = Key {
            file: self.source.path.clone(),
            function: function.name.clone(),
            kind,
            from: squeeze(from),
            to: squeeze(to),
            nth: 0,
            hash: function.hash,
        };
        let line = self.source.line(edits[0].0.range().start);
        let edit = |(place, text)| Edit { file: self.file, place, text, const_fn: function.const_fn.clone() };
        let edits = edits.into_iter().map(edit).collect();
        self.found.push(Mutant { key, line, edits });
    }

    fn replace(&mut self, kind: Kind, node: &impl Spanned, text: impl Into<String>) {
        let place = Place::Expr(self.range(node.span()));
        self.add(kind, place, text.into());
    }

    fn expect(&mut self, context: Context, expr: &Expr) {
        self.context = context;
        self.visit_expr(expr);
        self.context = Context::Value;
    }

    fn function(&mut self, sig: &Signature, body: &Block, attrs: &[Attribute]) {
        let name = sig.ident.to_string();
        if is_for_tests(attrs) || is_left_alone(&name) {
            return;
        }
        let name = if self.this.is_empty() { name } else { format!("{}::{name}", self.this) };
        let text = self.text(body);
        let const_fn = sig.constness.as_ref().map(|token| self.range(token.span()));
        self.functions.push(Function { name, hash: hash(&without_comments(text)), const_fn });
        let unit = match &sig.output {
            ReturnType::Default => true,
            ReturnType::Type(_, ty) => matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty()),
        };
        self.returns(sig, body, unit);
        self.block(body, unit);
        self.functions.pop();
    }

    /// The function returns at once.
    fn returns(&mut self, sig: &Signature, body: &Block, unit: bool) {
        let at = self.range(body.brace_token.span.open()).end;
        let values: Vec<String> = match &sig.output {
            _ if unit && body.stmts.len() > 1 => vec![String::new()],
            ReturnType::Type(_, ty) if !unit => defaults(ty),
            _ => return,
        };
        let whole = format!("fn {}", sig.ident);
        for value in values {
            let text = format!("return {value};");
            self.add_named(Kind::Return, &whole, &text, vec![(Place::Before(at), text.clone())]);
        }
    }
}

/// Simple values of a type.
fn defaults(ty: &Type) -> Vec<String> {
    let to_strings = |values: &[&str]| values.iter().map(ToString::to_string).collect();
    let inner = |ty: &Type| -> Option<Type> {
        let Type::Path(path) = ty else { return None };
        let syn::PathArguments::AngleBracketed(args) = &path.path.segments.last()?.arguments else {
            return None;
        };
        args.args
            .iter()
            .find_map(|arg| if let syn::GenericArgument::Type(ty) = arg { Some(ty.clone()) } else { None })
    };
    match ty {
        Type::Tuple(tuple) => {
            let each: Option<Vec<String>> =
                tuple.elems.iter().map(|elem| defaults(elem).into_iter().next()).collect();
            each.map_or_else(Vec::new, |each| vec![format!("({})", each.join(", "))])
        }
        Type::Path(_) => match type_name(ty).as_str() {
            "bool" => to_strings(&["true", "false"]),
            "u8" | "u16" | "u32" | "u64" | "usize" => to_strings(&["0", "1"]),
            "Option" => to_strings(&["None"]),
            "Result" => inner(ty)
                .map_or_else(Vec::new, |ty| defaults(&ty))
                .into_iter()
                .map(|value| format!("Ok({value})"))
                .collect(),
            _ => Vec::new(),
        }
        .into_iter()
        .collect(),
        _ => Vec::new(),
    }
}

impl<'ast> Visit<'ast> for Walker<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let this = std::mem::take(&mut self.this);
        self.function(&item.sig, &item.block, &item.attrs);
        self.this = this;
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, &item.attrs);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body, &item.attrs);
        }
    }
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            let this = std::mem::replace(&mut self.this, type_name(&item.self_ty));
            visit::visit_item_impl(self, item);
            self.this = this;
        }
    }
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    // What is worked out while the core is compiled can hold no switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_block(&mut self, block: &'ast Block) {
        let unit = std::mem::take(&mut self.context) == Context::Unit;
        self.block(block, unit);
    }
    fn visit_expr(&mut self, expr: &'ast Expr) {
        let context = std::mem::take(&mut self.context);
        self.expr(expr, context);
    }
}
