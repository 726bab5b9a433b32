#!/usr/bin/env python3
"""Measures two builds of Situ in turns: an old commit, and the working tree as it is.

    make compare-builds OLD=<commit> [TURNS=5] [KEYS=1m] [VALUE=240] [DIRECTORY=target/compare-builds/data] [BEDS=one]

Both are built with `--release`, the old one in a git worktree under target/compare-builds. Then each turn runs the same set with
both, and the build that goes first changes from turn to turn:

    fillrandom, overwrite, readrandom, seekrandom, YCSB A      situ bench, with each build's own defaults
    server set, server get                                     situ serve with one thread; 50 connections with 16 requests each

That is the bed `one`. Others are measured where BEDS names them, as in BEDS=one,two,hash,node,cache: a second disk in a folder next to
the data, the hash store, a store on a node of the same build on this machine, and the cache. A bed leaves out what it cannot do.

The table has medians, the least and the greatest value, and the ratio of new to old within a turn. All results lie in a folder that the
last line names. A row is better or worse if all ratios of five turns or more lie on the same side of 1, and their median is 2% or more from it. Of 28 rows
of two equal builds, one or two are so by chance: run again what matters.

The client of the server is this program, which is slower than the server. So of the server, processor time and memory count most.
"""

import argparse
import datetime
import json
import os
import platform
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLACE = os.path.join(ROOT, "target", "compare-builds")
SETS = [("fillrandom,overwrite,readrandom,seekrandom", "--value-bytes"), ("ycsb-load,ycsb-a", None)]
BEDS = ("one", "two", "hash", "node", "cache")
CONNECTIONS, PIPELINED = 50, 16
PATIENCE_S = 60
# Fewer turns, or a smaller difference, say nothing.
TURNS_MIN, DIFFERENCE_MIN = 5, 0.02
# What is shown: figure, title, factor, whether more is better.
FIGURES = [
    ("operations_per_second", "operations/s", 1, True),
    ("cpu_us", "processor time an operation, us", 1, False),
    ("p999_us", "p99.9, us", 1, False),
    ("memory_mib", "memory, peak, MiB", 1, False),
]


def count(text):
    """A number as `situ bench` takes it: 100k, 5m."""
    factor = {"k": 10**3, "m": 10**6, "g": 10**9}.get(text[-1:].lower(), 1)
    return int(text[:-1] if factor > 1 else text) * factor


def run(command, **options):
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, **options)


