#!/bin/bash
# A host and a node on one machine, to try compaction next to the data on: two network namespaces, a core each, a link between them
# with a speed, and a disk for the node with a speed.
#
#   scripts/testbed-node.sh up DIRECTORY [OPTION...]   make it; prints what it made, as shell assignments
#       --link 1g|10g|unlimited|MBIT   speed of the link, each way (default 1g; MBIT is a number of megabits a second)
#       --disk free|sata|R:W:IOPS   speed of the node's disk: as it is (default); a SATA drive, 500:450:80000; or MB/s and operations/s
#       --disk-gib GIB              size of the node's disk (default 20; takes the room that is used)
#       --cores HOST:NODE           the cores (default: the first two that this shell may use)
#       --host-memory MIB, --node-memory MIB   a bound on each side's memory, the page cache included (default: none)
#       --host-cpu PERCENT, --node-cpu PERCENT   how much of its core a side may use (default 100): a drive's processor is a slow one
#   scripts/testbed-node.sh exec host|node COMMAND...  run a command on one side
#   scripts/testbed-node.sh status                     what there is, as shell assignments, and what runs on it
#   scripts/testbed-node.sh counters                   bytes on the link, processor time, bytes of the node's disk: one line of JSON
#   scripts/testbed-node.sh verify [SECONDS]           sends for so long (default 3) each way, reads and writes the disk; prints MB/s
#   scripts/testbed-node.sh down                       end what runs there, and take everything away
#   scripts/testbed-node.sh selftest                   make one, look whether it does what is said here, take it away
#
# Linux and root. A machine has one of these at a time: a core each leaves no more room. `up` with the options of the one that is up
# does nothing. An `up` that fails leaves nothing behind, and `down` takes away what is left of anything.
#
# The link is a pair of veth devices, each with a token bucket (tc tbf) on what it sends. The bucket is as much slower as Ethernet is for
# the 24 bytes between two frames of 1514. What arrives is handled by the receiving side's core (RPS), as with two machines.
# The node's disk is ext4 on a loop device, mounted at DIRECTORY/node. The kernel holds the device back (cgroup v1's blkio, or v2's io),
# and its counters say what the medium moved. Below it lies the disk of DIRECTORY, without its page cache: no latency is
# added, and that disk has to be faster than the speed that is asked for. DIRECTORY/host is a plain directory.
# Work of the kernel that has no core of its own (write-back, the loop device) goes to the node's core while the testbed is up: the host of a
# drive does not do the drive's work.
set -euo pipefail

say() { echo "testbed-node: $*" >&2; }
die() { say "$*"; exit 1; }
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

me=$(realpath -- "${BASH_SOURCE[0]}")
state=/run/situ-testbed-node.env
cgroups=/sys/fs/cgroup
kernel_work=/sys/devices/virtual/workqueue/cpumask
host_ns=situ-host node_ns=situ-node
host_address=10.77.0.1 node_address=10.77.0.2
# Bytes that may leave at once, and how long a byte may wait for its turn.
burst=128kb wait=5ms

# What is missing to make a testbed here, in words; nothing if all is there.
missing() {
  [ "$(uname)" = Linux ] || { echo "this is not Linux"; return; }
  [ "$(id -u)" = 0 ] || { echo "network namespaces and mounts need root"; return; }
  local tool
  for tool in ip tc losetup mkfs.ext4 mountpoint taskset python3; do
    command -v "$tool" >/dev/null || { echo "there is no program '$tool'"; return; }
  done
  [ "$(nproc)" -ge 2 ] || { echo "a core each needs two cores, and this shell may use $(nproc)"; return; }
  [ -n "$(cgroup_kind)" ] || { echo "$cgroups has no controller for cores (cpuset) that can be written"; return; }
  probe_link || echo "the kernel makes no veth devices with a token bucket in network namespaces (CONFIG_VETH, CONFIG_NET_SCH_TBF)"
}

# Makes a pair of devices with a bucket, and takes it away again.
probe_link() {
  local name=situ-probe-$$ ok=
  ip netns add "$name" 2>/dev/null || return 1
  ip -n "$name" link add link0 type veth peer name link1 2>/dev/null \
    && tc -n "$name" qdisc replace dev link0 root tbf rate 1gbit burst $burst latency $wait 2>/dev/null && ok=1
  ip netns del "$name"
  [ -n "$ok" ]
}

