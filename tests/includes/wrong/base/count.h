// Includes what it uses: no fault here, and its source may rely on it.
#include <cstdint>
#include <map>

int64_t count(const std::map<int, int>& values);
