"""Documents say what is so: counts, tiers, tables, links, files and sizes, of what the sources say.

A claim in a document that a program can count is a row of CLAIMS. A document has a length, SIZES,
so that it stays for one reader. What commands of the guide print is guide_test.py's.
"""

import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib"), str(ROOT / "scripts"), str(ROOT / "bench"), str(HERE.parent)]

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import check
import sbom
import tables as bench_tables
import tgc as T
from suite import Suite, expect

suite = Suite("documents")
OPTIONS = suite.parse(lambda parser: parser.add_argument("--bless", action="store_true", help="write the counts into the documents"))
TGC = T.find_tgc(OPTIONS.build)
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((ROOT / "docs").rglob("*.md"))


def text_of(path):
    return (ROOT / path).read_text()


def rows_of(path, macro):
    """How many rows a .def file has."""
    return len(re.findall(rf"^{macro}\(", text_of(path), re.M))


def said(*words):
    return T.must(T.run([TGC, *words])).out.decode()


# ----------------------------------------------------------------------------------------- counts

# document, the claim with one number, how to count it
CLAIMS = [
    ("docs/architecture.md", r"(\d+) passes", lambda: rows_of("passes/passes.def", r"[A-Z]+_PASS")),
    ("docs/architecture.md", r"(\d+) opts", lambda: rows_of("passes/opts.def", "OPT")),
    ("docs/architecture.md", r"(\d+) operators of ONNX", lambda: len(json.loads(said("ops", "--json")))),
    ("docs/architecture.md", r"(\d+) targets", lambda: rows_of("lib/options.def", "TARGET")),
    ("docs/changes.md", r"(\d+) names of processors", lambda: rows_of("passes/target/processors.def", "PROCESSOR")),
]


def write_count(path, claim, number):
    text = text_of(path)
    at = re.search(claim.replace(" ", r"\s+"), text)
    expect(at, f"{path}: no '{claim}'")
    (ROOT / path).write_text(f"{text[:at.start(1)]}{number}{text[at.end(1):]}")


@suite.case("counts")
def counts():
    wrong = []
    for path, claim, count in CLAIMS:
        if OPTIONS.bless:
            write_count(path, claim, count())
        found = re.findall(claim, " ".join(text_of(path).split()))
        if found != [str(count())]:
            wrong.append(f"{path}: '{claim}' says {found}, there are {count()}")
    expect(not wrong, "\n".join(wrong))


@suite.case("suites that documents name are in tests/check.py")
def suites():
    known = {row[0] for row in check.SUITES} | {"unit"}
    wrong = []
    for path in ("docs/status.md", "SECURITY.md"):
        for names in re.findall(r"suites? ((?:`[a-z_-]+`(?:, | and )?)+)", text_of(path)):
            wrong += [f"{path}: {name}" for name in re.findall(r"`([a-z_-]+)`", names) if name not in known]
    expect(not wrong, f"no such suite: {wrong}")


# ------------------------------------------------------------------------------------------ tiers


@suite.case("tiers of docs/status.md and tgc --version are those of cli/tiers.def")
def tiers():
    rows = re.findall(r'^TIER\((\w+), +"([^"]+)", +(\d), "([^"]*)"\)', text_of("cli/tiers.def"), re.M)
    expect(len(rows) == rows_of("cli/tiers.def", "TIER"), "rows of cli/tiers.def that nobody here can read")
    listed = {name: tier for _, name, tier, _ in rows}
    targets = re.findall(r'^TARGET\(\w+, "(\w+)"', re.sub(r", +", ", ", text_of("lib/options.def")), re.M)
    expect(targets and {name for kind, name, *_ in rows if kind == "target"} == set(targets), f"targets without a tier: {targets}")
    shown = {}
    for line in re.findall(r"^tier (\d), [^:]*: (.*)$", said("--version"), re.M):
        shown.update({re.sub(r" \(.*\)$", "", name): line[0] for name in re.split(r", (?![^(]*\))", line[1])})
    expect(shown == listed, f"--version says {shown}")
    page = {name.strip(): tier for name, tier in re.findall(r"^\| ([^|]+) \| ([123]) \|", text_of("docs/status.md"), re.M)}
    expect(page == listed, f"docs/status.md says {page}")
    for _, name, _, note in rows:
        expect("never" not in note or re.search(rf"^\| {name} \|.*{note}", text_of("docs/status.md"), re.M), f"status.md does not say that {name} {note}")


# ----------------------------------------------------------------------------------------- tables


@suite.case("tables that scripts make are current")
def tables():
    for words in (["bench/tables.py", "--check"], ["scripts/sbom.py", "--check"]):
        done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
        expect(done.returncode == 0, done.stdout + done.stderr)


