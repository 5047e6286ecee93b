"""The text format: golden files, print(parse(print(g))) == print(g), files of weights, hostile bytes, and the models of models/.

Beside each golden/NAME.tg stands NAME.expected: the graph as tgtool prints it, then the diagnostics. --bless rewrites them; the
difference is to be reviewed like code.
"""

import json
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
from hosts import TABLES, functions  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("text")
GOLDEN = ROOT / "tests/ir/golden"


def tgtool(*arguments, timeout=60):
    return subprocess.run([Path(suite.options.build) / "tests/ir/tgtool", *arguments], capture_output=True, timeout=timeout)


def golden(path):
    done = tgtool("-l", "print", path)
    expect(done.returncode in (0, 1), f"exit status {done.returncode}")
    text = done.stdout.decode() + ("---- diagnostics\n" + done.stderr.decode(errors="replace") if done.stderr else "")
    expected = path.with_suffix(".expected")
    if suite.options.bless:
        expected.write_text(text)
        return
    expect(expected.exists(), f"{expected.name} is missing; --bless writes it")
    want = expected.read_text()
    if text != want:
        for n, (a, b) in enumerate(zip(text.splitlines(), want.splitlines()), 1):
            expect(a == b, f"line {n}:\n  have {a}\n  want {b}")
        expect(False, f"{len(text)} characters, expected {len(want)}:\n{text}")
    expect(tgtool("-O0", "print", path).returncode == done.returncode, "differs without folding")


def numbers(path):
    done = tgtool("eval", path, timeout=300)
    expect(done.returncode == 0, done.stderr.decode())
    result = {}
    for line in done.stdout.decode().splitlines():
        head, _, values = line.partition(" =")
        result[head.split(" : ")[0]] = np.array([float(v) for v in values.split()])
    return result


def model_identity(path):
    for flags in ([], ["-O0"]):
        done = tgtool(*flags, "print", path)
        expect(done.returncode == 0, done.stderr.decode())


def input_shapes(path):
    """Inputs of a model with every symbol 2, as tgtool's eval has it."""
    shapes = {}
    for line in path.read_text().splitlines():
        if line.startswith("input"):
            kind = line.split(":", 1)[1].split(" as ")[0].strip()
            name = line.split('"')[1] if " as " in line else line.split("%")[1].split()[0]
            dims = kind.partition("[")[2].rstrip("]")
            shapes[name] = [int(d) if d.strip().isdigit() else 2 for d in dims.split(",")] if dims else []
    return shapes


