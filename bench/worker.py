"""One contender in a process of its own: loads a model, then runs or times it when told to.

    python bench/worker.py SPEC.json

The specification names the kind of contender, the model's folder, the cores to stay on and
the threads to use. Commands come as lines of JSON on standard input, answers as lines on
standard output; between commands the process sleeps, so that contenders do not disturb each
other. Whatever the libraries print goes to standard error.

    {"do": "run", "out": FILE.npz}              -> {"outputs": [...]}       one run, outputs stored
    {"do": "memory"}                            -> {"arena_bytes": N}       ONNX Runtime's
    {"do": "time", "seconds": S, "samples": N}  -> {"seconds": [...]}       seconds of a run, each

Emitted C, ONNX Runtime and OpenVINO are timed by bench/driver.c through their C functions.
ncnn's package has its Python module alone, so its loop is Python's, about 2 us a run; so is
tinygrad's.
"""

import ctypes
import importlib.util
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np


class Broken(Exception):
    """This contender cannot run this model; the text says why."""


def pointer_array(values):
    return (ctypes.c_void_p * len(values))(*values)


def name_array(names):
    return (ctypes.c_char_p * len(names))(*[name.encode() for name in names])


def address(array):
    return array.ctypes.data


class Contender:
    """Inputs and outputs in aligned memory of ours, and a C function to call."""

    def __init__(self, spec, facts):
        self.spec, self.facts = spec, facts
        self.driver = ctypes.CDLL(spec["driver"])
        with np.load(Path(spec["folder"]) / "inputs.npz") as archive:
            self.inputs = [aligned(archive[str(k)]) for k in range(len(archive.files))]
        self.outputs = [aligned(np.zeros(o["shape"], o["dtype"])) for o in facts["outputs"]]
        self.call, self.argument = None, None
        self.calls = 0          # runs in a sample, chosen when first timed
        self.about = {}

    def results(self):
        return self.outputs

    def run_once(self):
        self.sample(1, 1, 0)

    def sample(self, samples, calls, limit):
        """Seconds per call of up to that many samples, within the limit of seconds."""
        seconds = (ctypes.c_double * samples)()
        taken = self.driver.bench_time(self.call, self.argument, samples, calls,
                                       ctypes.c_double(limit), seconds,
                                       int(self.spec.get("busy", False)))
        if taken < 0:
            raise Broken(self.explain(-taken))
        return list(seconds[:taken])

    def explain(self, status):
        return f"a run failed with status {status}"