@suite.case("a report of bench/compare.py and lines of bench/gpu.py become tables, and rows of what is slower")
def kept():
    contenders = {"tgc-gcc": {"min": 2e-3}, "tgc-clang": {"min": 3e-3}, "onnxruntime": {"min": 1e-3}, "ncnn": {"broken": "no"}}
    report = bench_tables.from_report({
        "machine": {"cpu": "X", "cores": 2, "time": "2026-11-29T00:00:00Z", "tgc": "tgc", "commit": "abc", "gcc": "gcc 12", "clang": "clang 14"},
        "models": [{"name": "net", "set": "cnn", "threads": {"1": {"bound": 1e-3, "contenders": contenders},
                                                             "2": {"bound": 1e-3, "contenders": {"tgc-gcc": {"min": 1e-3}, "ncnn": {"min": 2e-3}}}}}]})
    lines = bench_tables.from_lines([{"part": "gemm", "case": "f16", "device": "D", "flop": 1e12, "times": {"tgc": {"ms": 1.0}, "cublas": {"ms": 0.25}}},
                                     {"part": "check", "case": "f16", "right": True}], "2026-11-29")
    how = {"epochs": 3}
    shares = bench_tables.from_accuracy({"machine": "X", "date": "2026-11-29", "command": "bench/accuracy.py", "versions": "PyTorch 2", "rows": [
        {"set": "a", "name": "A", "by": "tgc", "how": how, "accuracy": {"1": 0.99, "0": 0.98}}, {"set": "b", "name": "B", "by": "tgc", "how": how, "accuracy": {"0": 1}},
        {"set": "a", "name": "A", "by": "torch", "how": how, "accuracy": {"0": 0.97, "1": 0.97}}]})
    every = {"x": json.loads(bench_tables.dump(report)), "d": json.loads(bench_tables.dump(lines)), "s": json.loads(bench_tables.dump(shares))}
    expect(bench_tables.table("s", every)[4:] == ["| A; epochs 3 | 98.50 % (98.0, 99.0) | 97.00 % (97.0, 97.0) |"], f"{bench_tables.table('s', every)}")
    expect("| net | 1 | 2 | 3 | 1 | 0.50 | 2.00 |" in bench_tables.table("x", every), f"{bench_tables.table('x', every)}")
    expect("| f16 | 1 | 0.25, cublas | 0.25 | 1000 | - |" in bench_tables.table("d", every), f"{bench_tables.table('d', every)}")
    expect([row.split(" | ")[1] for row in bench_tables.table("slower", every)[2:]] == ["f16", "net"], f"{bench_tables.table('slower', every)}")


# document, lines and words at most
SIZES = [("docs/limits.md", 150, 2500), ("docs/status.md", 60, 700), ("docs/architecture.md", 150, 2000), ("docs/glossary.md", 120, 1500),
         *((f"docs/internals/{name}.md", 150, 1500) for name in ("devices", "kernels", "llvm", "memory", "cost"))]


@suite.case("documents keep their size")
def sizes():
    wrong = []
    for path, lines, words in SIZES:
        text = text_of(path)
        if len(text.splitlines()) > lines or len(text.split()) > words:
            wrong.append(f"{path}: {len(text.splitlines())} lines of {lines}, {len(text.split())} words of {words}")
    for at, line in enumerate(text_of("docs/changes.md").splitlines(), 1):
        if len(line) > 120:
            wrong.append(f"docs/changes.md:{at}: {len(line)} columns of 120")
    for entry in re.findall(r"^- .*(?:\n  .*)*", text_of("docs/changes.md"), re.M):
        if entry.count("\n") > 1:
            wrong.append(f"docs/changes.md: more than two lines: {entry[:60]}")
    expect(not wrong, "\n".join(wrong))


@suite.case("docs/gradients.md has a row for each op of graphs")
def gradient_rules():
    ops = re.findall(r"^OP\(\w+, *\"(\w+)\", *(\w+)", text_of("ir/ops.def"), re.M)
    kernels = {"load", "prefetch", "store", "stage"}
    wanted = {name for name, kind in ops if kind not in ("MEMORY", "CONTROL") or kind == "MEMORY" and name not in kernels}
    wanted |= {"if", "loop", "host", "get"}
    first = re.findall(r"^\| (`[^|]*) \|", text_of("docs/gradients.md"), re.M)
    rows = [name for cell in first for name in re.findall(r"`(\w+)`", cell)]
    expect(wanted == set(rows), f"without a row: {sorted(wanted - set(rows))}; not an op: {sorted(set(rows) - wanted)}")
    expect({name for name in rows if rows.count(name) > 1} == {"reduce"}, "an op has two rows")


