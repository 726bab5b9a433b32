#!/usr/bin/env python3
"""Prints the order in which our crates can be published, and checks without a network what a registry demands of their manifests.

    scripts/publish-order.py            the names, one a line: each crate after those that it depends on
    scripts/publish-order.py check      what is missing, one a line, with exit code 1; or nothing

A dependency without a version counts as none: a package leaves out a dev-dependency by path alone. That is how `situ-storage` and
`situ-sim` may need each other. A registry refuses every other dependency without a version.
"""

import json
import os
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def packages():
    command = ["cargo", "metadata", "--no-deps", "--locked", "--format-version", "1"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {package["name"]: package for package in json.loads(output)["packages"]}


def is_published(package):
    # Cargo says null for "anywhere", and an empty list for publish = false.
    return package["publish"] is None or bool(package["publish"])


def has_version(dependency):
    return dependency["req"] != "*"


def order(ours):
    graph = {
        name: {d["name"] for d in package["dependencies"] if d["name"] in ours and has_version(d)}
        for name, package in ours.items()
        if is_published(package)
    }
    return list(TopologicalSorter(graph).static_order())


def faults(ours):
    for name, package in ours.items():
        if not is_published(package):
            continue
        for field in ("description", "license", "repository", "keywords", "categories", "rust_version"):
            if not package[field]:
                yield f"{name} has no {field}"
        if len(package["keywords"]) > 5:
            yield f"{name} has more than 5 keywords"
        for keyword in package["keywords"]:
            if not re.fullmatch(r"[A-Za-z0-9][\w+-]{0,19}", keyword):
                yield f"{name}: the keyword {keyword} is too long, or has other characters than letters, digits, _, - and +"
        if len(package["categories"]) > 5:
            yield f"{name} has more than 5 categories"
        for dependency in package["dependencies"]:
            other = dependency["name"]
            if not has_version(dependency) and dependency["kind"] != "dev":
                yield f"{name} depends on {other} without a version"
            if other not in ours or not has_version(dependency):
                continue
            if not is_published(ours[other]):
                yield f"{name} depends on {other}, which is not published"
            if dependency["req"] != "^" + ours[other]["version"]:
                yield f"{name} asks for {other} {dependency['req']}, which is {ours[other]['version']} here"


def main():
    ours = packages()
    try:
        names = order(ours)
    except CycleError as error:
        print("crates that depend on each other: " + " -> ".join(error.args[1]))
        return 1
    if sys.argv[1:] == ["check"]:
        found = list(faults(ours))
        print("\n".join(found), end="\n" if found else "")
        return 1 if found else 0
    if sys.argv[1:]:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    print("\n".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
