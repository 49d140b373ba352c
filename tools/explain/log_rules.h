// The rules of single situations: a model or a server that does not fit, memory that grows, a driver that
// says no more than "out of memory". Each answers one question about a log; judge_log.cpp has their order.
#pragma once

#include <optional>
#include <string>

#include "tools/explain/judge_log.h"

namespace headroom::explain {

// Tells whether a text has one of the parts "a|b|c"; without parts it has.
bool has_part(std::string_view text, std::string_view parts);

LogJudgment verdict(Cause cause, Confidence confidence, std::string reason, const Failure* witness = nullptr);

using LogRule = std::optional<LogJudgment>(const Case& found);

LogRule impossible;       // Do the driver's figures contradict each other?
LogRule own_ranks;        // Do other processes of this run hold the device?
LogRule number_pair;      // Does a line say that one number is larger than it may be?
LogRule during;           // Does what the program was doing tell why?
LogRule during_on_host;   // Does it tell why the machine ran out of its own memory?
LogRule server_cache;     // Is too little left for a server's cache?
LogRule server_share;     // Does a server want a larger share than was free?
LogRule graph_capture;    // Did a server fail while it recorded CUDA graphs?
LogRule model_in_parts;   // Was a part of the model placed on the CPU?
LogRule model_too_large;  // Did it fail while weights moved to the device?
LogRule layers_or_cache;  // finds the llama.cpp buffer that did not fit
LogRule apple_memory;     // Did Apple's memory run out?
LogRule compiled_buffer;  // Does the log name the largest buffer of a compiled program?
LogRule collective;       // Did NCCL find no room?
LogRule growing;          // Did memory grow from step to step?
LogRule bare_refusal;     // Did the driver refuse without a figure?

// The text with the failure's figures in its holes; nothing where one is missing.
std::optional<std::string> filled(const Case& found, std::string_view text);

// The length that fits a server's cache, in tokens.
std::optional<int64_t> tokens_that_fit(const Case& found);
// The share of the device that a server would need, or may have: "0.74".
std::string share_that_fits(const Case& found);

}  // namespace headroom::explain
