// SPDX-License-Identifier: Apache-2.0
#include "dra/checkpoint.h"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "dra/slices/publication.h"
#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::at;
using test::l4;
using test::must;
using test::node_with;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A claim with devices of a node, as the scheduler has allocated them.
CheckpointClaim claim_of(const NodeModel& node, const std::string& uid,
                         const std::vector<std::string>& devices) {
  CheckpointClaim out{.uid = uid, .space = "studio", .name = "render-" + uid};
  for (const std::string& name : devices) {
    const HeldDevice held = test::held_device(node, name, uid);
    out.devices.push_back({.request = "card",
                           .pool = "node7/gpu-ferry",
                           .gpu = held.asked.gpu,
                           .type = is_whole(held.device) ? "" : "1150",
                           .device = held.device,
                           .counters = held.counters});
  }
  return out;
}

Checkpoint some_checkpoint() {
  const NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("10000:e1:00.0", 7)});
  Checkpoint out{.boot_id = "boot-1"};
  CheckpointClaim vgpu = claim_of(node, "b", {"vgpu-0000-3b-00-0-1150-0"});
  vgpu.pod_claim = "gpu";
  vgpu.devices[0].device.consumes[0].compatibility_groups = {"size-6144"};
  must(begin_prepare(out, vgpu));
  must(finish_prepare(out, "b", std::vector<api::PreparedDevice>{{.function = at("0000:3b:00.4")}}));
  CheckpointClaim whole = claim_of(node, "a", {"whole-10000-e1-00-0"});
  whole.devices[0].placement = 4U;
  whole.devices[0].resources = {"nvidia.com/L4", "deviceclass.resource.kubernetes.io/l4"};
  must(begin_prepare(out, whole));
  return out;
}

// The file.

TEST(CheckpointFile, ReadsBackAsItself) {
  const Checkpoint checkpoint = some_checkpoint();
  EXPECT_EQ(checkpoint.claims.at(0).uid, "a") << "in order of UID";
  EXPECT_EQ(must(read_checkpoint(checkpoint_text(checkpoint))), checkpoint);
  const Checkpoint empty{.boot_id = "boot-1"};
  EXPECT_EQ(must(read_checkpoint(checkpoint_text(empty))), empty);
  EXPECT_EQ(checkpoint_text(empty), "{\"version\":1,\"boot_id\":\"boot-1\",\"claims\":[]}\n");
}

// Its reader has bounds, beyond which no claim could be undone.
TEST(CheckpointFile, OfAFullNodeCanBeRead) {
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 16; ++i) {
    gpus.push_back(test::mixed(fmt::format("0000:{:02x}:00.0", i + 1), i + 1));
    gpus.back().types = {test::placed_type("nvidia-1590", "A10-1Q", 1, 1, 32)};
    gpus.back().memory_mib = 32768;
  }
  const NodeModel node = node_with(gpus);
  const Publication published = publication_of(node);
  Checkpoint full{.boot_id = "b57a0b4c-35ae-44b9-9ad5-2d7c4b0ec0a1"};
  for (const PublishedDevice& device : published.devices) {
    if (is_whole(device.device)) continue;
    const std::string uid = fmt::format("b7064fe1-6802-5216-8eb4-{:012}", full.claims.size());
    full.claims.push_back({.uid = uid,
                           .space = std::string(63, 's'),
                           .name = std::string(128, 'n'),
                           .phase = CheckpointPhase::prepared});
    full.claims.back().devices.push_back(
        {.request = "card",
         .pool = "node7/gpu-ferry",
         .gpu = device.asked.gpu,
         .type = "nvidia-1590",
         .placement = 31,
         .device = device.device,
         .counters = *published.counter_set(device.device.consumes.at(0).set)});
  }
  EXPECT_EQ(full.claims.size(), 16U * 32U);
  EXPECT_EQ(must(read_checkpoint(checkpoint_text(full))), full);
}

