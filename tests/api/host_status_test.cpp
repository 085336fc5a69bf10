// SPDX-License-Identifier: Apache-2.0
#include "api/host_status.h"

#include <functional>
#include <ostream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/must.h"

namespace ferry::api {
namespace {

using nlohmann::json;
using test::must;
using testing::HasSubstr;

ReportedRegisters some_registers() {
  return {.facts = {.chip = "gh100",
                    .problem = "it is in use",
                    .in_use = true,
                    .booted = true,
                    .recovery = false,
                    .cc_mode = vfio::CcMode::devtools,
                    .ppcie = false,
                    .memory_bytes = std::uint64_t{80} << 30U,
                    .chip_id = "0123456789abcdef",
                    .unknown = {{.fact = "ecc", .reason = "blocked"}}},
          .read_at = 1796000000};
}

HostStatus some_state() {
  const std::vector<ReportedUser> by_hand = {{.kind = "virtual_machine", .name = "by-hand", .pid = 7}};
  AcceleratorStatus gpu{.address = must(vfio::PciAddress::parse("0000:17:00.0")),
                        .id = "10de:2330",
                        .subsystem = "10de:16c1",
                        .pci_class = "0302",
                        .model = "GH100 [H100 SXM5 80GB]",
                        .iommu_group = 42,
                        .driver = "vfio-pci",
                        .mode = Mode::passthrough,
                        .desired = Mode::vgpu,
                        .allocation = Allocation::dra,
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
                        .more_vgpus = {{"H100-4C", 19}, {"H100-8C", 0}},
                        .registers = some_registers()};
  return {.generation = 17,
          .pid = 4711,
          .boot_id = "b",
          .desired = DesiredMark{12, "halves", "a label"},
          .phase = NodePhase::blocked,
          .accelerators = {gpu, {}},
          .unavailable = {{"0000:17:00.0", "it goes"}},
          .error = StatusError{"what", "hint"},
          .features = NodeFeatures{.iommu = "on",
                                   .largest_group = 2,
                                   .machine = "R 1",
                                   .vgpu_types = {{"H100-4C", 40}, {"H100-8C", 20}}},
          .standby = "another serves"};
}

TEST(HostStatusFile, ReadsBackAsItself) {
  EXPECT_EQ(must(read_host_status(host_status_text(some_state()))), some_state());
  HostStatus least;
  EXPECT_EQ(must(read_host_status(host_status_text(least))), least);
  least.features = NodeFeatures{.iommu = "off"};
  EXPECT_EQ(must(read_host_status(host_status_text(least))), least);
  for (const auto phase :
       {NodePhase::idle, NodePhase::ready, NodePhase::applying, NodePhase::blocked, NodePhase::failed})
    EXPECT_EQ(value_for(words_of(phase), text(phase)), phase);
  for (const auto allocation : {Allocation::device_plugin, Allocation::dra})
    EXPECT_EQ(parse_allocation(text(allocation)), allocation);
}

TEST(HostStatusFile, IsReadByThePluginWhateverElseIsInIt) {
  auto file = json::parse(host_status_text(some_state()));
  file["phase"] = "of a newer hostd";
  file["accelerators"] = 5;
  ASSERT_FALSE(read_host_status(file.dump()));
  const auto read = must(read_plugin_orders(file.dump()));
  EXPECT_EQ(read.generation, 17U);
  EXPECT_EQ(read.unavailable, some_state().unavailable);
  EXPECT_EQ(read.standby, "another serves");
}

TEST(HostStatusFile, SaysNullForWhatIsNotThere) {
  const auto file = json::parse(host_status_text({}));
  EXPECT_TRUE(file["desired"].is_null());
  EXPECT_TRUE(file["error"].is_null());
  EXPECT_TRUE(file["features"].is_null());
  EXPECT_TRUE(file["standby"].is_null());
  const auto gpu = json::parse(host_status_text(some_state()))["accelerators"][1];
  EXPECT_TRUE(gpu["driver"].is_null());
  EXPECT_TRUE(gpu["desired"].is_null());
}

TEST(HostStatusFile, PassesOverKeysThatCameLater) {
  auto file = json::parse(host_status_text(some_state()));
  file["newer"] = 1;
  file["accelerators"][0]["newer"] = {1, 2};
  EXPECT_EQ(must(read_host_status(file.dump())), some_state());
}

TEST(HostStatusFile, MayLackWhatAReaderCanDoWithout) {
  auto file = json::parse(host_status_text(some_state()));
  for (const char* key : {"generation", "pid", "boot_id", "error", "features", "standby"}) file.erase(key);
  for (const char* key : {"policy", "source"}) file["desired"].erase(key);
  auto& gpu = file["accelerators"][0];
  EXPECT_TRUE(gpu["users"][1]["pod_uid"].is_null());
  EXPECT_TRUE(gpu["vgpus"][0]["users"].is_null());
  EXPECT_EQ(gpu["vgpus"][2]["users"], json::array());
  for (const char* key : {"id", "subsystem", "class", "model", "iommu_group", "driver", "reason", "hint",
                          "only_in_use", "more_vgpus", "allocation", "registers"})
    gpu.erase(key);
  for (auto& user : gpu["users"])
    for (const char* key : {"kind", "pid", "pod_uid", "by_the_plugin"}) user.erase(key);
  for (auto& vgpu : gpu["vgpus"])
    for (const char* key : {"type", "users"}) vgpu.erase(key);
  HostStatus expected;
  expected.desired = DesiredMark{.generation = 12};
  expected.phase = NodePhase::blocked;
  expected.accelerators.resize(2);
  AcceleratorStatus& first = expected.accelerators[0];
  first.address = some_state().accelerators[0].address;
  first.mode = Mode::passthrough;
  first.desired = Mode::vgpu;
  first.state = GpuState::blocked;
  for (const char* name : {"tenant", "a/b", "(given)"}) first.users.push_back({.kind = {}, .name = name});
  for (const char* id : {"0000:17:00.4", "0000:17:00.5", "0000:17:00.6"})
    first.vgpus.push_back({.id = id, .type = {}});
  expected.unavailable = some_state().unavailable;
  EXPECT_EQ(must(read_host_status(file.dump())), expected);
  EXPECT_FALSE(read_plugin_orders(file.dump())) << "the plugin answers with the generation";
}

TEST(HostStatusFile, NamesAUserForPeople) {
  EXPECT_EQ((ReportedUser{"virtual_machine", "guest-7", 4711}).text(), "virtual machine guest-7 (pid 4711)");
  EXPECT_EQ((ReportedUser{"", "nv-hostengine"}).text(), "nv-hostengine");
}

TEST(HostStatusFile, KeepsItsFormWhateverAProcessIsCalled) {
  HostStatus state = some_state();
  state.accelerators[0].users[0].name = "a\xff\"\n";
  EXPECT_THAT(must(read_host_status(host_status_text(state))).accelerators[0].users[0].name,
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
class BadHostStatusFile : public testing::TestWithParam<Fault> {};

TEST_P(BadHostStatusFile, IsRefusedWithTheKey) {
  auto file = json::parse(host_status_text(some_state()));
  GetParam().make(file);
  const auto read = read_host_status(file.dump());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::malformed_host);
  EXPECT_EQ(read.error().message, std::string("/run/ferry/status.json: ") + GetParam().message);
  EXPECT_FALSE(read.error().hint.empty());
}

TEST(PluginOrders, OfAnotherFormAreRefusedWithTheKey) {
  for (const auto& [text, message] :
       {std::pair{"", "not JSON"},
        {R"({"version": 2,)", "not JSON"},
        {"[]", "expected an object"},
        {"{}", "generation: the key is missing"},
        {R"({"version": 1, "generation": 1, "unavailable": []})", "version: expected 2, found 1"},
        {R"({"version": 2, "generation": -1, "unavailable": []})", "generation: expected a number from 0 on"},
        {R"({"version": 2, "generation": 1})", "unavailable: the key is missing"},
        {R"({"version": 2, "generation": 1, "unavailable": {}})", "unavailable: expected a list"},
        {R"({"version": 2, "generation": 1, "unavailable": ["a"]})", "unavailable[0]: expected an object"},
        {R"({"version": 2, "generation": 1, "unavailable": [{"id": 5}]})",
         "unavailable[0].id: expected a text"},
        {R"({"version": 2, "generation": 1, "unavailable": [], "sanitized": {}})",
         "sanitized: expected a list"},
        {R"({"version": 2, "generation": 1, "unavailable": [], "sanitized": [{"id": "a", "count": 1}]})",
         "sanitized[0].state: the key is missing"},
        {R"({"version": 2, "generation": 1, "unavailable": [],
             "sanitized": [{"id": "a", "state": "new", "count": 1}]})",
         "sanitized[0].state: 'new' is none of its words"},
        {R"({"version": 2, "generation": 1, "unavailable": [],
             "sanitized": [{"id": "a", "state": "failed", "count": -1}]})",
         "sanitized[0].count: expected a number from 0 on"}}) {
    const auto read = read_plugin_orders(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message, std::string("/run/ferry/status.json: ") + message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BadHostStatusFile,
    testing::Values(
        Fault{"list", [](json& f) { f = json::array(); }, "expected an object"},
        Fault{"version", [](json& f) { f["version"] = 1; }, "version: expected 2, found 1"},
        Fault{"version in words", [](json& f) { f["version"] = "2"; },
              "version: expected 2, found no number"},
        Fault{"no version", [](json& f) { f.erase("version"); }, "version: the key is missing"},
        Fault{"no phase", [](json& f) { f.erase("phase"); }, "phase: the key is missing"},
        Fault{"no desired", [](json& f) { f.erase("desired"); }, "desired: the key is missing"},
        Fault{"pid", [](json& f) { f["pid"] = 5000000000; }, "pid: expected a number from 0 on"},
        Fault{"generation", [](json& f) { f["generation"] = "1"; },
              "generation: expected a number from 0 on"},
        Fault{"large generation", [](json& f) { f["generation"] = 1ULL << 53U; },
              "generation: expected a number from 0 to 2^53 - 1"},
        Fault{"desired generation", [](json& f) { f["desired"]["generation"] = ~0ULL; },
              "desired.generation: expected a number from 0 to 2^53 - 1"},
        Fault{"phase", [](json& f) { f["phase"] = "done"; }, "phase: 'done' is none of its words"},
        Fault{"boot", [](json& f) { f["boot_id"] = 5; }, "boot_id: expected a text"},
        Fault{"desired", [](json& f) { f["desired"] = 5; }, "desired: expected an object"},
        Fault{"policy", [](json& f) { f["desired"]["policy"] = 5; }, "desired.policy: expected a text"},
        Fault{"gpus", [](json& f) { f["accelerators"] = 5; }, "accelerators: expected a list"},
        Fault{"address", [](json& f) { f["accelerators"][1]["address"] = 5; },
              "accelerators[1].address: expected a text"},
        Fault{"mode", [](json& f) { f["accelerators"][0]["mode"] = "free"; },
              "accelerators[0].mode: 'free' is none of its words"},
        Fault{"state", [](json& f) { f["accelerators"][0]["state"] = ""; },
              "accelerators[0].state: '' is none of its words"},
        Fault{"user", [](json& f) { f["accelerators"][0]["users"][0] = "vm"; },
              "accelerators[0].users[0]: expected an object"},
        Fault{"pod", [](json& f) { f["accelerators"][0]["users"][0]["pod_uid"] = 5; },
              "accelerators[0].users[0].pod_uid: expected a text"},
        Fault{"given", [](json& f) { f["accelerators"][0]["users"][0]["by_the_plugin"] = "yes"; },
              "accelerators[0].users[0].by_the_plugin: expected true or false"},
        Fault{"allocation", [](json& f) { f["accelerators"][0]["allocation"] = "DRA"; },
              "accelerators[0].allocation: 'DRA' is none of its words"},
        Fault{"allocation_number", [](json& f) { f["accelerators"][0]["allocation"] = 1; },
              "accelerators[0].allocation: expected a text"},
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
        Fault{"features", [](json& f) { f["features"] = 5; }, "features: expected an object"},
        Fault{"iommu", [](json& f) { f["features"]["iommu"] = true; }, "features.iommu: expected a text"},
        Fault{"largest", [](json& f) { f["features"]["largest_group"] = "2"; },
              "features.largest_group: expected a number from 0 on"},
        Fault{"machine", [](json& f) { f["features"]["machine"] = 1; }, "features.machine: expected a text"},
        Fault{"types", [](json& f) { f["features"]["vgpu_types"] = json::array(); },
              "features.vgpu_types: expected an object"},
        Fault{"type", [](json& f) { f["features"]["vgpu_types"]["H100-4C"] = -1; },
              "features.vgpu_types.H100-4C: expected a number from 0 on"},
        Fault{"error", [](json& f) { f["error"].erase("message"); }, "error.message: the key is missing"},
        Fault{"big group", [](json& f) { f["accelerators"][0]["iommu_group"] = 4294967296; },
              "accelerators[0].iommu_group: expected a number from 0 on"},
        Fault{"name", [](json& f) { f["accelerators"][0]["users"][0].erase("name"); },
              "accelerators[0].users[0].name: the key is missing"},
        Fault{"vgpus", [](json& f) { f["accelerators"][0]["vgpus"][0] = "a"; },
              "accelerators[0].vgpus[0]: expected an object"},
        Fault{"room", [](json& f) { f["accelerators"][0]["more_vgpus"]["H100-4C"] = -1; },
              "accelerators[0].more_vgpus.H100-4C: expected a number from 0 on"},
        Fault{"standby", [](json& f) { f["standby"] = true; }, "standby: expected a text"}));

TEST(HostStatusFile, IsNotWhatIsNoJson) {
  for (const char* text : {"", "{", "nonsense"})
    EXPECT_EQ(read_host_status(text).error().message, "/run/ferry/status.json: not JSON") << text;
}

}  // namespace
}  // namespace ferry::api
