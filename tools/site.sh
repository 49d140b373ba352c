#!/bin/sh
# Builds the documentation's site with MkDocs Material in build/site, with search. Broken links are errors.
set -eu
. "$(dirname -- "$0")/common.sh"

case "${1:-}" in
  -h | --help)
    cat <<'HELP'
usage: tools/site.sh [--serve]
Installs MkDocs Material into build/site-tools at the first call (python3 with venv, and the network).
  --serve  shows the site at http://127.0.0.1:8000 and follows changes
HELP
    exit 0
    ;;
  '' | --serve) ;;
  *) fail 2 "unknown argument '$1' (see --help)" ;;
esac
tools=$root/build/site-tools
if [ ! -x "$tools/bin/mkdocs" ]; then
  say "installing MkDocs Material into build/site-tools"
  mkdir -p "$root/build"
  { python3 -m venv "$tools" && "$tools/bin/pip" install -q 'mkdocs>=1.6,<2' 'mkdocs-material>=9.5,<10'; } ||
    fail 1 "MkDocs Material could not be installed"
fi
cd "$root"
if [ "${1:-}" = --serve ]; then exec "$tools/bin/mkdocs" serve; fi
NO_MKDOCS_2_WARNING=1 "$tools/bin/mkdocs" build --quiet --clean
say "build/site/index.html, $(find build/site -name '*.html' | wc -l) pages"
