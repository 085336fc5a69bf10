// SPDX-License-Identifier: Apache-2.0
#include "host/status_file.h"

#include <functional>
#include <ostream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/must.h"

namespace ferry::host {
namespace {

using nlohmann::json;
using test::must;
using testing::HasSubstr;

HostStatus some_state() {
  const std::vector<ReportedUser> by_hand = {{.kind = "virtual_machine", .name = "by-hand", .pid = 7}};
  AcceleratorStatus gpu{.address = must(vfio::PciAddress::parse("0000:17:00.0")),
                        .id = "10de:2330",
                        .subsystem = "10de:16c1",
                        .pci_class = "0302",
                        .model = "GH100 [H100 SXM5 80GB]",
                        .iommu_group = 42,
                        .driver = "vfio-pci",
                        .mode = policy::Mode::passthrough,
                        .desired = policy::Mode::vgpu,
                        .state = GpuState::blocked,
                        .reason = "in use",
                        .hint = "stop the VM first",
                        .users = {{"virtual_machine", "tenant", 412, "uid-1"},
                                  {"pod", "a/b", {}},
                                  {"pod", "(given)", {}, "", true}},
                        .only_in_use = true,
                        .vgpus = {{"0000:17:00.4", "H100-4C", {}},
                                  {"0000:17:00.5", "H100-4C", by_hand},
                                  {"0000:17:00.6", "H100-4C", std::vector<ReportedUser>()}},
                        .more_vgpus = {{"H100-4C", 19}, {"H100-8C", 0}}};
  return {.generation = 17,
          .pid = 4711,
          .boot_id = "b",
          .desired = DesiredMark{12, "halves", "a label"},
          .phase = NodePhase::blocked,
          .accelerators = {gpu, {}},
          .withdraw = {{"0000:17:00.0", "it goes"}},
          .error = StatusError{"what", "hint"},
          .features = NodeFeatures{.iommu = "on",
                                   .largest_group = 2,
                                   .machine = "R 1",
                                   .vgpu_types = {{"H100-4C", 40}, {"H100-8C", 20}}},
          .standby = "another serves"};
}

TEST(StateFile, ReadsBackAsItself) {
  EXPECT_EQ(must(read_status_file(status_file_text(some_state()))), some_state());
  HostStatus least;
  EXPECT_EQ(must(read_status_file(status_file_text(least))), least);
  least.features = NodeFeatures{.iommu = "off"};
  EXPECT_EQ(must(read_status_file(status_file_text(least))), least);
  for (const auto phase :
       {NodePhase::idle, NodePhase::ready, NodePhase::applying, NodePhase::blocked, NodePhase::failed})
    EXPECT_EQ(parse_node_phase(text(phase)), phase);
}

TEST(StateFile, IsWhatThePluginReads) {
  const auto withdrawals = must(read_withdrawals(status_file_text(some_state())));
  EXPECT_EQ(withdrawals.generation, 17U);
  EXPECT_EQ(withdrawals.devices, some_state().withdraw);
  EXPECT_EQ(withdrawals.standby, "another serves");
}

TEST(StateFile, SaysNullForWhatIsNotThere) {
  const auto file = json::parse(status_file_text({}));
  EXPECT_TRUE(file["desired"].is_null());
  EXPECT_TRUE(file["error"].is_null());
  EXPECT_TRUE(file["features"].is_null());
  EXPECT_TRUE(file["standby"].is_null());
  const auto gpu = json::parse(status_file_text(some_state()))["accelerators"][1];
  EXPECT_TRUE(gpu["driver"].is_null());
  EXPECT_TRUE(gpu["desired"].is_null());
}

TEST(StateFile, PassesOverKeysThatCameLater) {
  auto file = json::parse(status_file_text(some_state()));
  file["newer"] = 1;
  file["accelerators"][0]["newer"] = {1, 2};
  EXPECT_EQ(must(read_status_file(file.dump())), some_state());
}

TEST(StateFile, ReadsWhatWasWrittenBeforeThereWereSomeKeys) {
  auto file = json::parse(status_file_text(some_state()));
  auto& gpu = file["accelerators"][0];
  EXPECT_EQ(gpu["users"][0]["pod_uid"], "uid-1");
  EXPECT_TRUE(gpu["users"][1]["pod_uid"].is_null());
  EXPECT_TRUE(gpu["vgpus"][0]["users"].is_null());
  EXPECT_EQ(gpu["vgpus"][1]["users"][0]["name"], "by-hand");
  EXPECT_EQ(gpu["vgpus"][2]["users"], json::array());
  for (auto& vgpu : gpu["vgpus"]) vgpu.erase("users");
  gpu.erase("only_in_use");
  gpu.erase("subsystem");
  gpu.erase("class");
  file.erase("features");
  file.erase("standby");
  gpu["users"][0].erase("pod_uid");
  EXPECT_EQ(gpu["users"][1]["by_the_plugin"], false);
  EXPECT_EQ(gpu["users"][2]["by_the_plugin"], true);
  gpu["users"][2].erase("by_the_plugin");
  auto expected = some_state();
  expected.accelerators[0].only_in_use = false;
  expected.accelerators[0].subsystem.clear();
  for (VgpuStatus& vgpu : expected.accelerators[0].vgpus) vgpu.users.reset();
  expected.accelerators[0].pci_class.clear();
  expected.features.reset();
  expected.standby.clear();
  expected.accelerators[0].users[0].pod_uid.clear();
  expected.accelerators[0].users[2].by_the_plugin = false;
  EXPECT_EQ(must(read_status_file(file.dump())), expected);
}

TEST(StateFile, KeepsItsFormWhateverAProcessIsCalled) {
  HostStatus state = some_state();
  state.accelerators[0].users[0].name = "a\xff\"\n";
  EXPECT_THAT(must(read_status_file(status_file_text(state))).accelerators[0].users[0].name,
              HasSubstr("\"\n"));
}

struct Fault {
  const char* name;
  std::function<void(json&)> make;
  const char* message;
};
void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}
class BadStateFile : public testing::TestWithParam<Fault> {};

TEST_P(BadStateFile, IsRefusedWithTheKey) {
  auto file = json::parse(status_file_text(some_state()));
  GetParam().make(file);
  const auto read = read_status_file(file.dump());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::malformed_host);
  EXPECT_EQ(read.error().message, std::string("status.json: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BadStateFile,
    testing::Values(
        Fault{"list", [](json& f) { f = json::array(); }, ": expected an object"},
        Fault{"version", [](json& f) { f["version"] = 1; }, "version: expected 2"},
        Fault{"no pid", [](json& f) { f.erase("pid"); }, "pid: the key is missing"},
        Fault{"pid", [](json& f) { f["pid"] = 5000000000; }, "pid: expected a number from 0 on"},
        Fault{"generation", [](json& f) { f["generation"] = "1"; },
              "generation: expected a number from 0 on"},
        Fault{"phase", [](json& f) { f["phase"] = "done"; }, "phase: 'done' is none of its words"},
        Fault{"boot", [](json& f) { f["boot_id"] = 5; }, "boot_id: expected a text"},
        Fault{"desired", [](json& f) { f["desired"] = 5; }, "desired.: expected an object"},
        Fault{"policy", [](json& f) { f["desired"].erase("policy"); }, "desired.policy: the key is missing"},
        Fault{"gpus", [](json& f) { f["accelerators"] = 5; }, "accelerators: expected a list"},
        Fault{"address", [](json& f) { f["accelerators"][1]["address"] = 5; },
              "accelerators[1].address: expected a text"},
        Fault{"mode", [](json& f) { f["accelerators"][0]["mode"] = "free"; },
              "accelerators[0].mode: 'free' is none of its words"},
        Fault{"state", [](json& f) { f["accelerators"][0]["state"] = ""; },
              "accelerators[0].state: '' is none of its words"},
        Fault{"holder", [](json& f) { f["accelerators"][0]["users"][0] = "vm"; },
              "accelerators[0].users[0].: expected an object"},
        Fault{"pod", [](json& f) { f["accelerators"][0]["users"][0]["pod_uid"] = 5; },
              "accelerators[0].users[0].pod_uid: expected a text"},
        Fault{"given", [](json& f) { f["accelerators"][0]["users"][0]["by_the_plugin"] = "yes"; },
              "accelerators[0].users[0].by_the_plugin: expected true or false"},
        Fault{"only", [](json& f) { f["accelerators"][0]["only_in_use"] = "yes"; },
              "accelerators[0].only_in_use: expected true or false"},
        Fault{"group", [](json& f) { f["accelerators"][0]["iommu_group"] = -1; },
              "accelerators[0].iommu_group: expected a number from 0 on"},
        Fault{"unavailable", [](json& f) { f["unavailable"][0].erase("id"); },
              "unavailable[0].id: the key is missing"},
        Fault{"subsystem", [](json& f) { f["accelerators"][0]["subsystem"] = 5; },
              "accelerators[0].subsystem: expected a text"},
        Fault{"class", [](json& f) { f["accelerators"][0]["class"] = 0x302; },
              "accelerators[0].class: expected a text"},
        Fault{"features", [](json& f) { f["features"] = 5; }, "features.: expected an object"},
        Fault{"iommu", [](json& f) { f["features"]["iommu"] = true; }, "features.iommu: expected a text"},
        Fault{"largest", [](json& f) { f["features"]["largest_group"] = "2"; },
              "features.largest_group: expected a number from 0 on"},
        Fault{"machine", [](json& f) { f["features"].erase("machine"); },
              "features.machine: the key is missing"},
        Fault{"types", [](json& f) { f["features"]["vgpu_types"] = json::array(); },
              "features.vgpu_types.: expected an object"},
        Fault{"type", [](json& f) { f["features"]["vgpu_types"]["H100-4C"] = -1; },
              "features.vgpu_types.H100-4C: expected a number from 0 on"},
        Fault{"error", [](json& f) { f["error"].erase("hint"); }, "error.hint: the key is missing"}));

TEST(StateFile, IsNotWhatIsNoJson) {
  for (const char* text : {"", "{", "nonsense"})
    EXPECT_EQ(read_status_file(text).error().message, "status.json: not JSON") << text;
}

}  // namespace
}  // namespace ferry::host
