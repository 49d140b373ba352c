// The parts of the one array of messages; only messages.cpp puts them together.
#pragma once

#include <span>

#include "tools/explain/messages.h"

namespace headroom::explain {

std::span<const Message> framework_messages();
std::span<const Message> server_messages();
std::span<const Message> machine_messages();
std::span<const Message> runtime_messages();
std::span<const Message> background_messages();

}  // namespace headroom::explain
