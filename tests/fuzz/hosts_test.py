"""Host functions on inputs that mean harm: decoders, parsers, searches, under sanitizers and a time limit.

Each program is a model whose input reaches functions of runtime/host/; hosts.c calls it with thousands of mutated inputs.
A run may return any status, within seconds, and reads and writes nothing that is not its own. (--all: more of them.)
"""

import struct
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import TensorProto

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("hosts")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "hosts")
ROUNDS = 60000 if OPTIONS.all else 6000
DOUBLE, INT, TEXT, BYTES = TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING, TensorProto.UINT8


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, bits, kind, rows, *more, interlaced=0, level=6):
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)
    packed = zlib.compress(rows, level)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(more) +
            chunk(b"IDAT", packed[:9]) + chunk(b"IDAT", packed[9:]) + chunk(b"IEND", b""))


def pictures():
    """A picture of each kind that is decoded here; the last one is a zlib stream that ends early."""
    random = np.random.default_rng(3)
    w, h = 7, 5
    rgb = random.integers(0, 256, (h, w, 3), np.uint8)
    rows = b"".join(bytes([y % 5]) + rgb[y].tobytes() for y in range(h))
    palette = b"".join(bytes([1]) + bytes(random.integers(0, 4, w).tolist()) for y in range(h))
    bmp = b"".join(row.tobytes() + bytes(-len(row.tobytes()) % 4) for row in rgb)
    tags = [(256, 3, 1, w), (257, 3, 1, h), (258, 3, 1, 8), (259, 3, 1, 32773), (262, 3, 1, 1),
            (273, 4, 1, 200), (277, 3, 1, 1), (278, 3, 1, h), (279, 4, 1, 40)]
    tiff = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *t) for t in tags)
    tiff = tiff.ljust(200, b"\0") + bytes([w - 1, *range(w), 257 - w, 9] * h)
    early = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) +
             struct.pack(">I", 7) + b"IDAT" + b"\x78\x01\x00\x00\x00\xff\xff" + bytes(4) + chunk(b"IEND", b""))
    return [png(w, h, 8, 2, rows), png(w, h, 8, 2, rows, level=0),
            png(w, h, 8, 3, palette, chunk(b"PLTE", bytes(range(12))), interlaced=0),
            png(8, 8, 1, 0, bytes(64), interlaced=1),
            b"BM" + struct.pack("<IIIIIIHHIIIIII", 54 + len(bmp), 0, 54, 40, w, h, 1, 24, 0, len(bmp), 0, 0, 0, 0) + bmp,
            f"P6 {w} {h} 255\n".encode() + rgb.tobytes(), f"P2 # c\n{w} {h} 99\n".encode() + b"7 " * (w * h),
            tiff, early]


def images(pixel_format):
    return G.model([G.node("ImageDecoder", ["data"], ["image"], pixel_format=pixel_format)],
                   [G.value("data", ["n"], BYTES)],
                   [G.value("image", ["h", "w", 1 if pixel_format == "Grayscale" else 3], BYTES)], opset=20)


def parsers():
    """Strings that should be numbers."""
    return G.model([G.node("Cast", ["s"], ["d"], to=DOUBLE)], [G.value("s", ["n"], TEXT)],
                   [G.value("d", ["n"], DOUBLE)], opset=20)


def whole_parsers():
    return G.model([G.node("Cast", ["s"], ["i"], to=INT)], [G.value("s", ["n"], TEXT)],
                   [G.value("i", ["n"], INT)], opset=20)


def texts():
    nodes = [G.node("StringSplit", ["s"], ["parts", "found"], delimiter=",", maxsplit=3),
             G.node("StringNormalizer", ["s"], ["normal"], case_change_action="UPPER", stopwords=["A", "abc"]),
             G.node("RegexFullMatch", ["s"], ["matches"], pattern="(a|b|ab)*([^a-c]+|a{2,5}b?)$"),
             G.node("StringConcat", ["s", "s"], ["twice"])]
    return G.model(nodes, [G.value("s", ["n"], TEXT)],
                   [G.value("parts", ["n", "p"], TEXT), G.value("found", ["n"], INT),
                    G.value("normal", ["m"], TEXT), G.value("matches", ["n"], TensorProto.BOOL),
                    G.value("twice", ["n"], TEXT)], opset=20)


