#!/usr/bin/env bash
# Packs and unpacks the raw results behind the pages of docs/evidence: docs/evidence/NAME.tar.gz has those of NAME.md.
#
#   scripts/evidence.sh unpack [NAME ...]   puts raw files into docs/evidence/NAME/; git ignores them there
#   scripts/evidence.sh pack [NAME ...]     makes the archives of all raw files in docs/evidence/NAME/, and leaves the files
#   scripts/evidence.sh list [NAME ...]     lists what the archives hold
#   scripts/evidence.sh check [NAME ...]    compares unpacked files with the archives; fails if any differs
#   scripts/evidence.sh selftest            packs and unpacks invented files, in a directory of its own
#
# Raw files are those named in RAW below. Everything else in docs/evidence/NAME/ lies open in git: summaries, tables, plots.
# `unpack` replaces no file that differs from the archive: pack it, or delete it. An archive has sorted names, no times and no
# owners, so the same files make the same archive. `pack` needs GNU tar. EVIDENCE=DIR works in another directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
SELF=scripts/evidence.sh
EVIDENCE=${EVIDENCE:-docs/evidence}
# .gitignore has the same names.
RAW=('*.json' '*.jsonl' '*.log' 'drives.txt' 'processors.txt')

# A run leaves no temporary file, also if it is stopped.
scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT

raw_files() {
  local tests=() pattern
  for pattern in "${RAW[@]}"; do tests+=(-o -name "$pattern"); done
  (cd "$EVIDENCE" && find "$1" -type f \( "${tests[@]:1}" \) | LC_ALL=C sort)
}

names_of_archives() {
  local archive
  for archive in "$EVIDENCE"/*.tar.gz; do [ ! -e "$archive" ] || basename "$archive" .tar.gz; done
}

names_of_folders() {
  local folder
  for folder in "$EVIDENCE"/*/; do [ -z "$(raw_files "$(basename "$folder")")" ] || basename "$folder"; done
}

archive_of() {
  [ -f "$EVIDENCE/$1.tar.gz" ] || { echo "there is no archive $EVIDENCE/$1.tar.gz" >&2; exit 1; }
  echo "$EVIDENCE/$1.tar.gz"
}

pack() {
  local name=$1 archive=$EVIDENCE/$1.tar.gz missing
  [ -n "$(raw_files "$name" 2>/dev/null)" ] || { echo "there are no raw files in $EVIDENCE/$name" >&2; exit 1; }
  # An archive that was not unpacked would lose what is only there.
  if [ -f "$archive" ] && [ -z "${DROP:-}" ]; then
    missing=$(LC_ALL=C comm -23 <(tar -tzf "$archive" | LC_ALL=C sort) <(raw_files "$name"))
    [ -z "$missing" ] || {
      echo "$archive has files that are not in $EVIDENCE/$name: $(echo $missing)" >&2
      echo "Unpack them first (scripts/evidence.sh unpack $name), or leave them out with DROP=1." >&2
      exit 1
    }
  fi
  raw_files "$name" | tar -C "$EVIDENCE" --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=a=r,u+w \
    -cf - -T - | gzip -9n >"$archive.new"
  mv "$archive.new" "$archive"
}

unpack() {
  local archive file
  archive=$(archive_of "$1")
  scratch=$(mktemp -d)
  tar -xzf "$archive" -C "$scratch" --no-same-owner
  while read -r file; do
    if [ ! -e "$EVIDENCE/$file" ]; then
      mkdir -p "$EVIDENCE/$(dirname "$file")"
      # Whole or not at all, also if two runs unpack at a time.
      cp "$scratch/$file" "$EVIDENCE/$file.$$" && mv "$EVIDENCE/$file.$$" "$EVIDENCE/$file"
    elif ! cmp -s "$scratch/$file" "$EVIDENCE/$file"; then
      echo "$EVIDENCE/$file differs from $archive, and was left" >&2
    fi
  done < <(tar -tzf "$archive")
  rm -rf "$scratch"
  scratch=
}

check() {
  local archive file differs=0
  archive=$(archive_of "$1")
  scratch=$(mktemp -d)
  tar -xzf "$archive" -C "$scratch" --no-same-owner
  while read -r file; do
    cmp -s "$scratch/$file" "$EVIDENCE/$file" || { echo "$EVIDENCE/$file differs from $archive"; differs=1; }
  done < <({ tar -tzf "$archive"; raw_files "$1"; } | LC_ALL=C sort -u)
  rm -rf "$scratch"
  scratch=
  return "$differs"
}

selftest() {
  local work first
  tar --version 2>/dev/null | grep -q GNU || { echo "SKIPPED: packing of evidence: it needs GNU tar"; return; }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  mkdir -p "$work/a/set" "$work/b"
  echo 1 >"$work/a/set/situ-1.json"; echo 2 >"$work/a/run.log"; echo 3 >"$work/a/summary.txt"; echo 4 >"$work/b/table.csv"
  EVIDENCE=$work "$SELF" pack
  first=$(cksum <"$work/a.tar.gz")
  [ "$(EVIDENCE=$work "$SELF" list | tr '\n' ' ')" = "a/run.log a/set/situ-1.json " ]
  [ ! -e "$work/b.tar.gz" ]
  rm -r "$work/a/set" "$work/a/run.log"
  EVIDENCE=$work "$SELF" unpack a
  [ "$(cat "$work/a/set/situ-1.json" "$work/a/run.log" "$work/a/summary.txt" | tr '\n' ' ')" = "1 2 3 " ]
  EVIDENCE=$work "$SELF" check
  touch "$work/a/run.log"
  EVIDENCE=$work "$SELF" pack a
  [ "$(cksum <"$work/a.tar.gz")" = "$first" ]
  echo changed >"$work/a/run.log"
  EVIDENCE=$work "$SELF" unpack 2>/dev/null
  [ "$(cat "$work/a/run.log")" = changed ]
  if EVIDENCE=$work "$SELF" check >/dev/null; then echo "check missed a change"; return 1; fi
  rm "$work/a/run.log"
  if EVIDENCE=$work "$SELF" pack a 2>/dev/null; then echo "pack lost a file"; return 1; fi
  EVIDENCE=$work DROP=1 "$SELF" pack a
  [ "$(EVIDENCE=$work "$SELF" list)" = "a/set/situ-1.json" ]
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
pack | unpack | check | list) ;;
selftest) selftest; exit ;;
*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$SELF"; [ "$command" = help ] || exit 2; exit ;;
esac
if [ $# -eq 0 ]; then
  case $command in pack) set -- $(names_of_folders) ;; *) set -- $(names_of_archives) ;; esac
fi
code=0
for name in "$@"; do
  name=$(basename "${name%/}" .tar.gz)
  case $command in
  pack) pack "$name" ;;
  unpack) unpack "$name" ;;
  check) check "$name" || code=1 ;;
  list) tar -tzf "$(archive_of "$name")" | LC_ALL=C sort ;;
  esac
done
exit "$code"
