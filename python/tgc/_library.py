"""A compiled model as ctypes sees it: NAME_describe()'s structs, and the functions.

The layout of these structs is the same for every model (`NAME.h` has it); offsets in NAME_inputs
and NAME_outputs come from them, so nothing here reads C.
"""

import ctypes
import functools
import mmap
import os
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from . import _device
from ._build import C_NAME
from ._error import Error

NO_OFFSET = c_size_t(-1).value
DEVICES = ("cuda", "opencl", "metal", "amd")        # targets whose NAME_options say more


class _Dim(Structure):
    _fields_ = [("size", c_int64), ("symbol", c_char_p)]


class _Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("element_bytes", c_size_t),
                ("rank", c_int), ("dim", POINTER(_Dim)), ("offset", c_size_t),
                ("shape_offset", c_size_t)]


class _Symbol(Structure):
    _fields_ = [("name", c_char_p), ("min", c_int64), ("max", c_int64), ("offset", c_size_t)]


class Info(Structure):
    """What every version has had."""
    _fields_ = [("version", c_int), ("name", c_char_p), ("producer", c_char_p),
                ("target", c_char_p), ("input_count", c_int), ("output_count", c_int),
                ("symbol_count", c_int), ("kernel_count", c_int), ("inputs", POINTER(_Tensor)),
                ("outputs", POINTER(_Tensor)), ("symbols", POINTER(_Symbol)),
                ("kernels", c_void_p), ("arena_bytes", c_size_t), ("arena_align", c_size_t),
                ("weights_bytes", c_size_t), ("weights_external", c_int), ("flop", c_double),
                ("inputs_bytes", c_size_t), ("outputs_bytes", c_size_t),
                ("stack_bytes", c_size_t)]


class _InfoWithState(Structure):
    _fields_ = [("info", Info), ("state_count", c_int), ("states", c_void_p),
                ("state_bytes", c_size_t)]


class _Entry(Structure):
    _fields_ = [("name", c_char_p), ("input", c_int), ("input_count", c_int),
                ("output", c_int), ("output_count", c_int)]


class _InfoWithEntries(Structure):
    _fields_ = [("before", _InfoWithState), ("entry_count", c_int), ("entries", POINTER(_Entry)),
                ("entry_offset", c_size_t)]


class _Feed(Structure):
    _fields_ = [("rule", POINTER(c_char_p)), ("least", c_int64), ("most", c_int64)]


class _InfoWithFeeds(Structure):
    _fields_ = [("before", _InfoWithEntries), ("slice_count", c_int), ("meta_count", c_int),
                ("slices", c_void_p), ("meta", c_void_p), ("feeds", POINTER(_Feed))]


_ON_ERROR = CFUNCTYPE(None, c_void_p, c_char_p)


class Options(Structure):
    """NAME_options: what every model has, and behind it what those for devices have."""
    _fields_ = [("threads", c_int), ("weights", c_void_p), ("weights_bytes", c_size_t),
                ("parallel_for", c_void_p), ("on_kernel", c_void_p), ("user", c_void_p),
                ("device", c_int), ("context", c_void_p), ("queue", c_void_p),
                ("load_program", c_void_p), ("save_program", c_void_p),
                ("on_kernel_time", c_void_p), ("on_error", _ON_ERROR), ("images", c_int)]


class Dim(NamedTuple):
    size: int                   # or the upper bound
    symbol: Optional[str]       # None: fixed; else a symbol or an expression of symbols
    rule: Tuple[str, ...] = ()  # of an input's size that is not fixed: _fit.py


class Tensor(NamedTuple):
    name: str
    dtype: str                  # "f32"
    element_bytes: int
    dims: Tuple[Dim, ...]
    offset: int                 # of its pointer
    shape_offset: Optional[int]


class Entry(NamedTuple):
    name: str
    inputs: slice               # of the library's
    outputs: slice


class Symbol(NamedTuple):
    name: str
    min: int
    max: int
    offset: int                 # of its int64_t in NAME_inputs
    number: int                 # among all symbols, in rules


