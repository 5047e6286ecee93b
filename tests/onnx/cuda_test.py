"""The CUDA target without a device: kernels are compiled by NVRTC and assembled by ptxas for each architecture, and run on the emulated
device from the text that their PTX was made of, where every access and every call of the driver is checked. Quick: the models of models/,
every 60th of the onnx package's tests."""

import gc
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "exec")]

import numpy as np
import onnx

import cuda
import emulator
import graphs as G
import node_test as N
import opencl_test as O
import tgc as T
from device_test import Options
from library import Library
from suite import Suite, expect

EVERY = 60
FUZZED = 4                    # random graphs
FUZZED_LONG, PART = 5000, 250
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_120")
NO_DEVICE, OLD_DRIVER, DEVICE_MEMORY, OTHER_DEVICE = 19, 21, 22, 23
PROGRAMS = HERE.parent / "emulator" / "programs"

# Programs beside C's: name, text, options.
ENTRIES = """tg 1
state %s : f32[8]
entry "add" {
    input %x : f32[8]
    %n = add(%s, %x)
    keep %s = %n
    output %n as "sum"
}
entry "look" {
    %1 = reduce_sum(%s) {axes=[0], keep=true}
    output %1 as "total"
}
"""
MLP = (ROOT / "models" / "mlp.tg").read_text()
SAME = [("states and entries", ENTRIES, ()), ("half storage", MLP, ("--dim=B=3", "--half-storage")),
        ("no locals", MLP, ("--dim=B=3", "--no-locals")), ("weights beside", MLP, ("--dim=B=3", "--weights=file"))]

suite = Suite("cuda", jobs=1)      # the device is one of the process


def built(tgc, model, folder, *options):
    """NAME.so of a model, in this process's device."""
    T.scratch(folder)
    onnx.save(model, folder / "net.onnx")
    cuda.emit(tgc, "net.onnx", folder, "net", *options)
    T.must(T.run(["gcc", "-O1", *T.WARNINGS, "-shared", "-fPIC", "net.c", "-o", "net.so"], cwd=folder))
    cuda.text_of(folder / "net.cu")


# -------------------------------------------------------------------------------------------------- programs

def check_model(tgc, path, folder):
    """The program's own check of its reference vectors."""
    T.scratch(folder)
    cuda.emit(tgc, path, folder, "m")
    T.build(folder / "m.c", folder / "m", "gcc", ("-O1",))
    done = T.run([folder / "m", "--selftest"], env=emulator.cuda_environment(suite.options.build, folder / "m.cu", cache=folder / "kernels"))
    expect(done.status == 0 and not done.err, done.describe())


def check_case(device, tgc, case, folder, told):
    cuda.need_nvrtc()
    with device.watch():
        try:
            N.emit_case(tgc, case, folder, ("--target=cuda",), told)
            options = N.case_options(case, folder, ("--target=cuda",), told)
            T.must(T.run([tgc, "model.onnx", "-o", "node.cu", *options], cwd=folder, timeout=60))
            T.must(T.run(["gcc", "-O0", "-shared", "-fPIC", "node.c", "-o", "node.so", *N.libraries_of(case)], cwd=folder))
            cuda.text_of(folder / "node.cu")
            O.check_results(case, Library(folder / "node.so", "node"))
        except N.Refused as refusal:
            O.check_refusal(case, refusal)
        gc.collect()
    shutil.rmtree(folder, ignore_errors=True)


# -------------------------------------------------------------------------------------------------- compilers

def check_assembly(tgc, path, folder, most=0):
    """PTX is assembled for each architecture: nothing is kept in memory for lack of registers, but for what ptxas itself gives for more
    blocks at once (of large models, by its own measure)."""
    cuda.need_nvrtc()
    T.scratch(folder)
    done = T.run([tgc, path, "-o", "m.ptx", "--target=cuda"], cwd=folder, timeout=300)
    if "--dim" in done.err:          # as the error says
        done = T.run([tgc, path, "-o", "m.ptx", "--target=cuda", *(f"--dim={dim}" for dim in re.findall(r"--dim (\w+=\.\.8)", done.err))], cwd=folder, timeout=300)
    T.must(done)
    for arch in ARCHITECTURES:
        said = T.must(T.run([cuda.ptxas(), "-v", f"--gpu-name={arch}", "m.ptx", "-o", "m.cubin"], cwd=folder, timeout=300))
        text = said.out.decode() + said.err
        found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        expect(found and all(int(nbytes) <= most for pair in found for nbytes in pair), f"{arch}: {text[-2000:]}")


