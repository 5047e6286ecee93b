"""Which operators have a gradient: frontend/onnx/gradients.def, which `tgc ops` prints, against what tgc says.

Each of up to CASES tests that the onnx package has of an operator gets a Gradient of its first float output by all of
its float inputs, and becomes text. `--bless` writes the table from what was seen: yes, zero (the results are constant: the
operator has steps), no (refused), part (some of its tests are refused).
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import node_test
import tgc as T
from suite import Suite, expect

ROOT, CASES = HERE.parents[1], 4
TABLE = ROOT / "frontend" / "onnx" / "gradients.def"
DOMAIN = "ai.onnx.preview.training"
FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
HEAD = """/* GRADIENT("domain", "Name", what): operators of which the onnx package has a test with floats at both ends, and whether
 * they have a gradient: yes; zero: the operator has steps; no; part: depends on attributes or operands. Written by
 * tests/onnx/gradient_operators_test.py --bless from what tgc does. */
"""


def is_float(value):
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in FLOATS


def with_gradient(case):
    """The model whose outputs are the gradients, integers among its inputs being constants; None: there are no floats at
    its ends."""
    m = onnx.ModelProto()
    m.CopyFrom(case.model)
    g = m.graph
    xs = [v.name for v in g.input if is_float(v)]
    ys = [v.name for v in g.output if is_float(v)]
    if not xs or not ys or any(name in xs for name in ys):
        return None
    for value, given in zip(list(g.input), case.data_sets[0][0]):
        if value.name not in xs and isinstance(given, np.ndarray) and given.dtype.kind in "iub":
            g.initializer.append(numpy_helper.from_array(given, value.name))
            g.input.remove(value)
    g.node.append(helper.make_node("Gradient", xs, [f"gradient {x}" for x in xs], domain=DOMAIN, xs=xs, y=ys[0]))
    del g.output[:]
    g.output.extend(helper.make_empty_tensor_value_info(f"gradient {x}") for x in xs)
    if DOMAIN not in {o.domain for o in m.opset_import}:
        m.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return m


def is_zero(text):
    """Whether all outputs of a graph as text are zeros."""
    made = dict(re.findall(r"^(%\w+) : [^=]*= (.*)$", text, re.M))
    for name in re.findall(r"^output (\S+) as ", text, re.M):
        while name in made and (step := re.match(r"(?:reshape|expand)\(([^)]+\)?)\)", made[name])):
            name = step[1]
        if not re.fullmatch(r"\w+\(-?0\)", name):
            return False
    return True


def measure(tgc, folder, case):
    """yes, zero or no; None: the test has no floats at its ends, or needs values at compile time."""
    model = with_gradient(case)
    if not model:
        return None
    T.scratch(folder)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    done = T.run([tgc, "m.onnx", "-o", "m.tg"], cwd=folder, timeout=60)
    if done.status == 0:
        return "zero" if is_zero((folder / "m.tg").read_text()) else "yes"
    expect(done.status == 1, f"{case.name}: exit status {done.status}\n{done.err}")
    return "no" if "gradient:" in done.err else None


def together(seen):
    seen = {what for what in seen if what}
    if not seen:
        return None
    if "no" in seen:
        return "no" if seen == {"no"} else "part"
    return "yes" if "yes" in seen else "zero"


def single_nodes(build):
    """The package's tests of one node, by domain and operator."""
    by = {}
    for name, case in sorted(node_test.generated_cases(build).items()):
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type != "Gradient":
            by.setdefault((nodes[0].domain if nodes[0].domain != "ai.onnx" else "", nodes[0].op_type), []).append(case)
    return by


def rows(tgc, scratch, build):
    for (domain, name), cases in sorted(single_nodes(build).items(), key=lambda item: item[0][::-1]):
        step = max(1, -(-len(cases) // CASES))
        what = together(measure(tgc, scratch / name, case) for case in cases[::step])
        if what:
            yield f'GRADIENT({f"{chr(34)}{domain}{chr(34)},":<28}{f"{chr(34)}{name}{chr(34)},":<32}{what})'


def main():
    suite = Suite("gradient-operators")
    options = suite.parse(lambda parser: parser.add_argument("--bless", action="store_true",
                                                             help="write frontend/onnx/gradients.def"))
    tgc = T.find_tgc(options.build).resolve()
    scratch = T.scratch(Path(options.build).resolve() / "test-scratch" / "gradient-operators")

    @suite.case("frontend/onnx/gradients.def is what tgc does")
    def table():
        text = HEAD + "\n".join(rows(tgc, scratch, options.build)) + "\n"
        if options.bless:
            TABLE.write_text(text)
        wrong = set(text.splitlines()) ^ set(TABLE.read_text().splitlines())
        expect(not wrong, "\n".join(sorted(wrong)))

    suite.main()


main()
