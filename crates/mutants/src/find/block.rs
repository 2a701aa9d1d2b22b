//! Mutants of statements.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, Local, Pat, Stmt};

use super::expr::{asks_rule, is_act};
use super::{Context, Walker, is_for_tests};
use crate::mutant::{Kind, Place, squeeze};

/// What a statement does, as far as its order matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// Nothing that others see or change.
    None,
    /// Words are read.
    Reads,
    /// Words are written, under a lock or by their only writer.
    Sets,
    /// Words are changed in one step each.
    Changes,
    /// Anything else.
    Acts,
}

/// Methods whose names say that they change nothing and look at nothing that changes.
const PURE: [&str; 46] = [
    "platform",
    "config",
    "frames",
    "slot",
    "space",
    "node",
    "zone",
    "zones",
    "manager",
    "len",
    "index",
    "iter",
    "as_slice",
    "into",
    "from",
    "new",
    "clone",
    "copied",
    "cloned",
    "map",
    "map_or",
    "unwrap_or",
    "unwrap_or_default",
    "ok_or",
    "min",
    "max",
    "clamp",
    "phys",
    "page",
    "addr",
    "add",
    "end",
    "start",
    "guarantees",
    "cpus",
    "find_space",
    "checked_sub",
    "checked_add",
    "saturating_sub",
    "saturating_add",
    "wrapping_add",
    "wrapping_sub",
    "this_cpu",
    "word",
    "bit",
    "as_ref",
];
const CHANGES: [&str; 6] = ["fetch_add", "fetch_sub", "fetch_or", "fetch_and", "set_flags", "clear_flags"];
const SETS: [&str; 3] = ["set", "clear", "init"];
const READS: [&str; 9] =
    ["get", "load", "is_some", "is_none", "is_empty", "first", "contains", "peek", "read"];