def model_runs(path):
    """The emitted program against the interpreter."""
    want = numbers(path)
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(suite.options.build) / "cli/tgc", "run", path, "--target=c", "--out-dir", folder]
        for name, shape in input_shapes(path).items():
            n = int(np.prod(shape))
            np.save(Path(folder) / f"in_{name}.npy", (0.1 * (np.arange(n) % 7) - 0.2).astype(np.float32).reshape(shape))
            command += ["-i", f"{name}={folder}/in_{name}.npy"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        expect(done.returncode == 0, done.stderr)
        for name, value in want.items():
            have = np.load(Path(folder) / f"{name}.npy").astype(np.float64).ravel()
            scale = np.abs(value).max() if value.size else 1
            expect(have.shape == value.shape and np.allclose(have, value, rtol=1e-4, atol=max(1e-5 * scale, 1e-7)),
                   f"output {name}: largest difference {np.abs(have - value).max()}")


def command_line():
    """Text graphs through tgc itself: information, dimensions, standard input, writing, dependencies, mistakes."""
    def tgc(*arguments, status=0, **more):
        done = subprocess.run([Path(suite.options.build).resolve() / "cli/tgc", *arguments], capture_output=True, text=True, timeout=120, **more)
        expect(done.returncode == status, f"{arguments}: status {done.returncode}\n{done.stderr}")
        return done

    model = ROOT / "models/transformer_block.tg"
    with tempfile.TemporaryDirectory() as folder:
        info = json.loads(tgc("info", model, "--json").stdout)
        expect(info["inputs"][0]["shape"] == ["B", "T", 128], str(info["inputs"]))
        info = json.loads(tgc("info", model, "--json", "--dim", "B=1", "--shape", "x=1x5x128").stdout)
        expect(info["inputs"][0]["shape"] == [1, 5, 128], str(info["inputs"]))
        expect("no dimension 'Q'" in tgc("info", model, "--dim", "Q=1", status=1).stderr, "an unknown dimension")
        expect("rank 3" in tgc("info", model, "--shape", "x=1x5", status=1).stderr, "a wrong rank")
        expect("cannot be 7" in tgc("info", model, "--shape", "x=1x5x7", status=1).stderr, "a fixed axis")
        tgc(model, "-o", "a.tg", "--weights=file", cwd=folder)
        tgc("a.tg", "-o", "b.tg", "--weights=file", cwd=folder)
        expect((Path(folder) / "a.tg").read_text().replace("a.safe", "b.safe") == (Path(folder) / "b.tg").read_text(), "not the identity")
        expect((Path(folder) / "a.safetensors").read_bytes() == (Path(folder) / "b.safetensors").read_bytes(), "other weights")
        tgc("a.tg", "-o", "a.c", "-MD", cwd=folder)
        expect((Path(folder) / "a.d").read_text() == "a.c: a.tg a.safetensors\n", (Path(folder) / "a.d").read_text())
        text = (Path(folder) / "a.tg").read_text()
        expect("--external-data-dir" in tgc("-x", "tg", "-", "-o", "c.c", cwd=folder, input=text, status=1).stderr, "a side file from nowhere")
        tgc("-x", "tg", "-", "-o", "c.c", "--external-data-dir", folder, cwd=folder, input=text)
        error = tgc(GOLDEN / "errors.tg", "-o", "e.c", cwd=folder, status=1).stderr
        expect("errors.tg:8:6: error: there is no operation 'mathmul'" in error and "\n         ^" in error, error)
        expect(not (Path(folder) / "e.c").exists(), "a failed compile left a file")


SIDE = """tg 1
weight %a : f32[8] = normal(seed=1)
weight %b : i32[2, 3] = [1, 2, 3, 4, 5, 6]
%c = reduce_sum(%a) {axes=[0]}
output %c
output %b
"""


def side_file():
    with tempfile.TemporaryDirectory() as folder:
        path, again = Path(folder) / "x.tg", Path(folder) / "y.tg"
        path.write_text(SIDE)
        done = tgtool("-O0", "-s", "x.safetensors", "print", path)
        expect(done.returncode == 0, done.stderr.decode())
        text = done.stdout.decode()
        expect('weight %a : f32[8] = file("x.safetensors", "a")' in text, text)
        again.write_text(text)
        done = tgtool("-O0", "-s", "x.safetensors", "print", again)
        expect(done.stdout.decode() == text and done.returncode == 0, "differs when it is read again")
        expect(all(np.array_equal(numbers(path)[k], numbers(again)[k]) for k in numbers(path)), "other values")
        raw = (Path(folder) / "x.safetensors").read_bytes()
        header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
        expect(header["b"]["dtype"] == "I32" and header["b"]["shape"] == [2, 3], str(header))


def refused(line, message, files=()):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder) / "models"
            base.mkdir()
            (Path(folder) / "secret").write_bytes(bytes(64))
            (base / "link").symlink_to(Path(folder) / "secret")
            (base / "raw").write_bytes(bytes(range(64)))
            for name, content in files:
                (base / name).write_bytes(content)
            path = base / "x.tg"
            path.write_text(f"tg 1\nweight %w : f32[4] = {line}\noutput %w\n")
            done = tgtool("print", path)
            if message is None:
                expect(done.returncode == 0, done.stderr.decode())
            else:
                expect(done.returncode == 1 and message in done.stderr.decode(), done.stderr.decode())
    return run


