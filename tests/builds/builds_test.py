"""tgc as build systems meet it: what is installed, CMake, Make, Meson, frameworks for microcontrollers.

What `make install` puts into an empty folder is all that the builds here know of tgc: the examples are
built with an empty environment and PATH (`env -i`), and, with --all, in a bare root that mmdebstrap makes.
CMake's builds lie in folders with blanks, `$` and letters beyond ASCII, sources and models in folders with
`#`, too (CMake itself makes nothing in a folder with `#`, and its Makefiles want none above the sources).
"""

import functools
import json
import os
import re
import shlex
import shutil
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parents[1] / "scripts")]

import onnx

import tgc as T
import wheel as W
from suite import Skip, Suite, expect

suite = Suite("builds")
OPTIONS = suite.parse()
ROOT = T.ROOT
BUILD = Path(OPTIONS.build).resolve()
TGC = T.find_tgc(BUILD).resolve()
SCRATCH = T.scratch(BUILD / "test-scratch" / "builds")
MODEL = "a b#c$d é.onnx"
case = suite.folder_case(SCRATCH)
lock = threading.Lock()


# ------------------------------------------------------------------------------------- helpers


def make(*words, status=0):
    """In this repository; Meson's folder is not for two at a time."""
    with lock:
        return T.must(T.run(["make", "--no-print-directory", f"BUILD={BUILD}", *words], cwd=ROOT), status)


@functools.cache
def installed():
    """An empty folder, and what was installed into it; returns its prefix."""
    make("install", f"DESTDIR={SCRATCH / 'installed'}")
    return next((SCRATCH / "installed").rglob("tgcConfig.cmake")).parents[3]


def prefix():
    with prefix.lock:
        return installed()


prefix.lock = threading.Lock()


def bare(command, cwd, status=0, **more):
    """Runs with nothing in the environment but a PATH that has tgc."""
    words = ["env", "-i", f"PATH={prefix()}/bin:/usr/bin:/bin", f"HOME={SCRATCH}", "LC_ALL=C.UTF-8",
             f"PKG_CONFIG_PATH={prefix()}/share/pkgconfig", *command]
    return T.must(T.run(words, cwd=cwd, timeout=300, **more), status)


def text_of(done):
    return done.out.decode(errors="replace") + done.err


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"there is no {tool} here")


def configure(source, build, *more, generator="Ninja", status=0, find=True):
    need("cmake", "ninja")
    where = [f"-DCMAKE_PREFIX_PATH={prefix()}"] if find else []
    return text_of(bare(["cmake", "-G", generator, "-S", source, "-B", build, *where, *more], source, status))


def compile_(build, *more, status=0):
    return text_of(bare(["cmake", "--build", build, *more], build, status))


def emitted(text):
    """The models that a build has written C for."""
    return sorted(re.findall(r"tgc: (\w+)\.c", text))


def touch(path):
    """Changes a file's time to one that no other file has yet."""
    time.sleep(0.01)
    os.utime(path)


def copy_of(name, folder):
    shutil.copytree(ROOT / "examples", folder)
    return folder / name


def matrix(folder):
    """The project of matrix/, with a model whose weights lie outside of it."""
    shutil.copytree(HERE / "matrix", folder)
    model = onnx.load(ROOT / "examples" / "digits.onnx")
    onnx.save_model(model, folder / MODEL, save_as_external_data=True, location="w #$ é.bin", size_threshold=0)
    (folder / "t #$ é.tune").write_text("tgc-tune 3\n")
    return folder


# ------------------------------------------------------------------------------ make install


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@suite.case("make install: what the guide promises is there")
def _():
    found = [str(path.relative_to(prefix())) for path in prefix().rglob("*") if path.is_file()]
    for name in ("bin/tgc", "lib/cmake/tgc/tgcConfig.cmake", "lib/cmake/tgc/tgcConfigVersion.cmake",
                 "lib/cmake/tgc/tgcAddModel.cmake", "share/tgc/tgc.mk", "share/pkgconfig/tgc.pc",
                 "share/man/man1/tgc.1", "share/bash-completion/completions/tgc.bash",
                 "share/zsh/site-functions/_tgc", "share/fish/vendor_completions.d/tgc.fish",
                 "share/doc/tgc/LICENSE", "share/doc/tgc/README.md", "share/doc/tgc/docs/status.md",
                 "share/doc/tgc/examples/cmake/CMakeLists.txt"):
        expect(name in found, f"{name} is not among\n" + "\n".join(found))
        expect((prefix() / name).stat().st_size > 0, f"{name} is empty")
    for name in ("tgc.h", "tgc_target.h", "libtgc.so", "libtgc.so.0"):
        expect(len([path for path in found if Path(path).name == name]) == 1, f"{name} is not among\n" + "\n".join(found))


