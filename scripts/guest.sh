# Runs programs in a virtual machine with a Linux of its own. Other scripts source this one.
#
# They set `subject`, the word after SKIPPED, and call in this order:
#   guest_needs PACKAGES TOOL...   ends the script with SKIPPED if a tool is missing; the packages are Debian's
#   guest_begin                    gets a kernel, and begins the machine's files in the folder $image
#   guest_add FILE                 copies a file to its place, with the libraries that it is linked with
#   guest_modules MODULE...        copies modules of the kernel, with those that they need
#   guest_boot ARGUMENT...         boots, with these arguments for QEMU. Standard input has the commands of the machine's shell, in which
#                                  `run COMMAND` ends the machine if the command fails. Returns the status of that command, or 0.
#
# A line of the machine with `QEMU: COMMAND` gives a command to QEMU's monitor.
#
# KERNEL  folder with an unpacked Debian package of a kernel (default: target/guest/kernel, unpacked there if it is missing)
# LIMIT_S seconds until the machine has to end (default: 1800)
# MEMORY  of the machine (default: 1500M)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kernel=${KERNEL:-$root/target/guest/kernel}

skip() { echo "SKIPPED: $subject: $*"; exit 0; }

guest_needs() {
    local packages=$1 tool
    shift
    for tool in "$@" qemu-system-x86_64 busybox cpio depmod dpkg-deb; do
        command -v "$tool" >/dev/null || skip "$tool is missing (Debian: apt-get install qemu-system-x86 busybox-static cpio kmod $packages)"
    done
}

guest_begin() {
    guest_kernel
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    image=$folder/root
    mkdir -p "$image"/{bin,dev,etc,proc,sys,tmp,usr/lib,usr/lib64} "$image/usr/lib/modules/$version"
    ln -s usr/lib usr/lib64 "$image"
    cp "$(command -v busybox)" "$image/bin/busybox"
    # Sanitizers of programs load libgcc at run time.
    local library
    library=$(ldconfig -p | sed -n 's|.*libgcc_s\.so\.1 .*=> \(.*\)|\1|p' | head -1)
    [ -z "$library" ] || guest_add "$library"
}

# Sets `version` and `vmlinux`.
guest_kernel() {
    if ! ls "$kernel"/boot/vmlinuz-* >/dev/null 2>&1; then
        command -v apt-get >/dev/null || skip "there is no kernel in $kernel, and no apt-get to get one"
        local package
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
    [ ! -e "$vmlinux" ] || return 0
    local image=$kernel/boot/vmlinuz-$version try at
    for try in 'xz \xfd7zXZ\x00' 'zstd \x28\xb5\x2f\xfd' 'gunzip \x1f\x8b\x08\x00'; do
        for at in $(LC_ALL=C grep -aboP "${try#* }" "$image" | cut -d: -f1); do
            tail -c "+$((at + 1))" "$image" | "${try%% *}" -dc >"$vmlinux.part" 2>/dev/null || true
            [ "$(head -c 4 "$vmlinux.part" | tail -c 3)" != ELF ] || break 2
        done
    done
    [ "$(head -c 4 "$vmlinux.part" | tail -c 3)" = ELF ] || { echo "no kernel was found within $image"; exit 1; }
    mv "$vmlinux.part" "$vmlinux"
}

guest_add() {
    local file
    for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true); do
        [ -e "$image$file" ] || { mkdir -p "$image$(dirname "$file")" && cp -L "$file" "$image$file"; }
    done
}

# Adds a program, without the lines of backtraces: they are not worth the memory.
guest_add_program() {
    guest_add "$1"
    strip --strip-debug "$image$1" 2>/dev/null || true
}

guest_modules() {
    local module
    for module in "$@"; do
        modprobe -d "$kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p' |
            while read -r path; do cp -n "$path" "$image/lib/modules/$version/"; done
    done
    depmod -b "$image" "$version" 2>/dev/null
}

# The path of a crate's test program, which is built if it has to be.
guest_test_program() {
    (cd "$root" && cargo test --quiet --locked --no-run --message-format=json -p "$@") | sed -n 's|.*"executable":"\([^"]*\)".*|\1|p' | tail -1
}

guest_boot() {
    {
        cat <<'INIT'
#!/bin/busybox sh
export PATH=/bin RUST_BACKTRACE=1
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev 2>/dev/null; mount -t tmpfs none /tmp
mkdir -p /dev/shm /run; mount -t tmpfs none /dev/shm
ulimit -l unlimited; ulimit -n 65536
run() {
  echo "== $*"
  "$@" </dev/null
  status=$?
  [ $status = 0 ] || { echo "GUEST_STATUS $status"; poweroff -f; sleep 60; }
}
INIT
        cat
        echo 'echo "GUEST_STATUS 0"; poweroff -f; sleep 60'
    } >"$folder/init"
    install -m 755 "$folder/init" "$image/init"
    (cd "$image" && find . | cpio -o -H newc --quiet) >"$folder/image"
    mkfifo "$folder/monitor.in" "$folder/monitor.out"

    # /dev/kvm is not used: it may be there and not serve. On a busy machine, the emulated timer fails the kernel's check of it.
    timeout -k 10 "${LIMIT_S:-1800}" qemu-system-x86_64 -cpu max -smp 2 -m "${MEMORY:-1500M}" -display none -nodefaults -no-reboot \
        -serial stdio -chardev "pipe,id=monitor,path=$folder/monitor" -mon chardev=monitor \
        -kernel "$vmlinux" -initrd "$folder/image" "$@" </dev/null |
        sed -u 's/\r$//' | while IFS= read -r line; do
            printf '%s\n' "$line" >>"$folder/said"
            case $line in
            GUEST_STATUS*) ;;
            *QEMU:\ *) printf '%s\n' "${line##*QEMU: }" >"$folder/monitor.in" ;;
            *) printf '%s\n' "$line" ;;
            esac
        done || true
    local status
    status=$(sed -n 's/^GUEST_STATUS \([0-9]*\).*/\1/p' "$folder/said" 2>/dev/null | tail -1 || true)
    [ -n "$status" ] || { echo "the virtual machine ended without a result, or took more than ${LIMIT_S:-1800} s"; return 1; }
    return "$status"
}
