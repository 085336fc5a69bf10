// SPDX-License-Identifier: Apache-2.0
// containerd as it is predicted to be after each of its starts, on a tree.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/controller/runtime_change.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/container_runtime.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/containerd_plan.h"
#include "tests/support/must.h"

namespace ferry::test {

inline constexpr const char* kMain = "etc/containerd/config.toml";
inline constexpr const char* kMainText = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  x = 1\n";
inline const kata::ContainerdRelease kRelease = must(kata::ContainerdRelease::parse("1.7.24"));

/// containerd, as it is predicted to be after each of its starts.
class PredictedDaemon final : public kata::ContainerRuntime, public kata::RuntimeControl {
 public:
  explicit PredictedDaemon(const HostFs& host, const kata::ContainerdRelease& release = kRelease)
      : host_(host), release_(release) {
    static_cast<void>(act());
  }
  Result<kata::RuntimeState> state() override {
    if (!runs) return fail(Errc::not_found, "nobody listens");
    return kata::RuntimeState{.name = "containerd",
                              .version = release_.text(),
                              .handlers = {},
                              .runtimes = reports_handlers ? std::optional(known_) : std::nullopt};
  }
  Result<std::vector<kata::RunningPod>> pods() override {
    if (!runs) return fail(Errc::not_found, "nobody listens");
    if (at_pods) at_pods();
    return running;
  }
  std::string text() const override { return "restart containerd.service"; }
  std::optional<std::string> harm() const override { return harms; }
  Result<> act() override {
    ++acts;
    if (meanwhile) std::exchange(meanwhile, {})();
    const auto outcome =
        kata::predict_containerd(release_, kata::ConfigFiles(host_), std::string("/") + kMain);
    runs = !outcome.no_start && !outcome.no_cri;
    known_.clear();
    for (const auto& [name, entry] : outcome.runtimes()) {
      if (name == forgets) continue;
      const kata::ConfiguredRuntime placed = entry.table() == nullptr
                                                 ? kata::ConfiguredRuntime()
                                                 : kata::configured_runtime(name, {}, *entry.table());
      known_.push_back({.name = name,
                        .type = placed.type,
                        .shim = placed.shim,
                        .configuration = placed.configuration,
                        .snapshotter = keeps_snapshotter.value_or(placed.snapshotter.value_or("")),
                        .pod_annotations = placed.pod_annotations,
                        .container_annotations = placed.container_annotations});
    }
    return {};
  }

  bool runs = false;
  int acts = -1;  // the first is its own start
  bool reports_handlers = true;
  std::string forgets;
  std::optional<std::string> keeps_snapshotter;  // whatever its files say
  std::function<void()> meanwhile;               // once, at the next start
  std::vector<kata::RunningPod> running;
  std::function<void()> at_pods;  // each time that its pods are asked for
  std::optional<std::string> harms;

 private:
  const HostFs& host_;
  const kata::ContainerdRelease release_;
  std::vector<kata::KnownRuntime> known_;
};

class AskedDaemon final : public kata::ContainerRuntime {
 public:
  explicit AskedDaemon(PredictedDaemon& daemon) : daemon_(daemon) {}
  Result<kata::RuntimeState> state() override { return daemon_.state(); }
  Result<std::vector<kata::RunningPod>> pods() override { return daemon_.pods(); }

 private:
  PredictedDaemon& daemon_;
};

class RestartOfDaemon final : public kata::RuntimeControl {
 public:
  explicit RestartOfDaemon(PredictedDaemon& daemon) : daemon_(daemon) {}
  std::string text() const override { return daemon_.text(); }
  std::optional<std::string> harm() const override { return daemon_.harm(); }
  Result<> act() override { return daemon_.act(); }

 private:
  PredictedDaemon& daemon_;
};

/// Loads modules, and runs no program.
class ModuleWriter : public HostWriter {
 public:
  Result<> write(const std::filesystem::path& /*relative*/, std::string_view /*value*/,
                 std::chrono::milliseconds /*deadline*/) override {
    return no();
  }
  Result<> load_module(std::string_view name, std::chrono::milliseconds /*deadline*/) override {
    loaded.emplace_back(name);
    return {};
  }
  Result<> unload_module(std::string_view /*name*/, std::chrono::milliseconds /*deadline*/) override {
    return no();
  }
  Result<> run(const HostCommand& /*command*/, std::chrono::milliseconds /*deadline*/) override {
    return no();
  }
  Result<std::string> read(const std::filesystem::path& /*relative*/,
                           std::chrono::milliseconds /*deadline*/) override {
    return no();
  }

  std::vector<std::string> loaded;

 private:
  static tl::unexpected<Error> no() { return fail(Errc::unsupported, "not here"); }
};

}  // namespace ferry::test
