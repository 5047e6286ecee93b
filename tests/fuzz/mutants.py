"""The fuzzer: damaged inputs of every kind, by every target. Whatever is read, tgc refuses it with a message or
writes what it was asked for; C compiles, a model that was written is read.

    mutants.py                              the quick form; --all: many more
    mutants.py --time 3600 --sanitize       an hour with a tgc that sanitizers watch: make fuzz TIME=3600
    mutants.py --seed 7000 --count 500      others
    mutants.py --seed 7123 --count 1 --keep one of them, again

A case is determined by its seed, its kind too: a model of ONNX (changed in its bytes and in its meaning: dims,
attributes, element types, edges, operators, the integers that shapes are made of), a .tg, a library of operators, choices of
tgc tune, an array for tgc run and for an emitted program, options, derivatives, models written as ONNX or text, samples
and options of tgc train, documents of reports (JSON, changed in its meaning). tgc gets 10 seconds of a processor and 512 MB, six
times as much under sanitizers. What fails stays in a folder, with the command that repeats it. What was found once stands
in tests/cli/bad_inputs.py or tests/fuzz/regressions.py.
"""

import collections
import functools
import json
import re
import shlex
import shutil
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "onnx"), str(HERE.parent / "models")]

import numpy as np
import onnx

import mutations as M
import tgc as T
from sanitized import sanitized_tgc
from suite import Failure, Suite

ROOT = HERE.parents[1]
GROUP, QUICK, LONG = 10, 16, 400
SECONDS, MEMORY = 10, 512 << 20
REPORTS = ("AddressSanitizer", "UndefinedBehaviorSanitizer", "runtime error:", "LeakSanitizer")
# Of a device the rows of passes/target/devices.def.
TARGETS = {"c": ("c", ["auto", "generic"]), "llvm": ("ll", ["auto", "generic"]), "opencl": ("cl", None), "cuda": ("cu", None),
           "amd": ("hip", None), "metal": ("metal", None)}
LOCK = threading.Lock()
KINDS = ("onnx", "onnx", "onnx", "tg", "tg", "tg", "library", "tune", "npy", "program", "options", "gradient", "written", "train", "train", "report")
OPEN = """tg 1
graph "open"
input %x : f32[N<=8, 4]
input %k : i64[N]
%e = reshape(%k) {shape=[N, 1]}
%f = cast(%e) {to=f32}
%y = add(%x, %f)
output %y
"""
LIBRARY = """tg 1
def "my.domain::Swish2"(%x, beta : float = 1.0) -> (%y) {
    %t = mul(%x, beta)
    %s = sigmoid(%t)
    %y = mul(%x, %s)
}
def "my.domain::Stats"(%x : f32[N, C], %bias? : f32[C], axis : int = 1, scales : floats = [1.0]) -> (%y : f32[N, C], %sum : f32[N]) {
    %y = layer_norm(%x, _, %bias) {axis=axis}
    %sum = reduce_sum(%x) {axes=[axis]}
}
"""
CALLS = """tg 1
graph "calls"
input %x : f32[3, 4]
%a = custom "my.domain::Swish2"(%x) {beta=1.5}
%b, %c = custom "my.domain::Stats"(%a) {axis=1}
output %b
output %c
"""
TRAINED = """tg 1
graph "trained"
input %x : f32[N<=8, 1, 2, 2]
param %w : f32[4, 3] = [0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.9, 1.0, 0.1, 0.2]
param %b : f32[3] = [0.0, 0.1, 0.2]
%f = reshape(%x) {shape=[N, 4]}
%m = matmul(%f, %w)
%y = add(%m, %b)
output %y
"""
DERIVED = """tg 1
graph "derived"
input %x : f32[6, 4]
input %t : f32[6, 3]
param %w : f32[4, 3] = [0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.9, 1.0, 0.1, 0.2]
%m = matmul(%x, %w)
%k = stop_gradient(%t)
%d = sub(%m, %k)
%q = mul(%d, %d)
%l = reduce_mean(%q) {keepdims=0}
%dx, %dw = gradient(%l, %x, %w)
%n = mul(%dx, %dx)
%s = reduce_sum(%n) {keepdims=0}
%dd = gradient(%s, %w)
output %l
output %dw
output %dd
"""
# ------------------------------------------------------------------------------------ sources


