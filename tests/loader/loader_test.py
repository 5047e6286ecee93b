"""The data loader (runtime/loader/): what it reads against NumPy, gzip, zipfile and zlib, to the bit.

Damaged files run under sanitizers: cut off after every byte, and with bytes changed. The driver that does it is made of
the text that programs carry (runtime/embed.c), with files read instead of mapped, so that sanitizers see where they end.
"""

import functools
import gzip
import io
import os
import random
import struct
import sys
import threading
import zipfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np

import tgc as T
from suite import Skip, Suite, expect

suite = Suite("loader")
OPTIONS = suite.parse()
BUILD = Path(OPTIONS.build).resolve()
DRIVER = BUILD / "tests" / "loader" / "loader_driver"
SCRATCH = BUILD / "test-scratch" / "loader"
case = suite.folder_case(SCRATCH)
PIECES = ["loader.h", "parts.h", "file.c", "inflate.c", "npy.c", "array.c", "zip.c", "dataset.c"]
TURNS = 4000 if OPTIONS.all else 400
TYPES = {"bool": "?", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8", "i64": "i8",
         "f16": "f2", "f32": "f4", "f64": "f8"}
IDX = {0x08: ">u1", 0x09: ">i1", 0x0b: ">i2", 0x0c: ">i4", 0x0d: ">f4", 0x0e: ">f8"}
LOCK = threading.Lock()
RANDOM = np.random.default_rng(5)


def drive(folder, *words, status=0, driver=DRIVER):
    done = T.run([driver, *words], cwd=folder, env={**os.environ, **T.HALT, "ASAN_OPTIONS": "allocator_may_return_null=1"})
    return T.must(done, status).out.decode()


def refused(folder, path, *words, name="x", before=()):
    """The error of a file that must not open; it names the file, and has the words."""
    text = drive(folder, *before, "open", name, path, status=1).strip()
    for word in (Path(path).name, *words):
        expect(str(word) in text, f"'{word}' is not in: {text}")
    return text


def read(folder, *files):
    """{name: array} as the loader reads them; files: (as, path)."""
    listed = drive(folder, *[word for name, path in files for word in ("open", name, path)], "list").splitlines()
    names = [line.split()[0] for line in listed]
    drive(folder, *[word for name, path in files for word in ("open", name, path)],
          *[word for i, name in enumerate(names) for word in ("save", name, f"{i}.raw")])
    out = {}
    for i, line in enumerate(listed):
        name, kind, dims, nbytes = line.split()
        data = (folder / f"{i}.raw").read_bytes()
        expect(len(data) == int(nbytes), f"{line}: {len(data)} bytes")
        out[name] = np.frombuffer(data, TYPES[kind]).reshape([int(n) for n in dims.split(",")])
    return out


def same(got, wanted, what):
    native = wanted.dtype.newbyteorder("=")
    expect(got.dtype == native and got.shape == wanted.shape, f"{what}: {got.dtype}{got.shape}, not {native}{wanted.shape}")
    expect(got.tobytes() == np.ascontiguousarray(wanted.astype(native)).tobytes(), f"{what}: other elements")


def samples(dtype, shape):
    """Elements of all bits but NaN's."""
    n = int(np.prod(shape))
    if dtype.endswith("?"):
        return RANDOM.integers(0, 2, shape).astype(bool)
    if "f" in dtype:
        return (RANDOM.standard_normal(n) * 100).astype(dtype).reshape(shape)
    return np.frombuffer(RANDOM.bytes(n * np.dtype(dtype).itemsize), dtype).reshape(shape)


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def idx(array, code):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.astype(IDX[code]).tobytes()


def raw_npy(header, elements=b"", version=1):
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + elements


# ---------------------------------------------------------------------------------- what is read


