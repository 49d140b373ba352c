// A list, sum, model or other object of a program that keeps arrays, as the start-up hook saw it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/facts.h"

namespace headroom {

struct Holder {
  std::string name, line;                 // "train.py:49", which puts arrays into it
  int64_t count = 0, bytes = 0, own = 0;  // `own`: without the rest of what they are views of
  bool graphs = false;
  bool grows = false;           // a line that may run again puts more into it
  bool in_step = false;         // made anew in each step, before its backward
  std::string kind = "tensor";  // or "model", "optimizer"
  // Its owner: "library", "queue", "object" (of a library, made of others), "optimizer", "error", "buffer",
  // "call" (of a library), "iterator"; empty: the program's own.
  std::string owner;

  std::string text() const;         // "maps keeps 5 tensors, 320.00 MiB"
  std::string_view advice() const;  // against it

 private:
  bool are_views() const { return kind == "tensor" && own > 0 && bytes / 4 > own; }
};

// Reads those that the hook told of, most bytes first.
std::vector<Holder> read_holders(const Facts& facts);

}  // namespace headroom
