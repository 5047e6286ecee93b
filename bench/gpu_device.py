"""What bench/gpu.py runs on: programs of tgc's for CUDA, opened in the caller's stream with its memory bound, the device by
PyTorch or by the driver alone, and times of several contenders in turns.

A program's run is NAME_enqueue() on memory of the device's; where one set of inputs would stay in the L2 cache there are
several instances, each with memory of its own, which take turns.
"""

import ctypes
import functools
import gc
import glob
import hashlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib")]

from library import DTYPES, Library, put
from opencl import Options


class Failed(Exception):
    """A contender, or tgc, cannot do this case; the text says why."""


# ---------------------------------------------------------------------------------------- programs


def find_nvrtc():
    """PyTorch brings it along as a package; tgc is told where, unless somebody has."""
    if os.environ.get("TGC_NVRTC") or not importlib.util.find_spec("nvidia"):
        return
    for folder in importlib.util.find_spec("nvidia").submodule_search_locations:
        for path in sorted(glob.glob(f"{folder}/*/lib/libnvrtc.so.*")):
            if "builtins" not in path and ".alt." not in path:
                os.environ["TGC_NVRTC"] = path
                return


class Program:
    """NAME.so of a text, in a folder named by all that it depends on, so that it is built once, be it elsewhere."""

    def __init__(self, tgc, work, write, options=(), target="cuda", model="net.tg"):
        """write(folder) makes the model and what it names there."""
        self.tgc, self.target, self.model = tgc, target, model
        staging = Path(work) / f"new-{os.getpid()}-{id(self)}"
        staging.mkdir(parents=True)
        try:
            write(staging)
            key = hashlib.sha256("\0".join([target, *options]).encode())
            for path in sorted(staging.iterdir()):
                key.update(path.name.encode() + path.read_bytes())
            self.folder = Path(work) / key.hexdigest()[:20]
            if not (self.folder / model).exists():
                shutil.rmtree(self.folder, ignore_errors=True)
                staging.rename(self.folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self.options = [f"--target={target}", *options]

    def run(self, *words):
        done = subprocess.run([str(self.tgc), *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"tgc: {done.stderr.strip()[:500]}")
        return done.stdout

    def build(self):
        """net.so; by the system's C compiler, where it is not there yet."""
        so = self.folder / "net.so"
        if so.exists():
            return so
        self.run(self.model, "-o", "net.c", *self.options)
        part = self.folder / f"net-{os.getpid()}.so"
        words = [*os.environ.get("CC", "cc").split(), "-O2", "-shared", "-fPIC", "net.c", "-o", part, "-lm", "-ldl", "-lpthread"]
        done = subprocess.run([str(word) for word in words], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{words[0]}: {done.stderr.strip()[:500]}")
        part.rename(so)
        return so

    def info(self):
        return json.loads(self.run("info", self.model, *self.options, "--json"))

    def device_bytes(self):
        """NAME_DEVICE_BYTES and the weights', of the header: known before there is a device."""
        words = next((line.split() for line in (self.folder / "net.h").read_text().splitlines() if "_DEVICE_BYTES" in line), None)
        return int(words[2]) if words else 0


def note(told, _, text):
    told.append(text.decode(errors="replace"))


class Instance:
    """A program that is open; its inputs and outputs are memory of the device's."""

    def __init__(self, program, device, feeds=None):
        device.before(program)
        self.device, self.told = device, []         # the device's context outlives the program's
        self.on_error = Options.ERROR(functools.partial(note, self.told))
        options = Options(queue=device.stream_handle(), on_error=self.on_error)
        try:
            self.library = Library(program.build(), "net", options=options)
        except Exception as why:
            raise Failed(f"{why}: {'; '.join(self.told)}") from None
        info = self.library.info
        self.given, self.taken = np.zeros(max(info.inputs_bytes, 8), np.uint8), np.zeros(max(info.outputs_bytes, 8), np.uint8)
        self.inputs = self.bind(device, "bind_input", info.inputs, info.input_count, feeds)
        self.outputs = self.bind(device, "bind_output", info.outputs, info.output_count)
        self.call = (self.library.function("enqueue"), self.library.model, self.given.ctypes.data_as(ctypes.c_void_p),
                     self.taken.ctypes.data_as(ctypes.c_void_p), None)

    def bind(self, device, function, tensors, count, feeds=None):
        held = {}
        for k in range(count):
            name, dtype, shape = tensors[k].name.decode(), tensors[k].dtype.decode(), tensors[k].bounds()
            held[name] = device.array(feeds[name], dtype) if feeds else device.empty(shape, dtype)
            status = self.library.function(function)(self.library.model, k, ctypes.c_void_p(device.pointer(held[name])), ctypes.c_size_t(0))
            if status:
                raise Failed(f"{function} of '{name}': status {status}: {'; '.join(self.told)}")
        return held

    def start(self):
        enqueue, *arguments = self.call
        status = enqueue(*arguments)
        if status:
            raise Failed(f"enqueue: status {status}: {'; '.join(self.told)}")


# ----------------------------------------------------------------------------------------- devices


class TorchDevice:
    """PyTorch's first device, and a stream of its own."""

    def __init__(self):
        import torch
        self.torch = torch
        if not torch.cuda.is_available():
            raise Failed("PyTorch finds no CUDA device")
        torch.cuda.init()
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
                       "u8": torch.uint8, "bool": torch.bool, "f64": torch.float64}
        if hasattr(torch, "float8_e4m3fn"):
            self.dtypes["f8e4m3fn"] = torch.float8_e4m3fn

    def before(self, program): pass
    def stream_handle(self): return self.stream.cuda_stream
    def pointer(self, array): return array.data_ptr()
    def empty(self, shape, dtype): return self.torch.empty(shape, dtype=self.dtypes[dtype], device="cuda")
    def wait(self): self.stream.synchronize()
    def free_bytes(self): return self.torch.cuda.mem_get_info()[0]

    def forget(self):
        """Gives back what PyTorch keeps of the last case."""
        gc.collect()
        self.torch.cuda.empty_cache()

    def array(self, values, dtype):
        """values: NumPy's; of dtypes that it has not they are rounded to it here."""
        tensor = self.torch.from_numpy(np.ascontiguousarray(values)).cuda()
        return tensor.to(self.dtypes[dtype]) if tensor.dtype != self.dtypes[dtype] else tensor

    def numpy(self, array):
        self.wait()
        return (array.float() if array.dtype.is_floating_point else array).cpu().numpy()

    def event(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def elapsed(self, begin, end): return begin.elapsed_time(end)

    def facts(self):
        p = self.torch.cuda.get_device_properties(0)
        return {"device": p.name, "arch": f"sm_{p.major}{p.minor}", "units": p.multi_processor_count, "memory": p.total_memory,
                "l2": getattr(p, "L2_cache_size", 50 << 20), "torch": self.torch.__version__, "cuda": self.torch.version.cuda}


class DriverDevice:
    """The first device by the driver alone, where there is no PyTorch; nobody is compared with."""

    class Array:
        def __init__(self, memory, shape, dtype):
            self.memory, self.shape, self.dtype = memory, tuple(shape), dtype

    def __init__(self):
        from module import import_module
        self.module = import_module(os.environ.get("TGC", "tgc"), os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))._device
        try:
            self.driver = self.module.open_driver()
        except Exception as why:
            raise Failed(str(why)) from None
        self.stream = self.driver.stream()

    def before(self, program): pass
    def forget(self): pass
    def stream_handle(self): return self.stream.value
    def pointer(self, array): return array.memory.value
    def wait(self): self.driver.call_within("cuStreamSynchronize", ctypes.c_void_p(self.stream.value))

    def empty(self, shape, dtype):
        return self.Array(self.driver.memory(int(np.prod(shape)) * np.dtype(DTYPES[dtype]).itemsize), shape, DTYPES[dtype])

    def array(self, values, dtype):
        made = self.empty(np.shape(values), dtype)
        if dtype == "bf16" and values.dtype != np.uint16:
            bits = values.astype(np.float32).view(np.uint32)
            values = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)      # half to even
        values = np.ascontiguousarray(values.astype(DTYPES[dtype], copy=False))
        self.driver.call_within("cuMemcpyHtoD_v2", ctypes.c_uint64(made.memory.value), ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes))
        return made

    def numpy(self, array):
        self.wait()
        values = np.empty(array.shape, array.dtype)
        self.driver.call_within("cuMemcpyDtoH_v2", ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(array.memory.value), ctypes.c_size_t(values.nbytes))
        return values

    def event(self):
        event = self.driver.make("cuEventCreate", "cuEventDestroy_v2", ctypes.c_uint32(0))
        self.driver.call_within("cuEventRecord", ctypes.c_uint64(event.value), ctypes.c_void_p(self.stream.value))
        return event

    def elapsed(self, begin, end):
        ms = ctypes.c_float()
        self.driver.call_within("cuEventElapsedTime", ctypes.byref(ms), ctypes.c_uint64(begin.value), ctypes.c_uint64(end.value))
        return ms.value

    def free_bytes(self):
        left, whole = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call_within("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(whole))
        return left.value

    def facts(self):
        return {"device": "by the driver", "l2": 50 << 20}


def clocks():
    """What nvidia-smi says of the clocks now, where it is there."""
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    asked = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu,driver_version"
    done = subprocess.run([program, f"--query-gpu={asked}", "--format=csv,noheader,nounits"], capture_output=True, text=True)
    return dict(zip(asked.split(","), done.stdout.splitlines()[0].split(", "))) if done.returncode == 0 and done.stdout else None


# ------------------------------------------------------------------------------------------- times


def measure(device, runs, seconds=1.0, least=1000, longest=20.0):
    """Median ms of each contender, in turns. runs: {name: function that enqueues run number i}. Each has `seconds` of the device's time or
    `least` runs, whichever is less, or what `longest` seconds of everybody's allow."""
    samples, batch, number = {name: [] for name in runs}, {}, dict.fromkeys(runs, 0)

    def sample(name, count):
        begin = device.event()
        for i in range(count):
            runs[name](number[name] + i)
        end = device.event()
        device.wait()
        number[name] += count
        return device.elapsed(begin, end) / count
    for name in runs:                               # warm, and how many runs are a sample of 10 ms
        for _ in range(2):
            ms = sample(name, 3)
        batch[name] = max(1, min(int(10 / max(ms, 1e-3)), least))
    spent, begin = dict.fromkeys(runs, 0.0), time.monotonic()
    number = dict.fromkeys(runs, 0)
    waiting = set(runs)
    while waiting and time.monotonic() - begin < longest:
        for name in list(runs):
            ms = sample(name, batch[name])
            samples[name].append(ms)
            spent[name] += ms * batch[name] / 1e3
            if number[name] >= least or spent[name] >= seconds:
                waiting.discard(name)
    return {name: {"ms": statistics.median(values), "least": min(values), "runs": number[name]} for name, values in samples.items() if values}
