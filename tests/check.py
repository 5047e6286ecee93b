"""Runs every test and ends with one line: `N passed, N failed` (`, N skipped`).

Two kinds of test are summed: the programs that Meson knows (cmocka's or TAP's output) and
the Python suites listed below (TAP). A program that ran no test counts as one failed test,
and so does one that stops before the end of its plan. Full logs: build/test-logs/.

--suites names the ones to run ("unit" is Meson's programs); --quick runs the rows of QUICK.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LANES = 2       # suites at a time

# name, program, seconds it may take (quick, all)
SUITES = [
    ("cli", "tests/cli/cli_test.py", 600, 1200),
    ("doors", "tests/cli/doors_test.py", 600, 600),
    ("cache", "tests/cli/cache_test.py", 300, 300),
    ("signals", "tests/cli/signals_test.py", 300, 600),
    ("pictures", "tests/cli/image_test.py", 300, 300),
    ("tune", "tests/cli/tune_test.py", 600, 600),
    ("python", "tests/python/python_test.py", 300, 300),
    ("arrays", "tests/python/device_arrays_test.py", 120, 120),
    ("wheel", "tests/python/wheel_test.py", 300, 2400),
    ("api", "tests/api/api_test.py", 300, 2400),
    ("library", "tests/ir/library_test.py", 600, 600),
    ("text", "tests/ir/text_test.py", 600, 1800),
    ("passes", "tests/ir/passes_test.py", 300, 600),
    ("opts", "tests/ir/opts_test.py", 120, 300),
    ("summary", "tests/ir/summary_test.py", 300, 300),
    ("rulegen", "tests/rules/rulegen_test.py", 60, 60),
    ("exec", "tests/exec/emitted_test.py", 600, 600),
    ("together", "tests/exec/together_test.py", 300, 300),
    ("winograd", "tests/exec/winograd_test.py", 300, 300),
    ("device-winograd", "tests/exec/device_winograd_test.py", 300, 1800),
    ("products", "tests/exec/products_test.py", 300, 300),
    ("influence", "tests/exec/influence_test.py", 300, 600),
    ("special", "tests/exec/special_test.py", 300, 300),
    ("weights", "tests/exec/weights_test.py", 300, 300),
    ("math", "tests/exec/math_test.py", 300, 300),
    ("constants", "tests/exec/constants_test.py", 300, 300),
    ("sequences", "tests/exec/sequences_test.py", 300, 300),
    ("zero", "tests/exec/zero_test.py", 300, 300),
    ("numbers", "tests/exec/numbers_test.py", 300, 300),
    ("dimensions", "tests/exec/dimensions_test.py", 120, 1800),
    ("vectors", "tests/exec/vectors_test.py", 300, 900),
    ("compilers", "tests/exec/compilers_test.py", 300, 900),
    ("integer", "tests/exec/integer_test.py", 300, 300),
    ("portable", "tests/exec/portable_test.py", 300, 3600),
    ("arena", "tests/exec/arena_test.py", 300, 300),
    ("bands", "tests/exec/bands_test.py", 300, 300),
    ("masks", "tests/exec/masks_test.py", 300, 1800),
    ("stack", "tests/exec/stack_test.py", 300, 7200),
    ("vision", "tests/exec/vision_test.py", 300, 300),
    ("gather", "tests/exec/gather_test.py", 300, 300),
    ("order", "tests/exec/order_test.py", 120, 120),
    ("state", "tests/exec/state_test.py", 300, 600),
    ("quantized", "tests/exec/quantized_test.py", 300, 300),
    ("amx", "tests/exec/amx_test.py", 300, 300),
    ("threads", "tests/exec/threads_test.py", 600, 600),
    ("builds", "tests/builds/builds_test.py", 300, 1800),
    ("audit", "tests/audit/audit_test.py", 120, 120),
    ("demo", "tests/demo/demo_test.py", 600, 600),
    ("guide", "tests/guide/guide_test.py", 300, 600),
    ("packaging", "tests/packaging/packaging_test.py", 120, 1800),
    ("schema", "tests/onnx/schema_test.py", 300, 300),
    ("defaults", "tests/onnx/defaults_test.py", 120, 300),
    ("damage", "tests/onnx/damage_test.py", 300, 900),
    ("lowering", "tests/onnx/lower_test.py", 600, 600),
    ("ml", "tests/onnx/ml_test.py", 600, 600),
    ("microsoft", "tests/onnx/microsoft_test.py", 600, 600),
    ("types", "tests/onnx/types_test.py", 600, 1800),
    ("images", "tests/onnx/image_test.py", 300, 300),
    ("gradient", "tests/onnx/gradient_test.py", 300, 300),
    ("custom", "tests/onnx/custom_test.py", 300, 600),
    ("regress", "tests/fuzz/regressions.py", 300, 300),
    ("fuzz", "tests/fuzz/random_graphs.py", 600, 7200),
    ("hosts", "tests/fuzz/hosts_test.py", 300, 600),
    ("operators", "tests/fuzz/operators_test.py", 300, 3600),
    ("mutants", "tests/fuzz/mutants.py", 300, 1800),
    ("targets", "tests/fuzz/targets_test.py", 300, 36000),
    ("onnx", "tests/onnx/node_test.py", 1200, 3600),
    ("opencl", "tests/onnx/opencl_test.py", 600, 3600),
    ("emulator", "tests/emulator/emulator_test.py", 300, 10800),
    ("cuda", "tests/onnx/cuda_test.py", 300, 3600),
    ("bulk", "tests/onnx/bulk_test.py", 300, 600),
    ("stores", "tests/onnx/stores_test.py", 120, 120),
    ("tickets", "tests/onnx/tickets_test.py", 120, 120),
    ("machine", "tests/onnx/machine_test.py", 300, 600),
    ("amd", "tests/onnx/amd_test.py", 300, 3600),
    ("metal", "tests/onnx/metal_test.py", 300, 3600),
    ("gpu_bench", "tests/exec/gpu_bench_test.py", 120, 1800),
    ("llvm", "tests/onnx/llvm_test.py", 600, 3600),
    ("clang", "tests/onnx/clang_test.py", 600, 3600),
    ("object", "tests/exec/object_test.py", 600, 3600),
    ("local", "tests/exec/local_test.py", 120, 120),
    ("grid", "tests/exec/grid_test.py", 200, 600),
    ("scatter", "tests/exec/scatter_test.py", 120, 600),
    ("sizes", "tests/exec/sizes_test.py", 120, 1800),
    ("device_cost", "tests/exec/device_cost_test.py", 120, 120),
    ("opencl_vectors", "tests/exec/opencl_vectors_test.py", 120, 120),
    ("device", "tests/exec/device_test.py", 120, 120),
    ("contract", "tests/exec/contract_test.py", 120, 1800),
    ("attention", "tests/exec/attention_test.py", 120, 1800),
    ("device_images", "tests/exec/images_test.py", 120, 1800),
    ("entries", "tests/exec/entries_test.py", 120, 120),
    ("openpilot", "tests/exec/openpilot_test.py", 300, 1800),
    ("models", "tests/models/models_test.py", 1800, 10800),
]
# Those whose quick form takes most of a processor's time (--times), the longest first, whatever their limits are.
LONG = ("onnx", "models", "opencl", "cuda", "amd", "cli", "emulator", "bulk", "arena", "llvm", "vision", "metal", "integer", "exec", "vectors", "mutants",
        "threads", "stack", "quantized", "tune", "builds", "audit", "damage")

# The inner loop, at most a minute on two cores: a suite, and which of its cases.
THREE_MODELS = "^(digits|mnist_cnn|transformer_block)"
QUICK = [
    ("unit", ["--no-suite", "slow"]),
    ("passes", ["--part", "1/4"]),
    ("text", []),
    ("opts", ["--part", "1/4"]),
    ("library", ["--part", "1/5"]),
    ("rulegen", []),
    ("models", ["--filter", THREE_MODELS + r"\.tg gcc"]),
    ("llvm", ["--filter", THREE_MODELS + "$"]),
    ("opencl", ["--filter", THREE_MODELS + r"\.tg, "]),
]


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add(self, passed, failed, skipped):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped


def read_tap(suite, text, status):
    """Counts TAP's results; what the plan promised and did not come is a failure."""
    passed, failed, skipped, plan, seen = 0, [], [], None, 0
    for line in text.splitlines():
        promise = re.match(r"1\.\.(\d+)", line)
        if promise:
            plan = int(promise.group(1))
        result = re.match(r"(not )?ok \d*(?: - )?\s*(.*)", line)
        if not result:
            continue
        seen += 1
        name, _, reason = result.group(2).partition(" # SKIP")
        if result.group(1):
            failed.append(f"{suite}: {name}")
        elif " # SKIP" in result.group(2):
            skipped.append(f"{suite}: {name}: {reason.strip()}")
        else:
            passed += 1
    if seen == 0:
        failed.append(f"{suite}: ran no test (exit status {status})")
    elif plan is None or seen != plan:
        failed.append(f"{suite}: stopped after {seen} tests of {plan} (exit status {status})")
    elif status != 0 and not failed:
        failed.append(f"{suite}: exit status {status}")
    return passed, failed, skipped


