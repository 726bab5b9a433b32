//! The modules of a crate, one a file, and what each imports from the others.
//!
//! A path that begins with `crate`, `self` or `super` belongs to the module with the longest name that begins it. A
//! name that `lib.rs` passes on belongs to the module that it comes from. Items under `#[cfg(test)]` and files named
//! `tests` do not count, nor does a file whose `mod` is under `#[cfg(test)]`.

use proc_macro2::TokenTree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::{self, Visit};

/// A module as the names that lead to it: `pipeline`, `commit`.
pub(crate) type Module = Vec<String>;

/// What each module imports from other modules of its crate.
pub(crate) type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Reads all modules below a folder `src`.
pub(crate) fn read(src: &Path) -> Result<Imports, String> {
    let mut files = Vec::new();
    collect(src, &mut Vec::new(), &mut files)?;
    resolve(&files)
}

fn collect(folder: &Path, module: &mut Module, files: &mut Vec<(Module, String)>) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if name == "tests" {
            continue;
        }
        module.push(name.to_owned());
        if path.is_dir() {
            collect(&path, module, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            files.push((module.clone(), text));
        }
        module.pop();
    }
    Ok(())
}

fn resolve(files: &[(Module, String)]) -> Result<Imports, String> {
    let is_root = |module: &Module| module.len() == 1 && (module[0] == "lib" || module[0] == "main");
    let mut passed_on = BTreeMap::new();
    let mut read = Vec::new();
    let mut for_tests = BTreeSet::new();
    for (module, text) in files {
        let syntax = syn::parse_file(text).map_err(|error| format!("{}: {error}", module.join("::")))?;
        let mut paths = Paths::default();
        paths.visit_file(&syntax);
        let folder = if is_root(module) { &[][..] } else { module };
        for_tests.extend(modules_for_tests(&syntax).map(|name| [folder, &[name]].concat()));
        read.push((module, paths));
    }
    let counts = |module: &Module| !(1..=module.len()).any(|length| for_tests.contains(&module[..length]));
    let known: BTreeSet<Module> =
        files.iter().map(|(module, _)| module.clone()).filter(|m| !is_root(m) && counts(m)).collect();
    let mut parsed = Vec::new();
    for (module, paths) in read.into_iter().filter(|(module, _)| counts(module)) {
        if is_root(module) {
            for path in paths.found {
                if let (Some(name), Some(from)) = (path.last().cloned(), longest(&known, &path)) {
                    passed_on.insert(name, from);
                }
            }
        } else {
            parsed.push((module.clone(), paths.found));
        }
    }
    let mut imports = Imports::new();
    for (module, paths) in parsed {
        let from_here = paths.iter().filter_map(|path| absolute(&module, path));
        let found = from_here.filter_map(|path| {
            longest(&known, &path).or_else(|| path.first().and_then(|name| passed_on.get(name).cloned()))
        });
        let found = found.filter(|other| *other != module).collect();
        imports.insert(module, found);
    }
    Ok(imports)
}

/// The names of the modules that a file declares for tests alone.
fn modules_for_tests(file: &syn::File) -> impl Iterator<Item = String> {
    file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(item) if item.attrs.iter().any(is_for_tests_alone) => Some(item.ident.to_string()),
        _ => None,
    })
}

/// A path from the root of the crate; `None` if it leads out of the crate.
fn absolute(module: &Module, path: &[String]) -> Option<Module> {
    let mut base = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.clone(),
        _ => return None,
    };
    let mut rest = &path[1..];
    if path[0] == "super" {
        base.pop();
    }
    while rest.first().is_some_and(|name| name == "super") {
        base.pop();
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The module with the longest name that begins a path.
fn longest(known: &BTreeSet<Module>, path: &[String]) -> Option<Module> {
    (1..=path.len()).rev().map(|length| &path[..length]).find(|begin| known.contains(*begin)).map(<[String]>::to_vec)
}

/// All paths in a file, but for those in tests.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    fn add_tree(&mut self, begin: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                begin.push(path.ident.to_string());
                self.add_tree(begin, &path.tree);
                begin.pop();
            }
            syn::UseTree::Name(name) => self.add(begin, &name.ident),
            syn::UseTree::Rename(rename) => self.add(begin, &rename.ident),
            syn::UseTree::Glob(_) => self.found.push(begin.clone()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.add_tree(begin, item)),
        }
    }

    fn add(&mut self, begin: &[String], name: &syn::Ident) {
        self.found.push(begin.iter().cloned().chain([name.to_string()]).collect());
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an attribute is `cfg(test)`, or a `cfg` that names `test` or `loom` somewhere.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    attribute.path().is_ident("cfg") && !names(list.tokens.clone(), "not") && names(list.tokens.clone(), "test")
}

/// Whether an attribute is a `cfg` of tests that no feature fulfils.
fn is_for_tests_alone(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    is_for_tests(attribute) && !names(list.tokens.clone(), "feature")
}

fn names(tokens: proc_macro2::TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => names(group.stream(), word),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::").map(str::to_owned).collect()
    }

    #[test]
    fn imports_are_found_wherever_they_stand() {
        let file = |path: &str, text: &str| (module(path), text.to_owned());
        let files = [
            file("lib", "mod a; mod b; #[cfg(test)] mod page; pub use b::inner::Passed;"),
            file("page", "use crate::a::X;"),
            file("page::examples", "use crate::a::X;"),
            file("a", "use crate::b::{self, inner::{Thing, other}}; fn f() { crate::c::g(); }"),
            file("b", "mod inner; #[cfg(test)] mod tests { use crate::a::X; }"),
            file("b::inner", "use super::Y; use crate::Passed; use std::fmt; impl crate::c::T for Z {}"),
            file("c", "use crate::Passed; #[cfg(test)] use crate::a::Q; #[cfg(not(test))] use crate::b::R;"),
        ];
        let imports = resolve(&files).unwrap();
        let of = |path: &str| imports[&module(path)].iter().map(|m| m.join("::")).collect::<Vec<_>>();
        assert_eq!(of("a"), ["b", "b::inner", "c"]);
        assert!(of("b").is_empty());
        assert_eq!(of("b::inner"), ["b", "c"]);
        assert_eq!(of("c"), ["b", "b::inner"]);
        assert!(!imports.contains_key(&module("lib")));
        assert!(!imports.contains_key(&module("page")) && !imports.contains_key(&module("page::examples")));
    }
}
