#!/bin/sh
# Fuzz for a while: usage: scripts/fuzz.sh SECONDS [TARGET...]     (needs clang; TARGET: gguf, config, ...)
# Each target starts from fuzz/corpus/TARGET.  What it finds new goes to build-fuzz/corpus/TARGET, an
# input that fails to build-fuzz/TARGET-*; the exit status then is 1.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:?usage: scripts/fuzz.sh SECONDS [TARGET...]}; shift
[ $# -gt 0 ] || set -- $(ls fuzz/fuzz_*.c | sed 's/.*fuzz_\(.*\)\.c/\1/')
failed=0
for target; do
    program=build-fuzz/fuzz/fuzz_$target
    make -s BUILD=build-fuzz CC=clang FUZZER=1 SANITIZE=address,undefined \
        CFLAGS="-O1 -g" -j"$(getconf _NPROCESSORS_ONLN)" \
        "$program" > /dev/null
    mkdir -p "build-fuzz/corpus/$target"
    printf '%s: ' "$target"
    if "$program" -seed=1 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -verbosity=0 \
        -artifact_prefix="build-fuzz/$target-" -print_final_stats=1 \
        "build-fuzz/corpus/$target" "fuzz/corpus/$target" > build-fuzz/log 2>&1; then
        sed -n 's/^stat::number_of_executed_units: *\(.*\)/\1 runs, good/p' build-fuzz/log
    else
        echo FAILED; tail -60 build-fuzz/log; failed=1
    fi
done
exit $failed
