// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/metrics/metric_families.h"
#include "tests/support/must.h"

namespace ferry::agent {
namespace {

using testing::ElementsAre;

constexpr const char* kOffer = R"({
  "version": 2, "generation": 7, "pid": 4711, "state_generation": 17,
  "resources": [
    {"name": "nvidia.com/L40S", "env": "PCI_RESOURCE_NVIDIA_COM_L40S", "registered": true, "devices": [
      {"id": "0000:17:00.0", "healthy": true, "reason": "", "numa_node": 0, "iommu_group": 42,
       "allocated": true, "pod": "studio/render"},
      {"id": "0000:18:00.0", "healthy": false, "reason": "gone", "numa_node": null, "iommu_group": 43,
       "allocated": false},
      {"id": "0000:19:00.0", "healthy": false, "reason": "held back", "numa_node": null, "iommu_group": 42,
       "allocated": false, "held_with_group": true}]},
    {"name": "nvidia.com/audio", "env": "X", "registered": false, "devices": [],
     "places": [{"id": "place-0000:17:00.1", "healthy": true, "reason": ""}]}],
  "not_advertised": [{"id": "0000:65:00.0", "reason": "no driver"}], "added_later": 1
})";

TEST(AdvertisedResources, GivesWhatIsShown) {
  const AdvertisedResources offer = test::must(read_advertised_resources(kOffer));
  ASSERT_EQ(offer.resources.size(), 2U);
  const AdvertisedResource& gpus = offer.resources[0];
  EXPECT_EQ(gpus.name, "nvidia.com/L40S");
  EXPECT_TRUE(gpus.registered);
  ASSERT_EQ(gpus.devices.size(), 3U);
  EXPECT_EQ(gpus.devices[0].id, "0000:17:00.0");
  EXPECT_EQ(gpus.devices[0].iommu_group, 42U);
  EXPECT_TRUE(gpus.devices[0].healthy);
  EXPECT_TRUE(gpus.devices[0].allocated);
  EXPECT_EQ(gpus.devices[0].pod, "studio/render");
  EXPECT_FALSE(gpus.devices[1].healthy);
  EXPECT_EQ(gpus.devices[1].pod, "");
  EXPECT_FALSE(gpus.devices[1].held_with_group) << "plugins of before did not say it";
  EXPECT_TRUE(gpus.devices[2].held_with_group);
  EXPECT_FALSE(offer.resources[1].registered);
  EXPECT_THAT(offer.not_advertised, ElementsAre("0000:65:00.0"));
}

TEST(AdvertisedResources, TellsThatThePluginStandsBack) {
  const auto with = [](const std::string& value) {
    return test::must(read_advertised_resources(
        R"({"version": 2, "resources": [], "not_advertised": [], "standby": )" + value + "}"));
  };
  EXPECT_TRUE(with("\"another serves\"").standby);
  EXPECT_FALSE(with("null").standby);
  EXPECT_FALSE(test::must(read_advertised_resources(kOffer)).standby) << "plugins of before did not say it";
}

TEST(AdvertisedResources, OfAnotherFormIsAnErrorThatNamesTheFile) {
  for (const auto& [from, to] :
       {std::pair{R"("version": 2)", R"("version": 3)"},
        {R"("resources": [)", R"("resources": 7, "r": [)"},
        {R"("name": "nvidia.com/L40S")", R"("name": 7)"},
        {R"("registered": true)", R"("registered": "true")"},
        {R"("devices": [])", R"("devices": {})"},
        {R"("id": "0000:17:00.0")", R"("id": null)"},
        {R"("iommu_group": 42)", R"("iommu_group": -42)"},
        {R"("iommu_group": 42)", R"("iommu_group": 4294967296)"},
        {R"("healthy": true, "reason": "", "numa_node")", R"("healthy": 1, "reason": "", "numa_node")"},
        {R"("allocated": true)", R"("alocated": true)"},
        {R"("pod": "studio/render")", R"("pod": 1)"},
        {R"("not_advertised": [)", R"("not_advertised": [7, )"}}) {
    std::string bad = kOffer;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    const auto offer = read_advertised_resources(bad);
    EXPECT_EQ(offer.has_value(), false) << bad;
    if (offer) continue;
    EXPECT_EQ(offer.error().code, Errc::malformed_host);
    EXPECT_THAT(offer.error().message, testing::StartsWith("/run/ferry/plugin/advertised.json: "));
  }
  for (const char* bad : {"", "null", "[]", "{", "{}", "7", "\xff"})
    EXPECT_EQ(read_advertised_resources(bad).has_value(), false) << bad;
}

}  // namespace
}  // namespace ferry::agent