TEST(CheckpointFile, HasTheFormOfItsHeader) {
  const auto file = nlohmann::json::parse(checkpoint_text(some_checkpoint()));
  const auto& claim = file.at("claims").at(1);
  EXPECT_EQ(claim.at("namespace"), "studio");
  EXPECT_EQ(claim.at("pod_claim"), "gpu");
  EXPECT_EQ(claim.at("phase"), "prepared");
  const auto& device = claim.at("devices").at(0);
  EXPECT_EQ(device.at("gpu"), "0000:3b:00.0");
  EXPECT_EQ(device.at("type"), "1150");
  EXPECT_TRUE(device.at("placement").is_null());
  EXPECT_EQ(device.at("id"), "0000:3b:00.4");
  EXPECT_EQ(device.at("device").at("name"), "vgpu-0000-3b-00-0-1150-0");
  EXPECT_EQ(device.at("device").at("consumes"),
            nlohmann::json::parse(R"([{"name": "group-42", "compatibility_groups": [{"name": "size-6144"}],
                                       "counters": [{"name": "framebuffer", "value": 6442450944}]}])"));
  EXPECT_EQ(device.at("counter_set").at("counters").at(0).at("value"), 25769803776U);
  const auto& whole = file.at("claims").at(0).at("devices").at(0);
  EXPECT_TRUE(whole.at("type").is_null());
  EXPECT_EQ(whole.at("placement"), 4);
}

TEST(CheckpointFile, MayLackWhatAReaderCanDoWithout) {
  const Checkpoint read = must(read_checkpoint(R"({"version": 1, "boot_id": "b", "later": 1, "claims": [
    {"uid": "u", "namespace": "n", "name": "c", "phase": "unpreparing", "devices": [
      {"request": "r", "pool": "p", "gpu": "0000:3b:00.0", "nodes": [{"path": "/etc/shadow"}],
       "device": {"name": "whole-0000-3b-00-0", "attributes": [], "capacity": [], "consumes": []}}]}]})"));
  const ClaimDevice& device = read.claims.at(0).devices.at(0);
  EXPECT_EQ(read.claims[0].phase, CheckpointPhase::unpreparing);
  EXPECT_EQ(read.claims[0].pod_claim, "");
  EXPECT_EQ(device.counters.name, "");
}

TEST(CheckpointFile, OfAnEarlierBuildSaysWhatWasPrepared) {
  for (const auto& [from, id] :
       {std::pair{R"("mdev_uuid": null, "function": "0000:3b:00.4")", "0000:3b:00.4"},
        {R"("mdev_uuid": "b7064fe1", "function": null)", "b7064fe1"}}) {
    Checkpoint read = must(read_checkpoint(std::string(R"({"version": 1, "boot_id": "b", "claims": [
      {"uid": "u", "namespace": "n", "name": "c", "phase": "preparing", "devices": [
        {"request": "r", "pool": "p", "gpu": "0000:3b:00.0", "nodes": [{"path": "/dev/vfio/57", "mode": 438}], )") +
                                           from + R"(,
         "device": {"name": "d", "attributes": [], "capacity": [], "consumes": []}}]}]})"));
    EXPECT_EQ(read.claims.at(0).devices.at(0).id, id);
    EXPECT_TRUE(begin_again(read, "u")) << "a pod may have its devices";
  }
}

