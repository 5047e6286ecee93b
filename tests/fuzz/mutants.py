"""Damaged models: whatever is read, tgc refuses it with a message or writes C that compiles.

Small valid models are changed at random, in their bytes (bits, a cut, a doubled piece) and in
their meaning (dims, attributes, element types, edges, operators, the integers that shapes are made
of). tgc gets 10 seconds and 512 MB for each.

    mutants.py                            the quick form; --all: many more
    mutants.py --seed 7000 --count 500    others, of all sources
    mutants.py --build build-asan         the same with a tgc of -Db_sanitize=address,undefined

A failure leaves the model in the scratch folder. What was found once stands in
tests/cli/bad_inputs.py or tests/fuzz/regressions.py.
"""

import shutil
import sys
import threading
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "onnx"), str(HERE.parent / "models")]

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

import tgc as T
from suite import Failure, Skip, Suite

GROUP, QUICK, LONG = 10, 24, 400
SECONDS, MEMORY = 10, 512 << 20
REPORTS = ("AddressSanitizer", "UndefinedBehaviorSanitizer", "runtime error:", "LeakSanitizer")
# A model's exact bounds are the user's to choose; these let open dimensions through.
NUMBERS = [0, 1, -1, 2, -2, 3, 4, 7, 8, 16, 31, 64, 255, 1000, 65536, (1 << 31) - 1, 1 << 31,
           -(1 << 31), (1 << 32) + 1, (1 << 62), (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan")]
LOCK = threading.Lock()


# ------------------------------------------------------------------------------------ sources


def node_models(build):
    """The models of the onnx package's node tests, in the order of their names."""
    import node_test
    cases = node_test.load_cases(build)
    for name in sorted(cases):
        case = cases[name]
        if name.startswith("test_"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield name, case.model, node_test


def read_sources(build):
    sources = []
    for name, model, _ in node_models(build):
        if model.ByteSize() < 200_000:
            sources.append((name, model.SerializeToString()))
    return sources


class Sources:
    """Read once, by whoever asks first."""

    def __init__(self, build):
        self.build, self.found = build, None

    def all(self):
        with LOCK:
            if self.found is None:
                self.found = read_sources(self.build)
            return self.found


# ---------------------------------------------------------------------------------- mutations


def pick(random, items):
    return items[int(random.integers(len(items)))]


def graphs_of(graph):
    """The graph and those nested in it."""
    found = [graph]
    for g in found:
        for node in g.node:
            for attribute in node.attribute:
                found += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return found


def change_dims(random, m):
    g = pick(random, graphs_of(m.graph))
    tensors = [t.dims for t in g.initializer if t.dims]
    shapes = [v.type.tensor_type.shape.dim for v in [*g.input, *g.output, *g.value_info]
              if v.type.HasField("tensor_type") and v.type.tensor_type.shape.dim]
    if not tensors and not shapes:
        return
    chosen = pick(random, tensors + shapes)
    axis = int(random.integers(len(chosen)))
    kind = random.integers(4)
    if chosen in tensors:
        if kind == 0 and len(chosen) > 1:
            other = int(random.integers(len(chosen)))
            chosen[axis], chosen[other] = chosen[other], chosen[axis]
        elif kind == 1:
            chosen.append(pick(random, NUMBERS))
        else:
            chosen[axis] = pick(random, NUMBERS)
    elif kind == 0:
        chosen[axis].dim_param = pick(random, ["n", "?", "", "batch", "a b", "n*2"])
    elif kind == 1:
        chosen.add().dim_value = pick(random, NUMBERS)
    elif kind == 2 and len(chosen) > 1:
        del chosen[axis]
    else:
        chosen[axis].dim_value = pick(random, NUMBERS)


def change_attribute(random, m):
    nodes = [n for g in graphs_of(m.graph) for n in g.node if n.attribute]
    if not nodes:
        return
    node = pick(random, nodes)
    a = pick(random, node.attribute)
    if random.random() < 0.15:
        node.attribute.remove(a)
    elif a.type == AttributeProto.INT:
        a.i = pick(random, NUMBERS)
    elif a.type == AttributeProto.FLOAT:
        a.f = pick(random, FLOATS)
    elif a.type == AttributeProto.STRING:
        a.s = pick(random, [b"", b"x", a.s[::-1], a.s + a.s, b"\xff\xfe"])
    elif a.type == AttributeProto.INTS and a.ints:
        kind = random.integers(4)
        if kind == 0:
            a.ints.append(pick(random, NUMBERS))
        elif kind == 1:
            a.ints.pop()
        else:
            a.ints[int(random.integers(len(a.ints)))] = pick(random, NUMBERS)
    elif a.type == AttributeProto.FLOATS and a.floats:
        a.floats[int(random.integers(len(a.floats)))] = pick(random, FLOATS)
    elif a.type == AttributeProto.TENSOR:
        a.t.CopyFrom(changed_tensor(random, a.t))
    else:
        a.type = int(random.integers(0, 16))


def changed_tensor(random, t):
    """Another value of it, with its bytes in order; or its declaration out of step with them."""
    try:
        value = numpy_helper.to_array(t).copy()
    except Exception:  # what cannot be read is damaged enough
        return t
    if value.size and value.dtype.kind in "iu" and random.random() < 0.8:
        limits = np.iinfo(value.dtype)
        at = int(random.integers(value.size))
        value.reshape(-1)[at] = np.clip(pick(random, NUMBERS), int(limits.min), int(limits.max))
    elif value.size and value.dtype.kind == "f" and random.random() < 0.5:
        value.reshape(-1)[int(random.integers(value.size))] = pick(random, FLOATS)
    elif random.random() < 0.5:
        value = value.reshape(-1)
    else:
        value = value[..., None]
    return numpy_helper.from_array(value, t.name)


def change_weight(random, m):
    tensors = [t for g in graphs_of(m.graph) for t in g.initializer]
    if tensors:
        t = pick(random, tensors)
        t.CopyFrom(changed_tensor(random, t))


def input_to_weight(random, m):
    """What steers an operator (axes, sizes, pads) becomes a constant, of a value that may not fit."""
    plain = [v for v in m.graph.input if v.type.HasField("tensor_type")
             and v.type.tensor_type.elem_type in (TensorProto.INT64, TensorProto.INT32)]
    if not plain:
        return
    v = pick(random, plain)
    shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
    if any(n < 0 or n > 64 for n in shape):
        return
    dtype = np.int64 if v.type.tensor_type.elem_type == TensorProto.INT64 else np.int32
    small = [0, 1, 2, 3, -1, -2, 4, 5] + NUMBERS * (random.random() < 0.5)
    limits = np.iinfo(dtype)
    count = int(np.prod(shape))
    value = [np.clip(pick(random, small), int(limits.min), int(limits.max)) for _ in range(count)]
    m.graph.initializer.append(
        numpy_helper.from_array(np.array(value, dtype).reshape(shape), v.name))
    m.graph.input.remove(v)


def change_type(random, m):
    values = [v for g in graphs_of(m.graph) for v in [*g.input, *g.output]
              if v.type.HasField("tensor_type")]
    tensors = [t for g in graphs_of(m.graph) for t in g.initializer]
    if values and (not tensors or random.random() < 0.7):
        pick(random, values).type.tensor_type.elem_type = int(random.integers(0, 26))
    elif tensors:
        pick(random, tensors).data_type = int(random.integers(0, 26))


def change_edge(random, m):
    nodes = [n for g in graphs_of(m.graph) for n in g.node if n.input]
    if not nodes:
        return
    node = pick(random, nodes)
    names = [name for g in graphs_of(m.graph) for n in g.node for name in [*n.input, *n.output]]
    names += [v.name for v in m.graph.input]
    at = int(random.integers(len(node.input)))
    kind = random.integers(5)
    if kind == 0:
        node.input[at] = ""
    elif kind == 1:
        del node.input[at]
    elif kind == 2:
        node.input.append(pick(random, names))
    elif kind == 3 and len(node.input) > 1:
        other = int(random.integers(len(node.input)))
        node.input[at], node.input[other] = node.input[other], node.input[at]
    else:
        node.input[at] = pick(random, names)


def change_operator(random, m, others):
    nodes = [n for g in graphs_of(m.graph) for n in g.node]
    if not nodes:
        return
    node = pick(random, nodes)
    kind = random.integers(4)
    if kind == 0 and len(nodes) > 1:
        nodes = m.graph.node
        if nodes:
            del nodes[int(random.integers(len(nodes)))]
    elif kind == 1 and node.output:
        node.output.append(pick(random, ["", "extra", node.output[0]]))
    elif kind == 2:
        for opset in m.opset_import:
            opset.version = int(random.integers(1, 27))
    else:
        other = onnx.load_from_string(pick(random, others)[1]).graph.node
        if other:
            node.op_type, node.domain = other[0].op_type, other[0].domain


def change_bytes(random, content):
    damaged = bytearray(content)
    kind = random.integers(6)
    at = int(random.integers(len(damaged)))
    if kind == 0:
        del damaged[at:]
    elif kind == 1:
        piece = damaged[at:at + int(random.integers(1, 200))]
        damaged[at:at] = piece
    elif kind == 2:
        del damaged[at:at + int(random.integers(1, 20))]
    else:
        for _ in range(int(random.integers(1, 5))):
            damaged[int(random.integers(len(damaged)))] ^= 1 << int(random.integers(8))
    return bytes(damaged)


CHANGES = [change_dims, change_dims, change_attribute, change_attribute, change_weight,
           input_to_weight, input_to_weight, change_type, change_edge]


def mutate(random, content, others):
    if random.random() < 0.2:
        return change_bytes(random, content)
    m = onnx.load_from_string(content)
    if random.random() < 0.3:
        input_to_weight(random, m)
    for _ in range(int(random.integers(1, 4))):
        change = pick(random, CHANGES + [change_operator])
        try:
            if change is change_operator:
                change_operator(random, m, others)
            else:
                change(random, m)
        except ValueError:  # protobuf refuses a number of the wrong width: so do without
            pass
    return m.SerializeToString()


# ------------------------------------------------------------------------------------ checking


def judge(tgc, folder, options=()):
    """What is wrong with how tgc took folder/model.onnx, or None."""
    out = folder / "node.c"
    command = [tgc, "model.onnx", "-o", "node.c", *options]
    done = T.run_for_peak(command, cwd=folder, timeout=6 * SECONDS)
    report = next((word for word in REPORTS if word in done.err), None)
    sanitized = "asan" in str(tgc)
    if report or done.status not in (0, 1) or done.timed_out:
        return f"{report or 'no clean end'}: {done.describe()}"
    if not sanitized and done.cpu > SECONDS:
        return f"{done.cpu:.0f} s of CPU: {done.describe()}"
    if not sanitized and done.peak > MEMORY:
        return f"{done.peak >> 20} MB: {done.describe()}"
    if done.status == 1:
        if "error:" not in done.err:
            return f"no message: {done.describe()}"
        return "an output file in spite of an error" if out.exists() else None
    if out.stat().st_size > 4_000_000:
        return None
    built = T.run(["gcc", *T.WARNINGS, "-fsyntax-only", "node.c"], cwd=folder, timeout=60)
    return f"the C does not compile: {built.describe()}" if built.status else None


def check_mutants(tgc, scratch, sources, seed, count, options=()):
    found = sources.all()
    failures = []
    for number in range(seed, seed + count):
        random = np.random.default_rng(number)
        name, content = pick(random, found)
        folder = T.scratch(scratch / f"mutant{number}")
        (folder / "model.onnx").write_bytes(mutate(random, content, found))
        wrong = judge(tgc, folder, options)
        if wrong:
            failures.append(f"mutant {number} of {name}, see {folder}: {wrong}")
        else:
            shutil.rmtree(folder)
    if failures:
        raise Failure("\n".join(failures))


def main():
    def extra(parser):
        parser.add_argument("--seed", type=int)
        parser.add_argument("--count", type=int, default=100)

    suite = Suite("mutants")
    options = suite.parse(extra)
    tgc = T.find_tgc(options.build)
    scratch = Path(options.build).resolve() / "test-scratch" / "mutants"
    sources = Sources(options.build)
    if options.seed is not None:
        for seed in range(options.seed, options.seed + options.count, GROUP):
            suite.add(f"mutants {seed}..{seed + GROUP - 1}", check_mutants, tgc, scratch, sources,
                      seed, GROUP)
    else:
        for group in range(LONG):
            suite.add(f"mutants {group * GROUP}..{group * GROUP + GROUP - 1}", check_mutants, tgc,
                      scratch, sources, group * GROUP, GROUP, slow=group >= QUICK)
    suite.main()


if __name__ == "__main__":
    main()