def read_cmocka(suite, text, status):
    """Counts cmocka's results, of every group that the program ran.

    The counts come from the lines at a group's end; a name stands twice, when the test runs
    and in the list at the end, so names are only for the reader."""
    run = sum(int(n) for n in re.findall(r"\[=+\] (?:.*: )?(\d+) test\(s\) run", text))
    counts = {kind: sum(int(n) for n in re.findall(rf"\[  {kind} +\] (\d+) test\(s\)", text))
              for kind in ("PASSED", "FAILED", "SKIPPED")}

    def named(kind):
        names = re.findall(rf"\[  {kind} +\] (?!\d+ test\(s\))(\S.*)", text)
        names = sorted(dict.fromkeys(names)) + ["(unnamed)"] * counts[kind]
        return [f"{suite}: {name}" for name in names[:counts[kind]]]

    failed = named("FAILED")
    skipped = [f"{name}: skipped by the program" for name in named("SKIPPED")]
    if run == 0:
        failed.append(f"{suite}: ran no test (exit status {status})")
    elif counts["PASSED"] + len(failed) + len(skipped) != run or (status != 0 and not failed):
        failed.append(f"{suite}: exit status {status} after {run} tests")
    return counts["PASSED"], failed, skipped


def read_output(suite, text, status):
    if re.search(r"^(not )?ok\b|^1\.\.\d+", text, re.M):
        return read_tap(suite, text, status)
    return read_cmocka(suite, text, status)