@case("npy: types, versions, byte orders and ranks")
def _(folder):
    files, wanted = [], {}
    for i, dtype in enumerate(TYPES.values()):
        for order in "<>":
            shape = [(6,), (6, 3), (6, 2, 3), (6, 1, 2, 1, 2, 1, 1, 3)][(i + (order == ">")) % 4]
            name, array = f"{dtype[0]}{i}{'lb'[order == '>']}", samples(order + dtype, shape)
            (folder / f"{name}.npy").write_bytes(npy(array, [(1, 0), (2, 0), (3, 0)][i % 3]))
            files.append((name, f"{name}.npy"))
            wanted[name] = array
    got = read(folder, *files)
    expect(list(got) == list(wanted), f"{list(got)}")
    for name, array in wanted.items():
        same(got[name], array, name)
    (folder / "f.npy").write_bytes(npy(np.asfortranarray(np.arange(6.).reshape(1, 6, 1))))
    same(read(folder, ("x", "f.npy"))["x"], np.arange(6.).reshape(1, 6, 1), "a shape whose order does not matter")


@case("idx: types and ranks, also gzipped")
def _(folder):
    files, wanted = [], {}
    for i, (code, dtype) in enumerate(IDX.items()):
        array = samples(dtype, [(5,), (5, 7), (5, 3, 2)][i % 3])
        (folder / f"{i}").write_bytes(idx(array, code))
        (folder / f"{i}.gz").write_bytes(gzip.compress(idx(array, code)))
        files += [(f"a{i}", f"{i}"), (f"z{i}", f"{i}.gz")]
        wanted |= {f"a{i}": array, f"z{i}": array}
    got = read(folder, *files)
    for name, array in wanted.items():
        same(got[name], array, name)
    (folder / "other").write_bytes(b"\0\0\x0a\1" + bytes(20))
    refused(folder, "other", "0x0a")
    (folder / "deep").write_bytes(b"\0\0\x08\x09" + bytes([0, 0, 0, 1]) * 9 + b"\0")
    refused(folder, "deep", "rank 9")


@case("gzip: members, header fields, padding, large and empty ones")
def _(folder):
    array = np.repeat(samples("<i4", (3000, 5)), 3, 1)
    data = npy(array)
    fields = b"\x1f\x8b\x08\x1e" + bytes(6) + struct.pack("<H", 5) + b"extra" + b"name\0" + b"comment\0"
    fields += struct.pack("<H", zlib.crc32(fields) & 0xffff)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    member = deflate.compress(data) + deflate.flush() + struct.pack("<II", zlib.crc32(data), len(data))
    made = {
        "one": gzip.compress(data), "stored": gzip.compress(data, 0), "fields": fields + member,
        "many": b"".join(gzip.compress(data[i:i + 1000]) for i in range(0, len(data), 1000)) + gzip.compress(b""),
        "padded": gzip.compress(data) + bytes(1000),
    }
    for name, text in made.items():
        (folder / f"{name}.npy.gz").write_bytes(text)
        same(read(folder, ("x", f"{name}.npy.gz"))["x"], array, name)
    for name, text in {"crc": made["one"][:-8] + b"\0\0\0\0" + made["one"][-4:], "size": made["one"][:-1] + b"\1",
                       "after": made["one"] + b"more", "header": fields[:-1] + b"\0" + member}.items():
        (folder / name).write_bytes(text)
        refused(folder, name, "damaged")
    (folder / "more.gz").write_bytes(gzip.compress(data + b"\0"))
    refused(folder, "more.gz", "more bytes")
    (folder / "text.gz").write_bytes(gzip.compress(b"no array"))
    refused(folder, "text.gz", "gunzip")


