// SPDX-License-Identifier: Apache-2.0
// The agent's loop against an API server in memory, with a hostd that answers its files and an operator whose
// pods come and go by the node's labels; hours pass in milliseconds.
#include "agent/node_agent.h"

#include <array>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/cluster_words.h"
#include "agent/operands.h"
#include "agent/seen_host.h"
#include "agent/status_files.h"
#include "agent/wish_file.h"
#include "common/host_fs.h"
#include "kube/api_path.h"
#include "tests/support/api_server.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/virtual_clock.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;

constexpr const char* kNode = "/api/v1/nodes/n1";
constexpr const char* kConfigs = "/api/v1/namespaces/gpus/configmaps/ferry";
constexpr const char* kValidator = "nvidia.com/gpu.deploy.sandbox-validator";
constexpr const char* kPod = "/api/v1/namespaces/gpu-operator/pods/validator";
constexpr const char* kPolicies =
    "version: v2\npolicies:\n"
    "  given: [{devices: all, mode: passthrough}]\n"
    "  kept: [{devices: all, mode: host}]\n"
    "  divided: [{devices: all, mode: vgpu, vgpu-devices: {L40S-12Q: 4}}]\n";

/// What `ferry hostd` does, as far as its files show it: takes up what is wanted, and needs its time.
class Hostd {
 public:
  Hostd(test::VirtualClock& clock, HostFs& host, std::function<void()> wrote)
      : clock_(clock), host_(host), wrote_(std::move(wrote)) {}

  void wanted_changed() {
    if (!runs) return;
    clock_.cancel(next_);
    const auto wanted = read_wish_file(host_.read_file(kWishFile).value_or(""));
    if (!wanted) return say(std::nullopt, "nothing_wanted");
    const auto generation = wanted->generation;
    if (holder) return say(generation, "refused");
    if (fails) return say(generation, "failed");
    if (wanted->policy == is) return say(generation, "as_wanted");
    say(generation, "withdrawing");
    next_ = clock_.at(clock_.now() + 2s, [this, generation, policy = wanted->policy] {
      say(generation, "changing");
      next_ = clock_.at(clock_.now() + takes, [this, generation, policy] {
        is = policy;
        say(generation, "as_wanted");
      });
    });
  }
  void stop() {
    runs = false;
    clock_.cancel(next_);
  }
  void start() {
    runs = true;
    wanted_changed();
  }

  bool runs = true;
  bool holder = false;  ///< a VM has the GPU
  bool fails = false;
  std::chrono::seconds takes{5};
  std::string is = "kept";

 private:
  std::string mode() const { return is == "given" ? "passthrough" : is == "divided" ? "vgpu" : "host"; }
  void say(std::optional<std::uint64_t> generation, const std::string& phase) {
    json gpu = {{"address", "0000:02:00.0"},
                {"id", "10de:26b9"},
                {"model", "NVIDIA L40S"},
                {"iommu_group", 12},
                {"driver", "nvidia"},
                {"mode", mode()},
                {"wanted", nullptr},
                {"state", "as_wanted"},
                {"reason", ""},
                {"hint", ""},
                {"holders", json::array()},
                {"vgpus", json::array()}};
    if (phase == "refused") {
      gpu["state"] = "refused";
      gpu["reason"] = "0000:02:00.0 is in use: VM guest-7 (pid 4711) holds /dev/vfio/12";
      gpu["holders"] = {{{"kind", "vm"}, {"name", "guest-7"}, {"pid", 4711}}};
    }
    if (phase == "failed") gpu["state"] = "failed";
    json state = {{"version", 1},
                  {"generation", ++said_},
                  {"pid", 7},
                  {"boot_id", "b"},
                  {"wanted", generation ? json{{"generation", *generation}} : json()},
                  {"phase", phase},
                  {"accelerators", {gpu}},
                  {"withdraw", json::array()},
                  {"error", nullptr}};
    if (!host_.write_file(kStateFile, state.dump())) std::abort();
    wrote_();
  }

  test::VirtualClock& clock_;
  HostFs& host_;
  std::function<void()> wrote_;
  std::uint64_t said_ = 0;
  Timers::Timer next_;
};