def grams():
    attributes = dict(max_gram_length=2, max_skip_count=1, min_gram_length=1, mode="TF", ngram_counts=[0, 2],
                      ngram_indexes=[0, 1, 2], pool_int64s=[0, 1, 1, 2])
    return G.model([G.node("TfIdfVectorizer", ["x"], ["y"], **attributes)], [G.value("x", [9], INT)],
                   [G.value("y", [3])], opset=20)


def searches():
    nodes = [G.node("TopK", ["x", "k"], ["v", "i"], axis=1), G.node("Unique", ["x"], ["u", "f", "b", "c"]),
             G.node("NonZero", ["x"], ["z"]), G.node("Sub", ["x", "x"], ["rest"])]
    return G.model(nodes, [G.value("x", [3, 8])],
                   [G.value("v", [3, 5]), G.value("i", [3, 5], INT), G.value("u", ["a"]), G.value("f", ["a"], INT),
                    G.value("b", [24], INT), G.value("c", ["a"], INT), G.value("z", [2, "t"], INT),
                    G.value("rest", [3, 8])], [G.weight("k", np.array([5]))])


def regions():
    nodes = [G.node("RoiAlign", ["x", "r", "n"], ["y"], output_height=2, output_width=3, sampling_ratio=0),
             G.node("MaxRoiPool", ["x", "q"], ["p"], pooled_shape=[2, 2], spatial_scale=0.5)]
    return G.model(nodes, [G.value("x", [2, 3, 6, 7]), G.value("r", [1, 4]), G.value("n", [1], INT), G.value("q", [1, 5])],
                   [G.value("y", [1, 3, 2, 3]), G.value("p", [1, 3, 2, 2])])


def suppression():
    return G.model([G.node("NonMaxSuppression", ["b", "s", "m", "t", "u"], ["y"])],
                   [G.value("b", [2, 7, 4]), G.value("s", [2, 2, 7])], [G.value("y", ["n", 3], INT)],
                   [G.weight("m", np.array([4])), G.weight("t", np.array([0.5], np.float32)),
                    G.weight("u", np.array([0.1], np.float32))])


MODELS = {"images": (lambda: images("RGB"), ["--dim", "n<=2000", "--dim", "h<=32", "--dim", "w<=32"], pictures),
          "gray images": (lambda: images("Grayscale"), ["--dim", "n<=2000", "--dim", "h<=9", "--dim", "w<=9"], pictures),
          "numbers in text": (parsers, ["--dim", "n<=6"], list),
          "integers in text": (whole_parsers, ["--dim", "n<=6"], list),
          "texts": (texts, ["--dim", "n<=6"], list), "grams": (grams, [], list),
          "searches": (searches, [], list), "regions": (regions, [], list),
          "suppression": (suppression, [], list)}


def attack(name):
    model, options, seeds = MODELS[name]
    folder = T.scratch(SCRATCH / name.replace(" ", "_"))
    onnx.save(model(), folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", *options)
    T.must(T.run(["clang", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", *T.SANITIZE, f"-I{folder}", HERE / "hosts.c",
                  "-o", folder / "program", "-lm"], timeout=120))
    paths = []
    for number, data in enumerate(seeds()):
        paths.append(folder / f"seed{number}")
        paths[-1].write_bytes(data)
    done = T.run([folder / "program", ROUNDS, *paths], timeout=600,
                 env={"ASAN_OPTIONS": "abort_on_error=1:detect_leaks=0", "UBSAN_OPTIONS": "abort_on_error=1"})
    T.must(done)
    good = int(done.out.split()[2])
    expect(0 < good, f"no run was good: {done.out}")


for name in MODELS:
    suite.add(f"{name}: harmless whatever they hold", attack, name)
suite.main()
