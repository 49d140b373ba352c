#!/bin/sh
# Prints the man page of the command: tools/man.sh build/release/tools/headroom > headroom.1
# All of it is what the command says of itself, so it cannot say anything else.
set -eu
command=$1
version=$2

# Backslashes, and dots and quotes at the begin of a line, mean something to roff.
escape() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\\&\\1/"; }

printf '.TH HEADROOM 1 "" "headroom %s" "User Commands"\n' "$version"
printf '.SH NAME\nheadroom \\- see, reproduce, explain and solve GPU out of memory\n'
printf '.SH SYNOPSIS\n.B headroom\n.I SUBCOMMAND\n[\\fIOPTION\\fR...]\n.SH SUBCOMMANDS\n.nf\n'
"$command" --help | sed -n '/^  /p' | escape
printf '.fi\n'
"$command" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' | while read -r name; do
  printf '.SH HEADROOM %s\n.nf\n' "$(printf '%s' "$name" | tr '[:lower:]' '[:upper:]')"
  "$command" "$name" --help </dev/null | escape
  printf '.fi\n'
done
printf '.SH EXIT STATUS\n0 done; 2 bad usage or bad input; 3 out of memory; 4 a library, the driver or a device failed;\n'
printf '5 a check that was asked for does not hold; 1 anything else.\n'
