//! Drawings: lines over a linear or logarithmic axis, and groups of horizontal bars, as SVG.
//!
//! Colours and dashes come from the page's style by class (`c0 d0`, `c1 d0`, ...), so that one drawing serves light and
//! dark. Hovering is done by the page's script, from `data-` attributes that carry the text to show.

use std::fmt::Write;

/// Escapes text for an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to write these.
            control if control.is_control() && control != '\n' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Colours in the style.
const COLORS: usize = 6;
/// Ways in the style to draw a line of one colour.
const DASHES: usize = 3;

/// Returns the classes that distinguish one subject's drawings from another's.
pub(super) fn subject_class(subject: usize) -> String {
    format!("c{} d{}", subject % COLORS, subject / COLORS % DASHES)
}

/// Cuts `text` to `characters` characters.
fn clip(text: &str, characters: usize) -> String {
    match text.chars().count() > characters {
        true => text.chars().take(characters - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Steps of 1, 2, 2.5 or 5 times a power of ten of `unit`: about `wanted` of them, the last one at or above `max`.
fn linear_ticks(max: f64, wanted: usize, unit: f64) -> Vec<f64> {
    if !(max > 0.0 && max.is_finite()) {
        return vec![0.0];
    }
    let rough = max / wanted.max(1) as f64;
    let power = unit * 10f64.powf((rough / unit).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let last = (max / step * 0.999).ceil() as usize;
    (0..=last.min(wanted * 2)).map(|tick| tick as f64 * step).collect()
}

/// Powers of ten from the one at or below `min` to the one at or above `max`.
fn log_ticks(min: f64, max: f64) -> Vec<f64> {
    let first = min.max(1e-9).log10().floor() as i32;
    let last = (max.max(1e-9).log10().ceil() as i32).max(first + 1);
    (first..=last).map(|power| 10f64.powi(power)).collect()
}

/// The mapping from a value to a position on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// By decades.
    Log,
}

/// A line: whose it is, a name, and points with the text that describes each.
pub(super) struct Line {
    pub(super) subject: usize,
    pub(super) label: String,
    pub(super) points: Vec<(f64, f64, String)>,
}

/// Lines over two axes.
pub(super) struct LineChart<'a> {
    pub(super) title: &'a str,
    pub(super) x_title: &'a str,
    pub(super) x_ticks: Vec<(f64, String)>,
    pub(super) y_scale: Scale,
    pub(super) y_format: &'a dyn Fn(f64) -> String,
    pub(super) lines: Vec<Line>,
    /// Values are bytes: steps of the axis are round in binary units.
    pub(super) binary: bool,
    /// Fills the area below a single line.
    pub(super) filled: bool,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;

impl LineChart<'_> {
    /// Returns the largest unit that `max` is one or more of.
    fn unit_below(&self, max: f64) -> f64 {
        let mut unit = 1.0;
        while self.binary && max >= unit * 1024.0 {
            unit *= 1024.0;
        }
        unit
    }

    /// Renders the chart, or nothing when there are no points.
    pub(super) fn render(&self) -> String {
        let values = || self.lines.iter().flat_map(|line| line.points.iter());
        let x_max = values().map(|point| point.0).chain(self.x_ticks.iter().map(|tick| tick.0)).fold(0.0, f64::max);
        let y_max = values().map(|point| point.1).fold(0.0, f64::max);
        let y_min = values().map(|point| point.1).fold(f64::INFINITY, f64::min);
        if values().next().is_none() || y_max <= 0.0 {
            return String::new();
        }
        let ticks = match self.y_scale {
            Scale::Linear => linear_ticks(y_max, 5, self.unit_below(y_max)),
            Scale::Log => log_ticks(y_min, y_max),
        };
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        let x_at = |x: f64| LEFT + (WIDTH - LEFT - RIGHT) * if x_max > 0.0 { x / x_max } else { 0.0 };
        let y_at = |y: f64| {
            let share = match self.y_scale {
                Scale::Linear => y / high,
                Scale::Log => (y.max(low).log10() - low.log10()) / (high.log10() - low.log10()),
            };
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
        };

        let mut svg = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            svg,
            "<svg class=\"lines\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\
             <text class=\"title\" x=\"0\" y=\"14\">{}</text>",
            escape(self.title),
            escape(self.title)
        );
        for tick in &ticks {
            let y = y_at(*tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                escape(&(self.y_format)(*tick))
            );
        }
        for (x, label) in &self.x_ticks {
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x_at(*x),
                HEIGHT - BOTTOM + 18.0,
                escape(label)
            );
        }
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 6.0,
            escape(self.x_title)
        );
        for line in &self.lines {
            self.draw(line, &mut svg, &x_at, &y_at);
        }
        let _ = write!(svg, "<line class=\"cross\" x1=\"0\" x2=\"0\" y1=\"{TOP}\" y2=\"{}\"/></svg>", HEIGHT - BOTTOM);
        svg
    }

    fn draw(&self, line: &Line, svg: &mut String, x_at: &dyn Fn(f64) -> f64, y_at: &dyn Fn(f64) -> f64) {
        let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else { return };
        let mut path = String::new();
        let mut places = String::new();
        let mut texts = String::new();
        for (index, (x, y, text)) in line.points.iter().enumerate() {
            let between = if index == 0 { "" } else { " " };
            let _ = write!(path, "{between}{:.1},{:.1}", x_at(*x), y_at(*y));
            let _ = write!(places, "{between}{:.1}", x_at(*x));
            let _ = write!(texts, "{}{text}", if index == 0 { "" } else { "|" });
        }
        if self.filled {
            let floor = HEIGHT - BOTTOM;
            let _ = write!(
                svg,
                "<polygon class=\"area {}\" points=\"{:.1},{floor} {path} {:.1},{floor}\"/>",
                subject_class(line.subject),
                x_at(first.0),
                x_at(last.0)
            );
        }
        let _ = write!(
            svg,
            "<polyline class=\"line {}\" points=\"{path}\" data-label=\"{}\" data-x=\"{places}\" data-text=\"{}\"/>",
            subject_class(line.subject),
            escape(&line.label),
            escape(&texts)
        );
        if line.points.len() == 1 {
            let _ = write!(
                svg,
                "<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/>",
                subject_class(line.subject),
                x_at(first.0),
                y_at(first.1)
            );
        }
    }
}

