"""One training by several processes: losses and bits beside one process, by processes of its own and by MPI; processes
that die, hang or train something else; the transports by themselves."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
from onnx import helper

import tgc as T
from networks import NETWORKS, samples, save, weights_of
from program import emit, put
from suite import Skip, Suite, expect

suite = Suite("ranks")
OPTIONS = suite.parse()
BUILD = Path(OPTIONS.build).resolve()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(BUILD / "test-scratch" / "ranks")
DRIVER = BUILD / "tests" / "train" / "ranks_driver"
FAILING = DRIVER.with_name("ranks_failing")
case = suite.folder_case(SCRATCH)
STEPS = 50
NORMED = "cnn" if OPTIONS.all else "mlp"        # the other compiles in less time
# a rank for each process, as many as there are; no plugin looks at a network's hardware
ALONE = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_plm": "isolated", "OMPI_MCA_hwloc_base_binding_policy": "none",
         "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpirun(n, *words):
    if not shutil.which("mpirun"):
        raise Skip("no mpirun: the package openmpi-bin has it")
    return ["mpirun", "-x", "ASAN_OPTIONS=detect_leaks=0", "-n", str(n), *words]        # what MPI leaks is not ours


def run(words, folder, status=0, **more):
    return T.must(T.run(words, cwd=folder, env=ALONE, timeout=60, **more), status)


def words_of(network, log, out, *more):
    return [TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=adam", "--lr=0.01", "--batch=24",
            f"--epochs={STEPS}", f"--log={log}", "-o", out, *more]


def losses_of(path):
    return [json.loads(line)["loss"] for line in open(path)]


def make(folder, network):
    network, shape = NETWORKS[network]
    network(folder)
    samples(folder, shape, "cross_entropy")


# --------------------------------------------------------------------------------- losses and bits

def check_losses(network):
    """Batch norm's statistics are those of a part of the batch, so one process in one run has others."""
    folder = T.scratch(SCRATCH / f"losses-{network}")
    make(folder, network)
    ways = {"one": [], "parts": ["--parts=4"], "two": ["--devices=2", "--parts=4"], "four": ["--devices=4"], "halves": ["--devices=2"]}
    if network != "mlp" and not OPTIONS.all:
        del ways["two"], ways["halves"]
        if network == "cnn":
            del ways["one"]
    for name, more in ways.items():
        run(words_of(network, f"{name}.jsonl", f"{name}.onnx", *more), folder)
    if shutil.which("mpirun") and (OPTIONS.all or network != "transformer"):
        for n, more in ((4, []), (2, ["--parts=4"])) if OPTIONS.all else ((2, ["--parts=4"]),) if network == "mlp" else ((4, []),):
            run(mpirun(n, *words_of(network, f"mpi{n}.jsonl", f"mpi{n}.onnx", *more)), folder)
            ways[f"mpi{n}"] = more
    want = losses_of(folder / "parts.jsonl")
    for name in ways.keys() - {"one", "halves"}:
        expect(losses_of(folder / f"{name}.jsonl") == want, f"{name}: other losses\n{losses_of(folder / f'{name}.jsonl')}\n{want}")
        expect((folder / f"{name}.onnx").read_bytes() == (folder / "parts.onnx").read_bytes(), f"{name}: other bytes")
    expect(want[-1] < 0.7 * want[0] and len(want) == STEPS, f"nothing was learned: {want}")
    if network != "cnn":
        one = losses_of(folder / "one.jsonl")
        for name in ways.keys() & {"parts", "halves"}:
            got = losses_of(folder / f"{name}.jsonl")
            expect(np.allclose(got, one, 1e-5, 1e-5), f"{name}:\n{got}, in one run\n{one}")
    elif OPTIONS.all:
        expect(losses_of(folder / "one.jsonl") != want, "the statistics of a batch are those of its parts")
    shutil.rmtree(folder)


for network in "mlp", "cnn", "transformer":
    suite.add(f"{network}: {STEPS} steps beside one process", check_losses, network)


