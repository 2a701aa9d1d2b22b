//! Mutants of expressions.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary, ExprIf, ExprMatch, ExprMethodCall, Pat, RangeLimits, UnOp};

use super::{Context, NO_CALLS, Walker, type_name};
use crate::mutant::{Kind, Place};

impl<'a> Walker<'a> {
    pub(super) fn expr(&mut self, expr: &Expr, context: Context) {
        if context == Context::Condition {
            self.condition(expr);
        }
        match expr {
            Expr::Paren(paren) => self.expect(context, &paren.expr),
            Expr::Binary(binary) => self.binary(binary, context),
            Expr::Unary(unary) => {
                let kind = match unary.op {
                    UnOp::Not(_) if context != Context::Condition && !asks_rule(expr) => Some(Kind::Negation),
                    UnOp::Neg(_) => Some(Kind::Operator),
                    _ => None,
                };
                if let Some(kind) = kind {
                    self.replace(kind, expr, self.text(&unary.expr));
                }
                self.expect(Context::Value, &unary.expr);
            }
            Expr::Lit(literal) => self.literal(&literal.lit),
            Expr::Path(path) => self.name(path),
            Expr::Cast(cast) => {
                let ty = type_name(&cast.ty);
                let value = self.text(&cast.expr);
                let (shown, text) = match ty.as_str() {
                    // An index is below the length of its array, and so of few bits: `usize` is not cut.
                    "u64" | "u32" => (
                        format!("narrow({value}) as {ty}"),
                        format!("crate::mutation::narrow(&({value})) as {ty}"),
                    ),
                    "u16" => (format!("{value} as u8 as u16"), format!("(({value}) as u16) & 0xff")),
                    _ => (String::new(), String::new()),
                };
                let is_constant = match &*cast.expr {
                    Expr::Lit(_) => true,
                    Expr::Path(path) => self.names.constant(self.file, &path.path, &self.this).is_some(),
                    _ => false,
                };
                if !text.is_empty() && !is_constant {
                    let place = Place::Expr(self.range(expr.span()));
                    let from = self.text(expr);
                    self.add_named(Kind::Width, from, &shown, vec![(place, text)]);
                }
                self.expect(Context::Value, &cast.expr);
            }
            Expr::If(choice) => self.choice(choice, context),
            Expr::Match(choice) => self.arms(choice, context),
            Expr::While(cycle) => {
                let at = self.range(cycle.body.brace_token.span.open()).end;
                if !asks_rule(&cycle.cond) {
                    self.add_named(
                        Kind::Loop,
                        self.head(expr),
                        "no round",
                        vec![(Place::Before(at), "break;".into())],
                    );
                }
                // Always true would be no end.
                self.parts(&cycle.cond);
                self.one_round(expr, &cycle.body);
                self.block(&cycle.body, true);
            }
            Expr::ForLoop(cycle) => {
                let at = self.range(cycle.body.brace_token.span.open()).end;
                self.add_named(
                    Kind::Loop,
                    self.head(expr),
                    "no round",
                    vec![(Place::Before(at), "break;".into())],
                );
                self.expect(Context::Value, &cycle.expr);
                self.one_round(expr, &cycle.body);
                self.block(&cycle.body, true);
            }
            Expr::Loop(cycle) => {
                self.one_round(expr, &cycle.body);
                self.block(&cycle.body, true);
            }
            Expr::Block(block) => {
                self.context = context;
                self.visit_block(&block.block);
            }
            Expr::Unsafe(block) => {
                self.context = context;
                self.visit_block(&block.block);
            }
            Expr::MethodCall(call) => self.method(call, context),
            Expr::Call(call) => {
                let called = match &*call.func {
                    Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
                    _ => None,
                };
                let called = called.unwrap_or_default();
                if NO_CALLS.contains(&called.as_str()) {
                    return;
                }
                if called == "Some" && context == Context::Value {
                    self.replace(Kind::Return, expr, "None");
                }
                let args: Vec<&Expr> = call.args.iter().collect();
                self.arguments(expr, &args);
                // The name of what is called is no constant.
                if !matches!(&*call.func, Expr::Path(_)) {
                    self.expect(Context::Value, &call.func);
                }
                args.into_iter().for_each(|arg| self.expect(Context::Value, arg));
            }
            Expr::Try(attempt) => self.expect(Context::Value, &attempt.expr),
            Expr::Range(range) => {
                if let Some(end) = range.end.as_deref()
                    && !matches!(end, Expr::Lit(_))
                {
                    let text = self.text(end).to_string();
                    let longer = if matches!(range.limits, RangeLimits::Closed(_)) { "- 1" } else { "+ 1" };
                    self.replace(Kind::Range, end, format!("({text}) {longer}"));
                    if longer == "+ 1" {
                        self.replace(Kind::Range, end, format!("({text}) - 1"));
                    }
                }
                if let Some(start) = range.start.as_deref()
                    && !matches!(start, Expr::Lit(_))
                {
                    let text = self.text(start).to_string();
                    self.replace(Kind::Range, start, format!("({text}) + 1"));
                }
                visit::visit_expr_range(self, range);
            }
            Expr::Repeat(repeat) => self.expect(Context::Value, &repeat.expr),
            // A place, not a value: what it is made of may be.
            Expr::Reference(reference) => match &*reference.expr {
                Expr::Path(_) | Expr::Lit(_) => {}
                inner => self.expect(Context::Value, inner),
            },
            Expr::Assign(assign) => {
                self.inside_place(&assign.left);
                self.expect(Context::Value, &assign.right);
            }
            _ => visit::visit_expr(self, expr),
        }
    }

