"""Emitted C as a person reads it. Every node of the model is named: above the kernel that computes it, at the step of a
run that it is, or in the list of nodes that have no code of their own; none of those that compute is in that list.
Values have names by what they are. Tensors are arrays of several dimensions, and no index is outside of its own."""

import copy
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "onnx")]

import numpy as np
import onnx

import graphs as G
import small
import tgc as T
from suite import Suite, expect

suite = Suite("readable")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build)
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "readable")
case = suite.folder_case(SCRATCH)

# Operators whose results are computed, and not read elsewhere or known before the run.
COMPUTES = set("""Conv ConvTranspose Gemm MatMul Relu LeakyRelu Sigmoid Tanh Erf Gelu Softmax LogSoftmax Add Sub Mul Div Sqrt Exp Log Pow
    MaxPool AveragePool GlobalAveragePool ReduceMean ReduceSum ReduceMax LayerNormalization InstanceNormalization GroupNormalization
    LSTM GRU RNN Clip HardSwish HardSigmoid Neg Abs Greater Less Equal And Or""".split())


# What became a part of another node: a factor or term of scores, of which a softmax takes over what it does not cancel; a
# function between quantized values, which became a table.
MERGED = {"four steps of a decoder": "Mul", "steps of a decoder's heads": "Mul", "attention": "Mul",
          "attention with a bias for each distance": "Add", "quantized and back": "Tanh"}


def named(model):
    """The model with a name for each node, of its subgraphs too; the nodes by name."""
    model, nodes = copy.deepcopy(model), {}

    def name(graph):
        for node in graph.node:
            node.name = f"node_{len(nodes)}"
            nodes[node.name] = node
            for attribute in node.attribute:
                for inner in [attribute.g, *attribute.graphs]:
                    name(inner)
    name(model.graph)
    return model, nodes


def read_names(source):
    """Of the C file: names above each kernel, at steps of a run, in the list of the others."""
    kernels, steps, others = [], set(), set()
    for text, line in comments(source):
        names = re.findall(r'"(node_\d+)"', re.sub(r", for .*|a copy of .*|the same: .*", "", text))
        if "have no code of their own" in text:
            others |= set(names)
        elif re.match(r"OWN_FRAME|LOAD_AGAIN|IN_|static", line):
            kernels.append(names)
            steps |= set(re.findall(r'"(node_\d+)"', "".join(re.findall(r"the same: (?!a copy)(?!.*, for ).*", text))))
        else:
            steps |= set(names)
    return kernels, steps, others


def comments(source):
    for found in re.finditer(r"/\*(.*?)\*/\n?[ ]*([^\n]*)", source, re.S):
        yield found.group(1), found.group(2)


def live(model):
    """Names of tensors that depend on an input of the graph and that an output depends on."""
    inputs = {x.name for x in model.graph.input} - {x.name for x in model.graph.initializer}
    varies, needed = set(inputs), {x.name for x in model.graph.output}
    for node in model.graph.node:
        if varies & set(node.input):
            varies |= set(node.output)
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
    return varies & needed


def check(folder, model, *options):
    model, nodes = named(model)
    onnx.save(model, folder / "net.onnx")
    done = T.run([TGC, folder / "net.onnx", "-o", folder / "net.c", *options], timeout=120)
    if done.status == 1 and "error: " in done.err:
        return None
    T.must(done)
    kernels, steps, others = read_names((folder / "net.c").read_text())
    computed = {name for names in kernels for name in names} | steps
    expect(computed | others == set(nodes), f"nowhere: {sorted(set(nodes) - computed - others)}; none of the model's: "
                                            f"{sorted((computed | others) - set(nodes))}")
    expect(not computed & others, f"in both places: {sorted(computed & others)}")
    for names in kernels:
        expect(len(names) == len(set(names)), f"twice: {names}")
    alive = live(model)
    return {nodes[name].op_type for name in others if nodes[name].op_type in COMPUTES and alive & set(nodes[name].output)}