@case("the sum of parts is the gradient of the batch, in f64")
def exact_sum(folder):
    """By sgd without momentum the step is the gradient: three processes beside one, a last batch that is smaller."""
    make(folder, "mlp")
    for name, more in ("one", []), ("three", ["--devices=3"]):
        run([TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=sgd", "--lr=0.5", "--batch=15", "--epochs=1",
             "-o", f"{name}.onnx", *more], folder)
    given, one, three = (weights_of(folder / f"{n}.onnx") for n in ("m", "one", "three"))
    for name, w in given.items():
        expect(np.allclose(three[name], one[name], 1e-5, 1e-6), f"{name}: {abs(three[name] - one[name]).max()}")
        expect(abs(one[name] - w).max() > 1e-3, f"{name} does not train")


@case("options of a training go with processes")
def options(folder):
    make(folder, "mlp.f16")
    words = ["--clip=0.3", "--loss-scale=dynamic", "--schedule=cosine,warmup=3", "--valid", "d.npz", "--early-stop=40", "--plot=p.svg"]
    for name, more in ("parts", ["--parts=2"]), ("two", ["--devices=2"]):
        done = run(words_of("mlp", f"{name}.jsonl", f"{name}.onnx", *words, *more), folder)
        expect(len(done.out.splitlines()) == 1 and done.err.count("epoch 1/") == 1, f"more than one process tells:\n{done.out}{done.err}")
    both = [[{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in open(folder / f"{n}.jsonl")] for n in ("parts", "two")]
    for a, b in zip(*both):
        near = [abs(a.pop(key) - b.pop(key)) < 1e-6 for key in ("valid_loss",)]       # its sum is not by parts
        expect(a == b and all(near), f"{a}\n{b}")
    expect((folder / "two.onnx").read_bytes() == (folder / "parts.onnx").read_bytes(), "other bytes")


@case("another number of processes goes on from a checkpoint")
def resume(folder):
    make(folder, NORMED)
    whole = words_of(NORMED, "whole.jsonl", "whole.onnx", "--parts=4")
    run(whole, folder)
    words = ["--checkpoint=kept", "--resume"]
    for n, epochs in (4, 10), (1, 20), (2, STEPS):
        run([*words_of(NORMED, "log.jsonl", "out.onnx", *words, "--parts=4", f"--devices={n}"), f"--epochs={epochs}"], folder)
    expect((folder / "out.onnx").read_bytes() == (folder / "whole.onnx").read_bytes(), "other bytes than without breaks")
    expect(losses_of(folder / "log.jsonl") == losses_of(folder / "whole.jsonl"), "other losses than without breaks")
    # one run, several runs and several processes have the same checkpoint
    make(folder, "mlp")
    for n, more in enumerate((["--devices=2"], [], ["--devices=3"])):
        run([*words_of("mlp", "log.jsonl", "out.onnx", "--checkpoint=other", "--resume", *more), f"--epochs={n + 1}"], folder)


@case("processes of a training on a device of OpenCL")
def on_devices(folder):
    import opencl
    opencl.need_device()
    make(folder, "mlp")
    for name, more in ("parts", ["--parts=2"]), ("two", ["--devices=2"]):
        run([*words_of("mlp", f"{name}.jsonl", f"{name}.onnx", "--target=opencl", *more), "--epochs=5"], folder)
    expect((folder / "two.onnx").read_bytes() == (folder / "parts.onnx").read_bytes(), "other bytes")


# ---------------------------------------------------------------------------- programs that --train makes

HOOK = r"""#define _POSIX_C_SOURCE 200809L
#include "net.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, BATCH = 12, ROW = 6 };
static pthread_barrier_t all;
static struct rank { int number; net *model; void *x; double loss[STEPS]; int status; void *params; } rank[RANKS];

/* The sum in the order of ranks, by each of them for itself. */
static int sum(void *user, void *x, size_t n, size_t nbytes)
{
    struct rank *own = user;
    if (nbytes != sizeof(float))
        return 1;
    float *total = malloc(n * sizeof *total);
    own->x = x;
    pthread_barrier_wait(&all);
    for (size_t i = 0; i < n; i++)
        total[i] = ((float *)rank[0].x)[i] + ((float *)rank[1].x)[i];
    pthread_barrier_wait(&all);
    memcpy(x, total, n * sizeof *total);
    free(total);
    return 0;
}

static int refuse(void *user, void *x, size_t n, size_t nbytes)
{
    (void)user, (void)x, (void)n, (void)nbytes;
    return 1;
}

static void *work(void *argument)
{
    struct rank *own = argument;
    static float x[RANKS * BATCH * ROW];
    static int64_t target[RANKS * BATCH];
    if (own->number == 0) {
        FILE *f = fopen("x.bin", "rb"), *g = fopen("target.bin", "rb");
        if (!f || !g || fread(x, sizeof x, 1, f) != 1 || fread(target, sizeof target, 1, g) != 1)
            exit(2);
        fclose(f), fclose(g);
    }
    pthread_barrier_wait(&all);
    net_options options = {.params = own->params = aligned_alloc(64, NET_PARAMS_BYTES),
                           .gradients = aligned_alloc(64, NET_GRADIENTS_BYTES),
                           .optimizer = aligned_alloc(64, NET_OPTIMIZER_BYTES),
                           .sum_ranks = sum, .ranks_user = own, .ranks = RANKS, .rank = own->number};
    void *arena = aligned_alloc(NET_ARENA_ALIGN, (NET_ARENA_BYTES + NET_ARENA_ALIGN - 1) / NET_ARENA_ALIGN * NET_ARENA_ALIGN);
    net_train_inputs in = {.data = {.x = x + own->number * BATCH * ROW}, .learning_rate = 0.01f};
    own->status = net_init(&own->model, arena, NET_ARENA_BYTES, &options);
    if (own->status == NET_OK)
        own->status = net_params_init(own->model, 0);
    for (in.step = 1; in.step <= STEPS && own->status == NET_OK; in.step++) {
        float loss;
        own->status = net_train(own->model, &in, target + own->number * BATCH, &loss);
        own->loss[in.step - 1] = (double)loss;
    }
    net_close(own->model);
    options.sum_ranks = refuse;
    float loss;
    if (net_init(&own->model, arena, NET_ARENA_BYTES, &options) != NET_OK ||
        net_train(own->model, &in, target, &loss) != NET_RANK_FAILED)
        own->status = 99;
    net_close(own->model);
    free(arena), free(options.gradients), free(options.optimizer);
    return NULL;
}

int main(void)
{
    pthread_t thread[RANKS];
    pthread_barrier_init(&all, NULL, RANKS);
    for (int i = 0; i < RANKS; i++) {
        rank[i].number = i;
        pthread_create(&thread[i], NULL, work, &rank[i]);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    for (int s = 0; s < STEPS; s++)
        printf("%a\n", rank[0].loss[s]);
    for (int i = 0; i < RANKS; i++)
        if (rank[i].status != NET_OK || memcmp(rank[0].loss, rank[i].loss, sizeof rank[0].loss) != 0 ||
            memcmp(rank[0].params, rank[i].params, NET_PARAMS_BYTES) != 0)
            return 3 + rank[i].status;
    free(rank[0].params), free(rank[1].params);
    return 0;
}
"""


def own(folder, batch=("N",)):
    """A layer's output beside its input: the loss is an output of the model."""
    w = {"w": (0.3 * np.random.default_rng(3).standard_normal((6, 6))).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Sub", ["y", "x"], ["d"]),
             helper.make_node("Mul", ["d", "d"], ["q"]), helper.make_node("ReduceMean", ["q"], ["loss"], keepdims=0)]
    save(folder / "m.onnx", nodes, [("x", [*batch, 6])], [("y", [*batch, 6]), ("loss", [])], w)
    return w["w"].astype(np.float64)


def own_losses(w, x, steps, rate):
    """By sgd, of all samples in each step."""
    for _ in range(steps):
        d = x @ w - x
        yield np.mean(d * d)
        w = w - rate * 2 * x.T @ d / d.size


def check_hook(out, words, flags):
    """Two contexts in two threads, whose sum_ranks is the caller's, beside tgc train."""
    folder = T.scratch(SCRATCH / f"hook-{out}")
    make(folder, "mlp")
    data = np.load(folder / "d.npz")
    order = np.argsort(data["target"], kind="stable")           # tgc train's own order is another: all samples are one batch
    np.savez(folder / "d.npz", x=data["x"][order], target=data["target"][order])
    put(folder, data["x"][order], data["target"][order])
    emit(TGC, folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=12", *words, *T.HERE, out=out)
    (folder / "hook.c").write_text(HOOK)
    T.must(T.run(["gcc", *T.WARNINGS, *flags, f"-DSTEPS={STEPS}", "hook.c", out, "-o", "hook", "-lm", "-lpthread"], cwd=folder, timeout=300))
    got = [float.fromhex(line) for line in T.must(T.run([folder / "hook"], cwd=folder, timeout=60)).out.decode().split()]
    run(words_of("mlp", "log.jsonl", "out.onnx"), folder)
    want = losses_of(folder / "log.jsonl")
    expect(len(got) == STEPS and np.allclose(got, want, 1e-5, 1e-5), f"{got}\n{want}")
    shutil.rmtree(folder)


suite.add("a caller's own sum over threads, under sanitizers", check_hook, "net.c", [], ["-O1", "-g", "-fsanitize=address,undefined"])
@case("a loss of the model's own, summed by the caller over threads")
def own_hook(folder):
    """net_train() without sample_weight: the mean over ranks."""
    w, x = own(folder), np.random.default_rng(4).standard_normal((24, 6)).astype(np.float32)
    put(folder, x, np.zeros(24, np.int64))
    emit(TGC, folder, "m.onnx", "--loss=output:loss", "--optimizer=sgd", "--dim=N=12", *T.HERE)
    (folder / "hook.c").write_text(HOOK)
    T.must(T.run(["gcc", *T.WARNINGS, "-O1", "-fsanitize=address,undefined", "-DSTEPS=10", "hook.c", "net.c", "-o", "hook", "-lm", "-lpthread"],
                 cwd=folder, timeout=300))
    got = [float.fromhex(line) for line in T.must(T.run([folder / "hook"], cwd=folder, timeout=60)).out.decode().split()]
    want = list(own_losses(w, x, 10, 0.01))
    expect(np.allclose(got, want, 1e-5), f"{got}\n{want}")


@case("a loss of the model's own, in several runs and processes")
def own_program(folder):
    """Runs of two samples, a last batch that is smaller and of which some processes have nothing: as in one run."""
    x = np.random.default_rng(4).standard_normal((10, 6)).astype(np.float32)
    np.savez(folder / "d.npz", x=x)
    w, words = own(folder, (2,)), ["--loss=output:loss", "--optimizer=sgd"]
    (folder / "m.onnx").rename(folder / "two.onnx")
    own(folder)
    emit(TGC, folder, "m.onnx", *words, "--dim=N=2", *T.HERE)
    T.must(T.run(["gcc", *T.WARNINGS, "-O1", "-fsanitize=address,undefined", "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-lpthread"],
                 cwd=folder, timeout=300))

    def said(*words):
        done = run([*words, "--data", "d.npz", "--epochs=6", "--lr=0.2"], folder)
        return [float(line.split("loss ")[1].split()[0].strip(",")) for line in (done.err + done.out.decode()).splitlines() if "loss " in line]

    def trains(model, *more):
        return said(TGC, "train", model, *words, "-o", "out.onnx", *more)

    for batch, more in (8, [["--devices=4"], ["--devices=2"]]), (10, [["--devices=5"]]), (5, []):
        want = trains("m.onnx", f"--batch={batch}")
        expect(len(want) == 7 and want[-1] < 0.9 * want[0], f"nothing was learned: {want}")
        for words_ in [], *more:
            ways = {"program": said(folder / "net", "-o", "p.bin", f"--batch={batch}", *words_), "train": trains("two.onnx", f"--batch={batch}", *words_)}
            for way, got in ways.items():
                expect(np.allclose(got, want, 1e-4, 6e-5), f"{way}, {words_} of {batch}:\n{got}\n{want}")
        if batch == 10:
            expect(np.allclose(want, list(own_losses(w, x, 7, 0.2)), 1e-4, 6e-5), f"{want}")
    done = run([TGC, "train", "m.onnx", "--data", "d.npz", *words, "--batch=8", "--dim=N=2", "-o", "no.onnx"], folder, 1)
    expect("a run has 8 samples, and 'x' takes 2: leave out" in done.err, done.err)


suite.add("a caller's own sum over threads, an object of LLVM's", check_hook, "net.o", ["--target=llvm"], ["-O1"])


def check_program(network, more, flags=(), target=()):
    """The program of -DNET_MAIN: a run of 6 samples is a part of the batch."""
    folder = T.scratch(SCRATCH / f"program-{network}{'-device' if target else ''}")
    make(folder, network)
    emit(TGC, folder, "m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--lr=0.01", "--batch=6", *more, *target, *T.HERE)
    T.must(T.run(["gcc", *T.WARNINGS, *flags, "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-lpthread"], cwd=folder, timeout=300))
    words = [folder / "net", "--data", "d.npz", "--batch=24", f"--epochs={STEPS}", "-o"]
    said = {}
    for n in 1, 2, 4:
        done = run([*words, f"{n}.params", f"--devices={n}"], folder)
        said[n] = [float(line.split("loss ")[1].split(",")[0]) for line in done.err.splitlines()]
        expect(len(said[n]) == STEPS and len(done.out.splitlines()) == 1, f"more than one process tells: {done.err}{done.out}")
    if shutil.which("mpirun"):
        run(mpirun(4, *words, "mpi.params"), folder)
        expect((folder / "mpi.params").read_bytes() == (folder / "4.params").read_bytes(), "other bytes by MPI")
    expect(said[1][-1] < 0.8 * said[1][0], f"nothing was learned: {said[1]}")
    for n in 2, 4:
        expect(np.allclose(said[n], said[1], 2e-5, 2e-5), f"{n} processes\n{said[n]}\none\n{said[1]}")
    # other weights at the start are rank 0's
    run([*words, "more.params", "--params=2.params", "--devices=2", "--epochs=1"], folder)
    # what all processes would find is said once, and before the training
    for words_, text in ((["--devices=5"], "24 samples does not divide by 5 processes: give --batch=20"), (["--devices=0x"], "whole number"),
                         (["--devices=5", "--batch=8"], "give --batch=10"), (["--devices=25"], "fewer samples than processes"),
                         (["--devices=2", "--batch=25"], "more than the samples"), (["--devices=2", "--data=none.npz"], "none.npz"),
                         (["--devices=2", "--params=d.npz"], "no block"), (["-o", "none/no.params"], "none/no.params.part: No such file"),
                         (["--devices=4", "-o", "folder"], "folder: is a directory")):
        (folder / "folder").mkdir(exist_ok=True)
        done = run([*words, "no.params", "--epochs=100000000", *words_], folder, 1)
        expect(text in done.err and len(done.err.splitlines()) == 1 and not list(folder.glob("no.params*")), f"{words_}: {done.err}")
    if shutil.which("mpirun"):
        done = T.run(mpirun(1, *words, "no.params", ":", "-n", "1", *words, "no.params", "--lr=0.5"), cwd=folder, env=ALONE, timeout=60)
        expect(done.status != 0 and "different models, data or options" in done.err, done.err)
    for how, kind in enumerate((signal.SIGKILL, signal.SIGSTOP)):
        start = [*words, "no.params", "--epochs=100000000", "--devices=3", "--timeout=1"]
        status, seconds, err = lose(folder, start, 3, kind, 0.3, folder / "net")
        expect(status == 1 and seconds < 15 and "rank" in err, f"{kind}: {status} after {seconds} s: {err[-1000:]}")
    shutil.rmtree(folder)


def check_program_of_device():
    import opencl
    opencl.need_device()
    check_program("mlp", [], ["-O1"], ["--target=opencl", "--cpu=pocl"])


suite.add("a program by processes: mlp, under sanitizers", check_program, "mlp", [], ["-O1", "-g", "-fsanitize=address,undefined"])
suite.add("a program by processes: cnn", check_program, "cnn", ["--threads=2"], ["-O1"], slow=True)
suite.add("a program by processes: transformer", check_program, "transformer", ["--shape", "target=6x6"], ["-O1"], slow=True)
suite.add("a program by processes: a device of OpenCL", check_program_of_device, slow=True)


# ------------------------------------------------------------------------------------ what is lost

def processes_of(root):
    """The process and all that it has started, with their command's first word."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                todo += [int(word) for word in task.read_text().split()]
            except OSError:
                pass
    return found


def workers_of(root, program=TGC):
    def is_one(pid):
        try:
            return os.readlink(f"/proc/{pid}/exe") == str(program)
        except OSError:
            return False
    return [pid for pid in processes_of(root) if is_one(pid)]


def lose(folder, words, n, kind, wait, program=TGC):
    """Starts the training, does `kind` to one of its n workers after a while; its status, seconds until its end, messages."""
    with open(folder / "err.txt", "wb") as err:
        process = subprocess.Popen([str(w) for w in words], cwd=folder, env={**os.environ, **ALONE}, stdout=subprocess.DEVNULL, stderr=err)
        end = time.monotonic() + 40
        begins = folder / "kept" / "checkpoint" if program == TGC else folder / "err.txt"
        while time.monotonic() < end and (len(workers_of(process.pid, program)) < n or not begins.exists() or not begins.stat().st_size):
            time.sleep(0.02)
        workers = workers_of(process.pid, program)
        expect(len(workers) == n, f"{len(workers)} processes of {n}:\n{(folder / 'err.txt').read_text()[-2000:]}")
        time.sleep(wait)
        os.kill(workers[-1], kind)
        start = time.monotonic()
        try:
            status = process.wait(30)
        except subprocess.TimeoutExpired:
            for pid in processes_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()
            expect(False, f"it hangs:\n{(folder / 'err.txt').read_text()[-2000:]}")
    left = [pid for pid in workers if Path(f"/proc/{pid}/exe").exists() and pid in workers_of(pid, program)]
    expect(not left, f"processes are left: {left}")
    return status, time.monotonic() - start, (folder / "err.txt").read_text()


def check_lost(way, n, times):
    """At a random point of a step; afterwards the checkpoint loads. Before all have started, a launcher waits as it likes."""
    folder = T.scratch(SCRATCH / f"lost-{way}-{n}")
    make(folder, NORMED)
    random = np.random.default_rng(n)
    words = [TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--batch=24", "--checkpoint=kept", "--parts=4", "-o", "out.onnx"]
    for k in range(times):
        shutil.rmtree(folder / "kept", ignore_errors=True)
        kind = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)[k % 3]
        more = ["--epochs=1000000", "--timeout=1"]
        start = mpirun(n, *words, *more) if way == "mpi" else [*words, *more, f"--devices={n}"]
        status, seconds, said = lose(folder, start, n, kind, random.uniform(0, 0.2))
        expect(status != 0 and seconds < 15, f"{kind}: status {status} after {seconds} s\n{said[-2000:]}")
        expect("rank" in said, f"{kind}: nothing about a rank\n{said[-2000:]}")
        if way == "own":
            expect(f"rank {n - 1}" in said or "has ended" in said, said[-2000:])
        kept = json.loads(run([*words, "--resume", "--epochs=1", "--json"], folder).out)
        expect(kept["epoch"] > 0, "the checkpoint does not load")
        expect(not (folder / "kept" / "checkpoint.part").exists(), "a part is left")
    shutil.rmtree(folder)


suite.add("a process of its own is lost", check_lost, "own", 4, 50 if OPTIONS.all else 4)
suite.add("a process of MPI is lost", check_lost, "mpi", 4, 50 if OPTIONS.all else 2)


@case("a process that fails says why to the others")
def failing(folder):
    """A sample that cannot be read is one process's; the others know of it by that process alone."""
    make(folder, "mlp")
    data = np.load(folder / "d.npz")
    x = data["x"].astype(np.float64)
    x[20] = np.nan
    np.savez(folder / "bad.npz", x=x.astype(np.float32), target=data["target"])
    done = run([TGC, "train", "m.onnx", "--data", "bad.npz", "--loss=cross_entropy", "--batch=24", "--devices=4", "-o", "out.onnx"], folder, 1)
    expect("the loss of step 1" in done.err and not (folder / "out.onnx").exists(), done.err)


# ---------------------------------------------------------------------------------- what is refused

@case("refused")
def refused(folder):
    make(folder, "mlp")
    base = [TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "-o", "out.onnx", "--epochs=1"]
    for words, *texts in ((["--devices=5"], "does not divide by 5 processes", "--batch=25"), (["--batch=24", "--parts=7"], "7 parts", "--batch=21"),
                          (["--batch=24", "--devices=2", "--parts=3"], "--parts=3 does not divide by 2 processes"),
                          (["--batch=24", "--devices=2", "--detect-nan"], "leave out --devices"),
                          (["--batch=24", "--parts=2", "--detect-nan"], "leave out --parts"),
                          (["--batch=25"], "more than the 24 samples")):
        done = run([*base, *words], folder, 1)
        for text in texts:
            expect(text in done.err, f"{words}: no '{text}' in\n{done.err}")
    for words in ["--devices=0"], ["--parts=x"], ["--timeout=0"]:
        done = run([*base, *words], folder, 2)
        expect(words[0].split("=")[0] in done.err, done.err)


@case("ranks of other trainings, refused before the first step")
def different(folder):
    make(folder, "mlp")
    base = [TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--batch=24", "--epochs=1", "--timeout=10", "-o"]
    for more in (["--seed=3"], ["--epochs=2"], ["--optimizer=sgd"], ["--lr=0.3"])[:4 if OPTIONS.all else 2]:
        done = T.run(mpirun(1, *base, "a.onnx", ":", "-n", "1", *base, "b.onnx", *more), cwd=folder, env=ALONE, timeout=60)
        expect(done.status != 0 and "rank 1 has another training than rank 0" in done.err, f"{more}: {done.err}")
    expect(not list(folder.glob("[ab].onnx")), "a model is written")
    done = T.run(mpirun(2, *base, "a.onnx", "--devices=2"), cwd=folder, env=ALONE, timeout=60)
    expect(done.status != 0 and "leave out one of the two" in done.err, done.err)


@case("no MPI here")
def absent(folder):
    """By the environment of a launcher whose library is not there."""
    make(folder, "mlp")
    words = [TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--batch=24", "--epochs=1", "-o", "out.onnx"]
    empty = folder / "libmpi.so.40"
    empty.write_bytes(b"")
    done = T.run(words, cwd=folder, timeout=60, env={"OMPI_COMM_WORLD_SIZE": "4", "LD_LIBRARY_PATH": str(folder)})
    if "openmpi-bin" not in done.err and shutil.which("mpirun"):
        return  # the loader goes on to the true one
    expect(done.status == 1 and "install Open MPI" in done.err and "openmpi-bin" in done.err, done.err)


# -------------------------------------------------------------------------------- the transports

@case("sums, by processes of its own")
def sums(folder):
    for size in 2, 3, 4, 7, 8:
        for n in 1, 5, 1000, 300000 if size == 4 else 64:
            done = T.must(T.run([DRIVER, "sum", size, n], timeout=60))
            expect(done.out.split() == [b"ok"] * size, f"{size} ranks, {n}: {done.out}")


@case("sums, by MPI")
def sums_mpi(folder):
    for size in (2, 3, 4) if OPTIONS.all else (3,):
        done = run(mpirun(size, DRIVER, "sum", "0", "300000"), folder)
        expect(done.out.split() == [b"ok"] * size, f"{size} ranks: {done.out}")


@case("every message of a rank that is lost")
def messages(folder):
    """Each of the survivors has an error, in time."""
    for how in "before", "within", "exit", "hang":
        for k in (0, 1, 2, 5) if how != "hang" else (0, 3):
            done = T.run([DRIVER, "lose", "4", k, how], timeout=20)
            lines = done.out.decode().splitlines()
            expect(not done.timed_out and len(lines) == 3 and all("rank" in line for line in lines), f"{how} {k}: {lines}")
            told = {"hang": "waited 2 seconds for rank 3", "exit": "rank 3 has ended: it had enough"}.get(how, "rank 3 has ended")
            expect(any(told in line for line in lines), f"{how} {k}: {lines}")


@case("processes that cannot be started")
def failing_fork(folder):
    """Each fork() and socketpair(), and mmap(): no child and no descriptor is left, and none of others is closed."""
    expect(T.must(T.run([FAILING], timeout=20)).out == b"ok\n", "not ok")


suite.main()
