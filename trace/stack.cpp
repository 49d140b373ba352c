#include "trace/stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>

namespace headroom {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string place(const StackFrame& frame, std::string_view file) {
  return fmt::format("{}:{}", file, frame.line);
}

// "mm" of "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"; empty for another function.
std::string_view aten_op(std::string_view function) {
  constexpr std::string_view kStart = "at::_ops::";
  if (!function.starts_with(kStart)) return {};
  function.remove_prefix(kStart.size());
  return function.substr(0, function.find("::"));
}

// "ConvolutionBackward0" of "torch::autograd::generated::ConvolutionBackward0::apply(...)".
std::string_view backward_node(std::string_view function) {
  constexpr std::string_view kStart = "torch::autograd::generated::";
  if (!function.starts_with(kStart)) return {};
  function.remove_prefix(kStart.size());
  const size_t end = function.find("::apply");
  return end == std::string_view::npos ? std::string_view() : function.substr(0, end);
}

std::string op_of(const std::vector<StackFrame>& frames) {
  std::string_view native;
  for (const StackFrame& frame : frames) {
    if (const std::string_view node = backward_node(frame.function); !node.empty()) return std::string(node);
    const std::string_view op = aten_op(frame.function);
    // The function that makes an empty result says less than the op that asks for it.
    if (native.empty() && !op.empty() && !op.starts_with("empty") && !op.starts_with("resize")) native = op;
  }
  if (!native.empty()) return fmt::format("aten::{}", native);
  const auto python = std::ranges::find_if(frames, [](const auto& f) { return f.is_python(); });
  if (python == frames.end()) return frames.empty() ? "" : std::string(frames.front().function);
  // "linear.forward"; a function of the user is no op.
  if (!python->is_library()) return "";
  std::string_view file = python->file.substr(python->file.rfind('/') + 1);
  if (file.ends_with(".py")) file.remove_suffix(3);
  return fmt::format("{}.{}", file, python->function);
}

}  // namespace

std::string_view path_in_package(std::string_view file) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(folder);
    if (at != std::string_view::npos) return file.substr(at + folder.size());
  }
  return file;
}

bool StackFrame::is_python() const {
  return file.ends_with(".py") || (file.starts_with('<') && file.ends_with('>'));
}

bool StackFrame::is_torch() const {
  const std::string_view path = path_in_package(file);
  if (path.size() < file.size()) return path.starts_with("torch/");
  // Parts of paths in a build from source. A user's folder may also be called torch.
  for (const std::string_view part :
       {"/torch/nn/", "/torch/optim/", "/torch/autograd/", "/torch/utils/", "/torch/cuda/", "/torch/amp/",
        "/torch/distributed/", "/torch/_", "/torch/functional.py", "/torch/fx/", "/torch/jit/"}) {
    if (contains(file, part)) return true;
  }
  return false;
}

bool StackFrame::is_library() const {
  return is_torch() || path_in_package(file).size() < file.size() || contains(file, "/lib/python3") ||
         contains(file, "torchinductor") || file.starts_with("<frozen ") ||
         file.starts_with("<eval_with_key>") || file.starts_with("<string>");
}

void add_text(const StackFrame& frame, std::string& text) {
  const size_t begin = text.size();
  fmt::format_to(std::back_inserter(text), "{}:{} {}", frame.file, frame.line, frame.function);
  std::replace(text.begin() + static_cast<ptrdiff_t>(begin), text.end(), '\n', ' ');
}

std::string text_of(const StackFrame& frame) {
  std::string text;
  add_text(frame, text);
  return text;
}

std::vector<StackFrame> frames_of(std::string_view stack) {
  std::vector<StackFrame> frames;
  while (!stack.empty()) {
    const std::string_view text = stack.substr(0, stack.find('\n'));
    stack.remove_prefix(std::min(stack.size(), text.size() + 1));
    // The first ":LINE " ends the file's name, which may hold spaces and colons itself.
    StackFrame frame = {.function = text};
    for (size_t colon = text.find(':'); colon != std::string_view::npos; colon = text.find(':', colon + 1)) {
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, frame.line);
      if (error != std::errc() || (stop != end && *stop != ' ')) continue;
      frame.file = text.substr(0, colon);
      frame.function = stop == end ? "" : text.substr(static_cast<size_t>(stop - text.data()) + 1);
      break;
    }
    if (frame.file.empty()) frame.line = 0;
    frames.push_back(frame);
  }
  return frames;
}

StackSummary summarize(const std::vector<StackFrame>& frames) {
  StackSummary summary;
  summary.op = op_of(frames);
  const auto first = [&](auto holds) { return std::ranges::find_if(frames, holds); };
  const auto users = first([](const StackFrame& f) { return f.is_users(); });
  const auto package = first([](const StackFrame& f) { return f.is_python() && !f.is_torch(); });
  if (users != frames.end()) {
    summary.source = place(*users, users->file);
    if (package != users) summary.module = place(*package, path_in_package(package->file));
  } else if (package != frames.end()) {
    summary.source = place(*package, package->file);
  } else if (const auto python = first([](const StackFrame& f) { return f.is_python(); });
             python != frames.end()) {
    summary.source = place(*python, python->file);
  }
  return summary;
}

}  // namespace headroom
