// A scenario: a failure that people reported, with its figures, and a run that reproduces it. Knows no single
// scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/app/options.h"

namespace headroom {
class TraceBuilder;
}

namespace headroom::repro {

// The device of a scenario, and the choice of its fix.
struct Stage {
  std::string device = "sim";  // or "cuda", "cuda:N"
  bool fixed = false;
  TraceBuilder* recording = nullptr;  // takes what the run of a Card allocates

  bool is_sim() const { return device == "sim"; }
  // The card of that profile: simulated, or a real one with a ballast that leaves as much.
  RuntimeOptions card(std::string_view profile) const;
};

enum class CheckedOn : uint8_t { kEveryDevice, kSimulated };

// A reported figure. Names that end in _bytes are sizes; texts are compared as a whole.
struct Expected {
  std::string_view name;
  std::variant<int64_t, std::string_view> value;
  CheckedOn on = CheckedOn::kEveryDevice;  // elsewhere it depends on the card
  std::string_view differs_because = {};   // unless empty, our figure is shown and not compared
};

// The results of a run: figures by name, in order, and the lines that its user saw.
struct Measured {
  using Figure = std::variant<int64_t, std::string>;
  std::vector<std::pair<std::string, Figure>> figures;
  std::vector<std::string> lines;

  void add(std::string name, Figure figure) { figures.emplace_back(std::move(name), std::move(figure)); }
  template <NamedEnum E>
  void add(std::string name, E value) {
    add(std::move(name), std::string(to_string(value)));
  }
  const Figure* find(std::string_view name) const;
};

// Calls `act` and notes the outcome: "ok", or "refused" with the message up to the first `end`.
void note_refusal(Measured& measured, std::string_view end, const std::function<void()>& act);

// Calls `act` and notes under that name "ok" or "out_of_memory".
void note_room(Measured& measured, std::string name, const std::function<void()>& act);

struct Scenario {
  std::string_view id, title, story = {};
  std::vector<Expected> expected = {};
  Measured (*run)(const Stage& stage) = nullptr;  // throws if anything else than the story goes wrong
  std::string_view fix = {};                      // empty where nothing needs to be fixed
  std::vector<Expected> fixed = {};               // figures with the fix
  CheckedOn on = CheckedOn::kEveryDevice;         // where it can run
};

// All of scenarios.txt, by letter and then by number.
std::span<const Scenario> scenarios();
// By its id, in either case. Throws InvalidArgument for an unknown one.
const Scenario& find_scenario(std::string_view id);

}  // namespace headroom::repro
