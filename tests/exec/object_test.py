"""Objects written by libLLVM: each is linked with a C main and has to say what the C target's object
of the same model says, of itself, of wrong calls and of a run. Machines other than this one by cross
compilers and qemu, where they are installed."""

import itertools
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
from board import START
from clang_test import BY_CLANG, CLANG
from llvm_test import BY_LLVM, LLVM
from suite import Failure, Skip, Suite, expect

MAIN = HERE / "object.c"
# Tests of the onnx package: host steps, conditions and loops, strings, sizes that a run finds.
NODES = ("test_top_k", "test_unique_sorted_without_axis", "test_nonzero_example", "test_string_concat",
         "test_if", "test_loop11", "test_softmax_axis_1", "test_resize_upsample_scales_cubic",
         "test_lstm_defaults", "test_quantizelinear", "test_cast_FLOAT_to_BFLOAT16", "test_compress_0",
         "test_equal_string")
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
# Elementary functions, which the module has of its own; f64 ones have tables and loops.
FUNCTIONS = """tg 1
input %x : f32[4, 37]
input %d : f64[5]
%a = exp(%x)
%b = tanh(%x)
%c = erf(%x)
%e = sigmoid(%x)
%s = abs(%x)
%l = log(%s)
%f = sin(%x)
%h = cast(%x) {to=f8e5m2}
%i = cast(%h) {to=f32}
%p = pow(%s, %x)
%g = erf(%d)
%k = sin(%d)
output %a
output %b
output %c
output %e
output %l
output %f
output %i
output %p
output %g
output %k
"""
# A model that calls a function of the host.
HOST = """tg 1
input %x : f32[40]
%v, %_i = topk(%x) {k=5}
output %v
"""
# A product of so many rows as a run says.
ROWS = """tg 1
input %x : f32[B<=9, 40]
weight %w : f32[40, 24] = kaiming_uniform(seed=1)
%y = matmul(%x, %w)
output %y
"""
# triple, C compiler, what runs the program, options
MACHINES = (("aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64", ("", "neondot")),
            ("i686-linux-gnu", "i686-linux-gnu-gcc -msse2 -mfpmath=sse", "qemu-i386", ("generic",)),
            ("armv7-linux-gnueabihf", "arm-linux-gnueabihf-gcc", "qemu-arm", ("generic",)),
            ("riscv64-linux-gnu", "riscv64-linux-gnu-gcc", "qemu-riscv64", ("generic",)),
            ("s390x-linux-gnu", "s390x-linux-gnu-gcc -fexcess-precision=fast", "qemu-s390x", ("generic",)),
            ("thumbv7em-none-eabihf", "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard "
             "-mfpu=fpv4-sp-d16", "qemu-system-arm -M mps2-an386 -nographic -semihosting-config "
             "enable=on,target=native -kernel", ("generic",)))


# Cortex-M without a floating-point unit; a Cortex-M3 runs what is for a Cortex-M0.
SOFT = tuple((triple, f"arm-none-eabi-gcc -mcpu={cpu} -mthumb", f"qemu-system-arm -M {board} -nographic "
              "-semihosting-config enable=on,target=native -kernel", ("generic",))
             for triple, cpu, board in (("thumbv7m-none-eabi", "cortex-m3", "mps2-an385"),
                                        ("thumbv6m-none-eabi", "cortex-m0", "mps2-an385"),
                                        ("thumbv8m.main-none-eabi", "cortex-m33", "mps2-an505"),
                                        ("thumbv7em-none-eabi", "cortex-m4", "mps2-an386")))
