// SPDX-License-Identifier: Apache-2.0
#include "mdev/vendor_vfio.h"

#include <cerrno>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "tests/support/fake_vendor_vfio.h"

namespace ferry::mdev {

namespace {

using test::FakeKernel;
using test::FakeVendorVfio;
using testing::ElementsAre;
using testing::IsEmpty;
using Types = std::vector<std::pair<std::string, std::string>>;  // ID and name

struct TextRow {
  std::string what;
  std::string text;
  Types types;
};
void PrintTo(const TextRow& row, std::ostream* out) {
  *out << row.what;
}

std::vector<TextRow> rows() {
  const Types one = {{"1153", "NVIDIA L40S-12Q"}};
  return {
      {"Nothing", "", {}},
      {"OnlyTheHeader", "ID    : vGPU Name\n", {}},
      {"OnlyBlanks", " \t\n\n  \n", {}},
      {"IdColonName", "ID    : vGPU Name\n1153  : NVIDIA L40S-12Q\n", one},
      {"WithoutHeader", "1153  : NVIDIA L40S-12Q\n", one},
      {"WithoutTheLastNewline", "1153:NVIDIA L40S-12Q", one},
      {"WithCarriageReturns", "ID : vGPU Name\r\n1153 : NVIDIA L40S-12Q\r\n", one},
      {"WithTabs", "\t1153\t:\tNVIDIA L40S-12Q\t\n", one},
      {"IdName", "ID vGPU Name\n1153 NVIDIA L40S-12Q\n", one},
      {"NameId", "vGPU Name          ID\nNVIDIA L40S-12Q    1153\n", one},
      {"SeveralInTheirOrder",
       "1153 : NVIDIA L40S-12Q\n1147 : NVIDIA L40S-1Q\n",
       {{"1153", "NVIDIA L40S-12Q"}, {"1147", "NVIDIA L40S-1Q"}}},
      {"ANameThatEndsInANumber", "12 : NVIDIA GeForce RTX 3060\n", {{"12", "NVIDIA GeForce RTX 3060"}}},
      {"ANameThatEndsInANumberWithoutColon",
       "12 NVIDIA GeForce RTX 3060\n",
       {{"12", "NVIDIA GeForce RTX 3060"}}},
      {"ANameWithAColon", "12 : NVIDIA X: Y-1Q\n", {{"12", "NVIDIA X: Y-1Q"}}},
      {"ANameWithAColonBehindABareId", "12 NVIDIA X: Y-1Q\n", {{"12", "NVIDIA X: Y-1Q"}}},
      {"LeadingZeros", "01153 : NVIDIA L40S-12Q\n", one},
      {"TheFirstOfTwoWithOneNumber", "1153 : NVIDIA L40S-12Q\n1153 : other\n", one},
      {"ZeroIsNoType", "0 : none\n0 none\nnone 0\n", {}},
      {"ANumberTooLarge", "4294967296 : NVIDIA L40S-12Q\n", {}},
      {"TheLargestNumber", "4294967295 : NVIDIA X-1Q\n", {{"4294967295", "NVIDIA X-1Q"}}},
      {"ANegativeNumber", "-5 : NVIDIA L40S-12Q\n", {}},
      {"AHexadecimalNumber", "0x481 : NVIDIA L40S-12Q\n", {}},
      {"ANumberAlone", "1153\n", {}},
      {"ANumberWithoutAName", "1153 :\n1153 : \n", {}},
      {"ANameWithoutANumber", "NVIDIA L40S-12Q\n: NVIDIA L40S-12Q\n", {}},
      {"AColonAlone", ":\n", {}},
      {"ATitleWithAColonAndANumber", "types creatable: 16\n", {}},
      {"GoodLinesBetweenBadOnes", "???\n1153 : NVIDIA L40S-12Q\n-- 3 types --\n", one},
  };
}

class CreatableTypes : public testing::TestWithParam<TextRow> {};

TEST_P(CreatableTypes, AreReadLeniently) {
  Types read;
  for (const VgpuType& type : parse_creatable_types(GetParam().text)) {
    read.emplace_back(type.id, type.name);
    EXPECT_EQ(type.available, 1U);
    EXPECT_EQ(type.short_name, last_word(type.name));
  }
  EXPECT_EQ(read, GetParam().types);
}

INSTANTIATE_TEST_SUITE_P(Texts, CreatableTypes, testing::ValuesIn(rows()),
                         [](const auto& row) { return row.param.what; });

class VendorFunctionRead : public testing::Test {
 protected:
  static constexpr const char* kGpu = "0000:17:00.0";
  static constexpr const char* kFirst = "0000:17:00.4";
  static constexpr const char* kSecond = "0000:17:00.5";

