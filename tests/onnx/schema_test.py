"""Nodes that are not as their operator's schema says are refused: every operator, in every version.

schemas.def must be what the packages of ONNX and ONNX Runtime say. From each of its rows come a node
that is right, and ones with an attribute too many, one missing, one of another type, an input and an
output too many. ONNX's own checker refuses what is made so; tgc must, too, and name node, attribute
and version. tgc must not find such a fault in the node that is right.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import onnx
from onnx import AttributeProto, TensorProto, helper

import graphs as G
import tgc as T
from suite import Failure, Suite, expect

suite = Suite("schema")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "schema")
SCHEMAS = T.ROOT / "frontend" / "onnx" / "schemas.def"
AT_ONCE = 18    # tgc reports so many nodes of a model
FAULTS = ("has no such attribute", "the attribute is of type", "is missing; ", " takes at most ")


def rows():
    line = re.compile(r'SCHEMA\("(.*?)", "(.*?)", (\d+), (\d+), "(.*?)", "(.*?)", "(.*?)"\)')
    for found in line.finditer(SCHEMAS.read_text()):
        domain, name, since, until, *words = found.groups()
        yield domain, name, int(since), int(until), *[word.split() for word in words]


def subgraph():
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    return helper.make_graph([helper.make_node("Constant", [], ["inner"], value=one)], "inner", [],
                             [G.value("inner", [1])])


def attribute(name, kind):
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
    sparse = helper.make_sparse_tensor(tensor, helper.make_tensor("i", TensorProto.INT64, [1], [0]), [2])
    value = {"int": 1, "float": 1.5, "string": "a", "ints": [1], "floats": [1.5], "strings": ["a"],
             "tensor": tensor, "graph": subgraph(), "sparse_tensor": sparse,
             "type_proto": helper.make_tensor_type_proto(TensorProto.FLOAT, [1])}[kind]
    made = helper.make_attribute(name, value)
    expect(made.type == getattr(AttributeProto, kind.upper()), f"{name}: {made.type}")
    return made


def variants(domain, op, inputs, outputs, attributes):
    """(node, what must be said of it; None: nothing is wrong with it). Attributes by their words."""
    kinds = {word.partition(":")[0]: word.partition(":")[2].rstrip("!") for word in attributes}
    needed = [word.partition(":")[0] for word in attributes if word.endswith("!")]

    def node(kinds, more_in=0, more_out=0):
        made = helper.make_node(op, ["x"] * (len(inputs) + more_in), [], domain=domain)
        made.attribute.extend(attribute(*item) for item in kinds.items())
        made.output.extend(f"o{k}" for k in range(len(outputs) + more_out))
        return made

    yield node(kinds), None
    yield node(kinds | {"frobnicate": "int"}), "attribute 'frobnicate': .* no such attribute"
    for name, kind in kinds.items():
        other = "float" if kind == "int" else "int"
        yield node(kinds | {name: other}), f"attribute '{name}': .* type {other}.* expects {kind}"
    for name in needed:
        yield node({k: v for k, v in kinds.items() if k != name}), f"'{name}' is missing"
    if not any(word[-1] in "+*" for word in inputs):
        yield node(kinds, more_in=1), f"has {len(inputs) + 1} inputs"
    if not any(word[-1] in "+*" for word in outputs):
        yield node(kinds, more_out=1), f"has {len(outputs) + 1} outputs"


def imports_of(domain, version):
    own = helper.make_opsetid(domain, version)
    return [own] if not domain else [own, helper.make_opsetid("", 17)]


def onnx_refuses(node, imports):
    context = onnx.checker.C.CheckerContext()
    context.ir_version = 10
    context.opset_imports = {i.domain: i.version for i in imports}
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError:
        return True
    return False


def check_batch(folder, batch, imports, where):
    nodes = [node for node, _ in batch]
    graph = helper.make_graph([*nodes, helper.make_node("Identity", ["x"], ["y"])], "g",
                              [G.value("x", [1])], [G.value("y", [1])])
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), folder / "m.onnx")
    said = T.run([TGC, "m.onnx", "-o", "m.c"], cwd=folder)
    expect(said.status == 1 or batch[0][1] is None and said.status == 0, said.describe())
    for node, fault in batch:
        of_node = [line for line in said.err.splitlines() if f"'{node.name}' ({node.op_type})" in line]
        if fault is None:
            wrong = [line for line in of_node if any(words in line for words in FAULTS)]
            expect(not wrong, f"{where}: nothing is wrong with this node: {wrong}")
        elif not any(re.search(fault, line) and f"{node.op_type} of opset" in line
                     for line in of_node):
            raise Failure(f"{where}: {fault!r} is not said of {node.name}: {said.err}")


def check_row(folder, domain, op, version, signature):
    imports = imports_of(domain, version)
    where = f"{domain or 'ai.onnx'}.{op} of opset {version}"
    deprecated = version in DEPRECATED.get((domain, op), ())
    batch = []
    for k, (node, fault) in enumerate(variants(domain, op, *signature)):
        node.name = f"n{k}"
        if not domain.startswith("com.microsoft") and (domain, op) in OFFICIAL and not deprecated:
            expect(onnx_refuses(node, imports) == (fault is not None),
                   f"{where}: ONNX's checker disagrees on: {fault}")
        for i in range(len(node.output)):
            node.output[i] = f"n{k}_{i}"
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                a.g.node[0].output[0] = a.g.output[0].name = f"inner_{k}_{a.name}"
        batch.append((node, fault))
    check_batch(folder, batch[:1], imports, where)
    for k in range(1, len(batch), AT_ONCE):
        check_batch(folder, batch[k:k + AT_ONCE], imports, where)


HISTORY = onnx.defs.get_all_schemas_with_history()
OFFICIAL = {(s.domain, s.name) for s in HISTORY if s.name != "SimplifiedLayerNormalization"}
DEPRECATED = {}
for s in HISTORY:
    if s.deprecated:
        newer = [o.since_version for o in HISTORY if o.domain == s.domain and o.name == s.name and
                 o.since_version > s.since_version]
        DEPRECATED[s.domain, s.name] = range(s.since_version, min(newer, default=1000))
FIRST = {}
for s in HISTORY:
    FIRST[s.domain, s.name] = min(s.since_version, FIRST.get((s.domain, s.name), 1000))


@suite.case("schemas.def is what the packages say")
def _():
    done = T.run([sys.executable, T.ROOT / "scripts" / "schemas.py", "--check"])
    expect(done.status == 0, f"run scripts/schemas.py: {done.err}")


def check_operators(letter, some):
    folder = T.scratch(SCRATCH / letter)
    for domain, op, since, until, *signature in some:
        if since >= FIRST.get((domain, op), 0):
            check_row(folder, domain, op, since, signature)


BY_LETTER = {}
for row in rows():
    BY_LETTER.setdefault(row[1][0], []).append(row)
for letter, some in BY_LETTER.items():
    suite.add(f"operators with {letter}: {len(some)} signatures", check_operators, letter, some)

suite.main()
