"""Bulk copies: boxes of tensors that an engine copies to a block's memory (sm_90 on), by opts, without a device.

A product's program runs on the emulated device, whose copies arrive when their barrier's phase is waited for; PTX is assembled for sm_90a and
sm_120. Kernels that are broken are found: one that does not wait, waits for another phase, expects other bytes, or overwrites what is read."""

import gc
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "exec")]

import numpy as np

import cuda
import emulator
import tgc as T
from cuda_test import CONVOLUTIONS, PRODUCER as BY_PRODUCER, TRANSPOSED, of_text, tuned, warpgroups
from library import Library
from suite import Failure, Suite, expect

FAILED, OLD_DRIVER = 11, 21
PROGRAMS = HERE.parent / "emulator" / "programs"
DEVICES = ("sm_90a", "sm_120")
suite = Suite("bulk", jobs=1)      # the device is one of the process

GEMM = """tg 1
input %a : f16[{m}, {k}]
input %b : f16[{k}, {n}]
%c = matmul(%a, %b)
output %c as "c"
"""
FLOATS = GEMM.replace("output %c", "%d = cast(%c) {{to=f32}}\noutput %d")
# Blocks of 64 x 32, two waves of rows and four of columns, in steps of 64.
TILE = """cover 0 axis=0 n=64
divide 0 axis=1 n=32
divide 0 axis=2 n=16
cover 0 axis=4 n=32
divide 0 axis=5 n=8
grid 0 axis=0
grid 0 axis=4
item 0 axis=1
item 0 axis=5
lanes 0 axis=2 n=2 kind=lane as=row
cover 0.sum0 axis=0 n={step}
divide 0.sum0 axis=1 n=16
mma 0.sum0 axis=2 to=5 by=m16n8k16_f16
stage_operand 0.sum0 axis=0 n=0 to=0 operand=0
stage_operand 0.sum0 axis=0 n=0 to=0 operand=1
"""
# Blocks of 64 x 64 by an instruction that reads both copies, in panels, itself.
PANELS = """cover 0 axis=0 n=64
cover 0 axis=2 n=64
grid 0 axis=0
grid 0 axis=2
cover 0.sum0 axis=0 n={step}
divide 0.sum0 axis=1 n=16
mma 0.sum0 axis=1 to=3 by=m64n64k16_f16
stage_operand 0.sum0 axis=0 n=0 to=0 operand=0
stage_operand 0.sum0 axis=0 n=0 to=0 operand=1
swizzle 0.sum0 n=64 operand=0
swizzle 0.sum0 n=64 operand=1
"""
# The same of 256 columns, whose factor is by terms: a tile of 256 rows.
BY_TERMS = """tg 1
input %a : f16[{m}, {k}]
input %b : f16[{n}, {k}]
%t = transpose(%b) {{perm=[1, 0]}}
%c = matmul(%a, %t)
output %c as "c"
"""
WIDE = PANELS.replace("cover 0 axis=2 n=64", "cover 0 axis=2 n=256").replace("m64n64k16_f16", "m64n256k16_f16")
# Three tiles of columns.
THREE = PANELS.replace("cover 0 axis=2 n=64\n", "cover 0 axis=2 n=192\ndivide 0 axis=3 n=64\n").replace(
    "grid 0 axis=2\n", "grid 0 axis=2\nlanes 0 axis=3 n=3 kind=lane as=column\n").replace("swizzle 0.sum0 n=64 operand=1", "swizzle 0.sum0 n=192 operand=1")
# So many blocks go through the places of the grid.
PERSIST = "persistent 0 axis={axis} n={n}\n"
# A convolution whose channels are innermost, without a border: {n} images, {h} x {w} pixels.
WINDOWS = """tg 1
input %a : f16[{n}, {h}, {w}, 64]
weight %k : f16[3, 3, 64, 64] = normal(std=0.1, seed=2)
%t = transpose(%a) {{perm=[0, 3, 1, 2]}}
%u = transpose(%k) {{perm=[3, 2, 0, 1]}}
%c = conv2d(%t, %u)
output %c as "c"
"""
BY_TAPS = """order 0.sum0 axis=1 to=0
order 0.sum0 axis=2 to=1
{patch}
divide 0.sum0 axis=2 n=16
mma 0.sum0 axis={last} to=0 by=m64n64k16_f16
stage_operand 0.sum0 axis=1 n=0 to=0 operand=0
stage_operand 0.sum0 axis=1 n=0 to=0 operand=1
swizzle 0.sum0 n=64 operand=0
swizzle 0.sum0 n=64 operand=1
pipeline 0.sum0 n=3 how=bulk
"""
# Patches of pixels are rows: 4 x 16 of an image, 2 x 8 of four images; 8 x 8, whose last rows and columns are none of the image's; 2 x 16 of
# two images as wide as that: their offsets are of whole patches, which conditions alone tell apart.
PATCHES = [((2, 10, 12), "order 0 axis=1 to=0\ncover 0 axis=3 n=16\ncover 0 axis=2 n=4\nflatten 0 axis=3\nflatten 0 axis=1\ngrid 0 axis=1", 2),
           ((8, 4, 9), "order 0 axis=1 to=0\ncover 0 axis=3 n=8\ncover 0 axis=2 n=2\ncover 0 axis=1 n=4\nflatten 0 axis=3\nflatten 0 axis=2\ngrid 0 axis=1", 2),
           ((1, 13, 15), "cover 0 axis=2 n=8\ncover 0 axis=1 n=8\norder 0 axis=2 to=3\nflatten 0 axis=3\nflatten 0 axis=1\ngrid 0 axis=1", 2),
           ((4, 4, 16), "order 0 axis=1 to=0\ncover 0 axis=3 n=16\ncover 0 axis=2 n=2\ncover 0 axis=1 n=2\nflatten 0 axis=3\nflatten 0 axis=2\ngrid 0 axis=1", 2)]