def node_models(build):
    """The models of the onnx package's node tests, in the order of their names."""
    import node_test
    cases = node_test.load_cases(build)
    for name in sorted(cases):
        case = cases[name]
        if name.startswith("test_"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield name, case.model, node_test


def read_sources(build):
    sources = []
    for name, model, _ in node_models(build):
        if model.ByteSize() < 200_000:
            sources.append((name, model.SerializeToString()))
    return sources


def tg_sources():
    """The repository's .tg files, by their names."""
    found = []
    for folder in ("models", "examples", "tests/ir/golden"):
        for path in sorted((ROOT / folder).rglob("*.tg")):
            if path.stat().st_size < 100_000:
                found.append((path.relative_to(ROOT).as_posix(), path.read_bytes()))
    return found


class Sources:
    """Read once, by whoever asks first."""

    def __init__(self, build):
        self.build, self.found = build, None

    def all(self):
        with LOCK:
            if self.found is None:
                self.found = read_sources(self.build)
            return self.found

    @functools.cached_property
    def tg(self):
        return tg_sources()

    @functools.cached_property
    def texts(self):
        return [content for _, content in self.tg]


@functools.cache
def rows(target):
    text = (ROOT / "passes" / "target" / "devices.def").read_text()
    return re.findall(rf'^DEVICE\(\w+, "([^"]+)",[^\n]*\.target = "{target}"', text, re.M)


def target_words(target, cpu):
    return ["-o", f"out.{TARGETS[target][0]}", f"--target={target}", *([f"--cpu={cpu}"] if cpu != "auto" else [])]


def pick_target(random, only=None):
    target = M.pick(random, only or list(TARGETS))
    return target, target_words(target, M.pick(random, TARGETS[target][1] or rows(target)))


# ---------------------------------------------------------------------------------------- cases


class Fuzzer:
    """How cases are made and judged with one tgc."""

    def __init__(self, tgc, scratch, sources, sanitize=False):
        self.tgc, self.scratch, self.sources, self.sanitize = tgc, scratch, sources, sanitize
        self.seconds = SECONDS * (6 if sanitize else 1)
        self.lock = threading.Lock()
        self.program = None
        self.found_documents = {}

    def environment(self):
        options = "detect_leaks=0:allocator_may_return_null=1:hard_rss_limit_mb=3000" if self.sanitize else ""
        return {"ASAN_OPTIONS": options, "TGC_CACHE": "0"}

    # Each writes its files into the folder and returns (name, target, words of the command).

    def make_onnx(self, random, folder):
        found = self.sources.all()
        name, content = M.pick(random, found)
        (folder / "model.onnx").write_bytes(M.mutate_onnx(random, content, found))
        target, words = pick_target(random, ["c", "c", *TARGETS])
        if random.random() < 0.1:
            words = ["-o", M.pick(random, ["out.dot", "out.json", "out.html", "out.uops", "out.tg"]), *words[2:]]
        return name, target, ["model.onnx", *words]

    def make_tg(self, random, folder):
        name, content = M.pick(random, self.sources.tg)
        if random.random() < 0.9:
            content = M.mutate_text(random, content, self.sources.texts)
        (folder / "model.tg").write_bytes(content)
        target, words = pick_target(random)
        return name, target, ["model.tg", *words]

    def make_library(self, random, folder):
        text = LIBRARY.encode()
        (folder / "model.tg").write_bytes(M.mutate_text(random, CALLS.encode(), [text]) if random.random() < 0.3 else CALLS.encode())
        (folder / "lib.tg").write_bytes(M.mutate_text(random, text, [CALLS.encode(), *self.sources.texts]))
        target, words = pick_target(random)
        return "library", target, ["model.tg", *words, "--library=lib.tg"]

    def make_tune(self, random, folder):
        name, content = M.pick(random, self.sources.tg)
        (folder / "model.tg").write_bytes(content)
        target, words = pick_target(random)
        done = T.run([self.tgc, "info", "model.tg", "--why", "--json", *words[2:]], cwd=folder, timeout=60, env=self.environment())
        lines = re.findall(r'"taken": *"([^"]*)"', done.out.decode(errors="replace"))
        text = "\n".join(["tgc-tune 3", *dict.fromkeys(lines), ""]).encode()
        (folder / "net.tune").write_bytes(M.mutate_text(random, text, [text]))
        return name, target, ["model.tg", *words, "--tune=net.tune"]

    def make_options(self, random, folder):
        name, content = M.pick(random, self.sources.tg)
        (folder / "model.tg").write_bytes(content)
        names = re.findall(rb"^input %(\w+)", content, re.M) + re.findall(rb"(\w+)<=", content) or [b"x"]
        target, words = pick_target(random)
        return name, target, ["model.tg", *words, *M.mutate_words(random, [n.decode() for n in names])]

    def make_gradient(self, random, folder):
        """Derivatives: --gradient of a model's outputs, or a .tg's own."""
        if random.random() < 0.4:
            (folder / "model.tg").write_bytes(M.mutate_text(random, DERIVED.encode(), [TRAINED.encode(), *self.sources.texts]))
            target, words = pick_target(random)
            return "derived", target, ["model.tg", *words]
        target, words = pick_target(random)
        if random.random() < 0.5:
            found = self.sources.all()
            name, content = M.pick(random, found)
            (folder / "model.onnx").write_bytes(M.mutate_onnx(random, content, found) if random.random() < 0.5 else content)
            model = onnx.load_from_string(content)
            return name, target, ["model.onnx", *words, *(f"--gradient={o.name}" for o in model.graph.output)]
        name, content = M.pick(random, self.sources.tg)
        (folder / "model.tg").write_bytes(M.mutate_text(random, content, self.sources.texts) if random.random() < 0.5 else content)
        outputs = re.findall(r"^output %(\S+)", content.decode(errors="replace"), re.M)
        return name, target, ["model.tg", *words, *(f"--gradient={o}" for o in outputs[:2])]

    def make_written(self, random, folder):
        """A .tg as a model of ONNX, and one of ONNX as text."""
        if random.random() < 0.4:
            found = self.sources.all()
            name, content = M.pick(random, found)
            (folder / "model.onnx").write_bytes(M.mutate_onnx(random, content, found))
            return name, "tg", ["model.onnx", "-o", "out.tg"]
        name, content = M.pick(random, self.sources.tg)
        (folder / "model.tg").write_bytes(M.mutate_text(random, content, self.sources.texts) if random.random() < 0.7 else content)
        return name, "onnx", ["model.tg", "-o", "out.onnx"]

    def make_train(self, random, folder):
        (folder / "model.tg").write_bytes(M.mutate_text(random, TRAINED.encode(), [DERIVED.encode()]) if random.random() < 0.2 else TRAINED.encode())
        files, words = M.samples(random, folder)
        options = M.mutate_training(random, words)
        if random.random() < 0.6:
            path = M.pick(random, files)
            path.write_bytes(M.mutate_array(random, path.read_bytes(), []))
        return "trained.tg", "train", ["train", "model.tg", *options, "-o", M.pick(random, ["out.onnx", "out.tg", "out.safetensors"])]

    def make_report(self, random, folder):
        """The page of a saved document, of two, or of logs; a trace."""
        found = self.documents()
        name = M.pick(random, list(found))
        for file in ("m.json", "n.json"):
            text = found[name]
            if file == "m.json" or random.random() < 0.5:
                json_alone = name != "log" and random.random() < 0.8
                text = M.mutate_json(random, text, found[M.pick(random, [n for n in found if n != "log"])]) if json_alone else M.mutate_text(random, text, [text])
            (folder / file).write_bytes(text)
        more = M.pick(random, [[], ["n.json"], ["--trace=out.trace.json"]])
        return name, "report", ["report", "m.json", *more, "-o", "out.html"]

    def make_npy(self, random, folder):
        self.write_arrays(random, folder)
        return "open.tg", "run", ["run", "model.tg", "--target=c" if random.random() < 0.02 else "--target=llvm", "-i", "x=x.npy", "-i", "k=k.npy"]

    def make_program(self, random, folder):
        self.write_arrays(random, folder)
        return "open.tg", "program", ["x.npy", "k.npy"]

    def write_arrays(self, random, folder):
        (folder / "model.tg").write_text(OPEN)
        n = int(random.integers(0, 10))
        for name, array in (("x", np.zeros((n, 4), np.float32)), ("k", np.zeros(n, np.int64))):
            np.save(folder / f"{name}.npy", array)
        name = M.pick(random, ["x", "k"])
        path = folder / f"{name}.npy"
        path.write_bytes(M.mutate_array(random, path.read_bytes(), []))

    def documents(self):
        """What reports are made of, by name: of a processor, a device, a training, as if measured; a training's log."""
        with self.lock:
            if not self.found_documents:
                folder = T.scratch(self.scratch / "documents")
                (folder / "trained.tg").write_text(TRAINED)
                training = ["--train", "--loss=mse", "--optimizer=adam"]
                for name, words in (("plain", []), ("device", ["--target=opencl"]), ("training", training)):
                    T.must(T.run([self.tgc, "trained.tg", "-o", f"{name}.json", *words], cwd=folder, env=self.environment()))
                    self.found_documents[name] = (folder / f"{name}.json").read_bytes()
                measured = json.loads(self.found_documents["plain"])
                names = [k["name"] for k in measured["kernel_list"]]
                measured["bench"] = {"ran_by": "nobody", "kernel_times": [{"us": 1.5} for _ in names]}
                measured["assembly"] = {"by": "nobody", "kernels": [{"kernel": n, "isa": "generic", "text": "nop\n", "lines": [1]} for n in names]}
                self.found_documents["measured"] = json.dumps(measured).encode()
                self.found_documents["log"] = b"".join(json.dumps({"epoch": i, "step": 9 * i, "loss": 2.0 / i, "seconds": 1, "accuracy": 0.5}).encode() + b"\n" for i in range(1, 6))
            return self.found_documents

    def open_program(self):
        """The emitted program of OPEN, under sanitizers: built once."""
        with self.lock:
            if not self.program:
                folder = T.scratch(self.scratch / "program")
                (folder / "open.tg").write_text(OPEN)
                T.must(T.run([self.tgc, "open.tg", "-o", "open.c", "--name=net"], cwd=folder, env=self.environment()))
                T.must(T.run(["gcc", "-g", "-O0", "-fsanitize=address,undefined", "-DNET_MAIN", "open.c", "-o", "open", "-lm"], cwd=folder))
                self.program = folder / "open"
            return self.program

    def make(self, seed, folder):
        random = np.random.default_rng(seed)
        kind = M.pick(random, KINDS)
        return kind, *getattr(self, f"make_{kind}")(random, folder)

    # ------------------------------------------------------------------------------------ judging

    def judge(self, kind, folder, words):
        """What is wrong with how the command took what is in the folder, or None."""
        program = self.open_program() if kind == "program" else self.tgc
        done = T.run_for_peak([program, *words], cwd=folder, timeout=6 * self.seconds, env=self.environment())
        report = next((word for word in REPORTS if word in done.err), None)
        outside = re.search(r"^.*(runtime error|ERROR: AddressSanitizer).*$", done.err, re.M)
        if report or done.timed_out or done.status not in ((0, 1, 2) if kind != "program" else range(0, 126)):
            return f"{report or 'no clean end'}: {outside.group() if outside else ''} {done.describe()}"
        if done.cpu > self.seconds:
            return f"{done.cpu:.0f} s of CPU: {done.describe()}"
        if not self.sanitize and done.peak > MEMORY:
            return f"{done.peak >> 20} MB: {done.describe()}"
        outputs = [path for path in folder.glob("out.*") if path.name != "out.d"]
        if done.status:
            if kind != "program" and "error:" not in done.err:
                return f"no message: {done.describe()}"
            return "an output file in spite of an error" if outputs else None
        return self.judge_c(folder, words) or self.judge_page(folder) or self.judge_model(folder)

    def judge_c(self, folder, words):
        out = folder / "out.c"
        if not out.exists() or out.stat().st_size > 4_000_000 or (self.sanitize and len(out.read_bytes()) % 4) or "--name=int" in words:
            return None
        built = T.run(["gcc", *T.WARNINGS, "-fsyntax-only", "out.c"], cwd=folder, timeout=120)
        return f"the C does not compile: {built.describe()}" if built.status else None

    def judge_page(self, folder):
        """Markup of a document's is text in its page; a trace is JSON."""
        page, trace = folder / "out.html", folder / "out.trace.json"
        scripts = re.findall(rb"<script[^>]*>", page.read_bytes()) if page.exists() else []
        if scripts not in ([], [b"<script>"], [b'<script type="application/json" id="document">', b"<script>"]):
            return f"the page has the scripts {scripts}"
        try:
            json.loads(trace.read_bytes() if trace.exists() else b"{}")
        except ValueError as wrong:
            return f"the trace is no JSON: {wrong}"
        return None

    def judge_model(self, folder):
        """A model that was written is read again, unless its sizes are beyond what may be computed, which the writer does not look at."""
        for out in (folder / "out.onnx", folder / "out.tg"):
            again = out.exists() and T.run([self.tgc, "info", out.name], cwd=folder, timeout=6 * self.seconds, env=self.environment())
            if again and again.status and "smaller bounds" not in again.err:
                return f"{out.name} is not read: {again.describe()}"
        return None

    def check(self, seed, keep=False):
        """(kind, target, what is wrong or None) of one case."""
        folder = T.scratch(self.scratch / f"mutant{seed}")
        kind, name, target, words = self.make(seed, folder)
        wrong = self.judge(kind, folder, words)
        if not wrong and not keep:
            shutil.rmtree(folder)
            return kind, target, None
        (folder / "command").write_text(f"# python tests/fuzz/mutants.py --seed {seed} --count 1{' --sanitize' * self.sanitize}\n"
                                        f"{shlex.join([str(self.tgc), *words])}\n")
        return kind, target, wrong and f"mutant {seed} ({kind} {name} by {target}), see {folder}: {wrong}"


def check_group(fuzzer, seed, count, keep):
    failures = [wrong for n in range(seed, seed + count) for _, _, wrong in [fuzzer.check(n, keep)] if wrong]
    if failures:
        raise Failure("\n".join(failures))


def fuzz(fuzzer, seed, seconds, jobs):
    """Cases from that seed on until the time is over; the number of those that failed."""
    end, counts, failures = time.monotonic() + seconds, collections.Counter(), []
    numbers, lock = iter(range(seed, 1 << 62)), threading.Lock()

    def work():
        while time.monotonic() < end:
            with lock:
                number = next(numbers)
            kind, target, wrong = fuzzer.check(number)
            with lock:
                counts[kind, target] += 1
                if wrong:
                    failures.append(number)
                    print(f"not ok - {wrong}\n", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work) for _ in range(jobs)]:
            done.result()
    for (kind, target), count in sorted(counts.items()):
        print(f"{kind:8} {target:8} {count}")
    print(f"{sum(counts.values())} inputs from seed {seed} on, {len(failures)} failed{': ' * bool(failures)}{' '.join(map(str, failures))}")
    return len(failures)