def shuffles(tgc, folder):
    """Rows whose block is one warp are summed up by shuffles, which need no barrier; the program runs on the emulated device."""
    check_model(tgc, ROOT / "models" / "layer_norm.tg", folder)
    T.must(T.run([tgc, ROOT / "models" / "layer_norm.tg", "-o", "m.ptx", "--target=cuda"], cwd=folder))
    text = (folder / "m.ptx").read_text()
    expect("shfl.sync.bfly" in text and "bar.sync" not in text, "no shuffles, or barriers")


def same_bytes(tgc, folder):
    """PTX and machine code are those of the text, in any directory, and name the compiler."""
    cuda.need_nvrtc()
    files = []
    for name in ("a", "b"):
        T.scratch(folder / name)
        T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda", "--cpu=sm_80,sm_90a"], cwd=folder / name))
        files.append((folder / name / "m.c").read_bytes())
    expect(files[0] == files[1], "two compiles differ")
    text = files[0].decode()
    expect(re.search(r"as NVRTC \d+\.\d+ has compiled them", text), "the compiler is not named")
    for image in ("image_sm_80[] =", "image_sm_90a[] =", "image_compute_80[] ="):
        expect(image in text, f"no {image}")


def without_compiler(tgc, folder):
    """Without NVRTC: what is missing, and no file; the kernels' text needs none."""
    T.scratch(folder)
    environment = {"TGC_NVRTC": str(folder / "none.so")}
    done = T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.c", "--target=cuda"], cwd=folder, env=environment)
    expect(done.status == 1 and "none.so" in done.err and not list(folder.iterdir()), done.describe())
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "m.cu", "--target=cuda"], cwd=folder, env=environment))
    expect('extern "C" __global__ void' in (folder / "m.cu").read_text(), "no kernels")
    done = T.must(T.run([tgc, "--version"], env=environment))
    expect("NVRTC: none" in done.out.decode(), done.out)


def large_grids(device, tgc, folder):
    """The grid's second and third axes have at most 65535 blocks: a larger dimension is the first one; two of them are refused."""
    x = np.random.default_rng(5).random((2, 70000, 3), np.float32)
    turned = G.model([G.node("Transpose", ["x"], ["y"], perm=[1, 0, 2])], [G.value("x", list(x.shape))], [G.value("y", [70000, 2, 3])])
    with device.watch():
        built(tgc, turned, folder)
        library = Library(folder / "net.so", "net")
        expect(np.array_equal(library.run({"x": x})["y"], x.transpose(1, 0, 2)), "other numbers")
        del library
        gc.collect()
    huge = [1, 1 << 24, 1 << 24, 2]
    T.scratch(folder)
    onnx.save(G.model([G.node("Transpose", ["x"], ["y"], perm=[0, 2, 1, 3])], [G.value("x", huge)], [G.value("y", huge)]), folder / "m.onnx")
    done = T.run([tgc, "m.onnx", "-o", "m.cu", "--target=cuda"], cwd=folder)
    expect(done.status == 1 and "blocks along axis" in done.err and not (folder / "m.cu").exists(), done.describe())


# -------------------------------------------------------------------------------------------------- the host

def other_devices(device, tgc, folder):
    """No device; a driver older than the PTX; an older architecture; too little memory."""
    built(tgc, G.perceptron(), folder)
    device.refuses(folder / "net.so", "units=0", NO_DEVICE, "")
    device.refuses(folder / "net.so", "driver=11040", OLD_DRIVER, "cuModuleLoadDataEx")
    device.refuses(folder / "net.so", "arch=75", OTHER_DEVICE, "the device, which is sm_75: compile with --cpu=sm_75")
    device.refuses(folder / "net.so", "memory=100", DEVICE_MEMORY, "needs [0-9]+ bytes and [0-9]+ for its weights, and of the device's 100")


def images(device, tgc, folder):
    """Of several images the one that fits: machine code of the generation, exact ones on theirs alone, else PTX."""
    built(tgc, G.perceptron(), folder, "--cpu=sm_80,sm_90a")
    for arch, is_code in ((80, 1), (86, 1), (90, 1), (100, 0), (120, 0)):
        with device.watch(f"arch={arch}"):
            library = Library(folder / "net.so", "net")
            library.run({"x": np.ones((1, 8), np.float32)})
            expect(device.library.emulator_is_code() == is_code, f"sm_{arch}: machine code {not is_code}")
            del library
            gc.collect()


