// SPDX-License-Identifier: Apache-2.0
#include "host/state_file.h"

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

NodeState some_state() {
  const std::vector<StateHolder> by_hand = {{.kind = "virtual_machine", .name = "by-hand", .pid = 7}};
  AcceleratorState gpu{.address = must(vfio::PciAddress::parse("0000:17:00.0")),
                       .id = "10de:2330",
                       .subsystem = "10de:16c1",
                       .pci_class = "0302",
                       .model = "GH100 [H100 SXM5 80GB]",
                       .iommu_group = 42,
                       .driver = "vfio-pci",
                       .mode = policy::Mode::passthrough,
                       .wanted = policy::Mode::vgpu,
                       .state = Standing::refused,
                       .reason = "in use",
                       .hint = "stop the VM first",
                       .holders = {{"virtual_machine", "tenant", 412, "uid-1"},
                                   {"pod", "a/b", {}},
                                   {"pod", "(given)", {}, "", true}},
                       .only_in_use = true,
                       .vgpus = {{"0000:17:00.4", "H100-4C", {}},
                                 {"0000:17:00.5", "H100-4C", by_hand},
                                 {"0000:17:00.6", "H100-4C", std::vector<StateHolder>()}},
                       .more_vgpus = {{"H100-4C", 19}, {"H100-8C", 0}}};
  return {.generation = 17,
          .pid = 4711,
          .boot_id = "b",
          .wanted = WantedMark{12, "halves", "a label"},
          .phase = NodePhase::refused,
          .accelerators = {gpu, {}},
          .withdraw = {{"0000:17:00.0", "it goes"}},
          .error = StateError{"what", "hint"},
          .features = NodeFeatures{.iommu = "on",
                                   .largest_group = 2,
                                   .machine = "R 1",
                                   .vgpu_types = {{"H100-4C", 40}, {"H100-8C", 20}}},
          .stand_back = "another serves"};
}

TEST(StateFile, ReadsBackAsItself) {
  EXPECT_EQ(must(read_state_file(state_file_text(some_state()))), some_state());
  NodeState least;
  EXPECT_EQ(must(read_state_file(state_file_text(least))), least);
  least.features = NodeFeatures{.iommu = "off"};
  EXPECT_EQ(must(read_state_file(state_file_text(least))), least);
  for (const auto phase : {NodePhase::nothing_wanted, NodePhase::as_wanted, NodePhase::withdrawing,
                           NodePhase::changing, NodePhase::refused, NodePhase::failed})
    EXPECT_EQ(parse_node_phase(text(phase)), phase);
}

TEST(StateFile, IsWhatThePluginReads) {
  const auto withdrawals = must(read_withdrawals(state_file_text(some_state())));
  EXPECT_EQ(withdrawals.generation, 17U);
  EXPECT_EQ(withdrawals.devices, some_state().withdraw);
  EXPECT_EQ(withdrawals.stand_back, "another serves");
}

TEST(StateFile, SaysNullForWhatIsNotThere) {
  const auto file = json::parse(state_file_text({}));
  EXPECT_TRUE(file["wanted"].is_null());
  EXPECT_TRUE(file["error"].is_null());
  EXPECT_TRUE(file["features"].is_null());
  EXPECT_TRUE(file["stand_back"].is_null());
  const auto gpu = json::parse(state_file_text(some_state()))["accelerators"][1];
  EXPECT_TRUE(gpu["driver"].is_null());
  EXPECT_TRUE(gpu["wanted"].is_null());
}

TEST(StateFile, PassesOverKeysThatCameLater) {
  auto file = json::parse(state_file_text(some_state()));
  file["newer"] = 1;
  file["accelerators"][0]["newer"] = {1, 2};
  EXPECT_EQ(must(read_state_file(file.dump())), some_state());
}

