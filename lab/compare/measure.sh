#!/bin/bash
# The comparisons behind docs/evidence/rocksdb.md: raw results and a summary of each set go to OUTPUT/SET/.
#   lab/compare/measure.sh OUTPUT [SET...]
# Nothing else should run on the machine. DIRECTORY (default: ./compare-data) is where the stores lie; it needs 40 GB.
# REPEAT is how often each set is measured, STORES what is (default: rocksdb,situ). Sets: small-in-cache small-cold ycsb sync steady large-lz4 many (default: all).
set -euo pipefail
all=(small-in-cache small-cold ycsb sync steady large-lz4 many)
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
# shellcheck source=lab/compare/common.sh
. "$here/common.sh"
[ $# -gt 0 ] || usage
take_arguments "$@"
directory=$(realpath -m "${DIRECTORY:-compare-data}")
cd "$here"
compare=$(build_in .)/compare
mkdir -p "$output" "$directory"

run() {
  local set=$1
  shift
  compare_stores "$set" "$directory" "$@"
}

for set in "${sets[@]}"; do
  case $set in
    # 5 million entries of 116 bytes, no compression, everything fits into the block cache.
    small-in-cache) run "$set" --repeat "${REPEAT:-5}" --keys 5m --value-bytes 100 --cache-bytes $((1 << 30)) \
      --workloads fillrandom,wait,readrandom,readrandom,readseq,readreverse,overwrite ;;
    # The same with a cache of an eighth of the data.
    small-cold) run "$set" --repeat "${REPEAT:-5}" --keys 5m --value-bytes 100 --cache-bytes $((64 << 20)) \
      --workloads fillseq,fillrandom,compact,readrandom,seekrandom,readwhilewriting --duration-seconds 20 ;;
    # YCSB's records of 1140 bytes, in cache.
    ycsb) run "$set" --repeat "${REPEAT:-5}" --keys 1m --cache-bytes $((2 << 30)) --threads 2 \
      --workloads ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-f,ycsb-d,ycsb-e --duration-seconds 15 ;;
    # Every write synced, 16 writers.
    sync) run "$set" --repeat "${REPEAT:-5}" --keys 1m --value-bytes 100 --threads 16 --operations 5000 \
      --workloads fillsync ;;
    # Writes at a rate that both can hold: latency counted from when each was due.
    steady) run "$set" --repeat "${REPEAT:-5}" --keys 5m --value-bytes 100 --rate 100000 --workloads fillrandom,overwrite ;;
    # 5 million entries of 1 KB, LZ4, a cache much smaller than the data.
    large-lz4) run "$set" --repeat "${REPEAT:-3}" --keys 5m --value-bytes 1024 --compression lz4 \
      --workloads fillrandom,wait,readrandom,compact,readrandom --duration-seconds 30 ;;
    # 20 million entries; space before and after everything is compacted.
    many) run "$set" --repeat "${REPEAT:-3}" --keys 20m --value-bytes 100 --workloads fillrandom,compact ;;
  esac
done
rmdir "$directory" 2>/dev/null || true
