#!/bin/bash
# Ends trainings with SIGKILL at random moments and checks that the file of --save is whole each time, and that a
# training resumed from it has the same bits as an uninterrupted one.
set -eu
. "$(dirname -- "$0")/common.sh"

usage() {
  cat <<'HELP'
usage: tools/kill_test.sh [--train PROGRAM] [--seed N] [TIMES]
Starts train_mnist with --save and --checkpoint-every 1 and sends it SIGKILL at a random moment, TIMES times (200 unless
given). A fifth of the runs each has two processes that write one file; a limit on the size of files (EFBIG); a disk
that is full (ENOSPC): a tmpfs with room for no file, for one or for two, where this user may mount one, otherwise the
limit again; a slow disk (a preloaded library that writes 16 KiB in 2 ms); none of these.
After each kill the file, if there is one, must be whole and must resume, and the weights at the end must have the bits
of an uninterrupted training.
Needs cc.
  --train PROGRAM  build/release/examples/train_mnist unless given
Exit codes: 0 all hold, 5 one does not, 2 bad arguments.
HELP
}

train=$root/build/release/examples/train_mnist
seed=1
times=200
while [ $# -gt 0 ]; do
  case "$1" in
    --train) train=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    -h | --help)
      usage
      exit 0
      ;;
    *[!0-9]* | '') fail 2 "unknown argument '$1' (see --help)" ;;
    *) times=$1 ;;
  esac
  shift
done
[ -x "$train" ] || fail 2 "$train is missing (--train PROGRAM)"
RANDOM=$seed
folder=$(mktemp -d)
small=$folder/small
mkdir "$small"
may_mount=no
if mount -t tmpfs -o size=1m tmpfs "$small" 2>/dev/null; then
  may_mount=yes
  umount "$small"
else
  say "this user may not mount a tmpfs: no run has a full one"
fi
clean() {
  umount "$small" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean EXIT

cat >"$folder/slow_disk.c" <<'SLOW'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
ssize_t write(int descriptor, const void* data, size_t bytes) {
  if (bytes > 16384) bytes = 16384;
  usleep(2000);
  return syscall(SYS_write, descriptor, data, bytes);
}
SLOW
"${CC:-cc}" -shared -fPIC -O1 -o "$folder/slow_disk.so" "$folder/slow_disk.c"

# Options of all runs, except the number of epochs: the learning rate is constant.
words="--device cpu --plan packed --steps 5 --batch 4 --schedule constant --evaluate-every 5"
checksum() { sed -n 's/.*"weights_checksum":"\([0-9a-f]*\)".*/\1/p' | head -n 1; }
# The bits after EPOCHS epochs without interruption, each computed once.
whole() {
  if [ ! -e "$folder/whole.$1" ]; then
    # shellcheck disable=SC2086  # words
    "$train" $words --epochs "$1" --json 2>/dev/null | checksum >"$folder/whole.$1"
  fi
  cat "$folder/whole.$1"
}
steps_in() { head -c 65536 "$1" | tr -d '\0' | grep -ao '"steps done":"[0-9]*"' | head -n 1 | tr -dc '0-9'; }

found=0
none=0
broken=0
full=0
kinds=(plain twice limited full slow)
# Sizes of a tmpfs with room for no checkpoint (1.1 MiB), for one, and for one and its successor.
rooms=(600k 1700k 2900k)
for ((i = 1; i <= times; i++)); do
  kind=${kinds[i % 5]}
  [ "$kind" != full ] || [ $may_mount = yes ] || kind=limited
  file=$folder/run.st
  if [ "$kind" = full ]; then
    file=$small/run.st
    mount -t tmpfs -o size="${rooms[RANDOM % 3]}" tmpfs "$small"
  fi
  pids=
  copies=1
  [ "$kind" != twice ] || copies=2
  for ((copy = 0; copy < copies; copy++)); do
    (
      # A checkpoint has 1.1 MiB: the second write of the file meets the limit.
      if [ "$kind" = limited ]; then
        # shellcheck disable=SC2086  # words
        "$train" $words --epochs 1 --steps 5 --save "$file" >/dev/null 2>&1 || true
        ulimit -f 600
      fi
      if [ "$kind" = slow ]; then export LD_PRELOAD="$folder/slow_disk.so"; fi
      # shellcheck disable=SC2086  # words
      exec "$train" $words --epochs 100000 --save "$file" --checkpoint-every 1 >/dev/null 2>"$folder/errors.$copy"
    ) &
    pids="$pids $!"
  done
  # One in ten dies while it starts, the others in the half second after the first checkpoint, if there is one.
  if [ $((RANDOM % 10)) -ne 0 ]; then
    # shellcheck disable=SC2086  # a list of numbers
    for ((look = 0; look < 2000; look++)); do
      if [ -e "$file" ] || ! kill -0 $pids 2>/dev/null; then break; fi
      sleep 0.01
    done
  fi
  sleep "0.$(printf '%03d' $((RANDOM % 500)))"
  # shellcheck disable=SC2086  # a list of numbers
  kill -KILL $pids 2>/dev/null || true
  # shellcheck disable=SC2086
  wait $pids 2>/dev/null || true
  left=$(find "$folder" -name 'run.st.*' | wc -l)
  [ "$left" -eq 0 ] || say "run $i ($kind): $left other files are left"
  [ "$kind" != full ] || ! grep -q 'No space left' "$folder/errors.0" || full=$((full + 1))
  if [ -e "$file" ]; then cp "$file" "$folder/kept.st"; else rm -f "$folder/kept.st"; fi
  if [ "$kind" = full ]; then umount "$small"; else rm -f "$folder"/run.st*; fi
  file=$folder/kept.st
  if [ ! -e "$file" ]; then
    none=$((none + 1))
    continue
  fi
  found=$((found + 1))
  steps=$(steps_in "$file")
  epochs=$((${steps:-0} / 5 + 1))
  # shellcheck disable=SC2086  # words
  resumed=$("$train" $words --epochs $epochs --resume "$file" --json 2>"$folder/errors" | checksum)
  if [ -z "$steps" ] || [ -z "$resumed" ] || [ "$resumed" != "$(whole $epochs)" ]; then
    broken=$((broken + 1))
    say "run $i ($kind): the file after step ${steps:-?} gives '${resumed:-nothing}', not '$(whole $epochs)': $(head -n 1 "$folder/errors")"
  fi
done
say "$times kills: $found files, $((found - broken)) of them whole and resumed with the same bits; $none before the first; $full ended on a full disk"
[ $broken -eq 0 ] || exit 5
