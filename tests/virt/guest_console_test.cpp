// SPDX-License-Identifier: Apache-2.0
#include "virt/guest_console.h"

#include <gmock/gmock.h>

namespace ferry::virt {
namespace {

using testing::ElementsAre;

constexpr std::string_view kGpu =
    "GUEST-PCI 0000:01:00.0 vendor=10de device=2684 class=030000 subsystem_vendor=10de subsystem_device=16F3";

GuestDevice gpu() {
  return {.address = {.domain = 0, .bus = 1, .device = 0, .function = 0},
          .ids = {.vendor = 0x10de, .device = 0x2684, .subsystem_vendor = 0x10de, .subsystem_device = 0x16f3},
          .class_code = 0x030000};
}

TEST(GuestConsole, ReadsDevicesBetweenWhateverElseIsPrinted) {
  GuestConsole console;
  console.feed("\x1b[2J\x1b[HSeaBIOS\r\n[    0.5] pci 0000:00:1f.2: ok\r\n\x1b[0m" + std::string(kGpu) +
               "\r\n");
  EXPECT_FALSE(console.ready());
  console.feed("GUEST-READY\r\n");
  EXPECT_TRUE(console.ready());
  EXPECT_THAT(console.devices(), ElementsAre(gpu()));
}

TEST(GuestConsole, DoesNotMindWhereTheBytesAreCut) {
  GuestConsole console;
  const std::string all = std::string(kGpu) + "\r\nGUEST-READY\r\n";
  for (const char c : all) {
    EXPECT_FALSE(console.ready());
    console.feed({&c, 1});
  }
  EXPECT_TRUE(console.ready());
  EXPECT_THAT(console.devices(), ElementsAre(gpu()));
}

TEST(GuestConsole, IsNotReadyBeforeTheLineEnds) {
  GuestConsole console;
  console.feed("GUEST-READY");
  EXPECT_FALSE(console.ready());
}

TEST(GuestConsole, KeepsTheLastLinesForPeople) {
  GuestConsole console;
  EXPECT_EQ(console.tail(), "nothing");
  console.feed("one\ntwo\n\nthree\nfour\nfive\nKernel pan");
  EXPECT_EQ(console.tail(), "two | three | four | five | Kernel pan");
}

struct Row {
  const char* name;
  std::string line;
};
class MalformedGuestLine : public testing::TestWithParam<Row> {};

TEST_P(MalformedGuestLine, IsNoDevice) {
  GuestConsole console;
  console.feed(GetParam().line + "\n" + std::string(kGpu) + "\nGUEST-READY\n");
  EXPECT_THAT(console.devices(), ElementsAre(gpu()));
}

std::string changed(std::string_view from, std::string_view to) {
  std::string line(kGpu);
  return line.replace(line.find(from), from.size(), to);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, MalformedGuestLine,
    testing::Values(Row{"Nothing", "GUEST-PCI "}, Row{"NoAddress", changed("0000:01:00.0 ", "")},
                    Row{"ShortAddress", changed("0000:01:00.0", "01:00.0")},
                    Row{"MissingField", changed("class=030000 ", "")},
                    Row{"SwappedFields", changed("vendor=10de device=2684", "device=2684 vendor=10de")},
                    Row{"NoHexadecimal", changed("2684", "26x4")}, Row{"Prefix", changed("2684", "0x2684")},
                    Row{"ShortField", changed("2684", "684")}, Row{"LongClass", changed("030000", "0300000")},
                    Row{"EmptyField", changed("2684", "")}, Row{"Negative", changed("2684", "-684")},
                    Row{"MessageInside", changed("class=", "[ 0.5] random: crng init done class=")},
                    Row{"MoreBehind", std::string(kGpu) + " x"},
                    Row{"CutOff", std::string(kGpu.substr(0, 60))}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::virt