/// A cluster of one node.
class Cluster {
 public:
  explicit Cluster(std::uint64_t seed = 1) : server(clock, seed), random_(seed) {
    server.put({{"apiVersion", "v1"},
                {"kind", "Node"},
                {"metadata", {{"name", "n1"}, {"labels", {{"kubernetes.io/hostname", "n1"}}}}}});
    configure(kPolicies);
  }
  void configure(const std::string& text) {
    server.put({{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", {{"name", "ferry"}, {"namespace", "gpus"}}},
                {"data", {{"config.yaml", text}}}});
  }
  void start_agent() {
    agent = std::make_unique<NodeAgent>(
        host, server, clock, [this] { return server.draw(); }, [this] { return clock.wall(); },
        NodeAgent::Settings{.node = "n1",
                            .space = "gpus",
                            .config_maps = {"ferry"},
                            .operator_space = "gpu-operator",
                            .defaults = {}});
    EXPECT_TRUE(agent->begin());
  }
  void kill_agent() { agent.reset(); }

  void label(const std::string& key, const json& value) {
    server.edit(kNode, {{"metadata", {{"labels", {{key, value}}}}}});
  }
  std::map<std::string, std::string> labels() const {
    const json node = server.object(kNode);
    return node.at("metadata").value("labels", std::map<std::string, std::string>());
  }
  std::string label(const std::string& key) const {
    const auto all = labels();
    const auto found = all.find(key);
    return found == all.end() ? "there is none" : found->second;
  }
  std::string annotation(const char* key) const {
    const json node = server.object(kNode);
    const auto all = node.at("metadata").value("annotations", std::map<std::string, std::string>());
    const auto found = all.find(key);
    return found == all.end() ? "" : found->second;
  }
  std::string wanted() const {
    const auto wish = read_wish_file(host.read_file(kWishFile).value_or(""));
    return wish ? wish->policy : "nothing";
  }
  std::set<std::string> reasons() const {
    std::set<std::string> out;
    for (const auto& [name, event] : server.objects({.kind = kEvents, .space = "default"}))
      out.insert(event.at("reason").get<std::string>());
    return out;
  }

  /// The operator's DaemonSet: its pod is on the node while the label says true.
  void put_validator() {
    label(kValidator, "true");
    operator_acts();
  }
  void operator_acts() {
    const bool wished = label(kValidator) == "true";
    const bool there = !server.object(kPod).is_null();
    if (wished && !there) {
      server.put({{"apiVersion", "v1"},
                  {"kind", "Pod"},
                  {"metadata",
                   {{"name", "validator"},
                    {"namespace", "gpu-operator"},
                    {"ownerReferences", {{{"kind", "DaemonSet"}, {"name", "nvidia-sandbox-validator"}}}}}},
                  {"spec", {{"nodeName", "n1"}}},
                  {"status", {{"phase", "Running"}}}});
    }
    if (!wished && there && label(kValidator) != "there is none") server.erase(kPod);
  }
  /// Time passes, the operator looking every few seconds.
  void pass(std::chrono::seconds time) {
    const auto end = clock.now() + time;
    while (clock.now() < end) {
      clock.run_for(std::min<Timers::Clock::duration>(3s, end - clock.now()));
      operator_acts();
    }
  }

  test::VirtualClock clock;
  test::ApiServer server;
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  std::unique_ptr<NodeAgent> agent;
  Hostd hostd{clock, host, [this] {
                if (agent) agent->host_changed();
              }};

 private:
  std::mt19937_64 random_;
};

/// hostd hears of what the agent writes, as inotify would tell it.
class AgentLoop : public testing::Test {
 protected:
  void pass(std::chrono::seconds time) {
    const auto end = cluster.clock.now() + time;
    while (cluster.clock.now() < end) {
      cluster.pass(std::min<std::chrono::seconds>(
          1s, std::chrono::duration_cast<std::chrono::seconds>(end - cluster.clock.now())));
      tell_hostd();
    }
  }
  void tell_hostd() {
    const std::string now = cluster.host.read_file(kWishFile).value_or("");
    if (std::exchange(told_, now) != now) cluster.hostd.wanted_changed();
  }

  Cluster cluster;

