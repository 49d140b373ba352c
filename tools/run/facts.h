// Facts about a failed program, as JSON that others wrote: what is missing, or of another type, is empty.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sheet/datum.h"

namespace headroom {

class Facts {
 public:
  Facts() = default;
  explicit Facts(Datum value) : value_(std::move(value)) {}
  // Empty if the text is no JSON.
  static Facts parse(std::string_view json);

  const Datum& value() const { return value_; }
  bool has(std::string_view name) const { return !at(name).is_null(); }
  Facts part(std::string_view name) const { return Facts(at(name)); }
  // The items of a list; none if it is anything else.
  std::vector<Facts> parts(std::string_view name) const;
  // One line that a terminal can show.
  std::string text(std::string_view name) const { return part(name).text(); }
  std::string text() const;
  // A count of at most 2^60, so that sums of a few do not overflow.
  int64_t number(std::string_view name) const;
  bool is_set(std::string_view name) const;

 private:
  const Datum& at(std::string_view name) const;

  Datum value_;
};

}  // namespace headroom
