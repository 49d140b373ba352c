// headroom strategies: lists the memory strategies with their options.

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "base/errors.h"
#include "base/terminal.h"
#include "runtime/app/option_set.h"
#include "runtime/app/options.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

void print_table(const Terminal& terminal) {
  constexpr size_t kNames = 16, kOptions = 31;  // where the texts beside them begin
  fmt::print("{} memory strategies; {} is the default\n\n", strategies().size(), RuntimeOptions{}.strategy);
  for (const Strategy& strategy : strategies()) {
    fmt::print("{} {}\n", terminal.painted(fmt::format("{:<15}", strategy.name), Colour::kBold),
               terminal.wrapped(strategy.summary, kNames, kNames));
    for (const StrategyOption& option : strategy.options) {
      const std::string text = fmt::format("{} (default: {})", option.summary, option.default_value);
      fmt::print("  {:<28} {}\n", fmt::format("{}={}", option.key, option.value),
                 terminal.wrapped(text, kOptions, kOptions));
    }
  }
  fmt::print("\nmodifiers of any strategy\n");
  for (const StrategyModifier& modifier : strategy_modifiers()) {
    const std::string text = modifier.value.empty() ? fmt::format("+{}", modifier.name)
                                                    : fmt::format("+{}={}", modifier.name, modifier.value);
    fmt::print("  {:<28} {}\n", text, terminal.wrapped(modifier.summary, kOptions, kOptions));
  }
  const std::string torch = fmt::format("{},KEY:VALUE,...   ", kTorchStrategy);
  fmt::print("\n{}{}\n", torch,
             terminal.wrapped("PyTorch's allocator with settings as in PYTORCH_CUDA_ALLOC_CONF", torch.size(),
                              torch.size()));
  for (const TorchSetting& setting : torch_settings()) {
    if (setting.apply != nullptr) fmt::print("  {}:{}\n", setting.key, setting.value);
  }
  fmt::print("\nnext: headroom compare\n");
}

std::string to_json() {
  nlohmann::ordered_json json;
  json["strategies"] = nlohmann::ordered_json::array();
  for (const Strategy& strategy : strategies()) {
    nlohmann::ordered_json row;
    row["name"] = strategy.name;
    row["summary"] = strategy.summary;
    row["options"] = nlohmann::ordered_json::array();
    for (const StrategyOption& option : strategy.options) {
      nlohmann::ordered_json json_option;
      json_option["name"] = option.key;
      json_option["value"] = option.value;
      json_option["default"] = option.default_value;
      json_option["summary"] = option.summary;
      row["options"].push_back(json_option);
    }
    json["strategies"].push_back(row);
  }
  json["modifiers"] = nlohmann::ordered_json::array();
  for (const StrategyModifier& modifier : strategy_modifiers()) {
    json["modifiers"].push_back(
        {{"name", modifier.name}, {"value", modifier.value}, {"summary", modifier.summary}});
  }
  json["torch_settings"] = nlohmann::ordered_json::array();
  for (const TorchSetting& setting : torch_settings()) {
    if (setting.apply != nullptr)
      json["torch_settings"].push_back({{"name", setting.key}, {"value", setting.value}});
  }
  return json.dump(2);
}

}  // namespace

int run_strategies(int argc, char** argv) {
  bool json = false;
  OptionSet set("headroom strategies", "Lists the memory strategies that --strategy can name.");
  set.add_switch("json", "Print JSON", &json);
  set.set_examples("  headroom strategies --json | jq -r '.strategies[].name'\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (json) {
    fmt::print("{}\n", to_json());
  } else {
    print_table(set.terminal());
  }
  return kExitDone;
}

}  // namespace headroom
