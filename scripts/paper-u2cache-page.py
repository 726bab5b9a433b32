#!/usr/bin/env python3
"""Repeats the web pages of U2cache's paper: Tomcat, a servlet, a database, and a cache between them.

    make paper-u2cache-page          five minutes; options: scripts/paper-u2cache-page.py --help

A page takes 200 queries of 20 B. `ab` asks for 1,000 pages, which share no query, in several rounds. The caches are none, stock memcached with
spymemcached, and Situ with spymemcached and with its Java client over TCP and shared memory. All are there at the same time, and are asked in
turns. Before that, the caches are filled. Each cache is asked for one value after the other, as in the paper, and for all values of a page at
once. The folder of results has a line of JSON for each turn, the table as Markdown, and plots of the distributions.
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.dont_write_bytecode = True
latency = importlib.import_module("paper-u2cache")

PAGES = 1000
QUERIES = 200
VALUE_BYTES = 20
# Pages with one query after the other that are not counted.
WARM_UP_PAGES = 200
WAYS = {"one": "one value after the other", "many": "all values of a page at once"}


class Database:
    """MariaDB with the values of all pages, in a folder of its own."""

    def __init__(self, programs, directory):
        data, path, port = os.path.join(directory, "data"), os.path.join(directory, "mariadb.sock"), latency.free_port()
        password = secrets.token_hex(16)
        root = ["--user=root"] if os.getuid() == 0 else []
        subprocess.run([programs["mariadb-install-db"], "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
                        "--skip-test-db", *root], check=True, stdout=subprocess.DEVNULL)
        # One statement a line. The server listens when all of them are done.
        statements = os.path.join(directory, "statements.sql")
        with open(os.open(statements, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write(f"""CREATE DATABASE page;
