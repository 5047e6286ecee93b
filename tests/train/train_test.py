"""tgc train: every loss and optimizer against PyTorch, step by step; what is written, resumed and
refused."""

import csv
import gzip
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import xml.etree.ElementTree
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent.parent / "models")]

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import graphs as G
import opencl
import tgc as T
import train_digits
from networks import KINDS, NETWORKS, cnn, deep, halves_of, mlp, random_weights, samples, save, transformer, weights_of
from reference_names import LOSSES, OPTIMIZERS
from suite import Suite, expect

suite = Suite("train")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "train")
DIGITS = HERE.parent.parent / "models" / "digits.tg"
MNIST = HERE.parent.parent / "examples" / "mnist" / "cnn.tg"
case = suite.folder_case(SCRATCH)
RATES = {"sgd": 0.05, "adam": 0.01, "adamw": 0.01, "rmsprop": 0.005, "adagrad": 0.02}


def train(folder, *words, status=0, **more):
    return T.must(T.run([TGC, "train", *map(str, words)], cwd=folder, **more), status)


def refuse(folder, words, *expected):
    done = T.run([TGC, "train", *words], cwd=folder)
    expect(done.status in (1, 2), f"status {done.status}:\n{done.err}")
    for text in expected:
        expect(text in done.err, f"no '{text}' in:\n{done.err}")


# ------------------------------------------------------------------------- steps beside PyTorch's

class Steps:
    """What runs beside PyTorch: all of its side in one process, by the first case that needs it."""

    def __init__(self):
        self.todo, self.losses, self.lock = [], None, threading.Lock()

    def add(self, name, network, loss, optimizer, clip=None, words=(), near=2e-4):
        k = len(self.todo)
        folder = SCRATCH / f"steps-{k}"
        self.todo.append({"folder": str(folder), "network": network, "loss": loss, "optimizer": optimizer,
                          "clip": clip, "steps": 8})
        suite.add(name, self.check, k, words, near)

    def prepare(self):
        T.need_torch()
        for one in self.todo:
            folder = T.scratch(Path(one["folder"]))
            network, shape = NETWORKS[one["network"]]
            np.savez(folder / "w.npz", **network(folder))
            samples(folder, shape, one["loss"])
        (SCRATCH / "todo.json").write_text(json.dumps(self.todo))
        with open(SCRATCH / "todo.json") as todo:
            self.losses = json.loads(T.must(T.run([T.TORCH, HERE / "reference.py"], stdin=todo)).out)

    def check(self, k, words, near):
        if "--target=opencl" in words:
            opencl.need_device()
        with self.lock:
            if self.losses is None:
                self.prepare()
        one, want = self.todo[k], self.losses[k]
        folder, clip, kind = Path(one["folder"]), one["clip"], one["optimizer"].split(":")[0]
        train(folder, "m.onnx", "--data", "d.npz", f"--loss={one['loss']}", f"--optimizer={one['optimizer']}",
              "--epochs=8", f"--lr={RATES[kind]}", "--batch=24", "--log=log.jsonl", "-o", "out.onnx",
              *([f"--clip={clip}"] if clip else []), *words)
        got = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
        expect(np.allclose(got, want, near, near / 20), f"losses\n{got}, by PyTorch\n{want}")
        expect(abs(want[-1] - want[0]) > 1e-3, f"nothing was learned: {want}")
        given, kind = weights_of(folder / "m.onnx"), one["network"].partition(".")[2]
        made, torch = weights_of(folder / "out.onnx"), np.load(folder / "torch.npz")
        for name in torch.files:
            v = made[name].astype(np.float32)
            expect(made[name].dtype == given[name].dtype and (not kind or made[name].dtype != np.float32), f"{name} is of {made[name].dtype}")
            # where a gradient is about 0, rounding turns Adam's steps around
            far = abs(v - torch[name])
            expect(np.allclose(v, torch[name], 2e-3, 2e-4) if near < 1e-3 else far.mean() < near, f"{name}: {far.mean()}, {far.max()}")


steps = Steps()
for optimizer in OPTIMIZERS:
    steps.add(f"mlp by {optimizer}", "mlp", "cross_entropy", optimizer)
for loss in LOSSES[1:]:
    steps.add(f"mlp, {loss}", "mlp", loss, "adam")
steps.add("gradients are clipped", "mlp", "mse", "sgd", 0.25)
steps.add("cnn with batch normalization", "cnn", "cross_entropy", "adam")
steps.add("a recurrent network", "lstm", "cross_entropy", "adam")
steps.add("a transformer's block, with an embedding that is tied", "transformer", "cross_entropy",
          "adamw:weight_decay=0.1,beta2=0.95")
steps.add("products of low rank in place of matrices", "lora", "cross_entropy", "adam", None, ("--lora=w*:2",))
steps.add("products of low rank, with weight decay", "lora", "mse", "adamw:weight_decay=0.1,beta2=0.95", None, ("--lora=w*:2",))
steps.add("the same on a device of OpenCL", "mlp", "cross_entropy", "adam", None, ("--target=opencl",))
# halves: what a step rounds, beside PyTorch's f32 of the same weights
for network in "mlp", "cnn", "lstm", "transformer":
    steps.add(f"{network}, weights of f16", f"{network}.f16", "cross_entropy", "adam", near=2e-3)
    steps.add(f"{network}, weights of bf16", f"{network}.bf16", "cross_entropy", "adam", near=3e-2 if network == "cnn" else 1e-2)
steps.add("products of low rank beside f16", "lora.f16", "cross_entropy", "adam", None, ("--lora=w*:2",), near=2e-3)
for network in "mlp", "cnn", "transformer":
    steps.add(f"{network}, products of bf16", network, "cross_entropy", "adam", None, ("--math=bf16",), near=3e-2 if network == "cnn" else 1e-2)
steps.add("mlp, products of f16", "mlp", "cross_entropy", "adam", None, ("--math=f16",), near=2e-3)
steps.add("the same as C by a compiler", "mlp", "cross_entropy", "adam", None, ("--target=c",))


def check_against_formula(optimizer, step):
    """LAMB and Muon, which PyTorch of the distribution lacks: two steps of one matrix, whose gradient of
    mse is known."""
    folder = T.scratch(SCRATCH / optimizer.split(":")[0])
    w = random_weights({"w": (6, 4)})
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["N", 6])], [("y", ["N", 4])], w)
    x, target = samples(folder, (6,), "mse", 4)
    train(folder, "m.onnx", "--data", "d.npz", "--loss=mse", f"--optimizer={optimizer}", "--epochs=3", "--batch=24",
          "--lr=0.02", "-o", "out.onnx")
    p, state = w["w"].astype(np.float64), {}
    for k in range(3):
        p = step(p, 2 / target.size * x.T.astype(np.float64) @ (x @ p - target), state, k + 1)
    made = weights_of(folder / "out.onnx")["w"]
    expect(np.allclose(made, p, 1e-3, 1e-4), f"{made}\nexpected {p}")
    expect(abs(p - w["w"]).max() > 1e-3, "nothing moved")


def lamb(p, g, s, t):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    u = s["m"] / (1 - 0.9 ** t) / (np.sqrt(s["v"] / (1 - 0.999 ** t)) + 1e-6) + 0.01 * p
    return p - 0.02 * np.linalg.norm(p) / np.linalg.norm(u) * u


def muon(p, g, s, t):
    s["m"] = 0.95 * s.get("m", 0) + g
    y = (g + 0.95 * s["m"]).T
    y = y / (np.linalg.norm(y) + 1e-7)
    for _ in range(5):
        a = y @ y.T
        y = 3.4445 * y + (-4.7750 * a + 2.0315 * a @ a) @ y
    return p * (1 - 0.02 * 0.1) - 0.02 * y.T * np.sqrt(6 / 4)