# v1 or v2; nothing where neither has cpuset.
cgroup_kind() {
  if [ -f "$cgroups/cgroup.controllers" ]; then
    if grep -qw cpuset "$cgroups/cgroup.controllers" && [ -w "$cgroups/cgroup.subtree_control" ]; then echo v2; fi
  elif [ -w "$cgroups/cpuset/cpuset.cpus" ] && [ -f "$cgroups/cpuacct/cpuacct.usage" ]; then
    echo v1
  fi
  return 0
}

load() {
  [ -f "$state" ] || die "there is no testbed; make one with: $0 up DIRECTORY"
  # shellcheck disable=SC1090
  . "$state"
}

# Directories of the side $1 in the controllers.
groups_of() {
  case $CGROUPS in
  v1) local controller
    for controller in cpuset cpuacct cpu memory; do
      [ ! -d "$cgroups/$controller" ] || echo "$cgroups/$controller/situ-testbed-$1"
    done ;;
  v2) echo "$cgroups/situ-testbed-$1" ;;
  esac
}

# The side $1 gets the core $2, at most $3 MiB of memory (0 is no bound) and $4 percent of the core.
make_groups() {
  local group controller
  if [ "$CGROUPS" = v2 ]; then
    for controller in cpuset cpu memory io; do
      if grep -qw "$controller" "$cgroups/cgroup.controllers"; then echo "+$controller" >"$cgroups/cgroup.subtree_control"; fi
    done
  fi
  for group in $(groups_of "$1"); do mkdir -p -- "$group"; done
  # Not through a pipe into head: the pipe may break under the writer, which is an error here.
  group=$(groups_of "$1")
  group=${group%%$'\n'*}
  echo "$2" >"$group/cpuset.cpus"
  [ "$CGROUPS" = v2 ] || cat "$cgroups/cpuset/cpuset.effective_mems" >"$group/cpuset.mems"
  [ "$3" = 0 ] || bound "$1" memory memory.limit_in_bytes memory.max "$3M"
  [ "$4" = 100 ] || bound_core "$1" "$4"
}

# Writes $5 to the side $1's file in the controller $2: $3 of v1, or $4 of v2.
bound() {
  local file=$cgroups/situ-testbed-$1/$4
  [ "$CGROUPS" = v2 ] || file=$cgroups/$2/situ-testbed-$1/$3
  [ -f "$file" ] || die "the kernel cannot bound that here: there is no $file"
  echo "$5" >"$file"
}

# The side $1 may use $2 percent of its core: so many hundredths of each 10 ms.
bound_core() {
  if [ "$CGROUPS" = v1 ]; then bound "$1" cpu cpu.cfs_period_us '' 10000; fi
  case $CGROUPS in
  v1) bound "$1" cpu cpu.cfs_quota_us '' $((100 * $2)) ;;
  v2) bound "$1" '' '' cpu.max "$((100 * $2)) 10000" ;;
  esac
}

# One side's namespace: $1, with the address $2, whose arriving packets the core $3 handles.
make_side() {
  local queue
  ip -n "$1" link set lo up
  ip -n "$1" address add "$2/24" dev link0
  ip -n "$1" link set link0 up
  case $LINK in
  unlimited) tc -n "$1" qdisc replace dev link0 root pfifo limit 10000 ;;
  *) tc -n "$1" qdisc replace dev link0 root tbf rate $((LINK * 1000 * 1514 / 1538))kbit burst $burst latency $wait ;;
  esac
  for queue in $(ip netns exec "$1" sh -c 'echo /sys/class/net/link0/queues/rx-*'); do
    ip netns exec "$1" sh -c "printf '%x' $((1 << $3)) >$queue/rps_cpus"
  done
}

make_link() {
  ip netns add "$host_ns"
  ip netns add "$node_ns"
  ip link add link0 netns "$host_ns" type veth peer name link0 netns "$node_ns"
  make_side "$host_ns" "$host_address" "$HOST_CORE"
  make_side "$node_ns" "$node_address" "$NODE_CORE"
}

