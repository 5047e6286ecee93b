#!/usr/bin/env python3
"""tgc's programs for CUDA on the GPU at hand: whether they are right, and how fast beside PyTorch, cuBLAS, cuDNN, ONNX Runtime and TensorRT.

    python bench/gpu.py --tgc build/cli/tgc --part check
    python bench/gpu.py --tgc build/cli/tgc --part gemm --only 'f16 4096'
    python bench/gpu.py --report bench-gpu.jsonl                                 the tables of what was measured, as Markdown

    quick      each of the parts that are timed, once, in some 4 minutes: whether it is right, and how fast beside PyTorch's functions
    check      models/, the networks of tests/exec/grid_test.py and those below against the C target's results
    nodes      the onnx package's tests of operators, where it is installed; --every 10 takes a tenth
    gemm       products as a Linear has them: 1024, 4096, 8192 and the shapes of transformers, in each dtype
    conv       resnet50's convolutions, batch 1 and 32
    attention  heads of 64 and 128, 1k to 16k tokens, causal and not
    models     resnet50, ViT-B/16, GPT-2's decoding
    copies     what a run takes whose inputs and outputs are the host's memory, as it is and pinned, beside the device's
    init       seconds that NAME_init() takes: of PTX, which the driver translates, the first time and from its cache, and of machine code
    build      what the parts above run is compiled, on a machine without a device: the folder --work goes along
    sizes, estimate    need no device: bytes of a program's kernels by architecture; the cost model's times and what the kernels' code consists of

Needs tgc, Python with NumPy, the driver, and PyTorch to compare with; a C compiler and NVRTC (which PyTorch's packages have) unless --work holds
what was built. No network. Each part ends within --minutes; what is left is said, and taken up by the same command again: results are appended to
--out, a line of JSON each, and a case that is there is not run twice.

Inputs are uniform in [-1, 1]; sets of them take turns that are together twice the L2 cache; contenders are warmed up and run in turns, each 1 s or
1000 runs; times are medians by the device's events. Lines have the clocks before and behind, as nvidia-smi says.
"""

import argparse
import hashlib
import json
import math
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "exec"), str(ROOT / "tests" / "onnx")]

import numpy as np

import gpu_code
import gpu_nets as nets
import gpu_copies
import gpu_quick
from gpu_device import DriverDevice, Failed, Instance, Program, TorchDevice, clocks, find_nvrtc, measure

TIMED = ("gemm", "conv", "attention", "models")
MOST_INSTANCES = 12
# Of the largest result: what two orders of summing up may differ by, and rounding of what is stored.
TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 2e-2, "i8": 0.0, "tf32": 4e-3, "f32 by bf16": 3e-2, "f32 by f16": 4e-3, "f8": 1e-4}


# ------------------------------------------------------------------------------------------- cases


def has_math(tgc):
    return "--math" in subprocess.run([tgc, "help", "compile"], capture_output=True, text=True).stdout


def cases_of(options, part):
    """Of a part that is timed, those that --only and --dtypes leave."""
    kinds = ["f32", "f16", "bf16", "i8", "f8"] + (["tf32", "f32 by bf16", "f32 by f16"] if has_math(options.tgc) else [])
    floats = [dtype for dtype in ("f32", "f16") if not options.dtypes or dtype in options.dtypes]
    small = options.small
    found = {"gemm": lambda: nets.products([kind for kind in kinds if not options.dtypes or kind in options.dtypes], small),
             "conv": lambda: nets.convolutions(floats, (1, 32), small), "attention": lambda: nets.attentions(floats, small),
             "models": lambda: nets.networks(floats, small)}[part]()
    return [case for case in found if re.search(options.only, case.name)]


def program_of(options, case):
    """The case's program, and what its text was written by."""
    text = nets.Text(case.fact("dtype") or case.dtype)
    case.make(text)
    return Program(options.tgc, options.work, text.save, [*case.options, *options.more]), text


