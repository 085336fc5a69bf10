// SPDX-License-Identifier: Apache-2.0
// The places of container runtimes: configuration, socket, program, and the unit to restart.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::kata {

enum class RuntimeKind {
  containerd,
  crio,
  k0s,  ///< containerd, by k0s's watched folder of drop-ins
};

/// Paths are absolute, as the host's own programs use them.
struct RuntimePlace {
  std::string name;  ///< "containerd", "k0s", "k3s", "rke2", "microk8s", "cri-o"
  RuntimeKind kind = RuntimeKind::containerd;
  /// containerd's main file; for CRI-O and k0s the folder of drop-ins.
  std::filesystem::path configuration;
  /// Another program (k3s, rke2) rewrites the main file at each start, so only its imports can be edited.
  bool rendered = false;
  /// Values of a template's variables: each start fills them into the main file.
  std::map<std::string, std::string> placeholders = {};
  std::filesystem::path socket;
  /// The socket that the unit and the files name, which the daemon has after its next start. Absent: not
  /// known.
  std::optional<std::filesystem::path> next_socket = {};
  std::vector<std::string> units = {};               ///< systemd units; the first that exists is the service
  std::vector<std::filesystem::path> programs = {};  ///< the first that exists gives the version
  /// The program that the unit starts, one of `programs`; absent: unknown.
  std::optional<std::filesystem::path> started = {};
  std::vector<std::string> notes = {};  ///< for people, about unknown parts
};

/// An administrator's choice, which overrides detection.
struct RuntimeChoice {
  std::optional<std::string> name = {};  ///< name of a place
  std::optional<std::filesystem::path> configuration = {};
  std::optional<std::filesystem::path> socket = {};
  std::optional<std::string> unit = {};
};

/// The place of that name with its default paths. Errc::usage: no such place.
Result<RuntimePlace> runtime_place(const std::string& name);

/// The runtime that serves the kubelet here: the one with a socket or, if none runs, the one with files. A
/// containerd with a unit of its own has the file, socket and program of that unit (containerd_start.h), or
/// else the socket that its files name, unless chosen otherwise. Errors: Errc::usage: no place of that name;
/// Errc::not_found: no runtime; Errc::refused: several runtimes and no choice.
Result<RuntimePlace> find_runtime(const HostFs& host, const RuntimeChoice& choice);

/// True if the unit has a control group.
bool is_active(const HostFs& host, const std::string& unit);

/// The place's service: its unit with a unit file or, if several have one (rke2 ships two, and each would
/// end the other), the unit with a control group. Absent: none, or ambiguous.
std::optional<std::string> unit_of(const HostFs& host, const RuntimePlace& place);

}  // namespace ferry::kata
