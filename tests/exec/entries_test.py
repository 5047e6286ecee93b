"""A text with several entries: runs over one context and its states, ONNX files that it imports.

Each model is built as C and for a device, and runs in this process by LLVM; a reference in NumPy follows the states.
"""

import ctypes as C
import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import tgc as T  # noqa: E402
from library import Library, pointer  # noqa: E402
from opencl import need_device  # noqa: E402
from suite import Skip, Suite, expect  # noqa: E402

suite = Suite("entries", jobs=1)     # a driver is one of the process
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "entries")
TWO = """tg 1
weight %w : f32[4, 4] = [1,2,3,4, 5,6,7,8, 1,0,1,0, 0,1,0,1]
state %queue : f32[3, 4]
state %count : i32[1] = [10]
entry "push" {
    input %frame : f32[1, 4] as "frame"
    %old = shrink(%queue) {begin=[1, 0], size=[2, 4]}
    %next = concat(%old, %frame) {axis=0}
    keep %queue = %next
    output %next as "queue"
}
entry "run" {
    input %frame : f32[1, 4] as "frame"
    input %scale : f32[1] as "scale"
    %old = shrink(%queue) {begin=[1, 0], size=[2, 4]}
    %next = concat(%old, %frame) {axis=0}
    keep %queue = %next
    %c = add(%count, 1)
    keep %count = %c
    %p = matmul(%next, %w)
    %y = mul(%p, %scale)
    output %y as "y"
    output %c as "count"
}
entry "look" {
    %s = reduce_sum(%queue) {axes=[0], keep=false}
    output %s as "sum"
}
"""


class Two:
    """What TWO computes."""
    W = np.array([1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 1, 0, 0, 1, 0, 1], np.float32).reshape(4, 4)

    def __init__(self):
        self.queue, self.count = np.zeros((3, 4), np.float32), np.array([10], np.int32)

    def push(self, frame):
        self.queue = np.concatenate([self.queue[1:], frame])
        return {"queue": self.queue}

    def run(self, frame, scale):
        self.queue, self.count = np.concatenate([self.queue[1:], frame]), self.count + 1
        return {"y": self.queue @ self.W * scale, "count": self.count}

    def look(self):
        return {"sum": self.queue.sum(0)}


class Entries(Library):
    """The functions of the entries: their structs are pointers, in the order of the text."""

    def enter(self, entry, feeds, results):
        held = [np.ascontiguousarray(a) for a in feeds]
        given = np.array([a.ctypes.data for a in held] + [0], np.uint64)
        taken = np.array([a.ctypes.data for a in results] + [0], np.uint64)
        status = self.function(f"{entry}_run")(self.model, pointer(given), pointer(taken))
        expect(status == 0, f"{entry}: status {status}")
        return results


def build(name, text, *options, flags=(T.LEVEL,)):
    folder = T.scratch(SCRATCH / name)
    (folder / "net.tg").write_text(text)
    for path in (SCRATCH / "onnx").glob("*.onnx"):
        (folder / path.name).write_bytes(path.read_bytes())
    if "--target=llvm" in options:
        T.must(T.run([TGC, "net.tg", "-o", "net.so", *options], cwd=folder))
        return folder, Entries(folder / "net.so")
    T.must(T.run([TGC, "net.tg", "-o", "net.c", *options], cwd=folder))
    T.must(T.run(["gcc", *T.WARNINGS, *flags, "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm"], cwd=folder))
    return folder, Entries(folder / "net.so")


