"""Random ONNX graphs, valid by construction: a node is kept only if the oracle computes it.

Each operator is a function that draws its inputs from the values that exist, its attributes and
its constants, in the form of the graph's opset. A graph with a run-time dimension carries its
values at several sizes of it at once; a node must work at all of them.
"""

import functools

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import oracle
from oracle import Rejected

F = ("float32", "float64", "float16")
SIGNED = ("int64", "int32", "int8", "int16")
INTS = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*F, *INTS)
ALL = (*NUMBERS, "bool")
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 16, 20, 33, 64)
MOST = 6000      # elements of a value
# Of large graphs, whose kernels are large enough for what devices have: local memory, tiles, matrix instructions.
LARGE = (1, 1, 2, 3, 4, 7, 16, 17, 32, 33, 48, 64, 65, 100)
WIDE = (24, 32, 33, 64, 100)
MOST_LARGE = 40000
OPERATORS = []   # (function, weight)


def operator(weight=1):
    def register(function):
        OPERATORS.append((function, weight))
        return function
    return register


class Value:
    """tracks[size][track]: the arrays at each size of the run-time dimension."""

    def __init__(self, name, tracks, kind, loose=False):
        self.name, self.tracks, self.kind = name, tracks, kind  # kind: input, weight or node
        self.loose = loose  # the model cannot say its shape: only the run knows it

    @property
    def array(self):
        return self.tracks[0][0]

    dtype = property(lambda self: self.array.dtype.name)
    rank = property(lambda self: self.array.ndim)
    shape = property(lambda self: self.array.shape)

    def moves(self, axis):
        """Whether the axis has another size at another size of the run-time dimension."""
        return len({sizes[0].shape[axis] for sizes in self.tracks}) > 1

    @property
    def fixed(self):
        return not any(self.moves(a) for a in range(self.rank))


class Graph:
    def __init__(self, seed, large=False):
        self.seed, self.large, self.most = seed, large, MOST_LARGE if large else MOST
        self.random = np.random.default_rng(seed)
        self.opset = int(self.random.choice([7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 18, 19, 20, 21]))
        self.dynamic = self.chance(0.2)
        self.edgy = self.chance(0.08)
        self.inferred = self.chance(0.5)  # the model says the shapes of what is inside of it
        bound = int(self.random.choice([3, 5, 7, 16]))
        self.sizes = [bound, 1, int(self.random.integers(1, bound + 1))] if self.dynamic else [None]
        self.values, self.nodes, self.read, self.names = {}, [], set(), 0

    # ---- drawing

    def chance(self, p):
        return bool(self.random.random() < p)

    def pick(self, items):
        items = list(items)
        if not items:
            raise Rejected("nothing to choose from")
        return items[int(self.random.integers(len(items)))]

    def between(self, lo, hi):
        """Both ends included."""
        return int(self.random.integers(lo, hi + 1))

    def name(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    def shape(self, rank=None):
        rank = self.pick([0, 1, 1, 2, 2, 2, 3, 3, 4, 5]) if rank is None else rank
        sizes = SIZES if self.chance(0.15) else LARGE if self.large else SIZES[1:]
        while True:
            shape = [self.pick(sizes) for _ in range(rank)]
            if np.prod(shape) <= self.most // 3:
                return shape

    def width(self, sizes):
        """One of these sizes of what a product makes, or of larger ones."""
        return self.pick([*sizes, *(WIDE if self.large else ())])

    def draw(self, dtype, shape, low=None, high=None):
        kind = np.dtype(dtype).kind
        if kind == "b":
            return self.random.random(shape) < 0.5
        if kind == "f":
            if low is not None:
                array = self.random.uniform(low, high, shape)
            elif self.chance(0.7):
                array = self.random.standard_normal(shape)
            else:
                array = self.random.integers(-6, 7, shape) / 2.0
            array = np.asarray(array)
            if self.edgy and array.size:
                edges = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3e38, -1e30, 65504.0, 0.5, 2.5]
                array[self.random.random(shape) < 0.15] = self.pick(edges)
            with np.errstate(over="ignore"):
                return array.astype(dtype)
        bounds = np.iinfo(dtype)
        if low is None and self.edgy and self.chance(0.5):
            array = self.random.integers(bounds.min, bounds.max, shape, np.dtype(dtype), True)
        else:
            low = max(bounds.min, -9) if low is None else low
            array = self.random.integers(low, (9 if high is None else high) + 1, shape)
        return np.asarray(array).astype(dtype)

    # ---- leaves

    def add_input(self, dtype, shape, dynamic=()):
        name, tracks = self.name("x"), []
        for size in self.sizes:
            array = self.draw(dtype, [size if a in dynamic else n for a, n in enumerate(shape)])
            tracks.append([array] * oracle.TRACKS)
        self.values[name] = Value(name, tracks, "input")
        self.values[name].dynamic = tuple(dynamic)
        return name

    def weight(self, array):
        array = np.asarray(array)
        name = self.name("w")
        self.values[name] = Value(name, [[array] * oracle.TRACKS for _ in self.sizes], "weight")
        return name

    def ints(self, values):
        return self.weight(np.asarray(values, np.int64))

    def leaf(self, dtype, shape, low=None, high=None):
        """A weight or an input of a shape that does not move."""
        array = self.draw(dtype, shape, low, high)
        name = self.weight(array)
        if self.chance(0.5):
            value = self.values[name]
            value.kind, value.dynamic = "input", ()
        return name

    def start(self):
        for _ in range(self.between(2, 4)):
            shape = self.shape()
            dynamic = [a for a in range(len(shape)) if self.chance(0.5)] if self.dynamic else ()
            dtype = self.pick(ALL) if self.chance(0.5) else self.pick(["float32", "float32", "int64"])
            self.add_input(dtype, shape, dynamic[:1])

    # ---- nodes

    def have(self, dtypes=ALL, ranks=range(7), test=None):
        """A value of these dtypes and ranks; the newest and those never read are preferred."""
        found = [v for v in self.values.values()
                 if v.dtype in dtypes and v.rank in ranks and v.array.size <= self.most
                 and (v.kind != "weight" or v.array.size > 3) and (not test or test(v))]
        if not found:
            if self.chance(0.5):
                raise Rejected("no such value")
            rank = self.pick([r for r in ranks if r <= 5])
            name = self.add_input(self.pick(dtypes), self.shape(rank))
            if test and not test(self.values[name]):
                raise Rejected("no such value")
            return self.values[name]
        fresh = [v for v in found if v.name not in self.read and v.kind == "node"]
        if fresh and self.chance(0.6):
            return self.pick(fresh)
        return self.pick(found[-8:] if self.chance(0.6) else found)

    def partner(self, v):
        """A value that broadcasts with v, of its dtype."""
        same = [w for w in self.values.values() if w.dtype == v.dtype and w.kind == "node"
                and self.broadcasts(v, w)]
        if same and self.chance(0.6):
            return self.pick(same).name
        shape = [1 if v.moves(a) or self.chance(0.25) else n for a, n in enumerate(v.shape)]
        shape = shape[self.between(0, v.rank):] if self.chance(0.4) else shape
        if self.chance(0.1) and v.rank < 5:
            shape = [self.pick([1, 2, 3])] + [1] * (v.rank - len(shape)) + shape
        return self.leaf(v.dtype, shape)

    def broadcasts(self, v, w):
        try:
            shapes = [np.broadcast_shapes(a[0].shape, b[0].shape)
                      for a, b in zip(v.tracks, w.tracks)]
        except ValueError:
            return False
        return all(np.prod(s) <= self.most for s in shapes)

    def node(self, kind, inputs, outputs=1, loose=False, **attributes):
        """Adds the node if the oracle computes it, and what it computes is fit to go on with."""
        names = [self.name("y") for _ in range(outputs)]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        node = helper.make_node(kind, inputs, names, name=f"n{len(self.nodes)}", **attributes)
        needs = oracle.node_inputs(node)
        loose = loose or any(self.values[n].loose for n in needs)
        run = oracle.NodeOracle(node, self.opset, {n: self.values[n].array for n in needs})
        results = [[] for _ in names]
        for s in range(len(self.sizes)):
            for track in range(oracle.TRACKS):
                for k, array in enumerate(self.compute(run, node, len(self.nodes), s, track)):
                    if track == 0:
                        self.check(array)
                        results[k].append([])
                    elif array.shape != results[k][s][0].shape:
                        raise Rejected("the shape is undecided")
                    results[k][s].append(array)
        for name, tracks in zip(names, results):
            if not tracks[0]:
                raise Rejected("no result")
            if len({sizes[0].ndim for sizes in tracks}) > 1:
                raise Rejected("the rank moves")
            self.values[name] = Value(name, tracks, "node", loose)
        self.nodes.append(node)
        self.read.update(needs)
        return names[0]

    def compute(self, run, node, index, size, track):
        """What the node makes of a track at a size, with noise but in the exact one."""
        pair = max(track - 1, 0) // 2
        noise = np.random.default_rng([self.seed, index, size] + [pair] * (pair > 0))
        arrays = run.run({n: self.values[n].tracks[size][track] for n in oracle.node_inputs(node)})
        if track and node.op_type not in oracle.EXACT:
            arrays = [oracle.with_noise(a, track, noise, node.op_type in oracle.SUMS,
                                        1e-6 if oracle.is_rough(node) else 0.0) for a in arrays]
        return arrays

    @functools.cached_property
    def doubted(self):
        """doubt(), once."""
        return self.doubt()

    def doubt(self):
        """More tracks of everything. Whether shapes are the same in them, too."""
        for value in self.values.values():
            if value.kind != "node":
                value.tracks = [sizes + [sizes[0]] * oracle.DOUBTS for sizes in value.tracks]
        for index, node in enumerate(self.nodes):
            source, result = (self.values[names[0]] if names else None for names in (node.input, node.output))
            if source and {source.dtype, result.dtype} - set(ALL):  # a narrow cast
                for before, sizes in zip(source.tracks, result.tracks):
                    sizes += [narrowed(a, sizes[0].dtype) for a in before[len(sizes):]]
                continue
            run = oracle.NodeOracle(node, self.opset,
                                    {n: self.values[n].array for n in oracle.node_inputs(node)})
            for s in range(len(self.sizes)):
                for track in range(oracle.TRACKS, oracle.TRACKS + oracle.DOUBTS):
                    for name, array in zip(node.output, self.compute(run, node, index, s, track)):
                        sizes = self.values[name].tracks[s]
                        if array.shape != sizes[0].shape:
                            return False
                        sizes.append(array)
        return True

    def check(self, array):
        if array.dtype.name not in ALL:
            raise Rejected("dtype")
        if array.size > self.most or array.ndim > 6:
            raise Rejected("large")
        if self.edgy or array.size == 0 or array.dtype.kind == "b":
            return
        if array.dtype.kind == "f":
            most = 1e3 if array.dtype == np.float16 else 1e5
            if not np.isfinite(array).all() or np.abs(array).max() > most:
                raise Rejected("diverges")
        elif array.dtype.itemsize >= 4:  # ONNX Runtime's products are of floats
            if np.abs(array.astype(np.float64)).max() > 2.0 ** (40 if array.dtype.itemsize == 8 else 30):
                raise Rejected("diverges")

    def grow(self, count, operators=OPERATORS):
        functions = [f for f, _ in operators]
        weights = np.array([w for _, w in operators], float)
        weights /= weights.sum()
        for _ in range(count * 12):
            if len(self.nodes) >= count:
                break
            function = functions[self.random.choice(len(functions), p=weights)]
            before = set(self.values)
            try:
                function(self)
            except Rejected:
                for name in set(self.values) - before:
                    if self.values[name].kind != "node" and name not in self.read:
                        del self.values[name]

    def constant(self, value, dtype="float32"):
        return self.weight(np.asarray(value, dtype))


