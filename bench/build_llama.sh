#!/bin/sh
# llama.cpp out of its Python package's source, the peer of compare_llama.sh, with the instruction
# sets of this machine but AMX (that build has been seen to die where AMX is advertised).
#     bench/build_llama.sh DIR        about ten minutes on two cores; programs in DIR/bin
set -eu
version=0.3.36
dir=${1:?usage: build_llama.sh DIR}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
flag() { if grep -qw "$1" /proc/cpuinfo; then echo ON; else echo OFF; fi; }
programs="llama-bench llama-batched-bench llama-completion test-backend-ops"

if [ ! -d "$dir/source" ]; then
    python3 -m pip download -q --no-deps --no-binary llama-cpp-python -d "$dir" "llama-cpp-python==$version"
    mkdir "$dir/source"
    tar xzf "$dir/llama_cpp_python-$version.tar.gz" -C "$dir/source" --strip-components=3 \
        "llama_cpp_python-$version/vendor/llama.cpp"
fi
cmake -S "$dir/source" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF \
    -DLLAMA_BUILD_TESTS=ON -DLLAMA_BUILD_UI=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
    -DGGML_AVX="$(flag avx)" -DGGML_AVX2="$(flag avx2)" -DGGML_FMA="$(flag fma)" \
    -DGGML_F16C="$(flag f16c)" -DGGML_BMI2="$(flag bmi2)" -DGGML_AVX512="$(flag avx512f)" \
    -DGGML_AVX512_VBMI="$(flag avx512vbmi)" -DGGML_AVX512_VNNI="$(flag avx512_vnni)" \
    -DGGML_AVX512_BF16="$(flag avx512_bf16)" > "$dir/cmake.log"
# shellcheck disable=SC2086
cmake --build "$dir/build" -j "$(getconf _NPROCESSORS_ONLN)" --target $programs > "$dir/build.log"
ln -sfn build/bin "$dir/bin"
