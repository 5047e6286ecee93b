"""The onnx package's own backend tests, through the emitted C.

The node tests are models of one operator (or of its expansion into a function's body) with
inputs and expected outputs; beside them stand small models converted from PyTorch, and a few
simple ones. Each goes the users' way: tgc writes C, the system compiler builds it, the program
runs on .npy files; only its main, which all emitted files share, is compiled once for all, and
some dozens of files are built together (together.py), each to a program that runs alone.
Tolerances are the tests' own; integers and bools are exact.

    passing.txt   the tests that pass; one of them failing is a regression
    rest.txt      the others, and tgc's own words on why: a refusal must stay a refusal with
                  a message, and one that starts to work must move to the other list

Both are written by this program, with --bless, from what it saw; they are never edited. Where a
shape or the length of a sequence depends on the value of an input, and nothing bounds it, a test
passes with that value told to the compiler (-i NAME=FILE); passing.txt then says "told".
"""

import functools
import os
import pickle
import shutil
import sys
import threading
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import support
import tgc as T
import together
from borders import Unfit, as_array, border, graph_inputs
from suite import Failure, Skip, Suite

PASSING, REST = HERE / "passing.txt", HERE / "rest.txt"


class Refused(Failure):
    """tgc exited with 1 and said why."""


@dataclass
class StoredCase:
    """A test that the package keeps as files, with the tolerances of its own runner."""
    name: str
    folder: Path
    rtol: float = 1e-3
    atol: float = 1e-7

    @functools.cached_property
    def model(self):
        return onnx.load(self.folder / "model.onnx")

    @property
    def data_sets(self):
        for data in sorted(self.folder.glob("test_data_set_*")):
            yield tuple([_load_tensor(data / f"{kind}_{k}.pb", value)
                         for k, value in enumerate(values)]
                        for kind, values in (("input", self.inputs),
                                             ("output", self.model.graph.output)))

    @property
    def inputs(self):
        return graph_inputs(self.model)


def _load_tensor(path, value):
    if value.type.HasField("sequence_type"):
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(path.read_bytes())
        return numpy_helper.to_list(sequence)
    return onnx.load_tensor(path)


def generated_cases(build):
    """The package's node tests by name. Its reference computes them in 4 s, so the first suite keeps them in the build folder."""
    kept = Path(build).resolve() / "test-scratch" / f"onnx-{onnx.__version__}-numpy-{np.__version__}.pickle"
    if not kept.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = {case.name: case for case in collect_testcases(None)}
        kept.parent.mkdir(parents=True, exist_ok=True)
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_bytes(pickle.dumps(cases))
        written.replace(kept)
    return pickle.loads(kept.read_bytes())


def load_cases(build="build"):
    """All tests of the package by name: those that it generates, and those that it keeps as files."""
    cases = generated_cases(build)
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for folder in sorted((data / kind).iterdir()):
            cases[f"{kind}/{folder.name}"] = StoredCase(f"{kind}/{folder.name}", folder)
    return cases


# Operators whose numbers the specification leaves to the implementation.
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
          "RandomUniformLike"}


def is_random(model):
    return any(node.op_type in RANDOM for node in model.graph.node)


def compare_form(name, actual, expected):
    """All that can be said of random numbers of another generator."""
    if actual.shape != expected.shape or actual.dtype != T.as_npy(expected).dtype:
        raise Failure(f"{name}: {actual.dtype}{list(actual.shape)}, expected "
                      f"{expected.dtype}{list(expected.shape)}")
    if not np.isin(actual, np.unique(expected)).all():
        raise Failure(f"{name}: has values that the reference has not: {np.unique(actual)[:5]}")


def training_dropout(model):
    """The node, where the model is one Dropout that takes training_mode as an input."""
    nodes = model.graph.node
    return nodes[0] if len(nodes) == 1 and nodes[0].op_type == "Dropout" and \
        len(nodes[0].input) > 2 else None


def compare_dropout(node, given, wanted, results):
    """Elements are dropped at random, in about their share; what stays is scaled exactly."""
    if not given[node.input[2]]:
        raise Failure(f"{node.name}: a Dropout that does not train is not random")
    ratio = float(given[node.input[1]]) if node.input[1] else 0.5
    x, y = given[node.input[0]], results[node.output[0]]
    for name, expected in wanted.items():
        if results[name].shape != expected.shape or results[name].dtype != expected.dtype:
            raise Failure(f"{name}: {results[name].dtype}{list(results[name].shape)}")
    stays = y != 0
    if not np.allclose(y[stays], x[stays] / (1 - ratio), 1e-6):
        raise Failure("what stays is not scaled by 1 / (1 - ratio)")
    if abs(stays.mean() - (1 - ratio)) > 4 * (max(ratio * (1 - ratio), 1e-9) / x.size) ** 0.5:
        raise Failure(f"{stays.mean():.2f} of the elements stay, for a ratio of {ratio}")
    if len(wanted) > 1 and not np.array_equal(results[node.output[1]], stays):
        raise Failure("the mask does not say what stays")


