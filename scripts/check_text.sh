#!/bin/sh
# The text of what is committed: ASCII, no tabs but in makefiles, no spaces at ends of lines, a
# licence line on top of every source.
cd "$(dirname "$0")/.." || exit 1
failed=0
complain() { [ -z "$2" ] || { echo "$1:"; echo "$2"; failed=1; }; }
sources=$(git ls-files | grep -E '\.(c|h|inc|sh|py|cu|cuh|cmake|in)$|^scripts/|^\.ci/|Makefile|CMakeLists' | grep -v '^tests/data/')
# shellcheck disable=SC2086
complain "not ASCII" "$(LC_ALL=C grep -nP '[^\x00-\x7f]' $sources | head)"
# shellcheck disable=SC2086
complain "space at the end" "$(grep -n ' $' $sources | head)"
# shellcheck disable=SC2086
complain "tabs" "$(grep -nP '\t' $(echo "$sources" | grep -v Makefile) | head)"
complain "no SPDX line" "$(git ls-files '*.c' '*.h' | while read -r f; do
    head -n 1 "$f" | grep -q 'SPDX-License-Identifier: MIT' || echo "$f"; done)"
exit $failed
