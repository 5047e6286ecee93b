"""The tables of docs/benchmark.md, made from what was measured.

    python bench/tables.py                          writes the marked sections of docs/benchmark.md anew
    python bench/tables.py --check                  exit status 1 where they are not what the results say
    python bench/tables.py --keep FILE NAME         keeps FILE as bench/results/NAME.json: a report of
                                                    `compare.py --json`, what accuracy.py or `train.py --json` writes, or the lines
                                                    of `gpu.py --out`

bench/results/ has a file for each machine, with its description and the date. A row has the
milliseconds of each contender, or a ratio alone where nothing else was kept. A section of the page
begins with `<!-- table: NAME -->` and ends with `<!-- end of table -->`; `slower` is the table of
every row whose ratio to the best other contender is below 1, in all files.
"""

import argparse
import json
import math
import re
import sys
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmark.md"
RESULTS = HERE / "results"
TITLES = {"tgc-gcc": "tgc, gcc", "tgc-clang": "tgc, clang", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "ncnn": "ncnn"}
SECTION = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.S)


def ours(row):
    return min((ms for name, ms in row.get("ms", {}).items() if name.startswith("tgc")), default=None)


def best_other(row):
    """The fastest contender that is not tgc, and its milliseconds."""
    others = {name: ms for name, ms in row.get("ms", {}).items() if not name.startswith("tgc")}
    return min(others.items(), key=lambda item: item[1], default=(None, None))


def ratio(row):
    """The best other contender's time over tgc's: above 1 tgc is faster."""
    return row["ratio"] if "ratio" in row else best_other(row)[1] / ours(row)


def number(value, form=".4g"):
    return "-" if value is None else format(value, form)


def lines_of(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]


def about(kept):
    """Where and when: the line above each table."""
    text = f"{kept['machine']}; {kept['date']}; `{kept['command']}`; {kept['versions']}."
    return [text + (f" {kept['note']}" if "note" in kept else ""), ""]


def processor_table(kept):
    names = [name for name in TITLES.values() if any(name in row["ms"] for row in kept["rows"])]
    rows = [[row["name"], number(row.get("bound")), *(number(row["ms"].get(name)) for name in names), f"{ratio(row):.2f}",
             ", ".join(f"{two:.2f}" for two in row["two"].values()) if "two" in row else "-"] for row in kept["rows"]]
    table_ = lines_of(["model", "bound", *names, "best other / tgc", "two threads: gcc, clang"], rows)
    return about(kept) + table_ + ["", "Geometric means of best other / tgc: " + ", ".join(means(kept["rows"])) + "."]


def means(rows):
    sets = {}
    for row in rows:
        sets.setdefault(row["set"], []).append(math.log(ratio(row)))
    return [f"{name} {math.exp(sum(logs) / len(logs)):.2f}" for name, logs in sets.items()]


def device_table(kept):
    rows = [[row["name"], number(ours(row)), f"{number(best_other(row)[1])}, {best_other(row)[0]}", f"{ratio(row):.2f}",
             number(row.get("tflops")), number(row.get("expected"))] for row in kept["rows"]]
    return about(kept) + lines_of(["", "tgc", "the best other one", "its time / tgc's", "TFLOP/s", "expected by the model"], rows)


def ratio_table(kept):
    rows = [[row["name"], f"{row['ratio']:.2f}", f"{row['two']['gcc']:.2f}" if "two" in row else "-"] for row in kept["rows"]]
    return about(kept) + lines_of(["model", "best other / tgc", "two threads"], rows)


def accuracy_table(kept):
    rows = []
    for row in kept["rows"]:
        means = [sum(shares) / len(shares) for shares in row["accuracy"].values()]
        rows.append([row["name"], *(f"{100 * mean:.2f} % ({', '.join(f'{100 * s:.1f}' for s in shares)})"
                                    for mean, shares in zip(means, row["accuracy"].values()))])
    return about(kept) + lines_of(["held-out samples that are right: mean (of each seed)", *kept["rows"][0]["accuracy"]], rows)


def training_table(kept):
    names = {"tgc": "tgc", "eager": "PyTorch", "compiled": "torch.compile"}
    names = {who: name for who, name in names.items() if any(who in row["ms"] for row in kept["rows"])}
    rows = [[row["name"], *(number(row["ms"].get(who)) for who in names), f"{ratio(row):.2f}", *(f"{row['memory'][who] / 1e6:.1f}" for who in ("tgc", "eager")),
             f"{row['memory']['tgc'] / row['memory']['eager']:.2f}"] for row in kept["rows"]]
    head = ["ms of a processor for a step", *names.values(), "best other / tgc", "MB, tgc", "MB, PyTorch", "tgc / PyTorch"]
    mean = math.exp(sum(math.log(ratio(row)) for row in kept["rows"]) / len(kept["rows"]))
    return about(kept) + lines_of(head, rows) + ["", f"Geometric mean of best other / tgc: {mean:.2f}."]


def open_table(kept):
    """Open sizes beside fixed ones: milliseconds, and how many times the fixed one's."""
    rows = [[row["name"], str(row["bound"]), *(f"{o:.4g} ({o / f:.2f})" for o, f in zip(row["open"], row["fixed"]))] for row in kept["rows"]]
    return about(kept) + lines_of(["model", "bound", "at the bound, ms (times the fixed one's)", "at a half", "at an odd size"], rows)


