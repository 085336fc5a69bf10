// SPDX-License-Identifier: Apache-2.0
// Random histories of one node: its labels change, programs of the gpu-operator come, go, pause and resume,
// the agent and hostd look, act, stall and are killed between any two effects. However it went, once
// everybody is left in peace the node is what its labels say, and no operand is left paused.
#include <algorithm>
#include <array>
#include <optional>
#include <random>

#include <gmock/gmock.h>

#include "policy/policy_yaml.h"
#include "tests/agent/snapshots.h"

namespace ferry::agent {
namespace {

using std::chrono::seconds;

constexpr std::array kOperands = {"nvidia.com/gpu.deploy.sandbox-device-plugin",
                                  "nvidia.com/gpu.deploy.kata-sandbox-device-plugin",
                                  "nvidia.com/gpu.deploy.sandbox-validator"};
constexpr const char* kOwner = "nvidia.com/gpu.deploy.vfio-manager";
constexpr std::string_view kOthersPause = "paused-for-cc-mode-change";

class World {
 public:
  explicit World(unsigned seed) : random_(seed) {
    snapshot_.node = test::node_with({});
    snapshot_.configs = test::usual_configs();
    snapshot_.others = {.pods = std::vector<PodOnNode>(), .daemon_sets = std::set<std::string>()};
    if (one_in(2)) snapshot_.defaults.workload = pick({Workload::container, Workload::vm_vgpu});
    for (const char* key : kOperands) operator_sets(key);
    host_policy_ = resolve_desired_state(test::node_with({{api::kWorkloadLabel, "container"}}), {}, {})
                       .desired_policy.policy;
  }

  void disturb() {
    switch (number(16)) {
      case 0:
      case 1:
        return user();
      case 2:
        return operator_sets(operand());
      case 3:
        return another_pauses(operand());
      case 4:
        return another_resumes();
      case 5:
        return owner(one_in(2));
      case 6:
        clock(seconds(number(200)));
        return;
      case 7:
      case 8:
      case 9:
        return hostd(one_in(4));
      case 10:
        snapshot_.features = pick({FeatureWay::none, FeatureWay::node, FeatureWay::nfd});
        return;
      case 11:
        return another_counts();
      default:
        return agent(one_in(3) ? number(4) : kWhole);
    }
  }

  /// Everybody works and nobody is disturbed.
  void peace() {
    another_resumes();
    owner(one_in(8));
    for (int round = 0; round < 15; ++round) {
      agent(kWhole);
      hostd(false);
      clock(seconds(1));
    }
  }

  void expect_all_is_well() const {
    const Labels& labels = snapshot_.node.labels;
    for (const auto& [key, value] : intended_) {
      const auto now = labels.find(key);
      EXPECT_EQ(now == labels.end() ? "(absent)" : now->second, value) << key;
    }
    const auto owners = other_owners(labels, snapshot_.others);
    const DesiredState desired_state =
        resolve_desired_state(snapshot_.node, snapshot_.configs, snapshot_.defaults);
    const bool standby = !owners.empty() && desired_state.kind != DesiredState::Kind::nothing;
    const std::string state = labels.at(api::kStateLabel);
    const bool troubled = snapshot_.node.annotations.contains(api::kErrorAnnotation);
    if (standby) {
      EXPECT_EQ(state, "standby");
      EXPECT_EQ(snapshot_.host.written.has_value(), false);
    } else if (desired_state.kind == DesiredState::Kind::nothing) {
      EXPECT_EQ(state, "idle");
      EXPECT_EQ(snapshot_.host.written.has_value(), false);
    } else if (desired_state.kind == DesiredState::Kind::invalid) {
      EXPECT_EQ(state, "failed");
    } else {
      EXPECT_EQ(state, "ready");
      EXPECT_TRUE(same_policy(host_policy_, desired_state.desired_policy.policy))
          << desired_state.desired_policy.name;
      EXPECT_EQ(labels.contains(api::kVgpuStateLabel), desired_state.of_vgpu_config);
      EXPECT_TRUE(!desired_state.of_vgpu_config || labels.at(api::kVgpuStateLabel) == "success");
    }
    const auto vgpus = labels.find(api::kVgpuStateLabel);
    EXPECT_TRUE(standby || vgpus == labels.end() || vgpus->second != "pending") << "nobody waits";
    expect_features();
    EXPECT_EQ(troubled, standby || desired_state.kind == DesiredState::Kind::invalid);
    // What no one disturbs is not written again.
    const ReconcileResult step = reconcile(snapshot_);
    EXPECT_TRUE(step.labels.empty() && step.annotations.empty() && step.events.empty() &&
                !step.desired_file && !step.remove_desired_file);
  }

