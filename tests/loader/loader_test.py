"""The data loader (runtime/loader/): what it reads against NumPy, gzip, zipfile and zlib, to the bit.

Damaged files run under sanitizers: cut off after every byte, and with bytes changed. The driver that does it is made of
the text that programs carry (runtime/embed.c), with files read instead of mapped, so that sanitizers see where they end.
"""

import csv
import functools
import gzip
import io
import os
import random
import shutil
import struct
import sys
import threading
import warnings
import zipfile
import zlib
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np

import tgc as T
from pictures import bmp, png
from suite import Skip, Suite, expect
from threefry import halves, threefry

suite = Suite("loader")
OPTIONS = suite.parse()
BUILD = Path(OPTIONS.build).resolve()
DRIVER = BUILD / "tests" / "loader" / "loader_driver"
SCRATCH = BUILD / "test-scratch" / "loader"
case = suite.folder_case(SCRATCH)
TURNS = 4000 if OPTIONS.all else 400
TYPES = {"bool": "?", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8", "i64": "i8",
         "f16": "f2", "f32": "f4", "f64": "f8"}
IDX = {0x08: ">u1", 0x09: ">i1", 0x0b: ">i2", 0x0c: ">i4", 0x0d: ">f4", 0x0e: ">f8"}
LOCK = threading.Lock()
RANDOM = np.random.default_rng(5)


def drive(folder, *words, status=0, driver=DRIVER):
    done = T.run([driver, *words], cwd=folder, env={"ASAN_OPTIONS": "allocator_may_return_null=1"})
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
    prefix = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=data[:500])      # matches reach back before the member
    back = prefix.compress(data[:500]) + prefix.flush()
    (folder / "back.gz").write_bytes(gzip.compress(data[:500]) + gzip.compress(b"")[:10] + back +
                                     struct.pack("<II", zlib.crc32(data[:500]), 500))
    refused(folder, "back.gz", "damaged")
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


def table(folder, rows, name="a.csv", **how):
    with open(folder / name, "w", newline="") as f:
        csv.writer(f, **how).writerows(rows)


@case("csv: as Python's csv reads it")
def _(folder):
    rng = random.Random(8)
    number = ["0", "-0.0", "+1.5", "1e10", "1E-3", ".5", "7.", "  3\t", "16777217", "0.1", "123456789.123456789", "1e-46", "3.4028235e38",
              "1.00000017881393432617187500", "1.00000017881393432617187499", "0" * 100 + "7", "9" * 30 + "e-25"]
    words = ["cat", "Dog", "a,b", 'say "no"', "two\nlines", " blanks ", "é", "12x", '"', "\r\n"]
    for i, how in enumerate(({}, {"lineterminator": "\n"}, {"quoting": csv.QUOTE_ALL}, {"lineterminator": "\r"}, {"quoting": csv.QUOTE_ALL})):
        targets = (words, ["3", "-7", "+12", "9223372036854775807"], ["1.5", "2"], ["cat", "1"], words)[i]
        rows = [[rng.choice(number) for _ in range(3)] + [rng.choice(targets)] + [str(rng.uniform(-1e6, 1e6))] for _ in range(60)]
        rows += [[*number[k:k + 3], targets[k % len(targets)], "1"] for k in range(len(number) - 2)]
        table(folder, [["one", 'tw"o', "a,b", "the kind", ""], *rows], **how)
        words_ = ["target=the kind", "open", "x", "a.csv", "list", "classes", "save", "x", "x", "save", "target", "target"]
        out = drive(folder, *words_)
        with open(folder / "a.csv", newline="") as f:
            back = list(csv.reader(f))[1:]
        expect(back == rows, "the test's own table")
        wanted = np.array([[nearest(row[k]) for k in (0, 1, 2, 4)] for row in rows], "f4")
        same(np.fromfile(folder / "x", "f4").reshape(len(rows), 4), wanted, f"{how}")
        last = [row[3] for row in rows]
        if i in (1, 2):
            wanted = np.array([int(v) for v in last]) if i == 1 else np.array([float(v) for v in last], "f4")
            expect(out.count("\n") == 2, out)
        else:
            names = sorted(set(last), key=lambda v: v.encode())
            wanted = np.array([names.index(v) for v in last])
            expect(out.split("\n", 2)[2] == "".join(name + "\n" for name in names), out)
        same(np.fromfile(folder / "target", wanted.dtype), wanted, f"targets of {how}")


def nearest(text):
    """The f32 that a decimal is nearest to, ties to even: NumPy rounds twice."""
    exact = Fraction(text.strip())
    guess = np.float32(float(text))
    with np.errstate(over="ignore"):
        around = [guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, np.float32(-np.inf))]
    return min((v for v in around if np.isfinite(v)), key=lambda v: (abs(Fraction(float(v)) - exact), v.view("u4") & 1)) if exact else guess


@case("csv: headers, line ends, marks, gzip")
def _(folder):
    for text, wanted in ((b"1,2\n3,4\n", [[1, 2], [3, 4]]), (b"\n\n1,2\r\n\r\n3,4", [[1, 2], [3, 4]]), (b"a,2\n3,4\n\n", [[3, 4]]),
                         (b"\xef\xbb\xbf1,2", [[1, 2]]), (b',1\n3,"4"', [[3, 4]]), (b"1\r2\r3", [[1], [2], [3]]), (b'"1"\n"2"', [[1], [2]])):
        (folder / "a.CSV").write_bytes(text)
        (folder / "b.csv.gz").write_bytes(gzip.compress(text))
        for path in ("a.CSV", "b.csv.gz"):
            same(read(folder, ("-", path))["input"], np.array(wanted, "f4"), f"{path}: {text}")
    large = "".join(f"{i},{i * i}\n" for i in range(30000)).encode()
    (folder / "b.csv.gz").write_bytes(gzip.compress(large[:70000]) + gzip.compress(large[70000:]))
    same(read(folder, ("x", "b.csv.gz"))["x"], np.array([[i, i * i] for i in range(30000)], "f4"), "a large one")
    refused(folder, "b.csv.gz", "limit", before=["most=100000"])
    (folder / "b.csv.gz").write_bytes(gzip.compress(b""))
    refused(folder, "b.csv.gz", "holds nothing")