def aligned(array):
    """A copy at a multiple of 64 bytes."""
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -address(room) % 64
    copy = room[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


# --------------------------------------------------------------------------------- emitted C


class Info(ctypes.Structure):
    """struct NAME_info, as every emitted header declares it."""
    _fields_ = [("version", ctypes.c_int), ("name", ctypes.c_char_p),
                ("producer", ctypes.c_char_p), ("target", ctypes.c_char_p),
                ("input_count", ctypes.c_int), ("output_count", ctypes.c_int),
                ("symbol_count", ctypes.c_int), ("kernel_count", ctypes.c_int),
                ("inputs", ctypes.c_void_p), ("outputs", ctypes.c_void_p),
                ("symbols", ctypes.c_void_p), ("kernels", ctypes.c_void_p),
                ("arena_bytes", ctypes.c_size_t), ("arena_align", ctypes.c_size_t),
                ("weights_bytes", ctypes.c_size_t), ("weights_external", ctypes.c_int),
                ("flop", ctypes.c_double), ("inputs_bytes", ctypes.c_size_t),
                ("outputs_bytes", ctypes.c_size_t)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("element_bytes", ctypes.c_size_t), ("rank", ctypes.c_int),
                ("dim", ctypes.c_void_p), ("offset", ctypes.c_size_t),
                ("shape_offset", ctypes.c_size_t)]


class EmittedCall(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("run", "model", "inputs", "outputs")]


class Emitted(Contender):
    """The .so of a C file that tgc wrote."""

    def __init__(self, spec, facts):
        super().__init__(spec, facts)
        library, name = ctypes.CDLL(spec["library"]), spec["symbol"]
        describe = getattr(library, f"{name}_describe")
        describe.restype = ctypes.POINTER(Info)
        info = describe().contents
        if info.version not in (1, 2, 3, 4, 5):  # later ones have more behind what is read here
            raise Broken(f"unknown version {info.version} of {name}_info")
        self.arena = np.zeros(info.arena_bytes + info.arena_align, np.uint8)
        base = address(self.arena) + -address(self.arena) % info.arena_align
        model = ctypes.c_void_p()
        self.strerror = getattr(library, f"{name}_strerror")
        self.strerror.restype = ctypes.c_char_p
        status = getattr(library, f"{name}_init")(
            ctypes.byref(model), ctypes.c_void_p(base), ctypes.c_size_t(info.arena_bytes), None)
        if status != 0:
            raise Broken(self.explain(status))
        self.blocks = [self.fill(info.inputs, info.input_count, info.inputs_bytes, self.inputs),
                       self.fill(info.outputs, info.output_count, info.outputs_bytes,
                                 self.outputs)]
        run = ctypes.cast(getattr(library, f"{name}_run"), ctypes.c_void_p)
        self.state = EmittedCall(run, model, *[ctypes.addressof(b) for b in self.blocks])
        self.call, self.argument = self.driver.bench_call_emitted, ctypes.byref(self.state)
        self.about = {"kernels": info.kernel_count, "arena_bytes": info.arena_bytes,
                      "flop": info.flop, "weight_bytes": info.weights_bytes}

    @staticmethod
    def fill(table, count, nbytes, arrays):
        """The inputs or outputs struct. Run-time dimensions are not for a benchmark."""
        if count != len(arrays):
            raise Broken(f"{count} tensors in the emitted code, {len(arrays)} in the model")
        block = (ctypes.c_char * nbytes)()
        for tensor, array in zip(ctypes.cast(table, ctypes.POINTER(Tensor * count)).contents,
                                 arrays):
            if tensor.element_bytes != array.itemsize:
                raise Broken(f"{tensor.name.decode()} has {tensor.element_bytes} bytes an element")
            ctypes.c_void_p.from_buffer(block, tensor.offset).value = address(array)
        return block

    def explain(self, status):
        return self.strerror(status).decode()


# ------------------------------------------------------------------------------- ONNX Runtime


class OrtCall(ctypes.Structure):
    _fields_ = [("run", ctypes.c_void_p), ("session", ctypes.c_void_p),
                ("input_names", ctypes.c_void_p), ("inputs", ctypes.c_void_p),
                ("input_count", ctypes.c_size_t), ("output_names", ctypes.c_void_p),
                ("output_count", ctypes.c_size_t), ("outputs", ctypes.c_void_p)]


class CountingAllocator(ctypes.Structure):
    """struct bench_allocator"""
    _fields_ = [("version", ctypes.c_uint32), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p),
                ("info", ctypes.c_void_p), ("memory_info", ctypes.c_void_p),
                ("now", ctypes.c_size_t), ("most", ctypes.c_size_t)]


# Places in struct OrtApi, whose order is its binary interface.
ORT = {"GetErrorMessage": 2, "CreateEnv": 3, "CreateSession": 7, "Run": 9,
       "CreateSessionOptions": 10, "SetIntraOpNumThreads": 24, "SetInterOpNumThreads": 25,
       "CreateTensorWithDataAsOrtValue": 49, "CreateCpuMemoryInfo": 69,
       "AddSessionConfigEntry": 130, "RegisterAllocator": 176}

ORT_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
             "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13}