@case("small models of every kind: nodes; no index is outside of its dimension")
def _(folder):
    wrong, n, arrays = [], 0, 0
    for i, (name, (make, options)) in enumerate(small.MODELS.items()):
        if i % 8 and not OPTIONS.all:
            continue
        place = T.scratch(folder / str(i))
        found = check(place, make(), *([["--cpu=generic"], ["-O0"], ["--threads=2"]][i // 8 % 3]), *options)
        if found is None:
            continue
        n += 1
        arrays += "(*restrict" in (place / "net.c").read_text()
        if found - {MERGED.get(name)}:
            wrong.append(f"{name}: {sorted(found)}")
        T.must(T.run(["gcc", "-std=c11", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-DNET_MAIN", "net.c", "-o", "net",
                      "-lm", "-pthread"], cwd=place, timeout=300))
        T.must(T.run([place / "net", "--selftest"], cwd=place))
    print(f"# {n} models, {arrays} with arrays", flush=True)
    expect(not wrong, "\n".join(wrong))
    expect(arrays > n / 3, f"{arrays} of {n} have arrays")


def kernels_of(source):
    return source.partition(" kernels */")[2].partition(" the model */")[0]


def emit(folder, model, *options):
    if isinstance(model, str):
        (folder / "net.tg").write_text(model)
    else:
        onnx.save(model, folder / "net.onnx")
    T.emit(TGC, folder / ("net.tg" if isinstance(model, str) else "net.onnx"), folder / "net.c", *options)
    return (folder / "net.c").read_text()


@case("a keyword spotter of depthwise layers: each kernel has its own nodes")
def _(folder):
    net, x = small.Net(x=[1, 1, 49, 10]), "x"
    layers = [(1, 64, (10, 4), 1, dict(strides=[2, 2], pads=[4, 1, 5, 2]))]
    layers += [(64, 64, k, group, {}) for _ in range(4) for k, group in (((3, 3), 64), ((1, 1), 1))]
    for cin, cout, k, group, more in layers:
        x = net("Relu", net.conv(x, cin, cout, k, group=group, **more))
    x = net("Flatten", net("AveragePool", x, kernel_shape=[25, 5]))
    model, nodes = named(net.model(net("Softmax", net("Gemm", x, net.w(64, 12), net.w(12)))))
    kernels, _, others = read_names(emit(folder, model, "--cpu=generic"))
    expect({nodes[name].op_type for name in others} == {"Flatten"}, f"{others}")
    for names in kernels:
        kinds = [nodes[name].op_type for name in names]
        expect(kinds.count("Conv") < 2, f"{kinds}")
        expect("Relu" not in kinds or f"node_{int(names[kinds.index('Relu')][5:]) - 1}" in names, f"{names}")


@case("all of many nodes are named, in lines that a screen has")
def _(folder):
    nodes = [G.node(("Sigmoid", "Tanh")[i % 2], [f"x{i}"], [f"x{i + 1}"], name=f"a_node_with_a_long_name_{i}") for i in range(40)]
    source = emit(folder, G.model(nodes, [G.value("x0", [5, 7])], [G.value("x40", [5, 7])]), "--cpu=generic")
    text = next(text for text, _ in comments(source) if "a_node_with_a_long_name_0" in text)
    expect(all(f'"a_node_with_a_long_name_{i}"' in text for i in range(40)) and "more" not in text, text)
    expect(max(map(len, text.splitlines())) <= 100, text)


@case("a chain of nodes that become one takes memory linear in its length")
def _(folder):
    n = 4000
    nodes = [G.node("Max", [f"v{i}", f"c{i}"], [f"v{i + 1}"], name=f"max_{i}") for i in range(n)]
    model = G.model(nodes, [G.value("v0", [])], [G.value(f"v{n}", [])], [G.weight(f"c{i}", np.float32(3 + i)) for i in range(n)])
    source = emit(folder, model, "--cpu=generic", "--max-memory=40M")
    expect(all(f'"max_{i}"' in source for i in range(n)), "a node is nowhere")


@case("names say what values are")
def _(folder):
    cell = emit(folder, (HERE.parent / "ir/golden/summaries/loop_lstm.tg").read_text(), "--cpu=generic")
    expect(all(f" {word} = " in cell for word in ("gate_i", "gate_f", "gate_o")) and "inverse" not in cell, kernels_of(cell))
    wanted = {"row_max", "row_sum", "scores", "acc", "new_max", "rescale"}
    attention = emit(folder, """tg 1
input %q : f32[1, 4, 96, 32] as "q"
input %k : f32[1, 4, 96, 32] as "k"
input %v : f32[1, 4, 96, 32] as "v"
%y = attention(%q, %k, %v) {causal=true}
output %y as "y"
""", "--cpu=generic")
    expect("Online softmax" in attention and all(re.search(rf"\b{word}\[", attention) for word in (*wanted, "q", "k", "v", "y")), kernels_of(attention))
    expect(not re.search(r"\btile\d*\[", attention), kernels_of(attention))
    pooled = emit(folder, """tg 1
input %x : f32[1, 2, 12, 12]
weight %w : f32[8, 2, 3, 3] = kaiming_uniform(seed=1)
%c = conv2d(%x, %w)
%p = max_pool2d(%c) {kernel=2}
output %p as "p"
""", "--cpu=generic")
    expect("int ky = " in pooled and "int py = " in pooled and "ky2" not in pooled and " mean" not in kernels_of(pooled), kernels_of(pooled))


@case("a tensor is an array of its dimensions")
def _(folder):
    pooled = """tg 1
input %x : f32[2, 3, 12, 12] as "x"
%p = max_pool2d(%x) {kernel=3, stride=2, padding=1}
output %p as "p"
"""
    source = emit(folder, pooled, "-O0")
    expect("const float (*restrict x)[3][12][12]" in source, kernels_of(source))
    expect("y[n][c][oy][ox] = " in source and "(const float (*)[3][12][12])in->x" in source, kernels_of(source))


suite.main()
