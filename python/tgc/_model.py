"""Models on NumPy's arrays.

A call takes a context (an arena with NAME in it, and the structs of its pointers) from a list, or
makes one, and puts it back: as many as there are calls at once. Names, dtypes and shapes are
looked up once; a call with arrays of the expected dtype and shape only stores their addresses.
"""

import ctypes
import json
import os
import queue
import sys
import tempfile
import weakref
from ctypes import addressof, c_int64, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _build, _device, _fit, _inprocess
from ._build import Source
from ._error import Error
from ._library import Library, Tensor

# dtypes that NumPy has not: arrays hold their bits. ml_dtypes' names of what has the same bits.
_BITS = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz",
         "f8e5m2": "float8_e5m2", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu",
         "f4e2m1": "float4_e2m1fn", "f6e2m3": "float6_e2m3fn", "f6e3m2": "float6_e3m2fn"}
# ml_dtypes' integers of a byte, whose upper bits are zeros; here they are the value's.
_NIBBLES = {"i2": "int2", "i4": "int4", "u2": "uint2", "u4": "uint4"}
_PLAIN = {"bool": "bool", "i2": "int8", "i4": "int8", "u2": "uint8", "u4": "uint8",
          "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
          "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
          "f16": "float16", "f32": "float32", "f64": "float64", "string": "object"}

_BAD_VALUE = 10         # NAME_BAD_VALUE
_CPU = (1, 3, 11)       # DLPack's kDLCPU, and host memory that CUDA and ROCm pin

_ndarray, _empty = np.ndarray, np.empty
_pointer_at = c_void_p.from_address
_HEAD = object.__basicsize__


def _slow_address(array: np.ndarray) -> int:
    return array.ctypes.data


def _quick_address(array: np.ndarray) -> int:
    """PyArrayObject, a part of NumPy's C interface, begins with the pointer to the elements. A
    fifth of the time of ndarray.ctypes."""
    return _pointer_at(id(array) + _HEAD).value or 0


def _is_quick_right() -> bool:
    probe = np.empty(3, np.float32)
    return all(_quick_address(v) == _slow_address(v) for v in (probe, probe[1:]))


_IS_QUICK = sys.implementation.name == "cpython" and _is_quick_right()
_address = _quick_address if _IS_QUICK else _slow_address


