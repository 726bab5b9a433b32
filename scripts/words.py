#!/usr/bin/env python3
"""Reads the comments of production code, and fails if they read like a translation.

    scripts/words.py [PATH...]       counts, by rule; fails above a ceiling
    scripts/words.py --list [PATH...]  prints each place, too

Without a path: the sources of all crates. Tests, benches and examples are not production code.

Rules:
* a word of WORDS in a comment;
* a documentation comment of a public item that begins with a word of BEGINNINGS;
* a comment line longer than 120 columns;
* a file `x.rs` that a comment names and that no crate has.
"""

import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
COLUMNS = 120
WORDS = ["nobody", "whoever", "beside", "so many", "anew", "is told", "are told", "gives way", "somebody"]
BEGINNINGS = ("What", "Whether", "Who ", "Whose", "Where ", "So many", "So long", "How ", "That ")
# The most that a rule may find in all crates. Lower a number when a change makes it smaller.
# What is left are names in the code, help texts and drawings.
CEILINGS = {
    "nobody": 1,
    "whoever": 1,
    "beside": 9,
    "so many": 0,
    "anew": 0,
    "is told": 1,
    "are told": 0,
    "gives way": 0,
    "somebody": 0,
    "beginning": 8,
    "columns": 11,
    "file": 0,
}

PUBLIC = re.compile(r"\s*(#\[|pub (?!\(|use)|pub$)")


def is_production(path):
    parts = path.split(os.sep)
    name = parts[-1]
    return "tests" not in parts and name not in ("tests.rs", "testing.rs", "shadow.rs", "fuzzing.rs") and "src" in parts


def sources(paths):
    for top in paths:
        if os.path.isfile(top):
            yield top
            continue
        for directory, names, files in os.walk(top):
            names[:] = sorted(name for name in names if name not in ("target", ".git"))
            yield from (os.path.join(directory, file) for file in sorted(files) if file.endswith(".rs"))


def comment_of(line):
    """The text of a line's comment, or None. A string with // in it counts as one: rare, and short."""
    found = re.search(r"(^|\s)//[/!]?\s?(.*)$", line)
    return found.group(2) if found else None


def places(path, names):
    """Yields (rule, line number, text)."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    # Tests at the end of a file.
    for number, line in enumerate(lines):
        if line.strip() == "#[cfg(test)]" and any("mod tests {" in later for later in lines[number + 1 : number + 3]):
            lines = lines[:number]
            break
    before = ""
    for number, line in enumerate(lines, 1):
        text = comment_of(line)
        if text is None:
            before = ""
            continue
        lower = re.sub(r"`[^`]*`", "", (before[-12:] + " " + text).lower())
        own = re.sub(r"`[^`]*`", "", text.lower())
        for word in WORDS:
            count = len(re.findall(rf"\b{word}\b", own))
            if " " in word and count == 0 and re.search(rf"\b{word}\b", lower):
                count = 1
            for _ in range(count):
                yield word, number, text
        stripped = line.strip()
        is_first = stripped.startswith("///") and not lines[number - 2].strip().startswith("///")
        if is_first and text.startswith(BEGINNINGS):
            after = next((later for later in lines[number:] if not later.strip().startswith(("///", "#["))), "")
            if re.match(r"\s*pub (?!\()", after) or re.match(r"\s+(\w+[,({ ]|fn )", after) and not after.strip().startswith(("let", "fn", "pub(")):
                yield "beginning", number, text
        if len(line) > COLUMNS and stripped.startswith("//"):
            yield "columns", number, text
        for name in re.findall(r"`(?:[\w/]+/)?(\w+\.rs)`", text):
            if name not in names:
                yield "file", number, text
        before = text


def main():
    arguments = sys.argv[1:]
    shows = "--list" in arguments
    given = [argument for argument in arguments if argument != "--list"]
    homes = [os.path.join(ROOT, home) for home in ("crates", "lab")]
    names = {os.path.basename(path) for path in sources([*homes, os.path.join(ROOT, "fuzz")])}
    counts = {rule: 0 for rule in [*WORDS, "beginning", "columns", "file"]}
    for path in sources(given or homes):
        if not is_production(path):
            continue
        for rule, number, text in places(path, names):
            counts[rule] += 1
            if shows:
                print(f"{os.path.relpath(path, ROOT)}:{number}: {rule}: {text}")
    failed = False
    for rule, count in counts.items():
        ceiling = None if given else CEILINGS.get(rule)
        is_over = ceiling is not None and count > ceiling
        failed |= is_over
        print(f"{rule}: {count}" + (f" (at most {ceiling})" if ceiling is not None else ""))
    if failed:
        sys.exit("scripts/words.py: more than there may be; --list shows the places")


if __name__ == "__main__":
    main()
