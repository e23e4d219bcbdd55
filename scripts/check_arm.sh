#!/bin/bash
# Cross compiles everything for 64-bit Arm, warnings as errors, and runs some tests in qemu.  What is
# missing is said, and skipped: the compiler, qemu, or libraries for arm64, which apt-get fetches into
# a folder of the build.
#     scripts/check_arm.sh [BUILD]      (build-arm)
# The last line: "N passed, N failed[, N skipped]".  A few minutes.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build-arm}
root=$PWD/$build/root
skip() { echo "$1"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

for c in aarch64-linux-gnu-gcc pkg-config; do
    command -v $c > /dev/null || skip "no $c here (Debian: gcc-aarch64-linux-gnu)"
done
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
    skip "no qemu-aarch64 here (Debian: qemu-user-static)"

# Under a state of apt's own: the system's lists and architectures stay as they are.
arm_apt() {
    mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial"
    : > "$root/apt/status"
    timeout 60 apt-get -qq -o Dir::State="$root/apt" -o Dir::State::status="$root/apt/status" \
        -o Dir::Cache="$root/apt/cache" -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@" > /dev/null 2>&1
}
fetch_libraries() {
    command -v apt-get dpkg > /dev/null && mkdir -p "$root" && arm_apt update || return 1
    (cd "$root" && arm_apt download libutf8proc2 libutf8proc-dev libjansson4 libjansson-dev \
        libcmocka0 libcmocka-dev libpcre2-8-0 libpcre2-dev && for f in *.deb; do dpkg -x "$f" . || exit; done)
    rm -rf "$root/apt" "$root"/*.deb
}
libraries=$root/usr/lib/aarch64-linux-gnu
export PKG_CONFIG_LIBDIR=$libraries/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
present() { pkg-config --exists libutf8proc jansson cmocka libpcre2-8; }
present || fetch_libraries
present || skip "no libraries for arm64 here, and apt-get does not bring them"

log=$(mktemp); trap 'rm -f "$log"' EXIT
jobs=$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
make -j"$jobs" BUILD="$build" CUDA=0 CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar WERROR=1 \
    CPPFLAGS="-I$root/usr/include" LDFLAGS="-L$libraries -Wl,-rpath-link,$libraries" all tests > "$log" 2>&1 ||
    { grep -v '^  [A-Z][A-Z]  ' "$log" | tail -40; echo "0 passed, 1 failed"; exit 1; }

emulate=("$emulator" -cpu max,sve=off,pauth-impdef=on -L /usr/aarch64-linux-gnu
         -E "LD_LIBRARY_PATH=$libraries")
QRN_TEST_SECONDS=400 QRN_TEST_WRAPPER="${emulate[*]}" scripts/run_tests.sh "$build" \
    "ops/test_matmul$" ops/test_matmul_id ops/test_matmul_bf16 ops/test_cast ops/test_rms_norm \
    ops/test_softmax ops/test_elementwise | tee "$log" | sed '$d'
read -r passed _ failed _ skipped _ < <(tail -n 1 "$log")

# A whole model: the likeliest words, those of this machine's build where there is one.
tale() { "$@" run models/fairy -p "A fox met a" -n 6 --temp 0 2> /dev/null; }
text=$(tale timeout 200 "${emulate[@]}" "$build/quern")
if [ -n "$text" ] && { [ ! -x build/quern ] || [ "$text" = "$(tale build/quern)" ]; }; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "models/fairy goes on with: $text"
fi
echo "$passed passed, $failed failed${skipped:+, $skipped skipped}"
[ "$failed" -eq 0 ]