def follow(net, seed=0):
    """Entries in a random order, with a reset, a block that is saved and one that is taken back."""
    random = np.random.default_rng(seed)
    model, saved = Two(), None
    for step in range(40):
        frame, scale = random.standard_normal((1, 4), np.float32), random.standard_normal(1, np.float32)
        what = ("push", "run", "look", "save", "restore", "reset")[random.choice(6, p=[.3, .3, .2, .08, .08, .04])]
        if what == "reset":
            net.reset()
            model = Two()
        elif what == "save":
            saved = net.save(), model.queue, model.count
        elif what == "restore" and saved:
            net.restore(saved[0])
            _, model.queue, model.count = saved
        elif what in ("push", "run", "look"):
            feeds = {"push": (frame,), "run": (frame, scale), "look": ()}[what]
            wanted = getattr(model, what)(*feeds)
            got = net.enter(what, feeds, [np.zeros_like(a) for a in wanted.values()])
            for (name, want), have in zip(wanted.items(), got):
                expect(np.allclose(have, want, rtol=1e-5, atol=1e-5), f"step {step}, {what}: {name} is {have}, not {want}")


@suite.case("three entries follow their states, in C")
def in_c():
    folder, net = build("c", TWO)
    follow(net)
    flags = [w.replace("c11", "c++17") for w in T.WARNINGS if w != "-Wvla"]
    T.must(T.run(["g++", "-x", "c++", *flags, "-O0", "-c", "net.c", "-o", "plus.o"], cwd=folder))
    follow(build("threads", TWO, "--threads=2", "-O0")[1], 1)


@suite.case("on a device")
def on_device():
    need_device()
    follow(build("device", TWO, "--target=opencl")[1], 2)


@suite.case("objects by LLVM")
def by_llvm():
    T.need_llvm(TGC)
    folder, net = build("llvm", TWO, "--target=llvm")
    check_statuses(net)
    follow(net, 4)
    main = "#include \"net.h\"\nint main(void) { return net_push_run(0, 0, 0) - NET_NULL_ARGUMENT; }\n"
    (folder / "main.c").write_text(main)    # the header declares what the object has
    T.must(T.run([TGC, "net.tg", "-o", "net.o", "--target=llvm"], cwd=folder))
    T.must(T.run(["gcc", *T.WARNINGS, "main.c", "net.o", "-o", "main", "-lm"], cwd=folder))
    T.must(T.run(["./main"], cwd=folder))


def moving(n, entries):
    """n states of three numbers, which move on by one where an entry stores them, so that each has two places. entries: by name, those that it
    stores."""
    lines = ["tg 1", *(f"state %s{k} : f32[3] = [{k}, {k + 1}, {k + 2}]" for k in range(n))]
    for name, stored in entries.items():
        lines += [f'entry "{name}" {{', '    input %x : f32[1] as "x"']
        for k in stored:
            lines += [f"    %old{k} = shrink(%s{k}) {{begin=[1], size=[2]}}", f"    %new{k} = concat(%old{k}, %x) {{axis=0}}", f"    keep %s{k} = %new{k}"]
        lines += [f"    output %new{stored[-1]} as \"last\"", "}"]
    join = [f"%s{k}" for k in range(n)]
    return "\n".join([*lines, 'entry "look" {', f"    %y = concat({', '.join(join)}) {{axis=0}}", "    output %y as \"all\"", "}", ""])


@suite.case("more states than a word has bits: those that are stored together change places together")
def many_states():
    n, entries = 80, {"all": range(80), "some": range(40), "others": range(60, 70)}
    for options in ([], ["--target=llvm"]):
        if options:
            T.need_llvm(TGC)
        _, net = build(f"many{len(options)}", moving(n, entries), *options)
        want, saved = np.arange(n)[:, None] + np.arange(3, dtype=np.float32), None
        for step, name in enumerate("all some others some save all others restore all some".split()):
            if name == "save":
                saved = net.save(), want.copy()
            elif name == "restore":
                net.restore(saved[0])
                want = saved[1].copy()
            else:
                x = np.array([100 + step], np.float32)
                net.enter(name, (x,), [np.zeros(3, np.float32)])
                for k in entries[name]:
                    want[k] = [*want[k, 1:], x[0]]
            (got,) = net.enter("look", (), [np.zeros(3 * n, np.float32)])
            expect((got.reshape(n, 3) == want).all(), f"{options}, step {step}, {name}: {got.reshape(n, 3)}\nnot {want}")
    sets = {f"e{k}": [k, (k + 1) % 65] for k in range(65)}
    folder = T.scratch(SCRATCH / "sets")
    (folder / "net.tg").write_text(moving(65, sets))
    done = T.must(T.run([TGC, "net.tg", "-o", "net.c"], cwd=folder), 1)
    expect("states are stored by 65 sets of entries, more than 64" in done.err, done.err)


