"""Scatters on a device: threads share loops whose turns have places of their own, and the places themselves, so results are those of one thread,
bit by bit, whatever the reduction is and however often an index occurs (passes/plan/order_updates.c).

Each on the emulated device, whose checks find races and accesses out of bounds, beside what the C target's program makes of the same numbers, and
NumPy, update after update. Which loops go one after the other is read off the kernels.
"""

import re
import sys
from pathlib import Path
from random import Random

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import emulator  # noqa: E402
import tgc as T  # noqa: E402
from library import Library  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("scatter", jobs=1)       # the device is one of the process
APPLY = {"const": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": np.maximum, "min": np.minimum}
OPS = [*APPLY]
OWNED, FREE, ORDERED = "places are shared", "loops are shared", "one thread goes through all updates"


def scattered(x, places, updates, op):
    """places: [updates' shape] of tuples of coordinates, in the updates' order; outside of x nothing is stored."""
    y = x.copy()
    for at, place in places:
        if all(-n <= p < n for p, n in zip(place, y.shape)):
            place = tuple(p + n if p < 0 else p for p, n in zip(place, y.shape))
            y[place] = APPLY[op](y[place], updates[at])
    return y


def elements(indices, axis):
    return [(at, (*at[:axis], int(indices[at]), *at[axis + 1:])) for at in np.ndindex(indices.shape)]


def points(indices, rest):
    return [((*at, *inner), (*map(int, indices[at]), *inner)) for at in np.ndindex(indices.shape[:-1]) for inner in np.ndindex(rest)]


class Net:
    """A graph of one scatter, what it is given, and what it makes of that."""

    def __init__(self, op, x, indices, updates, axis=None, known=False, sizes=None, shapes=None):
        self.op, self.x, self.indices, self.updates = op, x, indices, updates
        self.known, self.sizes = known, sizes or {}
        self.places = points(indices, x.shape[indices.shape[-1]:]) if axis is None else elements(indices, axis)
        dims = shapes or {}
        shape = lambda name, value: f"[{', '.join(map(str, dims.get(name, value.shape)))}]"
        kinds = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
        data = " = [" + ", ".join(map(str, indices.reshape(-1))) + "]"
        call = "scatter_nd(%x, %i, %u)" if axis is None else "scatter_elements(%x, %i, %u)"
        self.text = (f"tg 1\ninput %x : {kinds[x.dtype]}{shape('x', x)}\n{'weight' if known else 'input'} %i : i64{shape('i', indices)}{data if known else ''}\n"
                     f"input %u : {kinds[x.dtype]}{shape('u', updates)}\n%y = {call} {{op={op}{'' if axis is None else f', axis={axis}'}}}\noutput %y\n")

    def want(self):
        return scattered(self.x, self.places, self.updates, self.op)

    def feeds(self):
        return {"x": self.x, "u": self.updates} | ({} if self.known else {"i": self.indices})


def draw(random, shape, dtype=np.float32):
    numbers = np.random.default_rng(random.randrange(1 << 30))
    return numbers.standard_normal(shape).astype(np.float32) if dtype == np.float32 else numbers.integers(-9, 9, shape).astype(dtype)


def whole(random, low, high, shape):
    return np.random.default_rng(random.randrange(1 << 30)).integers(low, high, shape)


def rows(op, n=60, columns=70, updates=40, known=False, distinct=False, seed=1, low=None, high=None, at=None, **more):
    random = Random(seed)
    indices = whole(random, -n if low is None else low, n if high is None else high, (updates, 1))
    if distinct:
        indices = np.random.default_rng(seed).permutation(n)[:updates].reshape(-1, 1)
    if at:
        indices = np.array(at).reshape(-1, 1)
    return Net(op, draw(random, (n, columns)), indices, draw(random, (len(indices), columns)), known=known, **more)


def along(op, axis, shape=(24, 30), updates=(20, 26), **more):
    random = Random(axis + 5)
    return Net(op, draw(random, shape), whole(random, -shape[axis], shape[axis], updates), draw(random, updates), axis=axis, **more)


def line(op, n, updates, dtype=np.float32, **more):
    random = Random(n)
    return Net(op, draw(random, (n,), dtype), whole(random, -n, n, (updates,)), draw(random, (updates,), dtype), axis=0, **more)


# name: the graph, how its updates are shared
NETS = {f"rows, {op}": (rows(op), OWNED) for op in OPS}
NETS |= {f"elements along axis {axis}, {op}": (along(op, axis), OWNED) for axis in (0, 1) for op in ("const", "add", "min")}
NETS |= {
    "elements of a line, of which each occurs often": (line("add", 7, 300), OWNED),
    "elements of a long line": (line("add", 900, 500), OWNED),
    "integers": (line("mul", 11, 40, np.int32), OWNED),
    "rows that are known, each another one": (rows("add", known=True, distinct=True), FREE),
    "rows that are known, and stored one over the other": (rows("const", known=True), OWNED),
    "rows that are known, the same two of them outside of the tensor": (rows("const", known=True, at=[75, 3, 75, -61, 59]), FREE),
    "rows of which many are outside of the tensor": (rows("add", low=-90, high=90), OWNED),
    "one row": (rows("add", updates=1), FREE),
    "no row": (rows("add", updates=0, shapes={"i": (0, 1), "u": (0, 70)}), None),
    "a run's rows": (rows("add", sizes={"N": 40}, shapes={"i": ("N<=90", 1), "u": ("N<=90", 70)}), OWNED),
    "two places": (rows("add", n=2, columns=3), OWNED),
    "one place": (rows("add", n=1, columns=3), ORDERED),
}


# Graphs that are no operator's, beside the C target's programs: what is stored is a sum; places that two loops decide; rows that begin outside of the
# tensor, by columns that are known, two of which are the same; and without passes that optimize.
GRAPHS = {
    "sums": ("input %x : f32[90]\ninput %i : i64[50]\ninput %a : f32[50, 70]\n%u = reduce_sum(%a) {axes=[1], keep=false}\n"
             "%y = scatter_elements(%x, %i, %u) {op=add}\n", ()),
    "sums, in columns": ("input %x : f32[90, 7]\ninput %i : i64[50, 1]\ninput %a : f32[50, 40, 7]\n%u = reduce_sum(%a) {axes=[1], keep=false}\n"
                         "%y = scatter_nd(%x, %i, %u) {op=add}\n", ()),
    "diagonals": ("input %x : f32[40]\ninput %u : f32[6, 8]\n%c = iota(6)\n%d = iota(8)\n%a = reshape(%c) {shape=[6, 1]}\n%b = reshape(%d) {shape=[1, 8]}\n"
                  "%j = add(%a, %b)\n%y = scatter(%x, %u, %j) {op=add}\n", ()),
    "rows from outside": ("input %x : f32[6, 9]\ninput %u : f32[8, 4]\nweight %k : i64[1, 4] = [2, 7, 2, 5]\n%r = iota(8)\n%m = sub(%r, 3)\n"
                          "%o = reshape(%m) {shape=[8, 1]}\n%y = scatter(%x, %u, %o, %k) {op=add}\n", ()),
    "no passes": ("input %x : f32[90]\ninput %i : i64[50]\ninput %u : f32[50]\n%y = scatter_elements(%x, %i, %u) {op=add}\n", ("-O0",)),
}


def graph(device, tgc, folder, name, row):
    T.scratch(folder)
    text, flags = GRAPHS[name]
    shapes = {n: (d, tuple(map(int, s.split(",")))) for n, d, s in re.findall(r"input %(\w+) : (\w+)\[([\d, ]+)\]", text)}
    feeds = {n: whole(Random(1), -90, 90, s) if d == "i64" else whole(Random(len(n)), -99, 99, s).astype(np.float32) for n, (d, s) in shapes.items()}
    run = lambda place: list(Library(place / "net.so").run(feeds, {}).values())[0].copy()
    want = run(built(tgc, folder, f"tg 1\n{text}output %y\n", "c", *flags))
    place = built(tgc, folder, f"tg 1\n{text}output %y\n", "opencl", f"--cpu={row}", *flags)
    with device.watch():
        have = run(place)
    expect(np.array_equal(want, have), f"{np.sum(want != have)} of {want.size} elements are others")


def random_net(random):
    rank = random.randint(1, 3)
    shape = tuple(random.choice([1, 2, 3, 5, 8, 17, 33, 64]) for _ in range(rank))
    op, known, dtype = random.choice(OPS), random.random() < 0.3, random.choice([np.float32, np.float32, np.int32])
    x = draw(random, shape, dtype)
    outside = random.choice([0, 0, 2])
    if random.random() < 0.5:
        axis = random.randrange(rank)
        updates = tuple(random.randint(1, n) if a != axis else random.randint(1, 40) for a, n in enumerate(shape))
        indices = whole(random, -shape[axis] - outside, shape[axis] + outside, updates)
        return Net(op, x, indices, draw(random, updates, dtype), axis=axis, known=known)
    q = random.randint(1, rank)
    batch = tuple(random.randint(1, 9) for _ in range(random.randint(1, 2)))
    indices = np.stack([whole(random, -n - outside, n + outside, batch) for n in shape[:q]], -1)
    return Net(op, x, indices, draw(random, (*batch, *shape[q:]), dtype), known=known)


def built(tgc, folder, text, target, *flags):
    place = folder / target
    place.mkdir(parents=True, exist_ok=True)
    (place / "net.tg").write_text(text)
    T.must(T.run([tgc, "net.tg", "-o", "net.c", f"--target={target}", *flags], cwd=place))
    T.build_shared(place / "net.c", "-lm", "-ldl")
    return place


def result(place, net):
    return list(Library(place / "net.so").run(net.feeds(), net.sizes).values())[0].copy()


def shared(source):
    """How the updates' kernel goes through them, the last one that stores."""
    kernel = re.findall(r"kernel void (?:.|\n)*?\n}\n", source)[-1]
    return OWNED if "owner" in kernel else FREE if "for (int" not in kernel else ORDERED


def check(device, tgc, folder, net, how, row):
    T.scratch(folder)
    want = net.want()
    one = result(built(tgc, folder, net.text, "c"), net)
    expect(np.array_equal(want, one), f"the C target's program makes something else of\n{net.text}")
    place = built(tgc, folder, net.text, "opencl", f"--cpu={row}")
    with device.watch():
        have = result(place, net)
    expect(np.array_equal(want.view(np.int32), have.view(np.int32)), f"{np.sum(want != have)} of {want.size} elements are others:\n{net.text}")
    found = shared((place / "net.c").read_text())
    expect(how in (None, found), f"{found}; expected: {how}")


def at_random(device, tgc, folder, seed, row):
    random = Random(seed)
    for k in range(5):
        check(device, tgc, folder / str(k), random_net(random), None, row)


def broken(device, tgc, folder):
    """The device sees threads meet: kernels whose threads store to places that are not theirs are found."""
    T.scratch(folder)
    net = line("add", 7, 300)
    place = built(tgc, folder, net.text, "opencl", "--cpu=generic-gpu")
    source = (place / "net.c").read_text()
    text = re.sub(r"owner == \([^;]*? & \d+\)", "true", source)
    expect(text != source, "no places are shared")
    (place / "net.c").write_text(text)
    T.must(T.run(["gcc", "-O0", "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm", "-ldl"], cwd=place))
    device.begin("")
    try:
        Library(place / "net.so").run(net.feeds(), {}, 11)            # DEVICE_FAILED
    finally:
        found = device.found()
    expect(any("race" in line for line in found), f"no report of it: {found}")


def main():
    suite.parse()
    build = Path(suite.options.build).resolve()
    tgc, scratch = build / "cli/tgc", T.scratch(build / "test-scratch" / "scatter")
    device = emulator.Device(build, scratch)
    for number, (name, (net, how)) in enumerate(NETS.items()):
        row = ("generic-gpu", "adreno630")[number % 2]
        suite.add(f"{name}, {row}", check, device, tgc, scratch / str(number), net, how, row)
    for number, name in enumerate(GRAPHS):
        row = ("generic-gpu", "adreno630")[number % 2]
        suite.add(f"{name}, {row}", graph, device, tgc, scratch / f"graph{number}", name, row)
    for seed in range(40):
        suite.add(f"five at random, {seed}", at_random, device, tgc, scratch / f"random{seed}", seed, ("generic-gpu", "adreno630")[seed % 2], slow=seed >= 4)
    suite.add("threads that meet are found", broken, device, tgc, scratch / "broken")
    suite.main()


if __name__ == "__main__":
    main()
