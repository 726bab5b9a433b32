#!/usr/bin/env python3
"""A new user's first day, from the release archive to a restored backup.

    make first-day

Each step prints a line. The first one that fails ends the script with exit code 1, and leaves the directory:

    install      the archive is unpacked, its checksum compared, and its systemd unit verified
    configure    a TOML file with users, TLS and limits passes `situ config check`
    serve        the server starts with it, and refuses who has no password or no TLS
    load         items arrive through TLS, and are read back
    look         the live page, /metrics, /healthz and `situ top` answer
    back up      a backup is made and verified while a client writes
    upgrade      a store of the first release opens, and has its entries
    restore      the backup becomes a store in an empty directory, which is served and compared

It needs openssl, and skips the check of the systemd unit aloud where there is no systemd-analyze.
"""

import argparse
import glob
import gzip
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ITEMS = 20_000
USER, PASSWORD = "ada", "not-a-good-password"


def check(holds, what):
    if not holds:
        raise AssertionError(what)


class Day:
    def __init__(self, at):
        self.at = at
        self.situ = None
        self.servers = []

    def path(self, *parts):
        return os.path.join(self.at, *parts)

    def run(self, *arguments, code=0):
        ran = subprocess.run([self.situ, *arguments], cwd=self.at, capture_output=True, text=True, check=False)
        check(ran.returncode == code, f"situ {' '.join(arguments)}: exit code {ran.returncode}: {ran.stderr.strip()}")
        return ran.stdout

    def serve(self, *arguments):
        with open(self.path("server.log"), "ab") as log:
            server = subprocess.Popen([self.situ, "serve", "--json", *arguments], cwd=self.at, stdout=subprocess.PIPE, stderr=log)
        self.servers.append(server)
        line = server.stdout.readline()
        check(line, f"the server ended with exit code {server.poll()}; see {self.path('server.log')}")
        listening = json.loads(line)
        return server, int(listening["addresses"][0].rsplit(":", 1)[1]), f"http://{listening['http']}"

    def stop(self, server):
        server.send_signal(signal.SIGTERM)
        check(server.wait(60) == 0, "the server ends with exit code 0")


class Client:
    """A client of the text protocol that speaks TLS, and checks the server's certificate."""

    def __init__(self, port, authority, password=PASSWORD):
        context = ssl.create_default_context(cafile=authority)
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=30), server_hostname="localhost")
        self.file = self.socket.makefile("rb")
        words = f"{USER} {password}"
        self.socket.sendall(f"set auth 0 0 {len(words)}\r\n{words}\r\n".encode())
        self.admitted = self.file.readline()

    def put(self, items):
        pairs = list(items)
        for begin in range(0, len(pairs), 500):
            piece = pairs[begin : begin + 500]
            self.socket.sendall(b"".join(f"set {key} 0 0 {len(value)}\r\n{value}\r\n".encode() for key, value in piece))
            for key, _ in piece:
                answer = self.file.readline()
                check(answer == b"STORED\r\n", f"{key}: {answer}")

    def get(self, keys):
        found, keys = {}, list(keys)
        for begin in range(0, len(keys), 100):
            self.socket.sendall(f"get {' '.join(keys[begin:begin + 100])}\r\n".encode())
            while (line := self.file.readline()) != b"END\r\n":
                words = line.split()
                check(words and words[0] == b"VALUE", f"answer {line}")
                found[words[1].decode()] = self.file.read(int(words[3])).decode()
                self.file.readline()
        return found


def install(day, program):
    command = [os.path.join(ROOT, "scripts", "release.sh"), *(["--program", program] if program else [])]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    check(made.returncode == 0, made.stderr)
    metadata = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"], cwd=ROOT, capture_output=True, check=True)
    archives = glob.glob(os.path.join(json.loads(metadata.stdout)["target_directory"], "release-archive", "situ-*.tar.gz"))
    archive = max(archives, key=os.path.getmtime)
    with open(archive, "rb") as file, open(archive + ".sha256", encoding="utf-8") as told:
        check(told.read().split()[0] == hashlib.sha256(file.read()).hexdigest(), "the checksum of the archive")
    with tarfile.open(archive) as packed:
        packed.extractall(day.at, filter="data")
    tree = glob.glob(day.path("situ-*"))[0]
    day.situ = os.path.join(tree, "bin", "situ")
    day.run("--version")
    if not shutil.which("systemd-analyze"):
        print("SKIPPED: the check of the systemd unit: there is no systemd-analyze")
        return
    with open(os.path.join(tree, "lib", "systemd", "system", "situ.service"), encoding="utf-8") as file:
        unit = file.read().replace("/usr/local/bin/situ", day.situ)
    with open(day.path("situ.service"), "w", encoding="utf-8") as file:
        file.write(unit)
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", day.path("situ.service")], capture_output=True, text=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if "situ.service" in line]
    check(not complaints, "\n".join(complaints))


