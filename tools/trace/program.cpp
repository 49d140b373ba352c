#include "tools/trace/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/ended_by_signal.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/process/dialogue.h"
#include "base/process/process.h"
#include "base/text.h"
#include "tools/trace/command.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

constexpr std::string_view kFileEnd = ".py:";
constexpr int64_t kMostBytes = 1 << 24;  // size limit of a Python file
constexpr size_t kMostTitle = 60;        // of a command in a line of progress

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::ranges::all_of(text, [](char c) {
           const auto code = static_cast<unsigned char>(c);
           return std::isalnum(code) != 0 || c == '_' || code >= 0x80;
         });
}

// Returns the last line of Python's output, without the name of the module.
std::string last_line(const ChildResult& child) {
  std::string text = error_of(child);
  constexpr std::string_view kName = "headroom trace: ";
  if (text.starts_with(kName)) text.erase(0, kName.size());
  return printable(text);
}

[[noreturn]] void fail(const std::string& python, const std::string& program, const ChildResult& child) {
  if (WIFSIGNALED(child.status)) {
    throw Error(fmt::format("{}: {} ended by signal {} ({})", program, python, WTERMSIG(child.status),
                            strsignal(WTERMSIG(child.status))));
  }
  const std::string line = last_line(child);
  if (WEXITSTATUS(child.status) == kExitBadInput) throw InvalidArgument(line);
  if (line.find("No module named") != std::string::npos) {
    throw Error(
        fmt::format("{} has no package headroom: run `{} -m pip install .` in Headroom's folder, or "
                    "set HEADROOM_PYTHON to the Python that has it and PyTorch",
                    python, python));
  }
  throw Error(line.empty() ? fmt::format("{}: {} failed", program, python) : line);
}

// The file that runs the package headroom which belongs to this command, for a Python that does not have it:
// in the tree of which the command was built (build/PRESET/tools), or the environment in which it was
// installed. Empty if there is none.
std::string path_of_package() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path in_tree = path_of_sibling("../../../python/headroom/__main__.py");
  if (fs::exists(in_tree, ignored)) return in_tree.lexically_normal().string();
  for (const auto& folder : fs::directory_iterator(path_of_sibling("../lib"), ignored)) {
    const fs::path main = folder.path() / "site-packages/headroom/__main__.py";
    if (folder.path().filename().string().starts_with("python") && fs::exists(main, ignored))
      return main.lexically_normal().string();
  }
  return {};
}

// A file that is gone with the object.
class TemporaryFile {
 public:
  TemporaryFile() : path_((std::filesystem::temp_directory_path() / "headroom-trace-XXXXXX").string()) {
    const int file = mkstemp(path_.data());
    if (file < 0) throw Error(fmt::format("{}: {}", path_, std::strerror(errno)));
    close(file);
    remove_when_ended(path_);
  }
  ~TemporaryFile() {
    remove_when_ended("");
    unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

namespace {

// The likelihood that a function of a Python file builds the program; the least likely last.
enum class Likeness : uint8_t { kUsualName, kTakesBatch, kOther };

Likeness likeness_of(std::string_view name, std::string_view parameters) {
  if (name == "make_step") return Likeness::kUsualName;
  return parameters.substr(0, parameters.find(',')).find("batch") != std::string_view::npos
             ? Likeness::kTakesBatch
             : Likeness::kOther;
}

// Returns functions in the outermost scope of a Python text that can be called with only a batch or with no
// arguments, the most likely first.
std::vector<std::string> functions_of(std::string_view text) {
  constexpr std::string_view kDefinition = "\ndef ";
  const std::string lines = fmt::format("\n{}", text);
  std::vector<std::pair<Likeness, std::string>> found;
  for (size_t at = 0; (at = lines.find(kDefinition, at)) != std::string::npos;) {
    at += kDefinition.size();
    const size_t open = lines.find('(', at), close = lines.find(')', at);
    if (open == std::string::npos || close == std::string::npos || close < open) break;
    const std::string name = lines.substr(at, open - at);
    std::string parameters = lines.substr(open + 1, close - open - 1);
    parameters = parameters.substr(0, parameters.find('*'));  // those by name have defaults, or are any
    const size_t defaults = parameters.find('=');
    const auto required =
        std::count(parameters.begin(),
                   defaults == std::string::npos ? parameters.end()
                                                 : parameters.begin() + static_cast<std::ptrdiff_t>(defaults),
                   ',') +
        (defaults == std::string::npos && !parameters.empty() ? 1 : 0);
    if (is_name(name) && !name.starts_with('_') && required <= 1) {
      found.emplace_back(likeness_of(name, parameters), name);
    }
  }
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& [likeness, name] : found) names.push_back(std::move(name));
  return names;
}

}  // namespace

void require_function(const std::string& text) {
  constexpr std::string_view kPython = ".py";
  constexpr size_t kMostNames = 5;
  const std::string file = text.ends_with(':') ? text.substr(0, text.size() - 1) : text;
  if (is_command(text) || !file.ends_with(kPython) || file.size() == kPython.size()) return;
  std::vector<std::string> names = functions_of(read_file(file, kMostBytes));
  const size_t more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - more);
  for (std::string& name : names) name = printable(fmt::format("{}:{}", file, name));
  throw InvalidArgument(
      fmt::format("{0}: give its command, as -- python {0}, or the function that builds the program and "
                  "returns one training step, {1}",
                  printable(file),
                  names.empty() ? fmt::format("as {}:make_step (docs/trace.md)", printable(file))
                                : fmt::format("{}{}", fmt::join(names, " or "),
                                              more > 0 ? fmt::format(" (and {} more)", more) : "")));
}

