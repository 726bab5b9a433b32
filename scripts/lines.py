#!/usr/bin/env python3
"""Counts the code lines, the public items and the assertions of each crate at a commit.

    scripts/lines.py [COMMIT]

A code line is neither blank nor a comment. Tests, benchmarks, examples and fuzzing are left out. Prints JSON lines, one a crate."""

import json
import re
import subprocess
import sys

LEFT_OUT = re.compile(r"/(tests|benches|examples|fuzzing|testing|build)(/|\.rs$)|_tests?\.rs$")
ASSERTION = re.compile(r"\b(debug_)?assert(_eq|_ne)?!")
PUBLIC = re.compile(r"^\s*pub (fn|struct|enum|trait|const|type|mod|static|use)\b")


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def production(text):
    """Yields the code lines of a file, without items that are compiled for tests alone."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        line = lines[at].strip()
        if line.startswith("#[cfg(test)]") or line.startswith("#[cfg(all(test"):
            at += 1
            while lines[at].strip().startswith("#["):
                at += 1
            indent = len(lines[at]) - len(lines[at].lstrip())
            if not lines[at].rstrip().endswith((";", "}")):
                at += 1
                while at < len(lines) and not (lines[at].strip().startswith("}") and len(lines[at]) - len(lines[at].lstrip()) == indent):
                    at += 1
        elif line and not line.startswith("//"):
            yield line
        at += 1


def main():
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    counts = {}
    for path in git("ls-tree", "-r", "--name-only", commit).splitlines():
        found = re.match(r"(?:crates|lab)/([^/]+)/src/.*\.rs$", path)
        if not found or LEFT_OUT.search(path):
            continue
        count = counts.setdefault(found[1], {"files": 0, "lines": 0, "assertions": 0, "public": 0})
        count["files"] += 1
        for line in production(git("show", f"{commit}:{path}")):
            count["lines"] += 1
            count["assertions"] += bool(ASSERTION.search(line))
            count["public"] += bool(PUBLIC.match(line))
    for crate, count in sorted(counts.items()):
        print(json.dumps({"crate": crate, **count}))
    total = {key: sum(count[key] for count in counts.values()) for key in ("files", "lines", "assertions", "public")}
    print(json.dumps({"crate": "all", **total}))


if __name__ == "__main__":
    main()