def main():
    def extra(parser):
        parser.add_argument("--seed", type=int)
        parser.add_argument("--count", type=int, default=100)
        parser.add_argument("--time", type=float, help="for so many seconds, from --seed on")
        parser.add_argument("--sanitize", action="store_true", help="a tgc of -fsanitize=address,undefined, which is built in BUILD/sanitized")
        parser.add_argument("--keep", action="store_true", help="leave the files of cases that pass, too")

    suite = Suite("mutants")
    options = suite.parse(extra)
    tgc = sanitized_tgc(options.build, options.jobs) if options.sanitize else T.find_tgc(options.build).resolve()
    scratch = Path(options.build).resolve() / "test-scratch" / "mutants"
    fuzzer = Fuzzer(tgc, scratch, Sources(options.build), options.sanitize)
    if options.time:
        sys.exit(fuzz(fuzzer, options.seed or 0, options.time, options.jobs) != 0)
    first, last = (options.seed, options.seed + options.count) if options.seed is not None else (0, GROUP * LONG)
    for seed in range(first, last, GROUP):
        count = min(GROUP, last - seed)
        suite.add(f"mutants {seed}..{seed + count - 1}", check_group, fuzzer, seed, count, options.keep, slow=options.seed is None and seed >= GROUP * QUICK)
    suite.main()


if __name__ == "__main__":
    main()
