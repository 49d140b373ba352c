# shellcheck shell=sh
# What the scripts of this folder share; sourced, POSIX sh. Sets $root and moves no one's current directory.
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

say() { printf '%s: %s\n' "$(basename -- "$0" .sh)" "$*"; }
fail() {
  status=$1
  shift
  say "$*" >&2
  exit "$status"
}

# Major version of a GNU compiler; 0 when it is missing.
gnu_major() {
  "$1" -dumpversion 2>/dev/null | cut -d. -f1 | grep -E '^[0-9]+$' || echo 0
}

# C++20 as used here needs g++ 12; Ubuntu 22.04 keeps it beside an older default. $CXX, when set, is obeyed.
choose_compiler() {
  [ -z "${CXX:-}" ] || return 0
  for candidate in g++ g++-14 g++-13 g++-12; do
    if [ "$(gnu_major "$candidate")" -ge 12 ]; then
      CXX=$candidate
      export CXX
      return 0
    fi
  done
  return 1
}

# configure PRESET [ARGUMENT...]
configure() {
  preset=$1
  shift
  choose_compiler || fail 2 "no g++ 12 or later"
  if command -v ccache >/dev/null 2>&1; then
    export CMAKE_CXX_COMPILER_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER:-ccache}"
  fi
  # Files dated in the future (a clock set back) would make Ninja regenerate for ever; every run configures anyway.
  (cd "$root" && cmake --preset "$preset" -DCMAKE_SUPPRESS_REGENERATION=ON "$@") </dev/null ||
    fail 1 "configuring the $preset preset failed"
}

# build PRESET [TARGET...]
build() {
  preset=$1
  shift
  if [ $# -gt 0 ]; then set -- --target "$@"; fi
  cmake --build "$root/build/$preset" --parallel "$(nproc 2>/dev/null || echo 2)" "$@" </dev/null ||
    fail 1 "building the $preset preset failed"
}
