"""The AMD target without a device: kernels are compiled by LLVM and, from HIP C, by clang for each architecture, whose notes and instructions are
looked at, and run on the emulated device, where every access and every call of the driver is checked. Quick: the models of models/, every 120th of
the onnx package's tests."""

import gc
import re
import shutil
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "exec")]

import numpy as np

import amd
import emulator
import graphs as G
import kernel_ir
import small
import tgc as T
from library import Library
from suite import Skip, Suite, expect
from twins import ACROSS, ATTENTIONS, BYTES, DEVICE_FAILED, FEW_BYTES, FEW_HEADS, GEMM, ROOT, RUNTIME_BYTES, Twin

ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
COMPILERS = ("llvm", "clang")
LOCAL_NBYTES, REGISTERS = 65536, 256
NO_DEVICE, OLD_DRIVER, DEVICE_MEMORY, OTHER_DEVICE = 19, 21, 22, 23

suite = Suite("amd", jobs=1)      # the device is one of the process
twin = Twin(suite, "amd", "hip", "libamdhip64.so.6", amd.need_compiler, emulator.amd_environment, amd.text_of,
            [(arch, f"version={arch}") for arch in ARCHITECTURES])


# -------------------------------------------------------------------------------------------------- compilers

def compile_by(tgc, path, folder, compiler, arch, *options):
    """The code object of that compiler: its kernels' notes."""
    amd.need_compiler()
    if compiler == "llvm":
        T.need_llvm(tgc)
    done = T.run([tgc, path, "-o", f"{arch}.hsaco", "--target=amd", f"--cpu={arch}", *options], cwd=folder, timeout=300, env={"TGC_AMD": compiler})
    if "--dim" in done.err and not any(option.startswith("--dim") for option in options):          # as the error says
        return compile_by(tgc, path, folder, compiler, arch, *options, *(f"--dim={dim}" for dim in re.findall(r"--dim (\w+=\.\.8)", done.err)))
    T.must(done)
    return amd.notes(folder / f"{arch}.hsaco")


def real_models():
    """Those that the suite of real models and the benchmark have made here, by name."""
    cache = ROOT / ".cache"
    made = {path.stem.rpartition("-")[0]: path for path in sorted((cache / "models").glob("*.onnx"))}
    return made | {path.parent.name.rpartition("-")[0]: path for path in sorted((cache / "bench").glob("*/model.onnx"))}


def check_objects(tgc, path, folder, compiler, *options, architectures=ARCHITECTURES):
    """For each architecture: nothing is kept in memory for lack of registers (lanes of others, and gfx9's accumulators, are none);
    local memory and registers are within what there is."""
    T.scratch(folder)
    for arch in architectures:
        kernels = compile_by(tgc, path, folder, compiler, arch, *options)
        expect(kernels, "no kernels")
        for name, k in kernels.items():
            expect(not k[".private_segment_fixed_size"], f"{arch}: {name} keeps values in memory: {k}")
            expect(k[".group_segment_fixed_size"] <= LOCAL_NBYTES and k[".vgpr_count"] <= REGISTERS * 2, f"{arch}: {name}: {k}")
            expect(k[".wavefront_size"] == (64 if arch.startswith("gfx9") else 32), f"{arch}: {name}: {k}")


def check_llvm(tgc, path, folder, arch, *options):
    """What LLVM makes code objects of computes the same: the module, before it is optimized for the device, on the emulated one."""
    T.scratch(folder)
    with twin.stand_ins():
        twin.emit(tgc, path, folder, "m", f"--cpu={arch}", *options)
    twin.build_host(folder)
    run_llvm(tgc, path, folder, arch, *options)


def run_llvm(tgc, path, folder, arch, *options):
    """The same of a program that is there."""
    T.need_llvm(tgc)
    T.must(T.run([tgc, path, "-o", "m.ll", "--name=m", "--target=amd", f"--cpu={arch}", *options], cwd=folder))
    kernels = kernel_ir.compile_for_host(folder / "m.ll", kernel_ir.VERSIONS[0])
    done = T.run([folder / "m", "--selftest"], env=twin.environment_of(folder, "m", device=f"version={arch}", object=kernels))
    expect(done.status == 0 and not done.err, done.describe())


