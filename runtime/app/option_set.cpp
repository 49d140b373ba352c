#include "runtime/app/option_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <sstream>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "base/toml.h"
#include "device/gpu_variables.h"
#include "runtime/app/option_help.h"
#include "runtime/app/settings.h"

namespace headroom {
namespace {

using Text = const std::string&;

constexpr int64_t kMaxConfigBytes = kMiB;
constexpr int kMaxValues = 1 << 16;  // per list

// The variable's text; nothing when it is unset or empty.
std::optional<std::string> environment(const std::string& variable) {
  const char* text = std::getenv(variable.c_str());
  return text == nullptr || *text == '\0' ? std::nullopt : std::optional<std::string>(text);
}

// Shortens the given text for a message.
std::string shown(std::string_view given) {
  constexpr size_t kMaxShownBytes = 200;
  return printable(given, kMaxShownBytes);
}

// The whole of `text` as a T in [low, high].
template <typename T>
T parse_number(const std::string& text, const std::string& origin, std::string_view kind, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    throw InvalidArgument(fmt::format("{}: '{}' is not {}", origin, shown(text), kind));
  }
  if (error != std::errc() || !(value >= low && value <= high)) {  // this way round NaN is refused too
    const bool too_large = error != std::errc() && !text.starts_with('-');
    const bool below = high == std::numeric_limits<T>::max() && !too_large;
    throw InvalidArgument(below ? fmt::format("{}: {} is below {}", origin, shown(text), low)
                                : fmt::format("{}: {} is not in [{}, {}]", origin, shown(text), low, high));
  }
  return value;
}

// "--max-memory": the options that begin with the same word, "--max-peak" among them.
std::string suggest_same_word(std::string_view word, std::span<const std::string_view> known) {
  constexpr size_t kMost = 4;
  const size_t end = word.find('-', 2);
  if (!word.starts_with("--") || end == std::string_view::npos) return "";
  std::vector<std::string_view> same;
  for (const std::string_view option : known) {
    if (option.starts_with(word.substr(0, end + 1))) same.push_back(option);
  }
  if (same.empty() || same.size() > kMost) return "";
  return fmt::format("did you mean {}{}?", same.size() > 1 ? "one of " : "", fmt::join(same, ", "));
}

[[noreturn]] void refuse_value(const std::string& text, const std::string& origin,
                               std::span<const std::string_view> known) {
  throw InvalidArgument(fmt::format("{}: unknown value '{}'; known: {}", origin, shown(text),
                                    list_with_suggestion(text, known)));
}

bool parse_switch(const std::string& given, const std::string& origin) {
  const std::string text = lowered(given);
  if (text == "true" || text == "1" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "0" || text == "no" || text == "off") return false;
  throw InvalidArgument(fmt::format("{}: '{}' is neither true nor false", origin, shown(text)));
}

}  // namespace

std::string_view project_version() {
  return HEADROOM_VERSION;
}

