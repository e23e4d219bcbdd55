#!/usr/bin/env bash
# Runs a GPU bundle's tests of ops under compute-sanitizer, many at once; for a machine with a GPU:
#     scripts/bundle_gpu.sh                     where quern is built
#     scripts/sanitize_gpu.sh [TOOL [REGEX]]    memcheck, racecheck, initcheck, synccheck; default: all, tests/ops/
# LIMIT: seconds for a program (600; racecheck is slow), BUNDLE: its folder (build-gpu), JOBS (8).  Fails if a
# tool finds anything or a test does not pass; then the tool's words are in $BUNDLE/sanitizer/.
cd "$(dirname "$0")/.." || exit 1
BUNDLE=$(realpath -e "${BUNDLE:-build-gpu}") || exit 1
export BUNDLE LIMIT=${LIMIT:-600}
export QRN_TEST_CUDA=real LD_LIBRARY_PATH=$BUNDLE/lib:$LD_LIBRARY_PATH
tools=${1:-memcheck racecheck initcheck synccheck} tests=${2:-tests/ops/}
programs=$(find "$BUNDLE/tests" -name 'test_*' -type f | grep -E "$tests" | sort)
if [ -z "$programs" ]; then
    echo "$0: no test in $BUNDLE/tests is called $tests" >&2
    exit 1
fi
mkdir -p "$BUNDLE/sanitizer"

check() {
    local tool=$1 program=$2 log status=0 options=()
    log=$BUNDLE/sanitizer/$tool.${program##*/}.log
    # A warp's lanes meet, then one arrives at a barrier for all of them.
    [ "$tool" != racecheck ] || options=(--racecheck-indirect-barrier-dependency)
    SECONDS=0
    timeout -k 5 "$LIMIT" compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 99 \
        "${options[@]}" "$program" > "$log" 2>&1 || status=$?
    # Tests that only a CPU takes part in.
    if grep -qE 'terminated before first instrumented|No attachable process found' "$log" &&
        grep -qF '[  PASSED  ]' "$log" && ! grep -qF '[  FAILED  ]' "$log"; then status=0; fi
    printf '%-10s %-32s %s, %d s\n' "$tool" "${program##*/}" "$([ $status -eq 0 ] && echo good || echo "FAILED ($status)")" "$SECONDS"
    return $((status != 0)) # with 255 xargs would begin no other
}
export -f check

failed=0
for tool in $tools; do
    printf '%s\n' "$programs" | xargs -P "${JOBS:-8}" -I{} bash -c 'check "$0" "$1"' "$tool" {} || failed=1
done
exit $failed