@suite.case("make uninstall removes what make install has made, in the folder that is named, and nothing else")
def _():
    one, two = SCRATCH / "un 1", SCRATCH / "un 2"
    for folder in (one, two):
        make("install", f"DESTDIR={os.path.relpath(folder, ROOT)}")
    before = tree(two)
    docs = next(one.rglob("doc"))
    (docs / "tgc" / "mine.txt").write_text("not tgc's")
    make("install", f"DESTDIR={one}")           # again, over what is there
    make("uninstall", f"DESTDIR={one}")
    kept = docs / "tgc" / "mine.txt"
    expect([path for path in one.rglob("*") if path.is_file()] == [kept], "left: " + "\n".join(tree(one)))
    expect([path for path in one.rglob("*") if path.is_dir() and not kept.is_relative_to(path)] == [],
           "folders left: " + "\n".join(tree(one)))
    expect(tree(two) == before, "the other folder has changed")
    make("uninstall", f"DESTDIR={two}")
    expect(not two.exists(), "left: " + "\n".join(tree(two) if two.exists() else ()))
    expect("nothing" in text_of(make("uninstall", f"DESTDIR={two}")), "a second uninstall does not say so")
    shutil.rmtree(one)


@suite.case("make install that fails leaves nothing behind, and what was there")
def _():
    folder = SCRATCH / "half"
    share = folder / prefix().relative_to(SCRATCH / "installed") / "share"
    share.mkdir(parents=True)
    (share / "tgc").write_text("in the way of a folder")
    before = tree(folder)
    make("install", f"DESTDIR={folder}", status=2)
    expect(tree(folder) == before, "left: " + "\n".join(tree(folder)))
    shutil.rmtree(folder)


@case("make install PREFIX=... goes there, and so does make uninstall", slow=True)
def _(folder):
    build = folder / "build"
    for name in ("one", "two"):
        T.must(T.run(["make", "install", f"BUILD={build}", f"PREFIX={folder / name}"], cwd=ROOT, timeout=600))
        expect((folder / name / "bin/tgc").exists(), f"no {name}/bin/tgc")
    done = T.must(T.run(["pkg-config", "--variable=tgc", "tgc"],
                        env={"PKG_CONFIG_PATH": str(folder / "two/share/pkgconfig")}))
    expect(Path(done.out.decode().strip()).resolve() == folder / "two/bin/tgc", f"tgc.pc: {done.out}")
    T.must(T.run(["make", "uninstall", f"BUILD={build}", f"PREFIX={folder / 'one'}"], cwd=ROOT))
    expect(not (folder / "one").exists() and (folder / "two/bin/tgc").exists(), "the wrong one was removed")


@suite.case("tgc.pc: version, tgc, mk, the library's flags, wherever the folder is moved to")
def _():
    def ask(*words):
        return bare(["pkg-config", *words, "tgc"], SCRATCH).out.decode().strip().replace("\\ ", " ")
    version = T.must(T.run([TGC, "--version"])).out.decode().split()[1]
    expect(ask("--modversion") == version, f"version {ask('--modversion')}")
    for name, file in (("tgc", "bin/tgc"), ("mk", "share/tgc/tgc.mk")):
        expect(Path(ask(f"--variable={name}")).resolve() == prefix() / file, f"{name}: {ask(f'--variable={name}')}")
    flags = ask("--cflags", "--libs").split()
    header, library = (next(prefix().rglob(name)).parent for name in ("tgc.h", "libtgc.so"))
    expect([Path(flag[2:]).resolve() for flag in flags[:2]] == [header, library] and flags[2:] == ["-ltgc"], f"flags {flags}")


# ----------------------------------------------------------------------------- examples

ANSWER = "a 7, to 100%"

GUIDE = (ROOT / "docs/guide/build-systems.md").read_text()


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE, re.M | re.S)


def commands_of(example):
    """What the guide says is to be done in a folder of examples/."""
    found = [block.splitlines()[1:] for block in blocks("sh") if block.startswith(f"cd examples/{example}\n")]
    expect(len(found) == 1, f"the guide has {len(found)} blocks for examples/{example}")
    return found[0]


def run_example(name, folder, **environment):
    """The guide's commands, from an empty environment to a running program."""
    commands = commands_of(name)
    need(*{command.split()[0] for command in commands if "/" not in command.split()[0]})
    place = copy_of(name, folder / "a b é")
    start = time.monotonic()
    for command in commands:
        done = bare(["env", *(f"{key}={value}" for key, value in environment.items()), "sh", "-c", command], place)
    expect(done.out.decode() in blocks("text"), f"{commands[-1]} says {done.out.decode()!r}")
    print(f"# {name} {environment}: {len(commands)} commands, {time.monotonic() - start:.1f} s from an empty environment", flush=True)