SIZED = """tg 1
dim n<=6
state %sum : f32[1] = [0.5]
entry "add" {
    input %x : f32[n]
    %a = reduce_sum(%x) {axes=[0], keep=true}
    %next = add(%sum, %a)
    keep %sum = %next
    output %x as "same"
    output %next as "sum"
}
entry "scale" {
    input %v : f32[2, n]
    %y = mul(%v, %sum)
    output %y
}
"""


@suite.case("sizes of a run, by each target")
def sizes():
    for options in ([], ["--target=llvm"], ["--target=opencl"]):
        try:
            if "--target=llvm" in options:
                T.need_llvm(TGC)
            if "--target=opencl" in options:
                need_device()
        except Skip:
            continue
        _, net = build("sized", SIZED, *options)
        x, y, same, total = np.arange(4, dtype=np.float32), np.ones((2, 4), np.float32), np.zeros(6, np.float32), np.zeros(1, np.float32)
        given = np.array([x.ctypes.data, 4], np.uint64)
        taken = np.array([same.ctypes.data, 99, total.ctypes.data], np.uint64)
        status = net.function("add_run")(net.model, pointer(given), pointer(taken))
        expect(status == 0 and taken[1] == 4 and list(same[:4]) == [0, 1, 2, 3] and total[0] == 6.5, f"{options}: {status} {taken} {same} {total}")
        got = np.zeros((2, 4), np.float32)
        given, taken = np.array([y.ctypes.data, 4], np.uint64), np.array([got.ctypes.data, 0, 0], np.uint64)
        status = net.function("scale_run")(net.model, pointer(given), pointer(taken))
        expect(status == 0 and list(taken[1:]) == [2, 4] and (got == 6.5).all(), f"{options}: {status} {taken} {got}")
        given[1] = 7
        expect(net.function("scale_run")(net.model, pointer(given), pointer(taken)) == 6, f"{options}: beyond the bound")


def check_statuses(net):
    nothing = np.zeros(8, np.uint64)
    run = net.function("run_run")
    expect(net.function("push_run")(net.model, pointer(nothing), pointer(nothing)) == 4, "an input is missing")
    expect(run(net.model, None, pointer(nothing)) == 1 and run(None, pointer(nothing), pointer(nothing)) == 1, "no structs, no model")
    follow(net, 3)                          # what failed has changed nothing
    net.reset()
    symbol = net.info.symbols[0]
    expect(symbol.name == b"entry" and symbol.max == 2, "the entry's number is a symbol")
    given, taken = np.zeros(net.info.inputs_bytes, np.uint8), np.zeros(net.info.outputs_bytes, np.uint8)
    given[symbol.offset:symbol.offset + 8] = np.frombuffer(np.int64(3).tobytes(), np.uint8)
    expect(net.function("run")(net.model, pointer(given), pointer(taken)) == 6, "entry 3")


@suite.case("what is missing, and an entry that there is not")
def statuses():
    check_statuses(build("statuses", TWO)[1])


