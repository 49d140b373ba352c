// Named texts that two sides compare before they work together: ranks of a job, a training and the file that
// it goes on from. Knows neither.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace headroom {

using Facts = std::map<std::string, std::string>;

// "batch is 64, on rank 0 128; seed is 7, on rank 0 nothing": each of `own` that `others`, which are `where`,
// do not have like that. Empty where there is none.
std::string describe_differences(const Facts& own, const Facts& others, std::string_view where);

}  // namespace headroom
