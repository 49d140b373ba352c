#include "tools/explain/command_line.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace headroom::explain {
namespace {

constexpr std::string_view kBatchOptions =
    "--per_device_train_batch_size|--per-device-train-batch-size|--train_batch_size|--train-batch-size|--"
    "micro_batch_size|--micro-batch-size|--micro_train_batch_size|--batch_size|--batch-size|--batchsize|--"
    "batch|--bs|--max-tokens|-b|-bs|batch_size|batch-size|batch|train.batch_size|data.batch_size|training."
    "batch_size|trainer.batch_size|train_batch_size|per_device_train_batch_size";
constexpr std::string_view kAccumulationOptions =
    "--gradient_accumulation_steps|--gradient-accumulation-steps|--grad_accum|--accumulate|--update-freq";
constexpr std::string_view kWorkerOptions =
    "--num_workers|--num-workers|--workers|-j|--dataloader_num_workers|--dataloader-num-workers|num_workers|"
    "workers|--nworkers|--n_workers";
constexpr std::string_view kQuotes = "\"'";

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words = split(text, " ");
  std::erase(words, "");
  return words;
}

// Words, and options with their values: "--lr 0.1".
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (const std::string_view word : words_of(text)) {
    const bool is_value = !parts.empty() && parts.back()[0] == '-' && word[0] != '-' &&
                          parts.back().find_first_of(" =") == std::string_view::npos;
    if (is_value) {
      const char* const begin = parts.back().data();
      parts.back() = {begin, static_cast<size_t>(word.data() + word.size() - begin)};
    } else {
      parts.push_back(word);
    }
  }
  return parts;
}

// Which parts of `made` are not in the longest sequence that both have.
std::vector<bool> changed_parts(const std::vector<std::string_view>& original,
                                const std::vector<std::string_view>& made) {
  const size_t columns = made.size() + 1;
  std::vector<size_t> common((original.size() + 1) * columns, 0);  // in the parts from here on
  for (size_t i = original.size(); i-- > 0;) {
    for (size_t j = made.size(); j-- > 0;)
      common[i * columns + j] = original[i] == made[j]
                                    ? common[(i + 1) * columns + j + 1] + 1
                                    : std::max(common[(i + 1) * columns + j], common[i * columns + j + 1]);
  }
  std::vector<bool> changed(made.size(), true);
  for (size_t i = 0, j = 0; i < original.size() && j < made.size();) {
    if (original[i] == made[j]) {
      changed[j] = false;
      ++i;
      ++j;
    } else if (common[(i + 1) * columns + j] >= common[i * columns + j + 1]) {
      ++i;
    } else {
      ++j;
    }
  }
  return changed;
}

}  // namespace

std::string abridged(std::string_view original, std::string_view made) {
  constexpr size_t kLongestStart = 48;
  const std::vector<std::string_view> parts = parts_of(made);
  std::vector<bool> shown = changed_parts(parts_of(original), parts);
  size_t length = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_option =
        !parts[i].starts_with("-m ") && (parts[i][0] == '-' || parts[i].find('=') != std::string_view::npos);
    if (is_option && length == 0) continue;  // a variable before the program
    length += parts[i].size() + 1;
    if (is_option || length > kLongestStart) break;
    shown[i] = true;
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!shown[i] && i > 0 && !shown[i - 1]) continue;
    text += (text.empty() ? "" : " ") + std::string(shown[i] ? parts[i] : "...");
  }
  return text;
}

bool CommandLine::starts(std::string_view usual) const {
  std::string_view program;  // "llama" of "llama-server", "sglang" of "python -m sglang.launch_server"
  for (const std::string_view word : words_of(usual)) {
    if (word != "python" && word != "-m" && program.empty())
      program = word.substr(0, word.find_first_of("-."));
  }
  const std::vector<std::string_view> words = words_of(text_);
  return !program.empty() && std::ranges::any_of(words, [&](std::string_view word) {
    const std::string_view name = word.substr(word.find_last_of("/\\") + 1);
    return name.starts_with(program) && !name.ends_with(".py") && name.find('=') == std::string_view::npos;
  });
}

