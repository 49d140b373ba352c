#include "runtime/app/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/toml.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

// Options parsed in an environment that only the test sets.
class OptionsTest : public testing::Test {
 protected:
  ~OptionsTest() override {
    for (const std::string& name : variables_) unsetenv(name.c_str());
  }

  void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    variables_.push_back(name);
  }

  // False when the command line asked for a text instead, which output_ has then.
  bool parse(std::vector<const char*> arguments) {
    set_.emplace("program", "A program.");
    options_ = {};
    add_runtime_options(*set_, options_);
    arguments.insert(arguments.begin(), "program");
    std::ostringstream out;
    const bool run = set_->parse(static_cast<int>(arguments.size()), arguments.data(), out);
    output_ = out.str();
    return run;
  }

  std::string refusal(std::vector<const char*> arguments) {
    try {
      parse(std::move(arguments));
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      return message;
    }
    return "accepted";
  }

  std::optional<OptionSet> set_;  // options of the last command line
  RuntimeOptions options_;
  std::string output_;
  std::vector<std::string> variables_;
  ScratchFolder folder_;
};

TEST_F(OptionsTest, TakeEveryOptionFromTheCommandLine) {
  ASSERT_TRUE(parse({"--device",
                     "sim:card-6gb",
                     "--strategy=hard-limit",
                     "--limit",
                     "1GiB",
                     "--limit-scope",
                     "process",
                     "--memory-fraction",
                     "0.25",
                     "--allow-growth",
                     "--plan",
                     "packed",
                     "--seed",
                     "7",
                     "--device-memory",
                     "3GiB",
                     "--others",
                     "5MiB",
                     "--context",
                     "6MiB"}));
  EXPECT_EQ(options_.device, "sim:card-6gb");
  EXPECT_EQ(options_.strategy, "hard-limit");
  EXPECT_EQ(options_.limit_bytes, kGiB);
  EXPECT_EQ(options_.strategy_settings().limit_scope, LimitScope::kProcess);
  EXPECT_EQ(options_.memory_fraction, 0.25);
  EXPECT_TRUE(options_.allow_growth);
  EXPECT_EQ(options_.plan, PlanMode::kPacked);
  EXPECT_EQ(options_.seed, 7);
  const std::unique_ptr<Device> device = make_device(options_);
  EXPECT_EQ(device->memory().info().total, 3 * kGiB);
  EXPECT_EQ(device->memory().info().others, 5 * kMiB);
  device->initialize();
  EXPECT_EQ(device->memory().info().process, 6 * kMiB);
}

// Every name of an enum is a value of its option, in the help too, and a near miss is no other value.
template <NamedEnum E>
void expect_every_name(const std::string& option, E RuntimeOptions::*field) {
  for (const E value : enum_values<E>()) {
    RuntimeOptions options;
    OptionSet set("program", "");
    add_runtime_options(set, options);
    const std::string name(to_string(value));
    const char* const arguments[] = {"program", option.c_str(), name.c_str()};
    std::ostringstream out;
    ASSERT_TRUE(set.parse(3, arguments, out));
    EXPECT_EQ(options.*field, value);
    EXPECT_EQ(parse_enum<E>(name, "value"), value);
    const std::string mistyped = name + "x";
    const char* const wrong[] = {"program", option.c_str(), mistyped.c_str()};
    try {
      set.parse(3, wrong, out);
      ADD_FAILURE() << mistyped << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(std::string(error.what()).ends_with("; did you mean '" + name + "'?")) << error.what();
    }
  }
  EXPECT_THROW(parse_enum<E>("", "value"), InvalidArgument);
}

TEST(EnumOptions, TakeEveryNameAndSuggestTheNearest) {
  expect_every_name("--plan", &RuntimeOptions::plan);
  expect_every_name("--limit-scope", &RuntimeOptions::limit_scope);
  expect_every_name("--device-policy", &RuntimeOptions::device_policy);
}

