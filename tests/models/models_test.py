"""Real models: the emitted C against ONNX Runtime.

Each model goes the users' way at each of its sizes: tgc writes C, a compiler builds it with
every warning an error, the program runs on .npy files, step after step where there is state.
Variants of the same:

    gcc        as users get it, gcc -O2; kernels of all processors where EVERY_KERNEL says so, and with --all, else those that this one runs
    -O0        tgc's optimizations off
    sanitized  clang, address and undefined sanitizers; in the long form gcc's, too
    opencl     the same by a device, or a processor that OpenCL has as one; with --all
    emulated   by each target for devices on the emulated one, which checks every access: models of few operations; with --all
    dynamic    one program for all sizes, the dimensions bounded at compile time
    tgc run    the same by tgc alone, at the first size
    object     an object of LLVM's for all processors of this architecture, with the program of the C

Sanitizers and the dynamic program have the kernels that this processor runs alone: they find what
runs, and all other kernels are built, with every warning, by `gcc` and `clang`.

Our own text graphs have no counterpart there: their programs check themselves against the
values that tgc's interpreter computed.

The bar is rtol 1e-3, atol 1e-4 of the largest magnitude; integers are exact.
"""

import functools
import re
import shutil
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnxruntime

import catalog
import emulator
import tgc as T
from opencl import need_device
from suite import Failure, Skip, Suite, expect

onnxruntime.set_default_logger_severity(3)


NATIVE = ("--cpu=native",)
# Compiled for all processors in the quick form, as models/*.tg are: the other models' kernels call no intrinsic that these do not.
EVERY_KERNEL = ("magika", "silero_vad_16k_sequence", "silero_vad_op18_ifless", "rapidocr_cls")


class Reference:
    """ONNX Runtime on one model: the expected outputs of every step at a size."""

    def __init__(self, model):
        self.model = model
        self.path = model.locate()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(self.path), options)
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.expected = {}

    def steps(self, size):
        if size not in self.expected:
            results, previous = [], None
            for step in range(self.model.steps):
                feeds = self.model.feed(size, step, previous)
                previous = dict(zip(self.outputs, self.session.run(None, feeds)))
                results.append(previous)
            check_sane(self.model.name, results)
            self.expected[size] = results
        return self.expected[size]


def check_sane(name, results):
    """A reference that is not finite, or is flat, would hide errors."""
    for outputs in results:
        for output, value in outputs.items():
            if T.is_float(value):
                expect(np.isfinite(value).all(), f"{name}: the reference's {output} is not finite")
    flat = all(np.ptp(value) == 0 for value in results[-1].values() if value.size > 1)
    expect(not flat or all(v.size <= 1 for v in results[-1].values()),
           f"{name}: the reference's outputs are flat")


_locks = {model.name: threading.Lock() for model in catalog.MODELS}


@functools.lru_cache(maxsize=2)
def _reference(name):
    return Reference(next(model for model in catalog.MODELS if model.name == name))


def reference(model):
    with _locks[model.name]:
        return _reference(model.name)


def open_inputs(path):
    """The inputs that have a dimension without a fixed size, as the file declares them."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return {value.name for value in graph.input if value.name not in weights
            and any(d.dim_value <= 0 for d in value.type.tensor_type.shape.dim)}


def fixed_shapes(model, ref, size):
    feeds = model.feed(size, 0, None)
    names = open_inputs(ref.path)
    return [word for name in ref.inputs if name in names
            for word in ("--shape", f"{name}={'x'.join(map(str, feeds[name].shape))}")]


def bounded_dimensions(model, ref, tgc):
    """--dim options that bound every open dimension by its largest value among the sizes, or
    fix it where the sizes agree.
    Their names are taken from tgc's own message, which has to say what to paste."""
    done = T.must(T.run([tgc, ref.path, "-o", "-"]), 1)
    open_dimensions = re.findall(r"'([^']+)' \(axis (\d+) of input '([^']+)'\)", done.err)
    expect(open_dimensions, f"the message names no open dimension: {done.err}")
    options = []
    for name, axis, tensor in open_dimensions:
        values = {model.feed(size, 0, None)[tensor].shape[int(axis)] for size in model.sizes}
        expect(re.search(rf"--dim '?{re.escape(name)}=\.\.\d+", done.err), f"no option to paste for {name}: {done.err}")
        options += ["--dim", f"{name}{'=' if len(values) == 1 else '<='}{max(values)}"]
    return options


