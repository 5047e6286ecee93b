"""The visual report: its document (lib/report/facts.c), its page (page.c, views.c, report.js), what compares two.

The page is read by html.parser here, and its script's layout runs in node; where Chromium is installed (scripts/setup.sh check-all), every view
is drawn, keys are pressed, and pictures are compared by structure. --pictures DIR writes those of docs/guide/report.md.
"""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx

import cuda
import graphs as G
import tgc as T
from browser import Browser, Firefox, find_browser, find_firefox
from suite import Skip, Suite, expect

suite = Suite("report")
OPTIONS = suite.parse(lambda p: p.add_argument("--pictures", help="write the guide's pictures there"))
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "report")
case = suite.folder_case(SCRATCH)
MODEL = ROOT / "models/mnist_cnn.tg"
VIEWS = ("overview", "graph", "kernels", "memory", "passes")
VOID = {"meta", "link", "img", "br", "hr", "input", "path", "rect", "circle"}


def tgc(folder, *words, status=0, env=None):
    done = T.run([TGC, *map(str, words)], cwd=folder, env={"VIZ": "", **(env or {})})
    T.must(done, status)
    return done


class Page(html.parser.HTMLParser):
    """Elements, ids, attributes, the texts of style and scripts, cells by table; complains of what does not nest."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.attributes, self.wrong = [], [], [], [], []
        self.blocks, self.tables, self.text, self.row = [], {}, [], None
        self.source = Path(path).read_text()
        self.feed(self.source)
        self.close()
        self.text = "".join(self.text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *a) for a in attributes]
        given = dict(attributes)
        if "id" in given:
            self.ids.append(given["id"])
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "style"):
            self.blocks.append([tag, given, ""])
        if tag == "table":
            self.table = self.tables[given["id"]] = []
        if tag == "tr":
            self.row = []
            self.table.append(self.row)
        if tag in ("td", "th"):
            self.row.append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *a) for a in attributes]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            self.blocks[-1][2] += data
            return
        self.text.append(data)
        if self.row and {"td", "th"} & set(self.open[-4:]):
            self.row[-1] += data

    def document(self):
        return json.loads(next(text for tag, given, text in self.blocks if given.get("id") == "document"))


def check_page(page):
    """What every page has: it nests, loads nothing, runs its own script alone."""
    expect(not page.wrong and not page.open, f"does not nest: {page.wrong[:5]} {page.open}")
    expect(len(page.ids) == len(set(page.ids)), "an id twice")
    for tag, name, value in page.attributes:
        expect(not name.startswith("on") and name not in ("style", "src", "srcset", "action"), f"<{tag} {name}={value!r}>")
        expect(name != "href" or value[:1] == "#" and value[1:] in page.ids, f"<{tag} href={value!r}> leads elsewhere, or nowhere")
        expect(name not in ("aria-labelledby", "for") or value in page.ids, f"<{tag} {name}={value!r}>: no such element")
    policy = next(value for tag, name, value in page.attributes if tag == "meta" and name == "content" and "default-src" in value)
    expect(policy.startswith("default-src 'none'") and "unsafe" not in policy, policy)
    for tag, given, text in page.blocks:
        if given.get("type") == "application/json":
            expect(not re.search("[<>&\u2028\u2029]", text), "the document could end its block")
            continue
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        expect(f"{tag}-src 'sha256-{digest}'" in policy, f"the policy does not allow the {tag}: {policy}")


def page_of(folder, model, *words, name="m.html"):
    tgc(folder, model, "-o", name, *words)
    page = Page(folder / name)
    check_page(page)
    return page


# ---------------------------------------------------------------------------------------- document


@case("tables and document say the same")
def _(folder):
    page = page_of(folder, MODEL)
    d = page.document()
    expect((d["format"], d["version"]) == ("tgc-report", 2), "format")
    expect(set(VIEWS) <= set(page.ids), f"sections: {page.ids}")
    for view in VIEWS:
        expect(("a", "href", f"#{view}") in page.attributes, f"no link to {view}")
    names = sorted(k["name"] for k in d["kernel_list"])
    expect(sorted(row[0] for row in page.tables["kernel-table"][1:]) == names and names, "kernels")
    expect([row[0] for row in page.tables["pass-table"][1:]] == [p["name"] for p in d["passes"]], "passes")
    weights = [b for b in d["buffers"] if b["kind"] == "weight"]
    expect(len(page.tables["weights"]) - 1 == len(weights) and len(page.tables["buffers"]) - 1 == len(d["buffers"]) - len(weights), "buffers")
    expect({n["name"] for n in d["nodes"]} >= {"c1", "r1", "p1", "c2", "l1", "y"}, "the model's nodes")
    expect([row[0] for row in page.tables["layers"][1:]] == ["c1", "c2", "l1", "l2", "y"], f"layers: {page.tables['layers']}")
    expect("estimate" in page.text and "measured" not in page.text, "nothing was measured")
    info = json.loads(tgc(folder, "info", MODEL, "--json").out)
    for key in ("arena_bytes", "stack_bytes", "weight_bytes", "kernels"):
        expect(info[key] == d[key], f"{key}: {info[key]} by info, {d[key]}")


@case("chains become chains, and branches branches")
def _(folder):
    d = page_of(folder, MODEL).document()
    expect(d["edges"] == [[i, i + 1] for i in range(len(d["nodes"]) - 1)], f"{d['edges']}")
    six = np.float32(6)
    nodes = [G.node("Clip", ["x", "", "six"], ["a"], name="a"), G.node("Exp", ["a"], ["b"], name="b"), G.node("Neg", ["a"], ["c"], name="c"),
             G.node("Mul", ["b", "c"], ["d"], name="d"), G.node("Clip", ["d", "", "six"], ["y"], name="e")]
    onnx.save(G.model(nodes, [G.value("x", [1, 8])], [G.value("y", [1, 8])], [G.weight("six", six)]), folder / "m.onnx")
    d = page_of(folder, "m.onnx").document()
    name = {i: n["name"] for i, n in enumerate(d["nodes"])}
    edges = sorted((name[a], name[b]) for a, b in d["edges"])
    expect(edges == sorted([("x", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("e", "y")]), f"{edges}")


@case("each change fits the text before it")
def _(folder):
    d = page_of(folder, MODEL).document()
    texts, fired = {}, sum(r["n"] for r in d["rules"])
    for c in d["changes"]:
        parts = c["lines"].split("\n")[:-1]
        if c["whole"]:
            expect(c["subject"] not in texts, f"{c['subject']} twice")
            texts[c["subject"]] = parts
            continue
        before, after, at = texts[c["subject"]], [], 0
        for part in parts:
            if part[0] == "=":
                after += before[at:at + int(part[1:])]
                at += int(part[1:])
            elif part[0] == "-":
                expect(before[at] == part[1:], f"pass {c['pass']}, {c['subject']}: {part!r} is not {before[at]!r}")
                at += 1
            else:
                after.append(part[1:])
        texts[c["subject"]] = after + before[at:]
        expect(texts[c["subject"]] != before, f"pass {c['pass']} changed nothing of {c['subject']}")
        if c["subject"] == "graph" and d["passes"][c["pass"]]["name"] == "winograd":
            # of c2 alone: what follows it computes the same, and keeps its lines
            went = [part for part in parts if part[0] == "-"]
            expect(0 < len(went) < 16 and not any(f'loc("{name}")' in part for part in went for name in ("r2", "l1", "l2", "y")), f"{went}")
    expect(fired > 0 and all(re.fullmatch(r"\w+\.rules:\d+", r["at"]) for r in d["rules"]), "rules")
    # the last text of a kernel is the one that .uops has
    tgc(folder, MODEL, "-o", "m.uops")
    uops = (folder / "m.uops").read_text()
    last = texts[f"{d['kernel_list'][-1]['name']} (generic)"]
    expect(last and sum(line in uops for line in last) > len(last) / 2, "the last text is not the kernel's")


@case("why a tensor is stored is said, and the sentence of each opt")
def _(folder):
    d = page_of(folder, MODEL).document()
    temps = [b for b in d["buffers"] if b["kind"] == "temp"]
    expect(temps and all(b.get("why") for b in temps), f"{[b for b in temps if not b.get('why')]}")
    used = {o.split()[0] for s in d["schedules"] for o in s["opts"]}
    expect(used and all(d["opts"].get(o) for o in used), f"{used}")
    expect(1 <= len(d["advice"]) <= 3 and all(a["text"] and a["option"] for a in d["advice"]), f"{d['advice']}")
    gains = [a["gain_us"] for a in d["advice"]]
    expect(gains == sorted(gains, reverse=True), f"not the largest first: {gains}")
    expect(any("--threads" in a["option"] for a in d["advice"]), "one thread is not mentioned")
    d = page_of(folder, MODEL, "--threads=4").document()
    expect(not any("--threads" in a["option"] for a in d["advice"]), "threads are advised though there are four")
    d = page_of(folder, MODEL, "-O0").document()
    expect([(a["option"], a["gain_us"], a["gain_bytes"]) for a in d["advice"]] == [("-O2", 0, 0)], f"-O0: {d['advice']}")


@case("memory of two threads: each has its own scratch, which is drawn and said")
def _(folder):
    page = page_of(folder, MODEL, "--threads=2", "--dim", "B=8")
    d, rows = page.document(), page.tables["peak"][1:]
    own = [b for b in d["buffers"] if b.get("copies", 1) > 1]
    expect(own and all(b["copies"] == 2 and b["placed"] >= 2 * b["bytes"] for b in own), f"{own}")
    labels = [row[0] for row in rows if "one per thread" in row[0]]
    expect(labels and all(re.fullmatch(r"scratch( \d)? of \w+, 2 \u00d7 [\d.]+ kB, one per thread", label) for label in labels), f"{rows}")
    # the peak by the places of tensors is the plan's, and the figures are those of the sentence
    most = int(re.search(r"Most at step (\d+) of", page.text)[1]) - 1
    alive = [b for b in d["buffers"] if b.get("placed") and b["first_step"] <= most <= b["last_step"]]
    expect(sum(b["placed"] for b in alive) == d["live_bytes"], f"{alive}: {d['live_bytes']} alive")
    more = sum(b["placed"] // 2 for b in alive if b.get("copies", 1) > 1)
    expect(f"the copies beyond the first one take {more / 1000:.0f} kB" in page.text, f"{more} bytes of copies")
    expect("copies beyond" not in page_of(folder, MODEL, "--dim", "B=8", name="one.html").text, "copies of one thread")
    # what is not in the arena takes no place there
    outside = [b for b in d["buffers"] if b.get("in")]
    expect(outside and all(b["placed"] == 0 for b in outside), f"{outside}")
    if not find_browser():
        return
    with Browser() as b:
        b.open(folder / "m.html", "#memory")
        b.run("document.querySelector('#arena-view canvas').focus()")
        said = set()
        for _ in range(8):
            b.key("ArrowRight")
            said.add(b.run("document.querySelector('#arena-view .under').textContent"))
        expect(sum("2 \u00d7 " in s and "one per thread" in s and "Used within conv2d_" in s for s in said) == len(own), f"{said}")
        expect(not any("Written by ," in s or "read by ;" in s or "read by ." in s for s in said), f"{said}")
        quiet(b)


@case("a large graph's page stays small, and is drawn")
def _(folder):
    onnx.save(G.blocks(2000), folder / "m.onnx")
    page = page_of(folder, "m.onnx")
    d = page.document()
    size = len(json.dumps({key: value for key, value in d.items() if key not in ("changes", "sources")}, separators=(",", ":"))) / 2000
    print(f"# a page of 2,000 nodes: {len(page.source) / 1e6:.1f} MB; {size:.0f} bytes a node, without texts")
    expect(size < 600 and sum(len(c["lines"]) for c in d["changes"]) <= 4 << 20, f"{size:.0f} bytes a node")
    if not find_browser():
        return
    with Browser() as b:
        for keys in ("0", "+" * 12, "-" * 20):             # all of it, text, rows alone
            b.open(folder / "m.html", "#graph")
            b.run("document.querySelector('.stage canvas').focus()")
            for key in keys:
                b.key(key)
            ink = b.run("(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)(document.querySelector('.stage canvas'))")
            expect(ink > 1, f"{keys[:1]}: {ink} colours")
        quiet(b)


@case("names: what a tensor is, of what a weight is made; steps of loops in whole sentences")
def _(folder):
    page = page_of(folder, MODEL, "--dim", "B=8")
    d = page.document()
    names = [row[0] for table in ("buffers", "weights", "peak") for row in page.tables[table][1:]]
    expect(not [name for name in names if re.fullmatch(r"b\d\d+", name)], f"numbers: {names}")
    expect({"w1", "w2", "b2", "result of conv2d_0"} <= set(names) and any(re.fullmatch(r"scratch( \d)? of conv2d_2", name) for name in names), f"{names}")
    expect(all(b.get("name") or b.get("label") for b in d["buffers"]), f"{[b for b in d['buffers'] if not b.get('name')]}")
    labels = [b["label"] for b in d["buffers"] if b["kind"] in ("temp", "scratch")]
    expect(len(labels) == len(set(labels)), f"one name for two: {labels}")
    if not find_browser():
        return
    with Browser() as b:
        b.open(folder / "m.html", "#kernels/conv2d_1")
        said = b.run("document.querySelector('.detail').textContent")
        expect("It reads the result of conv2d_0, which is stored: " in said and "0x" not in said and "store 0, loop 0: unrolls" in said, said[:900])
        b.open(folder / "m.html", "#kernels/conv2d_0")
        said = b.run("document.querySelector('.detail').textContent")
        expect("moves the loop: it becomes number 2" in said and "turns 13 iterations into lanes" in said and "axis=" not in said, said[:900])
        expect("tiles of 6 along the width" in said or "tiles of 4 along the width" in said, said[:900])
        left = b.run("doc.schedules.flatMap(s => s.opts).map(optText).filter(s => /`|undefined|NaN|\\b(n|to)$/.test(s))")
        expect(left == [], f"{left}")
        quiet(b)


@case("passes: those that changed nothing are folded, each kernel has its own")
def _(folder):
    page = page_of(folder, MODEL, "--dim", "B=8")
    d = page.document()
    changed = {c["pass"] for c in d["changes"]} | {i for i, p in enumerate(d["passes"]) if (p["changes"] or 0) > 0}
    idle = len(d["passes"]) - len(changed - {len(d["passes"])})
    expect(page.source.count('<tr class="idle" id="passes/') == idle > 20, f"{idle} passes changed nothing")
    if not find_browser():
        return
    shown = "[...document.querySelectorAll('#pass-table tbody tr')].filter(r => r.offsetParent).length"
    with Browser() as b:
        b.open(folder / "m.html", "#passes")
        expect(b.run(shown) == len(d["passes"]) - idle and f"{len(d['passes'])} passes, {len(d['passes']) - idle} changed" in b.run("document.body.innerText"), "what is folded")
        b.run("document.getElementById('idle-passes').click()")
        expect(b.run(shown) == len(d["passes"]), "not all are shown")
        b.open(folder / "m.html", "#passes", script=False)
        expect(page.tables["pass-table"] and len(page.tables["pass-table"]) == len(d["passes"]) + 1, "without a script")
        b.open(folder / "m.html", "#kernels/conv2d_1")
        links = b.run("[...document.querySelectorAll('.detail a[href^=\"#passes/\"]')].map(a => a.hash)")
        own = {c["pass"] for c in d["changes"] if c["subject"].startswith("conv2d_1 (")}
        expect(links == [f"#passes/{d['passes'][i]['name']}/conv2d_1" for i in sorted(own)] and links, f"{links}: {own}")
        more = b.run("document.querySelector('.detail li details').textContent")
        expect(re.match(r"\d+ more", more) and more.count("rejected: ") == int(more.split()[0]), more)
        b.open(folder / "m.html", links[-1])
        expect(b.run("document.querySelector('.detail select').value").startswith("conv2d_1 ("), "the kernel's text is not the one that is shown")
        quiet(b)


@case("what Winograd's tiles cost in accuracy, and save")
def _(folder):
    page = page_of(folder, MODEL)
    d, rows = page.document(), page.tables["winograd"][1:]
    info = json.loads(tgc(folder, "info", MODEL, "--json").out)
    expect(d["error"]["estimate"] == info["error_estimate"] > 0 and d["error"]["limit"] == info["error_limit"], f"{d['error']}")
    expect([row[:2] for row in rows] == [["c2", "4"]] and rows[0][4] == "100.0 %", f"{rows}")
    expect("winograd" not in page_of(folder, MODEL, "--no-winograd").tables, "a table of no tiles")


def deep(folder, layers=12):
    """Names as PyTorch's exporter writes them: blocks in blocks."""
    nodes, x = [], "x"
    for i in range(layers):
        for part, kind in (("attention", "Exp"), ("attention", "Neg"), ("mlp", "Tanh"), ("mlp", "Relu")):
            nodes.append(G.node(kind, [x], [f"t{len(nodes)}"], name=f"/encoder/layer.{i}/{part}/{kind}"))
            x = f"t{len(nodes) - 1}"
        nodes.append(G.node("MatMul", [x, "w"], [f"m{i}"], name=f"/encoder/layer.{i}/MatMul"))
        x = f"m{i}"
    nodes.append(G.node("Relu", [x], ["y"], name="/head/Relu"))
    onnx.save(G.model(nodes, [G.value("x", [4, 16])], [G.value("y", [4, 16])], [G.weight("w", np.eye(16, dtype=np.float32))]), folder / "deep.onnx")
    return folder / "deep.onnx"