class Results:
    """The file of results: one line each, appended when there is one."""

    def __init__(self, path):
        self.path = Path(path)
        self.lines = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def has(self, part, case, facts):
        """Whether this tgc was measured on this device."""
        return any(line["part"] == part and line["case"] == case and all(line.get(fact) == facts[fact] for fact in ("tgc_version", "device"))
                   for line in self.lines)

    def add(self, line):
        self.lines.append(line)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")


def error_of(got, want):
    """The largest difference, of the largest number; not a number is one that is wrong."""
    if got.size == 0:
        return 0.0
    want = want.astype(np.float64)
    scale = max(float(np.abs(want).max()), 1e-30)
    error = float(np.abs(got.astype(np.float64) - want).max()) / scale
    return error if math.isfinite(error) else math.inf


def feeds_of_case(case, text):
    """The inputs' numbers: the text's own, or a product's factors."""
    kind = np.int8 if case.fact("dtype") == "i8" else np.float32
    return text.feeds or {name: nets.random_array(name, shape, kind) for name, shape in
                          (("x", (case.fact("m"), case.fact("k"))), ("w", (case.fact("n"), case.fact("k"))))}


# ------------------------------------------------------------------------------------------- check


def texts_of_check(options):
    """{name: (text, sizes of run-time dimensions)}"""
    from grid_test import NETS
    found = {path.stem: (path.read_text(), {"B": 3, "N": 3, "T": 50}) for path in sorted((ROOT / "models").glob("*.tg"))}
    for name, (text, sizes, _) in NETS.items():
        found[name] = (f"tg 1\n{text}output %y as \"y\"\n", sizes)
    chosen = {name: value for name, value in found.items() if re.search(options.only, name)}
    return dict(list(chosen.items())[::options.every])


def feeds_of(library, sizes):
    import library as L
    feeds = {}
    for k in range(library.info.input_count):
        t = library.info.inputs[k]
        shape = [sizes[t.dim[a].symbol.decode()] if t.dim[a].symbol else t.dim[a].size for a in range(t.rank)]
        name = t.name.decode()
        feeds[name] = nets.random_array(name, shape, L.DTYPES[t.dtype.decode()])
    return feeds


def check_text(options, device, name, text, sizes):
    """The largest error of the device's results beside those of the C target."""
    from library import Library

    def write(folder):
        (folder / "net.tg").write_text(text)
    symbols = {s: n for s, n in sizes.items() if re.search(rf"[\[ ,]{s}(<=\d+)?[,\]\s]", text)}
    bounds = [f"--dim={s}={n}" for s, n in symbols.items() if not re.search(rf"\b{s}<=", text)]
    by_c, by_device = (Program(options.tgc, options.work, write, [*bounds, *more], target)
                       for target, more in (("c", []), ("cuda", options.more)))
    device.before(by_device)
    libraries = [Library(program.build(), "net") for program in (by_c, by_device)]
    feeds = feeds_of(libraries[0], symbols)
    want, got = (library.run(feeds, symbols) for library in libraries)
    return max(error_of(got[key], want[key]) for key in want)


def check_case(options, device, case):
    """A timed case's small form, in memory of the device's, beside the C target's results."""
    from library import Library
    program, text = program_of(options, case)
    instance = Instance(program, device, feeds_of_case(case, text))
    instance.start()
    got = {name: device.numpy(array) for name, array in instance.outputs.items()}
    by_c = Program(options.tgc, options.work, text.save, [option for option in case.options if not option.startswith("--math")], "c")
    library = Library(by_c.build(), "net")
    want = library.run({name: device.numpy(array).astype(library_dtype(library, name)) for name, array in instance.inputs.items()})
    return max(error_of(as_numbers(got[name], instance, name), as_numbers(want[name], instance, name)) for name in want)


def library_dtype(library, name):
    import library as L
    return next(L.DTYPES[t.dtype.decode()] for t in (library.info.inputs[k] for k in range(library.info.input_count)) if t.name.decode() == name)


def as_numbers(array, instance, name):
    info = instance.library.info
    dtype = next(info.outputs[k].dtype.decode() for k in range(info.output_count) if info.outputs[k].name.decode() == name)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" and array.dtype == np.uint16 else array