class OnnxRuntime(Contender):
    """ONNX Runtime by its C interface, from the library in its Python package; all defaults but
    the number of threads, outputs in memory of ours."""

    def __init__(self, spec, facts):
        super().__init__(spec, facts)
        folder = Path(importlib.util.find_spec("onnxruntime").origin).parent / "capi"
        library = ctypes.CDLL(str(next(folder.glob("libonnxruntime.so*"))))
        library.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p * 2)
        base = library.OrtGetApiBase().contents
        version = ctypes.CFUNCTYPE(ctypes.c_char_p)(base[1])().decode()
        api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(base[0])(16)
        self.table = ctypes.cast(api, ctypes.POINTER(ctypes.c_void_p))
        self.about = {"version": version}
        self.env = self.made("CreateEnv", ctypes.c_int(3), b"bench")
        self.memory = self.made("CreateCpuMemoryInfo", ctypes.c_int(1), ctypes.c_int(0))
        values = [[self.value(array) for array in group] for group in (self.inputs, self.outputs)]
        self.keep = [name_array([t["name"] for t in facts["inputs"]]),
                     pointer_array([v.value for v in values[0]]),
                     name_array([t["name"] for t in facts["outputs"]]),
                     pointer_array([v.value for v in values[1]])]
        at = [ctypes.addressof(array) for array in self.keep]
        self.state = OrtCall(self.table[ORT["Run"]], self.session(spec["threads"]), at[0], at[1],
                             len(values[0]), at[2], len(values[1]), at[3])
        self.call, self.argument = self.driver.bench_call_onnxruntime, ctypes.byref(self.state)

    def session(self, threads, **entries):
        options = self.made("CreateSessionOptions")
        self.must("SetIntraOpNumThreads", options, ctypes.c_int(threads))
        self.must("SetInterOpNumThreads", options, ctypes.c_int(1))
        for key, value in entries.items():
            self.must("AddSessionConfigEntry", options, f"session.{key}".encode(), value)
        path = str(Path(self.spec["folder"]) / "model.onnx").encode()
        return self.made("CreateSession", self.env, path, options)

    def arena_bytes(self):
        """The most that a run holds beside the weights, inputs and outputs: in a session of its
        own, with an allocator that counts."""
        counter = CountingAllocator()
        self.driver.bench_make_allocator(ctypes.byref(counter), self.made(
            "CreateCpuMemoryInfo", ctypes.c_int(0), ctypes.c_int(0)))
        self.must("RegisterAllocator", self.env, ctypes.byref(counter))
        usual, self.state.session = self.state.session, self.session(1, use_env_allocators=b"1")
        held = counter.most = counter.now
        self.sample(2, 1, 60)
        self.state.session, self.keep_counter = usual, counter
        return counter.most - held

    def must(self, name, *arguments):
        status = ctypes.CFUNCTYPE(ctypes.c_void_p)(self.table[ORT[name]])(*arguments)
        if status:
            message = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(
                self.table[ORT["GetErrorMessage"]])(status)
            raise Broken(f"{name}: {message.decode(errors='replace')}")

    def made(self, name, *arguments):
        result = ctypes.c_void_p()
        self.must(name, *arguments, ctypes.byref(result))
        return result

    def value(self, array):
        shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        return self.made("CreateTensorWithDataAsOrtValue", self.memory,
                         ctypes.c_void_p(address(array)), ctypes.c_size_t(array.nbytes), shape,
                         ctypes.c_size_t(array.ndim), ctypes.c_int(ORT_TYPES[array.dtype.name]))

    def explain(self, status):
        return "OrtApi.Run failed"


# ----------------------------------------------------------------------------------- OpenVINO


class Property(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Shape(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64))]


OPENVINO_TYPES = {"bool": 1, "float16": 3, "float32": 4, "float64": 5, "int8": 7, "int16": 8,
                  "int32": 9, "int64": 10, "uint8": 16, "uint16": 17, "uint32": 18, "uint64": 19}


