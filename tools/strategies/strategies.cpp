// headroom strategies: lists the memory strategies with their options.

#include <fmt/format.h>

#include <iostream>
#include <string>
#include <string_view>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "base/errors.h"
#include "runtime/app/option_set.h"
#include "runtime/app/options.h"
#include "sheet/writers.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

// "  key=value        what it does": the value may be absent.
void add_setting(Sheet& sheet, std::string_view name, std::string_view value, const std::string& text) {
  sheet.item(fmt::format("  {:<28} ", value.empty() ? name : fmt::format("{}={}", name, value)), text);
}

Sheet list_strategies() {
  Sheet sheet;
  sheet.verdict(
      fmt::format("{} memory strategies; {} is the default", strategies().size(), RuntimeOptions{}.strategy));
  sheet.heading({});
  List rows, modifiers, settings;
  for (const Strategy& strategy : strategies()) {
    sheet.item(fmt::format("{:<15} ", strategy.name), std::string(strategy.summary), Color::kBold);
    List options;
    for (const StrategyOption& option : strategy.options) {
      add_setting(sheet, option.key, option.value,
                  fmt::format("{} (default: {})", option.summary, option.default_value));
      options.push_back(Record{{"name", option.key},
                               {"value", option.value},
                               {"default", option.default_value},
                               {"summary", option.summary}});
    }
    rows.push_back(Record{{"name", strategy.name}, {"summary", strategy.summary}, {"options", options}});
  }
  sheet.heading("modifiers of any strategy");
  for (const StrategyModifier& modifier : strategy_modifiers()) {
    add_setting(sheet, fmt::format("+{}", modifier.name), modifier.value, std::string(modifier.summary));
    modifiers.push_back(
        Record{{"name", modifier.name}, {"value", modifier.value}, {"summary", modifier.summary}});
  }
  sheet.heading({});
  sheet.item(fmt::format("{},KEY:VALUE,...   ", kTorchStrategy),
             "PyTorch's allocator with settings as in PYTORCH_CUDA_ALLOC_CONF");
  for (const TorchSetting& setting : torch_settings()) {
    if (setting.apply == nullptr) continue;
    sheet.fact(fmt::format("  {}:{}", setting.key, setting.value));
    settings.push_back(Record{{"name", setting.key}, {"value", setting.value}});
  }
  sheet.set("strategies", rows);
  sheet.set("modifiers", modifiers);
  sheet.set("torch_settings", settings);
  sheet.next = {{"headroom compare"}};
  return sheet;
}

}  // namespace

int run_strategies(int argc, char** argv) {
  bool json = false;
  OptionSet set("headroom strategies", "Lists the memory strategies that --strategy can name.");
  set.add_switch("json", "Print JSON", &json);
  set.set_examples("  headroom strategies --json | jq -r '.strategies[].name'\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  print(list_strategies(), json, set.terminal());
  return kExitDone;
}

}  // namespace headroom
