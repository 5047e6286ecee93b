"""Pictures as inputs: -i x=cat.png and --image-layout, against the arrays that the files were written from.

Scaling and JPEG are compared with Pillow's, to the bit. Mistakes are errors that say what to write; damaged
files, and files that claim to be huge, end within their bounds and leave nothing behind.
"""

import random
import re
import subprocess
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto

import graphs as G
import tgc as T
from pictures import bmp, png
from suite import Skip, Suite, expect

MEMORY = 512 << 20
SECONDS = 10
H, W = 37, 53

suite = Suite("pictures")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
case = suite.folder_case(Path(OPTIONS.build).resolve() / "test-scratch" / "pictures")
RGBA = np.random.default_rng(0).integers(0, 256, (H, W, 4), np.uint8)
RGB = RGBA[..., :3].copy()
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def tgc(folder, *arguments, status=0, **more):
    return T.must(T.run([TGC, *arguments], cwd=folder, **more), status)


def identity(folder, shape, dtype=TensorProto.FLOAT):
    onnx.save(G.model([G.node("Identity", ["x"], ["y"])], [G.value("x", shape, dtype)],
                      [G.value("y", shape, dtype)]), folder / "model.onnx")


def read(folder, picture, layout, shape, dtype=TensorProto.FLOAT, *options):
    """What the model is given for the picture."""
    identity(folder, shape, dtype)
    tgc(folder, "run", "model.onnx", "-i", f"x={picture}", f"--image-layout={layout}", *options,
        "--out-dir", "out")
    return np.load(folder / "out" / "y.npy")


def refused(folder, picture, shape, *layout, dtype=TensorProto.FLOAT, words=(), status=1):
    identity(folder, shape, dtype)
    done = tgc(folder, "run", "model.onnx", "-i", f"x={picture}", *layout, "--out-dir", "out", status=status)
    for word in words:
        expect(word in done.err, f"'{word}' is not in: {done.err}")
    expect(not (folder / "out").exists(), "outputs were left")
    return done.err


def write(folder):
    (folder / "rgb.png").write_bytes(png(RGB, 8, 2))
    (folder / "rgba.png").write_bytes(png(RGBA, 8, 6))
    (folder / "gray.png").write_bytes(png(RGB[..., 1], 8, 0))


def pillow(folder, text):
    """Runs a script with Pillow's Image and ImageOps; `picture` is rgb.png."""
    python = Path("/usr/bin/python3")
    if not python.exists() or T.run([python, "-c", "import PIL, numpy"]).status:
        raise Skip("no Pillow for /usr/bin/python3")
    T.must(T.run([python, "-c", "import numpy\nfrom PIL import Image, ImageOps\n"
                                "picture = Image.open('rgb.png').convert('RGB')\n" + text], cwd=folder))


# ---------------------------------------------------------------------------------- what is read


@case("axes, channels, ranges and dtypes")
def _(folder):
    write(folder)
    near = dict(rtol=0, atol=2e-6)
    y = read(folder, "rgb.png", "NCHW,RGB,0..1", ["N", 3, "H", "W"])
    expect(y.shape == (1, 3, H, W) and np.allclose(y[0].transpose(1, 2, 0), RGB / 255, **near), "NCHW,RGB,0..1")
    y = read(folder, "rgba.png", "NCHW,BGR,0..1,mean=0.485/0.456/0.406,std=0.229/0.224/0.225", [1, 3, H, W])
    expect(np.allclose(y[0].transpose(1, 2, 0), (RGB[..., ::-1] / 255 - MEAN) / STD, **near), "mean and std")
    y = read(folder, "rgb.png", "mean=127.5,std=0.5,0..255,RGB,NHWC", [1, H, W, 3], TensorProto.DOUBLE)
    expect(np.array_equal(y[0], (RGB - 127.5) / 0.5), "one mean for all channels, in any order of words")
    y = read(folder, "rgb.png", "NHWC,RGB,0..255", [1, H, W, 3], TensorProto.FLOAT16)
    expect(np.array_equal(y[0], RGB.astype(np.float16)), "f16")
    y = read(folder, "rgba.png", "HWC,RGBA", [H, W, 4], TensorProto.UINT8)
    expect(np.array_equal(y, RGBA), "RGBA in u8")
    y = read(folder, "rgb.png", "CHW,RGBA", [4, H, W], TensorProto.INT64)
    expect(np.array_equal(y[:3].transpose(1, 2, 0), RGB) and (y[3] == 255).all(), "an alpha that is not there")
    y = read(folder, "rgb.png", "NHWC,RGB,-128..127", [1, H, W, 3], TensorProto.INT8)
    expect(np.array_equal(y[0], RGB.astype(int) - 128), "i8")
    y = read(folder, "rgba.png", "x:NHW,GRAY,-1..1", [1, H, W])
    gray = (RGB.astype(int) @ [19595, 38470, 7471] + 0x8000) >> 16
    expect(np.allclose(y[0], gray / 127.5 - 1, **near), "colours to gray, by the input's name")
    y = read(folder, "gray.png", "HWC,RGB", [H, W, 3], TensorProto.UINT8)
    expect(np.array_equal(y, np.repeat(RGB[..., 1:2], 3, 2)), "gray to colours")


