"""Reads a page of the guide and does in a folder what it says: the guide is its own test.

A page is Markdown whose fenced blocks are one of

    ```console               `$ command` lines, each followed by what it prints (both streams);
                             a command goes on after a backslash, or on lines that begin with `> `
    ```c title="main.c"      a file, of any language, written before what follows
    ```text                  neither run nor written

In what a command prints `...` stands for anything within a line, and a line `...` for any lines.
Commands of a page share one bash, so that `cd` and `export` last. One that fails is an error, unless
the next one is `echo $?`. After `<!-- needs: PROGRAM|/FILE ... -->` the rest of the section is left
out where a program is missing. A page with `<!-- slow: WHY -->` is run with --all. One with
`<!-- tested by: FILE -->` has blocks of its own kinds, which that test reads.
"""

import functools
import os
import re
import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from suite import Failure

END = "guide-command-ended"


@dataclass
class Step:
    """A file to be written, or a command with the lines that it shall print."""
    line: int                       # in the page, from 1: of the fence, or of the command
    needs: tuple
    file: str = ""
    text: str = ""
    shown: list = field(default_factory=list)
    first: int = 0                  # index of the first shown line in the page

    def missing(self):
        return [what for what in self.needs if not (Path(what).exists() if "/" in what else shutil.which(what))]


def tested_by(path):
    """The test that reads the page instead, relative to the project; None: this one does."""
    found = re.search(r"^<!-- tested by: (\S+) -->$", path.read_text(), re.M)
    return found and found.group(1)


def read(path):
    """The steps of a page, in order."""
    steps, needs, lines = [], (), path.read_text().splitlines()
    if tested_by(path):
        return []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        comment = re.fullmatch(r"<!-- needs: (.*) -->", line)
        if comment:
            needs = tuple(comment.group(1).split())
        elif re.match(r"##? ", line):
            needs = ()
        fence = re.match(r"\s*(`{3,}|~{3,})\s*(.*)", line)
        if not fence:
            continue
        begin = at
        while at < len(lines) and lines[at].strip() != fence.group(1):
            at += 1
        if at == len(lines):
            raise Failure(f"{path.name}:{begin}: this block has no end")
        steps += _read_block(path, fence.group(2), lines, begin, at, needs)
        at += 1
    return steps


def _read_block(path, info, lines, begin, end, needs):
    title = re.fullmatch(r'[\w+-]+ title="([^"]+)"', info)
    if title:
        if Path(title.group(1)).is_absolute() or ".." in Path(title.group(1)).parts:
            raise Failure(f"{path.name}:{begin}: {title.group(1)} is not a file of the page's folder")
        return [Step(begin, needs, file=title.group(1), text="\n".join(lines[begin:end]) + "\n")]
    if info == "text":
        return []
    if info != "console":
        raise Failure(f"{path.name}:{begin}: a block is console, text, or has a title; found '{info}'")
    steps, at = [], begin
    while at < end:
        if not lines[at].startswith("$ "):
            raise Failure(f"{path.name}:{at + 1}: a console block begins with '$ '")
        step = Step(at + 1, needs, text=lines[at][2:])
        while at + 1 < end and (lines[at + 1].startswith("> ") or lines[at].endswith("\\")):
            at += 1
            step.text += "\n" + lines[at].removeprefix("> ")
        at += 1
        step.first = at
        while at < end and not lines[at].startswith("$ "):
            step.shown.append(lines[at])
            at += 1
        steps.append(step)
    return steps


def _line_fits(shown, line):
    return re.fullmatch(".*".join(map(re.escape, shown.split("..."))), line) is not None


def align(shown, printed):
    """The fewest changes that make the shown lines fit, as (their number, the changed lines).

    A shown line that fits stays as it is, with its `...`; others give way to what was printed."""
    @functools.cache
    def best(i, j):                 # of shown[i:] and printed[j:]: the number, and what the first is
        if i == len(shown):
            return len(printed) - j, "insert"
        ways = [(2 + best(i + 1, j)[0], "drop")]
        if shown[i] == "...":
            ways.append((best(i + 1, j)[0], "skip"))
        if j < len(printed):
            if shown[i] != "...":
                ways.append((1 + best(i + 1, j + 1)[0], "replace"))
            ways.append((1 + best(i, j + 1)[0], "insert"))
            if shown[i] == "...":
                ways.append((best(i, j + 1)[0], "absorb"))
            elif _line_fits(shown[i], printed[j]):
                ways.append((best(i + 1, j + 1)[0], "keep"))
        return min(ways, key=lambda way: way[0])

    for back in range(len(shown) + len(printed), -1, -1):       # fill the cache without deep recursion
        for i in range(len(shown) + 1):
            if 0 <= back - i <= len(printed):
                best(i, back - i)
    lines, i, j = [], 0, 0
    while i < len(shown) or j < len(printed):
        way = best(i, j)[1]
        if way in ("keep", "skip"):
            lines.append(shown[i])
        elif way in ("insert", "replace"):
            lines.append(printed[j])
        i += way in ("keep", "skip", "drop", "replace")
        j += way in ("keep", "insert", "absorb", "replace")
    return best(0, 0)[0], lines


class Shell:
    """A bash whose commands are run one by one."""

    def __init__(self, folder, path):
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, text=True, errors="replace", stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={"PATH": path, "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8", "TERM": "dumb"})

    def run(self, command, timeout):
        """The exit status (None: it took too long, or ended the shell) and the lines printed."""
        late = threading.Timer(timeout, self.kill)
        late.start()
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\nguide=$?; "
                                 f"printf '\\n%s %d\\n' {END} $guide; (exit $guide)\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith(END):
                late.cancel()
                if lines[-1] == "":             # of printf's, where the output ends with a line's end
                    lines.pop()
                return int(line.split()[1]), lines
            lines.append(line.rstrip("\n"))
        late.cancel()
        return None, lines

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def follow(page, folder, path, timeout=120, bless=False):
    """Does what the page says in the folder; a Failure tells what came out otherwise.

    With bless, outputs that differ are written into the page."""
    steps = [step for step in read(page) if not step.missing()]
    changes, shell = [], Shell(folder, path)
    try:
        for step, after in zip(steps, steps[1:] + [None]):
            if step.file:
                (folder / step.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / step.file).write_text(step.text)
                continue
            status, printed = shell.run(step.text, timeout)
            where = f"{page.name}:{step.line}: $ {step.text}"
            if status is None:
                raise Failure("\n".join([where, f"ended the shell, or took longer than {timeout} s", *printed]))
            if status != 0 and not (after and after.text == "echo $?"):
                raise Failure("\n".join([where, f"exit status {status}", *printed]))
            changed, lines = align(step.shown, printed)
            if changed and not bless:
                raise Failure("\n".join([where, "shown:", *step.shown, "printed:", *printed]))
            if changed:
                changes.append((step, lines))
    finally:
        shell.close()
    if changes:
        text = page.read_text().splitlines()
        for step, lines in reversed(changes):
            text[step.first:step.first + len(step.shown)] = lines
        page.write_text("\n".join(text) + "\n")
