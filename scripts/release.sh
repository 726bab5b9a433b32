#!/usr/bin/env bash
# Makes target/release-archive/situ-<version>-<target>.tar.gz and its .sha256: what a machine needs to run Situ, and no compiler.
#
#   scripts/release.sh [--target TARGET] [--program PATH]
#
# The archive has the layout of /usr/local:
#
#   bin/situ                                  the program, built with the profile `dist`
#   lib/systemd/system/situ.service
#   share/man/man1/situ*.1                    `situ man DIR` writes them
#   share/bash-completion/completions/situ    `situ completions bash`, and the same for zsh and fish
#   share/doc/situ/                           README, CHANGELOG, SECURITY, licenses, the guide
#
# A program for another processor cannot write its man pages and completions here: the archive has none then, and the script says
# so. --program packs a program that is built already. Equal files make an equal archive: names are sorted, times are those
# of the commit (or SOURCE_DATE_EPOCH).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target= program=
while [ $# -gt 0 ]; do
  case $1 in
  --target) target=$2; shift 2 ;;
  --program) program=$2; shift 2 ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
  esac
done

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
directory=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
host=$(rustc -vV | sed -n 's/^host: //p')
if [ -z "$program" ]; then
  cargo build --profile dist --locked -p situ-cli ${target:+--target "$target"}
  program=$directory/${target:+$target/}dist/situ
fi
target=${target:-$host}

name=situ-$version-$target
out=$directory/release-archive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name
mkdir -p "$out" "$tree"/{bin,lib/systemd/system,share/doc/situ}
install -m 0755 "$program" "$tree/bin/situ"
install -m 0644 packaging/situ.service "$tree/lib/systemd/system/"
install -m 0644 README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE "$tree/share/doc/situ/"
install -d "$tree/share/doc/situ/docs/guide"
install -m 0644 docs/guide/*.md "$tree/share/doc/situ/docs/guide/"
scripts/third-party-licenses.py "$target" >"$tree/share/doc/situ/LICENSES-THIRD-PARTY"

complete() {
  mkdir -p "$work/completions" "$work/man"
  "$program" man "$work/man" && "$program" completions bash >"$work/completions/bash" &&
    "$program" completions zsh >"$work/completions/zsh" && "$program" completions fish >"$work/completions/fish"
}
if said=$(complete 2>&1); then
  install -d "$tree/share/man/man1"
  install -m 0644 "$work"/man/*.1 "$tree/share/man/man1/"
  install -D -m 0644 "$work/completions/bash" "$tree/share/bash-completion/completions/situ"
  install -D -m 0644 "$work/completions/zsh" "$tree/share/zsh/site-functions/_situ"
  install -D -m 0644 "$work/completions/fish" "$tree/share/fish/vendor_completions.d/situ.fish"
else
  echo "SKIPPED: man pages and completions: $program cannot write them here: $(head -n 1 <<<"$said")" >&2
fi

time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
(cd "$work" && find "$name" | LC_ALL=C sort |
  tar --no-recursion --format=ustar --mtime="@$time" --owner=0 --group=0 --numeric-owner -cf - -T -) | gzip -9n >"$out/$name.tar.gz.new"
mv "$out/$name.tar.gz.new" "$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$out/$name.tar.gz: $(($(stat -c %s "$out/$name.tar.gz") / 1000000)) MB, the program $(($(stat -c %s "$tree/bin/situ") / 1000000)) MB"
