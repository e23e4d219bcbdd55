#!/bin/sh
# Who may include whom: each line names a folder and what it may include besides itself.
#     base <- formats <- core <- ops <- backends;  base <- formats <- text;  model above.
# The command is linked with the archive and may look inside (files, kernels); examples may not.
cd "$(dirname "$0")/.." || exit 1
rules() {
    cat <<'RULES'
src/base              quern
src/formats           quern base
src/core              quern base formats ops/ops.inc backends/backends.inc
src/ops               quern base formats core
src/backends          quern base formats core ops
src/text              quern base formats
src/model             quern base formats core text
tools                 quern base formats core ops/ops.inc backends/backends.inc model/files.h
examples              quern
RULES
}
violations=$(rules | while read -r folder allowed; do
    own=${folder#src/}
    grep -rnE --include='*.[ch]' --include='*.inc' '^ *# *include *[<"]' "$folder" 2> /dev/null |
        sed -n 's/^\([^:]*:[0-9]*\):.*include *[<"]\([^>"]*\)[>"].*/\1 \2/p' | while read -r where what; do
        case $what in
            */*) ;;
            *) continue ;; # of the system, or beside the file
        esac
        case $what in sys/*|linux/*|arpa/*|netinet/*|"$own"/*|cli/*|server/*) continue ;; esac
        for a in $allowed; do case $what in "$a"|"$a"/*) continue 2 ;; esac; done
        echo "$where includes $what"
    done
done
# An instruction set sees itself and what it extends (avx512vnni: avx512; amx: avx512*; avxvnni: avx2);
# what all may see sees none of them.
grep -rnE '#include "backends/cpu/(generic|avx|neon|amx|cuda)' src tools --include='*.[ch]' --include='*.inc' 2> /dev/null |
    awk -F: '{ split($1, p, "/"); n = split($3, q, "[\"/]"); if (p[2] != "backends" || (index(p[4], q[4]) != 1 && !(p[4] == "amx" && index(q[4], "avx512") == 1) && !(p[4] == "avxvnni" && q[4] == "avx2"))) print $1 ":" $2 " includes " $3 }')
[ -z "$violations" ] || { echo "$violations"; exit 1; }
