//! The dependencies between crates, from their manifests, compared with the arrows in `rooms.txt`.
//!
//! Dependencies of tests and of benches do not count. A crate may depend on a crate further along its arrows.

use crate::rooms::Arrows;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One dependency of a crate on another crate of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dependency {
    on: String,
    is_optional: bool,
}

/// The dependencies of each crate, by its name.
type Dependencies = BTreeMap<String, Vec<Dependency>>;

/// Finds the dependencies that no arrow allows, each as a line of text.
///
/// # Errors
/// A manifest cannot be read.
pub(crate) fn forbidden(folders: &Folders, arrows: &[Arrows]) -> Result<Vec<String>, String> {
    Ok(compare(&read(folders)?, arrows))
}

/// The folder of each crate, by its name.
pub(crate) type Folders = BTreeMap<String, PathBuf>;

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Finds the crates of the project: those of the program, and those of the laboratory.
///
/// # Errors
/// A folder cannot be read.
pub(crate) fn folders(root: &Path) -> Result<Folders, String> {
    let mut found = Folders::new();
    for home in ["crates", "lab"].map(|home| root.join(home)) {
        for entry in std::fs::read_dir(&home).map_err(|error| failed(&home, &error))? {
            let folder = entry.map_err(|error| failed(&home, &error))?.path();
            let name = folder.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|_| folder.join("Cargo.toml").is_file()) {
                found.insert(name.to_owned(), folder);
            }
        }
    }
    Ok(found)
}

fn read(folders: &Folders) -> Result<Dependencies, String> {
    let mut found = Dependencies::new();
    for (name, folder) in folders {
        let manifest = folder.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).map_err(|error| failed(&manifest, &error))?;
        found.insert(name.clone(), dependencies(&text));
    }
    Ok(found)
}

/// The dependencies in a manifest: the lines `situ... = ` under `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim();
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
        let Some(on) = name.strip_prefix("situ").filter(|_| section == "[dependencies]") else { continue };
        let on = if on.is_empty() { "situ" } else { on.trim_start_matches('-') };
        found.push(Dependency { on: on.to_owned(), is_optional: line.contains("optional = true") });
    }
    found
}

fn compare(dependencies: &Dependencies, arrows: &[Arrows]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, dependencies) in dependencies {
        let Some(own) = arrows.iter().find(|own| own.name == *name) else {
            faults.push(format!("{name} has no arrows; add `{name} -> ...` to rooms.txt"));
            continue;
        };
        let reached = reach(name, arrows);
        for Dependency { on, is_optional } in dependencies {
            let is_allowed = reached.contains(&on[..]) || *is_optional && own.to_optional.contains(on);
            if !is_allowed {
                faults.push(format!("{name} -> {on}: no arrow leads there"));
            }
        }
    }
    faults
}

/// The crates along the arrows of a crate.
fn reach<'a>(name: &'a str, arrows: &'a [Arrows]) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![name];
    while let Some(name) = next.pop() {
        for to in arrows.iter().filter(|arrow| arrow.name == name).flat_map(|arrow| &arrow.to) {
            if reached.insert(&to[..]) {
                next.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrow(name: &str, to: &[&str], to_optional: &[&str]) -> Arrows {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Arrows { name: name.to_owned(), to: owned(to), to_optional: owned(to_optional) }
    }

    #[test]
    fn dependencies_are_read_without_those_of_tests() {
        let text = "[package]\nname = \"situ-x\"\n[dependencies]\nlz4.workspace = true\nsitu.workspace = true\n\
                    situ-sim = { workspace = true, optional = true }\n[dev-dependencies]\nsitu-table.workspace = true\n";
        let found: Vec<_> = dependencies(text).into_iter().map(|found| (found.on, found.is_optional)).collect();
        assert_eq!(found, [("situ".to_owned(), false), ("sim".to_owned(), true)]);
    }

    #[test]
    fn a_dependency_without_an_arrow_is_forbidden() {
        let arrows = [arrow("base", &[], &[]), arrow("table", &["base"], &[]), arrow("engine", &["table"], &["sim"])];
        let on = |on: &str, is_optional| Dependency { on: on.to_owned(), is_optional };
        let faults = |name: &str, on| compare(&Dependencies::from([(name.to_owned(), vec![on])]), &arrows);
        assert!(faults("engine", on("base", false)).is_empty(), "further along the arrows");
        assert!(faults("engine", on("sim", true)).is_empty());
        assert_eq!(faults("engine", on("sim", false)), ["engine -> sim: no arrow leads there"]);
        assert_eq!(faults("base", on("table", false)), ["base -> table: no arrow leads there"]);
        assert!(faults("cellar", on("base", false))[0].contains("has no arrows"));
    }
}