USE page;
CREATE TABLE item (id INT PRIMARY KEY, value VARCHAR({VALUE_BYTES}) CHARACTER SET ascii NOT NULL);
INSERT INTO item SELECT seq, LPAD(seq, {VALUE_BYTES}, '0') FROM seq_0_to_{PAGES * QUERIES - 1};
CREATE USER 'page'@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT SELECT ON item TO 'page'@'127.0.0.1';
""")
        self.url = f"jdbc:mariadb://127.0.0.1:{port}/page?user=page&password={password}"
        self.process = subprocess.Popen(
            [programs["mariadbd"], "--no-defaults", f"--datadir={data}", f"--socket={path}", f"--port={port}", "--bind-address=127.0.0.1",
             f"--pid-file={directory}/mariadb.pid", f"--init-file={statements}", "--skip-name-resolve", "--innodb-buffer-pool-size=256M", *root],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            latency.wait_for(path, self.process)
        except BaseException:
            self.end()
            raise

    def end(self):
        self.process.terminate()
        self.process.wait()


def programs():
    """The paths of the programs that the test needs, or `None` and a reason."""
    needs = {"ab": "apache2-utils", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"}
    found = {name: shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") for name in needs}
    missing = sorted({needs[name] for name, path in found.items() if not path})
    return (None, f"missing: Debian's {', '.join(missing)}") if missing else (found, None)


def ask(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
        return answer.read()


def measure(ab, port, path, pages, concurrency, directory):
    """One turn. Times are in ms; `percentiles` has those of 0 to 99."""
    table = os.path.join(directory, "ab.csv")
    said = subprocess.run([ab, "-q", "-n", str(pages), "-c", str(concurrency), "-e", table, f"http://127.0.0.1:{port}/{path}"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    if not re.search(rf"Complete requests: +{pages}\n", said) or not re.search(r"Failed requests: +0\n", said) or "Non-2xx" in said:
        sys.exit(f"pages of {path} have failed; the log of the web server has the cause:\n{said}")
    with open(table, encoding="utf-8") as file:
        percentiles = [float(line.split(",")[1]) for line in file.read().splitlines()[1:]]
    return {"mean_ms": float(re.search(r"Time per request: +([\d.]+) \[ms\] \(mean\)", said).group(1)),
            "pages_per_second": float(re.search(r"Requests per second: +([\d.]+)", said).group(1)), "percentiles": percentiles}


def same_pages(port, names):
    """Ends the run if two caches give different pages."""
    for page in (0, PAGES // 2, PAGES - 1):
        wanted = "".join(f"<li>{item:0{VALUE_BYTES}}</li>\n" for item in range(page * QUERIES, (page + 1) * QUERIES)).encode()
        for name in names:
            for way in WAYS:
                if wanted not in ask(port, f"{name}/{way}?page={page}"):
                    sys.exit(f"{name}/{way} gives a wrong page {page}")


def turns(ab, port, caches, concurrencies, rounds, directory):
    names = list(caches)
    for name in names:
        for way, pages in (("many", PAGES), ("one", WARM_UP_PAGES)):
            measure(ab, port, f"{name}/{way}", pages, 4, directory)
    same_pages(port, names)
    before = {(name, way): int(ask(port, f"{name}/{way}?queries")) for name in names for way in WAYS}
    for number in range(rounds):
        for concurrency in concurrencies:
            for way in WAYS:
                for name in names[number % len(names):] + names[:number % len(names)]:
                    found = measure(ab, port, f"{name}/{way}", PAGES // rounds, concurrency, directory)
                    print(f"round {number}, {name}/{way}, {concurrency} at a time: median {found['percentiles'][50]:.2f} ms", flush=True)
                    yield {"round": number, "cache": caches[name][0], "way": way, "concurrency": concurrency, **found}
    for (name, way), count in before.items():
        more = int(ask(port, f"{name}/{way}?queries")) - count
        if (more != 0) != (caches[name][1].startswith("none")):
            sys.exit(f"{name}/{way}: {more} values came from the database while the cache was measured")


def together(cases):
    """The percentiles, mean and rate of all turns of a case, which have equally many pages."""
    times = sorted(time for case in cases for time in case["percentiles"])
    return [times[len(times) * percent // 100] for percent in range(100)], statistics.mean(case["mean_ms"] for case in cases), \
        statistics.harmonic_mean(case["pages_per_second"] for case in cases)


def table(cases):
    groups = {}
    for case in cases:
        groups.setdefault((case["way"], case["concurrency"], case["cache"]), []).append(case)
    lines = ["| queries | pages at a time | cache | p50 ms | p90 ms | p99 ms | mean ms | pages/s |", "|---|---|---|---|---|---|---|---|"]
    for (way, concurrency, cache), of in sorted(groups.items(), key=lambda group: (list(WAYS).index(group[0][0]), group[0][1])):
        percentiles, mean, rate = together(of)
        times = " | ".join(f"{time:.2f}" for time in (percentiles[50], percentiles[90], percentiles[99], mean))
        lines.append(f"| {WAYS[way]} | {concurrency} | {cache} | {times} | {rate:,.0f} |")
    return "\n".join(lines) + "\n"


def draw(cases, way, concurrency):
    curves = {}
    for case in cases:
        if (case["way"], case["concurrency"]) == (way, concurrency):
            curves.setdefault(case["cache"], []).append(case)
    return latency.svg.lines(f"Time of a page, {WAYS[way]}", "ms", {name: list(enumerate(together(of)[0])) for name, of in curves.items()},
                             of="of the pages")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default=os.path.join(ROOT, "target", "release", "situ"))
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "paper-u2cache-page"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16], help="pages that ab asks for at a time")
    args = parser.parse_args()
    if args.rounds < 1 or PAGES % args.rounds:
        parser.error(f"--rounds must divide {PAGES} pages")
    if min(args.concurrency) < 1 or max(args.concurrency) > PAGES // args.rounds:
        parser.error(f"--concurrency must be between 1 and the {PAGES // args.rounds} pages of a round")
    found, why = programs()
    command, why = latency.java_command("page.PageServer") if found else (None, why)
    if not command:
        print("SKIPPED: the page test:", why)
        return
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
        database = Database(found, directory)
        ends.callback(database.end)
        servers = latency.Servers(args.situ, directory)
        ends.callback(servers.end)
        situ = servers.places["situ"]
        caches = {"none": ("no cache", "none:"), "situ-spymemcached": ("Situ, spymemcached", f"spymemcached:{situ['tcp']}"),
                  "situ-tcp": ("Situ, TCP", f"situ:{situ['tcp']}"), "situ-shared": ("Situ, shared memory", f"situ:{situ['unix']}")}
        if "memcached" in servers.places:
            caches["memcached"] = ("memcached, spymemcached", f"spymemcached:{servers.places['memcached']['tcp']}")
        log = os.path.join(args.out, "tomcat.log")
        with open(log, "w", encoding="utf-8") as file:
            web = subprocess.Popen([*command, database.url, *(f"{name}={address}" for name, (_, address) in caches.items())],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, cwd=directory)
        try:
            port = web.stdout.readline().strip()
            if not port:
                sys.exit(f"the web server has ended with code {web.wait()}: {log}")
            cases = []
            with open(os.path.join(args.out, "page.jsonl"), "w", encoding="utf-8") as file:
                for case in turns(found["ab"], port, caches, args.concurrency, args.rounds, directory):
                    cases.append(case)
                    print(json.dumps(case), file=file, flush=True)
        finally:
            web.stdin.close()
            web.wait()
    with open(os.path.join(args.out, "page.md"), "w", encoding="utf-8") as file:
        file.write(table(cases))
    for way in WAYS:
        with open(os.path.join(args.out, f"page-{way}.svg"), "w", encoding="utf-8") as file:
            file.write(draw(cases, way, args.concurrency[0]))
    print(table(cases), end="")
    print("results, table and plots:", args.out)


if __name__ == "__main__":
    main()