bool is_program(std::string_view text) {
  if (is_command(text)) return true;
  const size_t end = text.rfind(kFileEnd);
  return end != std::string_view::npos && end > 0 && is_name(text.substr(end + kFileEnd.size()));
}

namespace {

void require_program(const std::string& program) {
  if (is_program(program)) return;
  require_function(program);
  throw InvalidArgument(
      fmt::format("'{}' is not a program; give a file and a function, as train.py:make_step, or a command, "
                  "as -- python train.py",
                  printable(program, 200)));
}

// The Python that makes the request, and all its words.
Python python_for(const ProgramRequest& request, const std::vector<std::string>& more) {
  Python python = python_of(request.program);
  std::vector<std::string>& words = python.words;
  python.title = python.file;
  for (const std::string& word : words) python.title += " " + word;
  const std::string package = path_of_package();
  package.empty() ? words.insert(words.end(), {"-m", "headroom"}) : words.insert(words.end(), {package});
  words.emplace_back("trace");
  if (python.traced.empty()) words.push_back(request.program);
  words.insert(words.end(), {"--steps", std::to_string(request.steps), "--device", request.device});
  words.insert(words.end(), more.begin(), more.end());
  const ProgramOptions& options = request.options;
  if (options.compute != ProgramOptions().compute || std::getenv("HEADROOM_COMPUTE") != nullptr)
    words.push_back("--compute=" + options.compute);
  if (options.ranks > 0) words.push_back("--ranks=" + std::to_string(options.ranks));
  if (python.traced.empty()) return python;
  if (!options.batch_option.empty()) words.push_back("--batch-option=" + options.batch_option);
  words.emplace_back("--");
  words.insert(words.end(), python.traced.begin(), python.traced.end());
  return python;
}

Trace read_one_trace(const std::string& path, const std::string& program) {
  std::vector<Trace> traces = read_traces(path, {}, Moments::kRefuse, printable(program));
  if (traces.size() != 1) throw Error(fmt::format("{}: no trace", program));
  traces.front().name = program;
  return std::move(traces.front());
}

nlohmann::json json_of(const ProgramChanges& changes) {
  return {{"passes", changes.passes}, {"checkpoints", changes.checkpoints}, {"offload", changes.offload},
          {"fused", changes.fused},   {"uncached", changes.uncached},       {"autocast", changes.autocast},
          {"model", changes.model},   {"loss_parts", changes.loss_parts},   {"head", changes.head}};
}

nlohmann::json json_of(const ProgramSpeed& speed) {
  return {{"flops_per_us", speed.flops_per_us},
          {"half_flops_per_us", speed.half_flops_per_us},
          {"bytes_per_us", speed.bytes_per_us},
          {"link_bytes_per_us", speed.link_bytes_per_us},
          {"launch_us", speed.launch_us}};
}

}  // namespace

