// SPDX-License-Identifier: Apache-2.0
#include "api/advertised_resources.h"

#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::api {
namespace {

using test::must;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kFile = R"({
  "version": 2, "generation": 7, "pid": 4711, "state_generation": 17,
  "resources": [
    {"name": "nvidia.com/L40S", "env": "PCI_RESOURCE_NVIDIA_COM_L40S", "registered": true, "devices": [
      {"id": "0000:17:00.0", "healthy": true, "reason": "", "numa_node": 0, "iommu_group": 42,
       "allocated": true, "awaits_release": true, "held_with_group": false, "pod": "studio/render"},
      {"id": "0000:18:00.0", "iommu_group": 43, "allocated": false, "healthy": false, "reason": "gone",
       "held_with_group": true, "added_later": {}}]},
    {"name": "nvidia.com/audio", "env": "", "registered": false, "devices": [],
     "places": [{"id": "place-0000:17:00.1", "healthy": true, "reason": ""}, {"id": "place-x"}]},
    {"name": "nvidia.com/other", "devices": [{"id": "7", "iommu_group": 44, "allocated": false}]}],
  "not_advertised": [{"id": "0000:65:00.0", "reason": "no driver"}, {"id": "e"}],
  "fatal_errors": [{"function": "0000:17:00.0", "since": 2, "binding": 31207}, {"function": "a", "since": 1}],
  "standby": "another serves", "added_later": 1
})";

TEST(AdvertisedFile, IsReadWhole) {
  const AdvertisedResources read = must(read_advertised_resources(kFile));
  EXPECT_EQ(read.state_generation, 17U);
  EXPECT_EQ(read.standby, "another serves");
  ASSERT_EQ(read.devices.size(), 3U);
  const AdvertisedDevice& first = read.devices[0];
  EXPECT_EQ(first.resource, "nvidia.com/L40S");
  EXPECT_EQ(first.id, "0000:17:00.0");
  EXPECT_EQ(first.iommu_group, 42U);
  EXPECT_EQ(first.numa_node, 0);
  EXPECT_TRUE(first.healthy && first.allocated && first.awaits_release);
  EXPECT_FALSE(first.held_with_group);
  EXPECT_EQ(first.pod, "studio/render");
  EXPECT_FALSE(read.devices[1].healthy);
  EXPECT_EQ(read.devices[1].reason, "gone");
  EXPECT_TRUE(read.devices[1].held_with_group);
  ASSERT_EQ(read.resources.size(), 3U);
  EXPECT_TRUE(read.resources[0].registered);
  EXPECT_FALSE(read.resources[0].places);
  EXPECT_FALSE(read.resource("nvidia.com/audio")->registered);
  EXPECT_EQ(read.resource("nvidia.com/audio")->places.value().size(), 2U);
  EXPECT_EQ(read.resource("nvidia.com/none"), nullptr);
  ASSERT_EQ(read.not_advertised.size(), 2U);
  EXPECT_EQ(read.not_advertised[0].reason, "no driver");
  EXPECT_THAT(read.fatal_errors,
              ElementsAre(FatalErrorsOf{.function = "0000:17:00.0", .since = 2, .binding = 31207},
                          FatalErrorsOf{.function = "a", .since = 1, .binding = 0}));
}

TEST(AdvertisedFile, HoldsNothingAgainstADeviceOfWhichItSaysLittle) {
  const AdvertisedResources read = must(read_advertised_resources(kFile));
  const AdvertisedDevice& device = read.devices.at(2);
  EXPECT_TRUE(device.healthy);
  EXPECT_FALSE(device.held_with_group || device.awaits_release || device.numa_node);
  EXPECT_TRUE(read.resources.at(2).registered) << "one that does not say so is read";
  const AdvertisedResources least = must(read_advertised_resources(R"({"version": 2, "resources": []})"));
  EXPECT_EQ(least.state_generation, 0U);
  EXPECT_EQ(least.standby, "");
  EXPECT_THAT(least.not_advertised, IsEmpty());
  EXPECT_THAT(least.fatal_errors, IsEmpty());
  EXPECT_EQ(must(read_advertised_resources(R"({"version": 2, "resources": [], "standby": null})")).standby,
            "");
}

