//! Whether the imports of a crate fit its plan.

use crate::rooms::Plan;
use crate::source::{Imports, Module};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::BTreeMap;
use std::fmt;

/// What was found in a crate.
pub(crate) struct Verdict<'a> {
    plan: &'a Plan,
    files: usize,
    /// Imports from room to room.
    rooms: BTreeMap<(usize, usize), usize>,
    /// Imports from a room into one above it.
    up: Vec<(&'a Module, &'a Module)>,
    /// The largest circle of files, if there is one.
    circle: Vec<&'a Module>,
}

/// Compares.
///
/// # Errors
/// A module is in no room of the plan.
pub(crate) fn judge<'a>(plan: &'a Plan, imports: &'a Imports) -> Result<Verdict<'a>, String> {
    let room = |module: &Module| {
        let place = plan.rooms.iter().position(|room| module.first() == Some(room));
        place.ok_or_else(|| format!("{} has no room {}; add it to rooms.txt", plan.name, module.join("::")))
    };
    let mut rooms = BTreeMap::new();
    let mut up = Vec::new();
    let mut graph: DiGraphMap<&Module, ()> = DiGraphMap::new();
    for (module, others) in imports {
        let here = room(module)?;
        for other in others {
            let there = room(other)?;
            if here != there {
                *rooms.entry((here, there)).or_default() += 1;
            }
            if there > here {
                up.push((module, other));
            }
            graph.add_edge(module, other, ());
        }
    }
    let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
    let mut circle = circles.max_by_key(Vec::len).unwrap_or_default();
    circle.sort();
    Ok(Verdict { plan, files: imports.len(), rooms, up, circle })
}

impl Verdict<'_> {
    /// Whether no more faults were found than are tolerated.
    pub(crate) fn is_sound(&self) -> bool {
        self.up.len() <= self.plan.up_max && self.circle.len() <= self.plan.circle_max
    }
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { name, rooms, up_max, circle_max } = self.plan;
        writeln!(f, "{name}: {} files in {} rooms", self.files, rooms.len())?;
        for (here, room) in rooms.iter().enumerate() {
            let others = self.rooms.range((here, 0)..(here + 1, 0));
            let others: Vec<String> = others.map(|((_, there), n)| format!("{} {n}", rooms[*there])).collect();
            writeln!(f, "  {room:12} -> {}", if others.is_empty() { "nothing".to_owned() } else { others.join(", ") })?;
        }
        writeln!(f, "  imports that run up: {} (at most {up_max})", self.up.len())?;
        for (from, to) in &self.up {
            writeln!(f, "    {} -> {}", from.join("::"), to.join("::"))?;
        }
        writeln!(f, "  largest circle: {} files (at most {circle_max})", self.circle.len())?;
        for module in &self.circle {
            writeln!(f, "    {}", module.join("::"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::").map(str::to_owned).collect()
    }

    fn plan(up_max: usize, circle_max: usize) -> Plan {
        let rooms = ["ground", "middle", "roof"].map(str::to_owned).to_vec();
        Plan { name: "house".to_owned(), up_max, circle_max, rooms }
    }

    #[test]
    fn an_import_that_runs_up_and_a_circle_are_told() {
        let edges = [("ground::a", "roof"), ("roof", "middle"), ("middle", "ground::a"), ("ground::b", "ground::a")];
        let mut imports = Imports::new();
        for (from, to) in edges {
            imports.entry(module(from)).or_default().insert(module(to));
        }
        let strict = plan(0, 0);
        let verdict = judge(&strict, &imports).unwrap();
        assert_eq!(verdict.up, [(&module("ground::a"), &module("roof"))]);
        assert_eq!(verdict.circle.len(), 3);
        assert!(!verdict.is_sound());
        assert!(verdict.to_string().contains("ground::a -> roof"), "{verdict}");
        assert!(!judge(&plan(1, 2), &imports).unwrap().is_sound());
        assert!(!judge(&plan(0, 3), &imports).unwrap().is_sound());
        assert!(judge(&plan(1, 3), &imports).unwrap().is_sound());
    }

    #[test]
    fn a_module_without_a_room_is_an_error() {
        let imports = Imports::from([(module("cellar"), Default::default())]);
        assert!(judge(&plan(0, 0), &imports).is_err_and(|error| error.contains("cellar")));
    }
}
