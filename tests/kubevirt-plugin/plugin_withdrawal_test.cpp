// SPDX-License-Identifier: Apache-2.0
// Tests of the plugin that follows hostd's status.json.
#include <chrono>
#include <fcntl.h>
#include <mutex>
#include <sys/file.h>
#include <thread>

#include <gmock/gmock.h>

#include "api/files.h"
#include "hostfs/locks.h"
#include "kubevirt-plugin/cdi/cdi_files.h"
#include "tests/kubevirt-plugin/plugin_fixture.h"
#include "tests/support/open_files.h"

namespace ferry::plugin {
namespace {

using namespace plugin_test;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

constexpr const char* kPgpu = "nvidia.com/pgpu";

class PluginWithdrawalTest : public plugin_test::Fixture {
 protected:
  void publish(unsigned generation, const std::vector<std::string>& ids) {
    auto list = Json::array();
    for (const std::string& id : ids) list.push_back({{"id", id}, {"reason", "it is wanted elsewhere"}});
    write_state(Json({{"version", 2}, {"generation", generation}, {"unavailable", list}}).dump());
  }
  /// Replaced as hostd does it.
  void write_state(const std::string& text) { EXPECT_TRUE(kernel.write_file(api::kStatusFile, text)); }
  bool follows(unsigned generation) const {
    return advertised_becomes(
        [&](const Json& file) { return file.is_object() && file["state_generation"] == generation; });
  }
  void offer_to_kata() {
    options.rules.kubevirt = false;
    options.rules.kata = true;
    options.pod_resources.period = 20ms;
  }
  /// Of kPgpu, as Kata finds it.
  std::string specification() const {
    return kernel.read_file(std::filesystem::path(kCdiDirectory) / "nvidia.com-pgpu.yaml").value_or("");
  }
  /// Two GPUs are advertised to Kata, and a pod has the one of group 15: specification() then.
  std::string begin_with_one_of_two_given_to_kata() {
    offer_to_kata();
    add_gpu("0000:01:00.0", 15);
    add_gpu("0000:02:00.0", 16);
    start_both();
    EXPECT_TRUE(allocatable(kPgpu, 2));
    std::string advertised = specification();
    EXPECT_TRUE(kubelet->allocate(kPgpu, {"15"}).ok());
    return advertised;
  }
  bool specification_becomes(const testing::Matcher<const std::string&>& desired) const {
    const auto watch = DirectoryWatch::open(kernel.root() / kCdiDirectory);
    EXPECT_TRUE(watch);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!testing::Value(specification(), desired)) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd fd{.fd = watch->fd(), .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || ::poll(&fd, 1, static_cast<int>(left.count())) == 0) return false;
      watch->read();
    }
    return true;
  }
  static std::vector<std::string> listed(const Json& file) {
    std::vector<std::string> ids;
    for (const auto& resource : file["resources"])
      for (const auto& device : resource["devices"]) ids.push_back(device["id"]);
    return ids;
  }
};

// The folder of VFIO's nodes is not there before the first of its modules, which hostd loads.
TEST_F(PluginWithdrawalTest, HearsOfNodesThoughTheirFolderCameLater) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  kernel.remove("dev/vfio");
  options.rescan = 1h;
  publish(1, {});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 0));
  for (const char* node : {"dev/vfio/vfio", "dev/vfio/15"}) kernel.file(node, "");
  publish(2, {"0000:77:00.0"});  // has the host looked at
  ASSERT_TRUE(allocatable(kGpu, 1));
  kernel.file("dev/vfio/16", "");
  EXPECT_TRUE(allocatable(kGpu, 2));
  kernel.remove("dev/vfio");
  ASSERT_TRUE(allocatable(kGpu, 0)) << "the folder goes with its last module";
  for (const char* node : {"dev/vfio/vfio", "dev/vfio/15", "dev/vfio/16"}) kernel.file(node, "");
  kernel.remove("dev/vfio/16");
  publish(3, {"0000:78:00.0"});
  ASSERT_TRUE(allocatable(kGpu, 1));
  kernel.file("dev/vfio/16", "");
  EXPECT_TRUE(allocatable(kGpu, 2));
}

