// SPDX-License-Identifier: Apache-2.0
// Kata's shim: which of Kata's two runtimes it is, and of which release.
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

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/class_file.h"
#include "kata-manager/toml.h"

namespace ferry {

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
  std::string unknown = {};  ///< why the program could not be asked; empty: it has answered

  /// "/opt/kata/bin/containerd-shim-kata-v2 (Kata's Go runtime 3.24.0)"
  std::string text() const;
  /// True: it asks the kubelet which devices a pod has, before it starts a VM. An unknown release is taken
  /// to be one that does.
  bool asks_kubelet() const;
  /// True: it ends with a setting of the Go runtime in its configuration.
  bool refuses_settings_of_go() const;
};

/// The text that a program of the host prints at `--version`.
using VersionOf = std::function<Result<std::string>(const std::filesystem::path& program)>;
/// Asks the programs themselves. `writer` must outlive it.
VersionOf version_by(HostWriter& writer);

/// The runtime that a configuration is made for; absent: it says nothing that only one of them has.
std::optional<ShimRuntime> runtime_of_configuration(const TomlTable& configuration);

/// The shim at a path of the host. Where `version_of` is empty or fails, the release is that of the file
/// VERSION of Kata's installation, and the runtime that of the shim's folder.
KataShim kata_shim_at(const HostFs& host, const std::filesystem::path& path,
                      const VersionOf& version_of = {});

/// The program that runs a class's VMs: the one that the class names, or the first of those that Kata's
/// installers and distributions put there (/opt/kata, /usr/local/bin, /usr/bin) and that is of the `wanted`
/// runtime. Errc::not_found: there is none. Errc::unsupported: those that are there are of the other runtime.
Result<KataShim> find_kata_shim(const HostFs& host, const KataClass& kata, const VersionOf& version_of = {},
                                std::optional<ShimRuntime> wanted = {});

}  // namespace ferry
