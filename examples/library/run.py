"""What run.c does, by ctypes: python3 run.py [LIBRARY [MODEL]]. The module tgc (docs/guide/python.md) is more comfortable."""
import ctypes
import sys
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_void_p

PICTURE = (".######."
           ".....##."
           "....##.."
           "...##..."
           "...##..."
           "..##...."
           "..##...."
           "........")


class Message(ctypes.Structure):
    _fields_ = [("severity", c_int), ("file", c_char_p), ("line", c_int), ("column", c_int), ("place", c_char_p), ("text", c_char_p)]


library = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libtgc.so.0")
for name, result, *arguments in [
        ("compiler_new", c_void_p), ("compiler_free", None, c_void_p), ("source_file", c_int, c_void_p, c_char_p),
        ("set", c_int, c_void_p, c_char_p, c_char_p), ("open", c_int, c_void_p, POINTER(c_void_p)),
        ("message_count", c_size_t, c_void_p), ("message_get", POINTER(Message), c_void_p, c_size_t),
        ("set_input", c_int, c_void_p, c_size_t, c_void_p, c_void_p), ("run", c_int, c_void_p),
        ("output_data", c_void_p, c_void_p, c_size_t), ("model_maker", c_char_p, c_void_p),
        ("model_message", c_char_p, c_void_p), ("model_free", None, c_void_p)]:
    function = getattr(library, f"tgc_{name}")
    function.restype, function.argtypes = result, arguments

compiler, model = library.tgc_compiler_new(), c_void_p()
status = (library.tgc_source_file(compiler, sys.argv[2].encode() if len(sys.argv) > 2 else b"../digits.onnx")
          or library.tgc_set(compiler, b"cpu", b"native") or library.tgc_open(compiler, ctypes.byref(model)))
if status:
    sys.exit("\n".join(library.tgc_message_get(compiler, i).contents.text.decode() for i in range(library.tgc_message_count(compiler))))
library.tgc_compiler_free(compiler)

grey = (c_float * 64)(*(pixel == "#" for pixel in PICTURE))
if library.tgc_set_input(model, 0, grey, None) or library.tgc_run(model):
    sys.exit(library.tgc_model_message(model).decode())
p = list((c_float * 10).from_address(library.tgc_output_data(model, 0)))
print(f"a {p.index(max(p))}, to {100 * max(p):.0f}%, by {library.tgc_model_maker(model).decode()}")
library.tgc_model_free(model)
