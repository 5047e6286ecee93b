"""Training steps of tgc train and of PyTorch, one thread: processor time and memory of a step.

    .venv/bin/python bench/train.py [--build build] [--torch /usr/bin/python3] [--blas DIR] [--models cnn,lstm,...] [--large]
                                    [--optimizer adam] [--rounds 2] [--json build/train.json]
    .venv/bin/python bench/tables.py --keep build/train.json train

The networks (train_torch.py): tinygrad's MNIST CNN, an LSTM over 32 steps, a transformer of two blocks with a causal mask (128 tokens),
resnet18 and ViT-tiny at 224 x 224, a GPT of 6 layers, 384 wide, over 256 tokens; --large: the CNN at a batch of 512, too. PyTorch exports
them in training mode, tgc trains what it exported: the same networks, numbers of one kind. The loss is the cross entropy. Contenders run in
turns, each in a process of its own, and the least time of an epoch counts. Processor time, not the clock's: other programs on the machine
disturb it less. PyTorch runs eagerly, and by torch.compile where its version has that.

Debian's PyTorch multiplies matrices by whichever BLAS is the system's, and the reference one is 10 times slower than any other:
--blas=DIR has a libblas.so.3 for it (apt download libopenblas0-serial; dpkg -x; .../openblas-serial). What was used is in the result.

Memory: the most bytes that are allocated at once in a step, beside parameters and the optimizer's states.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS, EPOCHS = 4, 5                 # of an epoch, of a process

# name: what it is, its batch, with --large
MODELS = {"cnn": ("MNIST CNN", 64, 512), "lstm": ("LSTM, 128 wide, 32 steps", 64, None), "transformer": ("transformer, 2 blocks, 128 wide", 8, None),
          "resnet18": ("resnet18, 224", 8, None), "vit": ("ViT-tiny, 224", 8, None), "gpt": ("GPT, 6 layers, 384 wide", 4, None)}


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Tgc:
    def __init__(self, build, optimizer):
        self.tgc = Path(build).resolve() / "cli/tgc"
        self.common = ["--loss=cross_entropy", f"--optimizer={optimizer}", "--target=llvm", "--cpu=native", "--machine=host"]

    def train(self, folder, batch):
        """Seconds of the least epoch: the process has spent so much more at a line of its log than at the one before."""
        command = [self.tgc, "train", "m.onnx", "--data=data.npz", f"--batch={batch}", f"--epochs={EPOCHS}", "--seed=1", *self.common, "-o", "out.safetensors"]
        child = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        at, said = [], []
        for line in child.stderr:
            said.append(line)
            if " s" in line and child.poll() is None:
                at.append(processor_seconds(child.pid))
        if child.wait() or len(at) < 3:
            raise SystemExit(f"{' '.join(map(str, command))}\n{''.join(said)}")
        return min(b - a for a, b in zip(at, at[1:]))

    def memory(self, folder, batch):
        done = subprocess.run([self.tgc, "info", "m.onnx", "--train", f"--dim=n={batch}", "--json", *self.common], cwd=folder, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["training"]["step_bytes"]


class Torch:
    def __init__(self, python, blas, optimizer):
        self.python, self.optimizer = python, optimizer
        self.env = {**os.environ, **({"LD_LIBRARY_PATH": str(Path(blas).resolve())} if blas else {})}
        self.about = json.loads(self.call(Path.cwd(), "about"))

    def call(self, folder, *words):
        done = subprocess.run([self.python, HERE / "train_torch.py", *map(str, words)], cwd=folder, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout

    def train(self, folder, how, name, batch):
        """The least epoch: its seconds, and those of its forward passes."""
        epochs = [json.loads(line) for line in self.call(folder, how, name, batch, EPOCHS - 1, self.optimizer).splitlines()]
        return min(epochs, key=lambda epoch: epoch["seconds"])

    def memory(self, folder, name, batch):
        return json.loads(self.call(folder, "memory", name, batch, self.optimizer))["bytes"]

    def versions(self):
        blas = {part for path in self.about["blas"] for part in ("OpenBLAS", "MKL", "BLIS") if part.lower() in path.lower()}
        return f"PyTorch {self.about['version']}, {' and '.join(sorted(blas)) or 'reference BLAS'}"


def measure(tgc, torch, name, batch, rounds):
    ways = ["eager", "compiled"] if torch.about["compiles"] else ["eager"]
    least, forward = {}, math.inf
    with tempfile.TemporaryDirectory() as folder:
        torch.call(folder, "export", name, batch, STEPS * batch)
        for _ in range(rounds):
            least["tgc"] = min(least.get("tgc", math.inf), tgc.train(folder, batch))
            for how in ways:
                epoch = torch.train(folder, how, name, batch)
                least[how] = min(least.get(how, math.inf), epoch["seconds"])
                forward = min(forward, epoch["forward"]) if how == "eager" else forward
        row = {"name": f"{MODELS[name][0]}, batch {batch}", "training": name, "batch": batch, "ms": {who: 1e3 * seconds / STEPS for who, seconds in least.items()},
               "forward": forward / least["eager"], "memory": {"tgc": tgc.memory(folder, batch), "eager": torch.memory(folder, name, batch)}}
    row["ratio"] = min(seconds for who, seconds in least.items() if who != "tgc") / least["tgc"]
    memory = row["memory"]["tgc"] / row["memory"]["eager"]
    print(f"{row['name']:44} " + "  ".join(f"{who} {ms:8.1f} ms" for who, ms in row["ms"].items()) + f"  {row['ratio']:.2f} of its speed, {memory:.2f} of its memory", flush=True)
    return row


def processor():
    names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--torch", default="/usr/bin/python3", help="a Python that has PyTorch")
    parser.add_argument("--blas", help="a folder with the libblas.so.3 that PyTorch takes")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--optimizer", default="adam", choices=("adam", "adamw", "sgd"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tgc, torch, rows = Tgc(options.build, options.optimizer), Torch(options.torch, options.blas, options.optimizer), []
    for name in options.models.split(","):
        for batch in MODELS[name][1:] if options.large else MODELS[name][1:2]:
            if not batch:
                continue
            rows.append(measure(tgc, torch, name, batch, options.rounds))
            if options.json:
                options.json.write_text(json.dumps({"machine": processor(), "date": str(date.today()), "command": "bench/train.py", "versions": torch.versions(),
                                                    "title": "A training step", "rows": rows}, indent=1))
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    print(f"geometric mean: {mean:.2f} of PyTorch's speed ({torch.versions()})")


if __name__ == "__main__":
    main()
