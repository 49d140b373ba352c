"""make_onnx.py FOLDER: writes the seeds of onnx_fuzz: nets of images, texts and volumes, with the ops of exporters."""

import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model


def weight(name, *shape):
    count = int(np.prod(shape))
    return numpy_helper.from_array(np.linspace(-1, 1, count, dtype=np.float32).reshape(shape), name)


def integers(name, *values):
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def value(name, kind, *axes):
    return helper.make_tensor_value_info(name, kind, list(axes))


def image_net():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], epsilon=1e-5),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", "w2"], ["y"], transB=1),
    ]
    weights = [weight("w", 2, 3, 3, 3), weight("w2", 4, 2)] + [weight(name, 2) for name in "bgmv"]
    graph = helper.make_graph(nodes, "image", [value("x", TensorProto.FLOAT, "batch", 3, 8, 8)],
                              [value("y", TensorProto.FLOAT, "batch", 4)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def volume_net():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 0, 1, 1, 1, 1], strides=[2, 1, 1], dilations=[1, 2, 1]),
        helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=[3, 2, 2], pads=[1, 0, 0, 2, 1, 1]),
        helper.make_node("ConvTranspose", ["m", "w3"], ["t"], strides=[2, 1, 2], output_padding=[1, 0, 0]),
        helper.make_node("AveragePool", ["t"], ["a"], kernel_shape=[2, 2, 2], pads=[1, 1, 1, 1, 1, 1], ceil_mode=1),
        helper.make_node("ReduceMean", ["a"], ["i"], axes=[2], keepdims=0),
        helper.make_node("GridSample", ["i", "places"], ["s"], padding_mode="reflection"),
        helper.make_node("Flatten", ["s"], ["y"]),
    ]
    weights = [weight("w", 2, 1, 2, 2, 2), weight("b", 2), weight("w3", 2, 2, 2, 1, 2), weight("places", 1, 2, 1, 2)]
    graph = helper.make_graph(nodes, "volume", [value("x", TensorProto.FLOAT, 1, 1, 4, 5, 4)],
                              [value("y", TensorProto.FLOAT, 1, 4)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def text_net():
    nodes = [
        helper.make_node("Gather", ["w", "x"], ["e"]),
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Concat", ["s", "minus", "two"], ["shape"], axis=0),
        helper.make_node("Reshape", ["e", "shape"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "g", "b"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["n", "t"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"]),
        helper.make_node("MatMul", ["p", "n"], ["y"]),
    ]
    nodes[-1].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'net', 'matmul']")
    nodes[-1].metadata_props.add(key="pkg.torch.onnx.stack_trace", value='File "net.py", line 3, in forward')
    weights = [weight("w", 5, 2), weight("g", 2), weight("b", 2), integers("minus", -1), integers("two", 2)]
    graph = helper.make_graph(nodes, "text", [value("x", TensorProto.INT64, "batch", 3)],
                              [value("y", TensorProto.FLOAT, "batch", 3, 2)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


folder = pathlib.Path(sys.argv[1])
save_model(image_net(), folder / "image.onnx")
save_model(text_net(), folder / "text.onnx")
save_model(volume_net(), folder / "volume.onnx")
