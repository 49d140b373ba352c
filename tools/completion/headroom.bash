# Completion for bash. It reads subcommands and options from the help of the installed command, in milliseconds.
_headroom() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[0]}
  local sub=${COMP_WORDS[1]} help values
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    values=$("$command" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$values --help --version" -- "$current")
    return
  fi
  help=$("$command" "$sub" --help 2>/dev/null </dev/null)
  case $previous in
  --*)
    # The values that the help of a NAME option lists in parentheses, maybe over several lines.
    values=$(printf '%s\n' "$help" | awk -v name="$previous" '
      $1 ~ /^-/ { take = 0 }
      { for (i = 1; i <= 2; ++i) if ($i == name && $0 ~ / NAME/) take = 1 }
      take { text = text " " $0 }
      END { if (match(text, /\([^()]*,[^()]*\)/)) { v = substr(text, RSTART + 1, RLENGTH - 2); gsub(/,/, " ", v); print v } }')
    if [ -n "$values" ]; then
      mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
      return
    fi
    ;;
  esac
  case $current in
  -*)
    values=$(printf '%s\n' "$help" | grep -oE '^ +(-h,)?--[a-z][a-z-]*' | grep -oE -e '--[a-z-]+')
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
    ;;
  *) compopt -o default 2>/dev/null ;; # a file, a size
  esac
}
complete -F _headroom headroom
