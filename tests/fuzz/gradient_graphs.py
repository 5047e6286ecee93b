"""Random graphs: their gradients by tgc against PyTorch's, in f64.

    gradient_graphs.py                          the first BATCH seeds; --all: LONG of them
    gradient_graphs.py --seed 1000 --count 500  others
    gradient_graphs.py --seed 1234 --keep       leaves the model and both answers in the scratch folder

Graphs are those of generate.py in f64, without what only integers and codes do. The loss is the sum of what nothing reads, each element
times a random number; its gradient by every float input and weight is compared, and the values. All floats are moved a little, so that
ties and kinks are met by construction alone. PyTorch computes each graph at two more points, next to the first: where the gradients part,
rounding is amplified, and no comparison is stricter than that. What is NaN or infinite there is not compared.
Of a graph whose gradient is wrong its nodes are tried one by one, and then its values, each as a loss of its own.
"""

import collections
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE)]

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import generate as R
import oracle
import tgc as T
from suite import Failure, Suite

BATCH, LONG = 50, 1050
RTOL, ATOL, AMPLIFIED = 1e-6, 1e-8, 1e4     # of each element, of the largest, times what PyTorch's own answers part
ROUGH = 100                                 # times these where a Resize has its weights in f32
MOST = 1200                                 # elements of a value
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}
WITHOUT = {"narrow", "quantize", "integer_products"}
OPERATORS = [(f, w) for f, w in R.OPERATORS if f.__name__ not in WITHOUT]
TALLY = collections.Counter()
BROKEN = "the reference fails: "
oracle.TRACKS = 1                           # what is compared is not ONNX Runtime's


class Smooth(R.Graph):
    """Of floats, but for indices and conditions."""

    def __init__(self, seed):
        super().__init__(seed)
        self.opset, self.most = self.between(13, 21), MOST
        self.dynamic = self.edgy = False
        self.sizes = [None]

    def have(self, dtypes=R.ALL, ranks=range(7), test=None):
        return super().have(("float32",) if "float32" in dtypes else dtypes, ranks, test)

    def start(self):
        for _ in range(self.between(1, 3)):
            self.add_input("float32", self.shape())

    def check(self, array):
        super().check(array)
        if not array.size:
            raise oracle.Rejected("nothing has no derivative")


# ----------------------------------------------------------------------------------------------------------------- a graph in f64

