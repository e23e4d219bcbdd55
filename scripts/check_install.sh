#!/bin/sh
# Installs into a folder and builds an embedding program against what lies there: by pkg-config and
# by CMake, shared and static, from the Makefile's installation and from CMake's.
# usage: scripts/check_install.sh [BUILD]      (needs cmake and readelf)
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
root=$PWD
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT

cat > "$dir/embed.c" <<'C'
#include <quern/quern.h>
#include <stdio.h>

int main(void)
{
    float x[3] = {1, 2, 3}, y[3] = {10, 20, 30}, sum[3];
    struct qrn_error err;
    struct qrn_device *dev;
    if (qrn_device_open(NULL, &dev, &err) != QRN_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct qrn_add_args add = {.x = qrn_tensor_1d(QRN_F32, x, 3), .y = qrn_tensor_1d(QRN_F32, y, 3),
                                     .out = qrn_tensor_1d(QRN_F32, sum, 3)};
    if (qrn_add(dev, &add, &err) != QRN_OK) fprintf(stderr, "%s\n", err.text);
    printf("quern %s says %g %g %g\n", qrn_version(), (double)sum[0], (double)sum[1], (double)sum[2]);
    qrn_device_close(dev);
    return 0;
}
C
cat > "$dir/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(embed C)
find_package(quern 0.1 REQUIRED)
add_executable(embed embed.c)
target_link_libraries(embed ${QUERN_TARGET})
CMAKE
version=$(sed -n 's/^.define QRN_VERSION_STRING "\(.*\)"/\1/p' include/quern/version.h)
says() { # who, command...: it runs and says what it should
    who=$1; shift
    got=$("$@") || { echo "$who: cannot run"; exit 1; }
    [ "$got" = "quern $version says 11 22 33" ] || { echo "$who: says \"$got\""; exit 1; }
    echo "$who: $got"
}
by_pkg_config() { # who, prefix
    flags="--define-variable=prefix=$2"
    export PKG_CONFIG_PATH="$2/lib/pkgconfig"
    # shellcheck disable=SC2046
    if [ -e "$2/lib/libquern.so" ]; then
        ${CC:-cc} -Wall -Werror -o "$dir/shared" "$dir/embed.c" $(pkg-config "$flags" --cflags --libs quern)
        says "$1, pkg-config, shared" env LD_LIBRARY_PATH="$2/lib" "$dir/shared"
        readelf -d "$dir/shared" | grep -q 'NEEDED.*libquern\.so\.[0-9]*\]' || { echo "no SONAME"; exit 1; }
    fi
    # shellcheck disable=SC2046
    ${CC:-cc} -Wall -Werror -o "$dir/static" "$dir/embed.c" $(pkg-config "$flags" --cflags quern) \
        "$2/lib/libquern.a" $(pkg-config "$flags" --static --libs quern | sed 's/-lquern//')
    says "$1, pkg-config, static" "$dir/static"
}
by_cmake() { # who, prefix, target
    rm -rf "$dir/cmake"
    cmake -S "$dir" -B "$dir/cmake" -DCMAKE_PREFIX_PATH="$2" -DQUERN_TARGET="$3" > "$dir/log" &&
        cmake --build "$dir/cmake" >> "$dir/log" || { cat "$dir/log"; exit 1; }
    says "$1, CMake, $3" "$dir/cmake/embed"
}

make -s BUILD="$build" DESTDIR="$dir/make" install > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
by_pkg_config "make install" "$dir/make/usr/local"
by_cmake "make install" "$dir/make/usr/local" quern::quern
by_cmake "make install" "$dir/make/usr/local" quern::static

for shared in OFF ON; do
    cmake -S "$root" -B "$dir/build-$shared" -DBUILD_SHARED_LIBS=$shared -DCMAKE_INSTALL_LIBDIR=lib > "$dir/log" 2>&1 &&
        cmake --build "$dir/build-$shared" -j"$(getconf _NPROCESSORS_ONLN)" >> "$dir/log" 2>&1 &&
        cmake --install "$dir/build-$shared" --prefix "$dir/by-cmake-$shared" >> "$dir/log" 2>&1 ||
        { tail -40 "$dir/log"; exit 1; }
    by_cmake "cmake --install, shared $shared" "$dir/by-cmake-$shared" quern::quern
done
by_pkg_config "cmake --install" "$dir/by-cmake-OFF"

# As a part of another project.
mkdir "$dir/part"
sed "s|find_package.*|add_subdirectory($root quern)|" "$dir/CMakeLists.txt" > "$dir/part/CMakeLists.txt"
cp "$dir/embed.c" "$dir/part"
cmake -S "$dir/part" -B "$dir/part/build" -DQUERN_TARGET=quern::quern > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
grep -q 'quern' "$dir/part/build/quern/Makefile" || { echo "add_subdirectory made no quern"; exit 1; }
echo "add_subdirectory: configured"
