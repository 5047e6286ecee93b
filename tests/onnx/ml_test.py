"""Strings and ai.onnx.ml, through the emitted C, against onnxruntime.

Each case makes a small model of one operator with random parameters, in the forms that
scikit-learn, XGBoost and LightGBM exports have. Integers, bools and strings are exact.
"""

import re
import shutil
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
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def case(name):
    def register(function):
        def inside():
            folder = T.scratch(SCRATCH / re.sub(r"\W", "_", name))
            try:
                function(folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        suite.add(name, inside)
        return function
    return register


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


def emitted(folder, m, inputs, flags=("-O1",)):
    """The outputs of the emitted program, by name."""
    onnx.save(m, folder / "m.onnx")
    T.must(T.run([TGC, "m.onnx", "-o", "m.c"], cwd=folder))
    T.build(folder / "m.c", folder / "m", "gcc", flags)
    program = T.Program(folder / "m", [o.name for o in m.graph.output])
    arrays = [a.astype(np.str_) if a.dtype == object else a for a in inputs.values()]
    return program.run(arrays)


def same(folder, m, inputs, rtol=1e-5, atol=1e-6, flags=("-O1",)):
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
    actual = emitted(folder, m, {"x": x, "i": np.array([3, 0])}, SANITIZED)
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
    actual = emitted(folder, m, {"x": WORDS}, SANITIZED)
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
                SANITIZED)
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
    actual = emitted(folder, m, {"x": TEXTS}, SANITIZED)
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
suite.main()
