"""What tgc info --why shows of a device's choices: for each kernel the schedule that was chosen and the best of each kind that lost, with the
parts of their estimated times, or the rule or opt that refused it. No device is needed.
"""

import functools
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import tgc as T  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("compared")
TGC = T.find_tgc(suite.parse().build)

# Some rows of each target; the nets are of kinds of kernels, with kinds of schedules of which each row has a candidate.
ROWS = {"sm_90a": "cuda", "sm_80": "cuda", "generic-gpu": "opencl", "gfx942": "amd", "m1": "metal"}
COMPARED_ROWS = ["sm_90a", "generic-gpu", "gfx942", "m1"]
PRODUCT = "input %a : f32[512, 512]\nweight %b : f32[512, 512] = normal(seed=1)\n%y = matmul(%a, %b)\n"
HALVES = "input %a : f16[512, 512]\ninput %b : f16[512, 512]\n%y = matmul(%a, %b)\n"
CONVOLUTION = ("input %x : f32[1, 64, 56, 56]\nweight %w : f32[64, 64, 3, 3] = normal(seed=1)\n"
               "%y = conv2d(%x, %w) {padding=1}\n")
ATTENTION = "".join(f"input %{x} : f32[1, 8, 512, 64]\n" for x in "qkv") + "%y = attention(%q, %k, %v)\n"
SOFTMAX = "input %x : f32[512, 1000]\n%y = softmax(%x) {axis=-1}\n"
REDUCTION = "input %x : f32[64, 4000]\n%y = reduce_sum(%x) {axes=[1]}\n"
NETS = {
    "a product": (PRODUCT, {"TILES_STAGED", "TILES_DIRECT", "EACH"}),
    "a product of halves": (HALVES, {"TILES_STAGED", "TILES_DIRECT", "EACH"}),
    "a convolution": (CONVOLUTION, {"TILES_STAGED", "TILES_DIRECT", "EACH"}),
    "attention": (ATTENTION, {"ATTENTION_TILES", "ROWS"}),
    "a reduction": (REDUCTION, {"ROWS", "SLICES", "EACH"}),
    "softmax": (SOFTMAX, {"ROWS", "EACH"}),
}
RULED = {"ROWS", "SLICES", "EACH"}       # of which some have no candidate, by a rule
PARTS = ["arithmetic", "memory", "latency", "launch", "overlap", "bias"]


def write(folder, text):
    (folder / "net.tg").write_text("tg 1\n" + text + "output %y\n")
    return folder / "net.tg"


@functools.cache
def info(text, row, *options):
    path = T.shared("nets", write, text)
    return T.must(T.run([TGC, "info", path, f"--target={ROWS[row]}", f"--cpu={row}", *options])).out.decode()


def compared(text, row, *options):
    return json.loads(info(text, row, "--why", "--json", *options))["compared"]


def check_candidate(at, of, chosen, program):
    """One candidate against the chosen one and the time of its program; `at` is for messages."""
    if of["state"] in ("rule", "refused", "inapplicable"):
        expect(of["why"], f"{at}: no rule or opt is named: {of}")
    if "us" not in of:
        return expect(of["state"] == "inapplicable", f"{at}: no estimate: {of}")
    parts = of["parts"]
    expect(list(parts) == PARTS and abs(sum(parts.values()) - of["us"]) < 1e-4 * of["us"], f"{at}: the parts add up to {sum(parts.values())}: {of}")
    expect(all(parts[p] >= 0 for p in PARTS if p not in ("overlap", "bias")) and parts["overlap"] <= 0 and parts["launch"] == 5, f"{at}: {of}")
    expect(-parts["overlap"] < 1.001 * min(parts["memory"], parts["arithmetic"] + parts["latency"]), f"{at}: more overlaps than there is: {of}")
    expect(of["state"] != "slower" or of["us"] >= chosen["us"], f"{at}: it lost without a reason: {of}")
    than = chosen["us"] if of["by"] == chosen["by"] == "chooser" else program
    if of["by"] == "program" or chosen["by"] == "chooser":
        expect(abs(of["ratio"] * than - of["us"]) < 2e-3 * of["us"], f"{at}: {of} to {than} us")


def rejected(text, lost):
    for row in COMPARED_ROWS:
        why, shown = info(text, row, "--why"), set()
        times = dict(re.findall(r"^(\w+): .*; predicted ([\d.e+]+) us", why, re.M))
        for kernel in compared(text, row):
            candidates = kernel["candidates"]
            chosen, = (c for c in candidates if c["state"] == "chosen")
            for c in candidates:
                check_candidate(f"{kernel['kernel']} on {row}", c, chosen, float(times[kernel["kernel"]]))
            expect(chosen["by"] == "chooser" or abs(chosen["us"] - float(times[kernel["kernel"]])) < 1e-3 * chosen["us"], f"{row}: {chosen}, {times}")
            ratios = [c["ratio"] for c in candidates if "us" in c]
            expect(ratios == sorted(ratios) and "us" not in (candidates[-1] if len(ratios) < len(candidates) else {}), f"{row}: {ratios}")
            shown |= {c["kind"] for c in candidates if "us" in c or c["kind"] in RULED}
        expect(lost <= shown, f"{row}: {sorted(shown)}, not all of {sorted(lost)}")


