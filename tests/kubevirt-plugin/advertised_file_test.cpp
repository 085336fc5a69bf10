// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/advertised_file.h"

#include <ostream>

#include <gmock/gmock.h>

namespace ferry::plugin {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(OfferedFile, IsReadBackByASuccessor) {
  Snapshot snapshot;
  snapshot.generation = 3;
  const auto name = *ResourceName::parse("nvidia.com/CARD");
  const auto listed = [](const std::string& id, bool allocated) {
    return ListedDevice{.id = id, .reason = {}, .numa_node = {}, .iommu_group = 15, .allocated = allocated};
  };
  snapshot.resources.push_back(std::make_shared<const ListedResource>(
      ListedResource{.name = name,
                     .env_prefix = EnvPrefix::none,
                     .devices = {listed("15", true), listed("16", false), listed("17", true)}}));
  snapshot.unlisted.push_back({.resource = name.text(), .id = "18", .iommu_group = 18});
  const std::string text = advertised_json(snapshot, {}, {}, 7);
  std::vector<std::string> ids;
  for (const Holding& one : allocated_by(text)) {
    EXPECT_EQ(one.resource, "nvidia.com/CARD");
    ASSERT_EQ(one.ids.size(), 1U) << "each is released on its own";
    ids.push_back(one.ids.front());
  }
  EXPECT_THAT(ids, ElementsAre("15", "17", "18"));
  EXPECT_THAT(kata_resources_of(text), ElementsAre("nvidia.com/CARD"));
}

// What only waits for a pod or a VM to end is not unfit.
TEST(OfferedFile, NamesWhatIsUnfit) {
  const auto listed = [](const std::string& id, bool allocated, bool awaits_release) {
    return ListedDevice{.id = id,
                        .reason = "a reason",
                        .numa_node = {},
                        .iommu_group = 15,
                        .allocated = allocated,
                        .awaits_release = awaits_release};
  };
  Snapshot snapshot;
  const auto name = *ResourceName::parse("nvidia.com/CARD");
  snapshot.resources.push_back(std::make_shared<const ListedResource>(ListedResource{
      .name = name,
      .env_prefix = EnvPrefix::none,
      .devices = {listed("15", false, true), listed("16", true, true), listed("17", false, false)}}));
  EXPECT_THAT(unfit_by(advertised_json(snapshot, {}, {}, 7)), ElementsAre(NotAdvertised{"17", "a reason"}));
  for (const char* bad :
       {"", "{", "[]", R"({"resources": 5})", R"({"resources": [{"devices": [{"id": 5}]}]})"})
    EXPECT_THAT(unfit_by(bad), IsEmpty()) << bad;
}

TEST(OfferedFile, TellsWhatIsHeldWithItsGroup) {
  Snapshot snapshot;
  snapshot.resources.push_back(
      std::make_shared<const ListedResource>(ListedResource{.name = *ResourceName::parse("nvidia.com/AUDIO"),
                                                            .devices = {{.id = "0000:01:00.1",
                                                                         .reason = "held back",
                                                                         .numa_node = {},
                                                                         .iommu_group = 15,
                                                                         .awaits_release = true,
                                                                         .held_with_group = true}}}));
  EXPECT_THAT(advertised_json(snapshot, {}, {}, 7), testing::HasSubstr("\"held_with_group\": true"));
}

TEST(OfferedFile, HandsFatalErrorsOn) {
  const std::vector<FatalErrorsOf> errors = {{.function = "0000:01:00.0", .since = 2, .binding = 31207},
                                             {.function = "0000:02:00.0", .since = 0, .binding = 0}};
  EXPECT_EQ(fatal_errors_of(advertised_json({}, {}, {}, 0, errors)), errors);
  EXPECT_THAT(fatal_errors_of(advertised_json({}, {}, {}, 0)), IsEmpty());
  const FatalErrorsOf unsure = {.function = "0000:01:00.0", .since = 2, .binding = 0};
  EXPECT_THAT(
      fatal_errors_of(R"({"fatal_errors": [{"function": "0000:01:00.0", "since": 2, "vfio_devices": []}]})"),
      testing::ElementsAre(unsure))
      << "from before bindings were told apart";
  for (const char* bad : {"", "{", R"({"fatal_errors": 5})", R"({"fatal_errors": ["a"]})",
                          R"({"fatal_errors": [{"function": 5, "since": 1, "binding": 1}]})",
                          R"({"fatal_errors": [{"function": "a", "since": -1, "binding": 1}]})",
                          R"({"fatal_errors": [{"function": "a", "since": 1, "binding": "7"}]})"})
    EXPECT_THAT(fatal_errors_of(bad), IsEmpty()) << bad;
}

class BadOfferedText : public testing::TestWithParam<const char*> {};

TEST_P(BadOfferedText, HasNothingAllocated) {
  EXPECT_THAT(allocated_by(GetParam()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Texts, BadOfferedText,
    testing::Values("", "{", "[]", "5", "{}", R"({"resources": 5})", R"({"resources": ["a"]})",
                    R"({"resources": {"name": "a", "devices": [{"id": "b", "allocated": true}]}})",
                    R"({"resources": [{"devices": [{"id": "b", "allocated": true}]}]})",
                    R"({"resources": [{"name": 5, "devices": [{"id": "b", "allocated": true}]}]})",
                    R"({"resources": [{"name": "a", "devices": "b"}]})",
                    R"({"resources": [{"name": "a", "devices": [{"id": 5, "allocated": true}]}]})",
                    R"({"resources": [{"name": "a", "devices": [{"id": "b", "allocated": 1}]}]})",
                    R"({"resources": [{"name": "a", "devices": [{"id": "b"}]}]})"));

}  // namespace
}  // namespace ferry::plugin