@case("other files, and a palette's alpha")
def _(folder):
    (folder / "a.bmp").write_bytes(bmp([row[:, ::-1].tobytes() for row in RGB], 24, -H, W))
    (folder / "a.ppm").write_bytes(f"P6 {W} {H} 255\n".encode() + RGB.tobytes())
    for name in ("a.bmp", "a.ppm"):
        expect(np.array_equal(read(folder, name, "HWC,RGB", [H, W, 3], TensorProto.UINT8), RGB), name)
    index, palette = RGBA[..., 0] % 16, RGBA[0, :16, :3].copy()
    (folder / "a.png").write_bytes(png(index, 4, 3, palette, alpha=RGBA[1, :9, 3].copy()))
    alpha = np.concatenate([RGBA[1, :9, 3], np.full(7, 255, np.uint8)])
    y = read(folder, "a.png", "HWC,RGBA", [H, W, 4], TensorProto.UINT8)
    expect(np.array_equal(y[..., :3], palette[index]) and np.array_equal(y[..., 3], alpha[index]), "palette")


@case("a name with a colon, two pictures, a picture beside an array")
def _(folder):
    write(folder)
    model = G.model([G.node("Add", ["in:0", "b"], ["s"]), G.node("Add", ["s", "c"], ["y"])],
                    [G.value("in:0", [1, H, W]), G.value("b", [1, H, W]), G.value("c", [1])], [G.value("y", [1, H, W])])
    onnx.save(model, folder / "model.onnx")
    np.save(folder / "c.npy", np.array([5], np.float32))
    tgc(folder, "run", "model.onnx", "-i", "in:0=gray.png", "-i", "b=gray.png", "-i", "c=c.npy",
        "--image-layout", "NHW,GRAY,0..255", "--image-layout=in:0:NHW,GRAY,0..510", "--out-dir", "out")
    expect(np.array_equal(np.load(folder / "out/y.npy")[0], RGB[..., 1] * 3.0 + 5), "the sum")


@case("resize=stretch and resize=crop are Pillow's, to the bit")
def _(folder):
    write(folder)
    for h, w in ((16, 16), (64, 80), (20, 90), (H, 7), (90, W)):
        pillow(folder, f"numpy.save('s.npy', numpy.asarray(picture.resize(({w}, {h}), Image.BILINEAR)))\n"
                       f"numpy.save('c.npy', numpy.asarray(ImageOps.fit(picture, ({w}, {h}), Image.BILINEAR)))")
        for how, name in (("stretch", "s"), ("crop", "c")):
            y = read(folder, "rgb.png", f"HWC,RGB,resize={how}", [h, w, 3], TensorProto.UINT8)
            expect(np.array_equal(y, np.load(folder / f"{name}.npy")), f"{how} to {w} x {h}")
    y = read(folder, "rgb.png", "HWC,RGB,resize=stretch", ["h", "w", 3], TensorProto.UINT8, "--shape", "x=16x16x3")
    expect(y.shape == (16, 16, 3), "the size that --shape says")


