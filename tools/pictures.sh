#!/bin/sh
# Makes the pictures of README.md: docs/images/cast.svg, a terminal session, and docs/images/report.png, a report's page.
set -eu
. "$(dirname -- "$0")/common.sh"

case "${1:-}" in
  -h | --help)
    cat <<'HELP'
usage: tools/pictures.sh [BUILD [FILE]]
Runs the commands of BUILD (build/release unless given), draws what they print as SVG, and takes a picture of a report's
page, of FILE (a trace or a snapshot), unless given of a GPT-2 whose batch grows. Needs python3 and chromium.
HELP
    exit 0
    ;;
esac
build=$(realpath "${1:-$root/build/release}")
file=$(realpath "${2:-$root/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz}")
[ -x "$build/tools/headroom" ] || fail 2 "$build/tools/headroom is missing"
command -v chromium >/dev/null || fail 2 "chromium is missing (apt-get install chromium)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$root/docs/images"
cd "$work"
path=$build/tools:$build/examples
"$root/tools/site/cast.py" --path "$path" --rows 34 "$root/docs/images/cast.svg" \
  'train_mnist --device sim --strategy grab-all --epochs 1 --steps 20' \
  'headroom who --device sim --strategy grab-all' \
  'headroom predict --strategy allow-growth' \
  'train_mnist --device sim --strategy allow-growth --epochs 1 --steps 20 --record run.trace' \
  'headroom solve --net residual --batch 256 --memory 600MiB --points 4'
headroom=$build/tools/headroom
cp "$file" .
"$headroom" report "$(basename "$file")" --html report.html >/dev/null
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,1320 --force-device-scale-factor=0.8 \
  --screenshot="$root/docs/images/report.png" "file://$work/report.html" >/dev/null 2>&1 ||
  fail 1 "chromium could not take the picture"
say "docs/images: $(wc -c <"$root/docs/images/cast.svg") and $(wc -c <"$root/docs/images/report.png") bytes"
