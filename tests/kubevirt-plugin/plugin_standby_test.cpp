// SPDX-License-Identifier: Apache-2.0
// The plugin where another's serves the node, by what hostd says of it in status.json.
#include <atomic>

#include <gmock/gmock.h>

#include "api/files.h"
#include "tests/kubevirt-plugin/plugin_fixture.h"

namespace ferry::plugin {
namespace {

using namespace plugin_test;
using testing::IsEmpty;
using Json = nlohmann::json;

class PluginStandbyTest : public plugin_test::Fixture {
 protected:
  PluginStandbyTest() {
    add_gpu("0000:01:00.0", 15);
    add_gpu("0000:02:00.0", 16);
    options.pod_resources.period = 20ms;
  }
  /// Replaced as hostd does it. `standby`: why nothing is to be advertised; empty: it is.
  void publish(unsigned generation, const std::string& standby) {
    const Json why = standby.empty() ? Json() : Json(standby);
    const Json state = {
        {"version", 2}, {"generation", generation}, {"unavailable", Json::array()}, {"standby", why}};
    EXPECT_TRUE(kernel.write_file(api::kStatusFile, state.dump()));
  }
  bool follows(unsigned generation) const {
    return advertised_becomes(
        [&](const Json& file) { return file.is_object() && file["state_generation"] == generation; });
  }
  bool disconnected(const std::string& resource) const {
    return eventually([&](const standin::Resources& resources) {
      const auto known = resources.find(resource);
      return known != resources.end() && !known->second.connected;
    });
  }
  std::vector<std::string> sockets() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(directory()))
      if (entry.path().filename() != "kubelet.sock") out.push_back(entry.path().filename());
    return out;
  }
  /// Who asks for it waits until the kubelet lists its pods, which it does at `leave`, and gets it then.
  void expect_wait(const std::string& id, std::promise<void>& leave) {
    auto answer = std::async(std::launch::async, [&] { return kubelet->allocate(kGpu, {id}); });
    EXPECT_EQ(answer.wait_for(100ms), std::future_status::timeout);
    leave.set_value();
    ASSERT_EQ(answer.wait_for(kPatience), std::future_status::ready);
    EXPECT_TRUE(answer.get().ok());
  }
  static Json device(const Json& file, std::size_t index) { return file["resources"][0]["devices"][index]; }
};

TEST_F(PluginStandbyTest, WithdrawsAllInOrderAndServesAgain) {
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  publish(3, "another serves");
  ASSERT_TRUE(follows(3));
  EXPECT_TRUE(disconnected(kGpu));
  EXPECT_THAT(sockets(), IsEmpty());
  EXPECT_EQ(advertised()["standby"], "another serves");
  EXPECT_EQ(advertised()["resources"][0]["registered"], false);
  EXPECT_EQ(advertised()["resources"][0]["devices"].size(), 2U) << "what there is is known on";
  EXPECT_EQ(registrations(kGpu), 1U);

  publish(4, "");
  ASSERT_TRUE(follows(4));
  EXPECT_TRUE(allocatable(kGpu, 2));
  EXPECT_EQ(registrations(kGpu), 2U);
  EXPECT_TRUE(advertised_becomes([](const Json& file) {
    return file["standby"].is_null() && file["resources"][0]["registered"] == true;
  }));
}

TEST_F(PluginStandbyTest, RegistersNothingAtItsStart) {
  publish(3, "another serves");
  start_both();
  ASSERT_TRUE(follows(3));
  EXPECT_THAT(sockets(), IsEmpty());
  EXPECT_THAT(kubelet->registrations(), IsEmpty());
  publish(4, "");
  EXPECT_TRUE(allocatable(kGpu, 2));
}

// A kubelet that starts is asked for nothing, and neither is it for what comes meanwhile.
TEST_F(PluginStandbyTest, RegistersNothingWhateverHappens) {
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  publish(3, "another serves");
  ASSERT_TRUE(follows(3));
  kubelet = make_kubelet();
  ASSERT_TRUE(kubelet->start());
  add_gpu("0000:03:00.0", 17, "10de:2330");
  publish(4, "another serves, as before");
  ASSERT_TRUE(advertised_becomes([](const Json& file) { return file["resources"].size() == 2; }));
  EXPECT_THAT(kubelet->registrations(), IsEmpty());
  EXPECT_THAT(sockets(), IsEmpty());
  publish(5, "");
  EXPECT_TRUE(allocatable(kGpu, 2));
  EXPECT_TRUE(allocatable(kH100, 1));
}

