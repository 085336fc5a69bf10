// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "common/host_fs.h"
#include "common/result.h"
#include "host/offered_devices.h"
#include "host/pod_use_probe.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds devices that our plugin has given out and of whose pod the kubelet does not tell yet (PodUseProbe
/// tells of the others). The plugin learns late of a release, or not before somebody waits for one; so what
/// it says counts for a moment after the file's last change, and then only where the kubelet cannot be asked.
/// That the file cannot be read is told in UseReport::unknown; never an error.
class OfferedUseProbe final : public UseProbe {
 public:
  /// The kubelet lists a pod within a second or two of its Allocate.
  static constexpr std::chrono::seconds kUntilListed{30};

  /// `host` must outlive this.
  OfferedUseProbe(const HostFs& host, ListPodDevices list) : host_(&host), list_(std::move(list)) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
  ListPodDevices list_;
};

/// For moves that the plugin is asked to make way for: where one runs at the time of a look, what it still
/// offers is held by the kubelet, allocated or not, and so is what it has not answered about; else, and
/// besides, as `inner` says.
class StillOfferedProbe final : public UseProbe {
 public:
  struct Asked {
    std::set<std::string> devices;  ///< those that the plugin shall withdraw
    std::uint64_t generation = 0;   ///< of the state.json that says so
  };
  struct Files {
    std::filesystem::path offered = kOfferedFile;
    std::filesystem::path presence = kPluginPresence;
  };
  /// All must outlive this.
  StillOfferedProbe(const HostFs& host, UseProbe& inner, Files files, Asked asked)
      : host_(&host), inner_(&inner), files_(std::move(files)), asked_(std::move(asked)) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
  UseProbe* inner_;
  Files files_;
  Asked asked_;
};

/// Holder::name of what a plugin keeps by being silent, and no pod has.
inline constexpr const char* kAnyPod = "(any that asks for it)";

/// And of what it has given to a pod, whose name it does not know: the kubelet tells that in another holder.
inline constexpr const char* kSomePod = "(by the kubelet)";

/// Whether a plugin runs. Where that cannot be told it is taken to.
bool plugin_runs(const HostFs& host, const std::filesystem::path& presence);

}  // namespace ferry
