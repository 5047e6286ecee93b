"""tgc --train by every target: the parameters after 100 steps are the bytes of the C target's, by LLVM and clang, for other
machines too."""

import functools
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent.parent / "models")]

import program
import tgc as T
from program import Made, build, draw
from suite import Skip, Suite, expect

suite = Suite("train-targets")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "train-targets")
case = suite.folder_case(SCRATCH)
emit = functools.partial(program.emit, TGC)
WORDS = ["m.onnx", "--loss=cross_entropy", "--optimizer=adam", "--batch=24"]


def same(a, b, what):
    expect(a.losses == b.losses and a.params == b.params and (a.y == b.y).all() and a.correct == b.correct,
           f"{what}: other bytes, {a.losses[:3]} beside {b.losses[:3]}")


def check_files(network):
    """As object, library and archive, by any number of threads, interrupted; the weights in a file."""
    folder = T.scratch(SCRATCH / f"files-{network}")
    _, row = draw(network, folder)
    words = [*WORDS, "--threads=4", *T.HERE]
    emit(folder, *words)
    build(folder, 24, row, 3)
    want = Made(folder, threads=1)
    expect(len(set(want.losses)) > 50, "the losses do not change")
    for target, out, *more in (("llvm", "net.o"), ("llvm", "net.so"), ("llvm", "net.a", "--weights=file"), ("clang", "net.so"),
                               ("clang", "net.o")):
        if target == "clang" and not shutil.which("clang"):
            continue
        emit(folder, *words, f"--target={target}", *more, out=out)
        build(folder, 24, row, 3, program=f"./{out}")
        for mode, threads in ("train", 3), ("apart", 1), ("resume", 2):
            same(Made(folder, mode, threads=threads), want, f"{target} {out} {mode}")
    shutil.rmtree(folder)


for network in "mlp", "cnn":
    suite.add(f"{network} by llvm and clang as files", check_files, network)


@case("more than 64 states, and a recurrent network, by llvm")
def networks(folder):
    for network in "deep", "lstm":
        _, row = draw(network, folder)
        made = []
        for out, *more in ("net.c",), ("net.o", "--target=llvm"):
            emit(folder, *WORDS, *more, *T.HERE, out=out)
            build(folder, 24, row, 3, program=out, flags=("-O1",))
            made.append(Made(folder, steps=10))
        same(*made, network)


def check_machine(triple, qemu, order):
    """The losses of this machine's, to the last bit; the block has the machine's byte order."""
    folder = T.scratch(SCRATCH / triple)
    gcc = f"{triple}-gcc"
    for name in gcc, qemu:
        if not shutil.which(name):
            raise Skip(f"{name} is not installed")
    _, row = draw("cnn", folder)
    emit(folder, *WORDS, "--cpu=generic")
    build(folder, 24, row, 3)
    want = Made(folder, steps=10)
    draw("cnn", folder, order)
    emit(folder, *WORDS, "--cpu=generic", "--target=llvm", f"--triple={triple}", out="net.o")
    build(folder, 24, row, 3, program="net.o", compiler=gcc, flags=("-O2", "-static"))
    made = Made(folder, "apart", steps=10, runner=(qemu,))
    expect(made.losses == want.losses, f"{made.losses} beside {want.losses}")
    expect(order != "=" or made.params == want.params, "other parameters")
    shutil.rmtree(folder)


for triple, qemu, order in ("aarch64-linux-gnu", "qemu-aarch64", "="), ("i686-linux-gnu", "qemu-i386", "="), \
        ("s390x-linux-gnu", "qemu-s390x", ">"):
    suite.add(f"a cnn by llvm for {triple}", check_machine, triple, qemu, order)


