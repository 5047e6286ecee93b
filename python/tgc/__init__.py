"""tgc compiles a neural network (ONNX, or tgc's own text graph) to C and runs it on NumPy's arrays.

    import tgc
    m = tgc.compile("m.onnx", dim={"batch": 8})
    y = m(x)

Needs NumPy, and libLLVM or a C compiler (cc, or CC). docs/guide/python.md has the rest.
"""

from ._build import clear_cache, find_tgc, __version__
from ._error import Error
from ._model import Model, compile
from ._train import Trained, train

__all__ = ["Error", "Model", "__version__", "Trained", "clear_cache", "compile", "find_tgc", "train"]
