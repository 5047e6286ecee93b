"""Strings and ai.onnx.ml, through the emitted C, against onnxruntime.

Each case makes a small model of one operator with random parameters, in the forms that
scikit-learn, XGBoost and LightGBM exports have. Integers, bools and strings are exact.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import tgc as T
from suite import Suite, expect

suite = Suite("ml")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "ml"
FLOAT, DOUBLE, INT64, INT32 = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64,
                               TensorProto.INT32)
STRING, BOOL = TensorProto.STRING, TensorProto.BOOL
ML = "ai.onnx.ml"
case = suite.folder_case(SCRATCH)


def node(op, inputs, outputs, domain="", **attributes):
    return helper.make_node(op, inputs, outputs, domain=domain, **attributes)


def value(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, weights=(), ml=3):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(ML, ml)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def strings(array):
    return np.array(array, dtype=object)


def emitted(folder, m, inputs, flags=(T.LEVEL,)):
    """The outputs of the emitted program, by name."""
    onnx.save(m, folder / "m.onnx")
    T.must(T.run([TGC, "m.onnx", "-o", "m.c", *T.HERE], cwd=folder))
    T.build(folder / "m.c", folder / "m", "gcc", flags, main_by=TGC)
    program = T.Program(folder / "m", [o.name for o in m.graph.output])
    arrays = [a.astype(np.str_) if a.dtype == object else a for a in inputs.values()]
    return program.run(arrays)


def same(folder, m, inputs, rtol=1e-5, atol=1e-6, flags=(T.LEVEL,)):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(m.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    actual = emitted(folder, m, inputs, flags)
    for output, w in zip(m.graph.output, wanted):
        a = actual[output.name]
        w = np.asarray(w)
        expect(a.shape == w.shape, f"{output.name}: shape {a.shape}, expected {w.shape}")
        if w.dtype == object or w.dtype.kind in "USiub":
            equal = (a == w.astype(np.str_) if w.dtype == object else a == w).all()
        else:
            equal = np.allclose(a, w, rtol=rtol, atol=atol, equal_nan=True)
        expect(equal, f"{output.name}:\n{a}\nexpected\n{w}")


def refusal(folder, m, *parts):
    onnx.save(m, folder / "m.onnx")
    done = T.must(T.run([TGC, "m.onnx", "-o", "m.c"], cwd=folder), 1)
    for part in parts:
        expect(part in done.err, f"{part!r} is not in the message:\n{done.err}")


def draw(*shape, seed=7):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


WORDS = strings(["red", "green", "", "blue", "Grün", "naïve", "日本語", "red", "RED", "a b  c"])

# --------------------------------------------------------------------------------------- strings


@case("strings move as any tensor does")
def _(folder):
    x = WORDS[:8].reshape(2, 4)
    m = model([node("Transpose", ["x"], ["t"]), node("Gather", ["t", "i"], ["g"], axis=0),
               node("Concat", ["g", "w"], ["c"], axis=0), node("Slice", ["c", "b", "e"], ["y"]),
               node("Equal", ["y", "w"], ["q"]), node("Where", ["q", "w", "y"], ["z"]),
               node("Tile", ["z", "r"], ["tiled"])],
              [value("x", [2, 4], STRING), value("i", [2], INT64)],
              [value("y", [3, 2], STRING), value("q", [3, 2], BOOL), value("z", [3, 2], STRING),
               value("tiled", [6, 2], STRING)],
              [helper.make_tensor("w", STRING, [1, 2], [b"red", b'q"\\\n\xc3\xa9']),
               helper.make_tensor("b", INT64, [1], [0]), helper.make_tensor("e", INT64, [1], [3]),
               helper.make_tensor("r", INT64, [2], [2, 1])])
    actual = emitted(folder, m, {"x": x, "i": np.array([3, 0])}, T.SANITIZE)
    w = np.array([["red", 'q"\\\né']])
    y = np.concatenate([x.T[[3, 0]], w])[:3].astype(np.str_)
    z = np.where(y == w, w, y)
    for name, wanted in (("y", y), ("q", y == w), ("z", z), ("tiled", np.tile(z, (2, 1)))):
        expect(actual[name].tolist() == wanted.tolist(), f"{name}: {actual[name]}")


@case("StringConcat, StringNormalizer and StringSplit of each other's results")
def _(folder):
    m = model([node("StringConcat", ["x", "s"], ["j"]),
               node("StringNormalizer", ["j"], ["n"], case_change_action="UPPER",
                    is_case_sensitive=0, stopwords=["RED!", "grün!"]),
               node("StringSplit", ["n"], ["p", "count"], delimiter="E")],
              [value("x", [10], STRING)],
              [value("n", [None], STRING), value("p", [None, None], STRING),
               value("count", [None], INT64)],
              [helper.make_tensor("s", STRING, [1], [b"!"])])
    actual = emitted(folder, m, {"x": WORDS}, T.SANITIZE)
    wanted = [f"{w}!".upper() for w in WORDS if f"{w}!".lower() not in ("red!", "grün!")]
    expect(actual["n"].tolist() == wanted, f"{actual['n']}")
    for row, count, word in zip(actual["p"], actual["count"], wanted):
        parts = word.split("E")
        expect(count == len(parts) and [str(p) for p in row[:count]] == parts, f"{row}")


@case("StringSplit at white space, and maxsplit")
def _(folder):
    x = strings(["  a b  c ", "one", "", " \t", "a  b c d"])
    for attributes in ({}, {"maxsplit": 2}, {"delimiter": " ", "maxsplit": 2}):
        m = model([node("StringSplit", ["x"], ["p", "n"], **attributes)], [value("x", [5], STRING)],
                  [value("p", [5, None], STRING), value("n", [5], INT64)])
        actual = emitted(folder, m, {"x": x})
        lists = [w.split(attributes.get("delimiter"), attributes.get("maxsplit", -1)) for w in x]
        width = max(map(len, lists))
        expect(actual["n"].tolist() == [len(parts) for parts in lists], f"{actual['n']}")
        expect(actual["p"].tolist() == [p + [""] * (width - len(p)) for p in lists],
               f"{actual['p']}\n{lists}")


@case("strings that do not fit their room are a status")
def _(folder):
    m = model([node("StringConcat", ["x", "x"], ["y"])], [value("x", [2], STRING)],
              [value("y", [2], STRING)])
    same(folder, m, {"x": strings(["a" * 250, "é"])})
    try:
        emitted(folder, m, {"x": strings(["a" * 250, "b" * 10])},
                T.SANITIZE)
    except T.Failure as failure:
        expect("does not fit its bound" in str(failure), str(failure))
    else:
        expect(False, "no status")


PATTERNS = [r"", r"a*", r"(a|b)*abb", r"[a-c]+x?", r"[^a-c]*", r"\d{2,4}", r"(ab){2}c{0,3}", r"x{0,2}",
            r"(?:foo|ba[rz]|)+", r".*b.*", r"\w+@\w+\.(com|org)", r"^abc$", r"a{3,}", r"[[:alpha:]_]+",
            r"日.", r"[α-ω]+", r"\x41\x{42}", r"a|b|c|", r"(a?){5}a{5}", r"[\]\-a]+", r"\bfoo\b.*",
            r"a+?b??", r"(?P<n>x+)y", r"\S+\s\S+", r"a{,3}", r"-?[0-9]+(\.[0-9]+)?"]
TEXTS = strings(["", "a", "aa", "abb", "aabb", "babb", "abcx", "xyz", "12", "12345", "ababccc", "ab", "xx",
                 "xxx", "foobar", "barbaz", "a\nb", "me@site.com", "me@site.net", "abc", "aaa", "aaaa",
                 "_Az", "日本", "αβγ", "AB", "c", "aaaaa", "a-]", "foo bar", "foobar baz", "xxy", "a{,3}",
                 "-12.5", "12.", "日本語"])


@case("RegexFullMatch")
def _(folder):
    m = model([node("RegexFullMatch", ["x"], [f"y{k}"], pattern=p) for k, p in enumerate(PATTERNS)],
              [value("x", [len(TEXTS)], STRING)],
              [value(f"y{k}", [len(TEXTS)], BOOL) for k in range(len(PATTERNS))])
    actual = emitted(folder, m, {"x": TEXTS}, T.SANITIZE)
    for k, pattern in enumerate(PATTERNS):
        python = re.sub(r"\[\[:alpha:\]_\]", "[a-zA-Z_]", pattern)
        python = python.replace(r"\x{42}", "B").replace("a{,3}", r"a\{,3\}")
        wanted = [re.fullmatch(python, text, re.ASCII) is not None for text in TEXTS]
        wrong = [text for text, a, w in zip(TEXTS, actual[f"y{k}"], wanted) if a != w]
        expect(not wrong, f"{pattern!r} is wrong about {wrong}")


@case("a regular expression that is not supported is refused by name")
def _(folder):
    for pattern, why in ((r"(?i)a", "flags"), (r"a(b", "not closed"), (r"*a", "nothing to repeat"),
                         (r"[b-a]", "empty"), (r"a\pL", "escape"), (r"(((a{1000}){1000}){1000})", "too long"),
                         (r"a)", "closes nothing")):
        m = model([node("RegexFullMatch", ["x"], ["y"], pattern=pattern)], [value("x", [1], STRING)],
                  [value("y", [1], BOOL)])
        refusal(folder, m, "RegexFullMatch", why)


@case("TfIdfVectorizer")
def _(folder):
    pool = ["red", "blue", "a", "b", "red", "blue", "b", "a", "red", "red", "blue", "a", "a", "b"]
    rng = np.random.default_rng(3)
    x = rng.choice(np.array(["red", "blue", "a", "b", "c"], object), (3, 12))
    for mode, skip, longest in (("TF", 0, 3), ("IDF", 2, 2), ("TFIDF", 1, 3)):
        attributes = dict(mode=mode, max_skip_count=skip, min_gram_length=1, max_gram_length=longest,
                          ngram_counts=[0, 2, 8], ngram_indexes=[4, 2, 0, 3, 1, 5, 6],
                          weights=[0.5, 2.0, 1.5, 1.0, 3.0, 0.25, 1.25])
        for text in (True, False):
            data = x if text else np.vectorize(lambda s: len(s) + ord(s[0]))(x).astype(np.int64)
            key = "pool_strings" if text else "pool_int64s"
            items = pool if text else [len(s) + ord(s[0]) for s in pool]
            m = model([node("TfIdfVectorizer", ["x"], ["y"], **attributes, **{key: items})],
                      [value("x", [3, 12], STRING if text else INT64)], [value("y", [3, 7])])
            same(folder, m, {"x": data})


# ------------------------------------------------------------------------------------------- ml


def one(op, attributes, x, outputs, dtype=FLOAT, ml=3, **options):
    """A model of one node, x [n, f]."""
    shape = list(x.shape)
    names = [name for name, _, _ in outputs]
    return model([node(op, ["x"], names, ML, **attributes)], [value("x", shape, dtype)],
                 [value(*output) for output in outputs], ml=ml)


TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]


@case("Scaler, Normalizer, Binarizer, Imputer")
def _(folder):
    x = draw(4, 3)
    x[1] = 0
    y = [("y", [4, 3], FLOAT)]
    same(folder, one("Scaler", dict(offset=[0.5, 1.0, -1.0], scale=[2.0, 0.5, 3.0]), x, y), {"x": x})
    same(folder, one("Scaler", dict(offset=[0.5], scale=[2.0]), (x * 9).astype(np.int64), y, INT64),
         {"x": (x * 9).astype(np.int64)})
    for norm in ("L1", "L2"):
        same(folder, one("Normalizer", dict(norm=norm), x, y), {"x": x})
    same(folder, one("Normalizer", dict(norm="MAX"), abs(x), y), {"x": abs(x)})
    same(folder, one("Binarizer", dict(threshold=0.25), x, y), {"x": x})
    x[0, 1] = x[2, 2] = np.nan
    same(folder, one("Imputer", dict(imputed_value_floats=[1.0, 2.0, 3.0],
                                     replaced_value_float=float("nan")), x, y), {"x": x})
    whole = np.array([[1, -1, 3], [-1, 2, -1]])
    same(folder, one("Imputer", dict(imputed_value_int64s=[7], replaced_value_int64=-1), whole,
                     [("y", [2, 3], INT64)], INT64), {"x": whole})


@case("ArrayFeatureExtractor, FeatureVectorizer")
def _(folder):
    x = draw(4, 5)
    for shape in ((4, 5), (20,)):
        a = x.reshape(shape)
        m = model([node("ArrayFeatureExtractor", ["x", "i"], ["y"], ML)], [value("x", shape)],
                  [value("y", [None, 3])], [helper.make_tensor("i", INT64, [3], [4, 0, 0])])
        same(folder, m, {"x": a})
    m = model([node("FeatureVectorizer", ["a", "b"], ["y"], ML, inputdimensions=[5, 2])],
              [value("a", [4, 5]), value("b", [4, 2])], [value("y", [4, 7])])
    same(folder, m, {"a": x, "b": draw(4, 2)})


@case("LabelEncoder")
def _(folder):
    text, whole = WORDS[[0, 1, 3, 7, 9]], np.array([3, 5, -2, 9, 3])
    real = np.array([1.5, np.nan, -0.25, 7, 1.5], np.float32)
    forms = [(text, STRING, dict(keys_strings=["blue", "red"])),
             (whole, INT64, dict(keys_int64s=[9, 3])), (real, FLOAT, dict(keys_floats=[1.5, -0.25]))]
    values = [(STRING, dict(values_strings=["x", "yy"], default_string="?")),
              (INT64, dict(values_int64s=[4, 5], default_int64=-7)),
              (FLOAT, dict(values_floats=[0.5, 2.5], default_float=9.0))]
    for x, dtype, keys in forms:
        for out, attributes in values:
            same(folder, one("LabelEncoder", {**keys, **attributes}, x, [("y", [5], out)], dtype, 2),
                 {"x": x})
    for x, dtype, out in ((text, STRING, INT64), (whole, INT64, STRING)):
        m = one("LabelEncoder", dict(classes_strings=["red", "green", "blue", "a b  c"]), x,
                [("y", [5], out)], dtype, 1)
        if dtype == STRING:
            same(folder, m, {"x": x})
        else:
            y = emitted(folder, m, {"x": x})["y"].tolist()
            expect(y == ["a b  c", "_Unused", "_Unused", "_Unused", "a b  c"], f"{y}")


@case("OneHotEncoder, CategoryMapper")
def _(folder):
    text, whole = WORDS[[0, 1, 3, 7, 9]], np.array([3, 5, -2, 9, 3])
    cats = ["blue", "red", "a b  c"]
    same(folder, one("OneHotEncoder", dict(cats_strings=cats), text, [("y", [5, 3], FLOAT)], STRING),
         {"x": text})
    same(folder, one("OneHotEncoder", dict(cats_int64s=[3, 9]), whole, [("y", [5, 2], FLOAT)], INT64),
         {"x": whole})
    both = dict(cats_strings=cats, cats_int64s=[3, 5, 9], default_string="none", default_int64=-3)
    same(folder, one("CategoryMapper", both, text, [("y", [5], INT64)], STRING), {"x": text})
    same(folder, one("CategoryMapper", both, whole, [("y", [5], STRING)], INT64), {"x": whole})


@case("OneHotEncoder: an element of no category, where zeros is 0, is a status")
def _(folder):
    m = one("OneHotEncoder", dict(cats_int64s=[3, 9], zeros=0), np.array([3, 9, 9]), [("y", [3, 2], FLOAT)], INT64)
    same(folder, m, {"x": np.array([3, 9, 9])})
    np.save(folder / "x.npy", np.array([3, 9, 4]))
    done = T.run([TGC, "run", "m.onnx", "-i", "x=x.npy"], cwd=folder)
    expect(done.status == 1 and "a value" in done.err, done.describe())


@case("LinearRegressor: coefficients for other than the number of targets")
def _(folder):
    m = one("LinearRegressor", dict(coefficients=[1.0] * 6, targets=3), draw(4, 3), [("y", [4, 3], FLOAT)])
    onnx.save(m, folder / "m.onnx")
    done = T.run([TGC, "m.onnx", "-o", "m.c"], cwd=folder)
    expect(done.status == 1 and "for 2 targets" in done.err, done.describe())


@case("LinearRegressor, LinearClassifier")
def _(folder):
    x, rng = draw(6, 3), np.random.default_rng(5)
    for count, transform in ((1, "NONE"), (2, "NONE"), (3, "SOFTMAX")):
        same(folder, one("LinearRegressor",
                         dict(coefficients=rng.standard_normal(3 * count), targets=count,
                              intercepts=rng.standard_normal(count), post_transform=transform),
                         x, [("y", [6, count], FLOAT)]), {"x": x})
    for count in (1, 2, 4):
        for transform in TRANSFORMS[:4]:
            labels = {"classlabels_ints": [5, 7, 2, 1][:max(count, 2)]}
            if transform == "SOFTMAX":
                labels = {"classlabels_strings": ["no", "yes", "so", "la"][:max(count, 2)]}
            m = one("LinearClassifier",
                    dict(coefficients=rng.standard_normal(3 * count), post_transform=transform,
                         intercepts=rng.standard_normal(count), **labels), x,
                    [("l", [6], STRING if transform == "SOFTMAX" else INT64),
                     ("s", [6, max(count, 2)], FLOAT)])
            same(folder, m, {"x": x})


def random_tree(rng, tree, features, depth, targets, modes):
    """Rows of a tree's nodes, and of its leaves' weights."""
    nodes, leaves, open_nodes, count = [], [], [(0, 0)], 1
    while open_nodes:
        at, level = open_nodes.pop()
        if level == depth or (level and rng.random() < 0.2):
            nodes.append((tree, at, 0, "LEAF", 0.0, 0, 0, 0))
            leaves += [(tree, at, target, rng.standard_normal()) for target in targets]
            continue
        nodes.append((tree, at, rng.integers(features), rng.choice(modes),
                      round(rng.standard_normal(), 1), count, count + 1, int(rng.integers(2))))
        open_nodes += [(count, level + 1), (count + 1, level + 1)]
        count += 2
    return sorted(nodes, key=lambda n: n[1]), leaves


def forest(kind, targets, trees=5, features=4, depth=4, positive=False, modes=("BRANCH_LEQ",),
           missing=True, seed=11):
    rng = np.random.default_rng(seed)
    nodes, leaves = [], []
    for tree in range(trees):
        n, l = random_tree(rng, tree, features, depth, targets, list(modes))
        nodes += n
        leaves += l
    columns, weights = list(zip(*nodes)), list(zip(*leaves))
    names = ["treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
             "missing_value_tracks_true"]
    attributes = {f"nodes_{name}": list(column) for name, column in zip(names, columns)}
    if not missing:
        attributes.pop("nodes_missing_value_tracks_true")
    for name, column in zip(("treeids", "nodeids", "ids", "weights"), weights):
        attributes[f"{kind}_{name}"] = [abs(v) / trees for v in column] if positive and \
            name == "weights" else list(column)
    return {k: [int(v) if isinstance(v, np.integer) else v for v in values]
            for k, values in attributes.items()}


def tree_input():
    x = np.round(draw(60, 4), 1)
    x[::7, 1] = np.nan
    return x


@case("TreeEnsembleRegressor")
def _(folder):
    x = tree_input()
    every = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    for modes, how, base, targets in ((["BRANCH_LEQ"], "SUM", None, 1), (every, "SUM", [0.5, 2.0], 2),
                                      (["BRANCH_LT"], "AVERAGE", None, 1),
                                      (["BRANCH_LEQ"], "MIN", None, 3), (["BRANCH_GT"], "MAX", None, 1)):
        attributes = forest("target", range(targets), modes=modes, missing=modes[0] == "BRANCH_LEQ")
        if base:
            attributes["base_values"] = base
        m = one("TreeEnsembleRegressor", dict(n_targets=targets, aggregate_function=how, **attributes),
                x, [("y", [60, targets], FLOAT)])
        same(folder, m, {"x": x})


@case("TreeEnsembleRegressor in doubles")
def _(folder):
    x = tree_input().astype(np.float64)
    attributes = forest("target", [0])
    for name in ("nodes_values", "target_weights"):
        values = attributes.pop(name)
        attributes[f"{name}_as_tensor"] = helper.make_tensor(name, DOUBLE, [len(values)], values)
    same(folder, one("TreeEnsembleRegressor", dict(n_targets=1, **attributes), x,
                     [("y", [60, 1], FLOAT)], DOUBLE), {"x": x})


@case("TreeEnsembleClassifier of many classes")
def _(folder):
    x = tree_input()
    for transform in TRANSFORMS[:4]:
        for labels, dtype in (({"classlabels_int64s": [4, 1, 9]}, INT64),
                              ({"classlabels_strings": ["a", "bb", "c"]}, STRING)):
            attributes = forest("class", range(3), positive=transform == "NONE")
            m = one("TreeEnsembleClassifier",
                    dict(post_transform=transform, base_values=[0.1, -0.2, 0.0], **labels,
                         **attributes), x, [("l", [60], dtype), ("s", [60, 3], FLOAT)])
            same(folder, m, {"x": x})


@case("TreeEnsembleClassifier of two classes with one score")
def _(folder):
    x = tree_input()
    for positive in (False, True):
        for transform in TRANSFORMS[:4]:
            for base in (None, [0.3]):
                attributes = forest("class", [0], positive=positive)
                if base:
                    attributes["base_values"] = base
                m = one("TreeEnsembleClassifier",
                        dict(post_transform=transform, classlabels_int64s=[4, 5], **attributes), x,
                        [("l", [60], INT64), ("s", [60, 2], FLOAT)])
                same(folder, m, {"x": x})


@case("trees that are none are refused")
def _(folder):
    x = draw(2, 4)
    for change, why in ((("nodes_truenodeids", 0, 0), "two parents"), (("nodes_featureids", 0, 9), "feature 9"),
                        (("nodes_falsenodeids", 0, 99), "its child"), (("target_ids", 0, 3), "target"),
                        (("nodes_modes", 0, "BRANCH_ODD"), "BRANCH_ODD"), (("target_nodeids", 0, 0), "no leaf")):
        attributes = forest("target", [0], trees=1)
        name, at, v = change
        attributes[name][at] = v
        refusal(folder, one("TreeEnsembleRegressor", dict(n_targets=1, **attributes), x,
                            [("y", [2, 1], FLOAT)]), "TreeEnsembleRegressor", why)


def machine(rng, classes, per_class, features, kernel):
    vectors = sum(per_class)
    pairs = classes * (classes - 1) // 2
    return dict(kernel_type=kernel, kernel_params=[0.4, 0.3, 2.0], vectors_per_class=per_class,
                support_vectors=rng.standard_normal(vectors * features),
                coefficients=rng.standard_normal(vectors * (classes - 1)),
                rho=rng.standard_normal(pairs))


@case("SVMRegressor")
def _(folder):
    x, rng = draw(9, 3), np.random.default_rng(2)
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        for one_class in (0, 1):
            m = one("SVMRegressor",
                    dict(kernel_type=kernel, kernel_params=[0.4, 0.3, 2.0], n_supports=5,
                         support_vectors=rng.standard_normal(15), one_class=one_class,
                         coefficients=rng.standard_normal(5), rho=[0.2]), x, [("y", [9, 1], FLOAT)])
            same(folder, m, {"x": x})
    m = one("SVMRegressor", dict(coefficients=[1.0, -2.0, 0.5], rho=[0.2], kernel_params=[0.0, 0.0, 0.0]), x, [("y", [9, 1], FLOAT)])
    same(folder, m, {"x": x})


@case("SVMClassifier")
def _(folder):
    x, rng = draw(40, 3), np.random.default_rng(4)
    for classes, per_class in ((2, [3, 4]), (3, [2, 3, 2]), (4, [2, 2, 2, 3])):
        pairs = classes * (classes - 1) // 2
        for kernel in ("RBF", "POLY"):
            for probabilities in (True, False):
                attributes = machine(rng, classes, per_class, 3, kernel)
                if probabilities:
                    attributes.update(prob_a=-abs(rng.standard_normal(pairs)),
                                      prob_b=rng.standard_normal(pairs))
                width = classes if probabilities else max(pairs, 2)
                m = one("SVMClassifier", dict(classlabels_ints=list(range(3, 3 + classes)), **attributes),
                        x, [("l", [40], INT64), ("s", [40, width], FLOAT)])
                same(folder, m, {"x": x}, rtol=1e-4, atol=1e-5)
    for transform in TRANSFORMS[1:3]:
        m = one("SVMClassifier", dict(classlabels_strings=["a", "b"], post_transform=transform,
                                      **machine(rng, 2, [3, 4], 3, "RBF")), x,
                [("l", [40], STRING), ("s", [40, 2], FLOAT)])
        same(folder, m, {"x": x}, rtol=1e-4, atol=1e-5)


suite.main()