TEST(StateFile, ReadsWhatWasWrittenBeforeThereWereSomeKeys) {
  auto file = json::parse(state_file_text(some_state()));
  auto& gpu = file["accelerators"][0];
  EXPECT_EQ(gpu["holders"][0]["pod_uid"], "uid-1");
  EXPECT_TRUE(gpu["holders"][1]["pod_uid"].is_null());
  EXPECT_TRUE(gpu["vgpus"][0]["holders"].is_null());
  EXPECT_EQ(gpu["vgpus"][1]["holders"][0]["name"], "by-hand");
  EXPECT_EQ(gpu["vgpus"][2]["holders"], json::array());
  for (auto& vgpu : gpu["vgpus"]) vgpu.erase("holders");
  gpu.erase("only_in_use");
  gpu.erase("subsystem");
  gpu.erase("class");
  file.erase("features");
  file.erase("stand_back");
  gpu["holders"][0].erase("pod_uid");
  EXPECT_EQ(gpu["holders"][1]["by_the_plugin"], false);
  EXPECT_EQ(gpu["holders"][2]["by_the_plugin"], true);
  gpu["holders"][2].erase("by_the_plugin");
  auto expected = some_state();
  expected.accelerators[0].only_in_use = false;
  expected.accelerators[0].subsystem.clear();
  for (StateVgpu& vgpu : expected.accelerators[0].vgpus) vgpu.holders.reset();
  expected.accelerators[0].pci_class.clear();
  expected.features.reset();
  expected.stand_back.clear();
  expected.accelerators[0].holders[0].pod_uid.clear();
  expected.accelerators[0].holders[2].by_the_plugin = false;
  EXPECT_EQ(must(read_state_file(file.dump())), expected);
}

TEST(StateFile, KeepsItsFormWhateverAProcessIsCalled) {
  NodeState state = some_state();
  state.accelerators[0].holders[0].name = "a\xff\"\n";
  EXPECT_THAT(must(read_state_file(state_file_text(state))).accelerators[0].holders[0].name,
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
  auto file = json::parse(state_file_text(some_state()));
  GetParam().make(file);
  const auto read = read_state_file(file.dump());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::malformed_host);
  EXPECT_EQ(read.error().message, std::string("state file: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BadStateFile,
    testing::Values(
        Fault{"list", [](json& f) { f = json::array(); }, ": expected an object"},
        Fault{"version", [](json& f) { f["version"] = 2; }, "version: expected 1"},
        Fault{"no pid", [](json& f) { f.erase("pid"); }, "pid: the key is missing"},
        Fault{"pid", [](json& f) { f["pid"] = 5000000000; }, "pid: expected a number from 0 on"},
        Fault{"generation", [](json& f) { f["generation"] = "1"; },
              "generation: expected a number from 0 on"},
        Fault{"phase", [](json& f) { f["phase"] = "done"; }, "phase: 'done' is none of its words"},
        Fault{"boot", [](json& f) { f["boot_id"] = 5; }, "boot_id: expected a text"},
        Fault{"wanted", [](json& f) { f["wanted"] = 5; }, "wanted.: expected an object"},
        Fault{"policy", [](json& f) { f["wanted"].erase("policy"); }, "wanted.policy: the key is missing"},
        Fault{"gpus", [](json& f) { f["accelerators"] = 5; }, "accelerators: expected a list"},
        Fault{"address", [](json& f) { f["accelerators"][1]["address"] = 5; },
              "accelerators[1].address: expected a text"},
        Fault{"mode", [](json& f) { f["accelerators"][0]["mode"] = "free"; },
              "accelerators[0].mode: 'free' is none of its words"},
        Fault{"state", [](json& f) { f["accelerators"][0]["state"] = ""; },
              "accelerators[0].state: '' is none of its words"},
        Fault{"holder", [](json& f) { f["accelerators"][0]["holders"][0] = "vm"; },
              "accelerators[0].holders[0].: expected an object"},
        Fault{"pod", [](json& f) { f["accelerators"][0]["holders"][0]["pod_uid"] = 5; },
              "accelerators[0].holders[0].pod_uid: expected a text"},
        Fault{"given", [](json& f) { f["accelerators"][0]["holders"][0]["by_the_plugin"] = "yes"; },
              "accelerators[0].holders[0].by_the_plugin: expected true or false"},
        Fault{"only", [](json& f) { f["accelerators"][0]["only_in_use"] = "yes"; },
              "accelerators[0].only_in_use: expected true or false"},
        Fault{"group", [](json& f) { f["accelerators"][0]["iommu_group"] = -1; },
              "accelerators[0].iommu_group: expected a number from 0 on"},
        Fault{"withdraw", [](json& f) { f["withdraw"][0].erase("id"); },
              "withdraw[0].id: the key is missing"},
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
    EXPECT_EQ(read_state_file(text).error().message, "state file: not JSON") << text;
}

}  // namespace
}  // namespace ferry::host
