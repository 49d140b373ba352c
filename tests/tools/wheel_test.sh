#!/bin/sh
# The wheel of pyproject.toml: it configures with the settings there, compiles nothing that it does not contain, and contains the command. Compiles nothing itself. wheel_test.sh SOURCE FOLDER [CMAKE_ARGUMENT...]
set -eu
source=$1
folder=$2
shift 2
rm -rf "$folder"
mkdir -p "$folder"

fail() {
  echo "wheel: $1" >&2
  exit 1
}

# The lines NAME = "VALUE" of [tool.scikit-build.cmake.define].
defines=$(sed -n '/^\[tool.scikit-build.cmake.define\]/,/^\[/s/^\([A-Z_]*\) = "\([^"]*\)".*/-D\1=\2/p' "$source/pyproject.toml")
[ -n "$defines" ] || fail "pyproject.toml has no [tool.scikit-build.cmake.define]"
target=$(sed -n 's/^build.targets = \["\([a-z_]*\)"\].*/\1/p' "$source/pyproject.toml")
component=$(sed -n 's/^install.components = \["\([a-z_]*\)"\].*/\1/p' "$source/pyproject.toml")
# shellcheck disable=SC2086  # one word for each define
cmake -S "$source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release $defines -DSKBUILD=2 \
  -DSKBUILD_SCRIPTS_DIR="$folder/scripts" -DCMAKE_SUPPRESS_REGENERATION=ON "$@" >"$folder/configure.log" 2>&1 || {
  cat "$folder/configure.log"
  fail "configuring failed"
}
ninja -C "$folder/build" -n "$target" >"$folder/steps.log" || fail "no target $target"
grep -q 'Linking CXX executable tools/headroom$' "$folder/steps.log" || fail "$target does not link the command"
if grep -E 'object (tests|bench)/|headroom_demo|Linking CXX executable examples' "$folder/steps.log"; then
  fail "these steps build nothing that the wheel holds"
fi
# Stand for the programs and libraries that are built.
for file in $(grep -ho "\"$folder/build/[^\"]*/\(lib\)\{0,1\}headroom[^/\"]*\"" \
  "$folder/build/tools/cmake_install.cmake" "$folder/build/tools/torch/cmake_install.cmake" | tr -d '"'); do
  mkdir -p "$(dirname -- "$file")"
  : >"$file"
done
cmake --install "$folder/build" --component "$component" --prefix "$folder/platlib" >"$folder/install.log" ||
  fail "installing failed"
[ -f "$folder/scripts/headroom" ] || fail "the command is not installed"
for package in $(sed -n 's/^wheel.packages = \["\([a-z/]*\)"\].*/\1/p' "$source/pyproject.toml"); do
  [ -f "$source/$package/__init__.py" ] || fail "$package is no Python package"
  if command -v python3 >/dev/null; then
    python3 - "$source/$package" <<'PYTHON' || fail "a file of $package is not for Python 3.9"
import ast, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
PYTHON
  fi
done
echo "wheel: $(grep -c '^\[' "$folder/steps.log") steps"