OptionSet::OptionSet(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {
  group_ = kCommonGroup;
  add_choice("color", "When to print colors; auto: on a terminal, unless NO_COLOR is set", &colors_);
  group_.clear();
}

void OptionSet::add_text(std::string name, std::string help, std::string* target) {
  add({.name = std::move(name),
       .help = std::move(help),
       .value_name = "TEXT",
       .set = [=](Text text, Text) { *target = text; },
       .show = [=] { return toml_quoted(*target); }});
}

void OptionSet::add_option_name(std::string name, std::string help, std::string* target) {
  add_text(std::move(name), std::move(help), target);
  options_.back().takes_dashes = true;
}

void OptionSet::add_choice(std::string name, std::string help, std::string* target,
                           std::vector<std::string> known, std::function<bool(const std::string&)> also) {
  const auto set = [=](Text text, Text origin) {
    if (std::ranges::find(known, text) == known.end() && !(also && also(text))) {
      const std::vector<std::string_view> words(known.begin(), known.end());
      refuse_value(text, origin, words);
    }
    *target = text;
  };
  add({.name = std::move(name),
       .help = fmt::format("{} ({})", help, fmt::join(known, ", ")),
       .value_name = "NAME",
       .set = set,
       .show = [=] { return toml_quoted(*target); }});
}

void OptionSet::explain_in_short(std::initializer_list<std::string_view> names) {
  for (Option& option : options_) {
    if (std::ranges::find(names, option.name) != names.end()) option.explain_in_short = true;
  }
}

void OptionSet::add_names(std::string name, std::string help, std::span<const std::string_view> known,
                          std::function<void(size_t)> set, std::function<std::string_view()> get) {
  const auto set_name = [=](Text text, Text origin) {
    const auto found = std::ranges::find(known, text);
    if (found == known.end()) refuse_value(text, origin, known);
    set(static_cast<size_t>(found - known.begin()));
  };
  add({.name = std::move(name),
       .help = fmt::format("{} ({})", help, fmt::join(known, ", ")),
       .value_name = "NAME",
       .set = set_name,
       .show = [=] { return toml_quoted(std::string(get())); }});
}

void OptionSet::add_bytes(std::string name, std::string help, std::optional<int64_t>* target) {
  add({.name = std::move(name),
       .help = std::move(help),
       .value_name = "SIZE",
       .set = [=](Text text, Text origin) { *target = parse_bytes(text, origin); },
       .show = [=] { return *target ? std::optional(toml_quoted(exact_size(**target))) : std::nullopt; }});
}

void OptionSet::add_integer(std::string name, std::string help, int64_t* target, int64_t low, int64_t high) {
  const auto set = [=](Text text, Text origin) {
    *target = parse_number(text, origin, "a whole number", low, high);
  };
  add({.name = std::move(name), .help = std::move(help), .value_name = "N", .set = set, .show = [=] {
         return fmt::format("{}", *target);
       }});
}

void OptionSet::add_integer(std::string name, std::string help, std::optional<int64_t>* target, int64_t low,
                            int64_t high) {
  const auto set = [=](Text text, Text origin) {
    *target = parse_number(text, origin, "a whole number", low, high);
  };
  add({.name = std::move(name), .help = std::move(help), .value_name = "N", .set = set, .show = [=] {
         return *target ? std::optional(fmt::format("{}", **target)) : std::nullopt;
       }});
}

void OptionSet::add_number(std::string name, std::string help, double* target, double low, double high) {
  const auto set = [=](Text text, Text origin) {
    *target = parse_number(text, origin, "a number", low, high);
  };
  add({.name = std::move(name), .help = std::move(help), .value_name = "X", .set = set, .show = [=] {
         return fmt::format("{}", *target);
       }});
}

void OptionSet::add_number(std::string name, std::string help, std::optional<double>* target, double low,
                           double high) {
  const auto set = [=](Text text, Text origin) {
    *target = parse_number(text, origin, "a number", low, high);
  };
  add({.name = std::move(name), .help = std::move(help), .value_name = "X", .set = set, .show = [=] {
         return *target ? std::optional(fmt::format("{}", **target)) : std::nullopt;
       }});
}

void OptionSet::add_switch(std::string name, std::string help, bool* target) {
  add({.name = std::move(name),
       .help = std::move(help),
       .set = [=](Text text, Text origin) { *target = parse_switch(text, origin); },
       .show = [=] { return std::string(*target ? "true" : "false"); }});
}

void OptionSet::add_list(std::string name, std::string help, std::vector<std::string>* target) {
  const auto show = [=] {
    return target->empty() ? std::nullopt
                           : std::optional(toml_quoted(fmt::format("{}", fmt::join(*target, " "))));
  };
  add({.name = std::move(name),
       .help = std::move(help),
       .value_name = "TEXT",
       .set = [=](Text text, Text) { target->push_back(text); },
       .show = show,
       .clear = [=] { target->clear(); }});
}

void OptionSet::add_arguments(std::string name, std::string help, std::vector<std::string>* target,
                              bool required, std::string unless) {
  arguments_ = {.name = std::move(name),
                .help = std::move(help),
                .target = target,
                .required = required,
                .unless = std::move(unless)};
}

void OptionSet::add_override(std::string name, std::string variable) {
  overrides_.push_back({.name = std::move(name), .variable = std::move(variable)});
}

bool OptionSet::is_given(std::string_view name) const {
  return std::ranges::any_of(
      options_, [&](const Option& option) { return option.name == name && option.origin != "default"; });
}

bool OptionSet::is_on_command_line(std::string_view name) const {
  return std::ranges::any_of(options_, [&](const Option& option) {
    return option.name == name && option.origin == fmt::format("--{}", name);
  });
}

void OptionSet::add(Option option) {
  option.group = group_;
  option.default_value = option.show();
  options_.push_back(std::move(option));
}

OptionSet::Option* OptionSet::find(std::string_view name) {
  const auto at = std::ranges::find_if(options_, [&](const Option& o) { return o.name == name; });
  return at == options_.end() ? nullptr : &*at;
}

// CLI11 would use the word after "--memory=" as its value.
void OptionSet::require_values(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--") || !word.ends_with('=')) continue;
    const std::string_view name = word.substr(2, word.size() - 3);
    const Option* option = find(name);
    if (option == nullptr || option->value_name.empty()) continue;
    throw InvalidArgument(fmt::format("{} has no value; pass one, or leave the option out", word));
  }
}

bool has_command(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
}