def flat(name):
    return name.replace("/", "_")


def told_values(case, folder):
    """The options that tell the compiler the integers and bools among the inputs."""
    options = []
    for inputs, _ in case.data_sets:
        for k, (name, array) in enumerate(border(graph_inputs(case.model), inputs)[0]):
            if array.dtype.kind in "iub" and array.size <= 64 and "[" not in name:
                np.save(folder / f"told{k}.npy", T.as_npy(array))
                options += ["-i", f"{name}=told{k}.npy"]
        break
    return options


def case_options(case, folder, options, told=False):
    """The options, and what the case's data says of sizes."""
    for inputs, _ in case.data_sets:
        options = (*options, *border(graph_inputs(case.model), inputs)[1])
        break
    return (*options, *told_values(case, folder)) if told else options


def emit_case(tgc, case, folder, options, told=False):
    """Writes the model and its C into the folder; the C file is named after no test."""
    T.scratch(folder)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    options = case_options(case, folder, options, told)
    done = T.run([tgc, "model.onnx", "-o", "node.c", *options], cwd=folder, timeout=60)
    if done.status == 1 and not done.timed_out:
        if not done.err.strip():
            raise Failure("tgc exited with 1 and gave no reason")
        if (folder / "node.c").exists():
            raise Failure("tgc refused the model and left a file")
        raise Refused(done.err.strip())
    T.must(done)


# What an emitted program decodes with a library, if it is told so.
DECODERS = {"libjpeg": "NODE_WITH_JPEG", "libwebp": "NODE_WITH_WEBP", "libopenjp2": "NODE_WITH_OPENJPEG"}


@functools.cache
def decoder_flags():
    flags = []
    for package, macro in DECODERS.items():
        done = T.run(["pkg-config", "--cflags", "--libs", package])
        if done.status:
            raise Skip(f"{package} is not here")
        flags += [f"-D{macro}", *done.out.decode().split()]
    return tuple(flags)


def reads_images(case):
    return any(node.op_type == "ImageDecoder" for node in case.model.graph.node)


def libraries_of(case):
    return decoder_flags() if reads_images(case) else ()


def run_case(tgc, case, folder, options=(), flags=(T.LEVEL,), compiler="gcc", told=False):
    try:
        emit_case(tgc, case, folder, options, told)
        T.build(folder / "node.c", folder / "node", compiler, flags, libraries=libraries_of(case),
                main_by=tgc)
        check_results(case, folder / "node")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_results(case, exe, runner=()):
    """Runs the program on the test's inputs. runner: an emulator's words."""
    for inputs, outputs in case.data_sets:
        given, _ = border(graph_inputs(case.model), inputs)
        wanted, _ = border(case.model.graph.output, outputs)
        program = T.Program(exe, [name for name, _ in wanted], runner)
        results = program.run([array for _, array in given], timeout=60)
        compare_results(case, given, wanted, results)


def compare_results(case, given, wanted, results):
    dropout = training_dropout(case.model)
    if dropout:
        compare_dropout(dropout, dict(given), dict(wanted), results)
        return
    for name, expected in wanted:
        if is_random(case.model):
            compare_form(name, results[name], expected)
        else:
            T.compare(name, results[name], expected, case.rtol, case.atol)


def here_by_turns(name):
    """In the quick form three of four tests, by their names, have the kernels that this processor runs alone: all run those, the others' compile in 500."""
    return T.HERE if zlib.crc32(name.encode()) % 4 else ()


class Batch:
    """Tests whose emitted files are built together, when the first of them runs."""

    def __init__(self, folder, build):
        self.folder, self.build = folder, build
        self.cases, self.built, self.ran = {}, {}, set()
        self.lock = threading.Lock()
        self.started = False

    def add(self, case, told):
        """The name by which the batch knows the test."""
        name = f"m{len(self.cases)}"
        self.cases[name] = (case, told)
        return name

    def make(self, tgc, options):
        with self.lock:
            if self.started:
                return
            self.started = True
            sources = {}
            for name, (case, told) in self.cases.items():
                try:
                    emit_case(tgc, case, self.folder / name, (*here_by_turns(case.name), *options), told)
                    sources[name] = self.folder / name / "node.c"
                except Exception as why:     # the test's own, and raised where it runs
                    self.built[name] = why
            self.built |= self.build(sources, T.scratch(self.folder / "built"))

    def program(self, name, tgc, options=()):
        self.make(tgc, options)
        if isinstance(self.built[name], Exception):
            raise self.built[name]
        return self.built[name]

    def done(self, name):
        """The test has run; the files go with the last one."""
        with self.lock:
            self.ran.add(name)
            if len(self.ran) == len(self.cases):
                shutil.rmtree(self.folder, ignore_errors=True)