# Of each architecture the row of ir/matrix.def, without its dtype; of bytes, where gfx9 multiplies those with signs alone.
ROWS = {"gfx90a": "mfma16x16x16", "gfx942": "mfma16x16x16", "gfx1100": "wmma16x16x16", "gfx1201": "wmma16x16x16gfx12"}
BYTE_ROWS = {"gfx90a": "mfma16x16x16", "gfx942": "mfma16x16x32", "gfx1100": "wmma16x16x16", "gfx1201": "wmma16x16x16gfx12"}
SIGNS = ("i8", "u8", "u8i8")
INSTRUCTIONS = {"f16": "f32_16x16x16_?f16", "bf16": "f32_16x16x16_?bf16", **dict.fromkeys(SIGNS, "i32_16x16x(?:16_?i8|32_i8|16_iu8)")}
# Products that each of them computes by its instruction: name, text, options, dtype.
MATRICES = [("f16", GEMM.format(dtype="f16", m=128, n=128, k=128), (), "f16"),
            ("bf16", GEMM.format(dtype="bf16", m=128, n=128, k=128), (), "bf16"),
            ("f32 as f16", GEMM.format(dtype="f32", m=128, n=128, k=128), ("--math=f16",), "f16"),
            ("odd sizes", GEMM.format(dtype="f16", m=97, n=67, k=131), (), "f16"),
            ("batches, both across", ACROSS.format(dtype="f16", m=96, n=104, k=112), (), "f16"),
            ("bytes", BYTES.format(dtype="i8"), (), "i8"),
            ("bytes without signs", BYTES.format(dtype="u8"), (), "u8i8"),
            ("bytes of a run", RUNTIME_BYTES.format(x="u8", y="u8", za=0, zb=130), (), "u8"),
            ("attention", (ROOT / "models" / "transformer_block.tg").read_text(), ("--dim=B=1", "--dim=T=40", "--math=f16"), "f16")]


def matrices(tgc, folder, arch, text, options, dtype, compilers=COMPILERS):
    """A product is computed by the instruction, or by none (dtype: None): rightly from HIP C and by LLVM's module on the emulated device, which looks for
    waves that are not whole; and those compilers' code has it, in as many registers as there are."""
    T.scratch(folder)
    path = folder / "net.tg"
    path.write_text(text)
    with twin.stand_ins() if dtype else nullcontext():
        twin.check_model(tgc, path, folder / "run", f"--cpu={arch}", *options, device=f"version={arch}")
    kernels = (folder / "run" / "m.hip").read_text()
    if dtype is None:
        expect(not re.search(r" (?:mfma|wmma)\w+\((acc|sum)", kernels), "by an instruction for matrices")
        return
    row = f"{ROWS[arch]}_{dtype}" if dtype not in SIGNS else f"{BYTE_ROWS[arch]}_{'i8' if arch.startswith('gfx9') else dtype}"
    expect(re.search(rf" {row}\((acc|sum)", kernels), f"by another instruction than {row}")
    run_llvm(tgc, path, folder / "run", arch, *options)
    expect(f"@gpu.{row}(" in (folder / "run" / "m.ll").read_text(), "LLVM's module has another instruction")
    for compiler in compilers:
        for name, k in compile_by(tgc, path, folder, compiler, arch, *options).items():
            expect(not k[".private_segment_fixed_size"] and not k.get(".vgpr_spill_count"), f"{compiler}: {name} keeps values in memory: {k}")
        code = amd.disassembly(folder / f"{arch}.hsaco")
        found = set(re.findall(r"v_(?:mfma|wmma)_\w+", code))
        wanted = rf"v_{ROWS[arch][:4]}_{INSTRUCTIONS[dtype]}(?:_1k|_e64)?"
        expect(found and all(re.fullmatch(wanted, word) for word in found), f"{compiler}: {found}")