TEST(AdvertisedFile, ReadsBackAsItself) {
  const AdvertisedResources read = must(read_advertised_resources(kFile));
  const std::string text = advertised_resources_text(read);
  EXPECT_EQ(advertised_resources_text(must(read_advertised_resources(text))), text);
  EXPECT_EQ(advertised_resources_text({.generation = 3,
                                       .pid = 7,
                                       .state_generation = 2,
                                       .devices = {{.resource = "r", .id = "a", .iommu_group = 4}},
                                       .resources = {{.name = "r", .env = "E"},
                                                     {.name = "p", .places = std::vector<AdvertisedPlace>()}},
                                       .not_advertised = {{.id = "b", .reason = "\xff"}}}),
            R"({
  "version": 2,
  "generation": 3,
  "pid": 7,
  "state_generation": 2,
  "resources": [
    {
      "name": "r",
      "env": "E",
      "registered": true,
      "devices": [
        {
          "id": "a",
          "healthy": true,
          "reason": "",
          "numa_node": null,
          "iommu_group": 4,
          "allocated": false,
          "awaits_release": false,
          "held_with_group": false,
          "pod": null
        }
      ]
    },
    {
      "name": "p",
      "env": "",
      "registered": true,
      "devices": [],
      "places": []
    }
  ],
  "not_advertised": [
    {
      "id": "b",
      "reason": ")"
            "\xef\xbf\xbd"
            R"("
    }
  ],
  "standby": null
}
)");
}

TEST(AdvertisedFile, OfAnotherFormIsRefusedWithTheKey) {
  for (const auto& [from, to, message] :
       {std::tuple{R"("version": 2)", R"("version": 3)", "version: expected 2, found 3"},
        {R"("state_generation": 17)", R"("state_generation": -1)",
         "state_generation: expected a number from 0 on"},
        {R"("state_generation": 17)", R"("state_generation": 9007199254740992)",
         "state_generation: expected a number from 0 to 2^53 - 1"},
        {R"("resources": [)", R"("resources": 7, "r": [)", "resources: expected a list"},
        {R"("resources": [)", R"("resources": [5, )", "resources[0]: expected an object"},
        {R"("name": "nvidia.com/L40S")", R"("name": 7)", "resources[0].name: expected a text"},
        {R"("registered": true)", R"("registered": "true")",
         "resources[0].registered: expected true or false"},
        {R"("devices": [])", R"("devices": {})", "resources[1].devices: expected a list"},
        {R"("devices": [])", R"("devices": [5])", "resources[1].devices[0]: expected an object"},
        {R"("places": [)", R"("places": 7, "p": [)", "resources[1].places: expected a list"},
        {R"("id": "0000:17:00.0")", R"("id": null)", "resources[0].devices[0].id: expected a text"},
        {R"("iommu_group": 42)", R"("iommu_group": -42)",
         "resources[0].devices[0].iommu_group: expected a number from 0 on"},
        {R"("iommu_group": 42)", R"("iommu_group": 4294967296)",
         "resources[0].devices[0].iommu_group: expected a number from 0 on"},
        {R"("healthy": true)", R"("healthy": 1)", "resources[0].devices[0].healthy: expected true or false"},
        {R"("allocated": true)", R"("alocated": true)",
         "resources[0].devices[0].allocated: the key is missing"},
        {R"("held_with_group": true)", R"("held_with_group": "yes")",
         "resources[0].devices[1].held_with_group: expected true or false"},
        {R"("pod": "studio/render")", R"("pod": 1)", "resources[0].devices[0].pod: expected a text"},
        {R"("not_advertised": [)", R"("not_advertised": [7, )", "not_advertised[0]: expected an object"},
        {R"("function": "a", "since": 1)", R"("function": "a", "since": -1)",
         "fatal_errors[1].since: expected a number from 0 on"},
        {R"("standby": "another serves")", R"("standby": true)", "standby: expected a text"}}) {
    std::string bad = kFile;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    const auto read = read_advertised_resources(bad);
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code, Errc::malformed_host);
    EXPECT_EQ(read.error().message, std::string("/run/ferry/plugin/advertised.json: ") + message);
  }
  for (const char* bad : {"", "null", "[]", "{", "{}", "7", "\xff", R"({"version": 2})",
                          R"({"version": 2, "resources": [{"name": "a"}]})",
                          R"({"version": 2, "resources": {"name": "a", "devices": []}})"})
    EXPECT_FALSE(read_advertised_resources(bad)) << bad;
}