@suite.case("reference vectors: --selftest runs the entries in turn, over one context")
def selftest():
    folder, _ = build("selftest", TWO)
    T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "-DNET_MAIN", "net.c", "-o", "net", "-lm"], cwd=folder))
    said = T.must(T.run(["./net", "--selftest"], cwd=folder)).out.decode()
    expect(said.count("agree with the reference") == 4 and "12 of 12" in said and "passed" in said, said)
    text = (folder / "net.c").read_text()
    expect(text.count("dim_entry == 2") > 0, "the entry's number")
    (folder / "net.c").write_text(text.replace("self->odd ^= UINT64_C(1)", "self->odd ^= UINT64_C(0)"))
    T.must(T.run(["gcc", "-O1", "-DNET_MAIN", "net.c", "-o", "wrong", "-lm"], cwd=folder))
    done = T.run(["./wrong", "--selftest"], cwd=folder)
    expect(done.status == 1 and "FAILED" in done.out.decode(), "a state that stays where it was is seen")
    frame, scale = np.arange(4, dtype=np.float32).reshape(1, 4), np.array([2], np.float32)
    np.save(folder / "frame.npy", frame)
    np.save(folder / "scale.npy", scale)
    T.must(T.run(["./net", "--entry", "run", "frame.npy", "scale.npy", "--steps", "2", "-o", "."], cwd=folder))
    model = Two()
    model.run(frame, scale)
    expect(np.allclose(np.load(folder / "y.npy"), model.run(frame, scale)["y"]), "two runs of an entry")
    for words, said in ((["frame.npy", "-o", "."], "give --entry"), (["--entry", "x", "-o", "."], "no such entry")):
        done = T.run(["./net", *words], cwd=folder)
        expect(done.status == 1 and said in done.err, f"{words}: {done.err}")


@suite.case("tgc verify: an entry on recorded tensors, two models by all entries and their states")
def verify():
    folder, _ = build("verify", TWO)
    data = T.scratch(folder / "data")
    frame, scale, model = np.arange(4, dtype=np.float32).reshape(1, 4), np.array([2], np.float32), Two()
    for k, array in enumerate((frame, scale)):
        np.save(data / f"input_{k}.npy", array)
    for k, array in enumerate(model.run(frame, scale).values()):
        np.save(data / f"output_{k}.npy", array)
    said = T.must(T.run([TGC, "verify", "net.tg", "--entry=run", "--data", "data"], cwd=folder)).out.decode()
    expect(said.count("ok ") == 2, said)
    np.save(data / "output_1.npy", np.array([12], np.int32))
    expect(T.run([TGC, "verify", "net.tg", "--entry=run", "--data", "data"], cwd=folder).status == 3, "a wrong count")
    said = T.must(T.run([TGC, "verify", "net.tg", "net.tg"], cwd=folder)).out.decode()
    expect(said.count("ok ") == 6, f"four outputs, two states: {said}")
    (folder / "other.tg").write_text(TWO.replace("add(%count, 1)", "add(%count, 2)").replace("output %c as", "output %count as"))
    done = T.run([TGC, "verify", "net.tg", "other.tg"], cwd=folder)
    expect(done.status == 3 and done.out.decode().count("MISMATCH") == 2, f"{done.out}")
    (folder / "more.tg").write_text(TWO.replace("state %count", "state %more : f32[1]\nstate %count").replace("keep %count", "keep %more = %scale\n    keep %count"))
    for words, text in ((["net.tg", "--data", "data"], "give --entry"), (["net.tg", "net.tg", "--entry=x"], "no entry 'x'"),
                        (["net.tg", "more.tg"], "has 3 states, the first model has 2")):
        done = T.run([TGC, "verify", *words], cwd=folder)
        expect(done.status == 1 and text in done.err, f"{words}: {done.err}")


SHARED = """tg 1
weight %w : f32[64, 64] = kaiming_uniform(seed=1)
state %s : f32[4, 64] = normal(seed=2)
entry "a" {
    input %x : f32[4, 64] as "x"
    %h = matmul(%s, %w)
    %r = softmax(%h) {axis=-1}
    %n = add(%r, %x)
    keep %s = %n
    output %n as "n"
}
entry "b" {
    input %x : f32[4, 64] as "x"
    keep %s = %x
    %m = reduce_sum(%x) {axes=[1], keep=false}
    output %m as "m"
}
entry "c" {
    %h = matmul(%s, %w)
    %r = softmax(%h) {axis=-1}
    output %r as "p"
}
"""


