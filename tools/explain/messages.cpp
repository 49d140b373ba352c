#include "tools/explain/messages.h"

#include <deque>
#include <string>
#include <vector>

#include "tools/explain/message_tables.h"

namespace headroom::explain {

std::span<const Message> messages() {
  static const std::vector<Message> all = [] {
    static std::vector<std::string> causes_with_colon;  // Message has a view of each
    for (const CauseInfo& row : causes()) causes_with_colon.push_back(std::string(row.name) + ": ");
    std::vector<Message> made;
    for (const std::span<const Message> part : {framework_messages(), server_messages(), machine_messages(),
                                                runtime_messages(), background_messages()}) {
      made.insert(made.end(), part.begin(), part.end());
    }
    static std::deque<std::string> capitals;  // as above
    for (size_t i = 0; i < made.size(); ++i) {
      Message message = made[i];
      if (message.kind != Kind::kSomeMemory || message.pattern[0] < 'a' || message.pattern[0] > 'z') continue;
      capitals.emplace_back(message.pattern).front() += 'A' - 'a';
      message.pattern = capitals.back();
      made.push_back(message);
    }
    for (const std::string& pattern : causes_with_colon)
      made.push_back({Kind::kStatedCause, Framework::kHeadroom, pattern});
    return made;
  }();
  return all;
}

}  // namespace headroom::explain