# One processor each, that an emulator is.
PROCESSORS = (("x86_64-linux-gnu", "gcc", "qemu-x86_64 -cpu Haswell", ("haswell",)),
              ("aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64 -cpu cortex-a72", ("cortex-a72",)),
              ("aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64 -cpu max", ("cortex-a76", "neoverse-n2")),
              ("armv7-linux-gnueabihf", "arm-linux-gnueabihf-gcc", "qemu-arm -cpu cortex-a7", ("cortex-a7",)),
              ("riscv64-linux-gnu", "riscv64-linux-gnu-gcc", "qemu-riscv64", ("sifive-u74",)),
              ("s390x-linux-gnu", "s390x-linux-gnu-gcc -fexcess-precision=fast", "qemu-s390x -cpu max", ("z14",)),
              ("thumbv7em-none-eabihf", "arm-none-eabi-gcc -mcpu=cortex-m7 -mthumb -mfloat-abi=hard "
               "-mfpu=fpv5-d16", "qemu-system-arm -M mps2-an500 -nographic -semihosting-config "
               "enable=on,target=native -kernel", ("cortex-m7",)),
              ("thumbv8m.main-none-eabihf", "arm-none-eabi-gcc -mcpu=cortex-m33 -mthumb -mfloat-abi=hard "
               "-mfpu=fpv5-sp-d16", "qemu-system-arm -M mps2-an505 -nographic -semihosting-config "
               "enable=on,target=native -kernel", ("cortex-m33",)))
# Macros of compilers for the features of an instruction set, in the order of isa.def.
SETS = {"x86_64": (("GENERIC", ()), ("AVX2", ("__AVX2__", "__FMA__")),
                   ("AVX512", ("__AVX512F__", "__AVX512VL__", "__AVX512DQ__", "__AVX512BW__")),
                   ("AVX512VNNI", ("__AVX512VNNI__",)), ("AVX512BF16", ("__AVX512BF16__",)),
                   ("AMX", ("__AMX_INT8__", "__AMX_TILE__"))),
        "aarch64": (("NEON", ()), ("NEONDOT", ("__ARM_FEATURE_DOTPROD",)),
                    ("NEONI8MM", ("__ARM_FEATURE_MATMUL_INT8",)), ("NEONBF16", ("__ARM_FEATURE_BF16_VECTOR_ARITHMETIC",)))}
TRIPLES = {"x86_64": "x86_64-linux-gnu", "i686": "i686-linux-gnu", "aarch64": "aarch64-linux-gnu",
           "armv7": "armv7-linux-gnueabihf", "thumbv7m": "thumbv7m-none-eabi", "thumbv6m": "thumbv6m-none-eabi",
           "thumbv8m.main": "thumbv8m.main-none-eabihf", "thumbv7em": "thumbv7em-none-eabihf", "thumbv8.1m.main": "thumbv8.1m.main-none-eabihf", "riscv64": "riscv64-linux-gnu", "s390x": "s390x-linux-gnu"}
VERSIONS = (14, 15, 16, 19)
NUMBERS = {"s390x-linux-gnu": ["--weights=array"]}       # bytes of weights would have the other order
QUICK = ("aarch64-linux-gnu", "i686-linux-gnu", "s390x-linux-gnu")         # whose compilers scripts/setup.sh check installs
TOO_LARGE = ("layer_norm", "mnist_cnn")                  # for the memory of qemu's mps2-an386
# Before newlib's start: a vector table, and the floating-point unit.
# Where boards have code and a stack, if not at 0: the secure memory of a Cortex-M33.
BOARDS = {"mps2-an505": (0x10000000, 0x10400000)}


def link(folder, source, compiler="gcc", more=()):
    T.must(T.run([*compiler.split(), T.LEVEL, "-I", folder, MAIN, source, *more, "-lm", "-o", folder / "run"],
                 timeout=120))


def run_c(tgc, model, folder, options=()):
    """By the C target and the compiler at hand; what m.c and m.h are stays in the folder."""
    T.scratch(folder)
    T.must(T.run([tgc, "compile", model, "-o", folder / "m.c", "--vectors=never", *options], timeout=120))
    link(folder, folder / "m.c")
    return T.must(T.run([folder / "run"], timeout=60)).out.decode()


def answer_of_c(tgc, model, *options):
    """The same, of a model that several cases ask for."""
    return T.shared("answer", lambda folder, *key: run_c(tgc, model, folder / "c", options), model, *options)