@case("blocks of the model, by the names of its nodes")
def _(folder):
    page = page_of(folder, deep(folder))
    rows = page.tables["blocks"][1:]
    expect([row[0] for row in rows[:2]] == ["/encoder/layer.0", "/encoder/layer.1"] and len(rows) in (12, 13), f"{rows}")
    d = page.document()
    expect(sum(int(row[4]) for row in rows) == d["kernels"], "kernels of blocks")
    expect("blocks" not in page_of(folder, MODEL).tables, "names without a path have no blocks")


@case("the same bytes, from the model and from its document")
def _(folder):
    for words in ((), ("--target=opencl", "--cpu=generic-gpu"), ("--threads=4", "--no-winograd"), ("-O0",)):
        first, second = (page_of(folder, MODEL, *words, name=f"{n}/m.html") for n in [(folder / n).mkdir(exist_ok=True) or n for n in "ab"])
        expect(first.source == second.source, f"{words}: two compiles differ")
        tgc(folder, MODEL, "-o", "m.json", *words)
        tgc(folder, "report", "m.json", "-o", "r.html")
        expect((folder / "r.html").read_text() == first.source, f"{words}: the page of the saved document differs")


@case("names of a hostile model are text")
def _(folder):
    bad = '</script><script>window.bad=1</script><img src=x onerror="window.bad=1">\u202egnp.exe\u2028 "\'&amp; --><!--'
    long = "L" * 1_000_000 + "<b>"
    nodes = [G.node("Relu", [bad], ["a"], name=bad), G.node("Add", ["a", "w</script>"], ["b"], name=long),
             G.node("Exp", ["b"], [bad + "y"], name="javascript:alert(1)")]
    model = G.model(nodes, [G.value(bad, [4, 4])], [G.value(bad + "y", [4, 4])], [G.weight("w</script>", np.full((4, 4), 1.5, np.float32))])
    onnx.save(model, folder / "m.onnx")
    page = page_of(folder, "m.onnx")
    expect(page.tags.count("script") == 2 and "img" not in page.tags and "b" not in page.tags, "markup of the model's")
    expect("</script><script>window.bad" in page.text and "[U+202E]" in page.text and "\u202e" not in page.text, "names are not shown as text")
    expect(len(page.source) - len(json.dumps(page.document())) < 300_000, "a long name is not cut")
    expect(any(n["name"] == long for n in page.document()["nodes"]), "the document has the whole name")