 private:
  std::string told_;
};

TEST_F(AgentLoop, FollowsALabelAndSaysWhatHasComeOfIt) {
  cluster.start_agent();
  pass(5s);
  EXPECT_EQ(cluster.label(kStateLabel), "nothing_wanted");
  EXPECT_EQ(cluster.wanted(), "nothing");
  cluster.label(kPolicyLabel, "given");
  pass(4s);
  EXPECT_EQ(cluster.wanted(), "given");
  EXPECT_THAT(cluster.label(kStateLabel), testing::AnyOf("withdrawing", "changing"));
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "as_wanted");
  EXPECT_EQ(cluster.host.read_file("run/nvidia/validations/workload-type").value_or(""), "vm-passthrough\n");
  EXPECT_TRUE(cluster.host.exists("run/nvidia/validations/vfio-pci-ready"));
  EXPECT_THAT(cluster.reasons(), testing::IsSupersetOf({"HostAsWanted", "HostChanging", "HostWithdrawing"}));

  cluster.label(kPolicyLabel, nullptr);
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "nothing_wanted");
  EXPECT_EQ(cluster.wanted(), "nothing");
  EXPECT_EQ(cluster.hostd.is, "given") << "the host is left as it is";
}

TEST_F(AgentLoop, TellsARefusalAndIsDoneWhenTheHolderGoes) {
  cluster.start_agent();
  cluster.hostd.holder = true;
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "refused");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("VM guest-7 (pid 4711)"));
  EXPECT_THAT(cluster.reasons(), Contains("HostRefused"));
  const auto asked = cluster.server.seen().size();
  pass(30min);
  EXPECT_LT(cluster.server.seen().size() - asked, 30U) << "waiting is not asking";
  cluster.hostd.holder = false;
  cluster.hostd.wanted_changed();
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "as_wanted");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
}

TEST_F(AgentLoop, ConfigMapEditsCountAndAWrongOneChangesNothing) {
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(20s);
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mood: host}]\n");
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("mood"));
  EXPECT_EQ(cluster.wanted(), "given") << "what was written down stays";
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mode: host}]\n");
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "as_wanted");
}

TEST_F(AgentLoop, PausesTheOperatorsPodForAChangeAndResumesIt) {
  cluster.put_validator();
  cluster.start_agent();
  pass(5s);
  cluster.label(kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark);
  EXPECT_EQ(cluster.wanted(), "nothing") << "its pod is still there";
  pass(40s);
  EXPECT_EQ(cluster.label(kStateLabel), "as_wanted");
  EXPECT_EQ(cluster.label(kValidator), "true");
  EXPECT_FALSE(cluster.server.object(kPod).is_null());
}

TEST_F(AgentLoop, OneThatComesAfterACrashResumesThePod) {
  cluster.put_validator();
  cluster.start_agent();
  pass(5s);
  cluster.label(kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  cluster.kill_agent();
  cluster.label(kPolicyLabel, nullptr);
  pass(60s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark);
  cluster.start_agent();
  pass(20s);
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, SaysThatHostdIsSilent) {
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "pending");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
  pass(30s);
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("has not taken up policy given"));
  EXPECT_THAT(cluster.reasons(), Contains("HostSilent"));
  cluster.hostd.start();
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "as_wanted");
}

TEST_F(AgentLoop, AnHourOfNothingCostsNextToNothing) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(5min);
  ASSERT_EQ(cluster.label(kStateLabel), "as_wanted");
  const auto before = cluster.server.seen().size();
  pass(1h);
  // Four watches, each asked anew when the server ends it: every five to ten minutes.
  EXPECT_LE(cluster.server.seen().size() - before, 4U * 12U);
  EXPECT_EQ(cluster.server.open_streams(), 4U);
}

TEST_F(AgentLoop, ALabelChangeTakesAHandfulOfRequests) {
  cluster.start_agent();
  pass(10s);
  const auto before = cluster.server.seen().size();
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  ASSERT_EQ(cluster.label(kStateLabel), "as_wanted");
  EXPECT_LE(cluster.server.seen().size() - before, 12U);
}

int schedules() {
  const char* const wish = std::getenv("FERRY_SCHEDULES");  // NOLINT(concurrency-mt-unsafe): one thread
  return wish == nullptr ? 1'000 : std::atoi(wish);         // NOLINT(cert-err34-c): 0 runs none
}

