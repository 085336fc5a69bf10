// SPDX-License-Identifier: Apache-2.0
// The slices of a node in an API server in memory, whose hours pass in milliseconds.
#include "dra/publish/slice_publisher.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "dra/names.h"
#include "dra/slices/publication.h"
#include "hostfs/host_fs.h"
#include "kube/api_error.h"
#include "kube/api_path.h"
#include "tests/dra/scheduler_model.h"
#include "tests/dra/some_gpus.h"
#include "tests/support/api_server.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/virtual_clock.h"

namespace ferry::dra {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::ApiFault;
using test::l4;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kNode = "node7";
constexpr const char* kSlicePath = "/apis/resource.k8s.io/v1/resourceslices/";

/// Feature gates of the API server.
struct Gates {
  bool counters = true;
  bool taints = true;
  bool compatibility_groups = false;
};

/// What a server with these gates keeps of a slice.
json kept_by(const Gates& gates, json object) {
  if (object.value("kind", "") != "ResourceSlice") return object;
  json& spec = object["spec"];
  if (!gates.counters) spec.erase("sharedCounters");
  if (!spec.contains("devices")) return object;
  for (json& device : spec["devices"]) {
    if (!gates.counters) device.erase("consumesCounters");
    if (!gates.taints) device.erase("taints");
    if (device.contains("consumesCounters") && !gates.compatibility_groups)
      for (json& consumption : device["consumesCounters"]) consumption.erase("compatibilityGroups");
    if (device.contains("taints"))
      for (json& taint : device["taints"])
        if (!taint.contains("timeAdded")) taint["timeAdded"] = "2026-11-28T00:00:00Z";
  }
  return object;
}

class Publishing : public testing::Test {
 protected:
  Publishing() {
    server.put({{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", kNode}}}});
    server.kept = [this](json object) { return kept_by(gates, std::move(object)); };
  }

  void list(const std::vector<Gpu>& gpus) {
    scratch.file(api::kClaimableGpusFile, api::claimable_gpus_text(gpus));
    if (publisher) publisher->gpus_changed();
  }
  void start() {
    publisher.emplace(
        host, server, clock, [this] { return server.draw(); },
        SlicePublisher::Settings{.node = kNode,
                                 .held = [this] { return held; },
                                 .settled = [this] { ++settled; },
                                 .refused = [this](const Error& error) { refused.push_back(error); }});
    test::must(publisher->begin());
  }
  void stop() { publisher.reset(); }
  /// Starts with these GPUs, and waits until they are published.
  void start_with(const std::vector<Gpu>& gpus) {
    list(gpus);
    start();
    settle();
  }
  void settle(std::chrono::seconds most = 5min) {
    // What has changed is seen first.
    clock.run_for(1s);
    EXPECT_TRUE(clock.run_until([this] { return publisher->is_settled(); }, most));
    clock.run_for(1s);
  }

  std::vector<ResourceSlice> slices() const {
    std::vector<ResourceSlice> out;
    for (const auto& [name, object] : server.objects(kube::slices_of_node(kNode, kDriver)))
      out.push_back(test::must(read_slice(object)));
    return out;
  }
  std::vector<std::string> slice_names() const {
    std::vector<std::string> out;
    for (const auto& [name, object] : server.objects(kube::slices_of_node(kNode, kDriver)))
      out.push_back(name);
    return out;
  }
  std::vector<Device> devices() const {
    std::vector<Device> out;
    for (const ResourceSlice& slice : slices())
      out.insert(out.end(), slice.devices.begin(), slice.devices.end());
    return out;
  }
  std::vector<std::string> device_names() const {
    std::vector<std::string> out;
    for (const Device& device : devices()) out.push_back(device.name);
    return out;
  }
  std::optional<Device> device(std::string_view name) const {
    for (const Device& one : devices())
      if (one.name == name) return one;
    return std::nullopt;
  }
  std::vector<std::string> taints_of(std::string_view name) const {
    std::vector<std::string> out;
    if (const auto found = device(name))
      for (const Taint& taint : found->taints) out.push_back(taint.key);
    return out;
  }
  /// True if the scheduler gives this device.
  bool can_allocate(std::string_view name) const {
    test::SchedulerModel scheduler;
    scheduler.see(slices());
    return scheduler.allocate("a",
                              {{.name = "card", .alternatives = {test::device_named(std::string(name))}}});
  }
  void wipe() {
    for (const std::string& name : slice_names()) server.erase(kSlicePath + name);
  }
  /// A claim with this allocation. `results`: a list.
  void put_claim(const std::string& claim, const json& results) {
    json object = {{"apiVersion", "resource.k8s.io/v1"},
                   {"kind", "ResourceClaim"},
                   {"metadata", {{"name", claim}, {"namespace", "studio"}}},
                   {"spec", {{"devices", {{"requests", json::array()}}}}}};
    object["status"]["allocation"]["devices"]["results"] = results;
    server.put(std::move(object));
  }
  static json result_of(std::string_view name, std::string_view pool = "node7/gpu-ferry") {
    return {{"request", "card"}, {"driver", kDriver}, {"pool", pool}, {"device", name}};
  }
  void allocate(const std::string& claim, std::string_view name, std::string_view pool = "node7/gpu-ferry") {
    json results = json::array();
    results.push_back(result_of(name, pool));
    put_claim(claim, results);
  }
  void deallocate(const std::string& claim) {
    server.erase("/apis/resource.k8s.io/v1/namespaces/studio/resourceclaims/" + claim);
  }
  /// The device as a claim has it that was allocated from the present slices.
  HeldDevice held_now(std::string_view name) const {
    return test::held_device(test::must(publisher->node()), name, "uid-1");
  }
  std::size_t writes() const {
    return server.count("POST", "/resourceslices?fieldManager") + server.count("PUT", kSlicePath) +
           server.count("DELETE", kSlicePath);
  }
  /// The slices are complete, of one generation, and have no device twice.
  void expect_one_pool() const {
    const std::vector<ResourceSlice> all = slices();
    ASSERT_THAT(all, Not(IsEmpty()));
    for (const ResourceSlice& slice : all) {
      EXPECT_EQ(slice.generation, all.front().generation);
      EXPECT_EQ(slice.count, all.size());
      EXPECT_EQ(slice.pool, "node7/gpu-ferry");
    }
    const std::vector<std::string> names = device_names();
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  }

  Gates gates;
  test::VirtualClock clock;
  test::ApiServer server{clock};
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  std::vector<HeldDevice> held;
  int settled = 0;
  std::vector<Error> refused;
  std::optional<SlicePublisher> publisher;
};

const std::string kSmall = "vgpu-0000-3b-00-0-1150-0";
const std::string kWholeDevice = "whole-0000-3b-00-0";

TEST_F(Publishing, PublishesAllThatHostdLists) {
  start_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 57)});
  expect_one_pool();
  EXPECT_EQ(slices().front().generation, 1U);
  EXPECT_EQ(slices().front().owner.node_uid,
            server.object("/api/v1/nodes/node7").at("metadata").at("uid").get<std::string>());
  EXPECT_EQ(devices().size(), 14U);
  EXPECT_TRUE(can_allocate(kSmall));
  EXPECT_TRUE(can_allocate(kWholeDevice));
  EXPECT_EQ(settled, 1);
  EXPECT_FALSE(publisher->problem());
}

TEST_F(Publishing, WritesNothingTheSecondTime) {
  start_with({l4("0000:3b:00.0", 42)});
  const std::size_t before = writes();
  publisher->gpus_changed();
  publisher->held_changed();
  clock.run_for(1h);
  EXPECT_EQ(writes(), before);
  stop();
  start();
  settle();
  clock.run_for(1h);
  EXPECT_EQ(writes(), before) << "after a restart, too";
  EXPECT_EQ(settled, 1);
}

TEST_F(Publishing, WaitsForNothingButItsWatches) {
  start_with({l4("0000:3b:00.0", 42)});
  const std::size_t before = server.seen().size();
  clock.run_for(1h);
  // Each watch lasts five to ten minutes, and a trial comes with each new one of the slices.
  EXPECT_LE(server.seen().size() - before, 3U * 12U);
}

TEST_F(Publishing, PublishesAgainWhatTheKubeletHasWiped) {
  start_with({l4("0000:3b:00.0", 42)});
  wipe();
  settle();
  expect_one_pool();
  EXPECT_EQ(slices().front().generation, 2U) << "readers may still have the former one";
  EXPECT_TRUE(can_allocate(kSmall));
}

TEST_F(Publishing, ARestartedProcessGoesOnFromTheGenerationThatItFound) {
  start_with({l4("0000:3b:00.0", 42)});
  stop();
  start();
  settle();
  wipe();
  settle();
  expect_one_pool();
  EXPECT_EQ(slices().front().generation, 2U) << "readers may still have the former one";
}

TEST_F(Publishing, PublishesAgainWhatWasWipedWhileTheWatchWasLost) {
  list({l4("0000:3b:00.0", 42)});
  start();
  // No watch reports the new slices before they are gone again.
  server.hold_back("resourceslices");
  EXPECT_TRUE(clock.run_until([this] { return slices().size() == 2U; }, 1min));
  clock.run_for(1s);
  wipe();
  server.cut_streams();
  server.compact();
  server.hold_back("");
  clock.run_for(2min);
  EXPECT_TRUE(publisher->is_settled());
  expect_one_pool();
}

TEST_F(Publishing, ASliceOfANodeThatWasMadeAgainHasItsUid) {
  start_with({l4("0000:3b:00.0", 42)});
  server.erase("/api/v1/nodes/node7");
  wipe();
  server.put({{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", kNode}}}});
  settle();
  expect_one_pool();
  EXPECT_EQ(slices().front().owner.node_uid,
            server.object("/api/v1/nodes/node7").at("metadata").at("uid").get<std::string>());
}

TEST_F(Publishing, WaitsForItsNode) {
  server.erase("/api/v1/nodes/node7");
  list({l4("0000:3b:00.0", 42)});
  start();
  clock.run_for(1min);
  EXPECT_THAT(slices(), IsEmpty());
  server.put({{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", kNode}}}});
  settle();
  expect_one_pool();
}

TEST_F(Publishing, DoesWithoutANodeThatItMayNotRead) {
  server.script = [](const kube::ApiRequest& request) {
    return request.path.starts_with("/api/v1/nodes") ? std::optional(ApiFault::status_of(403, "Forbidden"))
                                                     : std::nullopt;
  };
  start_with({l4("0000:3b:00.0", 42)});
  expect_one_pool();
  EXPECT_EQ(slices().front().owner.node_uid, "");
}

TEST_F(Publishing, ReadsAgainAfterAConflict) {
  start_with({l4("0000:3b:00.0", 42)});
  const std::vector<std::string> before = slice_names();
  server.hold_back("resourceslices");
  server.edit(kSlicePath + before.back(), {{"metadata", {{"labels", {{"example.com/x", "y"}}}}}});
  std::vector<Gpu> gpus = {l4("0000:3b:00.0", 42)};
  gpus.front().health = GpuHealth::unhealthy;
  gpus.front().reason = "fatal PCIe errors";
  list(gpus);
  clock.run_for(20s);
  EXPECT_THAT(taints_of(kSmall), IsEmpty());
  server.hold_back("");
  settle();
  EXPECT_THAT(taints_of(kSmall), Contains(kUnhealthyTaint));
  EXPECT_EQ(slice_names(), before);
  EXPECT_EQ(slices().front().generation, 1U);
}

TEST_F(Publishing, BeginsAgainAtOneAfterTheLastGeneration) {
  start_with({l4("0000:3b:00.0", 42)});
  for (const std::uint64_t last : {(1ULL << 53U) - 1, 1ULL << 53U, (1ULL << 63U) - 1}) {
    for (const std::string& name : slice_names())
      server.edit(kSlicePath + name, {{"spec", {{"pool", {{"generation", last}}}}}});
    server.edit(kSlicePath + slice_names().back(), {{"spec", {{"devices", json::array()}}}});
    clock.run_for(1s);
    settle();
    expect_one_pool();
    EXPECT_EQ(slices().front().generation, 1U) << last;
    wipe();
    settle();
    EXPECT_EQ(slices().front().generation, 2U) << "it counts on after " << last;
  }
}

TEST_F(Publishing, TakesBackWhatAnotherHasWrittenThere) {
  start_with({l4("0000:3b:00.0", 42)});
  server.edit(kSlicePath + slice_names().back(), {{"spec", {{"devices", json::array()}}}});
  clock.run_for(1s);
  settle();
  expect_one_pool();
  EXPECT_TRUE(can_allocate(kWholeDevice));
  server.put({{"apiVersion", "resource.k8s.io/v1"},
              {"kind", "ResourceSlice"},
              {"metadata", {{"name", "foreign"}}},
              {"spec", {{"driver", kDriver}, {"nodeName", kNode}, {"pool", "no pool"}}}});
  clock.run_for(1s);
  settle();
  EXPECT_THAT(slice_names(), Not(Contains("foreign")));
}

// As with a finalizer.
TEST_F(Publishing, ASliceThatIsStillBeingRemovedHoldsNothingUp) {
  start_with({l4("0000:3b:00.0", 42)});
  server.script = [](const kube::ApiRequest& request) {
    return request.method == "DELETE" ? std::optional(ApiFault::status_of(200, "Success")) : std::nullopt;
  };
  server.put({{"apiVersion", "resource.k8s.io/v1"},
              {"kind", "ResourceSlice"},
              {"metadata", {{"name", "foreign"}}},
              {"spec",
               {{"driver", kDriver},
                {"nodeName", kNode},
                {"pool", {{"name", "other"}, {"generation", 1U}, {"resourceSliceCount", 1U}}}}}});
  clock.run_for(1s);
  settle();
  list({l4("0000:5e:00.0", 57)});
  clock.run_for(1s);
  settle();
  EXPECT_THAT(device_names(), Contains("whole-0000-5e-00-0"));
  EXPECT_EQ(server.count("DELETE"), 1U);
}

TEST_F(Publishing, WithoutCountersAGpuIsPublishedWhole) {
  gates = {.counters = false, .taints = false};
  start_with({l4("0000:3b:00.0", 42)});
  EXPECT_THAT(device_names(), testing::ElementsAre(kWholeDevice));
  EXPECT_THAT(device(kWholeDevice)->consumes, IsEmpty());
  EXPECT_FALSE(publisher->problem());
}

TEST_F(Publishing, FindsOutThatTheServerWasReplaced) {
  gates = {.counters = false, .taints = false};
  start_with({l4("0000:3b:00.0", 42)});
  gates = {};
  server.cut_streams();
  clock.run_for(30s);
  settle();
  EXPECT_TRUE(can_allocate(kSmall));
  gates = {.counters = false, .taints = true};
  server.cut_streams();
  clock.run_for(30s);
  settle();
  EXPECT_THAT(device_names(), testing::ElementsAre(kWholeDevice));
}

TEST_F(Publishing, AFieldThatWasDroppedIsNotTrusted) {
  start_with({l4("0000:3b:00.0", 42)});
  gates = {.counters = false, .taints = true};
  list({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 57)});
  clock.run_for(1s);
  settle();
  expect_one_pool();
  EXPECT_THAT(device_names(), testing::UnorderedElementsAre(kWholeDevice, "whole-0000-5e-00-0"));
}

TEST_F(Publishing, AServerWithoutTheApiGetsNothing) {
  server.script = [](const kube::ApiRequest& request) {
    return request.path.starts_with("/apis/resource.k8s.io/v1")
               ? std::optional(ApiFault{.status = 404, .body = "404 page not found\n"})
               : std::nullopt;
  };
  list({l4("0000:3b:00.0", 42)});
  start();
  clock.run_for(10min);
  EXPECT_EQ(writes(), 0U);
  EXPECT_LE(server.count("POST"), 60U) << "the pause between two trials grows";
  ASSERT_TRUE(publisher->problem());
  EXPECT_THAT(refused, Contains(testing::Field(&Error::message, HasSubstr("resource.k8s.io/v1"))));
  EXPECT_LE(refused.size(), 3U) << "each reason once";
  server.script = nullptr;
  settle();
  expect_one_pool();
  EXPECT_FALSE(publisher->problem());
}

TEST_F(Publishing, WritesNothingBeforeItKnowsTheClaims) {
  server.script = [](const kube::ApiRequest& request) {
    return request.path.find("/resourceclaims") == std::string::npos
               ? std::nullopt
               : std::optional(ApiFault::status_of(403, "Forbidden"));
  };
  list({l4("0000:3b:00.0", 42)});
  start();
  clock.run_for(10min);
  EXPECT_EQ(writes(), 0U);
  ASSERT_TRUE(publisher->problem());
  EXPECT_EQ(publisher->problem()->code, kube::ApiErrc::forbidden);
}

TEST_F(Publishing, WaitsForTheListOfHostd) {
  start();
  clock.run_for(1min);
  EXPECT_EQ(writes(), 0U);
  EXPECT_TRUE(publisher->problem());
  list({l4("0000:3b:00.0", 42)});
  settle();
  expect_one_pool();
  EXPECT_FALSE(publisher->problem());
}

TEST_F(Publishing, AnUnreadableListChangesNothing) {
  start_with({l4("0000:3b:00.0", 42)});
  const std::size_t before = writes();
  scratch.file(api::kClaimableGpusFile, "{");
  publisher->gpus_changed();
  clock.run_for(1min);
  EXPECT_EQ(writes(), before);
  EXPECT_TRUE(publisher->problem());
  scratch.remove(api::kClaimableGpusFile);
  publisher->gpus_changed();
  clock.run_for(1min);
  EXPECT_EQ(writes(), before);
  list({});
  settle();
  EXPECT_THAT(devices(), IsEmpty());
  EXPECT_EQ(slices().size(), 1U) << "a pool without devices is no missing pool";
}

TEST_F(Publishing, AHeldDeviceStaysAsItWasWhenItsGpuIsGone) {
  start_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 57)});
  held = {held_now(kSmall)};
  const Device before = *device(kSmall);
  publisher->held_changed();
  settle();
  EXPECT_THAT(taints_of(kSmall), Contains(kInUseTaint));
  EXPECT_THAT(taints_of("vgpu-0000-3b-00-0-1152-0"), Contains(kOtherSizeTaint));
  EXPECT_EQ(slices().front().generation, 1U) << "taints alone have changed";
  list({l4("0000:5e:00.0", 57)});
  clock.run_for(1s);
  settle();
  expect_one_pool();
  EXPECT_THAT(taints_of(kSmall), testing::UnorderedElementsAre(kInUseTaint, kGoneTaint));
  EXPECT_EQ(device(kSmall)->consumes, before.consumes);
  EXPECT_FALSE(device(kWholeDevice));
  held.clear();
  publisher->held_changed();
  clock.run_for(1s);
  settle();
  EXPECT_FALSE(device(kSmall));
  EXPECT_THAT(device_names(), Contains("whole-0000-5e-00-0"));
}

TEST_F(Publishing, AnAllocatedDeviceStaysBeforeItIsPrepared) {
  start_with({l4("0000:3b:00.0", 42)});
  const std::size_t before = writes();
  allocate("render", kSmall);
  allocate("elsewhere", "vgpu-0000-3b-00-0-1150-1", "node8/gpu-ferry");
  clock.run_for(1min);
  EXPECT_EQ(writes(), before) << "the scheduler counts it already";
  std::vector<Gpu> gpus = {l4("0000:3b:00.0", 42)};
  gpus.front().for_dra = false;
  list(gpus);
  clock.run_for(1s);
  settle();
  EXPECT_THAT(device_names(), testing::ElementsAre(kSmall));
  EXPECT_THAT(taints_of(kSmall), Contains(kInUseTaint));
  deallocate("render");
  clock.run_for(1s);
  settle();
  EXPECT_THAT(devices(), IsEmpty());
}

// Such a claim observes a device that another claim may have. The scheduler does not count it.
TEST_F(Publishing, ADeviceWithAdminAccessIsNotInUse) {
  start_with({l4("0000:3b:00.0", 42)});
  allocate("render", kSmall);
  clock.run_for(1min);
  const std::size_t before = writes();
  json of_a_watcher = json::array();
  of_a_watcher.push_back(result_of(kWholeDevice));
  of_a_watcher.front()["adminAccess"] = true;
  put_claim("watcher", of_a_watcher);
  clock.run_for(1min);
  EXPECT_EQ(writes(), before);
  const auto claims = publisher->claims();
  ASSERT_TRUE(claims);
  EXPECT_THAT(*claims, testing::SizeIs(1));
  EXPECT_THAT(test::must(publisher->node()).allocated, testing::ElementsAre(kSmall));
}

// A tenant writes the tolerations of a request, and the scheduler copies them to each result.
TEST_F(Publishing, LargeClaimsOfOtherDriversAreNoTrouble) {
  const json toleration = {{"key", std::string(300, 'k')}, {"operator", "Exists"}};
  json tolerations = json::array();
  for (int i = 0; i < 16; ++i) tolerations.push_back(toleration);
  json results = json::array();
  for (int i = 0; i < 32; ++i) {
    json result = result_of(fmt::format("device-{}", i), "elsewhere");
    result["tolerations"] = tolerations;
    results.push_back(std::move(result));
  }
  for (int i = 0; i < 20; ++i) put_claim(fmt::format("large-{}", i), results);
  start_with({l4("0000:3b:00.0", 42)});
  expect_one_pool();
  EXPECT_FALSE(publisher->problem());
}

TEST_F(Publishing, EightGpusOfTwelveTypesFitTheServersLimits) {
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 8; ++i) {
    Gpu gpu = l4(fmt::format("0000:{:02x}:00.0", 0x10 + i), 100 + i);
    gpu.memory_mib = 64 * 1024;
    gpu.types.clear();
    for (unsigned type = 0; type < 12; ++type) {
      VgpuType one = test::vgpu_type(std::to_string(1100 + type), fmt::format("L4-{}Q", type + 1), 1, 16);
      one.framebuffer_mib = (type + 1) * 256;
      gpu.types.push_back(std::move(one));
    }
    gpus.push_back(std::move(gpu));
  }
  start_with(gpus);
  expect_one_pool();
  EXPECT_EQ(devices().size(), 8U * 12U * 16U + 8U);
  EXPECT_EQ(slices().size(), 26U);
  for (const ResourceSlice& slice : slices()) {
    EXPECT_LE(slice.devices.size(), kMostDevicesWithExtras);
    EXPECT_LE(slice.counter_sets.size(), kMostCounterSets);
  }
  const std::size_t before = writes();
  EXPECT_EQ(before, 26U);
  held = {held_now("vgpu-0000-10-00-0-1103-0")};
  publisher->held_changed();
  clock.run_for(1s);
  settle();
  EXPECT_EQ(slices().front().generation, 1U);
  stop();
  const std::size_t after = writes();
  start();
  settle();
  EXPECT_EQ(writes(), after);
}

TEST_F(Publishing, ARestartInTheMiddleGoesOn) {
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 20; ++i) gpus.push_back(l4(fmt::format("0000:{:02x}:00.0", i + 1), i + 1));
  list(gpus);
  start();
  EXPECT_TRUE(clock.run_until([this] { return slices().size() == 3U; }, 1min));
  stop();
  clock.run_for(10s);
  test::SchedulerModel scheduler;
  scheduler.see(slices());
  EXPECT_FALSE(scheduler.allocate("a", {{.name = "card", .alternatives = {test::whole_gpu()}}}))
      << "the pool is incomplete";
  start();
  settle();
  expect_one_pool();
  EXPECT_EQ(devices().size(), 140U);
}

TEST_F(Publishing, WaitsForAServerThatIsAway) {
  server.set_down(true);
  list({l4("0000:3b:00.0", 42)});
  start();
  clock.run_for(5min);
  server.set_down(false);
  clock.run_for(2min);
  EXPECT_TRUE(publisher->is_settled());
  expect_one_pool();
  server.set_down(true);
  list({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 57)});
  clock.run_for(5min);
  server.set_down(false);
  clock.run_for(2min);
  settle();
  expect_one_pool();
  EXPECT_EQ(devices().size(), 14U);
  EXPECT_THAT(refused, IsEmpty()) << "it came back by itself";
}

