// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "vfio/pci/kernel_options.h"

namespace ferry::vfio {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The parameters as "name" or "name=value", to be compared at a glance.
std::vector<std::string> parsed(std::string_view text) {
  std::vector<std::string> out;
  const auto line = KernelCommandLine::parse(text);
  for (const KernelParameter& parameter : line.parameters()) {
    out.push_back(parameter.name + (parameter.value ? "=" + *parameter.value : ""));
  }
  return out;
}

TEST(KernelCommandLine, IsSplitAsTheKernelSplitsIt) {
  EXPECT_THAT(parsed("quiet vfio-pci.ids=10de:1,10de:2\n"),
              ElementsAre("quiet", "vfio_pci.ids=10de:1,10de:2"));
  EXPECT_THAT(parsed("a=\"b c\" \"d=e f\" g"), ElementsAre("a=b c", "d=e f", "g"));
  EXPECT_THAT(parsed("a= =b c==d"), ElementsAre("a=", "=b", "c==d"));
  EXPECT_THAT(parsed("  iommu=pt\t\t-- iommu=off"), ElementsAre("iommu=pt")) << "the rest is for init";
}

TEST(KernelCommandLine, GivesSomeListOfAnyText) {
  EXPECT_THAT(parsed(""), IsEmpty());
  EXPECT_THAT(parsed(" \n\t"), IsEmpty());
  EXPECT_THAT(parsed("\""), ElementsAre(""));
  EXPECT_THAT(parsed("a=\"b c"), ElementsAre("a=b c")) << "a quote that is never closed";
  EXPECT_THAT(parsed(std::string_view("a\0b", 3)).size(), 1U);
  EXPECT_EQ(parsed(std::string(100000, '=')).size(), 1U);
}

TEST(KernelCommandLine, KnowsTheLastAndTheListed) {
  const auto line = KernelCommandLine::parse("intel-iommu=on,sm_on intel_iommu=off iommu");
  EXPECT_EQ(line.last("intel_iommu")->text, "intel_iommu=off");
  EXPECT_EQ(line.listing("intel_iommu", "sm_on")->text, "intel-iommu=on,sm_on");
  EXPECT_EQ(line.listing("intel_iommu", "sm"), nullptr);
  EXPECT_EQ(line.listing("iommu", ""), nullptr);
  EXPECT_EQ(line.last("amd_iommu"), nullptr);
}

}  // namespace
}  // namespace ferry::vfio
