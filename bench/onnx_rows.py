"""Times ops and nets beside ONNX Runtime, one core, one thread: bench/onnx_rows.py HEADROOM FOLDER [ROW...]

Makes an ONNX file for each row in FOLDER, compares what both compute, and measures both in turns, ROUNDS times, without
their start. Times are medians, and so is the ratio, of the rounds' ratios. ROW is the beginning of a row's name.
Needs numpy, onnx, onnxruntime and safetensors.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time

import numpy
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from safetensors.numpy import load_file, save_file

ROUNDS, SECONDS, GROUPS = 9, 0.15, 10
BOUND = 1e-4  # of the largest number of an output
NOISE = 2e-7  # ONNX Runtime's sigmoid is off by so much, whatever the result
ROWS = {}


class Net:
    """A model under construction, and its inputs' data."""

    def __init__(self):
        self.random = numpy.random.default_rng(1)
        self.nodes, self.weights, self.data = [], [], {}

    def input(self, *shape, below=None):
        """A tensor of random numbers, or of whole ones below a number."""
        drawn = self.random.integers(0, below, shape) if below else self.random.standard_normal(shape, "f")
        name = f"x{len(self.data)}"
        self.data[name] = drawn
        return name

    def constant(self, values, dtype="int64"):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(values, dtype), name))
        return name

    def weight(self, *shape):
        fan = max(1, math.prod(shape[1:]))
        return self.constant(self.random.standard_normal(shape, "f") / math.sqrt(fan), "float32")

    def __call__(self, op, *operands, **attributes):
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], **attributes))
        return name

    def conv(self, x, channels, filters, size, stride=1, group=1, op="Conv"):
        shape = (channels, filters // group) if op != "Conv" else (filters, channels // group)
        pad = 0 if op != "Conv" else size // 2
        return self(op, x, self.weight(*shape, size, size), self.weight(filters), strides=[stride] * 2,
                    pads=[pad] * 4, group=group)

    def dense(self, x, inputs, outputs):
        return self("Add", self("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def gelu(self, x):
        erf = self("Erf", self("Div", x, self.constant(math.sqrt(2), "float32")))
        half = self("Mul", x, self.constant(0.5, "float32"))
        return self("Mul", half, self("Add", erf, self.constant(1, "float32")))

    def norm(self, x, size):
        return self("LayerNormalization", x, self.weight(size), self.weight(size))

    def heads(self, x, length, heads, size):
        parts = self("Reshape", x, self.constant([1, length, heads, size]))
        return self("Transpose", parts, perm=[0, 2, 1, 3])

    def attend(self, q, k, v, size, mask=None):
        """Attention of (1, heads, length, size)."""
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, self.constant(size ** -0.5, "float32"))
        if mask is not None:
            scores = self("Add", scores, self.constant(mask, "float32"))
        return self("MatMul", self("Softmax", scores, axis=-1), v)

    def attention(self, x, length, heads, size, past=0, mask=None):
        """Self-attention of (1, length, heads x size), over `past` earlier keys and values too."""
        width = heads * size
        q, k, v = (self.heads(self.dense(x, width, width), length, heads, size) for _ in range(3))
        if past:
            k, v = (self("Concat", self.input(1, heads, past, size), part, axis=2) for part in (k, v))
        mixed = self("Transpose", self.attend(q, k, v, size, mask), perm=[0, 2, 1, 3])
        return self.dense(self("Reshape", mixed, self.constant([1, length, width])), width, width)

    def block(self, x, length, heads, size, **options):
        """A layer of a transformer, norms first."""
        width = heads * size
        x = self("Add", x, self.attention(self.norm(x, width), length, heads, size, **options))
        inner = self.gelu(self.dense(self.norm(x, width), width, 4 * width))
        return self("Add", x, self.dense(inner, 4 * width, width))

    def recurrent(self, op, gates, x, inputs, hidden, directions=1):
        biases = self.weight(directions, 2 * gates * hidden)
        direction = "bidirectional" if directions == 2 else "forward"
        return self(op, x, self.weight(directions, gates * hidden, inputs),
                    self.weight(directions, gates * hidden, hidden), biases, hidden_size=hidden, direction=direction)

    def save(self, output, path):
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                  for name, x in self.data.items()]
        graph = helper.make_graph(self.nodes, "row", inputs, [onnx.ValueInfoProto(name=output)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        shapes = {value.name: value for value in model.graph.value_info}
        if output in shapes:
            model.graph.output[0].CopyFrom(shapes[output])
        onnx.save(model, path)


def row(name):
    def add(make):
        ROWS[name] = make
        return make

    return add


def op_row(name, shape, op, **attributes):
    ROWS[name] = lambda net: net(op, net.input(*shape), **attributes)


def product_row(rows, inputs, outputs):
    ROWS[f"matmul {rows}x{inputs}x{outputs}"] = lambda net: net("MatMul", net.input(rows, inputs),
                                                              net.weight(inputs, outputs))


def gemm_row(rows, inputs, outputs):
    ROWS[f"gemm+relu {rows}x{inputs}x{outputs}"] = lambda net: net("Relu", net(
        "Gemm", net.input(rows, inputs), net.weight(outputs, inputs), net.weight(outputs), transB=1))


def conv_row(name, image, filters, size, **options):
    ROWS[f"{name} {image[0]}x{image[1]}x{image[2]}->{filters}"] = lambda net: net.conv(
        net.input(1, *image), image[0], filters, size, **options)


def recurrent_row(op, gates, steps, batch, inputs, hidden, directions=1):
    name = f"{op.lower()} {steps} steps, batch {batch}, {inputs}->{hidden}" + (" both ways" if directions == 2 else "")
    ROWS[name] = lambda net: net.recurrent(op, gates, net.input(steps, batch, inputs), inputs, hidden, directions)


for count in (1, 8, 64, 512):
    product_row(count, 512, 512)
product_row(1, 768, 3072)
for count in (1, 8, 64, 512):
    gemm_row(count, 256, 1024)
ROWS["batched matmul 12x64x64x128"] = lambda net: net("MatMul", net.input(12, 64, 64), net.input(12, 64, 128))

conv_row("conv 1x1", (64, 28, 28), 128, 1)
conv_row("conv 1x1", (256, 14, 14), 256, 1)
conv_row("conv 3x3", (3, 112, 112), 32, 3, stride=2)
conv_row("conv 3x3", (64, 56, 56), 64, 3)
conv_row("conv 3x3", (256, 14, 14), 256, 3)
conv_row("conv 3x3 stride 2", (64, 56, 56), 128, 3, stride=2)
conv_row("conv 7x7 stride 2", (3, 224, 224), 64, 7, stride=2)
conv_row("depthwise 3x3", (96, 56, 56), 96, 3, group=96)
conv_row("depthwise 5x5 stride 2", (192, 28, 28), 192, 5, stride=2, group=192)
conv_row("transposed 2x2 stride 2", (64, 28, 28), 32, 2, stride=2, op="ConvTranspose")
ROWS["conv1d k5 64x400->64"] = lambda net: net("Conv", net.input(1, 64, 400), net.weight(64, 64, 5), pads=[2, 2])

recurrent_row("LSTM", 4, 50, 1, 32, 32)
recurrent_row("LSTM", 4, 50, 1, 128, 256)
recurrent_row("LSTM", 4, 30, 16, 64, 128)
recurrent_row("LSTM", 4, 50, 1, 64, 64, 2)
recurrent_row("GRU", 3, 50, 1, 32, 32)
recurrent_row("GRU", 3, 50, 1, 128, 256)
recurrent_row("RNN", 1, 50, 1, 64, 64)

op_row("softmax 64x1000", (64, 1000), "Softmax", axis=-1)
op_row("softmax 12x128x128", (12, 128, 128), "Softmax", axis=-1)
ROWS["layer norm 128x768"] = lambda net: net.norm(net.input(128, 768), 768)
ROWS["gelu 128x3072"] = lambda net: net.gelu(net.input(128, 3072))
op_row("sigmoid 64x1024", (64, 1024), "Sigmoid")
op_row("tanh 64x1024", (64, 1024), "Tanh")
ROWS["attention 12 heads, 128x64"] = lambda net: net.attend(*(net.input(1, 12, 128, 64) for _ in range(3)), 64)
op_row("max pool 3x3 stride 2, 64x112x112", (1, 64, 112, 112), "MaxPool", kernel_shape=[3, 3], strides=[2, 2],
       pads=[1, 1, 1, 1])
op_row("average pool 2x2, 64x56x56", (1, 64, 56, 56), "AveragePool", kernel_shape=[2, 2], strides=[2, 2])
op_row("global average pool 512x7x7", (1, 512, 7, 7), "GlobalAveragePool")
op_row("mean of rows 17x1024", (17, 1024), "ReduceMean", axes=[1])
ROWS["sum of columns 128x1024"] = lambda net: net("ReduceSum", net.input(128, 1024), net.constant([0]))
op_row("transpose 64x56x56 to channels last", (1, 64, 56, 56), "Transpose", perm=[0, 2, 3, 1])
ROWS["resize x2 linear 32x40x40"] = lambda net: net("Resize", net.input(1, 32, 40, 40), "",
                                                    net.constant([1, 1, 2, 2], "float32"), mode="linear")
ROWS["embedding 128 of 30000x256"] = lambda net: net("Gather", net.weight(30000, 256), net.input(128, below=30000))
ROWS["add of a bias 64x56x56"] = lambda net: net("Add", net.input(1, 64, 56, 56), net.weight(64, 1, 1))


@row("mlp 16x64-256-256-10")
def make_mlp(net):
    x = net.input(16, 64)
    for inputs, outputs in ((64, 256), (256, 256)):
        x = net("Relu", net.dense(x, inputs, outputs))
    return net.dense(x, 256, 10)


@row("mnist net, one image")
def make_mnist(net):
    x = net("MaxPool", net("Relu", net.conv(net.input(1, 1, 28, 28), 1, 32, 3)), kernel_shape=[2, 2], strides=[2, 2])
    x = net("MaxPool", net("Relu", net.conv(x, 32, 64, 3)), kernel_shape=[2, 2], strides=[2, 2])
    x = net("Relu", net.dense(net("Flatten", x), 3136, 64))
    return net("Softmax", net.dense(x, 64, 10), axis=-1)


@row("resnet of 8 convolutions, 3x64x64")
def make_resnet(net):
    x = net("Relu", net.conv(net.input(1, 3, 64, 64), 3, 32, 3))
    channels = 32
    for filters in (32, 64, 128):
        stride = 1 if filters == channels else 2
        inner = net("Relu", net.conv(x, channels, filters, 3, stride))
        inner = net.conv(inner, filters, filters, 3)
        x = net("Relu", net("Add", inner, x if stride == 1 else net.conv(x, channels, filters, 1, stride)))
        channels = filters
    return net.dense(net("Flatten", net("GlobalAveragePool", x)), channels, 10)


@row("mobilenet of 5 blocks, 3x96x96")
def make_mobilenet(net):
    def clip(x):
        return net("Clip", x, net.constant(0, "float32"), net.constant(6, "float32"))

    x = clip(net.conv(net.input(1, 3, 96, 96), 3, 16, 3, 2))
    channels = 16
    for filters, stride in ((16, 1), (24, 2), (24, 1), (40, 2), (40, 1)):
        inner = clip(net.conv(x, channels, 4 * channels, 1))
        inner = clip(net.conv(inner, 4 * channels, 4 * channels, 3, stride, 4 * channels))
        inner = net.conv(inner, 4 * channels, filters, 1)
        x = net("Add", x, inner) if filters == channels and stride == 1 else inner
        channels = filters
    return net.dense(net("Flatten", net("GlobalAveragePool", x)), channels, 10)


ROWS["transformer layer, 64 words, 4x64"] = lambda net: net.block(net.input(1, 64, 256), 64, 4, 64)


@row("decoder step of 4 layers, 64 past words, 4x64")
def make_decoder(net):
    table = net.weight(4000, 256)
    x = net("Gather", table, net.input(1, 1, below=4000))
    for _ in range(4):
        x = net.block(x, 1, 4, 64, past=64)
    return net("MatMul", net.norm(x, 256), net("Transpose", table, perm=[1, 0]))


@row("causal text of 2 layers, 32 words, 4x32")
def make_text(net):
    x = net("Gather", net.weight(1000, 128), net.input(1, 32, below=1000))
    hidden = numpy.where(numpy.tri(32), 0, -1e9)
    for _ in range(2):
        x = net.block(x, 32, 4, 32, mask=hidden)
    return net.dense(net.norm(x, 128), 128, 1000)


@row("tagger: embedding, LSTM both ways, dense")
def make_tagger(net):
    x = net("Gather", net.weight(1000, 64), net.input(40, 1, below=1000))
    x = net("Transpose", net.recurrent("LSTM", 4, x, 64, 64, 2), perm=[0, 2, 1, 3])
    return net.dense(net("Reshape", x, net.constant([40, 1, 128])), 128, 20)


class Ours:
    """A file that `headroom run` computes, with its inputs in a file of safetensors."""

    def __init__(self, headroom, path, data, *options):
        self.command = [headroom, "run", "--model", path, "--data", data, "--device", "cpu", "--intra-op-threads", "1",
                        "--plan", "packed", "--json", *options]
        self.outputs = data + ".outputs"

    def run(self, *options):
        done = subprocess.run([*self.command, *options], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
        return json.loads(done.stdout)

    def answers(self):
        self.run("--outputs", self.outputs)
        return load_file(self.outputs)

    def seconds(self, steps):
        return self.run("--steps", str(steps))["seconds_per_step"]


class Theirs:
    """A session of ONNX Runtime on the same file, with inputs and outputs in place."""

    def __init__(self, path, inputs):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.names = [output.name for output in self.session.get_outputs()]
        for name, x in inputs.items():
            self.binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x))

    def answers(self):
        for name in self.names:
            self.binding.bind_output(name)
        self.session.run_with_iobinding(self.binding)
        answers = dict(zip(self.names, self.binding.copy_outputs_to_cpu()))
        for name, answer in answers.items():
            self.binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(answer))
        return answers

    def seconds(self, steps):
        def group(count):
            start = time.perf_counter()
            for _ in range(count):
                self.session.run_with_iobinding(self.binding)
            return (time.perf_counter() - start) / count

        return statistics.median(group(max(1, steps // GROUPS)) for _ in range(GROUPS))


def distance(ours, theirs):
    """The largest difference of an output, as a share of its largest number."""

    def of_output(got, expected):
        if got.shape != expected.shape:
            raise RuntimeError(f"gives {got.shape} instead of {expected.shape}")
        got, expected = got.astype("d"), expected.astype("d")
        most = numpy.abs(got - expected).max()
        return 0.0 if most <= NOISE else most / max(numpy.abs(expected).max(), 1e-30)

    return max(of_output(ours[name], expected) for name, expected in theirs.items() if expected.size)


def measure(name, headroom, folder):
    net = Net()
    path = os.path.join(folder, "".join(c if c.isalnum() else "_" for c in name) + ".onnx")
    net.save(ROWS[name](net), path)
    data = path.replace(".onnx", ".safetensors")
    save_file(net.data, data)
    ours, theirs = Ours(headroom, path, data), Theirs(path, net.data)
    apart = distance(ours.answers(), theirs.answers())
    if not apart <= BOUND:
        sys.exit(f"{name}: differs by {apart:.1e}")
    steps = max(GROUPS, int(SECONDS / theirs.seconds(GROUPS)))
    pairs = [(ours.seconds(steps), theirs.seconds(steps)) for _ in range(ROUNDS)]
    return [statistics.median(times) for times in (*zip(*pairs), [ours / theirs for ours, theirs in pairs])]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    headroom, folder, *wanted = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    print("| row | ours, us | ONNX Runtime, us | ratio |\n| --- | --- | --- | --- |")
    ratios = {}
    for name in ROWS:
        if wanted and not any(name.startswith(beginning) for beginning in wanted):
            continue
        ours, theirs, ratios[name] = measure(name, headroom, folder)
        print(f"| {name} | {1e6 * ours:.1f} | {1e6 * theirs:.1f} | {ratios[name]:.2f} |", flush=True)
    worst = max(ratios, key=ratios.get)
    mean = statistics.geometric_mean(ratios.values())
    print(f"\n{len(ratios)} rows: geometric mean {mean:.2f}, worst {ratios[worst]:.2f} ({worst})")


if __name__ == "__main__":
    main()