class _Port:
    """An input or output: what arrays have to be."""

    def __init__(self, tensor: Tensor, kind: str):
        self.tensor, self.name, self.kind = tensor, tensor.name, kind
        self.is_string = tensor.dtype == "string"
        self.bits = _BITS.get(tensor.dtype)
        self.dtype = np.dtype(_PLAIN.get(tensor.dtype) or f"uint{8 * tensor.element_bytes}")
        self.bound = tuple(dim.size for dim in tensor.dims)
        is_fixed = all(dim.symbol is None for dim in tensor.dims)
        # None: known when it runs. A text's elements are pointers that have to be made.
        self.shape = self.bound if is_fixed else None
        self.direct_shape = None if self.is_string else self.shape
        self.count = 1
        for size in self.bound:
            self.count *= size
        self.grows = False          # what a run reads of it only the context knows

    def __str__(self) -> str:
        sizes = [str(dim.size) if dim.symbol is None else f"{dim.symbol}<={dim.size}"
                 for dim in self.tensor.dims]
        return f"{self.dtype_text()}[{','.join(sizes)}]"

    def dtype_text(self) -> str:
        return "str" if self.is_string else (f"{self.bits} as {self.dtype}" if self.bits else
                                             str(self.dtype))

    def fail(self, found: str, cure: str) -> Error:
        return Error(f"{self.kind} '{self.name}': expected {self}, found {found}; {cure}")

    # ------------------------------------------------------------------------------- inputs

    def adapt(self, value: Any) -> np.ndarray:
        """The value as a contiguous, aligned array of the dtype and rank; a copy if need be."""
        array = value if isinstance(value, np.ndarray) else self._array_of(value)
        if self.is_string:
            if array.dtype.kind not in "OUS":
                raise self.fail(_describe(array), "give an array of str")
        elif self.bits and array.dtype.name == self.bits:
            array = array.view(self.dtype)
        elif array.dtype.name == _NIBBLES.get(self.tensor.dtype):
            array = array.astype(self.dtype)
        elif array.dtype != self.dtype:
            cure = f"give x.astype('{self.dtype}')"
            if array.dtype.kind not in "biufc":
                cure = "give an array of numbers"
            elif self.bits:
                cure = f"give the bits: x.astype(ml_dtypes.{self.bits}).view('{self.dtype}')"
            raise self.fail(_describe(array), cure)
        self._check_shape(array)
        return array if self.is_string else np.require(array, requirements=["C", "A"])

    def _check_shape(self, array: Any) -> None:
        if len(array.shape) != len(self.bound):
            raise self.fail(_describe(array), f"give {len(self.bound)} dimensions: "
                                              "x.reshape(...) or x[np.newaxis]")
        for axis, dim in enumerate(self.tensor.dims):
            size = array.shape[axis]
            if dim.symbol is None and size != dim.size:
                raise self.fail(_describe(array), f"dimension {axis} has to be {dim.size}; for "
                                "others compile with shape= or dim=")
            if size > dim.size:
                raise self.fail(_describe(array), f"dimension {axis} is {dim.size} at most; "
                                f"compile with a larger bound, dim={{...: '..{size}'}}")

    def take(self, value: Any, driver: Any, stream: int) -> Any:
        """An array in the device's memory, where it lies."""
        if self.is_string:
            raise self.fail(type(value).__name__, "give an array of str")
        code = _device.code_of(self.tensor.dtype, self.dtype)
        codes = (code, (1, code[1])) if self.bits else (code,)      # or the bits
        array = _device.take(value, driver, stream, self.fail, codes, self.bits or str(self.dtype))
        self._check_shape(array)
        return array

    def _array_of(self, value: Any) -> np.ndarray:
        """Lists, numbers and other libraries' tensors in this machine's memory."""
        device = getattr(value, "__dlpack_device__", None)
        if device and device()[0] not in _CPU:
            where = getattr(value, "device", f"DLPack's kind {int(device()[0])}")
            raise self.fail(f"{type(value).__name__} on device {where}",
                            "copy it to the processor's memory, as x.cpu() does")
        is_plain = isinstance(value, (list, tuple, int, float, bool, str))
        try:
            array = np.asarray(value) if is_plain or not device or hasattr(value, "__array__") else np.from_dlpack(value)
            if is_plain and not self.is_string and np.can_cast(array.dtype, self.dtype,
                                                               "same_kind"):
                array = self._exact(array)
        except (TypeError, ValueError, RuntimeError, OverflowError) as why:
            raise self.fail(type(value).__name__, f"no array can be made of it: {why}") from None
        return array

    def _exact(self, array: np.ndarray) -> np.ndarray:
        """Python's numbers have no dtype; integers must fit the one that is expected."""
        given = array.astype(self.dtype)
        if array.dtype.kind in "iu" and not np.array_equal(given, array):
            raise OverflowError(f"numbers beyond {self.dtype}")
        return given

    def encode(self, array: np.ndarray) -> "ctypes.Array[ctypes.c_char_p]":
        """The pointers of a text's elements; the array of them keeps the bytes alive."""
        words = []
        for item in array.ravel().tolist():
            word = item.encode("utf-8", "surrogateescape") if isinstance(item, str) else item
            if not isinstance(word, bytes) or b"\0" in word:
                raise self.fail(repr(item)[:60], "give str or bytes without NUL")
            words.append(word)
        return (ctypes.c_char_p * max(len(words), 1))(*words)

    def widened(self, array: np.ndarray) -> np.ndarray:
        """The elements in memory of the bound."""
        wide = np.zeros(self.count, self.dtype)
        wide[:array.size] = array.reshape(-1)
        return wide

    # ------------------------------------------------------------------------------ outputs

    def check_out(self, array: Any, driver: Any = None, order: Optional[int] = None) -> Any:
        """An array of the caller's, of the output's shape or, where that is known only when it
        runs, of its bound. driver, order: of a model that runs on CUDA or AMD's devices, and the stream."""
        if self.is_string:
            raise Error(f"output '{self.name}': out= is for numbers; texts are made anew")
        if driver and order is not None and not isinstance(array, np.ndarray) and hasattr(array, "__dlpack_device__"):
            taken = self.take(array, driver, order)
            self.check_bound(taken)
            return taken
        if not isinstance(array, np.ndarray):
            raise self.fail(type(array).__name__, "give a NumPy array")
        if array.dtype != self.dtype and array.dtype.name != self.bits:
            raise self.fail(_describe(array), f"make it by np.empty(shape, '{self.dtype}')")
        self.check_bound(array)
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            raise self.fail(_describe(array) + (" in another order" if not flags.c_contiguous
                            else " that is not writable" if not flags.writeable
                            else " that is not aligned"),
                            "give a contiguous, writable array: np.empty(...)")
        return array

    def check_bound(self, array: Any) -> None:
        if array.shape != self.bound:
            raise self.fail(_describe(array), "out= holds the output's shape"
                            if self.shape else f"out= holds the bound, {self.bound}")

    def result(self, array: Any, shape: Any) -> Any:
        """What is returned for the memory that a run wrote to."""
        if self.direct_shape is not None:
            return array
        sizes = self.bound if shape is None else tuple(shape)
        count = 1
        for size in sizes:
            count *= size
        if self.is_string:
            made = np.empty(count, object)
            made[:] = [(word or b"").decode("utf-8", "surrogateescape") for word in array[:count]]
            return made.reshape(sizes)
        return array.reshape(-1)[:count].reshape(sizes)


