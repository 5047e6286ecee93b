"""What states save: a step of GPT-2 behind many tokens, and an LSTM's, whose caches and states the
caller hands over, against those that stay in the arena (--state), and against ONNX Runtime with its
inputs and outputs bound.

    .venv/bin/python bench/state.py [--build build] [--compiler gcc] [--past 1024] [--steps 16] [--joined] [--moved]

One thread, -O2. The runs of all take turns; times are medians of a step's. GPT-2's caches hold `past`
tokens before the first of the steps, and one more after each. ONNX Runtime's step has its keys and
values bound as device values: those that a step makes are the next one's. The answers are compared.
--joined: keys and values of a layer are one tensor.

--moved counts bytes that pass between memory and caches of 1 MB in a run, by cachegrind (which has no
AVX-512: --cpu=avx2): of a program with N + 1 runs less one with N.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "lib")]

import numpy as np
import onnx
import onnxruntime

import architectures
import tgc as T
from library import Library
from suite import expect

LAYERS, HEADS, SIZE = 12, 12, 64


class Symbol(str):
    """A dimension without a size: one more of it is the one that is called total."""

    def __add__(self, more):
        return "total"


def gpt2(folder, past, joined):
    model = architectures.gpt2_decode(past, positions=2048, joined=joined)
    onnx.save(model, folder / "model.onnx")


def cache_shapes(past, joined):
    """By name, without past_ and present_."""
    if joined:
        return {f"{layer}": (2, 1, HEADS, past, SIZE) for layer in range(LAYERS)}
    return {f"{kind}_{layer}": (1, HEADS, past, SIZE) for layer in range(LAYERS) for kind in ("key", "value")}


def compile_model(tgc, folder, options, more):
    T.must(T.run([tgc, folder / "model.onnx", "-o", folder / "net.c", *more, *options.more], timeout=900))
    T.must(T.run([options.compiler, "-O2", "-shared", "-fPIC", "net.c", "-o", f"{folder.name}.so", "-lm",
                  "-lpthread"], cwd=folder, timeout=900))
    return Library(folder / f"{folder.name}.so")


def state_options(names):
    return [word for out, name in names for word in ("--state", f"{out}={name}")]


def set_states(net, values, length):
    """As if runs before had left these, with so many rows."""
    block = net.save()
    for state in net.states():
        value = values[state.input.name.decode()]
        if state.axis >= 0:
            block[state.length_offset:state.length_offset + 8] = np.frombuffer(np.int64(length).tobytes(), np.uint8)
            bounds = state.input.bounds()
            room = block[state.input.offset:state.input.offset + 4 * int(np.prod(bounds))].view(np.float32)
            room.reshape(bounds)[..., :length, :] = value
        else:
            block[state.input.offset:state.input.offset + value.nbytes] = value.reshape(-1).view(np.uint8)
    net.restore(block)
    return block


class Bound:
    """ONNX Runtime: a step's new values are bound as the next one's inputs."""

    def __init__(self, path, feeds, first, pairs):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.pairs, self.first = pairs, first
        self.binding = self.session.io_binding()
        for name, value in feeds.items():
            self.binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.begin()

    def begin(self):
        self.now = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in self.first.items()}

    def step(self):
        for name, value in self.now.items():
            self.binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            self.binding.bind_output(name)
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        seconds = time.perf_counter() - start
        made = dict(zip(self.outputs, self.binding.get_outputs()))
        self.now = {name: made[out] for out, name in self.pairs}
        self.made = made
        return seconds


def timed(net):
    start = time.perf_counter()
    status = net.step()
    seconds = time.perf_counter() - start
    expect(status == 0, f"a run's status is {status}")
    return seconds


def report(title, times, ideal, before, after):
    print(f"{title}, milliseconds a step (median of {len(times['state'])}):")
    for key, text in (("before", "caller's states"), ("state", "--state"), ("runtime", "ONNX Runtime, bound")):
        print(f"  {text:24s} {1e3 * statistics.median(times[key]):9.4f}   least {1e3 * min(times[key]):9.4f}")
    print(f"  bytes that kernels touch: {before / 1e6:.3f} MB with the caller's states, {after / 1e6:.3f} MB with "
          f"--state; weights, states and new rows are {ideal / 1e6:.3f} MB: {after / ideal:.3f}", flush=True)


def touched(net, tables=0):
    """By the kernels' own account, which counts all of a table that rows are picked from."""
    return sum(net.info.kernels[k].bytes for k in range(net.info.kernel_count)) - tables


