#include "base/toml.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace headroom {
namespace {

TEST(ParseToml, ReadsStringsNumbersAndBooleans) {
  const std::vector<TomlEntry> entries = parse_toml(
      "# a comment\n"
      "text = \"a # \\\"b\\\" \\\\ \\t\"   # another\n"
      "\t'quoted key'='C:\\dir'\r\n"
      "\n"
      "number = +1_000\n"
      "real=-1.5e-3\n"
      "switch = true",
      "f");
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[0].key, "text");
  EXPECT_EQ(entries[0].value, "a # \"b\" \\ \t");
  EXPECT_EQ(entries[0].line, 2);
  EXPECT_EQ(entries[1].key, "quoted key");
  EXPECT_EQ(entries[1].value, "C:\\dir");
  EXPECT_EQ(entries[2].value, "1000");
  EXPECT_EQ(entries[2].line, 5);
  EXPECT_EQ(entries[3].value, "-1.5e-3");
  EXPECT_EQ(entries[4].value, "true");
}

struct BadToml {
  std::string text;
  std::string message;
};

class RefusedToml : public testing::TestWithParam<BadToml> {};

TEST_P(RefusedToml, NamesFileLineAndReason) {
  try {
    parse_toml("ok = 1\n" + GetParam().text, "s.toml");
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedToml,
    testing::Values(
        BadToml{"[table]", "s.toml:2: tables are not used here: write `key = value`"},
        BadToml{"= 1", "s.toml:2: expected `key = value`"},
        BadToml{"key", "s.toml:2: expected '=' after 'key'"},
        BadToml{"key 1", "s.toml:2: expected '=' after 'key'"},
        BadToml{"key =  # none", "s.toml:2: 'key' has no value"},
        BadToml{"key = \"a", "s.toml:2: a string does not end on its line"},
        BadToml{"key = \"\"\"a\"\"\"", "s.toml:2: multi-line strings are not used here"},
        BadToml{"key = \"\\q\"", "s.toml:2: an escape in a string is none of \\\" \\\\ \\t \\n \\r"},
        BadToml{"key = \"a\x01\"", "s.toml:2: a control character inside a string"},
        BadToml{"key = 1 2", "s.toml:2: unexpected text after the value of 'key'"},
        BadToml{"key = 1GiB", "s.toml:2: '1GiB' is neither a number nor a boolean; put text in quotes"},
        BadToml{"key = 1_", "s.toml:2: '1_' is neither a number nor a boolean; put text in quotes"},
        BadToml{"key = 2026-01-01",
                "s.toml:2: '2026-01-01' is neither a number nor a boolean; put text in quotes"},
        BadToml{"key = [1]", "s.toml:2: '[1]' is neither a number nor a boolean; put text in quotes"},
        BadToml{"key = " + std::string(100'000, '['), "s.toml:2: '" + std::string(80, '[') +
                                                          "...' is neither a number nor a boolean; put "
                                                          "text in quotes"},
        BadToml{std::string(100'000, 'k'), "s.toml:2: expected '=' after '" + std::string(80, 'k') + "...'"},
        BadToml{"\nok = 2", "s.toml:3: 'ok' stands in line 1 already"}));

TEST(TomlQuoted, IsReadBackAsItWas) {
  const std::string text = "a \"b\" \\ \t\n\r ü '";
  EXPECT_EQ(parse_toml("key = " + toml_quoted(text), "f").at(0).value, text);
}

}  // namespace
}  // namespace headroom