@case("csv: mistakes, by file, line and column")
def _(folder):
    rows = [
        (b"a,b\n1,2\n3\n", ":3", "1 fields", "has 2"), (b"a,b\n1,2\n3,4,5\n", ":3", "3 fields"), (b"a,b\n1,2\n3,\n", ":3", "column 2 ('b')", "''"),
        (b"a,b\n1,2\n\n3,x y\x01\xff\n", ":4", "column 2 ('b')", "'x y??' is no number"), (b"1,2\n1,x", ":2", "column 2: 'x'"),
        (b"a,b\n1,0x10\n", "0x10"), (b"a,b\n1,nan\n", "'nan' is no number"), (b"a,b\n1,inf\n", "'inf'"), (b"a,b\n1,1e39\n", "beyond f32"),
        (b"a,b\n1,1.5.2\n", "1.5.2"), (b"a,b\n1,1e\n", "1e"), (b"a,b\n1,.\n", "'.'"), (b"a,b\n1,-\n", "'-'"), (b"a,b\n1,1 2\n", "1 2"),
        (b"a,b\n1," + b"7" * 200, "7" * 40 + "..."), (b"a,b\n1,\"2\n3,4", ":2", "not closed"), (b'a,b\n"1\n\n",2\n3,"4"5', ":5", "follows a quoted"),
        (b'a,b\n1,2"\n', ":2", "a quote is within"), (b"a,b\n1,\0\n", ":2", "a byte is 0"), (b'a,b\n1,"\0"', ":2", "a byte is 0"),
        (b"a,b\n", "no samples", "after its header"), (b"\n\n\n", "no samples"), (b"a;b\n1;2\n", "column 1 ('a;b'): '1;2'"),
        (b'a,"b\nc"\n1,x', ":3", "column 2 ('b?c')"),
    ]
    for text, *words in rows:
        (folder / "a.csv").write_bytes(text)
        refused(folder, "a.csv", *words)
    rows = [
        (b"a,t\n1,cat\n2,\n", ":3", "column 2 ('t')", "fill it in"), (b"a,b\n1,2", "no column is named 't'"), (b"t,a,t\n1,2,3", "names two columns"),
        (b"t\n1\n", "no column beside"), (b"1,2\n", "no column is named 't'"), (b"a,t\nx,cat\n", "column 1 ('a')"), (b"a,t\n1,2\n3,1e39\n", ":3: column 2 ('t'): '1e39'", "beyond f32"),
        (b"a,t\n1,99999999999999999999999999999999999999999\n", "beyond f32"), (b"a,t\n", "no samples"), (b"\n", "no samples"),
    ]
    for text, *words in rows:
        (folder / "a.csv").write_bytes(text)
        refused(folder, "a.csv", *words, before=["target=t"])
    (folder / "a.csv").write_bytes(b"a,t\n1,2\n")
    refused(folder, "a.csv", "named 'target'", name="target", before=["target=t"])


@case("csv: data to validate with has the training data's classes")
def _(folder):
    table(folder, [["t", "a"], ["cat", 1], ["1", 1], ["ant", 1]], "train.csv")
    table(folder, [["a", "t"], [1, "cat"], [5, "cat"], [5, "1"]], "valid.csv")
    table(folder, [["a", "t"], [1, "2"], [5, "1"]], "numbers.csv")
    base = ["target=t", "open", "-", "train.csv", "train"]
    expect(drive(folder, *base, "open", "-", "valid.csv", "classes", "save", "target", "out") == "1\nant\ncat\n", "classes")
    expect(np.fromfile(folder / "out", "i8").tolist() == [2, 2, 0], "numbers")
    text = drive(folder, *base, "open", "-", "numbers.csv", status=1)
    expect("numbers.csv" in text and "sample 0 is of class '2'" in text and "train.csv does not have" in text, text)
    text = drive(folder, "target=t", "open", "-", "numbers.csv", "train", "open", "-", "valid.csv", status=1)
    expect("valid.csv:2: column 2 ('t'): 'cat'" in text and "training data" in text, text)


def pictures(folder, sizes=((5, 6),), **how):
    """cat/0.png, ... with random pixels, and these."""
    pixels = []
    for i, (kind, name) in enumerate((("dog", "b.png"), ("cat", "0.png"), ("cat", "10.png"), ("cat", "9.png"), ("Bird", "x.bmp"), ("dog", "a.ppm"))):
        path = folder / "set" / kind / name
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = sizes[i % len(sizes)]
        x = RANDOM.integers(0, 256, (height, width, 3), "u1")
        pixels.append((f"{kind}/{name}".encode(), x))
        if name.endswith("png"):
            path.write_bytes(png(x, 8, 2, **how))
        elif name.endswith("bmp"):
            path.write_bytes(bmp([row[:, ::-1].tobytes() for row in x], 24, -height, width))
        else:
            path.write_bytes(f"P6 {width} {height} 255\n".encode() + x.tobytes())
    return [x for _, x in sorted(pixels, key=lambda pair: pair[0])]


