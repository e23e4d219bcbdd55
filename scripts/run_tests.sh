#!/bin/sh
# Run the built test programs and add up what they report.  usage: run_tests.sh BUILD [PART OF A NAME...]
# The last line is "N passed, N failed[, N skipped]"; the exit status is 0 only when nothing failed.
build=${1:?usage: run_tests.sh BUILD [PART OF A NAME...]}; shift
limit=${QRN_TEST_SECONDS:-600}          # for one program
log=$(mktemp); trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
wanted() { [ $# -eq 1 ] && return 0; name=$1; shift; for p; do case $name in *"$p"*) return 0;; esac; done; return 1; }
for program in $(find "$build/tests" -type f -name 'test_*' -perm -u+x ! -name '*.d' | sort); do
    name=${program#"$build/tests/"}
    wanted "$name" "$@" || continue
    start=$(date +%s)
    timeout "$limit" "$program" > "$log" 2>&1; status=$?
    p=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
    f=$(sed -n 's/^\[  FAILED  \] .* \([0-9]*\) test(s), listed below:$/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
    s=$(sed -n 's/^\[  SKIPPED \] .* \([0-9]*\) test(s), listed below:$/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
    [ "$f" -eq 0 ] && f=$(grep -c '^\[  FAILED  \] [a-z_0-9]*$' "$log" | awk '{print int(($1 + 1) / 2)}')
    [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-44s %4d passed %3d failed %3d skipped %4d s\n' "$name" "$p" "$f" "$s" $(($(date +%s) - start))
    if [ "$f" -ne 0 ]; then
        echo "---- $program ended with $status"; grep -v '^\[       OK \]\|^\[ RUN ' "$log" | tail -60; echo "----"
    fi
done
if [ "$skipped" -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