def safetensors(header, data=bytes(16)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD = {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "__metadata__": {"a": "{[\"]}"}}
FILES = [
    ("good", safetensors({"__metadata__": {"a": "}{"}, "v": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "w": GOOD["w"]}), None),
    ("escaped", safetensors(b'{"\\u0077":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":[{"x":[1,-2.5e3,null]}]}}'), None),
    ("short", safetensors({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 32]}}), "beyond its end"),
    ("backwards", safetensors({"w": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}), "beyond its end"),
    ("overflow", safetensors(b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,99999999999999999999999]}}'), "describes it"),
    ("dtype", safetensors({"w": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}), "describes it"),
    ("other", safetensors({"w": {"dtype": "I32", "shape": [4], "data_offsets": [0, 16]}}), "not what is declared"),
    ("missing", safetensors({"x": GOOD["w"]}), "no tensor of this name"),
    ("deep", safetensors(b'{"x":' + b"[" * 100000 + b"]" * 100000 + b"}"), "no tensor of this name"),
    ("open", safetensors(b'{"w":{"dtype":"F32"'), "describes it"),
    ("header", struct.pack("<Q", 1 << 60) + b"{}", "no safetensors file"),
    ("empty", b"", "no safetensors file"),
    ("garbage", b"\xff" * 40, "no safetensors file"),
]


# A call of each function of ir/host.def whose params say sizes: inputs, results, params (letters are their places), vars, and
# which of them may not be one more, or a hundred.
CALLS = [
    ("nonzero", ["bool[8]"], ["i64[K]"], [8, 0, 8], "K", "ac"),
    ("nms", ["f32[2, 6, 4]", "f32[2, 3, 6]", "i64[]", "f32[]", "f32[]"], ["i64[K, 3]", "i64[6]"], [2, 3, 6, 0, 0, 8], "K", "abcf"),
    ("topk_f32", ["f32[3, 4, 2]"], ["f32[3, 5, 2]", "i64[3, 5, 2]"], [3, 4, 2, 5, 1, 1], "", "abcd"),
    ("unique_i64", ["i64[8, 2]"], ["i64[K]", "i64[8]", "i64[K]", "i64[8]"], [8, 2, 1, 0, 8], "K", "abe"),
    ("find_f64", ["f64[5]", "f64[7]"], ["i64[5]"], [5, 7], "", "ab"),
    ("tfidf_i64", ["i64[2, 5]", "i64[4]", *TABLES["tfidf"].values()], ["f32[2, 3]"], [2, 5, 3, 1, 2, 0], "", "abce"),
    ("svm_decide", ["f32[2, 9]", "f32[2, 9]", TABLES["svm_decide"][2], "f32[3]"], ["f32[2, 3]", "i64[2]", "i64[3]"], [2, 9, 3], "", "abc"),
    ("svm_probability", ["f32[2, 3]", "f32[3]", "f32[3]"], ["f32[2, 3]", "f32[21]"], [2, 3], "", "ab"),
    ("roi_align_f32", ["f32[2, 3, 8, 7]", "f32[5, 4]", "i64[5]", "f32[]"], ["f32[5, 3, 2, 4]"], [2, 3, 8, 7, 5, 2, 4, 1, 0], "", "abcdefg"),
    ("roi_max_f64", ["f64[2, 3, 8, 7]", "f64[5, 5]", "f64[]"], ["f64[5, 3, 2, 4]"], [2, 3, 8, 7, 5, 2, 4], "", "abcdefg"),
    ("tree_walk_f32", ["f32[4, 6]", *TABLES["tree_walk"].values(), "f32[5]"], ["f32[4, 2]"], [4, 6, 3, 2, 0], "", "abcd"),
    ("to_string_f32", ["f32[5]"], ["string[5]", "u8[160]"], [5, 160], "", "ab"),
]


