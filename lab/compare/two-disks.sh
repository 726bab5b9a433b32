#!/bin/bash
# The comparisons behind docs/evidence/two-disks.md: Situ and RocksDB on the same fast disk and the same capacity disk.
#   lab/compare/two-disks.sh OUTPUT [SET...]
# As root: the fast disk is zram, see scripts/testbed.sh. Nothing else should run on the machine.
# DIRECTORY (default: ./two-disks-data) lies on the capacity disk; FAST_MIB (default: 6144) is the size of the fast one,
# KEYS (default: 2m) how many records of 1 KB there are, SECONDS_EACH (default: 60) how long random puts take; what loads a store
# first does KEYS operations of each workload instead. REPEAT and STORES as in measure.sh.
#
# Sets (default: all):
#   sync-1 sync-4 sync-16   synced puts by so many threads
#   sync-async              the same with 8 x 50 requests outstanding; RocksDB, which has none, with 40 threads
#   ycsb-1 ycsb-4 ycsb-16   YCSB's workloads by so many threads
#   memory                  YCSB's workloads by 4 threads that have MEMORY_MIB (default: 1024) in all, the page cache included;
#                           CACHE_MIB (default: 640) of them are block cache
#   larger                  the same with twice as much data as the fast disk is large, beside a capacity disk that moves
#                           SLOW_MB_S (default: 200) each way; try it with FAST_MIB=3072, and with STORES=situ,situ-pinned:
#                           here placement has something to decide
#   hot                     reads alone, 80% of them of a fifth of the records that lie together, twice as much data as the fast disk is
#                           large and a slow capacity disk as in `larger`: what is read often has to find its way up. Try it with
#                           FAST_MIB=1024, MEMORY_MIB=512, CACHE_MIB=256 and STORES=situ,situ-pinned
#   linkbench               a social graph
#   offered                 RATE (default: 10000) synced puts a second: latencies at the same load
#   ablation                Situ and Situ without: the parallel log, the raw device, outstanding requests, placement
#   recovery                opening a store that was closed, and one that was killed with a full log
#   idle                    the processor's time that an open store takes which has nothing to do, and a server
#   topfs                   what the raw disk's own format costs
set -euo pipefail
all=(sync-1 sync-4 sync-16 sync-async ycsb-1 ycsb-4 ycsb-16 memory larger hot linkbench offered ablation recovery idle topfs)
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
# shellcheck source=lab/compare/common.sh
. "$here/common.sh"
[ $# -gt 0 ] || usage
take_arguments "$@"
directory=$(realpath -m "${DIRECTORY:-two-disks-data}")
keys=${KEYS:-2m}
fast_mib=${FAST_MIB:-6144}
testbed=$(realpath "$here/../../scripts/testbed.sh")
cd "$here"
compare=$(build_in .)/compare
situ=$(build_in ../.. -p situ-cli)/situ
mkdir -p "$output"
"$testbed" up "$directory" "$fast_mib" >"$output/testbed.txt"
trap '"$testbed" down "$directory"' EXIT
# shellcheck disable=SC1091
. "$directory/testbed.env"

# The same disk for all in turn: with ext4 for RocksDB and for Situ without its raw device, as it is for the others.
prepare="if mountpoint -q '$directory/fast-files'; then '$testbed' unmount '$directory'; fi
blkdiscard -f '$FAST' 2>/dev/null || true
case \$STORE in
  rocksdb | situ-file-system) '$testbed' mount '$directory' >/dev/null ;;
  *) '$situ' disk format --force '$FAST' >/dev/null; mkdir -p '$directory/fast-files' ;;
esac"
# RocksDB's tables may fill what ext4, four log files and the four that wait to be used again leave, and what level 0 and a
# compaction write beyond their targets: it stops for good where its disk is full.
kept_free_mib=$((fast_mib >= 4096 ? 1536 : fast_mib * 3 / 4))
two_disks=(--fast-disk "$FAST" --fast-files "$directory/fast-files" --fast-table-bytes $(((fast_mib - kept_free_mib) << 20)))

