#!/bin/sh
# Installs the wheel into a clean Python and follows README's section on PyTorch there, without a GPU.
set -eu
. "$(dirname -- "$0")/common.sh"

usage() {
  cat <<'HELP'
usage: tools/check_wheel.sh [--python PYTHON] [--keep]
Builds and installs the package with pip in a virtual environment of its own, runs the command, and traces,
predicts and fits README's example. Says how long each took.
  --python PYTHON  a Python with PyTorch and transformers, whose packages the new one sees (otherwise python3;
                   without PyTorch only the command is tried)
  --keep           leave the environment there; it is removed otherwise
Needs pip, a compiler and, where they are not installed, the network for scikit-build-core and libraries.
Exit codes: 0 passed, 5 a command failed, 2 bad arguments, 1 anything else.
HELP
}

python=python3
keep=
while [ $# -gt 0 ]; do
  case "$1" in
    --python)
      [ $# -ge 2 ] || fail 2 "--python needs a value (see --help)"
      python=$2
      shift
      ;;
    --keep) keep=1 ;;
    --help | -h)
      usage
      exit 0
      ;;
    *) fail 2 "unknown argument '$1' (see --help)" ;;
  esac
  shift
done

folder=$(mktemp -d)
[ -n "$keep" ] || trap 'rm -rf "$folder"' EXIT
unset HEADROOM_PYTHON PYTHONPATH

# step NAME COMMAND... runs a command and prints its time, and its output if it fails.
step() {
  what=$1
  shift
  began=$(date +%s)
  if "$@" >"$folder/log" 2>&1; then
    echo "$what: $(($(date +%s) - began)) s"
  else
    cat "$folder/log"
    fail 5 "$what failed"
  fi
}

"$python" -m venv "$folder/venv"
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  >"$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/other.pth"
step "pip install ." "$folder/venv/bin/python" -m pip install "$root"
PATH=$folder/venv/bin:$PATH
step "headroom devices" headroom devices
if ! "$folder/venv/bin/python" -c 'import torch, transformers' 2>/dev/null; then
  echo "$python has no PyTorch or no transformers: README's example was not tried"
  exit 0
fi
cd "$folder"
CUDA_VISIBLE_DEVICES=
export CUDA_VISIBLE_DEVICES
step "headroom predict" headroom predict "$root/examples/gpt2.py:make_step" --batch 16 --device rtx-3090
head -n 1 "$folder/log"
step "headroom fit" headroom fit "$root/examples/gpt2.py:make_step" --device rtx-3090
head -n 1 "$folder/log"