# Two blocks of rows copy the columns' factor together.
CLUSTER = "cluster_multicast 0.sum0 axis=0 n=2\n"
# Such a list, the grid that it makes of 256 x 136 x 264, and the part of a box that a block copies.
CLUSTERS = {CLUSTER: ("1, 2, 1", "2, 1, 32, 4096"), "cluster_multicast 0.sum0 axis=0 n=4\n": ("1, 4, 1", "4, 1, 16, 2048"), "cluster_multicast 0.sum0 axis=1 n=2\n": ("2, 1, 1", "2, 1, 32, 4096")}
PLACES = [(4, 3, PANELS, "bulk"), (5, 4, PANELS, "bulk"), (11, 2, PANELS, "bulk"), (2, 2, PANELS, "bulk"), (10, 3, TILE, "bulk"), (7, 2, TILE, "async"),
          (5, 3, PANELS, "async"), (6, 2, TILE, "registers")]
# Four more warps, of which one thread copies.
PRODUCER = "warp_specialize 0.sum0 n=128\n"
# Two groups of four warps, one below the other, which take registers of the producers'.
GROUPS = PANELS.replace("cover 0 axis=0 n=64\n", "cover 0 axis=0 n=128\ndivide 0 axis=1 n=64\n").replace("axis=2", "axis=3").replace(
    "grid 0 axis=3\n", "grid 0 axis=3\nitem 0 axis=1\n").replace("axis=1 to=3 by", "axis=2 to=4 by")
# What a block of 64 x 64 stores goes through local memory of its own, place by place, while copies of the next place come.
LEAVING = PANELS.replace("grid 0 axis=0\ngrid 0 axis=2\n", "stage_epilogue 0 axis=1 n=8 to=3\ngrid 0 axis=0\ngrid 0 axis=1\n").replace("axis=1 to=3 by", "axis=2 to=3 by") + """grid 1 axis=0
grid 1 axis=1
persistent 0 axis=1 n={blocks}
"""
# The threads that store it: eight along a row, each a vector of 16 bytes.
LEFT = "divide 1 axis=3 n=8\nlanes 1 axis=4 n=8 kind=lane as=column\ndivide 1 axis=2 n=16\nitem 1 axis=3\nitem 1 axis=4\n"
# The same, as boxes that an engine stores while the block's threads go on: in panels of 64 columns.
BOXES = LEAVING.replace("stage_epilogue 0 axis=1 n=8 to=3\n", "stage_epilogue 0 axis=1 n=0 to=3\nswizzle 0 n=64 operand=0\n")
LEFT_BOXES = "first 1 n=128\nbulk_epilogue 0\n"
# Blocks without places, whose results lie where the copies were.
BOXES_OVER = BOXES.replace("persistent 0 axis=1 n={blocks}\n", "")
# The same of two groups of four warps.
LEAVING_GROUPS = LEAVING.replace("cover 0 axis=0 n=64", "cover 0 axis=0 n=128").replace("mma 0.sum0 axis=2 to=3", "divide 0 axis=2 n=64\nitem 0 axis=2\nmma 0.sum0 axis=3 to=4")
BOXES_GROUPS = LEAVING_GROUPS.replace("stage_epilogue 0 axis=1 n=8 to=3\n", "stage_epilogue 0 axis=1 n=0 to=3\nswizzle 0 n=64 operand=0\n")
# The same of clusters of two blocks of rows.
LEAVING_PAIRS = LEAVING.replace("cover 0 axis=2 n=64\n", "divide 0 axis=0 n=2\ncover 0 axis=3 n=64\norder 0 axis=3 to=1\n").replace("stage_epilogue 0 axis=1 n=8 to=3", "stage_epilogue 0 axis=3 n=8 to=4").replace(
    "axis=2 to=3 by", "axis=3 to=4 by") + "grid 0 axis=1\ngrid 1 axis=1\n"
BOXES_PAIRS = LEAVING_PAIRS.replace("stage_epilogue 0 axis=3 n=8 to=4\n", "stage_epilogue 0 axis=3 n=0 to=4\nswizzle 0 n=64 operand=0\n")
LEFT_PAIRS = "divide 1 axis=4 n=8\nlanes 1 axis=5 n=8 kind=lane as=column\ndivide 1 axis=3 n=16\nitem 1 axis=4\nitem 1 axis=5\n"
# Clusters of two blocks of rows go through places together.
PAIRS = PANELS.replace("cover 0 axis=2 n=64\ngrid 0 axis=0\ngrid 0 axis=2\n",
                       "divide 0 axis=0 n=2\ncover 0 axis=3 n=64\norder 0 axis=3 to=1\ngrid 0 axis=0\ngrid 0 axis=1\ngrid 0 axis=2\n").replace(
    "axis=1 to=3 by", "axis=3 to=4 by") + PERSIST.format(axis=1, n=4)
SIZES = [(200, 136, 152), (65, 40, 264), (130, 72, 136), (96, 40, 1032)]


def quickly():
    """Within, in the quick form nothing compiles the kernels: of such lists the compilers have those of assembled()."""
    return nullcontext() if suite.options.all else stand_ins()


def tgtool(folder, opts, model, device):
    (folder / "net.opts").write_text(opts)
    (folder / "net.tg").write_text(model)
    return subprocess.run([Path(suite.options.build).resolve() / "tests/ir/tgtool", "-d", device, "-s", folder, "cuda", folder / "net.opts", folder / "net.tg"],
                          capture_output=True, text=True, timeout=120)


def emit(folder, m, n, k, parts, device="sm_90a", opts=TILE, more="", model=GEMM, how="bulk"):
    T.scratch(folder)
    cuda.need_nvrtc()
    done = tgtool(folder, opts.format(step=64) + f"pipeline 0.sum0 n={parts} how={how}\n" + more, model.format(m=m, n=n, k=k), device)
    expect(done.returncode == 0, done.stderr)
    return (folder / "net.cu").read_text()


def build(folder, name="net.so"):
    T.build_shared(folder / "net.c", "-ldl", name=name)


