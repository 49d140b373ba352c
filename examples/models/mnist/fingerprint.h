// The properties that must be equal on two sides that train one net: the ranks of a job, or a training and
// the checkpoint that it resumes. Knows neither.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

// Names and values, such as {"batch", "64"}.
using Fingerprint = std::map<std::string, std::string>;

// Lists the entries of `own` that differ in `other`, which the text calls `where`: "batch is 64, on rank 0
// 128; seed is 7, on rank 0 missing". Empty if there are none.
std::string list_differences(const Fingerprint& own, const Fingerprint& other, std::string_view where);

// Length and CRC-32 of the bytes.
std::string checksum(std::span<const uint8_t> bytes);

// The checksum of the running program. Throws InvalidArgument if its file cannot be read.
std::string program_checksum();

}  // namespace headroom
