#!/usr/bin/env bash
# Counts the instructions and the system calls of a 4 KiB read and write, by each way to an NVMe drive: QEMU's, in a virtual machine.
#
#   scripts/nvme-cost.sh [RUNS [WAY]]    RUNS times (default: 3); with WAY, by the ways whose names contain it
#   WHAT=lengths scripts/nvme-cost.sh ...   counts the instructions of reads of 4 KiB to 1 MiB instead
#   WHAT=gets scripts/nvme-cost.sh ...      counts those of gets from a cache whose items lie on the drive (flash_read.rs of situ-cache)
#
# The machine has one processor, whose clock advances by one nanosecond for each instruction (-icount shift=0). So differences of the
# clock are instructions, of programs and of the kernel. An iteration of a `rep` counts as one. Times of the drive mean nothing.
# crates/device/examples/cost.rs says what the figures are.
#
# Where QEMU, a tool or the package of a kernel is missing, the script says SKIPPED, and exits with 0.
#
# KERNEL, LIMIT_S and MEMORY are those of scripts/guest.sh.
set -euo pipefail

[ $# -le 2 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
subject='cost of NVMe'
. "$(dirname "$0")/guest.sh"

guest_needs strace strace
guest_begin
cost=$( (cd "$root" && cargo build --quiet --locked --release -p situ-device --example cost --message-format=json) |
    sed -n 's|.*"executable":"\([^"]*\)".*|\1|p' | tail -1)
guest_add_program "$cost"
what=${WHAT:-}
drive=driver=null-co,node-name=drive,size=67108864,latency-ns=2000000,read-zeroes=on
if [ "$what" = gets ]; then
    gets=$( (cd "$root" && cargo build --quiet --locked --release -p situ-cache --example flash_read --message-format=json) |
        sed -n 's|.*"executable":"\([^"]*\)".*|\1|p' | tail -1)
    guest_add_program "$gets"
    truncate -s 64M "$folder/drive"
    drive=driver=file,node-name=drive,filename=$folder/drive
fi
guest_add "$(command -v strace)"
guest_modules vfio-pci vfio_iommu_type1 nvme

{
    printf 'cost=%q strace=%q runs=%q only=%q what=%q gets=%q\n' "$cost" "$(command -v strace)" "${1:-3}" "${2:-}" "$what" "${gets:-}"
    cat <<'INIT'
hostname cost
modprobe -a vfio-pci vfio_iommu_type1
address=0000:00:04.0
ln -s "$cost" /bin/cost

# PATH BACKEND look|wait NAME
measure() {
  local path=$1 backend=$2 way=$3 name=$4
  case $name in *"$only"*) ;; *) return ;; esac
  echo "way $name"
  if [ "$what" = gets ]; then
    [ $way = look ] || for number in $(seq "$runs"); do run "$gets" $path 64 $backend; done
    return
  fi
  for number in $(seq "$runs"); do run cost $path $backend $way $what; done
  [ -z "$what" ] || return 0
  for kind in read write durable; do
    for count in 1 8; do
      "$strace" -f -o /tmp/trace cost $path $backend $way $kind $count 100 >/dev/null || exit
      # The pauses of `look` are no part of the operations.
      awk -v what="$kind, $count in flight" -v operations=$((100 * count)) '
        / write\(1, "begin/ { counts = 1; next }
        / write\(1, "end/ { counts = 0 }
        counts && match($0, /^[0-9]+ +[a-z0-9_]+\(/) {
          name = substr($2, 1, index($2, "(") - 1)
          if (name !~ /^(clock_nanosleep|restart_syscall)$/) number[name]++
        }
        END {
          for (name in number) calls = calls sprintf(" %s %.2f", name, number[name] / operations)
          print "system calls, " what ":" (calls ? calls : " none")
        }' /tmp/trace
    done
  done
}

uname -r
cat /proc/cmdline
grep -r . /sys/devices/system/cpu/vulnerabilities/ | grep -v ':Not affected$'
# A drive with more queues than one has no scheduler, and so should one of a machine with one processor.
modprobe nvme
sleep 1
echo none >/sys/block/nvme0n1/queue/scheduler
measure /dev/nvme0n1 blocking wait 'plain calls'
measure /dev/nvme0n1 ring wait 'io_uring, interrupts'
measure /dev/ng0n1 automatic wait 'passthrough, interrupts'
echo $address >/sys/bus/pci/drivers/nvme/unbind
echo 1 >/sys/module/nvme/parameters/poll_queues
echo $address >/sys/bus/pci/drivers/nvme/bind
sleep 1
echo none >/sys/block/nvme0n1/queue/scheduler
run grep -q 1 /sys/block/nvme0n1/queue/io_poll
measure /dev/nvme0n1 ring look 'io_uring, polling'
measure /dev/ng0n1 automatic look 'passthrough, polling'
echo vfio-pci >/sys/bus/pci/devices/$address/driver_override
echo $address >/sys/bus/pci/devices/$address/driver/unbind
echo $address >/sys/bus/pci/drivers_probe
measure pci:$address/1 automatic wait "Situ's driver, interrupts"
measure pci:$address/1 automatic look "Situ's driver, polling"
INIT
} >"$folder/commands"

# The drive holds nothing, and takes 2 ms, so that the program has always gone to sleep. Without `erms`, the kernel copies words with `rep`,
# and not bytes. The kernel's own driver works past the IOMMU (iommu=pt), and the driver in user space through it.
guest_boot -machine q35,accel=tcg,kernel-irqchip=split -smp 1 -cpu max,-erms -icount shift=0,sleep=on \
    -device intel-iommu,intremap=on,caching-mode=on -blockdev "$drive" \
    -device nvme,id=nvme,drive=drive,serial=cost,addr=4,write-cache=on \
    -append "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable clocksource=tsc intel_iommu=on iommu=pt" <"$folder/commands" |
    tee "$folder/figures"

awk '
    # The median of numbers in a row, and their least and most if they differ.
    function row(numbers,    of, count, i, j, number) {
        count = split(numbers, of, " ")
        if (!count) return "-"
        for (i = 2; i <= count; i++) for (j = i; j > 1 && of[j] + 0 < of[j - 1] + 0; j--) {
            number = of[j]; of[j] = of[j - 1]; of[j - 1] = number
        }
        return of[int((count + 1) / 2)] (of[1] == of[count] ? "" : " (" of[1] " to " of[count] ")")
    }
    /^way / { way = substr($0, 5) }
    /^(look|wait|system calls), .* in flight: / {
        split($0, part, ": "); split(part[1], word, ", ")
        key = way " | " word[2] " | " (word[3] + 0)
        if (!(key in seen)) { seen[key]; keys[++count] = key }
        if (word[1] == "system calls") { calls[key] = part[2]; next }
        for (i = 1; i < split(part[2], word, /,? /); i += 2) {
            if (word[i] == "submit") submit[key] = submit[key] " " word[i + 1]
            if (word[i] == "poll") poll[key] = poll[key] " " word[i + 1]
            if (word[i] == "all") all[key] = all[key] " " word[i + 1]
        }
    }
    /^\{"value_bytes":/ {
        match($0, /"value_bytes":[0-9]+/); bytes = substr($0, RSTART + 14, RLENGTH - 14)
        match($0, /"busy_ns":[0-9]+/); key = way " | " bytes
        if (!(key in gets)) of_gets[++get_count] = key
        gets[key] = gets[key] " " substr($0, RSTART + 10, RLENGTH - 10)
    }
    END {
        if (get_count) {
            print "\n| way | bytes of a value | instructions of a get |\n|---|---|---|"
            for (i = 1; i <= get_count; i++) print "| " of_gets[i] " | " row(gets[of_gets[i]]) " |"
            exit
        }
        print "\n| way | operation | in flight | submit | poll | all | system calls |\n|---|---|---|---|---|---|---|"
        for (i = 1; i <= count; i++) {
            key = keys[i]
            print "| " key " | " row(submit[key]) " | " row(poll[key]) " | " row(all[key]) " | " calls[key] " |"
        }
    }' "$folder/figures"