@suite.case("docs/guide/training.md names each loss, and each optimizer with its options and its rate")
def training_words():
    table, page = text_of("frontend/train/train.def"), text_of("docs/guide/training.md")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    losses = {name for row in rows for name in re.findall(r"`(\w+)", row[1])}
    missing = set(re.findall(r'^LOSS\(\w+, "(\w+)"', table, re.M)) - losses
    expect(not missing, f"no row has {sorted(missing)}")
    names = dict(re.findall(r'^SETTING\((\w+), "(\w+)"', table, re.M))
    for kind, name, rate in re.findall(r'^OPTIMIZER\((\w+), "(\w+)", ([\d.e-]+)\)', table, re.M):
        row = [row for row in rows if f"`{name}`" in row[1]]
        expect(len(row) == 1 and float(row[0][3]) == float(rate), f"{name}, {rate}: {row}")
        options = {names[o] for o in re.findall(rf"^OPTIMIZER_OPTION\({kind}, (\w+)", table, re.M)}
        said = set(re.findall(r"`(\w+)`", row[0][2])) - {"adamw"}
        expect(options == said, f"{name} has {sorted(options)}; the page says {sorted(said)}")


# ------------------------------------------------------------------------------------ what is wrong


def model_of(path, nodes, shape, constants=()):
    """x : f32[shape] through the nodes to y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(np.array(value), name) for name, value in constants])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def run_of(folder, model, x, *options):
    np.save(folder / "x.npy", x)
    return T.must(T.run([TGC, "run", model, "-i", f"x={folder / 'x.npy'}", *options])).out.decode()


# Layers of open sizes that end in a bug report, and options: see docs/limits.md.
OPEN_WRONG = [("""tg 1
input %x : f32[1, 8, 7<=H<=8, 16, 61<=W<=64, 16]
%v1 = reshape(%x) {shape=[1, 8, 16*H, 16*W]}
weight %w2 : f32[8, 3, 1, 5] = kaiming_uniform(seed=2)
%v3 = conv_transpose(%v1, %w2) {stride=1}
weight %w4 : f32[2, 3, 3, 5] = kaiming_uniform(seed=4)
%v5 = conv(%v3, %w4) {padding=[3, 0, 3, 5], groups=1, stride=1, dilation=3}
%v6 = sigmoid(%v5)
weight %w7 : f32[4, 2, 3, 3] = kaiming_uniform(seed=7)
%v9 = conv(%v6, %w7) {padding=[0, 3, 3, 3], groups=1, stride=3, dilation=3}
output %v9 as "y"
""", "--cpu=avx512"), ("""tg 1
input %x : f32[1, 1, 7, 9<=W<=11, 3]
%v1 = reshape(%x) {shape=[1, 1, 7, 3*W]}
weight %w3 : f32[1, 1, 3, 1] = kaiming_uniform(seed=3)
%v5 = conv(%v1, %w3) {padding=[4, 1, 4, 5], groups=1, stride=2, dilation=1}
%v6 = relu(%v5)
weight %w7 : f32[8, 1, 3, 3] = kaiming_uniform(seed=7)
%v9 = conv(%v6, %w7) {padding=[3, 1, 1, 3], groups=1, stride=1, dilation=1}
weight %w10 : f32[32, 1, 6, 5] = kaiming_uniform(seed=10)
%v12 = conv(%v9, %w10) {padding=[0, 4, 6, 5], groups=8, stride=2, dilation=2}
output %v12 as "y"
""", "-Os")]


@suite.folder_case(Path(OPTIONS.build).resolve() / "test-scratch" / "documents")("reproducers of docs/limits.md's table of what is wrong, as models, still are")
def wrong_rows(folder):
    """Who mends one finds its row here, and deletes both."""
    product = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "first"], ["a"]), helper.make_node("Gather", ["s", "second"], ["b"]),
               helper.make_node("Mul", ["a", "b"], ["ab"]), helper.make_node("Concat", ["ab", "rest"], ["t"], axis=0), helper.make_node("Reshape", ["x", "t"], ["y"])]
    reshape = model_of(folder / "reshape.onnx", product, ["A", "B", 3], [("first", [0]), ("second", [1]), ("rest", [-1])])
    said_ = run_of(folder, reshape, np.zeros((2, 0, 3), np.float32), "--dim", "A=..4", "--dim", "B=..4")
    expect("f32[0,0]" in said_, f"Reshape is right now: {said_}")
    squeeze = model_of(folder / "squeeze.onnx", [helper.make_node("Squeeze", ["x"], ["y"])], ["A", 3])
    said_ = run_of(folder, squeeze, np.zeros((1, 3), np.float32), "--dim", "A=..4")
    expect("f32[1,3]" in said_, f"Squeeze is right now: {said_}")
    total = model_of(folder / "sum.onnx", [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], [1000000])
    x = np.random.default_rng(0).random(1000000).astype(np.float32)
    said_ = run_of(folder, total, x, "--target=c", "--cpu=generic")
    found = float(re.search(r"\[([\d.]+)\]", said_).group(1))
    expect(abs(found - x.sum(dtype=np.float64)) > 1, f"the sum is right now: {said_}")
    for k, (text, option) in enumerate(OPEN_WRONG):
        (folder / f"open{k}.tg").write_text(text)
        done = T.run([TGC, folder / f"open{k}.tg", "-o", folder / "open.c", option, "--vectors=never"])
        expect(done.status == 70, f"open size {k} compiles now: {done.status}")


# -------------------------------------------------------------------------------- links and files


def anchors(text):
    """Those of headings, as GitHub and mkdocs make them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^(```+).*?^\1$", "", text, flags=re.M | re.S), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading)
        plain = unicodedata.normalize("NFKD", plain).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


@suite.case("links of all documents lead to files, and to headings")
def links():
    wrong = []
    for page in PAGES:
        prose = re.sub(r"^(```+).*?^\1$|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose):
            if re.match(r"\w+:", target):
                continue
            file = page.parent / target if target else page
            if ROOT / "docs" in page.parents and ROOT / "docs" not in file.resolve().parents:
                wrong.append(f"{page.relative_to(ROOT)}: {target} is not in docs/, so the site does not have it")
            elif not file.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
                wrong.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    expect(not wrong, "no such file or heading:\n" + "\n".join(wrong))


