// The file in which a process records what it asked the driver for: a ring of calls, and the texts that they
// name. It is mapped, so a killed process leaves it whole. Knows no driver.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::guard {

enum class Call : uint8_t { kAllocate, kFree, kRefused };

struct Record {
  std::atomic<uint64_t> number;  // from 1 on, written last; else the record is incomplete
  int64_t time_ns;               // since the machine started
  uint64_t address;              // or another name of a block that lives
  int64_t bytes;
  uint64_t stream;
  uint32_t what;   // the text of the kind: "cuMemAlloc"
  uint32_t stack;  // of the frames, "file:line function" a line, the innermost first; 0: none
  int16_t card;
  Call call;
};

struct Recording {
  static constexpr uint32_t kRecords = 1 << 19, kTextBytes = 16 << 20;
  static constexpr uint32_t kMagic = 0x48525243;

  uint32_t magic;
  int32_t process;
  char command[256];
  std::atomic<uint64_t> count;  // of records ever begun
  std::atomic<uint32_t> text_bytes;
  Record records[kRecords];
  char texts[kTextBytes];  // each with a NUL; a text's number is where it begins
};

}  // namespace headroom::guard
