#include "tools/trace/program.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(IsProgram, IsAFunctionInAPythonFile) {
  for (const char* text : {"train.py:make_step", "a/b.py:f", "./x.y.py:_2"})
    EXPECT_TRUE(is_program(text)) << text;
  for (const char* text :
       {"", "train.py", "train.py:", ".py:f", "train:f", "train.py:a.b", "train.py:1", "a.csv"}) {
    EXPECT_FALSE(is_program(text)) << text;
  }
}

}  // namespace
}  // namespace headroom