make_disk() {
  mkdir -p -- "$DIRECTORY/host" "$DIRECTORY/node"
  truncate -s "${DISK_GIB}G" -- "$DIRECTORY/node.disk"
  mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$DIRECTORY/node.disk"
  # Direct: its pages would be in memory twice, and reads of what the other copy has would not be held back.
  LOOP=$(losetup --find --show --direct-io=on "$DIRECTORY/node.disk")
  echo "LOOP=$LOOP" >>"$state"
  mount -o noatime "$LOOP" "$DIRECTORY/node"
  [ "$DISK" = free ] || hold_back "$LOOP" "$DISK"
}

# Lets the loop device $1 do no more than $2: megabytes read and written, and operations, a second each.
hold_back() {
  local number read write operations throttle=$cgroups/blkio/blkio.throttle
  number=$(cat "/sys/block/${1#/dev/}/dev")
  IFS=: read -r read write operations <<<"$2"
  case $CGROUPS in
  # The root's bound is the device's own: it holds back write-back, too, which v1 does on nobody's account.
  v1)
    [ -w "$throttle.write_bps_device" ] || die "the kernel cannot hold back a disk here: there is no $throttle.write_bps_device"
    echo "$number $((read * 1000000))" >"$throttle.read_bps_device"
    echo "$number $((write * 1000000))" >"$throttle.write_bps_device"
    echo "$number $operations" >"$throttle.read_iops_device"
    echo "$number $operations" >"$throttle.write_iops_device" ;;
  v2)
    [ -f "$cgroups/situ-testbed-node/io.max" ] || die "the kernel cannot hold back a disk here: there is no io.max"
    echo "$number rbps=$((read * 1000000)) wbps=$((write * 1000000)) riops=$operations wiops=$operations" \
      >"$cgroups/situ-testbed-node/io.max" ;;
  esac
}

# Ends everything that runs on the testbed.
end_processes() {
  local side signal pids
  for signal in TERM KILL; do
    pids=$(for side in "$host_ns" "$node_ns"; do ip netns pids "$side" 2>/dev/null || true; done)
    [ -n "$pids" ] || return 0
    say "ending what runs on the testbed (SIG$signal): $(echo $pids)"
    # shellcheck disable=SC2086
    kill -"$signal" $pids 2>/dev/null || true
    for _ in $(seq 50); do
      kill -0 $pids 2>/dev/null || break
      sleep 0.1
    done
  done
}

# Takes away whatever there is. Every step is right also where nothing was made.
take_away() {
  local side group loop
  end_processes
  for side in "$host_ns" "$node_ns"; do
    [ ! -e "/run/netns/$side" ] || ip netns del "$side"
  done
  if mountpoint -q "$DIRECTORY/node" 2>/dev/null; then umount "$DIRECTORY/node"; fi
  for loop in $(losetup --noheadings --output NAME --associated "$DIRECTORY/node.disk" 2>/dev/null); do
    if [ "$CGROUPS" = v1 ] && [ "$DISK" != free ]; then hold_back "$loop" 0:0:0; fi
    losetup --detach "$loop"
  done
  for side in host node; do
    for group in $(groups_of "$side"); do
      [ ! -d "$group" ] || rmdir -- "$group"
    done
  done
  [ -z "$KERNEL_WORK_BEFORE" ] || echo "$KERNEL_WORK_BEFORE" >"$kernel_work"
  rm -rf -- "$DIRECTORY/host" "$DIRECTORY/node.disk"
  [ ! -d "$DIRECTORY/node" ] || rmdir -- "$DIRECTORY/node"
  rmdir --ignore-fail-on-non-empty -- "$DIRECTORY" 2>/dev/null || true
  rm -f -- "$state"
}

undo() {
  trap - EXIT
  take_away
  say "nothing was made"
}

