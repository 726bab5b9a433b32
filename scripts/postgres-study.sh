#!/bin/bash
# What a fill factor costs and brings in PostgreSQL, on a plain disk and on one that compresses.
#
#   scripts/postgres-study.sh run DIRECTORY OUTPUT [WORKLOAD...]   measure; raw results to OUTPUT/, the summary to OUTPUT/summary.txt
#   scripts/postgres-study.sh summary OUTPUT                       the summary of raw results, as tables of Markdown
#   scripts/postgres-study.sh selftest                             the summary of made-up results; needs no PostgreSQL
#
# WORKLOAD: pgbench (its own TPC-B-like script), once (rows inserted, later updated once; four indexes), tpcc (like TPC-C).
# Environment: ROUNDS=3, FILLFACTORS="100 90 75 50", CLIENTS=8, MEMORY_MIB=160, ZRAM_MIB=3072, PGBIN=the newest installed,
# FIRST_ROUND=1; PAUSE_FILE: while this file exists, the next run waits.
#
# Steps:
# 1. Two servers get a data directory and a tablespace each: under DIRECTORY, and on two zram devices with ext4 (root only;
#    without zram the plain disk is measured alone, and the script says so). Tables are in the tablespace, the log is not: so
#    the device below the tablespace counts the physical bytes of tables and indexes, and nothing else but ext4's own.
# 2. For each round, each workload, each fill factor and each disk in turn: load a database, measure its space, run a fixed number of
#    transactions, measure the space again. A run ends by count: each one leaves the same rows.
# 3. Each server lives in a memory control group of MEMORY_MIB, the page cache included, with 32 MB of shared buffers. The data
#    do not fit. Where there is no such group, the script says so, and memory has no bound.
# Everything else is PostgreSQL's default (synchronous commit, full page writes), but autovacuum looks every 5 s, not every minute.
# The script takes away all that it made, however it ends.
set -euo pipefail

here=$(dirname "$(realpath -- "${BASH_SOURCE[0]}")")
say() { echo "postgres-study: $*" >&2; }
die() { say "$*"; exit 1; }
usage() { sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

header=workload,round,disk,fillfactor,clients,transactions,seconds,tps,logical_loaded,physical_loaded,logical_after,physical_after,updates,hot_updates,log_bytes,load_average,when

# ---------------------------------------------------------------------------------------------------------------- summary

# Medians with the least and the greatest value; a ratio is to fill factor 100 on the same disk in the same round.
summarize() {
  awk -F, '
    function sorted(key, values,    n, i, j, t) {
      n = split(seen[key], values, " ")
      for (i = 2; i <= n; i++) for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) {
        t = values[j]; values[j] = values[j - 1]; values[j - 1] = t
      }
      return n
    }
    function spread(key, form,    n, values, middle) {
      n = sorted(key, values)
      if (n == 0) return "-"
      middle = n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
      return sprintf(form " (" form " to " form ")", middle, values[1], values[n])
    }
    function median(key, form,    n, values) {
      n = sorted(key, values)
      if (n == 0) return "-"
      return sprintf(form, n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2)
    }
    function add(key, value) { seen[key] = seen[key] " " value }
    FNR == 1 { next }
    {
      row = $1 "," $3 "," $4
      if (!(row in known)) { known[row] = 1; rows[++count] = row }
      tps[$1, $2, $3, $4] = $8; log_of[$1, $2, $3, $4] = $15 / $6
      rounds[$1, $2] = 1; round_of[++lines] = $2; row_of[lines] = row; work[lines] = $1; disk[lines] = $3; factor[lines] = $4
      add(row ",tps", $8); add(row ",lb", $9 / 1e6); add(row ",pb", $10 / 1e6); add(row ",la", $11 / 1e6)
      add(row ",pa", $12 / 1e6); add(row ",log", $15 / $6 / 1e3)
      if ($13 > 0) add(row ",hot", 100 * $14 / $13)
    }
    END {
      for (i = 1; i <= lines; i++) {
        base = tps[work[i], round_of[i], disk[i], 100]
        if (base > 0) add(row_of[i] ",ratio", tps[work[i], round_of[i], disk[i], factor[i]] / base)
      }
      for (i = 1; i <= count; i++) {
        split(rows[i], part, ",")
        if (part[1] != last) {
          printf "%s### %s\n\n", (last == "" ? "" : "\n"), part[1]
          print "| disk | fill factor | transactions/s | ratio to 100 | HOT, % | log, kB a transaction | logical MB, loaded | physical MB, loaded | logical MB, after | physical MB, after |"
          print "|---|---:|---|---|---:|---:|---:|---:|---:|---:|"
          last = part[1]
        }
        k = rows[i]
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", part[2], part[3], spread(k ",tps", "%.0f"), spread(k ",ratio", "%.2f"),
          median(k ",hot", "%.1f"), median(k ",log", "%.1f"), median(k ",lb", "%.1f"), median(k ",pb", "%.1f"),
          median(k ",la", "%.1f"), median(k ",pa", "%.1f")
      }
    }' <(echo "$header"; for file in "$@"; do tail -n +2 "$file"; done | sort -t, -s -k1,1 -k3,3 -k4,4nr -k2,2n)
}

