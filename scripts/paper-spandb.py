#!/usr/bin/env python3
"""SpanDB's experiments on a disk in memory that takes time, and no processor.

    scripts/paper-spandb.py [--out FOLDER] [--seconds N] [--turns N]

Figure 3: one to four threads with one to four writes of 4 KiB in flight. Then synced puts into a store with each part of its write path
switched off, and RocksDB's db_bench on files whose syncs take as long as the disk, if db_bench and a C compiler are there.
Raw output, tables and drawings come into the folder. Nothing else should run on the machine. `make paper-spandb` builds what it takes.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "near-data"))
import svg  # noqa: E402

SERVICE_US, CHANNELS = 10, 6
WRITERS = (1, 4, 40)
FEW = ((4, 4, 10), (4, 4, 100))


def output(command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def keep(args, name, text):
    with open(os.path.join(args.out, name), "w", encoding="utf-8") as file:
        file.write(text)
    return text


def rows(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def median(values):
    return statistics.median(values)


def draw(args, name, title, unit, table, column):
    groups = [f"{threads} threads" for threads in range(1, 5)]
    values = {group: {} for group in groups}
    for way, threads, depth, *figures in table:
        if way == "device":
            at = float(figures[column])
            # A line up to the 99th percentile, where the bar is a median.
            most = float(figures[column + 1]) if column else at
            values[f"{threads} threads"][f"{depth} in flight"] = (at, at, most)
    keep(args, name, svg.bars(title, unit, groups, [f"{depth} in flight" for depth in range(1, 5)], values))


def drive(args, program):
    table = rows(keep(args, "timed-drive.txt", output([program, "2", str(SERVICE_US), str(CHANNELS)])))
    draw(args, "throughput.svg", "Writes of 4 KiB: throughput", "writes/s", table, 0)
    draw(args, "latency.svg", "Writes of 4 KiB: median, and a line to the 99th percentile", "us", table, 1)


def store(args, program):
    raw, puts = "", {}
    for _ in range(args.turns):
        text = output([program, str(args.seconds), str(SERVICE_US), str(CHANNELS), "8", "50"])
        raw += text
        for way, rate, *figures in rows(text):
            puts.setdefault(way, []).append((float(rate), *map(float, figures)))
    keep(args, "timed-store.txt", raw)
    print("| way | puts/s (least, most) | p50, us | p99, us | processor time of a put, us | puts of a log write |\n|---|---|---:|---:|---:|---:|")
    for way, runs in puts.items():
        rate, p50, p99, _, _, processor, group, _ = (median(column) for column in zip(*runs))
        rates = [run[0] for run in runs]
        print(f"| {way} | {rate:,.0f} ({min(rates):,.0f}, {max(rates):,.0f}) | {p50:,.0f} | {p99:,.0f} | {processor:.1f} | {group:.0f} |")


def few(args, program):
    raw, puts = "", {}
    for _ in range(args.turns):
        for threads, outstanding, service in FEW:
            command = [program, str(args.seconds), str(service), str(CHANNELS), str(threads), str(outstanding), "device", "serial-log"]
            text = output(command)
            raw += text
            for way, rate, p50, *_ in rows(text):
                puts.setdefault((service, threads * outstanding, way), []).append((float(rate), float(p50)))
    keep(args, "timed-store-few.txt", raw)
    print("\n| an operation takes | requests outstanding | log writes in flight | puts/s (least, most) | p50, us |\n|---|---:|---|---|---:|")
    for (service, outstanding, way), runs in puts.items():
        rates = [run[0] for run in runs]
        in_flight = "one" if way == "serial-log" else "as trials decide"
        print(f"| {service} us | {outstanding} | {in_flight} | {median(rates):,.0f} ({min(rates):,.0f}, {max(rates):,.0f}) | {median([run[1] for run in runs]):,.0f} |")


def rocksdb(args, program):
    bench, compiler = shutil.which("db_bench"), shutil.which("cc")
    if not bench or not compiler:
        print("SKIPPED: RocksDB: there is no db_bench or no C compiler (Debian: rocksdb-tools, gcc)")
        return
    raw, puts = "", {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        library = os.path.join(folder, "timed-sync.so")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "timed-sync.c"), "-lpthread"], check=True)
        for _ in range(args.turns):
            for writers in WRITERS:
                database = os.path.join(folder, "rocksdb")
                command = [bench, "--benchmarks=fillrandom", f"--db={database}", "--sync=1", f"--threads={writers}", "--num=100000000",
                           f"--duration={args.seconds}", "--key_size=16", "--value_size=1024", "--compression_type=none",
                           "--max_background_jobs=2", "--enable_pipelined_write=1", "--histogram=1"]
                run = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     env={**os.environ, "LD_PRELOAD": library})
                shutil.rmtree(database)
                said = [line for line in run.stdout.splitlines() if re.match("RocksDB:|fillrandom|Percentiles", line)]
                raw += f"rocksdb, {writers} writers: " + "; ".join(said) + "\n"
                rate = float(re.search(r"^fillrandom.* (\d+) ops/sec", run.stdout, re.MULTILINE)[1])
                puts.setdefault(writers, {}).setdefault("RocksDB", []).append(rate)
                text = output([program, str(args.seconds), str(SERVICE_US), str(CHANNELS), str(writers), "1", "blocking"])
                raw += f"situ, {writers} writers: {rows(text)[0]}\n"
                puts[writers].setdefault("Situ", []).append(float(rows(text)[0][1]))
    keep(args, "rocksdb.txt", raw)
    print("\n| writers that wait | RocksDB, puts/s (least, most) | Situ | ratio |\n|---|---|---|---:|")
    for writers, of in puts.items():
        cells = [f"{median(rates):,.0f} ({min(rates):,.0f}, {max(rates):,.0f})" for rates in (of["RocksDB"], of["Situ"])]
        print(f"| {writers} | {cells[0]} | {cells[1]} | {median(of['Situ']) / median(of['RocksDB']):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="target/paper-spandb")
    parser.add_argument("--programs", default="target/release/examples", help="folder with timed_drive and timed_store")
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    program = os.path.join(args.programs, "timed_store")
    drive(args, os.path.join(args.programs, "timed_drive"))
    store(args, program)
    few(args, program)
    rocksdb(args, program)


if __name__ == "__main__":
    main()
