#!/usr/bin/env python3
"""Repeats the experiments of X-Engine with an accelerator (ICDE 2020) as far as two cores allow.

    make paper-x-engine          a quarter of an hour; options: scripts/paper-x-engine.py --help

The store runs on one core. A unit stands for an accelerator: it computes on the other core, and is no faster than its rate. So this is a
MODEL of an accelerator, and not an accelerator. Its processor time is not the store's. It reads and writes the same disk.

    none       no unit: the store's core compacts
    x-engine   3.6 million entries a second: X-Engine's unit at 200 MHz and 55 cycles a record
    one core   as fast as the other core is

Each run fills an empty store in random order, then four threads put and get random keys, with 0, 25, 50, 75 and 90% gets. One thread would
leave a part of the core idle, and would hide what a unit saves. The folder of results has each run, the table as Markdown, and a plot of
throughput over time for each share of gets.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts", "near-data"))
import svg  # noqa: E402

UNITS = [("none", None), ("x-engine", 3_600_000), ("one core", 1_000_000_000)]
SHARES = [0, 25, 50, 75, 90]
STORE = ["--threads", "4", "--value-bytes", "100", "--compression", "none", "--memtable-bytes", "8M", "--table-bytes", "8M", "--level-base-bytes", "32M",
         "--background-threads", "1", "--compaction", "tstore", "--no-settle"]


def name_of(unit, share):
    return f"{unit.replace(' ', '-')}-{share}"


def measure(args, unit, rate, share):
    data = os.path.join(args.out, "data")
    path = os.path.join(args.out, name_of(unit, share) + ".json")
    # A run that was measured is not measured again.
    if os.path.exists(path):
        return path
    subprocess.run(["rm", "-rf", data], check=True)
    model = ["--model-unit", str(rate), "--model-unit-core", "1"] if rate else []
    command = ["taskset", "-c", "0", args.situ, "bench", "--workloads", "fillrandom,mixed", "--keys", args.keys,
               "--operations", "1g", "--duration-seconds", str(args.seconds), "--read-percent", str(share), "--directory", data, "--label", name_of(unit, share),
               "-o", path, *STORE, *model]
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def figures(path):
    """The figures of a run's last phase."""
    with open(path, encoding="utf-8") as file:
        phase = json.load(file)["phases"][-1]
    series = phase["series"]
    each = max(1, round(1000 / series["interval_ms"]))
    operations = series["operations"]
    rates = [sum(operations[at:at + each]) * 1000 / (each * series["interval_ms"])
             for at in range(0, len(operations) - each + 1, each)]
    units = phase["work"]["units"]
    elsewhere = sum(stage["busy_seconds"] for unit in units[1:] for stage in unit["stages"].values())
    bytes_of = [unit["input_bytes"] for unit in units]
    cpu = phase["cpu_user_seconds"] + phase["cpu_system_seconds"]
    # The first second still has the fill's compactions.
    steady = rates[1:] or rates
    return {
        "rate": phase["operations_per_second"],
        "p99_us": phase["p99_ns"] / 1000,
        "swing": (max(steady) - min(steady)) / statistics.mean(steady),
        "cpu_us": (cpu - elsewhere) / phase["operations"] * 1e6,
        "elsewhere": sum(bytes_of[1:]) / max(1, sum(bytes_of)),
        "rates": rates,
        "failed": sum(unit["failed"] + unit["late"] + unit["suspicious"] + unit["mismatches"] for unit in units[1:]),
    }


def page(runs):
    """The table as Markdown."""
    lines = ["| gets | unit (a model) | operations/s | gain | p99, us | swing | store's processor time an operation, us | compacted by the unit |",
             "|---|---|---|---|---|---|---|---|"]
    for share in SHARES:
        base = runs["none", share]["rate"]
        for unit, _ in UNITS:
            run = runs[unit, share]
            gain = "" if unit == "none" else f"{run['rate'] / base - 1:+.0%}"
            lines.append(f"| {share}% | {unit} | {run['rate']:,.0f} | {gain} | {run['p99_us']:.0f} | {run['swing']:.0%} | "
                         f"{run['cpu_us']:.1f} | {run['elsewhere']:.0%} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default=os.path.join(ROOT, "target", "release", "situ"))
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "paper-x-engine"))
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--keys", default="5m")
    args = parser.parse_args()
    if args.seconds < 5:
        sys.exit("a run takes 5 seconds at least: throughput over time is one of the figures")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("this takes two cores: one for the store, one for the unit")
    os.makedirs(args.out, exist_ok=True)
    runs = {}
    # In turns, so that a machine that changes its speed changes all three.
    for share in SHARES:
        for unit, rate in UNITS:
            runs[unit, share] = figures(measure(args, unit, rate, share))
            if runs[unit, share]["failed"]:
                sys.exit(f"{name_of(unit, share)}: the unit failed {runs[unit, share]['failed']} times")
    subprocess.run(["rm", "-rf", os.path.join(args.out, "data")], check=True)
    with open(os.path.join(args.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(page(runs))
    for share in SHARES:
        in_percent = lambda rates: [(100 * at / max(1, len(rates) - 1), rate) for at, rate in enumerate(rates)]
        curves = {unit: in_percent(runs[unit, share]["rates"]) for unit, _ in UNITS}
        of = f"of {args.seconds} seconds"
        drawing = svg.lines(f"Throughput over time, {share}% gets; units are models", "operations/s", curves, of=of)
        with open(os.path.join(args.out, f"over-time-{share}.svg"), "w", encoding="utf-8") as file:
            file.write(drawing)
    print(page(runs), end="")
    print("results, table and plots:", args.out)


if __name__ == "__main__":
    main()