# Those that CALLS does not hold. K: found, at most 8; T: a run-time size, 2 to 9.
OTHER_CALLS = [
    ("require", ["bool[]"], [], [], ""),
    ("expect", ["bool[]"], [], [], ""),
    ("match_dims", [], [], ["T", "N + 2"], ""),
    ("read_dim", ["i64[T]"], [], ["T - 1", 0, 8], "K"),
    ("string_concat", ["string[T]", "string[T]"], ["string[T]", "u8[90]"], ["T", 90], ""),
    ("string_split", ["string[T]", "string[1]"], ["string[T, K]", "i64[T]", "u8[90]"], ["T", -1, 8, 90], "K"),
    ("string_normalize", ["string[8]", "string[3]"], ["string[K]", "u8[90]"], [8, 3, -1, 0, 90], "K"),
    ("regex_full_match", ["string[T]", *TABLES["regex_full_match"].values()], ["bool[T]", "i64[16]"], ["T", 4], ""),
    ("image_decode", ["u8[T]"], ["u8[K, 8, 3]", "u8[900]"], ["T", 0, 0, 8, 8, 8, 900], "K, 8"),
    ("nonzero", ["bool[T - 2]"], ["i64[K]"], ["T - 2", 0, 7], "K"),
    ("topk_u64", ["u64[N, T - 3]"], ["u64[N, 2]", "i64[N, 2]"], ["N", "T - 3", 1, 2, 0, 1], ""),
]
# The same functions for other elements: of which function above, and how the dtypes change.
ALIKE = [("unique_f32", "i64", "f32"), ("unique_f64", "i64", "f64"), ("unique_u64", "i64", "u64"), ("unique_str", "i64", "string"),
         ("topk_f64", "f32", "f64"), ("topk_i64", "f32", "i64"), ("find_f32", "f64", "f32"), ("find_i64", "f64", "i64"), ("find_str", "f64", "string"),
         ("tfidf_str", "i64", "string"), ("tree_walk_f64", "f32", "f64"), ("roi_align_f64", "f32", "f64"), ("roi_max_f32", "f64", "f32"),
         ("to_string_f64", "f32", "f64"), ("to_string_i64", "f32", "i64"), ("to_string_u64", "f32", "u64")]
OTHER_CALLS += [(f"from_string_{d}", ["string[T]"], [f"{d}[T]"], ["T"], "") for d in ("f32", "f64", "i64", "u64")]
OTHER_CALLS += [(f"tree_ensemble_{d}", [f"{d}[T, 6]", TABLES["tree_ensemble"][1], TABLES["tree_ensemble"][2], f"{d}[5]", f"{d}[2]", TABLES["tree_ensemble"][5], f"{d}[5]"], [f"{d}[T, 2]"],
                 ["T", 6, 3, 2, 0], "") for d in ("f32", "f64")]


def host_text(function, inputs, results, params, found, least=0):
    """A graph of one call, whose outputs need nothing of it but the sizes that it finds."""
    lines = ["tg 1", 'graph "g"', f"dim {least}<=K<=8" if least else "dim K<=8"] if "K" in found else ["tg 1", 'graph "g"']
    lines += ["input %n : f32[N<=2]", "input %t : f32[2<=T<=9]"]
    lines += [f"{'weight' if '=' in t else 'input'} %x{i} : {t}" for i, t in enumerate(inputs)]
    names = ", ".join(f"%r{i} : {t}" for i, t in enumerate(results))
    tail = f", vars=[{found}]" if found else ""
    lines.append(f"{names}{' = ' if results else ''}host \"{function}\"({', '.join(f'%x{i}' for i in range(len(inputs)))}) "
                 f"{{params=[{', '.join(map(str, params))}]{tail}}}")
    lines += ["%y = zeros() {shape=[K, 2]}", "output %y"] if "K" in found else []
    return "\n".join([*lines, *(f"output %r{i}" for i, t in enumerate(results) if not t.startswith("u8")), "output %n", ""])


