#!/bin/bash
# The comparisons behind docs/evidence/large-values.md: Situ's value log and RocksDB's BlobDB.
#   lab/compare/values.sh OUTPUT [SET...]
# Nothing else should run on the machine. DIRECTORY (default: ./values-data) is where the stores lie; it needs four times DATA_MIB. DATA_MIB
# (default: 2048) is the user's data of each set. REPEAT (default: 3) is how often each set is measured, STORES what is (default:
# rocksdb,situ).
#
# Sets (default: all): 1k 4k 16k 64k 1k-tables 4k-tables 16k-tables 64k-tables
#   1k ...         values of this size, in the value log and in blob files
#   ...-tables     the same values in tables, in both stores: where the threshold belongs
# Each set fills in random order, overwrites each key once on average, scans all, reads at random, and reads while a writer overwrites.
set -euo pipefail
all=(1k 4k 16k 64k 1k-tables 4k-tables 16k-tables 64k-tables)
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
# shellcheck source=lab/compare/common.sh
. "$here/common.sh"
[ $# -gt 0 ] || usage
take_arguments "$@"
directory=$(realpath -m "${DIRECTORY:-values-data}")
cd "$here"
compare=${COMPARE:-$(build_in .)/compare}
mkdir -p "$output" "$directory"

for set in "${sets[@]}"; do
  kib=${set%%k*}
  keys=$((${DATA_MIB:-2048} * 1024 / kib))
  arguments=()
  case $set in
    *-tables) ;;
    *) arguments+=(--value-log-min-bytes 512 --rocksdb-blob-min-bytes 512) ;;
  esac
  # A cache of an eighth of the data, and the page cache beside it, for both.
  compare_stores "$set" "$directory" --repeat "${REPEAT:-3}" --keys "$keys" --value-bytes $((kib * 1024)) \
    --cache-bytes $((${DATA_MIB:-2048} << 17)) --compression-ratio 0.5 \
    --workloads fillrandom,wait,overwrite,wait,readseq,readrandom,readwhilewriting "${arguments[@]}"
done
rmdir "$directory" 2>/dev/null || true
