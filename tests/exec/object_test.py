"""Objects written by libLLVM: each is linked with a C main and has to say what the C target's object
of the same model says, of itself, of wrong calls and of a run. Machines other than this one by cross
compilers and qemu, where they are installed."""

import os
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "onnx")]

import node_test as N
import tgc as T
from llvm_test import BY_LLVM, LLVM
from suite import Failure, Skip, Suite, expect

MAIN = HERE / "object.c"
# Tests of the onnx package: host steps, conditions and loops, strings, sizes that a run finds.
NODES = ("test_top_k", "test_unique_sorted_without_axis", "test_nonzero_example", "test_string_concat",
         "test_if", "test_loop11", "test_softmax_axis_1", "test_resize_upsample_scales_cubic",
         "test_lstm_defaults", "test_quantizelinear", "test_cast_FLOAT_to_BFLOAT16", "test_compress_0")
# A model that calls nothing of the runtime.
PLAIN = """tg 1
graph "g"
input %x : f32[4, 8]
weight %w : f32[8, 8] = kaiming_uniform(seed=1)
weight %b : f32[8] = zeros()
%1 = linear(%x, %w, %b)
%y = relu(%1)
output %y
"""
# triple, C compiler, what runs the program, options
MACHINES = (("aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64", ("", "neondot")),
            ("i686-linux-gnu", "i686-linux-gnu-gcc", "qemu-i386", ("generic",)),
            ("armv7-linux-gnueabihf", "arm-linux-gnueabihf-gcc", "qemu-arm", ("generic",)),
            ("riscv64-linux-gnu", "riscv64-linux-gnu-gcc", "qemu-riscv64", ("generic",)))


def link(folder, source, compiler="gcc", more=()):
    T.must(T.run([compiler, "-O1", "-I", folder, MAIN, source, *more, "-lm", "-o", folder / "run"],
                 timeout=120))


def run_c(tgc, model, folder, options=(), compiler="gcc", emulator=()):
    """By the C target and the compiler at hand, or another machine's."""
    T.scratch(folder)
    T.must(T.run([tgc, "compile", model, "-o", folder / "m.c", "--vectors=never", *options], timeout=120))
    link(folder, folder / "m.c", compiler, ("-static",) if emulator else ())
    return T.must(T.run([*emulator, folder / "run"], timeout=120)).out.decode()


def compare(said, expected):
    """Every line alike; numbers of floats nearly."""
    lines, wanted = said.splitlines(), expected.splitlines()
    expect(len(lines) == len(wanted), f"{len(lines)} lines, {len(wanted)} expected")
    for number, (a, b) in enumerate(zip(lines, wanted)):
        if a == b:
            continue
        try:
            x, y = float(a), float(b)
        except ValueError:
            raise Failure(f"line {number}: {a!r}, expected {b!r}") from None
        expect(abs(x - y) <= 1e-5 + 1e-4 * abs(y), f"line {number}: {a}, expected {b}")


def without_arena(said):
    """The C for all processors has variants for other machines, too, whose scratch may take more."""
    return re.sub(r"arena \d+", "arena", said)


def check_object(tgc, model, folder, options):
    BY_LLVM.need(tgc)
    for option in options:
        expected = run_c(tgc, model, folder / "c", ["-O0"] if option == "-O0" else [])
        mine = T.scratch(folder / "llvm")
        T.must(T.run([tgc, "compile", model, "-o", mine / "m.o", LLVM, *option.split()], timeout=120))
        expect(sorted(p.name for p in mine.iterdir()) == ["m.h", "m.o"], "other files than m.o and m.h")
        link(mine, mine / "m.o")
        compare(T.must(T.run([mine / "run"], timeout=60)).out.decode(), expected)


def has_avx2():
    return "avx2" in Path("/proc/cpuinfo").read_text()


def check_node(tgc, case, folder):
    T.scratch(folder)
    (folder / "m.onnx").write_bytes(case.model.SerializeToString())
    check_object(tgc, folder / "m.onnx", folder, ("",))


def check_texts(tgc, folder):
    """.s is what an assembler takes, .ll what LLVM's own tools take; both by -o -, too."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(PLAIN)
    expected = run_c(tgc, folder / "t.tg", folder / "c")
    for version in ("19", "15", "14"):
        env = {**os.environ, "TGC_LLVM": version}
        done = T.run([tgc, "compile", "t.tg", "-o", "m.s", LLVM], cwd=folder, env=env)
        if done.status and "libLLVM is not installed" in done.err:
            continue
        T.must(done)
        link(folder, folder / "m.s")
        compare(T.must(T.run([folder / "run"])).out.decode(), expected)
        T.must(T.run([tgc, "compile", "t.tg", "-o", "m.ll", LLVM], cwd=folder, env=env))
        clang = shutil.which(f"clang-{version}")
        if clang:
            link(folder, folder / "m.ll", clang, ("-Wno-override-module",))
            compare(T.must(T.run([folder / "run"])).out.decode(), expected)
        text = T.must(T.run([tgc, "compile", "t.tg", "-o", "-", "--emit=ll", "--name=m", LLVM], cwd=folder,
                            env=env)).out
        expect(text == (folder / "m.ll").read_bytes(), "-o - is another text")


def check_weights(tgc, folder):
    """--weights=file: the options' address is what the run reads."""
    BY_LLVM.need(tgc)
    model = ROOT / "models" / "mlp.tg"
    said = []
    for name, source, more in (("c", "m.c", ()), ("llvm", "m.o", (LLVM,))):
        mine = T.scratch(folder / name)
        T.must(T.run([tgc, "compile", model, "-o", source, "--weights=file", *more], cwd=mine))
        expect((mine / "m.weights").is_file(), "no m.weights")
        link(mine, mine / source)
        said.append(T.must(T.run([mine / "run", mine / "m.weights"])).out.decode())
    compare(*reversed(said))


