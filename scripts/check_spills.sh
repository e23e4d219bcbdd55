#!/bin/sh
# Device code keeps its values in registers: what ptxas said when it was built.  On sm_90a, for which it is
# written, none is spilled; on others a function may spill 256 bytes, and is named.
#     usage: scripts/check_spills.sh [BUILD]
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
logs=$(find "$build/src/backends/cuda/device" -name '*.fatbin.log' 2> /dev/null)
[ -n "$logs" ] || { echo "no device code in $build: built without nvcc"; exit 0; }
# shellcheck disable=SC2086
awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2]; arch = part[4] }
     /spill stores/ {
         n++; match($0, /[0-9]+ bytes spill stores/); stores = substr($0, RSTART) + 0
         match($0, /[0-9]+ bytes spill loads/); loads = substr($0, RSTART) + 0
         if (stores + loads == 0) next
         print name " for " arch ": " stores " bytes stored, " loads " loaded"
         if (arch == "sm_90a" || stores > 256) bad = 1
     }
     END { if (!n) { print "no word of spills in the logs"; bad = 1 } exit bad }' $logs
