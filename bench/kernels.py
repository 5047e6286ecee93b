"""How near kernels come to what the machine can do: products to the peak of multiply-adds, and
matrix-vector products to the bandwidth with which memory of the weights' size is read.

    .venv/bin/python bench/kernels.py [--build build] [--compiler gcc] [--cpu avx2] [--products]

One thread, -O2, no Winograd (which does less arithmetic than is counted). The convolutions are
those of resnet50 as they stand in the network, each with its epilogue; the products are models
of their own: five shapes, the layers of vit_b_16 (197 rows) and those of MiniLM (128). Times are the least of many
runs, of convolutions by the emitted program's --bench. The products take turns, and the peak with them.
Peak and bandwidth are measured before and after, by bench/driver.c; the larger counts.
"""

import argparse
import collections
import math
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "lib")]

import numpy as np
import onnx

import compare
import graphs as G
import models
import prepare
import tgc as T
import worker

PRODUCTS = [(512, 512, 512), (1024, 1024, 1024), (128, 384, 1536), (49, 512, 512), (64, 64, 4096),
            (197, 768, 2304), (197, 768, 768), (197, 768, 3072), (197, 3072, 768), (128, 384, 384), (128, 1536, 384)]
ROUNDS = 8
VECTORS = [(64, 128), (256, 1024), (1024, 1024), (4096, 4096), (8192, 8192)]     # weights


def product(m, k, n):
    random = np.random.default_rng(1)
    w = G.weight("w", (random.standard_normal((k, n)) / math.sqrt(k)).astype(np.float32))
    return G.model([G.node("MatMul", ["x", "w"], ["y"], name="product")],
                   [G.value("x", [m, k])], [G.value("y", [m, n])], [w])


def build_product(tgc, sizes, folder, options, driver):
    """The product, ready to be timed."""
    m, k, n = sizes
    onnx.save(product(m, k, n), folder / "product.onnx")
    T.emit(tgc, folder / "product.onnx", folder / "net.c", *options.more, timeout=600)
    library, _ = prepare.build_emitted(options.compiler, folder)
    library = library.rename(folder / f"product-{m}-{k}-{n}.so")   # a name is loaded once
    np.savez(folder / "inputs.npz", **{"0": np.ones((m, k), np.float32)})
    return worker.Emitted({"folder": str(folder), "driver": driver, "library": str(library),
                           "symbol": "net"}, {"outputs": [{"shape": [m, n], "dtype": "float32"}]})


def time_products(tgc, all_sizes, folder, options, driver, limits):
    """Milliseconds of a run of each, the least of all turns; the largest peak between them."""
    ready = {sizes: build_product(tgc, sizes, folder, options, driver) for sizes in all_sizes}
    least, peak = dict.fromkeys(ready, math.inf), 0
    for _ in range(ROUNDS):
        for sizes, emitted in ready.items():
            times = worker.take_time(emitted, options.seconds / ROUNDS, 2000)
            least[sizes] = min(least[sizes], 1e3 * min(times))
        limits.measure([1])
        peak = max(peak, limits.best_peak(False))
    return least, peak


def measure_network(tgc, model, folder, options):
    """Milliseconds and GFLOP/s of each kernel, by name."""
    # with a cache that holds everything no two layers are one kernel
    T.emit(tgc, model, folder / "net.c", "--no-winograd", "--cache=1G", *options.more, timeout=600)
    T.build(folder / "net.c", folder / "net", options.compiler, timeout=900)
    done = T.must(T.run([folder / "net", "--bench", str(options.seconds)], timeout=600))
    rows = re.findall(r"^ +([\d.]+) +([\d.]+)  (\S+)$", done.out.decode(), re.M)
    return {name: (float(us) / 1e3, float(rate)) for us, rate, name in rows}


def convolutions(path):
    """Of resnet50's convolutions in order: kernel, stride, channels and sides of the output."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    weights = {t.name: list(t.dims) for t in graph.initializer}
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
              for v in graph.value_info}
    for node in graph.node:
        if node.op_type == "Conv":
            filters, inputs, height, width = weights[node.input[1]]
            stride = next((a.ints[0] for a in node.attribute if a.name == "strides"), 1)
            side = shapes[node.output[0]][2]
            yield f"{height}x{width}/{stride} {inputs:4d}->{filters:4d} at {side}x{side}"


def main():
    parser = argparse.ArgumentParser(description="fractions of the machine's limits")
    parser.add_argument("--build", default="build")
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--cpu", help="one instruction set, as tgc's option")
    parser.add_argument("--products", action="store_true", help="products of matrices alone")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    options = parser.parse_args()
    options.more = ["--cpu", options.cpu] if options.cpu else []
    os.sched_setaffinity(0, [options.core])
    tgc = T.find_tgc(options.build).resolve()
    folder = T.scratch(Path(options.build).resolve() / "bench-scratch" / "kernels")
    driver = compare.build_driver(folder)
    limits = compare.Limits(driver, [options.core])
    limits.measure([1])
    peak = limits.best_peak(False)
    groups = collections.defaultdict(list)
    if not options.products:
        network = models.prepare(next(m for m in models.MODELS if m.name == "resnet50"))
        found = measure_network(tgc, network / "model.onnx", folder, options)
        measured = [value for name, value in found.items() if name.startswith("conv")]
        for shape, (ms, rate) in zip(convolutions(network / "model.onnx"), measured, strict=True):
            groups[shape].append((ms, rate))
    vectors = [] if options.products else [(1, k, n) for k, n in VECTORS]
    products, later = time_products(tgc, PRODUCTS + vectors, folder, options, driver, limits)
    peak = max(peak, later)
    print(f"peak {peak:.1f} GFLOP/s")
    for shape, times in groups.items():
        best = max(rate for _, rate in times)
        print(f"  conv {shape:28s} x{len(times)} {min(ms for ms, _ in times):9.4f} ms "
              f"{best:7.1f} GFLOP/s {best / peak:6.1%}")
    whole = sum(ms for times in groups.values() for ms, _ in times)
    work = sum(ms * rate for times in groups.values() for ms, rate in times)
    if groups:
        print(f"  all convolutions: {whole:.2f} ms, {work / whole / peak:.1%}")
    for (m, k, n), ms in products.items():
        rate = 2e-6 * m * k * n / ms
        if m > 1:
            print(f"  product {m} x {k} x {n}: {ms:.4g} ms {rate:.1f} GFLOP/s {rate / peak:.1%}")
            continue
        read = limits.read_rate(1, 4 * k * n)
        print(f"  matrix-vector {k} x {n}: {ms:.4g} ms {2 * rate:.1f} GB/s, "
              f"{2 * rate / read:.1%} of reading as much ({read:.1f} GB/s)")


if __name__ == "__main__":
    main()