def not_edgy(g):
    """Whether inf - inf comes up depends on the order of a sum, and which NaN is the largest on taste."""
    if g.edgy:
        raise Rejected("not decided")


def finite(v):
    """Operators disagree about NaN where something is chosen by its order."""
    return all(np.isfinite(sizes[0].astype(float)).all() for sizes in v.tracks)


def make(seed, large=False):
    graph = Graph(seed, large)
    graph.start()
    graph.grow(graph.between(4, 32))
    return graph


# ---------------------------------------------------------------------------- elementwise

UNARY = {"Abs": (1, NUMBERS), "Neg": (1, (*F, *SIGNED)), "Exp": (1, F), "Log": (1, F), "Sqrt": (1, F),
         "Sin": (7, F), "Cos": (7, F), "Tan": (7, F), "Asin": (7, F), "Acos": (7, F),
         "Atan": (7, F), "Sinh": (9, F), "Cosh": (9, F), "Asinh": (9, F), "Acosh": (9, F),
         "Atanh": (9, F), "Tanh": (1, F), "Sigmoid": (1, F), "Relu": (1, (*F, *SIGNED)),
         "Softplus": (1, F), "Softsign": (1, F), "Erf": (9, F), "Floor": (1, F), "Ceil": (1, F),
         "Round": (11, F), "Sign": (9, NUMBERS), "Reciprocal": (1, F), "HardSwish": (14, F),
         "Mish": (18, F), "Identity": (1, ALL), "Not": (1, ("bool",)), "BitwiseNot": (18, INTS),
         "IsNaN": (9, F), "IsInf": (10, F), "LeakyRelu": (1, F), "Elu": (1, F), "Selu": (1, F),
         "Celu": (12, F), "HardSigmoid": (1, F), "ThresholdedRelu": (10, F), "Shrink": (9, F),
         "Gelu": (20, F)}
ALPHA = {"LeakyRelu", "Elu", "Celu", "HardSigmoid", "ThresholdedRelu"}


@operator(8)
def unary(g):
    kind = g.pick(UNARY)
    since, dtypes = UNARY[kind]
    if g.opset < since:
        raise Rejected("opset")
    attributes = {}
    if kind in ALPHA and g.chance(0.6):
        attributes["alpha"] = g.pick([0.25, 1.5, 0.1])
    if kind == "Gelu":
        attributes["approximate"] = g.pick(["none", "tanh"])
    if kind == "Shrink":
        attributes = {"lambd": g.pick([0.5, 1.0]), "bias": g.pick([0.0, 0.25])}
    x = g.have(dtypes).name
    if kind in ("Log", "Sqrt", "Acosh") and not g.edgy:
        x = g.node("Abs", [x])
    g.node(kind, [x], **attributes)


BINARY = {"Add": (7, NUMBERS), "Sub": (7, NUMBERS), "Mul": (7, NUMBERS), "Div": (7, NUMBERS),
          "Pow": (7, F), "And": (7, ("bool",)), "Or": (7, ("bool",)), "Xor": (7, ("bool",)),
          "Less": (7, NUMBERS), "Greater": (7, NUMBERS), "Equal": (7, ALL),
          "LessOrEqual": (12, NUMBERS), "GreaterOrEqual": (12, NUMBERS), "Max": (8, NUMBERS),
          "Min": (8, NUMBERS), "Mod": (10, NUMBERS), "PRelu": (9, F), "BitwiseAnd": (18, INTS),
          "BitwiseOr": (18, INTS), "BitwiseXor": (18, INTS), "BitShift": (11, ("uint8",)),
          "Sum": (8, F), "Mean": (8, F)}