def every_host():
    """Each function of ir/host.def is read, written with all that it finds and checks, and read again; and it becomes C."""
    calls = every_call()
    listed = re.findall(r"^HOST\((\w+),", (ROOT / "ir/host.def").read_text(), re.M)
    types = dict(re.findall(r'^HOST\((\w+)(?:, \d+)+, "([^"]*)"', (ROOT / "ir/host.def").read_text(), re.M))
    for host in functions():
        expect(types[host.name].split() == host.dtypes(), f"{host.name} takes {host.dtypes()}, not what ir/host.def says")
    missing = set(listed) - set(calls)
    expect(not missing, f"no call of {missing}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.tg"
        for call in calls.values():
            path.write_text(host_text(*call))
            done = tgtool("print", path)
            text = done.stdout.decode()
            expect(done.returncode == 0, f"{call[0]}: {done.stderr.decode()}")
            expect(f'host "{call[0]}"' in text, f"{call[0]} is lost:\n{text}")
            compiled(path, call[0])


def compiled(path, function):
    """tgc's C calls the function."""
    source = path.with_suffix(".c")
    done = subprocess.run([Path(suite.options.build) / "cli/tgc", path, "-o", source], capture_output=True, timeout=60)
    expect(done.returncode == 0, f"{function}: {done.stderr.decode()}")
    expect(re.search(rf"status = {function}\(|= {function}\(", source.read_text()), f"the C does not call {function}")


def host_found():
    """What a call may find has room in what it names, numbers included; a check stands outside of regions."""
    nonzero = ("nonzero", ["bool[8]"], ["i64[{}]"])

    def read(params, found, size, least=0, change=str):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "call.tg"
            path.write_text(change(host_text(nonzero[0], nonzero[1], [nonzero[2][0].format(size)], params, found, least)))
            return tgtool("print", path)

    for params, found, size, least, right in (([8, 0, 8], "K", "K", 0, True), ([8, 3, 8], "K", "K", 3, True), ([8, 3, 3], "3", "3", 0, True),
                                              ([8, 0, 9], "K", "K", 0, False), ([8, 0, 8], "K", "K", 1, False), ([8, 0, 3], "3", "3", 0, False),
                                              ([8, 3, 8], "3", "8", 0, False)):
        done = read(params, found, size, least)
        expect(done.returncode == (0 if right else 1), f"{params}, {found}: status {done.returncode}, {done.stderr!r}")
        expect(right or b"may find" in done.stderr, f"{params}, {found}: {done.stderr!r}")
    check = 'input %go : bool[]\n%z = if(%go) then {\n    host "require"(%go)\n    yield(%n)\n} else (%n)\noutput %n'
    done = read([8, 0, 8], "K", "K", change=lambda text: text.replace("output %n", check))
    expect(done.returncode == 1 and b"outside" in done.stderr, f"in a branch: {done.stderr!r}")
    again = '_ : i64[K] = host "nonzero"(%x0) {params=[8, 0, 8], vars=[K]}\noutput %n'
    done = read([8, 0, 8], "K", "K", change=lambda text: text.replace("output %n", again))
    expect(done.returncode == 1 and b"found by a host call already" in done.stderr, f"two calls: {done.stderr!r}")


def found_once():
    """What a call finds is one symbol of the program, which the header says once; the graph lists it, too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.tg"
        path.write_text(host_text("nonzero", ["bool[8]"], ["i64[K]"], [8, 0, 8], "K"))
        compiled(path, "nonzero")
        header = path.with_suffix(".h").read_text()
        expect(header.count("#define FOUND_MAX_K 8 ") == 1, header)


def host_sizes(function, inputs, results, params, found, sizes):
    """As given a call is read; with one size larger, or negative, it is refused; by a symbol, too."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "call.tg"

    def read(params):
        path.write_text(host_text(function, inputs, results, params, found))
        return tgtool("print", path)

    done = read(params)
    expect(done.returncode == 0, f"as it is: {done.stderr!r}")
    for size in sizes:
        i = ord(size) - ord("a")
        for wrong in (params[i] + 1, params[i] + 100, -1, f"N + {params[i]}"):
            done = read([*params[:i], wrong, *params[i + 1:]])
            expect(done.returncode == 1 and (b"ir/host.def" in done.stderr or b"size or a position" in done.stderr),
                   f"param {i + 1} is {wrong}: status {done.returncode}, {done.stderr[-300:]!r}")


def every_call():
    calls = {call[0]: call[:5] for call in [*CALLS, *OTHER_CALLS]}
    for name, old, new in ALIKE:
        like = next(c for c in calls.values() if c[0].rsplit("_", 1)[0] == name.rsplit("_", 1)[0])
        change = [t.replace(old, new, 1) if i == 0 or not name.startswith(("tfidf", "unique")) else t for i, t in enumerate(like[1])]
        results = [t.replace(old, new, 1) if not name.startswith(("unique", "to_string", "find", "tfidf")) and
                   (i == 0 or not name.startswith("topk")) else t for i, t in enumerate(like[2])]
        change[1:2] = ["string[4]"] if name == "tfidf_str" else change[1:2]
        if name.startswith("roi_align"):
            change[2] = "i64[5]"
        calls[name] = (name, change, results, *like[3:])
    return calls


def read_call(*call):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.tg"
        path.write_text(host_text(*call))
        return tgtool("print", path)


def host_types():
    """No input and no result of a host call is of another dtype than the function's: it would lie elsewhere."""
    for name, inputs, results, params, found in every_call().values():
        for side, of in enumerate((inputs, results)):
            for k, text in enumerate(of):
                dtype, rest = text.partition("[")[::2]
                other = [*of[:k], f"{'i64' if dtype == 'i32' else 'i32'}[{rest}", *of[k + 1:]]
                done = read_call(name, *((other, results) if side == 0 else (inputs, other)), params, found)
                expect(done.returncode == 1 and f"of '{name}' is of".encode() in done.stderr, f"{name}, {other}: {done.stderr!r}")


# Of each function one table that is wrong, by its place, and what is said of it.
WRONG_TABLES = [
    ("tfidf_i64", 2, "i64[3] = [0, 3, 2]", "beyond the end"), ("tfidf_i64", 2, "i64[3] = [0, -1, 2]", "beyond the end"), ("tfidf_i64", 3, "i64[3] = [0, 3, 1]", "column"),
    ("tfidf_i64", 4, "i64[3] = [0, 2, 1]", "beyond the end"), ("tfidf_i64", 4, "i64[3] = [0, 1, 4]", "beyond the end"),
    ("svm_decide", 2, "i64[4] = [0, 3, 6, 10]", "beyond the end"), ("svm_decide", 2, "i64[4] = [-1, 3, 6, 9]", "beyond the end"),
    ("regex_full_match", 1, "i32[12] = [1, 1, 4, 3, 0, 1, 2, -2, 0, 0, 0, 0]", "goes on"), ("regex_full_match", 1, "i32[12] = [2, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]", "goes on"),
    ("regex_full_match", 1, "i32[12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1]", "goes on"), ("regex_full_match", 1, "i32[12] = [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]", "operation"),
    ("regex_full_match", 1, "i32[12] = [3, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]", "beyond the end"), ("regex_full_match", 1, "i32[12]", "no weight"),
    ("tree_walk_f32", 1, "i32[3] = [0, 1, 5]", "parent"), ("tree_walk_f32", 1, "i32[3] = [0, 1, 1]", "parent"), ("tree_walk_f32", 1, "i32[3] = [0, 1, -1]", "parent"),
    ("tree_walk_f32", 2, "i32[20] = [0,0,-1,-1, 5,1,0,0, 0,2,-1,-1, 0,3,-1,-1, 0,4,-1,-1]", "parent"),
    ("tree_walk_f32", 2, "i32[20] = [0,0,-1,-1, 6,3,0,0, 0,2,-1,-1, 0,3,-1,-1, 0,4,-1,-1]", "feature"),
    ("tree_walk_f32", 2, "i32[20] = [0,0,-1,-1, 5,4,0,0, 0,2,-1,-1, 0,3,-1,-1, 0,4,-1,-1]", "parent"),
    ("tree_walk_f32", 3, "i32[6] = [0, 1, 2, 3, 3, 6]", "beyond the end"), ("tree_walk_f32", 4, "i32[5] = [0, 1, 2, 0, 1]", "target"),
    ("tree_ensemble_f64", 2, "i32[30] = [7,0,0,0,0,1, 6,6,2,3,0,2, 7,0,0,0,1,3, 7,0,0,0,3,4, 7,0,0,0,4,5]", "feature"),
    ("tree_ensemble_f64", 2, "i32[30] = [7,0,0,0,0,1, 6,5,2,3,0,3, 7,0,0,0,1,3, 7,0,0,0,3,4, 7,0,0,0,4,5]", "beyond the end"),
    ("tree_ensemble_f64", 2, "i32[30] = [7,0,0,0,0,1, 6,5,1,3,0,2, 7,0,0,0,1,3, 7,0,0,0,3,4, 7,0,0,0,4,5]", "parent"),
    ("tree_ensemble_f64", 2, "i32[30] = [7,0,0,0,0,6, 6,5,2,3,0,2, 7,0,0,0,1,3, 7,0,0,0,3,4, 7,0,0,0,4,5]", "beyond the end"),
    ("tree_ensemble_f64", 5, "i32[5] = [0, 1, -1, 0, 1]", "target"),
]


def host_tables():
    """Tables that a function follows are weights, in range of what they are indices of, and no walk through them goes in circles."""
    calls = every_call()
    for name, place, table, words in WRONG_TABLES:
        _, inputs, results, params, found = calls[name]
        done = read_call(name, [*inputs[:place], table, *inputs[place + 1:]], results, params, found)
        expect(done.returncode == 1 and words.encode() in done.stderr, f"{name} with {table}: status {done.returncode}, {done.stderr!r}")
    covered = {name for name, *_ in WRONG_TABLES}
    expect(all(any(name.startswith(kind) for name in covered) for kind in TABLES), "a table is not tried")
    # string_normalize stores one empty string if no word stays
    call = ["string_normalize", ["string[0]", "string[3]"], ["string[0]", "u8[90]"], [0, 3, -1, 0, 90], "K"]
    done = read_call(*call, 1)
    expect(done.returncode == 1 and b"touches 1 elements of its result 1" in done.stderr, f"no word stays: {done.stderr!r}")


def hostile():
    """Mutations of the golden files: read or refused, never a crash, and quickly."""
    choose = random.Random(7)
    sources = [p.read_bytes() for p in sorted(GOLDEN.glob("*.tg"))]
    pieces = [b"%", b'"', b"(", b")", b"{", b"[", b"]", b"loop", b"999999999999999999999", b"-", b"\0", b"\xff", b"f32[", b"as", b"<=", b"\n", b"N*N*N",
              b"1e999", b"input %x : f32[4294967296, 4294967296, 4294967296]\n", b"'",
              b"def ", b"extern ", b"custom ", b"->", b"?", b"any", b"scratch(", b"}", b"def f(%x : f32[N]) -> (%y) { %y = f(%x) }\n"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tg"
        for n in range(400 if not suite.options.all else 5000):
            data = bytearray(choose.choice(sources))
            for _ in range(choose.randint(1, 4)):
                at = choose.randrange(len(data) + 1)
                kind = choose.randrange(4)
                if kind == 0:
                    data[at:at + choose.randint(1, 20)] = b""
                elif kind == 1:
                    data[at:at] = choose.choice(pieces)
                elif kind == 2 and at < len(data):
                    data[at] = choose.randrange(256)
                else:
                    other = choose.choice(sources)
                    start = choose.randrange(len(other))
                    data[at:at] = other[start:start + choose.randint(1, 60)]
            path.write_bytes(data)
            done = tgtool("print", path, timeout=20)
            expect(done.returncode in (0, 1) and b"bug" not in done.stderr.lower(), f"mutation {n}: status {done.returncode}\n{done.stderr[-800:]!r}\n{bytes(data)!r}")


for source in sorted(GOLDEN.glob("*.tg")):
    suite.add(f"golden {source.stem}", golden, source)
for source in sorted((ROOT / "models").glob("*.tg")):
    suite.add(f"identity of {source.stem}", model_identity, source)
    suite.add(f"emitted C of {source.stem}", model_runs, source)
suite.add("the command line", command_line)
suite.add("weights in a side file", side_file)
suite.add("raw file", refused('file("raw", offset=16)', None))
suite.add("unaligned raw file", refused('file("raw", offset=17)', None))
for line, message in [('file("raw", offset=49)', "go beyond its end"), ('file("../secret")', "no '..'"), ('file("/etc/passwd")', "no leading '/'"),
                      ('file("link")', "symbolic link"), ('file("nothing")', "cannot be opened"), ('file("raw", offset=99999999999999999999)', "number of bytes"),
                      ('base64("AAAA")', "holds 3 bytes"), ('base64("AAAAAAAAAAAAAAAAAAAAA!")', "not of base64"), ('[[1, 2], [3]]', "found 3 values"),
                      ('[1, 2, 3, 4, 5]', "more values"), ('orthogonal(seed=1)', "no initializer"), ('uniform(scale=2)', "no parameter 'scale'")]:
    suite.add(f"refused: {line}", refused(line, message))
for name, content, message in FILES:
    suite.add(f"safetensors {name}", refused('file("x.safetensors", "w")', message, [("x.safetensors", content)]))
for call in CALLS:
    suite.add(f"sizes of {call[0]}", host_sizes, *call)
suite.add("every host function", every_host)
suite.add("dtypes of host calls", host_types)
suite.add("tables of host calls", host_tables)
suite.add("what host calls find", host_found)
suite.add("host calls find one symbol", found_once)
suite.add("hostile bytes", hostile)

suite.parse(lambda parser: parser.add_argument("--bless", action="store_true", help="rewrite the golden files"))
suite.main()
