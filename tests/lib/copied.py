"""A copy of the tree that goes on building where a build folder stands: for tests that change sources.

It has what git knows, and of the build folder the objects of tgc and tgtool, all with their times, so that ninja compiles what a test changes and
nothing else. No file of the original is written.
"""

import shutil
import subprocess
from pathlib import Path

import tgc as T
from suite import expect

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("build.ninja", "compile_commands.json", ".ninja_log", ".ninja_deps", "meson-info", "meson-private", "ir", "passes", "frontend", "runtime",
         "backends", "lib", "cli", "integration", "tests/ir")


class Tree:
    def __init__(self, folder, build):
        self.folder, self.original = T.scratch(folder), Path(build).resolve()
        self.build = self.folder / "build"
        self._copy_sources()
        self._copy_build()

    def _copy_sources(self):
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in names.splitlines():
            source, copy = ROOT / name, self.folder / name
            if source.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
        if (ROOT / ".venv").exists():
            (self.folder / ".venv").symlink_to((ROOT / ".venv").resolve())

    def _copy_build(self):
        for name in BUILT:
            (self.build / name).parent.mkdir(parents=True, exist_ok=True)
            if (self.original / name).is_dir():
                shutil.copytree(self.original / name, self.build / name, symlinks=True)
            else:
                shutil.copy2(self.original / name, self.build / name)
        for kept in (self.original / "test-scratch").glob("onnx-*.pickle"):     # the onnx package's tests: seconds to compute
            (self.build / "test-scratch").mkdir(exist_ok=True)
            shutil.copy2(kept, self.build / "test-scratch")
        rules = self.build / "build.ninja"
        text = rules.read_text()
        expect(f"regenerate {ROOT} {self.original}" in text, f"{self.original} is no build folder of {ROOT}")
        rules.write_text(text.replace(f"regenerate {ROOT} {self.original}", f"regenerate {self.folder} {self.build}"))

    def configure(self):
        """Meson reads the tree. Generators that it would now take from the tree's own build folder are those of the original, so that nothing that
        they wrote is old."""
        T.must(T.run(["ninja", "-C", "build", "build.ninja"], cwd=self.folder, timeout=300))
        rules = self.build / "build.ninja"
        rules.write_text("".join(line if "regenerate" in line else line.replace(f"{self.build}/", f"{self.original}/") for line in rules.open()))

    def make(self, *targets, jobs=2):
        done = T.run(["ninja", "-C", "build", f"-j{jobs}", *targets], cwd=self.folder, timeout=600)
        expect(done.status == 0, f"the tree does not build:\n{done.out.decode()[-3000:]}{done.err[-1000:]}")

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
