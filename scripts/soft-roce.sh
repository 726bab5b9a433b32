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
# KERNEL  folder with an unpacked Debian package of a kernel (default: target/soft-roce/kernel, unpacked there if it is missing)
# LIMIT_S seconds for all programs together (default: 1800)
# MEMORY  of the machine (default: 1500M)
set -euo pipefail

case ${1:-} in
test) [ $# = 1 ] ;;
run) [ $# -gt 1 ] && shift ;;
*) false ;;
esac || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
work=$root/target/soft-roce
kernel=${KERNEL:-$work/kernel}

skip() { echo "SKIPPED: RDMA: $*"; exit 0; }

for tool in qemu-system-x86_64 busybox cpio depmod rdma ip dpkg-deb; do
    command -v "$tool" >/dev/null || skip "$tool is missing (Debian: apt-get install qemu-system-x86 busybox-static cpio kmod iproute2)"
done
libraries=$(ldconfig -p | sed -n 's|.*libibverbs\.so\.1 .*=> \(.*\)|\1|p' | head -1)
[ -n "$libraries" ] || skip "libibverbs is missing (Debian: apt-get install libibverbs1 ibverbs-providers)"
libraries=$(dirname "$(realpath "$libraries")")
[ -e /etc/libibverbs.d/rxe.driver ] || skip "the driver of Soft-RoCE for libibverbs is missing (Debian: apt-get install ibverbs-providers)"

if ! ls "$kernel"/boot/vmlinuz-* >/dev/null 2>&1; then
    command -v apt-get >/dev/null || skip "there is no kernel in $kernel, and no apt-get to get one"
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    [ -n "$package" ] || skip "apt-cache knows no linux-image-amd64"
    mkdir -p "$kernel"
    (cd "$kernel" && apt-get download -q "$package" >/dev/null) || skip "the package $package cannot be downloaded"
    dpkg-deb -x "$kernel"/linux-image-*.deb "$kernel"
    rm "$kernel"/linux-image-*.deb
fi
version=$(basename "$(ls -d "$kernel"/lib/modules/* | head -1)")
[ -e "$kernel/lib/modules/$version/modules.dep" ] || depmod -b "$kernel" "$version"

# The virtual machine starts the unpacked kernel in a fourth of the time.
vmlinux=$kernel/vmlinux-$version
if [ ! -e "$vmlinux" ]; then
    image=$kernel/boot/vmlinuz-$version
    for try in 'xz \xfd7zXZ\x00' 'zstd \x28\xb5\x2f\xfd' 'gunzip \x1f\x8b\x08\x00'; do
        for at in $(LC_ALL=C grep -aboP "${try#* }" "$image" | cut -d: -f1); do
            tail -c "+$((at + 1))" "$image" | "${try%% *}" -dc >"$vmlinux.part" 2>/dev/null || true
            [ "$(head -c 4 "$vmlinux.part" | tail -c 3)" != ELF ] || break 2
        done
    done
    [ "$(head -c 4 "$vmlinux.part" | tail -c 3)" = ELF ] || { echo "no kernel was found within $image"; exit 1; }
    mv "$vmlinux.part" "$vmlinux"
fi

# The path of a crate's test program, which is built if it has to be.
program() {
    cargo test --quiet --locked --no-run --message-format=json -p "$@" --features verbs |
        sed -n 's|.*"executable":"\([^"]*\)".*|\1|p' | tail -1
}

if [ "$1" = test ]; then
    transport=$(program situ-transport --lib)
    client=$(program situ-client --test all)
    set -- "$transport" verbs:: --test-threads=1 -- "$client" rdma --test-threads=1
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
image=$folder/root
mkdir -p "$image"/{bin,dev,etc,proc,sys,tmp,usr/lib,usr/lib64} "$image/usr/lib/modules/$version"
ln -s usr/lib usr/lib64 "$image"

