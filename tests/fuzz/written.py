"""A random graph (generate.py) through tgc into ONNX again: what ONNX Runtime makes of that must be what the graph says.

What tgc refuses to write, or to read, is dropped with all that needs it. Graphs for which ONNX Runtime lacks a kernel are
not compared. Of those with empty tensors its optimizer makes others, so they run without it.
"""

import re

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import generate
import oracle
import tgc as T

RTOL, ATOL = 1e-3, 1e-5


def live(nodes, outputs):
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted.update(oracle.node_inputs(node))
    return kept[::-1]


class Written:
    def __init__(self, seed):
        self.graph = graph = generate.make(seed)
        self.nodes = list(graph.nodes)
        self.outputs = [v.name for v in graph.values.values()
                        if v.dtype in generate.ALL and v.kind == "node" and (v.name not in graph.read or graph.chance(0.25))]

    def borders(self):
        made = {name for node in self.nodes for name in node.output}
        needed = list(dict.fromkeys(n for node in self.nodes for n in oracle.node_inputs(node) if n not in made))
        values = self.graph.values
        return [n for n in needed if values[n].kind != "weight"], [n for n in needed if values[n].kind == "weight"]

    def type_of(self, name):
        value = self.graph.values[name]
        moving = getattr(value, "dynamic", ())
        dims = [None if value.loose else "n" if a in moving else None if value.moves(a) else d for a, d in enumerate(value.shape)]
        return helper.make_tensor_value_info(name, oracle.proto_type(value.array), dims)

    def model(self):
        inputs, weights = self.borders()
        graph = helper.make_graph(self.nodes, "random", [self.type_of(n) for n in inputs], [self.type_of(n) for n in self.outputs],
                                  [numpy_helper.from_array(np.asarray(self.graph.values[n].array), n) for n in weights])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.graph.opset)], ir_version=8)

    def dims(self):
        moves = any(getattr(self.graph.values[n], "dynamic", ()) for n in self.borders()[0])
        return [f"--dim=n<={self.graph.sizes[0]}"] if moves else []

    def drop(self, node):
        lost, kept = set(node.output), []
        for other in self.nodes:
            if other is node or lost & set(oracle.node_inputs(other)):
                lost.update(other.output)
            else:
                kept.append(other)
        self.outputs = [o for o in self.outputs if o not in lost]
        self.nodes = live(kept, self.outputs)

    def refused(self, why):
        found = re.search(r"node (\d+)", why)
        if found:
            return self.nodes[int(found.group(1))] if int(found.group(1)) < len(self.nodes) else None
        found = re.search(r"'([^']*)' \(", why)
        named = next((n for n in self.nodes if found and n.name == found.group(1)), None)
        inner = re.search(r"error: (loop|if) ", why)
        return named or next((n for n in self.nodes if inner and n.op_type in ("Loop", "Scan", "If")), None)

    def write(self, tgc, folder, tally):
        """Writes n.onnx; None: nothing is left of the graph."""
        while self.outputs:
            self.nodes = live(self.nodes, self.outputs)
            onnx.save(self.model(), folder / "m.onnx")
            done = T.run([tgc, "m.onnx", "-o", "n.onnx", *self.dims()], cwd=folder, timeout=60)
            if done.status == 0:
                return onnx.load(folder / "n.onnx")
            node = self.refused(done.err) if done.status == 1 else None
            if node is None:
                if done.status == 1 and "sizes depend on the values" in done.err:
                    tally["sizes by values"] += 1
                    return None
                raise T.Failure(f"seed {self.graph.seed}: {done.describe()}")
            tally[f"{node.op_type}: {done.err.splitlines()[0][-70:]}"] += 1
            self.drop(node)
        return None

    def run(self, m, s, tally):
        """The outputs at size number s; None: ONNX Runtime has no kernel."""
        inputs = {n: np.asarray(self.graph.values[n].tracks[s][0]) for n in self.borders()[0]}
        inputs = {i.name: inputs[i.name] for i in m.graph.input}
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if not self.is_full():
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as why:
            tally["no kernel: " + str(why).split("for ")[-1][:60]] += 1
            return None
        return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))

    def is_full(self):
        """No value has no elements."""
        made = [self.graph.values[n] for node in self.nodes for n in (*node.input, *node.output) if n in self.graph.values]
        return all(tracks[0].size for v in made for tracks in v.tracks)

    def check(self, tgc, folder, tally):
        """What is wrong; None: nothing."""
        m = self.write(tgc, folder, tally)
        if m is None:
            return None
        onnx.checker.check_model(m, full_check=True)
        for s, size in enumerate(self.graph.sizes):
            try:
                got = self.run(m, s, tally)
            except onnxruntime.capi.onnxruntime_pybind11_state.Fail as why:
                return f"seed {self.graph.seed}, n={size}: {why}"
            if got is None:
                return None
            for name in self.outputs:
                wrong = oracle.mismatch(got[name], self.graph.values[name].tracks[s], RTOL, ATOL)
                if wrong:
                    return f"seed {self.graph.seed}, n={size}: {name} {wrong}"
        tally["compared"] += 1
        return None