for arguments in ("cmake", {"CMAKE_GENERATOR": "Ninja"}), ("cmake", {}), ("make", {}), ("meson", {}):
    def example(folder, name=arguments[0], environment=arguments[1]):
        run_example(name, folder, **environment)
    case(f"the guide's commands: {arguments[0]} {' '.join(arguments[1].values())}".rstrip())(example)


@suite.case("the guide shows what the examples say, and has no command that is not run")
def _():
    files = [path.read_text() for path in (ROOT / "examples").rglob("*") if path.suffix != ".onnx" and path.is_file()]
    files.append((ROOT / "integration/tgc.mk").read_text())
    for kind in ("cmake", "make", "meson"):
        for block in blocks(kind)[:1 if kind == "make" else None]:      # the rule without tgc.mk has a case of its own
            expect(any(block in text for text in files), f"no example says\n{block}")
    run = {"cmake", "make", "meson", "fetchcontent"}
    expect({block.split()[1].removeprefix("examples/") for block in blocks("sh")} == run, "sh blocks that are not run")


@case("the guide: what it shows is a whole project, in a folder beside a model and main.c")
def _(folder):
    place = folder / "a b"
    place.mkdir()
    for name in ("digits.onnx", "main.c"):
        shutil.copy(ROOT / "examples" / name, place)
    for kind, name, example in (("cmake", "CMakeLists.txt", "cmake"), ("make", "Makefile", "make"), ("meson", "meson.build", "meson")):
        project = place / kind
        project.mkdir()
        (project / name).write_text(blocks(kind)[0])
        need(*{command.split()[0] for command in commands_of(example) if "/" not in command.split()[0]})
        for command in commands_of(example):
            done = bare(["sh", "-c", command], project)
        expect(done.out.decode().strip() == ANSWER and not done.err, done.describe())


@case("make: the guide's rule without tgc.mk")
def _(folder):
    place = copy_of("make", folder / "a b")
    rule = blocks("make")[1]
    (place / "Makefile").write_text(f"vpath %.onnx ..\nnet: digits.c digits.h\n{rule}\n-include digits.tgc.d\n")
    expect("tgc" in text_of(bare(["make"], place)), "nothing is emitted")
    expect("tgc" not in text_of(bare(["make"], place)), "a second make does something")
    touch(place.parent / "digits.onnx")
    expect("tgc" in text_of(bare(["make"], place)), "a changed model is not seen")


BARE = """set -e
cp -r /usr/local/share/doc/tgc/examples /root/ex
ask() { from=$(date +%s%N); cd /root/ex/$1; sh -ec "$2" >/root/log 2>&1 || { cat /root/log; exit 1; }
        echo "figure: $1, $(( ($(date +%s%N) - from) / 1000000 )) ms: $(tail -n 1 /root/log)"; }
ask cmake 'cmake -B build -DCMAKE_BUILD_TYPE=Release; cmake --build build; build/app'
ask make 'make; ./app'
ask python 'python3 -m pip install --quiet --no-index --break-system-packages --root-user-action=ignore /root/tgc_compiler-*.whl; python3 digits.py'
"""


def wheel_of_this_build(folder):
    """A wheel of the tgc under test, which this machine's libraries suit; no wheel to give away."""
    target = next(t for t in W.TARGETS if t.is_native and t.libc == "glibc")
    return W.write_wheel(target, TGC, TGC.parents[1] / "lib/libtgc.so.0", b"licence\n", folder)


def packages_of_libraries():
    """Debian's packages with the libraries that the tgc under test is linked to (libjpeg only where it was there)."""
    names = re.findall(r"^\s*(lib\S+) => /", T.must(T.run(["ldd", TGC])).out.decode(), re.M)
    owners = [T.must(T.run(["dpkg", "-S", f"*/{name}"])).out.decode() for name in names]
    return sorted({text.split(":")[0] for text in owners if not re.search("^libc6:", text, re.M)} | {"libc6"})


@case("python: a wheel, an empty folder, and a script that runs a model")
def _(folder):
    place = copy_of("python", folder / "a b é")
    here, wheel = folder / "site", wheel_of_this_build(folder / "dist")
    start = time.monotonic()
    T.must(T.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile",
                  "--target", here, wheel]))
    words = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={folder}", f"PYTHONPATH={here}", "LC_ALL=C.UTF-8", sys.executable, "digits.py"]
    first = time.monotonic()
    expect(T.must(T.run(words, cwd=place)).out.decode().strip() == ANSWER, "the script says something else")
    again = time.monotonic()
    T.must(T.run(words, cwd=place))
    print(f"# python: 2 commands, {again - start:.1f} s from an empty environment; {again - first:.1f} s of it the script, {time.monotonic() - again:.1f} s "
          "when the model is in its cache", flush=True)


