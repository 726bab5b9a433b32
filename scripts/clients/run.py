#!/usr/bin/env python3
"""Runs stock memcached clients against Situ's three engines and against memcached, and writes what works.

    make clients          some ten minutes and the internet; options: scripts/clients/run.py --help

Steps:
1. Install the clients into a folder: from PyPI, npm, Go's proxy, Maven Central and RubyGems. Those of Debian are installed with apt-get if
   this runs as root. A client that cannot be installed is SKIPPED by name.
2. Start `situ serve` with each engine, and memcached if it is there, each on a free port and with an empty store.
3. For each client and each server: flush the server, and run the client's driver. The servers are driven at the same time.
4. Write `results.tsv`, with a line for each client and operation and how many connections each client made, and `table.md`.

A driver is called with CLIENT HOST PORT. It prints `client<TAB>VERSION<TAB>PROTOCOL`, and then for each operation of OPERATIONS, in this
order, `NAME<TAB>RESULT`. A result is `ok`, `not offered` or `failed: WHY`. It compares each answer of the client with what the client must
return. It stops if the first operation fails: the client cannot talk to the server.

The run fails if a text client differs between Situ and memcached, or if a client of the binary protocol is not refused by Situ.
"""

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DRIVER_S_MAX = 240

OPERATIONS = [
    "set", "get", "get missing", "types", "add", "add existing", "replace", "append", "prepend", "cas", "cas conflict", "incr", "decr",
    "delete", "delete missing", "many keys", "touch", "gat", "expiry", "900 KB", "over 1 MB", "after over 1 MB", "key of 250 bytes",
    "stats", "version", "1000 in a row", "two at once", "flush_all",
]  # fmt: skip
SITU = ["ordered", "hash", "cache"]


class Skip(Exception):
    pass


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Skip(f"{program} is missing")


