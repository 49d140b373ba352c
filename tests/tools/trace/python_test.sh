#!/bin/sh
# Runs the tests of the tracer if Python has PyTorch 2.4 or later; otherwise skips them (77).
python=${HEADROOM_PYTHON:-python3}
"$python" -c 'import sys, torch
sys.exit(tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 4))' 2>/dev/null || exit 77
export CUDA_VISIBLE_DEVICES= PYTHONPATH=$1/python
tests="tracer kernels standin checkpoints values computed choices layers distributed results changes answers program command"
for test in $tests compiled traced_command habits; do
  "$python" "$1/tests/tools/trace/${test}_test.py" || exit 1
done
