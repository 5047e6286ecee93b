"""Part `quick` of bench/gpu.py: where a GPU is at hand for minutes. A case or two of each kind, in an order in which each part has had one
before the next ones come, held to PyTorch's results and timed beside its functions; what there is no time for is said. Programs are
for the device's own architecture: to build them elsewhere give --part build that --more --cpu=.
"""

import time

# Of each part, in the order in which they run: what matters most first.
CASES = {"gemm": ["f16 4096x4096x4096", "bf16 4096x4096x4096", "i8 4096x4096x4096", "tf32 4096x4096x4096", "f8 4096x4096x4096", "f32 4096x4096x4096",
                  "f16 16x4096x4096", "f16 128x14336x4096", "f16 8192x8192x8192", "f16 1024x1024x1024", "f16 1x4096x4096", "f32 1024x1024x1024"],
         "attention": ["f16 4x32x4096x64", "f16 4x16x4096x128 causal", "f16 16x32x1024x64 causal", "f16 1x16x16384x128"],
         "conv": ["f16 batch 32, 64-64 3x3/1 at 56", "f16 batch 1, 256-256 3x3/1 at 14", "f16 batch 32, 256-64 1x1/1 at 56", "f32 batch 32, 64-64 3x3/1 at 56",
                  "f16 batch 32, 3-64 7x7/2 at 224"],
         "models": ["resnet50, batch 1 f16", "GPT-2 decode, 256 before f16", "ViT-B/16, batch 1 f16", "resnet50, batch 32 f16", "resnet50, batch 1 f32"]}
SECONDS, LEAST = 0.1, 100
DEEP = 5            # networks round layer by layer


def in_turns(lists):
    """The first of each, then the second ones."""
    longest = max(map(len, lists), default=0)
    return [one[i] for i in range(longest) for one in lists if i < len(one)]


def cases(options, gpu):
    """--small: whatever there is at tiny sizes. What --only and --dtypes leave, and what this tgc does not have is left out."""
    found = []
    for part, names in CASES.items():
        there = {case.name: case for case in gpu.cases_of(options, part)}
        found.append(list(there.values()) if options.small else [there[name] for name in names if name in there])
    return in_turns(found)


def choose_architecture(options, device):
    """Machine code for the device, unless a row is asked for; one without a row takes PTX."""
    arch = {"sm_90": "sm_90a"}.get(device.facts().get("arch"), device.facts().get("arch"))
    if arch in ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_120") and not any(word.startswith("--cpu") for word in options.more):
        options.more = [*options.more, f"--cpu={arch}"]


def run_part(options, device, results, gpu):
    """0; 1: something is wrong, or failed."""
    choose_architecture(options, device)
    until = time.monotonic() + 60 * min(options.minutes, 4)
    options.seconds, options.least = min(options.seconds, SECONDS), min(options.least, LEAST)
    peers, wanted = gpu.find_peers(options, device, quick=True), [case for case in cases(options, gpu) if not results.has("quick", case.name, options.facts)]
    gpu.build_ahead(options, wanted)
    wrong = []
    for number, case in enumerate(wanted):
        if time.monotonic() > until:
            print(f"no time for {len(wanted) - number} of {len(wanted)}: the same command takes them up")
            break
        try:
            line = {**gpu.time_case(options, device, peers, case), "part": "quick", "of": case.part}
        except gpu.Failed as why:
            line = {"part": "quick", "of": case.part, "case": case.name, "failed": str(why), **options.facts}
        allowed = gpu.TOLERANCE[case.dtype] * (DEEP if case.part == "models" else 1)
        line["right"] = "failed" not in line and line.get("error", 0) <= allowed
        wrong += [] if line["right"] else [case.name]
        results.add(line)
        print(gpu.row_of(line), flush=True)
        device.forget()
    if not peers:
        print("without PyTorch nothing was compared: --part check compares with the C target")
    print(f"{len(wrong)} wrong{': ' if wrong else ''}{', '.join(wrong)}")
    return bool(wrong)
