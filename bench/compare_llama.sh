#!/bin/sh
# quern beside llama.cpp on this machine: builds both where needed, makes models of released shapes
# with random weights, measures in turn, prints the table, writes the raw numbers.
#     bench/compare_llama.sh [--only REGEX] [--runs N] [--threads N] [--csv FILE]
# Files go to $QRN_BENCH_DIR (default build/bench, 9 GB); a llama.cpp that is there already can be
# named by $QRN_LLAMA (a folder with bin/).  All rows take about an hour and a half.
set -eu
cd "$(dirname "$0")/.."
work=${QRN_BENCH_DIR:-build/bench}
llama=${QRN_LLAMA:-$work/llama}
mkdir -p "$work"
make -j "$(getconf _NPROCESSORS_ONLN)" build/quern > "$work/make.log"
[ -x "$llama/bin/llama-bench" ] || bench/build_llama.sh "$llama"
if [ ! -x "$work/python/bin/python3" ]; then
    python3 -m venv "$work/python"
    "$work/python/bin/python3" -m pip install -q numpy
fi
exec "$work/python/bin/python3" bench/compare.py --quern build/quern --llama "$llama/bin" \
    --models "$work" "$@"