def recorded(device, tgc, folder):
    """A run is its copies and one graph, and the wait: all the rest was done by init."""
    built(tgc, G.perceptron(), folder)
    with device.watch():
        library = Library(folder / "net.so", "net")
        with device.log(folder / "calls"):
            library.run({"x": np.ones((1, 8), np.float32)})
        calls = [line for line in (folder / "calls").read_text().split("\n")[:-1] if "cuCtxP" not in line]
        wanted = ["cuMemcpyHtoDAsync_v2 0", "cuGraphLaunch 0", "cuMemcpyDtoHAsync_v2 0", "cuStreamSynchronize 0"]
        expect(calls == wanted, f"{calls}, not {wanted}")
        del library
        gc.collect()


def commands(tgc, folder, build):
    """tgc devices, and tgc run by the device."""
    T.scratch(folder)
    cuda.need_nvrtc()
    T.must(T.run([tgc, ROOT / "models" / "digits.tg", "-o", "digits.cu", "--target=cuda"], cwd=folder))
    environment = {**emulator.cuda_environment(build, folder / "digits.cu", cache=folder / "kernels", device="arch=90 name=Emulated"), "TGC_CACHE": "0"}
    done = T.must(T.run([tgc, "devices"], env=environment))
    expect("cuda 1: Emulated, NVIDIA\n    GPU, sm_90, driver of CUDA 13.0" in done.out.decode(), done.out)
    done = T.must(T.run([tgc, "run", ROOT / "models" / "digits.tg", "--target=cuda"], env=environment))
    expect("probabilities" in done.out.decode() and "and CUDA" in done.out.decode() and "emulator:" not in done.err, done.out.decode() + done.err)


def same_as_c(tgc, folder, build, model, options):
    """tgc verify of a program for the device beside C's."""
    T.scratch(folder)
    cuda.need_nvrtc()
    (folder / "net.tg").write_text(model)
    T.must(T.run([tgc, "net.tg", "-o", "net.cu", "--target=cuda", *options], cwd=folder))
    environment = {**emulator.cuda_environment(build, folder / "net.cu", cache=folder / "kernels"), "TGC_CACHE": "0"}
    done = T.must(T.run([tgc, "verify", "net.tg", "--target=c", *(option for option in options if option.startswith("--dim")),
                         f"--other={' '.join(['--target=cuda', *options])}", *(["--atol=3e-3"] if "--half-storage" in options else [])], cwd=folder, env=environment))
    expect("emulator:" not in done.err, done.err)


def without_driver(tgc, folder):
    T.scratch(folder)
    cuda.emit(tgc, ROOT / "models" / "mlp.tg", folder, "m")
    T.build(folder / "m.c", folder / "m", "gcc", ("-O1",))
    done = T.run([folder / "m", "--selftest"], cwd=folder, env={"LD_LIBRARY_PATH": str(folder)})
    expect(done.status != 0 and ("driver of the device" in done.out.decode() + done.err), done.describe())


def each_call_fails(tgc, model, folder, build):
    """At each call of the driver in turn, in a build with sanitizers."""
    T.scratch(folder)
    onnx.save(model, folder / "net.onnx")
    cuda.emit(tgc, "net.onnx", folder, "net")
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, '-DDRIVER="libcuda.so.1"', "net.c", PROGRAMS / "failing.c", "-I.", "-o", "failing", "-lm", "-ldl"],
                 cwd=folder))
    done = T.must(T.run([folder / "failing", "", "+", ":2"], env=emulator.cuda_environment(build, folder / "net.cu", cache=folder / "kernels")))
    expect("emulator: " not in done.err, done.err)
    expect(int(re.search(r"each of (\d+) calls", done.out.decode()).group(1)) > 20, done.out)


