"""Several graphs as one model, so that tgc, C compiler and program start once for all of them: each graph's names get a prefix of its own, and
so does the symbol of its run-time dimension. Graphs of one model have one opset and as many sizes."""

from types import SimpleNamespace

import onnx
from onnx import helper

MOST = 16           # graphs of a model


def prefix(graph, word):
    """Puts the word before each name of the graph and of what is in its nodes' bodies."""
    def put(message, field="name"):
        if getattr(message, field):
            setattr(message, field, word + getattr(message, field))

    for message in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        put(message)
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            put(dim, "dim_param")
    for node in graph.node:
        put(node)
        for names in (node.input, node.output):
            names[:] = [name and word + name for name in names]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                prefix(attribute.g, word)


class Joined:
    """Trials as one; what a tester asks of a trial."""

    def __init__(self, trials):
        self.trials, first = trials, trials[0].graph
        self.words = [f"g{number}_" for number in range(len(trials))]
        self.nodes = [node for trial in trials for node in trial.nodes]
        self.inputs, self.outputs = ([word + name for trial, word in zip(trials, self.words) for name in getattr(trial, field)]
                                     for field in ("inputs", "outputs"))
        values = {word + name: value for trial, word in zip(trials, self.words) for name, value in trial.graph.values.items()}
        self.graph = SimpleNamespace(seed=first.seed, opset=first.opset, sizes=first.sizes, values=values)

    def dims(self):
        return [f"--dim={word}{dim}" for trial, word in zip(self.trials, self.words) for dim in trial.bounds()]

    def model(self):
        graphs = [trial.model().graph for trial in self.trials]
        for graph, word in zip(graphs, self.words):
            prefix(graph, word)
        parts = {field: [part for graph in graphs for part in getattr(graph, field)] for field in ("node", "input", "output", "initializer", "value_info")}
        whole = helper.make_graph(parts["node"], "random", parts["input"], parts["output"], parts["initializer"], value_info=parts["value_info"])
        return helper.make_model(whole, opset_imports=[helper.make_opsetid("", self.graph.opset)], ir_version=8)

    def without(self, node):
        """Less what its own graph has because of that node."""
        return self.of([trial.without(node) if any(node is other for other in trial.nodes) else trial for trial in self.trials])

    @staticmethod
    def of(trials):
        """None: nothing is left."""
        left = [trial for trial in trials if trial.outputs]
        return Joined(left) if left else None


def groups(trials):
    """The trials in lists that one model can hold."""
    kinds = {}
    for trial in trials:
        kinds.setdefault((trial.graph.opset, len(trial.graph.sizes)), []).append(trial)
    return [kind[k:k + MOST] for kind in kinds.values() for k in range(0, len(kind), MOST)]
