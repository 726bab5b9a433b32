#!/bin/bash
# Two disks to try a hybrid store on, made of what the machine has, and taken away again.
#
#   scripts/testbed.sh up DIRECTORY [FAST_MIB]   make them (default 2048 MiB); prints what it made, as shell assignments
#   scripts/testbed.sh show DIRECTORY            print that again
#   scripts/testbed.sh mount DIRECTORY           ext4 on the fast disk, at DIRECTORY/fast-files, for stores that need files
#   scripts/testbed.sh unmount DIRECTORY         the raw disk again
#   scripts/testbed.sh slow DIRECTORY GIB MB_S   a capacity disk of GIB that moves at most MB_S megabytes a second each way
#   scripts/testbed.sh fast DIRECTORY            the capacity disk as it was before, with nothing on it
#   scripts/testbed.sh down DIRECTORY            take everything away, with all that lies on it
#
# FAST is a zram block device where there is zram and the caller is root: memory behind a block device, with writes of
# 4 to 9 us. It is no flash: it has no volatile cache, compresses, and is empty after a reboot. Otherwise FAST is a
# preallocated file on the file system of DIRECTORY: as fast as that disk, good for correctness and not for speed.
# CAPACITY is a directory on the file system of DIRECTORY, or after `slow` ext4 on a loop device there, which the kernel holds back
# (cgroup v1's blkio; its latency is that of the disk below). FAST_KIND says what FAST is; figures have to say it, too.
# Any number of them can be there at a time, each in a directory of its own. An `up` that fails leaves nothing behind.
set -euo pipefail

say() { echo "testbed: $*" >&2; }
die() { say "$*"; exit 1; }

usage() { sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

[ $# -ge 2 ] || usage
verb=$1
directory=$(realpath -m -- "$2")
state=$directory/testbed.env

zram_control=/sys/class/zram-control

# Makes a zram device of $1 MiB; prints its path. Fails without a word, and leaves none, where that cannot be done.
make_zram() {
  [ "$(id -u)" = 0 ] && [ -w "$zram_control/hot_remove" ] || return 1
  local number
  # The kernel gives each caller a number of its own.
  number=$(cat "$zram_control/hot_add" 2>/dev/null) || return 1
  # The fastest codec: the disk is there to be fast. Random bytes stay as they are, at a page each.
  { echo lz4 >"/sys/block/zram$number/comp_algorithm"; } 2>/dev/null || true
  # In a container the node may not appear by itself.
  if ! { echo "${1}M" >"/sys/block/zram$number/disksize"; } 2>/dev/null \
    || ! { [ -b "/dev/zram$number" ] || mknod "/dev/zram$number" b "$(cut -d: -f1 "/sys/block/zram$number/dev")" \
      "$(cut -d: -f2 "/sys/block/zram$number/dev")" 2>/dev/null; }; then
    remove_zram "/dev/zram$number"
    return 1
  fi
  echo "/dev/zram$number"
}

remove_zram() {
  local number=${1#/dev/zram}
  echo 1 >"/sys/block/zram$number/reset" || die "$1 is in use; close what uses it, then: $0 down $directory"
  # The node first: the number is somebody else's as soon as the device has gone.
  rm -f -- "$1"
  echo "$number" >"$zram_control/hot_remove"
}

# Takes away what an `up` that did not come to its end has made.
undo() {
  trap - EXIT
  case $kind in
  zram) remove_zram "$fast" ;;
  file) rm -f -- "$fast" ;;
  esac
  rm -f -- "$state"
  rmdir -- "$directory/capacity" 2>/dev/null || true
  [ -n "$was_there" ] || rmdir -- "$directory" 2>/dev/null || true
  say "nothing was made in $directory"
}

load() {
  [ -f "$state" ] || die "there is no testbed in $directory; make one with: $0 up $directory"
  # shellcheck disable=SC1090
  . "$state"
}

is_mounted() { mountpoint -q "$directory/fast-files" 2>/dev/null; }

throttle=/sys/fs/cgroup/blkio/blkio.throttle
# Lets the block device $1 move $2 bytes a second each way; 0 is as many as it can.
hold_back() {
  local number
  number=$(lsblk --noheadings --nodeps --output MAJ:MIN -- "$1" | tr -d ' ')
  echo "$number $2" >"$throttle.read_bps_device"
  echo "$number $2" >"$throttle.write_bps_device"
}

# Takes away what `slow` made, or what one that failed has left.
speed_up() {
  local loop
  if loop=$(findmnt --noheadings --output SOURCE --mountpoint "$directory/capacity" 2>/dev/null); then
    umount "$directory/capacity"
    hold_back "$loop" 0
    losetup --detach "$loop"
  fi
  [ -e "$directory/capacity.disk" ] || return 0
  for loop in $(losetup --noheadings --output NAME --associated "$directory/capacity.disk"); do
    losetup --detach "$loop"
  done
  rm -f -- "$directory/capacity.disk"
}

case $verb in
up)
  mib=${3:-2048}
  [[ $mib =~ ^[1-9][0-9]*$ ]] || die "the size of the fast disk is a number of MiB, not '$mib'"
  [ ! -e "$state" ] || die "there is a testbed in $directory already; take it away with: $0 down $directory"
  [ ! -e "$directory/fast.disk" ] || die "$directory/fast.disk is there already; move it away"
  kind='' fast='' was_there=
  [ ! -d "$directory" ] || was_there=1
  trap undo EXIT
  trap 'exit 1' HUP INT TERM
  mkdir -p -- "$directory/capacity"
  if fast=$(make_zram "$mib"); then
    kind=zram
  else
    fast=$directory/fast.disk
    kind=file
    fallocate -l "${mib}M" -- "$fast" 2>/dev/null || dd if=/dev/zero of="$fast" bs=1M count="$mib" conv=fsync status=none \
      || die "no room for a fast disk of $mib MiB in $directory"
  fi
  printf 'FAST=%q\nFAST_KIND=%q\nFAST_MIB=%q\nCAPACITY=%q\n' "$fast" "$kind" "$mib" "$directory/capacity" >"$state"
  trap - EXIT
  cat "$state"
  ;;
