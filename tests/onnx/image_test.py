"""ImageDecoder: pictures written here, in every form that the program decodes by itself, must come
out as they went in; damaged ones must end with an image without pixels or a status, under
sanitizers. node_test.py has the formats that need a library.
"""

import shutil
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
from pictures import bmp, packed, png
from suite import Failure, Suite, expect

suite = Suite("images", jobs=1)
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "images")
H, W, MOST = 21, 13, 4096
RANDOM = np.random.default_rng(11)
RGB = RANDOM.integers(0, 256, (H, W, 3), np.uint8)
RGB[4:12] = RGB[4]                       # rows that repeat: copies in deflate
GRAY = RGB[..., 1]


def build(pixel_format, stem):
    """The program of a model that decodes up to MOST bytes, of at most 32 by 32 pixels."""
    model = G.model([G.node("ImageDecoder", ["data"], ["image"], pixel_format=pixel_format)],
                    [G.value("data", ["n"], TensorProto.UINT8)],
                    [G.value("image", ["h", "w", 1 if pixel_format == "Grayscale" else 3], TensorProto.UINT8)],
                    opset=20)
    onnx.save(model, SCRATCH / f"{stem}.onnx")
    T.emit(TGC, SCRATCH / f"{stem}.onnx", SCRATCH / f"{stem}.c", "--dim", f"n<={MOST}", "--dim", "h<=32",
           "--dim", "w<=32")
    T.build(SCRATCH / f"{stem}.c", SCRATCH / stem, "clang", T.SANITIZE)
    return T.Program(SCRATCH / stem, ["image"])


PROGRAMS = {}


def program(pixel_format="RGB"):
    if pixel_format not in PROGRAMS:
        PROGRAMS[pixel_format] = build(pixel_format, f"decode_{pixel_format.lower()}")
    return PROGRAMS[pixel_format]


def decode(data, pixel_format="RGB"):
    return program(pixel_format).run([np.frombuffer(data, np.uint8)])["image"]


def check(data, wanted, what):
    got = decode(data)
    if wanted.ndim == 2:
        wanted = np.repeat(wanted[..., None], 3, 2)
    expect(got.shape == wanted.shape and np.array_equal(got, wanted), f"{what}: {got.shape}, or other pixels")


# ------------------------------------------------------------------------------------------ PNG


@suite.case("PNG: filters, interlacing, every kind of block, one chunk and many")
def _():
    for filters in range(6):
        check(png(RGB, 8, 2, filters=filters), RGB, f"filter {filters}")
    for interlaced in (False, True):
        for level, strategy in ((0, zlib.Z_DEFAULT_STRATEGY), (9, zlib.Z_FIXED), (9, zlib.Z_HUFFMAN_ONLY),
                                (1, zlib.Z_RLE), (6, zlib.Z_DEFAULT_STRATEGY)):
            for pieces in (1, 7, 100):
                data = png(RGB, 8, 2, interlaced=interlaced, level=level, strategy=strategy, pieces=pieces)
                check(data, RGB, f"{interlaced}, level {level}, strategy {strategy}, {pieces} pieces")
    for h, w in ((1, 1), (1, 5), (5, 1), (2, 3), (32, 32)):
        picture = RANDOM.integers(0, 256, (h, w, 3), np.uint8)
        check(png(picture, 8, 2, interlaced=True), picture, f"{h} by {w}, interlaced")


