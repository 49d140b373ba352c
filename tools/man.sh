#!/bin/sh
# Writes the man pages of the commands, one for each subcommand, into a folder:
# tools/man.sh build/release/tools/headroom build/release/examples/train_mnist FOLDER
# The pages are the help texts in roff, so they cannot differ from them.
set -eu
command=$1 train_mnist=$2 folder=$3
mkdir -p "$folder"
version=$("$command" --version)
export COLUMNS=72  # an example with the indent of a man page fits into 80 columns

# roff gives a meaning to backslashes, and to dots and quotes at the beginning of a line.
escape() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\\&\\1/"; }

# The help of a command as sections: a heading is a line that ends in a colon, an option or argument a line of two
# blanks and a name. Its text begins after two blanks or more, or in the next line. Examples stay as they are.
sections() {
  escape | awk '
    function text(line) { sub(/^ +/, "", line); if (line != "") print line }
    /^Usage: / { sub(/^Usage: /, ""); print ".SH SYNOPSIS\n" $0 "\n.SH DESCRIPTION"; printf "%s", about; begun = 1; next }
    !begun { about = about $0 "\n"; next }
    /^Examples:$/ { print ".SH EXAMPLES\n.nf"; examples = 1; next }
    examples { sub(/^  /, ""); print; next }
    /^[A-Z][A-Za-z ]*:$/ { sub(/:$/, ""); print ".SH " toupper($0); next }
    /^  [^ ]/ {
      line = substr($0, 3)
      at = match(line, /  +/)
      print ".TP\n.B " (at ? substr(line, 1, at - 1) : line)
      if (at) text(substr(line, at))
      next
    }
    /^$/ { blank = 1; next }
    /^[^ ]/ && blank { print ".SH NOTES"; blank = 0 }
    { text($0) }
    END { if (examples) print ".fi" }'
}

exit_status() {
  printf '.SH EXIT STATUS\n0 done; 2 bad usage or input; 3 out of memory; 4 a library, the driver or a device failed;\n'
  printf '5 finished, but a requested check failed; 1 any other error.\n'
}

# page NAME SUMMARY FILE: the help of standard input as that page.
page() {
  {
    printf '.TH "%s" 1 "" "%s" "User Commands"\n.nh\n.ad l\n' "$(printf '%s' "$1" | tr '[:lower:]' '[:upper:]' | escape)" "$version"
    printf '.SH NAME\n%s \\- %s\n' "$(printf '%s' "$1" | escape)" "$(printf '%s' "$2" | escape)"
    sections
    exit_status
  } > "$folder/$3"
}

# Lines "NAME SUMMARY"; a summary may go on in the next lines of the help.
subcommands=$("$command" --help | awk '
  /^  [a-z]/ { if (line) print line; line = $1; $1 = ""; sub(/^ /, ""); line = line " " $0; next }
  /^   / && line { sub(/^ +/, ""); line = line " " $0; next }
  line { print line; line = "" }')
printf '%s\n' "$subcommands" | while read -r name summary; do
  "$command" help "$name" </dev/null | page "headroom-$name" "$summary" "headroom-$name.1"
done
"$train_mnist" --help | page train_mnist "train a conv net on handwritten digits under a memory strategy" train_mnist.1
{
  printf '.TH HEADROOM 1 "" "%s" "User Commands"\n.nh\n.ad l\n' "$version"
  printf '.SH NAME\nheadroom \\- see, reproduce, explain and fix GPU out\\-of\\-memory errors\n'
  printf '.SH SYNOPSIS\n.B headroom\n.I SUBCOMMAND\n[\\fIOPTION\\fR...]\n.SH SUBCOMMANDS\n'
  printf '%s\n' "$subcommands" | escape | while read -r name summary; do
    printf '.TP\n.BR headroom\\-%s (1)\n%s\n' "$name" "$summary"
  done
  exit_status
} > "$folder/headroom.1"
