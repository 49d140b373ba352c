#include "base/bytes.h"

#include <gtest/gtest.h>

#include <string>

#include "base/errors.h"

namespace headroom {
namespace {

TEST(ParseBytes, TakesEveryUnitInEitherCase) {
  EXPECT_EQ(parse_bytes("1024", "x"), 1024);
  EXPECT_EQ(parse_bytes("0", "x"), 0);
  EXPECT_EQ(parse_bytes("17B", "x"), 17);
  EXPECT_EQ(parse_bytes("64KiB", "x"), 64 * kKiB);
  EXPECT_EQ(parse_bytes("64k", "x"), 64 * kKiB);
  EXPECT_EQ(parse_bytes("512 mib", "x"), 512 * kMiB);
  EXPECT_EQ(parse_bytes("1GiB", "x"), kGiB);
  EXPECT_EQ(parse_bytes("2G", "x"), 2 * kGiB);
  EXPECT_EQ(parse_bytes("1TiB", "x"), 1024 * kGiB);
  EXPECT_EQ(parse_bytes("3MB", "x"), 3000000);
  EXPECT_EQ(parse_bytes(" 5kb ", "x"), 5000);
}

TEST(ParseBytes, RoundsFractionsOfAUnitDown) {
  EXPECT_EQ(parse_bytes("1.5GiB", "x"), 3 * kGiB / 2);
  EXPECT_EQ(parse_bytes("0.5KiB", "x"), 512);
  EXPECT_EQ(parse_bytes("1.3GiB", "x"), 1395864371);  // 1395864371.2
}

class RefusedSize : public testing::TestWithParam<std::string> {};

TEST_P(RefusedSize, NamesTheSettingAndTheText) {
  try {
    parse_bytes(GetParam(), "--limit");
    FAIL() << "accepted '" << GetParam() << "'";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("--limit: '" + GetParam() + "' is not a size"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RefusedSize,
                         testing::Values("", " ", "-1", "-1GiB", "12QB", "MiB", "1.5", "1e9", "inf", "nan",
                                         "0x10", "1 2", "1GiBs", "1152921504606846976", "1048576TiB",
                                         "99999999999999999999999999"));

TEST(ExactSize, IsTakenBackToTheByteInTheLargestWholeUnit) {
  EXPECT_EQ(exact_size(750 * kMiB), "750MiB");
  EXPECT_EQ(exact_size(31476 * kKiB), "31476KiB");
  EXPECT_EQ(exact_size(2048 * kGiB), "2048GiB");
  EXPECT_EQ(exact_size(1000), "1000");
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, 3 * kGiB / 2, 3 * kGiB + 1, kGiB * 1024 - 512}) {
    EXPECT_EQ(parse_bytes(exact_size(bytes), "x"), bytes);
  }
}

TEST(FormatBytes, ChoosesTheUnitAndKeepsTheSign) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(12800), "12.50 KiB");
  EXPECT_EQ(format_bytes(195496509), "186.44 MiB");
  EXPECT_EQ(format_bytes(-3 * kGiB / 2), "-1.50 GiB");
  EXPECT_EQ(format_bytes(2048 * kGiB), "2.00 TiB");
  EXPECT_EQ(format_bytes(4096 * 1024 * kGiB), "4096.00 TiB");
}

TEST(FormatMib, HasOneDecimal) {
  EXPECT_EQ(format_mib(1455 * kMiB + kMiB / 2), "1455.5");
}

TEST(RoundUp, GivesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 256), 0);
  EXPECT_EQ(round_up(1, 256), 256);
  EXPECT_EQ(round_up(256, 256), 256);
  EXPECT_EQ(round_up(257, 256), 512);
}

}  // namespace
}  // namespace headroom
