#!/bin/sh
# Sets up, builds and runs all tests through ctest, whose closing lines come last.
set -eu
. "$(dirname -- "$0")/common.sh"

usage() {
  cat <<'HELP'
usage: tools/test.sh [--sanitize address|thread|all] [--require-cuda] [--cases] [--werror] [--help]
  --sanitize KIND  the tests under a sanitizer instead: address (with undefined behavior), thread, or one
                   after the other
  --require-cuda   builds for CUDA and sets HEADROOM_REQUIRE_CUDA=1: tests that need a GPU fail without one
                   instead of being skipped
  --cases          each case by its name in its own process; without it each test program runs as a
                   whole, in half the time
  --werror         warnings are errors, as in .ci/run
With the CUDA toolkit installed everything compiles and links for CUDA. Without a GPU it does so for one
generation (CUDAARCHS, 90 unless set) and skips the tests that need a GPU.
HELP
}

presets=release
cases=OFF
werror=OFF
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize)
      [ $# -ge 2 ] || fail 2 "--sanitize needs address, thread or all"
      shift
      case "$1" in
        address) presets=asan ;;
        thread) presets=tsan ;;
        all) presets='asan tsan' ;;
        *) fail 2 "--sanitize: unknown kind '$1' (address, thread, all)" ;;
      esac
      ;;
    --require-cuda)
      presets=cuda
      export HEADROOM_REQUIRE_CUDA=1
      ;;
    --cases) cases=ON ;;
    --werror) werror=ON ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail 2 "unknown argument '$1' (see --help)" ;;
  esac
  shift
done
if [ -n "${HEADROOM_REQUIRE_CUDA:-}" ]; then
  gpu_is_here || fail 1 "a GPU is required, and nvidia-smi shows none"
fi

# If there is no GPU, the kernels need only compile and link: one generation suffices, and nvcc is slow.
if [ -z "${CUDAARCHS:-}" ] && ! gpu_is_here; then
  export CUDAARCHS=90
fi

# One more than there are cores: programs of several processes mostly wait for each other.
at_once=$(($(nproc 2>/dev/null || echo 2) + 1))

"$root/tools/setup.sh"
status=0
for preset in $presets; do
  configure "$preset" -DHEADROOM_TEST_CASES=$cases -DHEADROOM_WERROR=$werror
  build "$preset"
  (cd "$root" && ctest --preset "$preset" --parallel "$at_once") </dev/null || status=1
done
exit $status