@case("examples: CMake, Make and Python in a bare Debian with a compiler and an installed tgc", slow=True)
def _(folder):
    need("mmdebstrap")
    release = next((line.split("=")[1].strip() for line in Path("/etc/os-release").read_text().splitlines()
                    if line.startswith("VERSION_CODENAME=")), "stable")
    (folder / "try.sh").write_text(BARE)
    start = time.monotonic()
    done = T.run(["mmdebstrap", "--variant=minbase", "--format=null", "--quiet",
                  "--include=" + ",".join(["gcc", "libc6-dev", "make", "cmake", "pkg-config", "python3-numpy", "python3-pip", *packages_of_libraries()]),
                  *(f"--customize-hook=copy-in {shlex.quote(str(prefix() / part))} /usr/local" for part in ("bin", "lib", "share")),
                  f"--customize-hook=copy-in {shlex.quote(str(folder / 'try.sh'))} {shlex.quote(str(wheel_of_this_build(folder / 'dist')))} /root", "--customize-hook=chroot \"$1\" sh /root/try.sh",
                  release, folder / "null"], timeout=600)
    if done.status != 0 and re.search("Temporary failure|Unable to fetch|Could not (resolve|connect)", done.err):
        raise Skip("Debian's archive cannot be reached")
    figures = re.findall("figure: (.*)", text_of(T.must(done)))
    expect(len(figures) == 3 and all(line.endswith(ANSWER) for line in figures), text_of(done))
    print(f"# bare root, {time.monotonic() - start:.0f} s with its making: " + "; ".join(figures), flush=True)


@case("make: C again when the model, its options' files, or tgc has changed; clean; .tg; options of one model")
def _(folder):
    place = copy_of("make", folder / "a b")
    tgc = place / "tgc"
    shutil.copy(TGC, tgc)
    (place / "t.tune").write_text("tgc-tune 3\n")
    shutil.copy(ROOT / "models" / "gelu.tg", place / "gelu.tg")

    def build(*words):
        return text_of(bare(["make", f"TGC={tgc}", "TGCFLAGS=--cpu=generic --tune=t.tune", "TGCFLAGS_digits=--no-winograd",
                             *words], place))

    first = build()
    expect("--no-winograd" in first, f"options of one model:\n{first}")
    expect("'app' is up to date" in build(), "a second make does something, or has another goal")
    for changed in (place.parent / "digits.onnx", place / "t.tune", tgc):
        touch(changed)
        expect("compile" in build(), f"a changed {changed.name} is not seen")
        expect("'app' is up to date" in build(), f"after a changed {changed.name} make does not end")
    (place / "digits.h").unlink()
    expect("compile" in build(), "a removed digits.h is not seen")
    expect("--no-winograd" not in build("gelu.c"), "gelu.tg has the options of digits.onnx")
    build("clean")
    expect(not (place / "digits.c").exists() and not (place / "app").exists(), "make clean leaves something")


@case("meson: C again when the model, its external data or tgc has changed")
def _(folder):
    need("meson", "ninja")
    place = copy_of("meson", folder / "a b é")
    model = onnx.load(place.parent / "digits.onnx")
    onnx.save_model(model, place.parent / "digits.onnx", save_as_external_data=True, location="digits.bin", size_threshold=0)
    (folder / "bin").mkdir()
    tgc = folder / "bin" / "tgc"
    shutil.copy(TGC, tgc)
    (folder / "native.ini").write_text(f"[binaries]\ntgc = '{tgc}'\n")
    bare(["meson", "setup", "--native-file", folder / "native.ini", "build"], place)
    bare(["ninja", "-C", "build"], place)
    idle = b"no work to do"
    expect(idle in bare(["ninja", "-C", "build"], place).out, "a second ninja does something")
    for changed in (place.parent / "digits.onnx", place.parent / "digits.bin", tgc):
        touch(changed)
        expect(idle not in bare(["ninja", "-C", "build"], place).out, f"a changed {changed.name} is not seen")
    expect(idle in bare(["ninja", "-C", "build"], place).out, "ninja does not end")


# -------------------------------------------------------------------------------- CMake


