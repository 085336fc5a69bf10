// SPDX-License-Identifier: Apache-2.0
#include "host/usage/advertised_use_probe.h"

#include <ctime>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>

#include "api/files.h"
#include "host/usage/use_probes.h"
#include "hostfs/locks.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGpu = "0000:01:00.0";    // group 15
constexpr const char* kAudio = "0000:01:00.1";  // group 15
constexpr const char* kOther = "0000:02:00.0";  // group 16
constexpr const char* kUuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";

std::string advertised(const std::string& devices) {
  return R"({"version": 2, "state_generation": 5, "resources": [{"name": "nvidia.com/GPU", "devices": [)" +
         devices + "]}]}";
}
std::string device(const std::string& id, unsigned group, bool allocated) {
  return R"({"id": ")" + id + R"(", "iommu_group": )" + std::to_string(group) + R"(, "allocated": )" +
         (allocated ? "true}" : "false}");
}

class AdvertisedUseProbeTest : public testing::Test {
 protected:
  AdvertisedUseProbeTest() {
    kernel_.add_function({.address = kGpu, .group = 15});
    kernel_.add_function({.address = kAudio, .ids = "10de:22ba", .group = 15});
    kernel_.add_function({.address = kOther, .group = 16});
  }
  void offer(const std::string& text) { kernel_.file(api::kAdvertisedFile, text); }
  void grow_old() const { be_written_at(1'000'000); }
  void be_written_at(time_t seconds) const {
    const timespec then{.tv_sec = seconds, .tv_nsec = 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, (kernel_.root() / api::kAdvertisedFile).c_str(), times, 0), 0);
  }
  static std::vector<vfio::UseQuestion> questions() {
    std::vector<vfio::UseQuestion> out;
    for (const char* one : {kGpu, kAudio, kOther, kUuid}) out.push_back({.device = one, .nodes = {}});
    return out;
  }
  static std::vector<std::string> held(const vfio::UseReport& report) {
    std::vector<std::string> out;
    for (const auto& [name, users] : report.users)
      if (!users.empty()) out.push_back(name);
    return out;
  }
  vfio::UseReport look(Result<std::vector<vfio::PodDevice>> pods) {
    return must(allocated_users(
        kernel_, [&] { return pods; }, questions()));
  }
  static std::vector<vfio::PodDevice> nobody() { return {}; }
  test::FakeKernel kernel_;
};

TEST_F(AdvertisedUseProbeTest, FindsNobodyWithoutAPlugin) {
  EXPECT_THAT(held(look(nobody())), IsEmpty());
}

TEST_F(AdvertisedUseProbeTest, FindsWhatIsAllocatedWithItsGroup) {
  offer(advertised(device(kGpu, 15, true) + "," + device(kOther, 16, false)));
  const auto report = look(nobody());
  EXPECT_THAT(held(report), ElementsAre(kGpu, kAudio));
  EXPECT_EQ(report.of(kGpu)[0].text(),
            "pod (not listed yet) holds nvidia.com/GPU (allocated by the kubelet)");
}

TEST_F(AdvertisedUseProbeTest, NamesThePodThatThePluginNames) {
  offer(advertised(R"({"id": "0000:01:00.0", "iommu_group": 15, "allocated": true, "pod": "studio/render-a"},
                   {"id": "0000:02:00.0", "iommu_group": 16, "allocated": true, "pod": null})"));
  const auto report = look(nobody());
  EXPECT_EQ(report.of(kGpu)[0].text(), "pod studio/render-a holds nvidia.com/GPU (allocated by the kubelet)");
  EXPECT_EQ(report.of(kOther)[0].name, "(not listed yet)");
}

TEST_F(AdvertisedUseProbeTest, KnowsKatasNumbersAndVgpus) {
  offer(advertised(device("16", 16, true) + "," + device(kUuid, 211, true)));
  EXPECT_THAT(held(look(nobody())), ElementsAre(kOther, kUuid));
}

TEST_F(AdvertisedUseProbeTest, TakesNoPlaceForADevice) {
  offer(R"({"version": 2, "state_generation": 5, "resources": [{"name": "nvidia.com/AUDIO", "devices": [],
            "places": [{"id": "place-0000:01:00.1", "healthy": true, "reason": ""}]}]})");
  EXPECT_THAT(held(look(nobody())), IsEmpty());
}

TEST_F(AdvertisedUseProbeTest, LeavesThoseToTheKubeletThatItLists) {
  offer(advertised(device(kGpu, 15, true)));
  EXPECT_THAT(held(look(std::vector<vfio::PodDevice>{{.name_space = "a",
                                                      .pod = "b",
                                                      .container = "c",
                                                      .resource = "nvidia.com/GPU",
                                                      .ids = {kGpu},
                                                      .numa_nodes = {}}})),
              IsEmpty());
}

TEST_F(AdvertisedUseProbeTest, BelievesTheKubeletOnceItMustKnow) {
  offer(advertised(device(kGpu, 15, true)));
  grow_old();
  EXPECT_THAT(held(look(nobody())), IsEmpty()) << "the plugin learns late of a release";
  EXPECT_THAT(held(look(fail(Errc::unreachable, "no kubelet"))), ElementsAre(kGpu, kAudio))
      << "and where the kubelet cannot be asked it is all there is";
}