impl Walker<'_> {
    pub(super) fn block(&mut self, block: &Block, unit: bool) {
        self.branch(block, unit, false);
    }

    /// A block; whoever asks for it may already have a mutant that does none of it.
    pub(super) fn branch(&mut self, block: &Block, unit: bool, is_known: bool) {
        self.orders(block, unit);
        for (at, stmt) in block.stmts.iter().enumerate() {
            let is_tail = at + 1 == block.stmts.len();
            match stmt {
                Stmt::Local(local) if !is_for_tests(&local.attrs) => self.local(local),
                Stmt::Expr(expr, semicolon) if !skipped(expr) => {
                    let has_value = is_tail && semicolon.is_none() && !unit;
                    if !has_value {
                        self.statement(stmt, expr, is_known);
                    }
                    self.expect(if has_value { Context::Value } else { Context::Unit }, expr);
                }
                Stmt::Item(item) => self.visit_item(item),
                _ => {}
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt, expr: &Expr, is_known: bool) {
        let place = Place::Stmt(self.range(stmt.span()));
        if is_act(expr) && !is_known && !asks_rule(expr) {
            self.add(Kind::Deletion, place.clone(), String::new());
        }
        match expr {
            Expr::If(choice) if has_let(&choice.cond) && !asks_rule(&choice.cond) => {
                let other = choice.else_branch.as_ref().map(|(_, other)| self.text(other).to_string());
                let head = self.text(expr).lines().next().unwrap_or_default().to_string();
                let text = other.unwrap_or_default();
                self.add_named(Kind::Deletion, &head, "never", vec![(place, text)]);
            }
            Expr::Try(attempt) => {
                let text = format!("let _ = {};", self.text(&attempt.expr));
                self.add(Kind::Error, place, text);
            }
            _ => {}
        }
    }

    fn local(&mut self, local: &Local) {
        let Some(init) = &local.init else { return };
        if let Pat::Ident(name) = &local.pat
            && name.ident.to_string().starts_with('_')
            && !calls(&init.expr, "scope")
            && !asks_rule(&init.expr)
        {
            // It goes at once, whoever holds what.
            let end = self.range(local.span()).end;
            let text = format!("drop({});", name.ident);
            let from = self.text(local).to_string();
            self.add_named(Kind::Guard, &from, &text, vec![(Place::Before(end), text.clone())]);
        }
        self.expect(Context::Value, &init.expr);
        if let Some((_, other)) = &init.diverge {
            self.diverging(other);
        }
    }

    /// A block whose last statement must stay: it leaves.
    fn diverging(&mut self, expr: &Expr) {
        match expr {
            Expr::Block(block) => {
                for (at, stmt) in block.block.stmts.iter().enumerate() {
                    match stmt {
                        Stmt::Expr(expr, _) if at + 1 == block.block.stmts.len() => self.diverging(expr),
                        Stmt::Expr(expr, _) => {
                            self.statement(stmt, expr, false);
                            self.expect(Context::Unit, expr);
                        }
                        Stmt::Local(local) => self.local(local),
                        _ => {}
                    }
                }
            }
            expr => self.expect(Context::Value, expr),
        }
    }

    /// Two statements that stand side by side change places.
    fn orders(&mut self, block: &Block, unit: bool) {
        let count = block.stmts.len();
        let mut taken = 0;
        for (at, pair) in block.stmts.windows(2).enumerate() {
            let is_value =
                |at: usize, stmt: &Stmt| at + 1 == count && matches!(stmt, Stmt::Expr(_, None)) && !unit;
            let [one, two] = pair else { continue };
            if is_value(at + 1, two) || !may_swap(one, two) {
                continue;
            }
            let (first, second) = (self.range(one.span()), self.range(two.span()));
            let (text_one, text_two) = (self.text(one).to_string(), self.text(two).to_string());
            let head = |text: &str| squeeze(text.lines().next().unwrap_or_default());
            let from = format!("{} {}", head(&text_one), head(&text_two));
            let to = format!("{} {}", head(&text_two), head(&text_one));
            let to = if to == from { format!("{to} (swapped)") } else { to };
            let edits = match (one, two) {
                (Stmt::Local(a), Stmt::Local(b)) => {
                    if at < taken {
                        continue;
                    }
                    taken = at + 2;
                    let (Some(a), Some(b)) = (bound(&a.pat), bound(&b.pat)) else { continue };
                    let all: Vec<(bool, String)> = a.into_iter().chain(b).collect();
                    let pattern: String = all
                        .iter()
                        .map(|(is_mut, name)| format!("{}{name}, ", if *is_mut { "mut " } else { "" }))
                        .collect();
                    let names: String = all.iter().map(|(_, name)| format!("{name}, ")).collect();
                    let place = Place::Lets { range: first.start..second.end, pattern, names };
                    vec![(place, format!("{text_two} {text_one}"))]
                }
                (_, Stmt::Local(_)) | (Stmt::Expr(..), Stmt::Expr(..)) => vec![
                    (Place::Stmt(first), String::new()),
                    (Place::Before(second.end), format!("{text_one};")),
                ],
                _ => vec![
                    (Place::Stmt(second.clone()), String::new()),
                    (Place::Before(first.start), format!("{text_two};")),
                ],
            };
            self.add_named(Kind::Order, &from, &to, edits);
        }
    }
}

fn skipped(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => is_for_tests(&call.attrs),
        Expr::Block(block) => is_for_tests(&block.attrs),
        Expr::Macro(_) => true,
        _ => false,
    }
}

fn has_let(cond: &Expr) -> bool {
    match cond {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn calls(expr: &Expr, name: &str) -> bool {
    match expr {
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
        }
        _ => false,
    }
}

fn may_swap(one: &Stmt, two: &Stmt) -> bool {
    let parts = |stmt: &Stmt| match stmt {
        Stmt::Local(local) => {
            local.init.as_ref()?;
            Some((effect(stmt)?, bound(&local.pat)?))
        }
        Stmt::Expr(expr, _) if !asks_rule(expr) && !leaves(expr) && !matches!(expr, Expr::Macro(_)) => {
            Some((effect(stmt)?, Vec::new()))
        }
        _ => None,
    };
    let (Some((a, bound_a)), Some((b, bound_b))) = (parts(one), parts(two)) else { return false };
    // What a guard guards is a mutant of its own.
    let guards = |stmt: &Stmt| matches!(stmt, Stmt::Local(local) if matches!(&local.pat, Pat::Ident(name) if name.ident.to_string().starts_with('_')));
    if guards(one) || guards(two) || one.to_token_stream().to_string() == two.to_token_stream().to_string() {
        return false;
    }
    let matters = match (a.min(b), a.max(b)) {
        (Effect::None, _) | (Effect::Reads, Effect::Reads) => false,
        // Under a lock, or by the only writer; and of two changes it makes no difference which is first.
        (Effect::Reads | Effect::Sets, Effect::Sets) | (Effect::Sets | Effect::Changes, Effect::Changes) => {
            false
        }
        _ => true,
    };
    let uses = |stmt: &Stmt, names: &[(bool, String)]| {
        let idents = idents(stmt.to_token_stream());
        names.iter().any(|(_, name)| idents.contains(name))
    };
    matters && !uses(two, &bound_a) && !uses(one, &bound_b)
}

/// Whether control never passes it.
fn leaves(expr: &Expr) -> bool {
    matches!(expr, Expr::Return(_) | Expr::Break(_) | Expr::Continue(_))
}

fn idents(tokens: TokenStream) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                found.insert(ident.to_string());
            }
            TokenTree::Group(group) => found.extend(idents(group.stream())),
            _ => {}
        }
    }
    found
}

