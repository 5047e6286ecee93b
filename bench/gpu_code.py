"""What bench/gpu.py says of programs without running them, and what opening one takes.

    sizes       bytes of a program's kernels: PTX, and machine code of each architecture
    estimate    the cost model's milliseconds for each row of CUDA's, and what the kernels' code consists of: instructions of the PTX by kind (of the
                machine code, where nvdisasm is on PATH), registers and spills by ptxas, where it is there
    init        seconds of NAME_init(): needs a device
"""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib")]

ROWS = ("sm_80", "sm_90a", "sm_120")
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_120")
# Kinds of instructions, the first that fits: name, PTX, SASS.
KINDS = [("mma", r"w?mma\b|wgmma|mma", r"HMMA|IMMA|QMMA|HGMMA|IGMMA|DMMA"),
         ("fma", r"fma\b|(mad|dp[24]a)\b", r"FFMA|HFMA2|DFMA|IDP"),
         ("float", r"(add|sub|mul|min|max|neg|abs|div|rcp|sqrt|rsqrt|ex2|lg2|tanh|sin|cos)\S*\.(f16|bf16|f32|f64)", r"F(ADD|MUL|MNMX|SEL|SETP|SET)|MUFU|H(ADD|MUL)2|D(ADD|MUL)"),
         ("from global", r"ld\.(global|param\.global)|cp\.async|ld\.global", r"LDG|LDGSTS|UTMALDG"), ("to global", r"st\.global|red|atom", r"STG|RED|ATOM"),
         ("from shared", r"ld\.shared|ldmatrix", r"LDS|LDSM"), ("to shared", r"st\.shared|stmatrix", r"STS|STSM"),
         ("local", r"(ld|st)\.local", r"LDL|STL"), ("barrier", r"bar|mbarrier|fence|cp\.async\.wait|barrier", r"BAR|SYNCS|DEPBAR|WARPSYNC"), ("shuffle", r"shfl|vote|match", r"SHFL|VOTE"),
         ("branch", r"bra|ret|call|setp|selp|and\.pred|or\.pred|not\.pred", r"BRA|EXIT|ISETP|BSSY|BSYNC|SEL|PLOP3|RET|CALL"), ("other", r"", r"")]
SHOWN = [name for name, _, _ in KINDS]


def run(words, folder):
    done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode == 0 else None


def models_of(options):
    """{name: path}, those of models/ without a word."""
    import devices
    names = options.models or [str(path) for path in sorted((ROOT / "models").glob("*.tg"))]
    return {Path(name).stem: Path(path).resolve() for name, path in devices.find_models(names).items()}


def emit(tgc, path, more, out, folder):
    """The options with which the file was written: with bounds that the error names, if it has to have some; None: it cannot be."""
    words = [str(tgc), str(path), "-o", out, "--name=m", "--target=cuda", *more]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    bounds = [f"--dim={dim}" for dim in re.findall(r"--dim (\w+=\.\.8)", done.stderr)]
    if done.returncode and bounds:
        return emit(tgc, path, [*more, *bounds], out, folder)
    return more if done.returncode == 0 else None


# --------------------------------------------------------------------------------------------- sizes


def literal_bytes(text):
    """Of adjacent string literals of C."""
    return sum(len(re.findall(r"\\[0-7]{1,3}|\\.|[^\\]", piece)) for piece in re.findall(r'"((?:[^"\\]|\\.)*)"', text))


def image_sizes(tgc, path, more, folder):
    """{architecture or "PTX": bytes} of a program's kernels."""
    if emit(tgc, path, [f"--cpu={','.join(ARCHITECTURES)}", *more], "m.c", folder) is None:
        return None
    text = (Path(folder) / "m.c").read_text(errors="replace")
    found = re.findall(r"image_(\w+)\[\] =\n(.*?);\n", text, re.S)
    return {"PTX" if name.startswith("compute") else name: literal_bytes(body) for name, body in found}


def sizes(options):
    print(f"| model | {' KB | '.join(('PTX', *ARCHITECTURES))} KB |\n|---|{'---|' * (1 + len(ARCHITECTURES))}")
    wrong = 0
    for name, path in models_of(options).items():
        with tempfile.TemporaryDirectory() as folder:
            found = image_sizes(options.tgc, path, options.more, folder)
        wrong += not found
        print(f"| {name} | " + (" | ".join(f"{found[key] / 1000:.1f}" for key in ("PTX", *ARCHITECTURES)) + " |" if found else "not compiled |"), flush=True)
    return int(wrong > 0)


# ------------------------------------------------------------------------------------------ estimate


def kind_of(instruction, column):
    return next(row[0] for row in KINDS if re.match(row[column], instruction))


def ptx_mix(text):
    """{kernel: Counter of kinds}"""
    found = {}
    for name, body in re.findall(r"\.entry (\w+)\(.*?\n\{\n(.*?)\n\}", text, re.S):
        body = re.sub(r"(?m)^\s*(//.*|\.\w.*|\$?\w+:|[{}(].*)$", "", body)
        found[name] = collections.Counter(kind_of(re.sub(r"^@!?%\w+\s+", "", line.strip()), 1) for line in body.splitlines() if line.strip().endswith(";"))
    return found


def sass_mix(text):
    found, kernel = {}, None
    for line in text.splitlines():
        section = re.match(r"\s*\.text\.(\w+):|\s*Function : (\w+)", line)
        kernel = section.group(1) or section.group(2) if section else kernel
        instruction = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line)
        if instruction and kernel and instruction.group(1) != "NOP":
            found.setdefault(kernel, collections.Counter())[kind_of(instruction.group(1), 2)] += 1
    return found


