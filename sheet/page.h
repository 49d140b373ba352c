// The page around a sheet, embedded by the build. Knows no sheet.
#pragma once

#include <string_view>

namespace headroom {

extern const std::string_view kPageBeforeData, kPageAfterData;  // the first has "@TITLE@" once

}  // namespace headroom