# Floats of 8 bits: their kind, architecture, the row, what stands for it in the code of an object.
FLOATS_8 = [("e4m3fnuz", "gfx942", "mfma16x16x32_e4m3fnuz", "v_mfma_f32_16x16x32_fp8_fp8"), ("e5m2fnuz", "gfx942", "mfma16x16x32_e5m2fnuz", "v_mfma_f32_16x16x32_bf8_bf8"),
            ("e4m3fn", "gfx1201", "wmma16x16x16gfx12_e4m3", "v_wmma_f32_16x16x16_fp8_fp8"), ("e5m2", "gfx1201", "wmma16x16x16gfx12_e5m2", "v_wmma_f32_16x16x16_bf8_bf8"),
            ("e4m3fn", "gfx942", None, None)]


def float8(device, tgc, folder, kind, arch, row, instruction):
    """Both compilers' kernels of layers of floats of 8 bits, in the quick form those of one for each kind of processor: right, by the instruction."""
    with twin.stand_ins():
        twin.float8(device, tgc, folder / "hip", kind, arch, f"version={arch}", row)
        T.must(T.run([tgc, "net.onnx", "-o", "net.tg"], cwd=folder / "hip"))
        check_llvm(tgc, folder / "hip" / "net.tg", folder / "llvm", arch)
    for compiler in ("llvm", "clang") if suite.options.all else ("llvm" if arch.startswith("gfx9") else "clang",):
        compile_by(tgc, folder / "hip" / "net.tg", folder / "llvm", compiler, arch)
        found = set(re.findall(r"v_(?:mfma|wmma)_\w+", amd.disassembly(folder / "llvm" / f"{arch}.hsaco")))
        expect(found == ({instruction} if instruction else set()), f"{compiler}: {found}")


def bytes_by_words(tgc, folder, arch, compilers=COMPILERS):
    """A product of bytes, too short for matrices: words of four, whose products both compilers have instructions for."""
    T.scratch(folder)
    path = folder / "bytes.tg"
    path.write_text(FEW_BYTES)
    with twin.stand_ins():
        twin.check_model(tgc, path, folder / "run", f"--cpu={arch}", device=f"version={arch}")
        check_llvm(tgc, path, folder / "llvm", arch)
    for compiler in compilers:
        for name, k in compile_by(tgc, path, folder, compiler, arch).items():
            expect(not k[".private_segment_fixed_size"], f"{compiler}: {name} keeps values in memory: {k}")
        found = set(re.findall(r"v_dot4\w*", amd.disassembly(folder / f"{arch}.hsaco")))
        wanted = r"v_dot4c?_i32_i8\w*" if arch.startswith("gfx9") else r"v_dot4_i32_iu8\w*"
        expect(found and all(re.fullmatch(wanted, word) for word in found), f"{compiler}: {found}")


def in_loops(tgc, folder):
    """Of a long sum the instruction is in the loop of either compiler's code; a short one's few steps have none."""
    T.scratch(folder)
    (folder / "net.tg").write_text(GEMM.format(dtype="f16", m=4096, n=4096, k=4096))
    for arch in ARCHITECTURES:
        for compiler in ("llvm", "clang"):
            compile_by(tgc, folder / "net.tg", folder, compiler, arch)
            loops = amd.by_loops(amd.disassembly(folder / f"{arch}.hsaco"), r"v_(?:mfma|wmma)_\w+")
            expect(any(inside for _, inside in loops.values()), f"{arch}, {compiler}: in no loop: {loops}")


def copies_under_conditions(tgc, folder, arch, k, together):
    """Steps of a sum reach beyond its terms: neighbours that are all there, or none, are loaded at once, those of a row of the left factor only if
    its terms are whole vectors (together), else each by itself. The steps stay a loop
    (LLVM would move the products of all of them behind the last barrier, with their factors), so neither compiler keeps anything in memory."""
    T.scratch(folder)
    path = folder / "net.tg"
    path.write_text(GEMM.format(dtype="f16", m=144, n=384, k=k))
    twin.check_model(tgc, path, folder / "run", f"--cpu={arch}", device=f"version={arch}")
    text = (folder / "run" / "m.hip").read_text()
    expect(re.search(r"if \([^\n]*\)[^;]*;?[^;]*get16\(", text), "nothing by 16 bytes under a condition")
    expect(bool(re.search(r"\? \w+\[[^\n]*: 0\)?;", text)) != together, "single elements under a condition, or none")
    expect(re.search(r"KEEP_LOOP for \([^\n]*\n\s+wait_block", text), "steps are unrolled")
    for compiler in ("llvm", "clang"):
        for name, kernel in compile_by(tgc, path, folder, compiler, arch).items():
            expect(not kernel[".private_segment_fixed_size"], f"{compiler}: {name} keeps values in memory: {kernel}")
        code = amd.disassembly(folder / f"{arch}.hsaco")
        expect(bool(re.search(r"global_load_(?:u16|ushort|short_d16|d16)", code)) != together, f"{compiler}: halves by themselves, or not")


