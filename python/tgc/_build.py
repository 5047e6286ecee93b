"""From a model to a shared object: finds tgc, runs it, and keeps what it made.

A cache in two steps, each by content (BLAKE2b):

    first key    the model's bytes, the options, tgc's own bytes, the C compiler's words and version
      -> files/KEY          which further files tgc read: external weights, a tune file
    second key   the first one and the contents of those files
      -> KEY/model.so       and model.weights, where weights stay in a file

What the first key covers decides which files those are, so the list is never out of date. An entry
is made in a folder of its own and renamed; who wants the same one meanwhile waits for a lock.

Its code is run, so `tgc cache` says whether the folder, and then each entry, is as this user left it:
the rule is the C cache's, and so is the code (lib/cache.c, lib/cache_folder.c).
"""

import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._error import Error

__version__ = "0.1.0"

C_NAME = "model"    # of every shared object here: each is opened on its own

# Variables that tgc goes by; DEBUG only prints.
TARGETS = ["C", "CLANG", "LLVM", "CUDA", "GPU", "METAL", "AMD"]
VARIABLES = ["NOOPT", "TGC_NVRTC", "DEV", *TARGETS]

# Options that are this module's to give.
OWN_OPTIONS = {
    "-o": "save_c() writes C", "--emit": "save_c() writes C", "--name": "save_c() takes name=",
    "-x": "the model's extension says its format", "-MD": "no depfile is written",
    "-MMD": "no depfile is written", "-MF": "no depfile is written",
    "-MT": "no depfile is written", "-MQ": "no depfile is written",
    "-MP": "no depfile is written", "--help": "run tgc --help", "--version": "see __version__"}


# ------------------------------------------------------------------------------------ programs


def _candidates() -> Iterator[Path]:
    name = "tgc"
    schemes = [None] + [s for s in sysconfig.get_scheme_names() if s == f"{os.name}_user"]
    for scheme in schemes:
        folder = (sysconfig.get_path("scripts", scheme) if scheme else
                  sysconfig.get_path("scripts"))
        yield Path(folder) / name
    yield Path(__file__).resolve().parents[1] / "bin" / name      # pip install --target
    found = shutil.which(name)
    if found:
        yield Path(found)


def find_tgc() -> str:
    """The path of the compiler: $TGC, the one that came with this package, or one on PATH.

    Raises Error where there is none, or one of another version than this package."""
    given = os.environ.get("TGC")
    for path in [Path(given)] if given else _candidates():
        if path.is_file():
            _check_version(str(path), *_stamp(path))
            return str(path)
    raise Error(f"{given}: there is no such file; TGC names the compiler to use" if given else
                "no program tgc beside this package or on PATH; install the wheel of this "
                "processor, or set TGC to the path of one")


def _stamp(path: Union[str, Path]) -> Tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=None)
def _check_version(path: str, *stamp: int) -> None:
    try:
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as why:
        raise Error(f"{path}: cannot be run on this {platform.machine()} machine: "
                    f"{why.strerror}; install the wheel of this processor, or set TGC to the "
                    "path of a tgc that runs here") from None
    words = done.stdout.decode(errors="replace").split()
    if done.returncode != 0 or words[:1] != ["tgc"] or len(words) < 2:
        raise Error(f"{path}: is not tgc: {_text(done.stderr or done.stdout)[:500]}")
    if words[1] != __version__:
        raise Error(f"{path}: is tgc {words[1]}, and this Python module is of {__version__}; "
                    "install both of one version, or set TGC to the path of the right one")


def _text(message: bytes) -> str:
    return message.decode(errors="replace").strip()


def _compiler() -> List[str]:
    """The words of $CC, split at blanks as tgc does it."""
    return os.environ.get("CC", "").split(" ") if os.environ.get("CC", "").strip(" ") else ["cc"]


def _compiler_version() -> str:
    words = [word for word in _compiler() if word]
    program = shutil.which(words[0])
    if not program:
        raise Error(f"cannot run '{words[0]}': there is no such program; install a C compiler "
                    "(Debian: apt-get install gcc) or set CC")
    return _version_text(tuple(words), program, *_stamp(program))


