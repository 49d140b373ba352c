"""Compares models with ONNX Runtime: bench/onnx_models.py HEADROOM FOLDER [NAME=N...]

Runs each ONNX file below FOLDER with random inputs in both, and prints how far the outputs are from ONNX Runtime's.
FOLDER may hold wheels, whose files are unpacked beside them. A free axis has the length N of its name (or INPUT.AXIS),
otherwise 1 if it is the first, and 64. An input of whole numbers with a NAME=N is N. Needs what onnx_rows.py needs.
"""

import os
import pathlib
import sys
import zipfile

import numpy
import onnxruntime
from onnx_rows import BOUND, Ours, Theirs, distance
from safetensors.numpy import save_file

TYPES = {"float": "f", "double": "d", "int64": "int64", "int32": "int32", "bool": "bool", "float16": "e"}
WORDS = 10  # whole numbers are below this


def unpack(wheel):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".onnx"):
                archive.extract(name, wheel.with_suffix(""))


def inputs_of(path, sizes):
    """The inputs' data, and the options that tell `headroom run` the same."""
    random = numpy.random.default_rng(1)
    inputs, options = {}, {}
    for x in onnxruntime.InferenceSession(path).get_inputs():
        shape = []
        for axis, extent in enumerate(x.shape):
            if not isinstance(extent, int):
                name = f"{x.name}.{axis}" if extent in (None, "?") else extent
                extent = sizes.get(name, 1 if axis == 0 else 64)
                if axis > 0 or extent > 1:
                    options[name] = extent
            shape.append(extent)
        dtype = TYPES[x.type[len("tensor("):-1]]
        if x.name in sizes:
            inputs[x.name] = numpy.full(shape, sizes[x.name], dtype)
            options[x.name] = sizes[x.name]
        elif dtype in "fde":
            inputs[x.name] = random.random(shape).astype(dtype)  # also valid where they are indices
        else:
            inputs[x.name] = random.integers(0, WORDS, shape).astype(dtype)
    return inputs, [word for name, size in options.items() for word in ("--dim", f"{name}={size}")]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    headroom, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    sizes = {name: int(size) for name, size in (word.split("=") for word in sys.argv[3:])}
    onnxruntime.set_default_logger_severity(4)
    for wheel in folder.glob("*.whl"):
        unpack(wheel)
    agreed = 0
    files = sorted(folder.rglob("*.onnx"))
    for file in files:
        data = str(file.with_suffix(".safetensors"))
        try:
            inputs, options = inputs_of(str(file), sizes)
            save_file(inputs, data)
            apart = distance(Ours(headroom, str(file), data, *options).answers(), Theirs(str(file), inputs).answers())
            agreed += apart <= BOUND
            result = f"{apart:.0e}" + ("" if apart <= BOUND else ": differs")
        except Exception as error:  # one that does not run is a result
            result = str(error).splitlines()[0]
        finally:
            for leftover in (data, data + ".outputs"):
                if os.path.exists(leftover):
                    os.remove(leftover)
        print(f"| {file.relative_to(folder)} | {result} |", flush=True)
    print(f"\n{agreed} of {len(files)} agree within {BOUND:.0e}")


if __name__ == "__main__":
    main()