def slower_table(every):
    rows = []
    for kept in every.values():
        if "accuracy" in kept["rows"][0] or "open" in kept["rows"][0]:
            continue
        rows += [[kept["title"], row["name"], f"{ratio(row):.2f}", best_other(row)[0] or "a runtime", kept["date"]] for row in kept["rows"] if ratio(row) < 1]
    rows.sort(key=lambda row: float(row[2]))
    return lines_of(["machine", "what", "best other / tgc", "the best", "measured"], rows)


def table(name, every):
    if name == "slower":
        return slower_table(every)
    kept = every[name]
    if "accuracy" in kept["rows"][0]:
        return accuracy_table(kept)
    if "training" in kept["rows"][0]:
        return training_table(kept)
    if "open" in kept["rows"][0]:
        return open_table(kept)
    if "ratio" in kept["rows"][0]:
        return ratio_table(kept)
    return processor_table(kept) if "tgc, gcc" in kept["rows"][0]["ms"] else device_table(kept)


def page(text, every):
    return SECTION.sub(lambda m: m[1] + "\n".join(table(m[2], every)) + "\n" + m[3], text)


# ------------------------------------------------------------------------------------------- keeping


def from_report(report):
    """What compare.py --json has written."""
    machine, rows = report["machine"], []
    for model in report["models"]:
        times = {threads: {TITLES[name]: round(1e3 * found["min"], 7) for name, found in entry["contenders"].items()
                           if name in TITLES and "min" in found} for threads, entry in model["threads"].items()}
        row = {"name": model["name"], "set": model["set"], "bound": model["threads"]["1"]["bound"] * 1e3, "ms": times["1"]}
        if "2" in times and best_other({"ms": times["2"]})[1]:
            row["two"] = {c: best_other({"ms": times["2"]})[1] / times["2"][f"tgc, {c}"] for c in ("gcc", "clang") if f"tgc, {c}" in times["2"]}
        if ours(row) and best_other(row)[1]:
            rows.append(row)
    return {"title": f"{machine['cpu']}, one thread", "machine": f"{machine['cpu']}, {machine['cores']} cores", "date": machine["time"][:10],
            "command": "bench/compare.py", "versions": f"{machine['tgc']} ({machine['commit']}); {machine['gcc']}; {machine['clang']}", "rows": rows}


def from_accuracy(report):
    """What accuracy.py has written: of each set a row, if both sides have trained the same seeds."""
    rows = {}
    for one in report["rows"]:
        how = ", ".join(f"{name} {value}" for name, value in one["how"].items())
        row = rows.setdefault(one["set"], {"name": f"{one['name']}; {how}", "accuracy": {}})
        row["accuracy"][{"tgc": "tgc", "torch": "PyTorch"}[one["by"]]] = [round(share, 5) for _, share in sorted(one["accuracy"].items())]
    whole = [row for row in rows.values() if len({len(shares) for shares in row["accuracy"].values()}) == 1 and len(row["accuracy"]) == 2]
    return {"title": "Accuracy", **{key: report[key] for key in ("machine", "date", "command", "versions")}, "rows": whole}


def from_lines(lines, date):
    """What gpu.py --out has appended; of a case that was measured twice the last one counts."""
    timed = {line["case"]: line for line in lines if "tgc" in line.get("times", {}) and len(line["times"]) > 1}
    first = next(iter(timed.values()))
    rows = [{"name": case, "ms": {name: time_["ms"] for name, time_ in line["times"].items()},
             "tflops": round(line["flop"] / line["times"]["tgc"]["ms"] / 1e9, 1)} for case, line in timed.items()]
    return {"title": first["device"], "machine": first["device"], "date": date, "command": "bench/gpu.py",
            "versions": str(first.get("tgc_version")), "rows": rows}


def dump(kept):
    """A row a line, so that a difference shows the rows that changed."""
    rows = ",\n".join("  " + json.dumps(row) for row in kept["rows"])
    head = json.dumps({key: value for key, value in kept.items() if key != "rows"}, indent=1)
    return head[:-2] + ',\n "rows": [\n' + rows + "\n ]\n}\n"


def keep(path, name):
    text = path.read_text()
    if text.lstrip().startswith('{\n'):
        report = json.loads(text)
        kept = from_report(report) if "models" in report else report if {"training", "open"} & report["rows"][0].keys() else from_accuracy(report)
    else:
        kept = from_lines([json.loads(line) for line in text.splitlines()], date.fromtimestamp(path.stat().st_mtime).isoformat())
    (RESULTS / f"{name}.json").write_text(dump(kept))


def main():
    parser = argparse.ArgumentParser(description="the tables of docs/benchmark.md, from bench/results/")
    parser.add_argument("--check", action="store_true", help="whether the page has what the results say")
    parser.add_argument("--keep", nargs=2, metavar=("FILE", "NAME"), help="keep a report as bench/results/NAME.json")
    options = parser.parse_args()
    if options.keep:
        keep(Path(options.keep[0]), options.keep[1])
    every = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    text = PAGE.read_text()
    made = page(text, every)
    if options.check:
        return print("docs/benchmark.md is not what bench/results/ says: run bench/tables.py") or 1 if made != text else 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
