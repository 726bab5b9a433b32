#!/bin/bash
# What space costs in writes: trimming of a value log off, by discarding, and in full (docs/evidence/trimming.md).
#
#   scripts/trimming.sh OUT [quick]
#
# Writes OUT/accounting.md and OUT/trimming.svg: a log in memory (/dev/shm, or TMPDIR), whose sectors are compressed by the program to
# count what a drive would take. As root, and where the kernel has zram, also OUT/zram.md (ext4 on a zram device, which tells what it
# really takes) and OUT/full-size.md (segments of 64 MiB). `quick` does a small part of the first. OUT/machine.txt says where it ran.
# PROFILE=test builds without optimisation.
set -euo pipefail

usage() { sed -n '4,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 1 ] || usage
mkdir -p "$1"
out=$(realpath -- "$1")
quick=${2:-}
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

if [ "$quick" = quick ]; then
  "$program" "$work" --quick >"$out/accounting.md" 2>"$out/accounting.log"
  exit 0
fi
"$program" "$work" --draw "$out/trimming.svg" >"$out/accounting.md" 2>"$out/accounting.log"

if [ "$(id -u)" != 0 ] || [ ! -e /sys/class/zram-control/hot_add ]; then
  echo "SKIPPED: the real device: it takes root and zram" >&2
  exit 0
fi
scripts/testbed.sh up "$out/testbed" 6144 >"$out/testbed.txt"
fast=$(sed -n 's/^FAST=//p' "$out/testbed.txt" | tr -d "'\"")
kind=$(sed -n 's/^FAST_KIND=//p' "$out/testbed.txt" | tr -d "'\"")
rm -f -- "$out/testbed.txt"
[ "$kind" = zram ] || { echo "SKIPPED: the real device: no zram device could be made ($kind)" >&2; exit 0; }
scripts/testbed.sh mount "$out/testbed" >&2
mount -o remount,discard "$out/testbed/fast-files"
"$program" "$out/testbed/fast-files" --short --drive "/sys/block/$(basename "$fast")" >"$out/zram.md" 2>"$out/zram.log"
"$program" "$work" --full-size >"$out/full-size.md" 2>"$out/full-size.log"
