"""Random graphs: what tgc's C computes against ONNX Runtime, node by node.

    random_graphs.py                              the fixed seeds of the quick run; --all: more of them
    random_graphs.py --seed 1000 --count 500
    random_graphs.py --seed 1234 --keep           leaves the model and its C in the scratch folder
    random_graphs.py --seed 1000 --count 500 --fast
    random_graphs.py --seed 1000 --count 500 --level "--threads=2 --cache=0" --only-compile
    random_graphs.py --seed 1000 --count 500 --run=--target=llvm --run="--target=clang -O0"
    random_graphs.py --seed 1000 --count 500 --emulator=cuda
    random_graphs.py --seed 0 --count 5000 --emulator=opencl,cuda,amd,metal --joined --turn=0 --results ~/graphs.txt [--large]

Each graph is compiled by default, with -O0, and in a third way with sanitizers, and runs on the
same inputs, at each size of a run-time dimension; the program's own reference vectors, which the
interpreter has computed, must agree, too. Where libLLVM is, `tgc run --target=llvm` runs it as well, in two
ways. A graph that tgc refuses with a message loses the node in
question; a crash, a bug report, a wrong value or a C warning is a failure, which is then shrunk:
fewer outputs, and every value that can be an input becomes one.

--fast is for thousands of graphs: C compilers do not optimize (tcc builds what has no vectors, if it
is there), and one graph of 32 goes all three ways. --level names other ways to compile, and --only-compile
ends there: what tgc's own checks find (ir/verify.c, ir/verify_scratch.c) is a failure. --run says how
`tgc run` runs each graph, instead of all other ways. --emulator runs each by OpenCL, CUDA, AMD or Metal on the emulated device
(tests/emulator/), whose reports of races, bounds and misuse are failures, too; with --joined many graphs are one program, which takes a third of the time.
"""

import collections
import re
import shutil
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE)]

import numpy as np
import onnx
from onnx import helper, numpy_helper

import amd
import cuda
import emulator
import generate
import joined
import oracle
import tgc as T
from suite import Failure, Suite

GROUP = 4  # graphs a case
TOGETHER = 64  # --joined: graphs a case, of which those of one opset are a program; by one target each four times as many
FULL = 32  # --fast: one graph of so many is built with sanitizers and optimization, too
TCC = shutil.which("tcc")
ARRAYS = ("--weights=array",) if TCC else ()        # on a device: tcc has no u"" strings
QUICK, LONG = 12, 1500
RTOL, ATOL = 1e-3, 1e-5
LEVELS = ((), ("-O0",))
# A third way to compile, another for each graph; its C is built with sanitizers, and as C++ too.
# With a cache of nothing, layers are made one, band by band, wherever that can be.
OTHERS = (("--threads=2",), ("--cache=0",), ("--weights=array",), ("--weights=incbin", "--cache=0", "--cpu=generic"),
          ("-O3",), ("--cpu=generic",), ("--cpu=cortex-m4",), ("--threads=3", "--weights=array", "--cache=0"))
EMULATED = {"opencl": ((), ("--cpu=pocl",), ("--cpu=adreno630",), ("-O0",), ("--cache=0", "--cpu=pocl"), ("--cache=0",),
                       ("--cpu=adreno630", "--image", "--no-locals"), ("--image",), ("--cpu=intel-xe",)),
            "cuda": (("--cpu=sm_80",), ("--cpu=sm_90a",), ("--no-locals",), ("-O0",), ("--cache=0",)),
            "amd": (("--cpu=gfx1100",), ("--cpu=gfx90a",), ("--cpu=gfx942",), ("--cpu=gfx1201",), ("--no-locals",), ("-O0",), ("--cache=0",)),
            "metal": ((), ("--no-locals",), ("-O0",), ("--cache=0",), ("--cpu=m4",))}
TEXTS = {"cuda": "cu", "amd": "hip"}       # the kernels' text, which the emulator needs
DEVICES = {"sm_90a": "arch=90", "gfx90a": "version=gfx90a", "gfx942": "version=gfx942", "gfx1201": "version=gfx1201",
           "intel-xe": "local=65536 subgroup=16"}
