#!/bin/sh
# Run the built test programs and fuzz corpora, as many at a time as there are processors, and add up
# what they report.
#     usage: run_tests.sh BUILD [PART OF A NAME...]
#     a part may end in $: the end of a name
#     QRN_TEST_JOBS      programs at a time (one for each processor; on a GPU one)
#     QRN_TEST_SECONDS   limit for one program (600)
#     QRN_TEST_WRAPPER   a command to run programs with: "setarch -R"
#     QRN_TEST_CUDA      "real": ops run on the GPU too; "": on none; otherwise on the emulated one
# The last line is "N passed, N failed[, N skipped]"; the exit status is 0 only when nothing failed.

# --- one program: SCRIPT --one NAME PROGRAM [FILE WITH ARGUMENTS], in the folder $QRN_TEST_FOLDER ---

# The number before "test(s)" in the lines of the log that begin with "[  $1 ]".
count() { sed -n "s/^\[  $1 *\] \(.* \)\{0,1\}\([0-9][0-9]*\) test(s).*/\2/p" "$log" | awk '{n += $1} END {print n + 0}'; }
one() {
    name=$1 program=$2 arguments=${3:-/dev/null} by=${3:+xargs} start=$(date +%s)
    log=$(mktemp "$QRN_TEST_FOLDER/XXXXXX")
    # shellcheck disable=SC2086
    timeout "${QRN_TEST_SECONDS:-600}" $by $QRN_TEST_WRAPPER "$program" < "$arguments" > "$log" 2>&1; status=$?
    p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
    [ -z "$by" ] || p=$((status == 0))           # a corpus is one test
    [ "$status" -eq 0 ] || [ "$f" -gt 0 ] || f=1 # killed, or a leak after the last test
    {
        printf '%-44s %4d passed %3d failed %3d skipped %4d s\n' "$name" "$p" "$f" "$s" $(($(date +%s) - start))
        [ "$f" -eq 0 ] ||
            { echo "---- $name ended with $status"; grep -v '^\[       OK \]\|^\[ RUN ' "$log" | tail -60; echo "----"; }
    } > "$log.report"
    flock "$QRN_TEST_FOLDER/output" cat "$log.report"
    echo "$p $f $s" > "$log.sums"
}
[ "$1" != --one ] || { shift; one "$@"; exit 0; }

# --- all of them ---

build=${1:?usage: run_tests.sh BUILD [PART OF A NAME...]}; shift
QRN_TEST_FOLDER=$(mktemp -d); export QRN_TEST_FOLDER
trap 'rm -rf "$QRN_TEST_FOLDER"' EXIT
jobs=$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
[ "${QRN_TEST_CUDA:-}" != real ] || jobs=1

wanted() {
    [ $# -gt 1 ] || return 0
    name=$1; shift
    for part; do case "$name$" in *"$part"*) return 0 ;; esac; done
    return 1
}
list() {
    for source in tests/*/test_*.c; do
        program=$build/${source%.c}; name=${program#"$build/tests/"}
        if wanted "$name" "$@"; then echo "$name $program"; fi
    done
    # Fuzz targets: every file of the corpus.
    for program in "$build"/fuzz/fuzz_*; do
        name=fuzz/${program##*/}; corpus=fuzz/corpus/${program##*/fuzz_}
        if ! [ -x "$program" ] || ! [ -f "$program" ] || ! [ -d "$corpus" ] || ! wanted "$name" "$@"; then continue; fi
        find "$corpus" -type f | sort > "$QRN_TEST_FOLDER/${program##*/}.files"
        echo "$name $program $QRN_TEST_FOLDER/${program##*/}.files"
    done
}
list "$@" > "$QRN_TEST_FOLDER/list"
xargs -r -P "${QRN_TEST_JOBS:-$jobs}" -L 1 "$0" --one < "$QRN_TEST_FOLDER/list"
cat "$QRN_TEST_FOLDER"/*.sums 2> /dev/null | awk -v programs="$(wc -l < "$QRN_TEST_FOLDER/list")" '
    {passed += $1; failed += $2; skipped += $3}
    END {
        failed += programs - NR # what has no sums did not end
        printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : ""
        exit failed || !passed
    }'
