"""Instructions that emitted C takes on a Cortex-M, counted under qemu-system-arm with -icount.

    python3 bench/micro.py --tgc build/cli/tgc [--cpu cortex-m4 ...] [--net ds_cnn ...] [--kind int8] [-- OPTIONS]

The networks have the shapes of MLPerf Tiny's four (a DS-CNN for keywords, a ResNet of 8 layers, a MobileNet of
width 0.25 at 96x96, an autoencoder), with weights drawn here; int8 is what ONNX Runtime quantizes of them, with a
scale for each channel. With -icount a unit of the emulated time is an instruction, which SysTick counts; a loop of
known length says how many instructions one of its ticks is. No cycles: qemu has no pipeline, no wait states.

One line a network: millions of instructions, instructions for each multiply-add, bytes of code, weights, arena and
stack. Results are compared with ONNX Runtime's.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lib"))

import graphs as G          # noqa: E402

# compiler's flags, qemu's machine, where code and where data begin, the end of the stack
FLOAT = ("-mfloat-abi=hard", "-mfpu=fpv5-sp-d16")
CPUS = {
    "cortex-m0": (("-mcpu=cortex-m0",), "mps2-an385", 0x0, 0x20000000),
    "cortex-m3": (("-mcpu=cortex-m3",), "mps2-an385", 0x0, 0x20000000),
    "cortex-m4": (("-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"), "mps2-an386", 0x0, 0x20000000),
    "cortex-m7": (("-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-d16"), "mps2-an500", 0x0, 0x20000000),
    "cortex-m33": (("-mcpu=cortex-m33", *FLOAT), "mps2-an505", 0x10000000, 0x38000000),
    "cortex-m55": (("-mcpu=cortex-m55", "-mfloat-abi=hard"), "mps3-an547", 0x0, 0x21000000),
}

START = r"""#include <stdint.h>
extern void _start(void);
volatile uint32_t wraps;
static void tick(void) { wraps++; }
static void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
    _start();
}
__attribute__((section(".vectors"), used))
static void (*const vectors[16])(void) = {(void (*)(void))STACK, reset, [15] = tick};
"""

MAIN = r"""#include "net.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include "data.h"
extern volatile uint32_t wraps;
static _Alignas(64) unsigned char arena[NET_ARENA_BYTES];
static OUT_TYPE y[OUT_COUNT];

static uint64_t now(void)
{
    volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010;
    uint32_t w, v;
    do {
        w = wraps;
        v = systick[2];
    } while (w != wraps);
    return ((uint64_t)w << 24) + (0xFFFFFF - v);
}

#ifdef KERNELS
static uint64_t since;
static const char *running;
static double tick;
static void on_kernel(void *user, int index, const char *kernel)
{
    uint64_t at = now();
    (void)user, (void)index;
    if (running)
        printf("%12.0f %s\n", tick * (double)(at - since), running);
    running = kernel;
    since = now();
}
static const net_options options = {.on_kernel = on_kernel};
#define OPTIONS &options
#else
#define OPTIONS NULL
#endif

