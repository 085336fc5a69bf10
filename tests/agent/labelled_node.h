// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of the feature labels: an agent that writes them as each test asks.
#pragma once

#include <chrono>
#include <set>
#include <string>

#include "agent/labels/feature_labels.h"
#include "tests/agent/one_node.h"

namespace ferry::test {

/// A node whose agent publishes feature labels.
class AgentLabels : public AgentLoop {
 protected:
  static constexpr const char* kCount = "nvidia.com/gpu.count";
  static constexpr const char* kGiven = "gpu-ferry.io/gpu.passthrough.count";
  void start(agent::FeatureWay way) {
    cluster.settings.features = way;
    cluster.start_agent();
    pass(std::chrono::seconds(5));
  }
  std::set<std::string> features() const {
    std::set<std::string> out;
    for (const auto& [key, value] : cluster.labels())
      if (key.starts_with("gpu-ferry.io/gpu.") || key.starts_with("nvidia.com/gpu.")) out.insert(key);
    return out;
  }
};

}  // namespace ferry::test