suite.add("lamb", check_against_formula, "lamb", lamb)
suite.add("muon", check_against_formula, "muon", muon)


@case("lamb where the weights, or their step, are 0")
def lamb_at_zero(folder):
    w = random_weights({"w": (6, 4)})["w"]
    r = np.random.default_rng(2)
    for name, weights, x in ("no step", w, np.zeros((8, 6))), ("no weights", np.zeros_like(w), r.standard_normal((8, 6))):
        save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["N", 6])], [("y", ["N", 4])], {"w": weights})
        np.savez(folder / "d.npz", x=x.astype(np.float32), target=np.ones((8, 4), np.float32))
        train(folder, "m.onnx", "--data", "d.npz", "--loss=mse", "--optimizer=lamb:weight_decay=0", "--epochs=1", "--batch=8", "--lr=0.01", "-o", "out.onnx")
        made = weights_of(folder / "out.onnx")["w"]
        if name == "no step":
            expect((made == w).all(), f"{made}")
        else:       # Adam's first step is the gradient's sign
            expect(np.allclose(made, -0.01 * np.sign(x.T @ -np.ones((8, 4))), 1e-3), f"{made}")


@case("scores whose exponentials are no floats")
def far_scores(folder):
    """Where e^y overflows or is 0, the losses and their slopes do not."""
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["N", 4])], [("y", ["N", 4])], {"w": np.eye(4, dtype=np.float32)})
    x = np.array([[200, -300, 150, 0], [-250, 120, -110, 400]], np.float32)
    given, labels = np.array([[1, 1, 0, 0.5], [0, 0, 1, 1]], np.float32), np.array([1, 3])
    log = x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))
    for loss, target, want, slope in (
            ("bce_with_logits", given, (np.maximum(x, 0) - given * x + np.log1p(np.exp(-abs(x)))).mean(), (1 / (1 + np.exp(-x.astype(float))) - given) / 8),
            ("cross_entropy", labels, -log[[0, 1], labels].mean(), (np.exp(log) - np.eye(4)[labels]) / 2)):
        np.savez(folder / "d.npz", x=x, target=target)
        train(folder, "m.onnx", "--data", "d.npz", f"--loss={loss}", "--optimizer=sgd", "--epochs=1", "--batch=2", "--lr=0.001", "-o", "out.onnx",
              "--log=log.jsonl")
        got = json.loads(open(folder / "log.jsonl").readline())["loss"]
        expect(np.isclose(got, want, 1e-5), f"{loss}: {got}, expected {want}")
        made, wanted = weights_of(folder / "out.onnx")["w"], np.eye(4) - 0.001 * x.T @ slope
        expect(np.allclose(made, wanted, 1e-4, 1e-5), f"{loss}: {made}\nexpected {wanted}")


@case("cross entropy of distributions")
def cross_entropy_of_distributions(folder):
    w = random_weights({"w": (6, 4)})
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["N", 6])], [("y", ["N", 4])], w)
    x, _ = samples(folder, (6,), "mse", 4)
    target = np.random.default_rng(8).dirichlet(np.ones(4), len(x)).astype(np.float32)
    np.savez(folder / "d.npz", x=x, target=target)
    train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=sgd", "--epochs=3", "--batch=24", "--lr=0.5",
          "-o", "out.onnx", "--log=log.jsonl")
    p, want = w["w"].astype(np.float64), []
    for _ in range(3):
        y = x @ p
        log = y - np.log(np.exp(y).sum(1, keepdims=True))
        want.append(-(target * log).sum(1).mean())
        p = p - 0.5 * x.T @ (np.exp(log) - target) / len(x)
    got = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    expect(np.allclose(got, want, 1e-4), f"losses {got}, expected {want}")
    expect(np.allclose(weights_of(folder / "out.onnx")["w"], p, 1e-3, 1e-4), "other weights than by the formula")


# --------------------------------------------------------------------------- what people do with it

def digits(folder):
    r = np.random.default_rng(1)
    for name, n in ("digits.npz", 600), ("valid.npz", 200):
        x, labels = train_digits.pictures(r, n)
        np.savez(folder / name, picture=x.reshape(n, 64).astype(np.float32), target=labels)


@case("the digits from random weights to a model of onnx runtime")
def the_digits_from_random_weights_to_a_model_of_onnx_runtime(folder):
    digits(folder)
    done = train(folder, DIGITS, "--data", "digits.npz", "--valid", "valid.npz", "--loss=cross_entropy",
                 "--optimizer=adam", "--lr=0.01", "--init=1", "-o", "trained.onnx", "--log=log.csv", "--json",
                 "--plot=curves.svg")
    said = json.loads(done.out.splitlines()[-1])
    expect(said["valid_accuracy"] > 0.95, f"{said}")
    data = np.load(folder / "valid.npz")
    session = onnxruntime.InferenceSession(folder / "trained.onnx")
    right = sum(session.run(None, {"picture": x[None]})[0].argmax() == t for x, t in zip(data["picture"], data["target"]))
    expect(right / 200 == said["valid_accuracy"], f"{right} of 200 by ONNX Runtime, {said}")
    rows = list(csv.DictReader(open(folder / "log.csv")))
    expect(len(rows) == 10 and set(rows[0]) == {"epoch", "step", "loss", "seconds", "valid_loss", "accuracy", "valid_accuracy"},
           f"{rows}")
    expect(done.err.count("\nepoch ") == 10 and "softmax" in done.err, done.err)
    picture = xml.etree.ElementTree.parse(folder / "curves.svg").getroot()
    lines = [p.get("d") for p in picture.iter() if p.get("class") == "line"]
    expect(len(lines) == 4 and all(line.count("L") == 9 for line in lines), f"{lines}")
    heights = [float(point.split()[1]) for point in lines[0][1:].split("L")]
    expect(heights[0] < heights[-1] and heights == sorted(heights), f"the loss of the picture does not fall: {heights}")


@case("the form of the files does not matter")
def the_form_of_the_files_does_not_matter(folder):
    mlp(folder, 4)
    r = np.random.default_rng(2)
    x, t = r.integers(-50, 50, (40, 6)).astype(np.float32), r.integers(0, 4, 40).astype(np.uint8)
    np.save(folder / "x.npy", x)
    np.save(folder / "t.npy", t)
    np.savez_compressed(folder / "d.npz", x=x, target=t)
    with gzip.open(folder / "t.gz", "wb") as f:
        f.write(struct.pack(">BBBBI", 0, 0, 8, 1, 40) + t.tobytes())
    with open(folder / "d.csv", "w") as f:
        f.write("a,b,c,class,d,e,f\n")
        for row, k in zip(x, t):
            f.write(",".join([*(f"{v:g}" for v in row[:3]), f"kind {k}", *(f"{v:g}" for v in row[3:])]) + "\n")
    made = []
    for words in (["--data", "d.npz"], ["--data", "x=x.npy", "--data", "target=t.npy"],
                  ["--data", "x=x.npy", "--data", "target=t.gz"], ["--data", "x=d.csv", "--target-column=class"],
                  ["--data", "d.csv", "--target-column=class"]):
        train(folder, "m.onnx", *words, "--loss=cross_entropy", "--epochs=2", "-o", "out.safetensors")
        made.append((folder / "out.safetensors").read_bytes())
    expect(len(set(made)) == 1, f"sizes {[len(m) for m in made]}, not the same bytes")


