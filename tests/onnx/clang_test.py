"""The clang target: the onnx package's tests that pass by the C target, the models of models/ compared
with C's results, objects for other machines, run by emulators where linkers are there, and messages.
Quick: every 120th test, since each is built by a compiler. TGC_CLANG=15 asks for a version."""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np

import llvm_test as L
import node_test as N
import tgc as T
from suite import Skip, Suite, expect

EVERY = 120
CLANG = "--target=clang"
BY_CLANG = L.Way(CLANG, "clang ", "clang: none", "clang is not on PATH (clang)")
MLP = ROOT / "models" / "mlp.tg"
# A triple, what links for it, its emulator.
CROSS = [
    ("aarch64-linux-gnu", ("aarch64-linux-gnu-gcc", "-static"), "qemu-aarch64"),
    ("armv7-linux-gnueabihf", ("arm-linux-gnueabihf-gcc", "-static"), "qemu-arm"),
    ("riscv64-linux-gnu", ("riscv64-linux-gnu-gcc", "-static"), "qemu-riscv64"),
    ("s390x-linux-gnu", ("s390x-linux-gnu-gcc", "-static"), "qemu-s390x"),
]
MACHINES = {"aarch64-linux-gnu": 183, "armv7-linux-gnueabihf": 40, "riscv64-linux-gnu": 243,
            "s390x-linux-gnu": 22, "thumbv7em-none-eabihf": 40,
            "thumbv7em-none-eabi": 40}                                   # e_machine of ELF


def results(path, words, options=()):
    """What cross.c prints, of a model that tgc has compiled to path.o."""
    header = path.with_suffix(".h")
    name = T.must(T.run(["sed", "-n", r"s/^typedef struct \([a-z0-9_]*\) \1;.*/\1/p", header])).out.decode().split()[0]
    exe = path.with_suffix(".exe")
    compiler, *flags = options
    T.must(T.run([compiler, *flags, "-std=c11", f'-DMODEL_H="{header.name}"', f"-DMODEL={name}",
                  f"-DARENA_BYTES={name.upper()}_ARENA_BYTES", "-I", path.parent, HERE / "cross.c", path,
                  "-lm", "-o", exe]))
    lines = T.must(T.run([*words, exe])).out.decode().split()
    return np.array([float(line) for line in lines])


def emit_for(tgc, model, out, triple):
    """Compiles; where libc's headers are missing, the message must name a package."""
    # numbers have the machine's order of bytes
    done = T.run([tgc, model, "-o", out, CLANG, f"--triple={triple}", "--weights=array"])
    if done.status == 1 and "headers" in done.err:
        expect("apt-get install" in done.err, done.err)
        expect(not out.exists(), "a failed compile left its output")
        raise Skip(f"libc's headers for {triple} are not here")
    if done.status == 1 and out.suffix == ".so" and " linker " in done.err:
        raise Skip(f"neither {triple}-ld nor an lld that knows the machine is here")
    T.must(done)
    data = out.read_bytes()
    if out.suffix == ".a":
        expect(data[:8] == b"!<arch>\n", "no archive")
        return
    expect(data[:4] == b"\x7fELF", "no ELF file")
    order = "little" if data[5] == 1 else "big"
    machine = int.from_bytes(data[18:20], order)
    expect(machine == MACHINES[triple], f"an object for machine {machine}")


def check_object(tgc, folder, triple):
    BY_CLANG.need(tgc)
    T.scratch(folder)
    emit_for(tgc, MLP, folder / "m.o", triple)


def check_cross(tgc, folder, triple, linker, emulator):
    """An object of another machine computes what this machine's does."""
    BY_CLANG.need(tgc)
    T.scratch(folder)
    emit_for(tgc, MLP, folder / "m.o", triple)
    for tool in (linker[0], emulator):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not here")
    T.must(T.run([tgc, MLP, "-o", folder / "own.o"]))
    wanted = results(folder / "own.o", [], ("cc",))
    got = results(folder / "m.o", [emulator], linker)
    T.compare(triple, got, wanted, 1e-5, 1e-6)
    expect(len(got) > 1 and np.ptp(got) > 0, "outputs that say nothing")


def check_library(tgc, folder, triple, linker, emulator):
    """An archive links as its object does; a shared library is the machine's."""
    BY_CLANG.need(tgc)
    T.scratch(folder)
    for out in ("m.o", "m.a", "m.so"):
        emit_for(tgc, MLP, folder / out, triple)
    for tool in (linker[0], emulator):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not here")
    said = [results(folder / out, [emulator], linker) for out in ("m.o", "m.a")]
    expect(len(said[0]) > 1 and np.array_equal(*said), "the archive computes something else")


def check_archive(tgc, folder):
    """Archives for another machine have an index, and the same bytes each time."""
    BY_CLANG.need(tgc)
    T.scratch(folder)
    for target in ("--target=c", CLANG):
        for out in ("1", "2"):
            (folder / out).mkdir(exist_ok=True)
            T.must(T.run([tgc, MLP, "-o", folder / out / "m.a", target]))
        expect((folder / "1/m.a").read_bytes() == (folder / "2/m.a").read_bytes(), f"{target}: other bytes")
        listed = T.must(T.run(["ar", "t", folder / "1/m.a"])).out.decode().split()
        expect(listed == ["m.o"], f"members {listed}")


