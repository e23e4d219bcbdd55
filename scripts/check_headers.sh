#!/bin/sh
# Each public header compiles alone, as C11 and as C++17, without a warning.
# usage: scripts/check_headers.sh     (CC and CXX choose the compilers)
cd "$(dirname "$0")/.." || exit 1
flags="-Iinclude -fsyntax-only -Wall -Wextra -Wpedantic -Werror"
failed=0
for header in include/quern/*.h; do
    line="#include <${header#include/}>"
    # shellcheck disable=SC2086
    echo "$line" | ${CC:-cc} -std=c11 $flags -Wstrict-prototypes -x c - || { echo "$header: not as C11"; failed=1; }
    # shellcheck disable=SC2086
    echo "$line" | ${CXX:-c++} -std=c++17 $flags -x c++ - || { echo "$header: not as C++17"; failed=1; }
done
exit $failed