namespace {

using Notes = std::vector<std::string>;

void print(const Notes& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", printable(note));
}

Trace trace_to(const ProgramRequest& request, const std::string& path, Progress& progress, Notes& notes) {
  require_program(request.program);
  const std::string title = input_title(request.program);
  std::vector<std::string> words = {"--output", path, "--quiet"};
  if (request.batch) words.insert(words.end(), {"--batch", std::to_string(*request.batch)});
  words.emplace_back("--progress");
  const Python python = python_for(request, words);
  progress.begin(0, "", "loading " + printable(title, kMostTitle));  // the time of its imports is unknown
  // "headroom: traced 2 steps" and "headroom: note: ...", as __main__.py writes them.
  const OnLine read = [&](std::string_view line) {
    constexpr std::string_view kSteps = "headroom: traced ", kNote = "headroom: note: ";
    constexpr std::string_view kWho = "headroom: ";
    int64_t steps = 0;
    if (line.starts_with(kNote)) notes.emplace_back(line.substr(kNote.size()));
    if (line.starts_with("headroom: computes "))  // takes long: said before it begins
      progress.say("note: " + printable(line.substr(kWho.size())));
    if (!line.starts_with(kSteps) ||
        std::from_chars(line.data() + kSteps.size(), line.data() + line.size(), steps).ec != std::errc())
      return;
    steps == 0 ? progress.begin(static_cast<double>(request.steps), "steps",
                                "tracing " + printable(title, kMostTitle))
               : progress.advance(1);
  };
  const ChildResult child = run_child(python.file, python.words, read, kPatience);
  if (!WIFEXITED(child.status) || WEXITSTATUS(child.status) != kExitDone) fail(python.title, title, child);
  return read_one_trace(path, title);
}

}  // namespace

Trace trace_program_to(const ProgramRequest& request, const std::string& path) {
  Progress progress(0, "");
  Notes notes;
  Trace trace = trace_to(request, path, progress, notes);
  progress.finish();
  print(notes);
  return trace;
}

Trace trace_program(const ProgramRequest& request, Progress& progress) {
  const TemporaryFile file;
  Notes notes;
  Trace trace = trace_to(request, file.path(), progress, notes);
  print(notes);
  return trace;
}

Trace trace_program(const ProgramRequest& request) {
  const TemporaryFile file;
  return trace_program_to(request, file.path());
}

struct ProgramTracer::Process {
  explicit Process(const Python& started) : python(started.title), dialogue(started.file, started.words) {
    const auto temporary = std::make_shared<const TemporaryFile>();
    path = temporary->path();
    file = temporary;
  }

  const std::string python;
  std::string path;                  // path of a file for the traces
  std::string note = {};             // on the batch of a command
  std::shared_ptr<const void> file;  // removed with this object
  Dialogue dialogue;
};

ProgramTracer::ProgramTracer(ProgramRequest request) : request_(std::move(request)) {
  require_program(request_.program);
  process_ = std::make_unique<Process>(python_for(request_, {"--requests"}));
}

ProgramTracer::~ProgramTracer() = default;

TracedProgram ProgramTracer::trace(std::optional<int64_t> batch, const ProgramChanges& changes,
                                   const ProgramSpeed* speed) {
  nlohmann::json question = {{"output", process_->path}, {"changes", json_of(changes)}};
  if (!batch) batch = request_.batch;
  if (batch) question["batch"] = *batch;
  if (speed != nullptr) question["speed"] = json_of(*speed);
  const std::string title = input_title(request_.program);
  std::string answer;
  if (!process_->dialogue.ask(question.dump(), answer)) {
    fail(process_->python, title, process_->dialogue.end());
  }
  TracedProgram traced;
  try {
    nlohmann::json json = nlohmann::json::parse(answer);
    while (json.contains("said")) {  // before work that takes long
      fmt::print(stderr, "note: {}\n", printable(json.at("said").get<std::string>()));
      if (!process_->dialogue.read_line(answer)) fail(process_->python, title, process_->dialogue.end());
      json = nlohmann::json::parse(answer);
    }
    if (json.contains("error")) throw InvalidArgument(printable(json.at("error").get<std::string>()));
    if (json.contains("failure")) throw Error(printable(json.at("failure").get<std::string>()));
    if (std::string note = json.value("batch", ""); note != process_->note) {
      fmt::print(stderr, "note: {}\n", printable(note));
      process_->note = std::move(note);
    }
    traced.us_per_step = json.value("us_per_step", 0.0);
    traced.model = json.value("model", "");
    traced.name = json.value("name", "");
    traced.uses_cache = json.value("uses_cache", false);
    traced.normalizes_batches = json.value("normalizes_batches", false);
    traced.head = json.value("head", "");
    for (const nlohmann::json& module : json.at("modules")) {
      traced.modules.push_back({module.at("path"), module.at("us"), module.at("children")});
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: Python's answer is not understood: {}", title, error.what()));
  }
  traced.trace = read_one_trace(process_->path, title);
  return traced;
}

}  // namespace headroom