# The options of `up`, as shell assignments.
take_options() {
  LINK=1000 DISK=free DISK_GIB=20 cores='' HOST_MEMORY_MIB=0 NODE_MEMORY_MIB=0 HOST_CPU=100 NODE_CPU=100
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1 wants a value"
    case $1 in
    --link) LINK=$2 ;;
    --disk) DISK=$2 ;;
    --disk-gib) DISK_GIB=$2 ;;
    --cores) cores=$2 ;;
    --host-memory) HOST_MEMORY_MIB=$2 ;;
    --node-memory) NODE_MEMORY_MIB=$2 ;;
    --host-cpu) HOST_CPU=$2 ;;
    --node-cpu) NODE_CPU=$2 ;;
    *) die "there is no option $1; see: $0" ;;
    esac
    shift 2
  done
  case $LINK in 1g) LINK=1000 ;; 10g) LINK=10000 ;; esac
  [[ $LINK =~ ^(unlimited|[1-9][0-9]*)$ ]] || die "--link is 1g, 10g, unlimited or a number of megabits a second, not '$LINK'"
  [ "$DISK" != sata ] || DISK=500:450:80000
  [[ $DISK =~ ^(free|[1-9][0-9]*:[1-9][0-9]*:[1-9][0-9]*)$ ]] || die "--disk is free, sata or READ:WRITE:IOPS, not '$DISK'"
  [[ $DISK_GIB:$HOST_MEMORY_MIB:$NODE_MEMORY_MIB =~ ^[1-9][0-9]*:[0-9]+:[0-9]+$ ]] || die "sizes are whole numbers"
  [[ $HOST_CPU:$NODE_CPU =~ ^([1-9][0-9]?|100):([1-9][0-9]?|100)$ ]] || die "a share of a core is 1 to 100 percent"
  [ -n "$cores" ] || cores=$(first_two_cores)
  [[ $cores =~ ^([0-9]+):([0-9]+)$ ]] || die "--cores is HOST:NODE, not '$cores'"
  HOST_CORE=${BASH_REMATCH[1]} NODE_CORE=${BASH_REMATCH[2]}
  [ "$HOST_CORE" != "$NODE_CORE" ] || die "host and node want a core each, not both $HOST_CORE"
}

first_two_cores() {
  python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep=":")'
}

settings() {
  printf '%s=%q\n' DIRECTORY "$DIRECTORY" LINK "$LINK" DISK "$DISK" DISK_GIB "$DISK_GIB" HOST_CORE "$HOST_CORE" \
    NODE_CORE "$NODE_CORE" HOST_MEMORY_MIB "$HOST_MEMORY_MIB" NODE_MEMORY_MIB "$NODE_MEMORY_MIB" HOST_CPU "$HOST_CPU" \
    NODE_CPU "$NODE_CPU"
}

up() {
  local why
  DIRECTORY=$(realpath -m -- "$1")
  shift
  take_options "$@"
  if [ -f "$state" ]; then
    settings | while read -r line; do
      grep -qxF -- "$line" "$state" || die "another testbed is up ($(. "$state"; echo "$DIRECTORY"); not $line); take it away with: $0 down"
    done
    cat "$state"
    return
  fi
  why=$(missing)
  [ -z "$why" ] || die "no testbed can be made here: $why"
  [ ! -e "/run/netns/$host_ns" ] && [ ! -e "/run/netns/$node_ns" ] || die "somebody else has a namespace $host_ns or $node_ns"
  if [ -e "$DIRECTORY/node.disk" ] || [ -e "$DIRECTORY/node" ] || [ -e "$DIRECTORY/host" ]; then
    die "$DIRECTORY has a host, a node or a node.disk already; name another directory"
  fi
  make
}

make() {
  mkdir -p -- "$DIRECTORY"
  CGROUPS=$(cgroup_kind) LOOP='' KERNEL_WORK_BEFORE=''
  [ ! -w "$kernel_work" ] || KERNEL_WORK_BEFORE=$(cat "$kernel_work")
  {
    settings
    printf '%s=%q\n' CGROUPS "$CGROUPS" KERNEL_WORK_BEFORE "$KERNEL_WORK_BEFORE" HOST_NAMESPACE "$host_ns" NODE_NAMESPACE "$node_ns" \
      HOST_ADDRESS "$host_address" NODE_ADDRESS "$node_address" HOST_DIRECTORY "$DIRECTORY/host" NODE_DIRECTORY "$DIRECTORY/node"
  } >"$state"
  trap undo EXIT
  trap 'exit 1' HUP INT TERM
  make_groups host "$HOST_CORE" "$HOST_MEMORY_MIB" "$HOST_CPU"
  make_groups node "$NODE_CORE" "$NODE_MEMORY_MIB" "$NODE_CPU"
  make_link
  make_disk
  if [ -n "$KERNEL_WORK_BEFORE" ]; then
    printf '%x\n' $((1 << NODE_CORE)) >"$kernel_work"
  else
    say "work of the kernel stays on all cores: $kernel_work cannot be written"
  fi
  trap - EXIT HUP INT TERM
  cat "$state"
}