/// Ticks for an axis of seconds.
pub(super) fn seconds_ticks(max_seconds: f64) -> Vec<(f64, String)> {
    let ticks = linear_ticks(max_seconds, 6, 1.0).into_iter().filter(|tick| *tick <= max_seconds * 1.001);
    ticks.map(|tick| (tick, format!("{}", (tick * 100.0).round() / 100.0))).collect()
}

/// One bar: length and whiskers, the text next to it, and the text that hovering shows.
pub(super) struct Bar {
    pub(super) subject: usize,
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) range: Option<(f64, f64)>,
    pub(super) beside: String,
    pub(super) hint: String,
}

/// Bars that share a name.
pub(super) struct BarGroup {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// Draws groups of horizontal bars. Labels that do not fit next to the groups' names have the room to themselves, and
/// the names have a row of their own. With `own_scale`, each group's longest bar has full length, because workloads
/// differ by orders of magnitude; otherwise all share one scale.
pub(super) fn bars(title: &str, groups: &[BarGroup], own_scale: bool) -> String {
    const ROW: f64 = 20.0;
    const GAP: f64 = 12.0;
    const HEAD: f64 = 30.0;
    const BAR_LEFT: f64 = 190.0;
    const BAR_RIGHT: f64 = 400.0;
    const LABEL_BESIDE_CHARACTERS: usize = 13;
    const LABEL_CHARACTERS: usize = 28;
    let labels = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.label.chars().count());
    let name_rows = usize::from(labels.max().unwrap_or_default() > LABEL_BESIDE_CHARACTERS);
    let longest = |group: &BarGroup| {
        group.bars.iter().map(|bar| bar.range.map_or(bar.value, |range| range.1.max(bar.value))).fold(0.0, f64::max)
    };
    let common = groups.iter().map(longest).fold(0.0, f64::max);
    let rows: usize = groups.iter().map(|group| group.bars.len() + name_rows).sum();
    let height = HEAD + rows as f64 * ROW + groups.len() as f64 * GAP;
    let mut svg = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\
         <text class=\"title\" x=\"0\" y=\"14\">{}</text>",
        escape(title),
        escape(title)
    );
    let mut y = HEAD;
    for group in groups {
        let scale = if own_scale { longest(group) } else { common };
        let x_at = |value: f64| BAR_LEFT + (BAR_RIGHT - BAR_LEFT) * if scale > 0.0 { value / scale } else { 0.0 };
        let _ = write!(svg, "<text class=\"group\" x=\"0\" y=\"{:.1}\">{}</text>", y + 13.0, escape(&group.name));
        y += name_rows as f64 * ROW;
        for bar in &group.bars {
            let middle = y + 9.0;
            let _ = write!(
                svg,
                "<g data-hint=\"{}\"><rect class=\"hit\" x=\"{}\" y=\"{y:.1}\" width=\"{}\" height=\"{ROW}\"/>\
                 <text class=\"name\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <rect class=\"bar {}\" x=\"{BAR_LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\"/>",
                escape(&bar.hint),
                BAR_LEFT - 90.0,
                WIDTH - BAR_LEFT + 90.0,
                BAR_LEFT - 8.0,
                middle + 4.0,
                escape(&clip(&bar.label, LABEL_CHARACTERS)),
                subject_class(bar.subject),
                middle - 7.0,
                (x_at(bar.value) - BAR_LEFT).max(1.0)
            );
            if let Some((low, high)) = bar.range {
                let _ = write!(
                    svg,
                    "<path class=\"whisker\" d=\"M{0:.1} {2:.1}H{1:.1}M{0:.1} {3:.1}v6M{1:.1} {3:.1}v6\"/>",
                    x_at(low),
                    x_at(high),
                    middle,
                    middle - 3.0
                );
            }
            let _ = write!(
                svg,
                "<text class=\"value\" x=\"{}\" y=\"{:.1}\">{}</text></g>",
                BAR_RIGHT + 10.0,
                middle + 4.0,
                escape(&bar.beside)
            );
            y += ROW;
        }
        y += GAP;
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(linear_ticks(1000.0, 4, 1.0), [0.0, 250.0, 500.0, 750.0, 1000.0]);
        assert_eq!(linear_ticks(0.7, 4, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8]);
        assert_eq!(linear_ticks(0.0, 4, 1.0), [0.0]);
        assert_eq!(log_ticks(150.0, 90_000.0), [100.0, 1_000.0, 10_000.0, 100_000.0]);
        assert!(log_ticks(0.0, 0.0).len() >= 2);
        let mebibytes = linear_ticks(70.0 * 1048576.0, 4, 1048576.0);
        assert_eq!(mebibytes[1] / 1048576.0, 20.0);
        // The highest point lies below the last line, however little it is above the one before.
        for max in [1.0, 109.0, 124.0, 546.0, 1001.0, 9.9e9] {
            let ticks = linear_ticks(max, 5, 1.0);
            let (step, last) = (ticks[1], ticks[ticks.len() - 1]);
            assert!(last >= max * 0.998 && last < max + step && ticks.len() <= 7, "{max}: {ticks:?}");
        }
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        assert_eq!(escape("<a b='\"'>&\u{1}"), "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
    }

    #[test]
    fn labels_stay_within_the_drawing() {
        let bar = |label: &str| Bar {
            subject: 13,
            label: label.to_owned(),
            value: 1.0,
            range: None,
            beside: String::new(),
            hint: label.to_owned(),
        };
        let group = |label| [BarGroup { name: "fillrandom".to_owned(), bars: vec![bar(label), bar("situ")] }];
        assert!(bars("t", &group("rocksdb"), true).contains("viewBox=\"0 0 560 82\""));
        let long = bars("t", &group("a label that is longer than there is any room for it"), true);
        assert!(long.contains("viewBox=\"0 0 560 102\"") && long.contains(">a label that is longer than…<"), "{long}");
        assert!(long.contains("class=\"bar c1 d2\""), "{long}");
    }
}