selftest() {
  local raw found
  raw=$(mktemp)
  {
    echo "$header"
    echo once,1,plain,100,8,1000,10,100,2000000,2000000,3000000,3000000,100,50,4000000,1.0,x
    echo once,2,plain,100,8,1000,5,200,2000000,2000000,3000000,3000000,100,60,4000000,1.0,x
    echo once,1,plain,50,8,1000,5,150,4000000,4000000,4000000,4000000,100,100,2000000,1.0,x
    echo once,2,plain,50,8,1000,5,400,4000000,4000000,4000000,4000000,100,100,2000000,1.0,x
  } >"$raw"
  found=$(summarize "$raw")
  rm -f -- "$raw"
  [[ $found = *"| plain | 100 | 150 (100 to 200) | 1.00 (1.00 to 1.00) | 55.0 | 4.0 | 2.0 | 2.0 | 3.0 | 3.0 |"* \
    && $found = *"| plain | 50 | 275 (150 to 400) | 1.75 (1.50 to 2.00) | 100.0 | 2.0 | 4.0 | 4.0 | 4.0 | 4.0 |"* ]] \
    || die "the summary is wrong: $found"
  echo "postgres-study: the summary of made-up results is right"
}

# ------------------------------------------------------------------------------------------------------------------ disks

zram_devices=()
mounts=()
groups=()
started=()

# Makes a zram device of $1 MiB and sets `device`.
make_zram() {
  local number
  number=$(cat /sys/class/zram-control/hot_add) || die "the kernel gives no zram device"
  device=/dev/zram$number
  zram_devices+=("$number")
  { echo lz4 >"/sys/block/zram$number/comp_algorithm"; } 2>/dev/null || true
  echo "${1}M" >"/sys/block/zram$number/disksize"
  [ -b "$device" ] || mknod "$device" b "$(cut -d: -f1 "/sys/block/zram$number/dev")" "$(cut -d: -f2 "/sys/block/zram$number/dev")"
}

# ext4 on a new zram device, mounted at $1.
mount_zram() {
  make_zram "$ZRAM_MIB"
  mkdir -p -- "$1"
  mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$device"
  mount -o noatime "$device" "$1"
  mounts+=("$1")
}

clean_up() {
  trap - EXIT
  set +e
  local at number
  for at in "${started[@]}"; do as_server "$PGBIN/pg_ctl" -s -D "$at/data" -m immediate stop; done
  for at in "${mounts[@]}"; do umount "$at"; done
  for number in "${zram_devices[@]}"; do
    echo 1 >"/sys/block/zram$number/reset"
    rm -f -- "/dev/zram$number"
    echo "$number" >/sys/class/zram-control/hot_remove
  done
  for at in "${groups[@]}"; do rmdir "$at"; done
  rm -rf -- "$work"
}

