"""Part `copies` of bench/gpu.py: what a run takes whose inputs and outputs are the host's memory. The driver copies memory that is pinned
as it is, other memory by way of its own pinned buffers; a program has none of its own. Times are the host's, of NAME_run(), and of
NAME_enqueue() and NAME_wait() on the device's memory.
"""

import statistics
import time

import numpy as np

NELEM = (1 << 10, 3 * 224 * 224, 32 * 3 * 224 * 224)


def median_us(run, seconds):
    times, end = [], time.perf_counter() + seconds
    run()
    while not times or (time.perf_counter() < end and len(times) < 1000):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def of_host(program, make):
    """A run on memory that make(n) gives."""
    from library import Library, put
    library = Library(program.build(), "net")
    n = library.info.inputs[0].bounds()[0]
    x, y = make(n), make(n)
    x[:] = 1
    library.give({"x": x})
    put(library.given, library.info.inputs[0].offset, x.ctypes.data)
    put(library.taken, library.info.outputs[0].offset, y.ctypes.data)

    def run():
        if library.step():
            raise RuntimeError("a run fails")
    return run, library, (x, y)


def run_part(options, device, results):
    from gpu_device import Failed, Instance, Program
    ways = {"memory as it is": lambda n: np.empty(n, np.float32)}
    if hasattr(device, "torch"):
        ways["pinned"] = lambda n: device.torch.empty(n, dtype=device.torch.float32, pin_memory=True).numpy()
    print(f"| bytes each way | {' | '.join([*ways, 'of the device'])} | us\n|{'---|' * (len(ways) + 2)}", flush=True)
    for n in NELEM[:1] if options.small else NELEM:
        def write(folder, n=n):
            (folder / "net.tg").write_text(f"tg 1\ninput %x : f32[{n}] as \"x\"\n%y = neg(%x)\noutput %y as \"y\"\n")
        program = Program(options.tgc, options.work, write, options.more)
        device.before(program)
        us = {}
        try:
            for name, make in ways.items():
                run, *held = of_host(program, make)
                us[name] = median_us(run, options.seconds)
                del run, held
            instance = Instance(program, device, {"x": np.ones(n, np.float32)})
        except RuntimeError as why:
            raise Failed(str(why)) from None
        us["of the device"] = median_us(lambda: (instance.start(), device.wait()), options.seconds)
        del instance
        results.add({"part": "copies", "case": f"{4 * n} bytes", "us": us, **options.facts})
        print(f"| {4 * n} | {' | '.join(f'{value:.1f}' for value in us.values())} |", flush=True)
        device.forget()
    return 0