def broken_program(tgc, folder, build):
    """A kernel that stores one element too far: a status, and the line of its text."""
    T.scratch(folder)
    cuda.emit(tgc, ROOT / "models" / "mlp.tg", folder, "net", "--dim", "B=2")
    text = (folder / "net.cu").read_text()
    broken = re.sub(r"\by\[([^]]*)\] = ", r"y[\1 + 1] = ", text, count=1)
    expect(broken != text, "no kernel stores to y[...]")
    key, source = fnv(text), (folder / "net.c").read_text()
    expect(key in source, "PTX does not say of which text it is")
    (folder / "net.cu").write_text(broken)
    (folder / "net.c").write_text(source.replace(key, fnv(broken)))
    T.build(folder / "net.c", folder / "net", "gcc", ("-O0",))
    done = T.run([folder / "net", "--selftest"], env=emulator.cuda_environment(build, folder / "net.cu", cache=folder / "kernels"))
    expect(done.status != 0 and re.search(r"emulator: net_\w+: out of bounds: .*, at line \d+: y\[.* \+ 1\] = ", done.err), done.describe())


def fnv(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{value:016x}"


def sharing(tgc, folder, build):
    """In a program that uses CUDA itself: its context, stream, device memory and event, times of kernels."""
    T.scratch(folder)
    cuda.emit(tgc, ROOT / "models" / "digits.tg", folder, "net")
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "net.c", PROGRAMS / "cuda.c", "-I.", "-o", "sharing", "-lm", "-ldl"], cwd=folder))
    done = T.must(T.run([folder / "sharing"], env=emulator.cuda_environment(build, folder / "net.cu", cache=folder / "kernels")))
    expect(done.out.decode() == "right\n" and not done.err, done.describe())


def random_graphs(first, count):
    command = [sys.executable, HERE.parent / "fuzz" / "random_graphs.py", "--build", suite.options.build, "--emulator=cuda", "--seed", first,
               "--count", count, "--jobs", 2]
    done = T.run(command, timeout=3600)
    expect(done.status == 0, "\n".join(line for line in done.out.decode().splitlines() if not line.startswith("ok "))[:6000] or done.err)


def main():
    suite.parse()
    build = suite.options.build
    tgc = T.find_tgc(build)
    scratch = T.scratch(Path(build).resolve() / "test-scratch" / "cuda")
    device = emulator.Device(build, scratch, emulator.cuda_library)
    models = sorted((ROOT / "models").glob("*.tg"))
    for number, path in enumerate(models):
        suite.add(path.name, check_model, tgc, path, scratch / path.stem, slow=number % 2 == 0)
        suite.add(f"ptxas: {path.name}", check_assembly, tgc, path, scratch / f"{path.stem}-ptx", slow=number % 2 == 1)
    for path in sorted((ROOT / ".cache" / "models").glob("*.onnx")):
        suite.add(f"ptxas: {path.stem.split('-')[0]}", check_assembly, tgc, path, scratch / f"{path.stem}-ptx", 16, slow=True)
    suite.add("sums by shuffles", shuffles, tgc, scratch / "shuffles")
    suite.add("the same bytes", same_bytes, tgc, scratch / "same")
    suite.add("no compiler", without_compiler, tgc, scratch / "no_compiler")
    suite.add("tgc devices, tgc run", commands, tgc, scratch / "commands", build)
    for name, model, options in SAME:
        suite.add(f"as by C: {name}", same_as_c, tgc, scratch / f"as_c-{name.replace(' ', '_')}", build, model, options)
    suite.add("no driver", without_driver, tgc, scratch / "no_driver")
    suite.add("large grids", large_grids, device, tgc, scratch / "grid")
    suite.add("devices that lack something", other_devices, device, tgc, scratch / "lacks")
    suite.add("images", images, device, tgc, scratch / "images")
    suite.add("a run's calls of the driver", recorded, device, tgc, scratch / "recorded")
    suite.add("a kernel out of bounds", broken_program, tgc, scratch / "broken", build)
    suite.add("context, stream, memory and event of the caller's", sharing, tgc, scratch / "sharing", build)
    for name, make in G.FAILING.items():
        suite.add(f"each call of the driver fails: {name}", each_call_fails, tgc, make(), scratch / f"fails-{name.replace(' ', '_')}", build)
    cases = N.load_cases(build)
    passing, _ = N.read_lists()
    for number, (name, told) in enumerate(passing.items()):
        if name in cases:
            suite.add(name, check_case, device, tgc, cases[name], scratch / N.flat(name), told, slow=number % EVERY != 0)
    suite.add(f"{FUZZED} random graphs", random_graphs, 100000, FUZZED)
    for first in range(0, FUZZED_LONG, PART):
        suite.add(f"random graphs {first}-{first + PART - 1}", random_graphs, first, PART, slow=True)
    suite.main()


if __name__ == "__main__":
    main()
