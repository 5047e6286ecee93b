"""tgc --train: the C that trains, step by step beside PyTorch and tgc train; its blocks, threads, compilers and
sanitizers; what it refuses."""

import functools
import gzip
import json
import re
import shutil
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent.parent / "models")]

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import program
import tgc as T
import train_digits
from board import START
from networks import NETWORKS, cnn, mlp, samples, save, weights_of
from program import RATE, STEPS, Made, build, draw, put
from suite import Skip, Suite, expect

suite = Suite("train-c")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "train-c")
DIGITS = HERE.parent.parent / "models" / "digits.tg"
case = suite.folder_case(SCRATCH)
emit = functools.partial(program.emit, TGC)


@functools.cache
def by_torch():
    """The losses of PyTorch's networks, and their weights then."""
    T.need_torch()
    todo = []
    for network in "mlp", "cnn":
        folder = T.scratch(SCRATCH / f"torch-{network}")
        np.savez(folder / "w.npz", **NETWORKS[network][0](folder))
        samples(folder, NETWORKS[network][1], "cross_entropy")
        todo.append({"folder": str(folder), "network": network, "loss": "cross_entropy", "optimizer": "adam", "clip": None,
                     "steps": STEPS})
    (SCRATCH / "todo.json").write_text(json.dumps(todo))
    with open(SCRATCH / "todo.json") as f:
        losses = json.loads(T.must(T.run([T.TORCH, HERE / "reference.py"], stdin=f)).out)
    return dict(zip(("mlp", "cnn"), losses))


def check_beside(network):
    """Of PyTorch's Adam at its learning rate, and of tgc train, which is a program of LLVM's."""
    folder = T.scratch(SCRATCH / f"beside-{network}")
    _, row = draw(network, folder)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24", *T.HERE)
    build(folder, 24, row, 3, rate=0.01)
    made = Made(folder)
    T.must(T.run([TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=adam", "--lr=0.01",
                  f"--epochs={STEPS}", "--batch=24", "--log=log.jsonl", "-o", "out.onnx"], cwd=folder))
    want = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    expect(np.allclose(made.losses, want, 2e-3, 1e-4), f"losses\n{made.losses}, by tgc train\n{want}")
    torch = by_torch()[network]
    expect(np.allclose(made.losses, torch, 2e-3, 1e-4), f"losses\n{made.losses}, by PyTorch\n{torch}")
    expect(made.losses[-1] < 0.3 * made.losses[0], f"nothing was learned: {made.losses}")
    x = np.load(folder / "d.npz")["x"]
    y = onnxruntime.InferenceSession(folder / "out.onnx").run(None, {"x": x})[0]
    expect(np.allclose(made.y.reshape(y.shape), y, 2e-2, 5e-3), f"net_run: {abs(made.y.reshape(y.shape) - y).max()}")
    expect(made.correct == (made.y.reshape(y.shape).argmax(1) == np.load(folder / "d.npz")["target"]).sum(), f"{made.correct}")
    shutil.rmtree(folder)


for network in "mlp", "cnn":
    suite.add(f"{network} for {STEPS} steps beside pytorch and tgc train", check_beside, network)


