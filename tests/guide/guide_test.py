"""The guide does what it says: every command of docs/guide/ and README.md is run, every output shown is compared.

One case a page, in a folder of its own with the models of models/ and examples/openpilot in it and the built tgc on PATH. A README.md of
examples/ is followed in its own folder.
`--bless` writes what was printed into the pages; read the difference. How a page is written:
tests/guide/pages.py. What runs the pages is tested on small pages here.
"""

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE)]

import pages
import tgc as T
from suite import Failure, Skip, Suite, expect

PAGES = [ROOT / "README.md", ROOT / "docs" / "custom-operators.md", *sorted((ROOT / "docs" / "guide").glob("*.md")),
         *sorted((ROOT / "examples").glob("*/README.md"))]

suite = Suite("guide")
OPTIONS = suite.parse(lambda parser: parser.add_argument("--bless", action="store_true",
                                                         help="write what is printed into the pages"))
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "guide"
case = suite.folder_case(SCRATCH / "runner")


def search_path(folder):
    """A PATH with the tgc under test and this Python, as `python3`, before the system's."""
    folder.mkdir()
    (folder / "tgc").symlink_to(T.find_tgc(OPTIONS.build).resolve())
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])


def follow_page(page):
    if pages.tested_by(page):
        expect(page.name in (ROOT / pages.tested_by(page)).read_text(), f"{pages.tested_by(page)} does not read {page.name}")
        return
    outer = T.scratch(SCRATCH / page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "-"))
    folder = outer / "work"
    (folder / "models").mkdir(parents=True)
    for model in (ROOT / "models").glob("*.tg"):
        (folder / "models" / model.name).write_bytes(model.read_bytes())
    shutil.copytree(ROOT / "examples" / "openpilot", folder / "examples" / "openpilot")
    if page.parent.parent == ROOT / "examples":
        shutil.copytree(page.parent, folder / "examples" / page.parent.name)
        shutil.copy(ROOT / "examples" / "digits.onnx", folder / "examples")
        folder = folder / "examples" / page.parent.name
    pages.follow(page, folder, search_path(outer / "bin"), bless=OPTIONS.bless)


def left_out(count, missing):
    raise Skip(f"{count} commands need {', '.join(missing)}")


# ------------------------------------------------------------------------ what runs the pages

SMALL = """# A page

```text
$ false
```

```sh title="in/say.sh"
echo "found $1, 5 lines"
seq $2
exit $3
```

```console
$ sh in/say.sh \\
>     here 5 0
found here, ... lines
1
...
5
$ cd in && export WHAT=there
$ sh say.sh $WHAT 0 7 && true
found there, 5 lines
$ echo $?
7
$ printf 'no line end'
no line end
```
"""


def follow_text(folder, text, **more):
    page = folder / "page.md"
    page.write_text(text)
    work = T.scratch(folder / "work")
    pages.follow(page, work, os.environ["PATH"], **more)
    return page.read_text()


def fails(folder, text, *words, **more):
    try:
        follow_text(folder, text, **more)
    except Failure as failure:
        for word in words:
            expect(word in str(failure), f"the failure does not say '{word}': {failure}")
        return
    raise Failure("the page is taken for right")


@case("a page that is right")
def right(folder):
    follow_text(folder, SMALL)
    expect((folder / "work/in/say.sh").read_text().startswith("echo"), "the file is not written")


@case("a changed output is found")
def changed(folder):
    fails(folder, SMALL.replace("here, ... lines", "here, ... line"), "page.md:14", "shown:", "found here, 5 lines")
    fails(folder, SMALL.replace("...\n5\n", "...\n6\n"), "page.md:14")
    fails(folder, SMALL.replace("...\n5\n", ""), "page.md:14")
    fails(folder, SMALL.replace("no line end\n```", "no line\n```"), "page.md:25")
    fails(folder, SMALL.replace("no line end\n```", "```"), "page.md:25")
    fails(folder, "```console\n$ echo bad >&2\n```\n", "printed:", "bad")


