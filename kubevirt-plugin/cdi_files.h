// SPDX-License-Identifier: Apache-2.0
// CDI specifications for Kata. Its shim asks the kubelet for a pod's devices and looks each up as
// RESOURCE=ID, so a CDI kind is a resource and a CDI name is an ID, character for character.
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

/// The permission bits of a node ("/dev/vfio/8") on the host; absent: they cannot be read.
using NodeMode = std::function<std::optional<mode_t>(const std::string& node)>;

/// The file of one resource. Devices without a node are left out. Empty: no device is left, and there must be
/// no file, since a file without devices is invalid. A node gets its mode on the host, because a container
/// runtime creates a node without `fileMode` with 0666.
std::string cdi_spec(const Resource& resource, const NodeMode& mode_of);
/// "nvidia.com-pgpu.yaml"
std::string cdi_file_name(const ResourceName& name);

/// A file that could not be brought up to date.
struct CdiFailure {
  std::string resource;  ///< empty: a file that should be gone
  Error error;
};

/// The CDI files of all resources for Kata. Runtimes may read them at any time, so each file is replaced as a
/// whole.
class CdiFiles {
 public:
  /// `directory`: relative to the host's root. `host` must outlive this object.
  CdiFiles(HostFs& host, std::filesystem::path directory) : host_(host), directory_(std::move(directory)) {}

  /// Brings the files up to date with `resources`: writes files that differ, and removes Ferry's files, also
  /// an earlier process's, of resources without devices. Files of `held`, resources of which pods have
  /// devices, and files of other programs stay. The update goes on after a failure.
  std::vector<CdiFailure> update(std::span<const Resource> resources, const std::set<std::string>& held = {});
  /// The resources of Ferry's files there, also those of an earlier process.
  std::set<std::string> resources() const;

 private:
  std::vector<std::string> own_files() const;
  std::optional<mode_t> mode_of(const std::string& node) const;
  /// Empty: the file cannot be read or has no kind.
  std::string kind_of(const std::string& file) const;

  HostFs& host_;
  const std::filesystem::path directory_;
};

/// Checks all CDI files of the host, including other programs', since Kata finds no device at all while one
/// of them is invalid.
class CdiWatch {
 public:
  /// `directory`: that of CdiFiles. `host` must outlive this object.
  CdiWatch(const HostFs& host, const std::filesystem::path& directory)
      : host_(host), directories_({"etc/cdi", directory}) {}

  /// The present faults; absent: no file has changed since the last call.
  std::optional<std::vector<CdiFault>> look();

 private:
  const HostFs& host_;
  const std::vector<std::filesystem::path> directories_;
  std::optional<std::string> stamp_;
};

}  // namespace ferry
