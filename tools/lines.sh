#!/bin/sh
# Prints lines of code by folder, and the difference that a change makes. Refuses nothing.
set -eu
. "$(dirname -- "$0")/common.sh"

case "${1:-}" in
  -h | --help)
    cat <<'HELP'
usage: tools/lines.sh [COMMIT]
Counts the lines of each folder in the working tree and their difference from COMMIT: the commit where the branch left
main, or the last one but one. Product lines are C++, CUDA, Python and scripts outside tests and third_party; docs are
all Markdown files.
HELP
    exit 0
    ;;
  -*) fail 2 "unknown argument '$1' (see --help)" ;;
esac
cd "$root"
git rev-parse HEAD >/dev/null 2>&1 || fail 2 "not a git checkout"
before=${1:-$(git merge-base HEAD main 2>/dev/null || true)}
if [ -z "$before" ] || { [ $# -eq 0 ] && [ "$before" = "$(git rev-parse HEAD)" ] && git diff --quiet HEAD; }; then
  before=$(git rev-parse --verify --quiet HEAD^) || before=HEAD
fi
before=$(git rev-parse "$before")

# count WHEN COMMIT|--untracked: a line "WHEN FOLDER LINES" for each file.
count() {
  git grep -Ic -e '' "$2" -- '*.cpp' '*.h' '*.hpp' '*.c' '*.cu' '*.cuh' '*.py' '*.sh' '.ci/run' '*.md' ':!third_party' |
    sed -E "s/^[0-9a-f]{40}://; /\.md:/s/.*:/docs:/; s/^(runtime\/[^/:]*|[^/:]*)[^:]*:/$1 \1 /"
}
{ count before "$before" && count now --untracked; } | awk -v since="$(git log -1 --format=%h "$before")" '
  function row(name) { return sprintf("%-18s %6d %8d %+8d", name, files[name], now[name], now[name] - before[name]) }
  function add(kind) { before[kind] += before[folder]; now[kind] += now[folder]; files[kind] += files[folder] }
  { folders[$2] }
  $1 == "before" { before[$2] += $3 }
  $1 == "now" { now[$2] += $3; files[$2]++ }
  END {
    printf "%-18s %6s %8s %8s since %s\n", "folder", "files", "lines", "change", since
    for (folder in folders) {
      if (folder == "tests" || folder == "docs") continue
      add("product")
      print row(folder) | "sort"
    }
    close("sort")
    print row("product") "\n" row("tests") "\n" row("docs")
  }'