TEST_F(OptionsTest, CommandLineBeatsEnvironmentBeatsFileBeatsDefault) {
  const std::string file = folder_.write("s.toml", "# all\nplan = \"packed\"\nseed = 2\nlimit = '2MiB'\n");
  ASSERT_TRUE(parse({"--config", file.c_str()}));
  EXPECT_EQ(options_.seed, 2);
  set_variable("HEADROOM_SEED", "3");
  set_variable("HEADROOM_LIMIT", "3MiB");
  ASSERT_TRUE(parse({"--config", file.c_str()}));
  EXPECT_EQ(options_.seed, 3);
  ASSERT_TRUE(parse({"--config", file.c_str(), "--limit", "4MiB"}));
  EXPECT_EQ(options_.limit_bytes, 4 * kMiB);
  EXPECT_EQ(options_.seed, 3);
  EXPECT_EQ(options_.plan, PlanMode::kPacked);
  EXPECT_EQ(options_.limit_scope, LimitScope::kPool);
}

TEST_F(OptionsTest, PrintConfigShowsEachOrigin) {
  const std::string file = folder_.write("s.toml", "seed = 2\n");
  set_variable("HEADROOM_PLAN", "packed");
  set_variable("HEADROOM_CONFIG", file);
  EXPECT_FALSE(parse({"--print-config", "--device", "sim"}));
  const auto line = [&](const std::string& name) {
    const size_t at = output_.find("\n" + name + " ");
    return at == std::string::npos ? output_.substr(0, output_.find('\n'))
                                   : output_.substr(at + 1, output_.find('\n', at + 1) - at - 1);
  };
  EXPECT_TRUE(line("device").ends_with("# --device")) << output_;
  EXPECT_TRUE(line("plan").ends_with("# environment variable HEADROOM_PLAN")) << output_;
  EXPECT_TRUE(line("seed").ends_with("# " + file + ":1")) << output_;
  EXPECT_TRUE(line("strategy").ends_with("# default")) << output_;
  EXPECT_NE(output_.find("# limit is not set\n"), std::string::npos) << output_;
}

TEST_F(OptionsTest, PrintedConfigReproducesTheOptions) {
  EXPECT_FALSE(parse(
      {"--print-config", "--seed", "9", "--limit", "1.5GiB", "--allow-growth", "--memory-fraction=0.1"}));
  const std::string file = folder_.write("s.toml", output_);
  ASSERT_TRUE(parse({"--config", file.c_str()}));
  EXPECT_EQ(options_.seed, 9);
  EXPECT_EQ(options_.limit_bytes, 3 * kGiB / 2);
  EXPECT_TRUE(options_.allow_growth);
  EXPECT_EQ(options_.memory_fraction, 0.1);
}

TEST_F(OptionsTest, TensorFlowsVariableOverridesEvenTheCommandLineWithANote) {
  set_variable("TF_FORCE_GPU_ALLOW_GROWTH", "true");
  ASSERT_TRUE(parse({"--allow-growth=false"}));
  EXPECT_TRUE(options_.allow_growth);
  ASSERT_EQ(set_->notes().size(), 1u);
  EXPECT_EQ(set_->notes()[0],
            "TF_FORCE_GPU_ALLOW_GROWTH=true overrides allow-growth = false (from: --allow-growth)");
  set_variable("TF_FORCE_GPU_ALLOW_GROWTH", "false");
  ASSERT_TRUE(parse({"--allow-growth"}));
  EXPECT_FALSE(options_.allow_growth);
}

TEST_F(OptionsTest, AskedForGrowthWithoutAStrategyTheStrategyIsTheOneThatGrows) {
  ASSERT_TRUE(parse({}));
  EXPECT_EQ(options_.strategy, "mapped");
  ASSERT_TRUE(parse({"--allow-growth"}));
  EXPECT_EQ(options_.strategy, "allow-growth");
  set_variable("TF_FORCE_GPU_ALLOW_GROWTH", "true");
  ASSERT_TRUE(parse({}));
  EXPECT_EQ(options_.strategy, "allow-growth");
  ASSERT_TRUE(parse({"--strategy", "mapped"}));
  EXPECT_EQ(options_.strategy, "mapped");
  const std::string file = folder_.write("s.toml", "strategy = \"mapped\"\n");
  ASSERT_TRUE(parse({"--config", file.c_str()}));
  EXPECT_EQ(options_.strategy, "mapped");
}

TEST_F(OptionsTest, ABadValueOfTensorFlowsVariableIsIgnoredWithANote) {
  set_variable("TF_FORCE_GPU_ALLOW_GROWTH", "1");
  ASSERT_TRUE(parse({"--allow-growth"}));
  EXPECT_TRUE(options_.allow_growth);
  ASSERT_EQ(set_->notes().size(), 1u);
  EXPECT_NE(set_->notes()[0].find("ignored"), std::string::npos);
}