def factors(m, n, k):
    random = np.random.default_rng(1)
    return random.standard_normal((m, k)).astype(np.float16), random.standard_normal((k, n)).astype(np.float16)


def run(device, folder, m, n, k, status=0, model=GEMM):
    a, b = factors(m, n, k)
    cuda.text_of(folder / "net.cu")
    got = Library(folder / "net.so", "net").run({"a": a, "b": b.T.copy() if model == BY_TERMS else b}, {}, status)["c"].astype(np.float32)
    expect(status or np.allclose(got, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2), "another product")


# arrays where the launch's memory has them; three blocks, or clusters, in turns
PLACED = "arch=90 placed=1 order=5 wave=3"


def gemm(device, folder, m, n, k, parts, opts=TILE, more="", model=GEMM):
    """Rows, columns and terms beyond the product are zeros of the engine's: no condition is left around a copy."""
    with quickly():
        text = emit(folder, m, n, k, parts, opts=opts, more=more, model=model)
    grid, part = next((CLUSTERS[c] for c in CLUSTERS if c in more), ("", ""))
    expect(("thread >= " in text) == ("warp_specialize" in more), "other roles")
    expect(("bulk_copy(" in text or grid) and "mbar_wait(" in text, "no bulk copies")
    expect(f"__cluster_dims__({grid})" in text and f"bulk_copy_part<{part}>(" in text if grid else "__cluster_dims__" not in text, f"other clusters: {text}")
    build(folder)
    for told in ("arch=90", *([PLACED] if "BLOCK_ARRAY(" in text else [])):
        with device.watch(told):
            run(device, folder, m, n, k, model=model)
            gc.collect()


def through_places(device, folder, m, n, k, blocks, parts, opts, how):
    """Blocks that go through several places each: the next one's copies come while this one's results are stored."""
    opts = opts if how == "bulk" else opts.replace("to=0", "to=4")
    with quickly():
        text = emit(folder, m, n, k, parts, opts=opts + PERSIST.format(axis=1 if "swizzle" in opts else 2, n=blocks), how=how)
    places = -(-m // 64) * -(-n // (64 if "swizzle" in opts else 32))
    launch = (folder / "net.c").read_text()
    expect(f"{{{blocks}, 1, 1}}" in launch and blocks < places, launch)
    expect("min_i32(" in text if places % blocks else "min_i32(" not in text, text)
    build(folder)
    with device.watch("arch=90"):
        run(device, folder, m, n, k)
        gc.collect()


def leaving(device, folder, m, n, k, blocks, opts, left, more, model=GEMM):
    """What a place's threads store leaves through local memory, while the next one's copies come."""
    with quickly():
        text = emit(folder, m, n, k, 3, opts=opts.replace("{blocks}", str(blocks)), more=more + left, model=model)
    words = ("bulk_store(&y_map, ", "bulk_wait<false>();", "publish();", "bulk_wait<true>();") if "bulk_epilogue" in left else ("move16(&y", "&tile[")
    expect(("role_barrier<" in text) == ("warp_specialize" in more) and all(word in text for word in words), text)
    build(folder)
    with device.watch("arch=90"):
        run(device, folder, m, n, k)
        gc.collect()


def pairs_through_places(device, folder, more):
    """What a cluster's blocks read of each of their places, they copy together."""
    text = emit(folder, 256, 136, 264, 3, opts=PAIRS, more="cluster_multicast 0.sum0 axis=1 n=2\n" + more)
    expect("__cluster_dims__(2, 1, 1)" in text and "bulk_copy_part<2, 1, 32, 4096>(" in text and "{2, 4, 1}" in (folder / "net.c").read_text(), text)
    build(folder)
    with device.watch("arch=90"):
        run(device, folder, 256, 136, 264)
        gc.collect()


def assembled(folder, arch, opts=TILE, more="", words=(), n=136):
    """The copies' and barriers' instructions, no register in memory; of the text for other devices of the kind, too."""
    (folder / "own.ptx").write_text(cuda.ptx_of(emit(folder, 256, n, 264, 3, arch, opts, more), f"compute_{arch[3:]}"))
    for name in ("net.ptx", "own.ptx"):
        said = T.must(T.run([cuda.ptxas(), "-v", f"--gpu-name={arch}", name, "-o", "net.cubin"], cwd=folder, timeout=300))
        text = said.out.decode() + said.err
        found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        expect(found and all(pair == ("0", "0") for pair in found) and not re.search("serialized|injected|ignored", text), text)
    ptx = (folder / "own.ptx").read_text()
    for word in ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes", "mbarrier.try_wait.parity", "mbarrier.arrive.expect_tx",
                 "fence.proxy.async", *words):
        expect(word in ptx, f"no {word}")


def windows(device, folder, sizes, patch, last):
    """A tap is the patch's box, moved; pixels beyond the image, whose results nobody stores, are zeros."""
    T.scratch(folder)
    cuda.need_nvrtc()
    n, h, w = sizes
    done = tgtool(folder, BY_TAPS.format(patch=patch, last=last), WINDOWS.format(n=n, h=h, w=w), "sm_90a")
    expect(done.returncode == 0, done.stderr)
    text = (folder / "net.cu").read_text()
    expect("bulk_copy(" in text and "copy_async" not in text, "no bulk copies")
    said = T.must(T.run([cuda.ptxas(), "-v", "--gpu-name=sm_90a", "net.ptx", "-o", "net.cubin"], cwd=folder, timeout=300))
    expect("0 bytes spill stores, 0 bytes spill loads" in said.out.decode() + said.err, said.describe())
    build(folder)
    with device.watch("arch=90"):
        a = np.random.default_rng(1).standard_normal((n, h, w, 64)).astype(np.float16)
        cuda.text_of(folder / "net.cu")
        got = Library(folder / "net.so", "net").run({"a": a}, {}, 0)["c"]
        gc.collect()
    T.must(T.run([T.find_tgc(suite.options.build), "net.tg", "-o", "cpu.c", "--name=cpu", "--cpu=generic"], cwd=folder))
    T.build_shared(folder / "cpu.c", "-lm", "-lpthread")
    expected = Library(folder / "cpu.so", "cpu").run({"a": a}, {}, 0)["c"]
    expect(np.allclose(got.astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=2e-2), "another result")