TEST(CheckpointFile, OfAnotherFormIsRefusedWithTheKey) {
  const std::string file = nlohmann::ordered_json::parse(checkpoint_text(some_checkpoint())).dump();
  for (const auto& [from, to, message] :
       {std::tuple{R"("version":1)", R"("version":2)", "version: expected 1, found 2"},
        {R"("boot_id":"boot-1")", R"("boot_id":7)", "boot_id: expected a text"},
        {R"("claims":[)", R"("claims":7,"c":[)", "claims: expected a list"},
        {R"("claims":[)", R"("claims":[5,)", "claims[0]: expected an object"},
        {R"("uid":"b")", R"("uid":"a")", "claims[1].uid: another claim has it"},
        {R"("uid":"b")", R"("uid":null)", "claims[1].uid: expected a text"},
        {R"("namespace":)", R"("space":)", "claims[0].namespace: the key is missing"},
        {R"("phase":"prepared")", R"("phase":"done")", "claims[1].phase: 'done' is none of its words"},
        {R"("pod_claim":"gpu")", R"("pod_claim":[])", "claims[1].pod_claim: expected a text"},
        {R"("gpu":"0000:3b:00.0")", R"("gpu":"3b:00.0")",
         "claims[1].devices[0].gpu: '3b:00.0' is not a PCI address"},
        {R"("device":{"name":"vgpu)", R"("device":null,"d":{"name":"vgpu)",
         "claims[1].devices[0].device: expected an object"},
        {R"("int":1150)", R"("int":"1150")",
         "claims[1].devices[0].device.attributes[7].int: expected a number from 0 on"},
        {R"("string":"NVIDIA L4-6Q")", R"("bool":true)",
         "claims[1].devices[0].device.attributes[3].string: the key is missing"},
        {R"({"name":"framebuffer","value":6442450944})", R"({"name":"framebuffer","value":6.5})",
         "claims[1].devices[0].device.capacity[0].value: expected a number from 0 on"},
        {R"([{"name":"size-6144"}])", R"(["size-6144"])",
         "claims[1].devices[0].device.consumes[0].compatibility_groups[0]: expected an object"},
        {R"("counter_set":{)", R"("counter_set":7,"c":{)",
         "claims[0].devices[0].counter_set: expected an object"},
        {R"("counter_set":{"name":"group-7")", R"("counter_set":{"name":"")",
         "claims[0].devices[0].counter_set.name: expected the name of a counter set"},
        {R"("consumes":[{"name":"group-42")", R"("consumes":[{"name":"")",
         "claims[1].devices[0].device.consumes[0].name: expected the name of a counter set"},
        {R"("counter_set":{"name":"group-42")", R"("counter_set":{"name":"group-43")",
         "claims[1].devices[0].counter_set: expected group-42, from which the device consumes"},
        {R"("counter_set":{"name":"group-42")", R"("counter_set":null,"c":{"name":"group-42")",
         "claims[1].devices[0].counter_set: expected group-42, from which the device consumes"}}) {
    std::string bad = file;
    ASSERT_NE(bad.find(from), std::string::npos) << from << " in " << file;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    const auto read = read_checkpoint(bad);
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code, Errc::malformed_host);
    EXPECT_EQ(read.error().message, std::string("/run/ferry/dra/claims.json: ") + message);
    EXPECT_FALSE(read.error().hint.empty());
  }
  for (const char* const bad : {"", "null", "[]", "{", "{}", "7", "\xff", R"({"version": 1, "claims": []})"})
    EXPECT_FALSE(read_checkpoint(bad)) << bad;
}

TEST(CheckpointFile, EndsWithTheBoot) {
  const Checkpoint checkpoint = some_checkpoint();
  EXPECT_EQ(for_boot(checkpoint, "boot-1"), checkpoint);
  EXPECT_EQ(for_boot(checkpoint, "boot-2"), Checkpoint{.boot_id = "boot-2"});
}

// The steps of a claim.

TEST(CheckpointSteps, MayEachBeRepeated) {
  const NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  Checkpoint checkpoint{.boot_id = "b"};
  const CheckpointClaim claim = claim_of(node, "a", {"vgpu-0000-3b-00-0-1150-0"});
  const std::vector<api::PreparedDevice> results = {{.mdev_uuid = "b7064fe1-6802-5216-8eb4-f5580c656c4f"}};
  for (int i = 0; i < 2; ++i) {
    must(begin_prepare(checkpoint, claim));
    EXPECT_EQ(checkpoint.claims.at(0).phase, CheckpointPhase::preparing);
  }
  for (int i = 0; i < 2; ++i) {
    must(finish_prepare(checkpoint, "a", results));
    must(begin_prepare(checkpoint, claim));
    EXPECT_EQ(checkpoint.claims.at(0).phase, CheckpointPhase::prepared)
        << "the kubelet asks again after its restart";
    EXPECT_EQ(checkpoint.claims[0].devices.at(0).id, results[0].mdev_uuid);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(begin_unprepare(checkpoint, "a"));
    EXPECT_EQ(checkpoint.claims.at(0).phase, CheckpointPhase::unpreparing);
  }
  for (int i = 0; i < 2; ++i) finish_unprepare(checkpoint, "a");
  EXPECT_THAT(checkpoint.claims, IsEmpty());
  EXPECT_FALSE(begin_unprepare(checkpoint, "a")) << "an unknown claim needs nothing";
}

