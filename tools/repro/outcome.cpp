#include "tools/repro/outcome.h"

#include <utility>

#include "runtime/base/errors.h"

namespace headroom::repro {

void note_refusal(Measured& measured, std::string_view end, const std::function<void()>& act) {
  try {
    act();
    measured.add("outcome", "ok");
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    measured.add("outcome", "refused");
    measured.add("message", message.substr(0, message.find(end)));
    measured.lines.push_back(message);
  }
}

void note_room(Measured& measured, std::string name, const std::function<void()>& act) {
  try {
    act();
    measured.add(std::move(name), "ok");
  } catch (const OutOfMemory& error) {
    measured.add(std::move(name), "out_of_memory");
    measured.lines.emplace_back(error.what());
  }
}

}  // namespace headroom::repro
