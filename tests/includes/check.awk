# See check.sh. Reads the table first, then every file of code with the header of its own name before it.
function stem(path) {
  sub(/\.[a-z]+$/, "", path)
  return path
}

# Strings, characters and comments say nothing about what is used.
function code_of(line, from, raw_end) {
  if (in_raw != "") {
    from = index(line, in_raw)
    if (from == 0) return ""
    line = "\"\"" substr(line, from + length(in_raw))
    in_raw = ""
  }
  while (match(line, /R"[^(" ]*\(/)) {
    raw_end = ")" substr(line, RSTART + 2, RLENGTH - 3) "\""
    from = index(substr(line, RSTART + RLENGTH), raw_end)
    if (from == 0) {
      in_raw = raw_end
      line = substr(line, 1, RSTART - 1)
    } else {
      line = substr(line, 1, RSTART - 1) "\"\"" substr(line, RSTART + RLENGTH + from + length(raw_end) - 1)
    }
  }
  gsub(/'(\\.|[^'\\])'/, "0", line)
  gsub(/"(\\.|[^"\\])*"/, " ", line)
  sub(/\/\/.*/, "", line)
  while (1) {
    if (in_comment) {
      from = index(line, "*/")
      if (from == 0) return ""
      line = substr(line, from + 2)
      in_comment = 0
    }
    from = index(line, "/*")
    if (from == 0) return line
    in_comment = 1
    raw_end = index(substr(line, from + 2), "*/")
    if (raw_end == 0) return substr(line, 1, from - 1)
    line = substr(line, 1, from - 1) " " substr(line, from + 3 + raw_end)
    in_comment = 0
  }
}

# Whether a header of the project that the file includes, or one that it includes in turn, includes a header of the list.
function comes_with_project(file, providers, count, queue, seen, first, last, i, j, list, header) {
  queue[1] = file
  last = 1
  for (first = 1; first <= last; first++) {
    for (i = 1; i <= count; i++) {
      if (providers[i] in in_interfaces && (queue[first], providers[i]) in included) return 1
    }
    list = split(project_headers[queue[first]], header, " ")
    for (j = 1; j <= list; j++) {
      if (!(header[j] in seen)) {
        seen[header[j]] = 1
        queue[++last] = header[j]
      }
    }
  }
  return 0
}

function check(file, name, count, i, providers, queue, seen) {
  count = split(headers_of[name], providers, " ")
  for (i = 1; i <= count; i++) {
    if ((file, providers[i]) in included || (stem(file) ".h", providers[i]) in included) return
  }
  split("", queue)
  split("", seen)
  if (comes_with_project(file, providers, count, queue, seen)) return
  faults++
  if (count == 0) {
    printf "%s: %s has no row in std_headers.txt\n", uses[file, name], name
  } else {
    printf "%s: %s needs #include %s\n", uses[file, name], name, providers[1]
  }
}

FNR == 1 {
  in_raw = ""
  in_comment = 0
  is_table = FILENAME ~ /std_headers\.txt$/
  files += !is_table
}
is_table && /^interfaces/ {
  for (i = 2; i <= NF; i++) in_interfaces[$i] = 1
}
is_table && /^</ {
  for (i = 2; i <= NF; i++) headers_of[$i] = headers_of[$i] " " $1
}
is_table { next }
/^[ \t]*#[ \t]*include[ \t]*</ && match($0, /<[^>]*>/) {
  header = substr($0, RSTART, RLENGTH)
  included[FILENAME, header] = 1
  # <stdint.h> declares what <cstdint> does, outside of std.
  if (header ~ /^<(assert|ctype|errno|float|limits|math|signal|stddef|stdint|stdio|stdlib|string|time)\.h>$/) {
    included[FILENAME, "<c" substr(header, 2, length(header) - 4) ">"] = 1
  }
  next
}
/^[ \t]*#[ \t]*include[ \t]*"/ && match($0, /"[^"]*"/) {
  project_headers[FILENAME] = project_headers[FILENAME] " " substr($0, RSTART + 1, RLENGTH - 2)
  next
}
{
  line = code_of($0)
  if (line !~ /[A-Za-z_]/) next
  gsub(/[^A-Za-z0-9_:.>]+/, " ", line)
  count = split(line, words, " ")
  for (i = 1; i <= count; i++) {
    word = words[i]
    gsub(/^[^A-Za-z_:]+|[:.>]+$/, "", word)
    sub(/^::/, "", word)
    if (word ~ /^std::/) {
      parts = split(word, part, /::|[.>]+/)
      name = "std::" part[2]
      if (part[2] == "ranges") name = name "::" part[3]
    } else if (word in headers_of) {
      name = word
    } else {
      continue
    }
    if (!((FILENAME, name) in uses)) {
      uses[FILENAME, name] = FILENAME ":" FNR
      files_used[++used] = FILENAME
      names_used[used] = name
    }
  }
}
END {
  if (files == 0) {
    print "no file of code to check"
    exit 1
  }
  for (i = 1; i <= used; i++) check(files_used[i], names_used[i])
  printf "%d files, %d missing include(s)\n", files, faults
  exit faults > 0
}