@suite.case("what two of three entries compute from a state is not computed for the third")
def shared():
    folder, _ = build("shared", SHARED)
    text = (folder / "net.c").read_text()
    body = text[text.index("in->dim_entry == 0 || in->dim_entry == 2"):]
    expect(text.count("->matmul_0(") == 1 and "->matmul_0(" in body.split("}")[0], body[:600])
    T.must(T.run(["gcc", T.LEVEL, "-DNET_MAIN", "net.c", "-o", "net", "-lm"], cwd=folder))
    T.must(T.run(["./net", "--selftest"], cwd=folder))
    said = T.must(T.run([TGC, "verify", "net.tg", "net.tg", "--other=--target=c"], cwd=folder)).out.decode()
    expect(said.count("ok ") == 4, said)


@suite.case("written as text and read again")
def text():
    vision()
    for name, source, options in (("two", TWO, []), ("sized", SIZED, []), ("import", IMPORT.format(n=2), []),
                                  ("beside", TWO.replace("[10]", "[10]\nstate %large : f32[100] = normal(seed=1)")
                                   .replace("keep %count", "keep %large = %large\n    keep %count"), ["--weights=file"])):
        folder = T.scratch(SCRATCH / "text" / name)
        (folder / "net.tg").write_text(source)
        (folder / "vision.onnx").write_bytes((SCRATCH / "onnx" / "vision.onnx").read_bytes())
        T.must(T.run([TGC, "net.tg", "-o", "once.tg", *options], cwd=folder))
        again = T.scratch(folder / "again")
        expect((folder / "once.safetensors").exists() == (name == "beside"), "where the first value is")
        (folder / "vision.onnx").unlink()   # what was imported is in the text
        T.must(T.run([TGC, "once.tg", "-o", "again/once.tg", *options], cwd=folder))
        expect((folder / "once.tg").read_bytes() == (again / "once.tg").read_bytes(), f"{name}: the same text again")
        if name == "import":
            (folder / "vision.onnx").write_bytes((SCRATCH / "onnx" / "vision.onnx").read_bytes())
        said = T.must(T.run([TGC, "verify", "net.tg", "once.tg"], cwd=folder)).out.decode()
        expect("MISMATCH" not in said and said.count("ok ") >= 3, said)


@suite.case("tgc run, bench and info")
def command_line():
    folder, _ = build("commands", TWO)
    ways = [[], ["--target=c"]]
    for way in ways:
        done = T.must(T.run([TGC, "run", "net.tg", "--entry=run", "--steps", "3", "--out-dir", "out", *way], cwd=folder))
        got = np.load(folder / "out" / "count.npy")
        expect(got == [13] and not (folder / "out" / "sum.npy").exists(), f"{way}: {got} {done.out}")
    T.must(T.run([TGC, "bench", "net.tg", "--entry=look"], cwd=folder))
    np.save(folder / "frame.npy", np.ones((1, 4), np.float32))          # a name that another entry has, too
    np.save(folder / "scale.npy", np.ones(1, np.float32))
    T.must(T.run([TGC, "run", "net.tg", "--entry=run", "-i", "frame=frame.npy", "-i", "scale=scale.npy", "--out-dir", "out"], cwd=folder))
    expect((np.load(folder / "out" / "y.npy")[2] == Two.W.sum(0)).all(), "the input is this entry's")
    info = json.loads(T.must(T.run([TGC, "info", "net.tg", "--json"], cwd=folder)).out)
    names = [{key: entry[key] for key in ("name", "inputs", "outputs")} for entry in info["entries"]]
    expect(names == [{"name": "push", "inputs": ["frame"], "outputs": ["queue"]},
                     {"name": "run", "inputs": ["frame", "scale"], "outputs": ["y", "count"]},
                     {"name": "look", "inputs": [], "outputs": ["sum"]}], f"{info['entries']}")
    for words, text in ((["run", "net.tg"], "--entry=push, --entry=run or --entry=look"),
                        (["run", "net.tg", "--entry=x"], "no entry 'x'"),
                        (["run", "net.tg", "--entry=look", "-i", "frame=out/y.npy"], "no input 'frame'")):
        done = T.run([TGC, *words], cwd=folder)
        expect(done.status == 1 and text in done.err, f"{words}: {done.status} {done.err}")