def doubled(node):
    """The node in f64, bodies included."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
        if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type in FLOATS:
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float64)))
        if attribute.type == onnx.AttributeProto.GRAPH:
            for info in (*attribute.g.input, *attribute.g.output):
                if info.type.tensor_type.elem_type in FLOATS:
                    info.type.tensor_type.elem_type = TensorProto.DOUBLE
            for inner in attribute.g.node:
                doubled(inner)
    return node


def said(node, shapes):
    """A node for gradient_reference.py."""
    attributes = {}
    for a in node.attribute:
        value = helper.get_attribute_value(a)
        if isinstance(value, onnx.TensorProto):
            array = numpy_helper.to_array(value)
            value = {"dtype": array.dtype.name, "shape": list(array.shape), "data": array.ravel().tolist()}
        elif isinstance(value, onnx.GraphProto):
            value = {"inputs": [v.name for v in value.input], "outputs": [v.name for v in value.output],
                     "nodes": [said(inner, {}) for inner in value.node]}
        elif isinstance(value, bytes):
            value = value.decode()
        elif not isinstance(value, (int, float)):
            value = [v.decode() if isinstance(v, bytes) else v for v in value]
        attributes[a.name] = value
    shape = [list(shapes[name]) for name in node.output] if all(name in shapes for name in node.output) else None
    return {"op": node.op_type, "inputs": list(node.input), "outputs": list(node.output), "attributes": attributes, "shapes": shape}


class Trial:
    """Nodes, arrays of all that they need, what is summed as a loss."""

    def __init__(self, nodes, given, weights, outputs, shapes, opset, seed):
        needed = {name for node in nodes for name in oracle.node_inputs(node)}
        random = np.random.default_rng(seed)
        self.given = {name: array for name, array in given.items() if name in needed}
        self.weights, self.outputs, self.opset = weights & needed, outputs, opset
        self.shapes = {**shapes, "loss": [], **{f"sum {n}": [] for n in outputs}, **{f"weighted {n}": shapes[n] for n in outputs}}
        self.nodes, self.named = list(nodes), list(nodes)
        self.rough = ROUGH if any(node.op_type == "Resize" for node in nodes) else 1
        for name in outputs:
            self.given[f"times {name}"] = random.standard_normal(shapes[name])
            self.nodes += [helper.make_node("Mul", [name, f"times {name}"], [f"weighted {name}"]),
                           helper.make_node("ReduceSum", [f"weighted {name}"], [f"sum {name}"], keepdims=0)]
        self.nodes.append(helper.make_node("Sum", [f"sum {name}" for name in outputs], ["loss"]))
        self.wanted = [name for name, array in self.given.items() if array.dtype == np.float64 and not name.startswith("times ")]

    def write(self, folder):
        self.folder = T.scratch(folder)
        value = lambda name, array: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        inside = {n: a for n, a in self.given.items() if n in self.weights or n.startswith("times ")}
        self.inputs = {n: a for n, a in self.given.items() if n not in inside}
        outputs = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, self.shapes.get(n, [])) for n in [*self.outputs, "loss"]]
        graph = helper.make_graph(self.nodes, "gradient", [value(n, a) for n, a in self.inputs.items()], outputs,
                                  [numpy_helper.from_array(a, n) for n, a in inside.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9), folder / "m.onnx")
        np.savez(folder / "in.npz", **self.given)
        (folder / "graph.json").write_text(json.dumps({
            "nodes": [said(node, self.shapes) for node in self.nodes], "wanted": self.wanted, "outputs": [*self.outputs, "loss"]}))

    def by_tgc(self):
        words = []
        for name, array in self.inputs.items():
            np.save(self.folder / f"{name}.npy", array)
            words += ["-i", f"{name}={name}.npy"]
        done = T.run([TGC, "run", "m.onnx", "--target=llvm", "--gradient=loss", *words, "--out-dir", "out"], cwd=self.folder)
        if done.status == 1 and (why := re.search(r"(node \d+.* error: |error: gradient: ).*", done.err)):       # refused, as random_graphs.py has it
            TALLY[re.sub(r"'[^']*'|\d+", "_", why.group())[:160]] += 1
            return None
        T.must(done)
        return {p.stem: np.load(p) for p in (self.folder / "out").glob("*.npy")}

    def verdict(self):
        """What is wrong; None: nothing; "": there is nothing to compare with."""
        if (self.folder / "unknown.txt").exists():
            TALLY[(self.folder / "unknown.txt").read_text().splitlines()[-1]] += 1
            return ""
        if (self.folder / "wrong.txt").exists():
            return BROKEN + (self.folder / "wrong.txt").read_text()
        got = self.by_tgc()
        if got is None:
            return ""
        want = np.load(self.folder / "torch.npz")
        for kind, names in (("out", self.outputs), ("grad", self.wanted)):
            for name in names:
                tracks = [want[f"{kind} {noise} {name}"] for noise in range(3)]
                a = got.get(T.file_stem(name if kind == "out" else f"grad.{name}"))
                wrong = mismatch(np.zeros(tracks[0].shape) if a is None else a, tracks, self.rough)
                if wrong:
                    return f"{kind} of {name} {wrong}{' (tgc has none)' if a is None else ''}"
        return None

    def describe(self):
        lines = [f"opset {self.opset}, outputs {', '.join(self.outputs)}, of {self.folder}"]
        lines += [f"{name}: {a.dtype}{list(a.shape)} {np.array2string(a.ravel()[:8], precision=4, separator=',')}"
                  for name, a in self.given.items()]
        return "\n".join([*lines, *(onnx.printer.to_text(node) for node in self.named)])


def mismatch(actual, tracks, rough):
    want = tracks[0]
    if actual.shape != want.shape:
        return f"has shape {list(actual.shape)}, expected {list(want.shape)}"
    known = np.all([np.isfinite(t) for t in tracks], 0)
    if not known.any():
        return None
    parted = np.max([np.abs(np.where(known, t, 0) - np.where(known, want, 0)) for t in tracks], 0)
    room = rough * (RTOL * np.abs(want) + ATOL * np.abs(want[known]).max()) + AMPLIFIED * parted + 1e-12
    with np.errstate(invalid="ignore"):
        wrong = np.asarray(known & ~(np.abs(actual - want) <= room))
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0]) if want.ndim else ()
    return f"{int(wrong.sum())} of {want.size} elements wrong; first at {list(where)}: {actual[where]}, expected {want[where]}"


def moved(array, random):
    """In f64, and not where operators have ties and kinks."""
    array = array.astype(np.float64)
    away = array * (1 + 1e-3 * random.standard_normal(array.shape))
    return away + 1e-3 * random.standard_normal(array.shape) * (array.size > 1)


def make(seed):
    for turn in range(100):
        trial = made_of(seed + turn * TURN)
        if trial:
            return trial
    raise Failure(f"seed {seed}: no float comes out of any graph")


def ends_early(node, weights):
    """Whether a condition ends a loop, or only the run knows its trip count: it has no derivative."""
    bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    given = node.op_type == "Loop" and any(name and name not in weights for name in node.input[:2])
    stops = node.op_type == "Loop" and any(n.output[0] == bodies[0].output[0].name and n.op_type != "Identity" for n in bodies[0].node)
    return given or stops or any(ends_early(inner, weights) for body in bodies for inner in body.node)


def made_of(seed):
    """None: nothing in it is a float, or a part of it is refused."""
    graph = Smooth(seed)
    graph.start()
    graph.grow(graph.between(4, 20), OPERATORS)
    random = np.random.default_rng([seed, 1])
    given = {n: moved(v.array, random) if v.array.dtype.kind == "f" else v.array for n, v in graph.values.items() if v.kind != "node"}
    weights = {n for n, v in graph.values.items() if v.kind == "weight"}
    for node in graph.nodes:                # its scales remain of f32, whatever else reads them
        if node.op_type == "Resize":
            given[f"{node.input[2]} of f32"] = graph.values[node.input[2]].array
            node.input[2] += " of f32"
            weights.add(node.input[2])
    shapes = {n: v.shape for n, v in graph.values.items()}
    nodes = [doubled(node) for node in graph.nodes]
    outputs = [n for n, v in graph.values.items() if v.kind == "node" and v.array.dtype.kind == "f" and v.array.size and
               (n not in graph.read or graph.chance(0.15))]
    is_refused = any(ends_early(node, weights) for node in nodes)
    return Trial(nodes, given, weights, outputs, shapes, graph.opset, seed) if outputs and not is_refused else None


# ------------------------------------------------------------------------------------------------------------------------- cases

def by_torch(trials):
    done = subprocess.run([T.TORCH, HERE / "gradient_reference.py"], input=json.dumps([str(t.folder) for t in trials]).encode(),
                          capture_output=True)
    if done.returncode:
        raise Failure(done.stderr.decode()[-2000:])


def smaller(trial, seed):
    """Trials of one node each, whose inputs are given; then of one value each, with all that makes it."""
    known = np.load(trial.folder / "torch.npz")
    floats = {key.split(" ", 2)[2]: known[key] for key in known.files if key.startswith("value ")}
    values, made = {**trial.given, **floats}, []
    for k, node in enumerate(trial.named):
        outputs = [n for n in node.output if values.get(n) is not None and values[n].dtype == np.float64 and values[n].size]
        if outputs:
            made.append(Trial([node], values, trial.weights, outputs, trial.shapes, trial.opset, seed))
    for k, node in enumerate(trial.named):
        for n in node.output:
            if values.get(n) is not None and values[n].dtype == np.float64 and values[n].size:
                made.append(Trial(live(trial.named[:k + 1], n), trial.given, trial.weights, [n], trial.shapes, trial.opset, seed))
    return made


def live(nodes, output):
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted.update(oracle.node_inputs(node))
    return kept[::-1]


def explain(trial, seed, verdict):
    """The smallest part of a graph that is wrong, as text."""
    if verdict.startswith(BROKEN):
        return f"seed {seed}: {verdict}"
    folder, trials = trial.folder / "smaller", smaller(trial, seed)
    for k, one in enumerate(trials):
        one.write(folder / str(k))
    by_torch(trials)
    for one in trials:
        wrong = one.verdict()
        if wrong:
            return f"seed {seed}: {wrong}\n{one.describe()}"
    return f"seed {seed}: {verdict}\n{trial.describe()}"


def graphs(first, count):
    T.need_torch()
    T.need_llvm(TGC)
    trials = {seed: make(seed) for seed in range(first, first + count)}
    for seed, trial in trials.items():
        trial.write(SCRATCH / str(seed))
    by_torch(list(trials.values()))
    wrong, compared = [], 0
    for seed, trial in trials.items():
        verdict = trial.verdict()
        compared += verdict != ""
        if verdict:
            wrong.append(explain(trial, seed, verdict))
        elif not OPTIONS.keep:
            shutil.rmtree(trial.folder)
    if OPTIONS.tally:
        print(f"# {compared} of {count} compared; not: {dict(TALLY)}", flush=True)
    if wrong:
        raise Failure("\n\n".join(wrong))
    if compared < count * LEAST:
        raise Failure(f"only {compared} of {count} graphs were compared")


LEAST, TURN = 0.9, 1 << 32


def options(parser):
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--tally", action="store_true", help="print how many were compared")


suite = Suite("gradient-graphs")
OPTIONS = suite.parse(options)
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "gradient-graphs"
if OPTIONS.seed is not None:
    for first in range(OPTIONS.seed, OPTIONS.seed + OPTIONS.count, BATCH):
        suite.add(f"seeds from {first}", graphs, first, min(BATCH, OPTIONS.seed + OPTIONS.count - first))
else:
    for first in range(0, LONG, BATCH):
        suite.add(f"seeds {first}-{first + BATCH - 1}", graphs, first, BATCH, slow=first >= BATCH)
suite.main()
