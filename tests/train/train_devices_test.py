"""tgc --train for devices: parameters, gradients and the optimizer's state in the device's memory; on the emulated devices, which
check each access and call, and on PoCL. The parameters are the C target's but for the order of sums."""

import functools
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent.parent / "models")]

import numpy as np
from onnx import helper

import emulator
import program
import tgc as T
import train_digits
from networks import save
from opencl import need_device
from program import Made, build, draw, put
from suite import Suite, expect

suite = Suite("train-devices")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "train-devices")
DIGITS = HERE.parent.parent / "models" / "digits.tg"
case = suite.folder_case(SCRATCH)
emit = functools.partial(program.emit, TGC)
WORDS = ["m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24"]
# What emits, the kernels' text that the emulator runs, what compiles the C, what finds the device.
DEVICES = {"opencl": (None, (), emulator.environment), "cuda": ("net.cu", (), emulator.cuda_environment),
           "amd": ("net.hip", (), emulator.amd_environment), "metal": (None, emulator.METAL_FLAGS, emulator.metal_environment),
           "pocl": (None, (), None)}
# Relative to the largest element of a tensor: 100 steps of the order of sums.
RTOL = 1e-4


class Device:
    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.kernels, self.flags, self.environment = DEVICES[name]
        self.report = folder / "report"
        if name == "pocl":
            need_device()
        else:
            emulator.need_clang()

    def emit(self, *words):
        target = ["--target=opencl", "--cpu=pocl"] if self.name == "pocl" else [f"--target={self.name}"]
        stand_ins = emulator.stand_ins(OPTIONS.build) if self.kernels else {}
        for out in filter(None, ("net.c", self.kernels)):
            T.must(T.run([TGC, words[0], "-o", out, "--train", *words[1:], *target], cwd=self.folder, env={**os.environ, **stand_ins},
                         timeout=300))

    def build(self, *sizes, **more):
        build(self.folder, *sizes, flags=("-O1", *self.flags), exe="device", **more)

    def env(self):
        if not self.environment:
            return None
        text = [self.folder / self.kernels] if self.kernels else []
        return {**os.environ, **self.environment(OPTIONS.build, *text, report=self.report)}

    def run(self, mode="train", steps=100):
        made = Made(self.folder, mode, steps, exe="device", env=self.env())
        self.check()
        return made

    def check(self):
        """Nothing raced, was out of bounds, or misused the driver."""
        found = self.report.read_text() if self.report.exists() else ""
        expect(not found, found[:2000])