@case("folders: pictures by class, in the order of bytes")
def _(folder):
    wanted = np.array(pictures(folder))
    (folder / "set" / "readme.txt").write_text("beside the classes")
    (folder / "set" / ".hidden").mkdir()
    (folder / "set" / "cat" / ".DS_Store").write_text("hidden")
    out = drive(folder, "open", "-", "set", "list", "classes", "save", "target", "t", "gather", "input", "u8", "x", "0,1,2,3,4,5",
                "gather", "input", "f32", "y", "5,0")
    expect(out == f"input u8 6,5,6,3 {wanted.size}\ntarget i64 6 48\nBird\ncat\ndog\n", out)
    expect(np.fromfile(folder / "t", "i8").tolist() == [0, 1, 1, 1, 2, 2], "targets")
    same(np.fromfile(folder / "x", "u1").reshape(wanted.shape), wanted, "pixels")
    same(np.fromfile(folder / "y", "f4").reshape(2, 5, 6, 3), wanted[[5, 0]].astype("f4"), "as floats")
    drive(folder, "channels=1", "open", "p", "set", "gather", "p", "u8", "x", "0,1,2,3,4,5")
    gray = (wanted.astype(int) @ [19595, 38470, 7471] + 0x8000) >> 16
    same(np.fromfile(folder / "x", "u1").reshape(gray.shape), gray.astype("u1"), "gray")
    base = ["open", "-", "set", "field", "input", "u8", "field", "target", "i64", "batch=4", "seed=9"]
    whole = streamed(folder, *base, "epochs=2")
    index = np.concatenate([shuffled(9, epoch, 6) for epoch in range(2)])
    expect(whole[2][0] == wanted[index].tobytes() and whole == streamed(folder, *base, "epochs=2", "no_thread"), "a stream")
    streamed(folder, *base, count=2, driver=sanitized())


@case("folders: mistakes, by the file")
def _(folder):
    pictures(folder)
    bad = folder / "set" / "cat" / "5.png"
    whole = (folder / "set" / "cat" / "0.png").read_bytes()
    gather = ["open", "-", "set", "gather", "input", "u8", "x", "0,1,2,3,4,5,6"]
    for text, *words in ((b"text", "no picture"), (b"", "is empty"), (png(RANDOM.integers(0, 256, (5, 7, 3), "u1"), 8, 2), "7 x 5 pixels", "all have 6 x 5"),
                         (png(RANDOM.integers(0, 256, (4, 6, 3), "u1"), 8, 2), "6 x 4 pixels"), (whole[:60], "damaged"),
                         (struct.pack(">8sIIIIBBBBB", whole[:8], 13, 0x49484452, 2**31, 2**31, 8, 2, 0, 0, 0) + bytes(30), "2147483648 x"),
                         (b"\xff\xd8\xff\xe0" + bytes(20), "set/cat/5.png")):
        bad.write_bytes(text)
        for driver in (DRIVER, sanitized()):
            said = drive(folder, *gather, status=1, driver=driver)
            for word in ("set/cat/5.png", *words):
                expect(word in said, f"'{word}' is not in: {said}")
    said = drive(folder, *gather, status=1, driver=sanitized())
    expect("built without" in said and "convert it to PNG" in said, said)
    streams = drive(folder, "open", "-", "set", "field", "input", "u8", "batch=2", "in_order", "stream", "out", "9", status=1).splitlines()
    expect(len(streams) == 2 and "set/cat/5.png" in streams[1], f"{streams}")
    first = folder / "set" / "Bird" / "x.bmp"
    first.write_bytes(struct.pack(">8sIIIIBBBBB", whole[:8], 13, 0x49484452, 2**31, 2**31, 8, 2, 0, 0, 0) + bytes(30))
    refused(folder, "set", "set/Bird/x.bmp", "limit", name="-")
    bad.unlink()
    first.unlink()
    refused(folder, "set", "set/Bird: has no pictures", name="-")
    bad.mkdir()
    refused(folder, "set", "no pictures", name="-")
    first.write_bytes(whole)
    refused(folder, "set", "set/cat/5.png", "no regular file", name="-")
    bad.rmdir()
    os.symlink("absent", bad)
    refused(folder, "set", "set/cat/5.png", "No such file", name="-")
    bad.unlink()
    refused(folder, "set", "2 channels", name="-", before=["channels=2"])
    (folder / "empty").mkdir()
    refused(folder, "empty", "one for each class", name="-")
    (folder / "more" / "zebra").mkdir(parents=True)
    (folder / "more" / "zebra" / "1.png").write_bytes(whole)
    said = drive(folder, "open", "-", "set", "train", "open", "-", "more", status=1)
    expect("class 'zebra'" in said and "set does not have" in said, said)
    (folder / "more" / "zebra").rename(folder / "more" / "dog")
    expect(drive(folder, "open", "-", "set", "train", "open", "-", "more", "save", "target", "t", "classes") == "Bird\ncat\ndog\n", "classes")
    expect(np.fromfile(folder / "t", "i8").tolist() == [2], "the training data's number")


@case("folders: JPEG by the library")
def _(folder):
    python = Path("/usr/bin/python3")
    if not python.exists() or T.run([python, "-c", "import PIL, numpy"]).status:
        raise Skip("no Pillow for /usr/bin/python3")
    (folder / "set" / "a").mkdir(parents=True)
    T.must(T.run([python, "-c", "import numpy\nfrom PIL import Image\nx = numpy.random.default_rng(1).integers(0, 256, (16, 24, 3), numpy.uint8)\n"
                  "Image.fromarray(x).save('set/a/1.jpg')\nnumpy.asarray(Image.open('set/a/1.jpg').convert('RGB')).tofile('wanted')"], cwd=folder))
    done = T.run([DRIVER, "open", "x", "set", "gather", "x", "u8", "got", "0"], cwd=folder)
    if b"built without" in done.out:
        raise Skip("built without libjpeg")
    T.must(done)
    expect((folder / "got").read_bytes() == (folder / "wanted").read_bytes(), "other pixels than Pillow's")