COUNTER = """tg 1
state %n : f32 = [3]
input %x : f32[2]
%y = mul(%x, %n)
%z = add(%n, 1.0)
keep %n = %z
output %y
"""


@suite.case("without entries: a state of one number begins with its value; --value beside a state")
def counter():
    folder = T.scratch(SCRATCH / "counter")
    (folder / "net.tg").write_text(COUNTER)
    np.save(folder / "x.npy", np.array([1, 2], np.float32))
    for way in ([], ["--target=c"]):
        T.must(T.run([TGC, "run", "net.tg", "-i", "x=x.npy", "--value", "z", "--steps", "3", "--out-dir", "out", *way], cwd=folder))
        got = {name: np.load(folder / "out" / f"{name}.npy").tolist() for name in ("y", "z")}
        expect(got == {"y": [5, 10], "z": 6}, f"{way}: {got}")


@suite.case("tgc info: what the run of each entry takes; on a device their inputs and outputs share places")
def counted():
    folder = T.scratch(SCRATCH / "counted")
    (folder / "net.tg").write_text(TWO)
    info = [json.loads(T.must(T.run([TGC, "info", "net.tg", "--json", *options], cwd=folder)).out) for options in ((), ("--target=opencl",))]
    push, run, look = info[1]["entries"]
    expect([e["flop"] for e in info[0]["entries"]] == [0, 2*3*4*4 + 3*4 + 1, 3*4], f"{info[0]['entries']}")
    expect(sum(e["kernels"] for e in info[0]["entries"]) == info[0]["kernels"], f"{info[0]}")
    for key in ("launches", "moved_bytes", "asked_bytes"):
        expect(push["device"][key] + run["device"][key] + look["device"][key] == info[1]["device"][key], f"{key}: {info[1]['entries']}")
    expect(look["device"]["launches"] == 1 and look["device"]["least_bytes"] == 64, f"{look}")
    text = T.must(T.run([TGC, "info", "net.tg", "--target=opencl", "--cpu=adreno630", "--image"], cwd=folder)).out.decode()
    expect(re.search(r"of these in the run of each entry:\n    push: \d+ kernels, 0 FLOP, .* moved, .* image reads", text), text)
    sizes = []
    for size in (4, 4096):       # of the first entry's frame
        (folder / "net.tg").write_text(f"""tg 1
entry "a" {{
    input %x : f32[{size}] as "x"
    %y = exp(%x)
    output %y as "y"
}}
entry "b" {{
    input %z : f32[1024] as "z"
    %w = log(%z)
    output %w as "w"
}}
""")
        T.emit(TGC, folder / "net.tg", folder / "net.c", "--target=opencl")
        sizes.append(int(re.search(r"define NET_DEVICE_BYTES (\d+)", (folder / "net.h").read_text()).group(1)))
    expect(sizes[0] <= 2 * 4096 + 512 and sizes[1] <= 2 * 4 * 4096 + 512, f"{sizes} bytes: the largest entry's, and not the sum")


PARTS = """tg 1
meta "frequency" = "20 Hz, \\"as measured\\""
meta "empty" = ""
entry "a" {
    input %x : f32[2, 6]
    output %x as "y" {plan=4, pad=2}
}
entry "b" {
    input %x : f32[3]
    output %x as "y" {a_b=1, plan=2}
    output %x as "y_a" {b=3}
}
"""


