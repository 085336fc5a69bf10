// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/resource_name.h"

#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>

namespace ferry::plugin {
namespace {

using testing::HasSubstr;

ResourceName name_of(const std::string& text) {
  auto name = ResourceName::parse(text);
  EXPECT_TRUE(name) << text;
  return *name;
}

struct PciName {
  std::string row;
  std::string human;
  std::string part;
};
class PciResourcePart : public testing::TestWithParam<PciName> {};

TEST_P(PciResourcePart, IsWhatTheReplacedPluginMakesOfIt) {
  EXPECT_EQ(pci_resource_part(GetParam().human), GetParam().part);
}

INSTANTIATE_TEST_SUITE_P(
    Table, PciResourcePart,
    testing::Values(PciName{"Brackets", "GH100 [H100 SXM5 80GB]", "GH100_H100_SXM5_80GB"},
                    PciName{"LowerCase", "TU104GL [Tesla T4]", "TU104GL_TESLA_T4"},
                    PciName{"Audio", "AD102 High Definition Audio Controller",
                            "AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"},
                    PciName{"SlashBetweenSpaces", "GH100 [GH200 120GB / 480GB]", "GH100_GH200_120GB___480GB"},
                    PciName{"Dot", "TU106 [GeForce RTX 2060 Rev. A]", "TU106_GEFORCE_RTX_2060_REV__A"},
                    PciName{"HyphenDropped", "GB202GL [RTX PRO 6000 Blackwell Max-Q Workstation Edition]",
                            "GB202GL_RTX_PRO_6000_BLACKWELL_MAXQ_WORKSTATION_EDITION"},
                    PciName{"SpaceBeforeBracketStays", "GA104 [RTX A4500 Embedded GPU ]",
                            "GA104_RTX_A4500_EMBEDDED_GPU_"},
                    PciName{"RunOfSpaces", "  A \t B  ", "A_B"}, PciName{"OtherAlphabet", "Größe µ", "GRE_"},
                    PciName{"NothingLeft", "[()]", ""}, PciName{"Empty", "", ""}),
    [](const auto& row) { return row.param.row; });

TEST(MdevResourcePart, KeepsCaseAndHyphens) {
  EXPECT_EQ(mdev_resource_part("GRID T4-1Q"), "GRID_T4-1Q");
  EXPECT_EQ(mdev_resource_part("NVIDIA A40-8Q\n"), "NVIDIA_A40-8Q");
  EXPECT_EQ(mdev_resource_part("NVIDIA  \t A40-8Q"), "NVIDIA_A40-8Q");
}

struct Refused {
  std::string row;
  std::string text;
  std::string why;
};
class RefusedResourceName : public testing::TestWithParam<Refused> {};

TEST_P(RefusedResourceName, SaysWhichRuleIsBroken) {
  const auto name = ResourceName::parse(GetParam().text);
  ASSERT_FALSE(name);
  EXPECT_EQ(name.error().code, Errc::invalid_config);
  EXPECT_THAT(name.error().message, HasSubstr(GetParam().why));
  EXPECT_THAT(name.error().message, HasSubstr("'" + GetParam().text + "'"));
}

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedResourceName,
    testing::Values(Refused{"NoSlash", "gpu", "has no '/'"}, Refused{"Empty", "", "has no '/'"},
                    Refused{"NothingAfter", "nvidia.com/", "nothing follows"},
                    Refused{"NothingBefore", "/gpu", "no DNS subdomain"},
                    Refused{"UpperCaseDomain", "Nvidia.com/gpu", "no DNS subdomain"},
                    Refused{"DotAtTheEnd", "nvidia.com./gpu", "no DNS subdomain"},
                    Refused{"HyphenAtTheEnd", "nvidia-.com/gpu", "no DNS subdomain"},
                    Refused{"Kubernetes", "x.kubernetes.io/gpu", "Kubernetes' own"},
                    Refused{"Requests", "requests.nvidia.com/gpu", "begins with 'requests.'"},
                    Refused{"TrailingUnderscore", "nvidia.com/GPU_", "begin and end"},
                    Refused{"LeadingDot", "nvidia.com/.gpu", "begin and end"},
                    Refused{"SecondSlash", "nvidia.com/a/b", "'/' is not one of"},
                    Refused{"Space", "nvidia.com/a b", "' ' is not one of"},
                    Refused{"TooLong", "nvidia.com/" + std::string(64, 'a'), "64 characters"}),
    [](const auto& row) { return row.param.row; });

TEST(ResourceName, TakesSixtyThreeCharacters) {
  const std::string longest(63, 'a');
  EXPECT_EQ(name_of("nvidia.com/" + longest).name(), longest);
}

TEST(EnvName, IsMadeFromTheWholeNameAsKubeVirtMakesIt) {
  EXPECT_EQ(env_name(EnvPrefix::pci_resource, name_of("nvidia.com/GH100_H100_SXM5_80GB")),
            "PCI_RESOURCE_NVIDIA_COM_GH100_H100_SXM5_80GB");
  EXPECT_EQ(env_name(EnvPrefix::mdev_pci_resource, name_of("nvidia.com/NVIDIA_A40-8Q")),
            "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-8Q");
  EXPECT_EQ(env_name(EnvPrefix::pci_resource, name_of("example.com/gpu.small")),
            "PCI_RESOURCE_EXAMPLE_COM_GPU_SMALL");
}

TEST(EndpointName, IsTheReplacedPlugins) {
  EXPECT_EQ(endpoint_name(name_of("nvidia.com/TU104GL_TESLA_T4")), "kubevirt-TU104GL_TESLA_T4.sock");
}

TEST(EndpointName, NamesAnotherVendor) {
  EXPECT_EQ(endpoint_name(name_of("nvidia.com/gpu")), "kubevirt-gpu.sock");
  EXPECT_EQ(endpoint_name(name_of("amd.com/gpu")), "kubevirt-amd.com+gpu.sock");
  EXPECT_EQ(endpoint_name(name_of("amd.com/gpu"), EnvPrefix::none), "sandbox-amd.com+gpu.sock");
  const std::string longest(63, 'a');
  EXPECT_NE(endpoint_name(name_of("amd.com/" + longest)), endpoint_name(name_of("and.com/" + longest)));
}

TEST(EndpointName, FitsASocketAddressInTheKubeletsDirectoryWhateverTheName) {
  constexpr std::size_t kRoom = 107 - std::string_view("/var/lib/kubelet/plugins_registry/").size();
  for (const auto prefix : {EnvPrefix::pci_resource, EnvPrefix::none}) {
    std::set<std::string> endpoints;
    for (std::size_t length = 50; length < 63; ++length)
      for (const char* const last : {"b", "c"}) {
        const auto endpoint = endpoint_name(name_of("nvidia.com/" + std::string(length, 'a') + last), prefix);
        EXPECT_LE(endpoint.size(), kRoom);
        EXPECT_TRUE(endpoints.insert(endpoint).second) << endpoint;
      }
  }
}

TEST(VendorDomain, IsTheShortNameOfPciIds) {
  EXPECT_EQ(vendor_domain("Advanced Micro Devices, Inc. [AMD/ATI]"), "amd.com");
  EXPECT_EQ(vendor_domain("Intel Corporation"), "intel.com");
  EXPECT_EQ(vendor_domain("ASPEED Technology, Inc."), "aspeed.com");
  EXPECT_EQ(vendor_domain("Moore Threads Technology Co.,Ltd"), "moore.com");
  EXPECT_EQ(vendor_domain("3Dfx Interactive, Inc."), "3dfx.com");
  EXPECT_EQ(vendor_domain("[-X-]"), "x.com");
  EXPECT_EQ(vendor_domain(""), "");
  EXPECT_EQ(vendor_domain("[]"), "");
}

}  // namespace
}  // namespace ferry::plugin