# ------------------------------------------------------------------------------- rows and batches


def converted(array, dtype):
    """As the loader converts, by NumPy; None for a value that it refuses."""
    if dtype == array.dtype:
        return array
    with np.errstate(all="ignore"):
        wanted = array.astype(dtype)
    if array.dtype == bool or np.issubdtype(dtype, np.floating):
        fits = np.isfinite(wanted) | ~np.isfinite(array)
    elif dtype == bool:
        fits = (array == 0) | (array == 1)
    elif np.issubdtype(array.dtype, np.floating):
        fits = np.isfinite(array) & (np.trunc(array) == array)
        fits &= np.array([np.iinfo(dtype).min <= int(v) <= min(np.iinfo(dtype).max, 2**63 - 1) if ok else False
                          for v, ok in zip(array.tolist(), fits)], bool)
    else:
        fits = np.array([np.iinfo(dtype).min <= v <= np.iinfo(dtype).max for v in array.tolist()], bool)
    if array.dtype == np.uint64:
        fits = np.asarray(fits) & (array < 2**63)
    return np.where(fits, wanted.astype(object), None)


VALUES = {
    "i": [0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 32767, 32768, -32769, 65504, 65519, 65520, 65535, 65536, 2**24 + 1, 2**31 - 1,
          -2**31, 2**31, 2**32 - 1, 2**32, 2**53 + 1, -2**53 - 1, 2**55 + 2**31 + 1, 2**63 - 1, -2**63, 2**64 - 1],
    "f": [0., 1., -1., .5, 1.5, 255., 255.5, 256., 65519.9, 65520., -65519., 65504., 2.**24 + 1, 1e10, 1e38, 3.5e38, 1e300, 6e-8, 2.9e-8, 2.98e-8,
          6.1e-5, 6.103515625e-5, 6.09e-5, 8.94e-8, 1e-45, 1e-320, 2.**63, -2.**63, 2.**64, np.inf, -np.inf, np.nan, -0., 1 / 3, 2049., 2051.],
}


@case("gather: every type to every type")
def _(folder):
    words, checks = [], []
    for kind, dtype in TYPES.items():
        dtype = np.dtype(dtype)
        if dtype.kind == "f":
            with np.errstate(all="ignore"):
                array = np.concatenate([np.array(VALUES["f"]), RANDOM.standard_normal(400) * 10.**RANDOM.integers(-8, 8, 400)]).astype(dtype)
        else:
            low, high = (0, 1) if kind == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            array = np.array([v for v in VALUES["i"] if low <= v <= high], dtype)
        np.save(folder / f"{kind}.npy", array)
        words += ["open", kind, f"{kind}.npy"]
        for to in TYPES:
            wanted = converted(array, np.dtype(TYPES[to]))
            fits = [i for i, v in enumerate(wanted) if v is not None]
            misfits = [i for i in range(len(wanted)) if i not in fits]
            words += ["gather", kind, to, f"{kind}.{to}", ",".join(map(str, fits))]
            checks.append((kind, to, wanted[fits].astype(TYPES[to])))
            if misfits:
                bad = misfits[len(checks) % len(misfits)]
                text = drive(folder, "open", "x", f"{kind}.npy", "gather", "x", to, "out", f"0,{bad}", status=1)
                expect(f"sample {bad} of 'x'" in text and f"no {to} is" in text and f"{kind}.npy" in text, f"{kind} to {to}: {text}")
        words.append("close")
    drive(folder, *words)
    for kind, to, wanted in checks:
        got = np.fromfile(folder / f"{kind}.{to}", TYPES[to])
        expect(len(got) == len(wanted), f"{kind} to {to}: {len(got)} elements")
        nan = np.isnan(got.astype("f8")) & np.isnan(wanted.astype("f8"))
        same(np.where(nan, 0, got).astype(TYPES[to]), np.where(nan, 0, wanted).astype(TYPES[to]), f"{kind} to {to}")


@case("gather: numbers to bf16, which no file holds")
def _(folder):
    """By the spacing of its numbers: 2^(e - 7) from 2^e on, and 2^-133 below 2^-126."""
    floats = np.concatenate([np.array([v for v in VALUES["f"] if np.isfinite(v)]), [3.3961e38, 3.3963e38, 1.18e-38, 9.3e-41, 4.6e-41, 4.5e-41, 1.00390625, 1.01171875],
                             RANDOM.standard_normal(400) * 10.**RANDOM.integers(-40, 37, 400)])
    whole = np.array([v for v in VALUES["i"] if abs(v) < 2**63], "i8")
    for name, array in ("floats", floats), ("whole", whole):
        np.save(folder / f"{name}.npy", array)
        with np.errstate(all="ignore"):
            unit = 2.**(np.maximum(np.floor(np.log2(abs(array.astype(float)))), -126) - 7)
            wanted = np.rint(array / unit) * unit
        fits = np.flatnonzero(abs(wanted) < 2.**128)
        drive(folder, "open", "x", f"{name}.npy", "gather", "x", "bf16", "out", ",".join(map(str, fits)))
        got = (np.fromfile(folder / "out", "u2").astype("u4") << 16).view("f4")
        same(got, wanted[fits].astype("f4"), name)
        for k in np.flatnonzero(abs(wanted) >= 2.**128):
            text = drive(folder, "open", "x", f"{name}.npy", "gather", "x", "bf16", "out", f"0,{k}", status=1)
            expect(f"sample {k} of 'x'" in text and "no bf16 is" in text, text)