BROKEN_ROLES = [("no wait for a full part", r" mbar_wait\([^;{]*\);(\s*matrix_begin)", r" ;\1", "which nobody has written"),
                ("no wait for an empty part", r"mbar_wait\(&[^;]*;(\s*mbar_arrive)", r"\1", "work-item 128 of block 0: the next phase of a barrier begins, and nobody has waited for the copies of this one"),
                ("no part is released", r" mbar_release<1>\(&[^;{]*\);", " ;", "waits for the end of a phase, for which 1 threads and 0 bytes are missing"),
                ("released while products read", r" matrix_wait<1>\(acc\);", " ;", "lets memory be replaced that products read which nobody has waited for"),
                ("a barrier of the whole block", r"(mbar_wait\([^;{]*\);\s*matrix_begin)", r"__syncthreads(); \1", "work-item 128 of block 0 waits for the end of a phase, for which 4 threads and 0 bytes are missing"),
                ("all producers copy", r"if \(thread == 128\)", "", "the next phase of a barrier begins, and nobody has waited for the copies of this one")]
# Of results that leave as boxes.
BROKEN_BOXES = [("stored to too early", r" bulk_wait<false>\(\);", " ;", "memory has been stored to before a box has left it"),
                ("nobody waits in the end", r" bulk_wait<true>\(\);", " ;", "boxes are on their way to tensors when their block ends"),
                ("not published", r" publish\(\);", " ;", "has been stored, and not published, before the barrier"),
                ("no barrier behind the wait", r"(bulk_wait<false>\(\);)\s*role_barrier<128>\(\);", r"\1", "race"),
                ("all threads store", r"if \(\w+ < 1\)(\s*\{[^}]*bulk_store)", r"\1", "more boxes are on their way than the emulator knows")]
# Of results that leave while other threads copy.
BROKEN_LEAVING = [("nobody has stored yet", r"(put4\(&tile\[[^;]*;\n(?: +\}\n)*) +role_barrier<128>\(\);", r"\1", "race"),
                  ("producers meet, too", r"role_barrier<128>", "role_barrier<256>", "work-item 128 of block 0 waits for the end of a phase, for which 4 threads and 0 bytes are missing"),
                  ("of half of the consumers", r"role_barrier<128>", "role_barrier<64>", "a barrier of threads that are no whole waves of the block, or of which this one is none"),
                  ("one wave meets nobody", r"(\s)role_barrier<128>", r"\1if (thread >= 32) role_barrier<128>", "which nobody has written")]
BROKEN_REGISTERS = [("of one warp alone", r"(give_registers<40>)", r"if (thread >= 288) \1", "not all of four warps have given registers, or taken them"),
                    ("more than there are", r"give_registers<40>", "give_registers<48>", "the block's work-items have taken 65536 registers, of 64512")]
BROKEN = [("no wait", r" mbar_wait\([^;{]*\);", " ;", "which nobody has written"),
          ("another phase", r"(mbar_wait\(&[^,]*, )([^;{]*)\);", r"\1 1 - (\2));", "which nobody has written"),
          ("more bytes expected", r"(mbar_arrive\([^,]*, )12288\)", r"\g<1>12304)", "waits for the end of a phase, for which 0 threads and 16 bytes are missing"),
          ("no bytes expected", r" mbar_arrive\(&[^;{]*\);", " ;", "waits for the end of a phase, for which 1 threads and -12288 bytes are missing"),
          ("no wait for an empty part", r"mbar_wait\(&[^;]*;(\s*mbar_arrive)", r"\1", "race: work-item 0 of block 0 writes"),
          ("no part is released", r" mbar_release<1>\(&[^;{]*\);", " ;", "waits for the end of a phase, for which 8 threads and 0 bytes are missing"),
          ("another part is released", r"(mbar_release<1>\(&\w+\[)", r"\g<1>2 - ", "waits for the end of a phase, for which"),
          ("nothing begins", r" mbar_init\(&[^;{]*\);", " ;", "a barrier in memory that has not begun"),
          ("all threads copy", r"const bool inside = [^;]*;", "const bool inside = true;", "the next phase of a barrier begins, and nobody has waited for the copies of this one"),
          ("another place", r"bulk_copy\(&tile\[0\]", "bulk_copy(&tile[8]", "a box begins at no multiple of 128 bytes")]
READ = "lets memory be replaced that products read which nobody has waited for"
# Of products that are added behind the threads' backs.
BROKEN_PRODUCTS = [("released while products read", r" matrix_wait<1>\(acc\);", " ;", READ),
                   ("two groups are left", r" matrix_wait<1>\(acc\);", " matrix_wait<2>(acc);", READ),
                   ("not all are waited for", r" matrix_wait<0>\(acc\);", " matrix_wait<1>(acc);", "ends before its products are waited for"),
                   ("no wait for an empty part", r"mbar_wait\(&[^;]*;(\s*mbar_arrive)", r"\1", "race: work-item 0 of block 0 writes")]