@case("pictures of one channel without an axis for it, as MNIST's files have them")
def pictures_without_a_channel(folder):
    w = random_weights({"c": (4, 1, 3, 3), "w": (144, 3)})
    save(folder / "m.onnx", [helper.make_node("Conv", ["x", "c"], ["v"]), helper.make_node("MaxPool", ["v"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
                             helper.make_node("Flatten", ["p"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])],
         [("x", ["N", 1, 14, 14])], [("y", ["N", 3])], w)
    r = np.random.default_rng(6)
    x, t = r.integers(0, 256, (30, 14, 14)).astype(np.uint8), r.integers(0, 3, 30).astype(np.uint8)
    np.savez(folder / "whole.npz", x=x[:, None], target=t)
    for name, array in ("x", x), ("t", t):
        (folder / name).write_bytes(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())
    made = []
    for way in (["whole.npz"], ["x=x", "--data", "target=t"]):
        train(folder, "m.onnx", "--data", *way, "--valid", *(word.replace("--data", "--valid") for word in way), "--loss=cross_entropy",
              "--augment=shift:2,normalize:127:64", "--epochs=3", "--batch=8", "-o", "out.safetensors")
        made.append((folder / "out.safetensors").read_bytes())
    expect(made[0] == made[1], "other weights than with the axis")
    np.savez(folder / "wide.npz", x=x[:, None, :, :13], target=t)
    np.savez(folder / "flat.npz", x=x.reshape(30, 196), target=t)
    for name, shape in ("wide", "u8[30, 1, 14, 13]"), ("flat", "u8[30, 196]"):
        refuse(folder, ["m.onnx", "--data", f"{name}.npz", "--loss=cross_entropy", "-o", "out.onnx"], shape, "another shape")


def png(grey):
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + row.tobytes() for row in grey)
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0))
            + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


@case("pictures of a folder are laid out as the model says")
def pictures_of_a_folder_are_laid_out_as_the_model_says(folder):
    cnn(folder)
    r = np.random.default_rng(4)
    for k in range(12):
        (folder / "data" / "abc"[k % 3]).mkdir(parents=True, exist_ok=True)
        shade = np.full((12, 12), 60 * (k % 3) + 40) + r.integers(0, 9, (12, 12))
        (folder / "data" / "abc"[k % 3] / f"{k}.png").write_bytes(png(shade.astype(np.uint8)))
    m = onnx.load(folder / "m.onnx")
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    for i in m.graph.initializer:
        if i.name == "c1":
            i.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(i)[:, :1], "c1"))
    onnx.save(m, folder / "m.onnx")
    done = train(folder, "m.onnx", "--data", "data", "--augment=shift:1,flip,normalize:127:64", "--loss=cross_entropy",
                 "--epochs=20", "--lr=0.02", "-o", "out.onnx", "--json")
    expect(json.loads(done.out)["accuracy"] > 0.9, done.out)


@case("a model of one sample learns in batches")
def a_model_of_one_sample_learns_in_batches(folder):
    for name, batch in ("one", [1]), ("open", ["N"]), ("five", [5]), ("none", []):
        (folder / name).mkdir()
        mlp(folder / name, batch=batch)
        samples(folder / name, (6,), "cross_entropy", n=22)
        train(folder / name, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=sgd:momentum=0.9",
              "--epochs=3", "--batch=8", "-o", "out.onnx")
    want = weights_of(folder / "open" / "out.onnx")
    for name in "one", "five", "none":
        for k, v in weights_of(folder / name / "out.onnx").items():
            expect(np.allclose(v, want[k], 1e-4, 1e-5), f"{name} {k}: {abs(v - want[k]).max()}")


@case("what a step of a network with batch norms keeps for its backward part")
def memory(folder):
    """Of 64 pictures. What the first two layers make is 4.7 and 3.3 MB, which stays; the other values are functions of these. Where
    a pool's maxima are is a byte each, 0.8 MB. The gradient of the first is 4.7 MB, that of the second between zeros 6.4."""
    for optimizer in "adam", "sgd":
        T.must(T.run([TGC, MNIST, "-o", "net.c", "--train", "--loss=cross_entropy", f"--optimizer={optimizer}", "--batch=64"], cwd=folder))
        arena = int(re.search(r"NET_ARENA_BYTES (\d+)", (folder / "net.h").read_text())[1])
        expect(arena < 14.8e6, f"{optimizer}: an arena of {arena} bytes")


def dropping(folder):
    """Four layers, after each of which elements drop."""
    w = random_weights({f"w{k}": (32, 32) for k in range(4)} | {"w": (32, 3)})
    nodes = [n for k in range(4) for n in (helper.make_node("MatMul", [f"h{k}" if k else "x", f"w{k}"], [f"m{k}"]), helper.make_node("Gelu", [f"m{k}"], [f"g{k}"]),
                                           helper.make_node("Dropout", [f"g{k}", "half"], [f"h{k + 1}"]))]
    save(folder / "m.onnx", [*nodes, helper.make_node("MatMul", ["h4", "w"], ["y"])], [("x", ["N", 32])], [("y", ["N", 3])], w | {"half": np.float32(0.5)})
    return w


def check_bound(network, shape, least_share):
    """The losses and weights of a training without a bound, by the least bound that is possible and by one between; then
    emitted. Each bound takes up to eight compiles, so the quick form has a part of this."""
    folder = T.scratch(SCRATCH / f"bound-{network.__name__}")
    network(folder)
    samples(folder, shape, "cross_entropy")
    words = ["m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=adam", "--lr=1e-3", "--epochs=4", "--batch=24"]
    train(folder, *words, "-o", "want.onnx", "--log=want.jsonl")
    want = [json.loads(line)["loss"] for line in open(folder / "want.jsonl")]
    refused = train(folder, *words, "-o", "no.onnx", "--train-memory=1K", status=1).err
    least, whole = map(int, re.search(r"a step takes at least (\d+) bytes .*, and (\d+) where nothing", refused).groups())
    expect(least < least_share * whole and not (folder / "no.onnx").exists(), refused)
    expect(re.search(r"the largest tensors are f32\[[\d,]+\] \(\d+ bytes\) of \w+[,;] ", refused), refused)
    between = (least + whole) // 2 if least_share < 1 else whole - 1   # threads that share a kernel keep its tensors apart
    for bound in (least, between) if OPTIONS.all else (between,):
        done = train(folder, *words, "-o", "out.onnx", "--log=log.jsonl", f"--train-memory={bound}")
        need = int(re.search(r"a step takes (\d+) bytes of \d+: \d+ values of \d+ bytes are computed again, \d+ % of", done.err)[1])
        expect(need <= bound < whole, f"{need} of {bound}:\n{done.err}")
        got = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
        expect(np.allclose(got, want, 1e-5), f"{bound}: losses {got}, without a bound {want}")
        for name, v in weights_of(folder / "want.onnx").items():
            made = weights_of(folder / "out.onnx")[name]
            expect(abs(made - v).mean() < 2e-5 and abs(made - v).max() < 1e-3, f"{bound}: {name}: {abs(made - v).max()}")
    first = (folder / "out.onnx").read_bytes()
    train(folder, *words, "-o", "out.onnx", f"--train-memory={bound}", "--threads=3")
    expect((folder / "out.onnx").read_bytes() == first, "3 threads make other weights")
    if not OPTIONS.all and network is not cnn:
        return
    emit = [TGC, "m.onnx", "-o", "net.c", "--train", "--loss=cross_entropy", "--batch=24"]
    refused = T.must(T.run([*emit, "--train-memory=1"], cwd=folder), 1).err
    least = int(re.search(r"at least (\d+) bytes", refused)[1])
    T.must(T.run([*emit, f"--train-memory={least}"], cwd=folder))
    arena = int(re.search(r"NET_ARENA_BYTES (\d+)", (folder / "net.h").read_text())[1])
    expect(least <= arena < least + 1024, f"an arena of {arena} bytes, at least {least}")
    info = [TGC, "info", "m.onnx", "--train", "--loss=cross_entropy", "--batch=24"]
    lines = T.must(T.run(info, cwd=folder)).out.decode()
    expect(re.search(r"a step: \d+ bytes beside parameters and states\nkept for the gradients: \d+ tensors, \d+ bytes\n    f32\[", lines) and
           "computed again" not in lines, lines)
    lines = T.must(T.run([*info, f"--train-memory={least}"], cwd=folder)).out.decode()
    expect(re.search(r"computed again: \d+ values, \d+ bytes, \d+ % of the forward pass's operations\n    \w+\[", lines), lines)
    told = json.loads(T.must(T.run([*info, f"--train-memory={least}", "--json"], cwd=folder)).out)["training"]
    expect(told["step_bytes"] <= least < told["step_bytes_kept"] and 0 < told["again_share"] < 1, told)
    for of in "kept", "again":
        expect(told[of] and sum(v["bytes"] for v in told[of]) == told[f"{of}_bytes"], told)


