// SPDX-License-Identifier: Apache-2.0
// The whole plugin and the pods that have its devices: it learns of releases, and gives out no device that is
// in use.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/whole_plugin.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;
using namespace plugin_test;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST_F(PluginTest, LearnsOfAReleaseWhileAGroupIsUnavailableAndAsksNobodyOtherwise) {
  std::atomic<int> lists = 0;
  const EndFirst end_first(*this);
  serve_pods([&] { lists.fetch_add(1); });
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 1));
  // A hundred calls take far longer than the period.
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}, true).ok());
  }
  EXPECT_LE(lists.load(), 3) << "at the start, when the kubelet came, and once it had shown its pods";
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1)) << "its pod is gone";
  EXPECT_GE(lists.load(), 3);
  EXPECT_TRUE(kubelet->allocate(kAudio, {"0000:01:00.1"}).ok());
}

TEST_F(PluginTest, GivesNothingOutBeforeItKnowsWhatItsPredecessorGave) {
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  serve_pods([left] { left.wait_for(kPatience); });
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  auto answer =
      std::async(std::launch::async, [&] { return kubelet->allocate(kAudio, {"0000:01:00.1"}, true); });
  EXPECT_EQ(answer.wait_for(50ms), std::future_status::timeout);
  leave.set_value();
  EXPECT_THAT(answer.get().error, HasSubstr("0000:01:00.0 of " + std::string(kGpu) + " is allocated"));
  EXPECT_TRUE(allocatable(kAudio, 0)) << "the pod's group is held back";
}

TEST_F(PluginTest, HoldsWhatItsPredecessorGaveUnderOtherNames) {
  serve_pods([] {});
  options.rules.names.aliases = {{"10de:2684", "renamed"}};
  options.pod_resources.period = 1ms;
  kernel.file(options.advertised_file, R"({"resources": [{"name": "nvidia.com/pgpu", "env": ""}]})");
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  add_gpu("0000:03:00.0", 17);
  // Its companion, by Kata's number, and by the name that it has without the alias.
  kubelet->remember({.name = "one", .resource = kAudio, .ids = {"0000:01:00.1"}});
  kubelet->remember({.name = "two", .resource = "nvidia.com/pgpu", .ids = {"16"}});
  start_both();
  ASSERT_TRUE(allocatable("nvidia.com/renamed", 1));
  EXPECT_EQ(kubelet->allocate("nvidia.com/renamed", {"0000:01:00.0"}, true).status, 9);
  EXPECT_EQ(kubelet->allocate("nvidia.com/renamed", {"0000:02:00.0"}, true).status, 9);
  EXPECT_TRUE(kubelet->allocate("nvidia.com/renamed", {"0000:03:00.0"}).ok());
  kubelet->release({"0000:01:00.1"});
  kubelet->release({"16"});
  EXPECT_TRUE(allocatable("nvidia.com/renamed", 3)) << "their pods are gone";
}

TEST_F(PluginTest, SaysThatAllocationsAreUnknownAndGoesOnOnceTheyAreKnown) {
  const UniqueFd nobody_listens = bind_pods_socket();
  kubelet = std::make_unique<standin::Kubelet>(directory());
  options.pod_resources.patience = 20ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_THAT(kubelet->allocate(kGpu, {"0000:01:00.0"}).error,
              testing::AllOf(HasSubstr("the users of devices are not known"),
                             HasSubstr("; see whether the kubelet answers")));
  kubelet->stop();
  kubelet = make_kubelet();
  ASSERT_TRUE(kubelet->start());
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool given = false;
  while (!given && std::chrono::steady_clock::now() < end)
    given = kubelet->allocate(kGpu, {"0000:01:00.0"}).ok();
  EXPECT_TRUE(given);
}

TEST_F(PluginTest, GivesNothingOutWhereAKubeletIsThatDoesNotSayWhatIsHeld) {
  kubelet = std::make_unique<standin::Kubelet>(directory());
  options.pod_resources.patience = 20ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto answer = kubelet->allocate(kGpu, {"0000:01:00.0"});
  EXPECT_THAT(answer.error, HasSubstr("there is no /pods/kubelet.sock, though a kubelet is there"));
}