@operator(12)
def binary(g):
    kind = g.pick(BINARY)
    since, dtypes = BINARY[kind]
    if g.opset < since:
        raise Rejected("opset")
    v = g.have(dtypes)
    integer = np.dtype(v.dtype).kind in "iu"
    attributes = {}
    inputs = [v.name, g.partner(v)]
    if kind in ("Div", "Mod") and integer:
        shape = [1 if v.moves(a) else n for a, n in enumerate(v.shape)]
        divisor = g.draw(v.dtype, shape, 1, 7)
        if np.dtype(v.dtype).kind == "i" and g.chance(0.5):
            divisor = np.where(g.random.random(shape) < 0.5, -divisor, divisor).astype(v.dtype)
        inputs[1] = g.weight(divisor)
        if g.edgy:
            raise Rejected("INT_MIN / -1")
    if kind == "Mod":
        if not all(np.array_equal(sizes[0], other) for sizes in v.tracks for other in sizes[1:]):
            raise Rejected("jumps where it is not exact")
        attributes["fmod"] = 1 if not integer or g.chance(0.3) else 0
    if kind == "Pow":
        if g.chance(0.5):
            inputs[1] = g.constant(g.pick([0, 1, 2, 3, -1, 0.5, -0.5]), v.dtype)
        inputs[0] = g.node("Abs", inputs[:1])
    if kind == "BitShift":
        attributes["direction"] = g.pick(["LEFT", "RIGHT"])
        inputs[1] = g.weight(g.draw("uint8", [], 0, 7))
    if kind == "PRelu":
        inputs[1] = g.leaf(v.dtype, [1 if v.moves(a) or g.chance(0.5) else n
                                     for a, n in enumerate(v.shape)])
    elif kind in ("Max", "Min", "Sum", "Mean") and g.chance(0.3):
        inputs.append(g.partner(v))
    elif kind not in ("Div", "Mod", "Pow", "BitShift") and g.chance(0.5):
        inputs.reverse()
    g.node(kind, inputs, **attributes)


@operator(4)
def where(g):
    if g.opset < 9:
        raise Rejected("opset")
    v = g.have(ALL)
    other = g.partner(v)
    if g.chance(0.6):
        condition = g.node("Less", [v.name, other]) if v.dtype != "bool" else v.name
    else:
        condition = g.leaf("bool", [1 if v.moves(a) or g.chance(0.4) else n
                                    for a, n in enumerate(v.shape)])
    g.node("Where", [condition] + ([v.name, other] if g.chance(0.5) else [other, v.name]))


@operator(2)
def clip(g):
    not_edgy(g)
    v = g.have(F if g.opset < 12 else NUMBERS)
    if g.opset < 11:
        g.node("Clip", [v.name], min=-0.5, max=g.pick([0.75, 2.0]))
        return
    low, high = g.constant(1 if v.dtype.startswith("u") else -1, v.dtype), g.constant(2, v.dtype)
    g.node("Clip", g.pick([[v.name, low], [v.name, "", high], [v.name, low, high], [v.name]]))