// The scheduler takes a name that no plugin has for a DeviceClass's.
TEST_F(PluginWithdrawalTest, RegistersNoNameThatNeverHadADeviceToGive) {
  options.rules.companions = Companions::places;
  add_gpu("0000:01:00.0", 15);
  kernel.add_function({.address = "0000:01:00.1",
                       .ids = "10de:22ba",
                       .class_code = 0x040300,
                       .group = 15,
                       .driver = "vfio-pci"});
  add_vgpu();
  publish(1, {"0000:01:00.0", kUuid});
  start_both();
  ASSERT_TRUE(follows(1));
  EXPECT_THAT(advertised()["resources"], IsEmpty());
  EXPECT_THAT(kubelet->registrations(), IsEmpty());
  publish(2, {kUuid});
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_EQ(registrations(kVgpu), 0U);
  publish(3, {"0000:01:00.0", kUuid});
  EXPECT_TRUE(allocatable(kGpu, 0)) << "a name that the kubelet knows stays";
}

TEST_F(PluginWithdrawalTest, RegistersANameOfBeforeAgainThoughItHasNoDevice) {
  add_gpu("0000:01:00.0", 15);
  add_vgpu();
  publish(1, {kUuid});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  publish(2, {"0000:01:00.0", kUuid});
  ASSERT_TRUE(follows(2));
  for (unsigned restarts = 1; restarts <= 2; ++restarts) {
    EXPECT_TRUE(stop());
    start();
    ASSERT_TRUE(follows(2));
    EXPECT_TRUE(allocatable(kGpu, 0));
    EXPECT_EQ(registrations(kGpu), 1U + restarts);
    EXPECT_EQ(registrations(kVgpu), 0U);
  }
}

TEST_F(PluginWithdrawalTest, RegistersNoNameForKataThatNeverHadADeviceToGive) {
  offer_to_kata();
  add_gpu("0000:01:00.0", 15);
  publish(1, {"0000:01:00.0"});
  start_both();
  ASSERT_TRUE(follows(1));
  EXPECT_THAT(advertised()["resources"], IsEmpty());
  EXPECT_THAT(kubelet->registrations(), IsEmpty());
  publish(2, {});
  EXPECT_TRUE(allocatable(kPgpu, 1));
}

TEST_F(PluginWithdrawalTest, AdvertisesAllWithoutAStatusFile) {
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
  EXPECT_THAT(listed(advertised()), testing::ElementsAre("0000:02:00.0"));
  EXPECT_EQ(advertised()["not_advertised"][0]["reason"], "unavailable: it is wanted elsewhere");
  EXPECT_TRUE(allocatable(kGpu, 1));
  EXPECT_EQ(kubelet->allocate(kGpu, {"0000:01:00.0"}, true).status, 5) << "NOT_FOUND";

  publish(8, {});
  ASSERT_TRUE(follows(8));
  EXPECT_TRUE(allocatable(kGpu, 2)) << "without any event of the host";
}

TEST_F(PluginWithdrawalTest, AdvertisesNothingAtItsStartThatIsUnavailable) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  publish(7, {"0000:01:00.0"});
  start_both();
  ASSERT_TRUE(follows(7));
  EXPECT_TRUE(allocatable(kGpu, 1));
  for (const auto& call : kubelet->registrations()) EXPECT_EQ(call.error, "");
  EXPECT_FALSE(kubelet->resources().at(kGpu).ever_listed.contains("0000:01:00.0"));
}

TEST_F(PluginWithdrawalTest, KeepsWhatAPodHasUntilThePodEnds) {
  options.pod_resources.period = 20ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, 1).ok());
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  const auto device = advertised()["resources"][0]["devices"][0];
  EXPECT_EQ(device["allocated"], true);
  EXPECT_EQ(device["healthy"], false);
  EXPECT_THAT(std::string(device["reason"]), HasSubstr("unavailable"));
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(advertised_becomes([](const Json& file) { return listed(file).empty(); }));
}

// The kubelet lists a pod a second or two after its Allocate: until then the file is the only note of it.
TEST_F(PluginWithdrawalTest, RemembersOverARestartWhatItHasJustAllocated) {
  kubelet = std::make_unique<standin::Kubelet>(directory(), standin::Options{});
  kernel.directory("elsewhere");
  standin::Kubelet forgetful(kernel.root() / "elsewhere",
                             {.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path()});
  ASSERT_TRUE(forgetful.start());
  options.pod_resources.settling = 30s;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, 1).ok());
  EXPECT_TRUE(stop());
  EXPECT_EQ(advertised()["resources"][0]["devices"][0]["allocated"], true) << "though it ended at once";

  start();
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  EXPECT_EQ(advertised()["resources"][0]["devices"][0]["allocated"], true);
}