@case("npz: stored, deflated, zip64, streamed; names and choices")
def _(folder):
    arrays = {"picture": samples("u1", (7, 5, 4)), "target": samples(">i8", (7,)), "a/b": samples("<f4", (7, 3))}
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "deflated.npz", **arrays)
    with zipfile.ZipFile(folder / "zip64.npz", "w", zipfile.ZIP_DEFLATED) as z:
        for name, array in arrays.items():
            with z.open(f"{name}.npy", "w", force_zip64=True) as f:
                f.write(npy(array))

    class Pipe(io.RawIOBase):
        """Not seekable: sizes come after the bytes."""
        def __init__(self, path):
            self.file = open(path, "wb")

        def writable(self):
            return True

        def write(self, data):
            return self.file.write(data)

        def close(self):
            self.file.close()

    pipe = Pipe(folder / "streamed.npz")
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as z:
        z.comment = b"a comment with PK\5\6 in it" + bytes(30)
        for name, array in arrays.items():
            z.writestr(f"{name}.npy", npy(array))
    pipe.close()
    for stem in ("stored", "deflated", "zip64", "streamed"):
        got = read(folder, ("-", f"{stem}.npz"))
        expect(list(got) == list(arrays), f"{stem}: {list(got)}")
        for name, array in arrays.items():
            same(got[name], array, f"{stem} {name}")
    np.savez(folder / "mnist.npz", x_train=samples("u1", (4, 2)), x_test=samples("u1", (3, 2)))
    refused(folder, "mnist.npz", "3 samples", "x_train", "has 4", name="-")
    got = read(folder, ("input=x_train", "mnist.npz"), ("target", "t.npz")) if np.savez(folder / "t.npz", y=np.arange(4)) is None else {}
    expect(list(got) == ["input", "target"], "an entry by another name, and the only one")
    expect(list(read(folder, ("target", "stored.npz"))) == ["target"], "one of several by its name")
    refused(folder, "mnist.npz", "no array 'y'", "x=ARRAY", name="x=y")


@case("several files: names, numbers of samples, closing")
def _(folder):
    for name, n in (("a", 4), ("b", 5), ("c", 4)):
        np.save(folder / f"{name}.npy", np.arange(n))
    out = drive(folder, "open", "x", "a.npy", "try", "y", "b.npy", "try", "x", "c.npy", "try", "y", "c.npy", "list", "close", "list",
                "open", "z", "b.npy", "list").splitlines()
    expect("b.npy" in out[0] and "a.npy" in out[0] and "5 samples" in out[0] and "has 4" in out[0], out[0])
    expect("named 'x'" in out[1] and "a.npy" in out[1], out[1])
    expect(out[2:] == ["opened", "x i64 4 32", "y i64 4 32", "z i64 5 40"], f"{out[2:]}")
    refused(folder, "a.npy", "name", name="-")
    refused(folder, "a.npy", "name", name="")
    refused(folder, "a.npy", "name", name="x" * 256)


# ------------------------------------------------------------------------------- what is refused


@case("npy: headers that are refused, by what they say")
def _(folder):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
    rows = [
        (head.replace("<f4", "|O"), 24, "pickled"), (head.replace("<f4", "<U3"), 24, "'U', 3 bytes"),
        (head.replace("<f4", "<c8"), 24, "'c', 8 bytes"), (head.replace("'<f4'", "[('a', '<f4')]"), 24, "no plain numbers"),
        (head.replace("False", "True"), 24, "numpy.ascontiguousarray"), (head.replace("False", "0"), 24, "fortran_order"),
        (head.replace("(2, 3)", "(0, 3)"), 0, "dimension 0"), (head.replace("(2, 3)", "(2, 0)"), 0, "dimension 1"),
        (head.replace("(2, 3)", "()"), 4, "single number"), (head.replace("(2, 3)", "(2, -3)"), 24, "malformed"),
        (head.replace("(2, 3)", "(2, 3"), 24, "malformed"), (head.replace("(2, 3)", "(1,)*9"), 4, "malformed"),
        (head.replace("(2, 3)", "(" + "1, " * 9 + ")"), 4, "rank over 8"), (head.replace("shape", "shap"), 24, "malformed"),
        (head.replace("(2, 3)", f"({2**62}, 4)"), 24, "more elements"), (head.replace("(2, 3)", f"({2**80},)"), 24, "malformed"),
        (head.replace("(2, 3)", f"({2**32}, {2**32})"), 24, "more elements"), (head, 23, "23 bytes of elements", "needs 24"),
        (head, 25, "25 bytes"), (head.replace("f4", "f4444444444444"), 24, "kind"), (head.replace("(2, 3)", "(2; 3)"), 24, "malformed"),
    ]
    for text, nbytes, *words in rows:
        (folder / "a.npy").write_bytes(raw_npy(text, bytes(nbytes)))
        refused(folder, "a.npy", *words)
    for text, *words in ((b"\x93NUMPY\4\0" + bytes(9), "version 4"), (b"\x93NUMPY\1\0\xff\xff{}", "65535 bytes"),
                         (b"\x93NUMPY\2\0\xff\xff\xff\xff{}", "4294967295 bytes"), (b"", "empty"), (b"text, not data", "IDX"),
                         (b"\0\0\x08\x02" + struct.pack(">II", 2, 0), "dimension 1"),
                         (b"\0\0\x0e\x04" + b"\xff" * 16, "more elements"),
                         (b"\0\0\x08\x02" + struct.pack(">II", 2, 2**31), "needs 4294967296")):
        (folder / "a.npy").write_bytes(text)
        refused(folder, "a.npy", *words)