TALLY = collections.Counter()
LOCK = threading.Lock()


class Refused(Exception):
    pass


class Trial:
    """A part of a graph as a model: these nodes, these outputs, whatever else they need as inputs."""

    def __init__(self, graph, nodes, outputs, weights=True):
        self.graph, self.nodes, self.outputs, self.weights = graph, nodes, outputs, weights
        made = {name for node in nodes for name in node.output}
        needed = list(dict.fromkeys(name for node in nodes for name in oracle.node_inputs(node)
                                    if name not in made))
        needed += [name for name in outputs if name not in made and name not in needed]
        values = graph.values
        self.consts = [n for n in needed if values[n].kind == "weight"]
        self.inputs = [n for n in needed if values[n].kind != "weight"]

    def type_of(self, name, symbolic=True):
        value = self.graph.values[name]
        dims = list(value.shape)
        for axis in range(value.rank):
            if value.loose:
                dims[axis] = None
            elif value.moves(axis) or axis in getattr(value, "dynamic", ()):
                dims[axis] = "n" if axis in getattr(value, "dynamic", ()) else None
        return helper.make_tensor_value_info(name, oracle.proto_type(value.array), dims)

    def bounds(self):
        """Of the run-time dimension, as --dim has it."""
        moves = any(getattr(self.graph.values[name], "dynamic", ()) for name in self.inputs)
        return [f"n<={self.graph.sizes[0]}"] if moves else []

    def dims(self):
        return [f"--dim={dim}" for dim in self.bounds()]

    def model(self):
        values = self.graph.values
        graph = helper.make_graph(
            self.nodes, "random", [self.type_of(n) for n in self.inputs],
            [self.type_of(n) for n in self.outputs],
            [numpy_helper.from_array(np.asarray(values[n].array), n) for n in self.consts],
            value_info=[self.type_of(n) for node in self.nodes for n in node.output
                        if self.graph.inferred and n in values and n not in self.outputs])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.graph.opset)],
                                 ir_version=8)

    def without(self, node):
        """The trial less a node and all that needs it."""
        lost, nodes = set(node.output), []
        for other in self.nodes:
            if other is node or lost & set(oracle.node_inputs(other)):
                lost.update(other.output)
            else:
                nodes.append(other)
        outputs = [o for o in self.outputs if o not in lost]
        return Trial(self.graph, nodes, outputs)