def every_form(source, build, generator):
    """Builds matrix/; then each file that C depends on changes, and is undone by nothing."""
    tgc = build.parent / "a tgc"
    shutil.copy(TGC, tgc)
    configure(source, build, f"-DTGC_EXECUTABLE={tgc}", generator=generator)
    every = ["dynamic", "hidden", "object", "plain", "threads", "tuned"]
    expect(emitted(compile_(build)) == every, "the first build does not emit every model")
    said = bare([build / "app"], build).out.decode().split()
    expect(said == ["1.000"] * 6, f"the models say {said}")
    for changed, models in ((None, []), (source / MODEL, every), (source / "w #$ é.bin", every),
                            (source / "t #$ é.tune", ["tuned"]), (tgc, every)):
        if changed:
            touch(changed)
        text = compile_(build)
        expect(emitted(text) == models, f"after a change of {changed}:\n{text}")
    text = compile_(build)
    expect(not emitted(text) and "Linking" not in text, f"nothing has changed, and:\n{text}")
    compile_(build, "--target", "clean")
    left = [path.name for path in (build / "tgc").rglob("*") if path.is_file() and path.name != "app"]
    expect(not [name for name in left if not name.endswith(".d")], f"clean leaves {left}")


@case("CMake, Ninja: every form of a library, rebuilt for each file it depends on")
def _(folder):
    every_form(matrix(folder / "a b#c$d é"), folder / "o $u é", "Ninja")


@case("CMake, Make: every form of a library, rebuilt for each file it depends on", slow=True)
def _(folder):
    every_form(matrix(folder / "a b$c é"), folder / "o $u é", "Unix Makefiles")


@case("CMake, Make: rebuilt for the model, its external data and tgc")
def _(folder):
    source, build = matrix(folder / "a b$c é"), folder / "o $u é"
    (source / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.21)
project(net C)
find_package(tgc CONFIG REQUIRED)
tgc_add_model(net MODEL "{MODEL.replace("$", chr(92) + "$")}" OPTIONS --cpu=generic)
""")
    tgc = folder / "tgc"
    shutil.copy(TGC, tgc)
    configure(source, build, f"-DTGC_EXECUTABLE={tgc}", generator="Unix Makefiles")
    expect(emitted(compile_(build)) == ["net"], "the first build emits nothing")
    for changed in (source / MODEL, source / "w #$ é.bin", tgc):
        touch(changed)
        expect(emitted(compile_(build)) == ["net"], f"a changed {changed.name} is not seen")
        expect(emitted(compile_(build)) == [], f"after a changed {changed.name} make does not end")


def several_configurations(folder, name):
    source = copy_of("cmake", folder / name)
    listing = source / "CMakeLists.txt"
    listing.write_text(listing.read_text() + """
