// SPDX-License-Identifier: Apache-2.0
// Ferry's drop-in for Kata's configuration, and the copy of the configuration beside it.
//
// Kata reads every file of `config.d` beside the configuration (links resolved) in lexical order; tables
// are merged, any other value is replaced. Such a folder counts for every configuration beside it, and an
// artifact's folder may have another owner or never change. So each class has a copy of its configuration
// in a folder of its own. The copy differs only in the paths of guest extension images, because runtime-rs
// appends a drop-in's list to the configuration's. Source: Kata 4.1.0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/classes/confidential_mode.h"
#include "kata-manager/configuration/host_paths.h"
#include "kata-manager/configuration/kata_shim.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// The folder of a class's configuration copy and drop-ins: /etc/ferry/kata/NAME.
std::filesystem::path kata_configuration_folder(const std::string& name);

/// A class's artifact on the host.
struct KataBase {
  std::filesystem::path file;  ///< path of the copy, as the handler names it
  std::string text;            ///< the artifact's configuration
  /// Texts of the files of config.d beside `file`, by name; Ferry's is skipped.
  std::map<std::string, std::string> drop_ins = {};
  std::filesystem::path folder;         ///< folder of the artifact's files
  std::vector<std::string> files = {};  ///< the artifact's files, relative to `folder`
  /// The folder of all classes' artifacts. Empty: the paths in the configuration have no bounds.
  std::filesystem::path artifacts_dir = {};
  KataShim shim = {};  ///< the shim that reads the configuration
};

/// The most devices that one pod can get.
struct KataDevices {
  unsigned gpus = 0;  ///< whole GPUs, or virtual functions with a vGPU
  unsigned switches = 0;
  /// Companion functions in the GPUs' IOMMU groups, such as a GPU's audio. Each takes a port. 0 with
  /// iommufd.
  unsigned companions = 0;
  ConfidentialMode mode = {};  ///< confidential mode of the GPUs
  unsigned ports() const { return gpus + switches + companions; }
};

struct KataDropIn {
  std::filesystem::path path;  ///< FOLDER/config.d/60-ferry.toml
  std::string text;
  std::string copy;     ///< content of the copy
  TomlTable effective;  ///< the copy merged with all drop-ins, Ferry's included
  std::uint64_t guest_memory_mib = 0;
  std::vector<std::filesystem::path> programs;  ///< host programs that Kata's shim starts
  /// Host paths in the effective configuration: kernel, image, firmware, hypervisor. The caller checks that
  /// they exist.
  std::vector<std::filesystem::path> host_files;
  std::vector<std::string> notes;  ///< for the administrator, such as a setting that a later file overrides
};

/// Kernel, image, initrd and firmware come from the artifact's folder if it has a file of that name. Ferry
/// sets the values without which a GPU does not reach a pod: ports, guest kernel parameters, start
/// timeouts, how Kata learns of devices. Ferry also sets those that make a class's VM confidential. All
/// other settings stay as in the artifact. The class's own settings come last.
///
/// Errors: Errc::invalid_config: a file is not TOML, or no VM of the configuration would start: both ways
/// to plug, too many ports, an image and an initrd, a machine or hypervisor without PCIe ports, a wrong
/// type or value. Errc::unsupported: the shim's release gives a pod no device in this way. Errc::refused: a
/// pulled configuration leads beyond its bounds (host_paths.h). A host folder's configuration may do so,
/// and gets a note.
Result<KataDropIn> kata_drop_in(const KataClass& kata, const KataBase& base, const KataDevices& devices,
                                const std::filesystem::path& pod_resources);

/// The name of Ferry's file in config.d.
inline constexpr const char* kKataDropIn = "60-ferry.toml";

}  // namespace ferry::kata
