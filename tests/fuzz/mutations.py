"""What the fuzzer changes at random: ONNX models and JSON in their meaning, texts by their words, files by their bytes,
command lines by their values. Each is determined by the generator that it is given."""

import copy
import gzip
import json
import re
import zlib

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

# A model's exact bounds are the user's to choose; these let open dimensions through.
NUMBERS = [0, 1, -1, 2, -2, 3, 4, 7, 8, 16, 31, 64, 255, 1000, 65536, (1 << 31) - 1, 1 << 31,
           -(1 << 31), (1 << 32) + 1, (1 << 62), (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan")]

# ------------------------------------------------------------------------------- ONNX's meaning


def pick(random, items):
    return items[int(random.integers(len(items)))]


def graphs_of(graph):
    """The graph and those nested in it."""
    found = [graph]
    for g in found:
        for node in g.node:
            for attribute in node.attribute:
                found += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return found


def change_dims(random, m):
    g = pick(random, graphs_of(m.graph))
    tensors = [t.dims for t in g.initializer if t.dims]
    shapes = [v.type.tensor_type.shape.dim for v in [*g.input, *g.output, *g.value_info]
              if v.type.HasField("tensor_type") and v.type.tensor_type.shape.dim]
    if not tensors and not shapes:
        return
    chosen = pick(random, tensors + shapes)
    axis = int(random.integers(len(chosen)))
    kind = random.integers(4)
    if chosen in tensors:
        if kind == 0 and len(chosen) > 1:
            other = int(random.integers(len(chosen)))
            chosen[axis], chosen[other] = chosen[other], chosen[axis]
        elif kind == 1:
            chosen.append(pick(random, NUMBERS))
        else:
            chosen[axis] = pick(random, NUMBERS)
    elif kind == 0:
        chosen[axis].dim_param = pick(random, ["n", "?", "", "batch", "a b", "n*2"])
    elif kind == 1:
        chosen.add().dim_value = pick(random, NUMBERS)
    elif kind == 2 and len(chosen) > 1:
        del chosen[axis]
    else:
        chosen[axis].dim_value = pick(random, NUMBERS)


def change_attribute(random, m):
    nodes = [n for g in graphs_of(m.graph) for n in g.node if n.attribute]
    if not nodes:
        return
    node = pick(random, nodes)
    a = pick(random, node.attribute)
    if random.random() < 0.15:
        node.attribute.remove(a)
    elif a.type == AttributeProto.INT:
        a.i = pick(random, NUMBERS)
    elif a.type == AttributeProto.FLOAT:
        a.f = pick(random, FLOATS)
    elif a.type == AttributeProto.STRING:
        a.s = pick(random, [b"", b"x", a.s[::-1], a.s + a.s, b"\xff\xfe"])
    elif a.type == AttributeProto.INTS and a.ints:
        kind = random.integers(4)
        if kind == 0:
            a.ints.append(pick(random, NUMBERS))
        elif kind == 1:
            a.ints.pop()
        else:
            a.ints[int(random.integers(len(a.ints)))] = pick(random, NUMBERS)
    elif a.type == AttributeProto.FLOATS and a.floats:
        a.floats[int(random.integers(len(a.floats)))] = pick(random, FLOATS)
    elif a.type == AttributeProto.TENSOR:
        a.t.CopyFrom(changed_tensor(random, a.t))
    else:
        a.type = int(random.integers(0, 16))


def changed_tensor(random, t):
    """Another value of it, with its bytes in order; or its declaration out of step with them."""
    try:
        value = numpy_helper.to_array(t).copy()
    except Exception:  # what cannot be read is damaged enough
        return t
    if value.size and value.dtype.kind in "iu" and random.random() < 0.8:
        limits = np.iinfo(value.dtype)
        at = int(random.integers(value.size))
        value.reshape(-1)[at] = np.clip(pick(random, NUMBERS), int(limits.min), int(limits.max))
    elif value.size and value.dtype.kind == "f" and random.random() < 0.5:
        value.reshape(-1)[int(random.integers(value.size))] = pick(random, FLOATS)
    elif random.random() < 0.5:
        value = value.reshape(-1)
    else:
        value = value[..., None]
    return numpy_helper.from_array(value, t.name)


def change_weight(random, m):
    tensors = [t for g in graphs_of(m.graph) for t in g.initializer]
    if tensors:
        t = pick(random, tensors)
        t.CopyFrom(changed_tensor(random, t))


def input_to_weight(random, m):
    """What steers an operator (axes, sizes, pads) becomes a constant, of a value that may not fit."""
    plain = [v for v in m.graph.input if v.type.HasField("tensor_type")
             and v.type.tensor_type.elem_type in (TensorProto.INT64, TensorProto.INT32)]
    if not plain:
        return
    v = pick(random, plain)
    shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
    if any(n < 0 or n > 64 for n in shape):
        return
    dtype = np.int64 if v.type.tensor_type.elem_type == TensorProto.INT64 else np.int32
    small = [0, 1, 2, 3, -1, -2, 4, 5] + NUMBERS * (random.random() < 0.5)
    limits = np.iinfo(dtype)
    count = int(np.prod(shape))
    value = [np.clip(pick(random, small), int(limits.min), int(limits.max)) for _ in range(count)]
    m.graph.initializer.append(
        numpy_helper.from_array(np.array(value, dtype).reshape(shape), v.name))
    m.graph.input.remove(v)


def change_type(random, m):
    values = [v for g in graphs_of(m.graph) for v in [*g.input, *g.output]
              if v.type.HasField("tensor_type")]
    tensors = [t for g in graphs_of(m.graph) for t in g.initializer]
    if values and (not tensors or random.random() < 0.7):
        pick(random, values).type.tensor_type.elem_type = int(random.integers(0, 26))
    elif tensors:
        pick(random, tensors).data_type = int(random.integers(0, 26))


def change_edge(random, m):
    nodes = [n for g in graphs_of(m.graph) for n in g.node if n.input]
    if not nodes:
        return
    node = pick(random, nodes)
    names = [name for g in graphs_of(m.graph) for n in g.node for name in [*n.input, *n.output]]
    names += [v.name for v in m.graph.input]
    at = int(random.integers(len(node.input)))
    kind = random.integers(5)
    if kind == 0:
        node.input[at] = ""
    elif kind == 1:
        del node.input[at]
    elif kind == 2:
        node.input.append(pick(random, names))
    elif kind == 3 and len(node.input) > 1:
        other = int(random.integers(len(node.input)))
        node.input[at], node.input[other] = node.input[other], node.input[at]
    else:
        node.input[at] = pick(random, names)


def change_operator(random, m, others):
    nodes = [n for g in graphs_of(m.graph) for n in g.node]
    if not nodes:
        return
    node = pick(random, nodes)
    kind = random.integers(4)
    if kind == 0 and len(nodes) > 1:
        nodes = m.graph.node
        if nodes:
            del nodes[int(random.integers(len(nodes)))]
    elif kind == 1 and node.output:
        node.output.append(pick(random, ["", "extra", node.output[0]]))
    elif kind == 2:
        for opset in m.opset_import:
            opset.version = int(random.integers(1, 27))
    else:
        other = onnx.load_from_string(pick(random, others)[1]).graph.node
        if other:
            node.op_type, node.domain = other[0].op_type, other[0].domain


def change_bytes(random, content):
    damaged = bytearray(content)
    kind = random.integers(6)
    at = int(random.integers(len(damaged)))
    if kind == 0:
        del damaged[at:]
    elif kind == 1:
        piece = damaged[at:at + int(random.integers(1, 200))]
        damaged[at:at] = piece
    elif kind == 2:
        del damaged[at:at + int(random.integers(1, 20))]
    else:
        for _ in range(int(random.integers(1, 5))):
            damaged[int(random.integers(len(damaged)))] ^= 1 << int(random.integers(8))
    return bytes(damaged)


CHANGES = [change_dims, change_dims, change_attribute, change_attribute, change_weight,
           input_to_weight, input_to_weight, change_type, change_edge]


def mutate_onnx(random, content, others):
    if random.random() < 0.2:
        return change_bytes(random, content)
    m = onnx.load_from_string(content)
    if random.random() < 0.3:
        input_to_weight(random, m)
    for _ in range(int(random.integers(1, 4))):
        change = pick(random, CHANGES + [change_operator])
        try:
            if change is change_operator:
                change_operator(random, m, others)
            else:
                change(random, m)
        except ValueError:  # protobuf refuses a number of the wrong width: so do without
            pass
    return m.SerializeToString()


# ---------------------------------------------------------------------------------------- texts

WORDS = re.compile(rb'"[^"\n]*"|[%A-Za-z_][\w.]*|-?\d[\w.]*|\S')
INSERTED = [b"", b"-1", b"0", b"1", b"9223372036854775807", b"-9223372036854775808", b"2147483648", b"1e38", b"nan", b"inf", b"[]", b"{", b"}", b"(", b")",
            b"[", b"]", b",", b"%", b'"', b"N", b"*", b"..", b"?", b"\xff", b"f64", b"i64", b"bool", b"u8", b"string", b"f16", b"f8e4m3fn"]


def mutate_text(random, content, others):
    """Words of a text and its lines: changed, swapped, doubled, left out, or of another text."""
    if random.random() < 0.1:
        return change_bytes(random, content or b" ")
    for _ in range(int(random.integers(1, 4))):
        lines = content.split(b"\n")
        at, kind = int(random.integers(len(lines))), int(random.integers(10))
        words = list(WORDS.finditer(content))
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, pick(random, lines))
        elif kind == 2:
            other = int(random.integers(len(lines)))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 3:
            lines.insert(at, pick(random, pick(random, others).split(b"\n")))
        elif words:
            word = pick(random, words)
            numbers = [w for w in words if w.group()[:1].isdigit()]
            if kind < 7 and numbers:
                word, by = pick(random, numbers), str(pick(random, NUMBERS)).encode()
            elif kind < 9:
                by = pick(random, words).group()
            else:
                by = pick(random, INSERTED)
            content = content[:word.start()] + by + content[word.end():]
            continue
        content = b"\n".join(lines)
    return content


# --------------------------------------------------------------------------------------- JSON

JSON_VALUES = [None, True, False, 0, -1, 1, 0.5, -1e300, 1e300, 1 << 31, (1 << 31) - 1, 1 << 53, float("nan"), float("inf"), "", "x", "run nothing",
               "</script><script>bad()</script>", "\u202e\ud800\u2028", "\x01\x7f", "L" * 5000, [], {}, [[]], [{}], [None], [[-1, 1 << 40]], [0.5], {"x": {"y": []}}]


def spot_of(random, value):
    """Some (container, key) within a value, those further up more often; None: it holds nothing."""
    found = None
    while isinstance(value, (list, dict)) and value and (found is None or random.random() < 0.75):
        key = pick(random, list(value)) if isinstance(value, dict) else int(random.integers(len(value)))
        found, value = (value, key), value[key]
    return found


def change_json(random, whole, other):
    spot = spot_of(random, whole)
    if not spot:
        return
    container, key = spot
    old, kind = container[key], int(random.integers(8))
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(old, list):
        container[key] = old * 2 if len(old) < 50 else old[:len(old) // 2]
    elif kind == 2 and isinstance(old, (int, float)):
        container[key] = pick(random, NUMBERS + [old + 1, -old, old / 3])
    elif kind in (3, 4):
        from_other = spot_of(random, other if kind == 3 else whole)
        container[key] = copy.deepcopy(from_other[0][from_other[1]])
    elif kind == 5 and isinstance(container, dict):
        container[str(pick(random, JSON_VALUES))] = container.pop(key)
    elif kind == 6:
        for _ in range(int(random.integers(1, 80))):
            old = [old]
        container[key] = old
    else:
        container[key] = pick(random, JSON_VALUES)


def mutate_json(random, content, other):
    """A document whose values are of other kinds, out of range, elsewhere, left out; sometimes no JSON."""
    whole, other = json.loads(content), json.loads(other)
    for _ in range(int(random.integers(1, 5))):
        change_json(random, whole, other)
    content = json.dumps(whole, ensure_ascii=bool(random.random() < 0.5)).encode("utf-8", "surrogatepass")
    return mutate_text(random, content, [content]) if random.random() < 0.1 else content


# -------------------------------------------------------------------------------- arrays, words


def array_bytes(random):
    """An .npy file, perhaps with a header that does not go with it."""
    dtype = pick(random, ["<f4", "<f4", "<f8", "<f2", "<i8", "<i4", "|u1", "|b1", ">f4", "<U3", "|S2", "<c8", "|O", "<f1", "|V2"])
    shape = tuple(int(n) for n in random.integers(0, 6, int(random.integers(0, 5))))
    if random.random() < 0.3:
        shape = tuple(pick(random, NUMBERS) for _ in shape)
    header = repr({"descr": dtype, "fortran_order": bool(random.random() < 0.2), "shape": shape})
    if random.random() < 0.2:
        header = mutate_text(random, header.encode(), [b"x"]).decode("latin-1")
    version = pick(random, [1, 1, 1, 2, 3, 0, 255])
    text = header.encode("latin-1") + b" " * int(random.integers(0, 20)) + b"\n"
    length = len(text) if random.random() < 0.9 else pick(random, [0, 1, 65535, len(text) + 7])
    head = b"\x93NUMPY" + bytes([version, 0]) + length.to_bytes(2 if version == 1 else 4, "little")
    return head + text + random.bytes(int(random.integers(0, 3000)))


def mutate_array(random, content, _):
    return change_bytes(random, content) if random.random() < 0.5 else array_bytes(random)


def png_bytes(random, side):
    """A grey picture of that side."""
    def chunk(name, data):
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")
    rows = b"".join(b"\0" + random.bytes(side) for _ in range(side))
    head = side.to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def samples(random, folder):
    """Eight samples for tgc train in files of some kind: the files, and the words of the command."""
    x, target = random.standard_normal((8, 1, 2, 2)).astype(np.float32), random.integers(0, 3, 8)
    kind = pick(random, ["npz", "npz", "npy", "idx", "csv", "folder"])
    if kind == "npz":
        save = pick(random, [np.savez, np.savez_compressed])
        save(folder / "data.npz", x=x, target=target)
    elif kind == "npy":
        np.save(folder / "x.npy", x)
        np.save(folder / "target.npy", target)
    elif kind == "idx":
        (folder / "x.idx").write_bytes(bytes([0, 0, 13, 4, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2]) + x.astype(">f4").tobytes())
        (folder / "target.idx").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 8]) + target.astype(np.uint8).tobytes())
    elif kind == "csv":
        lines = ["a,b,c,d,target", *(",".join([*map(str, row), str(t)]) for row, t in zip(x.reshape(8, 4), target))]
        (folder / "data.csv").write_text("\n".join(lines) + "\n")
    else:
        for k in range(8):
            (folder / "data" / str(k % 3)).mkdir(parents=True, exist_ok=True)
            (folder / "data" / str(k % 3) / f"{k}.png").write_bytes(png_bytes(random, 2))
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "model.tg")
    if kind == "folder":
        return files, ["--data", "data"]
    if kind != "npz" and random.random() < 0.3:
        for path in files:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        files = [path.with_name(path.name + ".gz") for path in files]
    words = [word for path in files for word in ("--data", f"{path.name.split('.')[0]}={path.name}" if len(files) > 1 else path.name)]
    return files, words + ["--target-column=target"] * (kind == "csv")


