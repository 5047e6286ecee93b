"""The Python module under test, which has the name of the tests' own helper."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def import_module(tgc, cache):
    """From the tree, with that program; what it builds is kept in the folder `cache`."""
    os.environ.update(TGC=str(tgc), XDG_CACHE_HOME=str(cache))
    os.environ.pop("TGC_CACHE", None)
    if "tgc_module" in sys.modules:
        return sys.modules["tgc_module"]
    helper = sys.modules.pop("tgc", None)
    sys.path.insert(0, str(ROOT / "python"))
    try:
        import tgc
    finally:
        sys.path.pop(0)
        sys.modules["tgc_module"] = tgc
        del sys.modules["tgc"]
        if helper:
            sys.modules["tgc"] = helper
    return tgc