def run_there(folder, source, compiler, emulator):
    """Links a C file or an object for another machine, and runs it."""
    more = ("-static",)
    if "none" in compiler:
        begin, stack = next((at for board, at in BOARDS.items() if board in emulator), (0, 0x20400000))
        (folder / "start.c").write_text(START)
        more = (folder / "start.c", f"-DSTACK={stack:#x}", "--specs=rdimon.specs",
                f"-Wl,--section-start=.vectors={begin:#x}", f"-Wl,-Ttext-segment={begin + 0x8000:#x}")
    link(folder, source, compiler, more)
    return T.must(T.run([*emulator.split(), folder / "run"], timeout=120)).out.decode()


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


def by_version(version):
    """The environment that asks for a version of libLLVM; 0: the newest one."""
    return {**os.environ, "TGC_LLVM": str(version)} if version else None


def need_version(tgc, version):
    said = T.must(T.run([tgc, "--version"], env=by_version(version))).out.decode()
    if "libLLVM: none" in said:
        raise Skip(f"libLLVM {version} is not installed (libllvm{version})")


def check_object(tgc, model, folder, options, version=0):
    BY_LLVM.need(tgc)
    need_version(tgc, version)
    for option in options:
        expected = answer_of_c(tgc, model, *(["-O0"] if option == "-O0" else []))
        mine = T.scratch(folder / "llvm")
        T.must(T.run([tgc, "compile", model, "-o", mine / "m.o", LLVM, *option.split()], timeout=120,
                     env=by_version(version)))
        expect(sorted(p.name for p in mine.iterdir()) == ["m.h", "m.o"], "other files than m.o and m.h")
        link(mine, mine / "m.o")
        compare(T.must(T.run([mine / "run"], timeout=60)).out.decode(), expected)


def built_by(compiler, folder):
    """A tgc of these sources that another compiler builds: a wheel's is zig's clang."""
    if compiler == "gcc":
        return None
    need_compiler(compiler)
    T.must(T.run(["meson", "setup", folder, ROOT], env={"CC": compiler}, timeout=300))
    T.must(T.run(["ninja", "-C", folder, "cli/tgc"], timeout=1200))
    return folder / "cli" / "tgc"


def check_compilers(tgc, model, folder, built):
    """No vector is passed to what another compiler made: objects and archives by tgc of gcc or clang, for each set, by each C compiler at each level."""
    BY_LLVM.need(tgc)
    expected = without_arena(answer_of_c(tgc, model))
    program = T.shared("tgc", lambda where, of: built_by(of, where / "build") or tgc, built)
    for cpu in ("auto", "avx2", "avx512"):
        for kind, compiler, level in itertools.product("oa", ("gcc", "clang"), ("-O1", "-O2", "-O3")):
            need_compiler(compiler)
            mine = T.scratch(folder / "llvm")
            T.must(T.run([program, "compile", model, "-o", mine / f"m.{kind}", LLVM, level, "--vectors=never", *(() if cpu == "auto" else (f"--cpu={cpu}",))],
                         env={"CC": f"{compiler} {level}"}, timeout=120))
            if cpu != "auto" and not has_set(cpu):
                continue
            T.must(T.run([compiler, level, "-I", mine, MAIN, mine / f"m.{kind}", "-lm", "-o", mine / "run"], timeout=120))
            compare(without_arena(T.must(T.run([mine / "run"], timeout=60)).out.decode()), expected)


def need_compiler(name):
    if not shutil.which(name):
        raise Skip(f"{name} is not installed")


def has_set(name):
    """avx2, avx512."""
    return name in Path("/proc/cpuinfo").read_text()


def check_node(tgc, case, folder):
    T.scratch(folder)
    (folder / "m.onnx").write_bytes(case.model.SerializeToString())
    check_object(tgc, folder / "m.onnx", folder, ("",))


