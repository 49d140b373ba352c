// What a log says about its failures: texts and figures, no conclusions. Knows neither the messages that they
// were read from nor what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/judge.h"

namespace headroom::explain {

// Whose words a message is in. Those after kHeadroom that stand on another (Trainer on PyTorch) are tools: a
// failure is of the framework below, and advice comes in the tool's words.
enum class Framework {
  kNone,
  kTensorflow,
  kTorch,
  kJax,
  kOnnx,
  kHeadroom,
  kTensorRt,
  kCupy,
  kNumba,
  kRapids,
  kXgboost,
  kLightGbm,
  kCatBoost,
  kPaddle,
  kMxnet,
  kMlx,
  kFlashlight,
  kDarknet,
  kJulia,
  kCtranslate,
  kOpenCv,
  kBlender,
  // Tools, those first whose settings decide.
  kVllm,
  kSglang,
  kTgi,
  kTensorRtLlm,
  kOllama,
  kLlamaCpp,
  kTriton,
  kComfy,
  kFooocus,
  kWebui,
  kDiffusers,
  kUnsloth,
  kDeepSpeed,
  kFsdp,
  kMegatron,
  kTrainer,
  kLightning,
  kUltralytics,
  kKohya,
  kFairseq,
  kTransformers,
  kAccelerate,
  // What starts and limits a job.
  kSlurm,
  kKubernetes,
  kDocker,
};
// Empty where the log does not say.
inline constexpr std::string_view kFrameworkNames[] = {"",
                                                       "TensorFlow",
                                                       "PyTorch",
                                                       "JAX",
                                                       "ONNX Runtime",
                                                       "Headroom",
                                                       "TensorRT",
                                                       "CuPy",
                                                       "Numba",
                                                       "RAPIDS",
                                                       "XGBoost",
                                                       "LightGBM",
                                                       "CatBoost",
                                                       "Paddle",
                                                       "MXNet",
                                                       "MLX",
                                                       "Flashlight",
                                                       "Darknet",
                                                       "CUDA.jl",
                                                       "CTranslate2",
                                                       "OpenCV",
                                                       "Blender",
                                                       "vLLM",
                                                       "SGLang",
                                                       "TGI",
                                                       "TensorRT-LLM",
                                                       "Ollama",
                                                       "llama.cpp",
                                                       "Triton server",
                                                       "ComfyUI",
                                                       "Fooocus",
                                                       "Stable Diffusion web UI",
                                                       "diffusers",
                                                       "Unsloth",
                                                       "DeepSpeed",
                                                       "FSDP",
                                                       "Megatron",
                                                       "Trainer",
                                                       "Lightning",
                                                       "Ultralytics",
                                                       "sd-scripts",
                                                       "fairseq",
                                                       "Transformers",
                                                       "Accelerate",
                                                       "Slurm",
                                                       "Kubernetes",
                                                       "Docker"};
inline constexpr size_t kFrameworkCount = static_cast<size_t>(Framework::kDocker) + 1;
static_assert(std::size(kFrameworkNames) == kFrameworkCount);
constexpr std::string_view name_of(Framework framework) {
  return kFrameworkNames[static_cast<size_t>(framework)];
}
constexpr bool is_tool(Framework framework) {
  return framework >= Framework::kVllm;
}

// What a message is about. Of several on one line the first in this order names the failure: it is nearer to
// the cause.
enum class Kind {
  kIndex,          // an index outside its table
  kHardware,       // the GPU, its memory or its power failed
  kXid,            // the driver's report of a fault, with its number
  kVersion,        // versions that do not match
  kPermission,     // access denied to a file or device
  kNotAFailure,    // no room, but the message itself says that it does no harm
  kBusy,           // another process has the device to itself
  kSharedMemory,   // /dev/shm
  kMisuse,         // a call that cannot work, whatever the memory; its words say why
  kOpenFiles,      // too many files or mappings, which looks like shared memory
  kLockedMemory,   // a network adapter may not lock memory
  kDisk,           // a disk is full
  kStopped,        // a scheduler or a person ended the run
  kHost,           // the machine's own memory, not the GPU's
  kDispatched,     // parts of a model were placed on the CPU
  kTooLargeModel,  // a program says itself that a model does not fit
  kCacheTooSmall,  // a server's cache holds fewer tokens than one request may have
  kNoCache,        // no memory was left for a server's cache
  kDisturbed,      // another process freed or took memory while a server measured
  kShareNotFree,   // a server wants a larger share than was free at its start
  kLimit,          // a limit that someone set
  kContext,        // the driver could not make a context
  kCollective,     // NCCL found no room
  kHandle,         // a library did not start
  kWorkspace,      // no algorithm or scratch memory for an op
  kAllocation,     // no room for a tensor
  kBareRefusal,    // the driver had no room; who asked for how much is not said
  kAmbiguous,      // a status that several causes print
  kLaunch,         // a library's call failed: mostly because the library had not started
  kAssert,         // a kernel's check failed; an earlier message says which
  kCrash,          // a kernel crashed
  kDeviceMissing,  // no device was found
  kLateSetting,    // a setting made too late or twice
  kHostLikely,     // a process was killed: nearly always by the machine for its memory
  kPoolShrunk,     // TensorFlow's pool got less than it asked for and goes on
  kBrokenVersion,  // as kVersion, but a working set-up prints it, too
  kSomeMemory,     // memory ran out, the device's or the machine's
  kAftermath,      // another process of the run failed first
  kOtherError,     // an error that is not about a GPU
  // No failures, but parts of one, or facts about the whole log:
  kDetail,  // of the failure right before it
  kPiece,   // the same, in words that nothing else prints: it also stands for a failure whose head is cut off
  kRecovered,  // the failures right before it did no harm: the program found another way
  kBackground,
  kMention,
  kModelName,    // a model's name follows on the line
  kSample,       // how much memory was in use at some step
  kStatedCause,  // Headroom's own judgement: "limit: 16.00 MiB are needed, ..."
  kPython,       // the log is of a program of Python
};

// Figures of a message. Bytes, but for kPid to kRootRank, which are counts; kVersion and those below are
// texts.
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
  kLimitLeft,     // of a limit that the log does not name
  kCapacity,      // how far the framework's pool may grow: a limit, or what it found free
  kLargest,       // largest free block inside the pool
  kStartFree,
  kPool,
  kWeights,      // of a model
  kActivations,  // and all else that a server measured before its cache
  kCacheNeeded,
  kCacheFree,
  kCacheShort,  // what is missing before the cache can have anything
  kBuffer,      // the largest buffer of a program
  kSample,
  kPid,
  kCount,   // of parameters
  kTokens,  // that one request may have
  kTokensFit,
  kLayers,
  kChannels,
  kXid,
  kPlainSample,  // as kSample, in an unknown unit
  kRootRank,     // that failed first, as a launcher says
  kVersion,
  kDims,
  kType,
  kStatus,
  kStrategy,
  kScript,
  kCommand,
  kShare,     // of the device, that a server may take: "0.90"
  kFraction,  // that someone set: "0.25"
  kDtype,
  kOp,
  kSource,
  kShape,
};
constexpr bool is_text(Field field) {
  return field >= Field::kVersion;
}
inline constexpr size_t kFieldCount = static_cast<size_t>(Field::kShape) + 1;