# Of blocks that copy to each other's memory: two of them, of four waves.
TAIL = r"(matrix_wait<0>\(acc\);)\s*if \(inside\)\s*for [^;]*;[^;]*;[^;]*\s*mbar_wait\([^;]*;"
LATE = "ends, and nothing says that wave 0 of block 0 has arrived at its barriers before"
BROKEN_CLUSTERS = [("no barrier before the copies", r"(__syncthreads\(\);)\s*cluster_barrier\(\);", r"\1", "a barrier in memory that has not begun"),
                   ("no wait behind the last step", TAIL, r"\1", LATE),
                   ("a barrier of the cluster behind the last step", TAIL, r"\1 cluster_barrier();", LATE),
                   ("not all parts are empty", r"(matrix_wait<0>\(acc\);\s*if \(inside\)\s*for \(int \w+ = 0; \w+ <) 2;", r"\1 1;", "a block of its cluster that has ended, or arrives there"),
                   ("one block meets nobody", r"(matrix_wait<0>\(acc\);)", r"\1 if (i % 2) cluster_barrier();", "divergent barrier of a cluster"),
                   ("released for its own block", r" mbar_release<2>", " mbar_release<1>", "waits for the end of a phase, for which 4 threads and 0 bytes are missing"),
                   ("waves of one block are counted", r"(mbar_init\(&\w+\[0\], 3, )8\)", r"\g<1>4)", "waits for the end of a phase, for which 0 threads and -4096 bytes are missing"),
                   ("no wait for an empty part", r"mbar_wait\(&[^;]*;(\s*mbar_arrive)", r"\1", "race: work-item 0 of block 1 writes"),
                   ("its own part is expected", r"(mbar_arrive\([^,]*, )16384\)", r"\g<1>12288)", "which nobody has written"),
                   ("the whole box is copied", r" bulk_copy_part<2, 1, 32, 4096>", " bulk_copy", "waits for the end of a phase, for which 0 threads and 4096 bytes are missing"),
                   ("four blocks", r"__cluster_dims__\(1, 2, 1\)", "__cluster_dims__(1, 4, 1)", "a cluster of another number of blocks")]


def stand_ins():
    """Within, nothing compiles the kernels: of those that are broken behind that, right ones are compiled by other cases."""
    cuda.need_nvrtc()
    return T.environment(**emulator.stand_ins(suite.options.build))


def change(folder, text, pattern, by):
    wrong = re.sub(pattern, by, text)
    expect(wrong != text, f"no {pattern} in {text}")
    (folder / "net.cu").write_text(wrong)
    (folder / "net.c").write_text(of_text((folder / "net.c").read_text(), text, wrong))
    build(folder)


def no_clusters(device, folder, dimensions, words):
    """A grid that is no whole number of clusters, and clusters of more blocks than a device has, are refused."""
    with stand_ins():
        text = emit(folder, 256, 136, 264, 3, opts=PANELS, more=CLUSTER)
    change(folder, text, r"__cluster_dims__\([^)]*\)", f"__cluster_dims__({dimensions})")
    cuda.text_of(folder / "net.cu")
    device.begin("arch=90")
    Library(folder / "net.so", "net", status=FAILED)
    gc.collect()
    expect(any(words in line for line in device.found()), f"{words}: {device.found()[:4]}")


def broken(device, folder, pattern, by, words, opts=TILE, more="", told="arch=90"):
    """A kernel that is wrong is found by the emulated device."""
    with stand_ins():
        text = emit(folder, 256 if more else 200, 136, 264, 3, opts=opts, more=more)
    change(folder, text, pattern, by)
    device.begin(told)
    run(device, folder, 256 if more else 200, 136, 264, status=FAILED)
    gc.collect()
    found = device.found()
    expect(any(words in line for line in found), f"{words}: {found[:4]}")


def misplaced(device, folder, by, words, status):
    """An array that begins elsewhere in the launch's memory: by itself it would be right."""
    with stand_ins():
        text = emit(folder, 200, 136, 264, 3, opts=PANELS)
    change(folder, text, r"BLOCK_ARRAY\(uint16_t, tile, \d+, 0\)", f"BLOCK_ARRAY(uint16_t, tile, {by})")
    cuda.text_of(folder / "net.cu")
    device.begin(PLACED)
    if status:
        Library(folder / "net.so", "net", status=status)
    else:
        run(device, folder, 200, 136, 264, status=FAILED)
    gc.collect()
    found = device.found()
    expect(any(words in line for line in found), f"{words}: {found[:4]}")


def other_devices(device, folder):
    """A driver before CUDA 12 makes no tensor maps, a device before sm_90 takes no kernel."""
    emit(folder, 96, 40, 264, 2)
    build(folder)
    cuda.text_of(folder / "net.cu")
    device.refuses(folder / "net.so", "arch=80", 23, "the device, which is sm_80: compile with --cpu=sm_80")
    (folder / "net.c").write_text((folder / "net.c").read_text().replace('library, "cuTensorMapEncodeTiled")', 'library, "cuNone")'))
    build(folder, "older.so")
    device.refuses(folder / "older.so", "arch=90", OLD_DRIVER, "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12")


def each_call_fails(device, folder):
    """The function that makes maps, in turn with all calls of the driver's: init's status, and nothing is left."""
    emit(folder, 96, 40, 264, 2)
    build(folder)
    cuda.text_of(folder / "net.cu")
    device.begin("arch=90")
    before = device.library.emulator_calls()
    library = Library(folder / "net.so", "net")
    count = device.library.emulator_calls() - before
    del library
    gc.collect()
    for number in range(1, count + 1):
        os.environ["TGC_EMULATOR_FAIL"] = str(number)
        device.begin("arch=90")
        opened = True
        try:
            Library(folder / "net.so", "net")
        except Failure:
            opened = False
        del os.environ["TGC_EMULATOR_FAIL"]
        gc.collect()
        expect(not opened and not device.found() and device.library.emulator_live() == 0, f"call {number}: {device.found()}")


def bound(folder, opts, more):
    """Tensors in memory of the caller's have maps of their own, and the model's again behind that."""
    emit(folder, 96, 136, 264, 2, opts=opts, more=more)
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "net.c", PROGRAMS / "bulk.c", "-I.", "-o", "bound", "-lm", "-ldl"], cwd=folder))
    done = T.must(T.run([folder / "bound"], env=emulator.cuda_environment(suite.options.build, folder / "net.cu", cache=folder / "kernels", device="arch=90")))
    expect(done.out.decode() == "right\n" and not done.err, done.describe())