def gpt(layers):
    """A .tg of layers that are equal but for their weights: attention, and two products, of 16 tokens."""
    lines = ["tg 1", "input %x : f32[N<=4, 16, 32]"]

    def weight(name, *shape):
        init = f"kaiming_uniform(seed={len(lines)})" if len(shape) > 1 else "zeros()" if name[0] == "b" else "ones()"
        lines.append(f"param %{name} : f32{list(shape)} = {init}")
        return f"%{name}"

    def put(text):
        lines.append(f"%v{len(lines)} = {text}")
        return f"%v{len(lines) - 1}"

    def linear(x, name, taken, made):
        return put(f"linear({x}, {weight(f'w{name}', made, taken)}, {weight(f'b{name}', made)})")

    def norm(x, name):
        return put(f"layer_norm({x}, {weight(f'g{name}', 32)}, {weight(f'b{name}', 32)})")

    def heads(x):
        x = put(f"reshape({x}) {{shape=[N, 16, 2, 16]}}")
        return put(f"transpose({x}) {{perm=[0, 2, 1, 3]}}")
    x = "%x"
    for i in range(layers):
        h = norm(x, f"n{i}")
        q, k, v = (heads(linear(h, f"{part}{i}", 32, 32)) for part in "qkv")
        a = put(f"attention({q}, {k}, {v}) {{causal=true}}")
        a = put(f"transpose({a}) {{perm=[0, 2, 1, 3]}}")
        a = put(f"reshape({a}) {{shape=[N, 16, 32]}}")
        x = put(f"add({x}, {linear(a, f'o{i}', 32, 32)})")
        h = linear(norm(x, f"m{i}"), f"f{i}", 32, 64)
        h = put(f"gelu({h})")
        x = put(f"add({x}, {linear(h, f'p{i}', 64, 32)})")
    y = linear(put(f"reduce_mean({x}) {{axes=[1]}}"), "l", 32, 10)
    return "\n".join([*lines, f"output {y}", ""])


@case("layers of a training that are alike are compiled once, in memory linear in their number")
def twins(folder):
    compiled, nbytes = [], []
    for layers in 2, 4, 6:
        (folder / "m.tg").write_text(gpt(layers))
        done = T.must(T.run([TGC, "info", "m.tg", "--train", "--loss=cross_entropy", "--batch=4", "--passes", "--json"], cwd=folder))
        passes = {p["name"]: p for p in json.loads(done.out)["passes"]}
        compiled.append(passes["linearize"]["runs"])
        nbytes.append(sum(p["bytes"] for p in passes.values()))
    expect(compiled[2] <= compiled[0] + 4, f"kernels compiled of 2, 4, 6 layers: {compiled}")
    expect(nbytes[2] < 3 * nbytes[0], f"bytes of 2, 4, 6 layers: {nbytes}")


suite.add("a bound of memory: eight layers with batch norms", check_bound, deep, (2, 12, 12), 0.65)
suite.add("a bound of memory: pools", check_bound, cnn, (2, 12, 12), 1)
suite.add("a bound of memory: a transformer's block, of tokens", check_bound, transformer, None, 0.65)
suite.add("a bound of memory: what drops is computed again alike", check_bound, dropping, (32,), 0.95)


@case("threads seeds and what is frozen")
def threads_seeds_and_what_is_frozen(folder):
    w = cnn(folder)
    samples(folder, (2, 12, 12), "cross_entropy", n=50)
    def run(*words):
        train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--epochs=2", "--batch=16", *words, "-o", "out.onnx")
        return (folder / "out.onnx").read_bytes()
    first = run()
    expect(run("--threads=3") == first, "3 threads make other weights")
    expect(run("--seed=1") != first, "another seed makes the same weights")
    expect(run("--init=4") != run("--init=5"), "the initial weights do not depend on --init")
    run("--freeze=c*", "--freeze=scale1", "--freeze=mean2")
    for name, v in weights_of(folder / "out.onnx").items():
        is_frozen = name in ("c1", "c2", "scale1", "mean2")
        expect((v == w[name]).all() == is_frozen, f"{name} is {'changed' if is_frozen else 'as before'}")


