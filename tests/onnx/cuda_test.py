"""The CUDA target without a device: kernels are compiled by NVRTC and assembled by ptxas for each architecture, and run on the emulated
device from the text that their PTX was made of, where every access and every call of the driver is checked. Quick: the models of models/,
every 120th of the onnx package's tests."""

import gc
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "exec")]

import numpy as np

import cuda
import emulator
import graphs as G
import kernel_ir
import node_test as N
import opencl_test as O
import tgc as T
from library import Library
from suite import Suite, expect
from twins import ACROSS, ATTENTIONS, BYTES, DEQUANTIZED, EVERY, FEW_BYTES, FEW_HEADS, GEMM, REDUCED, ROOT, RUNTIME_BYTES, TERMS, Twin, attention

REGISTERS = 65536               # of a unit
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_120")
NO_DEVICE, OLD_DRIVER, DEVICE_MEMORY, OTHER_DEVICE = 19, 21, 22, 23

MATMUL = """tg 1
input %x : f32[48,80]
input %w : f32[80,48]
%y = matmul(%x, %w)
output %y as "y"
"""

suite = Suite("cuda", jobs=1)      # the device is one of the process
twin = Twin(suite, "cuda", "cu", "libcuda.so.1", cuda.need_nvrtc, emulator.cuda_environment, cuda.text_of,
            [(arch, f"arch={arch.strip('sm_a')}") for arch in ARCHITECTURES])


# -------------------------------------------------------------------------------------------------- by LLVM

def write_by_llvm(tgc, model, folder, stem, version, *options):
    """STEM.c with LLVM's PTX, the kernels' text, and the module as this machine's object."""
    for out in (f"{stem}.c", f"{stem}.cu", f"{stem}.ll"):
        T.must(T.run([tgc, model, "-o", out, f"--name={stem}", "--target=cuda", *options], cwd=folder, timeout=120))
    return kernel_ir.compile_for_host(folder / f"{stem}.ll", version)


def check_model_by_llvm(tgc, path, folder, version, *options):
    """What LLVM makes PTX of computes the same: the module, before it is optimized for the device, on the emulated one."""
    T.scratch(folder)
    with kernel_ir.by_llvm(version):
        kernels = write_by_llvm(tgc, path, folder, "m", version, *options)
    expect(f"as LLVM {version} has compiled them" in (folder / "m.c").read_text(), "the compiler is not named")
    twin.build_host(folder)
    done = T.run([folder / "m", "--selftest"], env=emulator.cuda_environment(suite.options.build, folder / "m.cu", cache=folder / "kernels", object=kernels))
    expect(done.status == 0 and not done.err, done.describe())


def check_case_by_llvm(device, tgc, case, folder, told):
    version = kernel_ir.VERSIONS[0]
    with kernel_ir.by_llvm(version), device.watch():
        try:
            N.emit_case(tgc, case, folder, ("--target=cuda",), told)
            kernel_ir.use(write_by_llvm(tgc, "model.onnx", folder, "node", version, *N.case_options(case, folder, (), told)))
            T.build_shared(folder / "node.c", *N.libraries_of(case))
            cuda.text_of(folder / "node.cu")
            O.check_results(case, Library(folder / "node.so", "node"))
        except N.Refused as refusal:
            O.check_refusal(case, refusal)
        gc.collect()
    shutil.rmtree(folder, ignore_errors=True)


def broken_by_llvm(tgc, folder, version):
    """The emulator sees each access of LLVM's kernels: one that stores elsewhere is found."""
    T.scratch(folder)
    with kernel_ir.by_llvm(version):
        write_by_llvm(tgc, ROOT / "models" / "mlp.tg", folder, "m", version, "--dim", "B=2")
    text = (folder / "m.ll").read_text()
    broken = re.sub(r"(= getelementptr float, ptr (%\d+), i32 )%\d+(\n  store (?:<4 x )?float)", r"\g<1>1000000\3", text)
    expect(broken != text, "no kernel stores")
    (folder / "m.ll").write_text(broken)
    kernels = kernel_ir.compile_for_host(folder / "m.ll", version)
    T.build_quickly(folder / "m.c", folder / "m")
    done = T.run([folder / "m", "--selftest"], env=emulator.cuda_environment(suite.options.build, folder / "m.cu", cache=folder / "kernels", object=kernels))
    expect(done.status != 0 and re.search(r"emulator: m_\w+: out of bounds: ", done.err), done.describe())


# -------------------------------------------------------------------------------------------------- compilers

def check_assembly_by_nvrtc(tgc, path, folder):
    cuda.need_nvrtc()
    check_assembly(tgc, path, folder)


def check_assembly_by_llvm(tgc, path, folder, version, most=0):
    with kernel_ir.by_llvm(version):
        check_assembly(tgc, path, folder, most)


def matrices_by_llvm(tgc, folder, version, math):
    """Products of halves by mma.sync: the same numbers by what each lane loads, and PTX that ptxas takes."""
    T.scratch(folder)
    path = folder / "matmul.tg"
    path.write_text(MATMUL)
    check_model_by_llvm(tgc, path, folder / "m", version, f"--math={math}")
    T.must(T.run([tgc, path, "-o", "m.ptx", "--target=cuda", f"--math={math}"], cwd=folder, env={"TGC_NVRTC": "none", "TGC_LLVM": str(version)}))
    assemble(folder)
    expect("cp.async.cg.shared.global" in (folder / "m.ptx").read_text() and "cp.async.wait_group" in (folder / "m.ptx").read_text(), "no copies meanwhile")
    expect(re.search(rf"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.{math}\.{math}\.f32", (folder / "m.ptx").read_text()), "no mma.sync")


def lower_target(tgc, folder):
    """PTX of an architecture that this LLVM does not know is for the newest one before it, which the file names."""
    T.scratch(folder)
    with kernel_ir.by_llvm(14):
        T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda", "--cpu=sm_120"], cwd=folder))
        text = (folder / "m.c").read_text()
        expect("as LLVM 14, which knows sm_86, and not sm_120, has compiled them" in text and ".target sm_86" in text and "{86, false, true, image_compute_86}" in text,
               "no word of it")
        done = T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda", "--cpu=sm_999"], cwd=folder)
        expect(done.status == 1 or ".target sm_86" in (folder / "m.c").read_text(), done.describe())


def check_assembly(tgc, path, folder, most=0, options=()):
    """PTX is assembled for each architecture: no more bytes than these are kept in memory for lack of registers, and a unit has those of a block."""
    T.scratch(folder)
    done = T.run([tgc, path, "-o", "m.ptx", "--target=cuda", *options], cwd=folder, timeout=300)
    if "--dim" in done.err:          # as the error says
        done = T.run([tgc, path, "-o", "m.ptx", "--target=cuda", *(f"--dim={dim}" for dim in re.findall(r"--dim (\w+=\.\.8)", done.err))], cwd=folder, timeout=300)
    T.must(done)
    assemble(folder, most)


