"""A test suite that prints TAP: the one runner of every Python suite here.

A suite registers cases, each a name and a function. A case passes when its function
returns, fails when it raises, and is skipped, with the reason shown, when it raises Skip.
Cases marked slow run only with --all. Cases run on a few threads, since nearly all their
time is spent in other programs; what is printed stays in the order of registration.

    suite = Suite("cli")

    @suite.case("unknown option")
    def unknown_option(): ...

    suite.add("name", function, argument, slow=True)
    suite.main()
"""

import argparse
import gc
import os
import re
import shutil
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


gc.disable()        # until cases run


class Skip(Exception):
    """The case cannot run here; its text says why."""


class Failure(Exception):
    """The case found something wrong; its text is all that a reader needs."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


class Suite:
    def __init__(self, name, jobs=None):
        self.name = name
        self.jobs = jobs
        self.cases = []
        self.options = None

    def add(self, name, function, *arguments, slow=False):
        self.cases.append((name, function, arguments, slow))

    def case(self, name, slow=False):
        def register(function):
            self.add(name, function, slow=slow)
            return function
        return register

    def folder_case(self, root):
        """Like case(), for functions that take an empty folder of their own under `root`."""
        import tgc  # which imports this module

        def case(name, slow=False):
            def register(function):
                def inside():
                    folder = tgc.scratch(root / re.sub(r"\W", "_", name))
                    try:
                        function(folder)
                    finally:
                        shutil.rmtree(folder, ignore_errors=True)
                self.add(name, inside, slow=slow)
                return function
            return register
        return case

    def parse(self, extra=None):
        """Reads the command line; called early by suites whose cases depend on it."""
        parser = argparse.ArgumentParser(description=f"the {self.name} tests")
        parser.add_argument("--all", action="store_true", help="run the slow cases too")
        parser.add_argument("--jobs", type=int, default=2)
        parser.add_argument("--filter", default="", help="run the cases whose name matches")
        parser.add_argument("--part", default="1/1", help="K/N: of the cases every N-th, from the K-th on")
        parser.add_argument("--results", help="a file of verdicts, one a line: cases that it has do not run, others are added, so that a run that was "
                            "stopped goes on; who has mended something takes the lines with 'failed' away")
        parser.add_argument("--seconds", type=float, help="start no case later than this; with --results the next run goes on")
        parser.add_argument("--stop", action="store_true", help="end with the first case that fails")
        parser.add_argument("--list", action="store_true", help="print the names and stop")
        parser.add_argument("--build", default="build", help="Meson's build folder")
        parser.add_argument("--times", action="store_true", help="print each case's seconds, and those of a processor: with --jobs 1 its own")
        if extra:
            extra(parser)
        self.options = parser.parse_args()
        return self.options

    def chosen(self):
        """The cases that the command line asks for, in their order."""
        chosen = [case for case in self.cases
                  if (self.options.all or not case[3]) and re.search(self.options.filter, case[0])]
        part, parts = map(int, self.options.part.split("/"))
        noted = self.noted()
        return [case for case in chosen[part - 1::parts] if case[0] not in noted]

    def noted(self):
        """The names in --results."""
        path = self.options.results
        lines = Path(path).read_text().splitlines() if path and Path(path).exists() else []
        return {line.partition(" ")[2] for line in lines}

    def note(self, name, verdict):
        if self.options.results:
            with open(self.options.results, "a") as file:
                file.write(f"{verdict} {name}\n")

    def main(self):
        options = self.options = self.options or self.parse()
        chosen = self.chosen()
        if options.list:
            for case in chosen:
                print(case[0])
            return
        gc.freeze()     # what is here stays; cases that collect garbage need not look at it
        gc.enable()
        print(f"1..{len(chosen)}", flush=True)
        failed, start = 0, time.monotonic()
        jobs = self.jobs or options.jobs
        with ThreadPoolExecutor(jobs) as pool:
            # one job: by this thread, which prints: a case may replace sys.stdout for a while
            running = [pool.submit(_run_case, case) for case in chosen] if jobs > 1 else chosen
            for number, (case, future) in enumerate(zip(chosen, running), 1):
                verdict, text, seconds, worked = future.result() if jobs > 1 else _run_case(case)
                print(_tap_line(number, case[0], verdict, text), flush=True)
                if options.times:
                    print(f"# {seconds:.2f} s, {worked:.2f} of a processor", flush=True)
                failed += verdict == "failed"
                self.note(case[0], verdict)
                if failed and options.stop or options.seconds and time.monotonic() - start > options.seconds:
                    pool.shutdown(cancel_futures=True)
                    break
        sys.exit(1 if failed else 0)


def _processor_seconds():
    """Of this process, and of those that have ended which it started."""
    return sum(os.times()[:4])


def _run_case(case):
    start, worked = time.monotonic(), _processor_seconds()
    try:
        case[1](*case[2])
        verdict, text = "passed", ""
    except Skip as skip:
        verdict, text = "skipped", str(skip)
    except Failure as failure:
        verdict, text = "failed", str(failure)
    except Exception:  # a case may raise anything; that is a failure of that case alone
        verdict, text = "failed", traceback.format_exc()
    return verdict, text, time.monotonic() - start, _processor_seconds() - worked


def _tap_line(number, name, verdict, text):
    if verdict == "passed":
        return f"ok {number} - {name}"
    if verdict == "skipped":
        return f"ok {number} - {name} # SKIP {' '.join(text.split())}"
    shown = "\n".join("# " + line for line in text.strip().splitlines()[:60])
    return f"not ok {number} - {name}\n{shown}"
