//! The plan of a crate: its rooms from the ground up.

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

/// Reads the plans in a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Plan>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Plan>, String> {
    let mut plans: Vec<Plan> = Vec::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    for (number, line) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            let plan = plans.last_mut().ok_or(format!("line {}: rooms of no crate", number + 1))?;
            plan.rooms.extend(words.iter().map(|word| (*word).to_owned()));
            continue;
        }
        let [name, "up", up, "circle", circle] = words[..] else {
            return Err(format!("line {}: expected `CRATE up NUMBER circle NUMBER`", number + 1));
        };
        let count = |word: &str| word.parse().map_err(|_| format!("line {}: {word} is no number", number + 1));
        let (up_max, circle_max) = (count(up)?, count(circle)?);
        plans.push(Plan { name: name.to_owned(), up_max, circle_max, rooms: Vec::new() });
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read() {
        let plans = parse("# words\nengine up 3 circle 9\n  base disks\n  work\n").unwrap();
        let rooms = ["base", "disks", "work"].map(str::to_owned).to_vec();
        assert_eq!(plans, [Plan { name: "engine".to_owned(), up_max: 3, circle_max: 9, rooms }]);
        assert!(parse("  base\n").unwrap_err().contains("line 1"));
        assert!(parse("engine\n").unwrap_err().contains("expected"));
    }
}
