"""A tgc that the sanitizers of addresses and of undefined behaviour watch, its arenas included (ir/base.c)."""

import os
import subprocess
from pathlib import Path

import tgc as T

# -O1, lines only: built in half of the time of -O2 -g. `undefined` does not include conversions of
# NaN, or of floats that are too large, to integers.
FLAGS = "-O1 -g1 -fsanitize=float-cast-overflow"
OPTIONS = ["--buildtype=plain", "-Db_sanitize=address,undefined", "-Db_lundef=false", f"-Dc_args={FLAGS}", "-Dtests=disabled"]


def sanitized_tgc(build, jobs):
    """Builds it in BUILD/sanitized, where it is not up to date there. $TGC_SANITIZED: one that there is."""
    if "TGC_SANITIZED" in os.environ:
        return Path(os.environ["TGC_SANITIZED"]).resolve()
    folder = Path(build).resolve() / "sanitized"
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", folder, *OPTIONS], cwd=T.ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", folder, "-j", str(jobs), "cli/tgc"], check=True, stdout=subprocess.DEVNULL)
    return folder / "cli" / "tgc"