def _name(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _note(said: threading.local, _: Any, text: bytes) -> None:
    """NAME_options.on_error."""
    said.lines = [*getattr(said, "lines", []), text.decode(errors="replace").strip()]


def _tensors(first: Any, count: int) -> List[Tensor]:
    return [Tensor(_name(v.name), _name(v.dtype), v.element_bytes,
                   tuple(Dim(d.size, None if d.symbol is None else _name(d.symbol))
                         for d in v.dim[:v.rank]),
                   v.offset, None if v.shape_offset == NO_OFFSET else v.shape_offset)
            for v in first[:count]]


def _with_rules(tensor: Tensor, feed: Any) -> Tensor:
    return tensor._replace(dims=tuple(
        dim._replace(rule=tuple(feed.rule[axis].decode().split()) if dim.symbol is not None else ())
        for axis, dim in enumerate(tensor.dims)))


class Library:
    """A shared object of tgc's: what it takes and gives, and its functions."""

    def __init__(self, path: Path):
        try:
            self.code = ctypes.CDLL(str(path))
        except OSError as why:
            raise Error(f"{path}: cannot be loaded: {why}; if its file system allows no programs, "
                        "set XDG_CACHE_HOME to a folder of one that does") from None
        info = self._read(self._function("describe", POINTER(Info))(), str(path))
        self._run = self._function("run", c_int)
        self.close = self._function("close", None, c_void_p)
        self.strerror = self._function("strerror", c_char_p, c_int)
        self._init = self._function("init", c_int, POINTER(c_void_p), c_void_p, c_size_t,
                                    POINTER(Options))
        if self.state_bytes:
            self.reset = self._function("reset", c_int, c_void_p)
            self.save = self._function("save", c_int, c_void_p, c_void_p)
            self.restore = self._function("restore", c_int, c_void_p, c_void_p)
        self._options = Options()
        self._said = threading.local()
        if self.target in DEVICES:
            self._options.on_error = self._on_error = _ON_ERROR(functools.partial(_note, self._said))
        self.driver: Any = None         # of the arrays that a model takes, beside the host's: _device.Driver
        if self.target in ("cuda", "amd"):
            self.driver = _device.open_driver(self.target)
            self.wait = self._function("wait", c_int, c_void_p)
            self._enqueue = self._function("enqueue", c_int, c_void_p, c_void_p, c_void_p, POINTER(c_void_p))
            self._bind_input = self._function("bind_input", c_int, c_void_p, c_int, c_void_p, c_size_t)
            self._bind_output = self._function("bind_output", c_int, c_void_p, c_int, c_void_p, c_size_t)
        if info.weights_external:
            self._map_weights(path.with_suffix(".weights"), info.weights_bytes)

    def _read(self, described: Any, title: str) -> Info:
        """What NAME_describe() has returned."""
        info: Info = described.contents
        if info.version != 5:
            raise Error(f"{title}: NAME_describe() is of layout {info.version}; this module reads "
                        "5: install the Python module and tgc of one version")
        more = ctypes.cast(described, POINTER(_InfoWithFeeds)).contents
        self.target = _name(info.target)
        self.inputs = [_with_rules(tensor, more.feeds[number])
                       for number, tensor in enumerate(_tensors(info.inputs, info.input_count))]
        self.outputs = _tensors(info.outputs, info.output_count)
        named = [Symbol(_name(s.name), s.min, s.max, s.offset, number)
                 for number, s in enumerate(info.symbols[:info.symbol_count])]
        # those that only the context knows, such as a state's length
        self.hidden = {s.number for s in named if s.offset == NO_OFFSET}
        self.symbols = [s for s in named if s.offset != NO_OFFSET]
        self.inputs_bytes, self.outputs_bytes = info.inputs_bytes, info.outputs_bytes
        self.arena_bytes, self.arena_align = info.arena_bytes, info.arena_align
        with_entries = more.before
        self.state_bytes = with_entries.before.state_bytes
        self.entries = [Entry(_name(e.name), slice(e.input, e.input + e.input_count),
                              slice(e.output, e.output + e.output_count))
                        for e in with_entries.entries[:with_entries.entry_count]]
        self.entry_offset = with_entries.entry_offset
        self.symbols = [s for s in self.symbols if s.offset != self.entry_offset]
        return info

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self.code, f"{C_NAME}_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _map_weights(self, path: Path, nbytes: int) -> None:
        """The file's pages, shared by all processes that run the model."""
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < nbytes:
                raise Error(f"{path}: holds less than the {nbytes} bytes of the model's weights; "
                            "call tgc.clear_cache() and compile again")
            self._weights = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                                      flags=mmap.MAP_PRIVATE)
        self._options.weights = ctypes.addressof(ctypes.c_char.from_buffer(self._weights))
        self._options.weights_bytes = nbytes

    def run_of(self, model: c_void_p, inputs: ctypes.Array, outputs: ctypes.Array) -> Callable[[], int]:
        """NAME_run with its arguments. References without argtypes are passed on as they are, in
        two thirds of the time that conversions take."""
        opaque = ctypes.c_char.from_address(model.value or 0)
        return functools.partial(self._run, ctypes.byref(opaque), ctypes.byref(inputs), ctypes.byref(outputs))

    def enqueue(self, model: c_void_p, inputs: Any, outputs: Any) -> Any:
        """A run that nobody waits for; the event of its end. Raises Error."""
        event = c_void_p()
        status = self._enqueue(model, ctypes.addressof(inputs), ctypes.addressof(outputs), ctypes.byref(event))
        if status:
            raise Error(self.explain(status), status)
        return self.driver.own_event(event.value)

    def bind(self, model: c_void_p, is_input: bool, number: int, address: Optional[int]) -> None:
        """Makes memory of the device's an input or output of the next runs; None: there is a pointer again. Raises Error."""
        status = (self._bind_input if is_input else self._bind_output)(model, number, address, 0)
        if status:
            raise Error(self.explain(status), status)

    def explain(self, status: int) -> str:
        """The status in words, with what the device has said to this thread since it was asked last."""
        said, self._said.lines = getattr(self._said, "lines", []), []
        return ": ".join([str(self.strerror(status).decode()), *said])

    def init(self, arena: int, **more: Any) -> c_void_p:
        """more: options of a device's."""
        model, options = c_void_p(), self._options
        if more:
            options = Options.from_buffer_copy(options)
            for name, value in more.items():
                setattr(options, name, value)
        status = self._init(ctypes.byref(model), arena, self.arena_bytes, ctypes.byref(options))
        if status:
            raise Error(f"the model cannot be set up: {self.explain(status)}", status)
        return model
