"""tgc tune, --tune and info --why: what is measured, resumed, replayed, refused, explained."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx

import graphs as G
import tgc as T
from opencl import need_device
from suite import Suite, expect

suite = Suite("tune")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "tune")
MISFIT = "run tgc tune again"


def tgc(folder, *arguments, status=0, env=None):
    return T.must(T.run([TGC, *arguments], cwd=folder, timeout=300, env=env), status)


def network(folder):
    """A convolution that Winograd's tiles suit, pooled, and a matrix product."""
    random = np.random.default_rng(1)
    weights = [G.weight("w", random.standard_normal((32, 32, 3, 3)).astype(np.float32) / 17),
               G.weight("v", random.standard_normal((32 * 7 * 7, 40)).astype(np.float32) / 40)]
    nodes = [G.node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
             G.node("Relu", ["c"], ["r"], name="relu"),
             G.node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
             G.node("Flatten", ["p"], ["f"], name="flatten"),
             G.node("MatMul", ["f", "v"], ["y"], name="matmul")]
    model = G.model(nodes, [G.value("x", [1, 32, 14, 14])], [G.value("y", [1, 40])], weights)
    onnx.save(model, folder / "net.onnx")
    return model, random.standard_normal((1, 32, 14, 14)).astype(np.float32)


def products(folder):
    """Three matrix products of different shapes: a search of few rounds."""
    random = np.random.default_rng(3)
    sizes = [48, 64, 40, 24]
    weights = [G.weight(f"w{n}", random.standard_normal((sizes[n], sizes[n + 1])).astype(np.float32))
               for n in range(3)]
    nodes = [G.node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"], name=f"m{n}") for n in range(3)]
    onnx.save(G.model(nodes, [G.value("x0", [20, sizes[0]])], [G.value("x3", [20, sizes[3]])],
                      weights), folder / "net.onnx")


def results(folder, x, *options):
    T.emit(TGC, folder / "net.onnx", folder / "net.c", *options)
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    return T.Program(folder / "net", ["y"]).run([x])["y"]


def lines_of(path):
    """Those of choices, behind the one that names the machine."""
    machine, *lines = [line for line in path.read_text().splitlines()[1:] if not line.startswith("#")]
    expect(machine in ("machine common", "machine small"), machine)
    return lines


def check_lines(lines):
    """A line gains, or a line that gains needs it: the convolutions', or one of the same kernel. Returns those that gain."""
    gains = [line for line in lines if " model=" in line]
    kernels = [line.partition("  # ")[2].partition(":")[0] for line in gains if not line.startswith("winograd ")]
    for line in lines:
        kernel = line.partition("  # ")[2].partition(":")[0]
        expect(line in gains or (kernels if line.startswith("winograd ") else kernel in kernels), f"nothing needs {line} of {lines}")
    return gains


def can_run(isa):
    flags = Path("/proc/cpuinfo").read_text()
    return isa == "generic" or re.search(rf"\b{isa}f?\b", flags)


def choices(folder, *options):
    """net.tune, with a line for each choice of the cost model that a search here would measure."""
    isa = next(isa for isa in ("avx512", "avx2", "neon", "generic") if can_run(isa))
    lines = [choice["taken"] for choice in T.info(TGC, folder / "net.onnx", "--why", *options)["choices"]]
    lines = [line for line in lines if " isa=" not in line or f" isa={isa}:" in line]
    (folder / "net.tune").write_text("\n".join(["tgc-tune 3", *dict.fromkeys(lines), ""]))
    return (folder / "net.tune").read_text()


def case(name):
    def register(function):
        def inside():
            function(T.scratch(SCRATCH / re.sub(r"\W", "_", name)))
        suite.add(name, inside)
        return function
    return register


@case("a search writes lines of choices that gain, and its replay is right and always the same")
def search(folder):
    _, x = network(folder)
    # quick: by LLVM to the end, in a third of the time; C's end is asked for where a search is interrupted, and has threads
    words = ["--target=llvm"] if T.has_llvm(TGC) and not OPTIONS.all else []
    done = tgc(folder, "tune", "net.onnx", "-o", "net.tune", *words, env={"BEAM": "2"})
    expect(b"choices" in done.out and "rounds" in done.out.decode(), f"no summary: {done.out}")
    times = re.search(r"; ([0-9.]+) µs a run, before ([0-9.]+) µs;", done.out.decode())
    expect(times and float(times[1]) > 0 and float(times[2]) > 0, f"a small network's time rounds to nothing: {done.out}")
    expect("left" not in done.err, f"progress, though there is no terminal: {done.err}")
    lines = lines_of(folder / "net.tune")
    convolutions = [line for line in lines if line.startswith("winograd ")]
    expect(len(convolutions) == bool(lines) or check_lines(lines) == convolutions, f"without the tiles that others were found with: {lines}")
    check_lines(lines)
    for line in lines:
        expect(re.fullmatch(r"(winograd [0-9a-f]{16} side=[0246](x[0246])?|(keys|rows) [0-9a-f]{16}|tile [0-9a-f]{16} isa=\w+)"
                            r" us=[\d.e+-]+( model=[\d.e+-]+)?(:( [a-z]+ [^;#]+;?)*)?"
                            r"  # .*", line), f"the line '{line}'")
    expect(not (folder / "net.tune.part").exists(), "the journal is left behind")
    plain = results(folder, x)
    replayed = results(folder, x, "--tune", folder / "net.tune")
    expect(np.allclose(plain, replayed, rtol=1e-4, atol=1e-4), "the tuned program is wrong")
    sources = []
    for name in ("a", "b"):
        (folder / name).mkdir()
        tgc(folder / name, "../net.onnx", "-o", "n.c", "--tune=../net.tune")
        sources.append((folder / name / "n.c").read_bytes())
    expect(sources[0] == sources[1], "two replays differ")


def attention(folder):
    """Two heads of 40 tokens: keys that are packed, rows that share scores."""
    random = np.random.default_rng(5)
    scale = G.weight("scale", np.array(0.3, np.float32))
    nodes = [G.node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
             G.node("MatMul", ["q", "kt"], ["s"], name="scores"), G.node("Mul", ["s", "scale"], ["m"], name="scale"),
             G.node("Softmax", ["m"], ["p"], name="softmax", axis=-1), G.node("MatMul", ["p", "v"], ["y"], name="values")]
    onnx.save(G.model(nodes, [G.value(n, [2, 40, 24]) for n in "qkv"], [G.value("y", [2, 40, 24])], [scale]),
              folder / "net.onnx")
    return [random.standard_normal((2, 40, 24)).astype(np.float32) for _ in range(3)]


def answer(folder, inputs, *options):
    T.emit(TGC, folder / "net.onnx", folder / "net.c", *options)
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    return T.Program(folder / "net", ["y"]).run(inputs)["y"]


def candidates(folder, *options):
    """All lines that a search would try, by key."""
    found = {}
    for choice in T.info(TGC, folder / "net.onnx", "--why", *options)["choices"]:
        found.setdefault(" ".join(choice["taken"].split(":")[0].split()[:3]), choice["candidates"])
    return found


def changed(random, line):
    """A list that nobody has tried: numbers, order, or opts that are there no more, or twice."""
    head, _, text = line.partition(": ")
    opts = text.split("; ")
    at, what = random.integers(len(opts)), random.integers(5)
    if what == 0:
        opts.pop(at)
    elif what == 1:
        opts.insert(random.integers(len(opts) + 1), opts[at])
    elif what == 2:
        random.shuffle(opts)
    else:
        numbers = list(re.finditer(r"\d+", opts[at]))
        number = numbers[random.integers(len(numbers))]
        by = [0, 1, 2, 3, 5, 7, 8, 16, 64, 100000][random.integers(10)]
        opts[at] = opts[at][:number.start()] + str(by) + opts[at][number.end():]
    return head + ": " + "; ".join(opts)


def check_replays(isa, make, least):
    """Whatever list a file asks for: the answer is the same, or the line is refused."""
    folder = T.scratch(SCRATCH / f"replays_{isa}_{make.__name__}")
    made = make(folder)
    inputs = made if isinstance(made, list) else [made[1]]
    options = (f"--cpu={isa}", "--no-winograd")
    plain = answer(folder, inputs, *options)
    found = candidates(folder, *options)
    random = np.random.default_rng(7)
    expect(any(f" isa={isa}" in key for key in found), f"choices: {list(found)}")
    lines = [line for tried in found.values() for line in tried]
    others = [line for line in lines if ": " in line]
    others = [changed(random, others[random.integers(len(others))]) for _ in range(60 if OPTIONS.all else 30)]
    fits, done_right = 0, set()
    for number, line in enumerate(lines + others):
        (folder / "other.tune").write_text(f"tgc-tune 3\n{line}\n")
        done = T.run([TGC, folder / "net.onnx", "-o", folder / "net.c", *options, "--tune", folder / "other.tune"])
        if done.status != 0:
            expect(done.status == 1 and "other.tune:2" in done.err and (MISFIT in done.err or number >= len(lines)),
                   f"{line}: {done.err}")
            expect(number >= len(lines), f"a candidate is refused: {line}: {done.err}")
            continue
        fits += 1
        program = (folder / "net.c").read_bytes()
        if program in done_right or (fits % (3 if OPTIONS.all else 6) and number < len(lines)):
            continue
        done_right.add(program)
        other = answer(folder, inputs, *options, "--tune", folder / "other.tune")
        expect(np.allclose(plain, other, rtol=1e-4, atol=1e-4), f"another answer by {line}")
    expect(len(done_right) >= least, f"{len(done_right)} other programs")


for number, isa in enumerate(("generic", "avx2", "avx512")):       # quick: one of the two, in turn
    if can_run(isa):
        suite.add(f"other lists compute the same: {isa}", check_replays, isa, network, 6, slow=number == 1)
        suite.add(f"other lists compute the same, attention: {isa}", check_replays, isa, attention, 4, slow=number != 1)


@case("an interrupted search goes on")
def resume(folder):
    """By a journal that says so, one candidate gains: its line is written, none of the kernels that gain nothing."""
    products(folder)
    # quick: portably, which compiles in a quarter of the time
    command = [str(TGC), "tune", "net.onnx", "-o", "net.tune", *([] if OPTIONS.all else ["--cpu=generic"])]
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, env={**os.environ, "BEAM": "2"},
                             start_new_session=True,      # and not deaf, as what a shell starts with & is
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    journal, end = folder / "net.tune.part", time.monotonic() + 120
    while time.monotonic() < end and child.poll() is None:
        if journal.exists() and journal.read_text().count("tile ") >= 4:
            break
        time.sleep(0.02)
    expect(child.poll() is None, "the search was over before it could be interrupted")
    os.killpg(child.pid, signal.SIGINT)
    child.wait()
    expect(not (folder / "net.tune").exists(), "an unfinished search wrote its result")
    known = journal.read_text()
    left = sorted(p.name for p in folder.iterdir())
    expect(left == ["net.onnx", "net.tune.part"], f"left behind: {left}")
    last = re.sub(r" us=[\d.e+-]+", " us=0.001", [line for line in known.splitlines() if "tile " in line][-1])      # not the model's: that comes first
    last = last.removeprefix("search ")
    journal.write_text(known + f"search {last}\n{last}\nwinograd 0123")    # the line that was being written
    done = tgc(folder, *command[1:], env={"BEAM": "2"}).out.decode()
    again = int(re.search(r"(\d+) rounds", done).group(1))
    lines = lines_of(folder / "net.tune")
    expect(last.split()[1] in [line.split()[1] for line in check_lines(lines)], f"{last} is not in {lines}")
    (folder / "net.tune").unlink()
    done = tgc(folder, *command[1:], env={"BEAM": "2"}).out.decode()
    rounds = int(re.search(r"(\d+) rounds", done).group(1))
    expect(again < rounds, f"{again} rounds after the interruption, {rounds} without")


@case("what compiled stands in the file and in the summary: LLVM for the search, the C compiler at its end")
def makers(folder):
    onnx.save(G.perceptron(), folder / "net.onnx")
    last = ", the best 3 of each list again by cc"
    here = r"LLVM \d+" if T.has_llvm(TGC) else None
    # portably: in a quarter of the time, most of which is that of the intrinsics' header
    for words, env, made in (([], {}, f"{here}{last}" if here else "cc"), (["--target=c"], {"CC": "gcc -O0"}, "gcc -O0"),
                             ([], {"CC": "gcc -O0"}, "gcc -O0"), ([], {"TGC_LLVM": "1"}, "cc"),
                             *([(["--target=llvm"], {}, here)] if here else [])):
        done = tgc(folder, "tune", "net.onnx", "-o", "net.tune", "--cpu=generic", *words, env={"BEAM": "1", "CC": "", **env})
        said = done.out.decode().strip()
        expect(re.search(rf" compiled by {made}$", said), f"{words} {env}: {said}")
        head = (folder / "net.tune").read_text().splitlines()[1]
        expect(re.search(rf" compiled by {made}\.$", head), f"{words} {env}: {head}")
        tgc(folder, "net.onnx", "-o", "net.c", "--cpu=generic", "--tune=net.tune")


@case("a journal of something else is not taken")
def foreign_journal(folder):
    onnx.save(G.perceptron(), folder / "net.onnx")
    (folder / "net.tune.part").write_text("# 0123456789abcdef, an unfinished search of tgc tune\n")
    done = tgc(folder, "tune", "net.onnx", "-o", "net.tune", "--cpu=generic", env={"BEAM": "1"})
    expect("begins anew" in done.err, done.err)
    expect(re.match("net: [1-9][0-9]* choices, 0 unlike", done.out.decode()), done.out)
    expect(not lines_of(folder / "net.tune"), "the cost model's own choices have lines, which another machine's would be replaced by")


@case("lines that gained over another machine's choices are not used, and the compile says so")
def other_machine(folder):
    network(folder)
    choice = next(choice for choice in T.info(TGC, folder / "net.onnx", "--why")["choices"] if choice["taken"].startswith("winograd"))
    line = next(line for line in choice["candidates"] if line.split()[:3] != choice["taken"].split()[:3])
    plain = tgc(folder, "net.onnx", "-o", "-").out
    for head, words, used in (("", [], True), ("machine common\n", [], True), ("machine icelake-sp\n", [], False),
                              ("machine icelake-sp\n", ["--machine=icelake-sp"], True), ("machine common\n", ["--machine=host"], False)):
        (folder / "net.tune").write_text(f"tgc-tune 3\n{head}{line}\n")
        done = tgc(folder, "net.onnx", "-o", "-", "--tune=net.tune", *words)
        without = tgc(folder, "net.onnx", "-o", "-", *words).out if words else plain
        expect((done.out != without) == used, f"{head!r} {words}: the line is {'not ' if used else ''}used")
        expect(("net.tune: warning: not used" in done.err) != used, f"{head!r} {words}: {done.err}")


@case("with threads, the loop that they share is a choice, too")
def threads(folder):
    random = np.random.default_rng(2)
    w = G.weight("w", random.standard_normal((256, 256)).astype(np.float32) / 16)
    onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"], name="m")], [G.value("x", [96, 256])],
                      [G.value("y", [96, 256])], [w]), folder / "net.onnx")
    x = random.standard_normal((96, 256)).astype(np.float32)
    tgc(folder, "tune", "net.onnx", "-o", "net.tune", "--threads=2", env={"BEAM": "1"})
    tgc(folder, "net.onnx", "-o", "net.c", "--threads=2", "--tune", "net.tune")
    good = choices(folder, "--threads=2")
    loop = int(re.search(r"threads .*: thread 0 axis=(\d)", good).group(1))
    plain = results(folder, x, "--threads=2")
    fits = 0
    for other in range(4):
        (folder / "other.tune").write_text(good.replace(f" thread 0 axis={loop}", f" thread 0 axis={other}"))
        done = T.run([TGC, folder / "net.onnx", "-o", folder / "net.c", "--threads=2", "--tune",
                      folder / "other.tune"])
        if done.status == 0:
            fits += 1
            other = results(folder, x, "--threads=2", "--tune", folder / "other.tune")
            expect(np.array_equal(plain, other), "which loop is shared changes the result")
        else:
            expect("no such loop" in done.err and MISFIT in done.err, done.err)
    expect(2 <= fits < 4, f"{fits} loops fit")
    done = tgc(folder, "net.onnx", "-o", "net.c", "--tune", "net.tune", status=1)
    expect("no kernel that threads share" in done.err, done.err)
    text = tgc(folder, "info", "net.onnx", "--why", "--threads=2").out.decode()
    expect("threads share loop" in text and "they could share" in text, text)