def rows_of_one_intrinsic(tgc, folder):
    """Bytes with signs and without in one program: LLVM has one intrinsic for the rows of both."""
    T.scratch(folder)
    text = BYTES.format(dtype="i8")
    both = text.replace('output %c as "c"', "").replace("%ai = cast(%a)", "input %u : u8[40, 128]\n%ui = cast(%u) {to=i32}\n%ai = cast(%a)")
    (folder / "net.tg").write_text(f'{both}%d = matmul(%ui, %wi)\n%e = add(%c, %d)\noutput %e as "e"\n')
    for arch in ("gfx1100", "gfx1201"):
        with twin.stand_ins():
            check_llvm(tgc, folder / "net.tg", folder / arch, arch)
        rows = set(re.findall(r"@gpu\.(wmma\w+)\(", (folder / arch / "m.ll").read_text()))
        expect(len(rows) == 2, f"{arch}: {rows}")
        compile_by(tgc, folder / "net.tg", folder / arch, "llvm", arch)


def several_architectures(tgc, folder):
    """Kernels for several architectures have the instructions that all of them have."""
    T.scratch(folder)
    (folder / "net.tg").write_text(MATRICES[0][1])
    for names, has in (("gfx1100", True), ("gfx90a,gfx942", True), ("gfx1100,gfx90a", False), ("gfx1100,gfx1201", False)):
        T.must(T.run([tgc, "net.tg", "-o", "net.hip", "--target=amd", f"--cpu={names}"], cwd=folder))
        expect(("__builtin_amdgcn_mfma" in (folder / "net.hip").read_text() or "__builtin_amdgcn_wmma" in (folder / "net.hip").read_text()) == has, names)
    amd.need_compiler()
    T.need_llvm(tgc)
    T.must(T.run([tgc, "net.tg", "-o", "net.c", "--target=amd", "--cpu=gfx1100,gfx1201,gfx90a"], cwd=folder, timeout=120))


def older_llvm(tgc, folder, version, arch):
    """The oldest LLVM that knows the architecture has the instruction."""
    T.scratch(folder)
    amd.need_compiler()
    (folder / "net.tg").write_text(MATRICES[0][1])
    done = T.run([tgc, "net.tg", "-o", "net.hsaco", "--target=amd", f"--cpu={arch}"], cwd=folder, env={"TGC_AMD": "llvm", "TGC_LLVM": str(version)}, timeout=120)
    if "libLLVM is not installed" in done.err:
        raise Skip(f"libLLVM {version} is not installed")
    T.must(done)
    expect(re.search(r"v_(mfma|wmma)_f32_16x16x16", amd.disassembly(folder / "net.hsaco")), "another instruction")


def lanes_that_diverge(tgc, folder):
    """Half of a wave's lanes go around the instruction: the emulated device says so."""
    T.scratch(folder)
    (folder / "net.tg").write_text(MATRICES[0][1])
    with twin.stand_ins():
        twin.emit(tgc, "net.tg", folder, "net", "--cpu=gfx90a")
    text = (folder / "net.hip").read_text()
    broken = re.sub(r"( +)(mfma16x16x16_f16\((?:sum|acc))", r"\1if (thread % 2) \2", text)
    expect(broken != text, "no instruction")
    (folder / "net.hip").write_text(broken)
    T.build_quickly(folder / "net.c", folder / "net")
    done = T.run([folder / "net", "--selftest"], env=twin.environment_of(folder, "net", device="version=gfx90a"))
    expect(done.status != 0 and re.search(r"emulator: net_\w+: divergent operation of a sub-group: ", done.err), done.describe())