tgc_add_model(net MODEL ../digits.onnx OPTIONS --cpu=generic $<$<CONFIG:Debug>:-O0> "$<$<CONFIG:Debug>:>")
install(TARGETS net)
""")
    build = folder / f"o {name.replace('#', '')}"
    configure(source, build, f"-DCMAKE_INSTALL_PREFIX={folder / 'i'}", generator="Ninja Multi-Config")
    for config in ("Debug", "Release"):
        compile_(build, "--config", config)
        said = bare([build / config / "app"], build).out.decode().strip()
        expect(said == ANSWER, f"{config}: {said}")
        text = compile_(build, "--config", config)
        expect(not emitted(text) and "Linking" not in text, f"nothing has changed, and:\n{text}")
    one, two = (build / "tgc/net" / config / "net.c" for config in ("Debug", "Release"))
    expect(one.read_bytes() != two.read_bytes(), "the options of Debug are those of Release")
    expect((build / "tgc/digits/digits.c").exists(), "a model without such options is not emitted once for all")
    bare(["cmake", "--install", build, "--config", "Debug"], build)
    expect((folder / "i/include/net.h").read_bytes() == (build / "tgc/net/Debug/net.h").read_bytes(),
           f"installed: {tree(folder / 'i')}")


@case("CMake, several configurations: one C, or one for each where options differ")
def _(folder):
    several_configurations(folder, "a b é")


@case("CMake, several configurations, in odd folders", slow=True)
def _(folder):
    several_configurations(folder, "a b#c$d é")


@case("CMake: models are installed, exported and used elsewhere, without tgc")
def _(folder):
    source = copy_of("cmake", folder / "ex")
    (source / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.21)
project(nets C)
find_package(tgc CONFIG REQUIRED)
tgc_add_model(digits MODEL ../digits.onnx OPTIONS --cpu=generic)
tgc_add_model(dynamic MODEL ../digits.onnx SHARED OPTIONS --cpu=generic --weights=file --threads=2)
tgc_add_model(object MODEL ../digits.onnx OBJECT OPTIONS --cpu=generic)
get_target_property(weights dynamic TGC_WEIGHTS)
install(FILES "${weights}" DESTINATION share/nets)
install(TARGETS digits dynamic object EXPORT nets OBJECTS DESTINATION lib)
install(EXPORT nets NAMESPACE nets:: FILE netsConfig.cmake DESTINATION lib/cmake/nets)
export(EXPORT nets NAMESPACE nets:: FILE in-build.cmake)
""")
    configure(source, folder / "b", f"-DCMAKE_INSTALL_PREFIX={folder / 'first'}")
    compile_(folder / "b")
    bare(["cmake", "--install", folder / "b"], folder)
    (folder / "first").rename(folder / "moved")
    for name in ("include/digits.h", "include/dynamic.h", "share/nets/dynamic.weights"):
        expect((folder / "moved" / name).exists(), f"no {name} among {tree(folder / 'moved')}")
    (folder / "use").mkdir()
    shutil.copy(ROOT / "examples/main.c", folder / "use")
    (folder / "use/CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.21)
project(use C)
find_package(Threads REQUIRED)
find_package(nets CONFIG REQUIRED)
add_executable(app main.c)
target_link_libraries(app PRIVATE nets::digits nets::dynamic nets::object)
""")
    configure(folder / "use", folder / "u", f"-DCMAKE_PREFIX_PATH={folder / 'moved'}", find=False)
    compile_(folder / "u")
    expect(bare([folder / "u/app"], folder).out.decode().strip() == ANSWER, "the program says something else")


HEAD = "cmake_minimum_required(VERSION 3.21)\nproject(p NONE)\nfind_package(tgc CONFIG REQUIRED)\n"
CALLS = {
    "no model is given": "tgc_add_model(net NAME net)",
    "no target is named": "tgc_add_model()",
    "there is no model": "tgc_add_model(net MODEL none.onnx)",
    "what is 'STATICK;x'": "tgc_add_model(net MODEL digits.onnx STATICK x)",
    "is not a name in C": "tgc_add_model(net MODEL digits.onnx NAME 3-d)",
    "one of SHARED, STATIC and OBJECT": "tgc_add_model(net MODEL digits.onnx SHARED STATIC)",
    "takes a semicolon for the end": 'tgc_add_model(net MODEL "a;b.onnx")',
    "says this itself": "tgc_add_model(net MODEL digits.onnx OPTIONS -O2 --name=other)",
    "the target is a library": "tgc_add_model(net MODEL digits.onnx OPTIONS --main=run.c)",
    "no C compiler": "tgc_add_model(net MODEL digits.onnx)",
}


@case("CMake: a wrong call names itself, what is wrong and what to do")
def _(folder):
    (folder / "s").mkdir()
    shutil.copy(ROOT / "examples/digits.onnx", folder / "s")
    for words, call in CALLS.items():
        (folder / "s/CMakeLists.txt").write_text(HEAD + call)
        text = " ".join(configure(folder / "s", folder / "b", status=1).split())
        target = "net" if "(net" in call else ""
        expect(f"tgc_add_model({target}):" in text and words in text, f"{call}:\n{text}")
    (folder / "s/CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.21)\nproject(p NONE)\n"
                                             f"include(\"{prefix()}/lib/cmake/tgc/tgcAddModel.cmake\")\n"
                                             "tgc_add_model(net MODEL digits.onnx)")
    text = " ".join(configure(folder / "s", folder / "b", status=1).split())
    expect("find_package(tgc) has to come before" in text, text)
    (folder / "s/CMakeLists.txt").write_text(HEAD.replace("NONE", "C") + "tgc_add_model(net MODEL digits.onnx)")
    text = " ".join(configure(folder / "s", folder / "b#c", status=1).split())
    expect("folder with '#' in its name" in text, text)


@case("CMake: a tgc that is missing, of another version, or for another machine")
def _(folder):
    moved = folder / "root/usr"
    shutil.copytree(prefix() / "lib/cmake", moved / "lib/cmake")
    (moved / "bin").mkdir()
    (folder / "s").mkdir()
    (folder / "s/CMakeLists.txt").write_text(HEAD)
    other, foreign = folder / "other", moved / "bin/tgc"

    def refused(*words, options=()):
        text = " ".join(configure(folder / "s", folder / "b", f"-DCMAKE_PREFIX_PATH={moved}", *options, find=False,
                                  status=1).split())
        for word in (*words, "set TGC_EXECUTABLE"):
            expect(word in text, f"no {word!r} in\n{text}")

    refused("there is no program", str(foreign))
    foreign.write_bytes(b"\x7fELF not for this machine")
    foreign.chmod(0o755)
    refused("does not run on this machine")
    other.write_text("#!/bin/sh\necho tgc 0.0.9\n")
    other.chmod(0o755)
    refused("is tgc 0.0.9, but tgc", options=[f"-DTGC_EXECUTABLE={other}"])
    other.write_text("#!/bin/sh\necho something\n")
    refused("is not tgc", options=[f"-DTGC_EXECUTABLE={other}"])
    configure(folder / "s", folder / "b", f"-DCMAKE_PREFIX_PATH={moved}", f"-DTGC_EXECUTABLE={TGC}", find=False)
    (folder / "s/CMakeLists.txt").write_text(HEAD.replace("(tgc", "(tgc 9"))
    text = configure(folder / "s", folder / "b", f"-DTGC_EXECUTABLE={TGC}", status=1)
    expect("version" in text and '"9"' in text, text)
    (folder / "s/CMakeLists.txt").write_text(HEAD.replace(" REQUIRED", "") + "message(STATUS is-${tgc_FOUND})")
    expect("is-0" in configure(folder / "s", folder / "b", f"-DTGC_EXECUTABLE={other}"), "tgc_FOUND is not false")


ARM = """set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
"""


def run_on_arm(program):
    need("qemu-aarch64")
    said = T.must(T.run(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program])).out.decode().strip()
    expect(said == ANSWER, f"the program says {said!r}")


@case("CMake: cross-compiling takes the tgc of this machine")
def _(folder):
    need("aarch64-linux-gnu-gcc")
    source = copy_of("cmake", folder / "ex")
    (folder / "arm.cmake").write_text(ARM)
    configure(source, folder / "b", "--toolchain", folder / "arm.cmake", f"-Dtgc_DIR={prefix()}/lib/cmake/tgc", find=False)
    compile_(folder / "b")
    run_on_arm(folder / "b/app")


# ----------------------------------------------------------- tgc's sources in another project


def fetched(folder):
    """The example, with this repository's files (and no build folder) where it looks for them."""
    names = T.must(T.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)).out
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder / "examples/fetchcontent"


