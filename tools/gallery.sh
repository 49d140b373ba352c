#!/bin/sh
# Makes docs/gallery: one page for each recorded program, with the verdict, the curve of memory and the memory of each
# strategy.
set -eu
. "$(dirname -- "$0")/common.sh"

usage() {
  cat <<'HELP'
usage: tools/gallery.sh [--headroom PROGRAM] [FOLDER...]
Reads docs/gallery/programs.txt: a line "FILE | TITLE | WHAT IT IS" for each program. Looks for FILE, a trace or a memory
snapshot, in tests/tools/report/snapshots and in the FOLDERs, and writes docs/gallery/NAME.md and the table of
docs/gallery/README.md. Programs whose file is in none of the folders keep their page. Needs no GPU.
  --headroom PROGRAM  build/release/tools/headroom unless given
HELP
}

headroom=$root/build/release/tools/headroom
folders=$root/tests/tools/report/snapshots
while [ $# -gt 0 ]; do
  case "$1" in
    --headroom)
      [ $# -ge 2 ] || fail 2 "--headroom needs a program"
      headroom=$2
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) fail 2 "unknown argument '$1' (see --help)" ;;
    *) folders="$folders $1" ;;
  esac
  shift
done
[ -x "$headroom" ] || fail 2 "$headroom is missing (--headroom PROGRAM)"
headroom=$(realpath "$headroom")
gallery=$root/docs/gallery
strategies='allow-growth two-ended caching caching:expandable_segments=true pool arena mapped stream-ordered direct'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# output COMMAND prints the command's output except its next steps, as a code block. A command that fails ends the
# script.
output() {
  COLUMNS=100 "$@" >"$work/output" 2>&1 || fail 1 "$*: $(head -n 1 "$work/output")"
  # Removes the column of times, which depend on this machine.
  awk '{ at = index($0, " ns/call") } at > 0 { cut = at - 1 }
    /^$|^too narrow/ { cut = 0 } cut > 0 { $0 = substr($0, 1, cut) substr($0, cut + 9) } { print }' "$work/output" |
    sed '/^next:/,$d' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' | sed 's/^/    /; s/[[:space:]]*$//'
}

rows=
while IFS='|' read -r file title what; do
  file=$(echo $file)
  case "$file" in '' | '#'*) continue ;; esac
  title=$(echo $title)
  what=$(echo $what)
  name=${file%%.*}
  path=
  for folder in $folders; do
    [ ! -r "$folder/$file" ] || path=$folder/$file
  done
  page=$gallery/$name.md
  if [ -n "$path" ]; then
    cp "$path" "$work/"
    (
      cd "$work"
      echo "# $title"
      echo
      echo "$what. Made by \`tools/gallery.sh\` from the file \`$file\`." | fold -s -w 98 | sed 's/ *$//'
      echo
      echo "## What took the memory"
      echo
      output "$headroom" report "$file"
      echo
      echo "## What each strategy takes"
      echo
      echo "The device is an H200 with nothing else on it; the least capacity is what the program needs at all."
      echo
      # shellcheck disable=SC2086  # words
      output "$headroom" replay "$file" --device h200 --minimum --strategy $strategies
    ) >"$page.new"
    mv "$page.new" "$page"
  fi
  [ -r "$page" ] || fail 1 "$file is in none of the folders, and $page is missing"
  # The largest live set and each strategy's least capacity over it.
  verdict=$(sed -n '/^## What took/,/^##/s/^    //p' "$page" | sed '/^try: \|^peak \|^$/,$d' | tr '\n' ' ' | sed 's/ *$//')
  caching=$(awk '$1 == "caching" { print $NF; exit }' "$page")
  mapped=$(awk '$1 == "mapped" { print $NF; exit }' "$page")
  rows="$rows| [$title]($name.md) | $verdict | $caching | $mapped |
"
done <"$gallery/programs.txt"

{
  cat <<'INTRO'
# Gallery

Real trainings, most of public models, recorded on real GPUs with PyTorch. For each: the verdict of
`headroom report`, the curve of memory, and what each strategy would have taken (`headroom replay`).
The last two columns say how much more memory than the largest live set a strategy needs at least:
1.000 is perfect.

| program | verdict | caching | mapped |
| --- | --- | --- | --- |
INTRO
  printf '%s' "$rows"
  cat <<'OUTRO'

`tools/gallery.sh FOLDER...` makes these pages from recordings in those folders and in
`tests/tools/report/snapshots`; a row of `programs.txt` adds a program.
OUTRO
} >"$gallery/README.md"
say "docs/gallery: $(find "$gallery" -name '*.md' | wc -l) pages"
