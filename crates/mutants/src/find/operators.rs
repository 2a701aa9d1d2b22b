//! Mutants of operators, methods, numbers and names.

use syn::spanned::Spanned;
use syn::{BinOp, Expr, ExprBinary, ExprMethodCall, Lit};

use super::expr::{asks_rule, has_let, is_act};
use super::{Context, NO_CALLS, Walker};
use crate::mutant::{Edit, Kind, Place};

/// A method and another that takes and gives the same.
const METHODS: [(&str, &str); 26] = [
    ("min", "max"),
    ("max", "min"),
    ("any", "all"),
    ("all", "any"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("is_ok", "is_err"),
    ("is_err", "is_ok"),
    ("first", "last"),
    ("last", "first"),
    ("push_front", "push_back"),
    ("push_back", "push_front"),
    ("pop_front", "pop_back"),
    ("pop_back", "pop_front"),
    ("insert", "remove"),
    ("remove", "insert"),
    ("fetch_add", "fetch_sub"),
    ("fetch_sub", "fetch_add"),
    ("fetch_or", "fetch_and"),
    ("fetch_and", "fetch_or"),
    ("fetch_max", "swap"),
    ("trailing_zeros", "leading_zeros"),
    ("leading_zeros", "trailing_zeros"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
    ("saturating_sub", "wrapping_sub"),
];

/// Methods that can be left out: what they are called on has the type of what they give.
const LEFT_OUT: [&str; 10] = [
    "min",
    "max",
    "filter",
    "or",
    "or_else",
    "rev",
    "saturating_sub",
    "saturating_add",
    "next_multiple_of",
    "xor",
];

/// What counts what happens, and not what there is.
const GROWS: [&str; 6] = ["generation", "purge", "until", "life", "ticket", ".0"];

impl Walker<'_> {
    pub(super) fn binary(&mut self, binary: &ExprBinary, context: Context) {
        let whole = Expr::Binary(binary.clone());
        if matches!(binary.op, BinOp::And(_)) && has_let(&whole) {
            return self.parts(&whole);
        }
        let (left, right) = (self.text(&binary.left).to_string(), self.text(&binary.right).to_string());
        // `a as u32 < b` would be read as the beginning of a list of types.
        let left = if ends_with_cast(&binary.left) { format!("({left})") } else { left };
        let with = |op: &str| format!("{left} {op} {right}");
        let mut mutants: Vec<(Kind, String)> = Vec::new();
        let number = matches!(&*binary.right, Expr::Lit(_));
        let negated = |op: &str| {
            if context == Context::Condition { None } else { Some((Kind::Negation, with(op))) }
        };
        match binary.op {
            BinOp::Lt(_) => {
                mutants.push((Kind::Boundary, with("<=")));
                mutants.extend(negated(">="));
            }
            BinOp::Le(_) => {
                mutants.push((Kind::Boundary, with("<")));
                mutants.extend(negated(">"));
            }
            BinOp::Gt(_) => {
                // What is at least nothing is always: another mutant.
                if right != "0" {
                    mutants.push((Kind::Boundary, with(">=")));
                }
                mutants.extend(negated("<="));
            }
            BinOp::Ge(_) => {
                mutants.push((Kind::Boundary, with(">")));
                mutants.extend(negated("<"));
            }
            BinOp::Eq(_) => mutants.extend(negated("!=")),
            BinOp::Ne(_) => mutants.extend(negated("==")),
            BinOp::Add(_) => {
                mutants.push((Kind::Operator, with("-")));
                if !number {
                    mutants.push((Kind::Term, left.clone()));
                }
            }
            BinOp::Sub(_) => {
                mutants.push((Kind::Operator, with("+")));
                if !number {
                    mutants.push((Kind::Term, left.clone()));
                }
            }
            BinOp::Mul(_) => mutants.push((Kind::Operator, with("/"))),
            BinOp::Div(_) => mutants.push((Kind::Operator, with("*"))),
            BinOp::Rem(_) => mutants.push((Kind::Operator, with("/"))),
            BinOp::Shl(_) => mutants.push((Kind::Operator, with(">>"))),
            BinOp::Shr(_) => mutants.push((Kind::Operator, with("<<"))),
            BinOp::BitAnd(_) => {
                mutants.push((Kind::Operator, with("|")));
                mutants.push((Kind::Term, left.clone()));
            }
            BinOp::BitOr(_) => {
                mutants.push((Kind::Operator, with("&")));
                mutants.push((Kind::Term, left.clone()));
                mutants.push((Kind::Term, right.clone()));
            }
            BinOp::BitXor(_) => mutants.push((Kind::Operator, with("|"))),
            BinOp::And(_) if !asks_rule(&whole) => {
                mutants.push((Kind::Term, left.clone()));
                mutants.push((Kind::Term, right.clone()));
                mutants.push((Kind::Operator, with("||")));
            }
            BinOp::Or(_) if !asks_rule(&whole) => {
                mutants.push((Kind::Term, left.clone()));
                mutants.push((Kind::Term, right.clone()));
                mutants.push((Kind::Operator, with("&&")));
            }
            BinOp::AddAssign(_) => mutants.push((Kind::Operator, with("-="))),
            BinOp::SubAssign(_) => mutants.push((Kind::Operator, with("+="))),
            BinOp::BitOrAssign(_) => mutants.push((Kind::Operator, with("&="))),
            BinOp::BitAndAssign(_) => mutants.push((Kind::Operator, with("|="))),
            BinOp::ShlAssign(_) => mutants.push((Kind::Operator, with(">>="))),
            BinOp::ShrAssign(_) => mutants.push((Kind::Operator, with("<<="))),
            _ => {}
        }
        let compares = matches!(
            binary.op,
            BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) | BinOp::Eq(_) | BinOp::Ne(_)
        );
        if compares && !number {
            let op = self.text(&binary.op);
            // Types of their own always; plain numbers where their names say that they grow for ever.
            let cut = if GROWS.iter().any(|word| left.contains(word) || right.contains(word)) {
                "narrow"
            } else {
                "cut"
            };
            let cut = |side: &str| format!("crate::mutation::{cut}(&({side}))");
            mutants.push((Kind::Width, format!("{} {op} {}", cut(&left), cut(&right))));
        }
        for (kind, text) in mutants {
            let shown = text.replace("crate::mutation::", "");
            let place = Place::Expr(self.range(binary.span()));
            self.add_named(kind, &with(self.text(&binary.op)), &shown, vec![(place, text)]);
        }
        let assigns = matches!(&binary.op, op if self.text(op).ends_with('=') && !compares);
        if assigns {
            self.inside_place(&binary.left)
        } else {
            self.expect(Context::Value, &binary.left)
        }
        self.expect(Context::Value, &binary.right);
    }

    pub(super) fn method(&mut self, call: &ExprMethodCall, context: Context) {
        let name = call.method.to_string();
        if NO_CALLS.contains(&name.as_str()) {
            return;
        }
        let range = self.range(call.span());
        let at = self.range(call.method.span());
        if context != Context::Condition
            || !["is_some", "is_none", "is_ok", "is_err"].contains(&name.as_str())
        {
            for (_, other) in METHODS.iter().filter(|(one, _)| *one == name) {
                let text = format!(
                    "{}{other}{}",
                    &self.source.text[range.start..at.start],
                    &self.source.text[at.end..range.end]
                );
                self.add(Kind::Method, Place::Expr(range.clone()), text);
            }
        }
        if LEFT_OUT.contains(&name.as_str()) {
            let text = self.text(&call.receiver).to_string();
            self.add(Kind::Term, Place::Expr(range), text);
        }
        let args: Vec<&Expr> = call.args.iter().collect();
        self.arguments(&Expr::MethodCall(call.clone()), &args);
        self.expect(Context::Value, &call.receiver);
        for arg in args {
            match arg {
                // What it gives is dropped.
                Expr::Closure(closure) if name == "for_each" => {
                    if is_act(&closure.body) {
                        self.delete(&closure.body);
                    }
                    self.expect(Context::Unit, &closure.body);
                }
                arg => self.expect(Context::Value, arg),
            }
        }
    }

    pub(super) fn literal(&mut self, literal: &Lit) {
        match literal {
            Lit::Bool(value) => self.replace(Kind::Literal, literal, (!value.value).to_string()),
            Lit::Int(int) => {
                let Ok(value) = int.base10_parse::<u128>() else { return };
                let suffix = int.suffix();
                self.replace(Kind::Literal, literal, format!("{}{suffix}", value.saturating_add(1)));
                if value > 0 {
                    self.replace(Kind::Literal, literal, format!("{}{suffix}", value - 1));
                }
            }
            _ => {}
        }
    }

    pub(super) fn name(&mut self, path: &syn::ExprPath) {
        if path.qself.is_some() {
            return;
        }
        let segments = path.path.segments.iter();
        if segments.clone().any(|segment| segment.ident == "Ordering" || segment.ident == "Rule") {
            return;
        }
        let prefix: Vec<String> = segments.map(|segment| segment.ident.to_string()).collect();
        let with = |last: &str| [&prefix[..prefix.len() - 1], &[last.to_string()]].concat().join("::");
        if let Some(at) = self.names.constant(self.file, &path.path, &self.this) {
            let text = self.text(path).to_string();
            let Some(function) = self.functions.last() else { return };
            let place = Place::Expr(self.range(path.span()));
            let const_fn = function.const_fn.clone();
            self.uses.entry(at).or_default().push(Edit { file: self.file, place, text, const_fn });
            if self.names.constants[at].is_flag
                && let Some(other) = self.names.sibling(at)
            {
                let text = with(other);
                self.replace(Kind::Name, path, text);
            }
        } else if let Some(other) = self.names.other_variant(&path.path) {
            let text = with(other);
            self.replace(Kind::Name, path, text);
        }
    }
}

fn ends_with_cast(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(_) => true,
        Expr::Binary(binary) => ends_with_cast(&binary.right),
        Expr::Unary(unary) => ends_with_cast(&unary.expr),
        _ => false,
    }
}
