#!/bin/bash
# Makes a small store of each kind with a program, and packs it with what it holds: for a release.
#
#     golden-stores.sh PROGRAM OUT_FOLDER
#
# A test of `cli` opens all stores in crates/cli/tests/stores, each folder of a version. So run this with the program
# of a release and OUT_FOLDER crates/cli/tests/stores/<version>, and commit the result. Stores of releases stay as
# they are.
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

pack() { # KIND FOLDERS...
  local kind=$1
  shift
  rm -f "$kind"/OPTIONS.toml
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --sparse -cf - "$@" | gzip -9n >"$out/$kind.tar.gz"
}

# Lines of a protocol to a server that runs on a Unix socket; it is killed or stopped afterwards.
with_server() { # SIGNAL INPUT OPTIONS...
  local signal=$1 input=$2 server
  shift 2
  rm -f clients
  "$program" serve --listen 127.0.0.1:0 --no-http --unix-socket clients "$@" >/dev/null 2>log &
  server=$!
  for _ in $(seq 200); do [ -S clients ] && break; sleep 0.05; done
  python3 - "$input" <<'P'
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect("clients")
client.sendall(open(sys.argv[1], "rb").read() + b"quit\r\n")
answers = b""
while piece := client.recv(65536):
    answers += piece
wrong = [line for line in answers.split(b"\r\n") if line not in (b"STORED", b"DELETED", b"TOUCHED", b"")]
assert not wrong, wrong
P
  kill -"$signal" "$server"
  wait "$server" || true
}

# Tables, tombstones, a range of keyspaces, and a log whose records are in no table.
python3 - <<'P' >entries
import json
for n in range(600):
    print(json.dumps({"key": "key%05d" % n, "value": "value %d " % n * (1 + n % 7)}))
P
"$program" load -d ordered entries 2>/dev/null >&2
"$program" load -d ordered -k people <(printf '{"key":"ada","value":"1815"}\n{"key":"grace","value":"1906"}\n') 2>/dev/null >&2
"$program" put -d ordered --hex 00ff61 fe00 >/dev/null
"$program" delete -d ordered key00017 >/dev/null
"$program" compact -d ordered >/dev/null
"$program" put -d ordered key00018 'in the log' >/dev/null
pack ordered ordered

# Items of a server, with flags, expiry times, long values in the value log, and some of it in the log alone: killed.
python3 - <<'P' >items
for n in range(120):
    value = b"%d;" % n * (2 + n * 12)
    print("set item%03d %d %d %d\r\n%s\r" % (n, n % 9, 2147483647 if n % 5 == 0 else 0, len(value), value.decode()))
for n in range(0, 120, 20):
    print("delete item%03d\r" % n)
P
with_server KILL items served --value-log --sync
pack served served

with_server KILL items hash --engine hash --sync
pack hash hash

mkdir fast
with_server TERM items two-disks --fast-disk fast
pack two-disks two-disks fast

# What they hold. The fast disk is where it was.
"$program" dump -d ordered -o "$out/ordered.default.jsonl.gz" --force >/dev/null
"$program" dump -d ordered -k people -o "$out/ordered.people.jsonl.gz" --force >/dev/null
for kind in served hash two-disks; do
  "$program" dump -d "$kind" -k items --stored -o "$out/$kind.items.jsonl.gz" --force >/dev/null
done
ls -l "$out"
