"""The visual report of small and large models: its size, what tgc takes to write it, and headless Chromium to draw it.

    bench/report.py [--build BUILD] [--models mnist_cnn,graph_20000]

A line a model, as docs/benchmark.md has them: seconds of tgc -o NAME.html and of tgc -o NAME.c; megabytes; milliseconds to the first contentful
paint; frames a second while the model's graph is moved, at the scale at which it begins and from where all of it is seen; the slowest picture of a
pass, milliseconds from its address to its frame; frames a second while that is moved.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("tests/lib", "tests/models", "tests/onnx", "bench")]

import onnx

import graphs as G
import tgc as T
from browser import Browser, find_browser

SECONDS = 2
PAN = """new Promise(done => {
  const stage = %s, start = performance.now();
  let n = 0;
  const step = now => {
    stage.pan(n %% 60 < 30 ? 9 : -9, n %% 60 < 30 ? 7 : -7);
    n++;
    if (now - start < 1000 * %d) requestAnimationFrame(step); else done(1000 * n / (now - start));
  };
  requestAnimationFrame(step);
})"""
STEP = """new Promise(done => {
  const start = performance.now();
  showPass(%r);
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""


def model_of(name, folder):
    if name == "mnist_cnn":
        return ROOT / "models/mnist_cnn.tg"
    path = folder / f"{name}.onnx"
    if name.startswith("graph_"):
        onnx.save(G.blocks(int(name[6:])), path)
    else:
        import models
        made = next(m for m in models.make_list() if m.name == name).make()
        if not isinstance(made, onnx.ModelProto):
            return Path(made)
        onnx.save(made, path)
    return path


def write(tgc, model, out):
    start = time.monotonic()
    T.must(T.run([tgc, model, "-o", out], timeout=1800))
    return time.monotonic() - start


def draw(page):
    with Browser() as b:
        b.open(page)
        time.sleep(0.5)
        first = b.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        b.run("location.hash = '#graph'")
        b.frame()
        frames = [b.run(PAN % ("views.graph.view.stage", SECONDS))]
        b.run("views.graph.view.show('model')")
        b.run("views.graph.view.stage.fit(views.graph.view.graph.box)")
        frames.append(b.run(PAN % ("views.graph.view.stage", SECONDS)))
        b.run("location.hash = '#passes'")
        b.frame()
        steps = {name: b.run(STEP % name) for name in b.run("[...document.querySelectorAll('.steps a')].map(a => a.textContent)")}
        moved = 0
        if steps:
            b.run(STEP % max(steps, key=steps.get))
            b.run("picture.view.choice.value = 'all'; picture.view.show('all')")
            moved = b.run(PAN % ("picture.view.stage", SECONDS))
        assert not b.complaints, b.complaints
        return first, frames, max(steps.values(), default=0), moved


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--models", default="mnist_cnn,mobilenet_v2,vit_b_16,graph_20000")
    options = parser.parse_args()
    tgc = T.find_tgc(options.build).resolve()
    if not find_browser():
        sys.exit("no Chromium (scripts/setup.sh check-all installs it)")
    print("| model | `.html`, s | `.c`, s | MB | first paint, ms | frames/s | all in view | slowest pass, ms | frames/s |\n|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name in options.models.split(","):
            model, page = model_of(name, folder), folder / f"{name}.html"
            seconds = [write(tgc, model, page), write(tgc, model, folder / f"{name}.c")]
            first, frames, step, moved = draw(page)
            print(f"| {name} | {seconds[0]:.1f} | {seconds[1]:.1f} | {page.stat().st_size / 1e6:.1f} | {first:.0f} | {frames[0]:.0f} | {frames[1]:.0f} "
                  f"| {step:.0f} | {moved:.0f} |", flush=True)


if __name__ == "__main__":
    main()