def check_same_c(tgc, folder):
    """The C is the C target's."""
    T.scratch(folder)
    T.must(T.run([tgc, MLP, "-o", folder / "m.c"]))
    wanted = (folder / "m.c").read_bytes()
    for words, env in (([CLANG], {}), ([], {"CLANG": "1"})):
        done = T.run([tgc, MLP, "-o", folder / "m.c", *words], env={**os.environ, **env})
        if "clang: none" not in T.must(T.run([tgc, "--version"])).out.decode():
            T.must(done)
            expect((folder / "m.c").read_bytes() == wanted, "other bytes")


def check_variable(tgc, folder):
    """CLANG=1 is the target, and TGC_CLANG its version; a flag wins."""
    BY_CLANG.need(tgc)
    T.scratch(folder)
    run = [tgc, "run", MLP]
    env = {**os.environ, "CLANG": "1"}
    expect(b"\nran by clang " in T.must(T.run(run, env=env)).out, "not by clang")
    expect(b"\nran by clang " not in T.must(T.run([*run, "--target=c"], env=env)).out, "not by the C compiler")
    for version in range(13, 20):
        if shutil.which(f"clang-{version}"):
            out = T.must(T.run(run, env={**env, "TGC_CLANG": str(version)})).out.decode()
            expect(f"\nran by clang {version}." in out, out)


def check_absent(tgc, folder):
    """No clang is an error that names the package, and leaves nothing."""
    T.scratch(folder)
    env = {**os.environ, "TGC_CLANG": "1"}
    for words in (["run", MLP], [MLP, "-o", folder / "m.o"], [MLP, "-o", folder / "m.c"]):
        done = T.run([tgc, *words, CLANG], cwd=folder, env=env)
        expect(done.status == 1 and "apt-get install clang" in done.err, f"{done.status}: {done.err}")
        expect(not list(folder.iterdir()), "it left a file")
    expect("clang: none" in T.must(T.run([tgc, "--version"], env=env)).out.decode(), "--version")


def check_refusals(tgc, folder):
    """What is asked for wrongly is an error that leaves nothing."""
    BY_CLANG.need(tgc)
    T.scratch(folder)
    unchecked = "libclang: none" in T.must(T.run([tgc, "--version"])).out.decode()
    for status, text, words in (
            (2, "--target=clang", ["-o", "m.o", "--triple=aarch64-linux-gnu"]),
            (2, "aarch64-linux-gnu", ["-o", "m.o", CLANG, "--triple=a b-c"]),
            (2, "aarch64-linux-gnu", ["-o", "m.o", CLANG, "--triple=-x-y"]),
            (2, "aarch64-linux-gnu", ["-o", "m.o", CLANG, "--triple=;touch-x"]),
            (2, "--triple", ["-o", "m.json", CLANG, "--triple=aarch64-linux-gnu"]),
            (2, "c, clang, llvm, cuda, opencl, metal and amd are", ["-o", "m.o", "--target=gcc"]),
            (1, "no such machine", ["-o", "m.o", CLANG, "--triple=bogus-machine"]),
            (1, "no such machine", ["-o", "m.c", CLANG, "--triple=bogus-machine"]),
            (1, "--weights=array", ["-o", "m.c", CLANG, "--triple=s390x-linux-gnu"]),
            (1, "headers", ["-o", "m.o", CLANG, "--triple=sparcv9-sun-solaris"])):
        if unchecked and status == 1 and "m.c" in words:
            continue
        done = T.run([tgc, MLP, *words], cwd=folder)
        expect(done.status == status and text in done.err, f"{words}: {done.status}: {done.err}")
        expect(not list(folder.iterdir()), f"{words} left a file")


def main():
    suite = Suite("clang")
    options = suite.parse()
    tgc = T.find_tgc(options.build)
    scratch = T.scratch(Path(options.build).resolve() / "test-scratch" / "clang")
    for name, function in (("absent", check_absent), ("refusals", check_refusals), ("variable", check_variable),
                           ("same C", check_same_c), ("archive", check_archive)):
        suite.add(name, function, tgc, scratch / N.flat(name))
    for triple, linker, emulator in CROSS:
        suite.add(f"libraries {triple}", check_library, tgc, scratch / f"libraries-{triple}", triple, linker,
                  emulator, slow=triple != "aarch64-linux-gnu")
        suite.add(f"run {triple}", check_cross, tgc, scratch / triple, triple, linker, emulator)
    for triple in ("thumbv7em-none-eabihf", "thumbv7em-none-eabi"):
        suite.add(f"object {triple}", check_object, tgc, scratch / triple, triple)
    for path in sorted((ROOT / "models").glob("*.tg")):
        for how in ((), ("--cpu=generic",), ("-O0",)):
            name = f"{path.stem} {' '.join(how)}".strip()
            suite.add(name, L.check_model, tgc, BY_CLANG, path, scratch / N.flat(name), how,
                      slow=how != () or path != MLP)
    L.add_cases(suite, tgc, BY_CLANG, scratch, N.load_cases(options.build), EVERY)
    suite.main()


if __name__ == "__main__":
    main()