std::optional<CommandLine::Place> CommandLine::find(std::string_view name) const {
  for (size_t at = 0; (at = text_.find(name, at)) != std::string::npos; at += name.size()) {
    if (at == 0 || text_[at - 1] != ' ') continue;
    size_t value = at + name.size();
    if (value < text_.size() && text_[value] != '=' && text_[value] != ' ') continue;
    // A name without dashes is an option of Hydra and its kin, with '='.
    if (name[0] != '-' && (value >= text_.size() || text_[value] != '=')) continue;
    if (value >= text_.size()) return Place{value, 0};
    value = text_[value] == '=' ? value + 1 : std::min(text_.find_first_not_of(' ', value), text_.size());
    if (value < text_.size() && kQuotes.find(text_[value]) != kQuotes.npos) {
      const size_t close = text_.find(text_[value], value + 1);
      if (close != std::string::npos) return Place{value + 1, close - value - 1};
    }
    return Place{value, std::min(text_.find(' ', value), text_.size()) - value};
  }
  return std::nullopt;
}

std::string CommandLine::with(std::string_view names, std::string_view value) const {
  for (const std::string_view name : split(names, "|")) {
    const std::optional<Place> place = find(name);
    if (!place) continue;
    std::string made = text_;
    // A value with quotes of its own replaces those of the old one, too.
    const size_t quotes =
        value.starts_with('\'') && kQuotes.find(text_[place->begin - 1]) != kQuotes.npos ? 1 : 0;
    if (!value.empty()) made.replace(place->begin - quotes, place->length + 2 * quotes, value);
    return made;
  }
  std::string made = text_ + " " + std::string(names.substr(0, names.find('|')));
  if (!value.empty()) made += " " + std::string(value);
  return made;
}

std::string CommandLine::without(std::string_view name) const {
  if (!find(name)) return text_;
  std::string made;
  for (const std::string_view word : words_of(text_)) {
    if (word != name) made += (made.empty() ? "" : " ") + std::string(word);
  }
  return made;
}

std::string_view CommandLine::value(std::string_view names) const {
  for (const std::string_view name : split(names, "|")) {
    const std::optional<Place> place = find(name);
    if (place && place->length > 0) return std::string_view(text_).substr(place->begin, place->length);
  }
  return {};
}

std::optional<int64_t> CommandLine::number(std::string_view names) const {
  for (const std::string_view name : split(names, "|")) {
    if (const auto number = parse_number<int32_t>(value(name))) return *number;
  }
  return std::nullopt;
}

std::optional<int64_t> CommandLine::batch() const {
  const std::optional<int64_t> batch = number(kBatchOptions);
  return batch && *batch > 0 ? batch : std::nullopt;
}

std::string CommandLine::with_half_batch() const {
  for (const std::string_view name : split(kBatchOptions, "|")) {
    const auto batch = number(name);
    if (!batch || *batch < 2) continue;
    std::string made = with(name, std::to_string(*batch / 2));
    const CommandLine halved(made);
    if (const auto steps = halved.number(kAccumulationOptions)) {
      made = halved.with(kAccumulationOptions, std::to_string(*steps * 2));
    } else if (name.find("per_device_train_batch_size") != std::string_view::npos) {
      made = halved.with("--gradient_accumulation_steps", "2");
    }
    return made;
  }
  return text_;
}

std::string CommandLine::with_fewer_workers() const {
  for (const std::string_view name : split(kWorkerOptions, "|")) {
    const auto workers = number(name);
    if (workers && *workers >= 2) return with(name, std::to_string(std::max<int64_t>(1, *workers / 4)));
  }
  return {};
}

std::string in_container(const std::string& command) {
  constexpr std::string_view kDocker = "docker run ";
  const size_t docker = command.find(kDocker);
  if (docker == std::string::npos) return command;
  std::string made(kDocker);
  for (const std::string_view word : words_of(std::string_view(command).substr(0, docker))) {
    if (word.find('=') == std::string_view::npos) return command;
    made += "-e " + std::string(word) + " ";
  }
  return made + command.substr(docker + kDocker.size());
}

}  // namespace headroom::explain
