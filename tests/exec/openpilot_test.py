"""openpilot's example: the outputs of its entries against NumPy (warp, queues) and ONNX Runtime (both networks), frame by frame.

Where a point lies between two pixels, rounding decides: there the reference takes either. So queues of images are compared with the
warp, and what the networks see is read out of the model's own queues.
"""

import ctypes as C
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import tgc as T  # noqa: E402
import emulator  # noqa: E402
from library import Library, pointer  # noqa: E402
from opencl import Driver, Options, need_device  # noqa: E402
from suite import Suite, expect  # noqa: E402

EXAMPLE = ROOT / "examples" / "openpilot"
suite = Suite("openpilot", jobs=1)     # a driver is one of the process
OPTIONS = suite.parse(lambda parser: parser.add_argument("--drive", nargs=2, type=Path, help="used by a case"))
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = (Path if OPTIONS.drive else T.scratch)(Path(OPTIONS.build).resolve() / "test-scratch" / "openpilot")
CAMERAS = {"tici": (1928, 1208, 2048, 2048 * 1216, 2048 * (1216 + 608)), "mici": (1344, 760, 1408, 1408 * 768, 1408 * (768 + 384))}
DIM_MISMATCH, DIM_OUT_OF_RANGE, MISSING_INPUT, BAD_OPTIONS = 13, 6, 4, 7


def networks(size):
    """The folder with the two ONNX files and the text."""
    folder = SCRATCH / f"networks-{size}"
    if not folder.exists():
        folder.mkdir()
        T.must(T.run([sys.executable, EXAMPLE / "make_networks.py", "--folder", folder, "--size", size]))
        shutil.copy(EXAMPLE / "pilot.tg", folder)
    return folder


# ------------------------------------------------------------------------------------- the reference


class Reference:
    """What the entries compute, in double precision where a point is looked for."""

    def __init__(self, folder):
        def session(name):
            return onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        self.vision, self.policy = session("vision"), session("policy")
        self.reset()

    def reset(self):
        self.images = [np.zeros((5, 6, 128, 256), np.uint8) for _ in range(2)]
        self.features, self.desires = np.zeros((97, 512), np.float32), np.zeros((100, 8), np.float32)

    def look(self, images):
        return [np.concatenate([q[0], q[4]])[None] for q in images]

    def see(self, images):
        return self.vision.run(None, dict(zip(("img", "big_img"), self.look(images))))[0]

    def plan(self, features, desire, traffic):
        self.features = np.concatenate([self.features[1:], features])
        self.desires = np.concatenate([self.desires[1:], desire])
        return self.policy.run(None, {"features_buffer": self.features[None, ::4], "traffic_convention": traffic,
                                      "desire_pulse": self.desires.reshape(25, 4, 8).max(1)[None]})[0]


def points(matrix, rows, columns):
    y, x = np.mgrid[:rows, :columns].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2]
        return [(m[0] * x + m[1] * y + m[2]) / w for m in matrix[:2]]


def neighbours(plane, matrix, rows, columns):
    """The pixels that a point may be rounded to, by coordinates that differ by what single precision does to them."""
    px, py = points(matrix, rows, columns)
    found = []
    for dx in (-1, 1):
        for dy in (-1, 1):
            at = [np.where(np.isfinite(c), np.clip(np.rint(c + d * 2e-3), 0, n - 1), 0).astype(int)
                  for c, d, n in ((py, dy, plane.shape[0]), (px, dx, plane.shape[1]))]
            found.append(plane[at[0], at[1]])
    return found