/// Everything that may happen to a node, in any order and at once.
class Schedule : public AgentLoop {
 protected:
  void run(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int most) { return std::uniform_int_distribution<int>(0, most - 1)(random); };
    cluster.put_validator();
    cluster.start_agent();
    auto& chances = cluster.server.chances;
    if (draw(2) == 0) {
      chances.lost_before = chances.lost_after = chances.server_fault = chances.other_writer = 0.1;
      chances.late = chances.cut = chances.ended = chances.again = chances.compacted = 0.1;
      chances.too_many_requests = chances.unauthorized = 0.05;
    }
    static constexpr std::array kNames = {"given", "kept", "divided", "typo"};
    for (int event = 0; event < 12; ++event) {
      happen(draw(10), kNames[static_cast<std::size_t>(draw(kNames.size()))]);
      pass(std::chrono::seconds(draw(3) == 0 ? draw(40) : draw(4)));
    }
    settle(kNames[static_cast<std::size_t>(draw(3))]);
  }

  enum Event { label_set, label_gone, agent_killed, hostd_restarted, holder, streams_cut, compacted, outage };
  static constexpr std::array<const char*, 8> kEventNames = {
      "label set",           "label removed", "agent killed",      "hostd restarted",
      "holder came or went", "streams cut",   "history compacted", "API server down or up"};

  void happen(int what, const char* name) {
    static constexpr std::array kEvents = {label_set,       label_set, label_set,   label_gone, agent_killed,
                                           hostd_restarted, holder,    streams_cut, compacted,  outage};
    const Event event = kEvents.at(static_cast<std::size_t>(what));
    count(event);
    switch (event) {
      case label_set:
        return cluster.label(kPolicyLabel, name);
      case label_gone:
        return cluster.label(kPolicyLabel, nullptr);
      case agent_killed:
        cluster.kill_agent();
        return cluster.start_agent();
      case hostd_restarted:
        cluster.hostd.stop();
        return cluster.hostd.start();
      case holder:
        cluster.hostd.holder = !cluster.hostd.holder;
        return cluster.hostd.wanted_changed();
      case streams_cut:
        return cluster.server.cut_streams();
      case compacted:
        return cluster.server.compact();
      case outage:
        down_ = !down_;
        return cluster.server.set_down(down_);
    }
  }

  /// Two events overlap when what the first began cannot have ended yet.
  void count(Event event) {
    while (!recent_.empty() && cluster.clock.now() - recent_.front().second > 10s) recent_.pop_front();
    for (const auto& [before, when] : recent_) ++overlaps()[before][event];
    recent_.emplace_back(event, cluster.clock.now());
  }
  using Overlaps = std::array<std::array<int, kEventNames.size()>, kEventNames.size()>;
  static Overlaps& overlaps() {
    static Overlaps all{};
    return all;
  }

  static void TearDownTestSuite() {
    for (std::size_t before = 0; before < kEventNames.size(); ++before) {
      std::string line = fmt::format("{:>22}, then within 10 s:", kEventNames[before]);
      for (std::size_t after = 0; after < kEventNames.size(); ++after) {
        line += fmt::format(" {:>6}", overlaps()[before][after]);
        if (schedules() < 1'000) continue;
        EXPECT_GT(overlaps()[before][after], 0) << kEventNames[before] << ", then " << kEventNames[after];
      }
      fmt::print("{}\n", line);
    }
  }

  /// All goes well again, and everything becomes as it shall be.
  void settle(const char* name) {
    cluster.server.chances = {};
    cluster.server.set_down(false);
    cluster.hostd.holder = false;
    cluster.label(kPolicyLabel, name);
    cluster.hostd.wanted_changed();
    pass(10min);
    EXPECT_EQ(cluster.wanted(), name);
    EXPECT_EQ(cluster.hostd.is, name);
    EXPECT_EQ(cluster.label(kStateLabel), "as_wanted");
    EXPECT_EQ(cluster.label(kValidator), "true") << "an operand was left paused";
    EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
  }

 private:
  bool down_ = false;
  std::deque<std::pair<Event, Timers::Clock::time_point>> recent_;
};

class RandomSchedules : public Schedule, public testing::WithParamInterface<int> {};

TEST_P(RandomSchedules, EndAsWantedWithNothingPaused) {
  run(static_cast<std::uint64_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchedules, testing::Range(0, schedules()));

}  // namespace
}  // namespace ferry
