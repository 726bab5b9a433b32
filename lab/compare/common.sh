# What measure.sh and two-disks.sh share. Sourced by them; `all` names their sets.

# Prints the head of the script that runs, and ends.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

# Takes OUTPUT [SET...] and sets `output` and `sets`. Hours of measuring should not end at a misspelt name.
take_arguments() {
  local set
  output=$(realpath -m "$1")
  shift
  sets=("$@")
  [ ${#sets[@]} -gt 0 ] || sets=("${all[@]}")
  for set in "${sets[@]}"; do
    [[ " ${all[*]} " = *" $set "* ]] || { echo "no such set: $set; there are: ${all[*]}" >&2; exit 2; }
  done
}

# Builds what the other arguments, which are cargo's, name in the workspace at $1, with that workspace's flags; prints where
# its programs lie.
build_in() {
  local workspace=$1 target
  shift
  (
    # In a substitution, which this is called in, the first failure would not end it.
    cd "$workspace" && cargo build --release --locked "$@" >&2 || exit
    target=$(cargo metadata --format-version 1 --no-deps | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)
    echo "$target/release"
  )
}

# Compares the stores that STORES names, on one set: $1 is its name, $2 where the stores lie, the rest is compare's. The
# raw results and the summary go to OUTPUT/SET/, and the summary's text to OUTPUT/SET.txt, too.
compare_stores() {
  local set=$1 directory=$2
  shift 2
  "$compare" --stores "${STORES:-rocksdb,situ}" --directory "$directory" --output "$output/$set" "$@" \
    | tee "$output/$set.txt"
}