TEST(AdvertisedFile, SaysSinceWhichCountADeviceIsUsed) {
  const AdvertisedResources advertised = {.devices = {{.resource = "r", .id = "a", .used_since = 0},
                                                      {.resource = "r", .id = "b", .used_since = 3},
                                                      {.resource = "r", .id = "c"}},
                                          .resources = {{.name = "r", .env = "E"}}};
  const std::string text = advertised_resources_text(advertised);
  for (const auto& read : {must(read_advertised_resources(text)), must(read_allocations(text))}) {
    ASSERT_GE(read.devices.size(), 2U);
    EXPECT_EQ(read.devices[0].used_since, 0U);
    EXPECT_EQ(read.devices[1].used_since, 3U);
    EXPECT_FALSE(read.devices[1].allocated);
  }
  EXPECT_EQ(must(read_allocations(text)).devices.size(), 2U);
}

TEST(Allocations, HaveNoCountOfAnotherForm) {
  for (const std::string count : {"-1", "1.5", "\"3\"", "null", "{}"}) {
    const auto read = must(read_allocations(R"({"resources": [{"name": "r", "devices": [
        {"id": "a", "allocated": true, "used_since": )" +
                                            count + R"(}, {"id": "b", "used_since": )" + count + "}]}]}"));
    ASSERT_EQ(read.devices.size(), 1U) << count;
    EXPECT_EQ(read.devices[0].used_since, std::nullopt) << count;
  }
}

// One bad entry, or another version, must not make an allocated device free.
TEST(Allocations, AreReadWhateverElseIsInTheFile) {
  for (const auto& [from, to] : std::vector<std::pair<const char*, const char*>>{
           {R"("version": 2)", R"("version": 3)"},
           {R"("reason": "gone")", R"("reason": 7)"},
           {R"("iommu_group": 43)", R"("iommu_group": -1)"},
           {R"("id": "7")", R"("id": {})"},
           {R"("not_advertised": [)", R"("not_advertised": [7, )"},
           {R"({"function": "a", "since": 1})", R"({"function": "a", "since": -1})"},
           {R"("standby": "another serves")", R"("standby": true)"}}) {
    std::string text = kFile;
    text.replace(text.find(from), std::string_view(from).size(), to);
    const AdvertisedResources read = must(read_allocations(text));
    ASSERT_EQ(read.devices.size(), 1U) << to;
    EXPECT_EQ(read.devices[0].resource, "nvidia.com/L40S");
    EXPECT_EQ(read.devices[0].id, "0000:17:00.0");
    EXPECT_EQ(read.devices[0].iommu_group, 42U);
    EXPECT_EQ(read.devices[0].pod, "studio/render");
    EXPECT_TRUE(read.devices[0].allocated);
    ASSERT_FALSE(read.fatal_errors.empty()) << to;
    EXPECT_EQ(read.fatal_errors[0].function, "0000:17:00.0");
    ASSERT_EQ(read.resources.size(), 2U) << "a resource without a variable is of an unknown kind";
    EXPECT_EQ(read.resources[1].name, "nvidia.com/audio");
  }
  EXPECT_FALSE(read_allocations(""));
  EXPECT_FALSE(read_allocations("{"));
  for (const char* other : {"null", "[]", "7", "{}", R"({"resources": 1, "fatal_errors": {}})"})
    EXPECT_THAT(must(read_allocations(other)).devices, IsEmpty()) << other;
}

}  // namespace
}  // namespace ferry::api