TEST_F(Publishing, AServerThatRefusesIsAskedLessAndLess) {
  server.script = [](const kube::ApiRequest& request) {
    const bool create = request.method == "POST" && request.path.find("dryRun") == std::string::npos;
    return create ? std::optional(ApiFault::status_of(422, "Invalid", "devices: Too many")) : std::nullopt;
  };
  list({l4("0000:3b:00.0", 42)});
  start();
  clock.run_for(10min);
  EXPECT_GE(writes(), 5U);
  EXPECT_LE(writes(), 60U);
  ASSERT_TRUE(publisher->problem());
  EXPECT_THAT(publisher->problem()->message, HasSubstr("Too many"));
  server.script = nullptr;
  clock.run_for(1min);
  settle();
  expect_one_pool();
}

TEST_F(Publishing, ASliceWhoseAnswerWasLostIsNotThereTwice) {
  list({l4("0000:3b:00.0", 42)});
  bool lost = false;
  server.script = [&lost](const kube::ApiRequest& request) {
    const bool create = request.method == "POST" && request.path.find("dryRun") == std::string::npos;
    return create && !std::exchange(lost, true) ? std::optional(ApiFault::lost_after()) : std::nullopt;
  };
  start();
  settle();
  EXPECT_TRUE(lost);
  expect_one_pool();
  EXPECT_EQ(slices().size(), 2U);
}

