// Runs commands of the test program under `headroom run`, against the stand-in driver, whose own books say
// what was taken.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "guard/standin/cards.h"
#include "tests/run_shell.h"
#include "tests/scratch_folder.h"

namespace headroom {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr int64_t kMib = int64_t{1} << 20;

class Guard : public testing::Test {
 protected:
  // The program's commands under a limit. `settings` are variables of the environment: STANDIN_CONTEXT=200.
  Outcome run(const std::string& options, const std::string& program,
              const std::string& settings = {}) const {
    const std::string all = "HEADROOM_STANDIN=" + folder_ / "cards" + " XDG_CACHE_HOME=" + folder_ / "cache" +
                            " GUARD_DEEP_LIBRARY=" GUARD_DEEP " LD_LIBRARY_PATH=" GUARD_STANDIN " " +
                            settings + " ";
    return run_shell(folder_, all + HEADROOM_COMMAND " run " + options + " -- " + program);
  }
  static std::string program(const std::string& words) { return GUARD_PROGRAM " " + words; }
  static std::string in_shell(const std::string& script) { return "sh -c '" + script + "'"; }

  // The driver's own books.
  standin::Cards cards() const {
    standin::Cards all{};
    const std::string bytes = read_file(folder_ / "cards", 1 << 20);
    if (bytes.size() != sizeof all)
      ADD_FAILURE() << "no cards";
    else
      std::memcpy(static_cast<void*>(&all), bytes.data(), sizeof all);
    return all;
  }
  int64_t peak_mib(int card = 0) const { return cards().tree_peak[card] / kMib; }

  ScratchFolder folder_;
};

}  // namespace headroom