# PostgreSQL does not run as root.
as_server() {
  if [ "$(id -u)" = 0 ]; then (cd / && runuser -u "$server_user" -- "$@"); else "$@"; fi
}

# ----------------------------------------------------------------------------------------------------------------- server

# Starts the server of disk $1 with its data in $work/$1/home and its tablespace in $work/$1/space, both there already.
start_server() {
  local disk=$1 at=$work/$1 group=/sys/fs/cgroup/memory/situ-postgres-study-$$-$1
  mkdir -p -- "$at/space/tables" "$at/home/data"
  [ "$(id -u)" != 0 ] || chown -R "$server_user" "$at/home" "$at/space"
  ln -sfn "$at/home/data" "$at/data"
  as_server "$PGBIN/initdb" -D "$at/home/data" -U postgres -A trust -E UTF8 --locale=C >/dev/null
  cat >>"$at/home/data/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$at/home/data'
shared_buffers = 32MB
max_wal_size = 1GB
autovacuum_naptime = 5s
logging_collector = off
END
  if [ "$(id -u)" = 0 ] && mkdir "$group" 2>/dev/null; then
    groups+=("$group")
    echo "${MEMORY_MIB}M" >"$group/memory.limit_in_bytes"
    (echo "$BASHPID" >"$group/cgroup.procs"; as_server "$PGBIN/pg_ctl" -s -w -D "$at/home/data" -l "$at/home/data/server.log" start)
  else
    say "no memory control group here: the page cache has no bound, and reads may not reach the disk"
    as_server "$PGBIN/pg_ctl" -s -w -D "$at/home/data" -l "$at/home/data/server.log" start
  fi
  started+=("$at")
  sql "$disk" postgres -c "CREATE TABLESPACE study LOCATION '$at/space/tables'"
}

sql() {
  local disk=$1 database=$2
  shift 2
  PGOPTIONS='-c client_min_messages=warning' as_server "$PGBIN/psql" -X -q -t -A -v ON_ERROR_STOP=1 -h "$work/$disk/data" -U postgres -d "$database" "$@"
}

# Lets everything reach the device, and gives free space back to a device that compresses.
settle() {
  sql "$1" postgres -c CHECKPOINT
  sync -f "$work/$1/space"
  [ "$1" = plain ] || fstrim "$work/$1/space"
}

# The bytes below the tablespace: allocated ones, or on zram those that LZ4 left (mm_stat's compr_data_size).
physical() {
  case $1 in
  plain) du -s -B1 "$work/plain/space" | cut -f1 ;;
  zram) awk '{ print $2 }' "/sys/block/$zram_space/mm_stat" ;;
  esac
}

logical() { sql "$1" study -c "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"; }

# ------------------------------------------------------------------------------------------------------------------- runs

load_tables() {
  local disk=$1 workload=$2 factor=$3
  case $workload in
  pgbench)
    as_server "$PGBIN/pgbench" -h "$work/$disk/data" -U postgres -i -q -s "$PGBENCH_SCALE" -F "$factor" study >/dev/null 2>&1
    ;;
  *)
    sql "$disk" study -v fillfactor="$factor" -v rows="$ONCE_ROWS" -v warehouses="$WAREHOUSES" -f "$scripts/$workload.load.sql" >/dev/null
    ;;
  esac
  sql "$disk" study -c 'VACUUM ANALYZE'
}

