# Functions for the tests of CONTRIBUTING.md's recipes. Such a test follows its recipe in a copy of the
# tree: the copy holds the files that the recipe adds or changes, and the compiler takes all others from the
# tree. Source it with the arguments TREE COPY; CXX and CXXFLAGS are those of the build.
set -eu
# Otherwise ccache misses a file that a step puts in front of the tree's.
export CCACHE_NODIRECT=1
tree=$1
copy=$2
rm -rf "$copy"
mkdir -p "$copy"
cd "$copy"

# Standard input as a new file.
create() {
  if [ -e "$tree/$1" ]; then echo "$1 is there already"; exit 1; fi
  mkdir -p "$(dirname "$1")"
  cat > "$1"
}

# change SIDE FILE TEXT: standard input before or after the first line of the file that has that text.
change() {
  mkdir -p "$(dirname "$2")"
  [ -e "$2" ] || cp "$tree/$2" "$2"
  SIDE=$1 TEXT=$3 NEW=$(cat) awk '
    function add() { print ENVIRON["NEW"]; done = 1 }
    { found = !done && index($0, ENVIRON["TEXT"]) }
    found && ENVIRON["SIDE"] == "before" { add() }
    { print }
    found && ENVIRON["SIDE"] == "after" { add() }
    END { exit !done }' "$2" > changed || { echo "$2 has no line with: $3"; exit 1; }
  mv changed "$2"
}

# compile OBJECT FILES compiles the files as one, each from the copy if it exists there.
compile() {
  object=$1
  shift
  for file in "$@"; do echo "#include \"$file\""; done > "$object.cpp"
  # shellcheck disable=SC2086 # the flags are words
  $CXX $CXXFLAGS -I"$copy" -I"$tree" -c "$object.cpp" -o "$object"
}

# check FILE [FLAGS]: compiles the file without making an object.
check() {
  echo "#include \"$1\"" > check.cpp
  # shellcheck disable=SC2086 # the flags are words
  $CXX $CXXFLAGS ${2-} -I"$copy" -I"$tree" -fsyntax-only check.cpp
}

# must_fail TEXT COMMAND: the command fails and prints the text, as it must while a step is missing.
must_fail() {
  text=$1
  shift
  if "$@" > output 2>&1; then echo "succeeds with a step missing: $*"; exit 1; fi
  grep -qF -- "$text" output || { echo "does not say '$text': $*"; cat output; exit 1; }
}
