#!/bin/sh
# Run the built test programs and fuzz corpora and add up what they report.
#     usage: run_tests.sh BUILD [PART OF A NAME...]
#     a part may end in $: the end of a name
#     QRN_TEST_SECONDS   limit for one program (600)
#     QRN_TEST_WRAPPER   a command to run programs with: "setarch -R"
#     QRN_TEST_CUDA      "real": ops run on the GPU too; "": on none; otherwise on the emulated one
# The last line is "N passed, N failed[, N skipped]"; the exit status is 0 only when nothing failed.
build=${1:?usage: run_tests.sh BUILD [PART OF A NAME...]}; shift
limit=${QRN_TEST_SECONDS:-600}
log=$(mktemp); trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0

wanted() {
    [ $# -gt 1 ] || return 0
    name=$1; shift
    for part; do case "$name$" in *"$part"*) return 0 ;; esac; done
    return 1
}
# The number before "test(s)" in the lines of the log that begin with "[  $1 ]".
count() { sed -n "s/^\[  $1 *\] \(.* \)\{0,1\}\([0-9][0-9]*\) test(s).*/\2/p" "$log" | awk '{n += $1} END {print n + 0}'; }
report() {
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-44s %4d passed %3d failed %3d skipped %4d s\n' "$name" "$p" "$f" "$s" $(($(date +%s) - start))
    [ "$f" -eq 0 ] && return
    echo "---- $name ended with $status"; grep -v '^\[       OK \]\|^\[ RUN ' "$log" | tail -60; echo "----"
}

for source in tests/*/test_*.c; do
    program=$build/${source%.c}; name=${program#"$build/tests/"}
    wanted "$name" "$@" || continue
    start=$(date +%s)
    # shellcheck disable=SC2086
    timeout "$limit" $QRN_TEST_WRAPPER "$program" > "$log" 2>&1; status=$?
    p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
    [ "$status" -eq 0 ] || [ "$f" -gt 0 ] || f=1 # killed, or a leak after the last test
    report
done

# Fuzz targets: one test each, every file of the corpus.
for program in "$build"/fuzz/fuzz_*; do
    name=fuzz/${program##*/}; corpus=fuzz/corpus/${program##*/fuzz_}
    [ -x "$program" ] && [ -f "$program" ] && [ -d "$corpus" ] && wanted "$name" "$@" || continue
    start=$(date +%s)
    find "$corpus" -type f | sort > "$log.files"
    # shellcheck disable=SC2086
    timeout "$limit" $QRN_TEST_WRAPPER xargs "$program" < "$log.files" > "$log" 2>&1; status=$?
    rm -f "$log.files"
    p=1 f=0 s=0
    [ "$status" -eq 0 ] || p=0 f=1
    report
done

summary="$passed passed, $failed failed"
[ "$skipped" -eq 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
