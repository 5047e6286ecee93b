"""Machine code of CUDA's kernels, by NVRTC, ptxas and nvdisasm, which need no device: what the loops of products consist of. What PTX says is
not what a device runs: a load that is written once may be executed for each product, a barrier's scope may become a fence of the whole device."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import cuda
import tgc as T
from suite import Suite, expect

suite = Suite("machine")
GEMM = "tg 1\ninput %x : {dtype}[{m}, {k}]\ninput %w : {dtype}[{n}, {k}]\n%y = linear(%x, %w)\noutput %y as \"y\"\n"
CONVOLUTION = """tg 1
input %x : f16[32, 256, 14, 14]
weight %u : f16[256, 256, 1, 1] = normal(std=0.1, seed=1)
weight %w : f16[256, 256, 3, 3] = normal(std=0.05, seed=2)
%a = conv2d(%x, %u)
%y = conv2d(%a, %w) {padding=1}
output %y as "y"
"""
ATTENTION = "tg 1\n" + "".join(f"input %{x} : f16[2, 16, 2048, {{d}}]\n" for x in "qkv") + "%y = attention(%q, %k, %v) {{causal={causal}}}\noutput %y as \"y\"\n"
# What has no place in a loop: registers in memory, what waits for the whole device's memory, a loop within the instruction.
SLOW = re.compile(r"\b(LDL\b|STL\b|MEMBAR\.\S*(GPU|SYS)|CCTL\b|CALL\.REL\.NOINC `\(\$)")


def count(loop, name):
    return sum(bool(re.match(rf"(@!?U?P\w+ )?{name}\b", line)) for line in loop)


def product_loops(folder, tgc, text, architecture, unit, *options, card=None):
    """The innermost loops with the unit's instructions, of which there is one at least. card: what the PTX beside the architecture's code becomes there."""
    T.scratch(folder)
    (folder / "net.tg").write_text(text)
    cuda.need_nvrtc()
    T.must(T.run([tgc, "net.tg", "-o", "m.cu", "--target=cuda", f"--cpu={architecture}", *options], cwd=folder))
    kernels = (folder / "m.cu").read_text()
    code = cuda.machine_code(folder, kernels, card, architecture.replace("sm_", "compute_").strip("a")) if card else cuda.machine_code(folder, kernels, architecture)
    found = [loop for kernel in code.values() for loop in cuda.loops(kernel) if count(loop, unit)]
    expect(found, f"no loop with {unit}: {list(code)}")
    for loop in found:
        slow = [line for line in loop if SLOW.search(line)]
        expect(not slow, f"in a loop of products: {slow[:5]}")
    return found


def by_wgmma(tgc, folder, text, *options):
    product_loops(folder, tgc, text, "sm_90a", "HGMMA", *options)


def by_mma(tgc, folder, text, architecture, share):
    """Of the products of a step at most that share as many loads of tiles."""
    for loop in product_loops(folder, tgc, text, architecture, "HMMA"):
        loads, products = count(loop, "LDSM"), count(loop, "HMMA")
        expect(loads <= share * products, f"{loads} loads of tiles for {products} products")


def by_scalars(tgc, folder, text, architecture, share):
    """Multiply-adds are this share of the loop that has most of them, at least."""
    loop = max(product_loops(folder, tgc, text, architecture, "FFMA"), key=lambda loop: count(loop, "FFMA"))
    expect(count(loop, "FFMA") >= share * len(loop), f"{count(loop, 'FFMA')} multiply-adds of {len(loop)} instructions")


def by_doubles(tgc, folder, text):
    """A product and its sum are one instruction, though nothing is contracted by the compiler."""
    for loop in product_loops(folder, tgc, text, "sm_80", "DFMA"):
        expect(not count(loop, "DMUL"), f"{count(loop, 'DMUL')} products beside {count(loop, 'DFMA')} multiply-adds")


def on_newer_cards(tgc, folder, text, card, *options):
    """Of what PTX for newer cards makes of products of four warps: each warp's rows by mma.sync, of what ldmatrix reads, four matrices for two products, and
    nothing goes through memory for lack of registers."""
    for loop in product_loops(folder, tgc, text, "sm_90a", "HMMA", *options, card=card):
        loads, products = count(loop, "LDSM"), count(loop, "HMMA")
        expect(0 < loads <= 0.65 * products, f"{loads} loads of tiles for {products} products")


def as_written(tgc, folder, text, *options):
    """ptxas makes one operation of mul.f32 and add.f32, not of mul.rn.f32; what tgc has compiled has the latter, and no difference of products is an fma."""
    T.scratch(folder)
    (folder / "net.tg").write_text(text)
    cuda.need_nvrtc()
    T.must(T.run([tgc, "net.tg", "-o", "m.ptx", "--target=cuda", *options], cwd=folder))
    ptx = (folder / "m.ptx").read_text()
    loose, scaled = re.findall(r"\b(?:mul|add|sub)\.f(?:32|64)\b.*", ptx), re.findall(r"\bfma\.rn\.f32.*0f3FB8AA3B.*", ptx)
    expect("mul.rn.f32" in ptx and not loose and not scaled, f"{len(loose)} operations that may be joined, {loose[:2]}, {scaled[:2]}")


def main():
    suite.parse()
    tgc, scratch = T.find_tgc(suite.options.build), T.scratch(Path(suite.options.build).resolve() / "test-scratch" / "machine")
    f16 = GEMM.format(dtype="f16", m=4096, n=4096, k=4096)
    suite.add("sm_90a: f16, clusters, a producer", by_wgmma, tgc, scratch / "f16", f16)
    suite.add("sm_90a: bf16, 128 rows", by_wgmma, tgc, scratch / "rows", GEMM.format(dtype="bf16", m=128, n=4096, k=4096), slow=True)
    suite.add("sm_90a: tf32", by_wgmma, tgc, scratch / "tf32", GEMM.format(dtype="f32", m=1024, n=1024, k=1024), "--math=tf32", slow=True)
    suite.add("sm_90a: 3x3", by_wgmma, tgc, scratch / "conv", CONVOLUTION)
    for d, causal in ((64, "true"), (128, "false")):
        suite.add(f"sm_90a: attention, {d}", by_wgmma, tgc, scratch / f"attention{d}", ATTENTION.format(d=d, causal=causal), slow=d == 128)
    for number, architecture in enumerate(("sm_80", "sm_89", "sm_120")):
        suite.add(f"{architecture}: f16", by_mma, tgc, scratch / f"f16-{architecture}", f16, architecture, 0.5, slow=number > 0)
        suite.add(f"{architecture}: 3x3", by_mma, tgc, scratch / f"conv-{architecture}", CONVOLUTION, architecture, 0.65, slow=number != 1)
        suite.add(f"{architecture}: attention", by_mma, tgc, scratch / f"attention-{architecture}", ATTENTION.format(d=64, causal="false"), architecture, 1.25, slow=number > 1)
    suite.add("sm_80: f32", by_scalars, tgc, scratch / "f32", GEMM.format(dtype="f32", m=2048, n=2048, k=2048), "sm_80", 0.8)
    newer = (("f16", f16, ()), ("bf16, 128 rows", GEMM.format(dtype="bf16", m=128, n=4096, k=4096), ()), ("tf32", GEMM.format(dtype="f32", m=1024, n=1024, k=1024), ("--math=tf32",)),
             ("attention", ATTENTION.format(d=64, causal="true"), ()), ("3x3", CONVOLUTION, ()))
    for number, (name, text, options) in enumerate(newer):
        suite.add(f"sm_90a's PTX on sm_100: {name}", on_newer_cards, tgc, scratch / f"newer-{number}", text, "sm_100", *options, slow=number > 0)
    suite.add("sm_80: f64", by_doubles, tgc, scratch / "f64", GEMM.format(dtype="f64", m=512, n=512, k=512))
    attention = ATTENTION.format(d=64, causal="true")
    suite.add("products are rounded before a difference: attention", as_written, tgc, scratch / "written-attention", attention, "--cpu=sm_80")
    suite.add("products are rounded before a difference: softmax", as_written, tgc, scratch / "written-softmax",
              "tg 1\ninput %x : f32[64, 1000]\n%a = mul(%x, f32(0.3))\n%y = softmax(%a) {axis=-1}\noutput %y\n", "--cpu=sm_80")
    suite.main()


if __name__ == "__main__":
    main()