TEST_F(PluginWithdrawalTest, ListsWhatAPodHasThoughItIsUnavailableAtTheStart) {
  options.pod_resources.period = 20ms;
  add_gpu("0000:01:00.0", 15);
  publish(7, {"0000:01:00.0"});
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  start_both();
  ASSERT_TRUE(follows(7));
  const auto device = advertised()["resources"][0]["devices"][0];
  EXPECT_EQ(device["id"], "0000:01:00.0");
  EXPECT_EQ(device["iommu_group"], 15);
  EXPECT_EQ(device["allocated"], true);
  EXPECT_EQ(device["healthy"], false);
  EXPECT_TRUE(allocatable(kGpu, 0)) << "its name is registered as soon as the pod is known";
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(advertised_becomes([](const Json& file) { return listed(file).empty(); }))
      << "and asks about it";
}

TEST_F(PluginWithdrawalTest, SaysNothingOfWithdrawalsBeforeItKnowsWhoHoldsWhat) {
  std::promise<void> asked;
  std::promise<void> leave;
  std::once_flag first;
  const std::shared_future<void> left = leave.get_future().share();
  const EndFirst end_first(*this);
  serve_pods([&, left] {
    std::call_once(first, [&] { asked.set_value(); });
    left.wait_for(kPatience);
  });
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  publish(7, {"0000:01:00.0"});
  start_both();
  ASSERT_EQ(asked.get_future().wait_for(kPatience), std::future_status::ready);
  ASSERT_TRUE(advertised_becomes([](const Json& file) {
    return file.is_object() && !file["resources"].empty() && file["resources"][0]["registered"] == true;
  }));
  EXPECT_EQ(advertised()["state_generation"], 0);
  leave.set_value();
  EXPECT_TRUE(follows(7));
  EXPECT_THAT(listed(advertised()), testing::UnorderedElementsAre("0000:01:00.0", "0000:02:00.0"));
}

TEST_F(PluginWithdrawalTest, WithdrawsAVgpu) {
  add_vgpu();
  start_both();
  ASSERT_TRUE(allocatable(kVgpu, 1));
  publish(7, {kUuid});
  ASSERT_TRUE(follows(7));
  EXPECT_THAT(listed(advertised()), IsEmpty());
}

// A claim makes a vGPU before hostd can list it.
TEST_F(PluginWithdrawalTest, WithdrawsTheVgpusOfAWithdrawnGpu) {
  add_vgpu();
  start_both();
  ASSERT_TRUE(allocatable(kVgpu, 1));
  publish(7, {"0000:81:00.0"});
  ASSERT_TRUE(follows(7));
  EXPECT_THAT(listed(advertised()), IsEmpty());
  EXPECT_EQ(advertised()["not_advertised"][0]["id"], kUuid);
  EXPECT_EQ(advertised()["not_advertised"][0]["reason"], "unavailable: it is wanted elsewhere");
  publish(8, {});
  ASSERT_TRUE(follows(8));
  EXPECT_TRUE(allocatable(kVgpu, 1));
}

TEST_F(PluginWithdrawalTest, KnowsKatasDevicesByWhatSysfsCallsThem) {
  options.rules.kubevirt = false;
  options.rules.kata = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(advertised_becomes([](const Json& file) { return file.is_object() && !listed(file).empty(); }));
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  EXPECT_THAT(listed(advertised()), IsEmpty());
}

TEST_F(PluginWithdrawalTest, KeepsWhatKataLooksUpUntilThePodEnds) {
  const std::string before = begin_with_one_of_two_given_to_kata();
  publish(7, {"0000:01:00.0", "0000:02:00.0"});
  ASSERT_TRUE(specification_becomes(Not(HasSubstr("\"16\""))));
  EXPECT_THAT(before, HasSubstr(specification().substr(specification().find("- name"))))
      << "with the nodes that it had";
  kubelet->release({"15"});
  EXPECT_TRUE(specification_becomes(IsEmpty()));
}