def refused(folder):
    """What the engine does not take is refused, for the reason: rows of 534 bytes; a device without it."""
    T.scratch(folder)
    for k, device, words in ((267, "sm_90a", "the tensor's rows are not aligned to 16 bytes"), (264, "sm_80", "the device has no bulk copies of boxes")):
        done = tgtool(folder, TILE.format(step=64) + "pipeline 0.sum0 n=2 how=bulk\n", GEMM.format(m=96, n=40, k=k), device)
        expect(done.returncode == 1 and words in done.stderr, done.stderr)


def to_tf32(x):
    """To 10 bits of mantissa, ties to even, as the engine."""
    bits = x.view(np.uint32)
    return ((bits + 0xfff + (bits >> 13 & 1)) & np.uint32(0xffffe000)).view(np.float32)


def rounded(device, folder):
    """Floats that --math=tf32 rounds for boxes alone: the engine rounds them, and no kernel before does. Of a quarter both neighbours are as near."""
    T.scratch(folder)
    cuda.need_nvrtc()
    tgc, options, (m, n, k) = T.find_tgc(suite.options.build), ("--cpu=sm_90a", "--math=tf32"), (65, 72, 104)
    (folder / "net.tg").write_text(TRANSPOSED.format(dtype="f32", m=m, n=n, k=k))
    opts = tuned(tgc, folder, options, warpgroups("m64n64k8_tf32", 32, 32, step=32, at_once=0, more=BY_PRODUCER.format(parts=2)))
    for out in ("net.c", "net.cu"):
        T.must(T.run([tgc, "net.tg", "-o", out, "--target=cuda", *options, opts], cwd=folder))
    text = (folder / "net.c").read_text()
    expect(len(re.findall(r"(?m)^    \{\d+, 11, 2, \{104, (?:65|72)\}, \{416\}", text)) == 2, "no two maps of floats that are rounded")
    expect((folder / "net.cu").read_text().count("__global__") == 1, "kernels that round")
    build(folder)
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n, k)))
    for x in (a, b):
        x.view(np.uint32)[:, ::4] = x.view(np.uint32)[:, ::4] & np.uint32(0xffffe000) | np.uint32(0x1000)
    cuda.text_of(folder / "net.cu")
    with device.watch("arch=90"):
        got = Library(folder / "net.so", "net").run({"a": a, "b": b}, {}, 0)["c"].astype(np.float64)
        gc.collect()
    of = [x.astype(np.float64) for x in (a, b, to_tf32(a), to_tf32(b))]
    bound = 1e-6 * (np.abs(of[0]) @ np.abs(of[1]).T)         # additions of f32
    expect(np.all(np.abs(got - of[2] @ of[3].T) <= bound), "not the product of the factors, rounded")
    expect(np.any(np.abs(got - of[0] @ of[1].T) > bound), "nothing was rounded")


def chosen(folder):
    """The cost model takes boxes where the engine does, else copies by the threads: rows of 4088 bytes, a device without it; and clusters
    where the cache sends less than all units take."""
    T.scratch(folder)
    for size, device, words in (((2048, 2048, 512), "sm_90a", "how=bulk"), ((2048, 2044, 512), "sm_90a", "how=async"), ((2048, 2048, 512), "sm_120", "how=async"), ((4096, 4096, 4096), "sm_80", "how=async"),
                                ((4096, 4096, 4096), "sm_90a", "cluster_multicast 0.sum0 axis=1 n=2"), ((1024, 1024, 1024), "sm_90a", "cluster_multicast 0.sum0 axis=0 n=4"),
                                ((256, 256, 4096), "sm_90a", None)):
        (folder / "net.tg").write_text(GEMM.format(m=size[0], n=size[1], k=size[2]))
        done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", f"--cpu={device}"], cwd=folder)).out.decode()
        expect(words in done if words else "cluster_multicast 0.sum" not in done, f"{size}, {device}: {done}")
    (folder / "net.tg").write_text(CONVOLUTIONS.format(n=28, c=128).replace("[1, 16", "[8, 16"))
    done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", "--cpu=sm_90a"], cwd=folder)).out.decode()
    expect(re.search(r"cover 0 axis=3 n=32; cover 0 axis=2 n=[24];[^\n]* how=bulk", done), f"no patches of rows of 32: {done}")
    (folder / "net.tg").write_text(CONVOLUTIONS.format(n=14, c=256).replace("[1, 16", "[32, 16"))
    done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", "--cpu=sm_90a"], cwd=folder)).out.decode()
    expect(re.search(r"cover 0 axis=3 n=16;[^\n]* how=bulk", done), f"no boxes of patches as wide as the image with its border: {done}")


def chosen_columns(folder):
    """Blocks of 192 columns, where those of 128 or 256 leave units idle: 96 of them for 132 units, not 72, or 144."""
    T.scratch(folder)
    for n, words in ((1536, "n=192;"), (2048, "n=256;")):
        (folder / "net.tg").write_text(GEMM.format(m=n, n=n, k=n))
        done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", "--cpu=sm_90a"], cwd=folder)).out.decode()
        expect(re.search(rf"cover 0 axis=\d {words}", done), f"{n}: {done}")


def chosen_places(folder):
    """Blocks go through places where there are more of these than the device has units, as evenly as may be; elsewhere each place has a block."""
    T.scratch(folder)
    for m, n, k, several in ((4096, 4096, 4096, True), (4352, 8192, 2048, True), (2048, 2048, 512, False)):
        (folder / "net.tg").write_text(GEMM.format(m=m, n=n, k=k))
        done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", "--cpu=sm_90a"], cwd=folder)).out.decode()
        found = re.search(r"persistent 0 axis=\d n=(\d+);", done)
        expect((found and int(found[1]) <= 132) if several else not found, f"{m}, {n}, {k}: {done}")


def producer_chosen(folder):
    """Where a unit has one block, other threads copy, if there is an engine that does."""
    T.scratch(folder)
    for n, device, takes in ((4096, "sm_90a", True), (4096, "sm_80", False)):
        (folder / "net.tg").write_text(GEMM.format(m=n, n=n, k=n))
        done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", f"--cpu={device}"], cwd=folder)).out.decode()
        expect(("warp_specialize 0.sum0 n=128" in done) == takes == ("blocks of 256 threads and 128 that copy" in done), f"{n}, {device}: {done}")