def _describe(array: Any) -> str:
    """An array of the host's, or one that was taken of the device's."""
    return str(array) if not isinstance(array, np.ndarray) else f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _overlap(array: Any, other: Any) -> bool:
    if isinstance(array, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(array, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(array, other)
    return bool(array.address < other.address + other.nbytes and other.address < array.address + array.nbytes)


class _Context:
    """An arena with the model in it, and the structs that a run is handed."""

    def __init__(self, library: Library, inputs: Sequence[_Port], outputs: Sequence[_Port],
                 of: Optional["_Context"] = None, entry: int = -1):
        """of, entry: the same model, but that entry's own structs."""
        self.of, self.library = of, library
        self.by_entry: Dict[int, _Context] = {}
        # by input or output and its number in the library: memory of the device's that is bound
        self.bound: Dict[Tuple[bool, int], int] = {} if of is None else of.bound
        self.stream = library.driver.stream() if library.driver and of is None else of and of.stream
        if of is None:
            self.arena = np.empty(library.arena_bytes + library.arena_align, np.uint8)
            start = self.arena.ctypes.data
            start += -start % library.arena_align
            self.model = library.init(start) if self.stream is None else library.init(
                start, context=library.driver.context.value, queue=self.stream.value)
            weakref.finalize(self, _close, library, self.model, self.arena, os.getpid())
        else:
            self.model = of.model
        self.in_struct = ctypes.create_string_buffer(max(library.inputs_bytes, 1))
        self.out_struct = ctypes.create_string_buffer(max(library.outputs_bytes, 1))
        if of is not None:
            c_int64.from_buffer(self.in_struct, library.entry_offset).value = entry
        self.run = library.run_of(self.model, self.in_struct, self.out_struct)
        self.inputs = [c_void_p.from_buffer(self.in_struct, p.tensor.offset) for p in inputs]
        self.outputs = [c_void_p.from_buffer(self.out_struct, p.tensor.offset) for p in outputs]
        # what a call has to compare and to store, where all of it is known before
        self.direct_inputs = [(f, p.direct_shape, p.dtype) for f, p in zip(self.inputs, inputs)]
        self.direct_outputs = [(f, p.direct_shape or (), p.dtype) for f, p in zip(self.outputs, outputs)]
        self.single = self.direct_outputs[0] if len(outputs) == 1 else None
        self.symbols = [c_int64.from_buffer(self.in_struct, s.offset) for s in library.symbols]
        self.shapes = [(c_int64 * len(p.bound)).from_buffer(self.out_struct, p.tensor.shape_offset)
                       if p.tensor.shape_offset is not None else None for p in outputs]


    def bind(self, is_input: bool, number: int, address: Optional[int], port: _Port) -> None:
        """The port's tensor is at that address of the device's; None: where its pointer says."""
        key = is_input, number
        if self.bound.get(key) == address:
            return
        try:
            self.library.bind(self.model, is_input, number, address)
        except Error as why:
            raise Error(f"{port.kind} '{port.name}': this array cannot be used where it lies: {why}", why.status) from None
        self.bound.pop(key, None)
        if address is not None:
            self.bound[key] = address


def _close(library: Library, model: c_void_p, arena: np.ndarray, process: int) -> None:
    """The arena is an argument so that it outlives the model. Threads are the parent's."""
    if process == os.getpid():
        library.close(model)


class Model:
    """A compiled model. Calling it runs it; made by tgc.compile().

    inputs, outputs: names, in the model's order.
    entries: by name, of a text with several: each is called as a model with inputs and outputs of
    its own, and all share the state.
    Calls from several threads run at once, each with a context (an arena) of its own; the
    interpreter's lock is released while the model runs. A model with state has one context: its
    calls take turns.
    """

    def __init__(self, source: Source, library: Library, key: Optional[str],
                 key_now: Optional[Callable[[], Optional[str]]] = None):
        self._source, self._library, self._key = source, library, key
        self._key_now = key_now or source.key
        self._info: Optional[Dict[str, Any]] = None
        self._set_ports([_Port(v, "input") for v in library.inputs],
                        [_Port(v, "output") for v in library.outputs])
        self._start_contexts()
        self.entries = {entry.name: Entry(self, number) for number, entry in enumerate(library.entries)}
        _models.add(self)

    def _set_ports(self, inputs: List[_Port], outputs: List[_Port]) -> None:
        library = self._library
        self._inputs, self._outputs = inputs, outputs
        self._input_number = {p.name: n for n, p in enumerate(self._inputs)}
        self._output_number = {p.name: n for n, p in enumerate(self._outputs)}
        self._symbol_number = {s.name: n for n, s in enumerate(library.symbols)}
        self._sizes = [_fit.Size(number, axis, dim.rule) for number, port in enumerate(inputs)
                       for axis, dim in enumerate(port.tensor.dims) if dim.rule]
        for port in inputs:
            port.grows = any(k in library.hidden for dim in port.tensor.dims for k in _fit.symbols_of(dim.rule))
        self._count = len(self._inputs)
        self._is_single = len(self._outputs) == 1
        self._is_direct = (_IS_QUICK and not library.symbols and
                           not library.driver and
                           all(p.direct_shape is not None for p in self._inputs + self._outputs))
        self._first_input = self._first_output = 0      # of the library's

    _take: Callable[[], _Context]
    _give: Callable[[_Context], None]

    def _start_contexts(self) -> None:
        if self._library.state_bytes:
            turns: "queue.SimpleQueue[_Context]" = queue.SimpleQueue()
            turns.put(self._new_context())
            self._take, self._give = turns.get, turns.put
        else:
            idle = [self._new_context()]
            self._take, self._give = idle.pop, idle.append

    def _new_context(self) -> _Context:
        return _Context(self._library, self._inputs, self._outputs)

    @property
    def inputs(self) -> Tuple[str, ...]:
        return tuple(p.name for p in self._inputs)

    @property
    def outputs(self) -> Tuple[str, ...]:
        return tuple(p.name for p in self._outputs)

    def __repr__(self) -> str:
        ports = [", ".join(f"{p.name}: {p}" for p in v) for v in (self._inputs, self._outputs)]
        return f"<tgc.Model {self._source.title!r}: {ports[0]} -> {ports[1]}>"

    # --------------------------------------------------------------------------------- calls

    def __call__(self, /, *args: Any, out: Any = None, dim: Optional[Mapping[str, int]] = None,
                 device: bool = False, stream: Optional[int] = None, **named: Any) -> Any:
        """Runs the model: m(x), m(a, b) in the model's order, m(name=x), or m({"name:0": x}).

        Inputs are NumPy arrays of the input's dtype and shape; contiguous ones are read where
        they lie, others are copied. Lists and numbers are converted, tensors of other libraries
        taken where np.asarray() takes them. bf16 and f8 are arrays of their bits (uint16, uint8)
        or ml_dtypes' arrays; texts are arrays of str.
        out: the array to write to, or a dict of them by name.
        dim: sizes of run-time dimensions that no input has.
        A model for CUDA or AMD takes arrays in its device's memory where they lie (by DLPack: PyTorch's,
        CuPy's, JAX's), as inputs and as out=.
        device: outputs without out= stay there, as DeviceArray.
        stream: a CUstream of the device's, as a number: the run is in its order, and nobody waits
        for its end. All inputs and outputs are on the device then.
        Returns the output, or a dict of all by name where there are several; those whose shape is
        known only when the model runs are views of an array of their bound.
        A model with entries is called by m.entries["name"](...).
        Raises Error.
        """
        if self.entries:
            raise Error(f"{self._source.title}: has several entries: call one, as "
                        f"m.entries['{next(iter(self.entries))}'](...)")
        if named or len(args) != self._count:
            args = tuple(self._bind(args, named))
        try:
            context = self._take()
        except IndexError:
            context = self._new_context()
        try:
            if self._is_direct and dim is None and not device and stream is None:
                for value, (field, shape, dtype) in zip(args, context.direct_inputs):
                    # carray: contiguous, aligned, writable; _call() takes others
                    if not (type(value) is _ndarray and value.dtype is dtype
                            and value.shape == shape and value.flags.carray):
                        break
                    field.value = _pointer_at(id(value) + _HEAD).value      # _quick_address()
                else:           # all of them can be read where they lie
                    if out is not None or context.single is None:
                        return self._call_direct(context, args, out)
                    field, shape, dtype = context.single
                    array = _empty(shape, dtype)
                    field.value = _pointer_at(id(array) + _HEAD).value
                    status = context.run()
                    if status:
                        raise self._failed(status, args)
                    return array
            if self._library.driver or device or stream is not None:
                return self._call_device(context, args, out, dim, device, stream)
            return self._call(context, args, out, dim)
        finally:
            self._give(context)

    def _call_direct(self, context: _Context, args: Sequence[np.ndarray], out: Any) -> Any:
        given = {} if out is None else self._given_outputs(out, args)
        results = []
        for number, (field, shape, dtype) in enumerate(context.direct_outputs):
            array = given[number] if number in given else _empty(shape, dtype)
            field.value = _address(array)
            results.append(array)
        status = context.run()
        if status:
            raise self._failed(status, args)
        return results[0] if self._is_single else dict(zip(self.outputs, results))

    def _failed(self, status: int, given: Sequence[np.ndarray] = ()) -> Error:
        """given: the inputs, of which those of integers may be indices."""
        held = [f"'{port.name}' holds {array.min()} to {array.max()}"
                for port, array in zip(self._inputs, given)
                if status == _BAD_VALUE and isinstance(array, _ndarray) and array.dtype.kind in "iu" and array.size]
        what = "; ".join([self._library.explain(status), *([", ".join(held)] if held else [])])
        return Error(f"{self._source.title}: {what}", status)

    def _call(self, context: _Context, args: Sequence[Any], out: Any,
              dim: Optional[Mapping[str, int]]) -> Any:
        if len(args) == 1 and isinstance(args[0], Mapping):
            args = self._bind(args, {})
        # alive until the run is over
        texts: List[Any] = []
        arrays = [self._put_input(context, number, value, texts) for number, value in enumerate(args)]
        if self._sizes or context.symbols or dim:
            self._set_symbols(context, arrays, dim or {})
        given = {} if out is None else self._given_outputs(out, arrays)
        results = [self._put_output(context, number, given.get(number)) for number in range(len(self._outputs))]
        status = context.run()
        if status:
            raise self._failed(status, arrays)
        for number, shape in enumerate(context.shapes):
            results[number] = self._outputs[number].result(results[number], shape)
        return results[0] if self._is_single else dict(zip(self.outputs, results))

    def _put_input(self, context: _Context, number: int, value: Any, texts: List[Any]) -> np.ndarray:
        """The input as an array that the run reads; texts: what has to live as long."""
        port, field = self._inputs[number], context.inputs[number]
        array = port.adapt(value)
        if port.is_string:
            texts.append(port.encode(array))
            field.value = addressof(texts[-1])
        else:
            read = port.widened(array) if port.grows else array
            texts.append(read)
            field.value = _address(read)
        return array

    def _put_output(self, context: _Context, number: int, given: Optional[np.ndarray]) -> Any:
        """The memory that the run writes the output to: the caller's, or new."""
        port, array = self._outputs[number], given
        if array is None and port.direct_shape is not None:
            array = np.empty(port.direct_shape, port.dtype)
        elif array is None and not port.is_string:
            array = np.empty(port.count, port.dtype)
        texts = (ctypes.c_char_p * max(port.count, 1))() if port.is_string else None
        context.outputs[number].value = _address(array) if array is not None else addressof(texts)
        return texts if array is None else array

    # ------------------------------------------------------------------- arrays of a device's

    def _call_device(self, context: _Context, args: Sequence[Any], out: Any, dim: Optional[Mapping[str, int]],
                     on_device: bool, stream: Optional[int]) -> Any:
        """A call with arrays in the memory of the host, of the device, or of both."""
        driver = self._library.driver
        if not driver:
            raise Error(f"device= and stream= are for models that run on CUDA or AMD's devices, this one is for {self._library.target}: "
                        "compile it with options=['--target=cuda'], or amd")
        if len(args) == 1 and isinstance(args[0], Mapping):
            args = self._bind(args, {})
        order = context.stream.value if stream is None else _device.check_stream(driver, stream)
        texts: List[Any] = []
        arrays = [self._put_input_anywhere(context, number, value, texts, order, stream is not None)
                  for number, value in enumerate(args)]
        if self._sizes or context.symbols or dim:
            self._set_symbols(context, arrays, dim or {})
        given = {} if out is None else self._given_outputs(out, arrays, order)
        results = [self._put_output_anywhere(context, number, given.get(number), on_device, stream is not None)
                   for number in range(len(self._outputs))]
        event = None if stream is None else self._enqueue(context, order)
        status = context.run() if stream is None else 0
        if status:
            raise self._failed(status, arrays)
        for number, shape in enumerate(context.shapes):
            array, port = results[number], self._outputs[number]
            results[number] = (port.result(array, shape) if isinstance(array, np.ndarray) or port.is_string else
                               _device.result(array, driver, port.shape or tuple(shape or port.bound), port, event))
        return results[0] if self._is_single else dict(zip(self.outputs, results))

    def _put_input_anywhere(self, context: _Context, number: int, value: Any, texts: List[Any], order: int,
                            is_async: bool) -> Any:
        port, at = self._inputs[number], self._first_input + number
        if not _device.is_of_device(value):
            if is_async:
                raise port.fail(type(value).__name__, "with stream= nobody waits for the run, so inputs are arrays of the "
                                                      "device's: give x.cuda(), or leave stream= out")
            context.bind(True, at, None, port)
            return self._put_input(context, number, value, texts)
        array = port.take(value, self._library.driver, order)
        # one without elements has no memory; the pointer is not read
        context.bind(True, at, array.address if array.count else None, port)
        context.inputs[number].value = addressof(context.in_struct)
        return array

    def _put_output_anywhere(self, context: _Context, number: int, given: Any, on_device: bool, is_async: bool) -> Any:
        port, at = self._outputs[number], self._first_output + number
        if given is None and (on_device or is_async) and not port.is_string:
            given = _device.new_array(self._library.driver, port)
        if given is None or isinstance(given, np.ndarray):
            if is_async:
                raise port.fail("an array of the host", "with stream= nobody waits for the run, so outputs are arrays of the device's")
            context.bind(False, at, None, port)
            return self._put_output(context, number, given)
        context.bind(False, at, given.address if port.count else None, port)
        context.outputs[number].value = addressof(context.out_struct)
        return given

    def _enqueue(self, context: _Context, stream: int) -> Any:
        """The run between what is in the caller's stream now and what comes next there; the event of its end."""
        driver = self._library.driver
        _device.wait_for(driver, context.stream.value, stream)
        try:
            event = self._library.enqueue(context.model, context.in_struct, context.out_struct)
        except Error as why:
            raise Error(f"{self._source.title}: {why}", why.status) from None
        _device.wait_for_event(driver, stream, event)
        return event

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> List[Any]:
        """The inputs in the model's order."""
        if len(args) == 1 and isinstance(args[0], Mapping):
            named, args = {**args[0], **named}, ()
        if len(args) > self._count:
            raise Error(f"{len(args)} inputs are given, the model has {self._count}: "
                        f"{self._list(self._inputs)}")
        bound: List[Any] = [*args] + [None] * (self._count - len(args))
        for name, value in named.items():
            number = self._input_number.get(name)
            if number is None:
                raise Error(f"there is no input '{name}'; the model has "
                            f"{self._list(self._inputs)}")
            if number < len(args):
                raise Error(f"input '{name}' is given twice, by its place and by its name")
            bound[number] = value
        for port, value in zip(self._inputs, bound):
            if value is None:
                raise Error(f"input '{port.name}' is missing; the model has "
                            f"{self._list(self._inputs)}")
        return bound

    @staticmethod
    def _list(ports: Sequence[_Port]) -> str:
        return ", ".join(f"'{p.name}' {p}" for p in ports) or "none"

    def _set_symbols(self, context: _Context, arrays: Sequence[Any],
                     dim: Mapping[str, int]) -> None:
        """Run-time dimensions, as the inputs' shapes have them."""
        found: Dict[str, Tuple[int, str]] = {}
        for name, value in dim.items():
            if name not in self._symbol_number:
                raise Error(f"dim: the model has no run-time dimension '{name}'; it has "
                            f"{', '.join(self._symbol_number) or 'none'}")
            found[name] = value.__index__(), "dim="
        numbers = {known.name: known.number for known in self._library.symbols}
        values = {numbers[name]: size for name, (size, _) in found.items()}
        try:
            _fit.find(self._sizes, lambda size: int(arrays[size.input].shape[size.axis]), values)
        except _fit.Misfit as why:
            raise self._misfit(why, arrays) from None
        for field, known in zip(context.symbols, self._library.symbols):
            if known.number not in values:
                raise Error(f"no input shows how large '{known.name}' is; give it: "
                            f"dim={{'{known.name}': {known.max}}}")
            size = values[known.number]
            if not known.min <= size <= known.max:
                raise Error(f"'{known.name}' is {size} by {found.get(known.name, (0, self._user(known.number)))[1]}; "
                            f"the model was compiled for {known.min} to {known.max}")
            field.value = size

    def _user(self, symbol: int) -> str:
        """The first input that has the symbol in a size."""
        return next((f"input '{self._inputs[size.input].name}'" for size in self._sizes
                     if symbol in _fit.symbols_of(size.rule)), "no input")

    def _misfit(self, why: _fit.Misfit, arrays: Sequence[Any]) -> Error:
        port, axis = self._inputs[why.size.input], why.size.axis
        symbol = port.tensor.dims[axis].symbol
        made = f"no value of its symbol makes '{symbol}' that" if why.expected is None else \
            f"'{symbol}' is {why.expected} by the other sizes"
        return port.fail(_describe(arrays[why.size.input]), f"dimension {axis}: {made}")

    def _given_outputs(self, out: Any, arrays: Sequence[Any], order: Optional[int] = None) -> Dict[int, Any]:
        """out= by the outputs' numbers. order: the stream that arrays of the device's are used in."""
        named = out if isinstance(out, Mapping) else {self._outputs[0].name: out}
        if named is not out and not self._is_single:
            raise Error("out: the model has several outputs; give a dict of arrays by name: "
                        f"{self._list(self._outputs)}")
        given: Dict[int, Any] = {}
        for name, value in named.items():
            number = self._output_number.get(name)
            if number is None:
                raise Error(f"out: there is no output '{name}'; the model has "
                            f"{self._list(self._outputs)}")
            array = self._outputs[number].check_out(value, self._library.driver, order)
            for other in [*arrays, *given.values()]:
                if _overlap(array, other):
                    raise Error(f"out: the array of output '{name}' overlaps an input or another "
                                "output; give memory of its own")
            given[number] = array
        return given

    def wait(self) -> None:
        """Waits for the end of calls with stream=. Raises Error if they found what the model cannot use, such as an
        index out of range; the next call without stream= raises it otherwise."""
        taken: List[_Context] = []
        status = 0
        try:
            while self._library.driver and not (taken and self._library.state_bytes):
                taken.append(self._take())
        except IndexError:
            pass                        # these are all that no call has now
        for context in taken:
            status = self._library.wait(context.model) or status
            self._give(context)
        if status:
            raise self._failed(status)

    # --------------------------------------------------------------------------------- state

    def _state_call(self, function: Any, *more: Any) -> None:
        if not self._library.state_bytes:
            raise Error(f"{self._source.title}: has no state; compile with "
                        "options=['--state=OUT=IN']")
        context = self._take()
        try:
            status = function(context.model, *more)
        finally:
            self._give(context)
        if status:
            raise self._failed(status)

    def reset(self) -> None:
        """Starts anew, from the model's or zero values of the state."""
        self._state_call(getattr(self._library, "reset", None))

    def save(self) -> bytes:
        """The state, for restore() of this model, by the same version of tgc."""
        block = ctypes.create_string_buffer(self._library.state_bytes or 1)
        self._state_call(getattr(self._library, "save", None), block)
        return block.raw

    def restore(self, block: bytes) -> None:
        """Goes on from what save() has returned."""
        if self._library.state_bytes and len(block) != self._library.state_bytes:
            raise Error(f"restore: {len(block)} bytes are given, the state of this model has "
                        f"{self._library.state_bytes}; give what save() of it returned")
        copy = ctypes.create_string_buffer(bytes(block), max(len(block), 1))
        self._state_call(getattr(self._library, "restore", None), copy)

    # ---------------------------------------------------------------------------- the source

    def _check_source(self) -> None:
        if self._key != self._key_now():
            raise Error(f"{self._source.title}: has changed since it was compiled; compile it "
                        "again")

    @property
    def info(self) -> Dict[str, Any]:
        """What `tgc info --json` says of the model with these options."""
        if self._info is None:
            self._check_source()
            self._info = json.loads(self._source.run(["info"], "--json"))
        return self._info

    def save_c(self, path: Union[str, "os.PathLike[str]"], name: Optional[str] = None) -> None:
        """Writes the C file and its header, as `tgc MODEL -o path` does; name: the C name, the
        file's stem otherwise."""
        self._check_source()
        self._source.run(["compile"], "-o", os.fspath(path), "--emit=c",
                         *([] if name is None else [f"--name={name}"]))


class Entry(Model):
    """One of several runs that a model has over its contexts."""

    def __init__(self, model: Model, number: int):
        self._model, self._number = model, number
        self._source, self._library = model._source, model._library
        self._key, self._key_now, self._info = model._key, model._key_now, None
        self.entries = {}
        entry = model._library.entries[number]
        self._set_ports(model._inputs[entry.inputs], model._outputs[entry.outputs])
        self._first_input, self._first_output = entry.inputs.start, entry.outputs.start

    def _take(self) -> _Context:
        context = self._model._take()
        if self._number not in context.by_entry:
            context.by_entry[self._number] = self._new_context(context)
        return context.by_entry[self._number]

    def _give(self, context: _Context) -> None:
        assert context.of is not None
        self._model._give(context.of)

    def _new_context(self, of: Optional[_Context] = None) -> _Context:
        return _Context(self._library, self._inputs, self._outputs,
                        of or self._model._new_context(), self._number)


_models: "weakref.WeakSet[Model]" = weakref.WeakSet()


def _after_fork() -> None:
    """A child has none of its parent's threads: its contexts are new ones. A state stays with the
    parent, so the child's begins anew."""
    for model in list(_models):
        model._start_contexts()


os.register_at_fork(after_in_child=_after_fork)


def compile(model: Any, *, dim: Optional[Mapping[str, Union[int, str, Tuple[int, int]]]] = None,
            shape: Optional[Mapping[str, Union[str, Sequence[int]]]] = None,
            options: Iterable[str] = ()) -> Model:
    """Compiles a model: in this process, by LLVM, where libtgc and libLLVM are here and neither CC
    nor an option asks for C; else to C, or takes from the cache what was compiled before.

    model: the path of a .onnx or .tg file, the bytes of an ONNX file, or an onnx.ModelProto.
    dim: dimensions that the model leaves open: {"batch": 8} fixes one, {"batch": "..8"} leaves it
         to each call, 8 at most.
    shape: of inputs: {"image": (1, 3, 224, 224)}.
    options: further words of tgc's command line: ["--threads=2", "--weight-type=bf16"].
    Raises Error with tgc's message, or the C compiler's (CC, cc otherwise).
    """
    source = _build.source_of(model, [*_build.dim_options(dim or {}),
                                      *_build.shape_options(shape or {}),
                                      *_build.check_options(options)])
    why = ""
    if _inprocess.is_wanted(source.arguments):
        library, why = _inprocess.open_model(source.model, source.arguments, source.tgc)
        if library:
            return Model(source, library, source.stamp(), source.stamp)
    try:
        return _compile_c(source)
    except Error as error:
        if not why or why in str(error):
            raise
        raise Error(f"{error}\n(and not in this process, which needs no C compiler: {why})",
                    error.status) from None


def _compile_c(source: Source) -> Model:
    if _build.is_cache_used():
        entry = source.entry()
        return Model(source, Library(entry / f"{_build.C_NAME}.so"), entry.name)
    with tempfile.TemporaryDirectory(prefix="tgc-") as folder:
        source.build(Path(folder))
        return Model(source, Library(Path(folder) / f"{_build.C_NAME}.so"), None)