def tensors(block):
    """The tensors of a block, from its table of offsets."""
    head, row = 64, 16
    first = int(np.frombuffer(block, np.uint64, 1, head + 8)[0])
    at = [int(np.frombuffer(block, np.uint64, 1, head + row * i + 8)[0]) for i in range((first - head) // row)]
    at = sorted(x for x in at if first <= x < len(block))
    return [np.frombuffer(block[a:b], np.float32) for a, b in zip(at, [*at[1:], len(block)])]


def near(a, b, what, rtol=RTOL):
    """Blocks whose heads and tables are the same bytes."""
    x, y = tensors(a), tensors(b)
    head = len(a) - sum(t.nbytes for t in x)
    expect(len(x) == len(y) > 0 and a[:head] == b[:head], f"{what}: another head")
    for i, (s, t) in enumerate(zip(x, y)):
        expect(abs(s - t).max() <= rtol * max(abs(t).max(), 1e-3), f"{what}: tensor {i} {abs(s - t).max()} of {abs(t).max()}")


def check_steps(name, network, steps, modes):
    """By net_train(); modes: by net_gradients() and net_update(), and with a break in which all that is kept is the blocks."""
    folder = T.scratch(SCRATCH / f"{name}-{network}")
    device = Device(folder, name)
    _, row = draw(network, folder)
    emit(folder, *WORDS, *T.HERE)
    build(folder, 24, row, 3)
    want = Made(folder, steps=steps)
    device.emit(*WORDS)
    device.build(24, row, 3)
    first = device.run(steps=steps)
    near(first.params, want.params, "net_train")
    expect(np.allclose(first.losses, want.losses, 1e-4, 1e-6) and np.allclose(first.y, want.y, 1e-3, 1e-4), f"{first.losses}\n{want.losses}")
    expect(first.losses[-1] < first.losses[0], f"nothing was learned: {first.losses}")
    expect(first.correct == want.correct, f"{first.correct} right, by C {want.correct}")
    for mode in modes:
        other = device.run(mode, steps=min(steps, 20))
        near(other.params, first.params if steps <= 20 else Made(folder, steps=20).params, mode)


LONG = "--all" in sys.argv
MODES = ("resume", "apart")     # of the host's functions, which are the same for every network
for name in DEVICES:
    suite.add(f"{name}: an mlp", check_steps, name, "mlp", 100, MODES)
    suite.add(f"{name}: a cnn", check_steps, name, "cnn", 100 if name == "pocl" or LONG else 4, MODES if LONG else ())


def check_digits(name):
    """The program of -DNET_MAIN, whose steps have several runs: the same block as by C, and its weights."""
    folder = T.scratch(SCRATCH / f"{name}-digits")
    device = Device(folder, name)
    x, labels = train_digits.pictures(np.random.default_rng(1), 96)
    np.savez(folder / "d.npz", picture=x.reshape(96, 64).astype(np.float32), target=labels)
    words = [DIGITS, "--loss=cross_entropy", "--optimizer=adam", "--lr=0.01"]
    blocks = []
    for of_device in False, True:
        if of_device:
            device.emit(*words)
        else:
            emit(folder, *words, *T.HERE)
        T.must(T.run(["gcc", *T.WARNINGS, "-O1", "-DNET_MAIN", *(device.flags if of_device else ()), "net.c", "-o", "net", "-lm", "-lpthread"],
                     cwd=folder, timeout=300))
        T.must(T.run([folder / "net", "--data", "d.npz", "--batch=32", "--epochs=2", "--init=1", "-o", "block.bin"], cwd=folder,
                     env=device.env() if of_device else None, timeout=600))
        device.check()
        blocks.append((folder / "block.bin").read_bytes())
    near(blocks[1], blocks[0], "the program")
    T.must(T.run([TGC, "weights", DIGITS, "--params", "block.bin", "-o", "got.onnx"], cwd=folder))


for name in DEVICES:
    suite.add(f"{name}: the digits by the program", check_digits, name)


def table(folder):
    """Rows of a table, by numbers that come as floats: a run checks them, so each state has two places."""
    r = np.random.default_rng(3)
    w = {"table": r.standard_normal((11, 4)).astype(np.float32), "w": r.standard_normal((24, 3)).astype(np.float32) * 0.3}
    node = helper.make_node
    save(folder / "m.onnx", [node("Cast", ["x"], ["i"], to=7), node("Gather", ["table", "i"], ["g"]), node("Flatten", ["g"], ["f"]),
                             node("MatMul", ["f", "w"], ["y"])], [("x", ["N", 6])], [("y", ["N", 3])], w)
    put(folder, r.integers(0, 11, (24, 6)), r.integers(0, 3, 24))


@case("opencl: numbers of a table that are out of range change nothing")
def out_of_range(folder):
    device = Device(folder, "opencl")
    table(folder)
    emit(folder, *WORDS, *T.HERE)
    build(folder, 24, 6, 3)
    want = Made(folder, steps=9)
    device.emit(*WORDS)
    device.build(24, 6, 3)
    expect("SECOND" not in (folder / "net.c").read_text() and "self->odd" in (folder / "net.c").read_text(), "there are no second places")
    for mode in "train", "resume", "apart":
        near(device.run(mode, steps=9).params, want.params, mode)
    (folder / "bad.c").write_text(BAD)
    T.must(T.run(["gcc", *T.WARNINGS, "-O1", "bad.c", "net.c", "-o", "bad", "-lm"], cwd=folder))
    said = T.must(T.run([folder / "bad"], cwd=folder, env=device.env())).out.decode()
    device.check()
    expect(said.split() == ["none", "18", "init", "0", "step", "0", "bad", "10", "same", "0", "step", "0", "other", "1", "null", "1",
                            "block", "7", "another", "0", "18", "closed", "12"], said)


BAD = """
#include "net.h"
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
static alignas(64) unsigned char arena[NET_ARENA_BYTES], params[NET_PARAMS_BYTES], before[NET_PARAMS_BYTES], optimizer[NET_OPTIMIZER_BYTES];
int main(void)
{
    static float x[24 * 6], loss;
    static int64_t targets[24];
    net *model;
    net_options o = {.params = params, .optimizer = optimizer};
    net_train_inputs in = {.data = {x}, .learning_rate = 0.01f, .step = 1};
    if (net_init(&model, arena, sizeof arena, &o) != NET_OK)
        return 1;
    printf("none %d\\n", net_train(model, &in, targets, &loss));
    printf("init %d\\n", net_params_init(model, 0));
    printf("step %d\\n", net_train(model, &in, targets, &loss));
    net_download(model);
    memcpy(before, params, sizeof before);
    x[5] = 11;
    printf("bad %d\\n", net_train(model, &in, targets, &loss));
    net_download(model);
    printf("same %d\\n", memcmp(before, params, sizeof before) != 0);
    x[5] = 10;
    printf("step %d\\n", net_train(model, &in, targets, &loss));
    net_download(model);
    printf("other %d\\n", memcmp(before, params, sizeof before) != 0);
    printf("null %d\\n", net_train(model, NULL, targets, &loss));
    printf("block %d\\n", net_gradients(model, &in, targets, &loss));
    params[17] ^= 1;
    printf("another %d", net_upload(model));
    printf(" %d\\n", net_train(model, &in, targets, &loss));
    net_close(model);
    printf("closed %d\\n", net_download(model));
    return 0;
}
"""


@case("opencl: a dropout draws by the counter that the block keeps")
def dropout(folder):
    device = Device(folder, "opencl")
    w = {"w": np.eye(6, dtype=np.float32), "half": np.float32(0.5)}
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Dropout", ["h", "half"], ["y"])],
         [("x", ["N", 6])], [("y", ["N", 6])], w)
    put(folder, np.ones((24, 6)), np.zeros((24, 6), np.float32))
    words = ["m.onnx", "--loss=mse", "--batch=24", "--seed=3"]
    sizes = {"targets": 6, "target": "float", "rate": 0}
    emit(folder, *words, *T.HERE)
    build(folder, 24, 6, 6, **sizes)
    want = Made(folder, steps=8)
    device.emit(*words)
    device.build(24, 6, 6, **sizes)
    for mode in "train", "resume":
        made = device.run(mode, steps=8)
        expect(np.allclose(made.losses, want.losses, 1e-6) and made.params[:64] == want.params[:64], f"{mode}: {made.losses}, by C {want.losses}")
    expect(len(set(want.losses)) > 4, "nothing drops")


@case("the data of a step in buffers of the caller's, and C++")
def buffers(folder):
    device = Device(folder, "opencl")
    draw("mlp", folder)
    device.emit(*WORDS)
    text = (folder / "net.h").read_text()
    expect(re.search(r"int net_upload\(net \*self\);\s+NET_API int net_download\(net \*self\);", text) and "net_bind_input" in text and "net_enqueue" not in text,
           "the header has other functions")
    T.must(T.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-c", "net.c"], cwd=folder, timeout=300))


if __name__ == "__main__":
    suite.main()
