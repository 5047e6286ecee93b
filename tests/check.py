"""Runs every test and ends with one line: `N passed, N failed` (`, N skipped`).

Two kinds of test are summed: the programs that Meson knows (cmocka's or TAP's output) and
the Python suites listed below (TAP). A program that ran no test counts as one failed test,
and so does one that stops before the end of its plan. Full logs: build/test-logs/.

--suites names the ones to run ("unit" is Meson's programs); --quick runs the rows of QUICK, --since REVISION what of
them and of the others a change since then can affect (since.py).

Beside each suite's time stands what it took of a processor, its children included, which does not depend on what else
the machine does; the table below has it, too, so that the longest suites begin first.
"""

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import since

ROOT = Path(__file__).resolve().parents[1]
LANES = 2       # suites at a time

# name, program, seconds it may take (quick, all), seconds that its quick form takes of a processor, the parts of the tree
# that it exercises more than others do: beginnings of paths, by which since.py chooses
SUITES = [
    ("cli", "tests/cli/cli_test.py", 600, 1200, 63, "cli/ lib/"),
    ("doors", "tests/cli/doors_test.py", 600, 600, 22, "cli/ lib/options.c lib/option_ lib/environment.c lib/options.def"),
    ("cache", "tests/cli/cache_test.py", 300, 300, 16,
     "lib/cache lib/kept. lib/identity.c lib/digest. lib/instance.c cli/cmd_cache.c backends/llvm/fatal.c"),
    ("signals", "tests/cli/signals_test.py", 300, 600, 2,
     "cli/unfinished.c cli/main.c lib/output.c lib/listen.c backends/process.c backends/child.c"),
    ("pictures", "tests/cli/image_test.py", 300, 300, 3, "lib/image.c lib/feed.c lib/npy.c"),
    ("report", "tests/report/report_test.py", 300, 300, 16, "lib/report/ passes/dump.c backends/dump.c cli/cmd_report.c cli/cmd_bench.c lib/why"),
    ("loader", "tests/loader/loader_test.py", 300, 600, 16, "runtime/loader/ runtime/host/image.c runtime/embed.c"),
    ("tune", "tests/cli/tune_test.py", 600, 600, 43,
     "cli/cmd_tune.c cli/tuner.h cli/times.c cli/round.c lib/why.c passes/kernel/tune_ passes/kernel/choose_tile.c passes/target/tune"),
    ("python", "tests/python/python_test.py", 300, 300, 29, "python/ lib/ scripts/backend.py"),
    ("arrays", "tests/python/device_arrays_test.py", 120, 120, 5, "python/ runtime/cuda.c runtime/amd.c runtime/graphs.c"),
    ("wheel", "tests/python/wheel_test.py", 300, 2400, 5, "python/ scripts/wheel.py pyproject.toml"),
    ("api", "tests/api/api_test.py", 300, 2400, 26, "lib/ backends/child.c backends/process.c ir/base.c integration/tgc.pc.in"),
    ("library", "tests/ir/library_test.py", 600, 600, 2, "frontend/library ir/eval"),
    ("text", "tests/ir/text_test.py", 600, 1800, 8, "frontend/text/ frontend/confine frontend/expose ir/print ir/verify tests/ir/golden/ models/"),
    ("passes", "tests/ir/passes_test.py", 300, 600, 47, "passes/ ir/verify_ ir/print_kernel.c ir/eval_ tests/ir/golden/passes/"),
    ("opts", "tests/ir/opts_test.py", 120, 300, 31, "passes/kernel/ passes/opts tests/ir/golden/opts/"),
    ("summary", "tests/ir/summary_test.py", 300, 300, 15, "passes/plan/ passes/kernel/ passes/target/ passes/analysis/ tests/ir/golden/summaries/"),
    ("rulegen", "tests/rules/rulegen_test.py", 60, 60, 1, "passes/rules/ tests/rules/"),
    ("exec", "tests/exec/emitted_test.py", 600, 600, 36, "backends/c/ backends/cstyle/ backends/program/ runtime/"),
    ("together", "tests/exec/together_test.py", 300, 300, 4, "backends/program/"),
    ("winograd", "tests/exec/winograd_test.py", 300, 300, 14, "passes/graph/conv/ passes/analysis/error"),
    ("device-winograd", "tests/exec/device_winograd_test.py", 300, 1800, 5, "passes/kernel/grid_winograd.c passes/graph/conv/"),
    ("limit", "tests/exec/limit_test.py", 300, 3600, 22, "passes/driver.c passes/passes.def ir/limit.c cli/bisect.c"),
    ("bisect", "tests/exec/bisect_test.py", 300, 3600, 8, "cli/bisect.c ir/limit.c passes/driver.c tests/mutate.py"),
    ("products", "tests/exec/products_test.py", 300, 300, 18, "passes/graph/matmul/ passes/analysis/error"),
    ("influence", "tests/exec/influence_test.py", 300, 600, 6, "passes/graph/conv/ passes/graph/matmul/ passes/analysis/samples"),
    ("special", "tests/exec/special_test.py", 300, 300, 3,
     "runtime/math.c runtime/number.c runtime/vector_math.c frontend/library_nn.c docs/numbers.md"),
    ("weights", "tests/exec/weights_test.py", 300, 300, 4,
     "passes/graph/narrow_weights.c backends/program/weights.c backends/program/buffers.c runtime/incbin.c"),
    ("math", "tests/exec/math_test.py", 300, 300, 17,
     "runtime/number.c runtime/cuda_narrow.c passes/graph/round_factors.c backends/cstyle/convert.c"),
    ("constants", "tests/exec/constants_test.py", 300, 300, 3,
     "passes/graph/fold_constants.c passes/graph/constant_axes.c backends/program/weights.c"),
    ("sequences", "tests/exec/sequences_test.py", 300, 300, 7, "frontend/onnx/lower_sequence.c frontend/onnx/lower_index.c passes/graph/onehot.c"),
    ("readable", "tests/exec/readable_test.py", 300, 1200, 12, "backends/cstyle/ backends/program/nodes.c backends/c/ passes/plan/emit_steps.c"),
    ("header", "tests/exec/header_test.py", 300, 1800, 14, "backends/program/header.c backends/program/example.c backends/program/naming.c"),
    ("zero", "tests/exec/zero_test.py", 300, 300, 5, "backends/program/sizes.c frontend/library_index.c"),
    ("numbers", "tests/exec/numbers_test.py", 300, 300, 11, "runtime/number.c runtime/math.c ir/dtype backends/cstyle/convert.c docs/ulp.md"),
    ("open", "tests/exec/open_test.py", 300, 1800, 12, "passes/plan/layout.c passes/plan/band passes/graph/conv/ passes/kernel/choose_tile.c passes/kernel/tile_nest.c tests/models/open_sizes.py"),
    ("dimensions", "tests/exec/dimensions_test.py", 120, 1800, 5, "ir/symbolic.c ir/derive.c backends/program/sizes.c frontend/onnx/known.c"),
    ("vectors", "tests/exec/vectors_test.py", 300, 900, 25, "runtime/vector_ runtime/math.c runtime/number.c"),
    ("compilers", "tests/exec/compilers_test.py", 300, 900, 16, "backends/cstyle/ runtime/vector_ runtime/math.c"),
    ("integer", "tests/exec/integer_test.py", 300, 300, 28,
     "passes/graph/quant/ passes/vector/regroup_bytes.c passes/vector/byte_lookup.c passes/kernel/group_bytes.c runtime/vector_ passes/target/isa"),
    ("portable", "tests/exec/portable_test.py", 300, 3600, 26, "runtime/number.c runtime/math.c runtime/fit.c lib/fit.c"),
    ("everywhere", "tests/exec/everywhere_test.py", 300, 3600, 18,
     "runtime/threads.c runtime/incbin.c runtime/main.c backends/program/weights.c"),
    ("web", "tests/exec/web_test.py", 300, 900, 20, "runtime/web.mjs runtime/vector_simd128.c backends/program/web.c backends/clang/ examples/web/"),
    ("arena", "tests/exec/arena_test.py", 300, 300, 18, "passes/place/"),
    ("bands", "tests/exec/bands_test.py", 300, 300, 18, "passes/plan/band"),
    ("masks", "tests/exec/masks_test.py", 300, 1800, 11, "passes/kernel/online passes/kernel/mask_bounds.c passes/graph/mask_tables"),
    ("stack", "tests/exec/stack_test.py", 300, 7200, 46, "passes/place/stack passes/kernel/decide_stacks.c passes/kernel/stage_places.c"),
    ("vision", "tests/exec/vision_test.py", 300, 300, 16, "passes/vector/ frontend/library_window frontend/library_resize.c passes/plan/store_"),
    ("gather", "tests/exec/gather_test.py", 300, 300, 14,
     "passes/vector/gather passes/kernel/gather_rows.c passes/kernel/order_gathers.c passes/analysis/gathers passes/graph/copy_gathered.c"),
    ("order", "tests/exec/order_test.py", 120, 120, 5, "passes/vector/transpose_store.c passes/kernel/choose_tile.c passes/plan/layout.c"),
    ("state", "tests/exec/state_test.py", 300, 600, 33, "passes/graph/state backends/program/state.c backends/llvm/state.c"),
    ("quantized", "tests/exec/quantized_test.py", 300, 300, 11,
     "passes/graph/quant/ frontend/onnx/lower_quantize.c frontend/onnx/lower_microsoft_quantize.c"),
    ("amx", "tests/exec/amx_test.py", 300, 300, 25,
     "runtime/vector_amx.c backends/cstyle/tiles.c backends/cstyle/tile_registers.c backends/llvm/tiles.c passes/vector/tiles.c"),
    ("threads", "tests/exec/threads_test.py", 600, 600, 62,
     "runtime/threads.c passes/kernel/thread.c backends/llvm/threads.c backends/llvm/parallel.c backends/llvm/team backends/llvm/pool.c"),
    ("builds", "tests/builds/builds_test.py", 300, 1800, 24, "integration/ examples/ scripts/installed.py CMakeLists.txt"),
    ("audit", "tests/audit/audit_test.py", 120, 120, 27, "bench/audit.py passes/kernel/tile passes/vector/ passes/target/"),
    ("demo", "tests/demo/demo_test.py", 600, 600, 14, "models/demo/ scripts/setup.sh scripts/installed.py"),
    ("guide", "tests/guide/guide_test.py", 300, 600, 30, "docs/ README.md CONTRIBUTING.md cli/help.c cli/message.c"),
    ("documents", "tests/guide/documents_test.py", 60, 60, 2, "docs/ README.md CONTRIBUTING.md SECURITY.md passes/passes.def passes/opts.def lib/options.def cli/tiers.def cli/help.c scripts/sbom.py bench/tables.py bench/results/"),
    ("adding", "tests/guide/adding_test.py", 300, 3600, 15, "docs/adding-a-pass.md docs/adding-an-operator.md passes/passes.def frontend/onnx/operators.def scripts/schemas.py"),
    ("packaging", "tests/packaging/packaging_test.py", 120, 1800, 2, "packaging/ debian/ scripts/ LICENSE"),
    ("format", "tests/format_test.py", 60, 60, 1, ".clang-format"),
    ("check", "tests/check_test.py", 120, 120, 4, "CONTRIBUTING.md tests/since.py"),
    ("schema", "tests/onnx/schema_test.py", 300, 300, 5, "frontend/onnx/schema frontend/onnx/check.c"),
    ("defaults", "tests/onnx/defaults_test.py", 120, 300, 10, "frontend/onnx/"),
    ("damage", "tests/onnx/damage_test.py", 300, 900, 18, "frontend/onnx/"),
    ("lowering", "tests/onnx/lower_test.py", 600, 600, 23, "frontend/onnx/"),
    ("ml", "tests/onnx/ml_test.py", 600, 600, 11,
     "frontend/onnx/ml.h frontend/onnx/lower_ml.c frontend/onnx/lower_tree.c frontend/onnx/lower_svm.c frontend/onnx/lower_string.c "
     "frontend/onnx/regex runtime/host/"),
    ("microsoft", "tests/onnx/microsoft_test.py", 600, 600, 15, "frontend/onnx/lower_microsoft frontend/onnx/microsoft.h"),
    ("types", "tests/onnx/types_test.py", 600, 1800, 22, "frontend/onnx/operators frontend/onnx/schema frontend/onnx/lower_"),
    ("images", "tests/onnx/image_test.py", 300, 300, 4, "frontend/onnx/lower_sample.c runtime/host/"),
    ("train", "tests/train/train_test.py", 300, 600, 20, "frontend/train/ lib/train lib/option_training.c cli/cmd_train.c runtime/loader/"),
    ("ranks", "tests/train/ranks_test.py", 400, 2400, 30, "frontend/train/ lib/train runtime/ranks/ runtime/train_main.c backends/program/training_ranks.c"),
    ("parity", "tests/train/parity_test.py", 300, 3600, 10, "frontend/train/ lib/train frontend/gradient frontend/library_rnn.c frontend/library_norm.c"),
    ("gradient", "tests/onnx/gradient_test.py", 600, 600, 8, "frontend/onnx/lower_gradient.c frontend/library_gradient.c frontend/gradient"),
    ("gradient-points", "tests/onnx/gradient_points_test.py", 300, 300, 2, "frontend/onnx/lower_gradient.c frontend/library_gradient.c frontend/gradient"),
    ("train-c", "tests/train/train_c_test.py", 300, 600, 40, "frontend/train/ lib/train_emit.c lib/trained.c backends/program/ runtime/train.c runtime/loader/"),
    ("train-targets", "tests/train/train_targets_test.py", 600, 600, 40, "frontend/train/ lib/train_emit.c backends/llvm/ backends/program/ runtime/train.c"),
    ("train-devices", "tests/train/train_devices_test.py", 600, 3600, 90, "frontend/train/ lib/train_emit.c backends/device/ backends/program/training.c runtime/device.c runtime/train.c"),
    ("written", "tests/onnx/written_test.py", 600, 1800, 33, "frontend/onnx/save.c frontend/onnx/replace.c frontend/onnx/write lib/trained.c tests/fuzz/written.py"),
    ("gradient-loops", "tests/onnx/gradient_loops_test.py", 600, 600, 10, "frontend/onnx/lower_gradient.c frontend/library_gradient.c frontend/gradient"),
    ("gradient-operators", "tests/onnx/gradient_operators_test.py", 300, 300, 20,
     "frontend/onnx/lower_ frontend/library frontend/gradient frontend/onnx/gradients.def"),
    ("gradient-graphs", "tests/fuzz/gradient_graphs.py", 300, 2400, 11,
     "frontend/library_gradient.c frontend/gradient frontend/library tests/fuzz/gradient_reference.py"),
    ("custom", "tests/onnx/custom_test.py", 300, 600, 12,
     "frontend/onnx/lower_custom.c frontend/text/custom.c frontend/text/expand.c frontend/text/call.c backends/program/external.c "
     "backends/llvm/external.c"),
    ("regress", "tests/fuzz/regressions.py", 300, 300, 7, "frontend/ passes/graph/ passes/plan/"),
    ("fuzz", "tests/fuzz/random_graphs.py", 600, 7200, 24, "passes/graph/ passes/plan/ passes/vector/ passes/rules/"),
    ("hosts", "tests/fuzz/hosts_test.py", 300, 600, 4, "runtime/host/ ir/host.def ir/eval_host.c"),
    ("operators", "tests/fuzz/operators_test.py", 300, 3600, 2, "frontend/onnx/lower_ frontend/library"),
    ("mutants", "tests/fuzz/mutants.py", 300, 1800, 5, "frontend/onnx/ frontend/text/ lib/npy.c lib/image.c"),
    ("targets", "tests/fuzz/targets_test.py", 300, 36000, 3, "backends/"),
    ("onnx", "tests/onnx/node_test.py", 1200, 3600, 85, "frontend/onnx/ frontend/library docs/onnx-support.md"),
    ("opencl", "tests/onnx/opencl_test.py", 600, 3600, 49,
     "backends/opencl/ backends/device/ runtime/opencl runtime/device.c runtime/vector_opencl.c"),
    ("emulator", "tests/emulator/emulator_test.py", 300, 10800, 48,
     "tests/emulator/ backends/opencl/ backends/device/ runtime/opencl runtime/device.c"),
    ("cuda", "tests/onnx/cuda_test.py", 300, 3600, 79,
     "backends/cuda/ backends/device/ backends/llvm/gpu runtime/cuda runtime/graphs.c runtime/device.c tests/emulator/cuda/"),
    ("bulk", "tests/onnx/bulk_test.py", 300, 600, 34,
     "backends/cuda/ backends/cstyle/bulk.c runtime/cuda_bulk.c ir/bulk.c passes/vector/pipeline_bulk.c passes/kernel/opts_warp_specialize.c "
     "passes/kernel/opts_pipeline.c passes/kernel/opts_cluster.c tests/emulator/bulk.c"),
    ("stores", "tests/onnx/stores_test.py", 120, 120, 17,
     "passes/kernel/opts_epilogue.c passes/kernel/opts_bulk_epilogue.c passes/kernel/opts_store.c passes/kernel/grid_epilogue.c passes/vector/bulk_epilogue.c"),
    ("tickets", "tests/onnx/tickets_test.py", 120, 120, 27, "passes/kernel/opts_epilogue.c passes/kernel/split_ runtime/cuda_ticket.c"),
    ("machine", "tests/onnx/machine_test.py", 300, 600, 6, "runtime/cuda backends/cuda/ passes/kernel/grid_matrix passes/vector/pipeline"),
    ("amd", "tests/onnx/amd_test.py", 300, 3600, 65,
     "backends/amd/ backends/device/ backends/llvm/gpu runtime/amd runtime/graphs.c runtime/device.c tests/emulator/"),
    ("metal", "tests/onnx/metal_test.py", 300, 3600, 25, "backends/metal/ backends/device/ runtime/metal runtime/device.c tests/emulator/"),
    ("gpu_bench", "tests/exec/gpu_bench_test.py", 120, 1800, 22, "bench/"),
    ("llvm", "tests/onnx/llvm_test.py", 600, 3600, 27, "backends/llvm/ runtime/"),
    ("clang", "tests/onnx/clang_test.py", 600, 3600, 24, "backends/clang/ backends/child.c"),
    ("object", "tests/exec/object_test.py", 600, 3600, 45, "backends/llvm/ passes/target/processor"),
    ("local", "tests/exec/local_test.py", 120, 120, 12, "passes/kernel/opts_local.c passes/kernel/opts_device.c"),
    ("grid", "tests/exec/grid_test.py", 200, 600, 22, "passes/kernel/grid passes/kernel/opts_ passes/target/devices.def"),
    ("scatter", "tests/exec/scatter_test.py", 120, 600, 10, "passes/plan/order_updates.c"),
    ("sizes", "tests/exec/sizes_test.py", 120, 1800, 4, "passes/kernel/grid passes/target/devices.def"),
    ("compared", "tests/exec/compared_test.py", 300, 300, 5,
     "lib/why_device.c passes/target/compared.c passes/program_use.c passes/kernel/grid passes/target/schedules.def"),
    ("device_cost", "tests/exec/device_cost_test.py", 120, 120, 10,
     "passes/target/cost passes/target/device passes/analysis/device_cost.c passes/kernel/grid_matrix_cost.c"),
    ("opencl_vectors", "tests/exec/opencl_vectors_test.py", 120, 120, 10, "runtime/vector_opencl.c runtime/vector_lanes.c"),
    ("device", "tests/exec/device_test.py", 120, 120, 10, "backends/device/ backends/opencl/ runtime/opencl.c runtime/device.c"),
    ("expect", "tests/exec/expect_test.py", 120, 120, 40, "runtime/device.c backends/device/ backends/program/state.c frontend/onnx/runtime.c"),
    ("contract", "tests/exec/contract_test.py", 120, 1800, 10, "backends/cstyle/exprs runtime/cuda.c runtime/math.c backends/llvm/gpu_ops.c"),
    ("attention", "tests/exec/attention_test.py", 120, 1800, 10,
     "passes/kernel/grid_attention passes/kernel/online passes/kernel/split_keys.c passes/kernel/pack_keys.c"),
    ("device_images", "tests/exec/images_test.py", 120, 1800, 10,
     "backends/opencl/images.c runtime/opencl_image.c passes/vector/images.c passes/kernel/half_storage.c"),
    ("entries", "tests/exec/entries_test.py", 120, 120, 10,
     "frontend/text/entry.c frontend/text/slice.c backends/program/entries.c backends/program/slices.c backends/llvm/entries.c "
     "passes/plan/entry_steps.c"),
    ("block-rows", "tests/exec/block_rows_test.py", 300, 1800, 30, "passes/graph/block_rows"),
    ("derivatives", "tests/exec/derivatives_test.py", 300, 300, 15,
     "frontend/gradient_outputs.c frontend/text/gradient.c frontend/library_gradient.c"),
    ("openpilot", "tests/exec/openpilot_test.py", 300, 1800, 27, "examples/openpilot/ frontend/text/entry.c backends/program/entries.c"),
    ("models", "tests/models/models_test.py", 1800, 10800, 105, "models/"),
]
# The inner loop, at most a minute on two cores: a suite, which of its cases, and the parts of the tree that those exercise.
THREE_MODELS = "^(digits|mnist_cnn|transformer_block)"
QUICK = [
    ("unit", ["--no-suite", "slow"], ""),
    ("passes", ["--part", "1/4"], "ir/ passes/"),
    ("text", [], "ir/ frontend/text/ frontend/library models/"),
    ("opts", ["--part", "1/4"], "ir/ passes/"),
    ("library", ["--part", "1/5"], "ir/ frontend/library passes/graph/ passes/rules/"),
    ("rulegen", [], "passes/rules/"),
    ("format", [], ""),
    ("models", ["--filter", THREE_MODELS + r"\.tg gcc"], "ir/ frontend/ passes/ backends/c/ backends/cstyle/ backends/program/ runtime/"),
    ("llvm", ["--filter", THREE_MODELS + "$"], "ir/ frontend/ passes/ backends/llvm/ runtime/"),
    ("opencl", ["--filter", THREE_MODELS + r"\.tg, "], "ir/ frontend/ passes/ backends/cstyle/ backends/device/ backends/opencl/ runtime/"),
]
SINCE_SECONDS = 60      # of a processor, which suites may take that --since chooses beyond QUICK's: of their cases every N-th runs


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