/// What a statement does; none if it tells an event, asks for a rule or counts time, and so has no order.
fn effect(stmt: &Stmt) -> Option<Effect> {
    struct Looks {
        effect: Effect,
        odd: bool,
    }
    impl Looks {
        fn call(&mut self, name: &str) {
            if ["emit", "emit_at", "scope", "pause", "broken", "drop", "full_fence"].contains(&name) {
                self.odd = true;
            }
            let effect = if PURE.contains(&name) || name.starts_with(|first: char| first.is_uppercase()) {
                Effect::None
            } else if READS.contains(&name) {
                Effect::Reads
            } else if SETS.contains(&name) {
                Effect::Sets
            } else if CHANGES.contains(&name) {
                Effect::Changes
            } else {
                Effect::Acts
            };
            self.effect = self.effect.max(effect);
        }
    }
    impl<'ast> Visit<'ast> for Looks {
        fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
            let name = call.method.to_string();
            // A word is read with the platform's help; anything else that is got is only found.
            let finds =
                name == "get" && !call.args.iter().any(|arg| idents(arg.to_token_stream()).contains("p"));
            let asks = ["is_", "has_", "may_", "must_"].iter().any(|word| name.starts_with(word));
            self.call(if finds {
                "index"
            } else if asks {
                "get"
            } else {
                &name
            });
            visit::visit_expr_method_call(self, call);
        }
        fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
            if let Expr::Path(path) = &*call.func
                && let Some(last) = path.path.segments.last()
                && call.args.iter().any(|arg| has_machine(arg.to_token_stream()))
            {
                self.call(&last.ident.to_string());
            }
            visit::visit_expr_call(self, call);
        }
        // It is only made here.
        fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
        fn visit_expr_return(&mut self, expr: &'ast syn::ExprReturn) {
            self.effect = self.effect.max(Effect::Reads);
            visit::visit_expr_return(self, expr);
        }
    }
    let mut looks = Looks { effect: Effect::None, odd: false };
    looks.visit_stmt(stmt);
    (!looks.odd).then_some(looks.effect)
}

/// Whether it holds the manager, the platform or whoever acts for a CPU: a function without has only its arguments.
fn has_machine(tokens: TokenStream) -> bool {
    let idents = idents(tokens);
    ["p", "mm", "self", "here", "batch"].iter().any(|name| idents.contains(*name))
}

/// The names that a pattern binds, and whether they can change; none if it is not simple.
fn bound(pat: &Pat) -> Option<Vec<(bool, String)>> {
    let all = |pats: &mut dyn Iterator<Item = &Pat>| {
        pats.map(bound).collect::<Option<Vec<_>>>().map(|lists| lists.concat())
    };
    match pat {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
            let text = name.ident.to_string();
            let is_constant = text.starts_with(|first: char| first.is_uppercase());
            Some(if is_constant { Vec::new() } else { vec![(name.mutability.is_some(), text)] })
        }
        Pat::Tuple(tuple) => all(&mut tuple.elems.iter()),
        Pat::TupleStruct(tuple) => all(&mut tuple.elems.iter()),
        Pat::Struct(fields) => all(&mut fields.fields.iter().map(|field| &*field.pat)),
        Pat::Reference(reference) => bound(&reference.pat),
        Pat::Type(typed) => bound(&typed.pat),
        Pat::Wild(_) | Pat::Lit(_) | Pat::Path(_) | Pat::Rest(_) => Some(Vec::new()),
        _ => None,
    }
}
