// SPDX-License-Identifier: Apache-2.0
// Internal: places for Ferry's runtimes in containerd's configuration, and the entries there.
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/runtimes/container_runtime.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/containerd_release.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// A place for Ferry's runtimes, and how they are written there.
struct EditPlace {
  std::filesystem::path file;
  std::string section;
  bool with_runc = false;  ///< also write runc, because a table of runtimes removes the built-in one
};

/// A handler's entry in containerd's table of runtimes.
TomlTable entry_of(const RuntimeHandler& handler, const ContainerdRelease& release);

/// The handler with its type written as in its present entry, if that works with the release. nullptr: it has
/// none.
RuntimeHandler configured_as_in(const TomlTable* entry, RuntimeHandler handler);

/// The lines of a block. `new_main`: the file is a new main file, and needs a version.
std::string body_of(const EditPlace& candidate, std::span<const RuntimeHandler> handlers, bool new_main,
                    const ContainerdRelease& release);

/// The configuration with the handlers added; `section` has the release's runtimes.
TomlTable with_handlers(TomlTable plugins, const std::string& section,
                        std::span<const RuntimeHandler> handlers, const ContainerdRelease& release);

/// The runtimes in a block by name, from all sections.
TomlTable runtimes_in(const TomlTable& block);

/// Errc::unsupported: a handler has a snapshotter of its own, and the release has none for a single runtime.
/// `source`: from where a later release comes, for the hint: "containerd", "a k0s with containerd".
Result<> check_snapshotters(std::span<const RuntimeHandler> handlers, const ContainerdRelease& release,
                            std::string_view source);

/// Snapshotters that containerd's builds have, even if no file names them.
inline constexpr auto kBuiltInSnapshotters = std::to_array<std::string_view>(
    {"aufs", "blockfile", "btrfs", "devmapper", "erofs", "native", "overlayfs", "zfs"});

/// True: containerd has a snapshotter of that name, built in or as a proxy plugin in a file.
bool has_snapshotter(std::span<const ContainerdFile> files, std::string_view name);

}  // namespace ferry::kata
