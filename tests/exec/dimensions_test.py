"""Sizes that a model computes from an open dimension in any dtype, and constants that are filled to one.

Arithmetic at random (each step in a dtype, with its rounding or wrap, casts both ways) makes a size of an open dimension.
A program has each size twice, as a shape and as a value, for all values of the dimension; both are what NumPy computes
in those dtypes, step by step. Scans, sums and searches over constants have widths around those of vectors, by ONNX Runtime.
"""

import sys
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("dimensions")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "dimensions"
INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT
FLOATS = {"FLOAT16": np.float16, "BFLOAT16": ml_dtypes.bfloat16, "FLOAT": np.float32, "DOUBLE": np.float64}
INTS = {"INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "INT8": np.int8, "INT16": np.int16}
MOST, LARGEST = 200, 2000        # of the dimension, and of a size


class Chain:
    """Steps from the dimension to a size: nodes of ONNX, and the same by NumPy for all values of the dimension at once."""

    def __init__(self, random, name):
        self.random, self.name, self.nodes, self.weights = random, name, [], []
        self.at, self.kind, self.v = "h", "INT64", np.arange(MOST + 1, dtype=np.int64)
        self.words, self.wraps = [], False
        self.cast(random.choice([*FLOATS, *FLOATS, *INTS]))
        for _ in range(random.randint(1, 5)):
            self.step()
        self.finish()

    def to(self, op, values, *others, **attributes):
        result = f"{self.name}_{len(self.nodes)}"
        self.nodes.append(G.node(op, [self.at, *others], [result], **attributes))
        self.at, self.v = result, values
        self.words.append(op)

    def number(self, value):
        dtype = {**FLOATS, **INTS}[self.kind]
        array = np.array([value], dtype)
        name = f"{self.name}_c{len(self.weights)}"
        tensor = onnx.helper.make_tensor(name, getattr(TensorProto, self.kind), [1], array.tobytes(), raw=True)
        self.weights.append(tensor)
        self.words.append(f"{self.kind}:{array[0]}")
        return name, array

    def cast(self, kind):
        """What a float beyond an integer's range becomes, nobody says."""
        if self.kind in FLOATS and kind in INTS:
            limits = np.iinfo(INTS[kind])
            with np.errstate(all="ignore"):
                wide = self.v.astype(np.float64)
                if not np.isfinite(wide).all() or (np.trunc(wide) < limits.min).any() or (np.trunc(wide) > min(limits.max, 2**62)).any():
                    return
        dtype = {**FLOATS, **INTS}[kind]
        values = self.v.astype(np.float32).astype(dtype) if ml_dtypes.bfloat16 in (dtype, self.v.dtype) and self.kind in FLOATS and kind != "DOUBLE" else self.v.astype(dtype)
        self.to("Cast", values, to=getattr(TensorProto, kind))
        self.kind = kind

    def step(self):
        random, is_float = self.random, self.kind in FLOATS
        if random.random() < 0.25:
            kind = random.choice(list(FLOATS) * 2 + list(INTS))
            if kind != self.kind:
                self.cast(kind)
            return
        op = random.choice(["Mul"] * 6 + ["Div"] * 3 + ["Add", "Add", "Sub", "Min", "Max", "Where"] + (["Floor", "Ceil", "Round", "Sqrt", "Neg"] if is_float else ["Abs", "Mod"]))
        with np.errstate(all="ignore"):
            if op in ("Floor", "Ceil", "Round", "Abs", "Neg", "Sqrt"):
                if (op == "Sqrt" and (self.v < 0).any()) or (self.kind == "BFLOAT16" and op == "Round"):
                    return
                f = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Abs": np.abs, "Neg": np.negative, "Sqrt": np.sqrt}[op]
                self.to(op, f(self.v).astype(self.v.dtype))
                return
            value = random.choice([random.randint(1, 40) / 20, random.randint(1, 200) / 100, random.randint(1, 9), random.randint(1, 9)]) if is_float else random.randint(1, 9)
            name, c = self.number(value)
            if op == "Where":
                below = f"{self.name}_b{len(self.nodes)}"
                self.nodes.append(G.node("Less", [self.at, name], [below]))
                was = self.at
                self.at = below
                self.to("Where", np.where(self.v < c, self.v, c).astype(self.v.dtype), was, name)
                return
            if op == "Div" and not is_float:
                values = (np.sign(self.v.astype(np.int64)) * (np.abs(self.v.astype(np.int64)) // c.astype(np.int64))).astype(self.v.dtype)
            elif op == "Mod":
                values = np.mod(self.v, c)
            else:
                f = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide, "Min": np.minimum, "Max": np.maximum}[op]
                values = f(self.v, c).astype(self.v.dtype)
            self.wraps |= not is_float and (values.astype(np.float64) != f(self.v.astype(np.float64), value)).any() if op in ("Mul", "Add", "Sub") else False
            self.to(op, values, name)

    def finish(self):
        if self.kind in FLOATS:
            if self.random.random() < 0.7:
                op, f = self.random.choice([("Floor", np.floor), ("Ceil", np.ceil)])
                self.to(op, f(self.v).astype(self.v.dtype))
            before = len(self.nodes)
            self.cast(self.random.choice(["INT64", "INT32"]))
            if len(self.nodes) == before:                # beyond that range
                name, c = self.number(7.5)
                with np.errstate(all="ignore"):
                    self.to("Min", np.minimum(self.v, c), name)
                    name, c = self.number(-3)
                    self.to("Max", np.maximum(self.v, c), name)
                self.v = np.nan_to_num(self.v.astype(np.float64)).astype(self.v.dtype)
                self.cast("INT64")
        if self.kind != "INT64":
            self.cast("INT64")
        for op, value, f in (("Max", 0, np.maximum), ("Min", LARGEST, np.minimum)):
            if self.v.min() < 0 or self.v.max() > LARGEST or self.wraps:
                name, c = self.number(value)
                self.to(op, f(self.v, c), name)


def sizes(folder, seed, count, options):
    random = Random(seed)
    chains = [Chain(random, f"s{k}") for k in range(count)]
    nodes, weights, outputs = [G.node("Shape", ["x"], ["h"])], [], []
    for c in chains:
        nodes += c.nodes + [G.node("ConstantOfShape", [c.at], [f"{c.name}_y"]), G.node("Identity", [c.at], [f"{c.name}_n"])]
        weights += c.weights
        outputs += [G.value(f"{c.name}_y", [f"{c.name}_dim"]), G.value(f"{c.name}_n", [1], INT)]
    graph = G.model(nodes, [G.value("x", ["h"])], outputs, weights, opset=20)
    onnx.save(graph, folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", f"--dim=h<={MOST}", *options)
    T.build(folder / "net.c", folder / "net", "gcc", (T.LEVEL,), main_by=TGC)
    program = T.Program(folder / "net", [o.name for o in graph.graph.output])
    for h in [0, 1, MOST, *random.sample(range(2, MOST), 12), *random.sample(range(10, MOST, 10), 12)]:
        got = program.run([np.zeros(h, np.float32)])
        for c in chains:
            have = (len(got[f"{c.name}_y"]), int(got[f"{c.name}_n"][0]))
            expect(have == (c.v[h], c.v[h]), f"h = {h}: shape, value {have}, expected {c.v[h]}: {' '.join(c.words)}")


for seed in range(40):
    folder = T.scratch(SCRATCH / f"sizes{seed}") if seed < 2 or OPTIONS.all else None
    suite.add(f"sizes at random, {seed}", sizes, folder, seed, 40, ("--cpu=generic",) if seed % 2 else (), slow=seed > 1)


# ------------------------------------------------------------- constants that are filled to an open dimension

WIDTHS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64)
TARGETS = ("c", "opencl", "cuda", "amd", "metal")
SCANS = {                                        # y of k, ones (or twos) of [b, width], and x of that shape
    "cumsum": [("CumSum", ["k", "one"], ["y"])],
    "cumsum of columns": [("CumSum", ["k", "zero"], ["y"])],
    "cumsum, exclusive and reversed": [("CumSum", ["k", "one"], ["y"], {"exclusive": 1, "reverse": 1})],
    "sum": [("ReduceSum", ["k", "ones"], ["y"])],
    "sum of columns": [("ReduceSum", ["k", "zeros"], ["y"])],
    "sum of all": [("ReduceSum", ["k"], ["y"])],
    "product": [("ReduceProd", ["k", "ones"], ["y"])],
    "largest": [("ReduceMax", ["k", "ones"], ["y"])],
    "where it is": [("ArgMax", ["k"], ["y"], {"axis": 1})],
    "top": [("TopK", ["k", "top"], ["v", "i"]), ("Add", ["i", "zero"], ["y"])],
    "cumsum of a comparison": [("Greater", ["x", "k"], ["g"]), ("Cast", ["g"], ["c"], {"to": TensorProto.INT32}), ("CumSum", ["c", "one"], ["y"])],
    "cumsum of a choice": [("Greater", ["x", "k"], ["g"]), ("Where", ["g", "x", "k"], ["c"]), ("CumSum", ["c", "one"], ["y"])],
    "places": [("CumSum", ["k", "one"], ["c"]), ("Sub", ["c", "k"], ["d"]), ("Mul", ["d", "x"], ["y"])],
    "soft argmax": [("CumSum", ["k", "one"], ["c"]), ("Cast", ["c"], ["f"], {"to": FLOAT}), ("Cast", ["x"], ["z"], {"to": FLOAT}), ("Softmax", ["z"], ["u"]),
                    ("Mul", ["f", "u"], ["p"]), ("ReduceSum", ["p", "ones"], ["y"])],
}
FLOAT_SCANS = {
    "mean": [("ReduceMean", ["k", "ones"], ["y"])],
    "softmax": [("Softmax", ["k"], ["y"])],
    "product of matrices": [("MatMul", ["k", "w"], ["y"])],
    "norm": [("LayerNormalization", ["k", "row"], ["y"])],
    "softmax of a cumsum": [("CumSum", ["k", "one"], ["c"]), ("Softmax", ["c"], ["y"])],
    "product of a cumsum": [("CumSum", ["k", "one"], ["c"]), ("MatMul", ["c", "w"], ["y"])],
}
ELEMENTS = {"f32": (np.float32, FLOAT), "f16": (np.float16, TensorProto.FLOAT16), "i64": (np.int64, INT), "i32": (np.int32, TensorProto.INT32)}


def constants(elements, widths, names):
    """A graph with each of these, for each width."""
    dtype, kind = ELEMENTS[elements]
    nodes, inputs, outputs, weights = [], [], [], []
    kinds = {**SCANS, **(FLOAT_SCANS if elements.startswith("f") else {})}
    for n, (width, name) in enumerate((w, name) for w in widths for name in names or kinds):
        if name not in kinds:
            continue
        rename = lambda words: [f"{word}{n}" for word in words]
        nodes += [G.node("Shape", [f"x{n}"], [f"s{n}"]), G.node("ConstantOfShape", [f"s{n}"], [f"k{n}"], value=G.weight("", np.array([1 + n % 2], dtype)))]
        nodes += [G.node(op, rename(i), rename(o), **dict(*more)) for op, i, o, *more in kinds[name]]
        used = {i for _, ins, *_ in kinds[name] for i in ins}
        given = {"one": np.array(1), "zero": np.array(0), "ones": np.array([1]), "zeros": np.array([0]), "top": np.array([(width + 1) // 2]),
                 "w": np.linspace(-1, 1, width * 9).reshape(width, 9).astype(dtype), "row": np.linspace(1, 2, width).astype(dtype)}
        weights += [G.weight(f"{word}{n}", given[word]) for word in sorted(used & set(given))]
        inputs.append(G.value(f"x{n}", ["b", width], kind))
        outputs.append(onnx.helper.make_empty_tensor_value_info(f"y{n}"))
    return G.model(nodes, inputs, outputs, weights, opset=18)


def fill(folder, elements, widths, names, options):
    graph = constants(elements, widths, names)
    onnx.save(graph, folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--dim=b<=9", *options)
    T.build(folder / "net.c", folder / "net", "gcc", (T.LEVEL,), main_by=TGC)
    program = T.Program(folder / "net", [o.name for o in graph.graph.output])
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    wide = constants("f32", widths, names or [*SCANS, *FLOAT_SCANS]) if elements == "f16" else graph         # ONNX Runtime has few operators of halves
    session = onnxruntime.InferenceSession(wide.SerializeToString(), quiet)
    random = np.random.default_rng(3)
    for b in (0, 1, 5):
        feeds = {i.name: random.integers(-3, 9, (b, i.type.tensor_type.shape.dim[1].dim_value)).astype(ELEMENTS[elements][0]) for i in graph.graph.input}
        got = program.run(list(feeds.values()))
        most = 4e-3 if elements == "f16" else 1e-5
        wanted = session.run(None, {n: v.astype(np.float32) if elements == "f16" else v for n, v in feeds.items()})
        for output, want in zip(graph.graph.output, wanted):
            have = got[output.name]
            T.compare(f"{output.name}, {b} rows", have.astype(want.dtype), want, most, most)


def emitted(folder, elements, target):
    """Every variant's kernels are made, and checked after each pass."""
    for width in WIDTHS:
        onnx.save(constants(elements, [width], None), folder / "net.onnx")
        T.emit(TGC, folder / "net.onnx", folder / "net.c", "--dim=b<=9", f"--target={target}")


for elements in ELEMENTS:
    quick = elements in ("f32", "i64")
    suite.add(f"constants of {elements}", fill, T.scratch(SCRATCH / f"constants-{elements}"), elements, (7, 16) if quick else (16,), None, (), slow=not quick)
    suite.add(f"constants of {elements}, all widths", fill, T.scratch(SCRATCH / f"widths-{elements}"), elements, WIDTHS, None, ("--cpu=native",), slow=True)
    for target in TARGETS:
        suite.add(f"constants of {elements}, all widths, {target}", emitted, T.scratch(SCRATCH / f"{target}-{elements}"), elements, target, slow=True)


if __name__ == "__main__":
    suite.main()
