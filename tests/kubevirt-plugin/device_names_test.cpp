// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/device_names.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kubevirt-plugin/discovery/resource_name.h"
#include "tests/support/scratch_directory.h"

namespace ferry::plugin {
namespace {

using testing::Eq;
using testing::Optional;

struct Host : test::ScratchDirectory {
  HostFs fs{path()};
};

struct Row {
  std::string id, text, name, flag;
};
std::vector<Row> shipped_rows() {
  std::vector<Row> rows;
  std::istringstream table{std::string(shipped_device_names())};
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    auto& row = rows.emplace_back();
    std::getline(fields, row.id, '\t');
    std::getline(fields, row.text, '\t');
    std::getline(fields, row.name, '\t');
    std::getline(fields, row.flag, '\t');
  }
  return rows;
}

TEST(ShippedDeviceNames, AreTheFileInTheRepository) {
  std::ifstream file(FERRY_SOURCE_DIR "/configs/pci-names.tsv");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(shipped_device_names(), text);
}

// The third column was made by other means than ours: it holds our rule to the names that are in use.
TEST(ShippedDeviceNames, GiveTheResourceNamesThatAreInUse) {
  const Host host;
  DeviceNames names(host.fs);
  const auto rows = shipped_rows();
  ASSERT_EQ(rows.size(), 1931U);
  for (const auto& row : rows) {
    const auto text = names.find(0x10de, static_cast<std::uint16_t>(std::stoul(row.id, nullptr, 16)));
    ASSERT_TRUE(text) << row.id;
    EXPECT_EQ(pci_resource_part(text.value_or("")), row.name) << row.id;
    EXPECT_EQ(!ResourceName::parse("nvidia.com/" + row.name), row.flag.find("illegal") != std::string::npos)
        << row.id;
  }
}

// FNV-1a of each line's ID and name, summed: an edit of any is seen, whatever is added elsewhere gets a sum
// of its own. A name that changes takes the resource away under the VMs that ask for it.
TEST(ShippedDeviceNames, AreThoseThatWereShippedBefore) {
  std::uint64_t sum = 0;
  for (const auto& row : shipped_rows()) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : row.id + "\t" + row.text)
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    sum += hash;
  }
  EXPECT_EQ(sum, 0xbe94396001f9c4b8U);
}

TEST(DeviceNames, KnowsAnIdWithoutAHostFile) {
  const Host host;
  EXPECT_THAT(DeviceNames(host.fs).find(0x10de, 0x2684), Optional(Eq("AD102 [GeForce RTX 4090]")));
  EXPECT_EQ(DeviceNames(host.fs).find(0x10de, 0xffff), std::nullopt);
}

TEST(DeviceNames, AsksTheHostForTheIdsItLacksOnly) {
  const Host host;
  host.file("usr/share/misc/pci.ids",
            "10de  NVIDIA\n\t2684  Renamed\n\tfffe  New Thing\n1002  AMD\n\t744c  Navi 31\n");
  DeviceNames names(host.fs);
  EXPECT_THAT(names.find(0x10de, 0x2684), Optional(Eq("AD102 [GeForce RTX 4090]")));
  EXPECT_THAT(names.find(0x10de, 0xfffe), Optional(Eq("New Thing")));
  EXPECT_THAT(names.find(0x1002, 0x744c), Optional(Eq("Navi 31")));
}

TEST(DeviceNames, LooksWhereOtherDistributionsKeepTheFile) {
  const Host host;
  host.file("usr/share/hwdata/pci.ids", "1002  AMD\n\t744c  Navi 31\n");
  EXPECT_THAT(DeviceNames(host.fs).find(0x1002, 0x744c), Optional(Eq("Navi 31")));
}

struct PciIds {
  std::string row;
  std::string text;
  std::optional<std::string> found;
};
class FindInPciIds : public testing::TestWithParam<PciIds> {};

TEST_P(FindInPciIds, Finds10de2684) {
  EXPECT_EQ(find_in_pci_ids(GetParam().text, 0x10de, 0x2684), GetParam().found);
}

INSTANTIATE_TEST_SUITE_P(
    Table, FindInPciIds,
    testing::Values(
        PciIds{"Plain", "10de  NVIDIA\n\t2684  Card\n", "Card"},
        PciIds{"NoLastNewline", "10de  NVIDIA\n\t2684  Card", "Card"},
        PciIds{"CarriageReturns", "10de  NVIDIA\r\n\t2684  Card\r\n", "Card"},
        PciIds{"CommentsAndBlanksBetween", "# x\n10de  NVIDIA\n# y\n\n\t0001  A\n\t2684  Card\n", "Card"},
        PciIds{"SpacesAround", "10de  NVIDIA\n\t2684    Card  \n", "Card"},
        PciIds{"OtherVendorsDevice", "1002  AMD\n\t2684  Card\n", std::nullopt},
        PciIds{"AfterTheVendorsEnd", "10de  NVIDIA\n\t0001  A\n1102  Creative\n\t2684  Card\n", std::nullopt},
        PciIds{"SubsystemIsNoDevice", "10de  NVIDIA\n\t0001  A\n\t\t2684 1462  Card\n", std::nullopt},
        PciIds{"LongerId", "10de  NVIDIA\n\t26840  Card\n", std::nullopt},
        PciIds{"LongerVendor", "10de0  NVIDIA\n\t2684  Card\n", std::nullopt},
        PciIds{"NameMissing", "10de  NVIDIA\n\t2684\n", std::nullopt},
        PciIds{"NameBlank", "10de  NVIDIA\n\t2684   \n", std::nullopt},
        PciIds{"ClassNotVendor", "C 03  Display\n\t2684  Card\n", std::nullopt},
        PciIds{"Empty", "", std::nullopt}, PciIds{"OnlyNewlines", "\n\n\n", std::nullopt},
        PciIds{"Binary", std::string("\0\xff\t10de", 7), std::nullopt}),
    [](const auto& row) { return row.param.row; });

TEST(FindVendorInPciIds, TakesTheLineOfTheVendor) {
  constexpr const char* kText =
      "# 1002  no\n0e11  Compaq\n\t1002  a device\n1002  AMD [AMD/ATI]\n\t73bf  Navi\n8086  \n";
  EXPECT_EQ(find_vendor_in_pci_ids(kText, 0x1002), "AMD [AMD/ATI]");
  EXPECT_EQ(find_vendor_in_pci_ids(kText, 0x8086), std::nullopt);
  EXPECT_EQ(find_vendor_in_pci_ids(kText, 0x10de), std::nullopt);
}

}  // namespace
}  // namespace ferry::plugin
