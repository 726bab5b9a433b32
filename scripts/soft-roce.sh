#!/usr/bin/env bash
# Runs programs on a machine with an RDMA device: a virtual one, whose Linux has Soft-RoCE on the interface dummy0.
#
#   scripts/soft-roce.sh test                                               builds and runs the tests over RDMA
#   scripts/soft-roce.sh run PROGRAM [ARGUMENT...] [-- PROGRAM [ARGUMENT...]]...
#
# Each program runs as root, and everything that it prints is printed. The script exits with the status of the first one that fails.
# Where QEMU, a tool or the package of a kernel is missing, the script says SKIPPED, and exits with 0.
#
# The programs may rely on this: the address of dummy0 is 10.99.0.1, as SITU_RDMA_ADDRESS says. The RDMA device on it is rxe0, and
# SOFT_ROCE=1 is set. Everything is emulated, so times mean nothing.
#
# KERNEL, LIMIT_S and MEMORY are those of scripts/guest.sh.
set -euo pipefail

case ${1:-} in
test) [ $# = 1 ] ;;
run) [ $# -gt 1 ] && shift ;;
*) false ;;
esac || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
subject=RDMA
. "$(dirname "$0")/guest.sh"

guest_needs iproute2 rdma ip
libraries=$(ldconfig -p | sed -n 's|.*libibverbs\.so\.1 .*=> \(.*\)|\1|p' | head -1)
[ -n "$libraries" ] || skip "libibverbs is missing (Debian: apt-get install libibverbs1 ibverbs-providers)"
libraries=$(dirname "$(realpath "$libraries")")
[ -e /etc/libibverbs.d/rxe.driver ] || skip "the driver of Soft-RoCE for libibverbs is missing (Debian: apt-get install ibverbs-providers)"
guest_begin

if [ "$1" = test ]; then
    transport=$(guest_test_program situ-transport --lib --features verbs)
    client=$(guest_test_program situ-client --test all --features verbs)
    set -- "$transport" verbs:: --test-threads=1 -- "$client" rdma --test-threads=1
fi

for tool in rdma ip; do
    guest_add "$(command -v "$tool")"
    ln -sf "$(command -v "$tool")" "$image/bin/$tool"
done
for library in "$libraries"/libibverbs.so.1 "$libraries"/libibverbs/librxe-rdmav*.so; do
    guest_add "$library"
done
mkdir -p "$image/etc/libibverbs.d"
cp /etc/libibverbs.d/rxe.driver "$image/etc/libibverbs.d/"
ldconfig -r "$image" 2>/dev/null || true
# rdma_rxe finds its checksum only if crc32_generic is there before.
guest_modules crc32_generic dummy rdma_rxe ib_uverbs

{
    cat <<'INIT'
export SOFT_ROCE=1 SITU_RDMA_ADDRESS=10.99.0.1
hostname soft-roce
mkdir -p /dev/infiniband
modprobe -a crc32_generic rdma_rxe ib_uverbs && modprobe dummy numdummies=0
ip link set lo up
ip link add dummy0 type dummy && ip address add 10.99.0.1/24 dev dummy0 && ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
for folder in /sys/class/infiniband_verbs/uverbs*; do
  [ -e /dev/infiniband/${folder##*/} ] || mknod /dev/infiniband/${folder##*/} c $(tr : ' ' <$folder/dev)
done
INIT
    command=()
    for argument in "$@" --; do
        if [ "$argument" != -- ]; then
            if [ ${#command[@]} = 0 ]; then
                argument=$(realpath "$argument")
                guest_add_program "$argument" >&2
            fi
            command+=("$argument")
        elif [ ${#command[@]} -gt 0 ]; then
            printf 'run'
            printf ' %q' "${command[@]}"
            echo
            command=()
        fi
    done
} >"$folder/commands"
guest_boot -machine q35,accel=tcg -append "console=ttyS0 panic=-1 quiet no_timer_check" <"$folder/commands"