NARROW = {13: ["BFLOAT16"], 19: ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"]}


def narrowed(array, dtype):
    return numpy_helper.saturate_cast(array, dtype) if dtype.itemsize == 1 else array.astype(dtype)


@operator(2)
def narrow(g):
    """Through a narrower float, which ONNX Runtime does not give to Python, and back."""
    not_edgy(g)
    v = g.have(("float32",), test=finite)
    to = getattr(TensorProto, g.pick([k for since, names in NARROW.items() if g.opset >= since for k in names]))
    dtype, x, y = helper.tensor_dtype_to_np_dtype(to), g.name("y"), g.name("y")
    tracks = [[narrowed(a, dtype) for a in sizes] for sizes in v.tracks]
    g.values[x] = Value(x, tracks, "node", v.loose)
    g.values[y] = Value(y, [[a.astype(np.float32) for a in sizes] for sizes in tracks], "node", v.loose)
    for source, result, code in ((v.name, x, to), (x, y, TensorProto.FLOAT)):
        g.nodes.append(helper.make_node("Cast", [source], [result], name=f"n{len(g.nodes)}", to=code))
        g.read.add(source)


@operator(5)
def cast(g):
    v = g.have(ALL)
    to = g.pick(ALL)
    for sizes in v.tracks:
        a = sizes[0]
        if a.dtype.kind == "f" and np.dtype(to).kind in "iu" and a.size:
            bounds = np.iinfo(to)
            if not np.isfinite(a).all() or a.min() <= bounds.min - 1 or a.max() >= bounds.max:
                raise Rejected("undefined")
    x = g.node("Cast", [v.name], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    if g.chance(0.4) and np.dtype(to).kind != "f":
        back = g.pick(ALL)
        g.node("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(back)))


# ------------------------------------------------------------------------------- movement

@operator(5)
def transpose(g):
    v = g.have(ALL, range(1, 7))
    g.node("Transpose", [v.name], perm=g.pick([None, [int(i) for i in g.random.permutation(v.rank)]]))


@operator(5)
def reshape(g):
    v = g.have(ALL)
    if v.fixed and g.chance(0.85):
        n, shape = v.array.size, []
        while n > 1 and len(shape) < 5 and g.chance(0.8):
            d = g.pick([d for d in range(1, n + 1) if n % d == 0])
            shape.append(d)
            n //= d
        shape.append(n)
        shape = [int(d) for d in g.random.permutation(shape)]
        if v.array.size and g.chance(0.4):
            shape[g.between(0, len(shape) - 1)] = -1
        if len(shape) > v.rank and 0 in shape and g.opset < 14:
            raise Rejected("allowzero")
        attributes = {"allowzero": 1} if g.opset >= 14 and 0 in shape and -1 not in shape else {}
    else:
        keep = g.between(0, v.rank)
        shape, attributes = [0] * keep + [-1], {}
        if g.chance(0.3):
            shape.append(1)
    g.node("Reshape", [v.name, g.ints(shape)], **attributes)


@operator(1)
def flatten(g):
    v = g.have(ALL if g.opset >= 9 else F, range(1, 7))
    g.node("Flatten", [v.name], axis=g.between(-v.rank if g.opset >= 11 else 0, v.rank))


def with_axes(g, kind, x, axes, since, **attributes):
    """Axes as an attribute, or as an input from that opset on."""
    if g.opset >= since:
        return g.node(kind, [x] + ([g.ints(axes)] if axes is not None else []), **attributes)
    return g.node(kind, [x], axes=axes, **attributes)


@operator(2)
def unsqueeze(g):
    v = g.have(ALL, range(5))
    axis = g.between(0, v.rank)
    axes = [axis] if v.rank > 3 or g.chance(0.7) else [axis, axis + 1]
    if g.opset >= 11 and g.chance(0.4):
        axes = [a - v.rank - len(axes) for a in axes]
    with_axes(g, "Unsqueeze", v.name, axes, 13)


@operator(2)
def squeeze(g):
    v = g.have(ALL, range(1, 7), lambda v: 1 in v.shape)
    ones = [a for a in range(v.rank) if v.shape[a] == 1 and not v.moves(a)]
    axis = g.pick(ones)
    axes = None if v.fixed and not v.loose and not g.dynamic and g.chance(0.3) else [axis - v.rank if g.opset >= 11 and g.chance(0.4) else axis]
    with_axes(g, "Squeeze", v.name, axes, 13)


@operator(6)
def slice_(g):
    v = g.have(ALL, range(1, 7))
    axes = [a for a in range(v.rank) if g.chance(0.6)] or [0]
    starts, ends, steps = [], [], []
    for a in axes:
        n = v.shape[a]
        step = g.pick([1, 1, 2, 3, -1, -2, -3]) if g.opset >= 10 else 1
        lo, hi = g.between(-n - 2, n + 2), g.between(-n - 2, n + 2)
        if v.moves(a):
            lo, hi = g.pick([(0, 2 ** 63 - 1), (1, 2 ** 31 - 1), (0, -1), (-2, 2 ** 63 - 1)])
            lo, hi, step = (lo, hi, abs(step)) if g.chance(0.6) else (-1, -2 ** 63, -abs(step))
            step = step if g.opset >= 10 else 1
        elif g.chance(0.3):
            lo, hi = (0, 2 ** 63 - 1) if step > 0 else (2 ** 63 - 1, -2 ** 63)
        elif g.chance(0.6) and n > 1:
            lo, hi = sorted([g.between(0, n - 1), g.between(0, n - 1)])
            hi += step > 0
            lo, hi = (lo, hi) if step > 0 else (hi, lo - 1 if lo else -n - 1)
        starts.append(lo), ends.append(hi), steps.append(step)
    if g.opset < 10:
        g.node("Slice", [v.name], axes=axes, starts=starts, ends=ends)
        return
    axes = [a - v.rank if g.chance(0.3) else a for a in axes]
    g.node("Slice", [v.name, g.ints(starts), g.ints(ends), g.ints(axes), g.ints(steps)])


@operator(4)
def pad(g):
    v = g.have(ALL if g.opset >= 13 else NUMBERS if g.opset >= 11 else F, range(1, 6))
    mode = g.pick(["constant", "constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else []))
    pads = [g.pick([0, 0, 1, 2, 3]) for _ in range(2 * v.rank)]
    if mode == "constant" and g.chance(0.3):
        pads = [g.pick([0, 1, -1]) for _ in pads]
    if mode in ("reflect", "wrap", "edge"):
        least = [min(s[0].shape[a] for s in v.tracks) for a in range(v.rank)]
        pads = [min(p, max(0, least[i % v.rank] - (mode == "reflect"))) for i, p in enumerate(pads)]
        if 0 in least:
            raise Rejected("nothing to repeat")
    if g.opset < 11:
        g.node("Pad", [v.name], mode=mode, pads=pads, value=g.pick([0.0, 1.5]))
        return
    inputs = [v.name, g.ints(pads)]
    if mode == "constant" and g.chance(0.6):
        inputs.append(g.constant(g.pick([0, 1, 3]), v.dtype))
    g.node("Pad", inputs, mode=mode)


@operator(3)
def expand(g):
    v = g.have(ALL)
    if g.opset < 8:
        raise Rejected("opset")
    shape = [g.pick([1, 2, 3, 5]) if n == 1 and not v.moves(a) else 1 if v.moves(a) or g.chance(0.3) else n
             for a, n in enumerate(v.shape)]
    if v.rank < 5 and g.chance(0.4):
        shape = [g.pick([1, 2, 3])] + shape
    g.node("Expand", [v.name, g.ints(shape)])


@operator(2)
def tile(g):
    v = g.have(ALL, range(1, 6))
    g.node("Tile", [v.name, g.ints([g.pick([1, 1, 2, 3, 0] if g.chance(0.1) else [1, 1, 2, 3])
                                    for _ in range(v.rank)])])


@operator(5)
def concat(g):
    v = g.have(ALL, range(1, 6))
    axis = g.between(0, v.rank - 1)

    def fits(w):
        return w.dtype == v.dtype and w.rank == v.rank and all(
            a[0].shape[:axis] == b[0].shape[:axis] and a[0].shape[axis + 1:] == b[0].shape[axis + 1:]
            for a, b in zip(v.tracks, w.tracks))
    inputs = [v.name] + [g.pick([w for w in g.values.values() if fits(w)]).name
                         for _ in range(g.between(0, 3))]
    if v.fixed and g.chance(0.4):
        shape = list(v.shape)
        shape[axis] = g.pick([0, 1, 2, 3])
        inputs.append(g.leaf(v.dtype, shape))
    inputs = [inputs[int(i)] for i in g.random.permutation(len(inputs))]
    g.node("Concat", inputs, axis=axis - (v.rank if g.opset >= 11 and g.chance(0.3) else 0))


@operator(3)
def split(g):
    v = g.have(ALL, range(1, 6), lambda v: any(n > 1 for n in v.shape))
    axis = g.pick([a for a in range(v.rank) if v.shape[a] > 1 and not v.moves(a)])
    n = v.shape[axis]
    first = g.between(0, n)
    parts = [first, n - first] if n < 4 or g.chance(0.6) else [1, 0, n - 1]
    if g.opset >= 13:
        g.node("Split", [v.name, g.ints(parts)], len(parts), axis=axis)
    else:
        g.node("Split", [v.name], len(parts), axis=axis, split=parts)


@operator(1)
def blocks(g):
    v = g.have(("float32", "float64"), [4], lambda v: v.fixed)
    if g.chance(0.5):
        extra = {"mode": g.pick(["DCR", "CRD"])} if g.opset >= 11 else {}
        c = [b for b in (2, 3) if v.shape[1] % (b * b) == 0]
        g.node("DepthToSpace", [v.name], blocksize=g.pick(c), **extra)
    else:
        c = [b for b in (2, 3) if v.shape[2] % b == 0 and v.shape[3] % b == 0]
        g.node("SpaceToDepth", [v.name], blocksize=g.pick(c))


@operator(1)
def trilu(g):
    if g.opset < 14:
        raise Rejected("opset")
    v = g.have(("float32", "float64", "int64", "bool"), range(2, 5))
    g.node("Trilu", [v.name] + ([g.ints(g.between(-3, 4))] if g.chance(0.7) else []),
           upper=g.between(0, 1))


@operator(4)
def views(g):
    """Several movements in a row, so that no single stride says where an element lies."""
    v = g.have(ALL, range(1, 6), lambda v: v.array.size > 1)
    for _ in range(g.between(3, 6)):
        before, values = len(g.nodes), g.values
        move = g.pick([transpose, transpose, reshape, reshape, slice_, pad, expand, tile, unsqueeze,
                       squeeze, flatten, blocks])
        g.values = {v.name: v, **{n: w for n, w in values.items() if w.kind == "weight"}}
        try:
            move(g)
        except Rejected:
            pass
        made, g.values = g.values, {**values, **g.values}
        if len(g.nodes) > before:
            v = made[g.nodes[-1].output[0]]


# ------------------------------------------------------------------------ gather, scatter

@operator(4)
def gather(g):
    v = g.have(ALL, range(1, 5), lambda v: all(n > 0 for n in v.shape))
    axis = g.between(0, v.rank - 1)
    n = min(s[0].shape[axis] for s in v.tracks)
    if n == 0:
        raise Rejected("nothing to take")
    low = -n if g.opset >= 11 and g.chance(0.5) else 0
    index = g.leaf(g.pick(["int64", "int32"]), g.shape(g.pick([0, 1, 1, 2])), low, n - 1)
    g.node("Gather", [v.name, index], axis=axis)


@operator(2)
def gather_elements(g):
    if g.opset < 11:
        raise Rejected("opset")
    v = g.have(ALL, range(1, 5), lambda v: v.fixed and v.array.size > 0)
    axis = g.between(0, v.rank - 1)
    shape = [g.between(1, n) if a != axis else g.between(1, 2 * n) for a, n in enumerate(v.shape)]
    index = g.leaf("int64", shape, -v.shape[axis], v.shape[axis] - 1)
    g.node("GatherElements", [v.name, index], axis=axis - (v.rank if g.chance(0.3) else 0))


def coordinates(g, v, depth, shape):
    columns = [g.random.integers(-n, n, shape) for n in v.shape[:depth]]
    return np.stack(columns, -1).astype(np.int64)


@operator(1)
def gather_nd(g):
    if g.opset < 11:
        raise Rejected("opset")
    v = g.have(("float32", "int64", "bool", "int32"), range(1, 5),
               lambda v: v.fixed and v.array.size > 0)
    depth = g.between(1, v.rank)
    g.node("GatherND", [v.name, g.weight(coordinates(g, v, depth, g.shape(g.pick([0, 1, 2]))))])


REDUCTIONS = {16: [None, "add", "mul"], 18: [None, "add", "mul", "max", "min"]}


def reduction(g):
    if g.edgy:
        return None
    return g.pick(REDUCTIONS[18] if g.opset >= 18 else REDUCTIONS[16] if g.opset >= 16 else [None])


@operator(3)
def scatter_elements(g):
    v = g.have(("float32", "int64", "int32", "float64", "float16"), range(1, 5),
               lambda v: v.fixed and v.array.size > 0)
    if g.opset < 9:
        raise Rejected("opset")
    axis, how = g.between(0, v.rank - 1), reduction(g)
    shape = [g.between(1, n) for n in v.shape]
    if how is None:  # without a reduction, an element must be written once
        order = np.argsort(g.random.random(v.shape), axis)
        index = order[tuple(slice(0, n) for n in shape)]
        if g.chance(0.5) and g.opset >= 11:
            index = index - v.shape[axis]
    else:
        index = g.random.integers(-v.shape[axis], v.shape[axis], shape)
    kind = "ScatterElements" if g.opset >= 11 else "Scatter"
    name = g.weight(np.asarray(index, np.int64))
    if g.chance(0.5):
        g.values[name].kind, g.values[name].dynamic = "input", ()
    g.node(kind, [v.name, name, g.leaf(v.dtype, shape)], axis=axis, reduction=how)


@operator(2)
def scatter_nd(g):
    if g.opset < 11:
        raise Rejected("opset")
    v = g.have(("float32", "int64", "float64"), range(1, 5), lambda v: v.fixed and v.array.size > 0)
    depth, how = g.between(1, v.rank), reduction(g)
    count = g.between(1, 4)
    index = coordinates(g, v, depth, [count])
    if how is None:
        plain = np.mod(index, v.shape[:depth])
        if len(np.unique(plain, axis=0)) != count:
            raise Rejected("an element written twice")
    g.node("ScatterND", [v.name, g.weight(index), g.leaf(v.dtype, [count, *v.shape[depth:]])],
           reduction=how)


@operator(1)
def one_hot(g):
    if g.opset < 11:
        raise Rejected("opset")
    index = g.leaf("int64", g.shape(g.pick([0, 1, 2])), -4, 4)
    g.node("OneHot", [index, g.ints(5), g.weight(np.array([0.5, 2], np.float32))],
           axis=g.pick([-1, 0]))


# ---------------------------------------------------------------------------- reductions

REDUCE = ["ReduceSum", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
          "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]


@operator(7)
def reduce(g):
    kind = g.pick(REDUCE)
    dtypes = ("float32", "float64", "int32", "int64", "float16", "int8", "uint8")
    v = g.have(dtypes if kind not in ("ReduceLogSum", "ReduceLogSumExp") else F[:2], range(0, 6),
               lambda v: v.array.size > 0)
    axes = [a for a in range(v.rank) if g.chance(0.5)]
    if g.opset >= 11 and g.chance(0.3):
        axes = [a - v.rank for a in axes]
    since = 13 if kind == "ReduceSum" else 18
    attributes = {"keepdims": g.between(0, 1)}
    if g.opset >= since and not axes and g.chance(0.4):
        attributes["noop_with_empty_axes"] = 1
    large = v.dtype in INTS and any(s[0].size and abs(s[0].astype(float)).max() > 1e9 for s in v.tracks)
    if not finite(v) or (g.edgy and v.dtype in INTS) or large:
        raise Rejected("ONNX Runtime skips NaN, and computes integers in floats")
    x = v.name
    if kind == "ReduceLogSum":
        x = g.node("Abs", [x])
    with_axes(g, kind, x, axes or None, since, **attributes)


@operator(2)
def arg(g):
    not_edgy(g)
    v = g.have(("float32", "int32", "int64", "uint8", "int8"), range(1, 5), lambda v: v.array.size > 0)
    attributes = {"keepdims": g.between(0, 1)}
    if g.opset >= 12:
        attributes["select_last_index"] = g.between(0, 1)
    low = -v.rank if g.opset >= 11 else 0
    g.node(g.pick(["ArgMax", "ArgMin"]), [v.name], axis=g.between(low, v.rank - 1), **attributes)


@operator(1)
def top_k(g):
    v = g.have(("float32", "int64"), range(1, 4), lambda v: v.array.size > 0 and finite(v))
    axis = g.between(0, v.rank - 1)
    most = min(s[0].shape[axis] for s in v.tracks)
    if g.opset < 10 or most < 1:
        raise Rejected("opset, or nothing to choose from")
    k = g.between(1, most)
    extra = {"largest": g.between(0, 1), "sorted": 1} if g.opset >= 11 else {}
    g.node("TopK", [v.name, g.ints([k])], 2, axis=axis, **extra)


@operator(2)
def cumulative(g):
    not_edgy(g)
    if g.opset < 11:
        raise Rejected("opset")
    v = g.have(("float32", "float64", "int32", "int64"), range(1, 5))
    axis = g.between(-v.rank, v.rank - 1)
    g.node("CumSum", [v.name, g.weight(np.asarray(axis, g.pick(["int64", "int32"])))],
           exclusive=g.between(0, 1), reverse=g.between(0, 1))


@operator(5)
def softmax(g):
    v = g.have(F, range(1, 6))
    low = -v.rank if g.opset >= 11 else 0
    # ONNX Runtime's LogSoftmax takes a sum that is NaN for 1e-20
    more = ["LogSoftmax", "Hardmax"] * finite(v)
    g.node(g.pick(["Softmax", "Softmax", *more]), [v.name],
           axis=g.between(low, v.rank - 1))


# --------------------------------------------------------------------------- normalization

@operator(3)
def layer_norm(g):
    not_edgy(g)
    if g.opset < 17:
        raise Rejected("opset")
    v = g.have(F[:2], range(1, 5))
    axis = g.between(0, v.rank - 1)
    if any(v.moves(a) for a in range(axis, v.rank)) or 0 in v.shape:
        raise Rejected("weights would move")
    if any((sizes[0].std(axis=tuple(range(axis, v.rank))) < 1e-2).any() for sizes in v.tracks):
        raise Rejected("what remains of equal elements less their mean is rounding")
    shape = v.shape[axis:]
    inputs = [v.name, g.leaf(v.dtype, shape)] + ([g.leaf(v.dtype, shape)] if g.chance(0.6) else [])
    g.node("LayerNormalization", inputs, axis=axis - (v.rank if g.chance(0.5) else 0), epsilon=1e-3)


@operator(2)
def channel_norm(g):
    not_edgy(g)
    v = g.have(("float32", "float64"), range(3, 5), lambda v: not v.moves(1) and v.array.size > 0)
    c = [v.shape[1]]
    kind = g.pick(["BatchNormalization", "InstanceNormalization", "LRN", "LpNormalization",
                   "MeanVarianceNormalization"] + (["GroupNormalization"] if g.opset >= 21 else []))
    if kind == "BatchNormalization":
        g.node(kind, [v.name] + [g.leaf(v.dtype, c) for _ in range(3)] + [g.leaf(v.dtype, c, 0.5, 2)])
    elif kind == "InstanceNormalization":
        g.node(kind, [v.name, g.leaf(v.dtype, c), g.leaf(v.dtype, c)], epsilon=1e-2)
    elif kind == "GroupNormalization":
        groups = g.pick([d for d in range(1, c[0] + 1) if c[0] % d == 0])
        g.node(kind, [v.name, g.leaf(v.dtype, c), g.leaf(v.dtype, c)], num_groups=groups, epsilon=1e-2)
    elif kind == "LRN":
        g.node(kind, [v.name], size=g.pick([1, 3, 5]), alpha=0.1, beta=0.75)
    elif kind == "LpNormalization":
        g.node(kind, [v.name], axis=g.between(0, v.rank - 1), p=g.pick([1, 2]))
    elif g.opset >= 9:
        g.node(kind, [v.name], axes=g.pick([[0, 2], [0, 1, 2], [1], [0, 2, 3][:v.rank - 1]]))


# -------------------------------------------------------------------------------- products

@operator(5)
def matmul(g):
    not_edgy(g)
    dtypes = ("float32", "float64", "int32", "int64") if g.opset >= 9 else ("float32", "float64")
    v = g.have(dtypes, range(1, 5))
    if v.moves(v.rank - 1):
        raise Rejected("the inner axis moves")
    k, n = v.shape[-1], g.width([1, 2, 3, 7, 16])
    batch = [1 if v.moves(a) else v.shape[a] for a in range(v.rank - 2)]
    batch = batch[g.between(0, len(batch)):] if g.chance(0.6) else batch
    if g.chance(0.15) and k:             # of nothing, ONNX Runtime gives what was in memory
        other = g.leaf(v.dtype, [k])
    else:
        other = g.leaf(v.dtype, [*batch, k, n])
    if g.chance(0.25) and v.rank >= 2:
        other = g.leaf(v.dtype, [*batch, n, 1 if v.moves(v.rank - 2) else v.shape[-2]])
        g.node("MatMul", [other, v.name])
    else:
        g.node("MatMul", [v.name, other])


@operator(2)
def attention(g):
    """softmax(q k^T * scale [+ mask]) v, the shape of fused rows."""
    not_edgy(g)
    v = g.have(("float32",), [3, 4], lambda v: v.fixed and v.array.size > 0)
    perm = list(range(v.rank - 2)) + [v.rank - 1, v.rank - 2]
    keys = g.pick([v.name, g.leaf(v.dtype, v.shape)])
    scores = g.node("MatMul", [v.name, g.node("Transpose", [keys], perm=perm)])
    scores = g.node("Mul", [scores, g.constant(0.125)])
    if g.chance(0.5):
        scores = g.node("Add", [scores, g.partner(g.values[scores])])
    weights = g.node("Softmax", [scores], axis=v.rank - 1)
    g.node("MatMul", [weights, g.pick([v.name, keys])])


@operator(2)
def layer_block(g):
    """A layer, its bias, an activation, and the sum with what came in."""
    not_edgy(g)
    v = g.have(("float32",), [2, 3], lambda v: not v.moves(v.rank - 1) and v.array.size > 0)
    n = v.shape[-1]
    h = g.node("MatMul", [v.name, g.weight(g.draw("float32", [n, n]) * np.float32(n ** -0.5))])
    h = g.node("Add", [h, g.leaf("float32", [n])])
    h = g.node(g.pick(["Relu", "Sigmoid", "Tanh"]), [h])
    h = g.node("Add", [h, v.name])
    mean = with_axes(g, "ReduceMean", h, [-1] if g.opset >= 11 else [v.rank - 1], 18)
    centered = g.node("Sub", [h, mean])
    square = g.node("Mul", [centered, centered])
    var = with_axes(g, "ReduceMean", square, [-1] if g.opset >= 11 else [v.rank - 1], 18)
    g.node("Div", [centered, g.node("Sqrt", [g.node("Add", [var, g.constant(1e-2)])])])


@operator(2)
def conv_block(g):
    not_edgy(g)
    v = g.have(("float32",), [4], lambda v: not v.moves(1) and 0 < v.array.size <= g.most // 3)
    c = v.shape[1]
    x = g.node("Conv", [v.name, g.leaf("float32", [c, c, 3, 3], -0.4, 0.4), g.leaf("float32", [c])],
               pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    x = g.node("Relu", [x])
    if g.chance(0.5):
        x = g.node("Add", [x, v.name])
    if g.chance(0.5) and all(min(s[0].shape[2:]) > 1 for s in v.tracks):    # else ONNX Runtime has a window
        g.node(g.pick(["MaxPool", "AveragePool"]), [x], kernel_shape=[2, 2], strides=[2, 2])


@operator(3)
def gemm(g):
    not_edgy(g)
    v = g.have(("float32", "float64"), [2])
    ta, tb = g.between(0, 1), g.between(0, 1)
    m, k = v.shape[::-1] if ta else v.shape
    if v.moves(0 if ta else 1):
        raise Rejected("the inner axis moves")
    if k == 0:
        raise Rejected("ONNX Runtime forgets beta")
    n = g.width([1, 2, 5, 16, 33])
    inputs = [v.name, g.leaf(v.dtype, [n, k] if tb else [k, n])]
    if g.opset < 11 or g.chance(0.7):
        m = 1 if v.moves(1 if ta else 0) else m
        inputs.append(g.leaf(v.dtype, g.pick([[n], [1, n], [m, n], [m, 1], [1], []])))
    g.node("Gemm", inputs, transA=ta, transB=tb, alpha=g.pick([1.0, 0.5]), beta=g.pick([1.0, 2.0, 0.0]))


@operator(2)
def einsum(g):
    not_edgy(g)
    if g.opset < 12:
        raise Rejected("opset")
    v = g.have(("float32", "float64", "int64"), [2, 3], lambda v: v.fixed and v.array.size > 0)
    if v.rank == 2:  # of empty ones ONNX Runtime divides by 0
        a, b = v.shape
        text, shape = g.pick([("ij,jk->ik", [b, 3]), ("ij,kj->ki", [4, b]), ("ij,ij->", [a, b]),
                              ("ij,i->j", [a]), ("ij->ji", None), ("ij->", None), ("ij,kl->kjil", [2, 3]),
                              ("ij,jk", [b, 2]), ("...j,j->...", [b])])
    else:
        a, b, c = v.shape
        text, shape = g.pick([("bij,bjk->bik", [a, c, 2]), ("bij,bkj->bik", [a, 3, c]),
                              ("bij,bij->b", [a, b, c]), ("bij->bji", None), ("bij,j->ib", [c]),
                              ("...ij,jk->...ik", [c, 2]), ("bij->i", None)])
    g.node("Einsum", [v.name] + ([g.leaf(v.dtype, shape)] if shape else []), equation=text)


def window_attributes(g, v, kernel, dilations=True):
    n = v.rank - 2
    if any(v.moves(a + 2) and s[0].shape[a + 2] < 3 * kernel[a] for a in range(n) for s in v.tracks):
        raise Rejected("ONNX Runtime has a window where none fits")
    attributes = {"kernel_shape": kernel}
    if g.chance(0.6):
        attributes["strides"] = [g.pick([1, 2, 3]) for _ in range(n)]
    if dilations and g.chance(0.4):
        attributes["dilations"] = [g.pick([1, 2, 3]) for _ in range(n)]
    how = g.between(0, 3)
    if how == 0:
        attributes["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        if "dilations" in attributes:
            del attributes["dilations"]
    elif how == 1:
        pads = [g.between(0, max(0, k - 1)) for k in kernel]
        attributes["pads"] = pads + [g.between(0, max(0, k - 1)) for k in kernel]
    elif how == 2:
        attributes["pads"] = [k // 2 for k in kernel] * 2
    return attributes


@operator(6)
def conv(g):
    not_edgy(g)
    v = g.have(("float32", "float64"), range(3, 6),
               lambda v: v.array.size > 0 and not v.moves(1) and v.array.size <= g.most // 2)
    c = v.shape[1]
    group = g.pick([d for d in range(1, c + 1) if c % d == 0]) if g.chance(0.5) else 1
    out = group * (g.width([1, 1, 2, 3]) if group == 1 else g.pick([1, 1, 2, 3]))
    kernel = [g.pick([1, 2, 3, 3, 4]) for _ in range(v.rank - 2)]
    inputs = [v.name, g.leaf(v.dtype, [out, c // group, *kernel])]
    if g.chance(0.6):
        inputs.append(g.leaf(v.dtype, [out]))
    g.node("Conv", inputs, group=group, **window_attributes(g, v, kernel))


@operator(2)
def conv_transpose(g):
    v = g.have(("float32",), range(3, 5), lambda v: v.fixed and 0 < v.array.size <= 1000)
    not_edgy(g)
    c = v.shape[1]
    group = g.pick([d for d in range(1, c + 1) if c % d == 0]) if g.chance(0.4) else 1
    kernel = [g.pick([1, 2, 3]) for _ in range(v.rank - 2)]
    attributes = window_attributes(g, v, kernel)
    if "auto_pad" in attributes:
        del attributes["auto_pad"]
    if "strides" in attributes and g.chance(0.4):
        attributes["output_padding"] = [s - 1 for s in attributes["strides"]]
    inputs = [v.name, g.leaf("float32", [c, g.pick([1, 2]), *kernel])]
    if g.chance(0.5):
        inputs.append(g.leaf("float32", [g.values[inputs[1]].shape[1] * group]))
    g.node("ConvTranspose", inputs, group=group, **attributes)


@operator(5)
def pool(g):
    kind = g.pick(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool",
                   "GlobalMaxPool"])
    v = g.have(("float32", "float64") if kind != "MaxPool" or g.opset < 12 else ("float32", "float64", "int8", "uint8"),
               range(3, 6), lambda v: v.array.size > 0)
    if not finite(v):
        raise Rejected("ONNX Runtime skips NaN")
    if kind.startswith("Global"):
        g.node(kind, [v.name])
        return
    kernel = [g.pick([1, 2, 3]) for _ in range(v.rank - 2)]
    dilations = (kind == "MaxPool" and g.opset >= 10) or (kind == "AveragePool" and g.opset >= 19) \
        or (kind == "LpPool" and g.opset >= 18)
    attributes = window_attributes(g, v, kernel, dilations)
    if kind == "AveragePool":
        attributes["count_include_pad"] = g.between(0, 1)
    if attributes.get("auto_pad", "VALID") != "VALID" and any(
            s > k for s, k in zip(attributes.get("strides", ()), kernel)):
        raise Rejected("ONNX Runtime pads by less than nothing, ONNX's shape inference does not")
    if kind == "LpPool":
        attributes["p"] = g.pick([1, 2, 3])
    if kind in ("MaxPool", "AveragePool") and g.opset >= 10 and "auto_pad" not in attributes:
        attributes["ceil_mode"] = g.between(0, 1)
    g.node(kind, [v.name], 2 if kind == "MaxPool" and g.opset >= 8 and g.chance(0.2) else 1, **attributes)


@operator(2)
def resize(g):
    if g.opset < 11:
        raise Rejected("opset")
    v = g.have(("float32",), [3, 4], lambda v: v.array.size > 0 and finite(v))
    mode = g.pick(["nearest", "linear", "cubic"] if v.rank == 4 else ["nearest"])
    if mode == "cubic":
        not_edgy(g)
    how = g.pick(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attributes = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        attributes["nearest_mode"] = g.pick(["round_prefer_floor", "floor", "ceil", "round_prefer_ceil"])
    scales = [1.0] * (v.rank - 2) + [g.pick([0.5, 1.0, 2.0, 1.5, 3.0]) for _ in range(2)]
    if how in ("align_corners", "pytorch_half_pixel") and any(
            n * s % 1 for sizes in v.tracks for n, s in zip(sizes[0].shape, scales)):
        raise Rejected("ONNX Runtime takes the rounded size, the specification's formula the exact one")
    roi = g.weight(np.array([], np.float32)) if g.opset < 13 else ""
    g.node("Resize", [v.name, roi, g.weight(np.array(scales, np.float32))], **attributes)


# ----------------------------------------------------------------------------- quantization

@operator(2)
def quantize(g):
    if g.opset < 13:
        raise Rejected("opset")
    v = g.have(("float32",), range(0, 5))
    if not finite(v):
        raise Rejected("undefined")
    to = g.pick(["int8", "uint8"])
    axis, shape = {}, []
    if v.rank > 1 and not v.moves(1) and g.chance(0.5):
        axis, shape = {"axis": 1}, [v.shape[1]]
    scale = g.weight(g.draw("float32", shape, 0.02, 0.1))
    if not finite(g.values[scale]):
        raise Rejected("NaN as an integer")
    zero = g.weight(g.draw(to, shape, 0, 5))
    q = g.node("QuantizeLinear", [v.name, scale, zero], **axis)
    if g.chance(0.6):
        g.node("DequantizeLinear", [q, scale, zero], **axis)


@operator(1)
def integer_products(g):
    if g.opset < 10:
        raise Rejected("opset")
    v = g.have(("uint8",), [2, 3, 4], lambda v: v.array.size > 0 and not v.moves(v.rank - 1) and not v.moves(1))
    zero = g.weight(g.draw("uint8", [], 0, 5))
    if v.rank == 4 and g.chance(0.7):
        g.node("ConvInteger", [v.name, g.leaf("uint8", [2, v.shape[1], 2, 2]), zero], pads=[0, 1, 1, 0])
    else:
        g.node("MatMulInteger", [v.name, g.leaf("uint8", [v.shape[-1], 3])]
               + ([zero] if g.chance(0.6) else []))


# ------------------------------------------------------------------------------ shapes

@operator(2)
def shapes(g):
    v = g.have(ALL)
    if g.chance(0.3):
        g.node("Size", [v.name])
        return
    s = g.node("Shape", [v.name])
    if g.chance(0.5) and g.opset >= 9 and 0 < v.rank < 5:
        value = numpy_helper.from_array(np.array([g.pick([0, 2])], g.pick(["float32", "int64", "bool"])))
        g.node("ConstantOfShape", [s], value=value)
    elif g.chance(0.5):
        g.node("Cast", [s], to=TensorProto.FLOAT)


# ------------------------------------------------------------------------------ control

def info(array, name, shape=True):
    return helper.make_tensor_value_info(name, oracle.proto_type(array),
                                         list(array.shape) if shape else None)


def body_nodes(g, x, count, taken):
    """A short chain inside of a body; keeps shape and dtype of a float value."""
    nodes, last = [], x
    rank = g.values[taken].rank if taken in g.values else 0
    for _ in range(count):
        name = g.name("b")
        kind = g.pick(["Tanh", "Neg", "Sigmoid", "Add", "Mul", "Relu", "Max", "Softmax", "Turned"])
        if (kind == "Max" and g.opset < 8) or (kind in ("Softmax", "Turned") and not rank):
            kind = "Tanh"
        if kind == "Turned":  # there and back, with a function in between
            there, back = g.name("b"), g.name("b")
            perm = [int(i) for i in g.random.permutation(rank)]
            nodes += [helper.make_node("Transpose", [last], [there], perm=perm),
                      helper.make_node("Sigmoid", [there], [back]),
                      helper.make_node("Transpose", [back], [name], perm=[int(i) for i in np.argsort(perm)])]
        else:
            inputs = [last, g.pick([x, taken, last])] if kind in ("Add", "Mul", "Max") else [last]
            nodes.append(helper.make_node(kind, inputs, [name]))
        last = name
    return nodes, last


def nested_if(g, x, taken, condition, like):
    """An If that keeps the shape, for use inside of a body."""
    name, graphs = g.name("b"), []
    for side in ("then", "else"):
        nodes, last = body_nodes(g, x, g.between(1, 2), taken)
        graphs.append(helper.make_graph(nodes, side, [], [info(like, last)]))
    return helper.make_node("If", [condition], [name], then_branch=graphs[0], else_branch=graphs[1]), name


@operator(3)
def branch(g):
    v = g.have(("float32",), range(0, 5))
    condition = g.leaf("bool", [])
    if g.chance(0.3):
        condition = g.node("Less", [g.leaf("float32", []), g.constant(0.1)])
    same = [w.name for w in g.values.values() if w.dtype == "float32" and w.kind == "node"
            and [s[0].shape for s in w.tracks] == [s[0].shape for s in v.tracks]]
    other = g.pick([v.name, *same])
    shapes_differ = v.fixed and v.rank > 0 and g.chance(0.35)
    graphs = []
    for side in ("then", "else"):
        nodes, last = body_nodes(g, v.name, g.between(0, 3), other)
        if not nodes:
            last = g.name("b")
            nodes = [helper.make_node("Identity", [other], [last])]
        if shapes_differ and (side == "else" or g.chance(0.3)):
            twice, axis = g.name("b"), g.between(0, v.rank - 1)
            nodes.append(helper.make_node("Concat", [last, g.pick([last, v.name])], [twice], axis=axis))
            last = twice
        if g.chance(0.2) and not shapes_differ and v.fixed:
            inner, last = nested_if(g, last, v.name, condition, v.array)
            nodes.append(inner)
        output = helper.make_tensor_value_info(last, TensorProto.FLOAT, [None] * v.rank) \
            if shapes_differ else info(v.array, last, v.fixed)
        graphs.append(helper.make_graph(nodes, side, [], [output]))
    g.node("If", [condition], loose=shapes_differ, then_branch=graphs[0], else_branch=graphs[1])


def step_of(g, i, v):
    """A row of v by the loop's counter, as something that broadcasts; None if v has no rows."""
    if v.rank == 0 or not v.shape[0]:
        return [], None
    size, at, row = g.name("b"), g.name("b"), g.name("b")
    return [helper.make_node("Constant", [], [size], value=numpy_helper.from_array(np.array(v.shape[0]))),
            helper.make_node("Mod", [i, size], [at]),
            helper.make_node("Gather", [v.name, at], [row], axis=0)], row


def inner_loop(g, x, like):
    """A Loop of one or two trips that keeps the shape."""
    trips, i, c, h, keep, name = (g.name("b") for _ in range(6))
    nodes, last = body_nodes(g, h, 1, x)
    nodes.append(helper.make_node("Identity", [c], [keep]))
    body = helper.make_graph(nodes, "inner", [helper.make_tensor_value_info(i, TensorProto.INT64, []),
                                              helper.make_tensor_value_info(c, TensorProto.BOOL, []),
                                              info(like, h)],
                             [helper.make_tensor_value_info(keep, TensorProto.BOOL, []), info(like, last)])
    count = numpy_helper.from_array(np.array(g.between(0, 2), np.int64))
    return [helper.make_node("Constant", [], [trips], value=count),
            helper.make_node("Loop", [trips, "", x], [name], body=body)], name


@operator(4)
def loop(g):
    if g.opset < 11:
        raise Rejected("opset")
    v = g.have(("float32",), range(0, 4), lambda v: v.fixed)
    i, c, h, keep = g.name("b"), g.name("b"), g.name("b"), g.name("b")
    nodes, last = body_nodes(g, h, g.between(1, 3), v.name)
    if g.chance(0.3):
        more, row = step_of(g, i, v)
        if row:
            name = g.name("b")
            nodes += [*more, helper.make_node("Mul", [last, row], [name])]
            last = name
    if g.chance(0.2):
        more, last = inner_loop(g, last, v.array)
        nodes += more
    if g.chance(0.2):
        inner, last = nested_if(g, last, v.name, c, v.array)
        nodes.append(inner)
    scaled, cast_i = g.name("b"), g.name("b")
    nodes.append(helper.make_node("Cast", [i], [cast_i], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Add", [last, cast_i], [scaled]))
    stops = g.chance(0.4)  # at the third trip or so, by a condition of the body's own
    if stops:
        limit = g.name("b")
        value = numpy_helper.from_array(np.array(g.between(0, 3), np.int64))
        nodes += [helper.make_node("Constant", [], [limit], value=value),
                  helper.make_node("Less", [i, limit], [keep])]
    else:
        nodes.append(helper.make_node("Identity", [c], [keep]))
    outputs = [helper.make_tensor_value_info(keep, TensorProto.BOOL, []), info(v.array, last)]
    scan = g.chance(0.7)
    if scan:
        outputs.append(info(v.array, scaled))
    body = helper.make_graph(nodes, "body", [helper.make_tensor_value_info(i, TensorProto.INT64, []),
                                             helper.make_tensor_value_info(c, TensorProto.BOOL, []),
                                             info(v.array, h)], outputs)
    condition = g.pick(["", g.weight(np.array(True)), g.leaf("bool", [])])
    trips = g.ints(g.pick([0, 1, 2, 5]))
    if g.chance(0.3):  # known to the run alone
        g.values[trips].kind, g.values[trips].dynamic = "input", ()
    g.node("Loop", [trips, condition, v.name], 1 + scan, body=body)


@operator(2)
def scan(g):
    if g.opset < 9:
        raise Rejected("opset")
    v = g.have(("float32",), range(1, 4), lambda v: v.fixed and v.array.size > 0 and v.shape[0] <= 8)
    axis = g.between(0, v.rank - 1)
    piece = v.array.take(0, axis)
    h, x = g.name("b"), g.name("b")
    nodes, last = body_nodes(g, x, g.between(1, 2), h)
    nxt, out = g.name("b"), g.name("b")
    nodes.append(helper.make_node(g.pick(["Add", "Max", "Mul"]), [h, last], [nxt]))
    nodes.append(helper.make_node("Identity", [nxt], [out]))
    body = helper.make_graph(nodes, "body", [info(piece, h), info(piece, x)],
                             [info(piece, nxt), info(piece, out)])
    start = g.leaf("float32", piece.shape)
    g.node("Scan", [start, v.name], 2, body=body, num_scan_inputs=1,
           scan_input_axes=[axis], scan_input_directions=[g.between(0, 1)],
           scan_output_axes=[g.between(0, piece.ndim)], scan_output_directions=[g.between(0, 1)])


@operator(1)
def recurrent(g):
    not_edgy(g)
    kind, gates = g.pick([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
    v = g.have(("float32",), [3], lambda v: v.fixed and 0 < v.array.size <= 300)
    hidden = g.pick([1, 2, 3])
    direction = g.pick(["forward", "reverse", "bidirectional"])
    n = 2 if direction == "bidirectional" else 1
    inputs = [v.name, g.leaf("float32", [n, gates * hidden, v.shape[2]]),
              g.leaf("float32", [n, gates * hidden, hidden])]
    if g.chance(0.5):
        inputs.append(g.leaf("float32", [n, 2 * gates * hidden]))
    extra = {"linear_before_reset": g.between(0, 1)} if kind == "GRU" else {}
    g.node(kind, inputs, 2, hidden_size=hidden, direction=direction, **extra)