class Batches:
    """Every test that is asked for, in batches of some dozens, in the suite's order."""
    SIZE = 128

    def __init__(self, folder, build, options=()):
        self.folder, self.build, self.options = folder, build, options
        self.batches, self.places = [], {}

    def add(self, case, told):
        if len(self.places) % self.SIZE == 0:
            self.batches.append(Batch(self.folder / f"batch{len(self.batches)}", self.build))
        batch = self.batches[-1]
        self.places[case.name] = (batch, batch.add(case, told))

    def program(self, tgc, case):
        """What was built of the test, and its name there. While another thread builds its batch,
        this one builds a later one."""
        batch, name = self.places[case.name]
        if batch.lock.locked():
            ahead = next((later for later in self.batches if not later.started), batch)
            ahead.make(tgc, self.options)
        return batch.program(name, tgc, self.options), name

    def done(self, case):
        batch, name = self.places[case.name]
        batch.done(name)


def run_together(tgc, case, batches):
    try:
        check_results(case, batches.program(tgc, case)[0])
    finally:
        batches.done(case)


def record(path, info, value):
    """A file as the package's own test runner would have stored it."""
    kind = info.type.WhichOneof("value")
    if kind == "optional_type":
        inner = onnx.OptionalProto.SEQUENCE if isinstance(value, list) else onnx.OptionalProto.TENSOR
        message = numpy_helper.from_optional(value, None, None if value is None else inner)
    elif kind == "sequence_type":
        message = numpy_helper.from_list(value)
    else:
        message = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value))
    path.write_bytes(message.SerializeToString())


def verify_case(tgc, case, folder):
    """The whole test by `tgc verify`, which reads tensors, sequences and optionals, and finds the
    images' decoders by itself; another result than the expected one must be a mismatch."""
    T.scratch(folder)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for inputs, outputs in case.data_sets:
        for kind, infos, values in (("input", graph_inputs(case.model), inputs),
                                    ("output", case.model.graph.output, outputs)):
            for k, (info, value) in enumerate(zip(infos, values)):
                record(folder / f"{kind}_{k}.pb", info, value)
        done = T.run([tgc, "verify", "model.onnx", "--target=c", "--data", ".", "--rtol", case.rtol,
                      "--atol", case.atol], cwd=folder, timeout=60, env=T.quickly())
        *lines, last = T.must(done).out.decode().splitlines()
        if not last.startswith("ran by ") or len(lines) < len(outputs) or not all(line.startswith("ok ") for line in lines):
            raise Failure(f"{len(outputs)} outputs: {lines}")
    shutil.rmtree(folder, ignore_errors=True)


def is_for_verify(case):
    """No plain tensors at the border, or a picture; those of the package that stand for the rest."""
    infos = [*case.model.graph.input, *case.model.graph.output]
    return any(info.type.WhichOneof("value") != "tensor_type" for info in infos) or \
        case.name.startswith(("test_image_decoder", "test_gemm_a", "test_cast_FLOAT_to", "test_strnorm"))


def check_refusal(tgc, case, folder):
    """Quick form for a test on the other list: only that tgc still refuses it, with reason."""
    try:
        emit_case(tgc, case, folder, (), told=True)
    except Refused:
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise Failure("tgc compiles this model now: run tests/onnx/node_test.py --bless")


def check_rest(tgc, case, folder):
    """Full form: the whole way; a test that passes belongs on the passing list."""
    try:
        run_case(tgc, case, folder, told=True)
    except (Refused, Unfit):
        return
    except Failure as failure:
        if "exit status 70" in str(failure):
            raise
        return
    raise Failure("this test passes now: run tests/onnx/node_test.py --bless")


def read_lists():
    lines = PASSING.read_text().splitlines() if PASSING.exists() else []
    passing = {line.partition("\t")[0]: line.partition("\t")[2] == "told" for line in lines}
    rest = {}
    if REST.exists():
        for line in REST.read_text().splitlines():
            if line and not line.startswith("#"):
                name, _, reason = line.partition("\t")
                rest[name] = reason
    return passing, rest