REFUSED = """
#include "net.h"
#include <stdalign.h>
#include <stdio.h>
static alignas(64) unsigned char arena[NET_ARENA_BYTES], params[NET_PARAMS_BYTES + 64], optimizer[NET_OPTIMIZER_BYTES];
int main(void)
{
    static float x[24 * 6], loss;
    static int64_t targets[24];
    net *model;
    net_options o = {.params = params, .optimizer = optimizer};
    net_train_inputs in = {.data = {x}, .learning_rate = 0.01f, .step = 1};
    printf("none %d\\n", net_init(&model, arena, sizeof arena, NULL));
    o.params = params + 4;
    printf("aligned %d\\n", net_init(&model, arena, sizeof arena, &o));
    o.params = params, o.gradients = params + 8;
    printf("aligned %d\\n", net_init(&model, arena, sizeof arena, &o));
    o.gradients = NULL;
    printf("init %d\\n", net_init(&model, arena, sizeof arena, &o));
    printf("not begun %d\\n", net_train(model, &in, targets, &loss));
    printf("begin %d\\n", net_params_init(model, 1));
    printf("no block %d\\n", net_gradients(model, &in, targets, &loss));
    targets[5] = 3;
    printf("no class %d\\n", net_train(model, &in, targets, &loss));
    targets[5] = 0;
    in.data.x = NULL;
    printf("no input %d\\n", net_train(model, &in, targets, &loss));
    in.data.x = x;
    printf("step %d\\n", net_train(model, &in, targets, &loss));
    const struct net_info *info = net_describe();
    printf("%s: %d inputs, %d outputs, %d entries, %d states, %s\\n", info->target, info->input_count, info->output_count,
           info->entry_count, info->state_count, net_parameter(1)->name);
    net_close(model);
    printf("closed %d\\n", net_update(model, &in));
    return 0;
}
"""


@case("products of low rank by llvm")
def low_rank(folder):
    _, row = draw("mlp", folder)
    made = []
    for out, *more in ("net.c",), ("net.o", "--target=llvm"):
        emit(folder, *WORDS, "--lora=w*:2", *more, *T.HERE, out=out)
        build(folder, 24, row, 3, program=out)
        made.append(Made(folder, "apart", steps=20))
    same(*made, "lora")


CUBES = """tg 1
def "my.domain::CubeGrad"(%x : f32[N, C], %dy : f32[N, C]) -> (%dx : f32[N, C]) {
    %q = mul(%x, %x)
    %t = mul(%q, 3.0)
    %dx = mul(%t, %dy)
}
extern "my.domain::Cube"(%x : f32[N, C]) -> (%y : f32[N, C]) as "cube" gradient "my.domain::CubeGrad"
graph "cubes"
input %x : f32[24, 6] as "x"
weight %w : f32[6, 3] as "w" = [0.1, -0.2, 0.3, 0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.1, -0.2, 0.3, 0.1, 0.2, -0.3, 0.4, 0.1]
%a = matmul(%x, %w)
"""
CUBE = """#include "net.h"
int cube(const float *x, const int64_t x_shape[2], float *y, const int64_t y_shape[2])
{
    (void)y_shape;
    for (int64_t i = 0; i < x_shape[0] * x_shape[1]; i++)
        y[i] = x[i] * x[i] * x[i];
    return 0;
}
"""


@case("a network with a C function whose gradient is named, by c and llvm, beside the same of operators")
def c_function(folder):
    draw("mlp", folder)
    (folder / "cube.c").write_text(CUBE)
    (folder / "m.tg").write_text(CUBES + '%y = custom "my.domain::Cube"(%a)\noutput %y as "y"\n')
    (folder / "ops.tg").write_text(CUBES + '%q = mul(%a, %a)\n%y = mul(%q, %a)\noutput %y as "y"\n')
    made = []
    for model, out, *more in ("m.tg", "net.c"), ("m.tg", "net.o", "--target=llvm"), ("ops.tg", "net.c"):
        emit(folder, model, "--loss=cross_entropy", "--optimizer=adam", *more, *T.HERE, out=out)
        build(folder, 24, 6, 3, program=out, flags=("-O2", *(["cube.c"] if model == "m.tg" else [])))
        made.append(Made(folder, steps=30))
    same(made[0], made[1], "llvm")
    near = [abs(a - b) for a, b in zip(made[0].losses, made[2].losses)]
    expect(max(near) < 1e-5 and made[0].losses[-1] < 0.9 * made[0].losses[0], f"{made[0].losses}, by operators {made[2].losses}")


@case("what the program of llvm refuses, and describes")
def refused(folder):
    draw("mlp", folder)
    emit(folder, *WORDS, *T.HERE, "--target=llvm", out="net.o")
    (folder / "refused.c").write_text(REFUSED)
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "refused.c", "net.o", "-o", "refused", "-lm"], cwd=folder, timeout=120))
    said = T.must(T.run([folder / "refused"], cwd=folder)).out.decode().splitlines()
    expect(said == ["none 7", "aligned 7", "aligned 7", "init 0", "not begun 18", "begin 0", "no block 7", "no class 10",
                    "no input 4", "step 0", "llvm: 1 inputs, 1 outputs, 0 entries, 0 states, b1", "closed 12"], "\n".join(said))


if __name__ == "__main__":
    suite.main()