# Runs a command on the side $1.
run_on() {
  local side=$1 group namespace
  shift
  case $side in
  host) namespace=$host_ns ;;
  node) namespace=$node_ns ;;
  *) die "a command runs on 'host' or on 'node', not on '$side'" ;;
  esac
  [ $# -gt 0 ] || die "which command?"
  load
  for group in $(groups_of "$side"); do echo $$ >"$group/cgroup.procs"; done
  exec ip netns exec "$namespace" "$@"
}

status() {
  load
  cat "$state"
  local side namespace pids
  for side in host node; do
    namespace=situ-$side
    pids=$(ip netns pids "$namespace" | tr '\n' ' ')
    echo "# $side: processes: ${pids:-none}"
  done
}

# Seconds of processor time of the side $1's processes.
cpu_seconds() {
  case $CGROUPS in
  v1) awk '{ printf "%.3f", $1 / 1e9 }' "$cgroups/cpuacct/situ-testbed-$1/cpuacct.usage" ;;
  v2) awk '$1 == "usage_usec" { printf "%.3f", $2 / 1e6 }' "$cgroups/situ-testbed-$1/cpu.stat" ;;
  esac
}

# Seconds that the core $1 was at work, for whomever, and that another machine had it.
core_seconds() {
  awk -v core="cpu$1" '$1 == core { printf "\"core_busy_seconds\":%.2f,\"core_stolen_seconds\":%.2f", ($2+$3+$4+$7+$8)/100, $9/100 }' /proc/stat
}

sent_by() { tc -s -n "$1" qdisc show dev link0 | awk '$1 == "Sent" { print $2; exit }'; }

counters() {
  load
  local disk
  disk=$(awk '{ printf "\"reads\":%d,\"read_bytes\":%.0f,\"writes\":%d,\"written_bytes\":%.0f", $1, $3*512, $5, $7*512 }' \
    "/sys/block/${LOOP#/dev/}/stat")
  printf '{"uptime_seconds":%s,"link":{"host_to_node_bytes":%s,"node_to_host_bytes":%s},' \
    "$(cut -d' ' -f1 /proc/uptime)" "$(sent_by "$host_ns")" "$(sent_by "$node_ns")"
  printf '"host":{"cpu_seconds":%s,%s},' "$(cpu_seconds host)" "$(core_seconds "$HOST_CORE")"
  printf '"node":{"cpu_seconds":%s,%s,"disk":{%s}}}\n' "$(cpu_seconds node)" "$(core_seconds "$NODE_CORE")" "$disk"
}

# Sends from the side $1 to the side $2, whose address is $3, for $4 seconds; prints megabytes a second as the receiver saw them.
send() {
  "$me" exec "$2" python3 -c '
import socket, sys, time
server = socket.create_server((sys.argv[1], 7070))
server.settimeout(20)
peer = server.accept()[0]
peer.settimeout(20)
buffer, total, began = bytearray(1 << 18), 0, time.monotonic()
while got := peer.recv_into(buffer):
    total += got
print("%.1f" % (total / (time.monotonic() - began) / 1e6))' "$3" "$4" &
  local receiver=$!
  "$me" exec "$1" python3 -c '
import socket, sys, time
for attempt in range(100):
    try:
        peer = socket.create_connection((sys.argv[1], 7070), 20)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
end, block = time.monotonic() + float(sys.argv[2]), bytes(1 << 18)
while time.monotonic() < end:
    peer.sendall(block)' "$3" "$4"
  wait "$receiver"
}

# Megabytes a second that the node's disk writes and reads, without the page cache.
disk_speed() {
  local file=$NODE_DIRECTORY/speed.test megabytes=$1
  speed() { "$me" exec node dd "$@" bs=1M count="$megabytes" 2>&1 | awk '/copied/ { printf "%.0f", $1 / $(NF-3) / 1e6 }'; }
  printf 'DISK_WRITE_MB_S=%s\n' "$(LC_ALL=C speed if=/dev/zero of="$file" oflag=direct conv=fsync)"
  printf 'DISK_READ_MB_S=%s\n' "$(LC_ALL=C speed if="$file" of=/dev/null iflag=direct)"
  rm -f -- "$file"
}

verify() {
  load
  local seconds=${1:-3}
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || die "verify takes a number of seconds, not '$seconds'"
  printf 'LINK_HOST_TO_NODE_MB_S=%s\n' "$(send host node "$node_address" "$seconds")"
  printf 'LINK_NODE_TO_HOST_MB_S=%s\n' "$(send node host "$host_address" "$seconds")"
  disk_speed $((256 * seconds))
}

