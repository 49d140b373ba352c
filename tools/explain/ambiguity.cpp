#include "tools/explain/ambiguity.h"

#include <iterator>

namespace headroom::explain {
namespace {

using enum Cause;

constexpr std::string_view kFull = kNearlyFull;
constexpr std::string_view kAssert = "a run with CUDA_LAUNCH_BLOCKING=1, or on the CPU, names an index";
constexpr std::string_view kTiny = "a matrix product of 2 x 2 fails, too; headroom doctor names versions";

// A library that does not start: cuBLAS and cuDNN.
constexpr PossibleCause kStart[] = {
    {kExhausted, "the device is full, and the library found no room for its handle and workspace", kFull},
    {kIndexOutOfRange, "an index was out of range in an earlier kernel, and every later call fails", kAssert},
    {kVersionMismatch, "the library, the driver and the framework do not fit together", kTiny}};

constexpr PossibleCause kExecution[] = {
    {kIndexOutOfRange, "an earlier kernel failed (an index, a label or an address out of range)", kAssert},
    {kExhausted, "the device was full, and the library's kernel found no room", kFull},
    {kVersionMismatch, "the library was not built for this GPU or this driver", kTiny},
    {kHardware, "the GPU is faulty, too hot or overclocked",
     "dmesg has lines with Xid, or it fails at a different place each time"}};

constexpr PossibleCause kUnsupported[] = {
    {kNotMemory,
     "the operands do not suit the call: a layout that is not contiguous, a type, a size above 2^31",
     "the same call works with .contiguous(), in float32 or with a smaller batch"},
    {kWorkspace, "no algorithm's workspace fits into what is free",
     "it works with torch.backends.cudnn.benchmark = False or a smaller batch"},
    {kVersionMismatch, "this version of the library lacks the operation on this GPU", kTiny}};

constexpr PossibleCause kInvalidValue[] = {
    {kNotMemory, "the operands' shapes or strides do not suit the call, or one is empty",
     "the shapes printed before the call; it fails on the CPU, too"},
    {kVersionMismatch, "another version of cuBLAS than the framework's own is loaded",
     "it works after unset LD_LIBRARY_PATH; headroom doctor names the libraries"},
    {kIndexOutOfRange, "an earlier kernel failed", kAssert}};

constexpr PossibleCause kInternal[] = {
    {kExhausted, "the device is full, and the library found no room to start", kFull},
    {kVersionMismatch, "the library, the driver and the framework do not fit together", kTiny},
    {kPermission, "a cache of the driver belongs to another user", "ls -ld ~/.nv names another owner"},
    {kIndexOutOfRange, "an earlier kernel failed", kAssert}};

constexpr PossibleCause kNoAlgorithm[] = {
    {kWorkspace, "no algorithm's workspace fits into what is free", kFull},
    {kVersionMismatch, "this version of cuDNN lacks the operation on this GPU", kTiny}};

constexpr AmbiguousStatus kStatuses[] = {
    {"CUDNN_STATUS_INTERNAL_ERROR", kInternal},
    {"CUBLAS_STATUS_INTERNAL_ERROR", kInternal},
    {"EXECUTION_FAILED", kExecution},
    {"MAPPING_ERROR", kExecution},
    {"the GPU program failed to execute", kExecution},
    {"LAUNCH_FAILED", kExecution},
    {"UNKNOWN", kExecution},
    {"nknown", kExecution},
    {"unspecified", kExecution},
    {"CUBLAS_STATUS_NOT_SUPPORTED", kUnsupported},
    {"CUDNN_STATUS_NOT_SUPPORTED", kUnsupported},
    {"Frontend error", kUnsupported},
    {"No execution plans", kUnsupported},
    {"INVALID_VALUE", kInvalidValue},
    {"BAD_PARAM", kInvalidValue},
    {"valid cuDNN algorithm", kNoAlgorithm},
    {"unable to find an engine", kNoAlgorithm},
    {"", kStart},
};

}  // namespace

const AmbiguousStatus& ambiguous_status(std::string_view text) {
  for (const AmbiguousStatus& row : kStatuses) {
    if (text.find(row.name) != std::string_view::npos) return row;
  }
  return *std::prev(std::end(kStatuses));
}

}  // namespace headroom::explain
