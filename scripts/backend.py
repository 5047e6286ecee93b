"""The build backend of pip install . (PEP 517): a wheel of this machine, by Meson, in the layout of scripts/wheel.py.

The system's protobuf-c (libprotobuf-c-dev) and libjpeg are linked as they are, so the wheel is for this
machine: make wheel makes one to give away. The temporary build folder is removed.
"""

import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import SimpleNamespace

import wheel

ROOT = Path(__file__).resolve().parents[1]


def _must(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout[-3000:]}\n"
                         "A C compiler and protobuf-c are needed (Debian: apt-get install gcc pkg-config libprotobuf-c-dev)")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = f"lib/libtgc.so.{wheel.project_version()}"
    target = SimpleNamespace(tag="py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_"))
    with tempfile.TemporaryDirectory(prefix="tgc-") as folder:
        _must("meson", "setup", folder, ROOT, "-Dtests=disabled", "-Dbuildtype=release", "-Db_ndebug=true",
              f"-Dc_args=-ffile-prefix-map={ROOT}=.", "-Dc_link_args=-s")
        _must("ninja", "-C", folder, "cli/tgc", library)
        return wheel.write_wheel(target, Path(folder) / "cli" / "tgc", Path(folder) / library, None,
                                 Path(wheel_directory)).name


def build_sdist(sdist_directory, config_settings=None):
    name = f"{wheel.FILE_NAME}-{wheel.project_version()}"
    path = Path(sdist_directory).resolve() / f"{name}.tar.gz"
    if not shutil.which("git") or not (ROOT / ".git").exists():
        raise SystemExit("a source distribution is made from a git clone, by git archive")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "PKG-INFO").write_text(wheel.metadata(wheel.project_version()))
        _must("git", "-C", ROOT, "archive", f"--prefix={name}/", f"--add-file={folder}/PKG-INFO", "-o", path, "HEAD")
    return path.name
