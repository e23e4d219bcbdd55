#!/bin/sh
# What the library shows and what it asks for.  usage: scripts/check_symbols.sh [BUILD]
# The shared library shows only qrn_; every symbol of the archive that is not static begins with
# qrn_; neither prints, exits or reads the environment (base/env.c may; base/amx.c resets signals
# in a child process); nothing in it changes.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
failed=0
complain() { [ -z "$2" ] || { echo "$1:"; echo "$2"; failed=1; }; }

complain "the shared library shows" \
    "$(nm -D --defined-only "$build/libquern.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^qrn_\|^QUERN_')"
complain "without the prefix qrn_" \
    "$(nm -g --defined-only "$build/libquern.a" | awk 'NF == 3 && $3 !~ /^qrn_/ {print "    " $3}')"
complain "not for a library" "$(nm -A -u "$build/libquern.a" | sed 's/^[^:]*:\([^:]*\):.* U /\1 /' |
    grep -E ' (abort|exit|_exit|quick_exit|__assert_fail|getenv|secure_getenv|setenv|putenv|setlocale|signal|sigaction|v?printf|puts|putchar|perror|stdout|stderr|__v?printf_chk|system|fork|rand|srand|strtok|localtime|gmtime)$' |
    grep -vE '^(env\.o getenv|amx\.o sigaction)$')"
complain "variables that change" "$(objdump -h "$build/libquern.a" |
    awk '/file format/ {file = $1} $2 ~ /^\.(data|bss|tdata|tbss)$/ && $3 !~ /^0+$/ {print "    " file " " $2}')"
exit $failed