@suite.case("parts of outputs that have names, and what a program says of itself")
def parts():
    folder, net = build("parts", PARTS)
    told = [(net.info.slices[i].name, net.info.slices[i].output, net.info.slices[i].begin, net.info.slices[i].size)
            for i in range(net.info.slice_count)]
    expect(told == [(b"plan", 0, 0, 4), (b"pad", 0, 4, 2), (b"a_b", 1, 0, 1), (b"plan", 1, 1, 2), (b"b", 2, 0, 3)], f"{told}")
    meta = {net.info.meta[i].key: net.info.meta[i].value for i in range(net.info.meta_count)}
    expect(meta == {b"frequency": b'20 Hz, "as measured"', b"empty": b""}, f"{meta}")
    header = (folder / "net.h").read_text()
    for name in ("NET_AT_Y_PLAN 0\n", "NET_SIZE_Y_PLAN 4\n", "NET_AT_Y_PAD 4\n", "NET_AT_Y_2_PLAN 1\n", "NET_SIZE_Y_A_B 3\n"):
        expect(f"#define {name}" in header, f"{name} in {[line for line in header.splitlines() if '_AT_' in line]}")
    wanted = json.loads(T.must(T.run([TGC, "info", "net.tg", "--json"], cwd=folder)).out)
    expect(wanted["slices"][1] == {"output": "y", "name": "pad", "begin": 4, "size": 2} and len(wanted["meta"]) == 2, f"{wanted}")
    for target in ("c", "llvm"):
        if target == "c" or T.has_llvm(TGC):
            T.must(T.run([TGC, "net.tg", "-o", f"{target}.so", f"--target={target}", "--name=net"], cwd=folder))
            said = json.loads(T.must(T.run([TGC, "info", f"{target}.so", "--name=net", "--json"], cwd=folder)).out)
            expect(all(said[k] == wanted[k] for k in ("slices", "meta")), f"{target}: {said}")


def vision():
    """A small network in ONNX, whose batch is open."""
    weight = np.random.default_rng(5).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"), helper.make_node("Flatten", ["p"], ["f"], "flat")]
    graph = helper.make_graph(nodes, "vision", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
                              [helper.make_tensor_value_info("f", TensorProto.FLOAT, ["n", 4])], [numpy_helper.from_array(weight, "w")])
    folder = T.scratch(SCRATCH / "onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "vision.onnx")
    return weight


def features(weight, x):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight), 0).mean((2, 3))


IMPORT = """tg 1
import vision = "vision.onnx"
state %past : f32[3, 4]
entry "look" {{
    input %image : f32[{n}, 3, 8, 8]
    %f = vision(%image)
    %one = reduce_mean(%f) {{axes=[0], keep=true}}
    %old = shrink(%past) {{begin=[1, 0], size=[2, 4]}}
    %next = concat(%old, %one) {{axis=0}}
    keep %past = %next
    output %f as "features"
}}
entry "twice" {{
    input %a : f32[1, 3, 8, 8]
    input %b : f32[2, 3, 8, 8]
    %f = vision(%a)
    %g = vision(%b)
    %both = concat(%f, %g) {{axis=0}}
    output %both
}}
"""