@case("JPEG is what Pillow reads")
def _(folder):
    if "JPEG(no)" in tgc(folder, "--version").out.decode():
        raise Skip("this tgc is built without libjpeg")
    write(folder)
    pillow(folder, "picture.save('a.jpg', quality=90)\n"
                   "numpy.save('a.npy', numpy.asarray(Image.open('a.jpg')))\n"
                   "picture.convert('CMYK').save('cmyk.jpg')\nopen('cut.jpg', 'wb').write(open('a.jpg', 'rb').read()[:300])")
    y = read(folder, "a.jpg", "HWC,RGB", [H, W, 3], TensorProto.UINT8)
    far = np.abs(y.astype(int) - np.load(folder / "a.npy"))
    expect(far.max() <= 3 and far.mean() < 0.1, f"off by {far.max()}, {far.mean()} on average")
    for name in ("cmyk", "cut"):
        done = T.run([TGC, "run", "model.onnx", "-i", f"x={name}.jpg", "--image-layout=HWC,RGB"], cwd=folder)
        expect(done.status in (0, 1), f"{name}: {done.describe()}")


# ------------------------------------------------------------------------------------- mistakes


@case("what is not said is asked for, with a line to paste")
def _(folder):
    write(folder)
    for shape, dtype, line in (([1, 3, H, W], TensorProto.FLOAT, "NCHW,RGB,0..1"), ([1, H, W, 3], TensorProto.UINT8, "NHWC,RGB"),
                               (["n", "c", "h", "w"], TensorProto.FLOAT, "NCHW,RGB,0..1"), ([H, W, 4], TensorProto.FLOAT, "HWC,RGBA,0..1"),
                               ([1, 1, H, W], TensorProto.FLOAT, "NCHW,GRAY,0..1"), ([H, W], TensorProto.UINT8, "HW,GRAY")):
        error = refused(folder, "rgb.png", shape, dtype=dtype, words=["rgb.png", "'x'", f"--image-layout={line} "])
        pasted = re.search(r"--image-layout=[^ ]*", error).group()
        tgc(folder, "run", "model.onnx", "-i", "x=rgb.png", pasted)
    refused(folder, "rgb.png", [1, 3, H, W], "--image-layout=NCHW,RGB", words=["0..255", "f32"])


@case("another size than the input's is an error that says both, and what to do")
def _(folder):
    write(folder)
    refused(folder, "rgb.png", [1, 3, 224, 200], "--image-layout=NCHW,RGB,0..1",
            words=[f"{W} pixels wide and {H} high", "200 x 224", "resize=crop"])
    refused(folder, "rgb.png", [1, 3, 224, "w"], "--image-layout=NCHW,RGB,0..1", words=["any x 224"])
    refused(folder, "rgb.png", [1, 3, "h", "w"], "--image-layout=NCHW,RGB,0..1,resize=crop", words=["--shape=x="])
    for more in ("", ",resize=crop"):       # axes in another order: no scaling makes that fit
        refused(folder, "rgb.png", [1, 3, H, W], f"--image-layout=NHWC,RGB,0..1{more}", words=["3 channels as RGB", "axis 3", f"has {W}", "as NCHW"])
    refused(folder, "rgb.png", [1, 1, H, W], "--image-layout=NCHW,RGB,0..1", words=["f32[1,3,37,53]", "f32[1,1,37,53]"])
    refused(folder, "rgb.png", [2, 3, H, W], "--image-layout=NCHW,RGB,0..1", words=["f32[1,3,37,53]", "f32[2,3,37,53]"])


