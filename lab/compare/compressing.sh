#!/bin/bash
# The comparisons behind docs/evidence/hash.md: Situ's hash store and RocksDB on a drive that compresses, with the same memory.
#   lab/compare/compressing.sh OUTPUT [SET...]
# As root: the drive is zram (lz4), with ext4 on it for what needs files. Nothing else should run on the machine.
# DIRECTORY (default: ./compressing-data) gets the mount points. KEYS (default: 10m) is how many pairs of 16 and 400 bytes there are,
# OPERATIONS (default: 10m) how many requests a phase has, THREADS (default: 32) how many clients. STORE_MIB (default: 64) is the memory of
# a store, and CLIENTS_MIB (default: 48) that of the clients: what a run on an ordered map in memory takes with 1000 pairs. Both together, and the page cache, are
# within one limit of the system. REPEAT (default: 3) is how often each set is measured.
#
# Sets (default: all): uniform-half zipfian-half uniform-random zipfian-random growing grown
#   uniform, zipfian   how keys are drawn
#   half, random       values that compress to about a half, or not at all
#   growing, grown     the hash store alone, at RATE requests a second (default: 40000): its buckets double again and again, or there are
#                      enough of them from the beginning
# The stores: `rocksdb` on ext4 on the drive; `situ-hash` with its home on ext4 on such a drive, and its buckets on another one without
# a file system. Both drives are of the same kind. FILES=1 adds runs of the hash store with its buckets in a sparse file on ext4.
# PERF=1 samples what the processors do, 49 times a second, with `perf`: zram compresses on them, as a drive would by itself.
set -euo pipefail
all=(uniform-half zipfian-half uniform-random zipfian-random growing grown)
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
# shellcheck source=lab/compare/common.sh
. "$here/common.sh"
[ $# -gt 0 ] || usage
take_arguments "$@"
directory=$(realpath -m "${DIRECTORY:-compressing-data}")
keys=${KEYS:-10m}
drive_gib=${DRIVE_GIB:-32}
cd "$here"
compare=${COMPARE:-$(build_in .)/compare}
mkdir -p "$output" "$directory/files"

# Makes a zram drive of $1 GiB; prints its number.
make_drive() {
  local number
  number=$(cat /sys/class/zram-control/hot_add)
  echo lz4 >"/sys/block/zram$number/comp_algorithm"
  echo "${1}G" >"/sys/block/zram$number/disksize"
  [ -b "/dev/zram$number" ] || mknod "/dev/zram$number" b "$(cut -d: -f1 "/sys/block/zram$number/dev")" \
    "$(cut -d: -f2 "/sys/block/zram$number/dev")"
  echo "$number"
}

remove_drive() {
  echo 1 >"/sys/block/zram$1/reset"
  rm -f "/dev/zram$1"
  echo "$1" >/sys/class/zram-control/hot_remove
}

files=$(make_drive "$drive_gib")
blocks=$(make_drive "$drive_gib")
clean_up() {
  umount "$directory/files" 2>/dev/null || true
  remove_drive "$files"
  remove_drive "$blocks"
}
trap clean_up EXIT

# New drives for each run: both are emptied.
prepare="umount '$directory/files' 2>/dev/null || true
for number in $files $blocks; do
  echo 1 >/sys/block/zram\$number/reset
  echo lz4 >/sys/block/zram\$number/comp_algorithm
  echo ${drive_gib}G >/sys/block/zram\$number/disksize
done
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/zram$files
mount -o discard,noatime /dev/zram$files '$directory/files'"

# "$@" in a control group that may have $1 MiB of memory, the page cache of its files included.
within_memory() {
  local mib=$1 group=/sys/fs/cgroup/memory/situ-compare limit=memory.limit_in_bytes
  shift
  if ! [ -w /sys/fs/cgroup/memory ]; then
    group=/sys/fs/cgroup/situ-compare limit=memory.max
  fi
  mkdir -p "$group"
  echo $((mib << 20)) >"$group/$limit"
  (
    echo "$BASHPID" >"$group/cgroup.procs"
    "$@"
  )
  rmdir "$group" || true
}

# Both drives, every second: time, then of each the original, compressed and used bytes, and sectors read and written.
watch_drives() {
  while sleep 1; do
    for number in "$files" "$blocks"; do
      read -r original compressed used _ <"/sys/block/zram$number/mm_stat"
      read -r _ _ sectors_read _ _ _ sectors_written _ <"/sys/block/zram$number/stat"
      echo "$(date +%s) zram$number $original $compressed $used $sectors_read $sectors_written"
    done
  done
}

# Samples of the processors, until it is ended: per second how many in the drive's code, elsewhere in the kernel, and in programs.
sample_processors() {
  local samples
  samples=$(mktemp "$directory/perf.XXXXXX")
  perf record --quiet --event cpu-clock --all-cpus --freq 49 --clockid CLOCK_REALTIME --output "$samples" &
  trap "kill -INT $!" TERM
  wait $! || wait $! || true
  perf script --input "$samples" --fields comm,time,ip,sym 2>/dev/null | awk '
    match($0, / [0-9]+\.[0-9]+: /) && !/^ *swapper / {
      second = int(substr($0, RSTART + 1))
      split(substr($0, RSTART + RLENGTH), found, " ")
      kernel = found[1] ~ /^ffffffff/
      drive = kernel && found[2] ~ /^(zram|zs_|lz4|LZ4)/
      count[second, drive ? "drive" : kernel ? "kernel" : "programs"]++
      seconds[second]
    }
    END { for (second in seconds) print second, count[second, "drive"] + 0, count[second, "kernel"] + 0, count[second, "programs"] + 0 }
  ' | sort -n
  rm -f -- "$samples"
}

run() {
  local set=$1 stores=$2 watcher sampler=
  shift 2
  mkdir -p "$output"
  watch_drives >"$output/$set.drives.txt" &
  watcher=$!
  if [ "${PERF:-0}" = 1 ]; then
    sample_processors >"$output/$set.processors.txt" &
    sampler=$!
  fi
  # RocksDB: 2 memtables of 4 MiB, indexes and filters in a cache of 16 MiB, small compaction buffers, tables past the page cache. Its
  # threads take the rest. The hash store: 4 MiB of pending writes, and memtables and a cache of 2 MiB in its overflow store.
  STORES=$stores within_memory $((${STORE_MIB:-64} + ${CLIENTS_MIB:-48})) compare_stores "$set" "$directory/files/store" \
    --prepare "$prepare" --repeat "${REPEAT:-3}" --keys "$keys" --fields 1 --field-bytes 400 --zero-padding 12 \
    --update-mapping whole --threads "${THREADS:-32}" --operations "${OPERATIONS:-10m}" --read-percent 70 \
    --memtable-bytes $((4 << 20)) --memtables-max 2 --cache-bytes $((16 << 20)) --rocksdb-bounded --rocksdb-direct \
    --pending-bytes 4M --overflow-memory-bytes 2M "$@"
  kill "$watcher" $sampler
  wait "$watcher" $sampler 2>/dev/null || true
}

# Two heaps for all threads: with one for each, what a thread has freed stays with it.
export MALLOC_ARENA_MAX=2

# log2 of the buckets that hold all pairs: three and a third in each.
enough_bits() {
  local number=$(($(numfmt --from=si "${keys^^}") * 3 / 10)) bits=2
  while [ $((1 << bits)) -lt "$number" ]; do bits=$((bits + 1)); done
  echo "$bits"
}

for set in "${sets[@]}"; do
  arguments=()
  case $set in
    growing | grown)
      [ "$set" = growing ] || arguments+=(--base-bits "$(enough_bits)")
      run "$set" situ-hash "${arguments[@]}" --distribution uniform --compression-ratio 0.5 --rate "${RATE:-40000}" \
        --workloads ycsb-load,ycsb-d --buckets "/dev/zram$blocks"
      continue
      ;;
    uniform-*) arguments+=(--distribution uniform) ;;
    zipfian-*) arguments+=(--distribution zipfian) ;;
  esac
  case $set in
    *-half) arguments+=(--compression-ratio 0.5) ;;
    *-random) arguments+=(--compression-ratio 1.0) ;;
  esac
  arguments+=(--workloads ycsb-load,ycsb-mixed,ycsb-c)
  run "$set" "${STORES:-rocksdb,situ-hash}" "${arguments[@]}" --buckets "/dev/zram$blocks"
  if [ "${FILES:-0}" = 1 ]; then
    run "$set-files" situ-hash "${arguments[@]}"
  fi
done