def shuffles(tgc, folder):
    """Rows whose block is one wave are summed up by instructions between lanes, without a barrier, on waves of 32 and 64."""
    for arch, columns in (("gfx1100", 100), ("gfx90a", 128)):
        path = T.scratch(folder) / "rows.tg"
        path.write_text(f"tg 1\ninput %x : f32[64, {columns}]\nweight %w : f32[{columns}] = normal(seed=1)\n%y = layer_norm(%x, %w, %w) {{axis=-1, eps=1e-5}}\noutput %y\n")
        with twin.stand_ins():
            twin.check_model(tgc, path, folder / arch, f"--cpu={arch}", device=f"version={arch}")
        for compiler, words in (("llvm", r"ds_bpermute_b32|ds_swizzle_b32|_dpp"), ("clang", r"quad_perm:\[1,0,3,2\][^$]*swizzle\(SWAP,16\)")):
            compile_by(tgc, path, folder / arch, compiler, arch)
            text = amd.disassembly(folder / arch / f"{arch}.hsaco")
            expect(re.search(words, text) and "s_barrier" not in text, f"{arch}, {compiler}: no exchange between lanes, or barriers")


def vectors(tgc, folder):
    """A thread loads and stores 16 bytes by one instruction of either compiler, of the block's memory, too."""
    T.scratch(folder)
    for arch, words in {"gfx90a": ("global_load_dwordx4", "global_store_dwordx4", "ds_read_b128"), "gfx1201": ("global_store_b128",)}.items():
        for compiler in ("llvm", "clang"):
            compile_by(tgc, ROOT / "models" / "mlp.tg", folder, compiler, arch)
            text = amd.disassembly(folder / f"{arch}.hsaco")
            expect(all(word in text for word in words), f"{arch}, {compiler}: of {words} not all")
    (folder / "halves.tg").write_text(MATRICES[0][1])
    for compiler in ("llvm", "clang"):          # halves that are copied are not converted
        compile_by(tgc, folder / "halves.tg", folder, compiler, "gfx1201")
        text = amd.disassembly(folder / "gfx1201.hsaco")
        expect("global_load_b128" in text and "v_cvt_f32_f16" not in text, f"{compiler}: halves by themselves")


def same_bytes(tgc, folder):
    """Code objects are those of the text, in any directory, by either compiler, which is named."""
    amd.need_compiler()
    T.need_llvm(tgc)
    for compiler in ("llvm", "clang"):
        files = []
        for name in ("a", "b"):
            T.scratch(folder / name)
            T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=amd", "--cpu=gfx1100,gfx90a"], cwd=folder / name, env={"TGC_AMD": compiler}))
            files.append((folder / name / "m.c").read_bytes())
        expect(files[0] == files[1], f"{compiler}: two compiles differ")
        text = files[0].decode()
        expect(re.search(rf"as {compiler} \d+[.\d]* has compiled them", text, re.I), "the compiler is not named")
        expect("image_gfx1100[] =" in text and "image_gfx90a[] =" in text, "an image is missing")


def words_alone(folder):
    """A folder of linkers that say something, and link nothing."""
    T.scratch(folder)
    for name in ("ld.lld", *(f"ld.lld-{version}" for version in amd.VERSIONS)):
        (folder / name).write_text("#!/bin/sh\necho LLD 19, or so\n")
        (folder / name).chmod(0o755)
    return folder


def without_compiler(tgc, folder):
    """Without ld.lld, without any compiler, or for a wave that is too narrow: what to do, and no file; the kernels' text needs none."""
    amd.need_compiler()
    T.need_llvm(tgc)
    T.scratch(folder)
    empty = {"PATH": str(folder)}
    for environment, words, options in ((empty, "linked by ld.lld, and no directory of PATH has one", ()),
                                        ({**empty, "TGC_AMD": "clang"}, "libLLVM and ld.lld for code objects, or clang", ()),
                                        ({"TGC_LLVM": "14"}, "makes no code for gfx1100", ()),
                                        ({"TGC_AMD": "Clang"}, "TGC_AMD has the value 'Clang'; llvm or clang is expected", ()),
                                        ({"PATH": str(words_alone(folder.parent / "words_alone"))}, "what it writes is no ELF file", ()),
                                        ({}, "waves of gfx1100 have 32 lanes", ("--cpu=gfx90a,gfx1100",))):
        done = T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=amd", *options], cwd=folder, env=environment)
        expect(done.status == 1 and words in done.err and not list(folder.iterdir()), done.describe())
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.hip", "--target=amd"], cwd=folder, env=empty))
    expect('extern "C" __global__ void' in (folder / "m.hip").read_text(), "no kernels")


