# Counts blocks of comments in each folder, and the faulty ones: those that begin with an ellipsis and those that use a word of
# a translation. A block is a run of lines that hold nothing but a comment, or a docstring. Prints the share of each folder and
# fails if the share of all is above MAX percent. With LIST=1 it prints each faulty block.
BEGIN {
  elliptic = "^(Of|What|The same|Whether|Where|Without|Those|Also|As|That|Nothing|How|Why|Who|Which|Whose)([ ,:;.]|$)"
  foreign = "(^|[^a-z`])(behind|nobody|alike|but for|for who)([^a-z]|$)|, too[.,;:)]|, too$"
}

function end_block(  fault) {
  if (block == "") return
  blocks[folder]++
  if (block ~ elliptic) fault = "begins with an ellipsis"
  else if (tolower(block) ~ foreign) fault = "uses a word to avoid"
  if (fault != "") {
    faulty[folder]++
    if (LIST) print place ": " fault ": " substr(block, 1, 90)
  }
  block = ""
}

FNR == 1 {
  end_block()
  folder = FILENAME
  sub("^[.]/", "", folder)
  sub("/.*", "", folder)
  script = FILENAME ~ /[.](py|sh)$/
  quoted = 0
}

{
  text = $0
  sub(/^[ \t]+/, "", text)
  comment = 0
  if (quoted || (script && text ~ /^[rf]?"""/)) {
    comment = 1
    quotes = gsub(/"""/, "", text)
    if (quotes % 2) quoted = !quoted
  } else if (script ? text ~ /^#($|[^!])/ : text ~ /^\/\//) {
    comment = 1
    sub(script ? "^#+ *" : "^//[/!<]* *", "", text)
  }
  if (comment) {
    if (block == "") { block = text == "" ? " " : text; place = FILENAME ":" FNR }
    else block = block (block == " " ? "" : " ") text
    sub(/^ +/, "", block)
    if (block == "") block = " "
  } else end_block()
}

END {
  end_block()
  for (f in blocks) { all += blocks[f]; wrong += faulty[f] }
  for (f in blocks) printf "%-12s %5d blocks  %4d faulty  %4.1f %%\n", f, blocks[f], faulty[f], 100 * faulty[f] / blocks[f] | "sort"
  close("sort")
  share = all ? 100 * wrong / all : 0
  printf "%-12s %5d blocks  %4d faulty  %4.1f %% (at most %s %%)\n", "all", all, wrong, share, MAX
  exit share > MAX
}