TEST_F(Publishing, RefusesANameThatNoNodeHas) {
  SlicePublisher wrong(host, server, clock, [this] { return server.draw(); },
                       {.node = "a/b", .held = [] { return std::vector<HeldDevice>(); }});
  const auto begun = wrong.begin();
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, Errc::usage);
}

/// A scheduler that sees the slices of the server at random times, and claims that come and go.
class RandomSchedule : public Publishing {
 protected:
  void run(int steps) {
    start_with(gpus_);
    for (int step = 0; step < steps; ++step) {
      const double what = server.draw();
      if (what < 0.35)
        allocate_one();
      else if (what < 0.55)
        prepare_one();
      else if (what < 0.75)
        end_one();
      else if (what < 0.85)
        change_health();
      else if (what < 0.9)
        change_owner();
      else if (what < 0.95)
        wipe();
      else
        restart();
      clock.run_for(std::chrono::milliseconds(static_cast<int>(server.draw() * 3000)));
      ASSERT_NO_FATAL_FAILURE(expect_no_counter_overdrawn()) << "step " << step;
    }
  }

 private:
  std::size_t any_of(std::size_t count) {
    return static_cast<std::size_t>(server.draw() * static_cast<double>(count));
  }
  /// Absent: there is no claim.
  std::optional<std::string> any_claim() {
    if (claims_.empty()) return std::nullopt;
    return std::next(claims_.begin(), static_cast<std::ptrdiff_t>(any_of(claims_.size())))->first;
  }