def log_of(build, name):
    (build / "test-logs").mkdir(exist_ok=True)
    return build / "test-logs" / f"{name}.log"


def run_counted(command, log, limit=None, **more):
    """Exit status and seconds of a processor, those of all processes that it has waited for included. None: it took longer than the limit."""
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **more)
        late = threading.Timer(limit or threading.TIMEOUT_MAX, process.kill)
        late.start()
        _, status, usage = os.wait4(process.pid, 0)
        in_time = late.is_alive()
        late.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode if in_time else None, usage.ru_utime + usage.ru_stime


def run_meson_tests(arguments, options, build):
    """Returns the totals of Meson's programs, and what is to be printed of them."""
    start = time.monotonic()
    totals, shown = Totals(), []
    command = ["meson", "test", "-C", str(build), "--no-rebuild", "--num-processes", str(jobs_of_lane(options)), *arguments]
    said = log_of(build, "unit")
    _, worked = run_counted(command, said, env={**os.environ, **({"TGC_CASES": "all"} if options.all else {})})
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
        shown.append(excerpt(said.read_text(errors="replace")))
    return totals, "".join(shown) + report("unit", totals, start, worked)


def jobs_of_lane(options):
    return max(options.jobs // LANES, 1)


def run_suite(name, program, limit, arguments, options, build):
    """Returns the totals of one suite, and what is to be printed of it."""
    start = time.monotonic()
    totals, shown = Totals(), []
    if not (ROOT / program).exists():
        totals.failed.append(f"{name}: {program} is missing")
        return totals, report(name, totals, start, 0)
    command = [sys.executable, str(ROOT / program), "--jobs", str(jobs_of_lane(options)),
               "--build", str(build)] + (["--all"] if options.all else []) + arguments
    log = log_of(build, name)
    status, worked = run_counted(command, log, limit)
    if status is None:
        status = f"none: it took longer than {limit} s"
    text = log.read_text(errors="replace")
    totals.add(*read_tap(name, text, status))
    if totals.failed:
        failing = [block for block in re.findall(r"^not ok .*\n(?:#.*\n)*", text, re.M)]
        shown = [excerpt(block) for block in failing[:40]] or [excerpt(text, 20)]
    return totals, "".join(shown) + report(name, totals, start, worked)


def chosen_suites(options, build):
    """Names and arguments of the suites that the command line asks for."""
    known = ["unit"] + [row[0] for row in SUITES]
    if options.since:
        return suites_since(since.changed_files(options.since), build)
    if options.suites is None:
        return {name: arguments for name, arguments, _ in QUICK} if options.quick else {name: [] for name in known}
    names = options.suites.replace(",", " ").split()
    strangers = [name for name in names if name not in known]
    if strangers or not names:
        sys.exit(f"check.py: no suite {' '.join(strangers) or 'is named'}; there are: {' '.join(known)}")
    return {name: [] for name in names}


@functools.cache
def choice_of(build):
    return since.Choice({name: (program, parts.split()) for name, program, *_, parts in SUITES},
                        {name: parts.split() for name, _, parts in QUICK}, since.Build(build))


def suites_since(files, build):
    """What of QUICK the changed files can affect, all of it if one of them can affect anything; and of the suites that exercise
    them most as large a part as SINCE_SECONDS allows, but those whose program has changed as they are."""
    choice = choice_of(build)
    found, quick, tests, unknown = choice.of(files)
    if unknown:
        print(f"whatever is quick, for {' '.join(unknown[:4])}{' ...' if unknown[4:] else ''}", flush=True)
    slow = since.slow_tests(build)
    chosen = {name: arguments for name, arguments, parts in QUICK if unknown or name in quick}
    seconds = {name: worked for name, *_, worked, _ in SUITES}
    parts = -(-sum(seconds[name] for name in found) // SINCE_SECONDS)
    changed = {name for name, program, *_ in SUITES if program in files}
    chosen.update({name: ["--part", f"1/{parts}"] if parts > 1 and name not in changed else [] for name in found})
    chosen.setdefault("format", [])
    if tests - slow and not unknown:
        chosen["unit"] = sorted(tests - slow)
    return chosen


def run_all(options, build, totals):
    """Side by side, the long ones first, so that no lane ends much later than the other."""
    chosen = chosen_suites(options, build)
    jobs = [(name, program, full if options.all else quick) for name, program, quick, full, *_ in SUITES if name in chosen]
    worked = {name: full if options.all else seconds for name, _, _, full, seconds, _ in SUITES}
    jobs.sort(key=lambda job: -worked[job[0]])
    with ThreadPoolExecutor(min(LANES, options.jobs)) as lanes:
        running = [lanes.submit(run_meson_tests, chosen["unit"], options, build)] if "unit" in chosen else []
        running += [lanes.submit(run_suite, *job, chosen[job[0]], options, build) for job in jobs]
        for done in as_completed(running):
            of_suite, text = done.result()
            totals.add(of_suite.passed, of_suite.failed, of_suite.skipped)
            print(text, end="", flush=True)


def report(name, totals, start, worked):
    failed = len(totals.failed)
    verdict = "ok" if failed == 0 else f"{failed} FAILED"
    return f"{name:15s} {time.monotonic() - start:7.1f} s {worked:7.1f} s of a processor   {verdict}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="the long forms, too")
    parser.add_argument("--quick", action="store_true", help="a minute's choice")
    parser.add_argument("--suites", help="names, by spaces or commas")
    parser.add_argument("--since", metavar="REVISION", help="with --quick, what files can affect that differ from it")
    options = parser.parse_args()
    build = Path(options.build).resolve()
    os.environ.setdefault("OMP_NUM_THREADS", "1")      # of libraries, of which another one would spin beside the other lane
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
