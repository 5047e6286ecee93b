"""Packages: the recipes of package managers, the release's tarball, and the Debian package.

The tools that could build a recipe are not at hand everywhere: what reads its language here checks
its syntax, and the commands in it are run as they stand. With --all the tarball is made and built
without a network, and the Debian package is built, checked by lintian, unpacked and run.
"""

import hashlib
import json
import re
import shutil
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib")]

import tgc as T
from suite import Skip, Suite, expect

suite = Suite("packaging")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "packaging")
VERSION = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
case = suite.folder_case(SCRATCH)
URL = "https://downloads.example/tgc/tgc.tar.gz"


def recipes(folder, name=f"tgc-{VERSION}.tar.gz", url=URL):
    (folder / name).write_bytes(b"a tarball")
    return T.run([sys.executable, ROOT / "packaging" / "recipes.py", folder / name, "--url", url, "--out", folder])


def needs(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        raise Skip(f"no {', '.join(missing)} here")


@case("every recipe is filled in")
def filled(folder):
    T.must(recipes(folder))
    written = sorted(p.name for p in folder.iterdir() if p.name[:4] != "tgc-")
    expect(written == ["package.nix", "portfile.cmake", "recipe.yaml", "tgc.rb", "vcpkg.json"], f"written: {written}")
    for name in written:
        text = (folder / name).read_text()
        expect(not re.search(r"@[A-Z0-9]+@", text), f"{name} has words that are not filled in")
        expect(name == "vcpkg.json" or URL in text, f"{name} does not say where the tarball is")
    expect(json.loads((folder / "vcpkg.json").read_text())["version"] == VERSION, "vcpkg.json has another version")
    checksum = hashlib.sha256(b"a tarball").hexdigest()
    for name in ("tgc.rb", "package.nix", "recipe.yaml"):
        expect(checksum in (folder / name).read_text(), f"{name} has another checksum than the tarball")


@case("a URL that would end a string, and a file that is no release")
def refused(folder):
    for more in ({"url": 'https://x.example/"; rm'}, {"url": "https://x.example/${a}"}, {"name": "tgc.zip"}):
        done = recipes(folder, **more)
        expect(done.status != 0 and "recipes.py: " in done.err, f"{more}: {done.err}")
        expect(not (folder / "tgc.rb").exists(), f"{more}: a recipe was written")


@case("Homebrew's formula is Ruby")
def homebrew(folder):
    needs("ruby")
    T.must(recipes(folder))
    T.must(T.run(["ruby", "-c", folder / "tgc.rb"]))


@case("Homebrew's test compiles a model")
def homebrew_test(folder):
    T.must(recipes(folder))
    graph = re.search(r"<<~EOS\n(.*?)EOS", (folder / "tgc.rb").read_text(), re.S)[1]
    (folder / "net.tg").write_text(textwrap.dedent(graph))
    T.must(T.run([TGC, "net.tg", "-o", "net.c"], cwd=folder))
    T.must(T.run(["gcc", "-O2", "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-lpthread"], cwd=folder))
    T.must(T.run(["./net", "--selftest"], cwd=folder))


@case("Nix's package is an expression of Nix")
def nix(folder):
    needs("nix-instantiate")
    T.must(recipes(folder))
    state = {"NIX_STATE_DIR": str(folder / "state"), "NIX_STORE_DIR": str(folder / "store")}
    T.must(T.run(["nix-instantiate", "--parse", folder / "package.nix"], env=state))


@case("what packages run as their test works")
def package_test(folder):
    T.must(T.run([ROOT / "debian" / "tests" / "compile", TGC]))


@case("the packages have the project's version")
def versions(folder):
    expect(f"tgc ({VERSION})" in (ROOT / "debian" / "changelog").read_text().splitlines()[0], "debian/changelog has another version")


def copy_of_the_commit(folder):
    """A clone, since a tarball is made of what is committed."""
    needs("git")
    if T.run(["git", "rev-parse", "HEAD"], cwd=ROOT).status != 0:
        raise Skip("this is no git repository")
    T.must(T.run(["git", "clone", "-q", ROOT, folder / "tgc"]))
    return folder / "tgc"


@case("the tarball is made and built without a network", slow=True)
def tarball(folder):
    needs("unshare")
    clone = copy_of_the_commit(folder)
    alone = ["unshare", "-rn"]
    T.must(T.run([*alone, "meson", "setup", "build", "-Dtests=disabled"], cwd=clone))
    T.must(T.run([*alone, "meson", "dist", "-C", "build", "--no-tests", "--formats", "gztar"], cwd=clone, timeout=300))
    tarball = clone / "build" / "meson-dist" / f"tgc-{VERSION}.tar.gz"
    T.must(T.run(["tar", "xf", tarball], cwd=clone.parent))
    source = clone.parent / f"tgc-{VERSION}"
    T.must(T.run([*alone, "meson", "setup", "build", "-Dtests=disabled", "--prefix", clone.parent / "prefix"], cwd=source))
    T.must(T.run([*alone, "ninja", "-C", "build", "-j", str(OPTIONS.jobs), "install"], cwd=source, timeout=600))
    T.must(T.run([source / "debian" / "tests" / "compile", clone.parent / "prefix" / "bin" / "tgc"]))


@case("the Debian package has nothing that lintian says, and works", slow=True)
def debian(folder):
    needs("dpkg-buildpackage", "dh", "lintian")
    clone = copy_of_the_commit(folder)
    T.must(T.run([clone / "packaging" / "debian.sh", folder / "debian"], timeout=900))
    package = next((folder / "debian").glob("tgc_*.deb"))
    T.must(T.run(["dpkg-deb", "-x", package, folder / "debian" / "root"]))
    T.must(T.run([clone / "debian" / "tests" / "compile", folder / "debian" / "root" / "usr" / "bin" / "tgc"]))


suite.main()
