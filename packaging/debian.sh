#!/bin/sh
# Builds the Debian package of a clean copy and checks it; files go to FOLDER.   packaging/debian.sh FOLDER
# Needs debhelper and lintian, and the packages that debian/control names.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
cd "$1"
rm -rf tgc tgc_* tgc-dbgsym_*
mkdir tgc
(cd "$root" && git archive --format=tar HEAD) | tar x -C tgc
(cd tgc && dpkg-buildpackage -us -uc) > debian.log 2>&1 || { tail -30 debian.log; exit 1; }
lintian --allow-root --fail-on error,warning,info,pedantic --pedantic --display-info tgc_*.changes
ls tgc_*.deb
