// SPDX-License-Identifier: Apache-2.0
// Kata's shim: its runtime (Go or Rust) and its release.
//
// Kata has a runtime in Go and one in Rust (runtime-rs). Each reads configurations of its own: since 3.31
// runtime-rs refuses a key of the Go runtime. ABI: both shims print at `--version` "Kata Containers
// containerd shim (Golang): id: …, version: 3.24.0, commit: …", or "(Rust)".
#pragma once

#include <compare>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

enum class ShimRuntime { go, rust };
/// "Kata's Go runtime", "Kata's runtime-rs"
std::string_view text(ShimRuntime runtime);

struct KataRelease {
  unsigned major_number = 0;
  unsigned minor_number = 0;
  unsigned patch = 0;
  auto operator<=>(const KataRelease&) const = default;  // NOLINT(readability-implicit-bool-conversion)

  /// "3.24.0", "4.1.0-rc0"; absent: the text is no release.
  static std::optional<KataRelease> parse(std::string_view text);
  std::string text() const;
};

struct KataShim {
  std::filesystem::path path = {};
  std::optional<ShimRuntime> runtime = {};
  std::optional<KataRelease> release = {};
  std::string unknown = {};  ///< why the shim gave no usable answer; empty: it did

  /// "/opt/kata/bin/containerd-shim-kata-v2 (Kata's Go runtime 3.24.0)"
  std::string text() const;
  /// True: the shim asks the kubelet for a pod's devices before it starts a VM. An unknown release counts
  /// as one that asks.
  bool asks_kubelet() const;
  /// True: the shim exits if its configuration has a setting of the Go runtime.
  bool refuses_settings_of_go() const;
};

/// The text that a program of the host prints at `--version`.
using VersionOf = std::function<Result<std::string>(const std::filesystem::path& program)>;
/// Runs the programs themselves. `writer` must outlive the result.
VersionOf version_by(HostWriter& writer);

/// The runtime that a configuration is made for; absent: no setting belongs to only one of them.
std::optional<ShimRuntime> runtime_of_configuration(const TomlTable& configuration);

/// The shim at a path of the host. If `version_of` is empty or fails, the release comes from the file
/// VERSION of Kata's installation, and the runtime from the shim's folder.
KataShim kata_shim_at(const HostFs& host, const std::filesystem::path& path,
                      const VersionOf& version_of = {});

/// The shim for a class's VMs: the path that the class names, or the first of `runtime` where
/// Kata's installers and distributions put it (/opt/kata, /usr/local/bin, /usr/bin). Errc::not_found: no
/// shim. Errc::unsupported: only shims of the other runtime.
Result<KataShim> find_kata_shim(const HostFs& host, const KataClass& kata, const VersionOf& version_of = {},
                                std::optional<ShimRuntime> runtime = {});

}  // namespace ferry::kata