@case("a dropout draws anew in each run, alike for a seed, and not when it is measured")
def dropout(folder):
    """y = 2 x or 0, so the mean square of y is four times the share that is kept."""
    w = {"w": np.eye(6, dtype=np.float32), "half": np.float32(0.5)}
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Dropout", ["h", "half"], ["y"])],
         [("x", ["N", 6])], [("y", ["N", 6])], w)
    np.savez(folder / "d.npz", x=np.ones((500, 6), np.float32), target=np.zeros((500, 6), np.float32))

    def losses(*words):
        done = train(folder, "m.onnx", "--data", "d.npz", "--loss=mse", "--lr=1e-12", "--batch=250", "--epochs=4", *words,
                     "-o", "out.onnx", "--json", "--log=log.jsonl")
        expect(abs(json.loads(done.out)["loss"] - 1) < 1e-6, f"dropped while it is measured: {done.out}")
        return [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    first = losses()
    expect(len(set(first)) == 4 and all(abs(v / 4 - 0.5) < 4 * 0.5 / 3000 ** 0.5 for v in first), f"shares {np.divide(first, 4)}")
    expect(losses("--threads=2") == first != losses("--seed=1"), "the draws are not of the seed alone")
    expect(losses("-O0") == first, "-O0 draws otherwise")
    train(folder, "m.onnx", "--data", "d.npz", "--loss=mse", "--epochs=1", "-o", "out.tg")
    expect("draw" not in (folder / "out.tg").read_text(), "the written text draws")


@case("what an exporter merged is trained apart")
def what_an_exporter_merged_is_trained_apart(folder):
    """PyTorch writes a new batch norm's running mean as an Identity of its bias."""
    cnn(folder)
    m = onnx.load(folder / "m.onnx")
    drop = {"mean1", "var1"}
    kept = [i for i in m.graph.initializer if i.name not in drop and i.name != "scale1"]
    del m.graph.initializer[:]
    m.graph.initializer.extend([*kept, numpy_helper.from_array(np.ones(4, np.float32), "scale1")])
    m.graph.node.insert(0, helper.make_node("Identity", ["shift1"], ["mean1"]))
    m.graph.node.insert(0, helper.make_node("Identity", ["scale1"], ["var1"]))
    onnx.save(m, folder / "m.onnx")
    x, _ = samples(folder, (2, 12, 12), "cross_entropy", n=16)
    train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--epochs=1", "--batch=16", "-o", "out.onnx")
    made = onnx.load(folder / "out.onnx")
    constants = {n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in made.graph.node if n.op_type == "Constant"}
    w = {i.name: numpy_helper.to_array(i) for i in m.graph.initializer}
    got = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    expect(np.isfinite(got).all() and set(constants) == drop, f"{set(constants)}")
    import torch_free
    r = torch_free.conv_relu(x, w["c1"], w["d1"])
    expect(np.allclose(constants["mean1"], 0.1 * r.mean((0, 2, 3)), 1e-4, 1e-5), f"{constants['mean1']}")
    expect(np.allclose(constants["var1"], 0.9 + 0.1 * r.var((0, 2, 3)), 1e-4, 1e-5), f"{constants['var1']}")


@case("by LLVM in this process without a C compiler; as C where there is no LLVM")
def by_llvm_or_c(folder):
    mlp(folder)
    samples(folder, (6,), "cross_entropy")
    (folder / "empty").mkdir()
    words = ["m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--epochs=3", "--batch=24"]
    there = {k: v for k, v in os.environ.items() if k not in ("CC", "TGC_LLVM")}
    alone, none = there | {"PATH": str(folder / "empty")}, {"TGC_LLVM": "99"}
    train(folder, *words, "-o", "llvm.onnx", env=alone)
    train(folder, *words, "-o", "c.onnx", "--target=c", env=there)
    train(folder, *words, "-o", "else.onnx", env=there | none)
    expect((folder / "llvm.onnx").read_bytes() == (folder / "c.onnx").read_bytes() == (folder / "else.onnx").read_bytes(), "other weights")
    done = train(folder, *words, "-o", "no.onnx", env=alone | none, status=1)
    expect("install a C compiler" in done.err and "LLVM, which needs no C compiler, does not run the model either" in done.err, done.err)
    done = train(folder, *words, "-o", "no.onnx", "--target=c", env=alone, status=1)
    expect("cannot run 'cc'" in done.err and not (folder / "no.onnx").exists(), done.err)


@case("products of low rank: what is written, kept and refused")
def products_of_low_rank(folder):
    digits(folder)
    T.must(T.run([TGC, DIGITS, "-o", "base.onnx"], cwd=folder))
    base = weights_of(folder / "base.onnx")
    words = ["base.onnx", "--data", "digits.npz", "--valid", "valid.npz", "--loss=cross_entropy", "--lr=0.01", "--epochs=4", "--json"]
    train(folder, *words, "--checkpoint=all", "-o", "all.onnx")
    done = train(folder, *words, "--lora=*.weight:3", "--checkpoint=few", "-o", "few.onnx")
    expect("4 weights with 366 elements train, 2 are frozen" in done.err, done.err)
    data, session = np.load(folder / "valid.npz"), onnxruntime.InferenceSession(folder / "few.onnx")
    right = sum(session.run(None, {"picture": x[None]})[0].argmax() == t for x, t in zip(data["picture"], data["target"]))
    said = json.loads(done.out)
    expect(right / 200 == said["valid_accuracy"] > 0.9, f"{right} of 200 by ONNX Runtime, {said}")
    for name, v in weights_of(folder / "few.onnx").items():
        change = (v - base[name]).astype(np.float64)
        expect(change.any() == (v.ndim == 2), f"{name} is {'changed' if change.any() else 'as before'}")
        if v.ndim == 2:
            sizes = np.linalg.svd(change, compute_uv=False)
            expect(sizes[2] > 1e-3 > 1e-4 > sizes[3], f"the change of {name} is not of rank 3: {sizes}")
    sizes = [(folder / kept / "checkpoint").stat().st_size for kept in ("all", "few")]
    expect(sizes[0] - sizes[1] > 12 * (1810 - 366) * 0.9, f"checkpoints of {sizes} bytes: the optimizer's states are not fewer")
    few = (folder / "few.onnx").read_bytes()
    again = [*words, "--lora=*.weight:3", "-o", "few.onnx"]
    train(folder, *again, "--threads=2")
    expect((folder / "few.onnx").read_bytes() == few, "2 threads make other weights")
    want = weights_of(folder / "few.onnx")
    train(folder, *again, "--target=c")
    for name, v in weights_of(folder / "few.onnx").items():
        expect(np.allclose(v, want[name], 1e-3, 1e-4), f"{name} by a C compiler: {abs(v - want[name]).max()}")
    train(folder, *[w.replace("--epochs=4", "--epochs=2") for w in again], "--checkpoint=two")
    train(folder, *again, "--checkpoint=two", "--resume")
    expect((folder / "few.onnx").read_bytes() == few, "other weights than without a break")
    train(folder, *again, "--seed=1")
    expect((folder / "few.onnx").read_bytes() != few, "the seed does not matter")
    last = ["-o", "no.onnx"]
    refuse(folder, [*words, *last, "--lora=*.weight:4", "--checkpoint=two", "--resume"], "is of another training")
    refuse(folder, [*words, *last, "--lora=hidden.weight"], "NAME:RANK")
    refuse(folder, [*words, *last, "--lora=hidden.weight:0"], "a number from 1")
    refuse(folder, [*words, *last, "--lora=hidden.weight:25"], "the rank of the weight 'hidden.weight'", "at most 24")
    refuse(folder, [*words, *last, "--lora=*:2"], "f32[24]", "name matrices alone")
    refuse(folder, [*words, *last, "--lora=*.weight:2", "--lora=none*:2"], "--lora=none*:2: no weight")
    refuse(folder, [*words, *last, "--lora=*.weight:2", "--freeze=*"], "--lora=*.weight:2: no weight")
    refuse(folder, [*words, *last, "--lora=*.weight:2", "--init=1"], "--init")
    expect(not (folder / "no.onnx").exists(), "something was written")


@case("products of low rank beside running statistics, and in a table that is read and multiplied")
def products_beside_statistics(folder):
    w = cnn(folder)
    samples(folder, (2, 12, 12), "cross_entropy", n=50)
    rest = ["m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--epochs=2", "--batch=16", "-o", "out.onnx"]
    train(folder, *rest, *(f"--freeze={n}" for n in ("c*", "d*", "s*", "b")))
    want = weights_of(folder / "out.onnx")
    train(folder, *rest, "--lora=w:2")
    for name, v in weights_of(folder / "out.onnx").items():
        follows = name.startswith(("mean", "var"))
        expect((v != w[name]).any() == (follows or name == "w"), f"{name} is {'changed' if (v != w[name]).any() else 'as before'}")
        expect(not follows or np.allclose(v, want[name], 1e-5, 1e-6), f"{name}: {v}, expected {want[name]}")
    train(folder, *rest, "--lora=w:2", "--freeze=mean*", "--freeze=var*")
    expect((weights_of(folder / "out.onnx")["mean1"] == w["mean1"]).all(), "frozen statistics follow")

    transformer(folder)
    samples(folder, None, "cross_entropy")
    done = train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--epochs=6", "--batch=8", "--lora=w*:2", "--lora=table:4",
                 "--lr=0.01", "-o", "out.onnx", "--json", "--log=log.jsonl")
    data = np.load(folder / "d.npz")
    y = onnxruntime.InferenceSession(folder / "out.onnx").run(None, {"x": data["x"]})[0].astype(np.float64)
    log = y - np.log(np.exp(y).sum(2, keepdims=True))
    loss = -np.take_along_axis(log, data["target"][:, :, None], 2).mean()
    said, rows = json.loads(done.out)["loss"], [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    expect(abs(loss - said) < 1e-4 and said < rows[0] - 0.05, f"{loss} by ONNX Runtime, {said} said, {rows} by epoch")


# -------------------------------------------------------------------------------------- going on

@case("a training that is killed goes on to the same bytes")
def a_training_that_is_killed_goes_on_to_the_same_bytes(folder):
    cnn(folder)
    samples(folder, (2, 12, 12), "cross_entropy", n=200)
    words = ["m.onnx", "--data", "d.npz", "--valid", "d.npz", "--loss=cross_entropy", "--batch=16", "--epochs=12"]
    train(folder, *words, "-o", "want.onnx", "--log=want.jsonl")
    kills = 0
    for attempt in range(40):
        run = subprocess.Popen([TGC, "train", *words, "--checkpoint=kept", "--resume", "-o", "got.onnx", "--log=got.jsonl"],
                               cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        seen = 0
        for line in run.stderr:
            seen += line.startswith("epoch")
            if seen == 2 and kills < 3:
                run.send_signal(signal.SIGKILL)
                kills += 1
                break
        run.stderr.read()
        if run.wait() == 0:
            break
    expect(kills == 3 and run.returncode == 0, f"{kills} kills, status {run.returncode}")
    expect((folder / "got.onnx").read_bytes() == (folder / "want.onnx").read_bytes(), "other weights than without a break")
    want, got = ([json.loads(s) for s in open(folder / n)] for n in ("want.jsonl", "got.jsonl"))
    by_epoch = {e["epoch"]: e for e in got}
    for e in want:
        expect(by_epoch[e["epoch"]] | {"seconds": 0} == e | {"seconds": 0}, f"{by_epoch[e['epoch']]}, without a break {e}")


@case("a checkpoint of another training or a damaged one")
def a_checkpoint_of_another_training_or_a_damaged_one(folder):
    mlp(folder)
    samples(folder, (6,), "cross_entropy")
    words = ["m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--checkpoint=kept", "-o", "out.onnx"]
    train(folder, *words, "--epochs=2")
    done = train(folder, *words, "--epochs=4", "--resume")
    expect(done.err.count("\nepoch ") == 2 and "\nepoch 3/4" in done.err, f"not epochs 3 and 4:\n{done.err}")
    refuse(folder, [*words, "--resume", "--batch=4"], "is of another training")
    refuse(folder, [*words, "--resume", "--optimizer=sgd"], "is of another training")
    whole = (folder / "kept" / "checkpoint").read_bytes()
    turned = [bytes([*whole[:k], whole[k] ^ 1, *whole[k + 1:]]) for k in (len(whole) // 2, len(whole) - 40, 90)]
    for damaged in whole[:100], whole[:-1], whole + b"x", b"", *turned:
        (folder / "kept" / "checkpoint").write_bytes(damaged)
        refuse(folder, [*words, "--resume"], "is no complete checkpoint")


@case("early stop writes the best epoch")
def early_stop_writes_the_best_epoch(folder):
    mlp(folder)
    samples(folder, (6,), "cross_entropy", n=24)
    np.savez(folder / "v.npz", **dict(zip(("x", "target"), samples(folder, (6,), "cross_entropy", n=40, seed=9))))
    samples(folder, (6,), "cross_entropy", n=24)
    done = train(folder, "m.onnx", "--data", "d.npz", "--valid", "v.npz", "--loss=cross_entropy", "--lr=0.03", "--epochs=400",
                 "--early-stop=3", "-o", "out.onnx", "--log=log.jsonl", "--json")
    rows = [json.loads(line) for line in open(folder / "log.jsonl")]
    best = min(rows, key=lambda r: r["valid_loss"])
    said = json.loads(done.out)
    train(folder, "m.onnx", "--data", "d.npz", "--valid", "v.npz", "--loss=cross_entropy", "--lr=0.03", "--epochs=3",
          "--early-stop=3", "--checkpoint=kept", "-o", "three.onnx")
    later = train(folder, "m.onnx", "--data", "d.npz", "--valid", "v.npz", "--loss=cross_entropy", "--lr=0.03", "--epochs=200",
                  "--checkpoint=kept", "--resume", "-o", "all.onnx", "--json")
    expect(json.loads(later.out)["epoch"] == 200, f"without --early-stop the last epoch is written: {later.out}")
    expect(len(rows) == best["epoch"] + 3 < 400, f"{len(rows)} epochs, the best is {best}")
    expect(said["epoch"] == best["epoch"] and abs(said["valid_loss"] - best["valid_loss"]) < 1e-6, f"{said}, best {best}")


# ------------------------------------------------------------------------------- the loss's scale

def scaled(folder, x, *words, target=0.):
    """y = x w of one sample, whose sums have one order: the rows of the log, and the weights."""
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["N", 2])], [("y", ["N", 2])], {"w": np.eye(2, dtype=np.float32)})
    np.savez(folder / "d.npz", x=np.full((1, 2), x, np.float32), target=np.full((1, 2), target, np.float32))
    done = train(folder, "m.onnx", "--data", "d.npz", "--loss=mse", "-o", "out.onnx", "--log=log.jsonl", "--json", *words)
    return [json.loads(line) for line in open(folder / "log.jsonl")], weights_of(folder / "out.onnx")["w"], json.loads(done.out)


@case("a scale of the loss that is dynamic: steps without a finite gradient are none")
def dynamic_scale(folder):
    """The gradient is 1e36, and finite times 256: the scale is halved eight times. Powers of two change no other bit."""
    for optimizer in "--optimizer=sgd", "--optimizer=adam", "--optimizer=adamw:weight_decay=0.1":
        words = (1e18, optimizer, "--lr=1e-20" if "sgd" not in optimizer else "--lr=1e-38")
        rows, made, said = scaled(folder, *words, "--loss-scale=dynamic", "--epochs=14")
        expect([r["loss_scale"] for r in rows] == [max(2**16 / 2**k, 256.) for k in range(1, 15)] and
               [r["skipped"] for r in rows] == [min(k, 8) for k in range(1, 15)], f"{rows}")
        expect(said["skipped"] == 8 and said["loss_scale"] == 256, f"{said}")
        plain, want, said = scaled(folder, *words, "--epochs=6")
        expect("loss_scale" not in said and "loss_scale" not in plain[0], f"{plain[0]}, {said}")
        expect([r["loss"] for r in rows[8:]] == [r["loss"] for r in plain] and (made == want).all(), f"{optimizer}: {made}, without a scale {want}")
        fixed, made, _ = scaled(folder, *words, "--loss-scale=64", "--epochs=6")
        expect((made == want).all(), f"{optimizer}, 64: {made}, without a scale {want}")
    by_adamw = rows
    scaled(folder, *words, "--loss-scale=dynamic", "--epochs=3", "--checkpoint=kept")
    train(folder, "m.onnx", "--data", "d.npz", "--loss=mse", *words[1:], "--loss-scale=dynamic", "--epochs=14", "--checkpoint=kept", "--resume",
          "-o", "got.onnx", "--log=got.jsonl")
    expect((weights_of(folder / "got.onnx")["w"] == want).all(), "other weights after a break")
    got = [json.loads(line) for line in open(folder / "got.jsonl")]
    expect([r | {"seconds": 0} for r in got] == [r | {"seconds": 0} for r in by_adamw[3:]], f"{got}")
    train(folder, "m.onnx", "--data", "d.npz", "--loss=mse", *words[1:], "--loss-scale=dynamic", "--epochs=2", "-o", "two.onnx", "--log=log.csv")
    last = list(csv.DictReader(open(folder / "log.csv")))[-1]
    expect(last["loss_scale"] == "16384" and last["skipped"] == "2", f"{last}")
    refuse(folder, ["m.onnx", "--data", "d.npz", "--loss=mse", *words[1:], "--epochs=20", "--checkpoint=kept", "--resume", "-o", "no.onnx"],
           "is of another training")


@case("a scale of the loss doubles after 2000 steps, and in runs that add up")
def growing_scale(folder):
    rows, made, _ = scaled(folder, 1, "--loss-scale=dynamic", "--epochs=2003", "--lr=1e-6", "--optimizer=sgd")
    expect([r["loss_scale"] for r in rows] == [2.**16] * 1999 + [2.**17] * 4, f"{[(r['epoch'], r['loss_scale']) for r in rows if r['epoch'] > 1990]}")
    mlp(folder, batch=[5])
    samples(folder, (6,), "cross_entropy")
    made = []
    for word in "--loss-scale=1", "--loss-scale=dynamic", "--loss-scale=1024":
        train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--batch=15", "--epochs=3", word, "-o", "out.onnx")
        made.append((folder / "out.onnx").read_bytes())
    expect(made[0] == made[1] == made[2], "runs that add up: other weights than without a scale")


@case("no scale makes a gradient finite, and what is no scale")
def no_scale(folder):
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Sqrt", ["h"], ["y"])], [("x", ["N", 2])], [("y", ["N", 2])],
         {"w": np.eye(2, dtype=np.float32)})
    np.savez(folder / "d.npz", x=np.zeros((1, 2), np.float32), target=np.ones((1, 2), np.float32))
    words = ["m.onnx", "--data", "d.npz", "--loss=mse", "-o", "out.onnx"]
    refuse(folder, [*words, "--loss-scale=dynamic", "--epochs=200"], "no scale of the loss makes all gradients finite", "166 of 166 steps")
    expect(not (folder / "out.onnx").exists(), "something was written")
    for word in "0", "-1", "large", "", "nan", "1e40":
        refuse(folder, [*words, f"--loss-scale={word}"], "--loss-scale", "a positive number or dynamic")


