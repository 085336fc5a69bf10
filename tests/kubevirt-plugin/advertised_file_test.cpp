// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/advertised_file.h"

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"

namespace ferry::plugin {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(AdvertisedFile, IsReadBackByASuccessor) {
  Snapshot snapshot;
  snapshot.generation = 3;
  const auto name = *ResourceName::parse("nvidia.com/CARD");
  const auto listed = [](const std::string& id, bool allocated) {
    return ListedDevice{.id = id, .iommu_group = 15, .allocated = allocated};
  };
  snapshot.resources.push_back(std::make_shared<const ListedResource>(
      ListedResource{.name = name,
                     .env_prefix = EnvPrefix::none,
                     .devices = {listed("15", true), listed("16", false), listed("17", true)}}));
  snapshot.unlisted.push_back(
      {.resource = name.text(), .id = "18", .iommu_group = 18, .allocated = true, .healthy = false});
  const test::ScratchDirectory scratch;
  scratch.file("advertised.json", api::advertised_resources_text(advertised_resources(snapshot, {}, {}, 7)));
  const auto before = read_former(HostFs(scratch.path()), "advertised.json");
  std::vector<std::string> ids;
  for (const Holding& one : allocated_by(before)) {
    EXPECT_EQ(one.resource, "nvidia.com/CARD");
    ASSERT_EQ(one.ids.size(), 1U) << "each is released on its own";
    ids.push_back(one.ids.front());
  }
  EXPECT_THAT(ids, ElementsAre("15", "17", "18"));
  EXPECT_THAT(kata_resources_of(before), ElementsAre("nvidia.com/CARD"));
}

// What only waits for a pod or a VM to end is not unfit.
TEST(AdvertisedFile, NamesWhatIsUnfit) {
  const auto listed = [](const std::string& id, bool allocated, bool awaits_release) {
    return ListedDevice{.id = id,
                        .iommu_group = 15,
                        .allocated = allocated,
                        .healthy = false,
                        .reason = "a reason",
                        .awaits_release = awaits_release};
  };
  Snapshot snapshot;
  const auto name = *ResourceName::parse("nvidia.com/CARD");
  snapshot.resources.push_back(std::make_shared<const ListedResource>(ListedResource{
      .name = name,
      .env_prefix = EnvPrefix::none,
      .devices = {listed("15", false, true), listed("16", true, true), listed("17", false, false)}}));
  EXPECT_THAT(unfit_by(advertised_resources(snapshot, {}, {}, 7)),
              ElementsAre(NotAdvertised{"17", "a reason"}));
}

TEST(AdvertisedFile, SaysWhatIsInUseWithItsGroup) {
  Snapshot snapshot;
  snapshot.resources.push_back(
      std::make_shared<const ListedResource>(ListedResource{.name = *ResourceName::parse("nvidia.com/AUDIO"),
                                                            .devices = {{.id = "0000:01:00.1",
                                                                         .iommu_group = 15,
                                                                         .healthy = false,
                                                                         .reason = "held back",
                                                                         .awaits_release = true,
                                                                         .held_with_group = true}}}));
  EXPECT_TRUE(advertised_resources(snapshot, {}, {}, 7).devices.at(0).held_with_group);
}

TEST(AdvertisedFile, HandsFatalErrorsOn) {
  const std::vector<api::FatalErrorsOf> errors = {{.function = "0000:01:00.0", .since = 2, .binding = 31207},
                                                  {.function = "0000:02:00.0", .since = 0, .binding = 0}};
  EXPECT_EQ(advertised_resources({}, {}, {}, 0, errors).fatal_errors, errors);
}

// A crash of the host can leave such files.
TEST(AdvertisedFile, ThatCannotBeReadPassesNothingOn) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  for (const char* bad : {"", "{", "[]", R"({"resources": {}, "fatal_errors": 1})"}) {
    scratch.file("advertised.json", bad);
    const auto read = read_former(host, "advertised.json");
    EXPECT_THAT(read.devices, IsEmpty()) << bad;
    EXPECT_THAT(read.resources, IsEmpty()) << bad;
  }
  EXPECT_THAT(read_former(host, "none.json").devices, IsEmpty());
}

}  // namespace
}  // namespace ferry::plugin