  unsigned changes() const { return changes_; }
  unsigned kills() const { return kills_; }

 private:
  static constexpr unsigned kWhole = 100;
  static constexpr const char* kCount = "nvidia.com/gpu.count";

  /// What GPUs are is said whatever they shall be, and what another says of them stays.
  void expect_features() const {
    const bool said = snapshot_.features == FeatureWay::node;
    const Labels features =
        feature_labels(snapshot_.host.status.value_or(api::HostStatus())).value_or(Labels());
    EXPECT_FALSE(features.empty());
    for (const auto& [key, value] : features) {
      const std::string expected = key == kCount && counted_ ? *counted_ : said ? value : "(absent)";
      const auto now = snapshot_.node.labels.find(key);
      EXPECT_EQ(now == snapshot_.node.labels.end() ? "(absent)" : now->second, expected) << key;
    }
  }

  unsigned number(unsigned below) { return static_cast<unsigned>(random_()) % below; }
  bool one_in(unsigned n) { return number(n) == 0; }
  const char* operand() { return kOperands.at(number(kOperands.size())); }
  template <typename T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + number(static_cast<unsigned>(from.size())));
  }

  void set(std::string_view key, const std::string& value) {
    if (value == "(absent)") {
      snapshot_.node.labels.erase(std::string(key));
    } else {
      snapshot_.node.labels[std::string(key)] = value;
    }
  }

  void user() {
    const std::string_view key =
        pick({api::kOperandsLabel, api::kPolicyLabel, api::kWorkloadLabel, policy::kVgpuConfigLabel});
    if (key == api::kOperandsLabel)
      return set(key, pick({"false", "true", "(absent)", "(absent)", "(absent)"}));
    if (key == api::kPolicyLabel)
      return set(key, pick({"mixed", "quarters", "typo", "", "(absent)", "(absent)", "(absent)"}));
    if (key == api::kWorkloadLabel)
      return set(key, pick({"container", "vm-passthrough", "vm-vgpu", "typo", "(absent)"}));
    set(key, pick({"render-mix", "default", "mixed", "typo", "(absent)"}));
  }

  void operator_sets(const char* key) {
    intended_[key] = pick({"true", "true", "true", "false", "", "canary", "(absent)"});
    set(key, intended_[key]);
    relabelled_ = true;
  }

  // As GPU feature discovery does, and takes it off again.
  void another_counts() {
    const std::string value = pick({"8", "9", "(absent)"});
    if (value == "(absent)" && !counted_) return;
    set(kCount, value);
    counted_ = value == "(absent)" ? std::nullopt : std::optional(value);
  }

  // As the CC manager does.
  void another_pauses(const char* key) {
    const auto label = snapshot_.node.labels.find(key);
    if (label == snapshot_.node.labels.end() || label->second.empty() || label->second == "false" ||
        label->second.find(kOthersPause) != std::string::npos) {
      return;
    }
    label->second =
        label->second == "true" ? std::string(kOthersPause) : label->second + "_" + std::string(kOthersPause);
  }
  void another_resumes() {
    for (const char* key : kOperands) {
      const auto label = snapshot_.node.labels.find(key);
      if (label == snapshot_.node.labels.end()) continue;
      const auto at = label->second.find(kOthersPause);
      if (at == std::string::npos) continue;
      label->second = at == 0 ? "true" : label->second.substr(0, at - 1);
      relabelled_ = true;
    }
  }

  void owner(bool here) {
    set(kOwner, here ? "true" : "(absent)");
    snapshot_.others.daemon_sets =
        here ? std::set<std::string>{"nvidia-vfio-manager"} : std::set<std::string>();
  }

  void clock(seconds passed) {
    snapshot_.host.silent += passed;
    snapshot_.paused += passed;
  }