def check_texts(tgc, folder):
    """.s is what an assembler takes, .ll what LLVM's own tools take; both by -o -, too."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(FUNCTIONS)
    expected = run_c(tgc, folder / "t.tg", folder / "c")
    for version in VERSIONS:
        env = by_version(version)
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
        strangers = [line for line in text.decode().splitlines() if line.startswith("declare") and " x " in line and "@llvm." not in line]
        expect(not strangers, f"functions that others have to pass vectors to: {strangers}")


def check_without_compiler(tgc, folder):
    """Arithmetic is the module's own, for every machine: an object of it needs no compiler of C."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(FUNCTIONS)
    for triple in ("x86_64-linux-gnu", *(machine[0] for machine in MACHINES), *(machine[0] for machine in SOFT)):
        T.must(T.run([tgc, "compile", "t.tg", "-o", "m.o", LLVM, f"--triple={triple}"], cwd=folder, timeout=120,
                     env={**os.environ, "CC": "/nowhere/cc"}))


def check_offsets(tgc, folder):
    """Places are as wide as addresses from the beginning: the passes that would make them so were most of LLVM's time for small kernels."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(ROWS)
    for triple, width in (("x86_64-linux-gnu", 64), ("aarch64-linux-gnu", 64), ("armv7-linux-gnueabihf", 32)):
        text = T.must(T.run([tgc, "compile", "t.tg", "-o", "-", "--emit=ll", "--name=m", LLVM, f"--triple={triple}"], cwd=folder)).out.decode()
        kernel = text.partition("@matmul_0(")[2].partition("\n}")[0]
        places = set(re.findall(r"\w = getelementptr float, [^,]+, i(\d+) %", kernel))
        expect(str(width) in places and (width == 32 or len(places) == 1), f"{triple}: places of {places} bits in {kernel}")


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


def check_other_order(tgc, folder):
    """--weights=file for a machine whose numbers have the most significant byte first."""
    BY_LLVM.need(tgc)
    triple, compiler, emulator, _ = next(machine for machine in MACHINES if machine[0] in NUMBERS)
    for tool in (compiler, emulator):
        if not shutil.which(tool.split()[0]):
            raise Skip(f"{tool.split()[0]} is not installed")
    said = []
    for name, cc, runner, more in (("here", "gcc", [], []), ("there", compiler, [emulator], [f"--triple={triple}"])):
        mine = T.scratch(folder / name)
        T.must(T.run([tgc, "compile", ROOT / "models" / "mlp.tg", "-o", "m.o", LLVM, "--cpu=generic",
                      "--weights=file", *more], cwd=mine, env={**os.environ, "CC": cc}))
        link(mine, mine / "m.o", cc, ["-static"] if more else [])
        said.append(T.must(T.run([*runner, mine / "run", mine / "m.weights"])).out.decode())
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


def exported(path):
    lines = T.must(T.run(["nm", "-D", "--defined-only", path])).out.decode().splitlines()
    return sorted(line.split()[-1] for line in lines)


def check_libraries(tgc, name, folder):
    """.so and .a: what they export, which members there are, and what they compute."""
    BY_LLVM.need(tgc)
    model = ROOT / "models" / f"{name}.tg"
    expected = run_c(tgc, model, folder / "c")
    mine = T.scratch(folder / "llvm")
    for out in ("m.so", "m.a"):
        T.must(T.run([tgc, "compile", model, "-o", mine / out, LLVM]))
        T.must(T.run([tgc, "compile", model, "-o", folder / "c" / out]))
        link(mine, mine / out, more=(f"-Wl,-rpath,{mine}",))
        compare(T.must(T.run([mine / "run"])).out.decode(), expected)
    expect(exported(mine / "m.so") == exported(folder / "c" / "m.so"), "other names than C's")
    expect(T.must(T.run(["ar", "t", mine / "m.a"])).out == b"m.o\n", "members")
    for side, more in ((mine, (LLVM,)), (folder / "c", ())):      # for the same processors
        T.must(T.run([tgc, "compile", model, "-o", side / "m.o", "--cpu=generic", *more]))
    headers = [re.sub(r"/\*.*?\*/\n?", "", (side / "m.h").read_text(), flags=re.S) for side in (mine, folder / "c")]
    expect(headers[0] == headers[1], "another header, but for comments on C compilers")


def check_tools(tgc, folder):
    """A linker or an archiver that is not there."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(PLAIN)
    for out, variable, package in (("m.so", "CC", "gcc"), ("m.a", "AR", "binutils")):
        done = T.run([tgc, "compile", "t.tg", "-o", out, LLVM], cwd=folder,
                     env={**os.environ, variable: "/nowhere/tool"})
        expect(done.status == 1 and "/nowhere/tool" in done.err and f"apt-get install {package}" in done.err,
               f"{out}: {done.status}: {done.err}")
        expect([p.name for p in folder.iterdir()] == ["t.tg"], f"{out} left a file")
    T.must(T.run([tgc, "compile", "t.tg", "-o", "m.a", LLVM], cwd=folder,
                 env={**os.environ, "CC": "/nowhere/tool"}))     # a model that calls nothing needs none