def configure(day):
    certificate = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                   "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(certificate, cwd=day.at, capture_output=True, check=True)
    with open(day.path("users"), "w", encoding="utf-8") as file:
        file.write(f"{USER}:{PASSWORD}\n")
    os.chmod(day.path("users"), 0o600)
    config = {"directory": day.path("store"), "listen": ["127.0.0.1:0"], "http": "127.0.0.1:0", "memory": "64M", "auth-file": day.path("users"),
              "tls-cert": day.path("certificate.pem"), "tls-key": day.path("key.pem"), "keep-changes": "256M"}
    with open(day.path("situ.toml"), "w", encoding="utf-8") as file:
        file.write("[serve]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in config.items()))
    day.run("config", "check", day.path("situ.toml"))
    with open(day.path("wrong.toml"), "w", encoding="utf-8") as file:
        file.write('[serve]\nmemmory = "64M"\n')
    day.run("config", "check", day.path("wrong.toml"), code=2)


def refused(port, authority):
    """Checks that the server refuses clients without TLS, or without the password."""
    check(b"STORED" not in Client(port, authority, "guessed").admitted, "a wrong password is refused")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        plain.sendall(b"get a\r\n")
        try:
            answer = plain.recv(100)
        except ConnectionResetError:
            answer = b""
    check(b"END" not in answer, f"a client without TLS got {answer}")


def look(day, http):
    def page(path):
        with urllib.request.urlopen(http + path, timeout=30) as answer:
            return answer.read().decode()

    check("<!doctype html>" in page("/").lower(), "the live page")
    check("situ_" in page("/metrics"), "/metrics")
    page("/healthz")
    json.loads(page("/live.json"))
    day.run("top", "--help")


def back_up(day, client, items):
    """Makes a backup while a client writes items that no one compares."""
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            client.put([(f"later{number}", "x" * 100)])
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    day.run("backup", "create", "store", "-o", "backups")
    stop.set()
    writer.join()
    day.run("backup", "verify", "backups")
    client.put((key, "changed after the backup") for key in list(items)[:100])


def upgrade(day):
    stores = sorted(glob.glob(os.path.join(ROOT, "crates", "cli", "tests", "stores", "*")))
    with tarfile.open(os.path.join(stores[0], "ordered.tar.gz")) as packed:
        packed.extractall(day.at, filter="data")
    with gzip.open(os.path.join(stores[0], "ordered.default.jsonl.gz"), "rt", encoding="utf-8") as file:
        expected = sorted(file.read().splitlines())
    day.run("verify", "ordered")
    check(sorted(day.run("dump", "-d", "ordered").splitlines()) == expected, "the entries of the first release's store")
    day.run("put", "-d", "ordered", "new", "entry")
    check(day.run("get", "-d", "ordered", "new") == "entry\n", "an entry that was put into the first release's store")


def restore(day, items):
    day.run("backup", "restore", "backups", "-o", "restored")
    server, port, _ = day.serve("restored", "--config", day.path("situ.toml"))
    found = Client(port, day.path("certificate.pem")).get(items)
    check(found == items, f"{len(found)} of {len(items)} items of the backup are there, or differ")
    day.stop(server)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="a built program to pack [default: build one]")
    args = parser.parse_args()
    day = Day(tempfile.mkdtemp(prefix="situ-first-day-"))
    items = {f"item{number}": f"value {number} " * (number % 7 + 1) for number in range(ITEMS)}
    step = None
    try:
        step = "install"
        install(day, args.program)
        print("installed", day.run("--version").strip(), flush=True)
        step = "configure"
        configure(day)
        print("configured with users and TLS", flush=True)
        step = "serve"
        server, port, http = day.serve("--config", day.path("situ.toml"))
        refused(port, day.path("certificate.pem"))
        print("served, and refused who has no password or no TLS", flush=True)
        step = "load"
        client = Client(port, day.path("certificate.pem"))
        check(client.admitted == b"STORED\r\n", f"the password: {client.admitted}")
        client.put(items.items())
        check(client.get(items) == items, "the items")
        print(f"loaded {len(items)} items through TLS", flush=True)
        step = "look"
        look(day, http)
        print("looked at the live page, the metrics and the health", flush=True)
        step = "back up"
        back_up(day, client, items)
        print("backed up while a client wrote", flush=True)
        day.stop(server)
        step = "upgrade"
        upgrade(day)
        print("opened the store of the first release", flush=True)
        step = "restore"
        restore(day, items)
        print("restored the backup, and compared it", flush=True)
    except (AssertionError, OSError, ssl.SSLError, subprocess.SubprocessError) as error:
        sys.exit(f"{step}: {error}\nthe files are in {day.at}")
    finally:
        for server in day.servers:
            server.kill()
            server.wait()
    shutil.rmtree(day.at)


if __name__ == "__main__":
    main()
