"""tgc m.tg -o m.wasm: modules for two triples, with vectors and without, run by node through their .mjs and compared with
this machine's results; what hosts lack and callers give wrongly is said; the page of `make web-demo` in a browser."""

import functools
import http.server
import json
import re
import shutil
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import browser
import foreign
import graphs as G
import numpy as np
import onnx
import tgc as T
from onnx import TensorProto
from suite import Skip, Suite, expect

suite = Suite("web")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "web")
MODELS = T.ROOT / "models"
TRIPLES = ("wasm32-wasi", "wasm32-unknown-unknown")


def need():
    foreign.need(foreign.WASI[0], "wasm-ld-19")
    if not foreign.WASI_HEADERS.exists():
        raise Skip("wasi-libc is not here")


def emit(folder, model, *options, name="net"):
    need()
    T.must(T.run([TGC, model, "-o", T.scratch(folder) / f"{name}.wasm", *options], timeout=120))
    expect(sorted(p.suffix for p in folder.iterdir()) in ([".mjs", ".wasm"], [".mjs", ".wasm", ".weights"]), "other files")
    return folder


def node(folder, script):
    """What a module that imports `load` prints, as JSON."""
    foreign.need("node")
    (folder / "test.mjs").write_text('import load from "./net.mjs";\n' + script)
    return json.loads(T.must(T.run(["node", "test.mjs"], cwd=folder)).out)


KINDS = {np.dtype(k): v for k, v in (("f4", "Float32Array"), ("f8", "Float64Array"), ("i8", "BigInt64Array"), ("i4", "Int32Array"),
                                     ("u1", "Uint8Array"), ("i1", "Int8Array"), ("?", "Uint8Array"))}


def literal(x):
    items = [f"{v}n" if x.dtype == np.int64 else str(int(v)) if x.dtype.kind in "iub" else repr(float(v)) for v in x.reshape(-1)]
    return f"{{data: new {KINDS[x.dtype]}([{','.join(items)}]), shape: {json.dumps(x.shape)}}}"


def run_module(folder, inputs):
    """The outputs of a run by node: {name: (shape, values)}."""
    given = ", ".join(f"{json.dumps(name)}: {literal(x)}" for name, x in inputs.items())
    return node(folder, f"""const out = (await load()).run({{{given}}});
        console.log(JSON.stringify(Object.fromEntries(Object.entries(out).map(([name, x]) => [name, [x.shape, Array.from(x, Number)]]))));""")


def run_here(folder, model, inputs, names):
    words = []
    for k, (name, x) in enumerate(inputs.items()):
        np.save(folder / f"in{k}.npy", x)
        words += ["-i", f"{name}={folder}/in{k}.npy"]
    T.must(T.run([TGC, "run", model, *words, "--target=c", "--out-dir", folder / "here"], timeout=120))
    return T.read_outputs(folder / "here", names)


def same(name, model, inputs, *options):
    """The module's results are those of this machine."""
    folder = emit(SCRATCH / name, model, *options)
    got = run_module(folder, inputs)
    for output, want in run_here(folder, model, inputs, list(got)).items():
        shape, values = got[output]
        expect(list(want.shape) == shape, f"{output}: shape {shape}, {want.shape} here")
        expect(want.size > 1 and np.ptp(want) > 0, f"{output} says nothing")
        T.compare(output, np.array(values, want.dtype).reshape(shape), want, 1e-4, 1e-5)


def drawn(model, sizes=()):
    """Values for all inputs, a dimension of the run being what sizes says, 3 otherwise."""
    random, sizes = np.random.default_rng(7), dict(sizes)
    return {i["name"]: random.standard_normal([d if isinstance(d, int) else sizes.get(d, 3) for d in i["shape"]]).astype(np.float32)
            for i in T.info(TGC, model)["inputs"]}


def by_model(name, triple, cpu):
    path = MODELS / f"{name}.tg"
    same(f"{name}-{triple}-{cpu}", path, drawn(path), f"--triple={triple}", f"--cpu={cpu}")