@suite.case("PNG: gray, palettes, alpha, 1 to 16 bits")
def _():
    for bits in (1, 2, 4, 8, 16):
        gray = RANDOM.integers(0, 1 << bits, (H, W))
        shown = (gray >> 8 if bits == 16 else gray * 255 // ((1 << bits) - 1)).astype(np.uint8)
        for interlaced in (False, True):
            check(png(gray, bits, 0, interlaced=interlaced), shown, f"gray of {bits} bits")
            if bits <= 8:
                palette = RANDOM.integers(0, 256, (1 << bits, 3), np.uint8)
                check(png(gray, bits, 3, palette, interlaced=interlaced), palette[gray], f"palette of {bits} bits")
    alpha = RANDOM.integers(0, 256, (H, W, 1), np.uint8)
    check(png(np.concatenate([RGB, alpha], 2), 8, 6), RGB, "RGBA")
    check(png(np.concatenate([GRAY[..., None], alpha], 2), 8, 4), GRAY, "gray and alpha")
    deep = RGB.astype(np.uint16) * 256 + 99
    check(png(deep, 16, 2), RGB, "RGB of 16 bits")


# ------------------------------------------------------------------------------------ BMP, PNM, TIFF


@suite.case("BMP: 1 to 32 bits, from below and from above, the old header")
def _():
    bgr = [row[:, ::-1].tobytes() for row in RGB]
    check(bmp(bgr[::-1], 24, H, W), RGB, "from below")
    check(bmp(bgr, 24, -H, W), RGB, "from above")
    check(bmp(bgr[::-1], 24, H, W, core=True), RGB, "the old header")
    wide = [np.concatenate([row[:, ::-1], row[:, :1]], 1).tobytes() for row in RGB]
    for packing in (0, 3):
        check(bmp(wide, 32, -H, W, packing=packing), RGB, "32 bits")
    for bits in (1, 4, 8):
        palette = RANDOM.integers(0, 256, (1 << bits, 4), np.uint8)
        index = RANDOM.integers(0, 1 << bits, (H, W))
        data = bmp(packed(index, bits)[::-1], bits, H, W, palette.tobytes())
        check(data, palette[index][..., 2::-1], f"a palette of {bits} bits")


@suite.case("PNM: six kinds, comments, other maxima")
def _():
    bits = GRAY > 127
    header = f"{W} # a comment\n {H}\n"
    plain = {1: bits.astype(int), 2: GRAY, 3: RGB}
    for kind, samples in plain.items():
        words = " ".join(str(v) for v in samples.ravel())
        most = "" if kind == 1 else "255 "
        wanted = 255 * (1 - bits.astype(np.uint8)) if kind == 1 else samples
        check(f"P{kind} {header}{most}{words}\n".encode(), wanted, f"P{kind}")
    digits = "".join(str(v) for v in plain[1].ravel())
    check(f"P1\n{header}{digits}".encode(), 255 * (1 - bits.astype(np.uint8)), "P1 without spaces")
    check(f"P4\n{header}".encode() + b"".join(packed(plain[1], 1)), 255 * (1 - bits.astype(np.uint8)), "P4")
    check(f"P5\n{header}255\n".encode() + GRAY.tobytes(), GRAY, "P5")
    check(f"P6\n{header}255\n".encode() + RGB.tobytes(), RGB, "P6")
    deep = RGB.astype(">u2") * 257
    check(f"P6\n{header}65535\n".encode() + deep.tobytes(), RGB, "P6 of 16 bits")
    low = RANDOM.integers(0, 16, (H, W), np.uint8)
    check(f"P5\n{header}15\n".encode() + low.tobytes(), low * 17, "a maximum of 15")


def packbits(row):
    """Each run of three or more as one, the rest as they are."""
    out, i = b"", 0
    while i < len(row):
        n = 1
        while i + n < len(row) and row[i + n] == row[i] and n < 128:
            n += 1
        out += bytes([257 - n, row[i]]) if n > 2 else b"".join(bytes([0, v]) for v in row[i:i + n])
        i += n
    return out


def tiff(samples, meaning, rows_per_strip, packing=1, big=False, colors=None):
    order = ">" if big else "<"
    samples = samples if samples.ndim == 3 else samples[..., None]
    height, width, count = samples.shape
    strips = []
    for y in range(0, height, rows_per_strip):
        rows = [row.tobytes() for row in samples[y:y + rows_per_strip]]
        strips.append(b"".join(packbits(r) if packing != 1 else r for r in rows))
    tags = {256: (3, [width]), 257: (4, [height]), 258: (3, [8] * count), 259: (3, [packing]),
            262: (3, [meaning]), 273: (4, None), 277: (3, [count]), 278: (4, [rows_per_strip]),
            279: (4, [len(s) for s in strips]), 284: (3, [1])}
    if colors is not None:
        tags[320] = (3, list(colors.T.ravel().astype(int) * 257))
    at = 8 + 2 + 12 * len(tags) + 4
    body, entries = b"", b""
    place = at + sum(len(v or strips) * (2 if t == 3 else 4) for t, v in tags.values()
                     if len(v or strips) * (2 if t == 3 else 4) > 4)
    offsets = [place + sum(len(s) for s in strips[:k]) for k in range(len(strips))]
    for tag, (kind, values) in sorted(tags.items()):
        values = offsets if values is None else values
        data = struct.pack(order + ("H" if kind == 3 else "I") * len(values), *values)
        inside = data.ljust(4, b"\0") if len(data) <= 4 else struct.pack(order + "I", at + len(body))
        body += data if len(data) > 4 else b""
        entries += struct.pack(order + "HHI", tag, kind, len(values)) + inside
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(order + "I", 8) + struct.pack(order + "H", len(tags))
    return head + entries + bytes(4) + body + b"".join(strips)


@suite.case("TIFF: strips, PackBits, both orders of bytes, gray and palettes")
def _():
    colors = RANDOM.integers(0, 256, (256, 3), np.uint8)
    for big in (False, True):
        for packing in (1, 32773):
            for rows in (H, 5, 1):
                what = f"big {big}, packing {packing}, {rows} rows"
                check(tiff(RGB, 2, rows, packing, big), RGB, what)
                check(tiff(GRAY, 1, rows, packing, big), GRAY, what)
                check(tiff(255 - GRAY, 0, rows, packing, big), GRAY, what)
            check(tiff(GRAY, 3, 8, packing, big, colors), colors[GRAY], f"palette, big {big}, {packing}")


# --------------------------------------------------------------------------------------- the rest


@suite.case("BGR and gray")
def _():
    data = png(RGB, 8, 2)
    expect(np.array_equal(decode(data, "BGR"), RGB[..., ::-1]), "BGR")
    wide = RGB.astype(int)
    gray = (wide[..., 0] * 19595 + wide[..., 1] * 38470 + wide[..., 2] * 7471 + 0x8000) >> 16
    expect(np.array_equal(decode(data, "Grayscale"), gray[..., None]), "gray")


def refused(data, words):
    np.save(SCRATCH / "data.npy", np.frombuffer(data, np.uint8))
    program()
    done = T.must(T.run([SCRATCH / "decode_rgb", SCRATCH / "data.npy", "-o", SCRATCH]), 1)
    expect(words in done.err, done.err)


@suite.case("what is no picture has no pixels; one that is too large, or needs a library, is a status")
def _():
    for data in (b"B", b"BM", b"hello world", bytes(100), b"\x89PNG\r\n\x1a\n" + bytes(40)):
        expect(decode(data).shape == (0, 0, 3), f"{data[:10]}")
    refused(png(np.zeros((33, 2, 3), np.uint8), 8, 2), "does not fit its bound")
    for data in (b"\xff\xd8\xff\xe0" + bytes(20), b"RIFF" + bytes(20), b"\0\0\0\x0cjP  " + bytes(20)):
        refused(data, "needs a library")


@suite.case("damaged pictures do no harm")
def _():
    pictures = [png(RGB, 8, 2, pieces=3), png(GRAY, 8, 3, RGB.reshape(-1, 3)[:256], interlaced=True),
                bmp([row.tobytes() for row in RGB], 24, H, W), tiff(RGB, 2, 5, 32773),
                f"P6 {W} {H} 255\n".encode() + RGB.tobytes(), f"P2 {W} {H} 255\n".encode() + b"7 " * (H * W)]
    program()
    for number, picture in enumerate(pictures):
        for trial in range(60 if OPTIONS.all else 12):
            data = bytearray(picture)
            for _ in range(int(RANDOM.integers(1, 5))):
                limit = len(data) if trial % 2 else min(len(data), 80)  # heads are the tender spots
                data[int(RANDOM.integers(limit))] = int(RANDOM.integers(256))
            if trial % 5 == 0:
                data = data[:int(RANDOM.integers(len(data)))]
            np.save(SCRATCH / "data.npy", np.frombuffer(bytes(data), np.uint8))
            done = T.run([SCRATCH / "decode_rgb", SCRATCH / "data.npy", "-o", SCRATCH])
            if done.status not in (0, 1) or "ERROR" in done.err or "runtime error" in done.err:
                (SCRATCH / "damaged.bin").write_bytes(data)
                raise Failure(f"picture {number}, trial {trial}: {done.describe()}")


suite.main()
