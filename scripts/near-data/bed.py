"""Where runs happen: the testbed of a host and a node, or, dry, this machine alone.

A bed starts the node, gives the command that runs the bench on the host's side, and samples counters of both sides while the bench runs.
Counters are read from files of the kernel, at a cost of well under a millisecond; nothing is started for a sample.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTBED = os.path.join(HERE, "..", "testbed-node.sh")
NODE_PORT = 7170
# Seconds that a node may take to listen.
NODE_START_S = 20


class Failure(Exception):
    """What went wrong, for the one who runs this."""


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def core_seconds(core):
    """Seconds that a core was at work, for whomever; `None` is all cores."""
    name = "cpu" if core is None else f"cpu{core}"
    for line in read("/proc/stat").splitlines():
        fields = line.split()
        if fields and fields[0] == name:
            user, nice, system, _, _, irq, softirq, *_ = map(int, fields[1:])
            return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return None


def process_seconds(pid):
    """Processor time of a process."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if len(fields) > 12 else None


def link_bytes(pid, namespace):
    """(sent, received) by a network namespace that a process is in, its loopback left out. Nothing before the process is there, and nothing
    when it has ended."""
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat(namespace).st_ino:
            return None, None
    except OSError:
        return None, None
    sent = received = 0
    for line in read(f"/proc/{pid}/net/dev").splitlines()[2:]:
        name, _, fields = line.partition(":")
        if name.strip() != "lo":
            fields = fields.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return sent, received


def disk_bytes(device):
    """(read, written) by a block device."""
    fields = read(f"/sys/block/{device}/stat").split()
    return (int(fields[2]) * 512, int(fields[6]) * 512) if len(fields) > 6 else (None, None)


# Where files lie, and what the other machine does: the node owns the files; or it keeps none, and compacts those in a directory of the
# host, over the connection.
ARRANGEMENTS = ("node-owns", "node-computes")


class Testbed:
    """The host and the node of `scripts/testbed-node.sh`, which is up."""

    dry = False

    def __init__(self, situ, arrangement=ARRANGEMENTS[0]):
        self.situ = os.path.abspath(situ)
        self.arrangement = arrangement
        status = subprocess.run([TESTBED, "status"], capture_output=True, text=True)
        if status.returncode != 0:
            raise Failure(status.stderr.strip())
        lines = [line for line in status.stdout.splitlines() if not line.startswith("#")]
        self.settings = dict(line.split("=", 1) for line in lines)
        self.secret = os.path.join(self.settings["HOST_DIRECTORY"], "secret")
        self.node = None

    def describe(self):
        kept = ("LINK", "DISK", "HOST_CORE", "NODE_CORE", "HOST_MEMORY_MIB", "NODE_MEMORY_MIB", "HOST_CPU", "NODE_CPU",
                "CGROUPS")
        return {**{name.lower(): self.settings[name] for name in kept}, "arrangement": self.arrangement}

    def on(self, side, command):
        return [TESTBED, "exec", side, *command]

    def address(self):
        return f"{self.settings['NODE_ADDRESS']}:{NODE_PORT}"

    def node_command(self):
        """The one place that knows how a node is started."""
        kept = [self.node_data()] if self.arrangement == "node-owns" else ["--compute-only"]
        return [self.situ, "node", *kept, "--listen", self.address(), "--secret-file", self.secret]

    def bench_options(self):
        """The one place that knows how the bench is told of the node."""
        node = f"node://{self.address()}"
        told = ["--capacity", f"{node}/bench"] if self.arrangement == "node-owns" else ["--compute", node]
        return ["--directory", os.path.join(self.settings["HOST_DIRECTORY"], "bench"), *told, "--node-secret-file", self.secret]

    def needs(self):
        """Options of `situ bench` without which nothing is measured."""
        return ["--capacity", "--compaction"]

    def node_data(self):
        return os.path.join(self.settings["NODE_DIRECTORY"], "data")

    def start(self):
        """A node with nothing in it, and nothing of an earlier run in any cache."""
        self.clear()
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(os.urandom(24).hex() + "\n")
        os.makedirs(self.node_data())
        subprocess.run(["sync"], check=True)
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
        self.log = tempfile.TemporaryFile("w+")
        self.node = subprocess.Popen(self.on("node", self.node_command()), stdout=self.log, stderr=self.log)
        self.wait_until_it_listens()

    def wait_until_it_listens(self):
        end = time.monotonic() + NODE_START_S
        probe = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
        while time.monotonic() < end:
            if self.node.poll() is not None:
                raise Failure(f"the node ended at once: {self.told()}")
            command = self.on("host", [sys.executable, "-c", probe, *self.address().split(":")])
            listens = subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
            time.sleep(0.2)
            # A node that somebody else has left there listens, too, and this one ends.
            if listens and self.node.poll() is None:
                return
        raise Failure(f"the node does not listen on {self.address()} after {NODE_START_S} s: {self.told()}")

    def told(self):
        """The end of what the node has said."""
        self.log.seek(0)
        return self.log.read()[-2000:].strip() or "it said nothing"

    def stop(self):
        if self.node is None:
            return
        self.node.terminate()
        try:
            self.node.wait(30)
        except subprocess.TimeoutExpired:
            self.node.kill()
            self.node.wait()
        self.node = None
        self.clear()

    def clear(self):
        for directory in (self.node_data(), os.path.join(self.settings["HOST_DIRECTORY"], "bench")):
            shutil.rmtree(directory, ignore_errors=True)

    def cgroup_seconds(self, side):
        if self.settings["CGROUPS"] == "v1":
            nanoseconds = number(read(f"/sys/fs/cgroup/cpuacct/situ-testbed-{side}/cpuacct.usage"))
            return None if nanoseconds is None else nanoseconds / 1e9
        for line in read(f"/sys/fs/cgroup/situ-testbed-{side}/cpu.stat").splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
        return None

    def sample(self, pid):
        sent, received = link_bytes(pid, f"/run/netns/{self.settings['HOST_NAMESPACE']}")
        disk_read, disk_written = disk_bytes(self.settings["LOOP"].removeprefix("/dev/"))
        return {
            "host_core_s": core_seconds(self.settings["HOST_CORE"]), "node_core_s": core_seconds(self.settings["NODE_CORE"]),
            "host_cpu_s": self.cgroup_seconds("host"), "node_cpu_s": self.cgroup_seconds("node"),
            "host_to_node_bytes": sent, "node_to_host_bytes": received,
            "node_read_bytes": disk_read, "node_written_bytes": disk_written,
        }


class Dry:
    """No node: the store lies in a directory of this machine. To try the driver; its figures compare nothing."""

    dry = True

    def __init__(self, situ, directory):
        self.situ = os.path.abspath(situ)
        self.directory = os.path.join(os.path.abspath(directory), "bench")

    def describe(self):
        return {"dry": True}

    def on(self, side, command):
        return command

    def bench_options(self):
        return ["--directory", self.directory]

    def needs(self):
        return []

    def start(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    stop = start

    def sample(self, pid):
        return {"host_core_s": core_seconds(None), "host_cpu_s": process_seconds(pid)}
