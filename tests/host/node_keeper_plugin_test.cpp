// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd: the device plugin withdraws devices before a change.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/advertised_resources.h"
#include "api/host_status.h"
#include "hostfs/locks.h"
#include "tests/host/keeper_node.h"
#include "tests/support/must.h"
#include "vfio/confidential/mode_setting.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// -- the plugin makes way first --

TEST_F(NodeKeeperTest, WaitsForThePluginBeforeItTakesAGpuBack) {
  start_plugin_with_all();
  kernel_.forget_changes();
  want(kFirstBack);
  const auto waiting = round();
  EXPECT_EQ(waiting.phase, api::NodePhase::applying);
  EXPECT_TRUE(waiting.again) << "a plugin that never answers";
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::pending);
  EXPECT_EQ(round().phase, api::NodePhase::applying) << "other news";
  EXPECT_THAT(host_writes(), IsEmpty());

  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "vfio-pci"));
  EXPECT_THAT(unavailable(), IsEmpty()) << "whatever is there now may be advertised";
}

TEST_F(NodeKeeperTest, TakesNoAnswerToAnEarlierFile) {
  start_plugin_with_all();
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::applying) << "it has answered the file before";
  kernel_.forget_changes();
  // It lists nothing, but from before it was asked: it may be about to list the GPU.
  nlohmann::json file = {
      {"version", 2}, {"state_generation", state().generation - 1}, {"resources", nlohmann::json::array()}};
  kernel_.file("run/ferry/plugin/advertised.json", file.dump());
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  EXPECT_THAT(host_writes(), IsEmpty());
  file["state_generation"] = state().generation;
  kernel_.file("run/ferry/plugin/advertised.json", file.dump());
  EXPECT_EQ(round().phase, api::NodePhase::ready);
}

// The plugin has counted from before hostd's start, so a restart of hostd heals no GPU.
TEST_F(NodeKeeperTest, TakesFatalErrorsThatThePluginHasFound) {
  want(kAllAway);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  kernel_.file(std::string("sys/bus/pci/devices/") + kFirst + "/aer_dev_fatal", "TOTAL_ERR_FATAL 2\n");
  NodeKeeper next = make_keeper();
  EXPECT_EQ(next.round().phase, api::NodePhase::ready) << "it has not seen them come";
  api::AdvertisedResources listed;
  listed.generation = 7;
  listed.fatal_errors = {{.function = kFirst, .since = 1, .binding = 0}};
  kernel_.file("run/ferry/plugin/advertised.json", api::advertised_resources_text(listed));
  NodeKeeper last = make_keeper();
  EXPECT_EQ(last.round().phase, api::NodePhase::blocked);
  EXPECT_EQ(last.round().phase, api::NodePhase::blocked) << "the same lists once more";
}

// The audio function of a card is no GPU, and a VM gets it with its card.
TEST_F(NodeKeeperTest, SeesFatalErrorsOfAFunctionBesideTheGpu) {
  kernel_.add_function({"10de:0fb9", 0x040300}, "0000:05:00.1", 5, "nvidia");
  want(kAllAway);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  const std::string errors = "sys/bus/pci/devices/0000:05:00.1/aer_dev_fatal";
  kernel_.file(errors, "TOTAL_ERR_FATAL 0\n");
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  kernel_.file(errors, "TOTAL_ERR_FATAL 1\n");
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
}

TEST_F(NodeKeeperTest, KeepsAGpuBackWhileAChangeOfItsModeIsRecorded) {
  const auto unfit = [&] { return api::unfit_devices(state()); };
  const auto write_record = [&] {
    kernel_.file(vfio::kModeRecordFile,
                 R"({"version": 1, "devices": [{"address": "0000:06:00.0", "ids": "10de:1eb8", "wanted": "on",
                     "mode": "off", "knobs": []}]})");
  };
  start_plugin_with_all();
  EXPECT_THAT(unfit(), IsEmpty());
  write_record();
  rounds();
  ASSERT_THAT(unfit(), SizeIs(1));
  EXPECT_EQ(unfit()[0].id, kSecond);
  EXPECT_THAT(unfit()[0].reason, HasSubstr("`ferry cc set` undoes an interrupted one (docs/cc.md)"));
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::ready) << "a GPU that waits, as one that is not sanitized";
  const auto listed = test::must(kernel_.read_file("run/ferry/plugin/advertised.json"));
  EXPECT_THAT(listed, HasSubstr(R"("healthy":false,"id":"0000:06:00.0")"));
  kernel_.remove(vfio::kModeRecordFile);
  rounds();
  EXPECT_THAT(unfit(), IsEmpty());

  // A status between two scans has the record as it is then.
  KeeperMemory memory;
  StatusFile file(kernel_, "run/ferry/status.json", memory);
  const api::HostStatus before = state();
  write_record();
  must(file.publish_again(before));
  EXPECT_THAT(unfit(), SizeIs(1));
  const api::HostStatus withheld = state();
  kernel_.remove(vfio::kModeRecordFile);
  must(file.publish_again(withheld));
  EXPECT_THAT(unfit(), IsEmpty());
}