TEST(CheckpointSteps, NeverGiveADeviceToTwoClaims) {
  const NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  Checkpoint checkpoint{.boot_id = "b"};
  must(begin_prepare(checkpoint, claim_of(node, "a", {"vgpu-0000-3b-00-0-1150-0"})));
  const CheckpointClaim second =
      claim_of(node, "b", {"vgpu-0000-3b-00-0-1150-1", "vgpu-0000-3b-00-0-1150-0"});
  const auto refused = begin_prepare(checkpoint, second);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_EQ(refused.error().message,
            "vgpu-0000-3b-00-0-1150-0: the claim studio/render-a (UID a) still has it");
  EXPECT_THAT(checkpoint.claims, SizeIs(1));
  EXPECT_TRUE(begin_unprepare(checkpoint, "a"));
  EXPECT_FALSE(begin_prepare(checkpoint, second)) << "it is not undone yet";
  finish_unprepare(checkpoint, "a");
  EXPECT_TRUE(begin_prepare(checkpoint, second));
}

TEST(CheckpointSteps, NeverTakeOtherDevicesForAClaimThatIsRecorded) {
  const NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  Checkpoint checkpoint{.boot_id = "b"};
  must(begin_prepare(checkpoint, claim_of(node, "a", {"vgpu-0000-3b-00-0-1150-0"})));
  const Checkpoint before = checkpoint;
  const CheckpointClaim other = claim_of(node, "a", {"vgpu-0000-3b-00-0-1150-1"});
  CheckpointClaim renamed = before.claims.at(0);
  renamed.devices[0].request = "other";
  for (const CheckpointClaim& claim :
       {other, renamed, claim_of(node, "a", {"vgpu-0000-3b-00-0-1150-0", "vgpu-0000-3b-00-0-1150-1"})}) {
    const auto refused = begin_prepare(checkpoint, claim);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_EQ(refused.error().message,
              "the claim studio/render-a (UID a) still has the devices of a former allocation");
    EXPECT_EQ(checkpoint, before);
  }
  EXPECT_TRUE(begin_unprepare(checkpoint, "a"));
  finish_unprepare(checkpoint, "a");
  must(begin_prepare(checkpoint, other));
  EXPECT_EQ(checkpoint.claims.at(0).devices.at(0).device.name, "vgpu-0000-3b-00-0-1150-1");
}

TEST(CheckpointSteps, BeginAgainWithAClaimThatWasPrepared) {
  Checkpoint checkpoint = some_checkpoint();
  const Checkpoint before = checkpoint;
  for (const char* const never_prepared : {"a", "c"})
    EXPECT_FALSE(begin_again(checkpoint, never_prepared)) << never_prepared;
  EXPECT_EQ(checkpoint, before);
  EXPECT_TRUE(begin_again(checkpoint, "b"));
  EXPECT_EQ(checkpoint.find("b")->phase, CheckpointPhase::preparing);
  EXPECT_EQ(must(read_checkpoint(checkpoint_text(checkpoint))), checkpoint);
  EXPECT_EQ(checkpoint.find("b")->devices, before.find("b")->devices);
  EXPECT_TRUE(begin_again(checkpoint, "b")) << "a pod may have its devices still";
}

TEST(CheckpointSteps, RefuseAStepOutOfOrder) {
  const NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  Checkpoint checkpoint{.boot_id = "b"};
  const CheckpointClaim claim = claim_of(node, "a", {"vgpu-0000-3b-00-0-1150-0"});
  const std::vector<api::PreparedDevice> one(1);
  EXPECT_EQ(finish_prepare(checkpoint, "a", one).error().code, Errc::not_found);
  must(begin_prepare(checkpoint, claim));
  const auto none = finish_prepare(checkpoint, "a", {});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("has 1 device, and hostd has prepared 0"));
  EXPECT_TRUE(begin_unprepare(checkpoint, "a"));
  EXPECT_EQ(finish_prepare(checkpoint, "a", one).error().code, Errc::failed);
  const auto again = begin_prepare(checkpoint, claim);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, "the claim studio/render-a (UID a) is being unprepared");
}

TEST(CheckpointSteps, KeepDevicesPublished) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("10000:e1:00.0", 7)});
  node.held = held_devices(must(read_checkpoint(checkpoint_text(some_checkpoint()))));
  ASSERT_THAT(node.held, SizeIs(2));
  EXPECT_EQ(node.held[0].claim, "a");
  node.gpus.clear();
  const Publication published = publication_of(node);
  EXPECT_THAT(test::names_of(published),
              testing::ElementsAre("vgpu-0000-3b-00-0-1150-0", "whole-10000-e1-00-0"));
  EXPECT_THAT(published.counter_sets, SizeIs(2));
}

}  // namespace
}  // namespace ferry::dra