@case("FetchContent: a tgc that is there already, of the right version")
def _(folder):
    source = ROOT / "examples/fetchcontent"
    (folder / "old").write_text("#!/bin/sh\necho tgc 0.0.9\n")
    (folder / "old").chmod(0o755)
    text = configure(source, folder / "b", f"-DTGC_EXECUTABLE={folder / 'old'}", find=False, status=1)
    expect("is tgc 0.0.9, but tgc" in " ".join(text.split()), text)
    text = configure(source, folder / "b", "-DTGC_EXECUTABLE=", "-DTGC_MESON=TGC_MESON-NOTFOUND", "-DCMAKE_PROGRAM_PATH=",
                     "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", find=False, status=1)
    expect("there is no program meson" in " ".join(text.split()), text)
    configure(source, folder / "b", f"-DTGC_EXECUTABLE={TGC}", find=False)
    compile_(folder / "b")
    expect(bare([folder / "b/app"], folder).out.decode().strip() == ANSWER, "the program says something else")


def offline():
    """Words that take the network away, if that can be."""
    words = ["unshare", "--user", "--map-root-user", "--net"]
    return words if T.run([*words, "true"]).status == 0 else []


def build_fetched(folder, generator, *more):
    expect(commands_of("fetchcontent") == commands_of("cmake"), "the guide builds examples/fetchcontent otherwise")
    source = fetched(folder / "a b é")
    environment = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={folder}", "LC_ALL=C.UTF-8"]
    without = offline()
    for command in (["cmake", "-G", generator, "-S", source, "-B", folder / "b é", *more],
                    ["cmake", "--build", folder / "b é"]):
        done = T.must(T.run([*without, *environment, *command], timeout=600))
    expect(emitted(text_of(done)) == ["digits"], "the first build emits nothing")
    again = [*without, *environment, "cmake", "--build", folder / "b é"]
    text = text_of(T.must(T.run(again, timeout=600)))
    expect("Building tgc" not in text and not emitted(text), f"nothing has changed, and:\n{text}")
    touch(folder / "a b é/cli/main.c")
    text = text_of(T.must(T.run(again, timeout=600)))
    expect("Building tgc" in text and emitted(text) == ["digits"], f"tgc has changed, and:\n{text}")
    return folder / "b é/app"


@case("FetchContent, Ninja: tgc is built by Meson, without network", slow=True)
def _(folder):
    program = build_fetched(folder, "Ninja")
    expect(bare([program], folder).out.decode().strip() == ANSWER, "the program says something else")


@case("FetchContent, Make, cross-compiling: tgc is built for this machine", slow=True)
def _(folder):
    need("aarch64-linux-gnu-gcc")
    (folder / "arm.cmake").write_text(ARM)
    run_on_arm(build_fetched(folder, "Unix Makefiles", "--toolchain", folder / "arm.cmake"))