# Runs $4 transactions; prints their seconds and their rate.
transactions() {
  local disk=$1 workload=$2 clients=$CLIENTS each=$(($3 / CLIENTS)) what
  case $workload in
  pgbench) what=(-b tpcb-like) ;;
  once) what=(-f "$scripts/once.sql") ;;
  tpcc) what=(-D "warehouses=$WAREHOUSES" -f "$scripts/tpcc.new-order.sql@45" -f "$scripts/tpcc.payment.sql@43"
    -f "$scripts/tpcc.delivery.sql@40" -f "$scripts/tpcc.status.sql@4") ;;
  esac
  as_server "$PGBIN/pgbench" -h "$work/$disk/data" -U postgres -n -c "$clients" -j 2 -t "$each" --random-seed=7 "${what[@]}" study \
    >"$work/pgbench.out" 2>"$work/pgbench.err" || { cat "$work/pgbench.err" >&2; die "pgbench failed"; }
  awk '/^tps = / { print $3 }' "$work/pgbench.out"
}

measure() {
  local workload=$1 round=$2 disk=$3 factor=$4 count=$5 empty logical_loaded physical_loaded before tps stats
  while [ -n "${PAUSE_FILE:-}" ] && [ -e "$PAUSE_FILE" ]; do sleep 5; done
  sql "$disk" postgres -c 'DROP DATABASE IF EXISTS study'
  sql "$disk" postgres -c 'CREATE DATABASE study TABLESPACE study'
  settle "$disk"
  empty=$(physical "$disk")
  load_tables "$disk" "$workload" "$factor"
  settle "$disk"
  logical_loaded=$(logical "$disk") physical_loaded=$(($(physical "$disk") - empty))
  sql "$disk" study -c 'SELECT pg_stat_reset()' >/dev/null
  before=$(sql "$disk" study -c 'SELECT pg_current_wal_insert_lsn()')
  tps=$(transactions "$disk" "$workload" "$count")
  stats=$(sql "$disk" study -c "SELECT (pg_current_wal_insert_lsn() - '$before')::bigint")
  # The server counts at the end of its processes, and a second later at most.
  sleep 1.5
  sql "$disk" study -c "SELECT json_build_object('workload', '$workload', 'round', $round, 'disk', '$disk', 'fillfactor', $factor,
      'tables', json_agg(row_to_json(t) ORDER BY t.relname)) FROM (SELECT s.relname, c.reltuples::bigint, pg_relation_size(c.oid) AS heap_bytes,
      pg_indexes_size(c.oid) AS index_bytes,
      s.n_tup_ins, s.n_tup_upd, s.n_tup_hot_upd, s.n_live_tup, s.n_dead_tup, s.autovacuum_count FROM pg_stat_user_tables s
      JOIN pg_class c ON c.oid = s.relid) t" >>"$output/tables.jsonl"
  settle "$disk"
  echo "$workload,$round,$disk,$factor,$CLIENTS,$count,$(awk -v n="$count" -v tps="$tps" 'BEGIN { printf "%.2f", n / tps }'),$tps,$logical_loaded,$physical_loaded,$(
    logical "$disk"),$(($(physical "$disk") - empty)),$(
    sql "$disk" study -F, -c 'SELECT sum(n_tup_upd), sum(n_tup_hot_upd) FROM pg_stat_user_tables'),$stats,$(
    cut -d' ' -f1 /proc/loadavg),$(date -u +%FT%TZ)" | tee -a "$output/runs.csv"
}

