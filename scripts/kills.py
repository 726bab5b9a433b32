#!/usr/bin/env python3
"""Kills a served store, and the commands that copy it, at random moments, and compares every copy with a model.

    make kills          200 kills; options: scripts/kills.py --help

A server has a store, and a client writes memcached items into it. A round does one of these, and kills the server or the command (SIGKILL)
after a random time:

    backup       `situ backup create` in the server. Then the server starts again, and a further backup is made and verified
    restore      `situ backup restore`. The command is run again, until it is not killed
    checkpoint   `situ checkpoint` in the server
    follow       `situ follow`, which keeps a copy up to date; in some rounds also the call that makes the copy

After each kill, the store has every write that the server acknowledged (the operating system survives, so these writes do, too). Each
restored backup, each checkpoint that was acknowledged, and the followed copy equal what the store held at their moment. A difference ends
the run with exit code 1, and leaves the directory.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = ["backup", "restore", "checkpoint", "follow"]
KEYS = 2000
BUSY = [b"another backup or prune works", b"another call makes it", b".copy.partial open already"]


class Different(Exception):
    pass


class Writer:
    """Puts items, and keeps what was acknowledged. The last put may have been carried out or not."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.model, self.doubtful = {}, {}
        self.port, self.runs, self.stop = None, threading.Event(), threading.Event()
        self.idle = threading.Event()
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self):
        while not self.stop.is_set():
            if not self.runs.is_set():
                self.idle.set()
                time.sleep(0.002)
                continue
            self.idle.clear()
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                    self.put_on(connection)
            except OSError:
                time.sleep(0.01)

    def put_on(self, connection):
        file = connection.makefile("rb")
        number = 0
        while self.runs.is_set():
            key = f"k{self.random.randrange(KEYS)}"
            number += 1
            is_delete = self.random.random() < 0.1
            value = None if is_delete else str(self.random.random()) * self.random.randrange(1, 60)
            self.doubtful[key] = value
            request = f"delete {key}\r\n" if is_delete else f"set {key} 0 0 {len(value)}\r\n{value}\r\n"
            connection.sendall(request.encode())
            answer = file.readline()
            if answer not in (b"STORED\r\n", b"DELETED\r\n", b"NOT_FOUND\r\n"):
                raise OSError(f"answer {answer}")
            self.model[key] = self.doubtful.pop(key)

    def pause(self):
        self.runs.clear()
        time.sleep(0.005)
        self.idle.wait(10)

    def settle(self, found):
        """Compares with what the store holds. A put without an answer may have been carried out."""
        for key, value in self.doubtful.items():
            if found.get(key) not in (value, self.model.get(key)):
                raise Different(f"{key}: found {found.get(key)!r}, and neither {value!r} nor {self.model.get(key)!r} was put")
            self.model[key] = found.get(key)
        self.doubtful.clear()
        expected = {key: value for key, value in self.model.items() if value is not None}
        check_equal(expected, found, "the store and the acknowledged writes")


def check_equal(expected, found, what):
    if expected != found:
        keys = [key for key in sorted(expected.keys() | found.keys()) if expected.get(key) != found.get(key)]
        one = keys[0]
        raise Different(f"{what} differ in {len(keys)} keys; {one}: expected {expected.get(one)!r}, found {found.get(one)!r}")


class Place:
    def __init__(self, args, directory):
        self.situ, self.at = args.situ, directory
        self.random = random.Random(args.seed)
        self.server = self.follower = None
        self.kills = collections.Counter()

    def path(self, name):
        return os.path.join(self.at, name)

    def run(self, *arguments):
        ran = subprocess.run([self.situ, *arguments], cwd=self.at, capture_output=True, check=False)
        # The server goes on for a moment with the command of a client that was killed.
        while any(text in ran.stderr for text in BUSY):
            time.sleep(0.02)
            ran = subprocess.run([self.situ, *arguments], cwd=self.at, capture_output=True, check=False)
        if ran.returncode:
            raise Different(f"situ {' '.join(arguments)}: exit code {ran.returncode}: {ran.stderr.decode().strip()}")
        return ran.stdout

    def start(self, *arguments):
        # A process group of its own, so that a kill takes the processes that it has started.
        return subprocess.Popen([self.situ, *arguments], cwd=self.at, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)

    def serve(self, writer):
        self.server = self.start("serve", "store", "--json", "--listen", "127.0.0.1:0", "--no-http", "--keep-changes", "512M")
        line = self.server.stdout.readline()
        if not line:
            raise Different(f"the server does not start: exit code {self.server.wait()}")
        writer.port = int(json.loads(line)["addresses"][0].rsplit(":", 1)[1])

    def kill(self, process, what):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.kills[what] += 1

    def items(self, store):
        """The items of a store, by key."""
        lines = self.run("dump", "--data", store, "--keyspace", "items").splitlines()
        return {record["key"]: record["value"] for record in map(json.loads, lines)}

    def remove(self, name):
        shutil.rmtree(self.path(name), ignore_errors=True)

    def kill_during(self, command, kind, writer):
        """Starts a command, and kills it or the server. Returns the process."""
        process = self.start(*command)
        time.sleep(self.random.random() ** 2 * self.longest(kind))
        if kind != "restore" and self.random.random() < 0.5:
            self.kill(self.server, f"server during {kind}")
            process.wait()
            writer.pause()
            self.serve(writer)
        elif process.poll() is None:
            self.kill(process, kind)
        else:
            process.wait()
        return process

    def longest(self, kind):
        return {"backup": 0.12, "restore": 0.12, "checkpoint": 0.06, "follow": 0.4, "first copy": 0.2}[kind]


