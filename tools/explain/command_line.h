// A command as the user typed it, and the same command with another option. Knows no framework but the names
// of options for batches and workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace headroom::explain {

class CommandLine {
 public:
  explicit CommandLine(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }

  // Tells whether it starts the program of `usual`: "vllm serve MODEL", also as "docker run
  // vllm/vllm-openai".
  bool starts(std::string_view usual) const;

  // With the option set: the first of its names "a|b" that is there gets the value, else the first name is
  // appended. An empty value is a switch.
  std::string with(std::string_view names, std::string_view value) const;
  // Without a switch, an option that takes no value; as it is where that is not there.
  std::string without(std::string_view name) const;
  // What stands after an option; empty where it is not there.
  std::string_view value(std::string_view names) const;
  // The number after an option; nothing where it is not there or no number.
  std::optional<int64_t> number(std::string_view names) const;

  // The batch of a training, by the options that programs have for it.
  std::optional<int64_t> batch() const;
  // With half of it, and twice the steps of accumulation where the program has that option.
  std::string with_half_batch() const;
  // With a quarter of the loader workers, at least 1; empty where it has no such option.
  std::string with_fewer_workers() const;

 private:
  struct Place {
    size_t begin = 0, length = 0;  // position of the value
  };
  std::optional<Place> find(std::string_view name) const;

  std::string text_;
};

// Variables before "docker run" do not reach the container: they become its options.
std::string in_container(const std::string& command);

// `made`, which is `original` with a change, in short: the program and what changed, and "..." for the rest.
std::string abridged(std::string_view original, std::string_view made);

}  // namespace headroom::explain
