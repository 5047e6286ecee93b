"""An emitted model, as a shared object in this process: what NAME_describe() says, by ctypes."""

import ctypes as C

import numpy as np

from suite import expect

NOWHERE = C.c_size_t(-1).value
# What NumPy does not have travels as its bits.
DTYPES = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "bool": np.bool_, "bf16": np.uint16,
          **{f"{kind}{bits}": np.dtype(f"{kind}{bits // 8}") for kind in "iu" for bits in (8, 16, 32, 64)},
          **{name: np.uint8 for name in ("u2", "u4", "f4e2m1", "f6e2m3", "f6e3m2", "f8e4m3fn", "f8e4m3fnuz",
                                         "f8e5m2", "f8e5m2fnuz", "f8e8m0")},
          "i2": np.int8, "i4": np.int8}


class Dim(C.Structure):
    _fields_ = [("size", C.c_int64), ("symbol", C.c_char_p)]


class Tensor(C.Structure):
    _fields_ = [("name", C.c_char_p), ("dtype", C.c_char_p), ("element_bytes", C.c_size_t),
                ("rank", C.c_int), ("dim", C.POINTER(Dim)), ("offset", C.c_size_t),
                ("shape_offset", C.c_size_t)]

    def bounds(self):
        return [self.dim[a].size for a in range(self.rank)]


class Symbol(C.Structure):
    _fields_ = [("name", C.c_char_p), ("min", C.c_int64), ("max", C.c_int64), ("offset", C.c_size_t)]


class Kernel(C.Structure):
    _fields_ = [("name", C.c_char_p), ("title", C.c_char_p), ("flop", C.c_double), ("bytes", C.c_double)]


class State(C.Structure):
    _fields_ = [("output", C.c_char_p), ("input", Tensor), ("axis", C.c_int), ("length_offset", C.c_size_t)]


class Entry(C.Structure):
    _fields_ = [("name", C.c_char_p), ("input", C.c_int), ("input_count", C.c_int), ("output", C.c_int), ("output_count", C.c_int)]


class Slice(C.Structure):
    _fields_ = [("name", C.c_char_p), ("output", C.c_int), ("begin", C.c_size_t), ("size", C.c_size_t)]


class Meta(C.Structure):
    _fields_ = [("key", C.c_char_p), ("value", C.c_char_p)]


class Info(C.Structure):
    """struct NAME_info, as every emitted header declares it."""
    _fields_ = [("version", C.c_int), ("name", C.c_char_p), ("producer", C.c_char_p),
                ("target", C.c_char_p), ("input_count", C.c_int), ("output_count", C.c_int),
                ("symbol_count", C.c_int), ("kernel_count", C.c_int),
                ("inputs", C.POINTER(Tensor)), ("outputs", C.POINTER(Tensor)),
                ("symbols", C.POINTER(Symbol)), ("kernels", C.POINTER(Kernel)),
                ("arena_bytes", C.c_size_t), ("arena_align", C.c_size_t),
                ("weights_bytes", C.c_size_t), ("weights_external", C.c_int), ("flop", C.c_double),
                ("inputs_bytes", C.c_size_t), ("outputs_bytes", C.c_size_t),
                ("stack_bytes", C.c_size_t), ("state_count", C.c_int),
                ("states", C.POINTER(State)), ("state_bytes", C.c_size_t),
                ("entry_count", C.c_int), ("entries", C.POINTER(Entry)), ("entry_offset", C.c_size_t),
                ("slice_count", C.c_int), ("meta_count", C.c_int),
                ("slices", C.POINTER(Slice)), ("meta", C.POINTER(Meta))]


def aligned(nbytes):
    memory = np.zeros(nbytes + 64, np.uint8)
    return memory[-memory.ctypes.data % 64:][:max(nbytes, 1)]


def pointer(array):
    return array.ctypes.data_as(C.c_void_p)


def put(structure, offset, value):
    structure[offset:offset + 8] = np.frombuffer(np.int64(value).tobytes(), np.uint8)


class Library:
    """The model `name` of a shared object, in an arena of its own."""

    def __init__(self, path, name="net", options=None, status=0):
        self.library, self.name = C.CDLL(str(path)), name
        describe = self.function("describe")
        describe.restype = C.POINTER(Info)
        self.info = describe().contents
        expect(self.info.version == 5, f"{path}: unknown version {self.info.version}")
        self.arena, self.model = aligned(self.info.arena_bytes), C.c_void_p()
        self.options = options                  # functions that the model may call
        got = self.function("init")(C.byref(self.model), pointer(self.arena), C.c_size_t(self.info.arena_bytes),
                                    C.byref(options) if options else None)
        expect(status is None or got == status, f"init: status {got}, not {status}")

    def __del__(self):
        if getattr(self, "model", None):        # its threads wait in the arena, which goes, too
            self.function("close")(self.model)

    def function(self, name):
        return getattr(self.library, f"{self.name}_{name}")

    def give(self, feeds, sizes=None):
        """The inputs of the next runs, by name, and the values of their symbols; the outputs' memory."""
        info = self.info
        given, taken = np.zeros(info.inputs_bytes, np.uint8), np.zeros(info.outputs_bytes, np.uint8)
        for k in range(info.symbol_count):
            if info.symbols[k].offset != NOWHERE:
                put(given, info.symbols[k].offset, (sizes or {})[info.symbols[k].name.decode()])
        names = [info.inputs[k].name.decode() for k in range(info.input_count)]
        expect(sorted(names) == sorted(feeds), f"the inputs are {names}")
        held = [np.ascontiguousarray(feeds[name]) for name in names]
        for k, array in enumerate(held):
            put(given, info.inputs[k].offset, array.ctypes.data)
        outputs = [np.zeros(t.bounds(), DTYPES[t.dtype.decode()])
                   for t in (info.outputs[k] for k in range(info.output_count))]
        for k, array in enumerate(outputs):
            put(taken, info.outputs[k].offset, array.ctypes.data)
        self.held, self.given, self.taken, self.outputs = held, given, taken, outputs
        self.call = (self.function("run"), self.model, pointer(given), pointer(taken))

    def step(self):
        """One run on what was given; its status."""
        run, *arguments = self.call
        return run(*arguments)

    def results(self):
        result = {}
        for k, array in enumerate(self.outputs):
            t = self.info.outputs[k]
            if t.shape_offset != NOWHERE:
                shape = self.taken[t.shape_offset:t.shape_offset + 8 * t.rank].view(np.int64)
                array = array.reshape(-1)[:np.prod(shape)].reshape(shape)
            result[t.name.decode()] = array
        return result

    def run(self, feeds, sizes=None, status=0):
        self.give(feeds, sizes)
        got = self.step()
        expect(got == status, f"run: status {got}, not {status}")
        return self.results()

    def reset(self):
        expect(self.function("reset")(self.model) == 0, "reset fails")

    def save(self):
        block = np.zeros(self.info.state_bytes, np.uint8)
        expect(self.function("save")(self.model, pointer(block)) == 0, "save fails")
        return block

    def restore(self, block):
        status = self.function("restore")(self.model, pointer(block))
        expect(status == 0, f"restore: status {status}")

    def states(self):
        return [self.info.states[k] for k in range(self.info.state_count)]