def planes(frame, camera):
    width, height, stride, uv, _ = CAMERAS[camera]
    y = frame[:stride * height].reshape(height, stride)[:, :width]
    pairs = frame[uv:uv + stride * (height // 2)].reshape(height // 2, stride)[:, :width].reshape(height // 2, width // 2, 2)
    return y, pairs[:, :, 0], pairs[:, :, 1]


def check_warp(got, frame, camera, matrix):
    matrix = matrix.astype(np.float64)
    half = matrix * [[1, 1, .5], [1, 1, .5], [2, 2, 1]]
    y, u, v = planes(frame, camera)
    allowed = []
    for luma, *chroma in zip(neighbours(y, matrix, 256, 512), neighbours(u, half, 128, 256), neighbours(v, half, 128, 256)):
        allowed.append(np.stack([luma[0::2, 0::2], luma[1::2, 0::2], luma[0::2, 1::2], luma[1::2, 1::2], *chroma]))
    ok = np.any([got == a for a in allowed], axis=0)
    sure = np.all([a == allowed[0] for a in allowed], axis=0).mean()
    expect(ok.all(), f"{(~ok).sum()} of {ok.size} pixels are no neighbour's, the first at {np.argwhere(~ok)[:1]}")
    return sure


# ----------------------------------------------------------------------------------------- the model


class Pilot(Library):
    """The entries' functions, their structs filled in by order."""

    def enter(self, entry, camera, feeds, results=(), sizes=None, status=0):
        held = [np.ascontiguousarray(a) for a in feeds]
        given = np.array([a.ctypes.data for a in held] + list(sizes or CAMERAS[camera]), np.uint64)
        taken = np.array([a.ctypes.data for a in results] + [0], np.uint64)
        got = self.function(f"{entry}_run")(self.model, pointer(given), pointer(taken))
        expect(got == status, f"{entry}: status {got}, not {status}")

    def drive(self, camera, feeds):
        out = [np.zeros((1, 1576), np.float32), np.zeros((1, 1000), np.float32)]
        self.enter("run", camera, feeds, out)
        return out

    def queues(self):
        block = self.save()
        found = {}
        for s in self.states():
            shape = s.input.bounds()
            dtype = np.uint8 if s.input.dtype == b"u8" else np.float32
            n = int(np.prod(shape)) * dtype().itemsize
            found[s.input.name.decode()] = block[s.input.offset:s.input.offset + n].view(dtype).reshape(shape).copy()
        return found


def build(name, size, *options):
    folder = T.scratch(SCRATCH / name)
    T.must(T.run([TGC, networks(size) / "pilot.tg", "-o", folder / "pilot.c", *options]))
    T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "-shared", "-fPIC", "pilot.c", "-o", "pilot.so", "-lm", "-lpthread"], cwd=folder, timeout=300))
    return folder / "pilot.so"