def leaving_chosen(folder):
    """Halves leave as boxes, through memory of their own, where three parts of copies have room beside it; floats, beside which two have, do not."""
    T.scratch(folder)
    for end, words in (("", ("stage_epilogue 0 axis=", "grid 1 axis=1; pipeline 0.sum0 n=3 how=bulk; cluster_multicast 0.sum0 axis=1 n=2; warp_specialize 0.sum0 n=128; first 1 n=256; bulk_epilogue 0")), ("f32", ("pipeline 0.sum0 n=4 how=bulk",))):
        model = GEMM.format(m=4096, n=4096, k=4096)
        (folder / "net.tg").write_text(model.replace("output %c", "%d = cast(%c) {to=f32}\noutput %d") if end else model)
        done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", "--cpu=sm_90a"], cwd=folder)).out.decode()
        expect(all(word in done for word in words) and "; alias_epilogue 1" not in done and ("stage_epilogue 0 " in done) == (not end), f"{end}: {done}")


def main():
    suite.parse()
    build_folder = suite.options.build
    scratch = T.scratch(Path(build_folder).resolve() / "test-scratch" / "bulk")
    device = emulator.Device(build_folder, scratch, emulator.cuda_library)
    for number, (m, n, k) in enumerate(SIZES):
        suite.add(f"product: {m} x {n} x {k}", gemm, device, scratch / f"gemm{number}", m, n, k, 2 + number % 2, slow=number == 2)
    for parts in (2, 3):
        suite.add(f"product in panels, {parts} parts", gemm, device, scratch / f"panels{parts}", 130, 72, 264, parts, PANELS)
    for number, (sizes, patch, last) in enumerate(PATCHES):
        suite.add(f"convolution, patches {number}", windows, device, scratch / f"patch{number}", sizes, patch, last)
    suite.add("product in panels, 256 columns by terms", gemm, device, scratch / "wide", 70, 264, 136, 2, WIDE, "", BY_TERMS)
    suite.add("product in panels, three tiles of columns", gemm, device, scratch / "three", 130, 328, 136, 2, THREE)
    suite.add("ptxas: three tiles of columns", assembled, scratch / "ptx-three", "sm_90a", THREE, "", (), 328)
    for number, (blocks, parts, opts, how) in enumerate(PLACES):
        suite.add(f"{blocks} blocks, {parts} parts, {how}{', panels' if opts == PANELS else ''}", through_places, device, scratch / f"places{number}", 200, 136, 264, blocks, parts, opts, how,
                  slow=number in (1, 3))        # quick: 4 and 11 blocks of the same
    for name, more in (("", ""), (" with a producer", PRODUCER)):
        suite.add(f"clusters that go through places{name}", pairs_through_places, device, scratch / f"pairs{len(more)}", more)
    for arch in DEVICES:
        suite.add(f"ptxas: {arch}", assembled, scratch / f"ptx-{arch}", arch)
    suite.add("ptxas: panels", assembled, scratch / "ptx-panels", "sm_90a", PANELS)
    suite.add("ptxas: blocks that go through places", assembled, scratch / "ptx-places", "sm_90a", PANELS + PERSIST.format(axis=1, n=5))
    for number, more in enumerate(CLUSTERS):
        suite.add(f"product in panels, by clusters, {number}", gemm, device, scratch / f"clusters{number}", 256, 128, 264, 3, PANELS, more)
    suite.add("ptxas: clusters", assembled, scratch / "ptx-clusters", "sm_90a", PANELS, CLUSTER,
              (".multicast::cluster", "mapa.shared::cluster", "barrier.cluster.arrive", ".reqnctapercluster 1, 2, 1"))
    for number, (name, more, opts) in enumerate((("a producer", PRODUCER, PANELS), ("a producer and two groups", PRODUCER, GROUPS), ("a producer of a cluster", CLUSTER + PRODUCER, PANELS),
                                                 ("a producer of one warp", "warp_specialize 0.sum0 n=32\n", TILE))):
        suite.add(f"product by {name}", gemm, device, scratch / f"producer{number}", 256, 72, 520, 3, opts, more, slow=number in (0, 3))
    for blocks in (4, 3):
        suite.add(f"9 places by {blocks} blocks with a producer", gemm, device, scratch / f"producer-places{blocks}", 130, 136, 200, 2,
                  PANELS + PERSIST.format(axis=1, n=blocks), PRODUCER, slow=blocks == 3)
    for number, (m, n, k, blocks, opts, left, more) in enumerate(((130, 136, 200, 4, LEAVING, LEFT, PRODUCER), (130, 136, 200, 3, LEAVING, LEFT, ""), (65, 136, 264, 5, LEAVING, LEFT, PRODUCER),
                                                                  (256, 136, 264, 4, LEAVING_PAIRS, LEFT_PAIRS, "cluster_multicast 0.sum0 axis=1 n=2\n" + PRODUCER),
                                                                  (256, 136, 264, 4, LEAVING_PAIRS, LEFT_PAIRS, "cluster_multicast 0.sum0 axis=1 n=2\n"),
                                                                  (200, 200, 136, 3, LEAVING_GROUPS, LEFT.replace("axis=2 n=16", "axis=2 n=32"), PRODUCER))):
        suite.add(f"results leave through local memory, place by place, {number}", leaving, device, scratch / f"leaving{number}", m, n, k, blocks, opts, left, more, slow=number == 2)
    for m, n, k, parts in ((130, 72, 136, 2), (65, 72, 200, 3), (96, 40, 264, 4)):
        suite.add(f"product by a producer: {m} x {n} x {k}", gemm, device, scratch / f"producer-{m}-{n}-{k}", m, n, k, parts, GROUPS if m > 128 else TILE, PRODUCER, slow=m < 128)
    suite.add("ptxas: results leave place by place, with a producer", assembled, scratch / "ptx-leaving", "sm_90a", LEAVING_GROUPS.replace("{blocks}", "3"),
              PRODUCER + LEFT.replace("axis=2 n=16", "axis=2 n=32"), ("barrier.sync 1", "st.global.v4", "setmaxnreg.dec.sync.aligned.u32 40"))
    suite.add("ptxas: a producer", assembled, scratch / "ptx-producer", "sm_90a", GROUPS, PRODUCER, ("setmaxnreg.dec.sync.aligned.u32 40", "setmaxnreg.inc.sync.aligned.u32 232"))
    suite.add("ptxas: a producer of one warp", assembled, scratch / "ptx-producer1", "sm_120", TILE, "warp_specialize 0.sum0 n=32\n", slow=True)
    for number, (name, pattern, by, words) in enumerate(BROKEN_ROLES):
        suite.add(f"broken: {name}, by roles", broken, device, scratch / f"broken-roles{number}", pattern, by, words, PANELS, PRODUCER, slow=number > 2)
    for number, (m, n, k, blocks, opts, left, more) in enumerate(((130, 136, 200, 4, BOXES, LEFT_BOXES, PRODUCER), (130, 136, 200, 3, BOXES, LEFT_BOXES, ""), (70, 72, 264, 0, BOXES_OVER, LEFT_BOXES + "alias_epilogue 0\n", ""),
                                                                  (200, 200, 136, 3, BOXES_GROUPS, LEFT_BOXES.replace("128", "256"), PRODUCER),
                                                                  (70, 136, 200, 4, BOXES.replace("swizzle 0 n=64 operand=0\n", ""), LEFT_BOXES, PRODUCER),
                                                                  (256, 136, 264, 4, BOXES_PAIRS, LEFT_BOXES, "cluster_multicast 0.sum0 axis=1 n=2\n" + PRODUCER),
                                                                  (256, 136, 264, 4, BOXES_PAIRS, LEFT_BOXES, "cluster_multicast 0.sum0 axis=1 n=2\n"))):
        suite.add(f"results leave as boxes, {number}", leaving, device, scratch / f"boxes{number}", m, n, k, blocks, opts, left, more)
    suite.add("results of floats leave as boxes", leaving, device, scratch / "boxes-f32", 70, 136, 200, 4, BOXES, LEFT_BOXES, PRODUCER, FLOATS)
    suite.add("ptxas: results leave as boxes", assembled, scratch / "ptx-boxes", "sm_90a", BOXES_GROUPS.replace("{blocks}", "3"), PRODUCER + LEFT_BOXES.replace("128", "256"),
              ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group.read", "fence.proxy.async"))
    for number, (name, pattern, by, words) in enumerate(BROKEN_BOXES):
        suite.add(f"broken: {name}, by boxes that leave", broken, device, scratch / f"broken-boxes{number}", pattern, by, words, BOXES.replace("{blocks}", "4"), PRODUCER + LEFT_BOXES, slow=number > 2)
    for number, (name, pattern, by, words) in enumerate(BROKEN_LEAVING):
        suite.add(f"broken: {name}, place by place", broken, device, scratch / f"broken-leaving{number}", pattern, by, words, LEAVING.replace("{blocks}", "4"), PRODUCER + LEFT, slow=number > 0)
    for number, (name, pattern, by, words) in enumerate(BROKEN_REGISTERS):
        suite.add(f"broken: registers {name}", broken, device, scratch / f"broken-registers{number}", pattern, by, words, GROUPS, PRODUCER, slow=number > 0)
    for number, (name, pattern, by, words) in enumerate(BROKEN):
        suite.add(f"broken: {name}", broken, device, scratch / f"broken{number}", pattern, by, words)
    suite.add("broken: an array at no multiple of 128 bytes", misplaced, device, scratch / "misplaced0", "12256, 64", "a box begins at no multiple of 128 bytes", 0)
    suite.add("broken: arrays that share bytes", misplaced, device, scratch / "misplaced1", "12288, 1024", "arrays 'tile' and 'tile2' share bytes", FAILED)
    for number, (name, pattern, by, words) in enumerate(BROKEN_PRODUCTS):
        suite.add(f"broken: {name}, in panels", broken, device, scratch / f"broken-panels{number}", pattern, by, words, PANELS)
    for number, (name, pattern, by, words) in enumerate(BROKEN_CLUSTERS):
        suite.add(f"broken: {name}, by clusters", broken, device, scratch / f"broken-clusters{number}", pattern, by, words, PANELS, CLUSTER)
    suite.add("no whole clusters", no_clusters, device, scratch / "no-clusters", "2, 1, 1", "3 blocks along axis 0 are no whole clusters of 2")
    suite.add("clusters of too many blocks", no_clusters, device, scratch / "large-clusters", "3, 4, 1", "clusters of 12 blocks, the device has up to 8")
    suite.add("devices that lack something", other_devices, device, scratch / "lacks")
    suite.add("each call of init fails", each_call_fails, device, scratch / "fails")
    for name, opts, more in (("", TILE, ""), (", boxes that leave", BOXES.replace("{blocks}", "4"), PRODUCER + LEFT_BOXES)):
        suite.add(f"memory of the caller's{name}", bound, scratch / f"bound{len(more)}", opts, more)
    suite.add("floats that are rounded as boxes of them are copied", rounded, device, scratch / "rounded")
    suite.add("a producer, chosen", producer_chosen, scratch / "producer-chosen")
    suite.add("results that leave beside copies, chosen", leaving_chosen, scratch / "leaving-chosen")
    suite.add("what the model chooses", chosen, scratch / "chosen")
    suite.add("columns, chosen", chosen_columns, scratch / "chosen-columns")
    suite.add("blocks that go through places, chosen", chosen_places, scratch / "chosen-places")
    suite.add("what is refused", refused, scratch / "refused")
    suite.main()


if __name__ == "__main__":
    main()