TEST_F(OptionsTest, AMisspelledVariableOfAGpuLibraryIsNoted) {
  set_variable("CUDA_VISIBLE_DIVICES", "1");
  ASSERT_TRUE(parse({}));
  ASSERT_EQ(set_->notes().size(), 1u);
  EXPECT_EQ(set_->notes()[0], "nothing reads CUDA_VISIBLE_DIVICES; did you mean CUDA_VISIBLE_DEVICES?");
}

TEST_F(OptionsTest, HelpNamesEveryOptionAndTheKnownStrategies) {
  EXPECT_FALSE(parse({"--help"}));
  for (const char* word :
       {"--strategy", "--limit-scope", "--config", "--print-config", "grab-all", "HEADROOM_DEVICE"}) {
    EXPECT_NE(output_.find(word), std::string::npos) << word;
  }
}

TEST_F(OptionsTest, UnknownWordsSuggestTheNearestName) {
  EXPECT_EQ(refusal({"--limt", "5"}), "unknown argument '--limt'; did you mean '--limit'?");
  EXPECT_EQ(refusal({"--limt=5"}), "unknown argument '--limt=5'; did you mean '--limit'?");
  EXPECT_EQ(refusal({"word"}), "unknown argument 'word'; --help lists the options");
  EXPECT_NE(refusal({"--strategy", "grab_all"}).find("--strategy: unknown value 'grab_all'; known: "),
            std::string::npos);
  EXPECT_TRUE(refusal({"--strategy", "grab_all"}).ends_with("did you mean 'grab-all'?"));
  EXPECT_TRUE(refusal({"--device", "sim:laptop"})
                  .starts_with("--device: unknown value 'sim:laptop'; known: cpu, sim"));
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda1"}) {
    EXPECT_NE(refusal({"--device", name}).find("did you mean 'cuda"), std::string::npos) << name;
  }
  EXPECT_TRUE(parse({"--device", "cuda:17"}));  // its existence is checked when it is made
  const std::string file = folder_.write("s.toml", "\nmemory_fraction = 0.5\n");
  const std::string message = refusal({"--config", file.c_str()});
  EXPECT_TRUE(message.starts_with(file + ":2: unknown key 'memory_fraction'")) << message;
  EXPECT_TRUE(message.ends_with("did you mean 'memory-fraction'?")) << message;
}

TEST_F(OptionsTest, ErrorsOfBadValuesNameTheirOrigin) {
  EXPECT_TRUE(refusal({"--limit", "12QB"}).starts_with("--limit: '12QB' is not a size"));
  EXPECT_TRUE(refusal({"--limit", "-1"}).starts_with("--limit: '-1' is not a size: it is negative"));
  EXPECT_EQ(refusal({"--seed", "x"}), "--seed: 'x' is not a whole number");
  EXPECT_EQ(refusal({"--seed=-1"}), "--seed: -1 is below 0");
  EXPECT_EQ(refusal({"--seed=-9223372036854775809"}), "--seed: -9223372036854775809 is below 0");
  EXPECT_EQ(refusal({"--seed=9223372036854775808"}),
            "--seed: 9223372036854775808 is not in [0, 9223372036854775807]");
  EXPECT_EQ(refusal({"--memory-fraction", "1.5"}), "--memory-fraction: 1.5 is not in [0, 1]");
  EXPECT_EQ(refusal({"--memory-fraction", "nan"}), "--memory-fraction: nan is not in [0, 1]");
  EXPECT_EQ(refusal({"--allow-growth=maybe"}), "--allow-growth: 'maybe' is neither true nor false");
  EXPECT_NE(refusal({"--seed"}), "accepted");
  EXPECT_NE(refusal({"--config", "/no/such/file"}).find("/no/such/file: cannot open it"), std::string::npos);
  const std::string file = folder_.write("s.toml", "seed = 1.5\n");
  EXPECT_EQ(refusal({"--config", file.c_str()}), file + ":1: seed: '1.5' is not a whole number");
  set_variable("HEADROOM_LIMIT", "x");
  EXPECT_TRUE(refusal({}).starts_with("environment variable HEADROOM_LIMIT: 'x' is not a size"));
}

