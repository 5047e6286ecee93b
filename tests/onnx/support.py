"""docs/onnx-support.md: what `tgc ops` says of each operator, and the tests that it passes.

Written by `node_test.py --support` from the lists of that program; a test there fails where the
document is not what would be written.
"""

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "onnx-support.md"
# Operators outside of the onnx package's tests have suites of their own.
SUITES = [HERE / name for name in ("ml_test.py", "microsoft_test.py", "lower_test.py")]
NAMES = {"float": "f", "int": "i", "uint": "u", "bool": "b", "string": "s"}

HEAD = """# ONNX operators

Every operator that tgc compiles. Columns: the opsets of its domain that a row serves; the kinds of its first input (b bool, i signed, u unsigned, f float, s
string); the element types that its tests have; how many of the onnx package's tests with it pass; what it cannot do. {passing} of {total} of those tests
pass. For {told} of them the compiler is told the value of an input (`-i NAME=FILE`): a shape or the length of a sequence depends on it. A suite's name
stands for operators that have their own tests. A size known only at run time needs a bound: from the operator, a declared dimension, or `--dim`. Written by `tests/onnx/node_test.py --support`.
"""
TAIL = """
## Tests that do not pass

{rest}
"""
WHY = {
    "Gradient": "Gradient: gradients of a graph are not computed; a model with its backward pass as ordinary nodes compiles.",
    "ImageDecoder": "ImageDecoder: images are decoded outside of the model.",
    "resize_downsample_scales": "align_corners divides by the length of the resized tensor less one, as the text, PyTorch and ONNX Runtime do; the expected file by the product of length and scale, before it is rounded down, less one.",
    "dft_inverse": "The expected output holds the rounding errors of one FFT, up to 1.9e-7 where 0 is exact; the test's own absolute tolerance is 1e-7.",
}


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from nodes_of(inner)


def operators_in(model):
    found = set()
    for body in [model.graph, *model.functions]:
        for node in nodes_of(body):
            found.add((node.domain if node.domain != "ai.onnx" else "", node.op_type))
    return found


def counts(cases, passing):
    """By operator: tests, tests passed, element types of the tests' inputs."""
    table = {}
    for name, case in cases.items():
        found = operators_in(case.model)
        types = {v.type.tensor_type.elem_type for v in case.model.graph.input
                 if v.type.HasField("tensor_type")}
        for operator in found:
            entry = table.setdefault(operator, [0, 0, set()])
            entry[0] += 1
            entry[1] += name in passing
            if len(found) == 1:
                entry[2] |= types
    return table


def type_names(types):
    import onnx
    short = {"FLOAT": "f32", "DOUBLE": "f64", "FLOAT16": "f16", "BFLOAT16": "bf16"}
    names = []
    for t in sorted(types):
        name = onnx.TensorProto.DataType.Name(t)
        name = short.get(name) or name.lower().replace("uint", "u").replace("int", "i")
        names.append(name.replace("float", "f"))
    return " ".join(names)


def render(rows, cases, passing, rest):
    table = counts(cases, passing)
    sources = {path.name: path.read_text() for path in SUITES}
    domains = {}
    for row in rows:
        domains.setdefault(row["domain"], []).append(row)
    text = [HEAD.format(passing=len(passing), total=len(passing) + len(rest),
                        told=sum(passing.values()))]
    for domain in sorted(domains, key=lambda d: (d != "ai.onnx", d)):
        text.append(f"\n## {domain}\n\n| operator | opsets | kinds | types tested | tests | limits |"
                    "\n|---|---|---|---|---|---|\n")
        for row in domains[domain]:
            plain = "" if domain == "ai.onnx" else domain
            total, passed, types = table.get((plain, row["name"]), [0, 0, set()])
            tests = f"{passed} of {total}" if total else ", ".join(
                name for name, source in sources.items() if f'"{row["name"]}"' in source) or "none"
            opsets = f"{row['since']}..{row['until']}" if row["until"] > row["since"] else row["since"]
            kinds = " ".join(NAMES.get(k, k) for k in row["dtypes"].split())
            text.append(f"| {row['name']} | {opsets} | {kinds} | {type_names(types)} | "
                        f"{tests} | {row['limits']} |\n")
    reasons = {}
    for name, why in rest.items():
        key = next((k for k in WHY if k in name or k in why), None)
        reasons.setdefault(WHY.get(key, why), []).append(f"`{name}`")
    text.append(TAIL.format(rest="\n".join(f"- {why} {', '.join(names)}"
                                           for why, names in sorted(reasons.items()))))
    return "".join(text)


def document(tgc, cases, passing, rest):
    import tgc as T
    rows = json.loads(T.must(T.run([tgc, "ops", "--json"])).out)
    return render(rows, cases, passing, rest)
