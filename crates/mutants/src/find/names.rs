//! What the core's names stand for, as far as mutants need it: constants, variants, and numbers that are types of their own.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Fields, ImplItem, Item, Type};

/// A constant whose value is a whole number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Constant {
    pub file: usize,
    /// The module or the type that it belongs to; the file's own are under "".
    pub owner: String,
    pub name: String,
    pub ty: String,
    /// One bit, and one of several.
    pub is_flag: bool,
    pub line: usize,
}

#[derive(Default)]
pub struct Names {
    pub constants: Vec<Constant>,
    /// The variants without fields of each enum.
    pub variants: BTreeMap<String, Vec<String>>,
    /// Structs of one whole number: the file, the name and the bits that are left of it when it is cut.
    pub numbers: Vec<(usize, String, u32)>,
}

/// Where time is counted, what is left out on purpose, and what only a simulator asks for: nothing rests on them.
const NO_ENUMS: [&str; 4] = ["Scope", "Room", "Rule", "Access"];

impl Names {
    /// Adds those of a file.
    pub fn read(&mut self, file: usize, syntax: &syn::File) {
        Reader { names: self, file, owner: String::new() }.visit_file(syntax);
    }

    /// The constant that a path means, used in this file.
    pub fn constant(&self, file: usize, path: &syn::Path, this: &str) -> Option<usize> {
        let name = path.segments.last()?.ident.to_string();
        let owner = path.segments.iter().rev().nth(1).map(|owner| owner.ident.to_string());
        let all = || self.constants.iter().enumerate().filter(|(_, constant)| constant.name == name);
        let found = match owner.as_deref() {
            Some("Self") => all().find(|(_, constant)| constant.owner == this),
            Some(owner) if !["self", "super", "crate"].contains(&owner) => {
                all().find(|(_, constant)| constant.owner == owner)
            }
            _ => all()
                .find(|(_, constant)| constant.owner.is_empty() && constant.file == file)
                .or_else(|| all().find(|(_, constant)| constant.owner.is_empty())),
        };
        found.map(|(at, _)| at)
    }

    /// Another flag of the same owner and type.
    pub fn sibling(&self, at: usize) -> Option<&str> {
        let constant = &self.constants[at];
        let alike = |other: &&Constant| {
            (other.file, &other.owner, &other.ty) == (constant.file, &constant.owner, &constant.ty)
                && other.is_flag
                && other.name != constant.name
        };
        let after = self.constants[at + 1..].iter().find(alike);
        after.or_else(|| self.constants.iter().find(alike)).map(|other| other.name.as_str())
    }

    /// The next variant of the enum that a path names one of.
    pub fn other_variant(&self, path: &syn::Path) -> Option<&str> {
        let mut last = path.segments.iter().rev().map(|segment| segment.ident.to_string());
        let (variant, name) = (last.next()?, last.next()?);
        let variants = self.variants.get(&name)?;
        let at = variants.iter().position(|other| *other == variant)?;
        (variants.len() > 1).then(|| variants[(at + 1) % variants.len()].as_str())
    }
}

fn is_whole(ty: &str) -> bool {
    ["u8", "u16", "u32", "u64", "usize"].contains(&ty)
}

/// The name of a type, if it is a path.
pub fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

struct Reader<'a> {
    names: &'a mut Names,
    file: usize,
    owner: String,
}

impl Reader<'_> {
    fn constant(&mut self, name: &syn::Ident, ty: &Type, value: &syn::Expr) {
        let ty = type_name(ty);
        if is_whole(&ty) && name != "_" {
            let is_flag = match value {
                syn::Expr::Binary(shift) => {
                    matches!(shift.op, syn::BinOp::Shl(_))
                        && matches!(&*shift.left, syn::Expr::Lit(one) if matches!(&one.lit, syn::Lit::Int(int) if int.base10_digits() == "1"))
                        && matches!(&*shift.right, syn::Expr::Lit(_))
                }
                _ => false,
            };
            let line = name.span().start().line;
            let (file, owner, name) = (self.file, self.owner.clone(), name.to_string());
            self.names.constants.push(Constant { file, owner, name, ty, is_flag, line });
        }
    }

    fn within(&mut self, owner: String, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = before;
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Const(item) => self.constant(&item.ident, &item.ty, &item.expr),
            Item::Impl(item) => {
                self.within(type_name(&item.self_ty), |reader| {
                    for item in &item.items {
                        if let ImplItem::Const(item) = item {
                            reader.constant(&item.ident, &item.ty, &item.expr);
                        }
                    }
                });
            }
            Item::Mod(item) if !super::is_for_tests(&item.attrs) => {
                self.within(item.ident.to_string(), |reader| visit::visit_item_mod(reader, item));
            }
            Item::Enum(item) if !NO_ENUMS.contains(&item.ident.to_string().as_str()) => {
                let unit = item.variants.iter().filter(|variant| matches!(variant.fields, Fields::Unit));
                let unit = unit.map(|variant| variant.ident.to_string()).collect();
                self.names.variants.insert(item.ident.to_string(), unit);
            }
            Item::Struct(item) if self.owner.is_empty() && item.generics.params.is_empty() => {
                if let Fields::Unnamed(fields) = &item.fields
                    && let [field] = &fields.unnamed.iter().collect::<Vec<_>>()[..]
                {
                    let bits = match type_name(&field.ty).as_str() {
                        "u64" | "u32" => 16,
                        // There are 64 nodes.
                        "u16" if item.ident != "NodeId" => 8,
                        _ => return,
                    };
                    self.names.numbers.push((self.file, item.ident.to_string(), bits));
                }
            }
            _ => {}
        }
    }
}
