// The options of one program. Reads each from the command line, the environment or a TOML file, in this order
// of precedence, and remembers from which. Knows no option's meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum_names.h"
#include "base/terminal.h"

namespace headroom {

// "0.1.0", of all programs.
std::string_view project_version();

class OptionSet {
 public:
  OptionSet(std::string program, std::string description);
  OptionSet(const OptionSet&) = delete;  // its options refer to it
  OptionSet& operator=(const OptionSet&) = delete;

  // Adds the next options to the group of this title. The short help only names them. Options without a title
  // are the program's own, which the short help explains.
  void begin_group(std::string title = {}) { group_ = std::move(title); }
  // The short help explains these options of groups as it does the program's own.
  void explain_in_short(std::initializer_list<std::string_view> names);
  // The short help for one kind of argument, such as `-h train.py:f`: the program's own options and these.
  struct KindOfArgument {
    std::string name;  // "a recording"
    std::function<bool(const std::string& argument)> includes;
    // Each with a text instead of its usual one, which may be empty.
    std::vector<std::pair<std::string_view, std::string_view>> options;
  };
  void explain_kind(KindOfArgument kind) { kinds_.push_back(std::move(kind)); }

  // Option `name` is --name on the command line, HEADROOM_NAME in the environment ('_' for '-') and the key
  // `name` in a file. The target's present value is the default. Targets must outlive parse().
  void add_text(std::string name, std::string help, std::string* target);
  // The name of another program's option, which may begin with dashes.
  void add_option_name(std::string name, std::string help, std::string* target);
  // One of `known`, or a text that `also` accepts.
  void add_choice(std::string name, std::string help, std::string* target, std::vector<std::string> known,
                  std::function<bool(const std::string&)> also = {});
  // One of the names of an enum.
  template <NamedEnum E>
  void add_choice(const std::string& name, const std::string& help, E* target) {
    add_names(
        name, help, enum_names<E>(), [target](size_t i) { *target = static_cast<E>(i); },
        [target] { return to_string(*target); });
  }
  // A size such as "512MiB", see parse_bytes.
  void add_bytes(std::string name, std::string help, std::optional<int64_t>* target);
  // A whole number, or a number, in [low, high].
  void add_integer(std::string name, std::string help, int64_t* target, int64_t low,
                   int64_t high = INT64_MAX);
  void add_integer(std::string name, std::string help, std::optional<int64_t>* target, int64_t low,
                   int64_t high = INT64_MAX);
  void add_number(std::string name, std::string help, double* target, double low, double high);
  void add_number(std::string name, std::string help, std::optional<double>* target, double low, double high);
  // Any number of texts after the option, which may be repeated. Blanks separate them in the environment and
  // in files.
  void add_list(std::string name, std::string help, std::vector<std::string>* target);
  // Arguments without an option's name, `name` in the help: at least one if `required`, unless that option is
  // given.
  void add_arguments(std::string name, std::string help, std::vector<std::string>* target,
                     bool required = true, std::string unless = {});
  // Takes the words after `--` for the command of another program: one more argument, "-- python train.py".
  void take_command() { takes_command_ = true; }
  // The words of that command.
  const std::vector<std::string>& command() const { return after_dashes_; }
  // "--name" sets it to true, "--name=false" to false.
  void add_switch(std::string name, std::string help, bool* target);

  // Environment variable `variable`, when "true" or "false", overrides the switch `name` from every source,
  // with a note. Any other text is ignored, with a note.
  void add_override(std::string name, std::string variable);

  // Called with all targets set; throws InvalidArgument for values that do not go together.
  void add_check(std::function<void()> check) { checks_.push_back(std::move(check)); }

  // Lines at the end of the help: commands to try.
  void set_examples(std::string examples) { examples_ = std::move(examples); }

  // Sets all targets. Returns false when the command line asks for -h, --help, --version or --print-config,
  // and writes those to `out`. Throws InvalidArgument for unknown options, for keys that no program knows,
  // for bad values, and for a --config file that cannot be read; some targets may be set then.
  bool parse(int argc, const char* const* argv, std::ostream& out);

  // Returns true if the option was set on the command line, in the environment or in a file.
  bool is_given(std::string_view name) const;
  // Returns true if the option was set on the command line, so for this command only.
  bool is_on_command_line(std::string_view name) const;

  // Returns the terminal of standard output, with colors as --color says.
  Terminal terminal() const { return Terminal(stdout, colors_); }

  // Lines for the user about overridden or ignored values, and about misspelled variables of GPU libraries.
  const std::vector<std::string>& notes() const { return notes_; }
  void add_note(std::string note) { notes_.push_back(std::move(note)); }

  // The words of a command line that sets the options to their present values: all of them, or only those
  // that differ from their defaults.
  enum class Words : uint8_t { kAll, kChanged };
  std::vector<std::string> words(Words which) const;

  // Returns every value and its origin, as TOML that --config accepts.
  std::string describe() const;

 private:
  struct Option {
    std::string name;
    std::string help;
    std::string value_name = {};  // "SIZE"; empty for a switch
    std::function<void(const std::string& text, const std::string& origin)> set;  // a list: one more of it
    std::function<std::optional<std::string>()> show;  // as TOML; nothing when not set
    std::function<void()> clear = {};                  // for a list alone: empties it
    std::string group = {};                            // the title over it in the help
    bool explain_in_short = false;                     // even if it belongs to a group
    bool takes_dashes = false;                         // its value may begin with dashes
    std::string origin = "default";
    std::optional<std::string> default_value = {};  // result of `show` when the option was added
  };

  void add(Option option);
  void add_names(std::string name, std::string help, std::span<const std::string_view> known,
                 std::function<void(size_t)> set, std::function<std::string_view()> get);
  Option* find(std::string_view name);
  std::vector<std::string> own_words(int argc, const char* const* argv);
  void require_values(int argc, const char* const* argv);
  static void set_from_text(Option& option, const std::string& text, const std::string& origin);
  std::string usage() const;
  std::string help_of(std::string_view group, size_t width) const;
  std::string help() const;
  std::string short_help() const;
  std::string short_help_for(const std::string& argument) const;
  std::vector<std::string> group_titles() const;
  void read_file_entries(const std::string& path);
  void read_environment();
  void apply_overrides();

  std::string program_, description_, examples_, group_;
  std::vector<KindOfArgument> kinds_;
  ColorWhen colors_ = ColorWhen::kAuto;
  std::vector<Option> options_;
  struct Arguments {
    std::string name, help;
    std::vector<std::string>* target = nullptr;
    bool required = true;
    std::string unless = {};  // an option that may stand in their place
  };
  Arguments arguments_;  // without a target when the program takes none
  bool takes_command_ = false;
  std::vector<std::string> after_dashes_;  // a command, or more arguments
  struct Override {
    std::string name, variable;
  };
  std::vector<Override> overrides_;
  std::vector<std::function<void()>> checks_;
  std::vector<std::string> notes_;
};

// True if one of the words is `--`: a command of another program follows.
bool has_command(int argc, const char* const* argv);

}  // namespace headroom