int main(void)
{
    volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010;
    systick[1] = 0xFFFFFF;
    systick[2] = 0;
    systick[0] = 7;
    while (systick[2] == 0) {           /* until it is reloaded */
    }
    uint64_t a = now();
    uint32_t n = 1000000;
    __asm__ volatile(".syntax unified\n1: subs %0, #1\n bne 1b" : "+l"(n) : : "cc");
    uint64_t b = now();
    net *net;
#ifdef KERNELS
    tick = 2e6 / (double)(b - a);
#endif
    if (net_init(&net, arena, sizeof arena, OPTIONS) != NET_OK)
        return 3;
    uint64_t c = now();
    if (net_run(net, &(net_inputs){.x = x}, &(net_outputs){.y = y}) != NET_OK)
        return 4;
    uint64_t d = now();
    double most = 0, scale = 0;
    for (int i = 0; i < OUT_COUNT; i++) {
        double e = fabs((double)y[i] - (double)want[i]);
        most = e > most ? e : most;
        scale = fabs((double)want[i]) > scale ? fabs((double)want[i]) : scale;
    }
    printf("run %.0f off %g of %g\n", 2e6 * (double)(d - c) / (double)(b - a), most, scale);
    return 0;
}
"""


class Net:
    """A chain of layers; names of tensors are x, t1, t2, ..., y."""

    def __init__(self, *shape, seed=3):
        self.shape, self.random, self.nodes, self.weights, self.at, self.macs = list(shape), np.random.default_rng(seed), [], [], "x", 0
        self.input = G.value("x", self.shape)

    def name(self):
        return f"t{len(self.nodes)}"

    def draw(self, *shape, fan):
        name = f"w{len(self.weights)}"
        self.weights.append(G.weight(name, (self.random.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)))
        return name

    def add(self, kind, inputs, **attributes):
        out = self.name()
        self.nodes.append(G.node(kind, inputs, [out], name=f"{kind.lower()}_{len(self.nodes)}", **attributes))
        self.at = out
        return out

    def conv(self, out, kernel, stride=1, depthwise=False, relu=True, at=None):
        at = at or self.at
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        _, c, h, w = self.shape
        each = 1 if depthwise else c
        names = [self.draw(out, each, kh, kw, fan=each * kh * kw), self.draw(out, fan=2e4)]
        oh, ow = -(-h // stride), -(-w // stride)
        ph, pw = max(0, (oh - 1) * stride + kh - h), max(0, (ow - 1) * stride + kw - w)
        self.add("Conv", [at, *names], strides=[stride] * 2, pads=[ph // 2, pw // 2, ph - ph // 2, pw - pw // 2],
                 group=c if depthwise else 1)
        self.shape = [1, out, oh, ow]
        self.macs += out * oh * ow * each * kh * kw
        return self.add("Relu", [self.at]) if relu else self.at

    def dense(self, out, relu=False):
        n = self.shape[-1]
        self.add("Gemm", [self.at, self.draw(n, out, fan=n), self.draw(out, fan=2e4)])
        self.shape = [1, out]
        self.macs += n * out
        return self.add("Relu", [self.at]) if relu else self.at

    def head(self, out):
        self.add("GlobalAveragePool", [self.at])
        self.add("Flatten", [self.at])
        self.shape = self.shape[:2]
        self.dense(out)

    def model(self):
        self.nodes[-1].output[0] = "y"
        return G.model(self.nodes, [self.input], [G.value("y", self.shape)], self.weights)


def ds_cnn():
    n = Net(1, 1, 49, 10)
    n.conv(64, (10, 4), 2)
    for _ in range(4):
        n.conv(64, 3, depthwise=True)
        n.conv(64, 1)
    n.head(12)
    return n


def resnet8():
    n = Net(1, 3, 32, 32)
    n.conv(16, 3)
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        before, shape = n.at, n.shape
        n.conv(width, 3, stride)
        main = n.conv(width, 3, relu=False)
        if stride > 1:
            after, n.shape = n.shape, shape
            before = n.conv(width, 1, stride, relu=False, at=before)
            n.shape = after
        n.add("Add", [main, before])
        n.add("Relu", [n.at])
    n.head(10)
    return n


def mobilenet():
    n = Net(1, 3, 96, 96)
    n.conv(8, 3, 2)
    for width, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)):
        n.conv(n.shape[1], 3, stride, depthwise=True)
        n.conv(width, 1)
    n.head(2)
    return n


def autoencoder():
    n = Net(1, 640)
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        n.dense(width, relu=True)
    n.dense(640)
    return n


NETS = {f.__name__: f for f in (ds_cnn, resnet8, mobilenet, autoencoder)}


def make(name, kind, folder):
    """The model's file, its input and ONNX Runtime's output, and how many multiply-adds it has."""
    import onnxruntime
    net = NETS[name]()
    path = folder / f"{name}.onnx"
    onnx.save(net.model(), path)
    random = np.random.default_rng(11)
    shape = [d.dim_value for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    x = random.standard_normal(shape).astype(np.float32)
    if kind == "int8":
        path = quantize(path, shape, random)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    want = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return path, x, want, net.macs


def quantize(path, shape, random):
    from onnxruntime import quantization as Q

    class Reader(Q.CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(8)]

        def get_next(self):
            return self.left.pop() if self.left else None

    out = path.with_suffix(".int8.onnx")
    Q.quantize_static(path, out, Reader(), quant_format=Q.QuantFormat.QDQ, activation_type=Q.QuantType.QInt8,
                      weight_type=Q.QuantType.QInt8, per_channel=True)
    return out


def numbers(array):
    return ", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in array.ravel())


def must(words, folder, **more):
    done = subprocess.run([str(w) for w in words], cwd=folder, capture_output=True, text=True, timeout=900, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def measure(folder, cpu, x, want, level, kernels):
    """net.c of the folder built, run and counted."""
    flags, machine, code, data = CPUS[cpu]
    (folder / "start.c").write_text(START)
    (folder / "main.c").write_text(MAIN)
    (folder / "data.h").write_text(f"#define OUT_TYPE float\n#define OUT_COUNT {want.size}\n"
                                   f"static const float x[] = {{{numbers(x)}}};\nstatic const float want[] = {{{numbers(want)}}};\n")
    flags = (*flags, *(("-DKERNELS",) if kernels else ()), "-mthumb", level, "-std=gnu11", "-fno-pic")
    must(["arm-none-eabi-gcc", *flags, "-c", "net.c", "-o", "net.o"], folder)
    must(["arm-none-eabi-gcc", *flags, f"-DSTACK={data + 0x3f0000:#x}", "net.o", "main.c", "start.c", "--specs=rdimon.specs",
          f"-Wl,--section-start=.vectors={code:#x}", f"-Wl,-Ttext-segment={code + 0x1000:#x}", f"-Wl,-Tdata={data:#x}", "-o", "net.elf", "-lm"], folder)
    said = must(["qemu-system-arm", "-M", machine, "-nographic", "-icount", "shift=0", "-semihosting-config", "enable=on,target=native",
                 "-kernel", "net.elf"], folder, stdin=subprocess.DEVNULL)
    if kernels:
        print(said, end="")
    run, off, scale = map(float, re.search(r"run (\S+) off (\S+) of (\S+)", said).groups())
    sizes = dict(re.findall(r"^(\.\S+)\s+(\d+)", must(["arm-none-eabi-size", "-A", "net.o"], folder), re.M))
    text = sum(int(v) for k, v in sizes.items() if k.startswith(".text"))
    return run, off, scale, text


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tgc", default="build/cli/tgc", type=Path)
    p.add_argument("--cpu", nargs="*", default=list(CPUS), choices=list(CPUS))
    p.add_argument("--net", nargs="*", default=list(NETS), choices=list(NETS))
    p.add_argument("--kind", nargs="*", default=["int8", "f32"], choices=["int8", "f32"])
    p.add_argument("--level", default="-O2")
    p.add_argument("--kernels", action="store_true", help="each kernel's instructions, too")
    p.add_argument("--as", dest="named", help="--cpu of tgc, in place of the processor's name")
    p.add_argument("--folder", default="build/micro", type=Path)
    p.add_argument("options", nargs="*", help="tgc's, after --")
    o = p.parse_args()
    print(f"{'':28s} {'M instr':>9s} {'/ MAC':>7s} {'code':>8s} {'weights':>8s} {'arena':>8s} {'stack':>6s}  off")
    for kind in o.kind:
        for name in o.net:
            base = o.folder.resolve() / f"{name}.{kind}"
            base.mkdir(parents=True, exist_ok=True)
            path, x, want, macs = make(name, kind, base)
            for cpu in o.cpu:
                folder = base / cpu
                folder.mkdir(exist_ok=True)
                words = [o.tgc.resolve(), path, "-o", folder / "net.c", f"--cpu={o.named or cpu}", "--name=net", *o.options]
                must(words, folder)
                info = json.loads(must([words[0], "info", "--json", path, *words[4:]], folder))
                run, off, scale, text = measure(folder, cpu, x, want, o.level, o.kernels)
                print(f"{name + ' ' + kind + ' ' + cpu:28s} {run / 1e6:9.2f} {run / macs:7.2f} {text:8d} {info['weight_bytes']:8d} "
                      f"{info['arena_bytes']:8d} {info['stack_bytes']:6d}  {off:.3g} of {scale:.3g}", flush=True)


if __name__ == "__main__":
    main()