def part_check(options, device, results, until):
    wrong = 0
    small = argparse.Namespace(**{**vars(options), "small": True})
    jobs = [(name, lambda name=name, value=value: check_text(options, device, name, *value), "f32") for name, value in texts_of_check(options).items()]
    jobs += [(f"{part}: {case.name}", lambda case=case: check_case(options, device, case), case.dtype)
             for part in TIMED for case in cases_of(small, part) if case.dtype in ("f32", "f16")]
    for number, (name, job, dtype) in enumerate(jobs):
        if time.monotonic() > until:
            print(f"no time for {len(jobs) - number} of {len(jobs)}: run this part again with --only")
            return 1
        try:
            error = job()
            right = error <= TOLERANCE[dtype]
            line = {"error": error}
        except Failed as why:
            right, line = False, {"failed": str(why)}
        wrong += not right
        results.add({"part": "check", "case": name, "right": right, **line, **options.facts})
        print(f"{'ok    ' if right else 'WRONG '} {name}: {line.get('failed') or format(line['error'], '.1e')}", flush=True)
    print(f"{len(jobs) - wrong} right, {wrong} wrong")
    return wrong > 0


# ------------------------------------------------------------------------------------------- nodes


def node_programs(options):
    """{name: (case, program)} of the onnx package's tests, but for those whose sizes its data has to tell."""
    try:
        import node_test as N
    except ImportError as why:
        raise Failed(f"nodes: needs the onnx package: {why}") from None
    cases, found = N.load_cases(str(options.work)), {}
    for name, told in list(N.read_lists()[0].items())[::options.every]:
        if name not in cases or told or not re.search(options.only, name) or N.reads_images(cases[name]):
            continue
        case = cases[name]
        words = [word for word in N.case_options(case, None, ()) if word != "--target=cuda"]
        found[name] = case, Program(options.tgc, options.work, lambda folder, case=case: (folder / "net.onnx").write_bytes(case.model.SerializeToString()),
                                    [*words, *options.more], model="net.onnx")
    return found


def part_nodes(options, device, results, until):
    import opencl_test as O
    from library import Library
    from suite import Failure
    programs, wrong, right, refused = node_programs(options), 0, 0, 0
    build_all(options, [program for _, program in programs.values()])
    for name, (case, program) in programs.items():
        if time.monotonic() > until:
            print(f"no time for {len(programs) - right - wrong - refused} of {len(programs)}: run this part again with --only")
            return 1
        try:
            device.before(program)
            O.check_results(case, Library(program.build(), "net"))
            right += 1
        except (Failed, Failure) as why:
            if "devices do not have" in str(why):           # texts
                refused += 1
                continue
            wrong += 1
            results.add({"part": "nodes", "case": name, "right": False, "failed": str(why)[:500], **options.facts})
            print(f"WRONG  {name}: {str(why)[:300]}", flush=True)
    results.add({"part": "nodes", "case": f"every {options.every}th", "right": wrong == 0, "count": right, **options.facts})
    print(f"{right} right, {wrong} wrong, {refused} refused, of texts")
    return wrong > 0


# ------------------------------------------------------------------------------------------- times


def instances_of(options, device, program, text, case):
    """As many as are together twice the L2 cache; networks' weights alone are that."""
    count = 1
    if case.part != "models" and not options.small:
        count = min(MOST_INSTANCES, math.ceil(2 * options.facts.get("l2", 50 << 20) / case.nbytes) + 1)
    feeds = feeds_of_case(case, text)
    return [Instance(program, device, feeds) for _ in range(count)]