@case("what does not fit is refused by line")
def refused(folder):
    network(folder)
    good = choices(folder)
    first = next(n for n, l in enumerate(good.splitlines(), 1) if l.startswith(("tile", "winograd")))
    tile = next(n for n, l in enumerate(good.splitlines(), 1) if l.startswith("tile"))

    def refuse(text, what, *options):
        (folder / "bad.tune").write_text(text)
        done = tgc(folder, "net.onnx", "-o", "net.c", "--tune", "bad.tune", *options, status=1)
        expect(what in done.err and not (folder / "net.c").exists(), f"{what}: {done.err}")

    refuse("hello\n", "bad.tune:1")
    refuse("", "bad.tune:1")
    line = good.splitlines()[tile - 1]
    refuse(good.replace(line, line.partition(":")[0] + ": divide 0 axis=0 n=9973"), MISFIT)
    refuse(good.replace(line, line.partition(":")[0] + ": divide 1 axis=0 n=2"), "that is another nest")
    refuse(good.replace(line, line.partition(":")[0] + ": thread 0 axis=0"), "threads are another choice")
    refuse(good.replace(line, line.partition(":")[0] + ": lanes 0 axis=0 n=2 kind=vector as=column"), "no such vectors")
    refuse(good.replace(line, line.partition(":")[0] + ": divide 0 axis=@ n=2"), f"bad.tune:{tile}")
    refuse(good.replace(line, line.partition(":")[0] + ": " + "decide 0; " * 300), "at most 256 opts")
    refuse(good.replace("tgc-tune 3", "tgc-tune 2", 1), "tgc tune MODEL -o MODEL.tune writes one")
    refuse(re.sub("side=\\d", "side=3", good), f"bad.tune:{first}")
    refuse(good + "tile 0123456789abcdef isa=avx2: decide 0\n",
           f"bad.tune:{len(good.splitlines()) + 1}")
    refuse(good + good.splitlines()[first - 1] + "\n", f"bad.tune:{len(good.splitlines()) + 1}")
    refuse(good + "tile \x1b[31m\n", "bad.tune")
    refuse(good, f"bad.tune:{first}", "--no-winograd")
    refuse(good, f"bad.tune:{first}", "-O0")
    refuse(good.replace("\n", "\r\n", 1).replace("winograd", "wino"), f"bad.tune:{first}")
    done = tgc(folder, "net.onnx", "-o", "net.c", "--tune", "none.tune", status=1)
    expect("none.tune" in done.err, done.err)
    onnx.save(G.perceptron(), folder / "net.onnx")
    refuse(good, f"bad.tune:{first}")


