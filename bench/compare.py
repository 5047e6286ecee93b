"""tgc's emitted C against the runtimes, side by side, in one run.

    python bench/compare.py [--models A,B] [--sets cnn,small] [--threads 1,2] [--quick]
                            [--peers onnxruntime,openvino] [--against "TGC OPTIONS"] [--json FILE] [--plot FILE.svg]

Contenders: what tgc writes, built by gcc and by clang with -O2 and nothing more; ONNX Runtime,
OpenVINO and ncnn; and two other compilers, tinygrad and emx-onnx-cgen, whose times are shown
where they run, and stand for nothing in the ratios. Each is a process of its own (bench/worker.py) on the same cores.
They take turns: every round gives each a slice of time, in an order that rotates, so that what
disturbs the machine disturbs all. A contender's outputs are compared with the expected ones
first; where they are wrong, its time does not count and is not shown.

A cell shows the least and the median milliseconds of a run. The ratio is the least time of the
best runtime over tgc's: above 1 tgc is faster. `bound` is the time that no program could beat
without doing less arithmetic (Winograd does less): nominal work at the measured peak of
fused multiply-adds, or the weights at the measured read bandwidth of their size. A line below
the row tells where tgc's arena is larger than what a run of ONNX Runtime holds at most (beside
weights, inputs and outputs), and which contender has no time, and why.
"""

import argparse
import json
import math
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "models")]

import ctypes

import numpy as np

import models
import plot
import prepare
import tgc as T
from suite import Failure, Skip

COMPILERS = ("gcc", "clang")
RUNTIMES = ("onnxruntime", "openvino", "ncnn")
PEERS = (*RUNTIMES, "tinygrad", "emx")
TITLES = {"tgc-gcc": "tgc, gcc", "tgc-clang": "tgc, clang", "tgc-other": "other tgc, gcc", "onnxruntime": "ONNX Runtime",
          "openvino": "OpenVINO", "ncnn": "ncnn", "tinygrad": "tinygrad", "emx": "emx"}
ONE_TURN = 20                   # slices; a contender whose run takes longer has one turn
SIZES = (16 << 10, 512 << 10, 8 << 20, 256 << 20)   # of memory whose read bandwidth is measured


# -------------------------------------------------------------------------------- the machine


def first_line(command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return None


def describe_machine(tgc):
    cpuinfo = Path("/proc/cpuinfo").read_text()
    lscpu = json.loads(subprocess.run(["lscpu", "-J"], stdout=subprocess.PIPE, text=True,
                                      check=True).stdout)
    caches = {entry["field"].rstrip(":"): entry["data"] for entry in lscpu["lscpu"]
              if "cache" in entry["field"]}
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", cpuinfo, re.M)
    wanted = re.compile(r"^(avx|fma$|f16c$|amx|sse4|asimd|sve|fphp|bf16|i8mm)")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    return {"cpu": model.group(1) if model else platform.machine(),
            "instruction_sets": [f for f in (flags.group(1).split() if flags else [])
                                 if wanted.match(f)],
            "cores": os.cpu_count(), "caches": caches, "kernel": platform.release(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "load": os.getloadavg()[0], "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "gcc": first_line(["gcc", "--version"]), "clang": first_line(["clang", "--version"]),
            "tgc": first_line([str(tgc), "--version"]),
            # A compiler from elsewhere is of no commit that is known here.
            "commit": f"$TGC {tgc}" if "TGC" in os.environ else
            first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])}


class Limits:
    """What the machine can do at most, measured by the driver."""

    def __init__(self, driver, cores):
        self.driver, self.cores = ctypes.CDLL(driver), cores
        self.driver.bench_peak.restype = self.driver.bench_read.restype = ctypes.c_double
        self.peak, self.read = {}, {}

    def measure(self, thread_counts):
        mask = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores[:1])
        for isa in ("avx2", "avx512", "neon", "vnni"):
            rate = self.driver.bench_peak(isa.encode())
            if rate > 0:
                self.peak[isa] = rate
        os.sched_setaffinity(0, mask)
        for threads in thread_counts:
            for nbytes in SIZES:
                self.read[f"{threads}x{nbytes}"] = self.read_rate(threads, nbytes)

    def read_rate(self, threads, nbytes):
        """GB/s at which so many threads read so much memory, again and again."""
        cores = (ctypes.c_int * len(self.cores))(*self.cores)
        return self.driver.bench_read(threads, cores, ctypes.c_size_t(nbytes))

    def best_peak(self, quantized):
        """Of products of floats, or of bytes where there are instructions for them."""
        return max(rate for isa, rate in self.peak.items() if quantized or isa != "vnni")

    def bound(self, flop, nbytes, threads, quantized):
        """Seconds: the arithmetic at the peak, or one reading of the weights."""
        size = next((s for s in SIZES if s >= nbytes / threads), SIZES[-1])
        reading = nbytes / (1e9 * self.read[f"{threads}x{size}"])
        return max((flop or 0) / (1e9 * self.best_peak(quantized) * threads), reading)