TEST_F(PluginWithdrawalTest, KeepsWhatKataLooksUpOverARestart) {
  kubelet = std::make_unique<standin::Kubelet>(directory(), standin::Options{});
  kernel.directory("elsewhere");
  standin::Kubelet forgetful(kernel.root() / "elsewhere",
                             {.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path()});
  ASSERT_TRUE(forgetful.start());
  offer_to_kata();
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kPgpu, 2));
  ASSERT_TRUE(kubelet->allocate(kPgpu, {"15"}).ok());
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  EXPECT_TRUE(stop());
  start();
  publish(8, {"0000:01:00.0", "0000:02:00.0"});
  ASSERT_TRUE(follows(8));
  ASSERT_TRUE(specification_becomes(Not(HasSubstr("\"16\""))));
  EXPECT_THAT(specification(), HasSubstr("\"15\""));
  forgetful.remember({.name = "ferry", .resource = {}, .ids = {}});
  EXPECT_TRUE(specification_becomes(IsEmpty())) << "its pod is gone";
}

// Kata asks the kubelet what a pod has, and gets the name under which it was allocated.
TEST_F(PluginWithdrawalTest, KeepsWhatKataLooksUpUnderTheNameOfBefore) {
  const std::string before = begin_with_one_of_two_given_to_kata();
  EXPECT_TRUE(stop());
  options.rules.kata_names.gpu_alias = "gpu-for-kata";
  start();
  ASSERT_TRUE(allocatable("nvidia.com/gpu-for-kata", 1)) << "one is held";
  EXPECT_EQ(specification(), before);
  kubelet->release({"15"});
  EXPECT_TRUE(specification_becomes(IsEmpty()));
  EXPECT_TRUE(allocatable("nvidia.com/gpu-for-kata", 2));
}

TEST_F(PluginWithdrawalTest, RemovesKatasFilesWhenKataHasNothingAndNoPodHasADevice) {
  const std::string before = begin_with_one_of_two_given_to_kata();
  EXPECT_TRUE(stop());
  options.rules.kata = false;
  options.rules.kubevirt = true;
  start();
  ASSERT_TRUE(allocatable(kGpu, 1)) << "one is held";
  EXPECT_EQ(specification(), before);
  kubelet->release({"15"});
  EXPECT_TRUE(specification_becomes(IsEmpty()));
  EXPECT_TRUE(allocatable(kGpu, 2));
}

TEST_F(PluginWithdrawalTest, GoesOnByTheLastFileItCouldRead) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  write_state("{\"version\": 2,");
  add_gpu("0000:02:00.0", 16);
  ASSERT_TRUE(advertised_becomes([](const Json& file) { return !listed(file).empty(); }));
  EXPECT_THAT(listed(advertised()), testing::ElementsAre("0000:02:00.0"));
  EXPECT_EQ(advertised()["state_generation"], 7);
  publish(8, {"0000:02:00.0"});
  ASSERT_TRUE(follows(8));
  EXPECT_THAT(listed(advertised()), testing::ElementsAre("0000:01:00.0"));
}

// An answer says that the device is off the list, and not that a file was read.
TEST_F(PluginWithdrawalTest, AnswersNothingAfterAScanThatFailed) {
  add_gpu("0000:01:00.0", 15);
  std::atomic<bool> fails = false;
  std::promise<void> failed;
  options.read_vgpus = [&](const HostFs& host, const vfio::Inventory& inventory,
                           const vfio::AcceleratorRules& rules) -> Result<mdev::VgpuInventory> {
    if (!fails.exchange(false)) return mdev::scan_vgpus(host, inventory, rules);
    failed.set_value();
    return fail(Errc::failed, "not now");
  };
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  fails = true;
  publish(7, {"0000:01:00.0"});
  ASSERT_EQ(failed.get_future().wait_for(kPatience), std::future_status::ready);
  publish(8, {"0000:01:00.0"});
  ASSERT_TRUE(follows(8));
  EXPECT_THAT(listed(advertised()), IsEmpty());
}

// hostd says what it withdraws, and then makes it: whoever sees it finds it in the file.
TEST_F(PluginWithdrawalTest, AdvertisesNothingForAMomentThatIsBeingMade) {
  add_gpu("0000:01:00.0", 15);
  std::atomic<bool> makes = false;
  options.read_vgpus = [&](const HostFs& host, const vfio::Inventory& inventory,
                           const vfio::AcceleratorRules& rules) {
    if (inventory.find(*vfio::PciAddress::parse("0000:02:00.0")) != nullptr && makes.exchange(false))
      publish(7, {"0000:02:00.0"});
    return mdev::scan_vgpus(host, inventory, rules);
  };
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  makes = true;
  add_gpu("0000:02:00.0", 16);
  ASSERT_TRUE(follows(7));
  EXPECT_TRUE(allocatable(kGpu, 1));
  EXPECT_FALSE(kubelet->resources().at(kGpu).ever_listed.contains("0000:02:00.0"));
}

