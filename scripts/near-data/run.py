#!/usr/bin/env python3
"""Runs the experiments of CoPro on the testbed: every configuration on every workload, in turns.

    scripts/testbed-node.sh up DIRECTORY --link 1g --disk sata --host-memory 400 --node-memory 400
    scripts/near-data/run.py --situ target/release/situ --results results.jsonl --scale 0.05 --repeat 5
    scripts/near-data/report.py results.jsonl --output report/

Configurations take turns (A B C, B C A, ...) on each workload, n times. Each run has a fresh node and a fresh store, and ends by
count. What is in the results file already is left out, so an interrupted matrix goes on where it was. A run that fails is noted, and
tried again by the next call.
Memory is bounded on both sides by the same scale as the data: otherwise the page cache of the node holds all of it.
"""

import argparse
import datetime
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import matrix
from bed import ARRANGEMENTS, Dry, Failure, Testbed
from measure import measure
from results import Results, key


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default="target/release/situ", help="the program that is measured (default: %(default)s)")
    parser.add_argument("--results", default="near-data.jsonl", help="file that results are added to (default: %(default)s)")
    parser.add_argument("--scale", type=float, default=0.05,
                        help="the paper's volumes of data times this (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each configuration on each workload (default: %(default)s)")
    parser.add_argument("--sets", default="", help="sets or workloads, with commas (default: all; --list shows them)")
    parser.add_argument("--policies", default=",".join(matrix.POLICIES), help="configurations, with commas (default: all)")
    parser.add_argument("--arrangement", choices=ARRANGEMENTS, default=ARRANGEMENTS[0],
                        help="the node owns the files, or only computes: they lie on the host (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds that a run may take (default: %(default)s)")
    parser.add_argument("--dry", metavar="DIRECTORY",
                        help="no testbed: the store lies in this directory. To try the driver; compares nothing")
    parser.add_argument("--list", action="store_true", help="show what would run, and end")
    return parser.parse_args()


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    told = subprocess.run(["git", "-C", here, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def cpu_model():
    with open("/proc/cpuinfo") as file:
        lines = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return lines[0] if lines else os.uname().machine


def header(bed, options):
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit(),
        "kernel": " ".join(os.uname()[i] for i in (0, 2)), "cpu": cpu_model(), "cores": os.cpu_count(),
        "bed": bed.describe(), "scale": options.scale, "settings": list(matrix.SETTINGS),
    }


def chosen(names, all_names, what):
    names = [name for name in names.split(",") if name]
    for name in names:
        if name not in all_names:
            raise Failure(f"there is no {what} {name!r}; there are: {', '.join(all_names)}")
    return tuple(names)


def has_option(situ, option):
    told = subprocess.run([situ, "bench", "--help"], capture_output=True, text=True)
    if told.returncode != 0:
        raise Failure(f"{situ} bench --help: {told.stderr.strip()}")
    return option in told.stdout


def bench_arguments(bed, workload, policy, has_compaction):
    """A dry run goes on with a program that has no policies: it compares nothing anyway."""
    policies = ["--compaction", policy] if has_compaction else []
    return [*matrix.SETTINGS, *workload.arguments, *policies, "--label", policy]


def run_one(bed, results, workload, policy, repetition, options, has_compaction):
    given = bench_arguments(bed, workload, policy, has_compaction)
    record = {"key": key(workload.name, policy, repetition), "set": workload.set, "workload": workload.name, "phase": workload.phase,
              "policy": policy, "repetition": repetition, "arguments": given,
              **{name: results.header[name] for name in ("commit", "kernel", "cpu", "bed", "scale")}}
    try:
        record.update(measure(bed, workload, given, options.timeout))
    except Failure as failure:
        record["failed"] = str(failure)
    results.append(record)
    if "failed" in record:
        print(f"  FAILED: {record['failed']}", flush=True)
        return False
    figures = record["figures"]
    shown = {name: figures[name] for name in ("ops_s", "host_cpu_percent", "node_cpu_percent", "wa_tables", "wa_wire", "p99_us")}
    print("  " + "  ".join(f"{name} {value:.4g}" for name, value in shown.items() if value is not None), flush=True)
    return True


def run():
    options = arguments()
    all_workloads = matrix.workloads(options.scale)
    names = list(dict.fromkeys(name for workload in all_workloads for name in (workload.set, workload.name)))
    sets = chosen(options.sets, names, "set or workload")
    policies = chosen(options.policies, matrix.POLICIES, "configuration")
    todo = list(matrix.plan(options.scale, sets, policies, options.repeat))
    if options.list:
        for workload in dict.fromkeys(workload for _, workload, _ in todo):
            print(f"{workload.set:12} {workload.name:24} {' '.join(workload.arguments)}")
        print(f"{len(todo)} runs")
        return 0
    bed = Dry(options.situ, options.dry) if options.dry else Testbed(options.situ, options.arrangement)
    for option in bed.needs():
        if not has_option(bed.situ, option):
            raise Failure(f"{bed.situ} bench has no {option}: this program cannot be measured on the testbed; --dry tries the driver alone")
    has_compaction = has_option(bed.situ, "--compaction")
    results = Results(options.results, header(bed, options))
    left = [(r, w, p) for r, w, p in todo if key(w.name, p, r) not in results.done]
    print(f"{len(todo)} runs, of which {len(todo) - len(left)} are in {options.results}", flush=True)
    failed = 0
    for count, (repetition, workload, policy) in enumerate(left, 1):
        print(f"{count} of {len(left)}: {workload.name}, {policy}, repetition {repetition}", flush=True)
        failed += not run_one(bed, results, workload, policy, repetition, options, has_compaction)
    if failed:
        print(f"{failed} runs failed; the same command tries them again", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    # The node is ended whatever ends the driver.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("near-data: ended; the same command goes on where it was"))
    try:
        sys.exit(run())
    except Failure as failure:
        sys.exit(f"near-data: {failure}")
    except KeyboardInterrupt:
        sys.exit("near-data: interrupted; the same command goes on where it was")