def by_hipcc(tgc, folder):
    """AMD's own front end takes the text as it is, and behind HIP's headers."""
    if not shutil.which("hipcc"):
        raise Skip("hipcc is not installed")
    T.scratch(folder)
    for name in ("transformer_block", "mnist_cnn"):
        T.must(T.run([tgc, ROOT / "models" / f"{name}.tg", "-o", "m.hip", "--target=amd"], cwd=folder))
        (folder / "h.hip").write_text("#include <hip/hip_runtime.h>\n" + (folder / "m.hip").read_text())
        for text in ("m.hip", "h.hip"):
            T.must(T.run(["hipcc", "--genco", "--offload-arch=gfx90a", text, "-o", "m.hsaco"], cwd=folder, timeout=120))


# -------------------------------------------------------------------------------------------------- the host

def other_devices(device, tgc, folder):
    """No device; another architecture; too little memory."""
    twin.built(tgc, G.perceptron(), folder)
    device.refuses(folder / "net.so", "units=0", NO_DEVICE, "hipGetDeviceCount: ")
    device.refuses(folder / "net.so", "version=gfx1030", OTHER_DEVICE, "the device, which is gfx1030: compile with --cpu=gfx1030 .what does where tgc does not know that, it says")
    device.refuses(folder / "net.so", "memory=100", DEVICE_MEMORY, "needs [0-9]+ bytes and [0-9]+ for its weights, and of the device's 100")
    twin.built(tgc, G.loops(), folder / "managed")         # the driver gives more managed memory than there is
    device.refuses(folder / "managed" / "net.so", "memory=100", DEVICE_MEMORY, "needs [0-9]+ bytes and [0-9]+ for its weights, and of the device's 100")


def run_on(device, folder, facts, *wanted):
    """A run, and whether the driver was called so."""
    with device.watch(facts):
        library = Library(folder / "net.so", "net")
        with device.log(folder / "calls"):
            library.run({"x": np.ones((1, 8), np.float32)})
        calls = (folder / "calls").read_text()
        for name, is_called in wanted:
            expect((name in calls) == is_called, f"{facts}: {name} called: {not is_called}")
        del library
        gc.collect()


def images(device, tgc, folder):
    """Of several images the device's, however it is set."""
    twin.built(tgc, G.perceptron(), folder, "--cpu=gfx1100,gfx1201,gfx90a")
    for arch in ("gfx1100", "gfx1201", "gfx90a:sramecc+:xnack-"):
        run_on(device, folder, f"version={arch}", ("hipGraphLaunch", True))
    device.refuses(folder / "net.so", "version=gfx942:sramecc+:xnack-", OTHER_DEVICE, "is gfx942: compile with --cpu=gfx942")


def without_graphs(device, tgc, folder):
    """A driver whose graphs take no functions of modules: kernels are launched one by one."""
    twin.built(tgc, G.perceptron(), folder)
    run_on(device, folder, "driver=5000", ("hipGraphLaunch", False), ("hipModuleLaunchKernel", True))


def commands(tgc, folder):
    """tgc devices, and tgc run by the device."""
    T.scratch(folder)
    amd.need_compiler()
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "digits.hip", "--target=amd"], cwd=folder))
    environment = {**twin.environment_of(folder, "digits", device="name=Emulated driver=60342131 devices=2"), "TGC_CACHE": "0"}
    done = T.must(T.run([tgc, "devices"], env=environment))
    for number in (1, 2):
        expect(f"amd {number}: Emulated, AMD\n    GPU, gfx1100, driver of HIP 6.3" in done.out.decode(), done.out)
    done = T.must(T.run([tgc, "run", ROOT / "models" / "digits.tg", "--target=amd"], env=environment))
    expect("probabilities" in done.out.decode() and "and HIP" in done.out.decode() and "emulator:" not in done.err, done.out.decode() + done.err)