@suite.case("ONNX files as functions, for different sizes")
def imports():
    weight = vision()
    random = np.random.default_rng(7)
    for options in ([], ["--target=opencl"]):
        try:
            need_device()
        except Skip:
            options = []
        folder, net = build("import", IMPORT.format(n=2), *options)
        image, one = random.standard_normal((2, 3, 8, 8)).astype(np.float32), random.standard_normal((1, 3, 8, 8)).astype(np.float32)
        got, = net.enter("look", [image], [np.zeros((2, 4), np.float32)])
        expect(np.allclose(got, features(weight, image), atol=1e-5), f"{options} look: {got}")
        got, = net.enter("twice", [one, image], [np.zeros((3, 4), np.float32)])
        expect(np.allclose(got, features(weight, np.concatenate([one, image])), atol=1e-5), f"{options} twice: {got}")
    said = T.must(T.run([TGC, "info", "net.tg"], cwd=folder)).out.decode()
    expect('Conv "conv"' in said, said)     # kernels are named after the model's nodes
    T.must(T.run([TGC, "net.tg", "-o", "net.c", "-MD", "-MF", "net.d"], cwd=folder))
    expect("vision.onnx" in (folder / "net.d").read_text(), "the file is a dependency")


WRONG = {
    "entry inside": ('entry "a" {\nentry "b" {\n}\n}\n', "2:7", "inside an entry"),
    "a name twice": ('entry "a" {\ninput %x : f32[1]\noutput %x\n}\nentry "a" {\n}\n', "5:7", "already"),
    "an input outside": ('input %x : f32[1]\nentry "a" {\noutput %x\n}\n', "2:7", "outside of its entries"),
    "an output behind": ('weight %w : f32[1] = [1]\nentry "a" {\noutput %w\n}\noutput %w as "z"\n', "", "outside of its entries"),
    "an entry's name outside": ('entry "a" {\ninput %x : f32[1]\noutput %x as "x"\n}\nentry "b" {\noutput %x\n}\n', "6:8", "%x"),
    "a state never kept": ('state %s : f32[2]\noutput %s\n', "", "nothing keeps"),
    "kept twice": ('state %s : f32[2]\nkeep %s = %s\nkeep %s = %s\noutput %s\n', "3:6", "already"),
    "another shape": ('state %s : f32[2]\ninput %x : f32[3]\nkeep %s = %x\noutput %x\n', "3:11", "f32[2]"),
    "no state": ('input %x : f32[3]\nkeep %x = %x\noutput %x\n', "2:6", "expected a state"),
    "a run-time size": ('state %s : f32[N<=4]\nkeep %s = %s\noutput %s\n', "1:17", "fixed size"),
    "no such file": ('import a = "none.onnx"\noutput %a\n', "1:17", "none.onnx"),
    "a path above": ('import a = "../net.onnx"\noutput %a\n', "1:17", ".."),
    "no model": ('import a = "net.tg"\noutput %a\n', "net.tg", "ModelProto"),
    "a function's name": ('import relu = "vision.onnx"\noutput %a\n', "1:13", "function already"),
    "operands": ('import v = "vision.onnx"\ninput %x : f32[1, 3, 8, 8]\n%y = v(%x, %x)\noutput %y\n', "3:6", "1 inputs, and 2 operands"),
    "shapes": ('import v = "vision.onnx"\ninput %x : f32[1, 4, 8, 8]\n%y = v(%x)\noutput %y\n', "vision.onnx", "4"),
    "results": ('import v = "vision.onnx"\ninput %x : f32[1, 3, 8, 8]\n%y, %z = v(%x)\noutput %y\n', "3:10", "1 outputs, and 2 results"),
    "an end is missing": ('entry "a" {\ninput %x : f32[1]\noutput %x\n', "", "expected '}'"),
}


@suite.case("texts that are wrong")
def wrong():
    vision()
    folder = T.scratch(SCRATCH / "wrong")
    (folder / "vision.onnx").write_bytes((SCRATCH / "onnx" / "vision.onnx").read_bytes())
    for name, (text, place, said) in WRONG.items():
        (folder / "net.tg").write_text("tg 1 " + text)
        done = T.run([TGC, "net.tg", "-o", "net.c"], cwd=folder)
        expect(done.status == 1 and place in done.err and said in done.err and not (folder / "net.c").exists(),
               f"{name}: status {done.status}, {done.err}")


if __name__ == "__main__":
    suite.main()