class OpenVino(Contender):
    """OpenVINO by its C interface: one stream, latency, f32 arithmetic for f32 models."""

    def __init__(self, spec, facts):
        super().__init__(spec, facts)
        folder = Path(importlib.util.find_spec("openvino").origin).parent / "libs"
        self.library = ctypes.CDLL(str(next(folder.glob("libopenvino_c.so*"))))
        self.library.ov_get_last_err_msg.restype = ctypes.c_char_p
        self.about = {"version": next(folder.glob("libopenvino.so*")).name.split(".so.")[1]}
        core, compiled, request = (ctypes.c_void_p() for _ in range(3))
        settings = {"INFERENCE_NUM_THREADS": str(spec["threads"]), "NUM_STREAMS": "1",
                    "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32",
                    "ENABLE_CPU_PINNING": "NO"}
        properties = (Property * len(settings))(*[Property(k.encode(), v.encode())
                                                  for k, v in settings.items()])
        self.must(self.library.ov_core_create(ctypes.byref(core)))
        self.must(self.library.ov_core_compile_model_from_file_props(
            core, str(Path(spec["folder"]) / "model.onnx").encode(), b"CPU",
            ctypes.c_size_t(len(settings)), properties, ctypes.byref(compiled)))
        self.must(self.library.ov_compiled_model_create_infer_request(compiled,
                                                                      ctypes.byref(request)))
        self.request, self.fetched = request, []
        for tensor, array in zip(facts["inputs"], self.inputs):
            # An input that nothing reads (a rate that is folded) is not there any more.
            self.bind(tensor["name"], array)
        self.call, self.argument = self.library.ov_infer_request_infer, request
        self.sample(1, 1, 0)
        for tensor, array in zip(facts["outputs"], self.outputs):
            self.bind(tensor["name"], array)

    def must(self, status):
        if status != 0:
            raise Broken(self.explain(status))

    def explain(self, status):
        message = self.library.ov_get_last_err_msg()
        return f"OpenVINO, status {status}: {(message or b'').decode(errors='replace')[-300:]}"

    def bind(self, name, array):
        tensor = ctypes.c_void_p()
        dims = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        self.must(self.library.ov_tensor_create_from_host_ptr(
            ctypes.c_int(OPENVINO_TYPES[array.dtype.name]), Shape(array.ndim, dims),
            ctypes.c_void_p(address(array)), ctypes.byref(tensor)))
        self.must(self.library.ov_infer_request_set_tensor(self.request, name.encode(), tensor))


# --------------------------------------------------------------------------------------- ncnn


class PythonLoop(Contender):
    """A contender whose once() is Python's."""

    def sample(self, samples, calls, limit):
        taken, end = [], time.perf_counter() + limit
        for number in range(samples):
            start = time.perf_counter()
            if number > 0 and start > end:
                break
            for _ in range(calls):
                self.once()
            taken.append((time.perf_counter() - start) / calls)
        return taken


class Ncnn(PythonLoop):
    """ncnn on what pnnx made of the model, f32 throughout."""

    def __init__(self, spec, facts):
        super().__init__(spec, facts)
        import ncnn
        self.ncnn = ncnn
        self.about = {"version": ncnn.__version__}
        converted = Path(spec["converted"])
        self.net = ncnn.Net()
        option = self.net.opt
        option.num_threads = spec["threads"]
        for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic",
                     "use_bf16_packed", "use_bf16_storage", "use_vulkan_compute"):
            setattr(option, name, False)
        if self.net.load_param(str(converted / "model.ncnn.param")) != 0:
            raise Broken("ncnn cannot load what pnnx wrote: an operator that ncnn lacks")
        if self.net.load_model(str(converted / "model.ncnn.bin")) != 0:
            raise Broken("ncnn cannot load the weights that pnnx wrote")
        # pnnx's own script says how it sees each input: with or without the axis of the batch.
        script = (converted / "model_ncnn.py").read_text()
        self.mats = []
        for k, array in enumerate(self.inputs):
            if array.dtype == np.int64:
                array = array.astype(np.int32)
            axis = batch_axis(script, rf'"in{k}", ncnn\.Mat\(in{k}\.numpy\(\)')
            self.mats.append(ncnn.Mat(array, **axis).clone())
        self.axes = [batch_axis(script, rf"out{k}\.numpy\(") for k in range(len(self.outputs))]
        self.last = []

    def once(self):
        extractor = self.net.create_extractor()
        for k, mat in enumerate(self.mats):
            extractor.input(f"in{k}", mat)
        self.last = []
        for k in range(len(self.outputs)):
            status, mat = extractor.extract(f"out{k}")
            if status != 0:
                raise Broken(f"ncnn cannot compute out{k}: status {status}")
            self.last.append(mat)

    def results(self):
        found = [mat.numpy(**axis) for mat, axis in zip(self.last, self.axes)]
        for array, output in zip(found, self.outputs):
            if array.size != output.size:
                raise Broken(f"ncnn's output has shape {list(array.shape)}, "
                             f"expected {list(output.shape)}")
        return [array.reshape(output.shape) for array, output in zip(found, self.outputs)]