def excerpt(text, limit=60):
    return "".join(f"    {line}\n" for line in text.strip().splitlines()[-limit:])


def run_meson_tests(arguments, options, build):
    """Returns the totals of Meson's programs, and what is to be printed of them."""
    start = time.monotonic()
    totals, shown = Totals(), []
    command = ["meson", "test", "-C", str(build), "--no-rebuild", "--num-processes", str(jobs_of_lane(options)), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, **({"TGC_CASES": "all"} if options.all else {})})
    log = build / "meson-logs" / "testlog.json"
    count = 0
    if log.exists():
        for line in log.read_text().splitlines():
            test = json.loads(line)
            text = (test.get("stdout") or "") + (test.get("stderr") or "")
            result = read_output(test["name"], text, test.get("returncode"))
            if test.get("result") == "TIMEOUT":
                result[1].append(f"{test['name']}: took longer than its time limit")
            totals.add(*result)
            count += 1
            if result[1]:
                shown.append(f"FAILED {test['name']}\n{excerpt(text)}")
    if count == 0:
        totals.failed.append("meson test: ran no test program")
        shown.append(excerpt(done.stdout))
    return totals, "".join(shown) + report("unit", totals, start)


def jobs_of_lane(options):
    return max(options.jobs // LANES, 1)


def run_suite(name, program, limit, arguments, options, build):
    """Returns the totals of one suite, and what is to be printed of it."""
    start = time.monotonic()
    totals, shown = Totals(), []
    if not (ROOT / program).exists():
        totals.failed.append(f"{name}: {program} is missing")
        return totals, report(name, totals, start)
    command = [sys.executable, str(ROOT / program), "--jobs", str(jobs_of_lane(options)),
               "--build", str(build)] + (["--all"] if options.all else []) + arguments
    logs = build / "test-logs"
    logs.mkdir(exist_ok=True)
    try:
        with open(logs / f"{name}.log", "w") as log:
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT,
                                    timeout=limit).returncode
    except subprocess.TimeoutExpired:
        status = f"none: it took longer than {limit} s"
    text = (logs / f"{name}.log").read_text(errors="replace")
    totals.add(*read_tap(name, text, status))
    if totals.failed:
        failing = [block for block in re.findall(r"^not ok .*\n(?:#.*\n)*", text, re.M)]
        shown = [excerpt(block) for block in failing[:40]] or [excerpt(text, 20)]
    return totals, "".join(shown) + report(name, totals, start)


