#!/usr/bin/env python3
"""Repeats the experiments of X-Engine with an accelerator (ICDE 2020) as far as two cores allow.

    make paper-x-engine          a quarter of an hour; options: scripts/paper-x-engine.py --help

The store runs on one core. A unit stands for an accelerator: it computes on the other core, and is no faster than its rate. So this is a
MODEL of an accelerator, and not an accelerator. Its processor time is not the store's. It reads and writes the same disk.

    none       no unit: the store's core compacts
    x-engine   3.6 million entries a second: X-Engine's unit at 200 MHz and 55 cycles a record
    ours       5.1 million: the unit of fpga/ with keys of 16 B and values of 100 B, cycles times the routed clock
    one-core   as fast as the other core is
    ten-cores  the same, with the store's core slowed to a tenth: a program of higher priority takes the rest of it. So a second of the store
               is ten seconds of the run, and the other core does the work of ten. All rates count the store's seconds. The disk is not
               slowed, and latencies are not shown. Needs the right to real-time priority (root)
    slowed     no unit, and the store's core slowed like this: what ten-cores gains from

Requests are db_bench's mixed gets and puts of random keys, or YCSB's reads and whole updates, uniform, zipfian or latest.

Each run fills an empty store in random order, then four threads put and get, with 0, 25, 50, 75 and 90% gets. One thread would
leave a part of the core idle, and would hide what a unit saves. The folder of results has each run, the table as Markdown, and a plot of
throughput over time for each share of gets.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts", "near-data"))
import svg  # noqa: E402

UNITS = {"none": None, "x-engine": 3_600_000, "ours": 5_100_000, "one-core": 1_000_000_000, "slowed": None, "ten-cores": 1_000_000_000}
SLOWED = ["slowed", "ten-cores"]
REQUESTS = {
    "mixed": ["--workloads", "fillrandom,mixed"],
    **{name: ["--workloads", "ycsb-load,ycsb-mixed", "--distribution", name, "--update-mapping", "whole", "--fields", "1", "--field-bytes", "100"]
       for name in ["uniform", "zipfian", "latest"]},
}
STORE = ["--threads", "4", "--value-bytes", "100", "--compression", "none", "--memtable-bytes", "8M", "--table-bytes", "8M", "--level-base-bytes", "32M",
         "--background-threads", "1", "--compaction", "tstore", "--no-settle"]
# The store's part of a slowed core, and the period in which it gets it.
SLOWED_TO, PERIOD_S = 0.1, 0.01


def name_of(requests, unit, share):
    return f"{unit}-{share}" if requests == "mixed" else f"{requests}-{unit}-{share}"


def brake():
    """Takes most of core 0 until SIGTERM, in a process of its own. Returns its number."""
    child = os.fork()
    if child:
        return child
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    os.sched_setaffinity(0, {0})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("a slowed core needs the right to real-time priority: run it as root", file=sys.stderr)
        os._exit(1)
    begin = time.monotonic()
    while not stopped:
        while time.monotonic() < begin + (1 - SLOWED_TO) * PERIOD_S:
            pass
        begin += PERIOD_S
        time.sleep(max(0, begin - time.monotonic()))
    os._exit(0)


def run_slowed(command):
    """Runs a command with a brake. Returns how many times slower core 0 was for it, by the brake's processor time."""
    began, child = time.monotonic(), brake()
    time.sleep(0.2)
    if os.waitpid(child, os.WNOHANG)[0]:
        sys.exit("the brake does not run")
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    finally:
        os.kill(child, signal.SIGTERM)
        usage = os.wait4(child, 0)[2]
    wall = time.monotonic() - began
    return wall / (wall - usage.ru_utime - usage.ru_stime)


def measure(args, requests, unit, share):
    data = os.path.join(args.out, "data")
    name = name_of(requests, unit, share)
    path = os.path.join(args.out, name + ".json")
    # A run that was measured is not measured again.
    if os.path.exists(path):
        return path
    subprocess.run(["rm", "-rf", data], check=True)
    rate, is_slowed = UNITS[unit], unit in SLOWED
    seconds = args.seconds / SLOWED_TO if is_slowed else args.seconds
    model = ["--model-unit", str(rate), "--model-unit-core", "1"] if rate else []
    part = path + ".part"
    command = ["taskset", "-c", "0", args.situ, "bench", *REQUESTS[requests], "--keys", args.keys, "--operations", "1g",
               "--duration-seconds", f"{seconds:.0f}", "--read-percent", str(share), "--directory", data, "--label", name, "-o", part, *STORE, *model]
    print("+", " ".join(command), flush=True)
    if is_slowed:
        slowed = run_slowed(command)
        with open(part, encoding="utf-8") as file:
            result = json.load(file)
        result["slowed"] = slowed
        with open(part, "w", encoding="utf-8") as file:
            json.dump(result, file)
    else:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    os.rename(part, path)
    return path


