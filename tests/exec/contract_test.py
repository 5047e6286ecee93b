"""A product and its sum may be rounded once or twice, and a device's compiler chooses where nothing is said: kernels whose differences must vanish
(softmax, attention, normalizations, sums of squares) on the emulated device, compiled with no contraction and with all that the text allows. Quick:
a processor of each vendor's; --all: all, and the models of models/."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import emulator
import tgc as T
from suite import Suite, expect

suite = Suite("contract")

# target -> what stands behind a text's name, the emulator's environment of a folder
TEXTS = {"cuda": "cu", "amd": "hip"}
QUICK = [("cuda", "sm_80", "masked", "f16"), ("cuda", "sm_90a", "scaled behind", "bf16"), ("amd", "gfx90a", "masked", "f16"), ("metal", "m1", "scaled behind", "f16"),
         ("opencl", "generic-gpu", "masked", "")]
QUICK_ROWS = [("sm_80", 1000), ("gfx90a", 40), ("m1", 40), ("generic-gpu", 1000)]
QUICK_MODELS = [("sm_80", "causal_attention")]
MORE = [("cuda", "sm_89"), ("cuda", "sm_120"), ("amd", "gfx1100"), ("amd", "gfx942"), ("metal", "m3"), ("opencl", "intel-xe"), ("opencl", "adreno630")]
# Text in which nothing can forbid to contract: NVRTC is told by an option, nvcc by whoever runs it.
BY_OPTION = {"cuda"}
HEADS, ROWS, KEYS, FEATURES = 1, 48, 40, 32
LEAST = float(np.finfo(np.float32).min)


class Program:
    """A model's program on the emulated device."""

    def __init__(self, tgc, folder, model, target, row, *options):
        self.folder, self.target = T.scratch(folder), target
        if not isinstance(model, Path):
            onnx.save(model, folder / "m.onnx")
        else:
            (folder / "m.tg").write_text(model.read_text())
        path = "m.tg" if isinstance(model, Path) else "m.onnx"
        with T.environment(**emulator.stand_ins(suite.options.build)):
            for out in ["m.c"] + [f"m.{TEXTS[target]}" for _ in range(target in TEXTS)]:
                T.must(T.run([tgc, path, "-o", out, "--name=m", f"--target={target}", f"--cpu={row}", *options, *(() if isinstance(model, Path) else ("--vectors=never",))],
                             cwd=folder, timeout=120))
        T.build_quickly(folder / "m.c", folder / "m", *emulator.METAL_FLAGS)

    def environment(self, facts):
        build, more = suite.options.build, {"device": facts, "cache": self.folder / "kernels"}
        if self.target in TEXTS:
            make = {"cuda": emulator.cuda_environment, "amd": emulator.amd_environment}[self.target]
            return make(build, self.folder / f"m.{TEXTS[self.target]}", **more)
        return emulator.metal_environment(build, **more) if self.target == "metal" else emulator.environment(build, **more)

    def call(self, facts, *words):
        done = T.run([self.folder / "m", *words], cwd=self.folder, env=self.environment(facts), timeout=300)
        expect(done.status == 0 and not done.err, done.describe())

    def run(self, facts, names, feeds):
        for name, value in feeds.items():
            np.save(self.folder / f"{name}.npy", value)
        self.call(facts, *(f"{name}.npy" for name in feeds), "-o", ".")
        return [np.load(self.folder / f"{name}.npy") for name in names]


def facts_of(target, row, contracts):
    arch = f"arch={row.strip('sm_a')}" if target == "cuda" else f"version={row}" if target == "amd" else ""
    return f"{arch} contracts={int(contracts)}".strip()


def ways():
    """Without contraction, and with it, where this processor has the instruction."""
    info = Path("/proc/cpuinfo")
    has = not info.exists() or " fma " in info.read_text() or "asimd" in info.read_text()
    return (False, True) if has else (False,)