def check_same(network):
    """The same bytes by any number of threads, interrupted, by gcc and clang; gradients and the update make the step."""
    folder = T.scratch(SCRATCH / f"same-{network}")
    _, row = draw(network, folder)
    words = ["m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24", "--threads=4", *T.HERE]
    emit(folder, *words)
    build(folder, 24, row, 3)
    first = Made(folder, threads=1)
    expect(len(set(first.losses)) > STEPS // 2, "the losses do not change")
    for what, mode, threads in ("4 threads", "train", 4), ("a break", "resume", 2), ("net_gradients and net_update", "apart", 1):
        other = Made(folder, mode, threads=threads)
        expect(other.losses == first.losses and other.params == first.params, f"{what}: other bytes, {other.losses[:3]}")
    if shutil.which("clang"):
        build(folder, 24, row, 3, compiler="clang", exe="other")
        other = Made(folder, exe="other", threads=3)
        expect(other.losses == first.losses and other.params == first.params, "clang: other bytes")
    shutil.rmtree(folder)


for network in "mlp", "cnn":
    suite.add(f"{network} the same bytes", check_same, network)


def check_halves(kind):
    """Parameters are f32, which the model reads rounded; by a dynamic scale of f16, gradients need the optimizer's block."""
    folder = T.scratch(SCRATCH / f"halves-{kind}")
    _, row = draw(f"cnn.{kind}", folder)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24", "--threads=2", *T.HERE)
    build(folder, 24, row, 3, flags=T.SANITIZE, rate=0.01)
    made = Made(folder, steps=20)
    for mode in "resume", "apart":
        other = Made(folder, mode, steps=20, threads=2)
        expect(other.losses == made.losses and other.params == made.params, f"{mode}: other bytes, {other.losses[:3]}")
    T.must(T.run([TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=adam", "--lr=0.01", "--epochs=20",
                  "--batch=24", "--log=log.jsonl", "-o", "out.onnx"], cwd=folder))
    want = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    near = 2e-3 if kind == "f16" else 2e-2
    expect(np.allclose(made.losses, want, near, near), f"losses\n{made.losses}, by tgc train\n{want}")
    weights(folder, "m.onnx", "params.bin", "back.onnx")
    given, back, trained = (weights_of(folder / f"{n}.onnx") for n in ("m", "back", "out"))
    for name, w in given.items():
        got, wanted = back[name].astype(np.float32), trained[name].astype(np.float32)
        expect(back[name].dtype == w.dtype and np.allclose(got, wanted, 20 * near, 10 * near), f"{name}: {abs(got - wanted).max()}")
    shutil.rmtree(folder)


for kind in "f16", "bf16":
    suite.add(f"weights of {kind}", check_halves, kind)


@case("micro-batches add up to the batch, under sanitizers")
def micro_batches(folder):
    """Two runs of 12 samples make the step of 24, but for the order of sums and, of batch norm, the statistics."""
    _, row = draw("mlp", folder)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adamw:weight_decay=0.1", "--clip=0.5", "--batch=24", *T.HERE)
    build(folder, 24, row, 3)
    whole = Made(folder, steps=20)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adamw:weight_decay=0.1", "--clip=0.5", "--batch=12", *T.HERE)
    build(folder, 12, row, 3, runs=2, flags=T.SANITIZE)
    parts = Made(folder, "parts", steps=20)
    expect(np.allclose(parts.losses, whole.losses, 1e-4, 1e-5), f"{parts.losses}, in one run {whole.losses}")


@case("a cnn under sanitizers, as c++ too")
def sanitizers(folder):
    _, row = draw("cnn", folder)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24", "--threads=2", *T.HERE)
    build(folder, 24, row, 3)
    plain = Made(folder, "resume", steps=6)
    build(folder, 24, row, 3, flags=T.SANITIZE)
    for mode in "resume", "apart":
        clean = Made(folder, mode, steps=6)
        expect(clean.losses == plain.losses and clean.params == plain.params, f"{mode}: other bytes under sanitizers")
    T.must(T.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-c", "net.c"], cwd=folder, timeout=300))


def check_beside_train(loss, optimizer, words=()):
    """Of every loss and optimizer, with the target that it takes: the losses of tgc train."""
    folder = T.scratch(SCRATCH / f"{loss}-{optimizer}".replace(":", "-"))
    mlp(folder)
    x, target = samples(folder, (6,), loss)
    put(folder, x, target)
    emit(folder, "m.onnx", f"--loss={loss}", f"--optimizer={optimizer}", "--batch=24", *T.HERE, *words)
    is_class = loss == "cross_entropy"
    build(folder, 24, 6, 3, targets=1 if is_class else 3, target="int64_t" if is_class else "float", flags=(T.LEVEL,))
    made = Made(folder, steps=8)
    T.must(T.run([TGC, "train", "m.onnx", "--data", "d.npz", f"--loss={loss}", f"--optimizer={optimizer}", f"--lr={RATE}",
                  "--epochs=8", "--batch=24", "--log=log.jsonl", "-o", "out.onnx", *words], cwd=folder))
    want = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    expect(np.allclose(made.losses, want, 2e-4, 1e-5), f"losses\n{made.losses}, by tgc train\n{want}")
    expect(abs(want[-1] - want[0]) > 1e-3, f"nothing was learned: {want}")
    shutil.rmtree(folder)


for loss, optimizer in ("mse", "sgd:momentum=0.9,nesterov"), ("huber", "rmsprop:momentum=0.5"), ("bce_with_logits", "lamb"), \
        ("l1", "adagrad"), ("cross_entropy", "muon"):
    suite.add(f"{loss} by {optimizer}", check_beside_train, loss, optimizer)
suite.add("what is frozen has no place in the block", check_beside_train, "mse", "adam", ("--freeze=w1",))


@case("products of low rank, and the model with the sums")
def low_rank(folder):
    """Steps of tgc train, and what it writes; a block of another base is refused."""
    w = mlp(folder)
    x, target = samples(folder, (6,), "cross_entropy")
    put(folder, x, target)
    words = ["m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24", "--lora=w*:2", "--seed=7"]
    emit(folder, *words, *T.HERE)
    build(folder, 24, 6, 3)
    made = Made(folder, steps=20)
    T.must(T.run([TGC, "train", words[0], "--data", "d.npz", *words[1:], f"--lr={RATE}", "--epochs=20", "--log=log.jsonl", "-o", "out.onnx"],
                 cwd=folder))
    want = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    expect(np.allclose(made.losses, want, 2e-4, 1e-5) and want[-1] < 0.97 * want[0], f"{made.losses}, by tgc train {want}")
    names = re.findall(r'^    \{"([^"]*)", "f32", 4, \d, param_dim', (folder / "net.c").read_text(), re.M)
    expect(sorted(names) == ["w1.lora_a", "w1.lora_b", "w2.lora_a", "w2.lora_b"], f"parameters {names}")
    weights(folder, "m.onnx", "params.bin", "got.onnx")
    got, of_train = weights_of(folder / "got.onnx"), weights_of(folder / "out.onnx")
    for name, value in of_train.items():
        expect(np.allclose(got[name], value, 1e-4, 1e-5), f"{name}: {abs(got[name] - value).max()}")
        expect((got[name] != w[name]).any() == (name in ("w1", "w2")), f"{name} changed, or did not")
    y = onnxruntime.InferenceSession(folder / "got.onnx").run(None, {"x": x})[0]
    expect(np.allclose(y.ravel(), made.y, 1e-4, 1e-5), "net_run computes without the products")
    Made(folder, "draw", 5)
    drawn = (folder / "params.bin").read_bytes()
    expect(drawn != made.params and np.float32(0).tobytes() * 6 in drawn, "seed 5 draws nothing, or B")
    m = onnx.load(folder / "m.onnx")
    next(i for i in m.graph.initializer if i.name == "w1").CopyFrom(numpy_helper.from_array(w["w1"] + 1, "w1"))
    onnx.save(m, folder / "moved.onnx")
    done = weights(folder, "moved.onnx", "params.bin", "no.onnx", status=1)
    expect("are not those of moved.onnx" in done.err, done.err)
    for lora, why in ("w1:7", "at most 6"), ("b1:2", "name matrices alone"), ("none:2", "no weight that could train"):
        done = emit(folder, "m.onnx", "--loss=cross_entropy", f"--lora={lora}", status=1)
        expect(why in done.err, done.err)


@case("weights that are drawn are those of tgc train --init")
def weights_that_are_drawn(folder):
    _, row = draw("cnn", folder)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--batch=24", *T.HERE)
    build(folder, 24, row, 3, flags=(T.LEVEL,))
    Made(folder, "draw", 5)
    T.must(T.run([TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--lr=1e-20", "--epochs=1", "--init=5",
                  "--freeze=mean*", "--freeze=var*", "-o", "out.onnx"], cwd=folder))
    block = (folder / "params.bin").read_bytes()
    for name, w in weights_of(folder / "out.onnx").items():
        drawn = w if w.ndim > 1 else weights_of(folder / "m.onnx")[name]
        expect(drawn.tobytes() in block, f"{name} is not in the block")
    first = Made(folder, "train", 0).params
    expect(first != block and weights_of(folder / "m.onnx")["c2"].tobytes() in first, "seed 0 are not the model's weights")


@case("a dropout draws by the counter in the block")
def dropout(folder):
    w = {"w": np.eye(6, dtype=np.float32), "half": np.float32(0.5)}
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Dropout", ["h", "half"], ["y"])],
         [("x", ["N", 6])], [("y", ["N", 6])], w)
    put(folder, np.ones((50, 6)), np.zeros((50, 6), np.float32))
    emit(folder, "m.onnx", "--loss=mse", "--batch=50", "--seed=3", *T.HERE)
    build(folder, 50, 6, 6, targets=6, target="float", rate=0)
    first = Made(folder, steps=8)
    expect(len(set(first.losses)) > 4 and abs(np.mean(first.losses) / 4 - 0.5) < 0.1, f"{first.losses}")
    expect(abs(first.loss - 1) < 1e-6 and (abs(first.y - 1) < 1e-6).all(), f"dropped while it is measured: {first.loss}")
    expect(Made(folder, "resume", steps=8).losses == first.losses, "a break draws otherwise")
    expect(Made(folder, "apart", steps=8).losses == first.losses, "net_gradients draws otherwise")
    np.savez(folder / "d.npz", x=np.ones((50, 6), np.float32), target=np.zeros((50, 6), np.float32))
    T.must(T.run([TGC, "train", "m.onnx", "--data", "d.npz", "--loss=mse", "--batch=50", "--epochs=8", "--lr=1e-20", "--seed=3",
                  "--log=log.jsonl", "-o", "out.onnx"], cwd=folder))
    want = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    expect(np.allclose(first.losses, want, 1e-6), f"{first.losses}, by tgc train {want}")


@case("the example of the header, what it describes, and what a program refuses")
def example(folder):
    draw("mlp", folder)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--dim=N=1..24", "--cpu=generic")
    head = (folder / "net.h").read_text().split("*/")[0]
    expect("targets: i64[N], class numbers" in (folder / "net.h").read_text(), "the header does not say what targets are")
    expect("is NET_BAD_VALUE, and changes nothing" in (folder / "net.h").read_text(), "the header's words are replaced wrongly")
    body = re.findall(r"^ \*     (.*)$", head, re.M)
    text = "".join(f"    {line}\n" for line in body)
    expect(".dim_N = NET_MAX_N" in text, text)
    (folder / "example.c").write_text("""
#include "net.h"
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void read_file(const char *name, void *to, size_t n)
{
    FILE *f = fopen(name, "rb");
    if (!f || fread(to, 1, n, f) != n)
        exit(3);
    fclose(f);
}
int main(void)
{
""" + text.replace("    net *model;", """
    read_file("x.bin", x, sizeof x);
    read_file("target.bin", targets, sizeof targets);
    net *model;
""").replace("net_close(model);", """
    printf("%d %g\\n", status, (double)y[0]);
    float loss;
    net_train_inputs step = {.data = in, .step = 1};
    const struct net_tensor *p = net_parameter(1);
    printf("%s %s %d %d %d\\n", p->name, p->dtype, p->rank, (int)p->dim[0].size, net_parameter(NET_PARAMETERS) == NULL);
    memcpy(y, params + p->offset, sizeof(float));
    printf("null %d\\n", net_train(model, NULL, targets, &loss));
    printf("no block %d\\n", net_gradients(model, &step, targets, &loss));
    targets[23] = 3;
    unsigned char before[NET_PARAMS_BYTES];
    memcpy(before, params, sizeof before);
    printf("no class %d\\n", net_train(model, &step, targets, &loss));
    targets[23] = 0;
    step.data.dim_N = 25;
    printf("dimension %d\\n", net_train(model, &step, targets, &loss));
    printf("unchanged %d\\n", memcmp(before, params, sizeof before));
    params[17] ^= 1;
    printf("another %d\\n", net_run(model, &in, &out));
    params[17] ^= 1;
    memset(optimizer, 0, sizeof optimizer);
    step.data.dim_N = 24;
    printf("not begun %d\\n", net_train(model, &step, targets, &loss));
    net_close(model);
    options.params = params + 4;
    printf("aligned %d\\n", net_init(&model, arena, sizeof arena, &options));
    printf("none %d\\n", net_init(&model, arena, sizeof arena, NULL));
""") + "    return 0;\n}\n")
    T.must(T.run(["gcc", *T.WARNINGS, "-Wno-unused-variable", *T.SANITIZE, "example.c", "net.c", "-o", "example", "-lm"], cwd=folder,
                 timeout=300))
    said = T.must(T.run([folder / "example"], cwd=folder)).out.decode().splitlines()
    expect(said[0].startswith("0 ") and said[0] != "0 0", f"{said}")
    expect(said[1:] == ["b1 f32 1 16 1", "null 1", "no block 7", "no class 10", "dimension 6", "unchanged 0", "another 18",
                        "not begun 18", "aligned 7", "none 7"], "\n".join(said))


def weights(folder, model, block, out, *words, status=0):
    return T.must(T.run([TGC, "weights", model, "--params", block, "-o", out, *words], cwd=folder), status)


@case("a block goes back into its model, and into no other")
def a_block_goes_back(folder):
    w, row = draw("cnn", folder)
    emit(folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24", "--freeze=d1", *T.HERE)
    build(folder, 24, row, 3, flags=(T.LEVEL,))
    made = Made(folder, steps=10)
    x = np.load(folder / "d.npz")["x"]
    weights(folder, "m.onnx", "params.bin", "out.onnx")
    weights(folder, "m.onnx", "params.bin", "out.tg", "--dim=N=..24")
    weights(folder, "m.onnx", "params.bin", "out.safetensors")
    expect((folder / "out.safetensors").stat().st_size > 0, "an empty .safetensors")
    T.must(T.run([TGC, "out.tg", "-o", "back.onnx"], cwd=folder))
    for name in "out.onnx", "back.onnx":
        y = onnxruntime.InferenceSession(folder / name).run(None, {"x": x})[0]
        expect(np.allclose(y.ravel(), made.y, 1e-3, 1e-4), f"{name}: {abs(y.ravel() - made.y).max()}")
    trained = weights_of(folder / "out.onnx")
    expect({n for n in w if (trained[n] == w[n]).all()} == {"d1"}, "others than the frozen weight stayed, or it did not")

    def refuse(model, block, *expected):
        done = weights(folder, model, block, "no.onnx", status=1)
        for text in expected:
            expect(text in done.err, f"no '{text}' in:\n{done.err}")
        expect(not (folder / "no.onnx").exists(), "something was written")
    other = T.scratch(folder / "other")
    mlp(other)
    refuse("other/m.onnx", "params.bin", "holds parameters of 'net', not of this model", "of other/m.onnx")
    m = onnx.load(folder / "m.onnx")
    next(i for i in m.graph.initializer if i.name == "d1").CopyFrom(numpy_helper.from_array(w["d1"] + 1, "d1"))
    onnx.save(m, folder / "moved.onnx")
    refuse("moved.onnx", "params.bin", "the weights that are not among them are not those of moved.onnx")
    block = made.params
    for cut, why in (block[:40], "shorter"), (block[:-64], "its head says"), (b"x" + block[1:], "'tgcblock'"), \
            (block[:12] + b"\2" + block[13:], "gradients of 'net'"), (block[:8] + b"\0\0\0\1" + block[12:], "byte order"), \
            (block[:72] + b"\xff\xff" + block[74:], "outside of it"):
        (folder / "bad.bin").write_bytes(cut)
        refuse("m.onnx", "bad.bin", why)
    refuse("m.onnx", "none.bin", "none.bin: error: cannot be opened")


def learn(folder, *words, status=0):
    return T.must(T.run([folder / "net", *words], cwd=folder, timeout=300), status)


@case("the program learns the digits from files of every form")
def the_program_learns(folder):
    """By a model of one sample, whose step has several runs."""
    r = np.random.default_rng(1)
    for name, n in ("digits", 600), ("valid", 200):
        x, labels = train_digits.pictures(r, n)
        x = x.reshape(n, 64).astype(np.float32)
        np.savez_compressed(folder / f"{name}.npz", picture=x, target=labels)
        np.save(folder / f"{name}-x.npy", x)
        with gzip.open(folder / f"{name}-t.gz", "wb") as f:
            f.write(struct.pack(">BBBBI", 0, 0, 8, 1, n) + labels.astype(np.uint8).tobytes())
    emit(folder, DIGITS, "--loss=cross_entropy", "--optimizer=adam", "--lr=0.01", *T.HERE)
    T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-lpthread"], cwd=folder, timeout=300))
    done = learn(folder, "--data", "digits.npz", "--valid=valid.npz", "--epochs=3", "--init=1", "-o", "block.bin")
    said = done.out.decode()
    expect(done.err.count("\nepoch") == 2 and "epoch 3/3, loss" in done.err, done.err)
    T.must(T.run([TGC, "train", DIGITS, "--data", "digits.npz", "--valid", "valid.npz", "--loss=cross_entropy", "--optimizer=adam",
                  "--lr=0.01", "--epochs=3", "--init=1", "-o", "want.onnx", "--log=log.jsonl"], cwd=folder))
    want = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    got = {k: float(v) for k, v in re.findall(r"(\w+) ([0-9.]+)", said.partition(": ")[2])}
    expect(got["step"] == want["step"] == 57 and got["valid_accuracy"] == want["valid_accuracy"] > 0.8, f"{said}, {want}")
    expect(abs(got["valid_loss"] - want["valid_loss"]) < 1e-3 * want["valid_loss"], f"{said}, {want}")
    weights(folder, DIGITS, "block.bin", "got.onnx")
    for (name, a), b in zip(weights_of(folder / "want.onnx").items(), weights_of(folder / "got.onnx").values()):
        expect(np.allclose(a, b, 1e-3, 1e-4), f"{name}: {abs(a - b).max()}")
    whole = (folder / "block.bin").read_bytes()
    learn(folder, "--data", "picture=digits-x.npy", "--data=target=digits-t.gz", "--epochs=3", "--init=1", "-o", "again.bin")
    expect((folder / "again.bin").read_bytes() == whole, "other files of the same samples, other parameters")
    learn(folder, "--data", "digits.npz", "--epochs=1", "--lr=1e-30", "--params=block.bin", "-o", "same.bin")
    expect((folder / "same.bin").read_bytes()[64:] == whole[64:], "--params does not begin with the block")

    def refuse(*words, status=1, text=""):
        done = learn(folder, *words, status=status)
        expect(text in done.err, f"no '{text}' in:\n{done.err}")
    refuse("--data", "digits.npz", status=2, text="usage")
    refuse("--data", "digits.npz", "--bach=3", "-o", "no.bin", status=2, text="usage")
    refuse("--data", "none.npz", "-o", "no.bin", text="none.npz")
    refuse("--data", "picture=digits-x.npy", "-o", "no.bin", text="target: ")
    refuse("--data", "digits.npz", "--batch=601", "-o", "no.bin", text="more than the samples")
    refuse("--data", "digits.npz", "--params=net.c", "-o", "no.bin", text="net.c: is no block")
    refuse("--data", "digits.npz", "--lr=1e30", "-o", "no.bin", text="not finite")
    for word, why in ("--epochs=2x", "a whole number"), ("--batch=-1", "a whole number"), ("--seed=", "a whole number"), \
            ("--threads=4294967297", "too large"), ("--lr=abc", "a positive number"), ("--lr=-1", "a positive number"):
        refuse("--data", "digits.npz", word, "-o", "no.bin", text=f"{word.split('=')[0]}: {why}" if why != "too large" else why)
    np.savez(folder / "far.npz", picture=np.zeros((4, 64), np.float32), target=np.full(4, 10))
    refuse("--data", "far.npz", "-o", "no.bin", text="a value that the model cannot use")
    expect(not (folder / "no.bin").exists() and not (folder / "no.bin.part").exists(), "a block was left behind")


@case("the program's batches, folders and augmentation under sanitizers")
def the_program_under_sanitizers(folder):
    cnn(folder)
    r = np.random.default_rng(4)
    m = onnx.load(folder / "m.onnx")
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    for i in m.graph.initializer:
        if i.name == "c1":
            i.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(i)[:, :1], "c1"))
    onnx.save(m, folder / "m.onnx")
    for k in range(15):
        (folder / "data" / "abc"[k % 3]).mkdir(parents=True, exist_ok=True)
        shade = np.full((12, 12), 60 * (k % 3) + 40) + r.integers(0, 9, (12, 12))
        (folder / "data" / "abc"[k % 3] / f"{k}.pgm").write_bytes(b"P5 12 12 255\n" + shade.astype(np.uint8).tobytes())
    emit(folder, "m.onnx", "--loss=cross_entropy", "--lr=0.02", "--batch=4", "--threads=2", *T.HERE)
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-lpthread"], cwd=folder, timeout=300))
    T.must(T.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-DNET_MAIN", "-x", "c++", "-fsyntax-only", "net.c"],
                 cwd=folder, timeout=300))
    words = ["--augment=shift:1,flip,normalize:127:64", "--batch=6", "--epochs=20"]
    done = learn(folder, "--data", "data", *words, "-o", "block.bin")
    want = json.loads(T.must(T.run([TGC, "train", "m.onnx", "--data", "data", "--loss=cross_entropy", "--lr=0.02", *words, "-o",
                                    "out.onnx", "--json"], cwd=folder)).out)
    got = {k: float(v) for k, v in re.findall(r"(\w+) ([0-9.]+)", done.out.decode().partition(": ")[2])}
    expect(got["accuracy"] == 1 == want["accuracy"] and got["step"] == want["step"] == 60, f"{got}, {want}")


