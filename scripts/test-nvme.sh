#!/usr/bin/env bash
# Tests the driver for NVMe drives on drives: those of QEMU, behind its IOMMU, in a virtual machine.
#
#   scripts/test-nvme.sh [FILTER]    builds and runs the tests; with a filter, those whose names contain it
#
# Where QEMU, a tool or the package of a kernel is missing, the script says SKIPPED, and exits with 0. Everything is emulated, so times
# mean nothing.
#
# The tests rely on these drives, of which SITU_NVME has the addresses, in this order. All are overwritten.
#   plain    blocks of 512 bytes, a volatile write cache
#   shared   blocks of 4,096 and of 512 bytes in two namespaces; transfers up to 32 KiB; no write cache
#   few      two pairs of queues, one interrupt
#   joined   two functions of one IOMMU group, this one and the next
#   joined
#   hot      in a slot of its own, from which the monitor can take it: device_del hot
# Two more, with blocks of 512 and of 4,096 bytes, are for volumes and stores.
#
# KERNEL, LIMIT_S and MEMORY are those of scripts/guest.sh.
set -euo pipefail

[ $# -le 1 ] || { sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 2; }
subject=NVMe
. "$(dirname "$0")/guest.sh"

guest_needs mount losetup
guest_begin
tests=$(guest_test_program situ-device --lib)
devices=$(guest_test_program situ-device --test all)
volumes=$(guest_test_program situ-rawdisk --test all)
stores=$(guest_test_program situ-tiers --test all)
for program in "$tests" "$devices" "$volumes" "$stores"; do
    guest_add_program "$program"
done
# The suites run on a loop device and on compressed memory, too.
guest_add "$(command -v losetup)"
guest_modules vfio-pci vfio_iommu_type1 nvme loop zram

drives=()
drive() {
    local name=$1 bytes=$2
    truncate -s "$bytes" "$folder/$name"
    drives+=(-drive "file=$folder/$name,if=none,id=$name,format=raw,discard=unmap,detect-zeroes=off")
}
for name in plain shared1 shared2 few joined0 joined1 hot; do
    drive "$name" 16M
done
for name in disk0 disk1; do
    drive "$name" 64M
done

{
    printf 'losetup=%q\n' "$(command -v losetup)"
    cat <<'INIT'
hostname nvme
modprobe -a vfio-pci vfio_iommu_type1 nvme loop zram
ln -sf $losetup /bin/losetup
export SITU_NVME='0000:00:04.0 0000:00:05.0 0000:00:06.0 0000:00:07.0 0000:00:07.1 0000:01:00.0'
for address in $SITU_NVME 0000:00:09.0 0000:00:0a.0; do
  echo vfio-pci >/sys/bus/pci/devices/$address/driver_override
  echo $address >/sys/bus/pci/devices/$address/driver/unbind
  echo $address >/sys/bus/pci/drivers_probe
done
export SITU_TEST_DEVICES='pci:0000:00:04.0/1 pci:0000:00:05.0/1 pci:0000:00:05.0/2 pci:0000:00:06.0/1'
export SITU_TEST_DISKS='pci:0000:00:09.0/1 pci:0000:00:0a.0/1'
INIT
    printf 'run %q %q --test-threads=1\n' "$tests" "driver::vfio::tests::${1:-}"
    printf 'run %q %q --test-threads=1\n' "$devices" "backends::${1:-}" "$stores" "killed_on_disk::${1:-}"
    # The machine's files lie in memory.
    printf 'run %q %q --skip page_cache --test-threads=1\n' "$volumes" "${1:-}"
} >"$folder/commands"

# The IOMMU comes first: QEMU puts only the devices after it behind it.
guest_boot -machine q35,accel=tcg,kernel-irqchip=split -device intel-iommu,intremap=on,caching-mode=on "${drives[@]}" \
    -device nvme,id=plain,drive=plain,serial=plain,addr=4,write-cache=on \
    -device nvme,id=shared,serial=shared,addr=5,mdts=3 \
    -device nvme-ns,drive=shared1,bus=shared,nsid=1,logical_block_size=4096,physical_block_size=4096,write-cache=off \
    -device nvme-ns,drive=shared2,bus=shared,nsid=2,logical_block_size=512,write-cache=off \
    -device nvme,id=few,drive=few,serial=few,addr=6,max_ioqpairs=2,msix_qsize=1 \
    -device nvme,id=joined0,drive=joined0,serial=joined0,addr=7.0,multifunction=on \
    -device nvme,id=joined1,drive=joined1,serial=joined1,addr=7.1 \
    -device nvme,id=disk0,drive=disk0,serial=disk0,addr=9,write-cache=on \
    -device nvme,id=disk1,drive=disk1,serial=disk1,addr=a,logical_block_size=4096,physical_block_size=4096,write-cache=off \
    -device pcie-root-port,id=socket,addr=8,chassis=1,slot=1 \
    -device nvme,id=hot,drive=hot,serial=hot,bus=socket \
    -append "console=ttyS0 panic=-1 quiet no_timer_check intel_iommu=on" <"$folder/commands"
