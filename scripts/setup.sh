#!/bin/sh
# Installs what a target needs, on Debian and Ubuntu, and nothing when nothing is missing.
#
#   scripts/setup.sh build    the compiler, Meson, protobuf-c and libjpeg
#   scripts/setup.sh demo     the same, and a Python with pip that fetches the demo's model
#   scripts/setup.sh web      the same as build, and what WebAssembly modules are made with
#   scripts/setup.sh check    the same as demo, and what the tests use (.venv/ holds the Python part)
#   scripts/setup.sh check-all    the same, older compilers, and what builds and checks packages
#   scripts/setup.sh wheel    the same as build, and what cross-compiles and tries wheels
#   scripts/setup.sh site     a Python with the generator of the documents' site
#   scripts/setup.sh bench    the same, and the runtimes that the benchmark compares with
#
# It prints the names of what it is about to install before it does so. Packages marked
# optional are left out where the distribution has none of that name.
set -eu
cd "$(dirname "$0")/.."

build='gcc libc6-dev make meson ninja-build pkg-config protobuf-c-compiler libprotobuf-c-dev'
python='python3 python3-venv'
reads='libjpeg-dev'    # JPEG as inputs of tgc run; tgc can be built without
check='g++ clang cmake libcmocka-dev libwebp-dev libopenjp2-7-dev python3-torch python3-torchvision'
optional='tcc pocl-opencl-icd clinfo zsh fish libclang-rt-dev clang-19 lld-19 llvm-19 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user'
web='clang-19 lld-19 wasi-libc'
optional="$optional wasi-libc libclang-rt-19-dev-wasm32 musl-tools"
optional="$optional openmpi-bin"    # processes that train together, in the tests
optional="$optional gcc-i686-linux-gnu libc6-dev-i386-cross gcc-s390x-linux-gnu libc6-dev-s390x-cross"
long='gcc-11 clang-13 clang-15 clang-16 debhelper lintian nix-bin ruby mmdebstrap chromium firefox-esr nodejs'
wheel='binutils dpkg-dev qemu-user'
long="$long gcc-mingw-w64-x86-64-win32 wine64"    # 290 and 670 MB
long="$long gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm lld"
long="$long gcc-arm-linux-gnueabihf libc6-dev-armhf-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"

say() { printf 'setup: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

installed() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q ' installed$'
}

can_be_root() {
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

# What works counts as present, wherever it comes from; only what cannot be tried has to be a package.
have() {
    case $1 in
    openmpi-bin) command -v mpirun >/dev/null ;;
    nodejs) command -v node >/dev/null ;;
    gcc | g++ | make | cmake | mmdebstrap | meson | clang | clang-19 | chromium | firefox-esr | pkg-config | python3 | zsh | fish) command -v "$1" >/dev/null ;;
    gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc >/dev/null ;;
    libc6-dev-arm64-cross)
        printf '#include <stdio.h>\n' | aarch64-linux-gnu-gcc -E -xc - >/dev/null 2>&1 ;;
    qemu-user) command -v qemu-aarch64 >/dev/null ;;
    python3-torch) /usr/bin/python3 -c 'import torch' 2>/dev/null ;;
    python3-torchvision) /usr/bin/python3 -c 'import torchvision' 2>/dev/null ;;
    libc6-dev) printf '#include <stdio.h>\n' | cc -E -xc - >/dev/null 2>&1 ;;
    libprotobuf-c-dev) pkg-config --exists libprotobuf-c 2>/dev/null ;;
    libcmocka-dev) pkg-config --exists cmocka 2>/dev/null ;;
    libjpeg-dev) pkg-config --exists libjpeg 2>/dev/null ;;
    libwebp-dev) pkg-config --exists libwebp 2>/dev/null ;;
    libopenjp2-7-dev) pkg-config --exists libopenjp2 2>/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    protobuf-c-compiler) command -v protoc-c >/dev/null ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    binutils) command -v readelf >/dev/null ;;
    dpkg-dev) command -v dpkg-source >/dev/null ;;
    *) installed "$1" ;;
    esac
}

# What cannot be installed here is said, and who called goes on with what there is.
install_packages() {
    missing=
    for package in "$@"; do
        have "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "this machine has no apt-get; to be installed by its own means:$missing"
        return 0
    elif ! can_be_root; then
        say "neither root nor sudo; to be installed, by root: apt-get install$missing"
        return 0
    fi
    say "installing with apt-get:$missing"
    as_root apt-get update -q >/dev/null || say 'apt-get update failed; trying with the lists at hand'
    wanted=
    for package in $missing; do
        case " $reads $optional $long $web " in
        *" $package "*)
            apt-cache show "$package" >/dev/null 2>&1 || {
                say "no package $package here; going on without"
                continue
            } ;;
        esac
        wanted="$wanted $package"
    done
    # shellcheck disable=SC2086
    [ -z "$wanted" ] || as_root apt-get install -y -q --no-install-recommends $wanted >"$log" 2>&1 || {
        tail -20 "$log" >&2
        say "apt-get install failed; going on with what there is"
    }
}

# Nothing can be built without these.
require_packages() {
    lacking=
    for package in "$@"; do
        have "$package" || lacking="$lacking $package"
    done
    [ -z "$lacking" ] || die "tgc cannot be built without:$lacking"
}

python_environment() {
    if [ ! -x .venv/bin/python ]; then
        say 'creating .venv/'
        python3 -m venv .venv
    fi
}

# Installs a list of packages when it has changed; more words go to pip.
python_packages() {
    list=$1
    shift
    stamp=.venv/$(echo "$list" | tr / -).stamp
    if ! cmp -s "$list" "$stamp"; then
        say "installing into .venv/ with pip: $(grep -v '^#' "$list" | tr '\n' ' ')"
        .venv/bin/pip install -q --disable-pip-version-check "$@" -r "$list"
        cp "$list" "$stamp"
    fi
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

case ${1:-} in
build)
    install_packages $build $reads
    require_packages $build
    ;;
demo)
    install_packages $build $reads $python
    require_packages $build $python
    python_environment
    ;;
web)
    install_packages $build $web
    require_packages $build
    ;;
check | check-all)
    [ "$1" = check ] && long=
    install_packages $build $reads $python $check $optional $long
    require_packages $build $python
    python_environment
    python_packages tests/requirements.txt
    [ "$1" = check ] || python_packages docs/requirements.txt
    ;;
site)
    install_packages $python
    python_environment
    python_packages docs/requirements.txt
    ;;
wheel)
    install_packages $build $python $wheel
    require_packages $build $python $wheel
    python_environment
    ;;
bench)
    install_packages $build $reads $python $check $optional
    require_packages $build $python
    python_environment
    python_packages tests/requirements.txt
    python_packages bench/requirements.txt
    python_packages bench/converter.txt --no-deps
    ;;
*)
    die 'usage: scripts/setup.sh build|demo|web|check|check-all|wheel|site|bench'
    ;;
esac