  void allocate_one() {
    const std::vector<test::DeviceRequest::Selector> kinds = {test::whole_gpu(), test::vgpu_of_type("L4-6Q"),
                                                              test::vgpu_of_type("L4-12Q")};
    const std::string claim = fmt::format("c{}", ++last_claim_);
    scheduler_.see(slices());
    if (!scheduler_.allocate(claim, {{.name = "card", .alternatives = {kinds[any_of(kinds.size())]}}}))
      return;
    const std::string name = scheduler_.find(claim)->front().device;
    claims_[claim] = name;
    allocate(claim, name);
  }
  void prepare_one() {
    const auto claim = any_claim();
    const auto node = publisher->node();
    if (!claim || !node) return;
    const std::vector<std::string> names = {claims_.at(*claim)};
    const bool is_held =
        std::ranges::any_of(held, [&](const HeldDevice& one) { return one.claim == *claim; });
    if (is_held || !check_available(*node, publication_of(*node), names, *claim)) return;
    held.push_back(test::held_device(*node, names.front(), *claim));
    publisher->held_changed();
  }
  void end_one() {
    const auto claim = any_claim();
    if (!claim) return;
    std::erase_if(held, [&](const HeldDevice& one) { return one.claim == *claim; });
    publisher->held_changed();
    scheduler_.deallocate(*claim);
    deallocate(*claim);
    claims_.erase(*claim);
  }
  void change_health() {
    Gpu& gpu = gpus_[any_of(gpus_.size())];
    gpu.health = gpu.health == GpuHealth::ready ? GpuHealth::unhealthy : GpuHealth::ready;
    list(gpus_);
  }
  /// hostd knows prepared claims alone.
  void change_owner() {
    Gpu& gpu = gpus_[any_of(gpus_.size())];
    if (std::ranges::any_of(held, [&](const HeldDevice& one) { return one.asked.gpu == gpu.address; }))
      return;
    gpu.for_dra = !gpu.for_dra;
    list(gpus_);
  }
  void restart() {
    stop();
    start();
  }