def time_case(options, device, peers, case):
    """A line of results."""
    program, text = program_of(options, case)
    line = {"part": case.part, "case": case.name, "dtype": case.dtype, "flop": case.flop, "nbytes": case.nbytes}
    free = device.free_bytes()
    instances = instances_of(options, device, program, text, case)
    nbytes = {"tgc": (free - device.free_bytes()) // len(instances)}
    runs, absent = {"tgc": lambda i: instances[i % len(instances)].start()}, {}
    runs["tgc"](0)
    if peers:
        want = peers.reference(case, instances[0].inputs, text)
        line["error"] = max(error_of(device.numpy(instances[0].outputs[name]), device.numpy(value)) for name, value in want.items())
        more, absent, theirs = peers.contenders(case, instances, text)
        runs.update(more)
        nbytes.update(theirs)
    counts = program.info().get("device", {})
    before = clocks()
    times = measure(device, runs, options.seconds, options.least)
    return {**line, "times": times, "absent": absent, "instances": len(instances), "clocks": [before, clocks()],
            "launches": counts.get("launches"), "moved_bytes": counts.get("moved_bytes"), "least_bytes": counts.get("least_bytes"),
            "predicted_us": counts.get("predicted_us"), "device_bytes": program.device_bytes(), "taken_bytes": nbytes, **options.facts}


def find_peers(options, device, quick=False):
    if not hasattr(device, "torch"):
        return None
    from gpu_peers import Peers
    return Peers(device, options.work, quick)


def part_timed(options, device, results, until, part):
    peers = find_peers(options, device)
    wanted = [case for case in cases_of(options, part) if not results.has(part, case.name, options.facts)]
    build_ahead(options, wanted)
    done = []
    for number, case in enumerate(wanted):
        if time.monotonic() > until:
            print(f"no time for {len(wanted) - number} of {len(wanted)}: the same command takes them up")
            break
        try:
            line = time_case(options, device, peers, case)
        except Failed as why:
            line = {"part": part, "case": case.name, "failed": str(why), **options.facts}
        results.add(line)
        done.append(line)
        print(row_of(line), flush=True)
        device.forget()
    return any("failed" in line for line in done)


def build_all(options, programs):
    """By all cores, before anything is timed; what fails says so when it is its turn."""
    def build(program):
        try:
            program.build()
        except Failed:
            pass
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(build, programs))


def build_ahead(options, wanted):
    build_all(options, [program_of(options, case)[0] for case in wanted])


def part_build(options):
    quick = gpu_quick.cases(options, sys.modules[__name__])
    build_ahead(options, quick)
    print(f"quick: {len(quick)} programs in {options.work}")
    for part in TIMED:
        wanted = cases_of(options, part)
        build_ahead(options, wanted)
        print(f"{part}: {len(wanted)} programs in {options.work}")
    return 0


# ------------------------------------------------------------------------------------------ tables


def best_of(line):
    others = {name: time_["ms"] for name, time_ in line.get("times", {}).items() if name != "tgc"}
    name = min(others, key=others.get) if others else None
    return name, others.get(name)


def row_of(line):
    if "failed" in line:
        return f"| {line['case']} | failed: {line['failed'][:120]} | | | | | | |"
    ms, (name, best) = line["times"]["tgc"]["ms"], best_of(line)
    share = f"{best / ms:.2f}" if best else ""
    error = f"{line['error']:.0e}" if "error" in line else ""
    best = f"{best:.4g}, {name}" if best else "; ".join(f"{who}: {why}" for who, why in line["absent"].items())[:80]
    times_least = f"{line['moved_bytes'] / line['least_bytes']:.1f}" if line.get("least_bytes") else ""
    return (f"| {line['case']} | {ms:.4g} | {best} | {share} | {line['flop'] / ms / 1e9:.1f} | {line['nbytes'] / ms / 1e6:.0f} | "
            f"{line.get('launches') or ''}, {times_least} | {error} |")


HEAD = ("| case | tgc, ms | the best other one, ms | its time / tgc's | TFLOP/s | GB/s of the least | launches, bytes / the least | error |\n"
        "|---|---|---|---|---|---|---|---|")