// Returns the words before `--`, after which a command follows, or arguments that may begin with a dash.
// CLI11 would take the value of such an option for an option.
std::vector<std::string> OptionSet::own_words(int argc, const char* const* argv) {
  const std::vector<std::string> all(argv, argv + argc);
  const auto end = std::ranges::find(all, "--");
  if (end != all.end()) after_dashes_.assign(end + 1, all.end());
  std::vector<std::string> words;
  for (auto word = all.begin(); word != end; ++word) {
    const bool follows_option = !words.empty() && words.back().starts_with("--");
    const Option* option = follows_option ? find(words.back().substr(2)) : nullptr;
    if (option != nullptr && option->takes_dashes && word->starts_with('-')) {
      words.back() += "=" + *word;
    } else {
      words.push_back(*word);
    }
  }
  return words;
}

bool OptionSet::parse(int argc, const char* const* argv, std::ostream& out) {
  const std::vector<std::string> words = own_words(argc, argv);
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  const int count = static_cast<int>(pointers.size());
  require_values(count, pointers.data());
  CLI::App app("", program_);
  app.allow_extras();  // reported below, with a suggestion
  app.set_help_flag("--help");
  app.set_help_all_flag("-h");
  app.set_version_flag("--version", std::string(project_version()));
  std::string config_path;
  bool print_config = false;
  CLI::Option* config = app.add_option("--config", config_path);
  config->type_name("FILE")->take_last();
  app.add_flag("--print-config", print_config);
  std::vector<std::string> switches(options_.size());
  std::vector<std::vector<std::string>> texts(options_.size());
  std::vector<CLI::Option*> given;
  for (size_t i = 0; i < options_.size(); ++i) {
    const Option& option = options_[i];
    if (option.value_name.empty()) {
      given.push_back(app.add_flag("--" + option.name, switches[i])->take_last());
      continue;
    }
    CLI::Option* added = app.add_option("--" + option.name, texts[i]);
    added->type_name(option.value_name);
    option.clear ? added->expected(1, kMaxValues)->take_all()
                 : added->expected(1)->allow_extra_args(false)->take_last();
    given.push_back(added);
  }
  CLI::Option* arguments = nullptr;
  if (arguments_.target != nullptr) {
    // From 2.4 on CLI11 refuses names with blanks, such as "BEFORE AFTER".
    arguments = app.add_option("arguments", *arguments_.target)->expected(1, kMaxValues)->take_all();
  }
  try {
    app.parse(count, pointers.data());
  } catch (const CLI::CallForHelp&) {
    out << help();
    return false;
  } catch (const CLI::CallForAllHelp&) {
    const std::string command =
        takes_command_ && has_command(argc, argv) ? command_line("--", after_dashes_) : "";
    const bool has_argument = command.empty() && arguments != nullptr && !arguments->results().empty();
    out << short_help_for(has_argument ? arguments->results().front() : command);
    return false;
  } catch (const CLI::CallForVersion&) {
    out << fmt::format("{} {}\n", program_.substr(0, program_.find(' ')), project_version());
    return false;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  const bool has_dashes = takes_command_ && has_command(argc, argv);
  if (has_dashes && after_dashes_.empty())
    throw InvalidArgument("no command after --; give one, as -- python train.py");
  std::vector<std::string> unknown = app.remaining();
  if (takes_command_) {
    if (has_dashes && arguments_.target != nullptr)
      arguments_.target->push_back(command_line("--", after_dashes_));
  } else {
    std::vector<std::string>& target = arguments_.target == nullptr ? unknown : *arguments_.target;
    target.insert(target.end(), after_dashes_.begin(), after_dashes_.end());
  }
  if (!unknown.empty()) {
    std::vector<std::string> names = {"--help", "--version", "--config", "--print-config"};
    for (const Option& option : options_) names.push_back("--" + option.name);
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string word = unknown[0].substr(0, unknown[0].find('='));
    const bool takes_model =
        std::ranges::any_of(options_, [](const Option& option) { return option.name == "model"; });
    if (takes_model && word.ends_with(".onnx")) {
      throw InvalidArgument(fmt::format("unknown argument '{0}'; did you mean '--model {0}'?", unknown[0]));
    }
    const std::string_view nearest = suggest_nearest(word, known);
    const std::string suggestion =
        nearest.empty() ? suggest_same_word(word, known) : fmt::format("did you mean '{}'?", nearest);
    throw InvalidArgument(fmt::format("unknown argument '{}'; {}", unknown[0],
                                      suggestion.empty() ? "--help lists the options" : suggestion));
  }

  // CLI11 can read files and the environment itself, but there the file wins over the environment.
  if (config->count() == 0) config_path = environment(variable_of("config")).value_or("");
  if (!config_path.empty()) read_file_entries(config_path);
  read_environment();
  for (size_t i = 0; i < options_.size(); ++i) {
    if (given[i]->count() == 0) continue;
    options_[i].origin = "--" + options_[i].name;
    if (options_[i].clear) options_[i].clear();
    if (options_[i].value_name.empty()) texts[i] = {switches[i]};
    for (const std::string& text : texts[i]) options_[i].set(text, options_[i].origin);
  }
  if (arguments_.required && arguments_.target != nullptr && arguments_.target->empty() &&
      !is_given(arguments_.unless)) {
    std::string why;
    for (size_t i = 0; i < options_.size(); ++i) {
      if (!options_[i].clear || texts[i].size() < 2) continue;
      why = fmt::format(": --{} takes all words that follow it, '{}' too; give {} first", options_[i].name,
                        shown(texts[i].back()), arguments_.name);
    }
    throw InvalidArgument(fmt::format("{} is required{}{}", arguments_.name,
                                      arguments_.unless.empty() ? "" : ", or --" + arguments_.unless, why));
  }
  apply_overrides();
  for (const MisspelledVariable& variable : misspelled_variables()) notes_.push_back(variable.text());
  if (print_config) {
    out << describe();
    return false;
  }
  for (const std::function<void()>& check : checks_) check();
  return true;
}

void OptionSet::read_file_entries(const std::string& path) {
  for (const TomlEntry& entry : parse_toml(read_file(path, kMaxConfigBytes), path)) {
    Option* option = find(entry.key);
    if (option == nullptr && is_setting(entry.key)) continue;  // an option of another program
    if (option == nullptr) {
      const std::string_view nearest = suggest_nearest(entry.key, settings());
      throw InvalidArgument(fmt::format("{}:{}: unknown key '{}'{}", path, entry.line, shown(entry.key),
                                        nearest.empty() ? "; --print-config lists the known ones"
                                                        : fmt::format("; did you mean '{}'?", nearest)));
    }
    option->origin = fmt::format("{}:{}", path, entry.line);
    set_from_text(*option, entry.value, fmt::format("{}: {}", option->origin, entry.key));
  }
}

void OptionSet::read_environment() {
  for (Option& option : options_) {
    const std::string variable = variable_of(option.name);
    const std::optional<std::string> text = environment(variable);
    if (!text) continue;
    option.origin = "environment variable " + variable;
    set_from_text(option, *text, option.origin);
  }
}

void OptionSet::set_from_text(Option& option, const std::string& text, const std::string& origin) {
  if (!option.clear) return option.set(text, origin);
  option.clear();
  std::istringstream words(text);
  for (std::string word; words >> word;) option.set(word, origin);
}

void OptionSet::apply_overrides() {
  for (const auto& [name, variable] : overrides_) {
    const std::optional<std::string> text = environment(variable);
    Option* option = find(name);
    if (!text || option == nullptr) continue;
    if (*text != "true" && *text != "false") {
      notes_.push_back(fmt::format("{}='{}' is neither 'true' nor 'false': ignored", variable, *text));
      continue;
    }
    const std::string before = option->show().value_or("not set");
    notes_.push_back(
        fmt::format("{}={} overrides {} = {} (from: {})", variable, *text, name, before, option->origin));
    option->origin = "environment variable " + variable;
    option->set(*text, option->origin);
  }
}

std::vector<std::string> OptionSet::words(Words which) const {
  std::vector<std::string> words;
  for (const Option& option : options_) {
    const std::optional<std::string> shown = option.show();
    if (!shown || (which == Words::kChanged && shown == option.default_value)) continue;
    if (option.group == kCommonGroup) continue;  // says nothing about what the program does
    const std::string text = parse_toml(fmt::format("{} = {}", option.name, *shown), option.name)[0].value;
    if (option.value_name.empty()) {
      words.push_back(fmt::format("--{}{}", option.name, text == "true" ? "" : "=" + text));
      continue;
    }
    words.push_back("--" + option.name);
    if (!option.clear) {
      words.push_back(text);
      continue;
    }
    std::istringstream list(text);
    for (std::string word; list >> word;) words.push_back(word);
  }
  return words;
}

std::string OptionSet::describe() const {
  size_t name_width = 0, value_width = 0;
  for (const Option& option : options_) {
    name_width = std::max(name_width, option.name.size());
    value_width = std::max(value_width, option.show().value_or("").size());
  }
  std::string result;
  for (const Option& option : options_) {
    const std::optional<std::string> value = option.show();
    result += value ? fmt::format("{:<{}} = {:<{}}  # {}\n", option.name, name_width, *value, value_width,
                                  option.origin)
                    : fmt::format("# {} is not set\n", option.name);
  }
  for (const std::string& note : notes_) result += "# note: " + note + "\n";
  return result;
}

}  // namespace headroom