def said(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def build(tree, name):
    """Builds `situ` and keeps the program. Each tree has a target folder: Cargo tells crates apart by their path in the workspace, which is the
    same in both, and takes a crate of one tree for that of the other if its sources are older than the build."""
    target = os.path.join(PLACE, "build-" + name)
    run(["cargo", "build", "--release", "--locked", "-p", "situ-cli"], cwd=tree, env={**os.environ, "CARGO_TARGET_DIR": target})
    program = os.path.join(PLACE, "situ-" + name)
    shutil.copy(os.path.join(target, "release", "situ"), program)
    return program


def build_both(old):
    commit = said(["git", "-C", ROOT, "rev-parse", "--verify", old + "^{commit}"])
    tree = os.path.join(PLACE, "tree")
    os.makedirs(PLACE, exist_ok=True)
    subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], stderr=subprocess.DEVNULL)
    shutil.rmtree(tree, ignore_errors=True)
    run(["git", "-C", ROOT, "worktree", "prune"])
    run(["git", "-C", ROOT, "worktree", "add", "--detach", "--force", tree, commit])
    try:
        programs = {"old": build(tree, "old"), "new": build(ROOT, "new")}
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree])
    names = {"old": commit[:12], "new": said(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"])}
    return programs, names


def measure_bed(bed, program, options, output):
    """The figures of one build on one bed, by workload."""
    directory, fast = options.directory, options.directory + "-fast"
    if bed == "cache":
        return serve(program, options, None, output, ["--engine", "cache"])
    if bed == "one":
        figures = bench(program, options, directory, output, ["--directory", directory])
        figures.update(serve(program, options, os.path.join(directory, "served"), output, []))
        return figures
    if bed == "two":
        return bench(program, options, directory, output, ["--directory", directory, "--fast-disk", fast])
    if bed == "hash":
        return bench(program, options, directory, output, ["--directory", directory, "--engine", "hash"])
    with open(f"{output}-node.log", "w") as log:
        node = Noded(program, directory, log)
    try:
        return bench(program, options, None, output, ["--capacity", f"node://127.0.0.1:{node.port}/bench"])
    finally:
        node.end()


def bench(program, options, directory, output, where):
    """The phases of the calls of `situ bench`, by workload."""
    phases = {}
    for workloads, value_option in SETS:
        if "hash" in where:
            workloads = workloads.replace(",seekrandom", "")
        command = [program, "bench", "--workloads", workloads, "--keys", str(options.keys)] + where
        if value_option:
            command += [value_option, str(options.value)]
        file = f"{output}-{workloads.split(',')[0]}.json"
        for old in filter(None, (directory, options.directory + "-fast")):
            shutil.rmtree(old, ignore_errors=True)
        run(command + ["--output", file], stdout=subprocess.DEVNULL)
        with open(file) as result:
            for phase in json.load(result)["phases"]:
                phases[phase["workload"]] = figures_of(phase)
    phases.pop("ycsb-load")
    return phases


def figures_of(phase):
    """What is shown of a phase. An older build may lack a figure."""
    cpu = [phase.get("cpu_user_seconds"), phase.get("cpu_system_seconds")]
    tails = [latency["p999_ns"] for latency in phase.get("latencies", [])]
    memory = phase.get("resident_bytes_peak")
    return {
        "operations_per_second": phase["operations_per_second"],
        "cpu_us": None if None in cpu else sum(cpu) * 1e6 / max(1, phase["operations"]),
        "p999_us": max(tails) / 1e3 if tails else None,
        "memory_mib": memory / 2**20 if memory else None,
    }


class Listener:
    """A process of one build that listens on a free port."""

    def __init__(self, program, command, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = free.getsockname()
        self.port = self.address[1]
        listen = "{}:{}".format(*self.address)
        self.process = subprocess.Popen(
            [program] + command + ["--listen", listen], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(self.address).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.end()
                    sys.exit(f"{program} {command[0]} does not answer on {listen}: exit code {self.process.returncode}")
                time.sleep(0.05)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Noded(Listener):
    """A node of its own, of one build."""

    def __init__(self, program, directory, log):
        shutil.rmtree(directory, ignore_errors=True)
        super().__init__(program, ["node", directory], log)


class Served(Listener):
    """A server of its own, of one build. A cache in memory has no directory."""

    def __init__(self, program, directory, log, more):
        if directory:
            shutil.rmtree(directory, ignore_errors=True)
            more = ["--data", directory] + more
        super().__init__(program, ["serve", "--no-http", "--threads", "1"] + more, log)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))

    def measure(self, requests, answer_bytes):
        """Sends all requests, batches of PIPELINED on CONNECTIONS. `answer_bytes` is the length of one answer."""
        batches = [b"".join(requests[at:at + PIPELINED]) for at in range(0, len(requests), PIPELINED)]
        sizes = [min(PIPELINED, len(requests) - at) * answer_bytes for at in range(0, len(requests), PIPELINED)]
        selector, left, latencies = selectors.DefaultSelector(), iter(zip(batches, sizes)), []
        cpu, begin = self.cpu_seconds(), time.monotonic()
        for _ in range(min(CONNECTIONS, len(batches))):
            connection = socket.create_connection(self.address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            batch, size = next(left)
            connection.sendall(batch)
            selector.register(connection, selectors.EVENT_READ, [size, time.monotonic()])
        while selector.get_map():
            ready = selector.select(PATIENCE_S)
            if not ready:
                sys.exit(f"the server has not answered for {PATIENCE_S} s")
            for key, _ in ready:
                received = key.fileobj.recv(1 << 16)
                key.data[0] -= len(received)
                if not received or key.data[0] < 0:
                    sys.exit(f"another answer than was expected: {received[-200:]!r}")
                if key.data[0] == 0:
                    latencies.append(time.monotonic() - key.data[1])
                    following = next(left, None)
                    if following is None:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                    else:
                        key.fileobj.sendall(following[0])
                        key.data[:] = [following[1], time.monotonic()]
        seconds = time.monotonic() - begin
        latencies.sort()
        return {
            "operations_per_second": len(requests) / seconds,
            "cpu_us": (self.cpu_seconds() - cpu) * 1e6 / len(requests),
            "p999_us": latencies[int(len(latencies) * 0.999)] * 1e6,
            "memory_mib": self.memory_mib(),
        }


def serve(program, options, directory, output, more):
    """Sets, in an order that visits all keys once, then gets in another one."""
    with open(f"{output}-server.log", "w") as log:
        served = Served(program, directory, log, more)
    try:
        # Any step that has no factor in common with the count visits all.
        step = next(step for step in range(options.keys * 2 // 3 | 1, 2 * options.keys + 3, 2) if gcd(step, options.keys) == 1)
        keys = [b"key%012d" % (number * step % options.keys) for number in range(options.keys)]
        value = os.urandom(options.value // 2) + b"v" * (options.value - options.value // 2)
        sets = served.measure([b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value) for key in keys], len("STORED\r\n"))
        answer = len(b"VALUE %s 0 %d\r\n\r\nEND\r\n" % (keys[0], len(value))) + len(value)
        gets = served.measure([b"get %s\r\n" % key for key in reversed(keys)], answer)
    finally:
        served.end()
    return {"server set": sets, "server get": gets}


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def table(turns, names):
    """The lines of the table. `turns` is a list of builds, each with the figures of its workloads."""
    lines = [f"old {names['old']}, new {names['new']}: median (least to greatest) of {len(turns)} turns; ratio within a turn, new : old", ""]
    for figure, title, factor, more_is_better in FIGURES:
        lines += [f"| {title} | old | new | new : old | |", "|---|---|---|---|---|"]
        for workload in turns[0]["old"]:
            pairs = [(turn["old"][workload][figure], turn["new"][workload][figure]) for turn in turns]
            if any(value is None for pair in pairs for value in pair):
                lines.append(f"| {workload} | | | not told by both builds | |")
                continue
            ratios = [new / old for old, new in pairs if old > 0]
            told = verdict(ratios, more_is_better)
            columns = [spread([pair[which] * factor for pair in pairs]) for which in (0, 1)]
            lines.append(f"| {workload} | {columns[0]} | {columns[1]} | {spread(ratios) if ratios else '-'} | {told} |")
        lines.append("")
    return lines


def verdict(ratios, more_is_better):
    """What ratios of new to old, one of each turn, say."""
    if len(ratios) < TURNS_MIN:
        return "too few turns"
    if min(ratios) <= 1 <= max(ratios) or abs(statistics.median(ratios) - 1) < DIFFERENCE_MIN:
        return "same"
    return "better" if (min(ratios) > 1) == more_is_better else "**worse**"


def spread(values):
    shown = lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{shown(statistics.median(values))} ({shown(min(values))} to {shown(max(values))})"


def measure(programs, names, options):
    results = os.path.join(PLACE, "results", datetime.datetime.now().strftime("%Y%m%d-%H%M%S"))
    os.makedirs(results)
    turns = []
    for turn in range(options.turns):
        figures = {}
        for name in ("old", "new") if turn % 2 == 0 else ("new", "old"):
            figures[name] = {}
            for bed in options.beds:
                output = os.path.join(results, f"{turn + 1}-{name}" if bed == "one" else f"{turn + 1}-{name}-{bed}")
                of_bed = measure_bed(bed, programs[name], options, output)
                figures[name].update({workload if bed == "one" else f"{bed}: {workload}": of_bed[workload] for workload in of_bed})
                for place in (options.directory, options.directory + "-fast"):
                    shutil.rmtree(place, ignore_errors=True)
        turns.append(figures)
        # What has been measured is kept if a later turn fails.
        told = {"names": names, "keys": options.keys, "value_bytes": options.value, "machine": platform.uname()._asdict(),
                "cores": os.cpu_count(), "turns": turns}
        with open(os.path.join(results, "turns.json"), "w") as file:
            json.dump(told, file, indent=1)
    lines = table(turns, names)
    with open(os.path.join(results, "table.md"), "w") as file:
        file.write("\n".join(lines))
    print("\n".join(lines))
    print(f"raw results: {os.path.relpath(results)}")


FAKE = """#!{python}
import json, os, socket, sys
arguments = sys.argv[1:]
option = lambda name: arguments[arguments.index(name) + 1]
if arguments[0] == "bench":
    phases = [{{"workload": workload, "operations": 10, "operations_per_second": {rate}, "cpu_user_seconds": 1e-5,
                "latencies": [{{"p999_ns": 5000}}, {{"p999_ns": 9000}}], "resident_bytes_peak": 2 << 20, **{more}}}
              for workload in option("--workloads").split(",")]
    json.dump({{"phases": phases}}, open(option("--output"), "w"))
    sys.exit()
if ("cache" in arguments) == ("--data" in arguments):
    sys.exit("a cache has no directory, and a store has one")
host, port = option("--listen").split(":")
import selectors
selector, items, rest = selectors.DefaultSelector(), {{}}, {{}}
listener = socket.create_server((host, int(port)), backlog=100)
selector.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            selector.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        connection = key.fileobj
        text = rest.pop(connection, b"") + connection.recv(1 << 16)
        if not text:
            selector.unregister(connection)
            connection.close()
            continue
        while b"\\r\\n" in text:
            line, behind = text.split(b"\\r\\n", 1)
            words = line.split()
            if words[0] == b"set":
                length = int(words[4])
                if len(behind) < length + 2:
                    break
                items[words[1]], text = behind[:length], behind[length + 2:]
                connection.sendall(b"STORED\\r\\n")
            else:
                value, text = items[words[1]], behind
                connection.sendall(b"VALUE %s 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (words[1], len(value), value))
        rest[connection] = text
"""


def selftest():
    """Two programs that only say what a build would say; the old one does not know of the system's processor time."""
    global PLACE
    with tempfile.TemporaryDirectory() as PLACE:
        programs = {}
        for name, rate, more in (("old", 100, {}), ("new", 50, {"cpu_system_seconds": 1e-5})):
            programs[name] = os.path.join(PLACE, name)
            with open(programs[name], "w") as file:
                file.write(FAKE.format(python=sys.executable, rate=rate, more=more))
            os.chmod(programs[name], 0o755)
        options = argparse.Namespace(keys=1000, value=241, turns=5, directory=os.path.join(PLACE, "data"), beds=["one", "hash", "cache"])
        said = sys.stdout
        try:
            with open(os.path.join(PLACE, "said"), "w") as sys.stdout:
                measure(programs, {"old": "0", "new": "1"}, options)
        finally:
            sys.stdout = said
        (results,) = os.listdir(os.path.join(PLACE, "results"))
        with open(os.path.join(PLACE, "results", results, "table.md")) as file:
            lines = file.read().split("\n")
        for expected in (
            "| fillrandom | 100 (100 to 100) | 50 (50 to 50) | 0.5 (0.5 to 0.5) | **worse** |",
            "| ycsb-a | | | not told by both builds | |",
            "| hash: overwrite | 100 (100 to 100) | 50 (50 to 50) | 0.5 (0.5 to 0.5) | **worse** |",
            "| seekrandom | 9 (9 to 9) | 9 (9 to 9) | 1 (1 to 1) | same |",
        ):
            assert expected in lines, (expected, lines)
        with open(os.path.join(PLACE, "results", results, "turns.json")) as file:
            turns = json.load(file)["turns"]
        assert [list(turn) for turn in turns] == [["old", "new"], ["new", "old"]] * 2 + [["old", "new"]]
        served = turns[2]["new"]["server get"]
        assert served["operations_per_second"] > 0 and served["memory_mib"] > 1, served
        assert turns[2]["new"]["cache: server set"]["operations_per_second"] > 0
        assert not os.path.exists(options.directory), "the data are removed"
    assert [verdict(ratios, True) for ratios in ([2] * 4, [1.01] * 5, [0.9, 1.2, 1.2, 1.2, 1.2], [1.1] * 5, [0.9] * 5)] == [
        "too few turns", "same", "same", "better", "**worse**"]
    assert (count("100k"), count("3"), spread([1, 2, 4])) == (100_000, 3, "2 (1 to 4)")
    print("scripts/compare-builds.py: the selftest has passed")


def main():
    if sys.argv[1:] == ["selftest"]:
        return selftest()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--keys", type=count, default=10**6)
    parser.add_argument("--value", type=int, default=240, help="bytes of a value; YCSB's records have 1000")
    parser.add_argument("--directory", default=os.path.join(PLACE, "data"), help="where the stores lie; what is there goes")
    parser.add_argument("--beds", type=lambda text: text.split(","), default=["one"], help=f"which of {','.join(BEDS)}")
    options = parser.parse_args()
    if not set(options.beds) <= set(BEDS):
        parser.error(f"the beds are {', '.join(BEDS)}")
    if options.turns < 1 or options.keys < 100 or options.value < 2:
        parser.error("at least 1 turn, 100 keys and values of 2 bytes")
    if os.path.isdir(options.directory) and os.listdir(options.directory):
        parser.error(f"{options.directory} is not empty, and what is there would go: name another folder")
    programs, names = build_both(options.old)
    measure(programs, names, options)


if __name__ == "__main__":
    main()
