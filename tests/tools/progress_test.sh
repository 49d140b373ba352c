#!/bin/sh
# Tests the output of tools/common.sh during a build, from lines as Ninja prints them: progress every ten seconds,
# compilers' messages whole.
set -u
. "$(dirname -- "$0")/../../tools/common.sh"

shown=$({
  echo '@ 1 140 0.3 @Building CXX object a.o'
  printf '%s\n' 'a.cpp:1: warning: 100% \n of it'
  echo '@ 2 140 12.9 @Building CXX object b.o'
  echo '@ 3 140 13.1 @Building CXX object c.o'
  echo 'FAILED: d.o'
  echo '@ 120 140 180.2 @Linking e'
  echo '@ ended 3 @'
} | show_progress)
status=$?
wanted="a.cpp:1: warning: 100% \\n of it
progress_test: building 2 of 140, about 14 min left
FAILED: d.o
progress_test: building 120 of 140, about 30 s left"
[ "$status" -eq 3 ] || { echo "exit code $status, not Ninja's"; exit 1; }
[ "$shown" = "$wanted" ] || { printf 'shows:\n%s\nand not:\n%s\n' "$shown" "$wanted"; exit 1; }
