// What a log says about its failures: texts and figures, no conclusions. Knows neither the messages that they
// were read from nor what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/cause.h"

namespace headroom::explain {

enum class Framework { kNone, kTensorflow, kTorch, kJax, kOnnx, kHeadroom, kOther };
// Empty where the log does not say, or we have no name for it.
inline constexpr std::string_view kFrameworkNames[] = {
    "", "TensorFlow", "PyTorch", "JAX", "ONNX Runtime", "Headroom", ""};
constexpr std::string_view name_of(Framework framework) {
  return kFrameworkNames[static_cast<size_t>(framework)];
}

// What a message is about. Of several on one line the first in this order names the failure: it is nearer to
// the cause.
enum class Kind {
  kIndex,          // an index outside its table
  kVersion,        // versions that do not match
  kPermission,     // access denied to a file or device
  kBusy,           // another process has the device to itself
  kHost,           // the machine's own memory, not the GPU's
  kNotAFailure,    // no room, but the message itself says that it does no harm
  kLimit,          // a limit that someone set
  kContext,        // the driver could not make a context
  kHandle,         // a library did not start
  kWorkspace,      // no algorithm or scratch memory for an op
  kAllocation,     // no room for a tensor
  kLaunch,         // a library's call failed: mostly because the library had not started
  kAssert,         // a kernel's check failed; an earlier message says which
  kCrash,          // a kernel crashed
  kLateSetting,    // a setting made too late or twice
  kPoolShrunk,     // TensorFlow's pool got less than it asked for and goes on
  kBrokenVersion,  // as kVersion, but a working set-up prints it, too
  // No failures, but parts of one, or facts about the whole log:
  kDetail,  // of the failure right before it
  kPiece,   // the same, in words that nothing else prints: it also stands for a failure whose head is cut off
  kBackground,
  kMention,
  kStatedCause,  // Headroom's own judgement: "limit: 16.00 MiB are needed, ..."
};

// Figures of a message. All in bytes but kPid; kVersion and those below are texts.
enum class Field {
  kRequested,
  kTotal,
  kFree,
  kAllocated,
  kReserved,
  kIdle,          // reserved and not allocated
  kPrivate,       // allocated in pools of recorded graphs
  kProcess,       // all that this process holds
  kHolder,        // all that another process holds
  kOthers,        // all that all others hold
  kLimit,         // on the pool, set by someone
  kProcessLimit,  // on all that the process holds, set by someone
  kReserveLimit,  // on the pool, to leave libraries room
  kCapacity,      // how far the framework's pool may grow: a limit, or what it found free
  kLargest,       // largest free block inside the pool
  kStartFree,
  kPool,
  kPid,
  kVersion,
  kDims,
  kType,
  kStatus,
  kStrategy,
  kScript,
};
inline constexpr size_t kFieldCount = static_cast<size_t>(Field::kScript) + 1;

struct Figure {
  int64_t bytes = 0;
  int64_t line = 0;  // counted from 1
};

class Figures {
 public:
  std::optional<Figure>& operator[](Field field) { return all_[static_cast<size_t>(field)]; }
  const std::optional<Figure>& operator[](Field field) const { return all_[static_cast<size_t>(field)]; }
  bool any() const {
    for (const std::optional<Figure>& figure : all_) {
      if (figure) return true;
    }
    return false;
  }

 private:
  std::array<std::optional<Figure>, kFieldCount> all_;
};

struct Holder {
  int64_t pid = 0;
  int64_t bytes = 0;
};

struct Failure {
  Kind kind = Kind::kAllocation;
  Framework framework = Framework::kNone;
  int64_t line = 0;
  std::string rank;  // what the line starts with where several processes write one log: "[rank3]:"
  std::string text;  // the message's own words, one line without control characters
  std::string status, strategy, dims, type;
  Figures figures;
  std::vector<Holder> holders;
};

// The cause that Headroom printed beside a failure.
struct StatedCause {
  Cause cause = Cause::kUnknown;
  int64_t line = 0;
  std::string reason;
};

struct Log {
  std::vector<Failure> failures;  // in the order of their lines; only the first few hundred
  std::vector<StatedCause> stated;
  int64_t failure_count = 0;
  int64_t line_count = 0;
  Figures background;              // said of the device before or outside a failure
  std::set<Framework> mentioned;   // by paths and names of modules
  std::set<std::string> settings;  // names of the settings that the log shows in use, see settings()
  // 1000 * major + minor: as the log names it, and the oldest version that prints its messages.
  std::map<Framework, int64_t> versions, at_least;
  std::string script;  // "train.py", from a traceback
  bool windows = false;
  bool cublas_hint = false;  // TensorFlow itself says that memory may be the reason
};

}  // namespace headroom::explain