@case("npz: archives that mean harm")
def _(folder):
    data = npy(np.arange(300, dtype="<i4"))

    def archive(name="x.npy", text=data, method=zipfile.ZIP_DEFLATED, more=()):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as z:
            for entry, inside in ((name, text), *more):
                z.writestr(entry, inside)
        return bytearray(out.getvalue())

    def changed(*changes, **how):
        """(offset in the central entry or the end, format, value)"""
        zip_ = archive(**how)
        for where, offset, form, value in changes:
            struct.pack_into(form, zip_, zip_.rfind(b"PK\1\2" if where == "entry" else b"PK\5\6") + offset, value)
        return zip_

    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    rows = [
        (changed(("entry", 42, "<I", 2**31)), "not where"), (changed(("entry", 42, "<I", 5)), "not where"),
        (changed(("entry", 20, "<I", 2**31)), "not where"), (changed(("entry", 24, "<I", 2**31)), "damaged"),
        (changed(("entry", 24, "<I", 1000)), "damaged"), (changed(("entry", 24, "<I", 2000)), "damaged"),
        (changed(("entry", 16, "<I", 7)), "CRC"), (changed(("entry", 16, "<I", 7), method=zipfile.ZIP_STORED), "CRC"),
        (changed(("entry", 24, "<I", 7), method=zipfile.ZIP_STORED), "size"), (changed(("entry", 8, "<H", 1)), "encrypted"),
        (changed(("entry", 10, "<H", 12)), "another method"), (changed(("entry", 28, "<H", 60000)), "longer than"),
        (changed(("entry", 30, "<H", 60000)), "longer than"), (changed(("end", 16, "<I", 2**31)), "not within"),
        (changed(("end", 12, "<I", 2**31)), "not within"), (changed(("end", 10, "<H", 9), ("end", 8, "<H", 9)), "fewer entries"),
        (changed(("end", 10, "<H", 0)), "no arrays"), (changed(("end", 4, "<H", 3)), "several parts"),
        (changed(("entry", 24, "<I", 2**32 - 1)), "more than the limit"), (archive(name="x.txt"), "no name of an array"),
        (archive(name=".npy"), "no name of an array"), (archive(name="y" * 300 + ".npy"), "no name of an array"),
        (archive(name="a\nb.npy"), "control characters"), (archive(text=b"no array"), "no .npy file"),
        (archive(more=[("x.npy", data)]), "another array is named 'x'"), (archive()[:-1], "cut off"),
    ]
    for text, *words in rows:
        (folder / "a.npz").write_bytes(text)
        refused(folder, "a.npz", *words, name="-", before=["most=4000000000"])
    (folder / "a.npz").write_bytes(archive(name="../../etc/x.npy"))
    expect(list(read(folder, ("-", "a.npz"))) == ["../../etc/x"], "a path is a name like any other")
    head = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % 2**30
    bomb = raw_npy(head) + bytes(2**22)
    (folder / "bomb.gz").write_bytes(gzip.compress(bomb))
    refused(folder, "bomb.gz", "cannot hold")
    (folder / "bomb.npz").write_bytes(archive(text=bomb))
    refused(folder, "bomb.npz", "limit", before=["most=1000000"])
    refused(folder, "bomb.npz", "follow its header")


