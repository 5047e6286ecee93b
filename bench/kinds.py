"""Models that bench/unseen.py times: kinds of networks on which tgc is, or was, slower than the
best runtime. Written node by node, or exported by bench/kinds_torch.py; all weights are seeded.
"""

import functools
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "models")]

import numpy as np

import catalog
import graphs as G
import models
import tgc as T
from suite import Skip

part = functools.partial


def normal(name, *shape):
    return catalog.seeded(name).standard_normal(shape).astype(np.float32)


def feed(**shapes):
    """Seeded floats for inputs of these shapes."""
    return {name: normal(name, *shape) for name, shape in shapes.items()}


# ----------------------------------------------------------------------------------- GridSample


def grid_sample(shape, points, mode="linear", padding="zeros", align=0):
    """points None: the grid is made of the input's first channels, as a network's own is."""
    rank = len(shape) - 2
    inputs, weights, nodes = [G.value("x", shape)], [], []
    if points:
        inputs.append(G.value("grid", [shape[0], *points, rank]))
    else:
        weights = [G.weight(n, np.array([v])) for n, v in (("from", 0), ("to", rank), ("axis", 1))]
        nodes = [G.node("Slice", ["x", "from", "to", "axis"], ["part"]),
                 G.node("Transpose", ["part"], ["turned"], perm=[0, *range(2, 2 + rank), 1]),
                 G.node("Tanh", ["turned"], ["grid"])]
    nodes.append(G.node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding,
                        align_corners=align))
    return G.model(nodes, inputs, [G.value("y", [*shape[:2], *(points or shape[2:])])], weights,
                   opset=20)


def grid_feed(shape, points):
    feeds = feed(x=shape)
    if points:
        random = catalog.seeded("grid", points)
        feeds["grid"] = random.uniform(-1.1, 1.1, (shape[0], *points, len(shape) - 2)).astype(
            np.float32)
    return feeds


def grid(name, shape, points=None, **attributes):
    return models.Model(name, "gather", part(grid_sample, shape, points, **attributes),
                        part(grid_feed, shape, points))


GRIDS = [
    grid("grid_4x32", [1, 4, 32, 32]),
    grid("grid_64x64", [1, 64, 64, 64]),
    grid("grid_data", [1, 64, 64, 64], [64, 64]),
    grid("grid_cubic", [1, 4, 32, 32], mode="cubic"),
    grid("grid_cubic_64", [1, 64, 64, 64], [64, 64], mode="cubic"),
    grid("grid_volume", [1, 4, 16, 24, 32]),
    grid("grid_volume_data", [1, 16, 16, 24, 32], [16, 24, 32]),
    grid("grid_border", [1, 16, 40, 40], [40, 40], padding="border", align=1),
    grid("grid_reflect", [1, 16, 40, 40], [40, 40], padding="reflection"),
    grid("grid_nearest", [1, 16, 40, 40], [40, 40], mode="nearest"),
]

# --------------------------------------------------------------------------- products and forests


def product(rows, inner, columns):
    weight = normal("product", inner, columns) * np.float32(inner ** -0.5)
    return G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", [rows, inner])],
                   [G.value("y", [rows, columns])], [G.weight("w", weight)])


def pixels():
    """The end of YAMNet: 6 pixels by 1024 x 1024."""
    weight = normal("pixels", 1024, 1024, 1, 1) * np.float32(1 / 32)
    return G.model([G.node("Conv", ["x", "w", "b"], ["c"]), G.node("Relu", ["c"], ["y"])],
                   [G.value("x", [1, 1024, 3, 2])], [G.value("y", [1, 1024, 3, 2])],
                   [G.weight("w", weight), G.weight("b", normal("pixel_bias", 1024))])


def forest(trees, depth, features):
    """Whole trees of that depth, as boosted regressions are."""
    random = catalog.seeded("forest")
    inner, leaves = 2 ** depth - 1, 2 ** depth
    count = inner + leaves
    node = np.arange(count)
    is_leaf = node >= inner

    def each(values):
        return np.tile(values, trees)

    modes = np.where(is_leaf, "LEAF", "BRANCH_LEQ")
    leaf = each(is_leaf)
    ids, places = np.repeat(np.arange(trees), count), each(node)
    return G.model(
        [G.onnx.helper.make_node(
            "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
            nodes_treeids=ids, nodes_nodeids=places, nodes_modes=list(each(modes)),
            nodes_featureids=np.where(leaf, 0, random.integers(0, features, ids.size)),
            nodes_values=np.where(leaf, 0, random.standard_normal(ids.size)).astype(np.float32),
            nodes_truenodeids=each(np.where(is_leaf, 0, 2 * node + 1)),
            nodes_falsenodeids=each(np.where(is_leaf, 0, 2 * node + 2)),
            nodes_missing_value_tracks_true=np.zeros(ids.size, np.int64),
            target_ids=np.zeros(leaf.sum(), np.int64), target_treeids=ids[leaf],
            target_nodeids=places[leaf],
            target_weights=random.standard_normal(leaf.sum()).astype(np.float32))],
        [G.value("x", [1, features])], [G.value("y", [1, 1])], domains=["ai.onnx.ml"])


# --------------------------------------------------------------------------------- torch's exports


def swin():
    """Without its Dropouts, which torchvision exports as those of training; their ratio is 0."""
    network = G.onnx.load(models.torchvision("swin_t"))
    for node in network.graph.node:
        if node.op_type == "Dropout":
            node.op_type = "Identity"
            del node.input[1:], node.output[1:], node.attribute[:]
    return network


def exported(name):
    script = HERE / "kinds_torch.py"

    def make(path):
        done = T.run(["/usr/bin/python3", script, name, f"{path}.part"], timeout=600)
        if done.status != 0:
            raise Skip(f"/usr/bin/python3 cannot export it: {done.err[-300:]}")
        os.replace(f"{path}.part", path)
    return catalog.generated(f"kind_{name}", script, make)()


def torch_model(name, **shapes):
    return models.Model(name, "torch", part(exported, name), part(feed, **shapes))


IMAGE = {"x0": [1, 3, 224, 224]}
MODELS = [
    *GRIDS,
    models.Model("swin_t", "torchvision", swin, models.image),
    models.Model("minilm_128", "benchmark", models.minilm, models.sentence),
    models.Model("product_8", "product", part(product, 8, 1024, 1024), part(feed, x=[8, 1024])),
    models.Model("yamnet_pixels", "product", pixels, part(feed, x=[1, 1024, 3, 2])),
    models.Model("forest_1000", "trees", part(forest, 1000, 6, 30), part(feed, x=[1, 30])),
    torch_model("vit_tiny", **IMAGE), torch_model("deeplab_mobile", **IMAGE),
    torch_model("probe", x0=[1, 577, 768]), torch_model("linformer", x0=[1, 512, 256]),
    torch_model("cait", x0=[1, 196, 192]), torch_model("coat_lite", x0=[1, 784, 128]),
    torch_model("focalnet", x0=[1, 784, 96]), torch_model("efficientformer", x0=[1, 176, 7, 7]),
    torch_model("non_local", x0=[1, 64, 28, 28]), torch_model("longformer", x0=[1, 512, 256]),
    torch_model("odd_groups", x0=[1, 3, 64, 64]), torch_model("graph", x0=[256, 64], x1=[256, 256]),
    torch_model("spotting", x0=[1, 1, 49, 10]), torch_model("lstm_512", x0=[16, 32, 512]),
]