def with_c(tgc, folder):
    """A build for the processor and one for the device link together, and compute the same."""
    T.scratch(folder)
    twin.emit(tgc, ROOT / "models" / "digits.tg", folder, "net")
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "cpu.c", "--target=c"], cwd=folder))
    (folder / "both.c").write_text("""#include "cpu.h"
#include "net.h"
#include <stdalign.h>
#include <stdio.h>
static alignas(NET_ARENA_ALIGN) unsigned char a[NET_ARENA_BYTES];
static alignas(CPU_ARENA_ALIGN) unsigned char b[CPU_ARENA_BYTES + 1];
int main(void)
{
    float picture[64], x[10], y[10];
    net *n;
    cpu *c;
    for (int i = 0; i < 64; i++)
        picture[i] = (float)(i % 17);
    net_inputs in = {picture};
    net_outputs out = {x};
    cpu_inputs cin = {picture};
    cpu_outputs cout = {y};
    if (net_init(&n, a, sizeof a, NULL) || cpu_init(&c, b, CPU_ARENA_BYTES, NULL) || net_run(n, &in, &out) || cpu_run(c, &cin, &cout))
        return 1;
    for (int i = 0; i < 10; i++)
        if (x[i] - y[i] > 1e-5f || y[i] - x[i] > 1e-5f)
            return 2;
    net_close(n);
    cpu_close(c);
    return 0;
}
""")
    T.must(T.run(["gcc", *T.WARNINGS, "both.c", "net.c", "cpu.c", "-o", "both", "-lm", "-ldl"], cwd=folder))
    T.must(T.run(["clang", *T.WARNINGS, "-c", "net.c", "-o", "net.o"], cwd=folder))
    done = T.must(T.run([folder / "both"], env=twin.environment_of(folder, "net")))
    expect(not done.err, done.err)


