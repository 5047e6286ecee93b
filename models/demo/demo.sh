#!/bin/sh
# The demo: a real model from PyPI becomes a C file, a program, and a table of file types.
# Usage: models/demo/demo.sh BUILD_DIR (run from the repository's root, by `make demo`)
# TGC_DEMO_OFFLINE=1 does as if PyPI could not be reached.
set -eu
build=$1
python=.venv/bin/python
tgc=$build/cli/tgc
out=$build/demo
mkdir -p "$out"
rm -f "$out/fetch.log"

now() { date +%s%N; }
size() { stat -c %s "$1" | awk '{ printf $1 < 1e6 ? "%.0f kB" : "%.1f MB", $1 < 1e6 ? $1 / 1e3 : $1 / 1e6 }'; }

# step TEXT COMMAND...: shows the command, runs it, and says how long it took.
step() {
    what=$1
    shift
    printf '\n-- %s\n   $ %s\n' "$what" "$*"
    start=$(now)
    "$@" || { printf '\ndemo: this step failed: %s\n' "$what" >&2; exit 1; }
    echo "$start $(now)" | awk '{ printf "   %.2f s\n", ($2 - $1) / 1e9 }'
}

file_types() {
    model=$package/magika/models/standard_v3_3/model.onnx
    $python models/demo/prepare.py "$package" "$out"
    step "compile the model ($(size "$model")) to C, its batch fixed to 1" \
        "$tgc" "$model" --dim unk__214=1 -o "$out/magika.c"
    printf '   magika.c is %s, magika.h %s; %s\n' "$(size "$out/magika.c")" "$(size "$out/magika.h")" \
        "$(grep -m1 -E 'define MAGIKA_ARENA_BYTES' "$out/magika.h" | awk '{ print $3 " bytes of arena" }')"
    step "build it with the system's compiler" \
        cc -O2 -I"$out" models/demo/filetype.c "$out/magika.c" -o "$out/filetype" -lm
    printf '   filetype is %s and needs no other file\n' "$(size "$out/filetype")"
    step "ask it what these files are" \
        "$out/filetype" README.md LICENSE Makefile meson.build models/demo/filetype.c \
        models/demo/prepare.py models/demo/demo.sh "$out/picture.png" "$out/types.h" "$tgc"
}

digits() {
    step "compile models/digits.tg to C" "$tgc" models/digits.tg -o "$out/digits.c"
    printf '   digits.c is %s\n' "$(size "$out/digits.c")"
    step "build it with the system's compiler" \
        cc -O2 -I"$out" models/demo/digits.c "$out/digits.c" -o "$out/digits" -lm
    step "read some digits" "$out/digits"
}

printf '%s\n' '-- fetch the model magika from PyPI (kept in .cache/)'
start=$(now)
if [ -z "${TGC_DEMO_OFFLINE:-}" ] && package=$($python tests/lib/packages.py magika==1.0.3 2>"$out/fetch.log"); then
    package=${package#"$PWD"/}
    echo "$start $(now)" | awk '{ printf "   %.2f s\n", ($2 - $1) / 1e9 }'
    file_types
else
    printf '   PyPI cannot be reached: %s\n' "${TGC_DEMO_OFFLINE:+TGC_DEMO_OFFLINE is set}$(tail -c 300 "$out/fetch.log" 2>/dev/null)"
    printf '   going on with a small model of this repository\n'
    digits
fi
