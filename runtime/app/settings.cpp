#include "runtime/app/settings.h"

#include <algorithm>
#include <iterator>

namespace headroom {
namespace {

// A test compares them with the help of all programs.
constexpr std::string_view kSettings[] = {
    "all",
    "allocate",
    "allow-growth",
    "allow-soft-placement",
    "batch",
    "bucket",
    "capacity",
    "check-streams",
    "checkpoint-every",
    "chrome",
    "collective-timeout",
    "color",
    "context",
    "csv",
    "data",
    "data-on",
    "depth",
    "deterministic",
    "device",
    "device-memory",
    "device-policy",
    "dim",
    "epochs",
    "evaluate-every",
    "every",
    "fix",
    "force",
    "format",
    "gpus",
    "html",
    "inference",
    "inter-op-threads",
    "intra-op-threads",
    "json",
    "kernels",
    "learning-rate",
    "least-memory",
    "libraries-first",
    "limit",
    "limit-scope",
    "list",
    "load",
    "loader-depth",
    "log",
    "log-placement",
    "loss",
    "loss-scale",
    "margin",
    "math",
    "max-driver-calls",
    "max-fragmentation",
    "max-peak",
    "max-reserved",
    "memory",
    "memory-fraction",
    "minimum",
    "model",
    "most",
    "net",
    "no-leaks",
    "no-oom",
    "no-retries",
    "optimizer",
    "others",
    "others-by-gpu",
    "output",
    "passes",
    "pid",
    "place",
    "plan",
    "points",
    "precision",
    "record",
    "replicas",
    "resume",
    "runs",
    "save",
    "schedule",
    "seed",
    "settings",
    "shard-optimizer",
    "snapshot-at",
    "solve",
    "split-batch",
    "steps",
    "strategy",
    "target-accuracy",
    "times",
    "trace",
    "verbose",
    "verify",
    "virtual-devices",
    "visible-devices",
    "watch",
    "weights",
    "width",
};

}  // namespace

std::span<const std::string_view> settings() {
  return kSettings;
}

bool is_setting(std::string_view key) {
  return std::binary_search(std::begin(kSettings), std::end(kSettings), key);
}

}  // namespace headroom
