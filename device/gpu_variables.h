// The environment variables of CUDA, TensorFlow, XLA, PyTorch and NCCL, and names that are nearly one of
// them: nothing reads those, so a setting is silently lost. Knows no variable's meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// Returns the variable that `name` is a misspelling of: a few letters differ, or its words are in another
// order. Empty if `name` is a variable itself, or near none.
std::string_view intended_variable(std::string_view name);

struct MisspelledVariable {
  std::string name;
  std::string_view intended;

  // "nothing reads CUDA_VISIBLE_DIVICES; did you mean CUDA_VISIBLE_DEVICES?"
  std::string text() const;
};

// Returns those of an environment, given as "NAME=value" up to a null pointer, as in main's third argument.
std::vector<MisspelledVariable> misspelled_variables(const char* const* environment);
// Returns those of this process.
std::vector<MisspelledVariable> misspelled_variables();

}  // namespace headroom
