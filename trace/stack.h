// Stacks of a traced program: text with one frame "file:line function" a line, the innermost first. Knows
// which frames are Python's, PyTorch's and the user's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct StackFrame {
  std::string_view file = {};
  int64_t line = 0;
  std::string_view function = {};

  bool is_python() const;
  bool is_torch() const;    // Python code of PyTorch itself
  bool is_library() const;  // Python code that is installed: PyTorch, other packages, Python's own modules
  bool is_users() const { return is_python() && !is_library(); }
};

// Returns the path inside the folder of installed packages, "torch/nn/modules/linear.py", or the whole path
// if there is none. Text after the path stays.
std::string_view path_in_package(std::string_view file);

// "/src/train.py:31 main", as in a stack.
std::string text_of(const StackFrame& frame);
void add_text(const StackFrame& frame, std::string& text);  // at its end

// The frames of a stack; views into `stack`.
std::vector<StackFrame> frames_of(std::string_view stack);

// The facts that a stack shows about an allocation.
struct StackSummary {
  std::string source;  // "/src/train.py:31": the innermost user's frame; else the innermost of a package
  std::string module;  // "torchvision/models/resnet.py:146": the package's line below it that calls PyTorch
  std::string op;      // "aten::mm", "ConvolutionBackward0", or the innermost function of a package
};
StackSummary summarize(const std::vector<StackFrame>& frames);

}  // namespace headroom
