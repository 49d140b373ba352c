// What a scenario is: a story that people have told of a GPU, what it came to, and a run that makes it happen
// again. Knows no single scenario.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/app/options.h"

namespace headroom::repro {

// Where a scenario runs, and whether with its cure.
struct Stage {
  std::string device = "sim";  // or "cuda", "cuda:N"
  bool cured = false;

  bool is_sim() const { return device == "sim"; }
  // The card of that profile: simulated, or a real one of which a ballast leaves as much.
  RuntimeOptions card(std::string_view profile) const;
};

enum class CheckedOn : uint8_t { kEveryDevice, kSimulated };

// A figure of the story. Names that end in _bytes are sizes; texts are compared as a whole.
struct Expected {
  std::string_view name;
  std::variant<int64_t, std::string_view> value;
  CheckedOn on = CheckedOn::kEveryDevice;  // elsewhere the card at hand decides it
  std::string_view differs_because = {};  // where not empty, ours is shown beside it and need not be the same
};

// What a run came to: figures by name, in order, and the lines that its user saw.
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

struct Scenario {
  std::string_view id, title, story;
  std::span<const Expected> expected;
  Measured (*run)(const Stage& stage);     // throws what goes wrong beyond the story
  std::string_view fix = {};               // empty: it shows what is so, and nothing is to be cured
  std::span<const Expected> cured = {};    // with the fix
  CheckedOn on = CheckedOn::kEveryDevice;  // where it can run
};

// Every scenario, by the letter of its source and then by number.
std::span<const Scenario> scenarios();
// The one of that id, in either case. Throws InvalidArgument for an unknown one.
const Scenario& find_scenario(std::string_view id);

}  // namespace headroom::repro
