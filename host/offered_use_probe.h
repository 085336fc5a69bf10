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

/// For moves that the plugin has been asked to make way for: what it still offers is held by the kubelet,
/// allocated or not, and so is what it has not answered about; else as `inner` says.
class StillOfferedProbe final : public UseProbe {
 public:
  /// All must outlive this. `unanswered`: devices that the plugin was asked to withdraw, and has not said
  /// that it has.
  StillOfferedProbe(const HostFs& host, UseProbe& inner, std::filesystem::path offered_file,
                    std::set<std::string> unanswered)
      : host_(&host),
        inner_(&inner),
        offered_file_(std::move(offered_file)),
        unanswered_(std::move(unanswered)) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
  UseProbe* inner_;
  std::filesystem::path offered_file_;
  std::set<std::string> unanswered_;
};

}  // namespace ferry