def assemble(folder, most=0, architectures=ARCHITECTURES):
    for arch in architectures:
        said = T.must(T.run([cuda.ptxas(), "-v", f"--gpu-name={arch}", "m.ptx", "-o", "m.cubin"], cwd=folder, timeout=300))
        text = said.out.decode() + said.err
        found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        expect(found and all(int(nbytes) <= most for pair in found for nbytes in pair), f"{arch}: {text[-2000:]}")
        threads = dict(re.findall(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", (folder / "m.ptx").read_text()))
        used = dict(re.findall(r"Function properties for (\w+)\n.*\n.*Used (\d+) registers", text))
        expect(len(used) == len(found) and threads and all(int(n) * int(used[name]) <= REGISTERS for name, n in threads.items()), f"{arch}: {used} of {threads}")


# Products whose factors are halves, or that --math allows to be rounded: name, text, options, the instruction.
CONVOLUTIONS = """tg 1
input %x : f16[1, 16, {n}, {n}]
weight %v : f16[{c}, 16, 1, 1] = normal(std=0.3, seed=1)
weight %w : f16[{c}, {c}, 3, 3] = normal(std=0.1, seed=2)
%a = conv2d(%x, %v)
%b = relu(%a)
%c = conv2d(%b, %w) {{padding=1}}
%d = relu(%c)
output %d as "y"
"""
# a lone convolution of halves, as its caller has it
WINDOW = ("tg 1\ninput %x : f16[2, {c}, {h}, {w}]\nweight %w : f16[{o}, {c}, {size}, {size}] = normal(std=0.05, seed=1)\n"
          "%y = conv2d(%x, %w) {{padding={padding}, stride={stride}}}\noutput %y\n")
MATRICES = [("f16", GEMM.format(dtype="f16", m=64, n=64, k=128), (), "m16n8k16_f16"),
            ("bf16", GEMM.format(dtype="bf16", m=64, n=64, k=128), (), "m16n8k16_bf16"),
            ("tf32", GEMM.format(dtype="f32", m=64, n=64, k=64), ("--math=tf32",), "m16n8k8_tf32"),
            ("f32 as f16", GEMM.format(dtype="f32", m=64, n=64, k=64), ("--math=f16",), "m16n8k16_f16"),
            ("odd sizes", GEMM.format(dtype="f16", m=97, n=67, k=131), (), "m16n8k16_f16"),
            ("17 of each", GEMM.format(dtype="f16", m=17, n=17, k=17), (), "m16n8k16_f16"),
            ("one row", GEMM.format(dtype="f16", m=1, n=67, k=40), (), None),
            ("batches, both across", ACROSS.format(dtype="f16", m=33, n=40, k=48), (), "m16n8k16_f16"),
            ("3x3, channels outside", WINDOW.format(c=48, o=40, size=3, h=13, w=13, stride=1, padding=1), (), "m16n8k16_f16"),
            ("7x7, 3 channels", WINDOW.format(c=3, o=32, size=7, h=30, w=30, stride=2, padding=3), (), "m16n8k16_f16"),
            ("convolution", CONVOLUTIONS.format(n=14, c=64), ("--vectors=always",), "m16n8k16_f16"),
            ("bytes", BYTES.format(dtype="u8"), (), "m16n8k32_u8i8"),
            ("bytes with signs", BYTES.format(dtype="i8"), (), "m16n8k32_i8"),
            ("bytes of a run", RUNTIME_BYTES.format(x="i8", y="i8", za=3, zb=-7), (), "m16n8k32_i8"),
            ("bytes of a run, without signs", RUNTIME_BYTES.format(x="u8", y="u8", za=0, zb=130), (), "m16n8k32_u8"),
            ("bytes of a run, one without a sign", RUNTIME_BYTES.format(x="i8", y="u8", za=0, zb=0), (), "m16n8k32_u8i8"),
            ("attention", (ROOT / "models" / "transformer_block.tg").read_text(), ("--dim=B=1", "--dim=T=40", "--math=f16"), "m16n8k16_f16"),
            ("sums that are reduced again", REDUCED.format(dtype="f16"), (), None),
            ("a run's terms", TERMS.format(dtype="f16"), (), None),
            ("weights in blocks", DEQUANTIZED.format(m=100, scale="mul"), (), "m16n8k16_f16"),
            ("weights in blocks, few rows", DEQUANTIZED.format(m=16, scale="mul"), (), "m16n8k16_f16"),
            ("f32", GEMM.format(dtype="f32", m=64, n=64, k=64), (), None)]


# Floats of 8 bits: their kind, architecture, what the emulated device is told, the instruction.
FLOATS_8 = [("e4m3fn", "sm_89", "arch=89", "m16n8k32_e4m3"), ("e5m2", "sm_90a", "arch=90", "m16n8k32_e5m2"), ("e4m3fnuz", "sm_89", "arch=89", None),
            ("e4m3fn", "sm_80", "arch=80", None)]


def matrices(tgc, folder, text, options, row):
    """A product is computed by the instruction, or not: rightly, on the emulated device, which looks for waves that are not whole or whose
    lanes are not all there; and PTX has it, in as many registers as there are."""
    T.scratch(folder)
    (folder / "net.tg").write_text(text)
    with twin.stand_ins():
        twin.check_model(tgc, folder / "net.tg", folder / "run", *options)
    kernels = (folder / "run" / "m.cu").read_text()
    expect((f"{row}(" in kernels) if row else "mma.sync" not in kernels, f"by another instruction than {row}:\n{kernels}")
    check_assembly(tgc, folder / "net.tg", folder / "ptx", options=[o for o in options if "vectors" not in o])
    expect(("mma.sync.aligned" in (folder / "ptx" / "m.ptx").read_text()) == bool(row), "PTX has another instruction")


# Attention beside twins.py's, whose row is of 8 x 16: name, text, options, the instruction.
FLASH = [*((name, text, options, f"m16n8k16_{dtype}") for name, text, options, dtype in ATTENTIONS), (*FEW_HEADS, None),
         ("two heads of a run's length", attention("f16", "1, 2", "T<=33", "T<=33", 64), ("--dim=T=..33",), "m16n8k16_f16"),
         ("tf32", attention("f32", "1, 4", 70, 60, 48), ("--math=tf32",), "m16n8k8_tf32"), ("f32", attention("f32", "1, 4", 70, 60, 48), (), None)]


# Queries of heads that share keys, whose batch and heads lie the other way round in memory: more axes than a grid has dimensions.
REPEATED = """tg 1
input %q : f16[3, 2, 2, T<=40, 16]
input %k : f16[80, 2, 3, 16]
input %v : f16[80, 2, 3, 16]
%kp = permute(%k) {perm=[2, 1, 0, 3]}
%vp = permute(%v) {perm=[2, 1, 0, 3]}
%k5 = reshape(%kp) {shape=[3, 2, 1, 80, 16]}
%v5 = reshape(%vp) {shape=[3, 2, 1, 80, 16]}
%ke = expand(%k5) {shape=[3, 2, 2, 80, 16]}
%ve = expand(%v5) {shape=[3, 2, 2, 80, 16]}
%kt = permute(%ke) {perm=[0, 1, 2, 4, 3]}
%s = matmul(%q, %kt)
%p = softmax(%s) {axis=-1}
%y = matmul(%p, %ve)
output %y
"""


def repeated(tgc, folder):
    """A block that goes through several heads stores the next one's queries and keys when all of its warps have read the last one's."""
    T.scratch(folder)
    (folder / "net.tg").write_text(REPEATED)
    with twin.stand_ins():
        twin.check_model(tgc, folder / "net.tg", folder / "run", "--cpu=sm_90a", device="arch=90")
    text = (folder / "run" / "m.cu").read_text()
    loop = re.search(r"\n    KEEP_LOOP for \(int \w+ = 0;.*?\n    }\n", text, re.S)
    expect(loop and "KEEP_LOOP for (int span" in loop[0] and "copy_async16(" in loop[0], f"no block goes through several heads:\n{text}")


# Keys and values of several heads, which grow in place: heads lie as far from each other as the bound says.
GROWING = """tg 1
input %q : f32[2, 1, 8] as "q"
input %new : f32[2, 1, 8] as "new"
input %past : f32[2, past<=4, 8] as "past"
%rows = mul(%new, %new)
%keys = concat(%past, %rows) {axis=1}
%t = permute(%keys) {perm=[0, 2, 1]}
%s = matmul(%q, %t)
%p = softmax(%s) {axis=-1}
%y = matmul(%p, %keys)
output %y as "y"
output %keys as "keys"
"""


def growing(device, tgc, folder):
    """Step by step, what stays on the device is what the C program keeps."""
    T.scratch(folder)
    (folder / "net.tg").write_text(GROWING)
    state = ("--state", "keys=past", "--name=net")
    for out, *options in (("c.c",), ("net.c", "--target=cuda", "--cpu=sm_80"), ("net.cu", "--target=cuda", "--cpu=sm_80")):
        T.must(T.run([tgc, "net.tg", "-o", out, *state, *options], cwd=folder))
    for name in ("c", "net"):
        T.must(T.run(["gcc", T.LEVEL, "-shared", "-fPIC", f"{name}.c", "-o", f"{name}.so", "-lm", "-ldl"], cwd=folder))
    cuda.text_of(folder / "net.cu")
    with device.watch():
        nets, draw = [Library(folder / f"{name}.so") for name in ("c", "net")], np.random.default_rng(3)
        for step in range(4):
            feeds = {name: draw.standard_normal((2, 1, 8)).astype(np.float32) for name in ("q", "new")}
            want, got = (net.run(feeds)["y"] for net in nets)
            expect(np.abs(got - want).max() < 1e-5, f"step {step}: {got}, not {want}")
        del nets
        gc.collect()


# Attention by products of four warps: name, text, options, the results' instruction; the scores' is as wide as the model has it.
GROUPS = [("heads of 64", attention("f16", "1, 2", 128, 512, 64), (), "m64n64k16_f16_own"),
          ("heads of 128, bf16, none whole", attention("bf16", "1, 2", 190, 260, 128), ("--math=bf16",), "m64n128k16_bf16_own"),
          ("heads of 40 and 44", attention("f32", "2, 2", 137, 253, 40, 44), ("--math=f16",), "m64n64k16_f16_own"),
          ("causal", attention("f16", "2, 2", 257, 257, 64, more="{causal=true}"), (), "m64n64k16_f16_own"),
          ("in a window", attention("f16", "1, 4", 300, 300, 64, more="{causal=true, window=100}"), (), "m64n64k16_f16_own"),
          ("65 queries of 129 keys", attention("f16", "3", 65, 129, 64), (), "m64n64k16_f16_own"),
          ("heads of 112", attention("f16", "1, 2", 190, 260, 112), (), "m64n128k16_f16_own"),
          ("a mask of numbers", attention("f16", "2", 130, 200, 64, mask="130, 200"), (), "m64n64k16_f16_own"),
          ("weights rounded twice", attention("f16", "2", 40, 40, 64), ("--math=bf16",), "m64n64k16_bf16_own")]


def groups(tgc, folder, text, options, results):
    """Attention whose products four warps compute, with weights in registers, is right on the emulated device; ptxas waits for no product where
    the text does not, and keeps nothing in memory; devices without the instruction compute the same by PTX."""
    T.scratch(folder)
    net, options = folder / "net.tg", ("--cpu=sm_90a", *options)
    net.write_text(text)
    with twin.stand_ins():
        twin.check_model(tgc, net, folder / "run", *options, device="arch=90")
    kernels = (folder / "run" / "m.cu").read_text()
    expect(re.search(rf" m64n\d+k16_{results.split('_')[1]}\(", kernels) and f" {results}(" in kernels and f"a_own_{results}(" in kernels, kernels)
    assemble_groups(folder, kernels)
    T.must(T.run([tgc, net, "-o", "m.ptx", "--target=cuda", *options], cwd=folder))
    expect("wgmma.mma_async.sync.aligned." in (folder / "m.ptx").read_text(), "PTX for the architecture alone has no wgmma")
    (folder / "m.ptx").write_text(cuda.ptx_of(kernels, "compute_90"))
    assemble(folder, architectures=("sm_90a", "sm_120"))
    expect("mma.sync.aligned" in (folder / "m.ptx").read_text(), "PTX for other devices has no products")


def assemble_groups(folder, kernels):
    (folder / "m.ptx").write_text(cuda.ptx_of(kernels, "compute_90a"))
    said = T.must(T.run([cuda.ptxas(), "-v", "--gpu-name=sm_90a", "m.ptx", "-o", "m.cubin"], cwd=folder))
    said = said.out.decode() + said.err
    expect("wgmma.mma_async.sync.aligned." in (folder / "m.ptx").read_text(), "no wgmma")
    expect(not re.search("serialized|injected", said) and set(re.findall(r"(\d+) bytes spill", said)) == {"0"}, said)


# What is wrong with such a kernel, and what the emulated device says of it.
WRONG_GROUPS = [(r"matrix_wait<0>\(product\);", "", "waits for products that are in no group|ends before its products|without a begin|nobody has waited for"),
                (r"publish\(\);", "", "unpublished: .* not published, before the barrier"),
                (r"matrix_begin\(product\);", "", "without a begin"),
                (r"mbar_wait\(&tile\d+\[\w+\], (?=[^(]*;)[^;]*;", "", "nobody has written|before they have come|race: "),
                (r"mbar_wait\(&tile\d+\[\w+\], \(\(.*?;", "", "lets memory be replaced|race: |copy")]


def wrong_groups(tgc, folder):
    T.scratch(folder)
    (folder / "net.tg").write_text(GROUPS[0][1])
    with twin.stand_ins():
        twin.emit(tgc, "net.tg", folder, "net", "--cpu=sm_90a")
    for pattern, by, said in WRONG_GROUPS:
        run_changed(folder, "net", lambda text: re.sub(pattern, by, text), said)


def mix(tgc, folder, size, more, arch):
    """What a block of keys takes of a large attention, by products of four warps and boxes where there are such: one barrier, or none, copies that are under way meanwhile, nothing stored to shared memory by the threads, no
    exponential but the card's, and products for all of both sums; no register is kept in memory."""
    T.scratch(folder)
    (folder / "net.tg").write_text(attention("f16", "4, 32", 4096, 4096, size, more=more))
    T.must(T.run([tgc, "net.tg", "-o", "m.cu", "--target=cuda", f"--cpu={arch}"], cwd=folder))
    loop = re.search(r"\n    for \(int span = 0;.*?\n    }\n", (folder / "m.cu").read_text(), re.S)[0]
    shared = re.findall(r"BLOCK_ARRAY\(\w+, (\w+),", (folder / "m.cu").read_text())
    boxes = arch == "sm_90a"
    expect(loop.count("__syncthreads()") == (not boxes) and loop.count("copy_async16(") == 2 * (not boxes) and loop.count("wait_copies<0>") == (not boxes) and
           loop.count("bulk_copy(") == boxes * size // 32 and loop.count("mbar_wait(") == 2 * boxes, f"other barriers or copies:\n{loop}")
    expect(not re.search(rf"(?m)^ *({'|'.join(shared)})\[[^\]]*\] =", loop), f"threads store to shared memory:\n{loop}")
    expect("exp_f32(" not in loop and loop.count("exp2_f32(") == 2 and "a_own_m" in loop and loop.count("shuffle_f32(") == 2, f"another exponential, or factor:\n{loop}")
    expect(bool(re.search(r" m64n\d+k16_f16_own\(", loop)) == (arch == "sm_90a"), f"products of other warps:\n{loop}")
    masks = re.findall(r"\n( *)[^\n]* : -INFINITY;", loop)
    guards = re.findall(r"\n        if \([^\n]*\) {\n(?:         [^\n]*\n)*", loop)
    expect(len(masks) == ("causal" in more) and sum(": -INFINITY;" in guard for guard in guards) == len(masks), f"masks where none is needed:\n{loop}")
    check_assembly_by_nvrtc(tgc, folder / "net.tg", folder / "ptx")
    T.must(T.run([tgc, "net.tg", "-o", "m.ptx", "--target=cuda", f"--cpu={arch}"], cwd=folder))
    ptx = (folder / "m.ptx").read_text()
    expect(ptx.count("ex2.approx") > 32 and "st.local" not in ptx, "no exponentials of the card's, or memory of a thread")


LARGE = """tg 1
input %a : f16[70, 1024]
input %b : f16[1024, 24]
%y : f16[70, 24] = matmul(%a, %b)
output %y
"""
# Four waves of rows, in steps of 512 terms.
TALL = """cover 0 axis=0 n=64; divide 0 axis=1 n=16; cover 0 axis=3 n=8; grid 0 axis=0; grid 0 axis=3; item 0 axis=1; cover 0.sum0 axis=0 n=512;
divide 0.sum0 axis=1 n=16; mma 0.sum0 axis=2 to=4 by=m16n8k16_f16; stage_operand 0.sum0 axis=0 n=8 to=8 operand=0;
stage_operand 0.sum0 axis=0 n=0 to=8 operand=1""".replace("\n", " ")


def large_blocks(device, tgc, folder):
    """A block's memory beyond what a kernel may declare: its launches name it, by NVRTC and by LLVM, and a device that has less refuses."""
    T.scratch(folder)
    (folder / "net.tg").write_text(LARGE)
    line, = (choice["taken"] for choice in T.info(tgc, folder / "net.tg", "--why", "--target=cuda")["choices"])
    line = line.partition(": ")[0] + ": " + TALL
    (folder / "one.tune").write_text(f"tgc-tune 3\n{line}\n")
    (folder / "two.tune").write_text(f"tgc-tune 3\n{line}; pipeline 0.sum0 n=2 how=registers\n")
    one, two = (f"--tune={folder / name}" for name in ("one.tune", "two.tune"))
    with twin.stand_ins():
        twin.check_model(tgc, folder / "net.tg", folder / "run", one)
    check_assembly(tgc, folder / "net.tg", folder / "ptx", options=[one])
    check_model_by_llvm(tgc, folder / "net.tg", folder / "llvm", kernel_ir.VERSIONS[0], one)
    done = T.run([tgc, "net.tg", "-o", "net.c", "--target=cuda", two], cwd=folder)
    expect(done.status == 1 and "a block has at most 99 KB of shared memory" in done.err, done.describe())
    with twin.stand_ins():
        twin.emit(tgc, folder / "net.tg", folder, "net", "--cpu=sm_90a", two)
    T.build_shared(folder / "net.c", "-lm", "-ldl")
    cuda.text_of(folder / "net.cu")
    nbytes = max(map(int, re.search(r"local_of\[\] = \{([^}]*)", (folder / "net.c").read_text())[1].split(",")))
    expect(101376 < nbytes <= 232448, f"{nbytes} bytes")
    device.refuses(folder / "net.so", "arch=120", OTHER_DEVICE, f"a block of net_matmul_0 takes {nbytes} bytes of shared memory, and the device has 101376")


# Products of four warps, by these opts whatever the cost model says: a block has rows of 64 or 128, columns that the
# instruction has, and steps of 64 terms.
WARPGROUPS = """{cover}grid 0 axis=0; grid 0 axis={grid}; {item}cover 0.sum0 axis=0 n={step}; divide 0.sum0 axis=1 n={part};
mma 0.sum0 axis={rows} to={columns} by={row}; stage_operand 0.sum0 axis=0 n=0 to={at_once} operand=0; stage_operand 0.sum0 axis=0 n=0 to={at_once} operand=1;
swizzle 0.sum0 n={of_a} operand=0; swizzle 0.sum0 n={of_b} operand=1{more}""".replace("\n", " ")
PRODUCER = "; pipeline 0.sum0 n={parts} how=bulk; warp_specialize 0.sum0 n=128"
REGISTERS_2 = "; pipeline 0.sum0 n=2 how=registers"


def warpgroups(row, of_a=64, of_b=64, waves=1, more="", step=64, at_once=1):
    n, part = map(int, re.match(r"m64n(\d+)k(\d+)_", row).groups())
    cover = f"cover 0 axis=0 n={64 * waves}; " + ("divide 0 axis=1 n=64; " if waves > 1 else "") + f"cover 0 axis={1 + waves} n={n}; "
    return WARPGROUPS.format(cover=cover, grid=1 + waves, item="item 0 axis=1; " if waves > 1 else "", step=step, part=part, rows=waves,
                             columns=2 + waves, row=row, of_a=of_a, of_b=of_b, more=more, at_once=at_once)


TRANSPOSED = """tg 1
input %a : {dtype}[{m}, {k}]
input %b : {dtype}[{n}, {k}]
%t = permute(%b) {{perm=[1, 0]}}
%c = matmul(%a, %t)
output %c as "c"
"""
BYTES_ALONG = """tg 1
input %a : u8[70, 200]
weight %w : i8[20, 200] = {weight}
%ai = cast(%a) {{to=i32}}
%wi = cast(%w) {{to=i32}}
%t = permute(%wi) {{perm=[1, 0]}}
%c = matmul(%ai, %t)
output %c as "c"
"""
FLOATS_8_ALONG = """tg 1
input %a : {dtype}[65, 200]
input %b : {dtype}[70, 200]
%af = cast(%a) {{to=f32}}
%bf = cast(%b) {{to=f32}}
%bt = permute(%bf) {{perm=[1, 0]}}
%y = matmul(%af, %bt)
output %y
"""
PRODUCTS = [("f16", GEMM.format(dtype="f16", m=97, n=67, k=131), (), warpgroups("m64n64k16_f16")),
            ("two groups, two halves", GEMM.format(dtype="f16", m=130, n=129, k=130), (), warpgroups("m64n128k16_f16", of_b=128, waves=2, more=REGISTERS_2)),
            ("bf16, both along", TRANSPOSED.format(dtype="bf16", m=65, n=17, k=70), (), warpgroups("m64n16k16_bf16")),
            ("three parts, asynchronously", GEMM.format(dtype="f16", m=64, n=128, k=328), (),
             warpgroups("m64n64k16_f16", more="; pipeline 0.sum0 n=3 how=async", at_once=8).replace("cover 0 axis=0 n=64; cover 0 axis=2", "cover 0 axis=1").replace("grid 0 axis=0; grid 0 axis=2", "grid 0 axis=1").replace("axis=1 to=3", "axis=0 to=2")),
            ("tf32", TRANSPOSED.format(dtype="f32", m=65, n=70, k=40), ("--math=tf32",), warpgroups("m64n64k8_tf32", 32, 32, step=32)),
            ("bytes", BYTES_ALONG.format(weight=(np.arange(20 * 200) % 251 - 125).tolist()), (), warpgroups("m64n16k32_u8i8", 128, 128, step=128)),
            ("e4m3", FLOATS_8_ALONG.format(dtype="f8e4m3fn"), (), warpgroups("m64n64k32_e4m3", 128, 128, step=128)),
            ("e4m3, by boxes", FLOATS_8_ALONG.replace("200", "384").format(dtype="f8e4m3fn"), (),
             warpgroups("m64n64k32_e4m3", 128, 128, step=128, at_once=0, more="; pipeline 0.sum0 n=3 how=bulk")),
            ("e4m3, by a producer", FLOATS_8_ALONG.replace("200", "400").format(dtype="f8e4m3fn"), (),
             warpgroups("m64n64k32_e4m3", 128, 128, step=128, at_once=0, more=PRODUCER.format(parts=2))),
            ("bf16, by a producer", TRANSPOSED.format(dtype="bf16", m=65, n=17, k=136), (), warpgroups("m64n16k16_bf16", at_once=0, more=PRODUCER.format(parts=3))),
            ("tf32, by a producer", TRANSPOSED.format(dtype="f32", m=65, n=70, k=104), ("--math=tf32",),
             warpgroups("m64n64k8_tf32", 32, 32, step=32, at_once=0, more=PRODUCER.format(parts=4))),
            ("two groups, by a producer", GEMM.format(dtype="f16", m=130, n=136, k=136), (), warpgroups("m64n128k16_f16", of_b=128, waves=2, at_once=0, more=PRODUCER.format(parts=2))),
            ("e5m2", FLOATS_8_ALONG.format(dtype="f8e5m2"), (), warpgroups("m64n16k32_e5m2", 128, 128, step=128)),
            ("rows of blocks in groups", GEMM.format(dtype="f16", m=256, n=130, k=70), (),
             warpgroups("m64n64k16_f16").replace("grid 0 axis=0; grid 0 axis=2", "divide 0 axis=0 n=2; order 0 axis=3 to=1; grid 0 axis=0; grid 0 axis=1; grid 0 axis=2").replace("axis=1 to=3", "axis=3 to=4")),
            ("256 columns, two groups", GEMM.format(dtype="f16", m=130, n=259, k=70), (), warpgroups("m64n256k16_f16", of_b=256, waves=2, more=REGISTERS_2))]


def tuned(tgc, folder, options, opts):
    """The option by which the product has this schedule."""
    choices = T.info(tgc, folder / "net.tg", "--why", "--target=cuda", *options)["choices"]
    key, = (choice["taken"].partition(":")[0] for choice in choices if "matmul" in choice["kernel"])
    (folder / "net.tune").write_text(f"tgc-tune 3\n{key}: {opts}\n")
    return f"--tune={folder / 'net.tune'}"


def run_changed(folder, name, change, said):
    """Its kernels, changed, run on the emulated device, which says that of them; None: they are right."""
    text = (folder / f"{name}.cu").read_text()
    changed = change(text)
    expect(changed != text, "nothing is changed")
    other = T.scratch(folder / "changed")
    (other / f"{name}.cu").write_text(changed)
    (other / f"{name}.c").write_text(of_text((folder / f"{name}.c").read_text(), text, changed))
    shutil.copy(folder / f"{name}.h", other)
    T.build_quickly(other / f"{name}.c", other / name)
    done = T.run([other / name, "--selftest"], env=twin.environment_of(other, name, device="arch=90"), timeout=120)
    expect((done.status == 0 and not done.err) if said is None else done.status != 0 and re.search(said, done.err), done.describe())


# What is wrong with a kernel, and what the emulated device says of it.
WRONG_PRODUCTS = [(r"matrix_wait<0>\(acc\);", "", "ends before its products are waited for"),
                  (r"publish\(\);", "", "unpublished: .* not published, before the barrier"),
                  (r"matrix_begin\(acc\);", "", "without a begin"),
                  (r"matrix_commit\(\);", "", "waits for products that are in no group"),
                  (r"(panel_rows\(&tile\[)", r"\g<1>thread / 32 * 64 + ", "tells other places than another one of its four warps"),
                  (r"(publish\(\);\s+)__syncthreads\(\);", r"\1", "race: "),
                  (r"(panel_columns\(&\w+\[.*?\], )\d+", r"\g<1>131072", "out of bounds: |nobody has written")]


def wrong_products(tgc, folder):
    """Products of four warps of kernels that lack something: the emulated device says what."""
    T.scratch(folder)
    (folder / "net.tg").write_text(GEMM.format(dtype="f16", m=65, n=130, k=70))
    with twin.stand_ins():
        twin.emit(tgc, "net.tg", folder, "net", "--cpu=sm_90a", tuned(tgc, folder, ("--cpu=sm_90a",), warpgroups("m64n128k16_f16", of_b=128)))
    for pattern, by, said in WRONG_PRODUCTS:
        run_changed(folder, "net", lambda text: re.sub(pattern, by, text), said)


def products(tgc, folder, text, options, opts):
    """Products of four warps are right on the emulated device, which decodes what tells the unit where its factors are; so is what the same
    text is on devices without it; ptxas says of none that they wait for each other, and keeps all sums in registers."""
    T.scratch(folder)
    net, options = folder / "net.tg", ("--cpu=sm_90a", *options)
    net.write_text(text)
    options = (*options, tuned(tgc, folder, options, opts))
    with twin.stand_ins():
        twin.check_model(tgc, net, folder / "run", *options, device="arch=90")
    kernels = (folder / "run" / "m.cu").read_text()
    row = re.search(r"by=(\w+)", opts)[1]
    expect(f" {row}(" in kernels and ("publish();" in kernels) != ("bulk" in opts), kernels)
    (folder / "m.ptx").write_text(cuda.ptx_of(kernels, "compute_90a"))
    said = T.must(T.run([cuda.ptxas(), "-v", "--gpu-name=sm_90a", "m.ptx", "-o", "m.cubin"], cwd=folder))
    said = said.out.decode() + said.err
    expect("wgmma.mma_async.sync.aligned." in (folder / "m.ptx").read_text(), "no wgmma")
    expect(not re.search("serialized|injected", said) and " 0 bytes spill stores, 0 bytes spill loads" in said, said)
    T.must(T.run([tgc, net, "-o", "m.ptx", "--target=cuda", *options], cwd=folder))
    expect("wgmma.mma_async.sync.aligned." in (folder / "m.ptx").read_text(), "PTX for the architecture alone has no wgmma")
    (folder / "m.ptx").write_text(cuda.ptx_of(kernels, "compute_90"))
    assemble(folder, architectures=("sm_90a", "sm_120"))
    expect("mma.sync.aligned" in (folder / "m.ptx").read_text(), "PTX for other devices has no products")
    run_changed(folder / "run", "m", lambda text: f"#undef TGC_PRODUCTS_MODEL\n{text}", None)


# Of a row what is multiplied is widened, or rounded, as it is read.
ROW = """tg 1
input %x : {dtype}[1, 72]
input %w : {dtype}[50, 72]
%v = cast(%x) {{to={to}}}
%u = cast(%w) {{to={to}}}
%y = linear(%v, %u)
output %y
"""
ROWS = [("bytes", ROW.format(dtype="i8", to="i32"), ()), ("bytes as floats", ROW.format(dtype="u8", to="f32"), ()),
        *((f"rounded to {kind}", ROW.format(dtype="f32", to="f32"), (f"--math={kind}",)) for kind in ("tf32", "f16"))]


def row_by_row(tgc, folder, text, options):
    T.scratch(folder)
    (folder / "net.tg").write_text(text)
    twin.check_model(tgc, folder / "net.tg", folder / "run", "--cpu=sm_90a", *options, device="arch=90")
    expect((folder / "run" / "m.cu").read_text().count("__global__") == 1, "kernels that only widen or round")


# What is wrong with a product's kernel: name, what becomes what, and what the emulated device says.
LAYER = """weight %w{i} : f16[384, 128] = normal(std=0.1, seed={i})
weight %u{i} : f16[384] = normal(seed={i})
weight %o{i} : f16[128, 128] = normal(std=0.1, seed={i})
%p{i} = linear({x}, %w{i}, %u{i})
%qs{i} = slice(%p{i}) {{axis=2, start=0, end=128}}
%qr{i} = reshape(%qs{i}) {{shape=[1, 70, 2, 64]}}
%q{i} = permute(%qr{i}) {{perm=[0, 2, 1, 3]}}
%ks{i} = slice(%p{i}) {{axis=2, start=128, end=256}}
%kr{i} = reshape(%ks{i}) {{shape=[1, 70, 2, 64]}}
%k{i} = permute(%kr{i}) {{perm=[0, 2, 1, 3]}}
%vs{i} = slice(%p{i}) {{axis=2, start=256, end=384}}
%vr{i} = reshape(%vs{i}) {{shape=[1, 70, 2, 64]}}
%v{i} = permute(%vr{i}) {{perm=[0, 2, 1, 3]}}
%a{i} = attention(%q{i}, %k{i}, %v{i})
%b{i} = permute(%a{i}) {{perm=[0, 2, 1, 3]}}
%c{i} = reshape(%b{i}) {{shape=[1, 70, 128]}}
%l{i} = linear(%c{i}, %o{i})
%d{i} = add({x}, %l{i})
"""


def alike(tgc, folder):
    """Attentions that are alike share a kernel, whose registers are their own."""
    T.scratch(folder)
    (folder / "net.tg").write_text(f"tg 1\ninput %x : f16[1, 70, 128]\n{LAYER.format(i=0, x='%x')}{LAYER.format(i=1, x='%d0')}output %d1\n")
    twin.check_model(tgc, folder / "net.tg", folder / "run")
    kernels = (folder / "run" / "m.cu").read_text()
    expect(re.search(r"\* the same: .*attention", kernels) and "m16n8k16_f16(" in kernels, "no attention is like another")


MISTAKES = [("lanes that diverge", r"( +)(m16n8k16_f16\((?:sum|acc))", r"\1if (thread % 2) \2", "divergent operation of a sub-group: .*MATRIX_PRODUCT"),
            ("copies that nobody waits for", r"wait_copies<\d>\(\);", "", "reads .* of shared memory '.*', which nobody has written"),
            ("a wait for a group too few", r"wait_copies<(\d)>", lambda found: f"wait_copies<{int(found[1]) + 1}>", "reads .* of shared memory '.*', which nobody has written"),
            ("a group that is not committed", r"( +)commit_copies\(\);\n(?= +(?:KEEP_LOOP )?for)", "", "reads .* of shared memory '.*', which nobody has written"),
            ("no barrier behind the wait", r"(wait_copies<\d>\(\);\n +)__syncthreads\(\);", r"\1", "race: .* of shared memory '.*', which .* without a barrier between"),
            ("copies to the part that is read", r"\(k \+ (\d)\) % (\d)", r"k % \2", "race: .* of shared memory|nobody has written")]


def banks(tgc, folder):
    """Rows of a tile are in different banks in every schedule that is chosen; without their padding the device says that they are not. Quick: of
    floats, of a convolution, of bytes."""
    for number, (_, text, options, row) in enumerate(MATRICES):
        if row and (number % 3 == 0 if suite.options.all else number % 6 == 3):
            bank_turns(tgc, folder / str(number), text, 1, *options)
    bank_turns(tgc, folder / "large", GEMM.format(dtype="f16", m=96, n=96, k=256), 2, tune=lambda taken: f"{taken.partition('cover')[0]}{WIDE_TILES}")
    for name, old in (("rows", r"n=8( to=8 operand=0)"), ("columns", r"n=8( to=8 operand=1)")):
        said = bank_turns(tgc, folder / name, GEMM.format(dtype="f16", m=96, n=96, k=256), 1,
                          tune=lambda taken, old=old: f"{taken.partition('cover')[0]}{re.sub(old, chr(110) + '=0' + chr(92) + '1', WIDE_TILES)}", fails=True)
        expect("rows of a tile are in the same banks" in said, said)


# Blocks of 64 x 64 by steps of 64, of four waves.
WIDE_TILES = ("cover 0 axis=0 n=64; divide 0 axis=1 n=32; divide 0 axis=2 n=16; cover 0 axis=4 n=64; divide 0 axis=5 n=32; divide 0 axis=6 n=8; "
              "grid 0 axis=0; grid 0 axis=4; item 0 axis=1; item 0 axis=5; lanes 0 axis=2 n=2 kind=lane as=row; lanes 0 axis=5 n=4 kind=lane as=column; "
              "cover 0.sum0 axis=0 n=64; divide 0.sum0 axis=1 n=16; mma 0.sum0 axis=2 to=5 by=m16n8k16_f16; "
              "stage_operand 0.sum0 axis=0 n=8 to=8 operand=0; stage_operand 0.sum0 axis=0 n=8 to=8 operand=1; pipeline 0.sum0 n=3 how=async")


def bank_turns(tgc, folder, text, looks, *options, tune=None, fails=False):
    T.scratch(folder)
    (folder / "net.tg").write_text(text)
    if tune:
        line, = (choice["taken"] for choice in T.info(tgc, folder / "net.tg", "--why", "--target=cuda")["choices"])
        (folder / "one.tune").write_text(f"tgc-tune 3\n{tune(line)}\n")
        options = (*options, f"--tune={folder / 'one.tune'}")
    with twin.quickly():
        twin.emit(tgc, "net.tg", folder, "net", *options)
    T.build_quickly(folder / "net.c", folder / "net")
    done = T.run([folder / "net", "--selftest"], env=twin.environment_of(folder, "net", device=f"banks={looks}"))
    expect((done.status != 0) == fails and bool(done.err) == fails, done.describe())
    return done.err


def mistake(tgc, folder, wrong, by, words):
    """The emulated device says what is wrong with the kernel."""
    T.scratch(folder)
    (folder / "net.tg").write_text(MATRICES[0][1])
    with twin.stand_ins():
        twin.emit(tgc, "net.tg", folder, "net")
    text = (folder / "net.cu").read_text()
    broken = re.sub(wrong, by, text)
    expect(broken != text, f"nothing to break in\n{text}")
    (folder / "net.cu").write_text(broken)
    (folder / "net.c").write_text(of_text((folder / "net.c").read_text(), text, broken))
    T.build_quickly(folder / "net.c", folder / "net")
    done = T.run([folder / "net", "--selftest"], env=twin.environment_of(folder, "net"))
    expect(done.status != 0 and re.search(rf"emulator: net_\w+: .*({words})", done.err), done.describe())


def shuffles(tgc, folder):
    """Rows whose block is one warp are summed up by shuffles, which need no barrier; the program runs on the emulated device."""
    twin.check_model(tgc, ROOT / "models" / "layer_norm.tg", folder)
    T.must(T.run([tgc, ROOT / "models" / "layer_norm.tg", "-o", "m.ptx", "--target=cuda"], cwd=folder))
    text = (folder / "m.ptx").read_text()
    expect("shfl.sync.bfly" in text and "bar.sync" not in text, "no shuffles, or barriers")


def same_bytes(tgc, folder):
    """PTX and machine code are those of the text, in any directory, and name the compiler."""
    cuda.need_nvrtc()
    files = []
    for name in ("a", "b"):
        T.scratch(folder / name)
        T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda", "--cpu=sm_80,sm_90a"], cwd=folder / name))
        files.append((folder / name / "m.c").read_bytes())
    expect(files[0] == files[1], "two compiles differ")
    text = files[0].decode()
    expect(re.search(r"as NVRTC \d+\.\d+ has compiled them", text), "the compiler is not named")
    for image in ("image_sm_80[] =", "image_sm_90a[] =", "image_compute_80[] ="):
        expect(image in text, f"no {image}")
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda", "--cpu=sm_80,sm_90a,sm_80"], cwd=folder / "a"))
    expect((folder / "a" / "m.c").read_text() == text, "an architecture that is named twice has another file")


def without_compiler(tgc, folder):
    """Without NVRTC: what is missing, and no file; the kernels' text needs none."""
    T.scratch(folder)
    T.must(T.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", folder.parent / "other.so"]))
    done = T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda"], cwd=folder, env={"TGC_NVRTC": str(folder.parent / "other.so")})
    expect(done.status == 1 and re.search(r"other\.so has no nvrtcVersion: --target=cuda needs NVRTC 11\.2", done.err) and not list(folder.iterdir()), done.describe())
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "empty.ptx", "--target=cuda"], cwd=folder, env={"TGC_NVRTC": ""}))       # as if it were not there
    (folder / "empty.ptx").unlink()
    environment = {"TGC_NVRTC": str(folder / "none.so")}
    done = T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda"], cwd=folder, env=environment)
    expect(done.status == 1 and "none.so" in done.err and not list(folder.iterdir()), done.describe())
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.cu", "--target=cuda"], cwd=folder, env=environment))
    expect('extern "C" __global__ void' in (folder / "m.cu").read_text(), "no kernels")
    done = T.must(T.run([tgc, "--version"], env=environment))
    expect("NVRTC: none" in done.out.decode(), done.out)


# -------------------------------------------------------------------------------------------------- the host

def other_devices(device, tgc, folder):
    """No device; a driver older than the PTX; an older architecture; too little memory."""
    twin.built(tgc, G.perceptron(), folder)
    device.refuses(folder / "net.so", "units=0", NO_DEVICE, "the driver has no device")
    device.refuses(folder / "net.so", "driver=11040", OLD_DRIVER, "cuModuleLoadDataEx")
    device.refuses(folder / "net.so", "arch=75", OTHER_DEVICE, "the device, which is sm_75: compile with --cpu=sm_75 .what does where tgc does not know that, it says")
    device.refuses(folder / "net.so", "memory=100", DEVICE_MEMORY, "needs [0-9]+ bytes and [0-9]+ for its weights, and of the device's 100")
    twin.built(tgc, G.loops(), folder / "managed")         # the driver gives more managed memory than there is
    device.refuses(folder / "managed" / "net.so", "memory=100", DEVICE_MEMORY, "needs [0-9]+ bytes and [0-9]+ for its weights, and of the device's 100")


def stand_in(tgc, folder):
    """The toolkit's libcuda.so, for linking alone, is no driver: all of its functions return 34."""
    T.scratch(folder)
    with twin.stand_ins():
        twin.emit(tgc, ROOT / "models" / "mlp.tg", folder, "m")
    twin.build_host(folder)
    names = set(re.findall(r'"(cu[A-Z]\w+)"', (folder / "m.c").read_text()))
    (folder / "stub.c").write_text("".join(f"int {name}(void);\nint {name}(void) {{ return 34; }}\n" for name in sorted(names)))
    T.must(T.run(["gcc", "-shared", "-fPIC", "stub.c", "-o", twin.driver], cwd=folder))
    done = T.run([folder / "m", "--selftest"], cwd=folder, env={"LD_LIBRARY_PATH": str(folder)})
    said = done.out.decode() + done.err
    expect(done.status != 0 and "(34), the library that was found is the toolkit's stand-in" in said and "not installed, or it has no device" in said, done.describe())


def images(device, tgc, folder, cpus, *cases):
    """Of several images the one that fits: machine code of the generation, exact ones and those of Tegra on theirs alone, else PTX, which is taken, too,
    where the driver does not take the code."""
    twin.built(tgc, G.perceptron(), folder, cpus)
    for arch, is_code, *more in cases:
        with device.watch(" ".join((f"arch={arch}", *more))):
            library = Library(folder / "net.so", "net")
            library.run({"x": np.ones((1, 8), np.float32)})
            expect(device.library.emulator_is_code() == is_code, f"sm_{arch}: machine code {not is_code}")
            del library
            gc.collect()


def commands(tgc, folder, build):
    """tgc devices, and tgc run by the device."""
    T.scratch(folder)
    cuda.need_nvrtc()
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "digits.cu", "--target=cuda"], cwd=folder))
    environment = {**emulator.cuda_environment(build, folder / "digits.cu", cache=folder / "kernels", device="arch=90 name=Emulated"), "TGC_CACHE": "0", **T.quickly()}
    done = T.must(T.run([tgc, "devices"], env=environment))
    expect("cuda 1: Emulated, NVIDIA\n    GPU, sm_90, driver of CUDA 13.0" in done.out.decode(), done.out)
    done = T.must(T.run([tgc, "run", ROOT / "models" / "digits.tg", "--target=cuda"], env=environment))
    expect("probabilities" in done.out.decode() and "and CUDA" in done.out.decode() and "emulator:" not in done.err, done.out.decode() + done.err)