  void expect_no_counter_overdrawn() const {
    std::map<std::string, Counters> used;
    for (const auto& [claim, name] : claims_) {
      const PublishedDevice* const of_claim = hardware_.device(name);
      ASSERT_NE(of_claim, nullptr) << name;
      for (const CounterConsumption& consumption : of_claim->device.consumes)
        for (const auto& [counter, value] : consumption.counters) used[consumption.set][counter] += value;
    }
    for (const auto& [set, counters] : used)
      for (const auto& [counter, value] : counters)
        ASSERT_LE(value, hardware_.counter_set(set)->counters.at(counter)) << set << " " << counter;
  }

  std::vector<Gpu> gpus_ = {l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 57)};
  const Publication hardware_ = publication_of(test::node_with(gpus_));
  test::SchedulerModel scheduler_;
  std::map<std::string, std::string> claims_;  ///< the device of each
  int last_claim_ = 0;
};

TEST_F(RandomSchedule, GivesNoMemoryTwice) {
  run(600);
  server.chances = {};
  clock.run_for(5min);
  EXPECT_TRUE(publisher->is_settled());
  expect_one_pool();
}

// Whatever is lost, late or refused: in the end the slices are the desired ones, and one pool.
TEST_F(Publishing, ComesToTheDesiredSlicesThroughAllTrouble) {
  const std::vector<std::string> addresses = {"0000:3b:00.0", "0000:5e:00.0", "0000:af:00.0"};
  list({l4(addresses.front(), 42)});
  start();
  for (int round = 0; round < 40; ++round) {
    server.chances = {.lost_before = 0.05,
                      .lost_after = 0.05,
                      .server_fault = 0.05,
                      .too_many_requests = 0.05,
                      .other_writer = 0.1,
                      .late = 0.02,
                      .cut = 0.05,
                      .ended = 0.05,
                      .again = 0.1,
                      .compacted = 0.05};
    std::vector<Gpu> gpus;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (server.draw() < 0.3) continue;
      gpus.push_back(l4(addresses[i], static_cast<std::uint32_t>(40 + i)));
      if (server.draw() < 0.3) gpus.back().health = GpuHealth::unhealthy;
    }
    list(gpus);
    if (server.draw() < 0.2) wipe();
    if (server.draw() < 0.2) {
      stop();
      start();
    }
    clock.run_for(std::chrono::seconds(static_cast<int>(server.draw() * 60)));
    server.chances = {};
    clock.run_for(5min);
    ASSERT_TRUE(publisher->is_settled()) << "round " << round;
    expect_one_pool();
    const NodeModel node = test::must(publisher->node());
    const std::vector<ResourceSlice> next = slices_of(publication_of(node), node.owner, 0);
    std::vector<std::string> expected;
    for (const ResourceSlice& slice : next)
      for (const Device& one : slice.devices) expected.push_back(one.name);
    EXPECT_EQ(device_names(), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace ferry::dra