# Copies a file to its place, with the libraries that it is linked with.
add() {
    local file
    for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true); do
        [ -e "$image$file" ] || { mkdir -p "$image$(dirname "$file")" && cp -L "$file" "$image$file"; }
    done
}

cp "$(command -v busybox)" "$image/bin/busybox"
for tool in rdma ip; do
    add "$(command -v "$tool")"
    ln -sf "$(command -v "$tool")" "$image/bin/$tool"
done
# Sanitizers of programs load libgcc at run time.
for library in "$libraries"/libibverbs.so.1 "$libraries"/libgcc_s.so.1 "$libraries"/libibverbs/librxe-rdmav*.so; do
    [ ! -e "$library" ] || add "$library"
done
mkdir -p "$image/etc/libibverbs.d"
cp /etc/libibverbs.d/rxe.driver "$image/etc/libibverbs.d/"
ldconfig -r "$image" 2>/dev/null || true

# rdma_rxe finds its checksum only if crc32_generic is there before.
modules='crc32_generic dummy rdma_rxe ib_uverbs'
for module in $modules; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p' |
        while read -r path; do cp -n "$path" "$image/lib/modules/$version/"; done
done
depmod -b "$image" "$version" 2>/dev/null

{
    cat <<'INIT'
#!/bin/busybox sh
export PATH=/bin SOFT_ROCE=1 SITU_RDMA_ADDRESS=10.99.0.1 RUST_BACKTRACE=1
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev 2>/dev/null; mount -t tmpfs none /tmp
mkdir -p /dev/infiniband /dev/shm /run; mount -t tmpfs none /dev/shm
hostname soft-roce
ulimit -l unlimited; ulimit -n 65536
modprobe -a crc32_generic rdma_rxe ib_uverbs && modprobe dummy numdummies=0
ip link set lo up
ip link add dummy0 type dummy && ip address add 10.99.0.1/24 dev dummy0 && ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
for folder in /sys/class/infiniband_verbs/uverbs*; do
  [ -e /dev/infiniband/${folder##*/} ] || mknod /dev/infiniband/${folder##*/} c $(tr : ' ' <$folder/dev)
done
run() {
  echo "== $*"
  "$@" </dev/null
  status=$?
  [ $status = 0 ] || { echo "SOFT_ROCE_STATUS $status"; poweroff -f; sleep 60; }
}
INIT
    command=()
    for argument in "$@" --; do
        if [ "$argument" != -- ]; then
            if [ ${#command[@]} = 0 ]; then
                argument=$(realpath "$argument")
                add "$argument" >&2
                # Lines of backtraces are not worth the memory.
                strip --strip-debug "$image$argument" 2>/dev/null || true
            fi
            command+=("$argument")
        elif [ ${#command[@]} -gt 0 ]; then
            printf 'run'
            printf ' %q' "${command[@]}"
            echo
            command=()
        fi
    done
    echo 'echo "SOFT_ROCE_STATUS 0"; poweroff -f; sleep 60'
} >"$folder/init"
install -m 755 "$folder/init" "$image/init"
(cd "$image" && find . | cpio -o -H newc --quiet) >"$folder/image"

# /dev/kvm is not used: it may be there and not serve. On a busy machine, the emulated timer fails the kernel's check of it.
timeout "${LIMIT_S:-1800}" qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m "${MEMORY:-1500M}" -display none -nodefaults \
    -no-reboot -serial stdio -kernel "$vmlinux" -initrd "$folder/image" -append "console=ttyS0 panic=-1 quiet no_timer_check" </dev/null \
    | sed -u 's/\r$//' | tee "$folder/said" | grep --line-buffered -v '^SOFT_ROCE_STATUS' || true
status=$(sed -n 's/^SOFT_ROCE_STATUS \([0-9]*\).*/\1/p' "$folder/said" | tail -1)
[ -n "$status" ] || { echo "the virtual machine ended without a result, or took more than ${LIMIT_S:-1800} s"; exit 1; }
exit "$status"