@case("schedules of a device's grid are measured by its driver, and replayed; nothing is without one")
def grid(folder):
    need_device()
    opencl, net = "--target=opencl", folder / "net.tg"
    net.write_text("tg 1\ninput %a : f32[20, 48]\nweight %w : f32[64, 48] = normal(seed=1)\nweight %b : f32[64] = normal(seed=2)\n"
                   "%y = linear(%a, %w, %b)\noutput %y\n")

    def run(*options):
        T.emit(TGC, net, folder / "net.c", *options)
        T.build(folder / "net.c", folder / "net")
        return T.Program(folder / "net", ["y"]).run([np.random.default_rng(5).standard_normal((20, 48)).astype(np.float32)])["y"]

    done = tgc(folder, "tune", net, "-o", "net.tune", opencl, status=1, env={**os.environ, "OCL_ICD_VENDORS": str(folder)})
    expect("is not installed, or it has no device" in done.err and not list(folder.glob("net.tune*")), f"without a driver: {done.err}")
    done = tgc(folder, "tune", net, "-o", "net.tune", opencl, env={**os.environ, "BEAM": "1"})
    expect(b"net: 1 choice" in done.out and b"OpenCL" in done.out, f"{done.out}")
    choice, = T.info(TGC, net, "--why", opencl)["choices"]
    expect(len(choice["candidates"]) > 3 and choice["taken"] == choice["candidates"][0], f"{choice}")
    want = run()
    for line in choice["candidates"][1], choice["candidates"][-1]:      # another tile, a place for each element
        (folder / "net.tune").write_text(f"tgc-tune 3\n{line}\n")
        tune = f"--tune={folder / 'net.tune'}"
        expect(np.allclose(run(opencl, tune), want, rtol=1e-4, atol=1e-4), f"{line} computes other values")
        expect(T.info(TGC, net, "--why", opencl, tune)["choices"][0]["taken"] == line, f"{line} is not what is done")
    for line, why in (("grid 0 axis=9", MISFIT), ("grid 1 axis=0", "that is another nest"), ("lanes 0 axis=0 n=2 kind=vector as=row", "no such vectors")):
        (folder / "net.tune").write_text(f"tgc-tune 3\n{choice['taken'].partition(':')[0]}: {line}\n")
        done = tgc(folder, net, "-o", "net.c", opencl, "--tune=net.tune", status=1)
        expect(why in done.err, f"{done.err}")


