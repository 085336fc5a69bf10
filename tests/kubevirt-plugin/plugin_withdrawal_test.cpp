// SPDX-License-Identifier: Apache-2.0
// What the plugin makes of hostd's state.json.
#include <gmock/gmock.h>

#include "common/presence.h"
#include "tests/kubevirt-plugin/plugin_fixture.h"

namespace ferry {
namespace {

using namespace plugin_test;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

class PluginWithdrawalTest : public plugin_test::Fixture {
 protected:
  void publish(unsigned generation, const std::vector<std::string>& ids) {
    auto list = Json::array();
    for (const std::string& id : ids) list.push_back({{"id", id}, {"reason", "it is wanted elsewhere"}});
    write_state(Json({{"version", 1}, {"generation", generation}, {"withdraw", list}}).dump());
  }
  /// Replaced as hostd does it.
  void write_state(const std::string& text) { EXPECT_TRUE(kernel.write_file(options.state_file, text)); }
  bool follows(unsigned generation) const {
    return offered_becomes(
        [&](const Json& file) { return file.is_object() && file["state_generation"] == generation; });
  }
  static std::vector<std::string> listed(const Json& file) {
    std::vector<std::string> ids;
    for (const auto& resource : file["resources"])
      for (const auto& device : resource["devices"]) ids.push_back(device["id"]);
    return ids;
  }
};

TEST_F(PluginWithdrawalTest, OffersAllWithoutAStateFile) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_TRUE(follows(0));
}

TEST_F(PluginWithdrawalTest, WithdrawsAGpuAndSaysWhichFileItHasFollowed) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  EXPECT_THAT(listed(offered()), testing::ElementsAre("0000:02:00.0"));
  EXPECT_EQ(offered()["not_offered"][0]["reason"], "withdrawn: it is wanted elsewhere");
  EXPECT_TRUE(allocatable(kGpu, 1));
  EXPECT_EQ(kubelet->allocate(kGpu, {"0000:01:00.0"}, true).status, 5) << "NOT_FOUND";

  publish(8, {});
  ASSERT_TRUE(follows(8));
  EXPECT_TRUE(allocatable(kGpu, 2)) << "without any event of the host";
}

TEST_F(PluginWithdrawalTest, OffersNothingAtItsStartThatIsWithdrawn) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  publish(7, {"0000:01:00.0"});
  start_both();
  ASSERT_TRUE(follows(7));
  EXPECT_TRUE(allocatable(kGpu, 1));
  for (const auto& call : kubelet->registrations()) EXPECT_EQ(call.error, "");
  EXPECT_EQ(kubelet->resources().at(kGpu).devices.count("0000:01:00.0"), 0U);
}

TEST_F(PluginWithdrawalTest, KeepsWhatAPodHasUntilThePodEnds) {
  options.holders.period = 20ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, 1).ok());
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  const auto device = offered()["resources"][0]["devices"][0];
  EXPECT_EQ(device["allocated"], true);
  EXPECT_EQ(device["healthy"], false);
  EXPECT_THAT(std::string(device["reason"]), HasSubstr("withdrawn"));
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(offered_becomes([](const Json& file) { return listed(file).empty(); }));
}

TEST_F(PluginWithdrawalTest, WithdrawsAVgpu) {
  add_vgpu();
  start_both();
  ASSERT_TRUE(allocatable(kVgpu, 1));
  publish(7, {kUuid});
  ASSERT_TRUE(follows(7));
  EXPECT_THAT(listed(offered()), IsEmpty());
}

TEST_F(PluginWithdrawalTest, KnowsKatasDevicesByWhatSysfsCallsThem) {
  options.rules.kubevirt = false;
  options.rules.kata = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(offered_becomes([](const Json& file) { return file.is_object() && !listed(file).empty(); }));
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  EXPECT_THAT(listed(offered()), IsEmpty());
}

TEST_F(PluginWithdrawalTest, GoesOnByTheLastFileItCouldRead) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  write_state("{\"version\": 1,");
  add_gpu("0000:02:00.0", 16);
  publish(8, {"0000:02:00.0"});
  ASSERT_TRUE(follows(8));
  EXPECT_THAT(listed(offered()), testing::ElementsAre("0000:01:00.0"));
}

TEST_F(PluginWithdrawalTest, SaysThatOnlyTheCountHasChanged) {
  add_gpu("0000:01:00.0", 15);
  publish(7, {"0000:01:00.0"});
  start_both();
  ASSERT_TRUE(follows(7));
  publish(9, {"0000:01:00.0"});
  EXPECT_TRUE(follows(9));
}

TEST_F(PluginWithdrawalTest, ShowsThatItRuns) {
  EXPECT_FALSE(is_present(kernel, options.presence_file).value_or(true));
  start_both();
  ASSERT_TRUE(follows(0));
  EXPECT_TRUE(is_present(kernel, options.presence_file).value_or(false));
  EXPECT_TRUE(stop());
  EXPECT_FALSE(is_present(kernel, options.presence_file).value_or(true));
}

}  // namespace
}  // namespace ferry
