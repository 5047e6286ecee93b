"""Training on NumPy's arrays: `tgc train` with its data in a folder that is there as long as it runs."""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

import numpy as np

from ._build import find_tgc
from ._error import Error

Arrays = Union[str, "os.PathLike[str]", Mapping[str, Any]]


@dataclass(frozen=True)
class Trained:
    """What a training came to. `path` is the trained model; the rest is measured on it, on all samples. An
    accuracy is None where targets are no classes, what is of valid where there was none."""

    path: Path
    epoch: int
    step: int
    loss: float
    seconds: float
    accuracy: Optional[float]
    valid_loss: Optional[float]
    valid_accuracy: Optional[float]
    history: List[Dict[str, float]]     # an entry for each epoch, as --log has it


def _data(option: str, arrays: Arrays, folder: Path) -> List[str]:
    """--data of a file or folder, or of arrays by the names of the inputs, and target."""
    if isinstance(arrays, (str, os.PathLike)):
        return [f"{option}={os.path.abspath(os.fspath(arrays))}"]
    words = []
    for k, (name, value) in enumerate(arrays.items()):
        if isinstance(value, (str, os.PathLike)):
            words.append(f"{option}={name}={os.path.abspath(os.fspath(value))}")
            continue
        path = folder / f"{option.strip('-')}{k}.npy"
        np.save(path, np.ascontiguousarray(value), allow_pickle=False)
        words.append(f"{option}={name}={path}")
    return words


def _model(model: Any, folder: Path) -> str:
    """The path of a model that is one, or bytes, or an onnx.ModelProto."""
    if isinstance(model, (str, os.PathLike)):
        return os.path.abspath(os.fspath(model))
    content = model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)
    path = folder / "model.onnx"
    path.write_bytes(content)
    return str(path)


def train(model: Any, data: Arrays, output: Union[str, "os.PathLike[str]"], *,
          loss: str, valid: Optional[Arrays] = None, optimizer: str = "adam", epochs: int = 10,
          batch: Optional[int] = None, lr: Optional[float] = None, seed: int = 0, threads: int = 1,
          freeze: Iterable[str] = (), options: Iterable[str] = ()) -> Trained:
    """Trains the model's weights, and writes it with them to `output`: .onnx, .tg or .safetensors.

    model: as tgc.compile() takes it. data and valid: {"x": array, "target": array}, by the names of the model's inputs, with a first axis that
    counts the samples; or a file or folder as `tgc train --data` takes it. options: further words, such as
    ["--schedule=cosine", "--checkpoint=DIR", "--resume"]. Raises Error with tgc's message.
    """
    with tempfile.TemporaryDirectory(prefix="tgc-train-") as name:
        folder = Path(name)
        log = folder / "log.jsonl"
        words = [find_tgc(), "train", _model(model, folder), *_data("--data", data, folder),
                 f"--loss={loss}", f"--optimizer={optimizer}", f"--epochs={epochs}", f"--seed={seed}",
                 f"--threads={threads}", f"--log={log}", "--json", "-o", os.path.abspath(os.fspath(output))]
        words += _data("--valid", valid, folder) if valid is not None else []
        words += [f"--batch={batch}"] if batch is not None else []
        words += [f"--lr={lr!r}"] if lr is not None else []
        words += [f"--freeze={pattern}" for pattern in freeze] + list(options)
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8", errors="replace")
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if "error:" in line or "note:" in line]
            raise Error("\n".join(said) or done.stderr.strip() or f"tgc train ends with {done.returncode}")
        with open(log, encoding="utf-8") as lines:
            history = [json.loads(line) for line in lines]
    said = json.loads(done.stdout)
    return Trained(Path(output), said["epoch"], said["step"], said["loss"], said["seconds"], said.get("accuracy"),
                   said.get("valid_loss"), said.get("valid_accuracy"), history)
