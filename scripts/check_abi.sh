#!/bin/sh
# Compares the interface of two builds of the shared library.
#     usage: scripts/check_abi.sh OLD/libquern.so NEW/libquern.so
# Needs abidiff (Debian: abigail-tools), and debug information in both (-g, which is the default).
# Fails when the new library cannot stand in for the old one; additions are fine.
set -eu
[ $# -eq 2 ] || { sed -n '3,5s/^# *//p' "$0" >&2; exit 2; }
command -v abidiff > /dev/null || { echo "abidiff is not here (Debian: abigail-tools)" >&2; exit 2; }
headers=$(cd "$(dirname "$0")/.." && pwd)/include/quern
status=0
abidiff --no-added-syms --headers-dir1 "$headers" --headers-dir2 "$headers" "$1" "$2" || status=$?
# bits of the status: 1 error, 2 usage, 4 a change, 8 an incompatible change
[ $((status & 11)) -eq 0 ] || exit 1