struct Figure {
  int64_t bytes = 0;
  int64_t line = 0;       // counted from 1
  int64_t precision = 0;  // in bytes: the number may be off by this much, as it was rounded when printed
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
  std::string rank;    // what the line starts with where several processes write one log: "[rank3]:"
  std::string text;    // the message's own words, one line without control characters
  std::string around;  // of kSomeMemory: the lines before and behind it, which may say whose memory it is
  std::string status, strategy, dims, type;
  std::string op, source, shape;      // of the largest buffer of a compiled program
  std::set<std::string_view> phases;  // what the program was doing, see phases of messages.h
  bool weak = false;                  // read from a message that any other on its line replaces
  Figures figures;
  std::vector<Holder> holders;
};

// The cause that Headroom printed beside a failure.
struct StatedCause {
  Cause cause = Cause::kUnknown;
  int64_t line = 0;
  std::string reason;
};

// How a program's use of memory went on over time.
struct Samples {
  int64_t first = 0, middle = 0, last = 0, count = 0, falls = 0;
  int64_t first_line = 0, last_line = 0;
  bool has_unit = false;
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
  std::string script;                              // "train.py", from a traceback
  std::string command;                             // as the user typed it, as far as it is fit for a shell
  std::string proven;                              // with the change that a program of ours tried: it fits
  std::string share, fraction, parameters, dtype;  // the first of each
  std::optional<int64_t> root_rank;                // that failed first, as a launcher says
  Samples samples;                                 // of the process that printed most of them
  bool windows = false, python = false;
  bool cublas_hint = false;  // TensorFlow itself says that memory may be the reason
};

}  // namespace headroom::explain