class Tester:
    def __init__(self, tgc, folder, emulated=None, turn=None, order=0):
        """emulated: the target; turn: which of its ways, if not that of the graph's seed; order: of blocks on the emulated device, up to three at once."""
        self.tgc, self.folder, self.emulated, self.turn = tgc, folder, emulated, turn
        more = {"cache": folder / "kernels", "device": f"order={order} wave={1 + order % 3}"}
        self.env = None
        if emulated == "cuda":
            cuda.need_nvrtc()
            self.env = emulator.cuda_environment(OPTIONS.build, folder / "net.cu", **more)
        elif emulated == "amd":
            amd.need_compiler()
            self.env = emulator.amd_environment(OPTIONS.build, folder / "net.hip", **more)
        elif emulated == "metal":
            self.env = emulator.metal_environment(OPTIONS.build, **more)
        elif emulated:
            self.env = emulator.environment(OPTIONS.build, **more)

    def tools(self, seed):
        """The environment in which tgc compiles. The emulated device runs kernels from their text: CUDA's and AMD's compilers themselves compile one
        graph's of so many."""
        if self.emulated not in TEXTS or seed % FULL == 0:
            return None
        return emulator.stand_ins(OPTIONS.build)

    def levels(self, seed):
        if self.emulated:
            ways = EMULATED[self.emulated]
            return ((f"--target={self.emulated}", *ARRAYS, *ways[(seed if self.turn is None else self.turn) % len(ways)]),)
        if OPTIONS.emulator:
            return ((),)
        if OPTIONS.level:
            return tuple(tuple(level.split()) for level in OPTIONS.level)
        if not OPTIONS.fast or seed % FULL == 0:
            return (*LEVELS, OTHERS[seed // FULL % len(OTHERS) if OPTIONS.fast else seed % len(OTHERS)])
        return ((), ("-O0",), ("--cpu=generic",))

    def runs(self, seed):
        """How `tgc run` runs the graph: LLVM, and LLVM in another way for each."""
        if OPTIONS.run:
            return [way.split() for way in OPTIONS.run]
        other = OTHERS[seed % len(OTHERS)] if seed % 2 else ("-O0",)
        return [("--target=llvm",), ("--target=llvm", *other)] if HAS_LLVM and not OPTIONS.level and not OPTIONS.emulator else []

    def run_here(self, trial, way, dims, s):
        """The outputs at size s by `tgc run`."""
        words, out = [], T.scratch(self.folder / "out")
        for k, name in enumerate(trial.inputs):
            np.save(self.folder / f"{k}.npy", T.as_npy(trial.graph.values[name].tracks[s][0]))
            words += ["-i", f"{name}={k}.npy"]
        T.must(T.run([self.tgc, "run", "model.onnx", *way, *dims, *words, "--out-dir", "out"], cwd=self.folder,
                     timeout=60))
        return T.read_outputs(out, trial.outputs)

    def build(self, level, seed):
        source, exe = self.folder / "net.c", self.folder / "net"
        tcc = [TCC, "-std=c11", "-DNET_MAIN", *emulator.METAL_FLAGS, source.name, "-o", exe, "-lm", "-ldl", "-lpthread"]
        if self.emulated and TCC and T.run(tcc, cwd=self.folder).status == 0:       # it does not know every constant, such as NAN
            return
        if self.emulated:        # a program with a selftest takes twice as long, and the oracle has the numbers
            T.build(source, exe, "gcc", ("-O0", *emulator.METAL_FLAGS), main_by=self.tgc, main_options=(f"--target={self.emulated}",))
            return
        if OPTIONS.fast and seed % FULL:
            if level and TCC:
                T.must(T.run([TCC, "-std=c11", "-DNET_MAIN", source.name, "-o", exe, "-lm", "-lpthread"],
                             cwd=self.folder))
            else:
                T.build(source, exe, "gcc", ("-O0",))
            return
        if level in LEVELS:
            T.build(source, exe, ("gcc", "clang")[seed % 5 == 0])
            return
        T.build(source, exe, ("gcc", "clang")[seed % 2],
                [*T.SANITIZE, "-include", HERE / "exact.h"])
        T.must(T.run([("g++", "clang++")[seed // 2 % 2], "-std=c++17", "-Wall", "-Wextra", "-Werror",
                      "-Wno-deprecated", "-fsyntax-only", "-x", "c++", source.name],
                     cwd=self.folder))

    def check(self, trial):
        """None if all is well, else what is wrong. Raises Refused."""
        model = self.folder / "model.onnx"
        onnx.save(trial.model(), model)
        graph = trial.graph
        dims = trial.dims()
        for level in () if OPTIONS.run else self.levels(graph.seed):
            done = T.run([self.tgc, model, "-o", self.folder / "net.c", *dims, *level], timeout=60, env=self.tools(graph.seed))
            if done.status == 1 and not done.timed_out and done.err.strip():
                raise Refused(done.err.strip())
            if done.status != 0 or done.timed_out:
                return f"tgc {' '.join(level)}: {done.describe()}"
            if OPTIONS.only_compile:
                continue
            if self.emulated in TEXTS:
                T.must(T.run([self.tgc, model, "-o", self.folder / f"net.{TEXTS[self.emulated]}", *dims, *level], timeout=60))
            try:
                self.build(level, graph.seed)
            except Failure as why:
                return f"cc of {' '.join(level) or 'default'}: {why}"
            if self.emulated:
                self.env["TGC_EMULATOR_DEVICE"] = next((DEVICES.get(word[6:], "") for word in level if word.startswith("--cpu=")), "")
            wrong = None if self.emulated else self.selftest(trial)
            if wrong:
                return f"selftest of {' '.join(level) or 'default'}: {wrong}"
            program = T.Program(self.folder / "net", trial.outputs, env=self.env)
            for s, size in enumerate(graph.sizes):
                try:
                    got = program.run([graph.values[n].tracks[s][0] for n in trial.inputs],
                                      timeout=30)
                except Failure as why:
                    return f"run of {' '.join(level) or 'default'} at n={size}: {why}"
                if "emulator: " in program.said:
                    return f"{' '.join(level)}, n={size}: {program.said}"
                wrong = self.wrong(trial, got, s)
                if wrong:
                    return f"{' '.join(level) or 'default'}, n={size}: {wrong}"
        return None if OPTIONS.only_compile else self.check_runs(trial, dims)

    def selftest(self, trial):
        own = T.run([self.folder / "net", "--selftest"], timeout=30)
        wrong = own.status not in (0, 1, 77) or (disagrees(own.out.decode()) and not amplifies(trial))      # 77: it carries none
        return own.describe() if wrong else None

    def wrong(self, trial, got, s):
        for name in trial.outputs:
            wrong = oracle.mismatch(got[name], trial.graph.values[name].tracks[s], RTOL, ATOL)
            if wrong:
                return f"{name} {wrong}"
        return None

    def check_runs(self, trial, dims):
        for way in self.runs(trial.graph.seed):
            for s, size in enumerate(trial.graph.sizes):
                try:
                    wrong = self.wrong(trial, self.run_here(trial, way, dims, s), s)
                except Failure as why:
                    wrong = str(why)
                    if OPTIONS.run and re.search(r"exit status 1\n[^\n]*: node \d+ [^\n]*error: ", wrong):
                        raise Refused(wrong) from None
                if wrong:
                    return f"tgc run {' '.join(way)}, n={size}: {wrong}"
        return None

    def settle(self, trial):
        """Drops what tgc refuses; what remains and the verdict on it."""
        while trial and trial.outputs:
            try:
                return trial, self.check(trial)
            except Refused as why:
                node = refused_node(trial, str(why))
                with LOCK:
                    TALLY[(node.op_type if node else "?") + ": " + re.sub(
                        r"'[^']*'|\d+", "_", str(why).splitlines()[0])[:150]] += 1
                if node is None:
                    return trial, None
                trial = trial.without(node)
        return trial, None

    def still_wrong(self, trial):
        try:
            return self.check(trial)
        except Refused:
            return None

    def shrink(self, trial, verdict):
        for name in list(trial.outputs):      # one output, if one is enough
            one = Trial(trial.graph, live(trial.nodes, [name]), [name])
            wrong = self.still_wrong(one)
            if wrong:
                trial, verdict = one, wrong
                break
        changed = True
        while changed:
            changed = False
            for node in list(trial.nodes):    # a node's results become inputs
                rest = [n for n in trial.nodes if n is not node]
                outputs = [o for o in trial.outputs if o not in node.output]
                if not outputs:
                    continue
                smaller = Trial(trial.graph, live(rest, outputs), outputs)
                wrong = self.still_wrong(smaller)
                if wrong:
                    trial, verdict, changed = smaller, wrong, True
                    break
            for name in list(trial.outputs) if len(trial.outputs) > 1 else []:
                outputs = [o for o in trial.outputs if o != name]
                smaller = Trial(trial.graph, live(trial.nodes, outputs), outputs)
                wrong = self.still_wrong(smaller)
                if wrong:
                    trial, verdict, changed = smaller, wrong, True
                    break
        return trial, verdict


def refused_node(trial, why):
    """The node that a refusal speaks of, by its number or its name."""
    found = re.search(r"node (\d+)", why)
    if found:
        return trial.nodes[int(found.group(1))] if int(found.group(1)) < len(trial.nodes) else None
    names = re.findall(r'"([^"]*)"', why)
    return next((node for node in trial.nodes if node.name in names), None)


def without_doubles(trial):
    """The trial less all that has 64-bit floats, which Metal does not."""
    values = trial.graph.values
    for node in trial.nodes:
        if any(name in values and values[name].dtype == "float64" for name in (*oracle.node_inputs(node), *node.output)):
            trial = trial.without(node)
    outputs = [name for name in trial.outputs if values[name].dtype != "float64"]
    return Trial(trial.graph, live(trial.nodes, outputs), outputs)


def disagrees(said):
    """The selftest knows no noise: a few elements may differ where rounding is amplified, or a
    comparison is undecided."""
    counts = [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+) elements agree", said)]
    return any(most - right > max(3, most // 4) for right, most in counts)


def amplifies(trial):
    """Where rounding has grown, the interpreter's numbers need not be the program's."""
    for name in trial.outputs:
        for sizes in trial.graph.values[name].tracks:
            exact = sizes[0]
            for other in sizes[1:]:
                if exact.dtype.kind != "f":
                    if not np.array_equal(exact, other):
                        return True
                elif not np.allclose(exact, other, 1e-4, 1e-7, equal_nan=True):
                    return True
    return False


def live(nodes, outputs):
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted.update(oracle.node_inputs(node))
    return kept[::-1]


def choose_outputs(graph):
    """What nothing reads, some of the rest, now and then an input or a weight."""
    outputs = []
    for value in graph.values.values():
        if value.dtype not in generate.ALL:
            continue
        unread = value.name not in graph.read
        if value.kind == "node" and (unread or graph.chance(0.25)):
            outputs.append(value.name)
        elif value.kind != "node" and value.name in graph.read and graph.chance(0.03):
            outputs.append(value.name)
    return outputs


def describe(trial, verdict):
    lines = [verdict]
    for name in trial.inputs + trial.consts:
        value = trial.graph.values[name]
        shown = np.array2string(value.array.ravel()[:12], separator=",")
        lines.append(f"{value.kind} {name}: {value.dtype}{list(value.shape)} {shown}")
    lines.append(f"opset {trial.graph.opset}, sizes {trial.graph.sizes}")
    for node in trial.nodes:
        lines.append(onnx.printer.to_text(node))
    lines.append(f"outputs {', '.join(trial.outputs)}")
    return "\n".join(lines)


def in_doubt(tester, trial, verdict):
    """The verdict where more tracks of noise do not part, either, or cannot be computed."""
    try:
        return tester.still_wrong(trial) if trial.graph.doubted else None
    except generate.Rejected:
        return verdict


def wrong_by_c(trial, folder):
    """The verdict on the same graph by the C target: what both are wrong in is not the device's."""
    return Tester(TGC, folder).still_wrong(trial)


def verdict_of(tester, trial):
    """What is wrong with the trial, less what tgc refuses, and what not only rounding or the C target is."""
    trial, verdict = tester.settle(trial)
    if verdict:
        verdict = in_doubt(tester, trial, verdict)
    if verdict and tester.emulated and wrong_by_c(trial, tester.folder):
        verdict = None
    return trial, verdict


def one_graph(seed, keep=False):
    graph = generate.make(seed, OPTIONS.large)
    outputs = choose_outputs(graph)
    folder = T.scratch(SCRATCH / str(seed))
    for target in OPTIONS.emulator or [None] if outputs else ():
        one_trial(Tester(TGC, folder, target, order=seed), suited(Trial(graph, graph.nodes, outputs), target))
    if not keep:
        shutil.rmtree(folder)


def suited(trial, target):
    return without_doubles(trial) if target == "metal" else trial


def one_trial(tester, trial):
    trial, verdict = verdict_of(tester, trial)
    if verdict:
        trial, verdict = tester.shrink(trial, verdict)
        tester.still_wrong(trial)
        raise Failure(f"seed {trial.graph.seed}, {tester.emulated or 'C'}: {describe(trial, verdict)}\nsee {tester.folder}")


def joined_graphs(seeds):
    """The graphs of these seeds, several as one program, by each target, or one of them. Where one is wrong each of its graphs is looked at alone."""
    made = []
    for seed in seeds:
        graph = generate.make(seed, OPTIONS.large)
        outputs = choose_outputs(graph)
        if outputs:
            made.append(Trial(graph, graph.nodes, outputs))
    failures = []
    for number, group in enumerate(joined.groups(made)):
        for target in OPTIONS.emulator if OPTIONS.turn is None else [OPTIONS.emulator[(number + OPTIONS.turn) % len(OPTIONS.emulator)]]:
            failures += joined_group(target, [suited(trial, target) for trial in group])
    if failures:
        raise Failure("\n\n".join(failures))


def joined_group(target, trials):
    """What fails."""
    whole, failures = joined.Joined.of(trials), []
    if not whole:
        return []
    turn = whole.graph.seed
    tester = Tester(TGC, T.scratch(SCRATCH / f"{target}-{turn}"), target, turn, turn)
    whole, verdict = tester.settle(whole)
    for trial in whole.trials if verdict else ():
        try:
            one_trial(Tester(TGC, T.scratch(SCRATCH / f"{target}-{trial.graph.seed}-alone"), target, turn, turn), trial)
        except Failure as why:
            failures.append(str(why))
    if verdict and not failures and still_wrong_together(tester, whole):
        failures = [f"{target}, seeds {', '.join(str(trial.graph.seed) for trial in whole.trials)}, as one program alone: {verdict}\nsee {tester.folder}"]
    if not failures and not OPTIONS.keep:
        shutil.rmtree(tester.folder)
    return failures


def still_wrong_together(tester, whole):
    """Not by noise, which more tracks of it may tell, and not by the C target, too."""
    try:
        wrong = all([trial.graph.doubted for trial in whole.trials]) and tester.still_wrong(whole)
    except generate.Rejected:
        wrong = True
    return wrong and not wrong_by_c(whole, tester.folder)


def graphs(first, count, keep=False):
    failures = []
    for seed in range(first, first + count):
        try:
            one_graph(seed, keep)
        except Failure as why:
            failures.append(str(why))
    if failures:
        raise Failure("\n\n".join(failures))


def targets(text):
    chosen = text.split(",")
    if not set(chosen) <= set(EMULATED):
        raise ValueError
    return chosen


def options(parser):
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--fast", action="store_true", help="for thousands of graphs")
    parser.add_argument("--level", action="append", help="tgc's options, instead of the usual ones; more than once: each in turn")
    parser.add_argument("--run", action="append", help="tgc's options for `tgc run`, instead of the usual ways; more than once: each in turn")
    parser.add_argument("--only-compile", action="store_true", help="by tgc, not by a C compiler; nothing runs")
    parser.add_argument("--emulator", nargs="?", const="opencl", type=targets,
                        help="by these targets (opencl, cuda, amd, metal) on the emulated device, instead of the usual ways")
    parser.add_argument("--joined", action="store_true", help="on the emulated device: many graphs as one program")
    parser.add_argument("--large", action="store_true", help="tensors large enough for local memory and tiles")
    parser.add_argument("--turn", type=int, help="with --joined: each graph by one of the targets alone; with 0, 1, ... by another")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--tally", action="store_true", help="print what was refused")


suite = Suite("fuzz")
OPTIONS = suite.parse(options)
TGC = T.find_tgc(OPTIONS.build).resolve()
HAS_LLVM = T.has_llvm(TGC)
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "fuzz"
if OPTIONS.seed is not None and OPTIONS.joined:
    together = TOGETHER if OPTIONS.turn is None else 4 * TOGETHER
    for first in range(OPTIONS.seed, OPTIONS.seed + OPTIONS.count, together):
        last = min(first + together, OPTIONS.seed + OPTIONS.count) - 1
        turn = ("" if OPTIONS.turn is None else f", turn {OPTIONS.turn}") + (", large" if OPTIONS.large else "")
        suite.add(f"seeds {first}-{last} by {', '.join(OPTIONS.emulator)}{turn}", joined_graphs, range(first, last + 1))
elif OPTIONS.seed is not None:
    for seed in range(OPTIONS.seed, OPTIONS.seed + OPTIONS.count):
        suite.add(f"seed {seed}", graphs, seed, 1, OPTIONS.keep)
else:
    for first in range(0, LONG, GROUP):
        suite.add(f"seeds {first}-{first + GROUP - 1}", graphs, first, GROUP, slow=first >= QUICK)

try:
    suite.main()
finally:
    if OPTIONS.tally:
        for words, count in TALLY.most_common():
            print(f"# refused {count:4d}  {words}")
