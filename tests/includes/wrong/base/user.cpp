#include "base/count.h"
#include "base/nothing.h"

const std::map<int, int> kTypesOfInterfacesComeWithHeaders;
const int kLast = *std::prev(kTypesOfInterfacesComeWithHeaders.end());  // fault 3: functions do not
const FILE* const kFile = nullptr;                                      // fault 4