@case("models of halves: inputs, dtypes, bounds")
def models_of_halves(folder):
    """Files of f32 feed inputs of f16 and bf16; what is written is of the model's dtype, computes what was measured, and fits it."""
    for kind in "f16", "bf16":
        mlp(folder)
        halves_of(folder / "m.onnx", kind, inside=False)
        x, target = samples(folder, (6,), "cross_entropy")
        done = train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--lr=0.02", "--epochs=40", "-o", "out.onnx", "--json")
        said = json.loads(done.out)
        expect(("loss_scale" in said) == (kind == "f16") == ("the loss is scaled, dynamically" in done.err), f"{said}\n{done.err}")
        given, made = weights_of(folder / "m.onnx"), weights_of(folder / "out.onnx")
        expect(all(made[n].dtype == w.dtype == KINDS[kind][1] and (made[n] != w).any() for n, w in given.items()), f"{kind}: dtypes, or nothing changed")
        w = {n: v.astype(np.float64) for n, v in made.items()}
        h = x.astype(KINDS[kind][1]).astype(np.float64) @ w["w1"] + w["b1"]
        y = h * 0.5 * (1 + np.vectorize(math.erf)(h / 2**0.5)) @ w["w2"] + w["b2"]
        loss = (np.log(np.exp(y).sum(1)) - y[np.arange(24), target]).mean()
        expect(abs(loss - said["loss"]) < (2e-4 if kind == "f16" else 5e-3) and said["loss"] < 0.6, f"{kind}: {said}, by NumPy {loss}")
        train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--lr=0.02", "--epochs=2", "-o", "out.safetensors")
        head = (folder / "out.safetensors").read_bytes()
        expect(head.count(kind.upper().encode()) == 4, f"{head[:400]}")
    line(folder)
    halves_of(folder / "m.onnx", "f16")
    refuse(folder, ["m.onnx", "--data", "d.npz", "--loss=mse", "--lr=70000", "--epochs=1", "-o", "no.onnx"], "the loss of all samples, after step 1, is inf")
    expect(not (folder / "no.onnx").exists(), "something was written")