EXAMPLES = {"passes/graph/negate_once.c", "NAME.c", "NAME.h", "toy.c"}      # of the reader's


@suite.case("source files that documents name are there")
def files():
    wrong = []
    for page in [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "internals").glob("*.md")]:
        for name in re.findall(r"`([\w/]+\.(?:c|h|def|py))`", page.read_text()):
            if name in EXAMPLES:
                continue
            where = T.source_files(name) if "/" not in name else [ROOT / name, ROOT / "passes" / name, ROOT / "backends" / name]
            if not any(path.exists() for path in where):
                wrong.append(f"{page.name}: {name}")
    expect(not wrong, "no such file:\n" + "\n".join(wrong))


# ------------------------------------------------------------------------------------------- SBOM


def opened_libraries():
    """Stems of the libraries whose names stand in the sources."""
    found = set()
    for folder in ("backends", "cli", "lib", "runtime"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".c", ".h", ".def"):
                for name in re.findall(r'"([^" %]*(?:lib[\w%-]+\.so|lib\w+\.A\.dylib|\.framework/\w+)|lib\w+-%d\.so|lib\w+\.so\.%d)[.\d%d]*"', path.read_text()):
                    found.add(re.split(r"[.]|-%d", name.rpartition("/")[2])[0])
    return found


@suite.case("the SBOM is SPDX, and has every library that is opened and every dependency of the build")
def bill():
    document = json.loads(T.must(T.run([sys.executable, ROOT / "scripts" / "sbom.py"], env={"SOURCE_DATE_EPOCH": "0"})).out)
    for field in ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages", "relationships"):
        expect(document.get(field), f"no {field}")
    expect(document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0", "another version of SPDX")
    expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"]) and document["creationInfo"]["creators"], "when, by whom")
    for package in document["packages"]:
        for field in ("SPDXID", "name", "downloadLocation", "licenseDeclared", "licenseConcluded", "copyrightText"):
            expect(package.get(field), f"{package.get('name')}: no {field}")
        expect(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"]), package["SPDXID"])
    known = [package["SPDXID"] for package in document["packages"]]
    expect(len(set(known)) == len(known), "two packages of one identity")
    for relation in document["relationships"]:
        ends = {relation["spdxElementId"], relation["relatedSpdxElement"]} - {"SPDXRef-DOCUMENT"}
        expect(ends <= set(known), f"{relation}")
    names = {word for *_, words in sbom.COMPONENTS for word in words.split()}
    wanted = opened_libraries()
    expect({"libLLVM", "libclang", "libnvrtc", "libOpenCL", "libcuda", "libamdhip64", "libobjc", "Metal"} <= wanted, f"found {wanted}")
    for path in T.source_files("meson.build"):
        if "examples" not in path.relative_to(ROOT).parts:
            wanted |= set(re.findall(r"(?:dependency|find_library)\('([\w.-]+)'", path.read_text()))
    setup = text_of("scripts/setup.sh")
    for variable in ("build", "reads", "check"):
        wanted |= set(re.search(rf"^{variable}='([^']*)'", setup, re.M).group(1).split())
    wanted |= set(sbom.pins()) | set(json.loads(re.search(r"requires = (\[.*\])", text_of("pyproject.toml")).group(1).replace(">=0.63", "")))
    expect(wanted <= names, f"no row of scripts/sbom.py: {sorted(wanted - names)}")


suite.main()
