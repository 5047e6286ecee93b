#!/usr/bin/env python3
"""Recipes of package managers for a release's tarball, as `meson dist --formats gztar` writes it.

    packaging/recipes.py TARBALL --url URL [--homepage URL] --out FOLDER

URL is where the tarball will be found; version and checksums are the tarball's own. Written are
tgc.rb (Homebrew), package.nix (Nix), recipe.yaml (conda-forge), vcpkg.json and portfile.cmake (vcpkg).
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

RECIPES = Path(__file__).resolve().parent / "recipes"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tarball", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--homepage", help="the URL's folder, if not given")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for url in (options.url, options.homepage or ""):
        if not re.fullmatch(r"[\x21\x23\x25-\x5b\x5d-\x7e]*", url):     # no quotes, dollars, backslashes, blanks
            sys.exit(f"recipes.py: {url!r} cannot stand in a recipe: a URL has no blanks, quotes, '$' or '\\'")
    version = re.fullmatch(r"tgc-(\d+(?:\.\d+)*)\.tar\.gz", options.tarball.name)
    if not version:
        sys.exit(f"recipes.py: {options.tarball.name} is no tgc-VERSION.tar.gz, as meson dist --formats gztar names it")
    data = options.tarball.read_bytes()
    words = {"VERSION": version[1], "URL": options.url, "HOMEPAGE": options.homepage or options.url.rsplit("/", 1)[0],
             "SHA256": hashlib.sha256(data).hexdigest(), "SHA512": hashlib.sha512(data).hexdigest()}
    options.out.mkdir(parents=True, exist_ok=True)
    for recipe in sorted(RECIPES.glob("*.in")):
        text = re.sub(r"@([A-Z0-9]+)@", lambda word: words[word[1]], recipe.read_text())
        (options.out / recipe.stem).write_text(text)


if __name__ == "__main__":
    main()