run() {
  local set=$1
  shift
  compare_stores "$set" "$directory/capacity" "${two_disks[@]}" --prepare "$prepare" --keys "$keys" --value-bytes 1024 "$@"
}

# "$@" in a control group that may have $1 MiB of memory, the page cache of its files included.
within_memory() {
  local mib=$1 group limit
  shift
  if [ -w /sys/fs/cgroup/memory ]; then
    group=/sys/fs/cgroup/memory/situ-compare limit=memory.limit_in_bytes
  elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
    group=/sys/fs/cgroup/situ-compare limit=memory.max
  else
    echo "memory: SKIPPED: the kernel has no memory controller here" >&2
    return 0
  fi
  mkdir -p "$group"
  echo $((mib << 20)) >"$group/$limit"
  (
    echo "$BASHPID" >"$group/cgroup.procs"
    "$@"
  )
  rmdir "$group" || true
}

# A program on the raw disk alone: what `situ` says goes to OUTPUT/$1.txt.
on_raw_disk() {
  local name=$1
  shift
  STORE=situ sh -c "$prepare"
  "$situ" "$@" --fast-disk "$FAST" >"$output/$name.txt" 2>&1
}

# Processor time of process $1 so far, in ticks of 10 ms.
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }

# What a server on both disks takes of a core while nobody asks it for anything, after some have.
idle_server() {
  local store=$directory/capacity/served port=${PORT:-21211} seconds=${IDLE_SECONDS:-30} pid before used
  STORE=situ sh -c "$prepare"
  "$situ" serve "$store" --listen "127.0.0.1:$port" --no-http --fast-disk "$FAST" --log-file "$output/idle-serve.log" &
  pid=$!
  # shellcheck disable=SC2064
  trap "kill $pid 2>/dev/null || true; wait $pid || true; '$testbed' down '$directory'" EXIT
  for _ in $(seq 100); do
    { exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null && break
    sleep 0.1
  done
  for number in $(seq 20000); do printf 'set key%s 0 0 10 noreply\r\n0123456789\r\n' "$number"; done >&3
  printf 'get key20000\r\nquit\r\n' >&3
  grep -q 0123456789 <&3 || { echo "idle: the server did not answer; see $output/idle-serve.log" >&2; return 1; }
  exec 3>&-
  # The last sample of the disks is a second after the last write.
  sleep 3
  before=$(ticks "$pid")
  sleep "$seconds"
  used=$(($(ticks "$pid") - before))
  awk -v used="$used" -v seconds="$seconds" 'BEGIN {
    printf "{ \"what\": \"situ serve --fast-disk\", \"seconds\": %s, \"cpu_seconds\": %.2f, \"core_percent\": %.3f }\n",
      seconds, used / 100, used / seconds }' | tee "$output/idle-serve.json"
  kill "$pid"
  wait "$pid" || true
  trap '"$testbed" down "$directory"' EXIT
  rm -rf "$store"
}