BOARD = """
#include "net.h"
#include "data.h"
#include <stdalign.h>
#include <stdio.h>

static alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];
static alignas(NET_PARAMS_ALIGN) unsigned char params[NET_PARAMS_BYTES];
static alignas(NET_GRADIENTS_ALIGN) unsigned char gradients[NET_GRADIENTS_BYTES];
static alignas(NET_OPTIMIZER_ALIGN) unsigned char optimizer[NET_OPTIMIZER_BYTES];

static int count_right(net *model, int from, int to)
{
    int right = 0;
    for (int i = from; i < to; i++) {
        float y[10];
        net_inputs in = {picture[i]};
        net_outputs out = {y};
        int best = 0;
        if (net_run(model, &in, &out) != NET_OK)
            return -1;
        for (int k = 1; k < 10; k++)
            best = y[k] > y[best] ? k : best;
        right += best == label[i];
    }
    return right;
}

int main(void)
{
    net_options options = {.params = params, .gradients = gradients, .optimizer = optimizer};
    net_train_inputs in = {.learning_rate = NET_LEARNING_RATE};
    const float share = 1.0f / RUNS;
    net *model;
    int status = net_init(&model, arena, sizeof arena, &options);
    if (status == NET_OK)
        status = net_params_init(model, 1);
    printf("before %d\\n", count_right(model, TRAINED, ALL));
    in.sample_weight = &share;
    for (int i = 0; i < EPOCHS * TRAINED && status == NET_OK; i++) {
        float loss;
        const int64_t target = label[i % TRAINED];
        in.data.picture = picture[i % TRAINED];
        status = net_gradients(model, &in, &target, &loss);
        if (status == NET_OK && i % RUNS == RUNS - 1) {
            in.step++;
            status = net_update(model, &in);
        }
    }
    printf("after %d, status %d\\n", count_right(model, TRAINED, ALL), status);
    net_close(model);
    return 0;
}
"""
BARE = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16".split()