def figures(path):
    """The figures of a run's last phase, in seconds of the store."""
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    phase, slowed = result["phases"][-1], result.get("slowed", 1)
    series = phase["series"]
    interval_ms = series["interval_ms"] / slowed
    each = max(1, round(1000 / interval_ms))
    operations = series["operations"]
    rates = [sum(operations[at:at + each]) * 1000 / (each * interval_ms)
             for at in range(0, len(operations) - each + 1, each)]
    units = phase["work"]["units"]
    elsewhere = sum(stage["busy_seconds"] for unit in units[1:] for stage in unit["stages"].values())
    bytes_of = [unit["input_bytes"] for unit in units]
    cpu = phase["cpu_user_seconds"] + phase["cpu_system_seconds"]
    # The first second still has the fill's compactions.
    steady = rates[1:] or rates
    return {
        "rate": phase["operations_per_second"] * slowed,
        # A slowed store stands still most of the time.
        "p99_us": None if slowed > 1 else phase["p99_ns"] / 1000,
        "swing": (max(steady) - min(steady)) / statistics.mean(steady),
        "cpu_us": (cpu - elsewhere) / phase["operations"] * 1e6,
        "elsewhere": sum(bytes_of[1:]) / max(1, sum(bytes_of)),
        "rates": rates,
        "failed": sum(unit["failed"] + unit["late"] + unit["suspicious"] + unit["mismatches"] for unit in units[1:]),
    }


def page(runs):
    """The table as Markdown."""
    lines = ["| requests | gets | unit (a model) | operations/s | gain | p99, us | swing | store's processor time an operation, us | compacted by the unit |",
             "|---|---|---|---|---|---|---|---|---|"]
    for (requests, share, unit), run in runs.items():
        base = runs.get((requests, share, "slowed" if unit in SLOWED else "none"))
        gain = f"{run['rate'] / base['rate'] - 1:+.0%}" if base and base != run else ""
        p99 = "" if run["p99_us"] is None else f"{run['p99_us']:.0f}"
        lines.append(f"| {requests} | {share}% | {unit} | {run['rate']:,.0f} | {gain} | {p99} | {run['swing']:.0%} | "
                     f"{run['cpu_us']:.1f} | {run['elsewhere']:.0%} |")
    return "\n".join(lines) + "\n"


def names(known):
    """Returns what reads a list of known names from the command line."""
    def parse(text):
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
        return text.split(",")
    return parse


def percents(text):
    shares = [int(share) for share in text.split(",")]
    if not all(0 <= share <= 100 for share in shares):
        raise argparse.ArgumentTypeError("shares of gets are 0 to 100 percent")
    return shares


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default=os.path.join(ROOT, "target", "release", "situ"))
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "paper-x-engine"))
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--keys", default="5m")
    parser.add_argument("--units", type=names(UNITS), default=["none", "x-engine", "one-core"], help="models, as none,ours,ten-cores")
    parser.add_argument("--requests", type=names(REQUESTS), default=["mixed"], help="as mixed,uniform,zipfian,latest")
    parser.add_argument("--gets", type=percents, default=[0, 25, 50, 75, 90], help="shares of gets in percent, as 0,50")
    args = parser.parse_args()
    if args.seconds < 5:
        sys.exit("a run takes 5 seconds at least: throughput over time is one of the figures")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("this takes two cores: one for the store, one for the unit")
    os.makedirs(args.out, exist_ok=True)
    runs = {}
    # In turns, so that a machine that changes its speed changes all units.
    for requests in args.requests:
        for share in args.gets:
            for unit in args.units:
                run = runs[requests, share, unit] = figures(measure(args, requests, unit, share))
                if run["failed"]:
                    sys.exit(f"{name_of(requests, unit, share)}: the unit failed {run['failed']} times")
    subprocess.run(["rm", "-rf", os.path.join(args.out, "data")], check=True)
    with open(os.path.join(args.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(page(runs))
    in_percent = lambda rates: [(100 * at / max(1, len(rates) - 1), rate) for at, rate in enumerate(rates)]
    for requests in args.requests:
        for share in args.gets:
            curves = {unit: in_percent(runs[requests, share, unit]["rates"]) for unit in args.units}
            drawing = svg.lines(f"Throughput over time, {requests}, {share}% gets; units are models", "operations/s", curves, of=f"of {args.seconds} seconds")
            name = name_of(requests, "over-time", share)
            with open(os.path.join(args.out, f"{name}.svg"), "w", encoding="utf-8") as file:
                file.write(drawing)
    print(page(runs), end="")
    print("results, table and plots:", args.out)


if __name__ == "__main__":
    main()
