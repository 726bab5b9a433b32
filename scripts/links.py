#!/usr/bin/env python3
"""Checks that links between pages lead somewhere, and that the paths in the code map exist.

    scripts/links.py            all pages (*.md) that git knows or would add
    scripts/links.py FILE ...   these pages

Links to other sites are not followed. Of a link with an anchor, the heading is looked up as well. In docs/code-map.md, each piece
of code with a slash or a known ending is a path: from the root, from `crates/`, or from `lab/`. Ends with exit code 1 if something is missing.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE_MAP = "docs/code-map.md"


def without_code(text):
    text = re.sub(r"^([ >]*)```.*?^\1```", lambda m: "\n" * m.group().count("\n"), text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda m: "`" * len(m.group()), text)


def anchors(path):
    found = set()
    with open(path) as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
    for heading in re.findall(r"^#+ +(.*?)\s*$", text, flags=re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(anchor if anchor not in found else f"{anchor}-1")
    return found


def links(page, text):
    for match in re.finditer(r"\]\(([^()\s]+)\)", without_code(text)):
        target, _, anchor = match.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = os.path.normpath(os.path.join(ROOT, os.path.dirname(page), target)) if target else os.path.join(ROOT, page)
        line = text.count("\n", 0, match.start()) + 1
        if not os.path.exists(path):
            yield f"{page}:{line}: there is no {target}"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield f"{page}:{line}: {target or page} has no heading #{anchor}"


def paths(page, text):
    for match in re.finditer(r"`([\w./-]+)`", text):
        path = match.group(1)
        if "/" not in path and not re.search(r"\.(rs|md|txt|toml|sh|py)$", path):
            continue
        if not any(os.path.exists(os.path.join(ROOT, base, path)) for base in ("", "crates", "lab")):
            yield f"{page}:{text.count(chr(10), 0, match.start()) + 1}: there is no {path}"


def main():
    pages = sys.argv[1:]
    if not pages:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
        try:
            pages = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            print("SKIPPED: links between pages: this is no checkout of git")
            return 0
    faults = []
    for page in pages:
        with open(os.path.join(ROOT, page)) as file:
            text = file.read()
        faults += links(page, text)
        if page == CODE_MAP:
            faults += paths(page, text)
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