TEST_F(PluginTest, SaysWhichPodHasADeviceWhereThatIsAskedFor) {
  options.pod_resources.period = 1ms;
  options.pod_resources.names = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  EXPECT_TRUE(advertised_becomes([](const nlohmann::json& file) {
    if (!file.is_object()) return false;  // not there yet
    const nlohmann::json::json_pointer place("/resources/0/devices/0/pod");
    const auto pod = file.value(place, nlohmann::json());
    return pod.is_string() && pod.get<std::string>().find('/') != std::string::npos;
  })) << advertised();
}

TEST_F(PluginTest, SaysThatAPodHasGoneWherePodsAreNamed) {
  options.pod_resources.period = 1ms;
  options.pod_resources.poll_period = 1ms;
  options.pod_resources.names = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  const auto is_allocated = [](bool desired) {
    return [desired](const nlohmann::json& file) {
      return file.is_object() && file["resources"][0]["devices"][0]["allocated"] == desired &&
             file["resources"][0]["devices"][0]["pod"].is_string() == desired;
    };
  };
  EXPECT_TRUE(advertised_becomes(is_allocated(true))) << advertised();
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(advertised_becomes(is_allocated(false))) << advertised();
}

// A pod of seconds, of a kubelet that has come a moment before: it knows the pods of its own allocations.
TEST_F(PluginTest, KnowsThatAPodHasEndedWhileItsKubeletSettles) {
  options.pod_resources.period = 1ms;
  options.pod_resources.settling = std::chrono::hours(1);
  options.rules.companions = Companions::devices;
  for (const unsigned card : {1U, 2U}) {
    add_gpu("0000:0" + std::to_string(card) + ":00.0", 14 + card);
    add_audio("0000:0" + std::to_string(card) + ":00.1", 14 + card);
  }
  predecessor_gave("0000:01:00.0");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 1));
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
    return file.is_object() && std::ranges::all_of(file["resources"], [](const auto& resource) {
             return resource["registered"] == true;
           });
  })) << "the plugin has seen that the kubelet is there";
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->release({"0000:02:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1));
  EXPECT_THAT(advertised().dump(), HasSubstr("held back: 0000:01:00.0 of its IOMMU group 15"))
      << "the pod of an earlier allocation may not be listed yet";
}

TEST_F(PluginTest, TakesNothingForReleasedWhenNobodySaysWhatIsHeld) {
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 0));
  fs::remove(directory() / "kubelet.sock");
  fs::remove(kernel.root() / options.pod_resources.socket);
  add_gpu("0000:02:00.0", 16);
  ASSERT_TRUE(allocatable(kGpu, 2)) << "far longer than the period";
  EXPECT_EQ(kubelet->allocate(kAudio, {"0000:01:00.1"}, true).status, 9) << "FAILED_PRECONDITION";
}

// A kubelet lists pods as soon as it listens, before it knows them all and long before it reads our lists.
TEST_F(PluginTest, TakesNothingForReleasedFromAKubeletThatHasNotComeYet) {
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->stop();

  constexpr int kManyLists = 100;  // far longer than it takes to publish a release
  std::atomic<int> lists = 0;
  std::promise<void> many;
  kernel.directory("elsewhere");
  standin::Kubelet young(
      kernel.root() / "elsewhere",
      {.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path(), .on_list = [&] {
         if (lists.fetch_add(1) == kManyLists) many.set_value();
       }});
  ASSERT_TRUE(young.start());
  ASSERT_EQ(many.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(advertised().dump(), testing::HasSubstr("held back: 0000:01:00.0 of its IOMMU group 15"));
}

// Without the API server a kubelet serves, and lists none of the pods whose devices its checkpoint has.
TEST_F(PluginTest, TakesNothingForReleasedFromAKubeletThatDoesNotKnowItsPodsYet) {
  // Longer than the stand-in takes from the answer to its list: two lists without an allocation release it.
  options.pod_resources.period = 20ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->stop();

  ListCount lists;
  const EndFirst end_first(*this);
  kubelet = make_ignorant_kubelet(lists);
  ASSERT_TRUE(kubelet->start());
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(lists.become_many());
  EXPECT_TRUE(allocatable(kAudio, 0));
  EXPECT_FALSE(kubelet->allocate(kAudio, {"0000:01:00.1"}, true).ok());

  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  kubelet->remember({.name = "ferry", .resource = {}, .ids = {}});
  ASSERT_TRUE(lists.become_many());
  EXPECT_TRUE(allocatable(kAudio, 0));
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1)) << "its pod is gone";
}