# -------------------------------------------------------------------------------- what is not finite

def line(folder, scale=1, op=None, batch="N"):
    """y = x w, or its op; 8 samples with targets 0."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m" if op else "y"], name="product")]
    nodes += [helper.make_node(op, ["m"], ["e"], name="its op"), helper.make_node("MatMul", ["e", "v"], ["y"], name="sum")] if op else []
    weights = {"w": np.eye(2, dtype=np.float32)} | ({"v": np.ones((2, 2), np.float32)} if op else {})
    save(folder / "m.onnx", nodes, [("x", [batch, 2])], [("y", [batch, 2])], weights)
    x = scale * np.linspace(0.5, 1.5, 16, dtype=np.float32).reshape(8, 2)
    np.savez(folder / "d.npz", x=x, target=np.zeros((8, 2), np.float32))
    return x


def stops(folder, *words, data="d.npz"):
    """The messages of a training that ends since something is not finite: nothing is written."""
    done = train(folder, "m.onnx", "--data", data, "--loss=mse", "--optimizer=sgd", "-o", "out.onnx", *words, status=1)
    expect(not (folder / "out.onnx").exists(), "something was written")
    return done.err


def says(text, *parts):
    for part in parts:
        expect(part in text, f"no '{part}' in:\n{text}")


def first_kernel(folder, target):
    """Each begins elsewhere: in an input, in a node of the model, in the step, in what is measured."""
    x = line(folder)
    x[5, 1] = np.nan
    np.savez(folder / "nan.npz", x=x, target=np.zeros((8, 2), np.float32))
    first = "the first kernel whose result is"
    said = stops(folder, "--batch=8", *target, data="nan.npz")
    says(said, "the loss of step 1, in epoch 1, is nan", "--detect-nan names the kernel")
    expect(first not in said, said)
    said = stops(folder, "--batch=8", "--detect-nan", *target, data="nan.npz")
    says(said, "the loss of step 1, in epoch 1, is nan", f"step 1: {first} NaN is", '"product"', "of what it reads: 'x' has 1")
    said = stops(folder, "--batch=8", "--detect-nan", "--valid", "nan.npz", *target)
    says(said, "the loss of --valid, after step 1, is nan", f"the loss measured anew: {first} NaN is", "'x' has 1")

    x = line(folder, op="Exp")
    x[2, 0] = 100
    np.savez(folder / "far.npz", x=x, target=np.zeros((8, 2), np.float32))
    said = stops(folder, "--batch=4", "--lr=1e-6", "--detect-nan", *target, data="far.npz")
    step = next(k for k in (1, 2) if f"the loss of step {k}, in epoch 1, is" in said)
    says(said, f"step {step}: {first} infinite is", '"its op"', "elements of its result that are not finite: 1")
    expect("of what it reads" not in said.partition(first)[2].partition("\n")[0], f"all that it reads is finite:\n{said}")

    line(folder, scale=1e25)    # an output of the program, which has the value of the first run still
    says(stops(folder, "--batch=8", "--detect-nan", *target), "the loss of step 1, in epoch 1, is inf", f"step 1: {first} infinite is", '"loss"')

    line(folder, scale=1e10)
    said = stops(folder, "--batch=4", "--lr=1e29", "--detect-nan", *target)
    says(said, "the loss of step 2, in epoch 1, is", f"step 1: {first} infinite is", "'w' of ", "elements of its result that are not finite: 4")
    said = stops(folder, "--batch=8", "--lr=1e29", "--detect-nan", "--checkpoint=kept", *target)
    says(said, "after step 1, in epoch 1, 4 elements of the weight 'w' are NaN or infinite", f"step 1: {first} infinite is")
    expect(not (folder / "kept" / "checkpoint").exists(), "weights that are not finite were kept")


for name, target in ("", ()), (", as C by a compiler", ("--target=c",)):
    case(f"the first kernel whose result is not finite{name}")(lambda folder, words=target: first_kernel(folder, words))


@case("a loss that grows beyond all floats ends at the step that numpy says, and an older checkpoint stays")
def a_loss_that_grows(folder):
    for batch in "N", 8, 1:     # 1: several runs make a step
        x = line(folder, batch=batch).astype(np.float64)
        w, steps = np.eye(2), 0
        while ((x @ w) ** 2).mean() < 3.4e38:
            w, steps = w - 100 * 2 / 16 * x.T @ x @ w, steps + 1
        expect(3 < steps < 49, f"{steps} steps")
        words = ["--batch=8", "--epochs=50", "--lr=100", "--detect-nan", f"--checkpoint=kept{batch}"]
        said = stops(folder, *words)
        says(said, f"the loss of step {steps + 1}, in epoch {steps + 1}, is inf", f"step {steps + 1}: the first kernel whose result is infinite is", '"loss"')
        expect(said.count("epoch ") == steps + 1, said)
        again = stops(folder, *words, "--resume")
        says(again, f"the loss of step {steps + 1}, in epoch {steps + 1}, is inf")
        expect("epoch 1/" not in again, f"it began anew:\n{again}")


@case("infinities that are meant, and a training in which all goes well")
def infinities_that_are_meant(folder):
    transformer(folder)
    samples(folder, None, "cross_entropy")
    def run(*words):
        train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--epochs=3", "--batch=8", *words, "-o", "out.onnx")
        return (folder / "out.onnx").read_bytes()
    expect(run() == run("--detect-nan"), "--detect-nan changes the weights")
    said = train(folder, "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--epochs=9", "--batch=8", "--lr=1e18", "--optimizer=sgd",
                 "--detect-nan", "-o", "no.onnx", status=1).err
    says(said, "the first kernel whose result is")
    expect(not (folder / "no.onnx").exists(), "something was written")
    (folder / "out.onnx").unlink()
    line(folder)    # the masked scores are stored, for a function in C chooses among them
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Constant", [], ["mask"], value=numpy_helper.from_array(
        np.array([0, -np.inf], np.float32))), helper.make_node("Add", ["m", "mask"], ["s"], name="masked"), helper.make_node("TopK", ["s", "one"], ["y", ""])]
    save(folder / "m.onnx", nodes, [("x", ["N", 2])], [("y", ["N", 1])], {"w": np.eye(2, dtype=np.float32), "one": np.ones(1, np.int64)})
    np.savez(folder / "d.npz", x=np.load(folder / "d.npz")["x"], target=np.zeros((8, 1), np.float32))
    said = stops(folder, "--batch=8", "--epochs=50", "--lr=100", "--detect-nan")
    says(said, "the first kernel whose result is infinite is", '"loss"')
    expect('"masked"' not in said and said.count("note:") == 1, f"the mask's infinities count:\n{said}")


# -------------------------------------------------------------------------------------- mistakes

@case("mistakes")
def mistakes(folder):
    mlp(folder)
    x, target = samples(folder, (6,), "cross_entropy")
    right = ["m.onnx", "--data", "d.npz", "--loss=cross_entropy", "-o", "out.onnx"]
    refuse(folder, right[:3] + right[4:], "--loss")
    refuse(folder, right[:-2], "-o OUT")
    refuse(folder, [*right[:-1], "out.txt"], ".safetensors")
    refuse(folder, ["m.onnx", *right[3:]], "--data")
    refuse(folder, ["m.onnx", "--data", "d.npz", "--loss=entropy", "-o", "out.onnx"], "the losses are cross_entropy, mse")
    refuse(folder, [*right, "--optimizer=adm"], "the optimizers are sgd, adam")
    refuse(folder, [*right, "--optimizer=sgd:beta1=1"], "sgd has no 'beta1'", "momentum")
    refuse(folder, [*right, "--optimizer=adam:beta1=2"], "'beta1' is a number from 0 to 1")
    refuse(folder, [*right, "--batch=100"], "more than the 24 samples")
    refuse(folder, [*right, "--resume"], "--checkpoint")
    refuse(folder, [*right, "--plot=p.png"], ".svg")
    refuse(folder, [*right, "--log=log.txt"], ".jsonl or .csv")
    refuse(folder, [*right, "--early-stop=2"], "--valid")
    for word in "0", "16X", "", "-1":
        refuse(folder, [*right, f"--train-memory={word}"], "--train-memory", "bytes are expected")
    refuse(folder, [*right, "--freeze=*"], "nothing trains", "--freeze")
    refuse(folder, [*right, "--lr=1e20"], "the loss of step", "--lr")
    refuse(folder, [*right, "--detect-nan", "--target=opencl"], "--target=opencl", "on a device")
    refuse(folder, [*right, "--valid", "x=d.npz"], "target")
    refuse(folder, ["m.onnx", "--data", "d.npz", "--loss=mse", "-o", "out.onnx"], "the target is", "f32")
    refuse(folder, ["m.onnx", "--data", "d.npz", "--loss=output:z", "-o", "out.onnx"], "no output 'z'", "'y'")
    refuse(folder, ["m.onnx", "--data", "d.npz", "--loss=output:y", "-o", "out.onnx"], "scalar")
    np.savez(folder / "far.npz", x=x, target=np.where(np.arange(24) == 7, 3, target))
    refuse(folder, ["m.onnx", "--data", "far.npz", *right[3:]], "the target of sample 7 is 3", "0 to 2")
    np.savez(folder / "wide.npz", x=x[:, :5], target=target)
    refuse(folder, ["m.onnx", "--data", "wide.npz", *right[3:]], "f32[24, 5]", "'x'")
    np.savez(folder / "wide.npz", x=np.zeros((24, 6, 5, 7), np.float32), target=target)
    refuse(folder, ["m.onnx", "--data", "wide.npz", "--augment=flip", *right[3:]], "where the channels", "1, 3 or 4")
    np.savez(folder / "other.npz", z=x, target=target)
    refuse(folder, ["m.onnx", "--data", "other.npz", *right[3:]], "nothing for 'x'", "'z'")
    (folder / "cut.npz").write_bytes((folder / "d.npz").read_bytes()[:-40])
    refuse(folder, ["m.onnx", "--data", "cut.npz", *right[3:]], "cut.npz")
    refuse(folder, ["m.onnx", "--data", "none.npz", *right[3:]], "none.npz")
    save(folder / "first.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]),
                                helper.make_node("Slice", ["h", "zero", "two", "zero"], ["y"])], [("x", ["N", 6])], [("y", [2, 3])], {"w": np.ones((6, 3), np.float32), "zero": np.zeros(1, np.int64), "two": np.full(1, 2)})
    refuse(folder, ["first.onnx", *right[1:]], "the target is class numbers [24]")
    np.savez(folder / "three.npz", x=x, target=np.zeros((24, 3), np.float32))
    refuse(folder, ["first.onnx", "--data", "three.npz", "--loss=mse", "-o", "out.onnx"], "the target is [24, 3]", "f32[2, 3]")
    expect(not (folder / "out.onnx").exists(), "something was written")


if __name__ == "__main__":
    suite.main()
