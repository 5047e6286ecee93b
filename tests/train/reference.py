"""The same networks in PyTorch, for train_test.py, by the interpreter that has it: reads a list of
what to do as JSON from standard input, prints the losses of all steps as JSON."""

import json
import sys

import numpy as np
import torch
from torch.nn import functional as F

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd:momentum=0.9,nesterov,weight_decay=0.01": lambda p: torch.optim.SGD(
        groups(p, 0.01), lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw:weight_decay=0.1,beta2=0.95": lambda p: torch.optim.AdamW(groups(p, 0.1), lr=0.01, betas=(0.9, 0.95)),
    "rmsprop:momentum=0.5": lambda p: torch.optim.RMSprop(p, lr=0.005, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02),
}


def groups(parameters, decay):
    return [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0}]


def mlp(w, x):
    h = F.gelu(x @ w["w1"] + w["b1"])
    return h @ w["w2"] + w["b2"]


def lora(w, x):
    return mlp(sums(w), x)


def sums(w):
    """w + w.a w.b for each w that has these."""
    return {n: v + w[f"{n}.a"] @ w[f"{n}.b"] if f"{n}.a" in w else v for n, v in w.items() if "." not in n}


def cnn(w, state, x):
    def norm(y, k):
        return F.batch_norm(y, state[f"mean{k}"], state[f"var{k}"], w[f"scale{k}"], w[f"shift{k}"], training=True,
                            momentum=0.1)
    y = F.max_pool2d(norm(F.relu(F.conv2d(x, w["c1"], w["d1"], padding=1)), 1), 2)
    y = F.max_pool2d(norm(F.relu(F.conv2d(y, w["c2"], w["d2"], stride=1)), 2), 2)
    return y.flatten(1) @ w["w"] + w["b"]


def lstm(w, x):
    """ONNX's layout: gates i o f c in rows of W and R, biases of both in B."""
    n, steps, _ = x.shape
    h = c = torch.zeros(n, 5)
    for k in range(steps):
        g = x[:, k] @ w["W"][0].T + h @ w["R"][0].T + w["B"][0, :20] + w["B"][0, 20:]
        i, o, f, z = g.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h @ w["w"] + w["b"]


def transformer(w, x):
    """Tokens -> a block with causal attention -> scores for each position."""
    e = w["table"][x] + w["place"]
    y = F.layer_norm(e, (8,), w["scale1"], w["shift1"])
    q, k, v = ((y @ w[m]).reshape(-1, 6, 2, 4).transpose(1, 2) for m in ("wq", "wk", "wv"))
    s = (q @ k.transpose(2, 3) / 2).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    e = e + (s.softmax(3) @ v).transpose(1, 2).reshape(-1, 6, 8) @ w["wo"]
    y = F.layer_norm(e, (8,), w["scale2"], w["shift2"])
    return (e + F.gelu(y @ w["up"]) @ w["down"]) @ w["table"].T


LOSSES = {
    "cross_entropy": lambda y, t: F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1)),
    "mse": lambda y, t: F.mse_loss(y, t),
    "l1": lambda y, t: F.l1_loss(y, t),
    "huber": lambda y, t: F.huber_loss(y, t),
    "bce_with_logits": lambda y, t: F.binary_cross_entropy_with_logits(y, t),
}

def steps(todo):
    arrays = np.load(f"{todo['folder']}/w.npz")
    state = {n: torch.tensor(arrays[n]) for n in arrays.files if n.startswith(("mean", "var"))}
    added = any("." in n for n in arrays.files)
    w = {n: torch.tensor(arrays[n], requires_grad=not added or "." in n) for n in arrays.files if n not in state}
    trained = [v for v in w.values() if v.requires_grad]
    data = np.load(f"{todo['folder']}/d.npz")
    x, target = torch.tensor(data["x"]), torch.tensor(data["target"])
    optimizer = OPTIMIZERS[todo["optimizer"]](trained)
    network = {"mlp": mlp, "lora": lora, "lstm": lstm, "transformer": transformer, "cnn": lambda w, x: cnn(w, state, x)}[todo["network"].partition(".")[0]]
    losses = []
    for _ in range(todo["steps"]):
        optimizer.zero_grad()
        loss = LOSSES[todo["loss"]](network(w, x), target)
        loss.backward()
        if todo["clip"]:
            torch.nn.utils.clip_grad_norm_(trained, todo["clip"])
        optimizer.step()
        losses.append(loss.item())
    np.savez(f"{todo['folder']}/torch.npz", **{n: v.detach().numpy() for n, v in sums(w).items()})
    return losses


torch.set_num_threads(1)
json.dump([steps(todo) for todo in json.load(sys.stdin)], sys.stdout)