def run_steps(model, ref, size, run, most=None):
    """Runs every step, or the first few, carrying state on from tgc's own outputs, and compares each."""
    previous = None
    for step, expected in enumerate(ref.steps(size)[:most]):
        feeds = model.feed(size, step, previous)
        previous = run(feeds)
        try:
            T.compare_to_reference(previous, expected, model.rtol, model.atol)
        except Failure as failure:
            raise Failure(f"size {size}, step {step}: {failure}") from None


def check_program(tgc, scratch, model, sizes, tgc_options, compiler, flags, dynamic=False):
    ref = reference(model)
    folder = T.scratch(scratch)
    try:
        if dynamic:
            options = bounded_dimensions(model, ref, tgc)
        else:
            options = fixed_shapes(model, ref, sizes[0])
        T.emit(tgc, ref.path, folder / "model.c", *options, *tgc_options)
        # a device's program has other options than C's
        of_target = [word for word in tgc_options if word.startswith("--target=")]
        T.build(folder / "model.c", folder / "model", compiler, flags, timeout=600, main_by=tgc, main_options=tuple(of_target) or ("--cpu=generic",))
        program = T.Program(folder / "model", ref.outputs)
        for size in sizes:
            run_steps(model, ref, size, lambda feeds: program.run(
                [feeds[name] for name in ref.inputs], timeout=600))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# PoCL's own row, and another by turns
ROWS = ("generic-gpu", "adreno630", "intel-xe")


def check_opencl(tgc, scratch, model, size, row):
    need_device()
    check_program(tgc, scratch, model, [size], ("--target=opencl", f"--cpu={row}"), "gcc", ("-O1",))


# How models are compiled for the emulated device: target, options, what it is told of itself. The model's number chooses two of them.
EMULATED = [("opencl", ("--cpu=generic-gpu",), ""), ("amd", ("--cpu=gfx1100",), "version=gfx1100"), ("metal", ("--cpu=m1",), ""),
            ("cuda", ("--cpu=sm_90a",), "arch=90"), ("opencl", ("--cpu=adreno630", "--image"), ""), ("amd", ("--cpu=gfx90a",), "version=gfx90a"),
            ("cuda", ("--cpu=sm_80",), "arch=80"), ("opencl", ("--cpu=intel-xe",), "local=65536 subgroup=16")]
TEXTS = {"cuda": ("cu", emulator.cuda_environment), "amd": ("hip", emulator.amd_environment)}
MOST_FLOP = 1.2e9         # which take a minute


