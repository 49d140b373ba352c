#include "sheet/sheet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "sheet/writers.h"

namespace headroom {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Sheet small_sheet() {
  Sheet sheet{.title = "a <net>"};
  sheet.verdict("fits", Color::kGreen, ": a net takes 3.00 MiB");
  sheet.set("fits", true);
  sheet.fact("device of 2.00 GiB");
  SheetTable& table = sheet.table({.key = "rows",
                                   .caption = "memory in MiB",
                                   .heading = "Strategies",
                                   .columns = {{"strategy", "strategy"},
                                               {"reserved", "reserved_bytes", kMib},
                                               {"ms/step", "seconds", kMsOfSeconds, 1},
                                               {{}, "uuid"},
                                               {"never", "never_bytes", kMib},
                                               {"", ""}}});
  table.add({"caching", 3 << 20, 0.0125, "id-1", Datum(), "<b>"}, Mark::kBest);
  table.add({{"direct", Color::kRed}, Datum(), {0.5, "-"}, "id-2", Datum(), ""}, Mark::kFailed);
  sheet.note("caching: a lower bound");
  sheet.code({.title = "change the program:", .key = "lines", .lines = {"if x < 1:", "    y()"}});
  sheet.propose({"headroom run", "headroom fit"});
  return sheet;
}

TEST(Sheet, TextHasTheVerdictTheTableItsNotesTheCodeAndTheNextCommandLast) {
  EXPECT_EQ(to_text(small_sheet(), Terminal(0, false)),
            "fits: a net takes 3.00 MiB\n"
            "device of 2.00 GiB\n"
            "\n"
            "memory in MiB\n"
            "strategy  reserved  ms/step\n"
            "caching        3.0   12.500  <b>\n"
            "direct           -        -\n"
            "caching: a lower bound\n"
            "\n"
            "change the program:\n"
            "    if x < 1:\n"
            "        y()\n"
            "\n"
            "next: headroom run\n"
            "  or: headroom fit\n");
}

TEST(Sheet, NarrowTerminalsDropColumnsThatJsonHas) {
  const std::string text = to_text(small_sheet(), Terminal(24, false));
  EXPECT_FALSE(has(text, "ms/step\ncaching")) << text;
  EXPECT_TRUE(has(text, "too narrow for: ms/step")) << text;
}

TEST(Sheet, JsonHasExactValuesUnderTheKeysOfTheColumns) {
  const std::string expected =
      "{'fits':true,'rows':["
      "{'strategy':'caching','reserved_bytes':3145728,'seconds':0.0125,'uuid':'id-1','never_bytes':null},"
      "{'strategy':'direct','reserved_bytes':null,'seconds':0.5,'uuid':'id-2','never_bytes':null}],"
      "'lines':['if x < 1:','    y()']}";
  std::string json = to_json(small_sheet(), -1);
  std::replace(json.begin(), json.end(), '"', '\'');
  EXPECT_EQ(json, expected);
}

TEST(Sheet, TablesOfOneKeyShareTheirArray) {
  Sheet sheet = small_sheet();
  sheet.table(std::get<SheetTable>(sheet.parts[3]));
  EXPECT_EQ(std::get<List>(to_record(sheet)[1].value.data()).size(), 4u);
}

TEST(Sheet, HtmlEscapesTextsAndKeepsTheIndentationOfCode) {
  const std::string html = to_html(small_sheet());
  EXPECT_TRUE(has(html, "<h1>a &lt;net&gt;</h1>")) << html;
  EXPECT_TRUE(has(html, "<p class=\"verdict\">fits: a net takes 3.00 MiB</p>"));
  EXPECT_TRUE(has(html, "<pre><code>if x &lt; 1:\n    y()\n</code></pre>")) << html;
  EXPECT_TRUE(has(html, "data-value=\"3145728\">3.0</td>"));
  EXPECT_TRUE(has(html, "&lt;b&gt;"));
  EXPECT_FALSE(has(html, "<th class=\"n\">never</th>")) << "a column without values";
  EXPECT_FALSE(has(html, "://")) << "needs no network";
}

TEST(Sheet, AColumnOfNumbersTakesNoText) {
  SheetTable table{.columns = {{"reserved", "reserved_bytes", kMib}}};
  EXPECT_THROW(table.add({"12 us"}), Error);
  EXPECT_THROW(table.add({1, 2}), Error) << "two cells for one column";
  table.add({Datum()});
  EXPECT_EQ(table.rows.size(), 1u);
}

TEST(Sheet, ControlCharactersReachNoTerminal) {
  Sheet sheet;
  sheet.fact("a\x1b[31mred");
  EXPECT_FALSE(has(to_text(sheet, Terminal(0, false)), "\x1b"));
}

TEST(Sheet, UnitsSayHowValuesAreRead) {
  EXPECT_EQ(shown_as(1536 << 10, kMib), "1.5");
  EXPECT_EQ(shown_as(1536 << 10, kSize), "1.50 MiB");
  EXPECT_EQ(shown_as(1234567, kCount), "1,234,567");
  EXPECT_EQ(shown_as(1234567, kNumber), "1234567");
  EXPECT_EQ(shown_as(-0.0001, kMs), "0.000");
  EXPECT_EQ(shown_as(12.34, kChange), "+12.3 %");
  EXPECT_EQ(shown_as(Datum(), kMib), "-");
}

TEST(Sheet, JsonHasNoRowOfSums) {
  Sheet sheet;
  SheetTable& table = sheet.table({.key = "parts", .columns = {{"", "name"}, {"MiB", "bytes", kMib}}});
  table.add({"weights", 1});
  table.add({"total", 1}, Mark::kTotal);
  EXPECT_EQ(to_json(sheet, -1), R"({"parts":[{"name":"weights","bytes":1}]})");
  EXPECT_TRUE(has(to_text(sheet, Terminal(0, false)), "total"));
}

TEST(Sheet, CsvQuotesSpecialCharacters) {
  SheetTable table{.columns = {{"a", "a"}, {"hidden in CSV", ""}, {{}, "bytes", kMib}}};
  table.add({"it said \"no\", twice", "x", 7});
  EXPECT_EQ(to_csv(table), "a,bytes\r\n\"it said \"\"no\"\", twice\",7\r\n");
}

TEST(Datum, JsonReadBackIsTheSame) {
  const std::string text = R"({"a":[1,2.5,"x",null,true],"b":{"c":{}}})";
  EXPECT_EQ(to_json(parse_json(text), -1), text);
  EXPECT_THROW(parse_json("{"), InvalidArgument);
}

}  // namespace
}  // namespace headroom
