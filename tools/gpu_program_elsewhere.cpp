#include <string>
#include <vector>

#include "base/process/process.h"
#include "tools/gpu_program.h"

namespace headroom {

void continue_in_gpu_program(char** words) {
  std::string program = path_of_sibling("headroom_gpu");
  std::vector<char*> arguments = {program.data()};
  for (; *words != nullptr; ++words) arguments.push_back(*words);
  arguments.push_back(nullptr);
  become(program, arguments.data());
}

}  // namespace headroom