def check_interface(tgc, folder):
    """What a linker asks of an object: the machine, and the registers in which floats are passed."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(PLAIN)
    for triple, machine, flags in (("aarch64-linux-gnu", 183, 0), ("riscv64-linux-gnu", 243, 5),
                                   ("x86_64-linux-gnu", 62, 0)):
        T.must(T.run([tgc, "compile", "t.tg", "-o", "m.o", LLVM, f"--triple={triple}"], cwd=folder))
        elf = (folder / "m.o").read_bytes()
        found = int.from_bytes(elf[18:20], "little"), int.from_bytes(elf[48:52], "little")
        expect(found == (machine, flags), f"{triple}: machine and flags {found}")


def check_two(tgc, folder):
    """Two programs in one, each with its own functions of the runtime."""
    BY_LLVM.need(tgc)
    model = ROOT / "models" / "gelu.tg"
    T.scratch(folder)
    for name in ("m", "other"):
        T.must(T.run([tgc, "compile", model, "-o", f"{name}.o", LLVM], cwd=folder))
    link(folder, folder / "m.o", more=(folder / "other.o",))
    compare(T.must(T.run([folder / "run"])).out.decode(), run_c(tgc, model, folder / "c"))


def check_machine(tgc, model, folder, triple, compiler, emulator, cpus):
    BY_LLVM.need(tgc)
    for tool in (compiler, emulator):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    for cpu in cpus:
        mine = T.scratch(folder / "there")
        more = [f"--cpu={cpu}"] if cpu else []
        expected = run_c(tgc, model, folder / "c", more, compiler, (emulator,))
        T.must(T.run([tgc, "compile", model, "-o", "m.o", LLVM, f"--triple={triple}", *more], cwd=mine,
                     env={**os.environ, "CC": compiler}))
        link(mine, mine / "m.o", compiler, ("-static",))
        said = T.must(T.run([emulator, mine / "run"], timeout=120)).out.decode()
        compare(*(said, expected) if cpu else map(without_arena, (said, expected)))


def check_refusals(tgc, folder):
    BY_LLVM.need(tgc)
    model = ROOT / "models" / "mlp.tg"
    T.scratch(folder)
    for words, status, says in (
            (["-o", "m.o", LLVM, "--triple=pdp11-dec-unix"], 1, "--triple=pdp11-dec-unix"),
            (["-o", "m.o", LLVM, "--triple=s390x-linux-gnu"], 1, "armv7"),
            (["-o", "m.o", LLVM, "--triple=aarch64-linux-gnu", "--cpu=avx2"], 1, "--cpu=avx2"),
            (["-o", "m.o", LLVM, "--cpu=pentium"], 2, "--cpu=pentium"),
            (["-o", "m.o", "--triple=aarch64-linux-gnu"], 2, "--target=llvm"),
            (["-o", "m.ll"], 2, "--target=llvm"),
            (["-o", "m.so", LLVM], 2, "--target=c"),
            (["-o", "m.o", LLVM, "-g"], 2, "leave -g out"),
            (["-o", "m.s", LLVM], 1, "tanh")):
        done = T.run([tgc, "compile", model, *words], cwd=folder)
        expect(done.status == status and says in done.err, f"{words}: status {done.status}: {done.err}")
        expect(not list(folder.iterdir()), f"{words} left a file")
    done = T.run([tgc, "compile", model, "-o", "m.o", LLVM], cwd=folder,
                 env={**os.environ, "CC": "/nowhere/cc"})
    expect(done.status == 1 and "/nowhere/cc" in done.err, f"no compiler: {done.status}: {done.err}")
    expect(not list(folder.iterdir()), "no compiler: left a file")


def main():
    suite = Suite("object")
    options = suite.parse()
    tgc = T.find_tgc(options.build)
    scratch = T.scratch(Path(options.build).resolve() / "test-scratch" / "object")
    suite.add("refusals", check_refusals, tgc, scratch / "refusals")
    suite.add("texts", check_texts, tgc, scratch / "texts")
    suite.add("weights", check_weights, tgc, scratch / "weights")
    suite.add("interface", check_interface, tgc, scratch / "interface")
    suite.add("two programs", check_two, tgc, scratch / "two")
    wide = ("", "--cpu=avx2", "-O0") if has_avx2() else ("", "-O0")
    for path in sorted((ROOT / "models").glob("*.tg")):
        suite.add(path.stem, check_object, tgc, path, scratch / path.stem, wide)
        for machine in MACHINES:
            suite.add(f"{path.stem} {machine[0]}", check_machine, tgc, path,
                      scratch / f"{path.stem}-{machine[0]}", *machine,
                      slow=path.stem not in ("mlp", "mnist_cnn"))
    cases = N.load_cases()
    for name in NODES:
        suite.add(name, check_node, tgc, cases[name], scratch / name)
    suite.main()


if __name__ == "__main__":
    main()
