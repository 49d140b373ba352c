#include "base/count.h"

// std::sort in a comment needs no header, nor does "std::sort" in a string.
const char* const kText = R"(std::sort)";

int64_t count(const std::map<int, int>& values) {
  return values.size();
}
int most() {
  const int numbers[] = {1, 2, 3};
  return std::max(numbers[std::size(numbers) - 1], 0) +
         std::not_in_the_table();  // fault 1 and 2; <map> has size
}