@case("Meson: tgc's sources as a subproject", slow=True)
def _(folder):
    fetched(folder / "tgc")
    place = copy_of("meson", folder / "ex")
    shutil.copytree(folder / "tgc", place / "subprojects/tgc")
    environment = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={folder}", "LC_ALL=C.UTF-8"]
    for command in (["meson", "setup", "build", f"--prefix={folder / 'i'}"], ["ninja", "-C", "build"], ["build/app"]):
        done = T.must(T.run([*environment, *command], cwd=place, timeout=600))
    expect(done.out.decode().strip() == ANSWER, "the program says something else")
    T.must(T.run(["meson", "install", "-C", "build"], cwd=place))
    expect(not (folder / "i").exists(), f"the project installs tgc: {tree(folder / 'i') if (folder / 'i').exists() else ''}")


# --------------------------------------------------------------- frameworks for microcontrollers

ZEPHYR = """cmake_minimum_required(VERSION 3.20)
project(zephyr_stub C)
set(CMAKE_C_STANDARD 99)
set(CONFIG_DIGITS y)
add_library(zephyr_interface INTERFACE)
macro(zephyr_library_named name)
    set(ZEPHYR_CURRENT_LIBRARY ${name})
    add_library(${name} STATIC)
    target_link_libraries(${name} PUBLIC zephyr_interface)
endmacro()
function(zephyr_library_sources)
    target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_include_directories)
    target_include_directories(zephyr_interface INTERFACE ${ARGN})
endfunction()
add_subdirectory(zephyr-module/zephyr)
add_executable(app main.c)
target_link_libraries(app PRIVATE digits)
"""

IDF = """cmake_minimum_required(VERSION 3.16)
project(idf_stub C)
macro(idf_component_register)
    cmake_parse_arguments(component "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
    set(COMPONENT_LIB __idf_digits)
    add_library(${COMPONENT_LIB} STATIC ${component_SRCS})
    target_include_directories(${COMPONENT_LIB} PUBLIC ${component_INCLUDE_DIRS})
endmacro()
add_subdirectory(esp-idf)
add_executable(app main.c)
target_link_libraries(app PRIVATE __idf_digits)
"""


def framework(folder, listing, name, output):
    place = copy_of(".", folder / "ex")
    (place / "CMakeLists.txt").write_text(listing)
    if name == "zephyr-module":
        text = " ".join(configure(place, folder / "b", find=False, status=1).split())
        expect("digits.c is missing" in text and "tgc ../digits.onnx" in text, text)
    bare(["tgc", "../digits.onnx", "-o", output, "--cpu=generic"], place / name)
    configure(place, folder / "b", find=False)
    compile_(folder / "b")
    expect(bare([folder / "b/app"], folder).out.decode().strip() == ANSWER, "the program says something else")


@case("Zephyr: the module's CMake against a stub of zephyr_library()")
def _(folder):
    framework(folder, ZEPHYR, "zephyr-module", "digits.c")
    lines = (ROOT / "examples/zephyr-module/zephyr/module.yml").read_text().splitlines()
    expect(lines == ["name: digits", "build:", "  cmake: zephyr", "  kconfig: zephyr/Kconfig"], f"module.yml: {lines}")


@case("ESP-IDF: the component's CMake against a stub of idf_component_register()")
def _(folder):
    framework(folder, IDF, "esp-idf", "digits.c")


@case("PlatformIO: library.json names what is there, and its flags compile the C")
def _(folder):
    place = copy_of("platformio", folder / "ex")
    library = json.loads((place / "library.json").read_text())
    output = f"{library['build']['srcDir']}/digits.c"
    expect(f"-o {output} " in library["description"] + " ", f"the description names another file than {output}")
    (place / library["build"]["srcDir"]).mkdir(exist_ok=True)
    bare(["tgc", "../digits.onnx", "-o", output, "--cpu=generic"], place)
    expect((place / library["build"]["includeDir"] / library["headers"]).exists(), "no header where it says")
    bare(["gcc", *library["build"]["flags"], "-I", library["build"]["includeDir"], output, "../main.c", "-lm", "-o", "app"], place)
    expect(bare(["./app"], place).out.decode().strip() == ANSWER, "the program says something else")


# ------------------------------------------------------------------------- the text that users read


@suite.case("CMake knows every option of compile that names a file")
def _():
    table = (ROOT / "lib/options.def").read_text()
    known = (ROOT / "integration/tgcAddModel.cmake").read_text()
    options = re.findall(r'^OPTION\(\w+, +"([^"]+)", "([^"]*(?:FILE|DIR)[^"]*)", \w+, "c', table, re.M)
    expect(len(options) > 2, f"options.def is read as {options}")
    for spelling, value in options:
        expect(spelling in known or spelling.startswith("-M"), f"{spelling} {value} is not in tgcAddModel.cmake")


if __name__ == "__main__":
    suite.main()