def types():
    """Other dtypes than f32, a shape that the run finds, names that are no identifiers."""
    made = G.model(
        [G.node("Cast", ["a b"], ["wide"], to=TensorProto.INT64), G.node("Add", ["wide", "i/1"], ["sum:0"]),
         G.node("Greater", ["sum:0", "limit"], ["is it"]), G.node("NonZero", ["is it"], ["where"])],
        [G.value("a b", ["N"], TensorProto.UINT8), G.value("i/1", ["N"], TensorProto.INT64)],
        [G.value("sum:0", ["N"], TensorProto.INT64), G.value("is it", ["N"], TensorProto.BOOL), G.value("where", [1, "M"], TensorProto.INT64)],
        [G.weight("limit", np.array(100, np.int64))])
    folder = T.scratch(SCRATCH / "types-model")
    onnx.save(made, folder / "m.onnx")
    emit(SCRATCH / "types", folder / "m.onnx", "--dim", "N<=40")
    a, b = np.arange(30, dtype=np.uint8), np.arange(30, dtype=np.int64) * 7 - 50
    got = run_module(SCRATCH / "types", {"a b": a, "i/1": b})
    total = a + b
    expect(got["sum:0"] == [[30], total.tolist()], str(got["sum:0"]))
    expect(got["is it"] == [[30], (total > 100).astype(int).tolist()], str(got["is it"]))
    places = np.flatnonzero(total > 100)
    expect(got["where"] == [[1, places.size], places.tolist()] and places.size, str(got["where"]))


def weights_file():
    """--weights=file: the .mjs reads NAME.weights beside it, or what it is given."""
    folder = emit(SCRATCH / "weights", MODELS / "digits.tg", "--weights=file")
    told = node(folder, """import { readFile, rename } from "node:fs/promises";
        const picture = new Float32Array(64).fill(0.25), a = (await load()).run({ picture }).probabilities;
        const weights = await readFile("net.weights");
        await rename("net.weights", "elsewhere");
        const b = (await load(undefined, { weights })).run({ picture }).probabilities;
        const say = [];
        for (const options of [{}, { weights: weights.subarray(64) }])
            await load(undefined, options).then(() => say.push("loaded"), (why) => say.push(why.message));
        console.log(JSON.stringify([Array.from(a), Array.from(b), say]));""")
    expect(told[0] == told[1] and np.ptp(told[0]) > 0, "other results")
    expect("cannot be read" in told[2][0] and re.search(r"needs \d+ bytes of weights", told[2][1]), told[2])


# Each would leave its string, comment or URL; one runs what it says where it does.
STEMS = ["a#b", "a?b", "a%41b", "a\u2028globalThis.ran=1", 'a"b`${globalThis.ran=1}', "a'b", "a\nb", "ä b"]