  VendorFunctionRead() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:26b9"}, .sriov = true});
    kernel.add_function({.address = kGpu,
                         .ids = "10de:26b9",
                         .class_code = 0x030200,
                         .group = 9,
                         .driver = "nvidia",
                         .totalvfs = 2});
    kernel.enable_vfs(kGpu, 2);
    vendor.add_gpu(kGpu);
  }
  /// A GPU with this virtual function alone.
  VgpuGpu read(const char* address) const {
    VgpuGpu gpu;
    read_vendor_function(kernel, vfio::read_function(kernel, at(address)).value(), gpu);
    return gpu;
  }
  static vfio::PciAddress at(const char* address) { return vfio::PciAddress::parse(address).value(); }
  void says(const char* attribute, const std::string& text) const {
    kernel.file(std::filesystem::path("sys/devices/pci0000:00") / kFirst / "nvidia" / attribute, text);
  }

  FakeKernel kernel;
  FakeVendorVfio vendor{kernel};
};

TEST_F(VendorFunctionRead, ListsTypesByTheirNumbers) {
  says("creatable_vgpu_types", "1153 : NVIDIA L40S-12Q\n300 : NVIDIA L40S-8Q\n");
  const VgpuGpu gpu = read(kFirst);
  EXPECT_THAT(gpu.devices, IsEmpty());
  const std::vector<VgpuType>& types = gpu.parents.at(0).types;
  ASSERT_EQ(types.size(), 2U);
  EXPECT_EQ(types[0].id, "300");
  EXPECT_EQ(types[1].id, "1153");
  EXPECT_EQ(types[1].name, "NVIDIA L40S-12Q");
  EXPECT_EQ(types[1].short_name, "L40S-12Q");
  EXPECT_EQ(types[1].available, 1U);
}

TEST_F(VendorFunctionRead, IsAVgpuWhereATypeIsSet) {
  vendor.set(kFirst, "1153");
  const VgpuGpu gpu = read(kFirst);
  EXPECT_THAT(gpu.parents.at(0).types, IsEmpty());
  const VgpuDevice& device = gpu.devices.at(0);
  EXPECT_EQ(device.id.text, kFirst);
  EXPECT_EQ(device.parent, at(kFirst));
  EXPECT_EQ(device.type_id, "1153");
  EXPECT_EQ(device.type_name, "1153") << "it is no longer listed here";
  EXPECT_EQ(device.driver, "nvidia");
  EXPECT_EQ(device.iommu_group, 100U);
  std::vector<std::string> nodes;
  nodes.reserve(device.nodes.size());
  for (const vfio::DeviceNode& node : device.nodes) nodes.push_back(node.name);
  EXPECT_THAT(nodes, ElementsAre("/dev/vfio/100", "/dev/vfio/devices/vfio100"));
}

TEST_F(VendorFunctionRead, TellsWhoseNodeCannotBeRead) {
  vendor.set(kFirst, "1153");
  kernel.file("sys/class/vfio/100/dev", "odd\n");
  const VgpuGpu gpu = read(kFirst);
  EXPECT_THAT(gpu.devices, IsEmpty());
  ASSERT_NE(gpu.problem(), nullptr);
  EXPECT_EQ(gpu.problem()->code, Errc::malformed_host);
}

TEST_F(VendorFunctionRead, TellsOfAFunctionThatCannotBeRead) {
  vendor.set(kFirst, "1153");
  kernel.remove(std::filesystem::path("sys/devices/pci0000:00") / kFirst / "config");
  EXPECT_NE(read(kFirst).problem(), nullptr);
}

TEST_F(VendorFunctionRead, HasNoVgpuWhereNothingIsSet) {
  for (const char* nothing : {"0\n", "0", "", "\n", "00\n"}) {
    says("current_vgpu_type", nothing);
    EXPECT_THAT(read(kFirst).devices, IsEmpty()) << nothing;
    VgpuDevice removed;
    removed.parent = at(kFirst);
    EXPECT_FALSE(vendor_vfio().exists(kernel, removed)) << nothing;
    EXPECT_EQ(read(kFirst).problem(), nullptr);
  }
}

TEST_F(VendorFunctionRead, TellsWhatIsNoNumber) {
  for (const char* odd : {"none\n", "-1\n", "0x481\n", "1153 1154\n", "4294967296\n"}) {
    says("current_vgpu_type", odd);
    const VgpuGpu gpu = read(kFirst);
    EXPECT_THAT(gpu.devices, IsEmpty());
    ASSERT_NE(gpu.problem(), nullptr) << odd;
    EXPECT_EQ(gpu.problem()->code, Errc::malformed_host);
  }
}

TEST_F(VendorFunctionRead, TellsThatTheTypesCannotBeRead) {
  kernel.remove(std::filesystem::path("sys/devices/pci0000:00") / kFirst / "nvidia/creatable_vgpu_types");
  ASSERT_NE(read(kFirst).problem(), nullptr);
  EXPECT_EQ(read(kSecond).problem(), nullptr);
}

TEST_F(VendorFunctionRead, IsKnownByItsAttribute) {
  const StuckGpus stuck = StuckGpus::read(kernel).value();
  const MdevBus bus{};
  const vfio::Inventory inventory{};
  const HostScan scan{.host = kernel, .inventory = inventory, .stuck = stuck, .bus = bus};
  EXPECT_TRUE(vendor_vfio().is_parent(scan, at(kFirst)));
  EXPECT_FALSE(vendor_vfio().is_parent(scan, at(kGpu)));
}

}  // namespace
}  // namespace ferry::mdev
