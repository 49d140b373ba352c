#include "tools/workload/child.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>

#include "base/errors.h"
#include "base/files.h"

namespace headroom {

Measurement measure_in_child(const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {"run"};
  for (const std::string& word : words) arguments.push_back(name_for_child(word));
  arguments.emplace_back("--json");
  const ChildResult ended = run_child(own_path(), arguments);
  Measurement measured;
  if (WIFSIGNALED(ended.status)) {
    measured.outcome = RunOutcome::kKilled;
    measured.error =
        fmt::format("ended by signal {} ({})", WTERMSIG(ended.status), strsignal(WTERMSIG(ended.status)));
    return measured;
  }
  const int code = WEXITSTATUS(ended.status);
  if (code == kExitBadInput) throw InvalidArgument(error_of(ended));
  if (code != kExitDone && code != kExitOutOfMemory && code != kExitLibraryFailure) {
    measured.outcome = RunOutcome::kFailed;
    measured.error = error_of(ended);
    return measured;
  }
  if (code == kExitOutOfMemory && ended.out.empty()) {  // no plan keeps to the memory: nothing ran
    measured.outcome = RunOutcome::kOutOfMemory;
    measured.error = error_of(ended);
    return measured;
  }
  return parse_measurement(ended.out);
}

}  // namespace headroom
