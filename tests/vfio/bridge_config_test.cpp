// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/bridge_config.h"

#include <functional>
#include <ostream>

#include <gmock/gmock.h>

#include "tests/vfio/bridge_space.h"

namespace ferry::vfio {
namespace {

using test::Acs;
using test::bridge_space;
using test::put16;
using test::put32;
using testing::HasSubstr;
using testing::Optional;
using Kind = PortIsolation::Kind;

struct Port {
  std::string name;
  std::string space;
  Kind kind = Kind::isolates;
  std::uint16_t missing = 0;
};
void PrintTo(const Port& row, std::ostream* out) {
  *out << row.name;
}

std::string many_functions(std::string space) {
  space[0x0e] = '\x81';
  return space;
}

std::vector<Port> ports() {
  return {
      {"AllFourOn", bridge_space(test::kRootPort, Acs{.does = 0x1d})},
      {"MoreThanTheFour", bridge_space(test::kDownstreamPort, Acs{.can = 0x7f, .does = 0x5f})},
      {"AllOff", bridge_space(test::kRootPort, Acs{.does = 0}), Kind::bits_off, 0x1d},
      {"RedirectionOff", bridge_space(test::kDownstreamPort, Acs{.does = 0x11}), Kind::bits_off, 0x0c},
      {"TranslationBlockingIsNoneOfThem", bridge_space(test::kRootPort, Acs{.does = 0x02}), Kind::bits_off,
       0x1d},
      {"WhatItDoesNotHaveIsWired", bridge_space(test::kRootPort, Acs{.can = 0x01, .does = 0x01})},
      {"OfWhatItHasOneIsOff", bridge_space(test::kRootPort, Acs{.can = 0x15, .does = 0x14}), Kind::bits_off,
       0x01},
      {"RootPortWithoutAcs", bridge_space(test::kRootPort, {}), Kind::no_acs},
      {"DownstreamPortWithoutAcs", bridge_space(test::kDownstreamPort, {}), Kind::no_acs},
      {"UpstreamPortNeedsNone", bridge_space(test::kUpstreamPort, {})},
      {"UpstreamPortBesideOthers", many_functions(bridge_space(test::kUpstreamPort, {})), Kind::no_acs},
      {"ToConventionalPci", bridge_space(test::kToConventional, Acs{.does = 0x1d}), Kind::conventional},
      {"FromConventionalPci", bridge_space(test::kFromConventional, {}), Kind::conventional},
      {"NotOfPciExpress", bridge_space({}, {}), Kind::conventional},
      {"NoCapabilities", std::string(256, '\0'), Kind::conventional},
      {"NoExtendedSpace", bridge_space(test::kRootPort, Acs{.does = 0x1d}).substr(0, 256), Kind::no_acs},
      {"EmptyExtendedSpace", bridge_space(test::kRootPort, {}).substr(0, 256) + std::string(3840, '\0'),
       Kind::no_acs},
  };
}

class PortIs : public testing::TestWithParam<Port> {};

TEST_P(PortIs, Judged) {
  const auto found = port_isolation(GetParam().space);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->kind, GetParam().kind);
  EXPECT_EQ(found->missing, GetParam().missing);
}
INSTANTIATE_TEST_SUITE_P(Table, PortIs, testing::ValuesIn(ports()),
                         [](const auto& row) { return row.param.name; });

TEST(PortIsolationTest, SaysWhereTheRegisterIs) {
  const auto found = port_isolation(bridge_space(test::kRootPort, Acs{.does = 0x11}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->control, 0x11);
  EXPECT_EQ(found->control_at, 0x14eU);
  EXPECT_EQ(acs_bits_text(found->missing), "P2P request redirect (0x0004), P2P completion redirect (0x0008)");
}

TEST(PortIsolationTest, KnowsThatExtendedCapabilitiesAreOutOfSight) {
  const std::string space = bridge_space(test::kRootPort, Acs{.does = 0x1d});
  EXPECT_FALSE(port_isolation(space.substr(0, 256))->extended);
  EXPECT_TRUE(port_isolation(bridge_space(test::kRootPort, {}))->extended);
}

struct Malformed {
  std::string name;
  std::function<void(std::string&)> spoil;
  std::string says;
};
void PrintTo(const Malformed& row, std::ostream* out) {
  *out << row.name;
}

std::vector<Malformed> malformed() {
  const auto cut = [](std::size_t size) { return [=](std::string& space) { space.resize(size); }; };
  const auto byte = [](std::size_t at, char value) { return [=](std::string& space) { space[at] = value; }; };
  const auto header = [](std::size_t at, std::uint32_t value) {
    return [=](std::string& space) { put32(space, at, value); };
  };
  return {
      {"Empty", cut(0), "only 0 bytes"},
      {"AsOtherUsersSeeIt", cut(64), "only 64 bytes; the rest is root's to read"},
      {"CutBeforeTheEnd", cut(255), "only 255 bytes"},
      {"CutInTheFirstExtendedHeader", cut(258), "an extended capability at 0x100, and only 258 bytes"},
      {"CutBeforeAcs", cut(0x148), "at 0x148, and only 328 bytes"},
      {"CutInsideAcs", cut(0x14f), "ACS at 0x148, and only 335 bytes"},
      {"LeadsIntoTheHeader", byte(0x34, 0x20), "at 0x20, inside the header"},
      {"LeadsToItself", byte(0x41, 0x40), "the capability at 0x40 comes twice"},
      {"LeadsInCircles",
       [](std::string& space) {
         space[0x41] = '\x80';
         space[0x80] = 0x05;
         space[0x81] = 0x42;  // the lower two bits do not count
       },
       "the capability at 0x40 comes twice"},
      {"AllOnes", [](std::string& space) { space.assign(space.size(), '\xff'); }, "all ones at 0xfc"},
      {"OnesInTheList", byte(0x40, '\xff'), "all ones at 0x40"},
      {"ExpressAtTheVeryEnd",
       [](std::string& space) {
         space[0x34] = '\xfc';
         space[0xfc] = 0x10;
         space.resize(256);
       },
       ""},
      {"ExtendedLeadsToItself", header(0x100, 0x10020001U), "the extended capability at 0x100 comes twice"},
      {"ExtendedLeadsInCircles",
       [](std::string& space) {
         put32(space, 0x100, 0x20020001U);
         put32(space, 0x200, 0x10010003U);
       },
       "the extended capability at 0x100 comes twice"},
      {"ExtendedLeadsBack", header(0x100, 0x0c020001U), "at 0xc0, before their list"},
      {"ExtendedOnes", header(0x100, 0xffffffffU), "all ones at 0x100"},
      {"ExtendedAtTheVeryEnd",
       [](std::string& space) {
         put32(space, 0x100, 0xffc20001U);
         put32(space, 0xffc, 0x0001000dU);
       },
       "ACS at 0xffc, and only 4096 bytes"},
  };
}

class PortIsMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(PortIsMalformed, AndThatIsSaid) {
  std::string space = bridge_space(test::kRootPort, Acs{.does = 0x1d});
  GetParam().spoil(space);
  const auto found = port_isolation(space);
  if (GetParam().says.empty()) {
    EXPECT_TRUE(found);  // odd, and nothing of it is cut off
    return;
  }
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, make_error_code(Errc::malformed_host));
  EXPECT_THAT(found.error().message, HasSubstr(GetParam().says));
}
INSTANTIATE_TEST_SUITE_P(Table, PortIsMalformed, testing::ValuesIn(malformed()),
                         [](const auto& row) { return row.param.name; });

std::string window(unsigned base, unsigned limit, std::uint32_t upper_base, std::uint32_t upper_limit) {
  std::string space = bridge_space(test::kRootPort, {});
  put16(space, 0x24, base);
  put16(space, 0x26, limit);
  put32(space, 0x28, upper_base);
  put32(space, 0x2c, upper_limit);
  return space;
}

TEST(PrefetchableWindowTest, IsWhatTheRegistersSay) {
  constexpr std::uint64_t kMiB = 1U << 20U;
  EXPECT_THAT(prefetchable_window(window(0xe001, 0xeff1, 0, 0)),
              Optional(BridgeWindow{.start = 0xe0000000U, .size = 256 * kMiB}));
  EXPECT_THAT(prefetchable_window(window(0x0001, 0x0001, 0x40, 0x40)),
              Optional(BridgeWindow{.start = 0x4000000000U, .size = kMiB}));
  EXPECT_THAT(prefetchable_window(window(0x0001, 0xfff1, 0x40, 0x43)),
              Optional(BridgeWindow{.start = 0x4000000000U, .size = 16384 * kMiB}));
  // One of 32 bits: what is in the upper registers means nothing.
  EXPECT_THAT(prefetchable_window(window(0xe000, 0xe000, 0x40, 0x40)),
              Optional(BridgeWindow{.start = 0xe0000000U, .size = kMiB}));
}

TEST(PrefetchableWindowTest, IsEmptyWhenClosedAndAbsentWhenThereIsNone) {
  EXPECT_THAT(prefetchable_window(window(0xfff1, 0x0001, 0, 0)), Optional(BridgeWindow{}));
  std::string endpoint = window(0xe001, 0xeff1, 0, 0);
  endpoint[0x0e] = '\x80';
  EXPECT_EQ(prefetchable_window(endpoint), std::nullopt);
  EXPECT_EQ(prefetchable_window(window(0x0001, 0xfff1, 0, 0xffffffffU)), std::nullopt);
  EXPECT_EQ(prefetchable_window(window(0xe001, 0xeff1, 0, 0).substr(0, 63)), std::nullopt);
  EXPECT_EQ(prefetchable_window(""), std::nullopt);
}

}  // namespace
}  // namespace ferry::vfio