    /// What stands inside a place that is written to.
    pub(super) fn inside_place(&mut self, place: &Expr) {
        match place {
            Expr::Path(_) => {}
            Expr::Unary(unary) => self.expect(Context::Value, &unary.expr),
            place => visit::visit_expr(self, place),
        }
    }

    /// Always and never.
    fn condition(&mut self, expr: &Expr) {
        if asks_rule(expr) || has_let(expr) || matches!(expr, Expr::Lit(_)) {
            return;
        }
        self.replace(Kind::Condition, expr, "true");
        self.replace(Kind::Condition, expr, "false");
    }

    /// A condition that must not be true for ever, or holds a `let`: only what it is made of.
    pub(super) fn parts(&mut self, cond: &Expr) {
        match cond {
            Expr::Let(part) => self.expect(Context::Value, &part.expr),
            Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) if has_let(cond) => {
                self.parts(left);
                if has_let(right) { self.parts(right) } else { self.expect(Context::Condition, right) }
            }
            cond => self.expect(Context::Value, cond),
        }
    }

    fn choice(&mut self, choice: &ExprIf, context: Context) {
        let cond = &*choice.cond;
        if has_let(cond) {
            self.parts(cond);
        } else {
            self.expect(Context::Condition, cond);
        }
        let unit = context == Context::Unit || choice.else_branch.is_none();
        // What is done only when a rule is broken is no part of the core.
        if !only_when_broken(cond) {
            let one = unit && choice.else_branch.is_none() && choice.then_branch.stmts.len() == 1;
            self.branch(&choice.then_branch, unit, one && !has_let(cond) && !asks_rule(cond));
        }
        if let Some((_, other)) = &choice.else_branch {
            self.expect(if unit { Context::Unit } else { Context::Value }, other);
        }
    }

    fn arms(&mut self, choice: &ExprMatch, context: Context) {
        self.expect(Context::Value, &choice.expr);
        let catches_all = |arm: &syn::Arm| match &arm.pat {
            _ if arm.guard.is_some() => false,
            Pat::Wild(_) => true,
            Pat::Ident(name) => {
                name.subpat.is_none()
                    && name.ident.to_string().starts_with(|first: char| first.is_lowercase())
            }
            _ => false,
        };
        let last = choice.arms.iter().position(catches_all).unwrap_or(0);
        for (at, arm) in choice.arms.iter().enumerate() {
            match &arm.guard {
                Some((_, guard)) => {
                    if has_let(guard) {
                        self.parts(guard)
                    } else {
                        self.expect(Context::Condition, guard)
                    }
                }
                None if at < last => {
                    let end = self.range(arm.pat.span()).end;
                    let pattern = format!("{} =>", self.text(&arm.pat));
                    self.add_named(Kind::Arm, &pattern, "", vec![(Place::Arm(end), String::new())]);
                }
                None => {}
            }
            if context == Context::Unit && is_act(&arm.body) {
                self.delete(&arm.body);
            }
            self.expect(context, &arm.body);
        }
    }

    /// Two that stand side by side change places.
    pub(super) fn arguments(&mut self, call: &Expr, args: &[&Expr]) {
        let whole = self.range(call.span());
        for pair in args.windows(2) {
            let (one, two) = (self.range(pair[0].span()), self.range(pair[1].span()));
            let source = &self.source.text;
            let bare = |text: &str| text.trim_start_matches('&').to_string();
            // The platform, closures and numbers written out have types of their own, or mutants.
            let is_odd = |expr: &Expr| matches!(expr, Expr::Closure(_) | Expr::Lit(_));
            if source[one.clone()] == source[two.clone()]
                || is_odd(pair[0])
                || is_odd(pair[1])
                || ["p", "mm", "self"].contains(&bare(&source[one.clone()]).as_str())
            {
                continue;
            }
            let text = format!(
                "{}{}{}{}{}",
                &source[whole.start..one.start],
                &source[two.clone()],
                &source[one.end..two.start],
                &source[one.clone()],
                &source[two.end..whole.end]
            );
            self.add(Kind::Arguments, Place::Expr(whole.clone()), text);
        }
    }

    /// The first line, which says what kind of loop it is.
    fn head(&self, expr: &Expr) -> &'a str {
        self.text(expr).lines().next().unwrap_or_default()
    }

    fn one_round(&mut self, cycle: &Expr, body: &syn::Block) {
        let at = self.range(body.brace_token.span.close()).start;
        let head = self.head(cycle).to_string();
        self.add_named(Kind::Loop, &head, "one round", vec![(Place::Before(at), "break;".into())]);
    }

    /// A statement without a value is left out.
    pub(super) fn delete(&mut self, expr: &Expr) {
        let place = Place::Stmt(self.range(expr.span()));
        self.add(Kind::Deletion, place, String::new());
    }
}