def check_emulated(tgc, build, scratch, model, size, target, options, facts):
    ref, folder = reference(model), T.scratch(scratch)
    words = [f"--target={target}", *options, *fixed_shapes(model, ref, size)]
    if T.info(tgc, ref.path, *words)["flop"] > MOST_FLOP:
        raise Skip("takes the emulated device more than a minute")
    try:
        with T.environment(**emulator.stand_ins(build)):
            T.emit(tgc, ref.path, folder / "model.c", *words, timeout=600)
            if target in TEXTS:
                T.emit(tgc, ref.path, folder / f"model.{TEXTS[target][0]}", *words, timeout=600)
            T.build(folder / "model.c", folder / "model", "gcc", ("-O0", *emulator.METAL_FLAGS), main_by=tgc, main_options=(f"--target={target}",))
        more = {"cache": folder / "kernels", "device": facts}
        environment = emulator.metal_environment(build, **more) if target == "metal" else emulator.environment(build, **more)
        if target in TEXTS:
            environment = TEXTS[target][1](build, folder / f"model.{TEXTS[target][0]}", **more)
        program = T.Program(folder / "model", ref.outputs, env=environment)

        def run(feeds):
            results = program.run([feeds[name] for name in ref.inputs], timeout=1200)
            expect(not program.said, program.said)
            return results

        run_steps(model, ref, size, run, 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_object(tgc, scratch, model, size):
    T.need_llvm(tgc)
    ref = reference(model)
    folder = T.scratch(scratch)
    try:
        main = T.shared("main", T.compile_main, tgc, "model", "gcc", (T.LEVEL,))
        T.must(T.run([tgc, ref.path, "-o", folder / "model.o", "--target=llvm", *fixed_shapes(model, ref, size)], timeout=600))
        T.must(T.run(["gcc", "model.o", main, "-o", "model", "-lm", "-lpthread"], cwd=folder))
        program = T.Program(folder / "model", ref.outputs)
        run_steps(model, ref, size, lambda feeds: program.run([feeds[name] for name in ref.inputs], timeout=600))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_tgc_run(tgc, scratch, model, target):
    if target == "llvm":
        T.need_llvm(tgc)
    ref = reference(model)
    folder = T.scratch(scratch)

    def run(feeds):
        options = []
        for number, (name, array) in enumerate(feeds.items()):
            np.save(folder / f"in{number}.npy", T.as_npy(array))
            options += ["-i", f"{name}={folder}/in{number}.npy"]
        out = T.scratch(folder / "out")
        T.must(T.run([tgc, "run", ref.path, f"--target={target}", *options, *fixed_shapes(model, ref, model.sizes[0]),
                      "--out-dir", out], timeout=600, env=T.quickly()))
        return T.read_outputs(out, ref.outputs)

    try:
        run_steps(model, ref, model.sizes[0], run, 2)       # each compiles
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def add_model(suite, tgc, scratch, model):
    """The quick form: at the first size one of -O0, the sanitizers and the dynamic program, in turn; as users get it, too, where the
    sanitizers have not run the same kernels."""
    here = () if model.name in EVERY_KERNEL else T.HERE
    held = ("dynamic" if model.dynamic else "sanitized", "-O0", "sanitized")[catalog.MODELS.index(model) % 3]
    often = model.name in EVERY_KERNEL or model.name in catalog.EVERY_CHANGE
    rare = not often and (model.heavy or held == "sanitized")

    def add(variant, slow, sizes, tgc_options, compiler, flags, dynamic=False):
        name = f"{model.name} {variant}"
        suite.add(name, check_program, tgc, scratch / name.replace(" ", "_"), model, sizes,
                  tgc_options, compiler, flags, dynamic, slow=slow)

    for number, size in enumerate(model.sizes):
        where = "" if size is None else f" {size}".replace(" ", "").replace(",", "x").strip("()")
        where = f" at {where.strip('()')}" if where else ""
        first = number == 0
        add(f"gcc{where}", rare or not first, [size], here, "gcc", ("-O2",))
        add(f"-O0{where}", model.heavy or not first or held != "-O0", [size], ("-O0",), "gcc", ("-O1",))
        add(f"clang{where}", True, [size], (), "clang", ("-O2",))
        add(f"sanitized{where}", model.heavy or not first or held != "sanitized", [size], NATIVE, "clang", T.SANITIZE)
        add(f"gcc sanitized{where}", True, [size], NATIVE, "gcc", T.SANITIZE)
        add(f"sanitized -O0{where}", True, [size], ("-O0",), "gcc", T.SANITIZE)
    if model.dynamic:
        add("dynamic", model.heavy or held != "dynamic", model.sizes, NATIVE, "gcc", (T.LEVEL,), dynamic=True)
        add("dynamic sanitized", True, model.sizes, NATIVE, "clang", T.SANITIZE, dynamic=True)
    for row in ("pocl", ROWS[catalog.MODELS.index(model) % len(ROWS)]):
        suite.add(f"{model.name} opencl, {row}", check_opencl, tgc, scratch / f"{model.name}_opencl_{row}", model,
                  model.sizes[0], row, slow=True)
    for k in range(2):
        target, options, facts = EMULATED[(catalog.MODELS.index(model) + 3 * k) % len(EMULATED)]
        way = " ".join((target, *options))
        suite.add(f"{model.name} emulated, {way}", check_emulated, tgc, suite.options.build, scratch / f"{model.name}_{way.replace(' ', '_')}", model,
                  model.sizes[0], target, options, facts, slow=model.name not in ("silero_vad", "silero_vad_8k"))
    suite.add(f"{model.name} object", check_object, tgc, scratch / f"{model.name}_object", model, model.sizes[0],
              slow=model.name not in ("magika", "silero_vad", "minilm", "mobilenet_v2"))
    for target in ("c", "llvm"):
        suite.add(f"{model.name} tgc run {target}", check_tgc_run, tgc, scratch / f"{model.name}_run_{target}",
                  model, target, slow=model.name not in ("magika", "silero_vad"))


def check_own(tgc, scratch, path, tgc_options, compiler, flags):
    """Our own text graphs: the program checks itself against tgc's interpreter. Where that is
    too slow at the bounds of the run-time dimensions, they are fixed to something small; where
    it still is, the optimized program and the one of -O0 have to agree."""
    folder = T.scratch(scratch)

    def make(name, *options):
        T.emit(tgc, path, folder / f"{name}.c", *options)
        T.build(folder / f"{name}.c", folder / name, compiler, flags)
        return T.run([folder / name, "--selftest"])

    try:
        done = make("model", *tgc_options)
        symbols = re.findall(r"define MODEL_MAX_(\w+)", (folder / "model.h").read_text())
        small = [word for name in symbols for word in ("--dim", f"{name}=2")]
        if b"no reference" in done.out + done.err.encode():
            done = make("model", *tgc_options, *small)
        if b"no reference" in done.out + done.err.encode():
            make("other", *small, *([] if "-O0" in tgc_options else ["-O0"]))
            compare_programs(tgc, path, folder, small)
            return
        T.must(done)
        expect(done.out.strip(), "the self-test says nothing")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare_programs(tgc, path, folder, options):
    info = T.info(tgc, path, *options)
    names = [entry["name"] for entry in info["outputs"]]
    random = catalog.seeded("own", path.name)
    inputs = [random.standard_normal(entry["shape"]).astype(np.float32)
              for entry in info["inputs"]]
    one, other = (T.Program(folder / name, names).run(inputs) for name in ("model", "other"))
    expect(all(np.ptp(value) > 0 for value in one.values()), "the outputs are flat")
    T.compare_to_reference(one, other, 1e-4, 1e-5)


def add_own(suite, tgc, scratch):
    """The quick form: as users get them, and by -O0 or with sanitizers, in turn."""
    for number, path in enumerate(sorted((catalog.ROOT / "models").glob("*.tg"))):
        for k, (label, tgc_options, compiler, flags) in enumerate((
                ("-O0", ("-O0",), "gcc", ("-O1",)), ("sanitized", NATIVE, "clang", T.SANITIZE), ("gcc", (), "gcc", ("-O2",)))):
            name = f"{path.name} {label}"
            suite.add(name, check_own, tgc, scratch / name.replace(" ", "_"), path, tgc_options,
                      compiler, flags, slow=k == number % 2)


def main():
    suite = Suite("models")
    options = suite.parse()
    tgc = T.find_tgc(options.build)
    scratch = Path(options.build).resolve() / "test-scratch" / "models"
    for model in catalog.MODELS:
        add_model(suite, tgc, scratch, model)
    add_own(suite, tgc, scratch)
    suite.main()


if __name__ == "__main__":
    main()