@functools.lru_cache(maxsize=None)
def _version_text(words: Tuple[str, ...], program: str, *stamp: int) -> str:
    done = subprocess.run([program, *words[1:], "--version"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return " ".join(words) + "\n" + _text(done.stdout)


# ----------------------------------------------------------------------------------- arguments


def dim_options(dim: Mapping[str, Union[int, str, Tuple[int, int]]]) -> List[str]:
    """--dim of {"batch": 8} (fixed), {"batch": "..8"} (known when it runs, 8 at most) and
    {"batch": (2, 8)} or {"batch": "2..8"} (at least 2, too)."""
    words = []
    for name, value in dim.items():
        if isinstance(value, (tuple, list)) and len(value) == 2:
            least, most = value
            value = f"{least.__index__()}..{most.__index__()}"
        bound = re.fullmatch(r"(\d*)(?:\.\.|<=)\s*(\d+)", value) if isinstance(value, str) else None
        if bound:
            words.append(f"--dim={name}={bound.group(1)}..{bound.group(2)}")
        elif isinstance(value, str) or isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Error(f"dim: {name!r} is {value!r}; expected a number, as in "
                        f"dim={{{name!r}: 8}}, or a bound, as in dim={{{name!r}: '..8'}} or "
                        f"dim={{{name!r}: (2, 8)}}")
        else:
            words.append(f"--dim={name}={value.__index__()}")
    return words


def shape_options(shape: Mapping[str, Union[str, Sequence[int]]]) -> List[str]:
    """--shape of {"x": (1, 3, 224, 224)}; a text is handed on as it is."""
    return [f"--shape={name}=" + (value if isinstance(value, str) else
                                  "x".join(str(size.__index__()) for size in value))
            for name, value in shape.items()]


def check_options(options: Iterable[str]) -> List[str]:
    if isinstance(options, (str, bytes)):
        raise Error(f"options: {options!r} is one text; expected a list of words, as in "
                    "options=['--threads=2']")
    words = list(options)
    for word in words:
        if not isinstance(word, str):
            raise Error(f"options: {word!r} is no text; expected words of tgc's command line")
        name = word.split("=")[0]
        if name in OWN_OPTIONS:
            raise Error(f"options: {name} cannot be given here; {OWN_OPTIONS[name]}")
        if word.startswith("@"):
            raise Error(f"options: {word}: give the words of that file themselves")
    return words


# --------------------------------------------------------------------------------------- cache


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/tgc/python, ~/.cache otherwise."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "tgc" / "python"


def clear_cache() -> None:
    """Removes everything that compile() has kept. Models that are in use go on."""
    shutil.rmtree(cache_folder(), ignore_errors=True)


def _hash_file(path: Union[str, Path]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError as why:
        raise Error(f"{path}: cannot be read: {why.strerror}") from None
    return digest.hexdigest()


@functools.lru_cache(maxsize=None)
def _hash_program(path: str, *stamp: int) -> str:
    return _hash_file(path)


def _hash_words(words: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for word in words:
        digest.update(word.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time; where a file system has no locks, the work may be done twice."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass
        yield


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise


def parse_depfile(text: str) -> List[str]:
    """The prerequisites of the one rule in it, unescaped as make does it."""
    words = re.findall(r"(?:\\[ #]|\$\$|[^\s\\]|\\(?![\n#\s]))+", text.partition(": ")[2])
    return [re.sub(r"\\([ #])|\$(\$)", r"\1\2", word) for word in words]


def _ask_cache(tgc: str, option: str, name: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([tgc, "cache", option, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)


def _own_folder(tgc: str, name: str, option: str = "--folder") -> Path:
    """The real path of a folder of tgc's cache, made or sealed. Raises Error: others can change it."""
    done = _ask_cache(tgc, option, name)
    if done.returncode:
        raise Error(f"{_text(done.stderr)}\nset XDG_CACHE_HOME to a folder of your own, or TGC_CACHE=0")
    return Path(os.fsdecode(done.stdout[:-1]))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


class Source:
    """A model as compile() was given it: what to hand to tgc, and the keys of the cache."""

    def __init__(self, model: Union[str, bytes], arguments: List[str]):
        self.model = model
        self.arguments = arguments
        self.title = model if isinstance(model, str) else "<bytes>"
        self.tgc = find_tgc()

    def first_key(self) -> str:
        model = (_hash_file(self.model) + os.path.splitext(self.model)[1]
                 if isinstance(self.model, str)
                 else hashlib.blake2b(self.model, digest_size=20).hexdigest())
        words = [model, *self.arguments, "", platform.machine(), _compiler_version(),
                 _hash_program(self.tgc, *_stamp(self.tgc)),
                 *(f"{name}={os.environ.get(name, '')}" for name in VARIABLES)]
        if "--cpu=native" in self.arguments:
            words.append(_processor())
        return _hash_words(words)

    def run(self, verb: Sequence[str], *more: str) -> bytes:
        """tgc's standard output. What it says without failing goes on to standard error."""
        if isinstance(self.model, str):
            words, data = [self.model], b""
        else:
            words, data = ["-", "-x", "onnx"], self.model
        done = subprocess.run([self.tgc, *verb, *words, *self.arguments, *more], input=data,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Error(_text(done.stderr) or f"tgc ended with status {done.returncode}")
        if done.stderr:
            sys.stderr.write(done.stderr.decode(errors="replace"))
        return done.stdout

    def stamp(self) -> Optional[str]:
        """Changes with a file's contents; of a model that no C compiler builds."""
        return f"{_stamp(self.model)}" if isinstance(self.model, str) else None

    def read_by_tgc(self, depfile: Path) -> List[str]:
        """The further files of a depfile: those below the model's folder relative to it."""
        with open(depfile, encoding="utf-8", errors="surrogateescape") as file:
            names = parse_depfile(file.read())
        folder = os.path.dirname(self.model) if isinstance(self.model, str) else ""
        lines = []
        for name in names:
            is_beside = folder != "" and name.startswith(os.path.join(folder, ""))
            if name != self.model:
                lines.append(json.dumps([is_beside, os.path.relpath(name, folder) if is_beside
                                         else name]))
        return lines

    def second_key(self, first: str, files: Iterable[str]) -> str:
        words = [first]
        for line in files:
            is_beside, name = json.loads(line)
            path = Path(name)
            if is_beside and isinstance(self.model, str):
                path = Path(self.model).parent / name
            words += [line, _hash_file(path)]
        return _hash_words(words)

    def build(self, folder: Path) -> List[str]:
        """Makes model.so, and model.weights if need be; returns what else was read."""
        self.run(["compile"], "-o", str(folder / f"{C_NAME}.so"), f"--name={C_NAME}", "-MD",
                 "-MF", str(folder / "read.d"), "-MT", C_NAME)
        files = self.read_by_tgc(folder / "read.d")
        for name in ("read.d", f"{C_NAME}.h"):
            (folder / name).unlink()
        return files

    def key(self, first: Optional[str] = None) -> Optional[str]:
        """The entry's, if it is known which files belong to the model."""
        first = first or self.first_key()
        try:
            files = (cache_folder() / "files" / first).read_text(
                encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return None
        return self.second_key(first, files)

    def entry(self) -> Path:
        """The folder of the cache that holds the compiled model; made, if it is not there."""
        cache = _own_folder(self.tgc, "python")
        first = self.first_key()
        kept = self._kept_entry(first)
        if kept:
            return kept
        try:
            for name in ("files", "locks"):
                (cache / name).mkdir(exist_ok=True, mode=0o700)
            with _lock(cache / "locks" / first):
                return self._make_entry(cache, first)
        except OSError as why:
            raise Error(f"{why.filename or cache}: the cache cannot be written: {why.strerror}; "
                        "set XDG_CACHE_HOME to another folder, or TGC_CACHE=0") from None

    def _kept_entry(self, first: str) -> Optional[Path]:
        """None: there is none, or it is not as it was sealed."""
        found = self.key(first)
        if not found or not (cache_folder() / found).exists():
            return None
        done = _ask_cache(self.tgc, "--check", f"python/{found}")
        return Path(os.fsdecode(done.stdout[:-1])) if done.returncode == 0 else None

    def _make_entry(self, cache: Path, first: str) -> Path:
        kept = self._kept_entry(first)
        if kept:
            return kept                 # made while this process waited
        made = Path(tempfile.mkdtemp(prefix="new-", dir=cache))
        try:
            files = self.build(made)
            if self.first_key() != first:
                raise Error(f"{self.title}: has changed while it was compiled; compile it again")
            entry = cache / self.second_key(first, files)
            _write(cache / "files" / first, "\n".join(files))
            if os.path.lexists(entry):                  # another first key's, or what was no entry
                if _ask_cache(self.tgc, "--check", f"python/{entry.name}").returncode == 0:
                    return entry
                _remove(entry)
            os.rename(made, entry)
            return _own_folder(self.tgc, f"python/{entry.name}", "--seal")
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _processor() -> str:
    """What --cpu=native depends on."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in lines if "MHz" not in line)


def is_cache_used() -> bool:
    return os.environ.get("TGC_CACHE") != "0"


def source_of(model: object, arguments: List[str]) -> Source:
    """Of a path, the bytes of an ONNX file, or an onnx.ModelProto."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        # "-" and "@" mean something else where a command line begins with them
        return Source("./" + path if path[:1] in ("-", "@") else path, arguments)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Source(bytes(model), arguments)
    if hasattr(model, "SerializeToString"):
        return Source(model.SerializeToString(), arguments)
    raise Error(f"expected the path of a model, an ONNX file's bytes or an onnx.ModelProto; found "
                f"{type(model).__name__}")
