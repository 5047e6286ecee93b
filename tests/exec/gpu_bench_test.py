"""bench/gpu.py without a GPU: its parts at tiny sizes on the emulated driver, where what it calls right is held to the C target's
results, what is measured is appended and not run twice, and nothing is left; the parts that need no device on one model."""

import contextlib
import gc
import io
import json
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(ROOT / "bench")]

import cuda
import emulator
import gpu
import gpu_device
import tgc as T
from suite import Suite, expect

suite = Suite("gpu_bench", jobs=1)      # the device is one of the process


class EmulatedDevice(gpu_device.DriverDevice):
    """The device without PyTorch, whose programs the emulator runs by their text."""

    def before(self, program):
        program.run(program.model, "-o", "net.cu", *program.options)
        cuda.text_of(program.folder / "net.cu")


def run(device, tgc, folder, part, *words):
    """(the results' lines, what was printed) of a part, run twice if it is one of times."""
    cuda.need_nvrtc()
    os.environ["TGC"] = str(tgc)
    T.scratch(folder)
    options = gpu.arguments(["--tgc", str(tgc), "--work", str(folder / "work"), "--out", str(folder / "out.jsonl"), "--small", "--least=2", "--seconds=0", "--jobs=1",
                             "--part", part, *words])
    said = io.StringIO()
    for _ in range(1 if part in ("check", "copies", "init", "nodes") else 2):
        with device.watch(), contextlib.redirect_stdout(said):
            expect(not gpu.run_part(options, EmulatedDevice()), said.getvalue())
            gc.collect()
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    expect(lines and all("failed" not in line for line in lines), said.getvalue())
    expect(len({line["case"] for line in lines}) == len(lines), "a case was run again")
    return lines, said.getvalue()


def right(device, tgc, folder, *words):
    lines, said = run(device, tgc, folder, "check", *words)
    expect(all(line["right"] for line in lines) and f"{len(lines)} right, 0 wrong" in said, said)


def timed(device, tgc, folder, part, *words):
    lines, said = run(device, tgc, folder, part, *words)
    for line in lines:
        expect(line["times"]["tgc"]["ms"] > 0 and line["launches"] and line["device_bytes"] and f"| {line['case']} |" in said, f"{line}")
    with contextlib.redirect_stdout(io.StringIO()) as table:
        gpu.report(folder / "out.jsonl")
    expect(all(f"| {line['case']} |" in table.getvalue() for line in lines), table.getvalue())


def quick(device, tgc, folder):
    """A case of each part, timed and held to what is right, in turns."""
    lines, said = run(device, tgc, folder, "quick", "--dtypes", "f32", "--only=^(f32 8x24x32|f32 batch 1.*|f32 1x2x12x8|ViT f32)$")
    expect([line["of"] for line in lines] == ["gemm", "attention", "conv", "models"] and all(line["right"] for line in lines), f"{lines}")
    expect("0 wrong" in said, said)


def copies(device, tgc, folder):
    lines, said = run(device, tgc, folder, "copies")
    expect(len(lines) == 1 and min(lines[0]["us"].values()) > 0 and "| 4096 |" in said, said)


def wrong(device, tgc, folder):
    """A program that computes something else is found, and one that does not compile fails alone."""
    cuda.need_nvrtc()
    os.environ["TGC"] = str(tgc)
    T.scratch(folder)
    options = gpu.arguments(["--tgc", str(tgc), "--work", str(folder / "work"), "--out", str(folder / "out.jsonl"), "--part", "check", "--only=^(mlp|digits)$"])
    texts = gpu.texts_of_check

    def other(options_):
        return {"mlp": ("tg 1\ninput %x : f32[3]\n%y = nothing(%x)\noutput %y as \"y\"\n", {}), "digits": texts(options_)["digits"]}
    error_of = gpu.error_of
    gpu.texts_of_check, gpu.error_of = other, lambda got, want: error_of(got + 1, want)
    said = io.StringIO()
    try:
        with device.watch(), contextlib.redirect_stdout(said):
            expect(gpu.run_part(options, EmulatedDevice()), "nothing is wrong")
            gc.collect()
    finally:
        gpu.texts_of_check, gpu.error_of = texts, error_of
    expect("WRONG  mlp: tgc: net.tg:3" in said.getvalue() and "WRONG  digits" in said.getvalue() and "0 right, 2 wrong" in said.getvalue(), said.getvalue())


def nodes(device, tgc, folder, *words):
    lines, said = run(device, tgc, folder, "nodes", *words)
    expect(len(lines) == 1 and lines[0]["right"] and lines[0]["count"] > 1, said)


def opened(device, tgc, folder):
    """Seconds of init, in processes of their own."""
    os.environ["LD_LIBRARY_PATH"] = str(Path(device.library._name).parent)
    lines, said = run(device, tgc, folder, "init", "--models", str(ROOT / "models" / "digits.tg"))
    del os.environ["LD_LIBRARY_PATH"]
    expect(len(lines[0]["seconds"]) == 3 and min(lines[0]["seconds"]) > 0 and "| digits | " in said, said)


def without_device(tgc, folder, part, *wanted):
    """A part that needs none: a line for each model, with what is wanted in it."""
    cuda.need_nvrtc()
    done = T.must(T.run([sys.executable, ROOT / "bench" / "gpu.py", "--tgc", tgc, "--work", folder, "--part", part, "--models", ROOT / "models" / "digits.tg"], timeout=300))
    text = done.out.decode()
    expect(all(re.search(words, text) for words in wanted), text + done.err)


def without_driver(tgc, folder):
    done = T.run([sys.executable, ROOT / "bench" / "gpu.py", "--tgc", tgc, "--work", folder, "--part", "check"], timeout=60, env={"LD_LIBRARY_PATH": str(folder)})
    expect(done.status == 1 and ("libcuda.so.1" in done.err or "no CUDA device" in done.err), done.describe())


def main():
    suite.parse()
    build = Path(suite.options.build).resolve()
    tgc, scratch = T.find_tgc(build).resolve(), T.scratch(build / "test-scratch" / "gpu_bench")
    device = emulator.Device(build, scratch, emulator.cuda_library)
    suite.add("check", right, device, tgc, scratch / "check", "--only=mlp|f32 8x24|f16 batch 1")
    suite.add("times", timed, device, tgc, scratch / "times", "gemm", "--dtypes", "f32", "i8")
    suite.add("quick", quick, device, tgc, scratch / "quick")
    suite.add("copies", copies, device, tgc, scratch / "copies")
    suite.add("nodes", nodes, device, tgc, scratch / "nodes", "--every=150", "--only=conv|relu|reduce_sum")
    suite.add("init", opened, device, tgc, scratch / "init")
    suite.add("what is wrong", wrong, device, tgc, scratch / "wrong")
    suite.add("sizes", without_device, tgc, scratch / "sizes", "sizes", r"\| digits( \| \d+\.\d){5} \|")
    suite.add("estimate", without_device, tgc, scratch / "estimate", "estimate", "sm_80: instructions of", r"\| digits, 3 kernels \| 0\.0")
    suite.add("no driver", without_driver, tgc, scratch / "no_driver")
    suite.add("check, whole", right, device, tgc, scratch / "check-all", slow=True)
    for part in ("gemm", "conv", "attention", "models"):
        suite.add(f"{part}, whole", timed, device, tgc, scratch / f"{part}-all", part, slow=True)
    suite.main()


if __name__ == "__main__":
    main()