TEST(SimulatedProfile, NeedsNoPrefixAndMayHaveANumber) {
  for (const char* name : {"rtx-3090", "rtx-3090:0", "sim:rtx-3090"}) {
    const std::optional<DeviceProfile> profile = simulated_profile({.device = name});
    ASSERT_TRUE(profile) << name;
    EXPECT_EQ(profile->name, "rtx-3090") << name;
  }
  EXPECT_EQ(default_device({.device = "four-2080ti:2"}).ordinal, 2);
  for (const char* name : {"rtx-3091", "cpu", "cuda:0", "rtx-3090:x"}) {
    EXPECT_FALSE(simulated_profile({.device = name})) << name;
  }
}

TEST(SimulatedProfile, OfATotalAloneHasTheContextOfTheNearestCardAndNoOtherProcesses) {
  const DeviceProfile card = *simulated_profile({.device = "sim", .device_memory_bytes = 24 * kGiB});
  EXPECT_EQ(card.total_bytes, 24 * kGiB);
  EXPECT_EQ(card.context_bytes, find_profile("rtx-3090").context_bytes);
  EXPECT_EQ(card.others_bytes, 0);
  for (const int64_t total : {kGiB, 3 * kGiB, 4 * kGiB}) {
    const DeviceProfile small = *simulated_profile({.device = "sim", .device_memory_bytes = total});
    EXPECT_EQ(small.name, "rtx-2060") << total;
    EXPECT_EQ(small.others_bytes, 0) << total;
  }
  const RuntimeOptions laptop = {.device = "sim", .device_memory_bytes = 2002 * kMiB};
  for (const RuntimeOptions& options : {laptop, with_named_profile(laptop)}) {
    EXPECT_EQ(simulated_profile(options)->name, "laptop-2gb");
    EXPECT_EQ(simulated_profile(options)->others_bytes, 0);
  }
  EXPECT_EQ(simulated_profile({.device = "sim:h200", .device_memory_bytes = 24 * kGiB})->name, "h200");
  // Once named, it stays when the total changes.
  RuntimeOptions named = with_named_profile({.device = "sim", .device_memory_bytes = 24 * kGiB});
  named.device_memory_bytes = kGiB;
  EXPECT_EQ(simulated_profile(named)->context_bytes, card.context_bytes);
}

TEST_F(OptionsTest, ACardByAnotherSpellingIsSuggested) {
  for (const char* name : {"3090", "RTX 3090", "rtx3090", "GeForce RTX 3090", "NVIDIA GeForce RTX 3090"}) {
    EXPECT_NE(refusal({"--device", name}).find("did you mean 'rtx-3090'?"), std::string::npos) << name;
  }
  EXPECT_NE(refusal({"--device", "A100"}).find("did you mean 'a100-40gb' or 'a100-80gb'?"),
            std::string::npos);
  EXPECT_NE(refusal({"--device", "gpu"}).find("known: cpu, "), std::string::npos);
}

TEST_F(OptionsTest, ADeviceThatTheContextTakesIsRefusedInOneLine) {
  EXPECT_EQ(refusal({"--device-memory", "24", "--device", "sim"}),
            "device-memory of 24 B: the context alone takes 100.00 MiB; a number without a unit is bytes: "
            "write 24GiB");
  EXPECT_EQ(refusal({"--device-memory", "100MiB", "--device", "sim"}),
            "device-memory of 100.00 MiB: the context alone takes 100.00 MiB");
  EXPECT_TRUE(parse({"--device-memory", "100MiB", "--device", "sim", "--context", "50MiB"}));
}

TEST(MakeDevice, RefusesAnUnknownDeviceAndProfileChangesOnTheCpu) {
  EXPECT_THROW(make_device({.device = "gpu"}), InvalidArgument);
  EXPECT_THROW(make_device({.device = "sim:nowhere"}), InvalidArgument);
  EXPECT_THROW(make_device({.device = "cpu", .others_bytes = kMiB}), InvalidArgument);
  EXPECT_THROW(make_device({.device = "cuda", .context_bytes = kMiB}), InvalidArgument);
  EXPECT_EQ(make_device({.device = "cpu"})->name(), "/device:CPU:0");
  EXPECT_TRUE(make_device({.device = "sim"})->description().starts_with("simulated "));
}

}  // namespace
}  // namespace headroom
