"""Images, half storage and kernels without local memory of the OpenCL target (--image, --half-storage, --no-locals), by the driver that is
here: what the interpreter computes, or near it by halves; what the kernels' text has, and what init says where a device cannot do it.
tests/emulator runs the same models in all ways in which images can be made.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import tgc as T  # noqa: E402
from library import Library  # noqa: E402
from opencl import need_device  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("device images", jobs=1)      # a driver is one of the process
ROWS = ("adreno630", "generic-gpu")
OPTIONS = (("--no-locals",), ("--half-storage", "--no-locals"), ("--half-storage",), ())
MODELS = {
    # what is passed on as halves is a result of halves, too
    "halves of a value": """tg 1
input %x : f32[4, 8]
weight %w : f32[8, 8] = normal(seed=1)
%t = matmul(%x, %w)
%s = matmul(%t, %w)
%h = cast(%t) {to=f16}
output %s
output %h
""",
    # padded, so pixels outside are read: a convolution of 3x3, one of 1x1, a pool
    "convolutions": """tg 1
input %x : f32[1, 8, 12, 12]
weight %w : f32[16, 8, 3, 3] = kaiming_uniform(seed=1)
weight %v : f32[8, 16, 3, 3] = kaiming_uniform(seed=2)
weight %u : f32[32, 8, 1, 1] = kaiming_uniform(seed=3)
%a = conv2d(%x, %w) {padding=1}
%b = relu(%a)
%c = conv2d(%b, %v) {padding=1}
%d = relu(%c)
%e = conv2d(%d, %u)
%y = max_pool2d(%e) {kernel=2}
output %y
""",
    "layers": """tg 1
input %x : f32[B<=5, 32]
weight %w : f32[32, 64] = glorot_uniform(seed=1)
weight %b : f32[64] = uniform(seed=2)
weight %v : f32[64, 32] = glorot_uniform(seed=3)
weight %u : f32[32, 32] = glorot_uniform(seed=4)
%h = matmul(%x, %w)
%c = add(%h, %b)
%r = relu(%c)
%g = matmul(%r, %v)
%t = tanh(%g)
%z = matmul(%t, %u)
%y = softmax(%z) {axis=-1}
output %y
""",
    # two layers of one shape: one program, two tensors
    "twins": """tg 1
input %x : f32[8, 32]
weight %w : f32[32, 32] = glorot_uniform(seed=1)
weight %v : f32[32, 32] = glorot_uniform(seed=2)
weight %u : f32[32, 32] = glorot_uniform(seed=3)
%a = matmul(%x, %w)
%b = relu(%a)
%c = matmul(%b, %v)
%d = relu(%c)
%e = matmul(%d, %u)
output %e
""",
}
BEYOND = """tg 1
input %x : f32[4, 8]
weight %w : f32[8, 8] = uniform(low=1, high=1, seed=1)
%a = matmul(%x, %w)
%b = matmul(%a, %w)
output %b as "y"
"""


def compiled(folder, text, *options):
    T.scratch(folder)
    (folder / "m.tg").write_text(text)
    done = T.must(T.run([T.find_tgc(suite.options.build), "m.tg", "-o", "m.c", "--target=opencl", *options], cwd=folder))
    return (folder / "m.c").read_text(), done


def right(folder, name, row, options):
    """The program's own check of its reference vectors, for the first way that the driver has, and by copies."""
    need_device()
    compiled(folder, MODELS[name], f"--cpu={row}", "--image", *options)
    T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "-DM_MAIN", "m.c", "-o", "m", "-lm", "-ldl"], cwd=folder))
    has_images = "read_only" in (folder / "m.c").read_text()
    for more in ((), ("--images", "3")) if has_images else ((),):
        done = T.run([folder / "m", "--selftest", *more], cwd=folder, timeout=120)
        expect(done.status == 0, done.describe())


def model(folder, path, row, options):
    need_device()
    T.scratch(folder)
    T.must(T.run([T.find_tgc(suite.options.build), path, "-o", "m.c", "--target=opencl", f"--cpu={row}", *options], cwd=folder))
    T.build(folder / "m.c", folder / "m")
    done = T.run([folder / "m", "--selftest"], cwd=folder, timeout=300)
    expect(done.status == 0 or "no reference vectors" in done.out.decode() + done.err, done.describe())