# --------------------------------------------------------------------------------- contenders


@dataclass
class Contender:
    name: str
    spec: dict
    worker: object = None
    samples: list = field(default_factory=list)
    result: dict = field(default_factory=dict)


class Worker:
    """A contender's process."""

    def __init__(self, spec, folder):
        path = Path(folder) / "spec.json"
        path.write_text(json.dumps(spec))
        self.log = open(Path(folder) / "log.txt", "w+")
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen([sys.executable, str(HERE / "worker.py"), str(path)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=environment)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            raise Failure(f"ended with status {self.process.returncode}: "
                          + " ".join(self.log.read()[-300:].split()))
        answer = json.loads(line)
        if "broken" in answer:
            raise Failure(answer["broken"])
        return answer

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        self.settle()
        return answer

    def settle(self, limit=0.5):
        """Waits until no thread of the process spins any more, so that the next has the cores."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        end = time.monotonic() + limit
        while time.monotonic() < end:
            try:
                states = [(task / "stat").read_text().rpartition(")")[2].split()[0]
                          for task in tasks.iterdir()]
            except OSError:
                continue        # a thread has just ended
            if "R" not in states:
                return
            time.sleep(0.002)

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def build_driver(folder):
    path = Path(folder) / "driver.so"
    T.must(T.run(["gcc", "-O2", "-shared", "-fPIC", HERE / "driver.c", "-o", path, "-lpthread"]))
    return str(path)


# ---------------------------------------------------------------------------------- one model


def check_outputs(facts, expected, actual, rounded=False):
    """The project's bar; root mean square for quantized models (see bench/models.py), and for
    those whose weights tgc has rounded."""
    worst = 0.0
    for tensor, want, have in zip(facts["outputs"], expected, actual):
        if have.shape != want.shape:
            raise Failure(f"{tensor['name']}: shape {have.shape}, expected {want.shape}")
        if want.dtype.kind != "f":
            if not np.array_equal(want, have):
                raise Failure(f"{tensor['name']}: {int(np.sum(want != have))} values differ")
            continue
        w, h = want.astype(np.float64), have.astype(np.float64)
        scale = float(np.max(np.abs(w))) if w.size else 0.0
        error = np.abs(h - w)
        worst = max(worst, float(np.max(error / (scale or 1.0), initial=0.0)))
        if facts["quantized"] or rounded:
            relative = math.sqrt(np.mean(error ** 2)) / (math.sqrt(np.mean(w ** 2)) or 1.0)
            if not relative <= 0.05:
                raise Failure(f"{tensor['name']}: relative root mean square error {relative:.3g}")
        elif not np.all(error <= 1e-4 * scale + 1e-3 * np.abs(w)):
            raise Failure(f"{tensor['name']}: wrong by {np.max(error):.3g} "
                          f"where the largest is {scale:.3g}")
    return worst


class Comparison:
    """All contenders on one model with a number of threads."""

    def __init__(self, bench, model, folder, threads):
        self.bench, self.threads = bench, threads
        self.folder = folder
        self.facts = json.loads((folder / "facts.json").read_text())
        self.expected = models.load_arrays(folder / "expected.npz")
        self.scratch = T.scratch(bench.scratch / f"{model.name}-{threads}")
        self.contenders = []

    def spec(self, kind, **more):
        return {"kind": kind, "folder": str(self.folder), "driver": self.bench.driver,
                "threads": self.threads, "cores": self.bench.cores[:self.threads], **more}

    def prepare_other(self):
        """What another tgc, or this one with other options, makes of it, by gcc, in the same run."""
        contender = Contender("tgc-other", self.spec("emitted", symbol="net"))
        self.contenders.append(contender)
        tgc, *more = shlex.split(self.bench.options.against)
        try:
            scratch = T.scratch(self.scratch / "other")
            emitted = prepare.emit(self.bench.tgc if tgc == "tgc" else Path(tgc).resolve(),
                                   self.folder / "model.onnx", scratch, self.threads, more)
            library, about = prepare.build_emitted("gcc", scratch)
            contender.spec["library"] = str(library)
            contender.result.update(**emitted, **about)
        except Failure as failure:
            contender.result["broken"] = shorten(failure)

    def prepare(self):
        options = self.bench.options
        if options.against:
            self.prepare_other()
        emitted, reason = None, None
        try:
            more = ["--weight-type", options.weight_type] if options.weight_type else []
            emitted = prepare.emit(self.bench.tgc, self.folder / "model.onnx", self.scratch,
                                   self.threads, more)
        except Failure as failure:
            reason = f"tgc: {failure}"
        for compiler in COMPILERS:
            contender = Contender(f"tgc-{compiler}", self.spec("emitted", symbol="net"))
            self.contenders.append(contender)
            if not emitted:
                contender.result["broken"] = shorten(reason)
                continue
            try:
                library, about = prepare.build_emitted(compiler, self.scratch)
                contender.spec["library"] = str(library)
                contender.result.update(**emitted, **about)
            except Failure as failure:
                contender.result["broken"] = shorten(failure)
        for peer in options.peers:
            contender = Contender(peer, self.spec(peer))
            self.contenders.append(contender)
            try:
                if peer == "ncnn":
                    contender.spec["converted"] = prepare.convert_for_ncnn(self.folder)
                if peer == "emx":
                    contender.spec.update(prepare.build_emx(
                        self.folder / "model.onnx", self.facts, self.scratch / "emx-code"))
            except Failure as failure:
                contender.result["broken"] = shorten(failure)

    def start(self, contender):
        """Loads it and checks what it computes."""
        place = T.scratch(self.scratch / contender.name)
        contender.worker = Worker(contender.spec, place)
        try:
            contender.result.update(contender.worker.answer())
            contender.result.update(contender.worker.ask(do="run", out=str(place / "out.npz")))
            rounded = contender.name.startswith("tgc") and self.bench.options.weight_type
            contender.result["error"] = check_outputs(
                self.facts, self.expected, models.load_arrays(place / "out.npz"), bool(rounded))
            if contender.name == "onnxruntime" and self.threads == 1:
                contender.result.update(contender.worker.ask(do="memory"))
        except Failure as failure:
            self.drop(contender, failure)

    def drop(self, contender, failure):
        contender.result["broken"] = shorten(failure)
        contender.worker.close()
        contender.worker = None

    def run(self):
        self.prepare()
        try:
            for contender in self.contenders:
                if "broken" not in contender.result:
                    self.start(contender)
            for number in range(self.bench.options.rounds):
                running = [c for c in self.contenders if c.worker]
                turn = number % max(1, len(running))
                for contender in running[turn:] + running[:turn]:
                    if not self.is_slow(contender):
                        self.slice(contender)
        finally:
            for contender in self.contenders:
                if contender.worker:
                    contender.worker.close()
            if not self.bench.options.keep:
                shutil.rmtree(self.scratch, ignore_errors=True)
        return self.summary()

    def is_slow(self, contender):
        """One turn tells enough of what would take minutes."""
        return contender.samples and \
            min(contender.samples[0]) > ONE_TURN * self.bench.options.slice

    def slice(self, contender):
        try:
            answer = contender.worker.ask(do="time", seconds=self.bench.options.slice, samples=2000)
            contender.samples.append(answer["seconds"])
        except Failure as failure:
            self.drop(contender, failure)

    def summary(self):
        limits, facts = self.bench.limits, self.facts
        flop = facts["flop"] or next((c.result["about"]["flop"] for c in self.contenders
                                      if c.result.get("about", {}).get("flop")), None)
        peak = limits.best_peak(facts["quantized"]) * self.threads
        bound = limits.bound(flop, facts["parameter_bytes"], self.threads, facts["quantized"])
        for contender in self.contenders:
            if "broken" in contender.result or not contender.samples:
                continue
            every = [s for part in contender.samples for s in part]
            least = min(every)
            contender.result.update(
                min=least, median=statistics.median(every), runs=len(every),
                slice_minima=[min(part) for part in contender.samples],
                gflops=flop / least * 1e-9 if flop else None,
                peak_fraction=flop / least * 1e-9 / peak if flop else None,
                bound_fraction=bound / least)
        return {"threads": self.threads, "flop": flop, "bound": bound,
                "contenders": {c.name: c.result for c in self.contenders}}


def shorten(reason):
    return " ".join(str(reason).split())[-400:]


# ------------------------------------------------------------------------------------- report


def best_peer(entry):
    times = [entry["contenders"][p]["min"] for p in RUNTIMES
             if "min" in entry["contenders"].get(p, {})]
    return min(times) if times else None


def ratio(entry, name):
    """How many times faster than the best runtime; None where either has no time."""
    own, best = entry["contenders"].get(name, {}).get("min"), best_peer(entry)
    return best / own if own and best else None


def cell(result):
    if result is None:
        return "-"
    if "min" not in result:
        return "wrong" if "wrong by" in result.get("broken", "") else "no"
    return f"{1e3 * result['min']:.4g}/{1e3 * result['median']:.4g}"


def print_header(threads):
    print(f"\n{threads} thread{'s' if threads > 1 else ''}: milliseconds, least/median\n"
          f"{'model':20s} {'GFLOP':>9s} {'bound':>8s} " +
          " ".join(f"{TITLES[name]:>15s}" for name in TITLES) +
          f" {'GFLOP/s':>8s} {'peak':>6s} {'x gcc':>6s} {'x clang':>7s}", flush=True)


def number(value, form, none="-"):
    return none if value is None else format(value, form)


def print_row(name, entry):
    contenders = entry["contenders"]
    own = [contenders[f"tgc-{c}"] for c in COMPILERS if "min" in contenders[f"tgc-{c}"]]
    fastest = min(own, key=lambda r: r["min"], default={})
    print(f"{name:20s} {number(entry['flop'] and entry['flop'] * 1e-9, '9.5f'):>9s} "
          f"{1e3 * entry['bound']:8.4g} "
          + " ".join(f"{cell(contenders.get(n)):>15s}" for n in TITLES)
          + f" {number(fastest.get('gflops'), '8.1f'):>8s}"
          f" {number(fastest.get('peak_fraction'), '6.1%'):>6s}"
          f" {number(ratio(entry, 'tgc-gcc'), '6.2f'):>6s}"
          f" {number(ratio(entry, 'tgc-clang'), '7.2f'):>7s}", flush=True)
    theirs = contenders.get("onnxruntime", {}).get("arena_bytes")
    if theirs is not None and own and own[0]["about"]["arena_bytes"] > theirs:
        print(f"    arena: {own[0]['about']['arena_bytes'] / 1e6:.3f} MB, "
              f"ONNX Runtime's run holds {theirs / 1e6:.3f} MB", flush=True)
    for kind, result in contenders.items():
        if "broken" in result:
            print(f"    {TITLES[kind]}: {result['broken'][:200]}", flush=True)


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def print_other(results, threads):
    """The other tgc's least time over this one's, per model and per set: above 1 this one is faster."""
    print("\nthe other tgc's time over this one's, by gcc:")
    for kind in models.SETS:
        gains = {}
        for r in results:
            of = r["threads"].get(str(threads), {}).get("contenders", {})
            times = [of.get(name, {}).get("min") for name in ("tgc-other", "tgc-gcc")]
            if r["set"] == kind and all(times):
                gains[r["name"]] = times[0] / times[1]
        if gains:
            print(f"  {kind:12s} {geomean(list(gains.values())):.3f}  "
                  + " ".join(f"{name} {gain:.3f}" for name, gain in gains.items()))


def print_sets(results, threads):
    if any("tgc-other" in r["threads"].get(str(threads), {}).get("contenders", {}) for r in results):
        print_other(results, threads)
    print(f"\n{threads} thread{'s' if threads > 1 else ''}: times faster than the best runtime, "
          f"geometric mean per set (and the least)")
    summary = {}
    for kind, wanted in models.SETS.items():
        members = [r for r in results if r["set"] == kind and str(threads) in r["threads"]]
        if not members:
            continue
        row = {"wanted": wanted, "models": len(members)}
        text = f"  {kind:12s} wanted {wanted:.2f}  "
        for compiler in COMPILERS:
            found = [ratio(r["threads"][str(threads)], f"tgc-{compiler}") for r in members]
            known = [value for value in found if value]
            row[compiler] = {"geomean": geomean(known) if known else None,
                             "least": min(known, default=None), "compared": len(known)}
            text += f"{compiler} "
            text += (f"{row[compiler]['geomean']:.2f} ({row[compiler]['least']:.2f})" if known
                     else "-") + f" of {len(known)}/{len(members)} models  "
        summary[kind] = row
        print(text)
    return summary


def print_fractions(results, threads):
    """Masked attention's time as a fraction of the bare one's."""
    times = {r["name"]: r["threads"][str(threads)]["contenders"].get("tgc-gcc", {}).get("min")
             for r in results if r["set"] == "attention" and str(threads) in r["threads"]}
    for name, time in times.items():
        _, form, tokens = name.split("_")
        bare = times.get(f"attention_bare_{tokens}")
        if form != "bare" and time and bare:
            print(f"  {form} attention, {tokens} tokens: {time / bare:.3f} of the bare one's time")


class Bench:
    def __init__(self, options):
        self.options = options
        build = Path(options.build).resolve()
        self.tgc = T.find_tgc(build)
        self.scratch = build / "bench-scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.cores = options.cores or sorted(os.sched_getaffinity(0))
        most = max(options.threads)
        if most > len(self.cores):
            raise SystemExit(f"{most} threads need as many cores; there are {len(self.cores)}")
        self.driver = build_driver(self.scratch)
        self.limits = Limits(self.driver, self.cores[:most])
        self.results = []
        self.said = set()       # tgc's warnings, each printed once

    def run(self):
        options, limits = self.options, self.limits
        machine = describe_machine(self.tgc)
        print(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']:.1f}; "
              f"{machine['gcc']}; {machine['clang']}; {machine['tgc']} ({machine['commit']})")
        limits.measure(options.threads)
        print("peak of one core, GFLOP/s: "
              + ", ".join(f"{isa} {rate:.1f}" for isa, rate in limits.peak.items()))
        print("read, GB/s: " + ", ".join(f"{key} {rate:.1f}" for key, rate in limits.read.items()))
        report = {"machine": machine, "peak_gflops": limits.peak, "read_gbps": limits.read,
                  "rounds": options.rounds, "slice_seconds": options.slice,
                  "models": self.results}
        for threads in options.threads:
            print_header(threads)
            for model in options.models:
                self.one(model, threads)
                self.save(report)
        report["sets"] = {str(t): print_sets(self.results, t) for t in options.threads}
        for t in options.threads:
            print_fractions(self.results, t)
        self.save(report)

    def save(self, report):
        """After every model: a run of all of them takes long, and may be stopped."""
        if self.options.json:
            self.options.json.write_text(json.dumps(report, indent=1) + "\n")
        if self.options.plot:
            self.options.plot.write_text(plot.svg(report))

    def one(self, model, threads):
        try:
            folder = models.prepare(model)
        except (Failure, Skip) as reason:
            print(f"{model.name:20s} not made: {shorten(reason)}", flush=True)
            return
        entry = Comparison(self, model, folder, threads).run()
        known = next((r for r in self.results if r["name"] == model.name), None)
        if known is None:
            known = {"name": model.name, "set": model.set, "threads": {}}
            self.results.append(known)
        known["threads"][str(threads)] = entry
        print_row(model.name, entry)
        for result in entry["contenders"].values():
            note = result.get("note")
            if note and note.partition("warning: ")[2] not in self.said:
                print(f"    {note}", flush=True)
                self.said.add(note.partition("warning: ")[2])


def words(allowed):
    def split(text):
        chosen = [word for word in text.split(",") if word]
        for word in chosen:
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"{word}: choose from {', '.join(allowed)}")
        return chosen
    return split


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description="compare tgc's C with the runtimes")
    every = [model.name for model in models.MODELS]
    parser.add_argument("--models", type=words(every), help="names, separated by commas")
    parser.add_argument("--sets", type=words(list(models.SETS)), default=list(models.SETS))
    parser.add_argument("--threads", type=numbers, help="1,2 unless there is one core alone")
    parser.add_argument("--cores", type=numbers, help="the cores to run on")
    parser.add_argument("--peers", type=words(PEERS),
                        help="all; with --quick the runtimes alone")
    parser.add_argument("--weight-type", choices=("bf16", "int8"),
                        help="tgc's option: its weights are smaller than its rivals', and rounded")
    parser.add_argument("--against", metavar="'TGC OPTIONS'",
                        help="another tgc's program (tgc: this one's), or other options, take turns, too")
    parser.add_argument("--rounds", type=int, help="turns of each contender")
    parser.add_argument("--slice", type=float, help="seconds of a turn")
    parser.add_argument("--quick", action="store_true", help="few and short turns")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--plot", type=Path, help="write an SVG here")
    parser.add_argument("--keep", action="store_true", help="keep the emitted code")
    parser.add_argument("--build", default="build")
    options = parser.parse_args()
    options.models = [m for m in models.MODELS
                      if (m.name in options.models if options.models else m.set in options.sets)]
    options.peers = options.peers or list(RUNTIMES if options.quick else PEERS)
    options.rounds = options.rounds or (2 if options.quick else 10)
    options.slice = options.slice or (0.05 if options.quick else 0.4)
    options.threads = options.threads or [1, 2][:len(os.sched_getaffinity(0))]
    return options


if __name__ == "__main__":
    Bench(parse()).run()
