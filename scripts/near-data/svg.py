"""Two kinds of drawing as SVG, by the standard library alone: bars in groups, and lines over time."""

import math
from html import escape

# Okabe and Ito's colours, which most colour-blind people can tell apart; the last is for the eighth.
COLOURS = ("#999999", "#56b4e9", "#e69f00", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#009e73")
WIDTH, HEIGHT = 960, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 64, 76


def nice_top(most):
    """A round number at or above `most`, for the end of an axis."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(power * factor for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if power * factor >= most * 0.9999)


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(str(words))}</text>'


def frame(title, unit, top):
    """The page, its heading and the axis of values."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text(LEFT, 22, f"{title}, {unit}" if unit else title, "start", 'font-size="15" font-weight="bold"')]
    for tick in range(5):
        value, y = top * tick / 4, y_of(top * tick / 4, top)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y + 4, f"{value:,.0f}" if top >= 1000 else f"{value:.3g}", "end"))
    return parts


def y_of(value, top):
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(value, top) / top


def legend(names):
    parts, x = [], LEFT
    for index, name in enumerate(names):
        parts.append(f'<rect x="{x}" y="36" width="11" height="11" fill="{COLOURS[index % len(COLOURS)]}"/>')
        parts.append(text(x + 15, 46, name, "start"))
        x += 34 + 7 * len(name)
    return parts


def bars(title, unit, groups, names, values):
    """`values[group][name]` is (middle, least, most), or `None`."""
    found = [value for group in groups for value in [values[group].get(name) for name in names] if value]
    if not found:
        return None
    top = nice_top(max(value[2] for value in found))
    parts = frame(title, unit, top) + legend(names)
    slot = (WIDTH - LEFT - RIGHT) / len(groups)
    bar = slot * 0.8 / len(names)
    for at, group in enumerate(groups):
        for index, name in enumerate(names):
            if value := values[group].get(name):
                x = LEFT + slot * at + slot * 0.1 + bar * index
                parts.append(bar_of(x, bar, value, top, COLOURS[index % len(COLOURS)], f"{group}, {name}: {value[0]:.4g} {unit}"))
        for line, words in enumerate(label(group, slot)):
            parts.append(text(LEFT + slot * (at + 0.5), HEIGHT - BOTTOM + 18 + 14 * line, words))
    return "\n".join([*parts, "</svg>", ""])


def label(name, width):
    """A name in as many lines as it needs in so many pixels: it breaks at its hyphens."""
    lines = []
    for part in name.split("-"):
        if lines and 7 * len(lines[-1] + part) < width:
            lines[-1] += "-" + part
        else:
            lines.append(part)
    return lines


def bar_of(x, width, value, top, colour, words):
    middle, least, most = (y_of(part, top) for part in value)
    mark = x + width / 2
    return (f'<g><title>{escape(words)}</title><rect x="{x:.1f}" y="{middle:.1f}" width="{width * 0.92:.1f}" '
            f'height="{y_of(0, top) - middle:.1f}" fill="{colour}"/>'
            f'<line x1="{mark:.1f}" x2="{mark:.1f}" y1="{least:.1f}" y2="{most:.1f}" stroke="black"/></g>')


def lines(title, unit, curves, shaded=(), of="of the requests"):
    """`curves[name]` is a list of (x, y), x in percent of what `of` says; `shaded` are (from, to) in percent."""
    curves = {name: points for name, points in curves.items() if points}
    if not curves:
        return None
    top = nice_top(max(y for points in curves.values() for _, y in points))
    x_of = lambda percent: LEFT + (WIDTH - LEFT - RIGHT) * percent / 100
    parts = frame(title, unit, top)
    for begin, end in shaded:
        parts.insert(2, f'<rect x="{x_of(begin):.1f}" y="{TOP}" width="{x_of(end) - x_of(begin):.1f}" '
                        f'height="{HEIGHT - BOTTOM - TOP}" fill="#f2f2f2"/>')
    parts += legend(curves)
    for index, points in enumerate(curves.values()):
        path = " ".join(f"{x_of(x):.1f},{y_of(y, top):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="1.8"/>')
    for percent in range(0, 101, 20):
        parts.append(text(x_of(percent), HEIGHT - BOTTOM + 18, f"{percent}%"))
    parts.append(text(x_of(50), HEIGHT - BOTTOM + 38, of))
    return "\n".join([*parts, "</svg>", ""])