show)
  load
  cat "$state"
  ;;
mount)
  load
  [ "$(id -u)" = 0 ] || die "mounting needs root"
  is_mounted && die "$FAST is mounted at $directory/fast-files already"
  mkdir -p -- "$directory/fast-files"
  mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$FAST"
  mount -o noatime "$FAST" "$directory/fast-files"
  echo "FAST_FILES=$directory/fast-files"
  ;;
unmount)
  load
  is_mounted || die "nothing is mounted at $directory/fast-files"
  umount "$directory/fast-files"
  ;;
slow)
  load
  [[ ${3:-} =~ ^[1-9][0-9]*$ && ${4:-} =~ ^[1-9][0-9]*$ ]] || usage
  [ "$(id -u)" = 0 ] || die "mounting needs root"
  [ -w "$throttle.write_bps_device" ] || die "the kernel cannot hold back a device here: there is no $throttle.write_bps_device"
  ! mountpoint -q "$directory/capacity" || die "the capacity disk is slow already; take all away with: $0 down $directory"
  truncate -s "${3}G" -- "$directory/capacity.disk"
  mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$directory/capacity.disk"
  # Direct: its pages would be in memory twice, and reads of what the other copy has would not be held back.
  loop=$(losetup --find --show --direct-io=on "$directory/capacity.disk")
  mount -o noatime "$loop" "$directory/capacity" || { losetup --detach "$loop"; die "cannot mount $loop"; }
  hold_back "$loop" $(($4 * 1000000))
  echo "CAPACITY=$directory/capacity # $loop, $4 MB/s"
  ;;
fast)
  load
  speed_up
  ;;
down)
  load
  speed_up
  if is_mounted; then umount "$directory/fast-files"; fi
  case $FAST_KIND in
  zram) remove_zram "$FAST" ;;
  file) rm -f -- "$FAST" ;;
  esac
  rm -rf -- "$directory/capacity" "$directory/fast-files" "$state"
  rmdir --ignore-fail-on-non-empty -- "$directory"
  ;;
*) usage ;;
esac
