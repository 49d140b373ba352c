"""make_conformance.py: writes conformance.bin.gz, node cases of the onnx package, and light_nets.bin.gz, its light nets.

Takes the cases of the ops in runtime/onnx/op_table.cpp and says how many it leaves out, and why. The test compares the
number of cases and the failures with conformance_test.cpp and conformance_unsupported.txt. Run it in an environment with
the packages onnx and numpy, from any folder.
"""

import collections
import gzip
import os
import pathlib
import re
import struct

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.runner import Runner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data"
MAX_CASE_BYTES = 3000


def text(data):
    return struct.pack("<I", len(data)) + data


def record(name, model, inputs, outputs):
    parts = [text(name.encode()), text(model), struct.pack("<I", len(inputs)), *map(text, inputs)]
    return b"".join(parts + [struct.pack("<I", len(outputs)), *map(text, outputs)])


def write(path, records):
    # No name and no time in the header: the same cases give the same bytes.
    with open(path, "wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0, compresslevel=9) as packed:
        packed.write(struct.pack("<I", len(records)) + b"".join(records))
    print(f"{path.name}: {len(records)} cases, {os.path.getsize(path)} bytes")


def without_docs(model):
    model.ClearField("doc_string")
    for node in model.graph.node:
        node.ClearField("doc_string")
    return model


def why_left_out(model, tensors, ops):
    graphs = [model.graph, *model.functions]
    ops = ops | {function.name for function in model.functions}
    while graphs:
        for node in graphs.pop().node:
            if node.op_type not in ops or (node.domain and not model.functions):
                return "has an op that is not in the table"
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    values = list(model.graph.input) + list(model.graph.output)
    if tensors is None or any(not value.type.HasField("tensor_type") for value in values):
        return "takes or gives no tensor"
    size = len(model.SerializeToString()) + sum(map(len, tensors[0] + tensors[1]))
    return f"above {MAX_CASE_BYTES} bytes" if size > MAX_CASE_BYTES else None


def as_tensors(values):
    """The values as serialized tensors; None where one is a sequence or nothing."""
    protos = [v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(np.asarray(v)) for v in values
              if not isinstance(v, (list, type(None)))]
    return [proto.SerializeToString() for proto in protos] if len(protos) == len(values) else None


def node_cases():
    ops = set(re.findall(r'\{"(\w+)",\s*\d+,', (ROOT / "runtime/onnx/op_table.cpp").read_text()))
    records, left_out = [], collections.Counter()
    for case in sorted(collect_testcases(""), key=lambda case: case.name):
        inputs, outputs = map(as_tensors, case.data_sets[0])
        tensors = None if inputs is None or outputs is None else (inputs, outputs)
        why = why_left_out(case.model, tensors, ops)
        if why:
            left_out[why] += 1
            continue
        records.append(record(case.name, without_docs(case.model).SerializeToString(), *tensors))
    for why, count in left_out.most_common():
        print(f"left out: {count} cases, {why}")
    return records


def light_nets():
    records = []
    for path in sorted((DATA / "light").glob("*.onnx")):
        model = onnx.load(path)
        known = {tensor.name for tensor in model.graph.initializer}
        inputs = [i for i in model.graph.input if i.name not in known]
        arrays = [Runner.generate_dummy_data(i, seed=0, name=path.stem, random=False) for i in inputs]
        # The test makes the same numbers.
        for array in arrays:
            expected = (np.arange(array.size) / array.size).astype(array.dtype).reshape(array.shape)
            np.testing.assert_array_equal(array, expected)
        output = (path.parent / (path.stem + "_output_0.pb")).read_bytes()
        records.append(record(path.stem, without_docs(model).SerializeToString(), [], [output]))
    return records


if __name__ == "__main__":
    write(HERE / "conformance.bin.gz", node_cases())
    write(HERE / "light_nets.bin.gz", light_nets())