def bless(options, cases, scratch):
    """Runs the tests and writes both lists; with a filter, the others stay as they were."""
    from concurrent.futures import ThreadPoolExecutor
    tgc = T.find_tgc(options.build)

    def verdict(case):
        try:
            run_case(tgc, case, scratch / flat(case.name))
            return None
        except Refused as refusal:
            reason = str(refusal)
        except (Unfit, Failure) as why:
            return kind_of(why)
        try:
            run_case(tgc, case, scratch / flat(case.name), told=True)
            return "told", ""
        except Refused:
            return "refused", reason
        except (Unfit, Failure) as why:
            return kind_of(why)

    def kind_of(why):
        if isinstance(why, Unfit):
            return "unfit", str(why)
        lines = str(why).splitlines()
        return "wrong", " | ".join(lines[1:] or lines)

    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = dict(zip(cases, pool.map(verdict, cases.values())))
    before, others = read_lists()
    passing = {name: told for name, told in before.items() if name not in cases}
    for name, why in verdicts.items():
        if why is None or why[0] == "told":
            passing[name] = why is not None
    rest = {name: why for name, why in others.items() if name not in cases}
    for name, why in verdicts.items():
        if name not in passing:
            words = " ".join(why[1].replace(str(scratch), "").split())
            rest[name] = f"{why[0]}: {words[:200]}"
    PASSING.write_text("".join(f"{name}\ttold\n" if passing[name] else f"{name}\n"
                               for name in sorted(passing)))
    with open(REST, "w") as file:
        file.write("# Written by node_test.py --bless: the tests that do not pass, and why.\n")
        for name, why in sorted(rest.items()):
            file.write(f"{name}\t{why}\n")
    counts = {kind: sum(why.startswith(kind) for why in rest.values())
              for kind in ("refused", "unfit", "wrong")}
    print(f"{len(passing)} of {len(passing) + len(rest)} pass; {counts}")


def main():
    suite = Suite("onnx node")

    def more(parser):
        parser.add_argument("--bless", action="store_true",
                            help="run everything and rewrite both lists")
        parser.add_argument("--sanitize", action="store_true",
                            help="only the passing tests, built with the sanitizers")

        parser.add_argument("--support", action="store_true",
                            help="write docs/onnx-support.md from the lists")

    options = suite.parse(more)
    cases = load_cases(options.build)
    scratch = T.scratch(Path(options.build).resolve() / "test-scratch" / "onnx")
    if options.bless:
        import re
        bless(options, {n: c for n, c in cases.items() if re.search(options.filter, n)}, scratch)
        return
    tgc = T.find_tgc(options.build)
    passing, rest = read_lists()

    def lists_are_whole():
        known = set(passing) | set(rest)
        missing, unknown = sorted(set(cases) - known), sorted(known - set(cases))
        if missing or unknown:
            raise Failure(f"not on any list: {missing[:5]}; no such test: {unknown[:5]}")

    def support_is_current():
        if support.DOCUMENT.read_text() != support.document(tgc, cases, passing, rest):
            raise Failure("docs/onnx-support.md is old: run tests/onnx/node_test.py --support")

    if options.support:
        support.DOCUMENT.write_text(support.document(tgc, cases, passing, rest))
        return
    batches = Batches(scratch, functools.partial(together.build, main_by=tgc))
    suite.add("the two lists name every test", lists_are_whole)
    if not options.sanitize:
        suite.add("docs/onnx-support.md is current", support_is_current)
    for name, told in passing.items():
        if name not in cases:
            continue
        run = functools.partial(run_case, tgc, cases[name], told=told)
        suite.add(f"{name} sanitized", run, scratch / f"{flat(name)}-san", (), tuple(T.SANITIZE),
                  "clang", slow=not options.sanitize)
        if options.sanitize:
            continue
        if libraries_of(cases[name]):
            suite.add(name, run, scratch / flat(name))
        else:
            suite.add(name, run_together, tgc, cases[name], batches)
        if is_for_verify(cases[name]):
            suite.add(f"{name}: tgc verify", verify_case, tgc, cases[name],
                      scratch / f"{flat(name)}-verify")
        suite.add(f"{name} -O0", run, scratch / f"{flat(name)}-O0", ("-O0",), slow=True)
    for name, reason in rest.items():
        if name not in cases or options.sanitize:
            continue
        if reason.startswith("refused"):
            suite.add(f"{name} is refused", check_refusal, tgc, cases[name], scratch / flat(name))
        suite.add(f"{name} is not passing yet", check_rest, tgc, cases[name],
                  scratch / f"{flat(name)}-rest", slow=True)
    for name, function, arguments, _ in suite.chosen():
        if function is run_together:
            batches.add(cases[name], passing[name])
    suite.main()


if __name__ == "__main__":
    main()