def scene(random, camera):
    """Frames with detail of several pixels, and matrices: into the frame, beyond its edges, with perspective."""
    _, _, stride, _, nbytes = CAMERAS[camera]
    rows = nbytes // stride
    coarse = random.integers(0, 256, (-(-rows // 6), -(-stride // 6)), np.uint8)
    frames = [np.ascontiguousarray(np.roll(np.kron(coarse, np.ones((6, 6), np.uint8))[:rows, :stride], k, 1)).reshape(-1) for k in (0, 50)]
    near = np.array([[2.2, .1, 300], [-.07, 2.1, 220], [1e-5, -2e-5, 1]]) + random.uniform(-1, 1, (3, 3)) * [[.2, .1, 80], [.1, .2, 80], [1e-5, 1e-5, 0]]
    wide = np.array([[4.2, .2, -200], [.1, 5.1, -90], [0, 1e-4, 1]]) + random.uniform(-1, 1, (3, 3)) * [[.3, .1, 90], [.1, .3, 90], [1e-4, 1e-4, 0]]
    desire = (random.random((1, 8)) < .2).astype(np.float32)
    traffic = np.eye(2, dtype=np.float32)[random.integers(0, 2)][None]
    return [*frames, near.astype(np.float32), wide.astype(np.float32), desire, traffic]


def close(name, got, want, rtol=1e-4):
    error = np.abs(got - want).max() / np.abs(want).max()
    expect(error < rtol, f"{name}: off by {error:.2g} of the largest")


def follow(net, reference, frames, drops, rtol, seed=0):
    """Frames one after the other, some of them dropped."""
    random = np.random.default_rng(seed)
    reference.reset()
    net.reset()
    seen = []
    for step in range(frames):
        camera = ("tici", "mici")[step * 2 // frames]
        feeds = scene(random, camera)
        before = net.queues()
        dropped = step in drops
        out = None if dropped else net.drive(camera, feeds)
        if dropped:
            net.enter("prepare", camera, feeds[:4])
        after = net.queues()
        for k, name in enumerate(("img_queue", "big_img_queue")):
            expect(np.array_equal(after[name][:4], before[name][1:]), f"frame {step}: {name} is not shifted")
            expect(check_warp(after[name][4], feeds[k], camera, feeds[2 + k]) > .9, "the points are too near to ties for a test")
        if dropped:
            expect(all(np.array_equal(before[n], after[n]) for n in ("features_queue", "desire_queue")), f"frame {step}: a drop has changed the past")
            continue
        vision = reference.see([after["img_queue"], after["big_img_queue"]])
        close(f"frame {step}: vision", out[0], vision, rtol)
        policy = reference.plan(out[0][:, 1064:], feeds[4], feeds[5])
        close(f"frame {step}: policy", out[1], policy, rtol)
        expect(np.array_equal(after["features_queue"], reference.features) and np.array_equal(after["desire_queue"], reference.desires),
               f"frame {step}: the queues of features and desires")
        seen.append(out)
    return seen


WAYS = {"C, portable": ("--cpu=generic",), "C": (), "OpenCL, pocl": ("--target=opencl", "--cpu=pocl", "--threads=2"),
        "OpenCL, adreno630": ("--target=opencl", "--cpu=adreno630"), "OpenCL, images": ("--target=opencl", "--cpu=adreno630", "--image"),
        "OpenCL, images of halves, no local memory": ("--target=opencl", "--cpu=adreno630", "--image", "--half-storage", "--no-locals")}


def one(way, size, frames, drops):
    driver = Driver() if "OpenCL" in way else None
    net = Pilot(build(re.sub(r"\W+", "-", way) + size, size, *WAYS[way]), "pilot", Options(queue=driver.queue) if driver else None)
    names(net)
    reference = Reference(networks(size))
    rtol = 2e-2 if "halves" in way else 1e-4         # 50 layers that store halves
    seen = follow(net, reference, frames, drops, rtol)
    again = follow(net, reference, frames, drops, rtol)
    expect(all(np.array_equal(a, b) for x, y in zip(seen, again) for a, b in zip(x, y)), "another run has other bits")
    camera = "tici"
    feeds = scene(np.random.default_rng(1), camera)
    for k in range(2):
        feeds[k] //= 2
    results = []
    for factor in (1, 2, 1):
        net.reset()
        results.append(net.drive(camera, [feeds[0] * factor, feeds[1] * factor, *feeds[2:]]))
    expect(all(np.array_equal(a, b) for a, b in zip(results[0], results[2])), "after a reset the bits are others")
    expect(not any(np.array_equal(a, b) for a, b in zip(results[0], results[1])), "frames twice as bright, and the same bits")
    statuses(net, feeds)
    if driver:
        bound(net, driver)


def statuses(net, feeds):
    """Frames that are described wrongly: a status, and the queues stay as they were."""
    before = net.queues()
    width, height, stride, uv, nbytes = CAMERAS["mici"]
    out = [np.zeros((1, 1576), np.float32), np.zeros((1, 1000), np.float32)]
    for sizes, status in (((width, height, width - 2, uv, nbytes), DIM_MISMATCH), ((width, height, stride, stride * height - 1, nbytes), DIM_MISMATCH),
                          ((width, height, stride, uv, uv + stride * height // 2 - 1), DIM_MISMATCH), ((width - 1, height, stride, uv, nbytes), DIM_MISMATCH),
                          ((1930, height, stride, uv, nbytes), DIM_OUT_OF_RANGE), ((width, height, 4096, uv, nbytes), DIM_OUT_OF_RANGE)):
        net.enter("run", "mici", feeds, out, sizes, status)
        net.enter("prepare", "mici", feeds[:4], (), sizes, status)
    after = net.queues()
    expect(all(np.array_equal(before[k], after[k]) for k in before), "a run that failed has changed a queue")


def bound(net, driver):
    """Frames in buffers of the caller's, with no byte more than the camera's: the same bits as by pointers."""
    feeds = scene(np.random.default_rng(2), "mici")
    net.reset()
    net.enter("prepare", "mici", feeds[:4])
    wanted = net.drive("mici", feeds)
    buffers, short = [driver.buffer(f.nbytes) for f in feeds[:2]], driver.buffer(feeds[0].nbytes - 1)
    for buffer, frame in zip(buffers, feeds):
        driver.write(buffer, frame)

    def bind(first, second):
        for entry in ("prepare", "run"):
            for k, buffer in enumerate((first, second)):
                expect(net.function(f"{entry}_bind_input")(net.model, k, buffer, C.c_size_t(0)) == 0, f"{entry}: bind {k}")

    nothing = [np.zeros(0, np.uint8)] * 2
    bind(*buffers)
    net.reset()
    net.enter("prepare", "mici", [*nothing, *feeds[2:4]])
    got = net.drive("mici", [*nothing, *feeds[2:]])
    expect(all(np.array_equal(a, b) for a, b in zip(got, wanted)), "other bits out of buffers")
    bind(short, buffers[1])
    net.enter("run", "mici", [*nothing, *feeds[2:]], got, status=BAD_OPTIONS)
    bind(None, None)
    net.enter("prepare", "mici", feeds[:4])
    expect(net.function("run_bind_input")(net.model, 6, buffers[0], C.c_size_t(0)) == BAD_OPTIONS, "the entry has six inputs")


def names(net):
    """The parts of the outputs, and what the program says of itself."""
    info = net.info
    parts = {}
    for s in (info.slices[i] for i in range(info.slice_count)):
        parts.setdefault(info.outputs[s.output].name.decode(), []).append((s.name.decode(), s.begin, s.size))
    expect(("hidden_state", 1064, 512) in parts["vision"] and parts["policy"][0] == ("plan", 0, 990), f"{parts}")
    expect({info.meta[i].key: info.meta[i].value for i in range(info.meta_count)}[b"frame_skip"] == b"4", "frame_skip")


QUICK = ("C", "OpenCL, images of halves, no local memory")
for way in WAYS:
    suite.add(f"step by step, {way}", one, way, "small", 4, (2,), slow=way not in QUICK)
    suite.add(f"step by step, the whole networks, {way}", one, way, "full", 12, (3, 7, 8), slow=True)


@suite.case("a run has no more launches than openpilot pins for its own network, and reads no image behind a test")
def counts():
    for options, launches in (((), 123), (("--image", "--half-storage"), 123), (("--image", "--half-storage", "--no-locals"), 140)):
        run = next(e for e in T.info(TGC, networks("full") / "pilot.tg", "--target=opencl", "--cpu=adreno630", *options)["entries"] if e["name"] == "run")["device"]
        expect(run["launches"] <= launches, f"{options}: {run['launches']} launches")
        expect(run.get("gated_image_reads", 0) == 0 and ("--image" not in options or run["image_reads"] <= 1361), f"{options}: {run}")


@suite.case("on a device that checks every access")
def emulated():
    folder = T.scratch(SCRATCH / "emulated")
    feeds = scene(np.random.default_rng(3), "mici")
    so = build("emulated-net", "small", "--target=opencl", "--cpu=adreno630")
    np.savez(folder / "feeds.npz", *feeds)
    done = T.must(T.run([sys.executable, __file__, "--drive", so, folder], env=emulator.environment(OPTIONS.build, report=folder / "report"),
                        timeout=600))
    expect(not (folder / "report").exists(), (folder / "report").read_text() if (folder / "report").exists() else done.err)
    vision, policy = np.load(folder / "out.npz").values()
    net = Pilot(build("emulated-c", "small"), "pilot")
    net.enter("prepare", "mici", feeds[:4])
    for name, got, want in zip(("vision", "policy"), (vision, policy), net.drive("mici", feeds)):
        close(name, got, want)


def drive(so, folder):
    """A frame that is dropped and one that is not, by a process of its own."""
    feeds = list(np.load(folder / "feeds.npz").values())
    net = Pilot(so, "pilot")
    net.enter("prepare", "mici", feeds[:4])
    np.savez(folder / "out.npz", *net.drive("mici", feeds))


@suite.case("the application, as a user builds it: by OpenCL, by the processor, where there is no device")
def application():
    need_device()
    folder = SCRATCH / "application"
    shutil.copytree(EXAMPLE, folder)
    for path in networks("small").glob("*.onnx"):        # newer than the script: not made again
        shutil.copy(path, folder)
    words = ["make", f"TGC={TGC}", f"PYTHON={sys.executable}", "SIZE=small", "DEVICE=pocl", "CFLAGS=-O1 -Wall -Wextra -Wconversion -Werror"]
    T.must(T.run(words, cwd=folder, timeout=600))
    expect(b"up to date" in T.must(T.run(words, cwd=folder)).out, "built again")
    said = {}
    for name, more, env in (("OpenCL", [], {}), ("the processor", ["--cpu"], {}), ("none", [], {"OCL_ICD_VENDORS": "/dev/null"})):
        said[name] = T.must(T.run([folder / "app", "--frames", "5", "--drop", "3", "--camera", "mici", *more], env=env)).out.decode()
        expect(said[name].count("frame") == 5 and said[name].count("queued alone") == 1, said[name])
    expect("by OpenCL" in said["OpenCL"] and "by the processor" in said["none"], f"{said}")
    values = {name: {line.split(":")[0].strip(): float(line.split()[-1]) for line in text.splitlines() if "the first" in line}
              for name, text in said.items()}
    expect(len(values["OpenCL"]) == 14 and "policy.plan" in values["OpenCL"], f"{values}")
    expect(values["none"] == values["the processor"], "another processor")
    expect(all(abs(values["OpenCL"][k] - v) < 1e-3 for k, v in values["none"].items()), f"{values}")
    expect(T.run([folder / "app", "--camera", "x"]).status == 2, "usage")


if __name__ == "__main__":
    if OPTIONS.drive:
        drive(*OPTIONS.drive)
    else:
        suite.main()
