// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include <gmock/gmock.h>

#include "common/text/text.h"

namespace ferry {
namespace {

const std::array<std::string, 4> kKeys = {"device-filter", "devices", "vgpu-devices", "version"};

struct Mistyped {
  const char* name;
  const char* word;
  const char* meant;
};
void PrintTo(const Mistyped& row, std::ostream* out) {
  *out << "'" << row.word << "'";
}

class Suggest : public testing::TestWithParam<Mistyped> {};

TEST_P(Suggest, FindsWhatWasMostLikelyMeant) {
  EXPECT_EQ(suggest(GetParam().word, kKeys), GetParam().meant);
}

INSTANTIATE_TEST_SUITE_P(Table, Suggest,
                         testing::Values(Mistyped{"ALetterLeftOut", "vgpu-device", "vgpu-devices"},
                                         Mistyped{"ALetterTooMany", "devicess", "devices"},
                                         Mistyped{"LettersSwapped", "verison", "version"},
                                         Mistyped{"OtherCase", "DEVICES", "devices"},
                                         Mistyped{"OtherSeparator", "device_filter", "device-filter"},
                                         Mistyped{"NothingNear", "kind", ""}, Mistyped{"NoWord", "", ""},
                                         Mistyped{"HalfOfItWrong", "dexxxes", ""}),
                         [](const auto& row) { return row.param.name; });

TEST(DidYouMean, IsTheEndOfAMessageOrNothing) {
  EXPECT_EQ(did_you_mean("vgpu_devices", kKeys), "; did you mean 'vgpu-devices'?");
  EXPECT_EQ(did_you_mean("kind", kKeys), "");
}

TEST(DidYouMean, GivesUpOnWordsLongerThanAnyName) {
  EXPECT_EQ(did_you_mean(std::string(100'000, 'd'), kKeys), "");
}

}  // namespace
}  // namespace ferry