@case("--why names what was chosen, what else there was, and the line that decided")
def why(folder):
    network(folder)
    text = tgc(folder, "info", "net.onnx", "--why").out.decode()
    for word in ("choices:", "Conv conv", "estimated us", "columns (loop", "estimated",
                 "% of the best", "generic:", "\nlegend: convolutions\n", "\nlegend: kernels\n"):
        expect(word in text, f"'{word}' is not in\n{text}")
    expect("legend: t" not in text, f"words are explained that were not used:\n{text}")
    told = T.info(TGC, folder / "net.onnx", "--why")["choices"]
    expect(any(c["node"] == "conv" and c["taken"].startswith("winograd ") for c in told) and
           any(c["kernel"] and c["taken"] in c["candidates"] and len(c["candidates"]) > 1
               for c in told), f"{told}")
    (folder / "net.tune").write_text(re.sub(r"(tile \w+ isa=\w+)", r"\1 us=12.5", choices(folder)))
    text = tgc(folder, "info", "net.onnx", "--why", "--tune", "net.tune").out.decode()
    expect(re.search(r"net\.tune, line \d+: measured 12.5 us", text), text)


@case("a depfile names the tune file")
def depfile(folder):
    onnx.save(G.perceptron(), folder / "net.onnx")
    (folder / "net.tune").write_text("tgc-tune 3\n")
    tgc(folder, "net.onnx", "-o", "net.c", "--tune", "net.tune", "-MD", "-MP")
    text = (folder / "net.d").read_text()
    expect("net.c: net.onnx net.tune" in text and "\nnet.tune:" in text, text)


@case("BEAM outside of its range, and elsewhere than for tune")
def beam(folder):
    onnx.save(G.perceptron(), folder / "net.onnx")
    done = tgc(folder, "tune", "net.onnx", "-o", "n.tune", status=2, env={"BEAM": "65"})
    expect("1 to 64" in done.err, done.err)
    done = tgc(folder, "info", "net.onnx", env={"BEAM": "2"})
    expect("tgc tune" in done.err, done.err)


suite.main()