def small_cnn(folder):
    """One picture of 64 values: 8 filters of 3x3, the largest of 2x2, classes."""
    r = np.random.default_rng(2)
    w = {"c": (8, 1, 3, 3), "d": (8,), "w": (128, 10), "b": (10,)}
    w = {n: (r.standard_normal(s) * (0.2 if len(s) > 1 else 0)).astype(np.float32) for n, s in w.items()}
    nodes = [helper.make_node("Reshape", ["picture", "grid"], ["p"]),
             helper.make_node("Conv", ["p", "c", "d"], ["v"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["v"], ["r"]),
             helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Flatten", ["m"], ["f"]), helper.make_node("Gemm", ["f", "w", "b"], ["y"])]
    save(folder / "m.onnx", nodes, [("picture", [1, 64])], [("y", [1, 10])], w | {"grid": np.array([1, 1, 8, 8])})
    return "m.onnx"


def check_board(name, make):
    folder = T.scratch(SCRATCH / f"board-{name}")
    for program in "arm-none-eabi-gcc", "qemu-system-arm":
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
    x, labels = train_digits.pictures(np.random.default_rng(1), 400)
    rows = ",\n".join("{" + ",".join(f"{v:.4f}f" for v in row) + "}" for row in x.reshape(400, 64))
    (folder / "data.h").write_text("enum { ALL = 400, TRAINED = 300, RUNS = 15, EPOCHS = 8 };\n"
                                   f"static const float picture[400][64] = {{{rows}}};\n"
                                   f"static const unsigned char label[400] = {{{','.join(map(str, labels))}}};\n")
    (folder / "learn.c").write_text(BOARD)
    (folder / "start.c").write_text(START)
    emit(folder, make(folder), "--loss=cross_entropy", "--optimizer=adam", "--lr=0.01", "--cpu=generic")
    T.must(T.run(["arm-none-eabi-gcc", *BARE, "-O2", "learn.c", "net.c", "start.c", "-DSTACK=0x20400000", "--specs=rdimon.specs",
                  "-Wl,--section-start=.vectors=0", "-Wl,-Ttext-segment=0x8000", "-lm", "-o", "learn"], cwd=folder, timeout=120))
    T.must(T.run(["arm-none-eabi-gcc", *BARE, "-O2", "-c", "learn.c", "net.c"], cwd=folder, timeout=120))
    sizes = [line.split() for line in T.must(T.run(["arm-none-eabi-size", "learn.o", "net.o"], cwd=folder)).out.decode().splitlines()[1:]]
    stack = int(re.search(r"STACK_BYTES (\d+)", (folder / "net.h").read_text())[1])
    memory = sum(int(data) + int(bss) for _, data, bss, *_ in sizes) + stack
    expect(memory < 256 * 1024, f"{memory} bytes of memory")
    said = T.must(T.run(["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native",
                         "-kernel", "learn"], cwd=folder, timeout=300)).out.decode()
    before, after, status = map(int, re.findall(r"\d+", said))
    expect(status == 0 and before < 30 and after >= 90, f"{said}, of 100 that were not trained; {memory} bytes of memory")
    T.must(T.run(["gcc", "-O2", "learn.c", "net.c", "-lm", "-o", "here"], cwd=folder, timeout=120))
    expect(T.must(T.run([folder / "here"], cwd=folder)).out.decode().split() == said.split(), f"{said}, and here otherwise")
    shutil.rmtree(folder)


suite.add("a Cortex-M4 learns the digits in 256 KB, by an mlp", check_board, "mlp", lambda folder: DIGITS)
suite.add("a Cortex-M4 learns the digits in 256 KB, by a cnn", check_board, "cnn", small_cnn)


def check_network(network, *words):
    """A whole training by the program, and by tgc train."""
    folder = T.scratch(SCRATCH / network)
    make, shape = NETWORKS[network]
    make(folder)
    samples(folder, shape, "cross_entropy")
    of_both = ["--loss=cross_entropy", "--optimizer=adamw:weight_decay=0.1", "--lr=0.01", "--batch=24"]
    emit(folder, "m.onnx", *of_both, *words, *T.HERE)
    T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-lpthread"], cwd=folder, timeout=300))
    said = learn(folder, "--data", "d.npz", "--epochs=20", "-o", "block.bin").out.decode()
    want = T.must(T.run([TGC, "train", "m.onnx", "--data", "d.npz", *of_both, "--epochs=20", "-o", "want.onnx"], cwd=folder))
    expect(said.split(": ")[1].split()[:6] == want.out.decode().split(": ")[1].split()[:6], f"{said}, by tgc train {want.out.decode()}")
    weights(folder, "m.onnx", "block.bin", "got.onnx")
    got, begun = weights_of(folder / "got.onnx"), weights_of(folder / "m.onnx")
    for name, w in weights_of(folder / "want.onnx").items():
        expect(np.allclose(got[name], w, 1e-4, 1e-5), f"{name}: {abs(got[name] - w).max()}")
    expect(sum((got[n] != begun[n]).any() for n in got) >= 5, "few weights have changed")
    shutil.rmtree(folder)


suite.add("a network of more than 64 states by the program", check_network, "deep")
suite.add("a recurrent network by the program", check_network, "lstm")
suite.add("a transformer's block by the program", check_network, "transformer", "--shape=target=24x6")


@case("a loss that is an output of the model, and sizes of run time")
def a_loss_of_the_model(folder):
    """An autoencoder of one layer whose loss is its own output: it has no target."""
    r = np.random.default_rng(3)
    w = {"w": (0.3 * r.standard_normal((6, 6))).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Sub", ["y", "x"], ["d"]),
             helper.make_node("Mul", ["d", "d"], ["q"]), helper.make_node("ReduceMean", ["q"], ["loss"], keepdims=0)]
    save(folder / "m.onnx", nodes, [("x", ["N", 6])], [("y", ["N", 6]), ("loss", [])], w)
    np.savez(folder / "d.npz", x=r.standard_normal((24, 6)).astype(np.float32))
    np.savez(folder / "t.npz", x=np.load(folder / "d.npz")["x"], target=np.load(folder / "d.npz")["x"])
    said = []
    for loss, data, *words in (("output:loss", "d.npz", "--batch=24", "--weights=file"), ("output:loss", "d.npz", "--dim=N=..24"),
                               ("mse:y", "t.npz", "--dim=N=..24"), ("mse", "t.npz", "--batch=24")):
        emit(folder, "m.onnx", f"--loss={loss}", "--optimizer=adam", "--lr=0.01", *words, *T.HERE)
        T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-lpthread"], cwd=folder, timeout=300))
        done = learn(folder, "--data", data, "--batch=24", "--epochs=100", "-o", "block.bin")
        said.append(float(re.search(r"loss ([0-9.]+)", done.out.decode())[1]))
    expect(np.allclose(said, said[0], 1e-3) and said[0] < 0.2, f"{said}")


@case("options that do not go together")
def mistakes(folder):
    mlp(folder)
    right = ["m.onnx", "--loss=cross_entropy"]
    def refuse(words, *expected, out="net.c", train=("--train",)):
        done = T.run([TGC, *words, "-o", out, *train], cwd=folder)
        expect(done.status in (1, 2), f"status {done.status}:\n{done.err}")
        for text in expected:
            expect(text in done.err, f"no '{text}' in:\n{done.err}")
    refuse(["weights", "m.onnx"], "tgc weights needs --params", train=())
    refuse(right[:1], "--train needs --loss")
    refuse(right, "--loss is of a training", "--train", "tgc train", train=())
    refuse([*right, "--freeze=*"], "nothing trains", "--freeze")
    refuse([*right, "--target=opencl", "--threads=2"], "--threads is for processors")
    refuse([*right, "--target=llvm"], "'.c' is written by --target=c")
    refuse([*right, "--target=llvm"], "'.ll' is none of these", out="net.ll")
    refuse(right, "'.onnx' is none of these", out="net.onnx")
    refuse([*right, "--state=y=x"], "--state does not go with --train")
    refuse([*right, "--gradient=y"], "--gradient does not go with --train")
    refuse([DIGITS, "--loss=cross_entropy", "--batch=8"], "--batch=8", "'picture' is 1")
    refuse([*right, "--shape", "target=32x4"], "the target is [32, 4]", "f32[32, 3]")
    refuse(["m.onnx", "--loss=output:y"], "scalar")
    expect(not (folder / "net.c").exists(), "something was written")


if __name__ == "__main__":
    suite.main()