@case("gather: rows, long ones, and numbers out of range")
def _(folder):
    x = RANDOM.integers(-100, 100, (9, 7, 111), "i2")
    np.save(folder / "x.npy", x)
    drive(folder, "open", "x", "x.npy", "gather", "x", "f32", "out", "8,0,3,3")
    same(np.fromfile(folder / "out", "f4").reshape(4, 7, 111), x[[8, 0, 3, 3]].astype("f4"), "rows")
    np.save(folder / "bool.npy", np.zeros(4, bool))
    with open(folder / "bool.npy", "r+b") as f:
        f.seek(-4, 2)
        f.write(b"\2\0\xff\1")
    drive(folder, "open", "b", "bool.npy", "gather", "b", "bool", "out", "0,1,2,3")
    same(np.fromfile(folder / "out", "u1"), np.array([1, 0, 1, 1], "u1"), "bool")
    for bad in (9, -1, 2**62):
        text = drive(folder, "open", "x", "x.npy", "gather", "x", "f32", "out", f"0,{bad}", status=1)
        expect(f"no sample {bad}" in text and "it has 9" in text, text)


def shuffled(seed, epoch, n):
    key = threefry(halves(seed), [epoch, 0])
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        low, high = threefry(key, halves(i))
        j = (high << 32 | low) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


@case("order: as an independent Threefry has it")
def _(folder):
    known = [((0, 0), (0, 0), (0x6b200159, 0x99ba4efe)), ((0xffffffff,) * 2, (0xffffffff,) * 2, (0x1cb996fc, 0xbb002be7)),
             ((0x13198a2e, 0x03707344), (0x243f6a88, 0x85a308d3), (0xc4923a9c, 0x483df7a0))]     # Random123's kat_vectors
    for key, counter, wanted in known:
        expect(tuple(threefry(key, counter)) == wanted, "the test's own Threefry is wrong")
    rows = [(0, 0, 1), (0, 0, 2), (1, 0, 1000), (1, 1, 1000), (2**64 - 1, 2**32 - 1, 500), (2**40, 7, 3000)]
    drive(folder, *[word for i, row in enumerate(rows) for word in ("order", *map(str, row), f"{i}")])
    for i, row in enumerate(rows):
        expect(np.fromfile(folder / f"{i}", "i8").tolist() == shuffled(*row), f"seed, epoch, n: {row}")
    drive(folder, *[word for epoch in range(200) for word in ("order", "3", str(epoch), "20", f"e{epoch}")])
    first = np.bincount([np.fromfile(folder / f"e{epoch}", "i8")[5] for epoch in range(200)], minlength=20)
    expect(first.max() <= 24 and first.min() >= 1, f"one sample comes there too often: {first}")


def streamed(folder, *words, count=1000, driver=DRIVER, status=0):
    """[(epoch, step, is_last, indices)], whether the stream ended, and the bytes of field 0, 1, ..."""
    for old in folder.glob("out.*"):
        old.unlink()
    lines = drive(folder, *words, "stream", "out", str(count), driver=driver, status=status).splitlines()
    batches = [list(map(int, line.split())) for line in lines if line[:1].isdigit()]
    for batch in batches:
        expect(batch[2] == len(batch) - 4, f"{batch}")
    return ([(b[0], b[1], b[3], b[4:]) for b in batches], lines[-1:] == ["end"],
            [(folder / f"out.{k}").read_bytes() for k in range(len(list(folder.glob("out.*"))))])