def of_text(program, text, broken):
    """PTX says of which text it is."""
    expect(fnv(text) in program, "PTX does not say of which text it is")
    return program.replace(fnv(text), fnv(broken))


def fnv(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{value:016x}"


# Tensors of halves whose axes change places: name, text, whether what is loaded is aligned, neighbours or not.
TURNED = [("rows of whole vectors", "input %x : f16[6, 64, 512]\n%y = permute(%x) {perm=[0, 2, 1]}\noutput %y\n", "get16"),
          ("the last block's rows are not there", "input %x : f16[12, 64, 196]\n%p = permute(%x) {perm=[0, 2, 1]}\n%y = relu(%p)\noutput %y\n", "get8"),
          ("a border", "input %x : f16[3, 64, 30, 31]\n%p = pad(%x) {lo=[0, 0, 1, 1], hi=[0, 0, 1, 2]}\n%y = permute(%p) {perm=[0, 2, 3, 1]}\noutput %y\n", None)]


def turned(tgc, folder, text, loads):
    """They go through local memory: what lies together is loaded at once, and stored so, on the emulated device, whose bytes are those of other targets."""
    T.scratch(folder)
    (folder / "net.tg").write_text("tg 1\n" + text)
    with twin.stand_ins():
        twin.check_model(tgc, folder / "net.tg", folder / "run", "--cpu=sm_90a", "--vectors=always", device="arch=90")
    kernels = (folder / "run" / "m.cu").read_text()
    code = kernels[kernels.index('extern "C" __global__'):]
    expect("__shared__" in code and "move16(&y[" in code and [loads] * bool(loads) == re.findall(r"\bget\d+", code), code)
    check_assembly(tgc, folder / "net.tg", folder / "ptx")


def turned_by_llvm(tgc, folder, text, version):
    """The same by LLVM's module."""
    T.scratch(folder)
    (folder / "net.tg").write_text("tg 1\n" + text)
    check_model_by_llvm(tgc, folder / "net.tg", folder / "m", version, "--vectors=always")
    expect("move16(&y[" in (folder / "m" / "m.cu").read_text(), "it is not turned")


# Convolutions of few channels of the caller's image: name, text, architecture, the copy.
JOINED = [("three channels", "input %x : f32[3, 3, 64, 64]\nweight %w : f32[32, 3, 7, 7] = normal(std=0.1, seed=1)\n%c = conv2d(%x, %w) {stride=2, padding=3}\n"
           "%y = relu(%c)\noutput %y\n", "sm_90a", "f32[3,69,276]"),
          ("five channels", "input %x : f32[2, 5, 32, 32]\nweight %w : f32[64, 5, 5, 5] = normal(std=0.1, seed=1)\n%c = conv2d(%x, %w) {padding=2}\n%y = relu(%c)\noutput %y\n",
           "sm_80", "f32[2,36,288]"),
          ("three channels of a network", "input %x : f32[3, 3, 64, 64]\nweight %w : f32[32, 3, 7, 7] = normal(std=0.1, seed=1)\nweight %v : f32[8, 32, 1, 1] = normal(std=0.1, seed=2)\n"
           "%c = conv2d(%x, %w) {stride=2, padding=3}\n%r = relu(%c)\n%y = conv2d(%r, %v)\noutput %y\n", "sm_80", "f32[3,69,276]"),
          ("a part of an image, only turned", "input %x : f32[3, 3, 64, 64]\nweight %w : f32[32, 3, 7, 7] = normal(std=0.1, seed=1)\n%s = slice(%x) {axis=3, start=0, end=61}\n"
           "%y = conv2d(%s, %w) {stride=2, padding=3}\noutput %y\n", "sm_90a", None)]


def joined(tgc, folder, text, arch, copy):
    """Channels, padded with zeros, are joined with the pixels of a copy, whose rows windows read; not where zeros are inside of the image."""
    T.scratch(folder)
    (folder / "net.tg").write_text("tg 1\n" + text)
    with twin.quickly():        # of TURNED and MATRICES the compilers have what such kernels are made of
        twin.check_model(tgc, folder / "net.tg", folder / "run", f"--cpu={arch}", "--vectors=always", device=f"arch={arch[3:5]}")
    kernels = (folder / "run" / "m.cu").read_text()
    found = re.search(r"y   (f32\[\d+,\d+,\d+\])  <- result", kernels)
    expect((found[1] if found else None) == copy, f"the copy is {found[1] if found else None}")


def bytes_by_words(tgc, folder):
    """Tiles of a product of bytes, too short for matrices: words of four, whose products are one instruction by either compiler; the program runs
    on the emulated device."""
    T.scratch(folder)
    path = folder / "bytes.tg"
    path.write_text(FEW_BYTES)
    with twin.stand_ins():
        twin.check_model(tgc, path, folder / "m")
    T.must(T.run([tgc, path, "-o", "m.ptx", "--target=cuda"], cwd=folder))
    expect("dp4a.u32.s32" in (folder / "m.ptx").read_text(), "no dot products of four bytes")
    check_assembly_by_nvrtc(tgc, path, folder / "ptxas")
    for version in kernel_ir.VERSIONS[:2] if suite.options.all else kernel_ir.VERSIONS[1:2]:
        check_model_by_llvm(tgc, path, folder / "llvm", version)
        check_assembly_by_llvm(tgc, path, folder / "ptxas", version)
        expect("dp4a.u32.s32" in (folder / "ptxas" / "m.ptx").read_text(), f"LLVM {version}: no dot products of four bytes")


def main():
    suite.parse()
    build = suite.options.build
    tgc = T.find_tgc(build)
    scratch = T.scratch(Path(build).resolve() / "test-scratch" / "cuda")
    device = emulator.Device(build, scratch, emulator.cuda_library)
    models = twin.models()
    for number, path in enumerate(models):
        suite.add(f"ptxas: {path.name}", check_assembly_by_nvrtc, tgc, path, scratch / f"{path.stem}-ptx", slow=number % 2 == 1)
    for path in sorted((ROOT / ".cache" / "models").glob("*.onnx")):
        suite.add(f"ptxas: {path.stem.split('-')[0]}", check_assembly_by_nvrtc, tgc, path, scratch / f"{path.stem}-ptx", slow=True)
    for number, path in enumerate(models):
        for version, quick in zip(kernel_ir.VERSIONS, ("transformer_block", "mlp", "mnist_cnn")):
            suite.add(f"LLVM {version}: {path.name}", check_model_by_llvm, tgc, path, scratch / f"{path.stem}-llvm{version}", version,
                      slow=path.stem != quick)
            suite.add(f"ptxas, LLVM {version}: {path.name}", check_assembly_by_llvm, tgc, path, scratch / f"{path.stem}-ptx-llvm{version}", version,
                      slow=number % 4 != kernel_ir.VERSIONS.index(version) + 1)
    for math, version in (("f16", 19), ("bf16", 14)):
        suite.add(f"LLVM {version}: matrix instructions, {math}", matrices_by_llvm, tgc, scratch / f"matrices-{math}", version, math)
    for number, (name, text, _) in enumerate(TURNED):
        suite.add(f"turned by LLVM: {name}", turned_by_llvm, tgc, scratch / f"turned{number}-llvm", text, kernel_ir.VERSIONS[0], slow=number == 0)
    for path in sorted((ROOT / ".cache" / "models").glob("*.onnx")):
        suite.add(f"ptxas, LLVM: {path.stem.split('-')[0]}", check_assembly_by_llvm, tgc, path, scratch / f"{path.stem}-ptx-llvm", kernel_ir.VERSIONS[0], 16, slow=True)
    suite.add("LLVM: an architecture that it does not know", lower_target, tgc, scratch / "lower")
    suite.add("LLVM: a kernel out of bounds", broken_by_llvm, tgc, scratch / "broken-llvm", kernel_ir.VERSIONS[0])
    for number, (name, text, options) in enumerate(ROWS):
        suite.add(f"a row: {name}", row_by_row, tgc, scratch / f"row{number}", text, options, slow=number % 2 == 1)
    suite.add("sums by shuffles", shuffles, tgc, scratch / "shuffles")
    suite.add("attention by matrices: two that are alike", alike, tgc, scratch / "alike")
    suite.add("matrices: blocks with more memory than kernels declare", large_blocks, device, tgc, scratch / "matrices-large")
    for number, (name, text, loads) in enumerate(TURNED):
        suite.add(f"turned: {name}", turned, tgc, scratch / f"turned{number}", text, loads)
    for number, (name, text, arch, copy) in enumerate(JOINED):
        suite.add(f"turned: {name}", joined, tgc, scratch / f"joined{number}", text, arch, copy)
    suite.add("matrices: banks of local memory", banks, tgc, scratch / "matrices-banks")
    for number, (name, wrong, by, words) in enumerate(MISTAKES):
        suite.add(f"matrices: {name}", mistake, tgc, scratch / f"matrices-wrong{number}", wrong, by, words)
    for number, (name, text, options, row) in enumerate(MATRICES):
        suite.add(f"matrices: {name}", matrices, tgc, scratch / f"matrices-{name.replace(' ', '_')}", text, options, row,
                  slow=number % 2 == 1 or name == "attention")         # quick: those of FLASH, and the block's model
    for number, (name, text, options, opts) in enumerate(PRODUCTS):
        suite.add(f"products of four warps: {name}", products, tgc, scratch / f"products-{number}", text, options, opts, slow=number not in (3, 5, 7, 11, 14))
    suite.add("products of four warps that lack something", wrong_products, tgc, scratch / "products-wrong")
    for number, (name, text, options, row) in enumerate(FLASH):
        suite.add(f"attention by matrices: {name}", matrices, tgc, scratch / f"attention{number}", text, options, row, slow=number not in (1, 3) and "two heads" not in name)
    for number, (name, text, options, *rows) in enumerate(GROUPS):
        suite.add(f"attention by four warps: {name}", groups, tgc, scratch / f"groups{number}", text, options, *rows, slow=number not in (1, 3, 8))
    suite.add("caches of several heads that grow", growing, device, tgc, scratch / "growing")
    suite.add("attention by matrices: a block of several heads", repeated, tgc, scratch / "repeated")
    suite.add("attention by four warps that lack something", wrong_groups, tgc, scratch / "groups-wrong")
    for kind, arch, told, row in FLOATS_8:
        suite.add(f"{kind} on {arch}", twin.float8, device, tgc, scratch / f"{kind}-{arch}", kind, arch, told, row)
    for size, more, arch in ((64, "", "sm_80"), (64, "{causal=true}", "sm_90a"), (128, "", "sm_90a"), (128, "{causal=true}", "sm_80")):
        suite.add(f"attention by matrices: a block of keys, heads of {size}, {arch}", mix, tgc, scratch / f"mix{size}-{arch}", size, more, arch, slow=size == 128)
    suite.add("attention by matrices: several blocks of queries in turns", twin.check_text, tgc, ROOT / "models" / "transformer_block.tg", scratch / "turns_of_queries", "--math=f16")
    suite.add("products of bytes", bytes_by_words, tgc, scratch / "bytes")
    suite.add("the same bytes", same_bytes, tgc, scratch / "same")
    suite.add("no compiler", without_compiler, tgc, scratch / "no_compiler")
    suite.add("tgc devices, tgc run", commands, tgc, scratch / "commands", build)
    suite.add("devices that lack something", other_devices, device, tgc, scratch / "lacks")
    suite.add("the toolkit's stand-in for the driver", stand_in, tgc, scratch / "stand_in")
    suite.add("images", images, device, tgc, scratch / "images", "--cpu=sm_80,sm_90a", (80, 1), (86, 1), (87, 0), (90, 1), (100, 0), (120, 0), (80, 0, "code=0"), (90, 0, "code=0"))
    suite.add("images of Tegra", images, device, tgc, scratch / "tegra", "--cpu=sm_80,sm_87", (80, 1), (87, 1), (86, 1), (89, 1), (90, 0))
    suite.add("a run's calls of the driver", twin.recorded, device, tgc, scratch / "recorded",
              ["cuMemcpyHtoDAsync_v2 0", "cuGraphLaunch 0", "cuMemcpyDtoHAsync_v2 0", "cuStreamSynchronize 0"], "cuCtxP")
    suite.add("a kernel out of bounds", twin.broken_program, tgc, scratch / "broken", of_text)
    suite.add("the order of a graph's kernels", twin.order, tgc, scratch / "order")
    suite.add("places that make no kernel wait", twin.apart, tgc, scratch / "apart")
    suite.add("an error of a kernel stays", twin.stays_wrong, device, tgc, scratch / "stays", of_text)
    suite.add("context, stream, memory and event of the caller's", twin.sharing, tgc, scratch / "sharing")
    twin.add_all(device, tgc, scratch)
    cases = N.load_cases(build)
    for number, (name, told) in enumerate(N.read_lists()[0].items()):
        if name in cases:
            suite.add(f"LLVM: {name}", check_case_by_llvm, device, tgc, cases[name], scratch / f"{N.flat(name)}-llvm", told,
                      slow=number % (4 * EVERY) != EVERY)
    suite.main()


if __name__ == "__main__":
    main()
