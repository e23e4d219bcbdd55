#!/bin/sh
# No device code keeps registers in memory: what ptxas said when it was built.
#     usage: scripts/check_spills.sh [BUILD]
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
logs=$(find "$build/src/backends/cuda/device" -name '*.fatbin.log' 2> /dev/null)
[ -n "$logs" ] || { echo "no device code in $build: built without nvcc"; exit 0; }
# shellcheck disable=SC2086
awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2] " for " part[4] }
     /spill stores/ { if ($0 !~ / 0 bytes spill stores, 0 bytes spill loads/) { print name ":" $0; bad = 1 } n++ }
     END { if (!n) { print "no word of spills in the logs"; bad = 1 } exit bad }' $logs