def one_round(place, kind, writer, backups):
    writer.runs.set()
    time.sleep(0.05)
    if place.random.random() < 0.2:
        # The next copy is made while the writer runs.
        place.remove("copy")
        place.kill_during(["follow", "store", "copy", "--once"], "first copy", writer)
        writer.runs.set()
    done = None
    if kind == "backup":
        place.kill_during(["backup", "create", "store", "-o", "backups"], kind, writer)
    elif kind == "restore" and backups:
        number = place.random.choice(list(backups))
        place.remove("restored")
        # The last step makes a store of the directory.
        while not os.path.exists(os.path.join(place.path("restored"), "CURRENT")):
            code = place.kill_during(["backup", "restore", "backups", str(number), "-o", "restored"], kind, writer).returncode
            if code not in (0, -signal.SIGKILL):
                raise Different(f"a restore that was killed does not go on: exit code {code}")
        check_equal(backups[number], place.items("restored"), f"backup {number} and what was restored of it")
    elif kind == "checkpoint":
        place.remove("checkpoint")
        writer.pause()
        done = dict(place.items("store"))
        process = place.kill_during(["checkpoint", "store", "-o", "checkpoint"], kind, writer)
        if process.returncode == 0:
            check_equal(done, place.items("checkpoint"), "the store and its checkpoint")
            place.run("verify", "checkpoint")
    elif kind == "follow":
        place.kill_during(["follow", "store", "copy"], kind, writer)
    writer.pause()
    found = place.items("store")
    writer.settle(found)
    if kind == "backup":
        made = json.loads(place.run("--json", "backup", "create", "store", "-o", "backups"))
        backups[made["id"]] = found
        place.run("backup", "verify", "backups")
        for old in list(backups)[:-6]:
            place.run("backup", "prune", "backups", str(old))
            del backups[old]
    # Each restart and each backup ends a log file, and the store keeps seven for those who follow.
    place.run("follow", "store", "copy", "--once")
    check_equal(found, place.items("copy"), "the store and the copy that follows it")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default=os.path.join(ROOT, "target", "release", "situ"))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--directory", help="where the stores lie [default: a temporary folder]")
    args = parser.parse_args()
    args.situ = os.path.abspath(args.situ)
    directory = tempfile.mkdtemp(prefix="situ-kills-", dir=args.directory)
    place, writer, backups, rounds = Place(args, directory), Writer(args.seed), {}, collections.Counter()
    began, seed = time.monotonic(), args.seed
    try:
        place.serve(writer)
        while sum(place.kills.values()) < args.kills:
            kind = KINDS[sum(rounds.values()) % len(KINDS)]
            one_round(place, kind, writer, backups)
            rounds[kind] += 1
    except Different as difference:
        sys.exit(f"after {sum(rounds.values())} rounds (seed {seed}, {directory}): {difference}")
    finally:
        writer.stop.set()
        if place.server:
            place.server.kill()
    place.server.wait()
    place.run("verify", "store")
    shutil.rmtree(directory)
    print(f"{sum(place.kills.values())} kills in {sum(rounds.values())} rounds, {time.monotonic() - began:.0f} s, seed {seed}: every copy equals the model")
    for what, count in sorted(place.kills.items()):
        print(f"  {count:4} {what}")


if __name__ == "__main__":
    main()