# Options of tgc train, each with values that are right somewhere.
TRAINING = [("--loss", ["cross_entropy", "mse", "l1", "huber", "bce_with_logits", "output:y"]),
            ("--optimizer", ["sgd:momentum=0.9,nesterov", "adam", "adamw:weight_decay=0.01,beta2=0.95", "rmsprop", "adagrad", "lamb", "muon"]),
            ("--lr", ["0.1", "1e-3"]), ("--batch", ["2", "8"]), ("--seed", ["3"]), ("--init", ["1"]), ("--clip", ["1"]),
            ("--schedule", ["cosine,warmup=2", "linear", "constant"]), ("--augment", ["shift:2,flip", "crop:2x2", "normalize:0.5:0.5"]),
            ("--freeze", ["w", "*", "b*"]), ("--lora", ["w*:1", "w:2", "*:3"]), ("--early-stop", ["2"]), ("--log", ["out.jsonl", "log.csv"]), ("--plot", ["plot.svg"]),
            ("--checkpoint", ["kept"]), ("--target-column", ["target"]), ("--detect-nan", None)]


def mutate_training(random, data):
    """The words of tgc train for samples that `data` names: most of them right."""
    words = ["--loss=cross_entropy", "--optimizer=adam", "--epochs=2", *data]
    for _ in range(int(random.integers(0, 4))):
        option, values = pick(random, TRAINING)
        if values is None:
            words.append(option)
            continue
        value = pick(random, values)
        if random.random() < 0.1:
            value = mutate_text(random, value.encode(), [b"x=1"]).decode("latin-1").replace("\0", "")
        words = [word for word in words if not word.startswith(option + "=")] + [f"{option}={value}"]
    return words