TEST_F(PluginWithdrawalTest, SaysThatOnlyTheCountHasChanged) {
  add_gpu("0000:01:00.0", 15);
  publish(7, {"0000:01:00.0"});
  start_both();
  ASSERT_TRUE(follows(7));
  publish(9, {"0000:01:00.0"});
  EXPECT_TRUE(follows(9));
}

// A rolling update that starts the new one first: an answer of one must not pass for both.
TEST_F(PluginWithdrawalTest, OneOfTwoAdvertisesAndAnswersUntilItEnds) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  std::atomic<bool> at_work = false;
  PluginOptions next = options;
  next.read_vgpus = [&](const HostFs& host, const vfio::Inventory& inventory,
                        const vfio::AcceleratorRules& rules) {
    at_work = true;
    return mdev::scan_vgpus(host, inventory, rules);
  };
  const std::jthread successor(
      [&](const std::stop_token& token) { EXPECT_TRUE(run_plugin(kernel, next, token)); });
  ASSERT_TRUE(test::becomes_open(kernel.root() / "run/ferry/plugin/advertised.lock", 2)) << "it has tried";
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
  EXPECT_FALSE(at_work);
  EXPECT_EQ(registrations(kGpu), 1U);

  EXPECT_TRUE(stop());
  ASSERT_TRUE(eventually([&](const auto&) { return registrations(kGpu) == 2; }));
  publish(8, {"0000:02:00.0"});
  ASSERT_TRUE(follows(8));
  EXPECT_TRUE(allocatable(kGpu, 1)) << "the other one is a pod's";
  EXPECT_THAT(listed(advertised()), testing::ElementsAre("0000:01:00.0", "0000:02:00.0"));
}

TEST_F(PluginWithdrawalTest, IsThereAgainWhenTheFolderIsRemoved) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  publish(7, {"0000:01:00.0"});
  ASSERT_TRUE(follows(7));
  kernel.remove("run/ferry");
  ASSERT_TRUE(follows(0)) << "nothing is withdrawn, and the file is there again";
  publish(8, {"0000:02:00.0"});
  ASSERT_TRUE(follows(8)) << "it hears hostd again";
  EXPECT_THAT(listed(advertised()), testing::ElementsAre("0000:01:00.0"));
  EXPECT_TRUE(is_present(kernel, api::kPluginLiveness).value_or(false));
  EXPECT_FALSE(InstanceLock::claim(kernel, "run/ferry/plugin/advertised.lock"));
}

TEST_F(PluginWithdrawalTest, WritesItsFileThoughThatFailedAtFirst) {
  options.after_failure = 10ms;
  kernel.directory(options.advertised_file);
  add_gpu("0000:01:00.0", 15);
  const auto watch = DirectoryWatch::open(kernel.root() / "run/ferry/plugin");
  ASSERT_TRUE(watch);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  // More often than there is news at a start.
  for (int tries = 0; tries < 30;) {
    pollfd fd{.fd = watch->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&fd, 1, 20'000), 1) << "it does not try again";
    for (const auto& event : watch->read()) tries += event.kind == DirectoryEvent::Kind::vanished ? 1 : 0;
  }
  std::filesystem::remove(kernel.root() / options.advertised_file);
  EXPECT_TRUE(follows(0));
}

TEST_F(PluginWithdrawalTest, ServesThoughAnotherProcessLocksItsFile) {
  options.after_failure = 10ms;
  kernel.file(api::kPluginLiveness, "");
  Result<UniqueFd> stranger = kernel.open(api::kPluginLiveness, O_RDONLY);
  ASSERT_TRUE(stranger);
  ASSERT_EQ(::flock(stranger->get(), LOCK_EX | LOCK_NB), 0);
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  stranger->reset();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!is_present(kernel, api::kPluginLiveness).value_or(false) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(is_present(kernel, api::kPluginLiveness).value_or(false));
}

TEST_F(PluginWithdrawalTest, ShowsThatItRuns) {
  EXPECT_FALSE(is_present(kernel, api::kPluginLiveness).value_or(true));
  start_both();
  ASSERT_TRUE(follows(0));
  EXPECT_TRUE(is_present(kernel, api::kPluginLiveness).value_or(false));
  EXPECT_TRUE(stop());
  EXPECT_FALSE(is_present(kernel, api::kPluginLiveness).value_or(true));
}

}  // namespace
}  // namespace ferry::plugin
