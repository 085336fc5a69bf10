// SPDX-License-Identifier: Apache-2.0
// Where a host's container runtime has its configuration, its socket and its own program, and how it is made
// to read what was written.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

enum class RuntimeKind {
  containerd,
  crio,
  k0s,  ///< containerd, by a folder of drop-ins that k0s watches
};

/// Paths are absolute, as the host's own programs use them.
struct RuntimePlace {
  std::string name;  ///< "containerd", "k0s", "k3s", "rke2", "microk8s", "cri-o"
  RuntimeKind kind = RuntimeKind::containerd;
  /// containerd's main file; of CRI-O and k0s the folder of drop-ins.
  std::filesystem::path configuration;
  bool rendered = false;  ///< another program writes the main file anew at each start
  /// What the main file is to be read with: it is a template, and each start puts these in.
  std::map<std::string, std::string> placeholders = {};
  std::filesystem::path socket;
  std::vector<std::string> units = {};               ///< of systemd: the first that is there is its service
  std::vector<std::filesystem::path> programs = {};  ///< the first that is there tells its version
  /// The program that its unit starts, which is among `programs`; absent: that is not known.
  std::optional<std::filesystem::path> started = {};
  std::vector<std::string> notes = {};  ///< what of it could not be known
};

/// What somebody has said of the place, instead of what is found.
struct RuntimeChoice {
  std::optional<std::string> name = {};  ///< of a place
  std::optional<std::filesystem::path> configuration = {};
  std::optional<std::filesystem::path> socket = {};
  std::optional<std::string> unit = {};
};

/// The place of that name, as it is where nobody has moved it. Errc::usage: there is none.
Result<RuntimePlace> runtime_place(const std::string& name);

/// The runtime that serves the kubelet here: the one whose socket is there; where none runs, the one whose
/// files are there. A containerd that is a service of its own has the file, the socket and the program that
/// its unit names (containerd_start.h), unless somebody has said otherwise. Errors: Errc::usage, no place has
/// that name; Errc::not_found, no runtime is here; Errc::refused, several are and none was chosen.
Result<RuntimePlace> find_runtime(const HostFs& host, const RuntimeChoice& choice);

/// The service of a place: its unit that has a unit file; of several (rke2 brings two, and one would end the
/// other) the one that has a control group. Absent: there is none, or it cannot be told which.
std::optional<std::string> unit_of(const HostFs& host, const RuntimePlace& place);

}  // namespace ferry
