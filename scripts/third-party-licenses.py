#!/usr/bin/env python3
"""Prints the licenses of all packages that are linked into the program `situ`, as an archive of the program has to carry them.

    scripts/third-party-licenses.py [TARGET]

Packages come from `cargo tree`, without those of tests and builds. Their texts come from the sources that cargo has downloaded.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = re.compile(r"(un)?licen[sc]e|copying|copyright|notice", re.I)


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def texts(directory):
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if NAMES.match(name) and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield name, file.read().strip()


def main():
    target = ["--target", sys.argv[1]] if sys.argv[1:] else []
    tree = cargo("tree", "--locked", "-p", "situ-cli", "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", *target)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1"))["packages"]
    seen = {}
    print("The program situ contains these packages.")
    for package in sorted(packages, key=lambda package: package["name"]):
        if not package["source"] or (package["name"], "v" + package["version"]) not in linked:
            continue
        print(f"\n== {package['name']} {package['version']}: {package['license']}")
        for name, text in texts(os.path.dirname(package["manifest_path"])):
            words = " ".join(text.split())
            if words in seen:
                print(f"\n{name}: as of {seen[words]}, above")
                continue
            seen[words] = f"{package['name']}, {name}"
            print(f"\n{name}:\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
