"""docs/numbers.md, line by line: what operators give of NaN, infinities and nothing.

The page's tables are read. Each line becomes a node of one model, its numbers many times below each other, so that they
fill whole vectors and leave some over; every copy must give what the line says. --all compares ONNX Runtime with the
last column, too.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnxruntime

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("special")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "special")
PAGE = (HERE.parents[1] / "docs" / "numbers.md").read_text()
FLAGS = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
SETS = [cpu for cpu, flag in (("generic", None), ("avx2", "fma"), ("avx512", "avx512dq")) if flag is None or flag in FLAGS]
COPIES = 37


def numbers(cell):
    return [] if cell.strip() == "none" else [float(word) for word in cell.split()]


def lines():
    """(node, operands, results, ONNX Runtime's results) of each line of the page's tables."""
    for row in re.findall(r"^\| (.*) \|$", PAGE, re.M):
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) == 4 and cells[0] != "node":
            lists = [[numbers(part) for part in cell.split(";")] for cell in cells[1:]]
            yield cells[0], lists[0], lists[1], lists[2] if cells[3] else lists[1]


class Model:
    def __init__(self):
        self.nodes, self.inputs, self.weights, self.arrays, self.cases = [], [], [], {}, []

    def name(self):
        return f"v{len(self.nodes)}_{len(self.inputs)}_{len(self.weights)}"

    def input(self, array):
        name = "in" + self.name()
        self.arrays[name] = array
        self.inputs.append(G.value(name, array.shape, onnx.helper.np_dtype_to_tensor_dtype(array.dtype)))
        return name

    def weight(self, value, dtype=np.float32):
        self.weights.append(G.weight("w" + self.name(), np.array(value, dtype)))
        return self.weights[-1].name

    def node(self, kind, *inputs, n=1, **attributes):
        made = [f"{kind}{self.name()}_{k}" for k in range(n)]
        self.nodes.append(G.node(kind, list(inputs), made, **attributes))
        return made

    def windows(self, rows, kind, x, n=1, **attributes):
        """Of rows that are channels: [COPIES, n] as [1, COPIES, n], and back."""
        made = self.node(kind, *self.node("Reshape", x, self.weight([1, COPIES, rows], np.int64)), n=n, **attributes)
        index = made[1:]
        if index:                                    # of a place in its channel, -1 stays what it is
            offset = self.weight(np.arange(COPIES)[None, :, None] * rows, np.int64)
            moved = self.node("Sub", index[0], offset)
            none = self.node("Less", index[0], self.weight(0, np.int64))
            index = self.node("Where", *none, index[0], *moved)
        return [self.node("Reshape", y, self.weight([COPIES, -1], np.int64))[0] for y in [made[0], *index]]

    def add(self, node, operands, results, theirs):
        arrays = [np.tile(np.array(row, np.float32), (COPIES, 1)) for row in operands]
        x, *more = [self.input(a) for a in arrays]
        self.cases.append((node, operands, results, theirs, self.build(node, arrays[0].shape[1], x, more, len(results))))

    def build(self, node, n, x, more, nresult):
        kind, *words = node.split()
        last = dict(axis=1)
        if kind.startswith("Reduce") or kind in ("ArgMax", "ArgMin"):
            axes = [] if kind.startswith("Arg") else [self.weight([1], np.int64)]
            return self.node(kind, x, *axes, **last if not axes else {})
        if kind == "Cast":
            to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(words[0]))
            return self.node("Cast", x, to=to)
        if kind == "QuantizeLinear":
            return self.node(kind, x, self.weight(1), self.weight(int(words[1]), words[0]))
        if kind == "Clip":
            return self.node(kind, x, *(self.weight(float(w)) for w in words))
        if kind == "Where":
            return self.node(kind, self.weight([word.startswith("true") for word in words], bool), x, *more)
        if kind == "TopK":
            return self.node(kind, x, self.weight([int(words[1])], np.int64), n=2, largest=int(words[0] == "largest"))
        if kind == "CumSum":
            return self.node(kind, x, self.weight(1, np.int64))
        if kind == "Softmax" and words:
            return self.node(kind, *self.node("Add", x, self.weight([float(words[1])] * n)), **last)
        if kind in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
            return self.node(kind, x, **last)
        if kind in ("LayerNormalization", "RMSNormalization"):
            zero = [self.weight([0] * n)] if kind[0] == "L" else []
            return self.node(kind, x, self.weight([1] * n), *zero, axis=1)
        if kind == "MeanVarianceNormalization":
            return self.node(kind, x, axes=[1])
        if kind == "Attention,":
            values = self.node("Reshape", x, self.weight([1, 1, COPIES, n], np.int64))
            seen = self.weight(np.zeros((COPIES, COPIES)), bool)
            y = self.node("Attention", *values, *values, *values, seen)
            return self.node("Reshape", *y, self.weight([COPIES, n], np.int64))
        if kind == "MatMul":
            return self.node(kind, x, self.weight(np.zeros((n, 1))))
        if kind == "GlobalMaxPool":
            return self.windows(n, kind, x)
        if kind.endswith("Pool") and words:          # two taps, n + 1 apart: the middle window has none of n pixels
            y = self.windows(n, kind, x, n=nresult, kernel_shape=[2], dilations=[2 * n], pads=[n, n])
            return y
        if kind.endswith("Pool"):
            return self.windows(n, kind, x, n=nresult, kernel_shape=[n])
        return self.node(kind, x, *more)

    def save(self, path):
        outputs = [name for *_, names in self.cases for name in names]
        m = G.model(self.nodes, self.inputs, [], self.weights, opset=23)
        m.ir_version = 10
        inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(m).graph.value_info}
        m.graph.output.extend(inferred[name] for name in outputs)
        onnx.save(m, path)
        return outputs


def compare(cases, answers, column):
    problems = []
    for node, operands, results, theirs, names in cases:
        for wanted, name in zip(theirs if column else results, names):
            got = np.asarray(answers[name])
            want = np.tile(np.array(wanted, np.float64), (COPIES, 1))
            got = got.astype(np.float64).reshape(COPIES, -1)
            if want.shape != got.shape or not np.allclose(got, want, rtol=2e-6, atol=0, equal_nan=True):
                wrong = got if want.shape != got.shape else got[~np.isclose(got, want, 2e-6, 0, True).all(axis=1)]
                problems.append(f"{node} of {operands}: {wrong[0].tolist()}, the page says {wanted}")
    expect(not problems, "\n".join(problems))


def page():
    model = Model()
    for line in lines():
        model.add(*line)
    return model


def holds(cpu):
    folder = T.scratch(SCRATCH / cpu)
    model = page()
    expect(len(model.cases) > 80, f"only {len(model.cases)} lines in the page's tables")
    outputs = model.save(folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", f"--cpu={cpu}")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    compare(model.cases, T.Program(folder / "net", outputs).run(list(model.arrays.values())), 0)


for cpu in SETS:
    suite.add(f"the page's tables, {cpu}", holds, cpu, slow=cpu not in ("generic", SETS[-1]))


@suite.case("what the page says of ONNX Runtime", slow=True)
def theirs():
    folder = T.scratch(SCRATCH / "theirs")
    model = page()
    outputs = model.save(folder / "net.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"), options)
    told = [case for case in model.cases if case[2] != case[3]]
    compare(told, dict(zip(outputs, session.run(outputs, model.arrays))), 1)


def program(name, nodes, x, weights, *options):
    folder = T.scratch(SCRATCH / name)
    onnx.save(G.model(nodes, [G.value("x", x.shape)], [G.value("y", None)], weights), folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", f"--cpu={SETS[-1]}", *options)
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    return T.Program(folder / "net", ["y"]).run([x])["y"]


def draw(random, *shape, by=1.0):
    return (random.standard_normal(shape) * by).astype(np.float32)


@suite.case("empty tokens stay zero through products, and their angles are the model's own")
def empty_tokens():
    """As Swin V2 has them: padded tokens, whose queries and keys are divided by their own size."""
    random = np.random.default_rng(2)
    x, w = draw(random, 1, 100, 256), draw(random, 256, 512, by=1 / 16)
    nodes = [G.node("Pad", ["x", "pads"], ["p"]), G.node("MatMul", ["p", "w"], ["y"])]
    weights = [G.weight("pads", np.array([0, 0, 0, 0, 44, 0])), G.weight("w", w)]
    for options in (), ("--strassen",):
        y = program("tokens" + "".join(options), nodes, x, weights, *options)
        expect(np.all(y[:, 100:] == 0) and np.all(np.isfinite(y)), f"{options}: rows of zeros become {y[:, 100:].max()}")
    angle = [*nodes[:1], G.node("MatMul", ["p", "w"], ["q"]), G.node("ReduceL2", ["q"], ["l"], axes=[2]),
             G.node("Max", ["l", "least"], ["m"]), G.node("Div", ["q", "m"], ["y"])]
    y = program("angles", angle, x, [*weights, G.weight("least", np.float32(1e-12))])
    expect(np.all(y[:, 100:] == 0), f"empty tokens have the angle of {np.abs(y[:, 100:]).max()}")


@suite.case("a norm of a constant row is the rounding of its mean")
def constant_rows():
    for n in 7, 48, 197:
        x = np.tile(draw(np.random.default_rng(n), 64, 1), (1, n))
        y = program(f"constant{n}", [G.node("LayerNormalization", ["x", "one"], ["y"])], x,
                    [G.weight("one", np.ones(n, np.float32))])
        most = n * 2.0 ** -24 * np.abs(x) / np.sqrt(1e-5)
        expect(np.all(np.abs(y) <= most), f"{n} elements: {np.max(np.abs(y) / most):.2g} of what the page allows")


@suite.case("a tile of zeros is zero, and what is left beside others is no more than the tile's error")
def empty_tiles():
    random = np.random.default_rng(3)
    x, w = draw(random, 1, 64, 28, 28), draw(random, 64, 64, 3, 3, by=1 / 24)
    x[:, :, :, 13:] = 0
    nodes, weights = [G.node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], [G.weight("w", w)]
    y = program("tiles", nodes, x, weights)
    plain = program("plain", nodes, x, weights, "--no-winograd")
    expect(np.all(plain[..., 14:] == 0), "a sum of products of zeros is not zero")
    expect(np.all(y[..., 22:] == 0), "a tile of zeros is not zero")
    left = np.abs(y[..., 14:]).max() / np.abs(plain).max()
    expect(0 < left < 3e-5, f"{left:.2g} of the largest result is left in windows of zeros")


suite.main()
