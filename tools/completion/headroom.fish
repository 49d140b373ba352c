# Completion for fish. It reads subcommands and options from the help of the installed command.
complete -c headroom -n __fish_use_subcommand -f -a '(headroom --help | sed -n "s/^  \([a-z][a-z-]*\)  *\(.*\)/\1\t\2/p")'
complete -c headroom -n 'not __fish_use_subcommand' \
    -a '(headroom (commandline -opc)[2] --help 2>/dev/null </dev/null | grep -oE "^ +(-h,)?--[a-z][a-z-]*" | grep -oE -e "--[a-z-]+")'
