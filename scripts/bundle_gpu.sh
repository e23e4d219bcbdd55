#!/bin/sh
# Makes a folder with the command and all tests that runs on a GPU machine which has neither a compiler nor
# the libraries: copy it there beside scripts/ and tests/, or the whole checkout, then
#     LD_LIBRARY_PATH=build-gpu/lib QRN_TEST_CUDA=real scripts/run_tests.sh build-gpu ops/ core/ emulator/
#     LD_LIBRARY_PATH=build-gpu/lib build-gpu/quern bench --device cuda ...
#     usage: scripts/bundle_gpu.sh [FOLDER]      (build-gpu; about 20 MiB)
# Device code is that of build/; the tests share one library, in which nothing is hidden.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build-gpu}
objects=$out-objects
n=$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
supports=$(printf '%s\n' tests/support/*.c | sed "s|\(.*\)\.c|$objects/\1.o|")
images=$(printf '%s\n' tests/emulator/*.cu | sed "s|\(.*\)\.cu|$objects/\1_image.o|")
# shellcheck disable=SC2086
make -s -j"$n" BUILD="$objects" CPPFLAGS=-fvisibility=default "$objects/libquern.a" "$objects/quern" $supports $images
mkdir -p "$out/lib" "$out/tests"
needs=$(pkg-config --libs libutf8proc jansson)
# shellcheck disable=SC2086
cc -shared -s -o "$out/lib/libquern_tests.so" -Wl,--whole-archive "$objects/libquern.a" -Wl,--no-whole-archive \
    $supports $needs -lcmocka -lm -ldl -pthread
strip -o "$out/quern" "$objects/quern"
for source in tests/*/test_*.c; do
    program=$out/${source%.c}
    mkdir -p "${program%/*}"
    extra=
    case $source in tests/emulator/*) extra=$images ;; esac
    ! grep -q pcre2 "$source" || extra="$extra -lpcre2-8"
    # shellcheck disable=SC2086
    cc -O1 -s -std=c11 -D_GNU_SOURCE -DQRN_CUDA -DQRN_TEST_EMULATOR='""' -Iinclude -Isrc -Itests -isystem /usr/local/cuda/include \
        -o "$program" "$source" $extra -L"$out/lib" -lquern_tests $needs -lcmocka -lm -pthread
done
# What a machine may lack.
ldd "$out/quern" "$out"/tests/*/test_* | sed -n 's/.* => \(\/[^ ]*lib\(cmocka\|jansson\|utf8proc\|pcre2-8\)[^ ]*\) .*/\1/p' |
    sort -u | xargs -I{} cp {} "$out/lib/"
du -sh "$out"