TEST_F(PluginStandbyTest, EndsWhenItIsToServeInADirectoryThatWasMadeAnew) {
  publish(3, "another serves");
  start();
  ASSERT_TRUE(follows(3));
  std::filesystem::remove_all(directory());
  std::filesystem::create_directories(directory());
  publish(4, "");
  ASSERT_EQ(result.wait_for(kPatience), std::future_status::ready);
  const auto ended = stop();
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, testing::HasSubstr("has gone away"));
}

TEST_F(PluginStandbyTest, KnowsOnWhatAPodHas) {
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  publish(3, "another serves");
  ASSERT_TRUE(follows(3));
  EXPECT_EQ(device(advertised(), 0)["allocated"], true);
  publish(4, "");
  ASSERT_TRUE(allocatable(kGpu, 2));
  EXPECT_EQ(device(advertised(), 0)["allocated"], true);
  EXPECT_EQ(device(advertised(), 1)["allocated"], false);
  EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
}

// Those who wait until it is known who holds what are answered, and the process goes on.
TEST_F(PluginStandbyTest, KeepsNobodyWaitingWhoAskedBeforeIt) {
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  serve_pods([left] { left.wait_for(kPatience); });
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  auto answer = std::async(std::launch::async, [&] { return kubelet->allocate(kGpu, {"0000:01:00.0"}); });
  EXPECT_EQ(answer.wait_for(250ms), std::future_status::timeout);
  publish(3, "another serves");
  ASSERT_TRUE(disconnected(kGpu));
  ASSERT_EQ(answer.wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(answer.get().error, testing::HasSubstr("the plugin is on standby: another serves"));
  leave.set_value();
  ASSERT_TRUE(follows(3));
  publish(4, "");
  ASSERT_TRUE(allocatable(kGpu, 2));
  EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
}

// They hear nothing of a standby that has ended: they wait, as at a start.
TEST_F(PluginStandbyTest, KeepsThoseWaitingWhoAskAfterIt) {
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  serve_pods([left] { left.wait_for(kPatience); });
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  publish(3, "another serves");
  ASSERT_TRUE(disconnected(kGpu));
  publish(4, "");
  ASSERT_TRUE(allocatable(kGpu, 2));
  expect_wait("0000:01:00.0", leave);
}

// The clients that it serves first after the standby do not hear of it either.
TEST_F(PluginStandbyTest, KeepsThoseWaitingWhereItHasServedNobodyBefore) {
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  serve_pods([left] { left.wait_for(kPatience); });
  publish(3, "another serves");
  start_both();
  ASSERT_TRUE(advertised_becomes(
      [](const Json& file) { return file.is_object() && file["standby"] == "another serves"; }));
  publish(4, "");
  ASSERT_TRUE(allocatable(kGpu, 2));
  expect_wait("0000:01:00.0", leave);
}

// While another serves nobody tells what it gives out, and what comes free.
TEST_F(PluginStandbyTest, GivesNothingOutBeforeItHasLearntWhatTheOtherOneDid) {
  options.pod_resources.names = true;
  options.pod_resources.poll_period = 20ms;
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  const auto blocks = std::make_shared<std::atomic<bool>>(false);
  serve_pods([left, blocks] {
    if (*blocks) left.wait_for(kPatience);
  });
  add_gpu("0000:03:00.0", 17);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 3));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  publish(3, "another serves");
  ASSERT_TRUE(follows(3));
  kubelet->release({"0000:01:00.0"});
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:02:00.0"}});
  *blocks = true;
  publish(4, "");
  ASSERT_TRUE(allocatable(kGpu, 3));
  expect_wait("0000:03:00.0", leave);
  EXPECT_TRUE(advertised_becomes([](const Json& file) { return device(file, 1)["allocated"] == true; }))
      << advertised();
  EXPECT_TRUE(advertised_becomes([](const Json& file) { return device(file, 0)["allocated"] == false; }))
      << advertised();
}

}  // namespace
}  // namespace ferry::plugin
