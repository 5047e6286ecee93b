"""What a change can affect: from files that differ since a revision to suites and unit tests.

    a file of the build         suites whose row names it, or a source that ninja has compiled with it (ninja -t deps);
                                unit tests that are linked from what is made of it
    a program of tests/         the suite; a module of tests/: suites that import it, by other modules too
    any other file              suites whose row names it, or whose program or modules have its name in their text

A row of SUITES (check.py) names parts of the tree as beginnings of paths. A file that no suite and no unit test is found
for affects everything, and so does one that a fourth of all objects are made of.
"""

import functools
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = 4            # what a fourth of the objects are made of
DESCRIBES = {"meson.build", "meson_options.txt", "Makefile", "requirements.txt", "check.py", "suite.py", "tgc.py"}     # how all is built and run
BUILT = {".c", ".h", ".def", ".rules", ".proto"}


def changed_files(revision, root=ROOT):
    """Paths from the root: what differs from the revision, committed or not, and what is new. Renamed files have both names."""
    def git(*words):
        done = subprocess.run(["git", "-c", "core.quotePath=off", *words], cwd=root, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"since.py: git {words[0]} says nothing of {revision}")
        return done.stdout.splitlines()
    return sorted({*git("diff", "--name-only", "--no-renames", revision, "--"), *git("ls-files", "--others", "--exclude-standard")})


def listed(root=ROOT):
    """All files of the tree, built and fetched ones apart."""
    skipped = {"build", ".venv", ".cache", ".git"}
    return [str(path.relative_to(root)) for place in root.iterdir() if place.name not in skipped and not (place / "build.ninja").exists()
            for path in ([place] if place.is_file() else place.rglob("*"))]


class Build:
    """What a build folder's build.ninja and the dependencies that ninja has noted say."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.made_of = defaultdict(set)             # file: what is made of it
        self.sources = {}                           # object: its source, from the root
        text = re.sub(r"\$\n\s*", " ", (self.folder / "build.ninja").read_text())
        for outputs, inputs in re.findall(r"^build (.*?): \S+ ?(.*)$", text, re.M):
            for name in re.split(r" \|\|? | ", inputs.partition(" || ")[0]):
                self.made_of[self.path_of(name)] |= set(re.split(r" \| | ", outputs))
        noted = subprocess.run(["ninja", "-C", self.folder, "-t", "deps"], check=True, capture_output=True, text=True).stdout
        for entry in noted.split("\n\n"):
            head, *names = entry.strip().splitlines() or [""]
            made = head.partition(": #deps")[0]
            for name in names:
                self.made_of[self.path_of(name.strip())].add(made)
            if names:
                self.sources[made] = self.path_of(names[0].strip())

    def path_of(self, name):
        """From the root, if it is a file of the tree; as ninja has it, if it is made."""
        path = Path(os.path.normpath(self.folder / name))
        return str(path.relative_to(ROOT)) if name.startswith("..") and path.is_relative_to(ROOT) else name

    def sources_of(self, path):
        """Those whose objects are made of the file, with it, and no generated file between."""
        return {self.sources[made] for made in self.made_of.get(path, ()) if made in self.sources}

    def unit_tests(self, path):
        """The programs of tests/unit/ that are linked from what is made of the file, whatever is between."""
        seen, todo = set(), {path}
        while todo:
            seen |= todo
            todo = set().union(*(self.made_of.get(name, ()) for name in todo)) - seen
        return {name.removeprefix("tests/unit/test_") for name in seen if re.fullmatch(r"tests/unit/test_\w+", name)}


@functools.cache
def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def modules(program):
    """The modules of tests/ that a program imports, and those that they import."""
    known = {path.stem: str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}
    seen, todo = set(), {program}
    while todo:
        seen |= todo
        names = {name for path in todo for line in re.findall(r"^ *(?:import|from) (\w.*)$", text_of(path), re.M)
                 for name in re.findall(r"\w+", line.partition(" import ")[0])}
        todo = {known[name] for name in names if name in known} - seen
    return seen


def slow_tests(build):
    """The unit tests that make quick leaves out."""
    listed = json.loads((Path(build) / "meson-info/intro-tests.json").read_text())
    return {test["name"] for test in listed if any(suite.endswith("slow") for suite in test["suite"])}


class Choice:
    """Suites and unit tests for a list of changed files."""

    def __init__(self, suites, quick, build):
        """suites: {name: (program, beginnings of paths)}; quick: {name: beginnings of paths} of the short form."""
        self.suites, self.quick, self.build = suites, quick, build
        self.modules = {name: modules(program) for name, (program, _) in suites.items() if (ROOT / program).exists()}

    def by_program(self, path):
        """Suites that are the file, import it, or have its name in their text."""
        found = {name for name, used in self.modules.items() if path in used}
        if found or path.endswith(".py") or Path(path).suffix in BUILT and not path.startswith("tests/"):
            return found
        word = re.compile(rf"(?<![\w-]){re.escape(Path(path).name)}(?!\w)")
        return {name for name, used in self.modules.items() if any(word.search(text_of(module)) for module in used)}

    def of_file(self, path):
        """(suites, rows of the short form, unit tests) of a changed file; None: everything."""
        sources = self.build.sources_of(path) - {path}
        if EVERYTHING * len(sources) >= len(self.build.sources) or Path(path).name in DESCRIBES:
            return None
        suites = self.by_program(path) | {name for name, (_, parts) in self.suites.items() if begins(path, parts, sources)}
        quick = {name for name, parts in self.quick.items() if begins(path, parts, sources)}
        tests = self.build.unit_tests(path)
        return (suites, quick, tests) if suites or quick or tests else None

    def of(self, files):
        """Suites, rows of the short form, unit tests, and the files that affect everything."""
        suites, quick, tests, unknown = set(), set(), set(), []
        for path in files:
            found = self.of_file(path)
            if found:
                suites, quick, tests = suites | found[0], quick | found[1], tests | found[2]
            else:
                unknown.append(path)
        return suites, quick, tests, unknown


def begins(path, parts, sources):
    """Whether the file, or a source that is compiled with it, is of one of the parts."""
    return any(name.startswith(part) for part in parts for name in (path, *sources))
