// SPDX-License-Identifier: Apache-2.0
// CDI specifications for Kata: its shim asks the kubelet which devices a pod has and looks each up as
// RESOURCE=ID, so that kind and name here are resource and ID there, character for character.
// ABI: Container Device Interface 0.5.0, the first that allows a name that begins with a digit.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/cdi_registry.h"
#include "common/host_fs.h"
#include "kubevirt-plugin/offered_device.h"

namespace ferry {

/// The permission bits of a node ("/dev/vfio/8") on the host; absent: the node cannot be looked at.
using NodeMode = std::function<std::optional<mode_t>(const std::string& node)>;

/// One resource's file. Devices without a node are left out; empty: no device is left, and there must be no
/// file, since one without devices is invalid. A node gets the mode that it has on the host: a container
/// runtime makes one without `fileMode` with 0666.
std::string cdi_spec(const Resource& resource, const NodeMode& mode_of);
/// "nvidia.com-pgpu.yaml"
std::string cdi_file_name(const ResourceName& name);

/// A file that is not as it should be.
struct CdiFailure {
  std::string resource;  ///< empty: one that should be gone
  Error error;
};

/// The files of all resources for Kata. The runtimes read them whenever they like, so that each is replaced
/// whole.
class CdiFiles {
 public:
  /// `directory`: relative to the host's root. `host` must outlive this.
  CdiFiles(HostFs& host, std::filesystem::path directory) : host_(host), directory_(std::move(directory)) {}

  /// Makes the files what `resources` say: those that differ are written, and those that we made of resources
  /// without devices are removed, a predecessor's too, save those for `held`: of them pods have devices.
  /// Others are left alone. Goes on after a failure.
  std::vector<CdiFailure> update(std::span<const Resource> resources, const std::set<std::string>& held = {});
  /// The resources that our files there, a predecessor's too, are for.
  std::set<std::string> resources() const;

 private:
  std::vector<std::string> own_files() const;
  std::optional<mode_t> mode_of(const std::string& node) const;
  /// Empty: it cannot be told.
  std::string kind_of(const std::string& file) const;

  HostFs& host_;
  const std::filesystem::path directory_;
};

/// Looks at the CDI files of the host, those of other programs too: Kata finds no device at all while one of
/// them is wrong.
class CdiWatch {
 public:
  /// `directory`: that of CdiFiles. `host` must outlive this.
  CdiWatch(const HostFs& host, const std::filesystem::path& directory)
      : host_(host), directories_({"etc/cdi", directory}) {}

  /// The faults that there are now; absent: no file has changed since the last look.
  std::optional<std::vector<CdiFault>> look();

 private:
  const HostFs& host_;
  const std::vector<std::filesystem::path> directories_;
  std::optional<std::string> stamp_;
};

}  // namespace ferry
