"""Node tests with one input damaged: left out, of another dtype, rank or size. tgc writes C or says why
not; it does not crash, whatever an operator's function expects of its inputs. Integer attributes beyond 32 bits are not cut.

The quick form tries every fifth model.
"""

import copy
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from onnx import AttributeProto, TensorProto
from onnx.backend.test.case.node import collect_testcases

import tgc as T
from suite import Failure, Suite

suite = Suite("damage")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "damage")
DTYPES = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING, TensorProto.DOUBLE,
          TensorProto.FLOAT16, TensorProto.UINT8)
EVERY = 5


def damages(dims):
    """What may happen to a shape."""
    yield "an axis more", lambda: dims.add(dim_value=2)
    if len(dims):
        yield "an axis less", lambda: dims.pop()
        for size in (0, 5):
            yield f"size {size}", lambda size=size: setattr(dims[0], "dim_value", size)


def variants(model):
    for k, name in enumerate(model.graph.node[0].input):
        if not name:
            continue
        less = copy.deepcopy(model)
        less.graph.node[0].input[k] = ""
        yield f"without input {k}", less
        place = [i for i, v in enumerate(model.graph.input) if v.name == name and v.type.HasField("tensor_type")]
        if not place:
            continue
        for dtype in DTYPES:
            other = copy.deepcopy(model)
            other.graph.input[place[0]].type.tensor_type.elem_type = dtype
            yield f"input {k} of dtype {dtype}", other
        for number in range(4):
            other = copy.deepcopy(model)
            todo = list(damages(other.graph.input[place[0]].type.tensor_type.shape.dim))
            if number < len(todo):
                todo[number][1]()
                yield f"input {k} with {todo[number][0]}", other


def models():
    """Operator -> the node tests of it that differ in which inputs and attributes they have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    seen, found = set(), {}
    for case in cases:
        node = case.model.graph.node[0]
        form = (node.domain, node.op_type, tuple(map(bool, node.input)), tuple(sorted(a.name for a in node.attribute)))
        if len(case.model.graph.node) == 1 and form not in seen:
            seen.add(form)
            found.setdefault((node.domain, node.op_type), []).append(case.model)
    return found


def check(operator, number, some):
    folder = T.scratch(SCRATCH / f"{operator}{number}")
    for model in some:
        for what, damaged in variants(model):
            number += 1
            if not OPTIONS.all and number % EVERY:
                continue
            (folder / "m.onnx").write_bytes(damaged.SerializeToString())
            done = T.run([TGC, "m.onnx", "-o", "m.c", *(["-O0"] if number % 2 else [])], cwd=folder, timeout=60)
            if done.timed_out or done.status not in (0, 1) or (done.status == 1 and not done.err.strip()):
                raise Failure(f"{operator}, {what}: {done.describe()}")


def compiled(folder, model, name, value):
    """The C of the model with that value of the attribute; None where it is refused."""
    other = copy.deepcopy(model)
    next(a for a in other.graph.node[0].attribute if a.name == name).i = value
    (folder / "m.onnx").write_bytes(other.SerializeToString())
    done = T.run([TGC, "m.onnx", "-o", "m.c", "-O0"], cwd=folder, timeout=60)
    return (folder / "m.c").read_text() if done.status == 0 else None


def wide_attributes():
    """2^32 + k is not k for any attribute that tells k from another number."""
    folder, seen, wrong = T.scratch(SCRATCH / "attributes"), set(), []
    for (domain, operator), some in sorted(models().items()):
        for model in some:
            for a in model.graph.node[0].attribute:
                if a.type != AttributeProto.INT or (operator, a.name) in seen:
                    continue
                seen.add((operator, a.name))
                wide = compiled(folder, model, a.name, a.i + (1 << 32))
                if wide and wide == compiled(folder, model, a.name, a.i) != compiled(folder, model, a.name, 77 + (1 << 32)):
                    wrong.append(f"{operator}: {a.name}")
    if wrong or len(seen) < 50:
        raise Failure(f"of {len(seen)} attributes cut to 32 bits: {wrong}")


suite.add("attributes of 64 bits", wide_attributes)
for number, ((domain, operator), some) in enumerate(sorted(models().items())):
    suite.add(f"{domain}{'.' if domain else ''}{operator}", check, operator, number, some)
suite.main()
