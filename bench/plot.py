"""Draws a report of bench/compare.py as one SVG, with nothing but text and rectangles.

One panel per number of threads, one row per model: each contender's mark stands at its speed
relative to the best runtime (logarithmic), so that right of the line at 1 is faster.

    python bench/plot.py REPORT.json OUT.svg
"""

import json
import math
import sys
from html import escape
from pathlib import Path

COLOURS = {"tgc-gcc": "#c0392b", "tgc-clang": "#e67e22", "onnxruntime": "#2471a3",
           "openvino": "#7d3c98", "ncnn": "#229954",
           "tinygrad": "#8c6d31", "emx": "#888888"}
TITLES = {"tgc-gcc": "tgc, gcc -O2", "tgc-clang": "tgc, clang -O2", "onnxruntime": "ONNX Runtime",
          "openvino": "OpenVINO", "ncnn": "ncnn", "tinygrad": "tinygrad", "emx": "emx"}
COMPILERS = ("tgc-gcc", "tgc-clang", "tinygrad", "emx")
ROW, LEFT, WIDTH, TOP = 22, 170, 620, 64
LOW, HIGH = 1 / 32, 8.0         # the ends of the axis; what lies beyond stands at the end


def place(value):
    clipped = min(max(value, LOW), HIGH)
    return LEFT + WIDTH * math.log(clipped / LOW) / math.log(HIGH / LOW)


def text(x, y, content, anchor="start", size=12, fill="#222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{fill}">{escape(content)}</text>')


def line(x1, y1, x2, y2, colour, width=1):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"/>')


def mark(name, x, y, title):
    """A square for tgc, a disc for a runtime; the title shows under the pointer."""
    inside = f'fill="{COLOURS[name]}" fill-opacity="0.85"><title>{escape(title)}</title>'
    if name.startswith("tgc"):
        return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" {inside}</rect>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {inside}</circle>'


def panel(report, threads, top):
    rows = [(m["name"], m["threads"][threads]) for m in report["models"]
            if threads in m["threads"]]
    bottom = top + ROW * len(rows)
    parts = [text(LEFT, top - 22, f"{threads} thread{'s' if threads != '1' else ''}: speed "
                  "relative to the best runtime", size=14)]
    value = LOW
    while value <= HIGH:
        x = place(value)
        parts.append(line(x, top - 4, x, bottom, "#444" if value == 1 else "#ddd",
                          2 if value == 1 else 1))
        parts.append(text(x, top - 8, f"{value:g}" if value >= 1 else f"1/{1 / value:g}",
                          "middle", 10, "#666"))
        value *= 2
    for number, (name, entry) in enumerate(rows):
        y = top + ROW * number + ROW / 2
        parts.append(text(LEFT - 8, y + 4, name, "end"))
        parts.append(line(LEFT, y, LEFT + WIDTH, y, "#f0f0f0"))
        times = {k: r["min"] for k, r in entry["contenders"].items() if "min" in r}
        peers = [t for k, t in times.items() if k not in COMPILERS]
        if not peers:
            parts.append(text(LEFT + 4, y + 4, "no runtime", size=10, fill="#888"))
            continue
        for kind in sorted(times, key=lambda k: k.startswith("tgc")):
            parts.append(mark(kind, place(min(peers) / times[kind]), y,
                              f"{TITLES[kind]}: {1e3 * times[kind]:.4g} ms"))
    return parts, bottom


def svg(report):
    counts = sorted({t for m in report["models"] for t in m["threads"]}, key=int)
    parts, bottom = [], TOP - 40
    for number, (name, title) in enumerate(TITLES.items()):
        x = 40 + 112 * number
        parts += [mark(name, x, 16, title), text(x + 10, 20, title)]
    for threads in counts:
        more, bottom = panel(report, threads, bottom + 44)
        parts += more
    parts.append(text(LEFT, bottom + 20, f"{report['machine']['cpu']}, "
                      f"{report['machine']['time']}", size=10, fill="#888"))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" '
            f'height="{bottom + 32}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(svg(json.loads(Path(sys.argv[1]).read_text())))