@case("stream: batches, epochs, going on at any step")
def _(folder):
    n, batch, seed = 23, 5, 77
    x, y = RANDOM.integers(0, 256, (n, 3), "u1"), np.arange(n)
    np.savez(folder / "a.npz", x=x, y=y)
    base = ["open", "-", "a.npz", "field", "x", "f32", "field", "y", "i32", f"batch={batch}", f"seed={seed}"]
    orders = [shuffled(seed, epoch, n) for epoch in range(4)]
    wanted = [(epoch, step, step == 4, orders[epoch][5 * step:5 * step + 5]) for epoch in range(3) for step in range(5)]
    whole = streamed(folder, *base, "epochs=3")
    expect(whole[0] == wanted and whole[1], f"{whole[0]}")
    index = np.concatenate(orders[:3])
    expect(whole[2] == [x[index].astype("f4").tobytes(), y[index].astype("i4").tobytes()], "other rows")
    for words in (["no_thread"], ["slow"]):
        expect(streamed(folder, *base, "epochs=3", *words) == whole, f"{words}: other batches")
    for epoch in range(3):
        for step in range(6):
            got = streamed(folder, *base, "epochs=3", f"epoch={epoch}", f"step={step}", "no_thread")
            rest = wanted[5 * epoch + step:]
            expect(got[0] == rest and (not rest or whole[2][0].endswith(got[2][0])), f"from {epoch}, {step}: {got[0]}")
    got = streamed(folder, *base, "in_order", "epoch=7", count=7)
    expect(got[0] == [(7 + k // 5, k % 5, k % 5 == 4, list(range(n))[k % 5 * 5:][:5]) for k in range(7)] and not got[1], "in order, without end")
    got = streamed(folder, "open", "-", "a.npz", "field", "y", "i64", "batch=100", "epochs=1")
    expect(sorted(got[0][0][3]) == list(range(n)) and len(got[0]) == 1, "a batch of more samples than there are")
    expect(streamed(folder, *base, f"epoch={2**32 - 1}", "step=4", count=1)[0][0][0] == 2**32 - 1, "the last epoch")


def augmented(x, ops, seed, epoch, sample, evaluates):
    """x: [height, width, channels]"""
    own = threefry(threefry(halves(seed), [epoch, 1]), halves(sample))
    for place, (kind, *size) in enumerate(ops):
        a, b = threefry(own, [place, 0])
        height, width = x.shape[:2]
        if kind == "shift" and not evaluates:
            n = size[0]
            dy, dx = (a * (2 * n + 1) >> 32) - n, (b * (2 * n + 1) >> 32) - n
            x = np.pad(x, ((n, n), (n, n), (0, 0)))[n - dy:n - dy + height, n - dx:n - dx + width]
        elif kind == "flip" and not evaluates and a >= 2**31:
            x = x[:, ::-1]
        elif kind == "crop":
            rows, columns = height - size[0], width - size[1]
            top, left = (rows // 2, columns // 2) if evaluates else (a * (rows + 1) >> 32, b * (columns + 1) >> 32)
            x = x[top:top + size[0], left:left + size[1]]
    return x


@case("stream: augmentation, by an independent one")
def _(folder):
    n, seed, epochs = 11, 2**40 + 3, 2
    axes = {"NHWC": (0, 1, 2), "NCHW": (2, 0, 1), "NHW": (0, 1)}
    lists = [[], [("flip",)], [("shift", 3)], [("crop", 4, 6)], [("shift", 2), ("flip",), ("crop", 5, 5), ("shift", 9), ("crop", 5, 1)], [("crop", 7, 8)],
             [("flip",)] * 8, [("shift", 20)]]
    seen = set()
    for i in range(48):
        ops = lists[i % len(lists)]
        channels = (1, 3, 4)[i % 3]
        layout = ("NHWC", "NCHW")[i // 2 % 2] if i % 6 or channels > 1 else "NHW"
        to = ("NHWC", "NCHW")[i // 4 % 2] if i % 5 or channels > 1 else "NHW"
        dtype, out = (("u1", "f4"), ("f4", "f2"), ("i2", "i8"), ("f8", "f8"))[i % 4]
        x = RANDOM.integers(0, 200, (n, 7, 8, channels)).astype(dtype)
        np.save(folder / "x.npy", x[..., 0] if layout == "NHW" else x.transpose(0, *[k + 1 for k in axes[layout]]))
        words = [",".join(op[0] + ("" if len(op) == 1 else f":{'x'.join(map(str, op[1:]))}") for op in ops)]
        mean, std = [0.] * channels, [1.] * channels
        if i % 4 != 2 and i % 7:
            mean = [round(float(v), 3) for v in RANDOM.uniform(-9, 200, channels)] if i % 2 else [127.5] * channels
            std = [round(float(v), 4) for v in RANDOM.uniform(.1, 90, channels)] if i % 5 else [.5] * channels
            words.append("normalize:" + ("/".join(map(str, mean)) if i % 2 else "127.5") + ":" + ("/".join(map(str, std)) if i % 5 else ".5"))
        evaluates = i % 9 == 8
        batches, _, data = streamed(folder, "open", "x", "x.npy", "field", "x", {"f4": "f32", "f2": "f16", "i8": "i64", "f8": "f64"}[out],
                                    "augment=" + ",".join(filter(None, words)), f"layout={layout}", f"to={to}", "batch=4", f"seed={seed}",
                                    f"epochs={epochs}", *["evaluates"] * evaluates)
        wanted = []
        for epoch, _, _, index in batches:
            for sample in index:
                y = augmented(x[sample], ops, seed, epoch, sample, evaluates).astype("f8")
                y = (y - mean) / std
                wanted.append(y[..., 0] if to == "NHW" else y.transpose(axes[to]))
                seen.add((bool(ops) and ops[0][0], y.tobytes() == x[sample].astype("f8").tobytes()))
        with np.errstate(over="ignore"):
            wanted = np.array(wanted).astype(out)
        same(np.frombuffer(data[0], out).reshape(wanted.shape), wanted, f"{words} of {layout} to {to}, {dtype} to {out}")
    expect({("flip", True), ("flip", False), ("shift", False), ("crop", False)} <= seen, f"what was drawn: {seen}")


@case("stream: shapes, masks, mistakes of augmentation")
def _(folder):
    pixels = np.array(pictures(folder))
    np.savez(folder / "a.npz", x=RANDOM.integers(0, 256, (6, 9, 8), "u1"), y=RANDOM.integers(0, 2, (6, 2, 9, 8)).astype(bool), z=np.arange(6),
             u=np.full((6, 2, 2), 2**64 - 1, "u8"))
    drawn = ["augment=shift:2,flip,crop:7x5"]
    out = drive(folder, "open", "-", "a.npz", "open", "p", "set", "field", "x", "f32", *drawn, "to=NCHW", "field", "y", "u8", *drawn, "layout=NCHW",
                "field", "p", "u8", "to=NCHW", "field", "z", "f32", "shape", "batch=4", "in_order", "epochs=1", "stream", "out", "9").splitlines()
    expect(out[:4] == ["shape 4 1 7 5", "shape 4 2 7 5", "shape 4 3 5 6", "shape 4"], f"{out}")
    same(np.fromfile(folder / "out.2", "u1").reshape(6, 3, 5, 6), pixels.transpose(0, 3, 1, 2), "a folder's pictures, channels first")
    np.savez(folder / "mask.npz", x=np.arange(720, dtype="i4").reshape(10, 9, 8), y=np.arange(720).reshape(10, 9, 8))
    data = streamed(folder, "open", "-", "mask.npz", "field", "x", "i64", *drawn, "field", "y", "i64", *drawn, "batch=3", "epochs=3")[2]
    expect(data[0] == data[1], "a picture and its mask are drawn differently")
    base = ["open", "-", "a.npz", "batch=2", "field"]
    for words, *wanted in ((["x", "f32", "augment=shfit:2"], "'shfit:2'", "shift:N"), (["x", "f32", "augment=shift:0"], "'shift:0'"),
                           (["x", "f32", "augment=shift:-1"], "'shift:-1'"), (["x", "f32", "augment=shift:9999999"], "'shift:9999999'"),
                           (["x", "f32", "augment=crop:3"], "'crop:3'"), (["x", "f32", "augment=crop:10x3"], "larger than pictures of 9x8"),
                           (["x", "f32", "augment=crop:4x4,crop:5x4"], "larger than pictures of 4x4"), (["x", "f32", "augment=crop:0x4"], "'crop:0x4'"),
                           (["x", "f32", "augment=normalize:1:2,flip"], "comes last"), (["x", "f32", "augment=normalize:1"], "normalize:MEAN:STD"),
                           (["x", "f32", "augment=normalize:1:0"], "STD above 0"), (["x", "f32", "augment=normalize:1/2:1"], "one number"),
                           (["y", "f32", "augment=normalize:1/2/3:1", "layout=NCHW"], "2 with /"), (["x", "f32", "augment=normalize:nan:1"], "nan"),
                           (["x", "i32", "augment=normalize:1:2"], "no integer"), (["y", "f32", "augment=flip"], "NHWC or NCHW"),
                           (["x", "f32", "layout=NHWC"], "NHW for rank 3"), (["y", "f32", "layout=NHW"], "NHW for rank 3"),
                           (["y", "f32", "layout=NCHW", "to=NHW"], "one channel"), (["y", "f32", "layout=NCHW", "to=CHW"], "a layout is"),
                           (["z", "f32", "augment=flip"], "rank 3 or 4"), (["x", "f32", "augment=" + ",".join(["flip"] * 9)], "at most 8"),
                           (["u", "f32", "augment=normalize:1:2"], "sample", "'u'")):
        said = drive(folder, *base, *words, "stream", "out", "9", status=1)
        for word in wanted:
            expect(word in said, f"{words}: '{word}' is not in: {said}")


@case("stream: what is refused, and errors in order")
def _(folder):
    x = np.arange(12.)
    x[7] = np.nan
    np.save(folder / "x.npy", x)
    base = ["open", "x", "x.npy"]
    for words, word in ((["field", "x", "f32"], "at least one sample"), (["batch=2"], "no array is asked for"),
                        (["batch=2", "field", "y", "f32"], "named 'y'"), (["batch=2", "field", "x", "f32", "step=7"], "6 steps"),
                        (["batch=2", "field", "x", "f32", "epoch=-1"], "epoch -1"), ([f"batch={2**62}", "field", "x", "f32"], "too large"),
                        ([f"batch={2**40}", "field", "x", "f32"], "limit"),
                        (["batch=2", "field", "x", "f32", f"epoch={2**32}"], "2^32")):
        text = drive(folder, *base, *words, "stream", "out", "9", status=1)
        expect(word in text, text)
    expect("open a file" in drive(folder, "batch=2", "field", "x", "f32", "stream", "out", "9", status=1), "an empty data set")
    for words in ([], ["no_thread"], ["slow"]):
        text = drive(folder, *base, "batch=2", "in_order", "field", "x", "i32", *words, "stream", "out", "9", status=1).splitlines()
        expect(len(text) == 4 and "sample 7 of 'x' has nan" in text[3], f"{text}")


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
        with zipfile.ZipFile(out, "w", method) as z, warnings.catch_warnings():
            warnings.simplefilter("ignore")         # of a name that is there twice
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
    for path, word in (("fifo", "no regular file"), (".", "one for each class"), ("/dev/zero", "no regular file"), ("absent", "No such file")):
        refused(folder, path, word)


# ------------------------------------------------------------------------------------ sanitizers


@functools.cache
def make_sanitized(kind="address,undefined"):
    folder = SCRATCH / "sanitized"
    folder.mkdir(parents=True, exist_ok=True)
    text = BUILD / "runtime" / "loader.inc"
    exe = folder / f"driver-{kind}"
    T.must(T.run(["gcc", *T.WARNINGS, "-DPROGRAM_NO_MMAP", f'-DLOADER_TEXT="{text}"', HERE / "driver.c", "-g1", "-O0",
                  f"-fsanitize={kind}", "-pthread", "-o", exe]))
    return exe


def sanitized(*kind):
    """The driver with the text that programs carry."""
    with LOCK:
        return make_sanitized(*kind)


def streams_under(folder, driver):
    np.savez(folder / "a.npz", x=np.arange(60, dtype="u1").reshape(20, 3), y=np.arange(20))
    base = ["open", "-", "a.npz", "field", "x", "f32", "field", "y", "f16", "batch=3"]
    wanted = streamed(folder, *base, "epochs=4")
    pixels = ["layout=NCHW", "to=NHWC", "augment=shift:9,crop:3x2,flip,shift:1,normalize:1/2:3"]
    np.save(folder / "p.npy", np.arange(20 * 2 * 4 * 3, dtype="i2").reshape(20, 2, 4, 3))
    expect(streamed(folder, "open", "p", "p.npy", "field", "p", "f32", *pixels, "batch=3", "epochs=4", driver=driver) ==
           streamed(folder, "open", "p", "p.npy", "field", "p", "f32", *pixels, "batch=3", "epochs=4", "no_thread"), "other pixels")
    for words in (["slow"], ["no_thread"], []):
        expect(streamed(folder, *base, "epochs=4", *words, driver=driver) == wanted, f"{words}: other batches")
        for count in (0, 1, 3):
            streamed(folder, *base, *words, count=count, driver=driver)


@case("streams under sanitizers of addresses")
def _(folder):
    streams_under(folder, sanitized())


@case("streams under a sanitizer of threads", slow=True)
def _(folder):
    streams_under(folder, sanitized("thread"))


@case("32 bits, and the most significant byte first", slow=True)
def _(folder):
    for machine, qemu, order in (("i686", "i386", "<"), ("s390x", "s390x", ">")):
        if not shutil.which(f"{machine}-linux-gnu-gcc") or not shutil.which(f"qemu-{qemu}"):
            raise Skip(f"no {machine}-linux-gnu-gcc, or no qemu-{qemu}")
        T.must(T.run([f"{machine}-linux-gnu-gcc", *T.WARNINGS, "-D_FILE_OFFSET_BITS=64", "-O1", "-static", "-pthread",
                      f'-DLOADER_TEXT="{BUILD}/runtime/loader.inc"', HERE / "driver.c", "-o", folder / machine]))
        (folder / f"{machine}.sh").write_text(f'#!/bin/sh\nexec qemu-{qemu} {folder / machine} "$@"\n')
        (folder / f"{machine}.sh").chmod(0o755)
        driver = folder / f"{machine}.sh"
        x = samples(">f4", (9, 5))
        np.savez_compressed(folder / "a.npz", x=x, y=x.astype("<f4"), z=np.arange(9))
        table(folder, [["a", "t"], *[[f"{i}.25", f"c{i % 3}"] for i in range(9)]])
        base = ["open", "-", "a.npz", "target=t", "open", "csv", "a.csv", "batch=4", "epochs=2", *[word for name in ("x", "y", "csv", "target")
                for word in ("field", name, "f32")]]
        wanted, got = streamed(folder, *base), streamed(folder, *base, driver=driver)
        expect(got[:2] == wanted[:2], f"{machine}: {got[0]}")
        expect([np.frombuffer(data, order + "f4").tolist() for data in got[2]] == [np.frombuffer(data, "f4").tolist() for data in wanted[2]], machine)
        said = drive(folder, *base[:8], f"batch={2**62}", "field", "x", "f32", "stream", "out", "1", driver=driver, status=1)
        expect("too large" in said, said)


@case("the text that programs carry is C11 and C++17")
def _(folder):
    sanitized()
    (folder / "a.cc").write_text(f'#define _Static_assert static_assert\n#define LOADER_TEXT "{BUILD}/runtime/loader.inc"\n' + (HERE / "driver.c").read_text().split("#endif")[0] +
                                 "#endif\n")
    T.must(T.run(["g++", "-std=c++17", *T.WARNINGS[1:], "-fsyntax-only", "a.cc"], cwd=folder))
    T.must(T.run(["g++", "-std=c++17", *T.WARNINGS[1:], "-DPROGRAM_NO_PTHREADS", "-DPROGRAM_NO_MMAP", "-fsyntax-only", "a.cc"],
                 cwd=folder))


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
    (folder / "g.csv").write_bytes(b'a,"t",b\r\n1,"b""c",2\r\n+1.5e3,d,-.25\r\n')
    (folder / "h.csv.gz").write_bytes(gzip.compress(b'1,2\n3,4\n'))
    return [("x", "a.npy"), ("x", "b"), ("x", "c.gz"), ("x", "d.gz"), ("-", "e.npz"), ("-", "f.npz"), ("x", "g.csv"), ("x", "h.csv.gz")]


def target(path):
    return ["target=t"] if path == "g.csv" else []


def ends_well(text):
    """Whether the beginning of g.csv is a table by itself."""
    rows = list(csv.reader(io.StringIO(text.decode(), newline="")))
    return len(rows) > 1 and len(rows[-1]) == 3 and rows[-1][2] not in ("", "-", "-.") and text.count(b'"') % 2 == 0


@case("cut off after every byte")
def _(folder):
    for name, path in small_files(folder):
        opened, longest, nbytes = map(int, drive(folder, *target(path), "cut", name, path, f"t.{path}", driver=sanitized()).split())
        valid = sum(ends_well((folder / path).read_bytes()[:n]) for n in range(nbytes + 1)) if path == "g.csv" else 1
        expect(opened == valid and (valid > 1 or longest == nbytes - 1), f"{path}: {opened} beginnings of {nbytes} bytes were opened, {longest} not")


@case("bytes changed")
def _(folder):
    for name, path in small_files(folder):
        seed = zlib.crc32(path.encode())
        drive(folder, *target(path), "turn", name, path, f"t.{path}", str(TURNS), str(seed), driver=sanitized())


@case("memory that runs out, at every allocation")
def _(folder):
    pictures(folder)
    for name, path in [*small_files(folder), ("-", "set")]:
        n = int(drive(folder, *target(path), "starve", name, path, driver=sanitized()))
        expect(n > 10, f"{path}: {n} allocations")


@case("pictures cut off, and with bytes changed")
def _(folder):
    pictures(folder, pieces=2, interlaced=True)
    for name in ("cat/0.png", "Bird/x.bmp", "dog/a.ppm"):
        one = folder / "one" / name
        one.parent.mkdir(parents=True)
        shutil.copy(folder / "set" / name, one)
        words = ["inside=one", "-", f"set/{name}", f"one/{name}"]
        opened, longest, nbytes = map(int, drive(folder, words[0], "cut", *words[1:], driver=sanitized()).split())
        expect(longest >= nbytes - 40 and opened <= nbytes - longest, f"{name}: {opened} of {nbytes} beginnings, {longest} not")
        drive(folder, words[0], "turn", *words[1:], str(TURNS // 2), "1", driver=sanitized())
        shutil.rmtree(folder / "one")


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