run() {
  local disk disks=(plain) round factor workload workloads
  [ $# -ge 2 ] || usage
  # Another process may rest in the caller's folder: the tables of others are never touched.
  mkdir -p -- "$1" "$2"
  output=$(realpath -- "$2")
  work=$(mktemp -d -- "$(realpath -- "$1")/postgres-study.XXXXXX")
  chmod 755 "$work"
  shift 2
  workloads=("$@")
  [ ${#workloads[@]} -gt 0 ] || workloads=(pgbench once tpcc)
  trap clean_up EXIT
  trap 'exit 1' HUP INT TERM
  for workload in "${workloads[@]}"; do
    [[ " pgbench once tpcc " = *" $workload "* ]] || die "no such workload: $workload; there are: pgbench once tpcc"
  done
  [ -x "$PGBIN/initdb" ] || die "no PostgreSQL: there is no $PGBIN/initdb; set PGBIN, or: apt-get install postgresql"
  command -v sysbench >/dev/null || say "there is no sysbench here: the workload tpcc is like TPC-C, and made of pgbench's scripts"
  scripts=$work/scripts
  cp -r -- "$here/postgres-study" "$scripts"
  chmod -R a+rX "$scripts"
  mkdir -p -- "$work/plain/home" "$work/plain/space"
  as_server test -x "$work/plain" || die "the user $server_user cannot reach $work; name a DIRECTORY that everybody may pass through"
  start_server plain
  if [ "$(id -u)" = 0 ] && [ -r /sys/class/zram-control/hot_add ]; then
    mkdir -p -- "$work/zram"
    mount_zram "$work/zram/home"
    mount_zram "$work/zram/space"
    zram_space=${device#/dev/}
    start_server zram
    disks+=(zram)
  else
    say "SKIPPED: the disk that compresses: zram needs root and a kernel with zram"
  fi
  settings >"$output/settings.txt"
  [ -s "$output/runs.csv" ] || echo "$header" >"$output/runs.csv"
  for round in $(seq "$FIRST_ROUND" $((FIRST_ROUND + ROUNDS - 1))); do
    for workload in "${workloads[@]}"; do
      for factor in $FILLFACTORS; do
        for disk in "${disks[@]}"; do
          measure "$workload" "$round" "$disk" "$factor" "$(count_of "$workload")"
        done
      done
    done
  done
  summarize "$output/runs.csv" | tee "$output/summary.txt"
}

count_of() {
  case $1 in
  pgbench) echo "$PGBENCH_TRANSACTIONS" ;;
  once) echo "$ONCE_TRANSACTIONS" ;;
  tpcc) echo "$TPCC_TRANSACTIONS" ;;
  esac
}

settings() {
  echo "date: $(date -u +%FT%TZ)"
  echo "commit: $(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  echo "server: $("$PGBIN/postgres" --version)"
  echo "kernel: $(uname -r), processors: $(nproc), $(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)"
  echo "memory of each server, page cache included: $MEMORY_MIB MiB; shared_buffers 32MB; max_wal_size 1GB; autovacuum_naptime 5s"
  echo "clients: $CLIENTS; rounds: $ROUNDS; fill factors: $FILLFACTORS"
  echo "pgbench: scale $PGBENCH_SCALE, $PGBENCH_TRANSACTIONS transactions; once: $ONCE_ROWS rows, $ONCE_TRANSACTIONS transactions; tpcc: $WAREHOUSES warehouses, $TPCC_TRANSACTIONS transactions"
}

newest_server() { printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin | grep -v '\*' | sort -V | tail -n 1 || true; }

ROUNDS=${ROUNDS:-3}
FIRST_ROUND=${FIRST_ROUND:-1}
FILLFACTORS=${FILLFACTORS:-100 90 75 50}
CLIENTS=${CLIENTS:-8}
MEMORY_MIB=${MEMORY_MIB:-160}
ZRAM_MIB=${ZRAM_MIB:-3072}
PGBIN=${PGBIN:-$(newest_server)}
PGBENCH_SCALE=${PGBENCH_SCALE:-10}
PGBENCH_TRANSACTIONS=${PGBENCH_TRANSACTIONS:-40000}
ONCE_ROWS=${ONCE_ROWS:-400000}
ONCE_TRANSACTIONS=${ONCE_TRANSACTIONS:-40000}
WAREHOUSES=${WAREHOUSES:-2}
TPCC_TRANSACTIONS=${TPCC_TRANSACTIONS:-30000}
server_user=${SERVER_USER:-postgres}

case ${1:-} in
run)
  shift
  run "$@"
  ;;
summary)
  [ $# = 2 ] || usage
  summarize "$2/runs.csv"
  ;;
selftest) selftest ;;
*) usage ;;
esac
