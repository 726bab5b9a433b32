//! A drawing of one table: write amplification over space amplification, measured points and the model's curves.

use crate::model::{self, Point};
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 60.0;
const TOP: f64 = 30.0;
const SPACE: (f64, f64) = (1.0, 2.1);
const WRITE: (f64, f64) = (1.0, 5.2);

/// What a measured point belongs to, with its colour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Series {
    Off,
    Discard,
    Full,
    OwnSectors,
}

impl Series {
    const ALL: [(Series, &'static str, &'static str); 4] = [
        (Series::Off, "off", "#444444"),
        (Series::Discard, "discard only", "#1f77b4"),
        (Series::Full, "full", "#d62728"),
        (Series::OwnSectors, "own sectors, discard", "#2ca02c"),
    ];

    fn colour(self) -> &'static str {
        Series::ALL.iter().find(|(series, ..)| *series == self).map_or("black", |(_, _, colour)| colour)
    }
}

fn at(point: Point) -> (f64, f64) {
    let x = LEFT + (point.space - SPACE.0) / (SPACE.1 - SPACE.0) * (WIDTH - LEFT - 20.0);
    let y = HEIGHT - BOTTOM - (point.write - WRITE.0) / (WRITE.1 - WRITE.0) * (HEIGHT - BOTTOM - TOP);
    (x, y)
}

fn curve(svg: &mut String, points: impl Iterator<Item = Point>, colour: &str) {
    let fits = |point: &Point| point.space <= SPACE.1 && point.write <= WRITE.1;
    let path: Vec<String> = points.filter(fits).map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>"#,
        path.join(" ")
    );
}

fn axes(svg: &mut String) {
    let text = |svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str| {
        let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
    };
    for step in 0..=5 {
        let space = SPACE.0 + f64::from(step) * 0.2;
        let (x, y) = at(Point { space, write: WRITE.0 });
        let _ = writeln!(svg, r##"<line x1="{x:.1}" y1="{y:.1}" x2="{x:.1}" y2="{TOP}" stroke="#dddddd"/>"##);
        text(svg, (x, y + 18.0), "middle", &format!("{space:.1}"));
    }
    for step in 0..=4 {
        let write = WRITE.0 + f64::from(step);
        let (x, y) = at(Point { space: SPACE.0, write });
        let _ =
            writeln!(svg, r##"<line x1="{x:.1}" y1="{y:.1}" x2="{}" y2="{y:.1}" stroke="#dddddd"/>"##, WIDTH - 20.0);
        text(svg, (x - 6.0, y + 4.0), "end", &format!("{write:.0}"));
    }
    text(svg, (WIDTH / 2.0, HEIGHT - 20.0), "middle", "physical space for each live byte (mean)");
    text(svg, (LEFT, 18.0), "start", "physical bytes written for each byte of the user; dashed: the model");
}

/// The drawing.
pub(crate) fn draw(points: &[(Series, Point)]) -> String {
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">"#
    );
    svg.push_str("\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    axes(&mut svg);
    let parts = || (1..200).map(|part| f64::from(part) / 200.0);
    let cleaned = 1.0 - 1.0 / model::plain_at(3.0).write;
    curve(&mut svg, parts().map(model::plain), Series::Off.colour());
    curve(&mut svg, parts().map(model::discard), Series::Discard.colour());
    curve(&mut svg, parts().map(|q| model::full(cleaned, q)), Series::Full.colour());
    for (series, point) in points {
        let (x, y) = at(*point);
        let _ = writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="4.5" fill="{}"/>"#, series.colour());
    }
    for (row, (_, name, colour)) in Series::ALL.iter().enumerate() {
        let y = 60.0 + 20.0 * row as f64;
        let _ = writeln!(
            svg,
            r#"<circle cx="560" cy="{}" r="4.5" fill="{colour}"/><text x="572" y="{y}">{name}</text>"#,
            y - 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}
