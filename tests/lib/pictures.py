"""Pictures in files, written from arrays of samples: PNG in all its forms, BMP."""

import struct
import zlib

import numpy as np


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def paeth(a, b, c):
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def filtered(rows, step, kind):
    out, before = b"", bytes(len(rows[0])) if rows else b""
    for y, row in enumerate(rows):
        how = kind if kind < 5 else y % 5
        out += bytes([how])
        for i, v in enumerate(row):
            a = row[i - step] if i >= step else 0
            b, c = before[i], before[i - step] if i >= step else 0
            out += bytes([(v - (0, a, b, (a + b) // 2, paeth(a, b, c))[how]) & 255])
        before = row
    return out


def packed(samples, bits):
    """Rows of samples as bytes."""
    rows = []
    for row in samples.reshape(len(samples), -1):
        if bits == 16:
            rows.append(row.astype(">u2").tobytes())
        else:
            digits = "".join(f"{int(v):0{bits}b}" for v in row)
            digits += "0" * (-len(digits) % 8)
            rows.append(bytes(int(digits[i:i + 8], 2) for i in range(0, len(digits), 8)))
    return rows


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def png(samples, bits, kind, palette=None, filters=5, interlaced=False, strategy=zlib.Z_DEFAULT_STRATEGY,
        level=9, pieces=1, alpha=None):
    samples = samples if samples.ndim == 3 else samples[..., None]
    step = max(1, bits * samples.shape[2] // 8)
    passes = [samples[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [samples]
    raw = b"".join(filtered(packed(part, bits), step, filters) for part in passes if part.size)
    deflate = zlib.compressobj(level, zlib.DEFLATED, 15, 9, strategy)
    stream = deflate.compress(raw) + deflate.flush()
    size = -(-len(stream) // pieces)
    head = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], bits, kind, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"tEXt", b"a\0b") + \
        (chunk(b"PLTE", palette.tobytes()) if palette is not None else b"") + \
        (chunk(b"tRNS", alpha.tobytes()) if alpha is not None else b"") + \
        b"".join(chunk(b"IDAT", stream[i:i + size]) for i in range(0, len(stream), size)) + chunk(b"IEND", b"")


def bmp(rows, bits, height, width, palette=b"", core=False, packing=0):
    rows = [row + bytes(-len(row) % 4) for row in rows]
    head = struct.pack("<IHHHH", 12, width, abs(height), 1, bits) if core else \
        struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, packing, 0, 0, 0, 0, 0)
    start = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, start) + head + palette + b"".join(rows)
