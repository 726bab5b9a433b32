#!/bin/bash
# What space costs in writes: trimming of a value log off, by discarding, and in full (docs/evidence/trimming.md).
#
#   scripts/trimming.sh OUT [quick | all | zram | full-size]
#
# Writes OUT/accounting.md and OUT/trimming.svg: a log in memory (/dev/shm, or TMPDIR), whose sectors are compressed by the program to
# count what a drive would take. As root, and where the kernel has zram, also OUT/zram.md: ext4 on a zram device, which tells what it
# really takes. `zram` does that alone. `quick` does a small part of the first. `full-size` writes OUT/full-size.md: few lines, with
# segments of 64 MiB. OUT/machine.txt says where it ran. PROFILE=test builds with less optimisation.
set -euo pipefail

usage() { sed -n '4,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 1 ] || usage
mkdir -p "$1"
out=$(realpath -- "$1")
what=${2:-all}
case $what in quick | all | zram | full-size) ;; *) usage ;; esac
cd "$(dirname "$0")/.."

profile=${PROFILE:-release}
cargo build --quiet --locked --profile "$profile" -p situ-values --example trimming
directory=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $profile in release) program=$directory/release ;; *) program=$directory/debug ;; esac
program=$program/examples/trimming

place=/dev/shm
[ -w "$place" ] || place=${TMPDIR:-/tmp}
work=$(mktemp -d "$place/situ-trimming.XXXXXX")
finish() {
  rm -rf -- "$work"
  [ ! -f "$out/testbed/testbed.env" ] || scripts/testbed.sh down "$out/testbed" >&2
  rmdir -- "$out/testbed" 2>/dev/null || true
}
trap finish EXIT

{
  date -u +%Y-%m-%d
  git rev-parse --short HEAD
  uname -r
  sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c
} >"$out/machine.txt"

run() {
  local name=$1
  shift
  "$program" "$@" >"$out/$name.md" 2>"$out/$name.log"
}

case $what in
quick) run accounting "$work" --quick && exit 0 ;;
full-size) run full-size "$work" --full-size && exit 0 ;;
all) run accounting "$work" --draw "$out/trimming.svg" ;;
esac

if [ "$(id -u)" != 0 ] || [ ! -e /sys/class/zram-control/hot_add ]; then
  echo "SKIPPED: the real device: it takes root and zram" >&2
  exit 0
fi
scripts/testbed.sh up "$out/testbed" 2048 >"$out/testbed.txt"
fast=$(sed -n 's/^FAST=//p' "$out/testbed.txt" | tr -d "'\"")
kind=$(sed -n 's/^FAST_KIND=//p' "$out/testbed.txt" | tr -d "'\"")
rm -f -- "$out/testbed.txt"
[ "$kind" = zram ] || { echo "SKIPPED: the real device: no zram device could be made ($kind)" >&2; exit 0; }
scripts/testbed.sh mount "$out/testbed" >&2
run zram "$out/testbed/fast-files" --short --drive "/sys/block/$(basename "$fast")"