def names():
    """Files of any name, and a dimension that is a name of JavaScript's own."""
    foreign.need("node")
    folder = T.scratch(SCRATCH / "names")
    onnx.save(G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", ["constructor", 2])], [G.value("y", ["constructor", 2])]), folder / "m.onnx")
    need()
    for stem in STEMS:
        T.must(T.run([TGC, folder / "m.onnx", "-o", folder / f"{stem}.wasm", "--dim", "constructor<=8"], timeout=120))
        script = f"""import {{ pathToFileURL }} from "node:url";
            const {{ default: load }} = await import(pathToFileURL({json.dumps(str(folder / f"{stem}.mjs"))}));
            const y = (await load()).run({{ x: {{ data: new Float32Array([1, -1, 2, -2]), shape: [2, 2] }} }}).y;
            console.log(JSON.stringify([Array.from(y), globalThis.ran ?? 0]));"""
        (folder / "test.mjs").write_text(script)
        told = json.loads(T.must(T.run(["node", "test.mjs"], cwd=folder)).out)
        expect(told == [[1, 0, 2, 0], 0], f"{stem!r}: {told}")


BAD_INPUTS = {"{}": "'picture' is missing", "{picture: [1]}": "Float32Array", "{picture: new Float64Array(64)}": "Float32Array",
              "{picture: new Float32Array(63)}": "64 elements, and 63", "null": "'picture' is missing",
              "{picture: {data: new Float32Array(64), shape: [64]}}": "2 dimensions, and 1",
              "{picture: {data: new Float32Array(64), shape: [2, 32]}}": "dimension 0 is 1, and 2"}


def mistakes():
    """What is given wrongly, and what a host lacks."""
    folder = emit(SCRATCH / "mistakes", MODELS / "digits.tg")
    told = node(folder, f"""const model = await load(), say = [];
        for (const given of [{', '.join(BAD_INPUTS)}])
            try {{ model.run(given); say.push("ran"); }} catch (why) {{ say.push(why.message); }}
        const refused = (promise) => promise.then(() => say.push("loaded"), (why) => say.push(why.message));
        await refused(load(new Uint8Array([1, 2, 3])));
        await refused(load(new URL("absent.wasm", import.meta.url)));
        await refused(load("http://127.0.0.1:9/net.wasm"));
        const grow = WebAssembly.Memory.prototype.grow;
        WebAssembly.Memory.prototype.grow = () => {{ throw new RangeError("no"); }};
        await refused(load());
        WebAssembly.Memory.prototype.grow = grow;
        let probe = null;
        const {{ validate, compile }} = WebAssembly;
        WebAssembly.validate = (bytes) => {{ probe = validate(bytes); return false; }};
        WebAssembly.compile = () => Promise.reject(new WebAssembly.CompileError("wasm simd unsupported"));
        await refused(load());
        console.log(JSON.stringify([say, probe]));""")
    wanted = [*BAD_INPUTS.values(), "no WebAssembly module", "absent.wasm cannot be read", "cannot be fetched", "MB of memory",
              "no SIMD128"]
    expect(len(told[0]) == len(wanted), told[0])
    for said, want in zip(told[0], wanted):
        expect(want in said and "net: " in said, f"{want!r}: {said!r}")
    expect(told[1] is True, "the least module of SIMD128 is not valid where it should be")


def instructions():
    """--cpu=generic is valid without SIMD128, the default is not; neither imports anything, and both export the header's functions."""
    foreign.wasi()                   # or a skip
    import wasmtime

    def without_vectors():
        config = wasmtime.Config()
        config.wasm_relaxed_simd = config.wasm_simd = False
        return wasmtime.Engine(config)

    for triple in TRIPLES:
        for cpu, valid in (("generic", True), ("auto", False), ("simd128", False)):
            folder = emit(SCRATCH / f"valid-{triple}-{cpu}", MODELS / "mlp.tg", f"--triple={triple}", f"--cpu={cpu}")
            data = (folder / "net.wasm").read_bytes()
            try:
                wasmtime.Module(without_vectors(), data)
                without = True
            except wasmtime.WasmtimeError as why:
                without = False
                expect("SIMD" in str(why), str(why))
            expect(without == valid, f"--cpu={cpu}: {'valid' if without else 'not valid'} without SIMD128")
            module = wasmtime.Module(wasmtime.Engine(), data)
            expect(not module.imports, f"imports {[i.name for i in module.imports]}")
            names = {e.name for e in module.exports}
            expect(names == {"memory", *(f"net_{f}" for f in ("init", "run", "close", "strerror", "describe"))}, names)


def objects():
    """.o and .a, which clang links with C around them, and the same bytes each time."""
    need()
    foreign.need_wasi()
    folder = T.scratch(SCRATCH / "objects")
    for out in ("a.o", "b.a", "c.o"):
        T.must(T.run([TGC, MODELS / "mlp.tg", "-o", folder / out, "--name=net", "--target=clang", "--triple=wasm32-wasi"]))
    expect((folder / "a.o").read_bytes()[:4] == b"\0asm", "no WebAssembly")
    expect((folder / "a.o").read_bytes() == (folder / "c.o").read_bytes(), "other bytes")
    runner = foreign.wasi()
    said = []
    for compiler, part, words in ((foreign.WASI, "a.o", runner), (foreign.WASI, "b.a", runner)):
        exe = folder / f"{part}.wasm"
        T.must(T.run([*compiler, "-std=c11", f'-DMODEL_H="{Path(part).with_suffix(".h")}"', "-DMODEL=net", "-DARENA_BYTES=NET_ARENA_BYTES", "-I", folder,
                      T.ROOT / "tests" / "onnx" / "cross.c", folder / part, "-lm", "-o", exe]))
        said.append(T.must(T.run([*words, exe])).out)
    expect(said[0] == said[1] and len(set(said[0].split())) > 3, "results that say nothing")


def refusals():
    """What is asked for wrongly leaves no file."""
    folder = T.scratch(SCRATCH / "refusals")
    for status, text, words in (
            (2, "wasm32-unknown-unknown", ["--triple=aarch64-linux-gnu"]), (2, "wasm32-unknown-unknown", ["--triple=wasm64-wasi"]),
            (2, "--target=clang", ["--target=llvm"]), (2, "--target=clang", ["--target=cuda"]), (2, "one thread", ["--threads=4"]),
            (2, "simd128", ["--cpu=avx2"]), (2, "simd128", ["--cpu=apple-a14"])):
        done = T.run([TGC, MODELS / "mlp.tg", "-o", folder / "m.wasm", *words])
        expect(done.status == status and text in done.err, f"{words}: {done.describe()}")
    need()
    tools = T.scratch(folder / "tools")
    (tools / "clang-19").symlink_to(shutil.which("clang-19"))
    done = T.run([TGC, MODELS / "mlp.tg", "-o", folder / "m.wasm"], env={"PATH": str(tools)})
    expect(done.status == 1 and "apt-get install lld-19" in done.err, done.describe())
    expect([p.name for p in folder.iterdir()] == ["tools"], "a file is left")


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm", ".mjs": "text/javascript"}

    def log_message(self, *_):
        pass


def page():
    """The digits that models/digits.tg was trained with, drawn by the pointer in a browser; and a page without its network."""
    if not browser.find_browser():
        raise Skip("no chromium here")
    sys.path.insert(0, str(MODELS))
    from train_digits import glyphs
    folder = emit(SCRATCH / "page", MODELS / "digits.tg", name="digits")
    shutil.copy(T.ROOT / "examples" / "web" / "index.html", folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def visit(b):
        b.call("Page.navigate", url="about:blank")
        b.call("Page.navigate", url=f"http://127.0.0.1:{server.server_port}/")
        while b.run("document.readyState + location.protocol") != "completehttp:":
            time.sleep(0.02)
    try:
        with browser.Browser() as b:
            visit(b)
            right = 0
            box = b.run("(() => { const r = document.getElementById('picture').getBoundingClientRect(); return [r.left, r.top, r.width / 8]; })()")
            for digit, rows in enumerate(glyphs()):
                b.run("document.getElementById('clear').click()")
                expect(b.run("document.getElementById('answer').textContent") == "", "an answer to an empty picture")
                for y, row in enumerate(rows):
                    for x, ink in enumerate(row):
                        if ink:
                            b.click(box[0] + box[2] * (x + 0.5), box[1] + box[2] * (y + 0.5))
                right += b.run("document.getElementById('answer').textContent") == str(digit)
            expect(right >= 9, f"{right} of 10 digits are read")
            expect(not [c for c in b.complaints if "favicon" not in c], b.complaints[:3])
            (folder / "digits.wasm").unlink()
            visit(b)
            for _ in range(100):
                said = b.run("document.getElementById('answer').textContent")
                if said:
                    break
                time.sleep(0.05)
            expect("cannot be loaded" in said and "404" in said, said)
    finally:
        server.shutdown()


for name in ("mlp", "digits", "mnist_cnn", "transformer_block", "sliding_window_attention"):
    for triple in TRIPLES:
        for cpu in ("auto", "generic"):
            suite.add(f"{name} for {triple}, --cpu={cpu}", by_model, name, triple, cpu,
                      slow=(name, triple, cpu) not in (("mlp", TRIPLES[0], "auto"), ("digits", TRIPLES[1], "generic"), ("transformer_block", TRIPLES[1], "auto")))
for function in (types, names, weights_file, mistakes, instructions, objects, refusals, page):
    suite.add(function.__name__.replace("_", " "), function)
suite.main()
