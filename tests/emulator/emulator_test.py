"""The device emulator: that right kernels and hosts pass and give right numbers, that each check fires on one mistake; and emitted
OpenCL programs under it: models, the onnx package's tests, random graphs, every call of the driver failing once."""

import ctypes as C
import gc
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "onnx")]

import numpy as np

import emulator
import host as H
import hosts
import kernels as K
import node_test as N
import opencl_test as O
import tgc as T
from library import Library
from suite import Failure, Suite, expect

suite = Suite("emulator", jobs=1)      # the device is one of the process
X = np.arange(128, dtype=np.float32)


def reported(device, words):
    found = device.found()
    expect(any(re.search(words, line) for line in found), f"no report like '{words}': {found}")


# ------------------------------------------------------------------------------------------------- kernels

def right(device, text, wanted):
    with device.watch(), H.Host(device.library) as host:
        y = np.zeros(128, np.float32)
        expect(host.run(text, [y, X, np.int32(128)], [128], [64]) == 0, "the launch fails")
        wanted = np.array(wanted(X), np.float32)
        expect(np.array_equal(y[:len(wanted)], wanted), f"{y}, not {wanted}")


def wrong(device, text, change, words):
    """The launch fails, and the report says what and where."""
    broken = text.replace(*change, 1)
    expect(broken != text or change == ("", ""), "the text has nothing to change")
    device.begin()
    with H.Host(device.library) as host:
        kernel = host.kernel(broken)
        y, x = host.buffer(nbytes=512), host.buffer(X, flags=H.READ_ONLY)
        for index, value in enumerate([y, x, np.int32(128)]):
            expect(host.set(kernel, index, value) == 0, "an argument cannot be set")
        expect(host.enqueue(kernel, [128], [64]) == 0, "the kernel cannot be enqueued")
        expect(host.finish() != 0, "the wait does not fail")
    reported(device, words)


# --------------------------------------------------------------------------------------------------- hosts

def right_host(device, act, properties):
    with device.watch(), H.Host(device.library, properties) as host:
        act(host)


def wrong_host(device, act, facts, status, words):
    device.begin(facts)
    with H.Host(device.library) as host:
        got = act(host)
        expect(got == status, f"status {got}, not {status}: {device.found()}")
    reported(device, words)
    while device.library.emulator_live():       # what a mistake has left
        device.library.clReleaseContext(host.context)


def main():
    suite.parse()
    build = suite.options.build
    scratch = T.scratch(Path(build).resolve() / "test-scratch" / "emulator")
    device = emulator.Device(build, scratch)
    for name, (text, wanted) in K.RIGHT.items():
        suite.add(f"right: {name}", right, device, text, wanted)
    for name, text, change, words in K.WRONG:
        suite.add(f"wrong: {name}", wrong, device, text, change, words)
    for name, act, properties in hosts.RIGHT:
        suite.add(f"right host: {name}", right_host, device, act, properties)
    for name, act, *expected in hosts.WRONG:
        suite.add(f"wrong host: {name}", wrong_host, device, act, *expected)
    suite.main()


if __name__ == "__main__":
    main()
