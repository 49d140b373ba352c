#!/bin/sh
# Makes a release: builds and checks everything, makes the packages, and tags the commit. Publishes nothing.
set -eu
. "$(dirname -- "$0")/common.sh"

usage() {
  cat <<'HELP'
usage: tools/release.sh [--dry-run] [--skip-tests] [--skip-machines]
The version is that of project() in CMakeLists.txt; change it there, and write its section of CHANGELOG.md, in the
commit to be released. Then this script
  1. refuses uncommitted files, a version that has a tag, and one without a section of CHANGELOG.md;
  2. runs .ci/run, and the fetched build of a program outside the tree;
  3. builds the preset `package`, and with cpack the .deb and a .tar.gz of the sources in build/release-VERSION;
  4. installs, uses and removes the .deb on clean Debian 12 and 13 (tools/check_package.sh);
  5. tags the commit vVERSION, with the section of CHANGELOG.md as its message.
  --dry-run        everything but the tag
  --skip-tests     without step 2, --skip-machines without step 4: for trying the script
Exit codes: 0 released, 5 a check failed, 2 something has to be changed first, 1 anything else.
HELP
}

dry=
tests=1
machines=1
for argument in "$@"; do
  case "$argument" in
    --dry-run) dry=1 ;;
    --skip-tests) tests= ;;
    --skip-machines) machines= ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail 2 "unknown argument '$argument' (see --help)" ;;
  esac
done
if [ -z "$dry" ] && { [ -z "$tests" ] || [ -z "$machines" ]; }; then fail 2 "a release skips nothing; add --dry-run"; fi

cd "$root"
version=$(sed -n 's/^project(headroom VERSION \([0-9]*\.[0-9]*\.[0-9]*\) .*/\1/p' CMakeLists.txt)
[ -n "$version" ] || fail 1 "CMakeLists.txt has no version MAJOR.MINOR.PATCH"
symbols=$(sed -n 's/^HEADROOM_\([0-9.]*\) {/\1/p' tools/cmake/symbols.map)
[ "$symbols" = "${version%.*}" ] || fail 2 "tools/cmake/symbols.map versions symbols as $symbols, not ${version%.*}"
[ -z "$(git status --porcelain)" ] || fail 2 "there are uncommitted files"
if git rev-parse -q --verify "refs/tags/v$version" >/dev/null; then fail 2 "v$version is tagged already"; fi
notes=$(awk -v version="$version" '/^## / { on = ($2 == version) } on' CHANGELOG.md)
[ -n "$notes" ] || fail 2 "CHANGELOG.md has no section '## $version'"

if [ -n "$tests" ]; then
  say ".ci/run"
  .ci/run || fail 5 ".ci/run failed"
  say "a program that fetches the sources"
  cmake -DSOURCE="$root" -DFOLDER="$root/build/fetched" -DCXX="$(command -v "${CXX:-g++}")" -DCC="$(command -v "${CC:-gcc}")" \
    -DLAUNCHER= -DWHOLE=ON -P tests/install/fetch_content.cmake || fail 5 "the fetched build failed"
fi

out=$root/build/release-$version
mkdir -p "$out"
configure package
build package
(cd "$out" && cpack --config "$root/build/package/CPackConfig.cmake" -G DEB >cpack.log 2>&1) || {
  cat "$out/cpack.log" >&2
  fail 1 "cpack failed (above)"
}
rm -rf "$out/_CPack_Packages" "$out/cpack.log"
git archive --format tar.gz --prefix "headroom-$version/" -o "$out/headroom-$version.tar.gz" HEAD
if [ -n "$machines" ]; then
  "$root/tools/check_package.sh" "$out"/*.deb || fail 5 "the package failed on a clean system"
fi
(cd "$out" && sha256sum ./*.deb ./*.tar.gz >SHA256SUMS && cat SHA256SUMS)
if [ -n "$dry" ]; then
  say "v$version could be released; nothing is tagged"
else
  printf '%s\n' "$notes" | sed '1s/^## /Headroom /' | git tag -a "v$version" -F -
  say "tagged v$version; publish it with: git push origin v$version"
fi
