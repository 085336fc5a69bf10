// SPDX-License-Identifier: Apache-2.0
// Internal: places for Ferry's runtimes in containerd's configuration, and the entries there.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kata-manager/containerd/containerd_config.h"
#include "kata-manager/containerd/containerd_release.h"
#include "kata-manager/runtime/container_runtime.h"
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
RuntimeHandler told_as_in(const TomlTable* entry, RuntimeHandler handler);

/// The lines of a block. `new_main`: the file is a new main file, and needs a version.
std::string body_of(const EditPlace& candidate, std::span<const RuntimeHandler> handlers, bool new_main,
                    const ContainerdRelease& release);

/// The configuration with the handlers added; `section` has the release's runtimes.
TomlTable with_handlers(TomlTable plugins, const std::string& section,
                        std::span<const RuntimeHandler> handlers, const ContainerdRelease& release);

/// The runtimes in a block by name, from all sections.
TomlTable runtimes_in(const TomlTable& block);

/// True: containerd has a snapshotter of that name, built in or as a proxy plugin in a file.
bool has_snapshotter(std::span<const ContainerdFile> files, std::string_view name);

}  // namespace ferry::kata