/// Whether it asks if a rule is broken: those mutants have names of their own.
pub(super) fn asks_rule(expr: &Expr) -> bool {
    struct Looks(bool);
    impl<'ast> Visit<'ast> for Looks {
        fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
            self.0 |= call.method == "broken";
            visit::visit_expr_method_call(self, call);
        }
        fn visit_block(&mut self, _: &'ast syn::Block) {}
    }
    let mut looks = Looks(false);
    looks.visit_expr(expr);
    looks.0
}

fn only_when_broken(cond: &Expr) -> bool {
    match cond {
        Expr::MethodCall(call) => call.method == "broken",
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => {
            only_when_broken(left) || only_when_broken(right)
        }
        _ => false,
    }
}

pub(super) fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => has_let(left) || has_let(right),
        _ => false,
    }
}

/// Whether it does something by itself, and in one piece.
pub(super) fn is_act(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => !["pause", "touch"].contains(&call.method.to_string().as_str()),
        // What is let go of later is let go of all the same.
        // Fences are for the models of `crates/loom`: in one thread of a host nobody sees whether one is there.
        Expr::Call(call) => {
            let is = |name| matches!(&*call.func, Expr::Path(path) if path.path.is_ident(name));
            !is("drop") && !is("full_fence")
        }
        Expr::Assign(_) | Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Binary(binary) => {
            matches!(
                binary.op,
                BinOp::AddAssign(_)
                    | BinOp::SubAssign(_)
                    | BinOp::MulAssign(_)
                    | BinOp::DivAssign(_)
                    | BinOp::BitOrAssign(_)
                    | BinOp::BitAndAssign(_)
                    | BinOp::BitXorAssign(_)
                    | BinOp::ShlAssign(_)
                    | BinOp::ShrAssign(_)
            )
        }
        Expr::Try(attempt) => is_act(&attempt.expr),
        _ => false,
    }
}