def call(command, **options):
    """Runs a command of an installation. Its output matters only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        raise Skip(f"`{' '.join(command)}` ended with code {done.returncode}: {lines[-1]}")
    return done.stdout


def works(command, environment=None):
    try:
        return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def debian(*packages):
    """Installs packages of Debian."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Skip(f"not installed (Debian, Ubuntu: sudo apt-get install {' '.join(packages)})")
    call(["apt-get", "update", "-q"])
    call(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def driver(name):
    return os.path.join(HERE, name)


# An installation returns the command of the driver, without CLIENT HOST PORT, and the variables of its environment.


def python(folder):
    venv = os.path.join(folder, "python")
    interpreter = os.path.join(venv, "bin", "python")
    if not os.path.exists(interpreter):
        call([sys.executable, "-m", "venv", venv])
    call([interpreter, "-m", "pip", "install", "-q", "pymemcache", "pylibmc", "python-memcached", "aiomcache"])
    return [interpreter, driver("drive.py")], {}


def node(folder):
    need("node", "npm")
    prefix = os.path.join(folder, "node")
    os.makedirs(prefix, exist_ok=True)
    call(["npm", "install", "--silent", "--prefix", prefix, "memcached", "memjs"])
    return ["node", driver("drive.js")], {"NODE_PATH": os.path.join(prefix, "node_modules")}


def go(folder):
    need("go")
    module = os.path.join(folder, "go")
    os.makedirs(module, exist_ok=True)
    shutil.copy(driver("drive.go"), module)
    if not os.path.exists(os.path.join(module, "go.mod")):
        call(["go", "mod", "init", "drive"], cwd=module)
    call(["go", "get", "github.com/bradfitz/gomemcache@latest"], cwd=module)
    call(["go", "build", "-o", "drive", "."], cwd=module)
    return [os.path.join(module, "drive")], {}


def java(folder):
    need("mvn", "java", "javac")
    archives, classes = os.path.join(folder, "java", "archives"), os.path.join(folder, "java", "classes")
    os.makedirs(classes, exist_ok=True)
    call(["mvn", "-q", "-B", "-f", driver("pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={archives}"])
    call(["javac", "-d", classes, "-cp", os.path.join(archives, "*"), driver("Drive.java")])
    return ["java", "-cp", f"{archives}/*:{classes}", "Drive"], {}


def php(_):
    if not works(["php", "-r", "exit(extension_loaded('memcached') ? 0 : 1);"]):
        debian("php-cli", "php-memcached")
    return ["php", driver("drive.php")], {}


def perl(package, module):
    def install(_):
        if not works(["perl", f"-M{module}", "-e", "1"]):
            debian(package)
        return ["perl", driver("drive.pl")], {}

    return install


def dalli(version):
    def install(folder):
        if shutil.which("ruby") is None:
            debian("ruby")
        gems = os.path.join(folder, "ruby", version)
        environment = {"GEM_PATH": gems}
        if not works(["ruby", "-e", "require 'dalli'"], {**os.environ, **environment}):
            call(["gem", "install", "--no-document", "--install-dir", gems, "dalli", "--version", version])
        return ["ruby", driver("drive.rb")], environment

    return install


def libmemcached(folder):
    need("cc")
    program = os.path.join(folder, "drive-c")
    build = ["cc", "-O1", "-o", program, driver("drive.c"), "-lmemcached", "-lmemcachedutil", "-lpthread"]
    if not works(build):
        debian("libmemcached-dev")
        call(build)
    return [program], {}


DALLI_3, DALLI_4 = dalli("3.2.8"), dalli("4.3.3")

# The name in the table, the name for the driver, and the installation. dalli 5 needs Ruby 3.3.
CLIENTS = [
    ("pymemcache", "pymemcache", python),
    ("pylibmc", "pylibmc", python),
    ("pylibmc, binary", "pylibmc-binary", python),
    ("python-memcached", "python-memcached", python),
    ("aiomcache", "aiomcache", python),
    ("memcached (Node)", "memcached", node),
    ("memjs", "memjs", node),
    ("gomemcache", "gomemcache", go),
    ("spymemcached", "spymemcached", java),
    ("spymemcached, binary", "spymemcached-binary", java),
    ("xmemcached", "xmemcached", java),
    ("xmemcached, binary", "xmemcached-binary", java),
    ("PHP memcached", "php-memcached", php),
    ("PHP memcached, binary", "php-memcached-binary", php),
    ("dalli 4, meta", "dalli-meta", DALLI_4),
    ("dalli 4, binary", "dalli-binary", DALLI_4),
    ("dalli 3, meta", "dalli-meta", DALLI_3),
    ("Cache::Memcached::Fast", "Cache::Memcached::Fast", perl("libcache-memcached-fast-perl", "Cache::Memcached::Fast")),
    ("Cache::Memcached", "Cache::Memcached", perl("libcache-memcached-perl", "Cache::Memcached")),
    ("libmemcached", "libmemcached", libmemcached),
    ("libmemcached, binary", "libmemcached-binary", libmemcached),
]


class Server:
    """A server process, and a connection to it for its statistics."""

    def __init__(self, name, command, log):
        with socket.create_server(("127.0.0.1", 0)) as held:
            self.port = held.getsockname()[1]
        self.name = name
        self.log = log
        with open(log, "w") as output:
            self.process = subprocess.Popen(command(self.port), stdout=output, stderr=output)
        end = time.monotonic() + 60
        while True:
            try:
                self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
                break
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    sys.exit(f"{name} does not serve: {log}")
                time.sleep(0.05)
        self.lines = self.connection.makefile("rb")
        self.version = self.ask("version").removeprefix("VERSION ")

    def ask(self, command):
        self.connection.sendall(command.encode() + b"\r\n")
        return self.lines.readline().decode().strip()

    def connections(self):
        """Returns how many connections the server has accepted."""
        line, found = self.ask("stats"), None
        while line != "END":
            _, name, value = line.split(" ", 2)
            if name == "total_connections":
                found = int(value)
            line = self.lines.readline().decode().strip()
        return found

    def stop(self):
        self.process.terminate()
        self.process.wait()


def drive(server, command, environment, log):
    """Runs a driver. Returns the client's version, its protocol, the results by operation, and how many connections it made."""
    if server.ask("flush_all") != "OK":
        sys.exit(f"{server.name} does not flush")
    before = server.connections()
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DRIVER_S_MAX
        )
        output, errors, end = done.stdout, done.stderr, f"the driver ended with code {done.returncode}"
        ended = done.returncode == 0
    except subprocess.TimeoutExpired as late:
        output, errors, end, ended = late.stdout or b"", late.stderr or b"", f"the driver took more than {DRIVER_S_MAX} s", False
    with open(log, "wb") as file:
        file.write(output + errors)
    lines = [line.split("\t") for line in output.decode(errors="replace").splitlines()]
    if not lines or lines[0][0] != "client":
        raise Skip(f"{end}, and printed no version: {log}")
    _, version, protocol = lines[0]
    if [line[0] for line in lines[1:]] != OPERATIONS[: len(lines) - 1]:
        sys.exit(f"a driver does not follow the list of operations: {log}")
    results = {operation: result for operation, result in lines[1:]}
    stopped = results.get("set", "").startswith("failed")
    rest = OPERATIONS[len(results) :]
    if rest and not stopped:
        results[rest[0]] = f"failed: {end}"
    elif not ended:
        sys.exit(f"{end}, after its last operation: {log}")
    for operation in rest:
        results.setdefault(operation, "not run")
    return version, protocol, results, server.connections() - before


def cell(results):
    if results["set"].startswith("failed"):
        return "refused"
    offered = [result for result in results.values() if result != "not offered"]
    good = offered.count("ok")
    return f"all {good}" if good == len(offered) else f"{good} of {len(offered)}"


def notes(by_server):
    """Returns what is not offered, and what has failed where."""
    said = []
    none = [operation for server in by_server.values() for operation, result in server.items() if result == "not offered"]
    if none:
        said.append("not offered: " + ", ".join(operation for operation in OPERATIONS if operation in none))
    failures = {}
    for server, results in by_server.items():
        for operation, result in results.items():
            if result.startswith("failed") and operation != "set":
                failures.setdefault(operation, []).append(server)
    for operation, servers in failures.items():
        said.append(f"{operation} fails" + ("" if len(servers) == len(by_server) else f" on {', '.join(servers)}"))
    return "; ".join(said)


def differences(label, protocol, by_server):
    """Returns the reasons for which a client fails the run."""
    found = []
    for server in SITU:
        results = by_server[server]
        if protocol == "binary":
            if not results["set"].startswith("failed"):
                found.append(f"{label}: {server} does not refuse the binary protocol")
            continue
        for operation, result in results.items():
            wanted = by_server.get("memcached", {}).get(operation, "ok")
            if result.split(":")[0] != wanted.split(":")[0] and result != "not offered":
                found.append(f"{label}: {operation}: {server} {result}, memcached {wanted}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--situ", default=os.path.join(ROOT, "target", "release", "situ"), help="the program (default: %(default)s)")
    parser.add_argument("--folder", default=os.path.join(ROOT, "target", "clients"), help="for clients and results (default: %(default)s)")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"only these: {'; '.join(label for label, _, _ in CLIENTS)}")
    options = parser.parse_args()
    unknown = set(options.clients) - {label for label, _, _ in CLIENTS}
    if unknown:
        parser.error(f"there is no client {sorted(unknown)[0]!r}")
    if not os.path.exists(options.situ):
        parser.error(f"there is no {options.situ}: make build")
    logs, stores = os.path.join(options.folder, "logs"), os.path.join(options.folder, "stores")
    shutil.rmtree(stores, ignore_errors=True)
    os.makedirs(logs, exist_ok=True)
    os.makedirs(stores)

    installed, commands, skipped = {}, [], []
    for label, name, install in CLIENTS:
        if options.clients and label not in options.clients:
            continue
        try:
            if install not in installed:
                print(f"installing {label}", flush=True)
                try:
                    installed[install] = install(options.folder)
                except Skip as reason:
                    installed[install] = reason
            if isinstance(installed[install], Skip):
                raise installed[install]
            command, environment = installed[install]
            version = []
            if install is java:
                archives = os.listdir(os.path.join(options.folder, "java", "archives"))
                package = name.removesuffix("-binary")
                version = [next(file for file in archives if file.startswith(package))[len(package) + 1 : -len(".jar")]]
            commands.append((label, [*command, name, *version, "127.0.0.1"], environment))
        except Skip as reason:
            skipped.append(f"SKIPPED: {label}: {reason}")
            print(skipped[-1], flush=True)

    def situ(engine, *more):
        store = [] if engine == "cache" else [os.path.join(stores, engine)]
        kind = [] if engine == "ordered" else ["--engine", engine]
        return lambda port: [options.situ, "serve", *store, *kind, *more, "--listen", f"127.0.0.1:{port}", "--no-http"]

    wanted = [("ordered", situ("ordered")), ("hash", situ("hash")), ("cache", situ("cache", "--memory", "256M"))]
    if shutil.which("memcached"):
        user = ["-u", "root"] if os.geteuid() == 0 else []
        wanted.append(("memcached", lambda port: ["memcached", *user, "-l", "127.0.0.1", "-p", str(port), "-m", "256"]))
    else:
        skipped.append("SKIPPED: memcached: it is missing (Debian, Ubuntu: sudo apt-get install memcached)")
        print(skipped[-1], flush=True)

    found, failures = {}, []
    with contextlib.ExitStack() as stack:
        servers = []
        for name, command in wanted:
            servers.append(Server(name, command, os.path.join(logs, f"server-{name}.log")))
            stack.callback(servers[-1].stop)

        def work(server):
            for label, command, environment in commands:
                log = os.path.join(logs, f"{label.replace(' ', '-').replace(':', '')}-{server.name}.log")
                try:
                    found[label, server.name] = drive(server, [*command, str(server.port)], environment, log)
                except (Skip, SystemExit) as failure:
                    failures.append(f"{label} on {server.name}: {failure}")
                else:
                    print(f"{label} on {server.name}: {cell(found[label, server.name][2])}", flush=True)

        threads = [threading.Thread(target=work, args=(server,)) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        situ_version = call([options.situ, "--version"]).split()[-1]
        memcached_version = next((server.version for server in servers if server.name == "memcached"), "none")

    names = [name for name, _ in wanted]
    stamp = f"{time.strftime('%Y-%m-%d', time.gmtime())}, Situ {situ_version}, memcached {memcached_version}"
    with open(os.path.join(options.folder, "results.tsv"), "w") as raw, open(os.path.join(options.folder, "table.md"), "w") as table:
        print(f"# {stamp}", *(f"# {line}" for line in skipped), sep="\n", file=raw)
        print("client", "version", "protocol", "operation", *names, sep="\t", file=raw)
        print(f"{stamp}\n\n| client | version | protocol | {' | '.join(names)} | notes |", file=table)
        print("|---" * (4 + len(names)) + "|", file=table)
        for label, _, _ in commands:
            if any((label, name) not in found for name in names):
                continue
            version, protocol, _, _ = found[label, names[0]]
            by_server = {name: found[label, name][2] for name in names}
            for operation in OPERATIONS:
                print(label, version, protocol, operation, *(by_server[name][operation] for name in names), sep="\t", file=raw)
            print(label, version, protocol, "connections", *(found[label, name][3] for name in names), sep="\t", file=raw)
            cells = " | ".join(cell(by_server[name]) for name in names)
            print(f"| {label} | {version} | {protocol} | {cells} | {notes(by_server)} |", file=table)
            failures += differences(label, protocol, by_server)
        print(*(f"\n{line}" for line in skipped), sep="\n", file=table)
    with open(os.path.join(options.folder, "table.md")) as table:
        print(table.read())
    for failure in failures:
        print(f"DIFFERS: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