def measure_gpt2(tgc, scratch, options):
    past, steps = options.past, options.steps
    shapes = cache_shapes(past, options.joined)
    pairs = [(f"present_{name}", f"past_{name}") for name in shapes]
    folder, before = (scratch / (name + options.joined * "_joined") for name in ("grown", "given"))
    if not options.reuse:
        T.scratch(folder), T.scratch(before)
        gpt2(folder, Symbol("past"), options.joined)
        gpt2(before, past, options.joined)
    # a bound that the steps just fill: what kernels touch is counted at the bounds
    net = compile_model(tgc, folder, options, ["--dim", f"past<={past + steps}", *state_options(pairs)])
    old = compile_model(tgc, before, options, [])
    random = np.random.default_rng(3)
    caches = {f"past_{name}": (random.standard_normal(shape) * 0.5).astype(np.float32)
              for name, shape in shapes.items()}
    feeds = {"input_ids": np.array([[11]]), "position_ids": np.array([[past]])}
    net.give(feeds)
    old.give({**feeds, **caches})
    full = set_states(net, caches, past)
    runtime = Bound(folder / "model.onnx", feeds, caches, pairs)
    times = {"before": [], "state": [], "runtime": []}
    for turn in range(options.rounds):
        net.restore(full)
        runtime.begin()
        for step in range(steps):
            times["runtime"].append(runtime.step())
            times["state"].append(timed(net))
            times["before"].append(timed(old))
            if step == 0:
                want = runtime.made["logits"].numpy()
                for other in (net, old):
                    apart = np.abs(other.results()["logits"] - want).max()
                    expect(apart <= 1e-3 * np.abs(want).max(), f"the logits are wrong by {apart:.3g}")
    weights = sum(int(np.prod(w.dims)) for w in onnx.load(folder / "model.onnx").graph.initializer
                  if w.name not in ("wte", "wpe")) * 4
    words = 50257 * 768 * 4                           # once, as the last product's
    tables = words + 2048 * 768 * 4                   # of which the first kernel picks two rows
    cache = 2 * LAYERS * HEADS * SIZE * 4
    form = ", keys and values in one tensor" * options.joined
    report(f"GPT-2, {past} tokens and on{form}", times, weights + words + cache * (past + steps) + cache,
           touched(old, tables), touched(net, tables))


def measure_lstm(tgc, scratch, options):
    pairs = [(f"{kind}{layer}_next", f"{kind}{layer}") for layer in range(2) for kind in "hc"]
    folder, before = scratch / "kept", scratch / "handed"
    for place in (folder, before):
        onnx.save(architectures.lstm_vad(1), T.scratch(place) / "model.onnx")
    net = compile_model(tgc, folder, options, state_options(pairs))
    old = compile_model(tgc, before, options, [])
    x = np.random.default_rng(4).standard_normal((1, 1, 40)).astype(np.float32)
    zeros = {name: np.zeros((1, 1, 64), np.float32) for _, name in pairs}
    net.give({"features": x})
    old.give({"features": x, **{name: value.copy() for name, value in zeros.items()}})
    runtime = Bound(folder / "model.onnx", {"features": x}, zeros, pairs)
    names = [old.info.inputs[k].name.decode() for k in range(old.info.input_count)]
    times = {"before": [], "state": [], "runtime": []}

    def by_hand():
        """What a caller does: runs, and copies what the next run needs."""
        start = time.perf_counter()
        old.step()
        seconds = time.perf_counter() - start
        made = old.results()
        for out, name in pairs:
            old.held[names.index(name)][...] = made[out]
        return seconds

    for step in range(2000):
        # who comes behind ONNX Runtime finds caches full of its own
        times["runtime"].append(runtime.step())
        for turn in (step, step + 1):
            times["before" if turn % 2 else "state"].append(by_hand() if turn % 2 else timed(net))
        if step in (0, 7):
            want = runtime.made["speech"].numpy()
            for other in (net, old):
                apart = np.abs(other.results()["speech"] - want).max()
                expect(apart <= 1e-3 * np.abs(want).max(), f"step {step}: wrong by {apart:.3g}")
    weights = sum(int(np.prod(w.dims)) for w in onnx.load(folder / "model.onnx").graph.initializer
                  if len(w.dims) and w.data_type == 1) * 4
    report("LSTM, 1 frame", times, weights + 2 * 4 * 64 * 4, touched(old), touched(net))