@case("a device's launches")
def _(folder):
    page = page_of(folder, MODEL, "--target=cuda", "--cpu=sm_90a", "--dim", "B=8")
    rows, d = page.tables["device"][1:], page.document()
    expect([row[0] for row in rows] == [k["name"] for k in d["kernel_list"]], f"{rows}")
    blocks, limits = 0, set()
    for k, row in zip(d["kernel_list"], rows):
        expect(abs(sum(k["parts_us"].values()) - k["predicted_us"]) < 0.01 * k["predicted_us"] + 1e-3, f"{k['name']}: {k['parts_us']} are not {k['predicted_us']}")
        if "blocks" in k:
            blocks += 1
            expect(k["blocks"] * k["block"] <= k["threads"] and 0 <= k["occupancy"] <= 1 and k["room"] * k["block"] <= 2048, f"{k}")
            limits.add(k["occupancy_limit"])
            expect(row[8] == k["occupancy_limit"] and (k["occupancy"] < 0.999) == bool(row[8]), f"{row}: {k}")
            by = {"threads": 2048 // k["block"], "registers": max(1, 65536 // (k["block"] * k["registers"])), "too few blocks": -(-k["blocks"] // 132),
                  "shared memory": 233472 // k["local_bytes"] if k["local_bytes"] else 10 ** 9}
            if k["threads"] == k["blocks"] * k["block"]:           # no producers beside the block
                expect(k["room"] == min(n for name, n in by.items() if name != "too few blocks"), f"{k}: {by}")
                expect(not row[8] or by[row[8]] == min(by.values()), f"{row[8]}: {by}")
            expect(row[2] == f"{k['blocks']:.0f}" and row[7] == f"{100 * k['occupancy']:.0f} %", f"{row}")
    expect(blocks > 2 and "too few blocks" in limits, f"{blocks} kernels in blocks, limited by {limits}")
    large = page_of(folder, MODEL, "--target=cuda", "--cpu=sm_90a", "--dim", "B=4096").document()
    expect({"registers"} <= {k.get("occupancy_limit") for k in large["kernel_list"]}, f"{[(k['name'], k.get('occupancy_limit')) for k in large['kernel_list']]}")
    expect("device" not in page_of(folder, MODEL).tables, "launches of a processor")


@case("an open batch on a device: one size, and where tensors are")
def _(folder):
    page = page_of(folder, MODEL, "--target=cuda", "--cpu=sm_80")
    d = page.document()
    bound = d["symbols"][0]["max"]
    expect(d["tensors_in"] == "device" and d["live_bytes"] <= d["tensor_bytes"] < 2 * d["live_bytes"], f"{d['tensor_bytes']}: {d['live_bytes']}")
    size = f"{d['tensor_bytes'] / 1e6:.2f} MB"
    expect(f"take memory of the device: {size}" in page.text and f"alive at once, at B = {bound}" in page.text, page.text[:2000])
    expect(f"estimates are at B = {bound}, the upper bound" in page.text and "The arena has" not in page.text.split("Worth")[0], page.text[:600])
    # what lies in shared memory or registers is in no place of it
    ends = [b["offset"] + b["placed"] for b in d["buffers"] if b.get("placed")]
    expect(max(ends) <= d["tensor_bytes"] and not any("scratch" in row[0] for row in page.tables["peak"][1:]), f"{ends}, {page.tables['peak']}")
    page = page_of(folder, MODEL, "--dim", "B=8")
    expect("the upper bound." not in page.text and "The arena has" in page.text and page.document()["tensors_in"] == "arena", "a processor's")
    page = page_of(folder, ROOT / "models/digits.tg")
    d = page.document()
    expect(d["tensors_in"] == "stack" and "take the stack: " in page.text and d["live_bytes"] <= d["tensor_bytes"], f"{d['tensors_in']}")
    if not find_browser():
        return
    tgc(folder, MODEL, "-o", "m.html", "--target=cuda", "--cpu=sm_80")
    with Browser() as b:
        b.open(folder / "m.html", "#memory")
        expect(f"{size} in all" in b.run("document.querySelector('#arena-view').textContent"), "the picture is of another size")
        quiet(b)


@case("registers by kernel: an estimate, beside what ptxas takes")
def _(folder):
    page = page_of(folder, MODEL, "--target=cuda", "--cpu=sm_90a", "--dim", "B=8")
    d, rows = page.document(), page.tables["device"]
    expect("Registers, estimated" in rows[0], f"{rows[0]}")
    for k, row in zip(d["kernel_list"], rows[1:]):
        if "blocks" in k:
            expect(16 <= k["registers"] <= k["registers_most"] and row[5] == f"{k['registers']} of {k['registers_most']}", f"{k['name']}: {row}")
    cuda.need_nvrtc()
    ratios = {}
    for model, *words in ((MODEL, "--dim", "B=8"), (ROOT / "models/transformer_block.tg",), (ROOT / "models/layer_norm.tg",)):
        for out in ("k.json", "k.ptx"):
            tgc(folder, model, "-o", out, "--target=cuda", "--cpu=sm_90a", *words)
        said = T.must(T.run([cuda.ptxas(), "-v", "--gpu-name=sm_90a", "k.ptx", "-o", "k.cubin"], cwd=folder, timeout=300))
        took = dict(re.findall(r"entry function 'k_(\w+)'.*?Used (\d+) registers", said.err + said.out.decode(), re.S))
        ratios.update({f"{Path(model).stem} {k['name']}": k["registers"] / int(took[k["name"]]) for k in json.loads((folder / "k.json").read_text())["kernel_list"] if k["name"] in took and "registers" in k})
    print(f"# registers, the estimate by ptxas's number: {' '.join(f'{r:.2f}' for r in sorted(ratios.values()))}")
    near = sum(2 / 3 <= r <= 1.5 for r in ratios.values())
    expect(len(ratios) > 10 and near >= 0.7 * len(ratios) and all(0.35 <= r <= 2.5 for r in ratios.values()), f"{ratios}")


@case("a training: forward and backward, what is kept")
def _(folder):
    words = ("--train", "--loss=cross_entropy", "--optimizer=adam", "--batch=8")
    page = page_of(folder, MODEL, *words)
    d, rows = page.document(), page.tables["train-kernels"][1:]
    expect("the upper bound." not in page.text, "which of the runs is made is no size")
    entry = d["entries"][d["training"]["entry"]]
    expect(entry["name"] == "train" and [e["name"] for e in d["entries"]] == [row[0] for row in page.tables["entries"][1:]], f"{entry}")
    names = [d["kernel_list"][k]["name"] for k in entry["kernels"]]
    forward, backward = [row[0] for row in rows], [name for row in rows for name in re.findall(r"\w+_\d+", row[4])]
    expect(len(set(forward + backward)) == len(forward + backward) and set(forward + backward) <= set(names), "a kernel twice, or of another run")
    beside = {row[1].split(",")[0]: row[4] for row in rows if row[4]}
    expect({"conv2d c1", "conv2d c2", "linear l1", "linear l2", "max_pool2d p2"} <= beside.keys(), f"{beside}")
    expect(len(re.findall(r"linear_\d+", beside["linear l1"])) == 3, f"by its input, its weights and its bias: {beside['linear l1']}")
    # each kernel of derivatives says so, and stands where the node of which they are is computed
    of = {d["kernel_list"][k]["name"]: d["kernel_nodes"][k] for k in entry["kernels"]}
    adjoint = [d["kernel_list"][k]["name"] for k in entry["kernels"] if d["kernel_list"][k].get("backward")]
    expect(len(adjoint) > 10 and set(adjoint) <= set(backward) and not set(adjoint) & set(forward), f"{adjoint}")
    for row in rows:
        for name in set(re.findall(r"\w+_\d+", row[4])) & set(adjoint):
            expect(of[name][0] in of[row[0]], f"{name} stands beside {row[0]}")
    c = (tgc(folder, MODEL, "-o", "step.c", *words), (folder / "step.c").read_text())[1]
    expect(c.count("/* gradient of ") >= len(adjoint) // 2, "the C does not say which kernels compute derivatives")
    # what is neither stores parameters and states: of 8 parameters with two states each 24 kernels at least
    written = {b["buffer"] for k in entry["kernels"] for b in d["kernel_list"][k]["writes"] if d["kernel_list"][k]["name"] not in forward + backward}
    expect({s["out"] for s in d["states"] if s["block"] in ("parameters", "optimizer")} & written and len(names) - len(forward + backward) >= 24, "updates")
    kept = {row[0]: row[2] for row in page.tables["train-memory"][1:]}
    expect(kept["Parameters"] == "900 kB" and kept["State of the optimizer"] == "1.8 MB", f"{kept}")
    expect("training" not in page_of(folder, MODEL).ids, "a training in a program that does not train")
    expect("writes .c, .o, .so, .a, .html, .json, or a device" in tgc(folder, MODEL, "-o", "m.dot", *words, status=2).err, ".dot")


@case("curves of a training's log, and of two")
def _(folder):
    line = lambda i, a: json.dumps({"epoch": i + 1, "step": 100 * i, "loss": 2.3 * a ** i, "seconds": 1.5, "accuracy": 1 - 0.9 * a ** i})
    for name, a in (("a", 0.5), ("b", 0.7)):
        (folder / f"{name}.jsonl").write_text("".join(line(i, a) + "\n" for i in range(9)) + '{"epoch": 10, "lo')
    for words, n in ((("a.jsonl",), 1), (("a.jsonl", "b.jsonl"), 2)):
        tgc(folder, "report", *words, "-o", "curves.html")
        page = Page(folder / "curves.html")
        check_page(page)
        lines = [value for tag, name, value in page.attributes if tag == "path" and name == "d" and value.count("L") == 8]
        expect(len(lines) == 2 * n and len(page.tables["epochs"]) == 10 and ("epochs-after" in page.tables) == (n == 2), f"{words}: {len(lines)} lines")
    (folder / "c.jsonl").write_text(line(0, 1) + '\n{"loss": 1}\n')
    expect("line 2 has no" in tgc(folder, "report", "c.jsonl", "-o", "c.html", status=1).err, "a line that is no epoch")
    tgc(folder, MODEL, "-o", "m.json")
    expect("a.jsonl" in tgc(folder, "report", "m.json", "a.jsonl", "-o", "c.html", status=1).err, "a report and a log")


# ---------------------------------------------------------------------------------- saved documents


@case("what is wrong with a file is said")
def _(folder):
    tgc(folder, MODEL, "-o", "m.json")
    good = (folder / "m.json").read_text()
    nest = "[" * 100 + "]" * 100
    for text, wanted in (("", r"1:1: .*the file ends"), ("nonsense", r"1:1: .*a value"), ('{"a":1}', "no report of tgc's"), ("[1]", "no report of tgc's"),
                         (good.replace('"version": 2', '"version": 1', 1), "version 1, by tgc .* reads version 2"), (good[:5000], "the file ends"),
                         (good + "x", "the end of the file"), ('{"a" 1}', '1:6: .*"name": and a value'), ('{"a":"\n"}', "control character"),
                         (nest, "no more than 64"), (good.replace('"reads"', '"read"'), "damaged report: a kernel"), (good.replace('"steps"', '"step"'), 'damaged report: "steps"'), ('{"a":"\\u00"}', "hexadecimal"), ('{"a":x}', "a value"), ('{"a":1x}', ", or }"), ('{"a":"\\q"}', "an escape"), ("\0", "a value")):
        (folder / "x.json").write_text(text)
        said = tgc(folder, "report", "x.json", "-o", "x.html", status=1).err
        expect(re.search(rf"x\.json.*{wanted}", said), f"{text[:40]!r}: {said}")
        expect(not (folder / "x.html").exists(), "a failed report leaves a file")
    for words, wanted in ((("report",), "needs a .json"), (("report", "m.json"), "needs -o"), (("report", "m.json", "m.json", "--trace=t.json"), "is of one report"), (("report", "m.json", "-o", "m.json"), r"writes \.html"),
                          (("bench", MODEL, "-o", "m.c"), r"writes \.html or \.json"), (("bench", MODEL, "--emit=html"), "needs -o")):
        said = tgc(folder, *words, status=2).err
        expect(re.search(wanted, said), f"{words}: {said}")
    (folder / "l.html").symlink_to("m.json")
    expect("is the input" in tgc(folder, "report", "m.json", "-o", "l.html", status=1).err, "the input may be lost")


@case("documents of other shapes make a page or an error, never a crash")
def _(folder):
    tgc(folder, ROOT / "models/mlp.tg", "-o", "m.json")
    tgc(folder, ROOT / "models/mlp.tg", "-o", "t.json", "--train", "--loss=mse", "--optimizer=sgd")
    plain, trains = (json.loads((folder / name).read_text()) for name in ("m.json", "t.json"))
    new = ("entries", "training", "states", "kernel_nodes", "buffers", "steps")
    for good, key in [(plain, key) for key in plain] + [(trains, key) for key in new]:
        for value in (None, "x", [[-1]], [{}], {"x": 1}, [{"kernels": [0, -1, 10 ** 9], "in": -7, "out": 10 ** 8, "block": "parameters", "id": -1}], {"entry": 99}):
            if key in ("format", "version"):
                continue
            (folder / "x.json").write_text(json.dumps({**good, key: value}))
            (folder / "x.html").unlink(missing_ok=True)
            (folder / "x-trace.json").unlink(missing_ok=True)
            done = T.run([TGC, "report", "x.json", "-o", "x.html", "--trace", "x-trace.json"], cwd=folder)
            expect(done.status in (0, 1), f"{key}: {value}: status {done.status}: {done.err}")
            if done.status == 0:
                check_page(Page(folder / "x.html"))
                json.loads((folder / "x-trace.json").read_text())
            else:
                expect("damaged report: " in done.err and not (folder / "x.html").exists(), f"{key}: {value}: {done.err}")


@case("two documents: what became slower or larger comes first")
def _(folder):
    tgc(folder, MODEL, "-o", "old.json")
    tgc(folder, MODEL, "-o", "new.json", "--no-winograd")
    tgc(folder, "report", "old.json", "new.json", "-o", "diff.html")
    page = Page(folder / "diff.html")
    check_page(page)
    old, new = (json.loads((folder / f"{n}.json").read_text()) for n in ("old", "new"))
    totals = {row[0]: row for row in page.tables["totals"][1:]}
    expect(totals["Arena"][3].startswith("\u2212" if new["arena_bytes"] < old["arena_bytes"] else "+"), f"{totals['Arena']}")
    rows = page.tables["kernel-changes"][1:]
    signs = [row[3][0] for row in rows]
    expect(signs == sorted(signs, key="+\u2212".index) and "+" in signs and "\u2212" in signs, f"{signs}")
    expect({row[4] for row in rows} & {"gone", "new"}, "a kernel that one has alone is not said to be")
    settings = {row[0]: row for row in page.tables["settings"][1:]}
    expect(settings["Options"][1:] == ["none", "--no-winograd"], f"{settings['Options']}")
    tgc(folder, "report", "old.json", "old.json", "-o", "same.html")
    same = Page(folder / "same.html")
    expect(len(same.tables["kernel-changes"]) == 1 and all(row[4] == "equal" for row in same.tables["totals"][1:]), "equal ones differ")


@case("bench writes the report with times")
def _(folder):
    tgc(folder, "bench", MODEL, "--dim", "B=1", "--emit=html", "-o", "m.html")
    page = Page(folder / "m.html")
    check_page(page)
    d = page.document()
    expect("Times were measured" in page.text and "measured, least of" in page.text, "it does not say that it was measured")
    times = d["bench"]["kernel_times"]
    expect(len(times) == d["kernels"] and all(t["us"] >= 0 for t in times), f"{times}")
    expect("Measured" in page.tables["kernel-table"][0] and "Estimate" in page.tables["kernel-table"][0], "estimated beside measured")
    tgc(folder, "bench", MODEL, "--dim", "B=1", "-o", "m.json")
    tgc(folder, "report", "m.json", "m.json", "-o", "diff.html")
    expect("Times were measured" in Page(folder / "diff.html").text, "two measured ones are compared as estimates")


@case("advice is about measured times, where there are any")
def _(folder):
    tgc(folder, "bench", MODEL, "--dim", "B=8", "--threads=1", "-o", "m.json")
    d = json.loads((folder / "m.json").read_text())
    took = {t["name"]: t["us"] for t in d["bench"]["kernel_times"]}
    total = sum(took.values())
    tips = [a for a in d["advice"] if a["gain_us"] > 0]
    expect(tips and all("measured" in a["text"] for a in tips), f"{tips}")
    for a in tips:
        expect(a["gain_us"] <= (took[a["kernel"]] if a["option"] == "tgc tune" else total) * 1.01, f"{a}: {took}")
    threads = next(a for a in tips if "--threads" in a["option"])
    expect(0.5 * total < threads["gain_us"] < 0.75 * total, f"{threads}, of {total} measured")
    tgc(folder, "report", "m.json", "-o", "m.html")
    expect("of the measured time" in Page(folder / "m.html").text, "the page does not say what the gains are of")
    page = page_of(folder, MODEL, name="n.html")
    expect("of the estimated time" in page.text and not any("measured" in a["text"] for a in page.document()["advice"]), f"{page.document()['advice']}")
    text = page_of(folder, MODEL, "--threads=2", name="t.html").text
    expect("estimates, by one thread" in text and "estimates for one thread of the machine" in text and "by one thread" not in page.text, "two threads, whose estimates are of one")


@case("assembly is that of the lines beside it")
def _(folder):
    if not shutil.which("objdump") or not shutil.which("cc"):
        raise Skip("no objdump, or no C compiler")
    tgc(folder, "bench", MODEL, "--dim", "B=1", "-o", "m.json", env={"CC": ""})
    d = json.loads((folder / "m.json").read_text())
    text = {(s["kernel"], s["isa"]): s["text"].split("\n") for s in d["sources"]}
    of = {(a["kernel"], a["isa"]): a for a in d["assembly"]["kernels"]}
    expect(of.keys() <= text.keys() and {name for name, _ in of} == {k["name"] for k in d["kernel_list"]}, f"{of.keys()}")
    in_loops = 0
    for key, a in of.items():
        words = a["text"].split("\n")[:-1]
        expect(len(words) == len(a["lines"]) > 5, f"{key}: {len(words)} instructions, {len(a['lines'])} lines")
        expect(all(1 <= line <= len(text[key]) for line in a["lines"]), f"{key}: {a['lines']}")
        loops = [i + 1 for i, line in enumerate(text[key]) if "for (" in line]
        in_loops += bool(set(loops) & set(a["lines"]))
    expect(in_loops > len(of) / 2, f"{in_loops} of {len(of)} have instructions of loops")
    (folder / "bin").mkdir()
    for name in ("cc", "as", "ld"):
        (folder / "bin" / name).symlink_to(shutil.which(name))
    tgc(folder, "bench", MODEL, "--dim", "B=1", "-o", "n.json", env={"PATH": str(folder / "bin"), "CC": ""})
    expect("assembly" not in json.loads((folder / "n.json").read_text()), "assembly without objdump")
    if not find_browser():
        return
    tgc(folder, "report", "m.json", "-o", "m.html")
    check_page(Page(folder / "m.html"))
    with Browser() as b:
        b.open(folder / "m.html", "#kernels/linear_5")
        b.run("document.querySelector('.code').focus()")
        b.key("ArrowDown")
        b.key("ArrowDown")
        marked = b.run("[...document.querySelectorAll('.code')].map(p => p.querySelectorAll('.on').length)")
        said = b.run("document.querySelector('.detail .tools [role=status]').textContent")
        expect(marked[0] == 1 and re.fullmatch(rf"Line \d+: {marked[1]} instructions", said), f"{marked}, {said}")
        quiet(b)


def check_trace(path):
    """What the Trace Event Format asks of complete ("X"), counter ("C") and metadata ("M") events, the ones that are written, as Perfetto's importer
    reads them: fields and their types, spans of a row that nest or follow, each row and process named once, and before what happens in it."""
    trace = json.loads(Path(path).read_text())
    expect(trace["displayTimeUnit"] in ("ms", "ns") and set(trace) == {"displayTimeUnit", "traceEvents"}, f"{set(trace)}")
    fields = {"X": {"pid", "tid", "ts", "dur", "name"}, "C": {"pid", "ts", "name", "args"}, "M": {"pid", "tid", "name", "args"}}
    named, rows, counters = set(), {}, {}
    is_number = lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)
    for e in trace["traceEvents"]:
        expect(e["ph"] in fields and fields[e["ph"]] <= set(e) <= fields[e["ph"]] | {"ph", "args"}, f"fields: {e}")
        expect(isinstance(e["name"], str) and e["name"] and isinstance(e["pid"], int) and isinstance(e.get("tid", 0), int), f"types: {e}")
        if e["ph"] == "M":
            expect(e["name"] in ("process_name", "thread_name") and isinstance(e["args"]["name"], str), f"{e}")
            key = (e["name"], e["pid"], e["tid"] if e["name"] == "thread_name" else 0)
            expect(key not in named, f"named twice: {e}")
            named.add(key)
            continue
        expect(is_number(e["ts"]) and e["ts"] >= 0 and ("process_name", e["pid"], 0) in named, f"{e}")
        if e["ph"] == "C":
            expect(all(map(is_number, e["args"].values())) and e["ts"] >= counters.get((e["pid"], e["name"]), 0), f"{e}")
            counters[e["pid"], e["name"]] = e["ts"]
            continue
        expect(is_number(e["dur"]) and e["dur"] >= 0 and ("thread_name", e["pid"], e["tid"]) in named, f"{e}")
        begin, end = round(1000 * e["ts"]), round(1000 * (e["ts"] + e["dur"]))       # nanoseconds
        expect(begin >= rows.get((e["pid"], e["tid"]), 0), f"spans of a row overlap: {e}")
        rows[e["pid"], e["tid"]] = end
    expect(rows and {("thread_name", *row) for row in rows} <= named, "a row without a name")
    return trace


@case("a run as a trace that Perfetto reads")
def _(folder):
    tgc(folder, "bench", MODEL, "--dim", "B=1", "-o", "m.json", "--trace", "t.json")
    d, trace = json.loads((folder / "m.json").read_text()), check_trace(folder / "t.json")
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    kernels = [e for e in spans if e["tid"] == 2]
    expect([e["name"] for e in kernels] == [s[4:] for s in d["steps"] if s.startswith("run ")], f"{kernels}")
    expect(all(abs(a["ts"] + a["dur"] - b["ts"]) < 1e-3 * (1 + b["ts"]) for a, b in zip(kernels, kernels[1:])), "one after the other")
    us = {k["name"]: t["us"] for k, t in zip(d["kernel_list"], d["bench"]["kernel_times"])}
    expect(all(abs(e["dur"] - us[e["name"]]) <= 2e-3 for e in kernels), "measured times")
    expect([e["name"] for e in spans if e["tid"] == 1] == ["c1", "c2", "p2", "l1", "l2", "y"], "layers")
    alive = [e["args"]["alive"] for e in trace["traceEvents"] if e["ph"] == "C"]
    expect(max(alive) == d["live_bytes"] and len(alive) == len(kernels), f"{alive}")
    tgc(folder, "report", "m.json", "--trace", "u.json")
    expect((folder / "u.json").read_bytes() == (folder / "t.json").read_bytes(), "the trace of the saved document differs")
    tgc(folder, MODEL, "-o", "s.json", "--train", "--loss=mse", "--optimizer=sgd")
    tgc(folder, "report", "s.json", "--trace", "v.json")
    rows = [e["args"]["name"] for e in check_trace(folder / "v.json")["traceEvents"] if e["name"] == "process_name"]
    expect(rows == [e["name"] for e in json.loads((folder / "s.json").read_text())["entries"]], f"{rows}")


@case("VIZ=1 adds the report to what a command does")
def _(folder):
    tgc(folder, MODEL, "-o", "plain.c")
    (folder / "out").mkdir()
    said = tgc(folder, MODEL, "-o", "out/plain.c", env={"VIZ": "1"}).err
    expect("out/plain.html: note: the visual report" in said, said)
    check_page(Page(folder / "out/plain.html"))
    expect((folder / "out/plain.c").read_bytes() == (folder / "plain.c").read_bytes(), "VIZ=1 changes the output")
    for words in (("run", MODEL, "--dim", "B=1"), ("info", MODEL), ("verify", MODEL, "--dim", "B=1", "--other=-O0"), ("bench", MODEL, "--dim", "B=1")):
        (folder / "mnist_cnn.html").unlink(missing_ok=True)
        said = tgc(folder, *words, env={"VIZ": "1"}).err
        expect("mnist_cnn.html: note: the visual report" in said, f"{words}: {said}")
        check_page(Page(folder / "mnist_cnn.html"))
        (folder / "mnist_cnn.html").unlink()
        expect("visual report" not in tgc(folder, *words, env={"VIZ": "0"}).err and not (folder / "mnist_cnn.html").exists(), f"{words}: unasked")


# --------------------------------------------------------------------------------------------- script


def part_of(file, *titles):
    """Parts of a script, by the titles of their lines."""
    parts = dict(zip(*[iter(re.split(r"/\* -+ ([a-z, ]+) \*/\n", (ROOT / "lib/report" / file).read_text())[1:])] * 2))
    return "".join(parts[title] for title in titles)


@case("layers, and places in a row")
def _(folder):
    node = shutil.which("node")
    if not node:
        raise Skip("no node")
    part = part_of("graph.js", "layers of a graph")
    (folder / "layout.js").write_text(part + """
const assert = require("assert");
const graph = (n, edges) => arrange({nodes: Array.from({length: n}, () => ({})), edges});
const rows = g => g.nodes.map(v => v.layer);
assert.deepStrictEqual(rows(graph(4, [[0, 1], [1, 2], [2, 3]])), [0, 1, 2, 3]);
assert.deepStrictEqual(rows(graph(5, [[0, 1], [1, 2], [0, 2], [3, 2], [2, 4]])), [0, 1, 2, 1, 3]);      /* a source stands above what it feeds */
assert.deepStrictEqual(rows(graph(6, [[0, 1], [1, 2], [2, 3], [4, 5], [5, 3]])), [0, 1, 2, 3, 1, 2]);           /* and so does a chain of one */
assert.deepStrictEqual(rows(graph(3, [[0, 1], [1, 0], [1, 2]])).length, 3);                                     /* a cycle ends */
assert.deepStrictEqual(rows(graph(2, [[0, 9], [0, 0], [-1, 1]])), [0, 0]);                                      /* no such nodes */
assert.deepStrictEqual(spread([0, 0, 0], 2), [-2, 0, 2]);
assert.deepStrictEqual(spread([0, 10, 11], 2), [0, 9.5, 11.5]);
let seed = 1;
const random = n => (seed = seed * 48271 % 2147483647) % n;
for (let turn = 0; turn < 200; turn++) {
  const n = 1 + random(40), edges = Array.from({length: random(80)}, () => [random(n), random(n)]).filter(([a, b]) => a < b);
  const g = graph(n, edges);
  for (const [a, b] of edges) assert(g.nodes[a].layer < g.nodes[b].layer);
  for (const row of g.rows) for (let i = 1; i < row.length; i++) assert(g.nodes[row[i]].x - g.nodes[row[i - 1]].x >= NODE_W + GAP_X - 1e-6);
}
const start = Date.now();
graph(20000, Array.from({length: 40000}, (_, i) => [i >> 1, Math.min(19999, (i >> 1) + 1 + random(30))]));
assert(Date.now() - start < 20000);
""")
    for words in (*(["--check", ROOT / "lib/report" / name] for name in ("report.js", "graph.js", "passes.js")), ["layout.js"]):
        done = subprocess.run([node, *words], cwd=folder, capture_output=True, text=True)
        expect(done.returncode == 0, done.stderr[-2000:])


@case("two graphs as one: what was added, removed, changed")
def _(folder):
    node = shutil.which("node")
    if not node:
        raise Skip("no node")
    tgc(folder, MODEL, "-o", "a.json")
    tgc(folder, deep(folder), "-o", "b.json", "-O2")
    tgc(folder, MODEL, "-o", "c.json", "--target=opencl", "--cpu=generic-gpu", "--train", "--loss=cross_entropy", "--optimizer=adam")
    (folder / "pairs.js").write_text("const doc = JSON.parse(require('fs').readFileSync(process.argv[2]));\n" +
                                     part_of("passes.js", "the texts", "a graph of a text", "two graphs as one") + r"""
const assert = require("assert"), text = s => readGraph(s.trim().split("\n"));
const head = 'tg 1\nweight %weight1 : f32[4, 4] "w)("\ninput  %input0 : f32[N, 4] "x"\n%5 : f32[N, 4] = add(%input0, %weight1)   loc("a")\n';
const tail = (k, op) => `%${k} : f32[N, 4] = ${op}(%5)   loc("b")\n%${k + 1} : f32[N, 4] = mul(%${k}, N%2)   loc("c")\n` +
  `%${k + 2} : f32[4] = reduce(%${k + 1}) {op=add, axes=[0]}   loc("d")\noutput %${k + 2} as "y"`;
const said = g => g.nodes.filter(v => v.mark).map(v => `${v.mark} ${v.title} ${v.name}`).sort().join(", ");
const pair = (a, b) => uniteGraphs(text(a), text(b));
assert.strictEqual(said(pair(head + tail(6, "exp"), head + tail(6, "exp"))), "");
assert.strictEqual(said(pair(head + tail(6, "exp"), head + tail(16, "exp"))), "");                        /* other numbers alone */
assert.strictEqual(said(pair(head + tail(6, "exp"), head + tail(16, "tanh"))), "add tanh b, change mul c, del exp b");
assert.strictEqual(text(head)[0].group, "a");                                                          /* a weight is of what reads it */
assert.deepStrictEqual(readLine('%7 : f32[N//2] = mul(%6, (N + 1)%2, "a %9 (", %3) {k=1}   loc("x\\\"y")').src, ["%6", "%3"]);
const joined = pair(head + tail(6, "exp"), head + tail(16, "tanh")), marks = joined.edges.map(e => e[2]);
assert(marks.includes("add") && marks.includes("del") && marks.includes(undefined));
assert.strictEqual(markedPart(joined).nodes.length, 5);
let n = 0;
graphHistory().forEach(({pass, lines}, i) => {
  const before = i ? readGraph(graphHistory()[i - 1].lines) : null, after = readGraph(lines), g = uniteGraphs(before, after);
  assert.strictEqual(after.length, lines.filter(s => s && s !== "tg 1").length, "a line that is not read");
  assert.strictEqual(g.nodes.filter(v => v.after).length, after.length);
  if (before) assert.strictEqual(g.nodes.filter(v => v.before).length, before.length);
  if (before) assert(g.nodes.some(v => v.mark), `pass ${pass} marks nothing`);
  for (const v of g.nodes) assert.strictEqual(v.mark === "add", !v.before), assert.strictEqual(v.mark === "del", !v.after);
  for (const [a, b] of g.edges) assert(a >= 0 && b >= 0 && a < g.nodes.length && b < g.nodes.length);
  n++;
});
assert(n > (process.argv[2] === "b.json" ? 0 : 1), "no pass changed the graph");
""")
    for name in "abc":
        done = subprocess.run([node, "pairs.js", f"{name}.json"], cwd=folder, capture_output=True, text=True)
        expect(done.returncode == 0, f"{name}: {done.stderr[-2000:]}")


@case("ten questions of users, each answered by the page")
def _(folder):
    """By the tables, which need no script; the answers are checked against other commands where these have them."""
    tgc(folder, "bench", MODEL, "--dim", "B=8", "-o", "m.json")
    tgc(folder, "report", "m.json", "-o", "m.html")
    for name, words in (("plain", ()), ("two", ("--threads=2",)), ("slow", ("-O0",)), ("small", ("--no-winograd",))):
        tgc(folder, MODEL, "-o", f"{name}.json", *words)
    for name in ("two", "slow", "small"):
        tgc(folder, "report", "plain.json", f"{name}.json", "-o", f"{name}.html")
    page, two, slow, small = (Page(folder / f"{n}.html") for n in ("m", "two", "slow", "small"))
    d, tables = page.document(), page.tables
    # 1. which layer takes the time?
    longest = max(tables["layers"][1:], key=lambda row: float(row[2].split()[0]))
    expect(longest[0] in ("c1", "c2", "l1") and longest[6], f"{longest}")
    # 2. is it arithmetic or memory?
    expect(all(row[-1] in ("arithmetic", "L1", "L2", "L3", "memory") for row in tables["kernel-table"][1:]), "limits")
    # 3. is the estimate right?
    expect(tables["kernel-table"][0][3:5] == ["Measured", "Estimate"] and all(row[3] and row[4] for row in tables["kernel-table"][1:]), "both times")
    # 4. who uses the memory at the peak?
    peak = tables["peak"][1:]
    expect(any(row[0].startswith("result of ") and "conv2d" in row[1] for row in peak), f"{peak}")
    # 5. why are these operations not one kernel: why is what is between them stored?
    expect(all(row[6] for row in tables["buffers"][1:] if row[1] == "temp"), "a temp without a reason")
    # 6. what did Winograd cost in accuracy, and save?
    expect(len(tables["winograd"]) == 2 and float(tables["winograd"][1][5]) > 0 and "--error allows" in page.text, f"{tables['winograd']}")
    # 7. why are the weights larger than the model's?
    expect(any("inograd" in row[4] for row in tables["changed"][1:]), f"{tables['changed']}")
    # 8. why is the arena larger with two threads?
    expect(next(row for row in two.tables["totals"] if row[0] == "Arena")[3].startswith("+") and two.tables["peak-changes"][1][3].startswith("+")
           and "a thread would store over what another one still reads" in two.text, f"{two.tables['peak-changes']}")
    # 9. which kernel differs from -O0, and what became smaller without Winograd?
    expect(len(slow.tables["kernel-changes"]) > 3 and next(row for row in small.tables["totals"] if row[0] == "Weights")[3].startswith("\u2212"), "comparisons")
    # 10. which pass changed the graph, by which rule?
    changed = [row[0] for row in tables["pass-table"][1:] if row[4] not in ("", "0")]
    expect("winograd" in changed and any(int(row[6]) > 0 for row in tables["pass-table"][1:]), f"{changed}")
    expect(all(re.fullmatch(r"\w+\.rules:\d+", r["at"]) for r in d["rules"]), "where rules are")


def need_browser():
    if not find_browser():
        raise Skip("no Chromium (scripts/setup.sh check-all installs it)")


def quiet(b):
    expect(not b.complaints, f"the console says: {b.complaints[:3]}")
    expect(all(url.startswith(("file:", "about:")) for url in b.asked), f"it asks for {b.asked}")


@case("every view is drawn, in light and dark, wide and narrow")
def _(folder):
    need_browser()
    page_of(folder, MODEL)
    with Browser() as b:
        for scheme in ("light", "dark"):
            for width in (1400, 400):
                for view, wanted in (("overview", "layers"), ("graph", "graph-view"), ("kernels", "kernel-table"), ("memory", "arena-view"), ("passes", "pass-table"),
                                     ("kernels/conv2d_2", "kernel-detail"), ("passes/winograd", "pass-view"), ("passes/frontend", "pass-view")):
                    b.open(folder / "m.html", f"#{view}", width, 900, scheme)
                    shown = b.run("[...document.querySelectorAll('main > section')].filter(s => s.offsetHeight).map(s => s.id)")
                    expect(shown == [view.split("/")[0]], f"{view}: {shown} are shown")
                    height = b.run(f"document.getElementById('{wanted}').getBoundingClientRect().height")
                    expect(height > 40, f"{view}, {width} px: {wanted} is {height} px high")
                    wide = b.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                    expect(wide <= 0, f"{view}, {width} px: {wide} px too wide")
                    dark = b.run("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 26)"
                    expect(dark == (scheme == "dark"), f"{view}: the scheme is not {scheme}")
                    ink = b.run("""[...document.querySelectorAll('canvas')].filter(c => c.offsetHeight).map(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
                                   return new Set(Array.from({length: d.length / 4}, (_, i) => `${d[4 * i]} ${d[4 * i + 1]} ${d[4 * i + 2]} ${d[4 * i + 3]}`)).size; })""")
                    expect(all(n > 3 for n in ink), f"{view}: a canvas has {ink} colours")
        quiet(b)


@case("keys, search, sorting, filters, links, colours")
def _(folder):
    need_browser()
    page_of(folder, MODEL)
    with Browser() as b:
        b.open(folder / "m.html", "#graph")
        under = lambda: b.run("document.querySelector('.under').textContent")
        b.run("document.querySelector('.stage canvas').focus()")
        b.key("Enter")
        expect(under().startswith("image"), under())
        for _ in range(4):
            b.key("ArrowDown")
        expect(under().startswith("c2 conv2d"), under())
        b.key("ArrowUp")
        expect(under().startswith("p1"), under())
        b.key("Escape")
        expect("No node is selected" in under(), under())
        b.key("/")
        b.call("Input.insertText", text="softmax")
        expect(b.run("document.querySelectorAll('.hits button').length") == 1, "search")
        b.run("document.querySelector('.hits button').click()")
        expect(under().startswith("y softmax"), under())
        x, y, w, h = b.run("(r => [r.x, r.y, r.width, r.height])(document.querySelector('.stage canvas').getBoundingClientRect())")
        before = b.run("document.querySelector('.stage canvas').toDataURL()")
        b.drag(x + w / 3, y + h / 2, 80, 60)
        expect(b.run("document.querySelector('.stage canvas').toDataURL()") != before, "dragging moves nothing")
        b.run("const s = document.querySelector('.tools select'); s.value = 'kernels'; s.dispatchEvent(new Event('change'))")
        expect("6 nodes" in under(), under())
        b.run("location.hash = '#kernels'")
        b.frame()
        first = "document.querySelector('#kernel-table tbody th').textContent"
        head = "document.querySelectorAll('#kernel-table thead button')"
        longest = b.run(first)
        b.run(f"{head}[0].click()")
        expect(b.run(first) == "conv2d_0", "sorted by name")
        b.run(f"{head}[2].click()")
        expect(b.run(first) == longest, "sorted by share")
        b.run("document.querySelector('#kernel-table a').click()")
        b.frame()
        expect(b.run("document.querySelector('#kernel-detail h3').textContent") == longest and "static void" in b.run("document.querySelector('#kernel-detail pre').textContent"), "details")
        b.run("location.hash = '#passes'")
        b.frame()
        b.run("const f = document.querySelector('#passes .filter input'); f.value = 'winograd'; f.dispatchEvent(new Event('input'))")
        expect(1 <= b.run("[...document.querySelectorAll('#pass-table tbody tr')].filter(r => !r.hidden).length") <= 5, "filter")
        b.run("location.hash = '#passes/winograd'")
        b.frame()
        expect(b.run("document.querySelectorAll('#pass-view .add').length") > 0 and b.run("document.querySelectorAll('#pass-view .del').length") > 0, "difference")
        b.run("location.hash = '#memory'")
        b.frame()
        b.run("document.querySelector('#arena-view canvas').focus()")
        b.key("ArrowRight")
        expect("Written by" in b.run("document.querySelector('#arena-view .under').textContent"), "arena")
        for mode in ("light", "dark"):
            b.run("document.getElementById('theme').click()")
            expect(b.run("document.documentElement.dataset.theme") == mode, mode)
        quiet(b)


@case("the graph before and after a pass, step by step")
def _(folder):
    need_browser()
    page_of(folder, MODEL)
    with Browser() as b:
        b.open(folder / "m.html", "#passes/winograd")
        under = lambda: b.run("document.querySelector('.graph .under').textContent")
        marks = lambda: b.run("[...document.querySelectorAll('.graph .mark')].map(m => m.textContent)")
        count = lambda: int(under().split()[0])
        title = lambda: b.run("document.querySelector('#pass-view h3').textContent")
        shown = lambda: b.run("[...document.querySelectorAll('.joined [aria-pressed=true]')].map(e => e.textContent).join()")
        first = marks()
        expect([m[0] for m in first] == ["+", "\u2212", "~"] and int(re.search(r"\d+", first[0])[0]) > 3, f"{first}")
        expect(shown() == "Both, marked" and b.run("document.querySelector('.graph select').value") == "marked", shown())
        both = count()
        b.run("document.querySelector('.graph canvas').focus()")
        b.key("d")
        expect(re.match(r"(added|removed|changed): [+-] ", under()), under())
        seen = {under().split(":")[0]}
        for _ in range(both):
            b.key("d")
            seen.add(under().split(":")[0])
        expect({"added", "removed"} <= seen <= {"added", "removed", "changed"}, f"{seen}")
        b.key("Escape")
        picture = lambda: b.run("document.querySelector('.graph canvas').toDataURL()")
        pictures, counts = set(), {}
        for key, side in (("b", "Before"), ("a", "After"), ("m", "Both, marked")):
            b.key(key)
            b.frame()
            pictures.add(picture())
            counts[side] = count()
            expect(shown() == side, f"{key}: {shown()}")
        expect(len(pictures) == 3 and counts["Both, marked"] == both > max(counts["Before"], counts["After"]), f"{counts}")
        for value in ("blocks", "all"):
            b.run(f"(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')); }})(document.querySelector('.graph select'))")
            expect(count() > 5, f"{value}: {under()}")
        steps = b.run("[...document.querySelectorAll('.steps a')].map(a => a.textContent)")
        at = steps.index("winograd")
        expect(steps[0] == "frontend" and at > 0, f"{steps}")
        b.run("document.querySelector('.graph canvas').focus()")
        for key, step in (("p", at - 1), ("n", at), *([("n", at + 1)] if at + 1 < len(steps) else [])):
            b.key(key)
            expect(title() == steps[step] and b.run("location.hash") == f"#passes/{steps[step]}" and b.run("document.activeElement.tagName") == "CANVAS", f"{key}: {title()}")
        b.run("location.hash = '#passes/frontend'")
        b.frame()
        expect(not marks() and "shown of" in under(), "marks in the graph as it was read")
        b.run("location.hash = '#passes/emit_steps'")
        b.frame()
        expect("Pictures are of the graph alone" in b.run("document.getElementById('pass-view').textContent"), "a pass of kernels")
        quiet(b)


@case("blocks are opened, closed and searched")
def _(folder):
    need_browser()
    page_of(folder, deep(folder), name="deep.html")
    with Browser() as b:
        b.open(folder / "deep.html", "#graph")
        under = lambda: b.run("document.querySelector('.under').textContent")
        count = lambda: int(under().split()[0])
        closed = count()
        expect(14 <= closed <= 48, f"{under()} are shown at first")
        b.run("document.querySelector('.stage canvas').focus()")
        for key in ("Enter", "ArrowDown"):
            b.key(key)
        expect(under().startswith("encoder/layer.0/attention 2 nodes"), under())
        b.key("Enter")
        expect(under().startswith("/encoder/layer.0/attention/"), under())
        b.key("Escape")
        expect(count() == closed + 1, under())
        b.run("const s = document.querySelector('#graph .tools input'); s.value = 'layer.7/mlp/tanh'; s.dispatchEvent(new Event('input'))")
        b.run("document.querySelector('.hits button').click()")
        expect(under().startswith("/encoder/layer.7/mlp/Tanh Tanh") and "Close mlp" in under(), under())
        b.run("document.querySelector('.stage canvas').focus()")
        b.key("c")
        expect(under().startswith("encoder/layer.7/mlp 2 nodes"), under())
        b.run("const w = document.querySelector('.tools select'); w.value = 'model'; w.dispatchEvent(new Event('change'))")
        expect(count() == 63, under())
        quiet(b)


@case("a page with a hostile model runs nothing of it")
def _(folder):
    need_browser()
    bad = "</script><script>window.bad=1</script><img src=x onerror=window.bad=1>"
    tgc(folder, MODEL, "-o", "m.json")
    text = (folder / "m.json").read_text()
    for name in ('"c1"', '"image"', '"w1"', '"conv2d"'):
        text = text.replace(name, json.dumps(bad + name))
    (folder / "m.json").write_text(text)
    tgc(folder, "report", "m.json", "-o", "m.html")
    with Browser() as b:
        for view in (*VIEWS, "kernels/conv2d_0"):
            b.open(folder / "m.html", f"#{view}")
            expect(b.run("window.bad === undefined && document.querySelectorAll('img').length === 0"), f"{view}: markup of the model's")
        quiet(b)


@case("in Firefox every view is drawn, keys work, nothing is complained of")
def _(folder):
    if not find_firefox():
        raise Skip("no Firefox (scripts/setup.sh check-all installs it)")
    page_of(folder, MODEL)
    page_of(folder, deep(folder), name="deep.html")
    tgc(folder, MODEL, "-o", "train.html", "--train", "--loss=cross_entropy", "--optimizer=adam")
    with Firefox() as b:
        for name, view, wanted in (("m", "overview", "layers"), ("m", "graph", "graph-view"), ("m", "kernels/conv2d_2", "kernel-detail"), ("m", "memory", "arena-view"),
                                   ("m", "passes/winograd", "pass-view"), ("train", "training", "train-kernels"), ("deep", "graph", "graph-view")):
            b.open(folder / f"{name}.html", f"#{view}", 1200)
            for dark in (False, True):
                colour = b.run("getComputedStyle(document.documentElement).backgroundColor")
                expect((colour == "rgb(20, 23, 26)") == dark, f"{view}: {colour}")
                expect(b.run(f"document.getElementById('{wanted}').getBoundingClientRect().height") > 40, f"{name}, {view}: nothing is drawn")
                expect(b.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, f"{view}: too wide")
                ink = b.run("[...document.querySelectorAll('canvas')].filter(c => c.offsetHeight).map(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)")
                expect(all(n > 3 for n in ink), f"{name}, {view}: a canvas has {ink} colours")
                for _ in range(2 if not dark else 0):      # auto, light, dark
                    b.run("document.getElementById('theme').click()")
                b.frame()
        b.run("document.querySelector('.stage canvas').focus()")
        for key in ("Enter", "ArrowDown", "Enter"):
            b.key(key)
        under = b.run("document.querySelector('.under').textContent")
        expect(under.startswith("/encoder/layer.0/attention/"), under)
        expect(not b.complaints, f"the console says: {b.complaints[:3]}")


@case("without a script every table is there, and links lead to rows")
def _(folder):
    need_browser()
    page_of(folder, MODEL)
    with Browser() as b:
        b.open(folder / "m.html", "#kernels/conv2d_2", script=False)
        tables = b.run("[...document.querySelectorAll('table')].map(t => [t.id, t.getBoundingClientRect().height])")
        expect({name for name, height in tables if height > 40} >= {"layers", "kernel-table", "buffers", "weights", "pass-table"}, f"{tables}")
        expect(not b.run("document.querySelectorAll('button, canvas').length"), "the script has run")
        top = b.run("document.getElementById('kernels/conv2d_2').getBoundingClientRect().top")
        expect(0 <= top < 900, f"the row is at {top}")
        quiet(b)


def write_pictures(folder):
    """Those of the guide, of the model there."""
    out = SCRATCH / "pictures"
    out.mkdir(exist_ok=True)
    tgc(out, MODEL, "-o", "mnist_cnn.html")
    tgc(out, MODEL, "-o", "step.html", "--train", "--loss=cross_entropy", "--optimizer=adam")
    with Browser() as b:
        for name, view, height in (("overview", "overview", 860), ("kernel", "kernels/conv2d_2", 720), ("memory", "memory", 780), ("pass", "passes/winograd", 960), ("training", "training", 640)):
            b.open(out / ("step.html" if name == "training" else "mnist_cnn.html"), f"#{view}", 1200, height)
            b.shot(Path(folder) / f"report-{name}.webp")


if OPTIONS.pictures:
    write_pictures(OPTIONS.pictures)
else:
    suite.main()