@case("layouts that are none, or that the dtype cannot hold")
def _(folder):
    write(folder)
    for layout in ("", "NCHW", "RGB", "NCHW,RGB,0-1", "NCHW,RGB,1..0", "NCCW,RGB", "NCHW,RGB,mean=1/2", "NHW,RGB,0..1",
                   "NCHW,RGB,std=0/1/1", "NCHW,RGB,0..1,", "NCHW,RGB,nan..1", "NCHW,RGB,mean=1/2/3/4/5", "NCHW,RGB,resize"):
        refused(folder, "rgb.png", [1, 3, H, W], f"--image-layout={layout}", status=2, words=["NCHW,RGB,0..1 is expected"])
    for dtype, layout in ((TensorProto.UINT8, "0..1"), (TensorProto.INT8, "0..255"), (TensorProto.UINT8, "mean=1"), (TensorProto.BOOL, "0..1")):
        refused(folder, "rgb.png", [1, 3, H, W], f"--image-layout=NCHW,RGB,{layout}", dtype=dtype, words=["rgb.png", "'x'"])
    refused(folder, "rgb.png", [1, 3, H, W], "--image-layout=z:NCHW,RGB,0..1", "--image-layout=NCHW,RGB,0..1", words=["an input 'z'"])
    done = tgc(folder, "run", "model.onnx", "--image-layout=NCHW,RGB,0..1", status=1)
    expect("no picture" in done.err, done.err)
    (folder / "gone").mkdir()
    done = tgc(folder, "verify", "model.onnx", "--data", "gone", "--image-layout=NCHW,RGB,0..1", status=2)
    expect("--image-layout" in done.err, done.err)


@case("an older output stays when the picture is damaged; a picture is never overwritten")
def _(folder):
    write(folder)
    identity(folder, [1, 3, H, W])
    (folder / "y.npy").write_bytes((folder / "rgb.png").read_bytes())
    before = (folder / "y.npy").read_bytes()
    tgc(folder, "run", "model.onnx", "-i", "x=y.npy", "--image-layout=NCHW,RGB,0..1", "--out-dir", ".", status=1)
    expect((folder / "y.npy").read_bytes() == before, "the input was overwritten")


# -------------------------------------------------------------------------------------- hostile


def check_bounds(done):
    expect(not done.timed_out and done.seconds < SECONDS and done.peak < MEMORY, f"{done.peak >> 20} MB: {done.describe()}")


@case("damaged pictures end in an error, within bounds")
def _(folder):
    identity(folder, [1, 3, "h", "w"])
    chance = random.Random(5)
    files = [png(RGB[:9, :7], 8, 2, interlaced=True), png(RGBA[:9, :7, 0] % 4, 2, 3, RGB[0, :4].copy(), alpha=RGBA[1, :4, 3].copy()),
             bmp([row[:, ::-1].tobytes() for row in RGB], 24, -H, W), f"P6 {W} {H} 255\n".encode() + RGB.tobytes()]
    for number in range(60):
        data = bytearray(files[number % len(files)])
        for _ in range(chance.choice([1, 1, 2, 8])):
            data[chance.randrange(len(data) if chance.random() < 0.5 else 60)] = chance.randrange(256)
        (folder / "bad").write_bytes(data[:chance.choice([len(data), chance.randrange(9, len(data))])])
        done = T.run([TGC, "info", "model.onnx", "-i", "x=bad", "--image-layout=NCHW,RGB,0..1"], cwd=folder)
        check_bounds(done)
        expect(done.status in (0, 1) and "bug" not in done.err, f"{number}: {done.describe()}")


@case("a picture that claims to be huge is refused by the limit of memory")
def _(folder):
    head = bytearray(png(RGB, 8, 2))
    head[16:24] = (2**31 - 1).to_bytes(4, "big") * 2
    (folder / "huge.png").write_bytes(head)
    refused(folder, "huge.png", [1, 3, "h", "w"], "--image-layout=NCHW,RGB,0..1", words=["--max-memory"])
    head[16:24] = (30000).to_bytes(4, "big") * 2
    head[29:33] = zlib.crc32(head[12:29]).to_bytes(4, "big")
    (folder / "bomb.png").write_bytes(head)
    identity(folder, [1, 3, "h", "w"])
    done = T.run([TGC, "info", "model.onnx", "-i", "x=bomb.png", "--image-layout=NCHW,RGB,0..1", "--max-memory=200M"],
                 cwd=folder)
    check_bounds(done)
    expect(done.status == 1 and "--max-memory" in done.err, done.describe())


suite.main()