def main():
    suite.parse()
    build = suite.options.build
    tgc = T.find_tgc(build)
    scratch = T.scratch(Path(build).resolve() / "test-scratch" / "amd")
    device = emulator.Device(build, scratch, emulator.amd_library)
    for number, path in enumerate(twin.models()):
        # quick: one of each kind of processor, in turn
        some = ARCHITECTURES if suite.options.all else ARCHITECTURES[number // 3 % 2::2]
        for k, compiler in enumerate(COMPILERS):
            suite.add(f"{compiler}: {path.name}", partial(check_objects, architectures=some), tgc, path, scratch / f"{path.stem}-{compiler}", compiler,
                      slow=number % 3 != k)
        suite.add(f"{path.name}, waves of 64", partial(twin.check_text, device="version=gfx90a"), tgc, path, scratch / f"{path.stem}-64", "--cpu=gfx90a",
                  slow=number not in (0, 4))
        for k, arch in enumerate(("gfx90a", "gfx1201")):
            suite.add(f"LLVM's text: {path.name}, {arch}", check_llvm, tgc, path, scratch / f"{path.stem}-{arch}", arch, slow=number % 5 != k)
    for name, path in real_models().items():
        for compiler in ("llvm", "clang"):
            suite.add(f"{compiler}: {name}", check_objects, tgc, path, scratch / f"{name}-{compiler}", compiler, slow=True)
            suite.add(f"{compiler}: {name}, --math=f16", check_objects, tgc, path, scratch / f"{name}-{compiler}-f16", compiler, "--math=f16", slow=True)
    for number, (kind, arch, row, instruction) in enumerate(FLOATS_8):
        suite.add(f"{kind} on {arch}", float8, device, tgc, scratch / f"{kind}-{arch}", kind, arch, row, instruction, slow=number in (1, 2))
    for number, arch in enumerate(ARCHITECTURES):
        suite.add(f"products of bytes, {arch}", bytes_by_words, tgc, scratch / f"bytes-{arch}", arch,
                  COMPILERS if suite.options.all else COMPILERS[number // 2:][:1], slow=number % 2 == 1)
    for number, (name, text, options, dtype) in enumerate(MATRICES):
        for k, arch in enumerate(ARCHITECTURES):
            suite.add(f"matrices: {name}, {arch}", matrices, tgc, scratch / f"matrices-{name.replace(' ', '_')}-{arch}", arch, text, options, dtype,
                      COMPILERS if suite.options.all else COMPILERS[number // 4 % 2:][:1],        # quick: of each architecture one product by either
                      slow=(number + k) % 4 != 0 or name == "attention")         # quick: those of ATTENTIONS, and the block's model
    for number, (name, (make, options)) in enumerate((name, model) for name, model in small.MODELS.items() if re.search("bytes|quantized", name)):
        for k, arch in enumerate(ARCHITECTURES):
            suite.add(f"{name}, {arch}", partial(twin.same_as_c, device=f"version={arch}"), tgc, scratch / f"{name.replace(' ', '_')}-{arch}", make(),
                      (f"--cpu={arch}", *options), slow=(number + k) % 4 != 0)
    for number, (name, text, options, dtype) in enumerate([*ATTENTIONS, (*FEW_HEADS, None)]):
        for arch in {"many heads": ("gfx90a", "gfx1201"), "64 heads": ("gfx942", "gfx1100")}.get(name, ("gfx1201",)):       # where that pays
            suite.add(f"attention by matrices: {name}, {arch}", matrices, tgc, scratch / f"attention{number}-{arch}", arch, text, options, dtype,
                      COMPILERS if suite.options.all else ("clang",) if arch == "gfx90a" else ("llvm",),
                      slow=(name, arch) not in (("many heads", "gfx90a"), ("in a window", "gfx1201")))
    suite.add("matrices: in loops", in_loops, tgc, scratch / "loops")
    for number, arch in enumerate(ARCHITECTURES):
        for k, together in ((288, True), (291, False)):
            suite.add(f"matrices: {'rows' if together else 'elements'} under a condition, {arch}", copies_under_conditions, tgc, scratch / f"conditions-{arch}-{k}",
                      arch, k, together, slow=number % 4 != 2)
    suite.add("matrices: rows of one intrinsic", rows_of_one_intrinsic, tgc, scratch / "one_intrinsic")
    suite.add("matrices: several architectures", several_architectures, tgc, scratch / "several")
    suite.add("matrices: lanes that diverge", lanes_that_diverge, tgc, scratch / "diverge")
    for version, arch in ((14, "gfx90a"), (15, "gfx1100")):
        suite.add(f"matrices: LLVM {version}, {arch}", older_llvm, tgc, scratch / f"older-{version}", version, arch)
    suite.add("sums between lanes", shuffles, tgc, scratch / "shuffles")
    suite.add("vectors of 16 bytes", vectors, tgc, scratch / "vectors")
    suite.add("the same bytes", same_bytes, tgc, scratch / "same")
    suite.add("hipcc", by_hipcc, tgc, scratch / "hipcc")
    suite.add("no compiler", without_compiler, tgc, scratch / "no_compiler")
    suite.add("tgc devices, tgc run", commands, tgc, scratch / "commands")
    suite.add("with a build for the processor", with_c, tgc, scratch / "with_c")
    suite.add("devices that lack something", other_devices, device, tgc, scratch / "lacks")
    suite.add("images", images, device, tgc, scratch / "images")
    suite.add("a driver whose graphs take no kernels", without_graphs, device, tgc, scratch / "no_graphs")
    suite.add("each call of such a driver fails", partial(twin.each_call_fails, device="driver=5000"), tgc, G.perceptron(),
              scratch / "fails-no_graphs")
    suite.add("a run's calls of the driver", twin.recorded, device, tgc, scratch / "recorded",
              ["hipMemcpyHtoDAsync 0", "hipGraphLaunch 0", "hipMemcpyDtoHAsync 0", "hipStreamSynchronize 0"], ("hipGetDevice ", "hipSetDevice "))
    suite.add("a kernel out of bounds", twin.broken_program, tgc, scratch / "broken")
    suite.add("the order of a graph's kernels", twin.order, tgc, scratch / "order")
    suite.add("places that make no kernel wait", twin.apart, tgc, scratch / "apart")
    suite.add("context, stream, memory and event of the caller's", partial(twin.sharing, device="devices=2"), tgc, scratch / "sharing")
    twin.add_all(device, tgc, scratch)
    suite.add("an error of a kernel stays", twin.stays_wrong, device, tgc, scratch / "stays", None, DEVICE_FAILED)        # the last one: the process has no device any more
    suite.main()


if __name__ == "__main__":
    main()