def report(path):
    lines = Results(path).lines
    for part in ("quick", *TIMED):
        of_part = {(line["case"], line.get("device")): line for line in lines if line["part"] == part}      # the last one counts
        if not of_part:
            continue
        first = next(iter(of_part.values()))
        print(f"\n{part}: {first.get('device')}, clocks {json.dumps((first.get('clocks') or [None])[0])}\n\n{HEAD}")
        print("\n".join(row_of(line) for line in of_part.values()))
        if part == "models":
            for line in of_part.values():
                taken = ", ".join(f"{who} {count / 1e6:.0f}" for who, count in line.get("taken_bytes", {}).items())
                print(f"\n{line['case']}: MB of the device: {taken}" if taken else "")
        shares = [best_of(line)[1] / line["times"]["tgc"]["ms"] for line in of_part.values() if "times" in line and best_of(line)[1]]
        if shares:
            print(f"\ngeometric mean of the best other one's time / tgc's: {math.exp(sum(map(math.log, shares)) / len(shares)):.3f} of {len(shares)}")
    for part in ("check", "nodes"):
        checks = [line for line in lines if line["part"] == part]
        wrong = [line["case"] for line in checks if not line["right"]]
        if checks:
            print(f"\n{part}: {sum(line.get('count', 1) for line in checks) - len(wrong)} right, {len(wrong)} wrong{': ' if wrong else ''}{', '.join(wrong)}")
    return 0


# -------------------------------------------------------------------------------------------- main


def open_device():
    """PyTorch's, or the driver's own where there is none."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return DriverDevice()
    return TorchDevice()


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["quick", "check", "nodes", *TIMED, "copies", "init", "build", "sizes", "estimate"])
    parser.add_argument("--tgc", default=str(ROOT / "build" / "cli" / "tgc"))
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gpu", help="where programs are built and kept")
    parser.add_argument("--out", default="bench-gpu.jsonl", help="results are appended to it")
    parser.add_argument("--report", metavar="FILE", help="print tables of that file and end")
    parser.add_argument("--only", default="", help="a regular expression of cases' names")
    parser.add_argument("--dtypes", nargs="*", default=[], help="f32 f16 bf16 i8 f8, and with --math tf32")
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a contender, in a case")
    parser.add_argument("--least", type=int, default=1000, help="or so many runs")
    parser.add_argument("--every", type=int, default=1, help="check every n-th")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--small", action="store_true", help="tiny shapes: to try the script itself")
    parser.add_argument("--more", nargs="*", default=[], help="further options of tgc's, such as --cpu=sm_80,sm_90a")
    parser.add_argument("--models", nargs="*", default=[], help="of sizes and estimate: files, or models of bench/models.py")
    parser.add_argument("--rows", nargs="*", default=[], help="of estimate: sm_80 sm_89 sm_90a sm_120")
    parser.add_argument("--kernels", action="store_true", help="of estimate: a line for each kernel")
    return parser.parse_args(words)


def run_part(options, device=None):
    """0, or 1 if something is wrong."""
    until = time.monotonic() + 60 * options.minutes
    options.work = Path(options.work).resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    options.tgc = str(Path(options.tgc).resolve())
    find_nvrtc()
    if options.part == "build":
        return part_build(options)
    if options.part in ("sizes", "estimate"):
        return gpu_code.run_part(options)
    device = device or open_device()
    version = subprocess.run([options.tgc, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    options.facts = {**device.facts(), "tgc_version": f"{version} {hashlib.sha256(Path(options.tgc).read_bytes()).hexdigest()[:8]}", "when": time.strftime("%Y-%m-%d %H:%M")}
    results = Results(options.out)
    print(f"{options.facts['device']}, clocks {clocks()}\n", flush=True)
    if options.part in ("check", "nodes"):
        return {"check": part_check, "nodes": part_nodes}[options.part](options, device, results, until)
    if options.part == "copies":
        return gpu_copies.run_part(options, device, results)
    if options.part == "init":
        return gpu_code.time_init(options, device, results)
    print(HEAD, flush=True)
    if options.part == "quick":
        return gpu_quick.run_part(options, device, results, sys.modules[__name__])
    return part_timed(options, device, results, until, options.part)


def main():
    options = arguments()
    if options.report:
        return report(options.report)
    if not options.part:
        print("give --part or --report; --help lists the parts", file=sys.stderr)
        return 2
    try:
        return int(run_part(options))
    except Failed as why:
        print(f"bench/gpu.py: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
