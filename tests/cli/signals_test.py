"""A signal that ends tgc, whatever it is at: no file and no process is left, files that belong together stay
a pair, and the exit status names the signal. So do files that cannot all be replaced."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tgc as T
from suite import Skip, Suite, expect

suite = Suite("signals")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "signals"
case = suite.folder_case(SCRATCH)
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
NOBODY = 65534

# A compiler that begins files and folders, starts a process, and takes longer than anyone waits.
SLOW = """#!/bin/sh
mkdir -p "$TMPDIR/a/b"
echo text > "$TMPDIR/a/b/c.s"
echo text > "$TMPDIR/d.s"
for word; do
    case $last in -o) echo text > "$word.tmp"; echo text > "$word" ;; esac
    last=$word
done
sleep 300 &
touch "$MARK"
%s
wait
sleep 300
"""


def write_model(path, width):
    rng = np.random.default_rng(width)
    weights = [numpy_helper.from_array(rng.standard_normal((width, width), np.float32), f"w{i}")
               for i in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("Tanh", ["h"], ["t"]),
             helper.make_node("MatMul", ["t", "w1"], ["y"])]
    shape = [3, width]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def hear_signals():
    """What a shell starts with & ignores some of them."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def start(folder, *words, **variables):
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder / "xdg"), **variables}
    return subprocess.Popen([str(TGC), *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
                            preexec_fn=hear_signals)


def living(session):
    """The processes of a session and their names, but for those that have ended and wait to be noticed."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            name, _, rest = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        state, _, _, of = rest.split()[:4]
        if int(of) == session and state not in "ZX":
            found[int(entry.name)] = name
    return found


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "xdg" not in path.parts)


def check_nothing_left(folder, process, before, what):
    left = sorted((set(files(folder)) ^ set(before)) - {"m.tune.part"})      # by which a search goes on
    expect(not left, f"{what}: left, or gone: {left}")
    running = living(process.pid)
    expect(not running, f"{what}: still running: {running}")


def interrupt_slow(folder, number, words, ignores, **variables):
    """needs: a compiler ./slow. It gets the signal while that one runs."""
    mark = folder / "mark"
    (folder / "slow").write_text(SLOW % ("trap '' TERM INT HUP" if ignores else ""))
    (folder / "slow").chmod(0o755)
    (folder / "tmp").mkdir(exist_ok=True)
    before = files(folder)
    process = start(folder, *words, CC=str(folder / "slow"), MARK=str(mark), **variables)
    try:
        end = time.monotonic() + 60
        while not mark.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        expect(mark.exists(), f"{words}: the compiler was not started: {process.stderr.read() if process.poll() is not None else ''}")
        mark.unlink()
        process.send_signal(number)
        status = process.wait(timeout=30)
        expect(status == -number, f"{words}: {number.name} ended it with {status}")
        check_nothing_left(folder, process, before, f"{number.name}, tgc {' '.join(words)}")
    finally:
        for pid in living(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.stderr.close()


WHILE_COMPILING = {
    "a shared object": ["m.onnx", "-o", "m.so"],
    "an archive": ["m.onnx", "-o", "m.a"],
    "an object, whose failed build would be kept": ["m.onnx", "-o", "m.o", "--keep", "kept"],
    "run": ["run", "m.onnx"],
    "bench": ["bench", "m.onnx"],
    "verify": ["verify", "m.onnx", "--other=-O0"],
    "tune, which compiles in a process of its own": ["tune", "m.onnx", "-o", "m.tune", "--cpu=generic"]}


def while_compiling(words, name):
    folder = T.scratch(SCRATCH / name.replace(" ", "_"))
    write_model(folder / "m.onnx", 16)
    ran = False
    for i, number in enumerate(SIGNALS):
        if OPTIONS.all or i == len(name) % 3:
            interrupt_slow(folder, number, words, False)
            ran = True
    expect(ran, "no signal was sent")
    shutil.rmtree(folder)


for title, command in WHILE_COMPILING.items():
    suite.add(f"the C compiler works: {title}", while_compiling, command, title)


# A compiler that is a library takes longer to open than anyone waits.
SLOW_LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *dlopen(const char *name, int flags)
{
    void *(*next)(const char *, int);
    *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    if (name && (strstr(name, "libLLVM") || strstr(name, "nvrtc"))) {
        close(open(getenv("MARK"), O_WRONLY | O_CREAT, 0600));
        sleep(300);
    }
    return next(name, flags);
}
"""
BY_A_LIBRARY = {"LLVM, for an object": (["m.onnx", "-o", "m.o", "--target=llvm"], {}), "LLVM, for a run": (["run", "m.onnx"], {}),
                "LLVM, for CUDA": (["m.onnx", "-o", "m.c", "--target=cuda"], {"TGC_NVRTC": "none"}),
                "NVRTC": (["m.onnx", "-o", "m.c", "--target=cuda"], {})}


def while_a_library_compiles(words, variables, index):
    folder = T.scratch(SCRATCH / f"library_{index}")
    (folder / "slow.c").write_text(SLOW_LIBRARY)
    T.must(T.run(["cc", "-shared", "-fPIC", folder / "slow.c", "-o", folder / "slow.so", "-ldl"]))
    write_model(folder / "m.onnx", 16)
    if "llvm" not in T.must(T.run([TGC, "--version"])).out.decode().splitlines()[1]:
        raise Skip("tgc was built without the LLVM target")
    for i, number in enumerate(SIGNALS):
        if OPTIONS.all or i == index % 3:
            interrupt_slow(folder, number, words, False, LD_PRELOAD=str(folder / "slow.so"), TGC_CACHE="0", **variables)
    shutil.rmtree(folder)


for position, (title, (command, more)) in enumerate(BY_A_LIBRARY.items()):
    suite.add(f"a library compiles in a process of its own: {title}", while_a_library_compiles, command, more, position)


@case("a compiler that does not end when it is asked to is ended")
def _(folder):
    write_model(folder / "m.onnx", 16)
    interrupt_slow(folder, signal.SIGTERM, ["m.onnx", "-o", "m.so"], True)


def interrupt_at_random(folder, words, suffix, count, seed):
    """Two models take turns at one name, so that a file of the older one is known from its twin."""
    rng, pairs = random.Random(seed), set()
    (folder / "tmp").mkdir(exist_ok=True)
    for width in (16, 40):
        write_model(folder / f"{width}.onnx", width)
        begin = time.monotonic()
        process = start(folder, f"{width}.onnx", *words)
        expect(process.wait(timeout=120) == 0, f"{words}: {process.stderr.read()}")
        process.stderr.close()
        seconds = time.monotonic() - begin
        pairs.add(((folder / f"m.{suffix}").read_bytes(), (folder / "m.h").read_bytes()))
    expect(len(pairs) == 2, "the two models are one")
    before, ended = files(folder), 0
    for i in range(count):
        process, number = start(folder, f"{(16, 40)[i % 2]}.onnx", *words), rng.choice(SIGNALS)
        time.sleep(rng.uniform(0, 1.05 * seconds))
        process.send_signal(number)
        status = process.wait(timeout=60)
        process.stderr.close()
        expect(status in (0, -number), f"{number.name} ended it with {status}")
        ended += status != 0
        check_nothing_left(folder, process, before, f"{number.name}, tgc {' '.join(words)}")
        pair = ((folder / f"m.{suffix}").read_bytes(), (folder / "m.h").read_bytes())
        expect(pair in pairs, f"{number.name}: m.{suffix} and m.h are of two compiles")
    expect(ended, "all ended before their signals")
    print(f"# {count} signals, {ended} before the end of tgc {' '.join(words)}", flush=True)


@case("signals at any moment of a compile by cc leave nothing, and no half of a pair")
def _(folder):
    interrupt_at_random(folder, ["-o", "m.so", "--cpu=generic", "--name=m"], "so", 100 if OPTIONS.all else 8, 1)


@case("signals at any moment of a compile to C leave nothing, and no half of a pair")
def _(folder):
    interrupt_at_random(folder, ["-o", "m.c", "--cpu=generic"], "c", 300 if OPTIONS.all else 25, 2)


# The first rename() of a process brings a signal.
FIRST_RENAME = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int rename(const char *from, const char *to)
{
    static int count;
    int (*next)(const char *, const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "rename");
    int status = next(from, to);
    if (count++ == 0)
        kill(getpid(), atoi(getenv("FIRST_RENAME")));
    return status;
}
"""


@case("a signal between the two renames of a pair waits for the second one")
def _(folder):
    (folder / "first.c").write_text(FIRST_RENAME)
    library = folder / "first.so"
    T.must(T.run(["cc", "-shared", "-fPIC", folder / "first.c", "-o", library, "-ldl"]))
    for width in (16, 40):
        write_model(folder / f"{width}.onnx", width)
        T.must(T.run([TGC, f"{width}.onnx", "-o", "want.c", "--name=m"], cwd=folder))
    want = (folder / "want.h").read_text().replace("want.h", "m.h"), (folder / "want.c").read_text().replace("want.h", "m.h")
    before = files(folder) + ["m.c", "m.h", "tmp"]
    for number in SIGNALS:
        T.must(T.run([TGC, "16.onnx", "-o", "m.c"], cwd=folder))
        process = start(folder, "40.onnx", "-o", "m.c", LD_PRELOAD=str(library), FIRST_RENAME=str(int(number)))
        status = process.wait(timeout=60)
        process.stderr.close()
        expect(status == -number, f"{number.name} ended it with {status}")
        check_nothing_left(folder, process, before, number.name)
        expect(((folder / "m.h").read_text(), (folder / "m.c").read_text()) == want, f"{number.name}: m.c and m.h are no pair")


@case("where the second of two files cannot be replaced the first one stays, and nothing else")
def _(folder):
    if os.geteuid() != 0:
        raise Skip("only root can make another user's files")
    open_to_all = Path(f"/tmp/tgc-signals-{os.getpid()}")
    open_to_all.mkdir()
    try:
        open_to_all.chmod(0o1777)                # in which nobody replaces what others own
        for width in (16, 40):
            write_model(open_to_all / f"{width}.onnx", width)
            (open_to_all / f"{width}.onnx").chmod(0o644)
        (open_to_all / "tgc").write_bytes(TGC.read_bytes())
        (open_to_all / "tgc").chmod(0o755)

        def as_nobody(*words):
            return subprocess.run([open_to_all / "tgc", *words], cwd=open_to_all, capture_output=True, text=True,
                                  user=NOBODY, group=NOBODY, extra_groups=[], timeout=120,
                                  env={**os.environ, "HOME": "/nonexistent"})

        done = as_nobody("16.onnx", "-o", "m.c")
        expect(done.returncode == 0, done.stderr)
        for name in ("m.c", "m.h"):
            os.chown(open_to_all / name, 0 if name == "m.h" else NOBODY, 0)
            (open_to_all / name).chmod(0o666)
        before = {path.name: path.read_bytes() for path in open_to_all.iterdir()}
        done = as_nobody("40.onnx", "-o", "m.c")
        expect(done.returncode == 1 and "m.h: error: cannot be replaced" in done.stderr, done.stderr)
        after = {path.name: path.read_bytes() for path in open_to_all.iterdir()}
        expect(after.keys() == before.keys(), f"left, or gone: {sorted(after.keys() ^ before.keys())}")
        changed = [name for name in before if before[name] != after[name]]
        expect(not changed, f"changed: {changed}")
    finally:
        shutil.rmtree(open_to_all)


NO_MEMORY = {"a run": (["run", "m.onnx"], {}), "an object by LLVM": (["m.onnx", "-o", "m.o", "--target=llvm"], {}),
             "CUDA": (["m.onnx", "-o", "m.c", "--target=cuda"], {}),
             "CUDA by LLVM": (["m.onnx", "-o", "m.c", "--target=cuda"], {"TGC_NVRTC": "none"}),
             "AMD": (["m.onnx", "-o", "m.c", "--target=amd"], {})}


def limited(megabytes, words, folder, variables):
    """tgc WORDS with that many megabytes of addresses."""
    return T.run(["sh", "-c", f'ulimit -v {megabytes << 10}; exec "$0" "$@"', TGC, *words], cwd=folder,
                 env={"TGC_CACHE": "0", **variables})


def least_to_start(folder):
    """The megabytes below which the system cannot map sh, tgc and libc: no line of tgc runs there."""
    for megabytes in range(8, 64):
        if limited(megabytes, ["--version"], folder, {}).status in (0, 1):
            return megabytes
    expect(False, "tgc does not start in 64 MB of addresses")


@case("however few addresses there are (ulimit -v), a compile is done or fails with an error")
def _(folder):
    write_model(folder / "m.onnx", 16)
    before = files(folder)
    least = least_to_start(folder)
    for title, (words, variables) in NO_MEMORY.items():
        statuses = set()
        for megabytes in range(least, 400, 4 if OPTIONS.all else 48):
            done = limited(megabytes, words, folder, variables)
            expect(done.status in (0, 1) and (done.status == 0 or "error: " in done.err), f"{title}, {megabytes} MB: {done.describe()}")
            statuses.add(done.status)
            for name in set(files(folder)) - set(before):
                expect(done.status == 0, f"{title}, {megabytes} MB: {name} is left")
                (folder / name).unlink()
        print(f"# {title}: statuses {sorted(statuses)}", flush=True)


@case("a compiler that says that all is well and writes nothing is named")
def _(folder):
    write_model(folder / "m.onnx", 16)
    for variable, words in (("CC", ["m.onnx", "-o", "m.so"]), ("CC", ["run", "m.onnx"]), ("AR", ["m.onnx", "-o", "m.a"])):
        done = T.must(T.run([TGC, *words], cwd=folder, env={variable: "true"}), 1)
        expect("'true' ended with status 0, but wrote nothing to" in done.err, done.err)
        expect(files(folder) == ["m.onnx"], f"left: {files(folder)}")


suite.main()