TEST_F(AdvertisedUseProbeTest, BelievesTheKubeletThoughTheClockWasSetBack) {
  offer(advertised(device(kGpu, 15, true)));
  be_written_at(::time(nullptr) + 10);
  EXPECT_THAT(held(look(nobody())), ElementsAre(kGpu, kAudio)) << "by a little, as clocks are";
  be_written_at(::time(nullptr) + 3600);
  EXPECT_THAT(held(look(nobody())), IsEmpty());
}

TEST_F(AdvertisedUseProbeTest, SaysThatItCannotRead) {
  offer("{");
  const auto report = look(nobody());
  EXPECT_THAT(held(report), IsEmpty());
  EXPECT_THAT(report.unknown, ElementsAre(HasSubstr("advertised.json")));
}

TEST_F(AdvertisedUseProbeTest, FollowsNoLinkOfThePlugins) {
  kernel_.file("dev/watchdog", advertised(device(kGpu, 15, true)));
  kernel_.link(api::kAdvertisedFile, "../../../dev/watchdog");
  EXPECT_THAT(look(nobody()).unknown, ElementsAre(HasSubstr("it is a symbolic link")));
}

/// Says of one device that it is held.
class OneUser final : public vfio::UseProbe {
 public:
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> /*questions*/) override {
    vfio::UseReport report;
    report.users[kOther] = {{.name = "x", .pid = 7, .what = "y", .pod_uid = {}}};
    return report;
  }
};

TEST_F(AdvertisedUseProbeTest, StillAdvertisedIsInUseBesideAllOthers) {
  offer(advertised(device(kGpu, 15, false)));
  OneUser inner;
  StillAdvertisedProbe probe(kernel_, inner, {{kUuid}, 6});
  EXPECT_THAT(held(must(probe.look(questions()))), ElementsAre(kOther)) << "no plugin runs";
  const auto plugin = must(LivenessLock::announce(kernel_, api::kPluginLiveness));
  EXPECT_THAT(held(must(probe.look(questions()))), ElementsAre(kGpu, kAudio, kOther, kUuid));
  StillAdvertisedProbe answered(kernel_, inner, {{kUuid}, 5});
  EXPECT_THAT(held(must(answered.look(questions()))), ElementsAre(kGpu, kAudio, kOther));
}

/// The first group is on vfio, the other GPU on no driver, and there is a vGPU.
class UnknownList : public AdvertisedUseProbeTest {
 protected:
  UnknownList() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    for (const char* address : {kGpu, kAudio}) {
      kernel_.remove_function(address);
      kernel_.add_function({.address = address, .group = 15, .driver = "vfio-pci"});
    }
  }
  static std::vector<std::string> blind(const vfio::UseReport& report) {
    std::vector<std::string> out;
    for (const auto& [name, why] : report.unseen) out.push_back(name);
    return out;
  }
};

TEST_F(UnknownList, BlindsToEachDeviceThatARunningPluginMayList) {
  OneUser inner;
  StillAdvertisedProbe of_hostd(kernel_, inner, {{kOther}, 6});
  RunningPluginProbe of_people(kernel_, std::make_unique<OneUser>());
  const std::map<std::string, std::function<void()>> lists = {
      {"gone", [&] { kernel_.remove(api::kAdvertisedFile); }},
      {"empty", [&] { offer(""); }},
      {"torn", [&] { offer(advertised(device(kGpu, 15, false)).substr(0, 40)); }},
      {"of another version", [&] { offer(R"({"version": 9})"); }}};
  offer("{");
  EXPECT_THAT(blind(must(of_people.look(questions()))), IsEmpty()) << "no plugin runs";
  const auto plugin = must(LivenessLock::announce(kernel_, api::kPluginLiveness));
  for (const auto& [name, make] : lists) {
    SCOPED_TRACE(name);
    make();
    const auto report = must(of_people.look(questions()));
    EXPECT_THAT(blind(report), ElementsAre(kGpu, kAudio, kUuid));
    EXPECT_THAT(std::string(report.blind_to(kGpu)),
                testing::AllOf(HasSubstr("the device plugin runs"), HasSubstr("advertised.json")));
    EXPECT_FALSE(report.blind.empty()) << "a vGPU that is deleted cannot be put back";
    EXPECT_THAT(blind(must(of_hostd.look(questions()))), ElementsAre(kGpu, kAudio, kOther, kUuid));
    const std::vector<vfio::UseQuestion> bound = {{.device = kOther, .nodes = {}}};
    EXPECT_EQ(must(of_people.look(bound)).blind_to(kOther), "") << "what the host has, no list has";
  }
  offer(advertised(device(kGpu, 15, false)));
  const auto report = must(of_people.look(questions()));
  EXPECT_THAT(blind(report), IsEmpty());
  EXPECT_THAT(held(report), ElementsAre(kOther)) << "a device that is listed may be unbound by a person";
}

}  // namespace
}  // namespace ferry::host