def text_of_kernels(folder):
    """Weights and what layers pass on are images, inputs are not; what is outside costs no selection; without locals there is no barrier."""
    text, _ = compiled(folder, MODELS["convolutions"], "--cpu=adreno630", "--image", "--no-locals")
    kernels = re.findall(r"kernel void \w+\((.*?)\)\\n\"\n", re.sub(r"\\n\"\n *\" +", " ", text))
    expect(len(kernels) >= 3, f"{kernels}")
    expect(all("read_only image2d_pixels w" in k for k in kernels if " w" in k), f"{kernels}")
    expect(sum("read_only image2d_pixels x" in k for k in kernels) >= 2, f"{kernels}")
    rows, _ = compiled(folder, (ROOT / "models/mnist_cnn.tg").read_text(), "--cpu=adreno630", "--image", "--no-locals")
    expect("image_where_f32x4(x" in rows and not re.search(r"= [^#]*\? *image_", rows), "rows beyond the last select among pixels")
    expect("barrier(" not in text and "local float" not in text and "reqd_work_group_size" not in text, "there are blocks")
    halves, _ = compiled(folder, MODELS["convolutions"], "--cpu=adreno630", "--image", "--no-locals", "--half-storage")
    expect(re.search(r"static const struct image_of image_of\[\] = \{\n(    \{.*, true\},\n)+\};", halves), "an image is not of halves")


def counts(folder):
    """What info tells: most of what is read is images, none selected away; by halves fewer bytes are moved."""
    run = {}
    for options in ((), ("--half-storage",)):
        done = T.must(T.run([T.find_tgc(suite.options.build), "info", "--json", "--target=opencl", "--cpu=adreno630", "--image", "--no-locals",
                             *options, ROOT / "models/mnist_cnn.tg"], cwd=T.scratch(folder)))
        run[options] = json.loads(done.out)["device"]
    for told in run.values():
        expect(told["image_reads"] > 0 and told["gated_image_reads"] == 0 and told["images"] > told["buffers"], f"{told}")
    expect(run[("--half-storage",)]["moved_bytes"] < 0.6 * run[()]["moved_bytes"], f"{run}")


def beyond_half(folder):
    """What is beyond the largest half becomes infinite, and only that."""
    need_device()
    compiled(folder, BEYOND, "--half-storage")
    T.must(T.run(["gcc", T.LEVEL, "-shared", "-fPIC", "m.c", "-o", "m.so", "-lm"], cwd=folder))
    x = np.ones((4, 8), np.float32)
    x[1], x[2] = 8000, 9000                             # sums of 64000, and of 72000
    y = Library(folder / "m.so", "m").run({"x": x})["y"]
    expect(np.array_equal(y[:, 0], [64, 512000, np.inf, 64]), f"{y[:, 0]}")
    _, done = compiled(folder, BEYOND.replace("low=1, high=1", "low=70000, high=70000"), "--half-storage")
    expect("weight 'w' has an element beyond 65504" in done.err, done.describe())


def refused(folder):
    """They are for devices; options.images names a way that there is."""
    T.scratch(folder)
    (folder / "m.tg").write_text(MODELS["layers"])
    for option in ("--image", "--half-storage", "--no-locals"):
        done = T.run([T.find_tgc(suite.options.build), "m.tg", "-o", "m.c", option], cwd=folder)
        expect(done.status == 2 and f"{option} is for devices" in done.err, done.describe())
    need_device()
    compiled(folder, MODELS["layers"], "--cpu=adreno630", "--image", "--no-locals")
    T.must(T.run(["gcc", T.LEVEL, "-DM_MAIN", "m.c", "-o", "m", "-lm"], cwd=folder))
    done = T.run([folder / "m", "--selftest", "--images", "4"], cwd=folder)
    expect(done.status != 0 and "an option has a value" in done.err + done.out.decode(), done.describe())


def main():
    suite.parse()
    scratch = Path(suite.options.build).resolve() / "test-scratch" / "device-images"
    suite.add("the text of the kernels", text_of_kernels, scratch / "text")
    suite.add("counts", counts, scratch / "counts")
    suite.add("beyond the largest half", beyond_half, scratch / "beyond")
    suite.add("refused", refused, scratch / "refused")
    for number, name in enumerate(MODELS):
        for row in ROWS:
            for k, options in enumerate(OPTIONS):
                suite.add(f"{name}, {row}, {' '.join(options) or 'floats'}", right, scratch / f"{name}-{row}-{k}", name, row, options,
                          slow=row != "adreno630" or k != (number + 1) % len(OPTIONS))
    for path in sorted((ROOT / "models").glob("*.tg")):
        for row in ROWS:
            for k, options in enumerate((("--image",), ("--image", "--half-storage", "--no-locals"), ("--no-locals",))):
                suite.add(f"{path.name}, {row}, {' '.join(options)}", model, scratch / f"{path.stem}-{row}-{k}", path, row, options, slow=True)
    suite.main()


if __name__ == "__main__":
    main()