@case("a failing command is found")
def failing(folder):
    fails(folder, SMALL.replace("$ echo $?\n7\n", ""), "page.md:21", "exit status 7")
    fails(folder, "```console\n$ no-such-command\n```\n", "exit status 127")
    fails(folder, "```console\n$ exit 0\n```\n", "ended the shell")
    fails(folder, "```console\n$ sleep 60\n```\n", "took longer than", timeout=1)
    fails(folder, "```console\n$ echo 'open\n```\n", "page.md:2", timeout=1)


@case("blocks that nobody runs are refused")
def refused(folder):
    fails(folder, "```c\nint x;\n```\n", "page.md:1", "'c'")
    fails(folder, "- a list\n\n  ```\n  $ true\n  ```\n", "page.md:3")
    fails(folder, "```console\noutput\n```\n", "page.md:2")
    fails(folder, "```console\n$ true\n", "no end")
    fails(folder, '```c title="../main.c"\n```\n', "../main.c")


@case("what needs a missing program is left out to the end of its section")
def needs(folder):
    text = "## One\n<!-- needs: no-such-program -->\n```console\n$ no-such-program\n```\n## Two\n```console\n$ true\n```\n"
    follow_text(folder, text)
    steps = pages.read(folder / "page.md")
    expect([step.missing() for step in steps] == [["no-such-program"], []], f"{steps}")


@case("--bless writes what is printed, and keeps what fits")
def bless(folder):
    wrong = SMALL.replace("1\n...\n5", "2\n...\n6").replace("there, 5 lines\n", "there, 4 lines\nmore\n")
    wrong = wrong.replace("no line end\n```", "```")
    expect(follow_text(folder, wrong, bless=True) == SMALL, f"not as it was:\n{(folder / 'page.md').read_text()}")


# ------------------------------------------------------------------------------------ the pages

commands = 0
for page in PAGES:
    suite.add(str(page.relative_to(ROOT)), follow_page, page, slow="\n<!-- slow: " in page.read_text())
    steps = pages.read(page)
    commands += sum(not step.file for step in steps)
    missing = sorted({program for step in steps for program in step.missing()})
    if missing:
        suite.add(f"{page.relative_to(ROOT)}: what needs {', '.join(missing)}", left_out,
                  sum(not step.file and bool(step.missing()) for step in steps), missing)


# ------------------------------------------------------------------------------------- the site


def build_site(root, site):
    if not importlib.util.find_spec("mkdocs"):
        raise Skip("no mkdocs here; scripts/setup.sh site installs it")
    return T.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site, "--config-file", root / "mkdocs.yml"])


@case("the site builds, and reading it needs no network", slow=True)
def site(folder):
    T.must(build_site(ROOT, folder / "site"))
    written = list((folder / "site").rglob("*.html"))
    expect(len(written) > len(PAGES), f"few pages: {written}")
    for path in [*written, *(folder / "site").rglob("*.css")]:
        fetched = re.findall(r"""(?:src=|<link[^>]*href=|url\()["']?(?:https?:)?//[^\s"')]+""", path.read_text())
        expect(not fetched, f"{path.name} fetches {fetched}")


@case("the site does not build with a broken link, or one to a heading that is not there", slow=True)
def broken_link(folder):
    for link in ("no-page.md", "embedding.md#no-heading"):
        root = T.scratch(folder / "root")
        shutil.copy(ROOT / "mkdocs.yml", root)
        shutil.copytree(ROOT / "docs", root / "docs")
        with open(root / "docs" / "guide" / "tuning.md", "a") as page:
            page.write(f"\n[link]({link})\n")
        done = build_site(root, folder / "site")
        expect(done.status != 0 and link.partition("#")[2] in done.err, f"{link} is taken: {done.describe()}")


if not OPTIONS.list:
    print(f"# {commands} commands on {len(PAGES)} pages", flush=True)
suite.main()
