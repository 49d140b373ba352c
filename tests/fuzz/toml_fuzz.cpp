#include <cstdlib>

#include "base/errors.h"
#include "base/toml.h"
#include "tests/fuzz/fuzz_target.h"

// Text that is accepted must read back the same when written as quoted strings.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const auto& entry : headroom::parse_toml({reinterpret_cast<const char*>(data), size}, "fuzz")) {
      const std::string line = headroom::toml_quoted(entry.key) + " = " + headroom::toml_quoted(entry.value);
      const std::vector<headroom::TomlEntry> again = headroom::parse_toml(line, "again");
      if (again.size() != 1 || again[0].key != entry.key || again[0].value != entry.value) std::abort();
    }
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
