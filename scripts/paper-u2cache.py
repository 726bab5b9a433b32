#!/usr/bin/env python3
"""Repeats the latencies and rates of U2cache's paper over shared memory, and over sockets beside it.

    make paper-u2cache          some five minutes; options: scripts/paper-u2cache.py --help

Client and server are two processes. The server is a cache with one thread. Stock memcached has one thread, too. Each is measured with Situ's
Rust client over each transport that it offers. Where Maven and a JDK from 22 on are there (JAVA_HOME), the same is measured with Situ's Java
client, and with spymemcached over TCP. The folder of results has every case as a line of JSON, and the tables as Markdown.
"""

import argparse
import fcntl
import json
import mmap
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts", "near-data"))
import svg  # noqa: E402

JAVA_SIZES = [32, 512, 1024, 4096]
JAVA_CALLS = 30_000
OVERLAP_CALLS = 4_000

# What overlapping copies and transfers saves in the paper, in percent, and what RME saves.
PAPER_OVERLAP = {"SET": {64: 4, 128: 13, 256: 22, 512: 26}, "GET": {64: 13, 128: 17, 256: 24, 512: 27}}
PAPER_RME = {64: 7, 128: 18, 256: 26, 512: 28}

# The model of a link: the paper's 56 Gbit/s and handshake, and a slice of the Java client.
LINK_BYTES_PER_US, HANDSHAKE_US, SLICE_KB = 7000, 3, 16

# Values that are read from flash, and how much data a cache has.
FLASH_KB, FLASH_DATA_KB, FILL_KB_PER_S = [1, 4, 16, 64, 256, 1024], 256 << 10, 40 << 10


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def wait_for(path, process):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                return probe.connect(path)
            except OSError:
                pass
        if process.poll() is not None:
            sys.exit(f"{process.args[0]} has ended with code {process.returncode}")
        time.sleep(0.05)
    sys.exit(f"{process.args[0]} does not listen")


class Servers:
    """Situ's cache and, where it is installed, memcached: an address of TCP and a Unix socket each."""

    def __init__(self, situ, directory):
        self.processes, self.places = [], {}
        path, port = os.path.join(directory, "situ.sock"), free_port()
        self.start("situ", path, port, [situ, "serve", "--no-http", "--engine", "cache", "--threads", "1", "--listen", f"127.0.0.1:{port}",
                                        "--unix-socket", path, "--memory", "256M", "--shared-ring", "4M"])
        memcached = shutil.which("memcached")
        if not memcached:
            print("SKIPPED: stock memcached: it is not installed")
            return
        port = free_port()
        # Memcached listens on one of both.
        user = ["-u", "root"] if os.getuid() == 0 else []
        self.start("memcached", os.path.join(directory, "memcached.sock"), None,
                   [memcached, "-t", "1", "-m", "256", "-s", os.path.join(directory, "memcached.sock"), *user])
        self.start("memcached", None, port, [memcached, "-t", "1", "-m", "256", "-l", "127.0.0.1", "-p", str(port), *user])

    def start(self, name, path, port, command):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        if path:
            wait_for(path, process)
            self.places.setdefault(name, {})["unix"] = path
        if port:
            time.sleep(0.3)
            self.places.setdefault(name, {})["tcp"] = f"127.0.0.1:{port}"

    def end(self):
        for process in self.processes:
            process.terminate()
            process.wait()


def rust_cases(example, places, seconds):
    for server, of_server in places.items():
        for kind, address in of_server.items():
            for transport in ("socket", "shared-memory") if (server, kind) == ("situ", "unix") else ("socket",):
                command = [example, address, transport, str(seconds)]
                print("+", " ".join(command), flush=True)
                for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
                    yield {**json.loads(line), "client": "Rust", "server": server}


def java_command(program):
    """The command that runs a program of Java's test classes, or `None` and a reason."""
    home = os.environ.get("JAVA_HOME", "")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not shutil.which("mvn") or not java:
        return None, "Maven or Java is not installed"
    version = subprocess.run([java, "-version"], stderr=subprocess.PIPE, text=True).stderr
    found = re.search(r'version "(\d+)', version)
    if not found or int(found.group(1)) < 22:
        return None, "the JDK is older than 22: set JAVA_HOME"
    folder = os.path.join(ROOT, "java", "client")
    built = subprocess.run(["mvn", "-q", "-B", "test-compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath",
                            "-Dmdep.includeScope=test"], cwd=folder)
    if built.returncode:
        return None, "Maven failed"
    with open(os.path.join(folder, "target", "classpath"), encoding="utf-8") as file:
        path = file.read().strip()
    classes = [os.path.join(folder, "target", name) for name in ("classes", "test-classes")]
    return [java, "--enable-native-access=ALL-UNNAMED", "-cp", ":".join([*classes, path]), f"io.situ.client.{program}"], None