MAIN = """#include "net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    const struct net_info *info = net_describe();
    net *model;
    net_inputs in;
    net_outputs out;
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    for (int k = 0; k < info->input_count + info->output_count; k++) {
        int is_out = k >= info->input_count;
        const struct net_tensor *t = is_out ? &info->outputs[k - info->input_count] : &info->inputs[k];
        size_t n = t->element_bytes;
        for (int a = 0; a < t->rank; a++)
            n *= (size_t)t->dim[a].size;
        void *p = calloc(n + 1, 1);
        memcpy((is_out ? (char *)&out : (char *)&in) + t->offset, &p, sizeof p);
    }
    int status = net_init(&model, aligned_alloc(64, (info->arena_bytes + 63) / 64 * 64), info->arena_bytes, NULL);
#ifdef NET_STATE_BYTES
    unsigned char *block = calloc(NET_STATE_BYTES, 1);
    const int64_t length = argc > 2 ? atoll(argv[2]) : 0;
    status |= net_save(model, block);
    for (int k = 0; k < info->state_count; k++)
        if (info->states[k].axis >= 0)
            memcpy(block + info->states[k].length_offset, &length, sizeof length);
    status |= net_restore(model, block);
#endif
    for (int k = 0; k < atoi(argv[1]) && !status; k++)
        status = net_run(model, &in, &out);
    printf("status %d\\n", status);
    return status;
}
"""


def moved_bytes(folder, options, length):
    """Of one run, by cachegrind: last-level misses of reads and writes, times a line."""
    (folder / "main.c").write_text(MAIN)
    T.must(T.run([options.compiler, "-O2", "main.c", "net.c", "-o", "moved", "-lm", "-lpthread"], cwd=folder,
                 timeout=900))
    misses = []
    for runs in (1, 2):
        done = T.must(T.run(["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--LL=1048576,16,64",
                             "--cachegrind-out-file=/dev/null", folder / "moved", runs, length], timeout=900))
        line = next(line for line in done.err.splitlines() if "LL misses" in line)
        misses.append(int(line.split(":")[1].split()[0].replace(",", "")))
    return 64 * (misses[1] - misses[0])


def measure_moved(scratch, options):
    for title, name, length in (("--state", "grown", options.past), ("caller's cache", "given", 0)):
        moved = moved_bytes(scratch / (name + options.joined * "_joined"), options, length)
        print(f"GPT-2, {title}: {moved / 1e6:.1f} MB pass between memory and a cache of 1 MB in a run", flush=True)


def main():
    parser = argparse.ArgumentParser(description="steps with states")
    parser.add_argument("--build", default="build")
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--cpu")
    parser.add_argument("--past", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--only", choices=["gpt2", "lstm"])
    parser.add_argument("--joined", action="store_true", help="GPT-2's keys and values of a layer in one tensor")
    parser.add_argument("--reuse", action="store_true", help="models that an earlier call has made")
    parser.add_argument("--moved", action="store_true", help="bytes between memory and caches, no times")
    options = parser.parse_args()
    options.more = ["--cpu", options.cpu] if options.cpu else []
    os.sched_setaffinity(0, [options.core])
    tgc = T.find_tgc(options.build).resolve()
    scratch = Path(options.build).resolve() / "bench-scratch" / "state"
    if options.moved:
        return measure_moved(scratch, options)
    if options.only != "gpt2":
        measure_lstm(tgc, scratch, options)
    if options.only != "lstm":
        measure_gpt2(tgc, scratch, options)


main()
