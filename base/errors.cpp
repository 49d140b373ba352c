#include "base/errors.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "base/judge.h"
#include "base/text.h"

namespace headroom {
namespace {

// One line of a log has to stay short: of a path the file is enough.
std::string_view file_name(std::string_view source) {
  const size_t slash = source.rfind('/');
  return slash == std::string_view::npos ? source : source.substr(slash + 1);
}

std::string describe(const MemoryFacts& facts) {
  const Judgment judgment = judge(facts);
  return fmt::format("{}; {}: {}", out_of_memory_message(facts), name_of(judgment.cause), judgment.reason);
}

}  // namespace

std::string memory_breakdown(const MemoryFacts& facts) {
  std::string text = fmt::format("strategy {}: {} allocated, {} reserved, largest free block {}",
                                 facts.strategy, format_bytes(facts.allocated), format_bytes(facts.reserved),
                                 format_bytes(facts.largest_free_block));
  if (facts.limit) {
    text += fmt::format(", limit {}{}", format_bytes(*facts.limit),
                        facts.limit_is_reserve      ? " to leave room for libraries"
                        : facts.limit_is_on_process ? " on the process"
                                                    : "");
  }
  return text + fmt::format("; device: {} total, {} free, {} held by others",
                            format_bytes(facts.device_total), format_bytes(facts.device_free),
                            format_bytes(facts.others));
}

std::string request_text(const MemoryFacts& facts) {
  std::string text = format_bytes(facts.requested);
  if (!facts.tensor.empty()) text += fmt::format(" for {}", printable(facts.tensor));
  if (!facts.op.empty()) text += fmt::format(" of {}", printable(facts.op));
  if (!facts.source.empty()) text += fmt::format(" at {}", printable(file_name(facts.source)));
  if (!facts.device.empty()) text += fmt::format(" on {}", facts.device);
  return text;
}

std::string out_of_memory_message(const MemoryFacts& facts) {
  return fmt::format("out of memory: tried to allocate {} ({})", request_text(facts),
                     memory_breakdown(facts));
}

OutOfMemory::OutOfMemory(MemoryFacts facts)
    : Error("out of memory"), facts_(std::move(facts)), message_(describe(facts_)) {}

void OutOfMemory::set_user(std::string op, std::string tensor, std::string source) {
  facts_.op = std::move(op);
  facts_.tensor = std::move(tensor);
  facts_.source = std::move(source);
  message_ = describe(facts_);
}

HostOutOfMemory::HostOutOfMemory(int64_t bytes)
    : message_(fmt::format("out of memory on the host: {} do not fit this machine", format_bytes(bytes))) {}

DeviceError::DeviceError(std::string call, std::string status, std::string description, std::string where)
    : Error(fmt::format("{} failed: {}: {}{}{}", call, status, description, where.empty() ? "" : " at ",
                        where)),
      call_(std::move(call)),
      status_(std::move(status)) {}

DeviceError::DeviceError(const std::string& message, std::string call, std::string status)
    : Error(message), call_(std::move(call)), status_(std::move(status)) {}

LibraryError::LibraryError(std::string message, std::string call, std::string status,
                           std::vector<std::string> log)
    : Error(message),
      message_(std::move(message)),
      full_message_(message_),
      call_(std::move(call)),
      status_(std::move(status)),
      log_(std::move(log)) {}

bool LibraryError::may_lack_memory() const {
  return call_.ends_with("Create") || status_.ends_with("ALLOC_FAILED");
}

void LibraryError::set_memory(MemoryFacts facts) {
  memory_ = std::move(facts);
  full_message_ = fmt::format("{}{}; {}{}", message_,
                              memory_->device.empty() ? "" : fmt::format(" on {}", memory_->device),
                              memory_->requested > 0 ? format_bytes(memory_->requested) + " requested; " : "",
                              memory_breakdown(*memory_));
}

CollectiveError::CollectiveError(int rank, std::string call, std::string cause)
    : Error(fmt::format("{} failed on rank {}: {}", call, rank, cause)),
      rank_(rank),
      call_(std::move(call)),
      cause_(std::move(cause)) {}

namespace {

// Streams of the devices that check are numbered from 1.
std::string stream_text(const void* handle) {
  if (handle == nullptr) return "the default stream";
  return fmt::format("stream {}", reinterpret_cast<uintptr_t>(handle));
}

std::string work_text(const StreamHazard::Access& access) {
  return fmt::format("{}{}", access.work, access.place.empty() ? "" : fmt::format(" ({})", access.place));
}

}  // namespace

StreamHazard::StreamHazard(Access before, Access now, std::string value)
    : Error(fmt::format(
          "missing wait: {} {} {} in {} while {} may still {} it in {}; let {} wait for {} before",
          stream_text(now.stream), now.writes ? "overwrites" : "reads", value, work_text(now),
          stream_text(before.stream), before.writes ? "write" : "read", work_text(before),
          stream_text(now.stream), stream_text(before.stream))),
      before_(std::move(before)),
      now_(std::move(now)),
      value_(std::move(value)) {}

ExitCode exit_code(const std::exception& error) {
  if (dynamic_cast<const InvalidArgument*>(&error)) return kExitBadInput;
  if (dynamic_cast<const OutOfMemory*>(&error) || dynamic_cast<const std::bad_alloc*>(&error))
    return kExitOutOfMemory;
  if (dynamic_cast<const LibraryError*>(&error) || dynamic_cast<const DeviceError*>(&error) ||
      dynamic_cast<const CollectiveError*>(&error)) {
    return kExitLibraryFailure;
  }
  if (dynamic_cast<const StreamHazard*>(&error)) return kExitCheckFailed;
  return kExitOther;
}

}  // namespace headroom
