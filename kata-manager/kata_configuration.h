// SPDX-License-Identifier: Apache-2.0
// What Ferry says in Kata's own configuration: a drop-in beside it, never the file itself.
//
// Kata reads every file of `config.d` beside the configuration (links resolved) in lexical order; tables
// are merged, anything else is replaced. Such a folder counts for every configuration beside it, and an
// artifact's folder may be somebody else's or never change: a class's configuration is therefore a copy in a
// folder of its own. The copy has other paths of guest extension images and is else the same byte for byte:
// runtime-rs appends the list of a drop-in to that of the configuration. From Kata's sources, 4.1.0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/class_file.h"
#include "kata-manager/confidential_mode.h"
#include "kata-manager/host_paths.h"
#include "kata-manager/kata_shim.h"
#include "kata-manager/toml.h"

namespace ferry {

/// The folder of a class's copy and its drop-ins: /etc/ferry/kata/NAME.
std::filesystem::path kata_configuration_folder(const std::string& name);

/// A file of config.d.
struct KataDropInFile {
  std::string name;
  std::string text;
};

/// A class's artifacts as they lie on the host.
struct KataBase {
  std::filesystem::path file;                 ///< Kata's configuration as the handler names it: the copy
  std::string text;                           ///< the content of the artifact's
  std::vector<KataDropInFile> drop_ins = {};  ///< what is in config.d beside it; ours is passed over
  std::filesystem::path folder;               ///< where the artifact's files lie
  std::vector<std::string> files = {};        ///< their paths there, relative
  /// Where the configuration may lead. Absent: that is not looked at.
  std::optional<ArtifactBounds> bounds = {};
  bool is_pulled = false;  ///< from a registry; else from a folder that an administrator put on the host
  KataShim shim = {};      ///< reads the configuration
};

/// What one pod can get at most.
struct KataDevices {
  unsigned gpus = 0;  ///< whole ones, or virtual functions with a vGPU
  unsigned switches = 0;
  /// Further functions of their IOMMU groups, a GPU's audio for one: each takes a port, too. None with
  /// iommufd.
  unsigned companions = 0;
  ConfidentialMode mode = {};  ///< of the GPUs
  unsigned ports() const { return gpus + switches + companions; }
};

struct KataDropIn {
  std::filesystem::path path;  ///< FOLDER/config.d/60-ferry.toml
  std::string text;
  std::string copy;     ///< of the artifact's configuration
  TomlTable effective;  ///< the copy, then all drop-ins with ours among them
  std::uint64_t guest_memory_mib = 0;
  std::vector<std::filesystem::path> programs;  ///< of the host, that Kata's shim starts
  /// What the effective configuration names on the host: kernel, image, firmware, hypervisor. Whether it is
  /// there is the caller's to see.
  std::vector<std::filesystem::path> host_files;
  std::vector<std::string> notes;  ///< what somebody should know: what a later file overrides, and the like
};

/// Kernel, image, initrd and firmware come from the artifact's folder where it has a file of that name. What
/// keeps a GPU from reaching a pod is set (ports, guest kernel parameters, time to start, how Kata learns of
/// devices, and for confidential classes what makes a VM one); everything else stays as the artifact has it,
/// and what the class lays over it comes last.
///
/// Errors: Errc::invalid_config, where a file is no TOML, or with the class's place where no VM of such a
/// configuration would start: both ways to plug, more ports than there can be, an image and an initrd, a
/// machine or a hypervisor that has no PCIe ports, a type or a setting that Kata does not take.
/// Errc::unsupported: the shim's release gives a pod no device in this way. Errc::refused: a pulled
/// configuration leads beyond its bounds (host_paths.h). A configuration of a folder of the host may do so,
/// and a note says it.
Result<KataDropIn> kata_drop_in(const KataClass& kata, const KataBase& base, const KataDevices& devices,
                                const std::filesystem::path& pod_resources);

/// The name of our file in config.d.
inline constexpr const char* kKataDropIn = "60-ferry.toml";

}  // namespace ferry