down() {
  [ -f "$state" ] || { say "there is no testbed"; return 0; }
  [ "$(id -u)" = 0 ] || die "namespaces and mounts are root's to take away"
  load
  take_away
}

# A testbed of our own does what the head of this file says.
selftest() {
  local why directory found
  if [ -f "$state" ]; then why="a testbed is up"; else why=$(missing); fi
  if [ -n "$why" ]; then
    echo "SKIPPED: the testbed of a host and a node: $why"
    return 0
  fi
  directory=$(mktemp -d)
  trap '"$me" down; rmdir -- "'"$directory"'" 2>/dev/null || true' EXIT
  "$me" up "$directory/bed" --link 200 --disk 100:50:5000 --disk-gib 2 --node-memory 512 --node-cpu 20 >/dev/null
  "$me" up "$directory/bed" --link 200 --disk 100:50:5000 --disk-gib 2 --node-memory 512 --node-cpu 20 >/dev/null || fail "a second up"
  ! "$me" up "$directory/bed" --link 10g 2>/dev/null || fail "an up with other options was taken"
  check_sides
  check_speeds
  "$me" down
  [ ! -e "$state" ] && [ ! -e "/run/netns/$host_ns" ] && [ ! -e "$directory/bed" ] || fail "down left something"
  [ -z "$(losetup --noheadings --output NAME --associated "$directory/bed/node.disk")" ] || fail "down left a loop device"
  "$me" down 2>/dev/null || fail "a second down"
  found=$("$me" exec host true 2>&1) && fail "a command ran on no testbed"
  [[ $found = *"there is no testbed"* ]] || fail "what is wrong was not said: $found"
  trap - EXIT
  rmdir -- "$directory"
  echo "testbed-node: selftest passed"
}

fail() { die "selftest: $*"; }

# A side has its core and its namespace, and both see each other.
check_sides() {
  load
  [ "$("$me" exec host nproc)" = 1 ] && [ "$("$me" exec node nproc)" = 1 ] || fail "a side has not one core"
  [ "$("$me" exec node python3 -c 'import os; print(*os.sched_getaffinity(0))')" = "$NODE_CORE" ] || fail "the node is on another core"
  [ "$("$me" exec host sh -c 'exit 7' >/dev/null; echo $?)" = 7 ] || fail "an exit status was lost"
  # A loop of a second is a fifth of a second of work.
  local spent
  spent=$("$me" exec node python3 -c '
import time
end = time.monotonic() + 1
while time.monotonic() < end: pass
print(int(time.process_time() * 100))')
  [ "$spent" -le 35 ] || fail "the node used $spent% of a core, of which it has 20"
}

# The bounds are bounds, and what moved was counted. A busy machine may be slower, and no machine may be faster.
check_speeds() {
  local before after speeds
  before=$("$me" counters)
  speeds=$("$me" verify 1)
  after=$("$me" counters)
  python3 - "$before" "$after" "$speeds" <<'PYTHON' || fail "$speeds"
import json, sys
before, after = json.loads(sys.argv[1]), json.loads(sys.argv[2])
speeds = {name: float(value) for name, value in (line.split("=") for line in sys.argv[3].split())}
for name, most in {"LINK_HOST_TO_NODE_MB_S": 26, "LINK_NODE_TO_HOST_MB_S": 26, "DISK_WRITE_MB_S": 55, "DISK_READ_MB_S": 110}.items():
    assert 0 < speeds[name] < most, (name, speeds[name], most)
for way in after["link"]:
    assert after["link"][way] - before["link"][way] > 1e6, way
disk = {name: after["node"]["disk"][name] - value for name, value in before["node"]["disk"].items()}
assert disk["written_bytes"] >= 256 << 20 and disk["read_bytes"] >= 256 << 20, disk
assert after["node"]["cpu_seconds"] > before["node"]["cpu_seconds"], (before, after)
PYTHON
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
up) [ $# -ge 1 ] || usage; up "$@" ;;
exec) [ $# -ge 2 ] || usage; run_on "$@" ;;
status) status ;;
counters) counters ;;
verify) verify "$@" ;;
down) down ;;
selftest) selftest ;;
*) usage ;;
esac