  // Its effects are in order; it is killed after so many of them.
  void agent(unsigned effects) {
    if (effects != kWhole) ++kills_;
    update_pods();
    const ReconcileResult step = reconcile(snapshot_);
    if (effects == 0) return;
    Labels& labels = snapshot_.node.labels;
    labels = with_changes(labels, step.labels);
    snapshot_.node.annotations = with_changes(snapshot_.node.annotations, step.annotations);
    if (effects == 1) return;
    if (step.desired_file || step.remove_desired_file) {
      EXPECT_TRUE(!step.desired_file || step.desired_state.kind == DesiredState::Kind::policy);
      snapshot_.host.written = step.desired_file;
      snapshot_.host.silent = seconds(0);
      relabelled_ = false;
    }
    if (effects == 2) return;
    for (const NodeEvent& event : step.events) snapshot_.memory.warnings.insert(event.message);
    if (effects == 3) snapshot_.memory.warnings.clear();
  }

  // A pod goes a while after its label.
  void update_pods() {
    std::vector<PodOnNode> pods;
    if (one_in(4)) {
      for (const std::string& set : paused_daemon_sets(snapshot_.node.labels))
        if (set == "nvidia-sandbox-validator") pods.push_back({.name = set + "-x", .daemon_set = set});
    }
    snapshot_.others.pods = std::move(pods);
  }

  void publish(api::NodePhase phase) {
    api::HostStatus seen;
    if (snapshot_.host.written)
      seen.desired = api::DesiredMark{.generation = snapshot_.host.written->generation};
    seen.phase = snapshot_.host.written ? phase : api::NodePhase::idle;
    const policy::Mode mode = host_policy_.items.back().mode;
    seen.accelerators = {test::gpu(mode, mode)};
    seen.accelerators[0].pci_class = "0302";
    seen.features = api::NodeFeatures{.iommu = "on"};
    if (phase == api::NodePhase::blocked) seen.accelerators[0].state = api::GpuState::blocked;
    snapshot_.host.status = seen;
    snapshot_.host.silent = seconds(0);
  }

  void hostd(bool busy) {
    const HostSide& host = snapshot_.host;
    if (!host.written) return publish(api::NodePhase::idle);
    const auto file = policy::read_policies(host.written->config);
    ASSERT_EQ(file.has_value(), true);
    const auto policy = policy::select_policy(file.value_or(policy::PolicyFile{}), host.written->policy);
    ASSERT_EQ(policy.has_value(), true);
    const policy::Policy desired = policy.value_or(policy::Policy{});
    const bool is_new = !host.status || host.status->desired_generation() != host.written->generation;
    if (same_policy(host_policy_, desired)) return publish(api::NodePhase::ready);
    if (is_new && host.silent <= kAnswerPatience && !relabelled_) expect_paused();
    if (busy) return publish(api::NodePhase::blocked);
    if (is_new) return publish(api::NodePhase::applying);
    host_policy_ = desired;
    ++changes_;
    publish(api::NodePhase::ready);
  }

  // Nobody who would look at GPUs runs when a desired state that changes them comes to hostd.
  void expect_paused() const {
    for (const char* key : kOperands) {
      const auto label = snapshot_.node.labels.find(key);
      EXPECT_TRUE(label == snapshot_.node.labels.end() || label->second != "true") << key;
    }
  }

  std::mt19937 random_;
  NodeSnapshot snapshot_;
  std::map<std::string, std::string> intended_;  ///< what the operands' labels are without anybody's pause
  policy::Policy host_policy_;
  std::optional<std::string> counted_;  ///< how many GPUs another program says
  bool relabelled_ = false;             ///< others have set operands' labels since desired.json was written
  unsigned changes_ = 0;
  unsigned kills_ = 0;
};

TEST(LabelHistory, EndsAsTheLabelsSayWithNobodyPaused) {
  constexpr unsigned kHistories = 600;
  constexpr int kLongest = 60;
  unsigned changes = 0;
  unsigned kills = 0;
  for (unsigned seed = 1; seed <= kHistories && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("history " + std::to_string(seed));
    World world(seed);
    for (int i = 0; i < kLongest; ++i) world.disturb();
    world.peace();
    world.expect_all_is_well();
    changes += world.changes();
    kills += world.kills();
  }
  EXPECT_GT(changes, kHistories / 2) << "else nothing was tried";
  EXPECT_GT(kills, kHistories);
  RecordProperty("changes_of_the_host", static_cast<int>(changes));
  RecordProperty("kills_of_the_agent", static_cast<int>(kills));
}

}  // namespace
}  // namespace ferry::agent
