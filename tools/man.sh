#!/bin/sh
# Prints the man page of the command: tools/man.sh build/release/tools/headroom > headroom.1
# The page consists of the help texts, so it cannot differ from them.
set -eu
command=$1
version=$2

# roff gives a meaning to backslashes, and to dots and quotes at the beginning of a line.
escape() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\\&\\1/"; }

printf '.TH HEADROOM 1 "" "headroom %s" "User Commands"\n' "$version"
printf '.SH NAME\nheadroom \\- see, reproduce, explain and fix GPU out-of-memory errors\n'
printf '.SH SYNOPSIS\n.B headroom\n.I SUBCOMMAND\n[\\fIOPTION\\fR...]\n.SH SUBCOMMANDS\n.nf\n'
"$command" --help | sed -n '/^  /p' | escape
printf '.fi\n'
"$command" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' | while read -r name; do
  printf '.SH HEADROOM %s\n.nf\n' "$(printf '%s' "$name" | tr '[:lower:]' '[:upper:]')"
  "$command" "$name" --help </dev/null | escape
  printf '.fi\n'
done
printf '.SH EXIT STATUS\n0 done; 2 bad usage or input; 3 out of memory; 4 a library, the driver or a device failed;\n'
printf '5 finished, but a requested check failed; 1 any other error.\n'
