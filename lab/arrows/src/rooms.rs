//! The plan: the rooms of each crate from the ground up, and the arrows between crates.

use std::path::Path;

/// What `rooms.txt` says of a crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) name: String,
    /// Imports that run up and are tolerated.
    pub(crate) up_max: usize,
    /// Files that may import each other in a circle.
    pub(crate) circle_max: usize,
    /// From the ground up.
    pub(crate) rooms: Vec<String>,
}

/// The arrows of a crate: the crates that it may depend on, directly or by their arrows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrows {
    pub(crate) name: String,
    pub(crate) to: Vec<String>,
    /// Crates that it may depend on by an optional dependency alone; their arrows are not followed.
    pub(crate) to_optional: Vec<String>,
}

/// The contents of `rooms.txt`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct House {
    pub(crate) plans: Vec<Plan>,
    pub(crate) arrows: Vec<Arrows>,
}

/// Reads the plans and arrows in a file.
pub(crate) fn read(path: &Path) -> Result<House, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(text: &str) -> Result<House, String> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut arrows = Vec::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    for (number, line) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            let plan = plans.last_mut().ok_or(format!("line {}: rooms of no crate", number + 1))?;
            plan.rooms.extend(words.iter().map(|word| (*word).to_owned()));
            continue;
        }
        if let [name, "->", to @ ..] = &words[..] {
            let (optional, always) = to.iter().partition::<Vec<&str>, _>(|name| name.ends_with('?'));
            let owned = |names: Vec<&str>| names.iter().map(|name| name.trim_end_matches('?').to_owned()).collect();
            arrows.push(Arrows { name: (*name).to_owned(), to: owned(always), to_optional: owned(optional) });
            continue;
        }
        let [name, "up", up, "circle", circle] = words[..] else {
            return Err(format!("line {}: expected `CRATE up NUMBER circle NUMBER` or `CRATE -> CRATES`", number + 1));
        };
        let count = |word: &str| word.parse().map_err(|_| format!("line {}: {word} is no number", number + 1));
        let (up_max, circle_max) = (count(up)?, count(circle)?);
        plans.push(Plan { name: name.to_owned(), up_max, circle_max, rooms: Vec::new() });
    }
    let without_rooms = arrows.iter().find(|arrows: &&Arrows| plans.iter().all(|plan| plan.name != arrows.name));
    match without_rooms {
        Some(Arrows { name, .. }) => Err(format!("{name} has arrows and no rooms; add `{name} up 0 circle 0`")),
        None => Ok(House { plans, arrows }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read() {
        let text = "# words\nengine up 3 circle 9\n  base disks\n  work\nengine -> table sim?\n";
        let House { plans, arrows } = parse(text).unwrap();
        let rooms = ["base", "disks", "work"].map(str::to_owned).to_vec();
        assert_eq!(plans, [Plan { name: "engine".to_owned(), up_max: 3, circle_max: 9, rooms }]);
        let arrow = |name: &str, to: &[&str], to_optional: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Arrows { name: name.to_owned(), to: owned(to), to_optional: owned(to_optional) }
        };
        assert_eq!(arrows, [arrow("engine", &["table"], &["sim"])]);
        assert!(parse("base ->\n").unwrap_err().contains("no rooms"));
        assert!(parse("  base\n").unwrap_err().contains("line 1"));
        assert!(parse("engine\n").unwrap_err().contains("expected"));
    }
}
