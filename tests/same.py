"""Whether two builds of tgc write the same bytes: the test of a change that should change nothing.

    tests/same.py OLD NEW                 the quick form, a minute or two
    tests/same.py OLD NEW --all           every model at hand, all options
    tests/same.py OLD NEW --models a.onnx b.tg
    tests/same.py OLD NEW --targets c,opencl,cuda,amd,metal,llvm
    tests/same.py OLD NEW --show          the first lines that differ, of each model

OLD and NEW are programs. Each model is compiled by both with the same options, in folders that
look alike, and every file is compared, the exit status and what was printed, too. Models are those of
models/, the golden graphs, the onnx package's tests (quick: every twentieth), and the real ones that
tests and benchmark have fetched or made before. Exit status 1: something differs.
"""

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUICK = [["--threads=1"], ["--threads=2"]]
QUICK_REAL = ["mobilenet_v2", "light_shufflenet", "minilm"]
ALL = [*QUICK, ["-O0"], ["--cpu=generic"], ["--cpu=avx2"], ["--cpu=avx512"], ["--cpu=neon"],
       ["--cache=0"], ["--strassen"], ["--weight-type=int8"]]
LIMIT = 600     # seconds a compile


def node_models():
    """The onnx package's node tests as files, written once, and the models that it carries."""
    import onnx
    from onnx.backend.test.case.node import collect_testcases
    folder = ROOT / ".cache" / f"nodes-{onnx.__version__}"
    if not folder.exists():
        warnings.simplefilter("ignore")
        folder.parent.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent))
        for case in collect_testcases(None):
            (fresh / f"{case.name}.onnx").write_bytes(case.model.SerializeToString())
        fresh.rename(folder)
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    return sorted(folder.glob("*.onnx")) + sorted(data.glob("*/*/model.onnx"))


def models(every):
    nodes = node_models()
    found = sorted((ROOT / "models").glob("*.tg"))
    found += sorted((ROOT / "tests" / "ir" / "golden").rglob("*.tg"))
    found += nodes if every else nodes[::20]
    made = ROOT / ".cache" / "models"
    if not every:
        found += [path for name in QUICK_REAL for path in sorted(made.glob(f"{name}-*.onnx"))]
    else:
        found += sorted(path for path in (ROOT / ".cache").rglob("*.onnx") if path not in nodes)
    return found


def write(tgc, model, options, folder):
    """All that a compile leaves: {name: bytes}."""
    folder.mkdir()
    out = "m.o" if "--target=llvm" in options else "m.c"
    command = [tgc, str(model), "-o", out, "--weights=file", *options]
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=LIMIT, env={**os.environ, "LC_ALL": "C"})
        status, printed = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        status, printed = "too long", b""
    left = {path.name: path.read_bytes() for path in folder.iterdir()}
    return left | {"(status)": str(status).encode(), "(printed)": printed}


def difference(old, new):
    """A few lines of what differs first."""
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if a == b:
            continue
        if a is None or b is None:
            return f"{name} is written by {'NEW' if a is None else 'OLD'} alone"
        if b"\0" in a + b:
            return f"{name}: {len(a)} and {len(b)} bytes"
        lines = difflib.unified_diff(a.decode(errors="replace").splitlines(),
                                     b.decode(errors="replace").splitlines(), "OLD", "NEW",
                                     lineterm="", n=1)
        return "\n".join([name, *(line[:160] for _, line in zip(range(24), lines))])
    return None


def compare(task):
    old, new, model, options = task
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for side, tgc in (("old", old), ("new", new)):
            place = Path(folder) / side
            place.mkdir()
            results.append(write(tgc, model, options, place / "m"))
        return model, options, difference(*results), results[0]["(status)"] == b"0"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="every model at hand, all options")
    parser.add_argument("--models", nargs="*", type=Path, help="these instead")
    parser.add_argument("--targets", default="c", help="with commas; c otherwise")
    parser.add_argument("--show", action="store_true", help="the first lines that differ")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    start = time.monotonic()
    chosen = options.models or models(options.all)
    ways = [[f"--target={target}", *flags] for target in options.targets.split(",")
            for flags in (ALL if options.all else QUICK) if target in ("c", "llvm") or flags == QUICK[0]]
    tasks = [(options.old.resolve(), options.new.resolve(), model.resolve(), flags)
             for model in chosen for flags in ways]
    differ = compiled = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for model, flags, found, good in pool.map(compare, tasks):
            compiled += good
            if found:
                differ += 1
                name = model.parent.name if model.name == "model.onnx" else model.name
                print(f"differs: {name} {' '.join(flags)}")
                if options.show:
                    print("    " + found.replace("\n", "\n    "))
    print(f"{len(tasks)} compiles of {len(chosen)} models ({compiled} of them without an error), "
          f"{differ} differ, {time.monotonic() - start:.0f} s")
    if not compiled:
        print("nothing was compiled", file=sys.stderr)
    return differ != 0 or not compiled


if __name__ == "__main__":
    sys.exit(main())