def chosen_suites(options):
    """Names and arguments of the suites that the command line asks for."""
    known = ["unit"] + [row[0] for row in SUITES]
    if options.suites is None:
        return dict(QUICK) if options.quick else {name: [] for name in known}
    names = options.suites.replace(",", " ").split()
    strangers = [name for name in names if name not in known]
    if strangers or not names:
        sys.exit(f"check.py: no suite {' '.join(strangers) or 'is named'}; there are: {' '.join(known)}")
    return {name: [] for name in names}


def run_all(options, build, totals):
    """Side by side, the long ones first, so that no lane ends much later than the other."""
    chosen = chosen_suites(options)
    jobs = [(name, program, full if options.all else quick) for name, program, quick, full in SUITES if name in chosen]
    jobs.sort(key=lambda job: (LONG.index(job[0]) if job[0] in LONG else len(LONG), -job[2]))
    with ThreadPoolExecutor(min(LANES, options.jobs)) as lanes:
        running = [lanes.submit(run_meson_tests, chosen["unit"], options, build)] if "unit" in chosen else []
        running += [lanes.submit(run_suite, *job, chosen[job[0]], options, build) for job in jobs]
        for done in as_completed(running):
            of_suite, text = done.result()
            totals.add(of_suite.passed, of_suite.failed, of_suite.skipped)
            print(text, end="", flush=True)


def report(name, totals, start):
    failed = len(totals.failed)
    verdict = "ok" if failed == 0 else f"{failed} FAILED"
    return f"{name:10s} {time.monotonic() - start:7.1f} s   {verdict}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="the long forms, too")
    parser.add_argument("--quick", action="store_true", help="a minute's choice")
    parser.add_argument("--suites", help="names, by spaces or commas")
    options = parser.parse_args()
    build = Path(options.build).resolve()
    totals = Totals()
    run_all(options, build, totals)
    if totals.failed:
        print("\nfailed:")
        for line in totals.failed:
            print("  " + line)
    if totals.skipped:
        print("\nskipped:")
        for line in totals.skipped:
            print("  " + line)
    summary = f"{totals.passed} passed, {len(totals.failed)} failed"
    if totals.skipped:
        summary += f", {len(totals.skipped)} skipped"
    (build / "check-summary.txt").write_text(summary + "\n")
    print(summary, flush=True)
    sys.exit(1 if totals.failed else 0)


if __name__ == "__main__":
    main()