def batch_axis(script, before):
    """The batch_index=N that follows in pnnx's script, as a keyword."""
    found = re.search(before + r"(?:, )?batch_index=(\d+)", script)
    return {"batch_index": int(found.group(1))} if found else {}


# ---------------------------------------------------------------------------- other compilers


class Emx(Contender):
    """What emx-onnx-cgen wrote, behind a function of ours that takes all tensors in an array."""

    def __init__(self, spec, facts):
        super().__init__(spec, facts)
        library = ctypes.CDLL(spec["library"])
        if not library.bench_load(spec["weights"].encode()):
            raise Broken("the weights cannot be loaded")
        self.state = pointer_array([address(array) for array in self.inputs + self.outputs])
        self.call, self.argument = library.bench_call, self.state


class Tinygrad(PythonLoop):
    """tinygrad on the CPU, its kernels compiled and recorded by the first runs."""

    def __init__(self, spec, facts):
        super().__init__(spec, facts)
        os.environ.update(DEV="CPU", CPU_COUNT=str(spec["threads"]))
        from tinygrad import Tensor, TinyJit
        from tinygrad.nn.onnx import OnnxRunner
        runner = OnnxRunner(str(Path(spec["folder"]) / "model.onnx"))
        names = [tensor["name"] for tensor in facts["inputs"]]
        wanted = [tensor["name"] for tensor in facts["outputs"]]

        def run(*tensors):
            found = runner(dict(zip(names, tensors)))
            return [found[name].realize() for name in wanted]

        self.run, self.given = TinyJit(run), [Tensor(array).realize() for array in self.inputs]
        for _ in range(3):
            self.once()

    def once(self):
        self.last = [tensor.numpy() for tensor in self.run(*self.given)]

    def results(self):
        return self.last


KINDS = {"emitted": Emitted, "onnxruntime": OnnxRuntime, "openvino": OpenVino, "ncnn": Ncnn,
         "emx": Emx, "tinygrad": Tinygrad}


def peak_memory():
    """Of this process; what getrusage says has the parent's size as its floor."""
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text()).group(1))


SAMPLE_SECONDS = 20e-6          # a sample lasts at least so long


def take_time(contender, seconds, samples):
    """Samples of at least SAMPLE_SECONDS for about that many seconds. The first run of a turn
    finds the caches full of the others' data, and is not counted."""
    first = contender.sample(1, 1, 0)[0]
    if not contender.calls:
        first = contender.sample(1, 1, 0)[0]
        contender.calls = max(1, int(SAMPLE_SECONDS / max(first, 1e-9)))
    return contender.sample(samples, contender.calls, seconds)


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.sched_setaffinity(0, spec["cores"])
    facts = json.loads((Path(spec["folder"]) / "facts.json").read_text())

    def answer(**fields):
        answers.write(json.dumps(fields) + "\n")

    try:
        start = time.perf_counter()
        contender = KINDS[spec["kind"]](spec, facts)
        answer(load_seconds=time.perf_counter() - start, about=contender.about)
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "run":
                for output in contender.outputs:
                    output[...] = 0
                contender.run_once()
                np.savez(command["out"], **{str(k): array for k, array
                                            in enumerate(contender.results())})
                answer(peak_bytes=peak_memory())
            elif command["do"] == "memory":
                answer(arena_bytes=contender.arena_bytes())
            else:
                answer(seconds=take_time(contender, command["seconds"], command["samples"]))
    except Broken as reason:
        answer(broken=str(reason))
    except Exception as reason:  # whatever a library raises is this contender's failure alone
        answer(broken=f"{type(reason).__name__}: {reason}")
    answers.flush()
    os._exit(0)                 # some runtimes wait for their threads for ever


if __name__ == "__main__":
    main()