TEST_F(PluginTest, AsksAKubeletUntilItKnowsItsPodsThoughNothingIsAllocated) {
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  ListCount lists;
  const EndFirst end_first(*this);
  kubelet = make_ignorant_kubelet(lists);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(lists.become_many());
  kubelet->remember({.name = "ferry", .resource = {}, .ids = {}});
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  EXPECT_TRUE(allocatable(kAudio, 0));
}

// After a boot a pod keeps what the checkpoint has for it without an Allocate, and the next asks before the
// kubelet is looked at again.
TEST_F(PluginTest, AsksAKubeletThatDoesNotKnowItsPodsYetBeforeEachAllocate) {
  options.pod_resources.period = std::chrono::hours(1);
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  ListCount lists;
  const EndFirst end_first(*this);
  kubelet = make_ignorant_kubelet(lists);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 1));
  ASSERT_TRUE(lists.are(2)) << "at the start, and when the kubelet came";
  EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  const auto answer = kubelet->allocate(kAudio, {"0000:01:00.1"}, true);
  EXPECT_EQ(answer.status, 9) << "FAILED_PRECONDITION";
  EXPECT_THAT(answer.error, HasSubstr("0000:01:00.0 of " + std::string(kGpu) + " is allocated"));
}

TEST_F(PluginTest, RefusesWhatItCannotAskAKubeletAboutThatDoesNotKnowItsPods) {
  options.pod_resources.period = std::chrono::hours(1);
  options.pod_resources.patience = 200ms;
  std::atomic<bool> hangs = false;
  std::promise<void> leave;
  ListCount lists;
  const EndFirst end_first(*this);
  kubelet = std::make_unique<standin::Kubelet>(
      directory(),
      standin::Options{.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path(),
                       .on_list = [&, left = leave.get_future().share()] {
                         lists.add();
                         if (hangs) left.wait_for(kPatience);
                       }});
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(lists.are(2));
  hangs = true;
  EXPECT_THAT(kubelet->allocate(kGpu, {"0000:01:00.0"}).error,
              HasSubstr("the users of devices are not known: "));
  hangs = false;
  leave.set_value();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool given = false;
  while (!given && std::chrono::steady_clock::now() < end)
    given = kubelet->allocate(kGpu, {"0000:01:00.0"}).ok();
  EXPECT_TRUE(given) << "it answers again";
}

TEST_F(PluginTest, BelievesInTheEndThatNothingIsHeldWhereItIsNoPod) {
  options.pod_resources.period = 1ms;
  options.pod_resources.own_pod = {};
  options.pod_resources.doubt = 50ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  predecessor_gave("0000:01:00.0");
  start_both();
  EXPECT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
}

TEST_F(PluginTest, BelievesAKubeletThatGivesADeviceOutWhereItIsNoPod) {
  options.pod_resources.period = 1ms;
  options.pod_resources.own_pod = {};
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  predecessor_gave("0000:01:00.0");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 0));
  // Its allocations count from the moment in which the plugin saw the kubelet.
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
    return file.is_object() && std::ranges::all_of(file["resources"], [](const auto& resource) {
             return resource["registered"] == true;
           });
  }));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
  kubelet->release({"0000:02:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1));
}

TEST_F(PluginTest, BelievesAKubeletThatNeverListsItsPodOnlyWhereItListsADevice) {
  options.pod_resources.period = 1ms;
  options.pod_resources.own_pod = "default/of-another-name";
  options.pod_resources.doubt = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  predecessor_gave("0000:01:00.0");
  ListCount lists;
  const EndFirst end_first(*this);
  kubelet = make_ignorant_kubelet(lists);
  kubelet->remember({.name = "static", .resource = {}, .ids = {}});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 0));
  ASSERT_TRUE(lists.become_many());
  EXPECT_TRUE(allocatable(kAudio, 0));
  kubelet->remember({.name = "other", .resource = "example.com/nic", .ids = {"eth1"}});
  EXPECT_TRUE(allocatable(kAudio, 1));
}

TEST_F(PluginTest, EndsWhileAnAllocateWaitsToKnowTheAllocations) {
  std::promise<void> leave;
  serve_pods([left = leave.get_future().share()] { left.wait_for(kPatience); });
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  auto answer = std::async(std::launch::async, [&] { return kubelet->allocate(kGpu, 1); });
  EXPECT_EQ(answer.wait_for(20ms), std::future_status::timeout);
  EXPECT_TRUE(stop());
  EXPECT_FALSE(answer.get().ok());
  leave.set_value();
}

}  // namespace
}  // namespace ferry::plugin
