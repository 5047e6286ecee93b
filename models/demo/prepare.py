"""What the demo needs beside the model: types.h for filetype.c, and a PNG to look at.

    python models/demo/prepare.py MAGIKA_FOLDER OUT_DIR

Reads the unpacked package's configuration; needs nothing beyond Python itself.
"""

import json
import struct
import sys
import zlib
from pathlib import Path


def c_string(text):
    return json.dumps(text, ensure_ascii=True)


def types_header(package):
    config = json.loads(next(package.glob("magika/models/*/config.min.json")).read_text())
    known = json.loads((package / "magika/config/content_types_kb.min.json").read_text())

    def described(label):
        return c_string(known.get(label, {}).get("description") or label)

    rows = []
    for label in config["target_labels_space"]:
        shown = config["overwrite_map"].get(label, label)
        threshold = config["thresholds"].get(label, config["medium_confidence_threshold"])
        is_text = known[shown]["is_text"]
        rows.append(f"    {{{c_string(shown)}, {described(shown)}, "
                    f"{float(threshold)}f, {str(is_text).lower()}}},")
    return "\n".join([
        "/* The model's types, in the order of its scores. Generated from its configuration. */",
        "#include <stdbool.h>",
        f"enum {{ TYPE_COUNT = {len(rows)} }};",
        f"#define TXT_DESCRIPTION {described('txt')}",
        f"#define UNKNOWN_DESCRIPTION {described('unknown')}",
        f"#define EMPTY_DESCRIPTION {described('empty')}",
        "static const struct type {",
        "    const char *label, *description;",
        "    float threshold; /* a lower score says no more than text or not text */",
        "    bool is_text;",
        "} types[TYPE_COUNT] = {", *rows, "};", ""])


def png(side=64):
    """A disc on a gradient."""
    def chunk(kind, content):
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    rows = bytearray()
    for y in range(side):
        rows.append(0)
        for x in range(side):
            inside = (x - side / 2) ** 2 + (y - side / 2) ** 2 < (side / 3) ** 2
            rows += bytes((255, 200, 40) if inside else (2 * x, 3 * y % 256, 120))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b""))


def main():
    package, out = Path(sys.argv[1]), Path(sys.argv[2])
    (out / "types.h").write_text(types_header(package))
    (out / "picture.png").write_bytes(png())


if __name__ == "__main__":
    main()