@case("files of 4 TB without bytes, and what is no file")
def _(folder):
    huge = 1 << 42
    head = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }" % (1 << 21, 1 << 21)
    starts = {"a.npy": (raw_npy(head), None), "idx": (b"\0\0\x08\x02" + struct.pack(">II", 1 << 21, 1 << 21), None),
              "b.npy": (raw_npy(head.replace("|u1", ">u2").replace(f"{1 << 21})", f"{1 << 20})")), "limit"),
              "c.gz": (gzip.compress(npy(np.arange(9))), "damaged"), "d.npz": (b"PK\3\4", "cut off"), "e": (b"", "IDX")}
    with open(folder / "t.npz", "wb") as f:
        np.savez(f, x=np.arange(9))
    for name, (text, word) in starts.items():
        with open(folder / name, "wb") as f:
            f.write(text)
            try:
                f.truncate(huge + len(text))
            except OSError as error:
                raise Skip(f"no sparse files of 4 TB here: {error}")
        if word is None:
            out = drive(folder, "open", "x", name, "list")
            expect(out == f"x u8 {1 << 21},{1 << 21} {huge}\n", out)
        else:
            refused(folder, name, word)
    tail = (folder / "t.npz").read_bytes()
    entry = tail.rfind(b"PK\1\2")
    with open(folder / "t.npz", "wb") as f:     # an entry of 4 TB, stored
        end = tail[tail.rfind(b"PK\5\6"):]
        extra = struct.pack("<HHQQ", 1, 16, huge - 1000, huge - 1000)
        central = bytearray(tail[entry:entry + 46] + b"x.npy" + extra)
        struct.pack_into("<IIHHH", central, 20, 2**32 - 1, 2**32 - 1, 5, len(extra), 0)
        struct.pack_into("<I", central, 42, 0)
        f.write(tail[:entry])
        f.seek(huge)
        f.write(central)
        f.write(struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, 1, 1, len(central), huge))
        f.write(struct.pack("<IIQI", 0x07064b50, 0, huge + len(central), 1) + end)
    refused(folder, "t.npz", "limit", "save it as .npy", name="-")
    os.mkfifo(folder / "fifo")
    for path, word in (("fifo", "no regular file"), (".", "no regular file"), ("/dev/zero", "no regular file"), ("absent", "No such file")):
        refused(folder, path, word)


# ------------------------------------------------------------------------------------ sanitizers


@functools.cache
def make_sanitized():
    folder = SCRATCH / "sanitized"
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "loader.inc"
    T.must(T.run([BUILD / "runtime" / "embed", "--code", text, *[T.ROOT / "runtime" / "loader" / name for name in PIECES]]))
    words = ["gcc", *T.WARNINGS, "-Wno-unused-function", "-DPROGRAM_NO_MMAP", f'-DLOADER_TEXT="{text}"', HERE / "driver.c"]
    T.must(T.run([*words, *T.SANITIZE, "-pthread", "-o", folder / "driver"]))
    return folder / "driver"


def sanitized():
    """The driver with the text that programs carry."""
    with LOCK:
        return make_sanitized()


@case("the text that programs carry is C11 and C++17")
def _(folder):
    sanitized()
    text = SCRATCH / "sanitized" / "loader.inc"
    (folder / "a.cc").write_text(f'#define LOADER_API static\n#include "{text}"\n')
    T.must(T.run(["g++", "-std=c++17", *T.WARNINGS[1:], "-Wno-unused-function", "-fsyntax-only", "a.cc"], cwd=folder))