def java_cases(places):
    command, why = java_command("Latency")
    if not command:
        print("SKIPPED: the Java client:", why)
        return
    for server, of_server in places.items():
        for address in of_server.values():
            for size in JAVA_SIZES:
                print("+ Latency", address, size, flush=True)
                said = subprocess.run([*command, address, str(size), str(JAVA_CALLS)], check=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True).stdout
                for line in said.splitlines():
                    found = re.match(r"(\S+)\s+(set|get)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s", line)
                    if found:
                        transport, call, size_said, middle, late = found.groups()
                        is_spy = transport == "spymemcached"
                        transport = {"TCP": "TCP", "UNIX_SOCKET": "Unix socket", "SHARED_MEMORY": "shared memory"}.get(transport, "TCP")
                        yield {"client": "spymemcached" if is_spy else "Java", "server": server, "transport": transport,
                               "operation": call.upper(), "value_bytes": int(size_said), "requests": JAVA_CALLS,
                               "p50_us": float(middle), "p99_us": float(late)}


def overlap_cases(places):
    """Long values over shared memory from Java, with slices and with whole values."""
    command, why = java_command("Overlap")
    if not command:
        print("SKIPPED: the overlap of copies:", why)
        return []
    print("+ Overlap", flush=True)
    said = subprocess.run([*command, places["situ"]["unix"], str(OVERLAP_CALLS)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def overlap_table(cases):
    times = {(case["operation"], case["value_bytes"] >> 10, case["slices"]): case for case in cases}
    lines = ["| operation | value | whole values: median, 99th percentile us | slices | change of the median | in the paper |", "|---|---|---|---|---|---|"]
    for operation, of_paper in PAPER_OVERLAP.items():
        for size, saved in of_paper.items():
            whole, slices = (times[operation, size, way] for way in (False, True))
            cells = [f"{case['p50_us']:.1f}, {case['p99_us']:.1f}" for case in (whole, slices)]
            lines.append(f"| {operation} | {size} KB | {cells[0]} | {cells[1]} | {100 * (slices['p50_us'] / whole['p50_us'] - 1):+.0f}% | -{saved}% |")
    return "\n".join(lines) + "\n"


def write_overlap(cases, out):
    with open(os.path.join(out, "overlap.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(case) + "\n" for case in cases)
    with open(os.path.join(out, "overlap.md"), "w", encoding="utf-8") as file:
        file.write(overlap_table(cases))
    print(overlap_table(cases), end="")


def copies(example, places, seconds):
    """How long this machine copies long values, in us by KB."""
    sizes = ",".join(str(size << 10) for size in PAPER_RME)
    said = subprocess.run([example, places["situ"]["unix"], "shared-memory", str(seconds), sizes], check=True, stdout=subprocess.PIPE, text=True).stdout
    cases = [json.loads(line) for line in said.splitlines()]
    return {case["value_bytes"] >> 10: case["p50_us"] for case in cases if case["operation"] == "COPY"}


def pipelined(stages, slices):
    """The time in which slices pass stages, each of which takes one slice at a time."""
    free = [0] * len(stages)
    for _ in range(slices):
        done = 0
        for stage, takes in enumerate(stages):
            free[stage] = done = max(done, free[stage]) + takes
    return done


def granted(size_kb):
    """How long it takes to fill memory that the server could keep without a copy: a file of its own, sealed when the client has unmapped it."""
    value, times = bytes(size_kb << 10), []
    for _ in range(300):
        begun = time.perf_counter()
        file = os.memfd_create("value", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, len(value))
        with mmap.mmap(file, len(value)) as memory:
            memory[:] = value
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
        times.append(time.perf_counter() - begun)
        os.close(file)
    return statistics.median(times) * 1e6


def link_table(copies):
    """A MODEL of SETs over a link: copies as measured, transfers as computed. Requests, answers and wake-ups are left out."""
    lines = ["| value | copy, transfer us | sealed memory us | rendezvous: whole value | slices | RME | ring: whole value | slices | paper: slices, RME |", "|---" * 9 + "|"]
    for size, copy in copies.items():
        slices, transfer = size // SLICE_KB, (size << 10) / LINK_BYTES_PER_US
        slice_copy, slice_transfer = copy / slices, transfer / slices
        whole = HANDSHAKE_US + copy + transfer
        times = [HANDSHAKE_US + pipelined([slice_copy, slice_transfer], slices), pipelined([slice_copy, slice_transfer], slices), copy + transfer + copy,
                 pipelined([slice_copy, slice_transfer, slice_copy], slices)]
        cells = [f"{time:.1f} ({100 * (time / whole - 1):+.0f}%)" for time in times]
        lines.append(f"| {size} KB | {copy:.1f}, {transfer:.1f} | {granted(size):.1f} | {whole:.1f} | {' | '.join(cells)} | -{PAPER_OVERLAP['SET'][size]}%, -{PAPER_RME[size]}% |")
    return "\n".join(lines) + "\n"


def rates(situ, places, directory, seconds):
    """Two clients at 4 KB."""
    for server, of_server in places.items():
        for kind, address in of_server.items():
            for transport in ("socket", "shared-memory") if (server, kind) == ("situ", "unix") else ("socket",):
                output = os.path.join(directory, "rate.json")
                command = [situ, "bench", "--connect", address, "--transport", transport, "--threads", "2", "--keys", "10k", "--operations",
                           "1g", "--duration-seconds", str(seconds), "--value-bytes", "4096", "--workloads", "fillseq,overwrite,readrandom",
                           "-o", output]
                print("+", " ".join(command), flush=True)
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                with open(output, encoding="utf-8") as file:
                    phases = {phase["workload"]: phase for phase in json.load(file)["phases"]}
                transport = "TCP" if kind == "tcp" else transport.replace("-", " ").replace("socket", "Unix socket")
                yield {"server": server, "transport": transport, "sets": phases["overwrite"]["operations_per_second"],
                       "gets": phases["readrandom"]["operations_per_second"], "missed": phases["readrandom"]["missed"]}


def flash_cases(situ, directory, seconds):
    """GETs over shared memory of values that lie in memory, and of values of which one in ten lies there and the rest on flash."""
    for place, memory, options in (("memory", "800M", []), ("flash", "64M", ["--flash", os.path.join(directory, "flash"), "--flash-size", "1G"])):
        for size_kb in FLASH_KB:
            path, output = os.path.join(directory, "flash.sock"), os.path.join(directory, "flash.json")
            server = subprocess.Popen([situ, "serve", "--no-http", "--engine", "cache", "--threads", "1", "--unix-socket", path, "--memory", memory, *options],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_for(path, server)
                # The command and the key of an item of 1 MB need room, too. A fill that is faster than the drive loses items.
                command = [situ, "bench", "--connect", path, "--transport", "shared-memory", "--threads", "1", "--keys", str(FLASH_DATA_KB // size_kb),
                           "--value-bytes", str((size_kb << 10) - 512), "-o", output, "--workloads"]
                for load in (["fillseq", "--rate", str(FILL_KB_PER_S // size_kb)], ["readrandom", "--operations", "1g", "--duration-seconds", str(seconds)]):
                    print("+", " ".join(command + load), flush=True)
                    subprocess.run(command + load, check=True, stdout=subprocess.DEVNULL)
            finally:
                server.terminate()
                server.wait()
            with open(output, encoding="utf-8") as file:
                phase = json.load(file)["phases"][-1]
            (gets,), found, missed = phase["latencies"], phase["found"], phase["missed"]
            if missed > found / 20:
                sys.exit(f"{missed} of {found + missed} values of {size_kb} KB are not in the cache: the drive is slower than the fill")
            yield {"place": place, "kb": size_kb, "p50_ns": gets["p50_ns"], "p99_ns": gets["p99_ns"], "found": found, "missed": missed}


def flash_table(cases):
    times = {(case["place"], case["kb"]): case["p50_ns"] / 1000 for case in cases}
    lines = ["| value | from memory: median us | from flash: median us | overlap would save at most |", "|---|---|---|---|"]
    for size_kb in FLASH_KB:
        memory, flash = times["memory", size_kb], times["flash", size_kb]
        lines.append(f"| {size_kb} KB | {memory:.1f} | {flash:.1f} | {min(memory, flash - memory) / flash:.0%} |")
    return "\n".join(lines) + "\n"


# What a plot shows: client, server, transport, and a short name.
SHOWN = [("Rust", "situ", "shared memory", "Rust, shared memory"), ("Java", "situ", "shared memory", "Java, shared memory"),
         ("Java", "situ", "TCP", "Java, TCP"), ("spymemcached", "memcached", "TCP", "spymemcached, memcached")]


def floors(cases):
    """The floors of the first client, as a line."""
    copies = {case["value_bytes"]: case["p50_us"] for case in cases if case["operation"] == "COPY"}
    wake_up = next(case for case in cases if case["operation"] == "WAKE-UP")
    words = ", ".join(f"{bytes} B {micros:.2f}" for bytes, micros in copies.items())
    return f"Floors, us: a copy of {words}; a wake-up {wake_up['p50_us']:.1f}, 99th percentile {wake_up['p99_us']:.1f}\n"


def latency_table(cases):
    cases = [case for case in cases if case["operation"] in ("SET", "GET")]
    sizes = sorted({case["value_bytes"] for case in cases})
    rows = {}
    for case in cases:
        row = rows.setdefault((case["client"], case["server"], case["transport"]), {})
        row[case["operation"], case["value_bytes"]] = f"{case['p50_us']:.2f}, {case['p99_us']:.1f}"
    heads = [(operation, size) for operation in ("SET", "GET") for size in sizes]
    lines = ["| client | server | transport | " + " | ".join(f"{operation} {size} B" for operation, size in heads) + " |",
             "|---" * (3 + len(heads)) + "|"]
    lines += ["| " + " | ".join([*name, *(row.get(head, "") for head in heads)]) + " |" for name, row in rows.items()]
    return "\n".join(lines) + "\n"


def rate_table(found):
    lines = ["| server | transport | SET/s | GET/s |", "|---|---|---|---|"]
    lines += [f"| {row['server']} | {row['transport']} | {row['sets']:,.0f} | {row['gets']:,.0f} |" for row in found]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default=os.path.join(ROOT, "target", "release", "situ"))
    parser.add_argument("--example", default=os.path.join(ROOT, "target", "release", "examples", "latency"))
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "paper-u2cache"))
    parser.add_argument("--directory", help="where the flash of a cache lies [default: a temporary folder]")
    parser.add_argument("--seconds", type=float, default=2, help="of a case of the Rust client, and of a rate")
    args = parser.parse_args()
    if not args.seconds > 0:
        parser.error("--seconds must be above 0")
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        servers = Servers(args.situ, directory)
        try:
            cases = [*rust_cases(args.example, servers.places, args.seconds), *java_cases(servers.places)]
            found = list(rates(args.situ, servers.places, directory, max(1, round(args.seconds))))
            overlap = overlap_cases(servers.places)
            link = link_table(copies(args.example, servers.places, args.seconds))
        finally:
            servers.end()
        flash = list(flash_cases(args.situ, directory, max(1, round(args.seconds))))
    for name, rows in (("latency.jsonl", cases), ("rates.jsonl", found), ("flash.jsonl", flash)):
        with open(os.path.join(args.out, name), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    tables = latency_table(cases) + "\n" + floors(cases) + "\n" + rate_table(found)
    with open(os.path.join(args.out, "tables.md"), "w", encoding="utf-8") as file:
        file.write(tables)
    for operation in ("SET", "GET"):
        of = [case for case in cases if case["operation"] == operation]
        sizes = [f"{size} B" for size in sorted({case["value_bytes"] for case in of})]
        values = {size: {} for size in sizes}
        for *which, name in SHOWN:
            for case in of:
                if [case["client"], case["server"], case["transport"]] == which:
                    values[f"{case['value_bytes']} B"][name] = (case["p50_us"], case["p50_us"], case["p99_us"])
        names = [name for *_, name in SHOWN if any(name in row for row in values.values())]
        drawing = svg.bars(f"{operation}: median, and a line to the 99th percentile", "us", sizes, names, values)
        with open(os.path.join(args.out, f"{operation.lower()}.svg"), "w", encoding="utf-8") as file:
            file.write(drawing)
    print(tables, end="")
    if overlap:
        write_overlap(overlap, args.out)
    for name, table in (("link-model.md", link), ("flash.md", flash_table(flash))):
        with open(os.path.join(args.out, name), "w", encoding="utf-8") as file:
            file.write(table)
        print(table, end="")
    print("results, tables and plots:", args.out)


if __name__ == "__main__":
    main()
