"""Models that libtgc compiles in this process, by LLVM: no C compiler, no file.

libtgc is the library of tgc.h, beside the program tgc, or in a wheel. What it opens has NAME.h's functions, so that
the rest of this package sees no difference.
"""

import ctypes
import functools
import os
import threading
import weakref
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_void_p)
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple, Union

from . import _build
from ._error import Error
from ._library import Info, Library, Options

OK = 0


class _Functions(Structure):
    """tgc_functions"""
    _fields_ = [("info", POINTER(Info)), ("run", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)),
                ("close", CFUNCTYPE(None, c_void_p)), ("strerror", CFUNCTYPE(c_char_p, c_int)),
                ("reset", CFUNCTYPE(c_int, c_void_p)),
                ("save", CFUNCTYPE(c_int, c_void_p, c_void_p)),
                ("restore", CFUNCTYPE(c_int, c_void_p, c_void_p))]


class _Message(Structure):
    """tgc_message"""
    _fields_ = [("severity", c_int), ("file", c_char_p), ("line", c_int), ("column", c_int),
                ("place", c_char_p), ("text", c_char_p)]


_PROTOTYPES = {
    "tgc_version": (c_char_p,),
    "tgc_compiler_new": (c_void_p,),
    "tgc_compiler_free": (None, c_void_p),
    "tgc_set_words": (c_int, c_void_p, POINTER(c_char_p), c_size_t),
    "tgc_source_file": (c_int, c_void_p, c_char_p),
    "tgc_source_memory": (c_int, c_void_p, c_char_p, c_char_p, c_size_t),
    "tgc_message_count": (c_size_t, c_void_p),
    "tgc_message_get": (POINTER(_Message), c_void_p, c_size_t),
    "tgc_open": (c_int, c_void_p, POINTER(c_void_p)),
    "tgc_model_free": (None, c_void_p),
    "tgc_model_functions": (c_int, c_void_p, POINTER(_Functions)),
    "tgc_model_init": (c_int, c_void_p, POINTER(c_void_p), c_void_p, c_size_t, POINTER(Options)),
}


def _candidates(program: str) -> Iterator[Path]:
    """Beside the program: in a build, where it is installed, in this package."""
    folder = Path(program).resolve().parent.parent / "lib"
    yield folder / "libtgc.so.0"
    yield from sorted(folder.glob("*/libtgc.so.0"))
    yield Path(__file__).resolve().parent / "libtgc.so.0"


@functools.lru_cache(maxsize=None)
def _load(path: str) -> Optional[Any]:
    """The library with its prototypes; None: it cannot be loaded, or is of another version."""
    try:
        code = ctypes.CDLL(path)
        for name, (result, *arguments) in _PROTOTYPES.items():
            function = getattr(code, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return code if code.tgc_version().decode() == _build.__version__ else None


def _find(program: str) -> Optional[Any]:
    for path in _candidates(program):
        code = _load(str(path)) if path.exists() else None
        if code:
            return code
    return None


def is_wanted(arguments: List[str]) -> bool:
    """Whether nobody asks for C and its compiler: by CC, by a target, or for a debugger."""
    asked = [name for name in ("CC", *_build.TARGETS) if os.environ.get(name, "").strip(" 0")]
    named = [word for word in arguments if word == "-g" or word.split("=")[0] in ("--target", "--keep")]
    return not asked and not named and not os.environ.get("NOOPT", "").strip(" 0")


class InProcess(Library):
    """An open model of libtgc's."""

    def __init__(self, code: Any, model: c_void_p):
        self._code, self._model = code, model
        functions = _Functions()
        code.tgc_model_functions(model, byref(functions))
        self._functions = functions
        self._read(functions.info, "libtgc")
        self.close, self.strerror = functions.close, functions.strerror
        self._run = ctypes.CFUNCTYPE(c_int)(ctypes.cast(functions.run, c_void_p).value or 0)
        self.reset, self.save, self.restore = functions.reset, functions.save, functions.restore
        self._options, self._said = Options(), threading.local()
        self.driver = None
        # contexts hold this object, so they are closed before
        weakref.finalize(self, _free, code, model, os.getpid())

    def _init(self, self_: Any, arena: int, nbytes: int, options: Any) -> int:
        return int(self._code.tgc_model_init(self._model, self_, arena, nbytes, None))


def _free(code: Any, model: c_void_p, process: int) -> None:
    if process == os.getpid():
        code.tgc_model_free(model)


def _words(code: Any, compiler: c_void_p) -> str:
    """The first error."""
    for i in range(code.tgc_message_count(compiler)):
        message = code.tgc_message_get(compiler, i).contents
        if message.severity == 2:
            return str(message.text.decode(errors="replace"))
    return "out of memory"


def open_model(model: Union[str, bytes], arguments: List[str],
               program: str) -> Tuple[Optional[InProcess], str]:
    """The model, or why there is none; "": no libtgc belongs to the program."""
    code = _find(program)
    if not code:
        return None, ""             # or of another version
    compiler = c_void_p(code.tgc_compiler_new())
    if not compiler:
        return None, "out of memory"
    try:
        words = [word.encode("utf-8", "surrogateescape") for word in arguments]
        array = (c_char_p * (len(words) + 1))(*words)
        opened = c_void_p()
        if isinstance(model, str):
            status = code.tgc_source_file(compiler, os.fsencode(model))
        else:
            status = code.tgc_source_memory(compiler, b"onnx", model, len(model))
        status = status or code.tgc_set_words(compiler, array, len(words))
        status = status or code.tgc_open(compiler, byref(opened))
        return (InProcess(code, opened), "") if status == OK else (None, _words(code, compiler))
    finally:
        code.tgc_compiler_free(compiler)