TEST_F(NodeKeeperTest, KeepsSwitchesFromThePluginThatAFabricManagerShares) {
  const std::string on_vfio = "0000:86:00.0";
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_driver({.name = "nvidia-nvswitch", .ids = {"10de:22a3"}});
  const auto add_switch = [&](const std::string& address, unsigned group, const char* driver) {
    kernel_.add_function(test::kinds::kNvSwitch, address, group, driver);
  };
  add_switch("0000:85:00.0", 85, "nvidia-nvswitch");
  add_switch(on_vfio, 86, "vfio-pci");
  kernel_.file("proc/812/comm", "nv-fabricmanage\n");
  std::uint64_t generation = 0;
  for (const char* items : {"", kAllBack}) {
    for (const char mode : {'0', '1', '2'}) {
      SCOPED_TRACE(std::string(items) + mode);
      kernel_.file("usr/share/nvidia/nvswitch/fabricmanager.cfg", std::string("FABRIC_MODE=") + mode + "\n");
      if (*items != '\0') want(items, ++generation);
      rounds();
      EXPECT_EQ(unavailable(), mode == '0' ? std::vector<std::string>() : std::vector<std::string>{on_vfio});
      EXPECT_THAT(state().accelerators, SizeIs(kGpus.size())) << "no policy names a switch";
    }
  }
  want("  - {address: \"" + on_vfio + "\", mode: passthrough}\n", ++generation);
  rounds();
  EXPECT_EQ(gpu(on_vfio).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(on_vfio).reason, HasSubstr("in use: fabric manager nv-fabricmanager (pid 812)"));
  EXPECT_THAT(unavailable(), ElementsAre(on_vfio));
}

TEST_F(NodeKeeperTest, CountsOnFromWhereThePluginIs) {
  want(kAllAway);
  answer_ahead_ = 500;
  start_plugin();
  round();
  EXPECT_GT(state().generation, 500U);
}

TEST_F(NodeKeeperTest, WaitsForVgpusThatGo) {
  want(kDivided);
  start_plugin();
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  want("  - {devices: [1], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n");
  kernel_.forget_changes();
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  EXPECT_THAT(unavailable(), AllOf(SizeIs(3), Contains(id))) << "and the one that is made in their place";
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(gpu(kSecond).vgpus.at(0).type, "T4-8Q");
}

// Another program has unbound a device that the plugin had advertised: it is listed, Unhealthy, until it is
// withdrawn.
TEST_F(NodeKeeperTest, AsksForWhatIsListedThoughItHasLostItsDriver) {
  start_plugin_with_all();
  plugin_follows();
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kFirst));
  plugin_follows();
  ASSERT_TRUE(listed_.contains(kFirst));
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  EXPECT_THAT(unavailable(), IsEmpty());
}

TEST_F(NodeKeeperTest, KnowsKatasNumbersByTheirGroups) {
  want(kAllAway);
  kata_ = true;
  start_plugin();
  rounds();
  want(kFirstBack);
  round();
  // It has read the file and lists the GPU's group still: a pod's.
  allocated_ = {kFirst};
  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

TEST_F(NodeKeeperTest, WaitsForNobodyWithoutAPlugin) {
  start_plugin_with_all();
  kill_plugin();
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::ready) << "what it left in its file is nobody's";
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

TEST_F(NodeKeeperTest, DoesNotAskAboutWhatThePluginCannotOffer) {
  start_plugin();
  silent_ = true;
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, RefusesWhenThePluginDoesNotAnswer) {
  start_plugin_with_all();
  silent_ = true;
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  now_ += 31s;
  kernel_.forget_changes();
  const auto refused = round();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_EQ(refused.status, ExitStatus::refused);
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("the device plugin"));
  EXPECT_THAT(gpu(kFirst).hint, HasSubstr("`ferry plugin`")) << "there is no pod to delete";
  EXPECT_THAT(unavailable(), IsEmpty()) << "the node is as it was";
  ASSERT_TRUE(refused.again) << "nobody tells when it wakes up";
  EXPECT_EQ(*refused.again, now_ + 10s);
}

TEST_F(NodeKeeperTest, LetsNothingBeAdvertisedThatIsStillBeingMade) {
  start_plugin();
  std::vector<std::string> withheld;
  users_.before_scan = [&] {
    if (kernel_.exists("run/ferry/status.json") && state().phase == api::NodePhase::applying)
      withheld = unavailable();
  };
  want(
      "  - {devices: [0], mode: passthrough}\n"
      "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  ASSERT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  EXPECT_THAT(withheld, testing::UnorderedElementsAre(kFirst, gpu(kSecond).vgpus.at(0).id,
                                                      gpu(kSecond).vgpus.at(1).id));
  EXPECT_THAT(unavailable(), IsEmpty()) << "and then it is";
}

// It may take half a minute to get the node's lock.
TEST_F(NodeKeeperTest, MindsAPluginThatHasStartedSinceThePlan) {
  want(kAllAway);
  round();
  users_.before_scan = [this] {
    if (liveness_ || state().phase != api::NodePhase::applying) return;
    // It has read an earlier file, and has advertised the GPU.
    kernel_.file("run/ferry/plugin/advertised.json",
                 R"({"version": 2, "resources": [{"name": "nvidia.com/T4", "devices": [
                     {"id": "0000:05:00.0", "iommu_group": 5, "allocated": false}]}]})");
    liveness_.emplace(must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock")));
  };
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
}

TEST_F(NodeKeeperTest, WaitsForThePluginNoLongerBecauseTheQuestionGrows) {
  start_plugin_with_all();
  plugin_follows();
  want(kFirstBack);
  ASSERT_EQ(round().phase, api::NodePhase::applying);
  const auto asked = now_;
  silent_ = true;
  now_ += 20s;
  // A pod has another device by now, and hostd waits for that one, too.
  want(kAllBack);
  ASSERT_EQ(round().phase, api::NodePhase::applying) << "another desired state is another question";
  const auto asked_again = now_;
  EXPECT_GT(asked_again, asked);
  now_ += 20s;
  users_.held = {{kSecond, vm(412)}};
  ASSERT_EQ(round().phase, api::NodePhase::applying);
  ASSERT_THAT(unavailable(), ElementsAre(kFirst, kThird));
  now_ = asked_again + 30s;
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
}

}  // namespace
}  // namespace ferry::host