for name, (text, lost) in NETS.items():
    suite.add(f"what was rejected is shown, slower or with its reason, and parts add up: {name}", rejected, text, lost)


@suite.case("lines of what was rejected are few, name their parts, and have the chosen one")
def lines():
    for text in (HALVES, CONVOLUTION, ATTENTION, SOFTMAX):
        for row in COMPARED_ROWS:
            why = info(text, row, "--why")
            for kernel in re.findall(r"^\w+: .*; predicted(?:.|\n)*?(?=^\w+: )", why, re.M):
                head, table = re.search(r"^ +us  ratio((?:  +\w+)+)\n((?: +[\d.e+]+[ *] +[\d.]+ .*\n)+)", kernel, re.M).groups()
                rows, names = table.splitlines(), head.split()
                expect(len(rows) <= 5 and len(re.findall("^    not by ", kernel, re.M)) <= 3, f"{row}: {kernel}")
                expect(set(names) <= set(PARTS) and "launch" in names, f"{row}: {head}")
                expect(sum("  chosen: " in line for line in rows) == 1, f"{row}: {table}")
                for line in rows:
                    us, _, *parts = line.replace("*", " ").split()[:2 + len(names)]
                    expect(abs(sum(map(float, parts)) - float(us)) <= 0.012 * max(abs(float(p)) for p in parts), f"{row}: {line}")
            for word in PARTS:
                expect(re.search(rf"^    {word}  ", why.split("legend: schedules")[1], re.M), f"{word} is not explained")


@suite.case("kinds of matrix instructions, and why there are none")
def instructions():
    def kinds(text, row, *options):
        return {c["kind"]: c for c in compared(text, row, *options)[-1]["candidates"]}

    found = kinds(HALVES, "sm_90a")
    expect(found["MATRIX_BULK"]["state"] == "chosen" and {"MATRIX_ASYNC", "MATRIX_COPIES", "MATRIX_SPLIT"} <= set(found), f"{found}")
    expect(not any(c["kind"] == "MATRIX_BULK" for c in kinds(HALVES, "sm_80").values()), "sm_80 has no bulk copies")
    for row, options, reason in (("generic-gpu", (), "the device has none"), ("sm_80", (), "multiplies f32 by f32 (--math rounds them)"), ("sm_80", ("--no-locals",), "--no-locals")):
        none = kinds(PRODUCT, row, *options)["MATRIX"]
        expect(none["state"] == "inapplicable" and reason in none["why"], f"{row}: {none}")
        expect(f"    not by matrix instructions: {none['why']}\n" in info(PRODUCT, row, "--why", *options), f"{row}: {none}")
    found = kinds(PRODUCT, "sm_80", "--math=tf32")
    expect(any(kind.startswith("MATRIX_") and c["state"] == "chosen" for kind, c in found.items()) and "MATRIX" not in found, f"{found}")


@suite.case("an opt that is refused is named with its reason, and so is what was taken instead")
def refused():
    """Max pooling recomputes the sums of a convolution: such a nest takes no pipeline, whichever tile has one."""
    path = ROOT / "models/mnist_cnn.tg"
    for row in ("sm_80", "sm_90a", "gfx942"):
        asked = [TGC, "info", path, f"--target={ROWS[row]}", f"--cpu={row}", "--why"]
        found = [c for k in json.loads(T.must(T.run([*asked, "--json"])).out)["compared"] for c in k["candidates"] if c["state"] == "refused"]
        expect(found and all(re.match(r"pipeline 0\.sum0 n=2 how=registers: several serial loops", c["why"]) for c in found), f"{row}: {found}")
        why = T.must(T.run(asked)).out.decode()
        for c in found:
            expect(c["text"] and f"  refused: {c['is']}: {c['text']}; {c['why']}\n" in why, f"{row}: {c} is not in\n{why}")


@suite.case("a line of a tune file is told from the cost model's choice, and nothing is compared unasked")
def of_file():
    said = json.loads(info(PRODUCT, "generic-gpu", "--why", "--json"))
    other = said["choices"][0]["candidates"][-1]

    def save(folder):
        (folder / "net.tune").write_text(f"tgc-tune 3\n{other}\n")
        return folder / "net.tune"

    tuned = f"--tune={T.shared('tunes', save)}"
    kernel, = compared(PRODUCT, "generic-gpu", tuned)
    chosen, = (c for c in kernel["candidates"] if c["state"] == "chosen")
    expect(kernel["tuned"] and not said["compared"][0]["tuned"], f"{kernel}")
    expect(chosen == next(c for c in said["compared"][0]["candidates"] if c["state"] == "chosen"), f"{chosen}")
    text = info(PRODUCT, "generic-gpu", "--why", tuned)
    expect("  the model's: register tiles" in text and "  chosen: " not in text, text)
    expect("compared" not in json.loads(info(PRODUCT, "generic-gpu", "--json")), "it is compared without --why")
    path = T.shared("nets", write, PRODUCT)
    on_processors = T.must(T.run([TGC, "info", path, "--why"])).out.decode()
    expect("legend: schedules" not in on_processors and "  chosen: " not in on_processors, on_processors)


suite.main()
