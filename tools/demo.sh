#!/bin/sh
# Sets up, builds and runs the demo: the conv net on a simulated 2 GB GPU under three memory strategies.
# Arguments go to the program (--data DIR, --json FILE, --help ...). Ends with a page about the run that trained.
set -eu
. "$(dirname -- "$0")/common.sh"

"$root/tools/setup.sh"
# The demo needs no GPU. If there is one, the programs that it suggests can use it.
if gpu_is_here; then cuda=AUTO; else cuda=OFF; fi
configure release -DHEADROOM_CUDA=$cuda
build release headroom_demo headroom train_mnist # what it runs, and what it suggests
recordings=${HEADROOM_RECORDINGS:-$root/build/release/recordings}
mkdir -p "$recordings"
rm -f "$recordings/allow-growth.trace"
status=0
HEADROOM_RECORDINGS=$recordings "$root/build/release/tools/headroom_demo" "$@" || status=$?
if [ -f "$recordings/allow-growth.trace" ]; then
  "$root/build/release/tools/headroom" report "$recordings/allow-growth.trace" --html "$recordings/report.html" >/dev/null
  echo "What took the memory, as a page: $recordings/report.html"
fi
exit $status
