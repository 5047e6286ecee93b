"""Networks with open heights, widths or lengths, in the text format: of which tests and benchmark make programs."""


class Net:
    """A model in the text format, written layer by layer; the last value is `self.at`."""

    least = 1                   # below it the model has a pool or a convolution without outputs

    def __init__(self, *shape):
        self.shape, self.lines, self.n, self.at, self.channels = shape, [], 0, "x", shape[0]
        self.rank = len(shape) - 1

    def op(self, text):
        self.n += 1
        self.lines.append(f"%v{self.n} = {text}")
        self.at = f"v{self.n}"
        return self

    def weight(self, *shape):
        self.n += 1
        self.lines.append(f"weight %w{self.n} : f32[{', '.join(map(str, shape))}] = kaiming_uniform(seed={self.n})")
        return f"%w{self.n}"

    def conv(self, channels, kernel=3, act="relu", groups=1, more="", padding=None):
        taps = kernel if isinstance(kernel, tuple) else (kernel,) * self.rank
        w, b = self.weight(channels, self.channels // groups, *taps), self.weight(channels)
        padding = padding or "[" + ", ".join([str(k // 2) for k in taps] * 2) + "]"
        self.op(f"conv(%{self.at}, {w}, {b}) {{padding={padding}, groups={groups}{more}}}")
        self.channels = channels
        return self.op(f"{act}(%{self.at})") if act else self

    def up(self, channels, like=None):
        """`like`: sizes of half of which the value is, rounded down; odd ones get a border."""
        w, b = self.weight(self.channels, channels, *[2] * self.rank), self.weight(channels)
        self.channels = channels
        self.op(f"conv_transpose(%{self.at}, {w}, {b}) {{stride=2}}")
        more = ", ".join(f"floormod({size}, 2)" for size in like or ())
        return self.op(f"pad(%{self.at}, 0) {{lo=[0, 0, 0, 0], hi=[0, 0, {more}]}}") if like else self

    def pool(self, kernel="2"):
        return self.op(f"max_pool(%{self.at}) {{kernel={kernel}}}")

    def join(self, other, channels):
        self.channels += channels
        return self.op(f"concat(%{self.at}, %{other}) {{axis=1}}")

    def text(self, bound):
        dims = ", ".join(f"{d}<={bound}" if isinstance(d, str) else str(d) for d in self.shape)
        return "\n".join(["tg 1", 'graph "net"', f"input %x : f32[1, {dims}]", *self.lines, f"output %{self.at} as \"y\""]) + "\n"


def convolutions():
    return Net(3, "H", "W").conv(32).conv(32).conv(32).conv(8, act=None)


def conv1d():
    return Net(40, "W").conv(64).conv(64).conv(64).conv(32, 1, act=None)


def recognizer():
    """A text recognizer: convolutions over a line of 32 rows, an LSTM along its width."""
    net = Net(1, 32, "W").conv(32).pool().conv(64).pool().conv(128).conv(128).pool("[2, 1]").conv(256).pool("[2, 1]")
    net.conv(256, (2, 1), padding="[0, 0, 0, 0]").least = 4
    net.op(f"reshape(%{net.at}) {{shape=[256, floordiv(W, 4)]}}").op(f"permute(%{net.at}) {{perm=[1, 0]}}")
    net.op(f"reshape(%{net.at}) {{shape=[floordiv(W, 4), 1, 256]}}")
    w, r = net.weight(1, 256, 256), net.weight(1, 256, 64)
    net.op(f"lstm(%{net.at}, {w}, {r})")
    net.lines[-1] = net.lines[-1].replace(" = ", ", %h, %c = ")
    net.op(f"reshape(%{net.at}) {{shape=[floordiv(W, 4), 64]}}")
    return net.op(f"matmul(%{net.at}, {net.weight(64, 96)})").op(f"softmax(%{net.at}) {{axis=-1}}")


def unet():
    net = Net(3, "H", "W").conv(16).conv(16)
    first = net.at
    net.pool().conv(32).conv(32)
    second = net.at
    net.pool().conv(64).conv(64).up(32, ("floordiv(H, 2)", "floordiv(W, 2)")).join(second, 32).conv(32)
    net.up(16, ("H", "W")).join(first, 16).conv(16)
    net.least = 4
    return net.conv(2, 1, act="sigmoid")


def fcn():
    net = Net(3, "H", "W").conv(16, more=", stride=2").conv(32, more=", stride=2").conv(64, more=", stride=2").conv(64)
    net.conv(8, 1, act=None)
    return net.op(f"resize(%{net.at}) {{size=[1, 8, H, W], mode=linear}}")


def mobilenet():
    net = Net(3, "H", "W").conv(16, act="relu6", more=", stride=2")
    for channels, stride in ((24, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        net.conv(net.channels * 4, 1, "relu6").conv(net.channels, 3, "relu6", net.channels, f", stride={stride}")
        net.conv(channels, 1, None)
    return net.op(f"global_avg_pool(%{net.at})").op(f"reshape(%{net.at}) {{shape=[1, 64]}}").op(
        f"matmul(%{net.at}, {net.weight(64, 10)})")


def residual():
    """The backbone of a detector."""
    net = Net(3, "H", "W").conv(16, more=", stride=2")
    for channels in (32, 64):
        net.conv(channels, more=", stride=2")
        before = net.at
        net.conv(channels // 2, 1, "silu").conv(channels, 3, "silu").op(f"add(%{net.at}, %{before})")
    return net.conv(18, 1, "sigmoid")


def tcn():
    """Dilated causal convolutions."""
    net = Net(32, "W").conv(64, 1)
    for dilation in (1, 2, 4, 8):
        before = net.at
        net.conv(64, 3, more=f", dilation={dilation}", padding=f"[{2 * dilation}, 0]").conv(64, 1, None)
        net.op(f"add(%{net.at}, %{before})")
    return net.conv(16, 1, None)


def stem():
    """A speech encoder's first layers: strided convolutions of a waveform, a norm along channels, a GELU."""
    net = Net(1, "W").conv(128, 10, "gelu", more=", stride=5", padding="[5, 4]")
    return net.conv(128, 3, "gelu", more=", stride=2").conv(128, 3, "gelu", more=", stride=2").conv(128, 1, None)


def superresolution():
    net = Net(1, "H", "W").conv(64, 5).conv(32).conv(4, act=None)
    return net.op(f"depth_to_space(%{net.at}) {{block=2}}")


def volume():
    """Three dimensions."""
    net = Net(1, 16, "H", "W").conv(16).conv(32).pool().conv(32).conv(4, 1, None)
    net.least = 2
    return net


def autoencoder():
    net = Net(3, "H", "W").conv(16, more=", stride=2").conv(32, more=", stride=2").conv(32).up(16).op("relu(%v0)")
    net.lines[-1] = net.lines[-1].replace("%v0", f"%v{net.n - 1}")
    return net.up(3)


# name: what it is, its bound, whether height and width are open or the width alone
MODELS = {
    "convolutions": (convolutions, 256, True), "conv1d": (conv1d, 400, False), "recognizer": (recognizer, 320, False),
    "unet": (unet, 192, True), "fcn": (fcn, 256, True), "mobilenet": (mobilenet, 224, True), "residual": (residual, 256, True),
    "tcn": (tcn, 500, False), "stem": (stem, 8000, False), "superresolution": (superresolution, 128, True),
    "volume": (volume, 64, True), "autoencoder": (autoencoder, 192, True)}
