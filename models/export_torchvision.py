"""Exports torchvision's architectures to ONNX with weights that are random but not degenerate.

Freshly made models hide errors: batch normalization stands at mean 0 and variance 1, some
heads are zero, some layer scales 1e-6. So the statistics are measured on random images and
then jittered with the affine parameters, zero weights are drawn anew, and the head is scaled
until its outputs have a deviation of about one. The script refuses to write a model whose
outputs are not finite or do not depend on the input.

Runs with the distribution's own Python (python3-torch, python3-torchvision):

    /usr/bin/python3 models/export_torchvision.py OUT_DIR resnet50 mobilenet_v2 ...
"""

import hashlib
import os
import sys
import warnings

import torch
import torchvision

OPSET = 16
SIZE = 224

# What an architecture needs beside its name: its training-only head wants larger images.
KEYWORDS = {"inception_v3": {"aux_logits": False, "init_weights": False}}


def images(seed, count):
    """Smooth random images, normalized as ImageNet's are: nearer to a photo than noise is."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, 14, 14, generator=generator)
    fine = torch.randn(count, 3, SIZE, SIZE, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(SIZE, SIZE), mode="bilinear",
                                             align_corners=False)
    return smooth + 0.3 * fine


def jitter(tensor, low, high):
    tensor.mul_(torch.empty_like(tensor).uniform_(low, high))


def redraw_degenerate(model):
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if weight is not None and weight.dim() >= 2 and float(weight.std()) < 1e-5:
            torch.nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
        scale = getattr(module, "layer_scale", None)
        if scale is not None and float(scale.abs().max()) < 1e-3:
            torch.nn.init.uniform_(scale, 0.1, 0.5)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") and float(parameter.abs().max()) == 0:
            torch.nn.init.normal_(parameter, std=0.05)


def calibrate_norms(model):
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    if not norms:
        return
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative average
        jitter(norm.weight, 0.7, 1.3)
    model.train()
    model(images(1, 8))
    model.eval()
    for norm in norms:
        jitter(norm.running_var, 0.8, 1.25)
        norm.running_mean.add_(0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean))


def scale_head(model):
    layers = list(model.modules())
    head = ([m for m in layers if isinstance(m, torch.nn.Linear)] or
            [m for m in layers if isinstance(m, torch.nn.Conv2d)])[-1]
    deviation = model(images(2, 2)).std()
    head.weight.div_(deviation)
    head.bias.div_(deviation)


def check(name, model):
    a, b = model(images(3, 1)), model(images(4, 1))
    if not torch.isfinite(a).all():
        sys.exit(f"{name}: outputs are not finite")
    if float((a - b).abs().max()) < 1e-2 * float(a.abs().max()):
        sys.exit(f"{name}: outputs do not depend on the input")


def export(name, path):
    torch.manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little"))
    model = getattr(torchvision.models, name)(weights=None, **KEYWORDS.get(name, {})).eval()
    with torch.no_grad():
        redraw_degenerate(model)
        calibrate_norms(model)
        scale_head(model)
        check(name, model)
    torch.onnx.export(model, images(5, 1), path + ".part", opset_version=OPSET,
                      input_names=["image"], output_names=["logits"],
                      do_constant_folding=True)
    os.replace(path + ".part", path)


def main():
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} OUT_DIR MODEL...")
    warnings.simplefilter("ignore")
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    for name in sys.argv[2:]:
        export(name, os.path.join(sys.argv[1], name + ".onnx"))


if __name__ == "__main__":
    main()
