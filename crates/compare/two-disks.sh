#!/bin/bash
# The comparisons behind docs/evidence/two-disks.md: Situ and RocksDB on the same fast disk and the same capacity disk.
#   crates/compare/two-disks.sh OUTPUT [SET...]
# As root: the fast disk is zram, see scripts/testbed.sh. Nothing else should run on the machine.
# DIRECTORY (default: ./two-disks-data) lies on the capacity disk; FAST_MIB (default: 6144) is the size of the fast one,
# KEYS (default: 2m) how many records of 1 KB there are. REPEAT as in measure.sh.
# Sets: sync-1 sync-4 sync-16 sync-async ycsb-1 ycsb-4 ycsb-16 linkbench offered (default: all).
set -euo pipefail
all=(sync-1 sync-4 sync-16 sync-async ycsb-1 ycsb-4 ycsb-16 linkbench offered)
if [ $# -eq 0 ]; then sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; fi
output=$(realpath -m "$1"); shift
sets=("$@")
[ ${#sets[@]} -gt 0 ] || sets=("${all[@]}")
for set in "${sets[@]}"; do
  [[ " ${all[*]} " = *" $set "* ]] || { echo "no such set: $set; there are: ${all[*]}" >&2; exit 2; }
done
directory=$(realpath -m "${DIRECTORY:-two-disks-data}")
keys=${KEYS:-2m}
fast_mib=${FAST_MIB:-6144}
cd "$(dirname "${BASH_SOURCE[0]}")"
testbed=$(realpath ../../scripts/testbed.sh)
cargo build --release --locked
compare=$(cargo metadata --format-version 1 --no-deps | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)/release/compare
(cd ../.. && cargo build --release --locked -p situ-cli)
situ=$(cd ../.. && cargo metadata --format-version 1 --no-deps | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)/release/situ
mkdir -p "$output"
"$testbed" up "$directory" "$fast_mib" >"$output/testbed.txt"
trap '"$testbed" down "$directory"' EXIT
# shellcheck disable=SC1091
. "$directory/testbed.env"

# The same disk for both in turn: with ext4 for RocksDB, as it is for Situ.
prepare="if mountpoint -q '$directory/fast-files'; then '$testbed' unmount '$directory'; fi
blkdiscard -f '$FAST' 2>/dev/null || true
case \$STORE in
  situ) '$situ' disk format --force '$FAST' >/dev/null; mkdir -p '$directory/fast-files' ;;
  *) '$testbed' mount '$directory' >/dev/null ;;
esac"

run() {
  local set=$1; shift
  "$compare" --stores "${STORES:-rocksdb,situ}" --directory "$directory/capacity" --output "$output/$set" \
    --fast-disk "$FAST" --fast-files "$directory/fast-files" --fast-table-bytes $(((fast_mib - 2048) << 20)) \
    --prepare "$prepare" --keys "$keys" --value-bytes 1024 "$@" | tee "$output/$set.txt"
}

# Runs that are too short show the log, and nothing of compactions.
seconds=${SECONDS_EACH:-60}
for set in "${sets[@]}"; do
  case $set in
    sync-*[0-9]) run "$set" --repeat "${REPEAT:-3}" --threads "${set#sync-}" --sync --workloads fillrandom \
      --duration-seconds "$seconds" ;;
    # 8 clients with 50 requests outstanding each; RocksDB, which has none, with 40 threads.
    sync-async)
      STORES=situ run "$set-situ" --baseline situ --repeat "${REPEAT:-3}" --threads 8 --outstanding 50 --sync \
        --workloads fillrandom --duration-seconds "$seconds"
      STORES=rocksdb run "$set-rocksdb" --repeat "${REPEAT:-3}" --threads 40 --sync --workloads fillrandom \
        --duration-seconds "$seconds" ;;
    ycsb-*) run "$set" --repeat "${REPEAT:-3}" --threads "${set#ycsb-}" --sync --cache-bytes $((256 << 20)) \
      --workloads ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f --duration-seconds "$seconds" ;;
    linkbench) run "$set" --repeat "${REPEAT:-3}" --threads 16 --sync --cache-bytes $((256 << 20)) \
      --workloads linkbench-load,linkbench --duration-seconds "$seconds" ;;
    # The same load for both, which both can hold: latencies at a rate.
    offered) run "$set" --repeat "${REPEAT:-3}" --threads 4 --rate "${RATE:-10000}" --sync --workloads fillrandom \
      --duration-seconds "$seconds" ;;
  esac
done
