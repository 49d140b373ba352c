#include "tools/explain/verdict.h"

namespace headroom::explain {

using enum Verdict;

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case kPreallocation:
      return "preallocation";
    case kOtherProcess:
      return "other-process";
    case kExhausted:
      return "exhausted";
    case kFragmentation:
      return "fragmentation";
    case kCap:
      return "cap";
    case kTooLargeForDevice:
      return "too-large-for-device";
    case kWorkspace:
      return "workspace";
    case kHandleLeak:
      return "handle-leak";
    case kIndexOutOfRange:
      return "index-out-of-range";
    case kVersionMismatch:
      return "version-mismatch";
    case kPermission:
      return "permission";
    case kSizeOverflow:
      return "size-overflow";
    case kHostSpill:
      return "host-spill";
    case kNotMemory:
      return "not-memory";
    case kUnknown:
      return "unknown";
  }
  return {};
}

std::string_view headline_of(Verdict verdict) {
  switch (verdict) {
    case kPreallocation:
      return "a pool took the memory that a library needs";
    case kOtherProcess:
      return "another process holds the memory";
    case kExhausted:
      return "the memory is used up";
    case kFragmentation:
      return "enough memory is idle, but in pieces";
    case kCap:
      return "a limit that was set refused the request";
    case kTooLargeForDevice:
      return "one request is larger than the device";
    case kWorkspace:
      return "an op's workspace found no room";
    case kHandleLeak:
      return "this process holds much beside its pool";
    case kIndexOutOfRange:
      return "an index is out of range; memory is not the cause";
    case kVersionMismatch:
      return "versions do not match; memory is not the cause";
    case kPermission:
      return "something may not be used; memory is not the cause";
    case kSizeOverflow:
      return "a size was computed wrongly; memory is not the cause";
    case kHostSpill:
      return "more is allocated than the device has: the rest is in host memory";
    case kNotMemory:
      return "the GPU's memory is not the cause";
    case kUnknown:
      return "the log does not tell";
  }
  return {};
}

std::string_view name_of(Confidence confidence) {
  return confidence == Confidence::kHigh ? "high" : confidence == Confidence::kMedium ? "medium" : "low";
}

std::string_view name_of(Framework framework) {
  switch (framework) {
    case Framework::kTensorflow:
      return "TensorFlow";
    case Framework::kTorch:
      return "PyTorch";
    case Framework::kJax:
      return "JAX";
    case Framework::kOnnx:
      return "ONNX Runtime";
    case Framework::kHeadroom:
      return "Headroom";
    case Framework::kOther:
    case Framework::kNone:
      return {};
  }
  return {};
}

}  // namespace headroom::explain