def model_of(nodes, inputs, outputs, **constants):
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    init = [numpy_helper.from_array(np.float32(number), name) for name, number in constants.items()]
    graph = helper.make_graph([helper.make_node(op, takes, [gives], **attributes) for op, takes, gives, attributes in nodes], "g",
                              [value(*v) for v in inputs.items()], [value(*v) for v in outputs.items()], init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def near(what, got, wanted, allowed):
    error = np.abs(got.astype(np.float64) - wanted)
    expect(np.isfinite(got).all() and (error <= allowed).all(), f"{what}: {np.count_nonzero(~np.isfinite(got))} of {got.size} are no numbers, others off by up to "
           f"{np.nanmax(np.where(np.isfinite(error), error, 0)):.3g}, {allowed:.3g} allowed")


# -------------------------------------------------------------------------------------------------- attention

# How scores are made of products s, a mask m and a factor c.
SCORES = {"masked": ([("Mul", ["s", "c"], "a", {}), ("Add", ["a", "m"], "b", {})], lambda s, m, c: np.float32(s * c) + m),
          "scaled behind": ([("Add", ["s", "m"], "a", {}), ("Mul", ["a", "c"], "b", {})], lambda s, m, c: np.float32(s + m) * np.float32(c))}
HIDDEN = [-1e4, -1e9, -1e30, LEAST]


def mask_of(hidden):
    """A row sees all keys, the next none, the third half of them."""
    m = np.zeros((1, ROWS, KEYS), np.float32)
    m[:, 1::3] = hidden
    m[:, 2::3, KEYS // 2:] = hidden
    return m


def attention(tgc, folder, target, row, how, math):
    nodes, scores = SCORES[how]
    made = model_of([("Transpose", ["k"], "t", {"perm": [0, 2, 1]}), ("MatMul", ["q", "t"], "s", {}), *nodes, ("Softmax", ["b"], "p", {"axis": -1}),
                     ("MatMul", ["p", "v"], "y", {})],
                    {"q": [HEADS, ROWS, FEATURES], "k": [HEADS, KEYS, FEATURES], "v": [HEADS, KEYS, FEATURES], "m": [1, ROWS, KEYS]},
                    {"y": [HEADS, ROWS, FEATURES]}, c=0.125)
    program = Program(tgc, folder, made, target, row, *([f"--math={math}"] if math else []))
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((HEADS, n, FEATURES)).astype(np.float32) for n in (ROWS, KEYS, KEYS))
    for contracts in ways():
        for hidden in HIDDEN:
            m = mask_of(hidden)
            s = np.float32(q.astype(np.float64) @ k.transpose(0, 2, 1))
            wanted = softmax(scores(s, m, 0.125).astype(np.float64)) @ v
            y, = program.run(facts_of(target, row, contracts), ["y"], {"q": q, "k": k, "v": v, "m": m})
            near(f"hidden by {hidden:.3g}, {'contracted' if contracts else 'as written'}", y, wanted, {"": 1e-5, "f16": 0.02, "bf16": 0.1}[math])


# ---------------------------------------------------------------------------------------------------- rows

# By output: the nodes that make it of a = 0.3 x, what is right in f64 of a, how far off it may be.
KERNELS = {
    "softmax": ([("Softmax", ["a"], "softmax", {"axis": -1})], softmax, 1e-6),
    "log_softmax": ([("LogSoftmax", ["a"], "log_softmax", {"axis": -1})], lambda a: a - log_of_powers(a), 2e-6),
    "log_of_powers": ([("ReduceLogSumExp", ["a"], "log_of_powers", {"axes": [-1]})], lambda a: log_of_powers(a), 2e-6),
    "variance": ([("ReduceMean", ["a"], "mean", {"axes": [-1]}), ("Sub", ["a", "mean"], "d", {}), ("Mul", ["d", "d"], "dd", {}),
                  ("ReduceMean", ["dd"], "variance", {"axes": [-1]})], lambda a: a.var(-1, keepdims=True), 2e-6),
    "power": ([("ReduceMax", ["a"], "top", {"axes": [-1]}), ("Sub", ["a", "top"], "below", {}), ("Exp", ["below"], "power", {})],
              lambda a: np.exp(a - a.max(-1, keepdims=True)), 1e-6),
    "distance": ([("Mul", ["x", "c"], "again", {}), ("Mul", ["again", "w"], "weighed", {}), ("Sub", ["weighed", "a"], "distance", {})], lambda a: a - a, 0)}
EXACT = ("softmax", "power", "distance")        # of rows of one number, however large


def log_of_powers(a):
    top = a.max(-1, keepdims=True)
    return top + np.log(np.exp(a - top).sum(-1, keepdims=True))


def row_kernels(tgc, folder, target, row, width):
    """Of numbers around 1 both ways; of rows of one large number, whose differences are 0, as tgc has the text compiled, and where the text itself
    forbids to contract."""
    nodes = [("Mul", ["x", "c"], "a", {}), *(node for of, _, _ in KERNELS.values() for node in of)]
    ends = {"log_of_powers": 1, "variance": 1}
    program = Program(tgc, folder, model_of(nodes, {"x": [24, width]}, {name: [24, ends.get(name, width)] for name in KERNELS}, c=0.3, w=1), target, row)
    usual = np.random.default_rng(2).standard_normal((24, width)).astype(np.float32)
    large = np.repeat(np.float32([[-1e9], [1e9], [3.3e30], [-7.7e30], [1.7e5], [0]]), width, axis=1).repeat(4, axis=0)
    for contracts in ways():
        for what, x, names in ("usual", usual, KERNELS), ("large", large, [] if contracts and target in BY_OPTION else EXACT):
            a = np.float32(x * np.float32(0.3)).astype(np.float64)
            results = dict(zip(KERNELS, program.run(facts_of(target, row, contracts), KERNELS, {"x": x}))) if names else {}
            for name in names:
                _, right, allowed = KERNELS[name]
                near(f"{name} of {what} numbers, {'contracted' if contracts else 'as written'}", results[name], right(a), allowed * max(1, np.abs(right(a)).max()))


def selftest(tgc, folder, path, target, row):
    """The program's own check of its reference vectors, both ways."""
    program = Program(tgc, folder, path, target, row)
    for contracts in ways():
        program.call(facts_of(target, row, contracts), "--selftest")


def main():
    suite.parse()
    tgc, scratch = T.find_tgc(suite.options.build), T.scratch(Path(suite.options.build).resolve() / "test-scratch" / "contract")
    number = 0
    for target, row in [*(case[:2] for case in QUICK), *MORE]:
        for how in SCORES:
            for math in ("", "f16", "bf16"):
                number += 1
                suite.add(f"attention, {how}, {math or 'f32'}, {row}", attention, tgc, scratch / f"attention-{number}", target, row, how, math,
                          slow=(target, row, how, math) not in QUICK)
        for width in (40, 1000):
            suite.add(f"rows of {width}, {row}", row_kernels, tgc, scratch / f"rows-{width}-{row}", target, row, width, slow=(row, width) not in QUICK_ROWS)
        for path in sorted((ROOT / "models").glob("*.tg")):
            suite.add(f"{path.name}, {row}", selftest, tgc, scratch / f"{path.stem}-{row}", path, target, row, slow=(row, path.stem) not in QUICK_MODELS)
    suite.main()


if __name__ == "__main__":
    main()
