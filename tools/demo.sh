#!/bin/sh
# Sets up, builds and runs the demo: the conv net on a simulated 2 GB GPU under three memory strategies.
# Arguments go to the program (--data DIR, --json FILE, --help ...).
set -eu
. "$(dirname -- "$0")/common.sh"

"$root/tools/setup.sh"
configure release --log-level=WARNING
build release headroom_demo train_mnist # the program whose command lines the demo suggests
exec "$root/build/release/tools/headroom_demo" "$@"