def dispatch_words(tgc, folder, words):
    """Names of the kernels of a model's assembly."""
    T.must(T.run([tgc, "compile", "t.tg", "-o", "m.s", LLVM, *words], cwd=folder))
    return set(re.findall(r"^(linear\w*):", (folder / "m.s").read_text(), re.M))


def check_dispatch(tgc, folder):
    """Which sets kernels are written for, and which of them a processor runs."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(PLAIN)
    for words, sets in ((["--triple=x86_64-linux-gnu"], ("", "_avx2", "_avx512")),
                        (["--triple=x86_64-linux-gnu", "--cpu=avx2"], ("", "_avx2")),
                        (["--triple=x86_64-linux-gnu", "--cpu=generic"], ("",)),
                        (["--triple=aarch64-linux-gnu"], ("", "_neon")),
                        (["--triple=armv7-linux-gnueabihf"], ("",))):
        found = dispatch_words(tgc, folder, words)
        expect(found == {f"linear_0{isa}" for isa in sets}, f"{words}: kernels {found}")
    T.must(T.run([tgc, "compile", ROOT / "models" / "mlp.tg", "-o", "m.o", LLVM, "--triple=x86_64-linux-gnu"],
                 cwd=folder, env={**os.environ, "CC": "gcc"}))
    expected = run_c(tgc, ROOT / "models" / "mlp.tg", folder / "c")
    link(folder, folder / "m.o", more=("-static",))
    for cpu in ("qemu64", "Haswell"):                            # without AVX2, and with
        if not shutil.which("qemu-x86_64"):
            raise Skip("qemu-x86_64 is not installed (qemu-user)")
        done = T.must(T.run(["qemu-x86_64", "-cpu", cpu, folder / "run"], timeout=60))
        compare(done.out.decode(), expected)


def check_lines(tgc, folder, version):
    """-g: addresses in a kernel belong to lines of the listing, which name the model's nodes."""
    BY_LLVM.need(tgc)
    need_version(tgc, version)
    for tool in ("nm", "addr2line"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed (binutils)")
    made = []
    for name in ("one", "other"):                                # the same bytes in any folder
        mine = T.scratch(folder / name)
        T.must(T.run([tgc, "compile", ROOT / "models" / "mlp.tg", "-o", "m.o", LLVM, "-g",
                      "--triple=x86_64-linux-gnu"], cwd=mine, env={**by_version(version), "CC": "gcc"}))
        made.append((mine / "m.o").read_bytes())
    expect(made[0] == made[1], "the folder is in the object")
    link(mine, mine / "m.o")
    lines = (mine / "m.uops").read_text().splitlines()
    symbols = re.findall(r"^(\w+) (\w+) t (linear_1\w*)$",
                         T.must(T.run(["nm", "-S", mine / "run"])).out.decode(), re.M)
    expect(len(symbols) == 3, f"{symbols}")
    for start, size, name in symbols:
        begin = next(i for i, line in enumerate(lines) if line.startswith(f"kernel {name} "))
        end = next(i for i in range(begin, len(lines)) if not lines[i])
        expect('linear "2"' in lines[begin], lines[begin])
        places = [hex(int(start, 16) + at) for at in range(0, int(size, 16), 16)]
        said = T.must(T.run(["addr2line", "-e", mine / "run", "-f", *places])).out.decode().split("\n")
        found = {int(line) - 1 for line in re.findall(r"^m\.uops:(\d+)", "\n".join(said[1::2]), re.M)}
        expect(set(said[:-1:2]) == {name} and all(begin <= line < end for line in found),
               f"{name}: {set(said[::2])}, lines {sorted(found)} of {begin} to {end}")
        expect("_" in name[len("linear_1"):] or any('loc("2")' in lines[line] for line in found),
               f"{name}: no line of the node")           # vectors have no node of their own


def check_machine(tgc, model, folder, triple, compiler, emulator, cpus, target=LLVM):
    (BY_LLVM if target == LLVM else BY_CLANG).need(tgc)
    for tool in (compiler, emulator):
        if not shutil.which(tool.split()[0]):
            raise Skip(f"{tool.split()[0]} is not installed")
    for cpu in cpus:
        said = []
        for name, source, more in (("c", "m.c", ["--vectors=never", *NUMBERS.get(triple, [])]),
                                   ("there", "m.o", [target, f"--triple={triple}"])):
            mine = T.scratch(folder / name)
            more += [f"--cpu={cpu}"] if cpu else []
            T.must(T.run([tgc, "compile", model, "-o", source, *more], cwd=mine,
                         env={**os.environ, "CC": compiler}, timeout=120))
            said.append(run_there(mine, mine / source, compiler, emulator))
        compare(*reversed(said if cpu else [without_arena(text) for text in said]))


def processors():
    """The rows of processors.def: name, architectures, instruction set, version of LLVM."""
    rows = re.findall(r'^PROCESSOR\("([^"]+)", *"([^"]+)", *(\w+), *(\d+), "[^"]*"\)$',
                      (ROOT / "passes" / "target" / "processors.def").read_text(), re.M)
    expect(len(rows) > 100, f"{len(rows)} rows are read")
    return [(name, architectures.split(), isa, int(version)) for name, architectures, isa, version in rows]


def check_sets():
    """What the newest clang says that each processor has is what its row says."""
    compiler = f"clang-{VERSIONS[-1]}"
    if not shutil.which(compiler):
        raise Skip(f"{compiler} is not installed")
    for name, architectures, isa, _ in processors()[::1 if "--all" in sys.argv else 2]:
        machine = "-march" if architectures[0] in ("x86_64", "i686", "s390x") else "-mcpu"
        said = T.must(T.run([compiler, f"--target={TRIPLES[architectures[0]]}", f"{machine}={name}", "-dM", "-E", "-x",
                             "c", "/dev/null"])).out.decode()
        macros, best = set(re.findall(r"^#define (\w+)", said, re.M)), "GENERIC"
        for text, needs in SETS.get(architectures[0], ()):
            if not macros.issuperset(needs):
                break
            best = text
        expect(best == isa, f"{name} is of {best}, and its row says {isa}")


def check_names(tgc, folder, version, every):
    """LLVM knows the processors that it is said to know, and the others are refused."""
    BY_LLVM.need(tgc)
    need_version(tgc, version)
    (T.scratch(folder) / "t.tg").write_text(PLAIN)
    for name, architectures, _, since in processors()[::every]:
        done = T.run([tgc, "compile", "t.tg", "-o", "m.o", LLVM, f"--cpu={name}",
                      f"--triple={TRIPLES[architectures[-1] if 'arm64' not in architectures else 'aarch64']}"],
                     cwd=folder, env=by_version(version))
        if since > version:
            expect(done.status == 1 and f"version {since} does" in done.err, f"{name}: {done.describe()}")
        else:
            expect(done.status == 0 and not done.err, f"{name}: {done.describe()}")


def check_alone(tgc, folder):
    """A named processor's program has one kernel, with its instructions, and asks for nothing."""
    BY_LLVM.need(tgc)
    (T.scratch(folder) / "t.tg").write_text(PLAIN.replace("8", "64"))
    for cpu, triple, register in (("haswell", "x86_64-linux-gnu", "ymm"), ("skylake-avx512", "x86_64-linux-gnu", "zmm"),
                                  ("sapphirerapids", "x86_64-linux-gnu", "zmm"), ("nehalem", "x86_64-linux-gnu", "xmm"),
                                  ("cortex-a72", "aarch64-linux-gnu", ".4s"), ("apple-a14", "arm64-apple-macosx", ".4s"),
                                  ("znver3", "i686-linux-gnu", "xmm")):
        T.must(T.run([tgc, "compile", "t.tg", "-o", "m.s", LLVM, f"--cpu={cpu}", f"--triple={triple}"], cwd=folder))
        text = (folder / "m.s").read_text()
        expect(set(re.findall(r"^_?(linear\w*):", text, re.M)) == {"linear_0"} and "cpu_" not in text and
               "getauxval" not in text, f"{cpu}: more than one kernel, or a choice")
        expect(register in text, f"{cpu}: no {register} in its code")
    for words, says in ((["--cpu=cortex-m7"], "thumbv7em thumbv7m"), (["--cpu=haswel"], " haswell"),
                        (["--cpu=haswell", "--triple=aarch64-linux-gnu"], "--triple=aarch64")):
        done = T.run([tgc, "compile", "t.tg", "-o", "n.s", LLVM, *words], cwd=folder)
        expect(done.status in (1, 2) and says in done.err and not (folder / "n.s").exists(), done.describe())


def check_loader(tgc, folder):
    """The loader of code in this process, built for AArch64, beside this processor's: the same numbers."""
    BY_LLVM.need(tgc)
    _, compiler, emulator, _ = MACHINES[0]
    for program in (compiler, emulator):
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
    T.scratch(folder)
    (folder / "g.tg").write_text(PLAIN)
    sources = HERE / "loader.c", *(ROOT / "backends" / "llvm" / name for name in ("loader.c", "relocate.c"))
    said = []
    for triple, cc, runner in ((None, "gcc", []), (MACHINES[0][0], compiler, [emulator])):
        T.must(T.run([tgc, "g.tg", "-o", "g.o", LLVM, "--cpu=generic", *([f"--triple={triple}"] if triple else [])], cwd=folder))
        T.must(T.run([cc, "-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", *sources,
                      "-o", "run", *(["-static"] if triple else [])], cwd=folder))
        said.append(T.must(T.run([*runner, "./run", "g.o"], cwd=folder, timeout=60)).out)
    expect(said[0] == said[1] and said[0].count(b"\n") == 32, said)
    expect("it is for machine" in T.must(T.run(["gcc", "-D_GNU_SOURCE", f"-I{ROOT}", *sources, "-o", "here"], cwd=folder)).err +
           T.must(T.run(["./here", "g.o"], cwd=folder), 1).err, "another processor's object is taken")


def check_refusals(tgc, folder):
    BY_LLVM.need(tgc)
    model = folder.with_suffix(".tg")
    T.scratch(folder)
    model.write_text(HOST)
    for words, status, says in (
            (["-o", "m.o", LLVM, "--triple=pdp11-dec-unix"], 1, "--triple=pdp11-dec-unix"),
            (["-o", "m.o", LLVM, "--triple=sparc64-linux-gnu"], 1, "armv7"),
            (["-o", "m.o", LLVM, "--triple=aarch64-linux-gnu", "--cpu=avx2"], 1, "--cpu=avx2"),
            (["-o", "m.o", LLVM, "--cpu=pentium"], 2, "--cpu=pentium"),
            (["-o", "m.o", "--triple=aarch64-linux-gnu"], 2, "--target=llvm"),
            (["-o", "m.ll"], 2, "--target=llvm"),
            (["-o", "m.c", LLVM], 2, "--target=c"),
            (["-o", "-", "--emit=s", LLVM, "-g"], 1, "no place"),
            (["-o", "m.s", LLVM], 1, "topk")):
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
    suite.add("loader", check_loader, tgc, scratch / "loader")
    suite.add("texts", check_texts, tgc, scratch / "texts")
    suite.add("objects without a compiler", check_without_compiler, tgc, scratch / "without")
    suite.add("places as wide as addresses", check_offsets, tgc, scratch / "offsets")
    suite.add("weights", check_weights, tgc, scratch / "weights")
    suite.add("weights of the other order of bytes", check_other_order, tgc, scratch / "order")
    suite.add("interface", check_interface, tgc, scratch / "interface")
    suite.add("two programs", check_two, tgc, scratch / "two")
    for version in VERSIONS:
        suite.add(f"lines by LLVM {version}", check_lines, tgc, scratch / f"lines-{version}", version)
        for name in ("mlp", "causal_attention", "digits", "layer_norm"):
            suite.add(f"{name} by LLVM {version}", check_object, tgc, ROOT / "models" / f"{name}.tg",
                      scratch / f"{name}-{version}", ("",), version, slow=name != "mlp")
    suite.add("dispatch", check_dispatch, tgc, scratch / "dispatch")
    suite.add("processors: instruction sets", check_sets)
    suite.add("processors: code for one alone", check_alone, tgc, scratch / "alone")
    for version in VERSIONS:
        suite.add(f"processors: names of LLVM {version}", check_names, tgc, scratch / f"names-{version}", version,
                  1 if options.all else 8)       # the newest clang is asked for all by check_sets()
    for machine in PROCESSORS:
        suite.add(f"mlp {' '.join(machine[3])}", check_machine, tgc, ROOT / "models" / "mlp.tg",
                  scratch / f"mlp-{machine[3][0]}", *machine, slow=machine[0] not in QUICK)
    suite.add("tools", check_tools, tgc, scratch / "tools")
    for name in ("gelu", "layer_norm"):
        suite.add(f"libraries {name}", check_libraries, tgc, name, scratch / f"libraries-{name}", slow=name != "gelu")
    wide = ("--cpu=avx2", "-O0") if has_set("avx2") else ("-O0",)
    for number, path in enumerate(sorted((ROOT / "models").glob("*.tg"))):
        suite.add(path.stem, check_object, tgc, path, scratch / path.stem, ("",))
        for k, option in enumerate(wide):           # of every second model one, in turn
            suite.add(f"{path.stem} {option}", check_object, tgc, path, scratch / f"{path.stem}-{option}", (option,),
                      slow=number % (2 * len(wide)) != 2 * k + 1)
        for machine in MACHINES:
            if "none" in machine[0] and path.stem in TOO_LARGE:
                continue
            suite.add(f"{path.stem} {machine[0]}", check_machine, tgc, path,
                      scratch / f"{path.stem}-{machine[0]}", *machine,
                      slow=path.stem != "mlp" or machine[0] not in QUICK)
    for machine in SOFT:
        for name in ("digits", "gelu"):
            suite.add(f"{name} {machine[0]}", check_machine, tgc, ROOT / "models" / f"{name}.tg",
                      scratch / f"{name}-{machine[0]}", *machine, slow=True)
    bare = next(machine for machine in MACHINES if "none" in machine[0])
    suite.add(f"digits {bare[0]} by clang", check_machine, tgc, ROOT / "models" / "digits.tg",
              scratch / "digits-clang", *bare, CLANG, slow=True)
    for built in ("gcc", "clang"):
        for path in sorted((ROOT / "models").glob("*.tg")):
            suite.add(f"{path.stem} by a tgc of {built}, every compiler and level", check_compilers, tgc, path,
                      scratch / f"{path.stem}-{built}", built, slow=True)
    cases = N.load_cases(options.build)
    for name in NODES:
        suite.add(name, check_node, tgc, cases[name], scratch / name)
    suite.main()


if __name__ == "__main__":
    main()
