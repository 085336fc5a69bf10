// SPDX-License-Identifier: Apache-2.0
// A host with containerd, and the runtimes that its configuration is to get.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kata-manager/runtimes/containerd_plan.h"
#include "kata-manager/runtimes/runtime_place.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {

inline std::vector<RuntimeHandler> ours(
    const std::string& configuration = "/etc/ferry/kata/a/configuration.toml") {
  return {{.name = "kata-nvidia-gpu",
           .shim = "/opt/kata/bin/containerd-shim-kata-v2",
           .configuration = configuration},
          {.name = "kata-nvidia-gpu-snp",
           .shim = "/opt/kata/bin/containerd-shim-kata-v2",
           .configuration = "/etc/ferry/kata/snp/configuration.toml",
           .snapshotter = "nydus"}};
}

/// 1.6 has no snapshotters of runtimes.
inline std::vector<RuntimeHandler> ours_for(
    const std::string& release, const std::string& configuration = "/etc/ferry/kata/a/configuration.toml") {
  auto out = ours(configuration);
  if (release.starts_with("1.6.")) out[1].snapshotter.reset();
  return out;
}

/// What the first file becomes.
inline std::string text_of(const RuntimePlan& plan) {
  return plan.changes.at(0).after.value_or("it would be gone");
}

inline std::string said(const std::optional<Error>& problem) {
  return problem.value_or(Error{}).message;
}

inline void apply_to(const RuntimePlan& plan, ConfigFiles& files) {
  for (const FileChange& change : plan.changes) files.suppose(change.path, change.after);
}

/// A host of one test's own.
class Containerd : public testing::Test {
 protected:
  Result<RuntimePlan> plan(const std::string& release, const std::vector<RuntimeHandler>& handlers) {
    return plan_containerd(test::must(ContainerdRelease::parse(release)), place, files, handlers);
  }
  static std::string message_of(const Result<RuntimePlan>& plan) {
    return plan ? "it is planned" : plan.error().message;
  }
  test::ScratchDirectory tree;
  HostFs host{tree.path()};
  ConfigFiles files{host};
  RuntimePlace place = test::must(runtime_place("containerd"));
};

inline constexpr const char* kMain = "etc/containerd/config.toml";

}  // namespace ferry::kata
