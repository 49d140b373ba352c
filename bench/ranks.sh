#!/bin/sh
# Measures weak scaling over the GPUs of one host: processes under mpirun and threads (--replicas), compared with
# PyTorch DDP.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

say() { echo "ranks: $*" >&2; }
fail() { say "$*"; exit 2; }
usage() {
  cat <<'HELP'
usage: bench/ranks.sh --data DIR [--build DIR] [--gpus "2 4"] [--batches "64 4096"] [--epochs N]
                            [--math "tf32 bf16"]
                            [--buckets "25MiB 64KiB"] [--device NAME] [--no-peers]
Prints one Markdown table: us per step on one GPU alone and on all together, and the efficiency, alone / together.
The batch is that of one GPU, which does as many steps alone as beside the others. Each bucket size is a row:
gradients in one bucket are summed after the backward pass, smaller buckets beside the rest of it. bf16 is
--math bf16 here and autocast in PyTorch. --device sim:h200 tries the script without a GPU. The script skips a peer
that python3 lacks, and processes where there is no mpirun.
HELP
}

data='' build=$root/build/cuda gpus='2 4' batches='64 4096' epochs=10 buckets='25MiB 64KiB' maths=tf32 device=cuda peers=yes
while [ $# -gt 0 ]; do
  case $1 in
    --data | --build | --gpus | --batches | --epochs | --buckets | --math | --device) [ $# -ge 2 ] || fail "$1 needs a value" ;;
  esac
  case $1 in
    -h | --help) usage; exit 0 ;;
    --data) data=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --gpus) gpus=$2; shift 2 ;;
    --batches) batches=$2; shift 2 ;;
    --epochs) epochs=$2; shift 2 ;;
    --buckets) buckets=$2; shift 2 ;;
    --math) maths=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --no-peers) peers=no; shift ;;
    *) fail "unknown argument '$1' (see --help)" ;;
  esac
done
program=$build/examples/train_mnist
[ -n "$data" ] || fail "--data DIR names the folder with MNIST's four files"
[ -d "$data" ] || fail "$data: no such folder"
[ -x "$program" ] || fail "build first: cmake --preset cuda && cmake --build --preset cuda"

results=$(mktemp) errors=$(mktemp) copies=$(mktemp -d)
trap 'rm -rf "$results" "$errors" "$copies"' EXIT

# MNIST is 3 steps of 4 x 4096: eight copies of it make runs so long that their ends do not count.
images=$((8 * 60000)) most_steps=400
byte() { printf "\\$(printf %03o $(($1 % 256)))"; }
# eight_of FILE BYTES_OF_HEADER: the second word of the header is the number of images.
eight_of() {
  plain=$copies/one
  if [ -e "$data/$1" ]; then cat "$data/$1" >"$plain"; else gzip -dc "$data/$1.gz" >"$plain"; fi
  {
    head -c 4 "$plain"
    for shift in 24 16 8 0; do byte $((images >> shift)); done
    head -c "$2" "$plain" | tail -c +9
    for _ in 1 2 3 4 5 6 7 8; do tail -c +$(($2 + 1)) "$plain"; done
  } >"$copies/$1"
  rm "$plain"
}
eight_of train-images-idx3-ubyte 16
eight_of train-labels-idx1-ubyte 8
for file in "$data"/t10k-*; do ln -s "$(readlink -f "$file")" "$copies/"; done
# OpenMPI: allow root, and more ranks than processors.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none

# us BATCH WORD... prints the time of a step of that total batch; the WORDs come first among the program's arguments.
us() {
  batch=$1
  shift
  json=$("$@" --math "$math" --device "$device" --data "$copies" --plan parallel --strategy direct --batch "$batch" --steps "$steps" --epochs "$epochs" --json \
    2>"$errors") || { say "$*: $(tail -n 1 "$errors")"; return 1; }
  printf '%s\n' "$json" | sed -n 's/.*"seconds_per_step":\([^,}]*\).*/\1/p' | awk '{ printf "%.1f", 1e6 * $1 }'
}

# row NAME GPUS BATCH ALONE TOGETHER
row() {
  printf 'RESULT %s %s %s %s %s\n' "$1" "$2" "$3" "$4" "$5" >>"$results"
  say "$1, $2 GPUs, batch $3: $4 us alone, $5 us together"
}

for math in $maths; do
  for batch in $batches; do
    for n in $gpus; do
      all=$((batch * n))
      steps=$((images / all))
      [ $steps -le $most_steps ] || steps=$most_steps
      alone=$(us "$batch" "$program") || continue
      for bucket in $buckets; do
        if command -v mpirun >/dev/null; then
          if together=$(us "$all" mpirun -q -np "$n" "$program" --bucket "$bucket"); then
            row "$math processes, buckets of $bucket" "$n" "$batch" "$alone" "$together"
          fi
        fi
        if together=$(us "$all" "$program" --replicas "$n" --bucket "$bucket"); then
          row "$math threads, buckets of $bucket" "$n" "$batch" "$alone" "$together"
        fi
      done
      [ $peers = yes ] || continue
      python3 -c 'import torch' 2>/dev/null || { say "python3 has no torch; skipped"; continue; }
      python3 "$root/bench/peers/torch_ddp.py" "$data" "$n" "$batch" 500 "$math" 2>"$errors" | grep '^RESULT' >>"$results" ||
        say "PyTorch DDP, $n GPUs: $(tail -n 1 "$errors")"
    done
  done
done

[ -s "$results" ] || { say "nothing could be measured"; exit 1; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true
awk '
  BEGIN { print "| who | GPUs | batch of a GPU | us alone | us together | efficiency |"; print "| --- | --- | --- | --- | --- | --- |" }
  { who = $2; for (i = 3; i <= NF - 4; ++i) who = who " " $i
    printf "| %s | %s | %s | %s | %s | %.3f |\n", who, $(NF - 3), $(NF - 2), $(NF - 1), $NF, $(NF - 1) / $NF }' "$results"