def small_files(folder):
    """(as, path): one of each kind."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 9, (4, 3), "u1"), rng.integers(0, 9, 4).astype(">i2")
    np.save(folder / "a.npy", y)
    (folder / "b").write_bytes(idx(x, 8))
    (folder / "c.gz").write_bytes(gzip.compress(idx(x, 8)))
    (folder / "d.gz").write_bytes(gzip.compress(npy(x)[:50]) + gzip.compress(npy(x)[50:]))
    np.savez(folder / "e.npz", x=x)
    np.savez_compressed(folder / "f.npz", x=x, y=y)
    return [("x", "a.npy"), ("x", "b"), ("x", "c.gz"), ("x", "d.gz"), ("-", "e.npz"), ("-", "f.npz")]


@case("cut off after every byte")
def _(folder):
    for name, path in small_files(folder):
        opened, longest, nbytes = map(int, drive(folder, "cut", name, path, "temporary", driver=sanitized()).split())
        expect((opened, longest) == (1, nbytes - 1), f"{path}: {opened} beginnings of {nbytes} bytes were opened, {longest} not")


@case("bytes changed")
def _(folder):
    for name, path in small_files(folder):
        seed = zlib.crc32(path.encode())
        drive(folder, "turn", name, path, "temporary", str(TURNS), str(seed), driver=sanitized())


@case("inflate: what is valid, as zlib says")
def _(folder):
    rng = random.Random(3)
    texts = [bytes(rng.choices(b"abcd", k=2000)), rng.randbytes(700), bytes(5000), b"", b"a" * 70000, bytes(range(256)) * 3]
    streams = []
    for text in texts:
        for level in (0, 1, 6, 9):
            for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED, zlib.Z_RLE):
                deflate = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
                streams.append(deflate.compress(text[:900]) + deflate.flush(rng.choice([zlib.Z_SYNC_FLUSH, zlib.Z_BLOCK])) +
                               deflate.compress(text[900:]) + deflate.flush())
    for i in range(TURNS * 10):         # damaged at the beginning, where codes are, and anywhere; cut off; of noise
        stream = bytearray(streams[i % 96])
        for _ in range(rng.randrange(3)):
            stream[rng.randrange(min(len(stream), rng.choice([8, 60, 5000])))] ^= 1 << rng.randrange(8)
        streams.append(bytes(stream[:rng.randrange(len(stream) + 1)] if i % 7 == 0 else stream) if i % 5 else rng.randbytes(60))
    for at in range(0, len(streams), 3000):
        part = [stream for stream in streams[at:at + 3000] if len(stream) < 3000 or at == 0]
        check_streams(folder, part)


def check_streams(folder, streams):
    lines = []
    for stream in streams:
        inflate = zlib.decompressobj(-15)
        try:
            text = inflate.decompress(stream)
        except zlib.error:
            text = None
        lines.append(f"0 {len(text)} {zlib.crc32(text)} {len(stream) - len(inflate.unused_data)}"
                     if text is not None and inflate.eof else "2")
    data = [struct.pack("<I", len(stream)) + stream for stream in streams]
    at = 0
    while at < len(data):           # what the driver reads at a time
        n, size = 0, 0
        while at + n < len(data) and size + len(data[at + n]) < 1 << 20:
            size += len(data[at + n])
            n += 1
        (folder / "streams").write_bytes(b"".join(data[at:at + n]))
        got = drive(folder, "inflate", "streams", driver=sanitized()).splitlines()
        for i, (line, wanted) in enumerate(zip(got, lines[at:at + n], strict=True)):
            expect(line == wanted or wanted == "2" and line.startswith("2 "), f"{streams[at + i].hex()[:400]}: {line}, zlib: {wanted}")
        at += n


suite.main()