def find_ptxas():
    import cuda
    from suite import Skip
    try:
        return shutil.which("ptxas") or str(cuda.ptxas())
    except Skip:
        return None


def assembled(folder, row):
    """{kernel: (registers, bytes of spills)} by ptxas, and what nvdisasm makes of the machine code; each None where it is not there."""
    ptxas, text = find_ptxas(), None
    said = run([ptxas, "-v", f"--gpu-name={row}", "m.ptx", "-o", "m.cubin"], folder) if ptxas else None
    if said is None:
        return None, None
    found = {name: (int(registers), int(stores) + int(loads)) for name, stores, loads, registers in
             re.findall(r"Function properties for (\w+)\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads\n.*?Used (\d+) registers", said)}
    if shutil.which("nvdisasm"):
        text = run(["nvdisasm", "-c", "m.cubin"], folder)
    return found, sass_mix(text) if text else None


def code_of(options, path, more, row, folder):
    """(what info says, {kernel: mix}, {kernel: (registers, spills)}), or None."""
    used = emit(options.tgc, path, [f"--cpu={row}", *more], "m.ptx", folder)
    said = run([options.tgc, "info", path, "--target=cuda", *used, "--json"], folder) if used else None
    if said is None:
        return None
    registers, machine = assembled(folder, row)
    return json.loads(said)["device"], machine or ptx_mix((Path(folder) / "m.ptx").read_text()), registers or {}


def code_row(name, ms, mix, registers):
    used = [registers[kernel] for kernel in registers]
    limits = f"{max(r for r, _ in used)} | {sum(s for _, s in used)}" if used else " | "
    return f"| {name} | {ms} | {sum(mix.values())} | {' | '.join(str(mix[kind]) for kind in SHOWN)} | {limits} |"


def estimate(options):
    wrong = 0
    machine = "machine code" if shutil.which("nvdisasm") and find_ptxas() else "PTX"
    for row in options.rows or ROWS:
        print(f"\n{row}: instructions of the {machine}\n\n| | ms | in all | {' | '.join(SHOWN)} | registers | spilt bytes |\n|---|---|---|{'---|' * (len(SHOWN) + 2)}")
        for name, path in models_of(options).items():
            with tempfile.TemporaryDirectory() as folder:
                code = code_of(options, path, options.more, row, folder)
            if not code:
                wrong += 1
                print(f"| {name} | not compiled |" + " |" * (len(SHOWN) + 3), flush=True)
                continue
            counts, mixes, registers = code
            print(code_row(f"{name}, {len(mixes)} kernels", f"{counts['predicted_us'] / 1000:.3f}", sum(mixes.values(), collections.Counter()), registers), flush=True)
            for kernel, mix in mixes.items() if options.kernels else ():
                print(code_row(f"— {kernel}", "", mix, {kernel: registers[kernel]} if kernel in registers else {}), flush=True)
    return int(wrong > 0)


def run_part(options):
    return {"sizes": sizes, "estimate": estimate}[options.part](options)


# ---------------------------------------------------------------------------------------------- init


def open_once(so):
    """Seconds of NAME_init() in this process, whose context is there before."""
    from gpu_device import DriverDevice
    from library import Library
    from opencl import Options
    device = DriverDevice()
    begin = time.perf_counter()
    library = Library(so, "net", options=Options(queue=device.stream_handle()))
    seconds = time.perf_counter() - begin
    del library
    return seconds


def time_init(options, device, results):
    """Each in a process of its own, whose cache of translated PTX is a folder of this run's."""
    from gpu_device import Failed, Program
    print("| model | PTX, the first time, s | PTX, from the driver's cache, s | machine code, s |\n|---|---|---|---|", flush=True)
    wrong = 0
    for name, path in models_of(options).items():
        def write(folder):
            for file in (path.parent.iterdir() if path.suffix == ".tg" else [path]):
                if file.is_file() and (file == path or file.suffix == ".safetensors"):
                    shutil.copy(file, folder / ("net.tg" if file == path else file.name))
        try:
            arch = device.facts().get("arch", "sm_80")
            arch = "sm_90a" if arch == "sm_90" else arch
            with tempfile.TemporaryDirectory() as folder:
                more = emit(options.tgc, path, options.more, "m.cu", folder) or []
            ptx, machine = (Program(options.tgc, options.work, write, [*more, *words]) for words in ([], [f"--cpu={arch}"]))
            with tempfile.TemporaryDirectory() as cache:
                seconds = [open_in_process(device, program, cache) for program in (ptx, ptx, machine)]
        except Failed as why:
            wrong += 1
            print(f"| {name} | failed: {str(why)[:200]} | | |", flush=True)
            continue
        results.add({"part": "init", "case": name, "seconds": seconds, **options.facts})
        print(f"| {name} | {' | '.join(f'{s:.3f}' for s in seconds)} |", flush=True)
    return int(wrong > 0)


def open_in_process(device, program, cache):
    from gpu_device import Failed
    device.before(program)
    done = subprocess.run([sys.executable, str(HERE / "gpu_code.py"), str(program.build())], capture_output=True, text=True,
                          env={**os.environ, "TGC": str(program.tgc), "CUDA_CACHE_PATH": cache, "CUDA_CACHE_MAXSIZE": str(1 << 30)})
    if done.returncode:
        raise Failed(done.stderr.strip()[-300:])
    return float(done.stdout)


if __name__ == "__main__":
    print(open_once(sys.argv[1]))