# Options of a compile, each with values that are right somewhere. {0}: the name of an input or a dimension.
OPTIONS = [("--dim", ["{0}=4", "{0}=..8", "{0}=1", "*=..4", "N<=3"]), ("--shape", ["{0}=1x3x4", "{0}=?x2", "{0}=[2x3,4]", "{0}=absent"]),
           ("--state", ["{0}={0}", "y=x"]), ("--threads", ["1", "4", "64"]), ("--cpu", ["auto", "generic", "native", "znver4"]), ("--machine", ["common", "host"]),
           ("--error", ["0", "1e-2", "1e-4"]), ("--weight-type", ["f32", "bf16", "int8"]), ("--math", ["f32", "tf32", "bf16", "f16"]),
           ("--weights", ["string", "array", "incbin", "file"]), ("--vectors", ["auto", "never"]), ("--value", ["*", "{0}", "layer1*"]),
           ("--name", ["net", "a b", "int"]), ("--max-memory", ["64M", "1G", "200M"]), ("--nchwc-block", ["8", "16"]),
           ("-O0", None), ("-O1", None), ("-O3", None), ("--fast-math", None), ("--no-winograd", None), ("--strassen", None), ("--image", None), ("--half-storage", None),
           ("--no-external-data", None), ("--why", None), ("-MMD", None), ("-g", None)]


def mutate_words(random, names):
    """Options of the command line: each right, or with a value that was changed."""
    words = []
    for _ in range(int(random.integers(1, 5))):
        option, values = pick(random, OPTIONS)
        if values is None:
            words.append(option)
            continue
        value = pick(random, values).format(pick(random, names))
        if random.random() < 0.4:
            value = mutate_text(random, value.encode(), [b"x=1"]).decode("latin-1").replace("\0", "")
        words.append(f"{option}={value}")
    return words