# Runs that are too short show the log, and nothing of compactions.
seconds=${SECONDS_EACH:-60}
for set in "${sets[@]}"; do
  case $set in
    sync-*[0-9]) run "$set" --repeat "${REPEAT:-3}" --threads "${set#sync-}" --sync --workloads fillrandom \
      --duration-seconds "$seconds" ;;
    sync-async)
      STORES=situ run "$set-situ" --baseline situ --repeat "${REPEAT:-3}" --threads 8 --outstanding 50 --sync \
        --workloads fillrandom --duration-seconds "$seconds"
      STORES=rocksdb run "$set-rocksdb" --repeat "${REPEAT:-3}" --threads 40 --sync --workloads fillrandom \
        --duration-seconds "$seconds" ;;
    # By number and not by time: who loads faster would otherwise read from more.
    ycsb-*) run "$set" --repeat "${REPEAT:-3}" --threads "${set#ycsb-}" --sync --cache-bytes $((256 << 20)) \
      --operations "$keys" --workloads ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-f,ycsb-d,ycsb-e ;;
    # A raw disk has no page cache, and its block cache may take what that would: the same memory for all, used as each can.
    memory) within_memory "${MEMORY_MIB:-1024}" run "$set" --repeat "${REPEAT:-3}" --threads 4 --sync \
      --cache-bytes $((${CACHE_MIB:-640} << 20)) --operations "$keys" \
      --workloads ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-f,ycsb-d,ycsb-e ;;
    # Also with bounded memory, or the page cache would be the third disk.
    larger)
      "$testbed" slow "$directory" "${SLOW_GIB:-$((fast_mib * 8 >> 10))}" "${SLOW_MB_S:-200}"
      keys=$((fast_mib * 2000)) within_memory "${MEMORY_MIB:-1024}" run "$set" --repeat "${REPEAT:-3}" --threads 4 --sync \
        --cache-bytes $((${CACHE_MIB:-640} << 20)) --operations "${LARGER_OPERATIONS:-1m}" --pinned-level 1 \
        --workloads ycsb-load,ycsb-a,ycsb-b,ycsb-c
      "$testbed" fast "$directory" ;;
    # Level 1 is pinned to the fast disk in situ-pinned, as placement would have it there at the end of the load.
    hot)
      "$testbed" slow "$directory" "${SLOW_GIB:-$((fast_mib * 8 >> 10))}" "${SLOW_MB_S:-200}"
      keys=$((fast_mib * 2000)) within_memory "${MEMORY_MIB:-1024}" run "$set" --repeat "${REPEAT:-3}" --threads 4 --sync \
        --cache-bytes $((${CACHE_MIB:-640} << 20)) --duration-seconds "$seconds" --pinned-level 1 --insert-order ordered \
        --distribution hotspot --workloads ycsb-load,wait,ycsb-c,ycsb-c,ycsb-c
      "$testbed" fast "$directory" ;;
    linkbench) run "$set" --repeat "${REPEAT:-3}" --threads 16 --sync --cache-bytes $((256 << 20)) \
      --operations "$keys" --workloads linkbench-load,linkbench ;;
    # The same load for both, which both can hold: latencies at a rate. Compare overwrite: in fillrandom RocksDB writes its first
    # log files, whose length changes with each write, and later it uses those again.
    offered) run "$set" --repeat "${REPEAT:-3}" --threads 4 --rate "${RATE:-10000}" --sync --workloads fillrandom,overwrite \
      --duration-seconds "$seconds" ;;
    # Blocking threads are 40, as many as RocksDB gets in sync-async. A pinned pointer has level 0 on the fast disk.
    ablation)
      without() {
        STORES=situ,situ-serial-log,situ-file-system,situ-blocking,situ-pinned run "$set-$1" --baseline situ \
          --repeat "${REPEAT:-3}" --threads 8 --outstanding 50 --blocking-threads 40 --pinned-level 1 --sync \
          --update-mapping whole --cache-bytes $((256 << 20)) "${@:2}"
      }
      without puts --workloads fillrandom --duration-seconds "$seconds"
      without ycsb --workloads ycsb-load,ycsb-a,ycsb-c --operations "$keys" ;;
    # A memtable of 256 MiB makes log files as long as they get; nothing of what fills them is in a table.
    recovery)
      "$compare" recovery --stores "${STORES:-rocksdb,situ}" --directory "$directory/capacity" --output "$output/$set" \
        "${two_disks[@]}" --prepare "$prepare" --before-open 'sync; echo 3 >/proc/sys/vm/drop_caches' \
        --repeat "${REPEAT:-3}" --keys "$keys" --memtable-bytes $((256 << 20)) | tee "$output/$set.txt" ;;
    idle)
      run "$set" --repeat "${REPEAT:-3}" --threads 4 --sync --workloads fillrandom,wait,idle \
        --duration-seconds "${IDLE_SECONDS:-30}"
      idle_server ;;
    topfs)
      on_raw_disk "$set-load" bench --workloads fillrandom,overwrite --keys "$keys" --value-bytes 1024 --threads 4 \
        --duration-seconds "$seconds" --keep --directory "$directory/capacity/topfs"
      "$situ" disk show "$FAST" --json >"$output/$set.json"
      "$situ" disk show "$FAST" --files | tee "$output/$set.txt"
      rm -rf "$directory/capacity/topfs" ;;
  esac
done
