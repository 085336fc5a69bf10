// SPDX-License-Identifier: Apache-2.0
// Inside this room: a place for our runtimes in containerd's configuration, and what is said there.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kata-manager/containerd_config.h"
#include "kata-manager/containerd_release.h"
#include "kata-manager/runtime_handler.h"
#include "kata-manager/toml.h"

namespace ferry {

/// A place for our runtimes, and the way they are said there.
struct EditPlace {
  std::filesystem::path file;
  std::string section;
  bool with_runc = false;  ///< the built-in one is left out by a table of runtimes
};

/// A handler as containerd's table of runtimes has it.
TomlTable entry_of(const RuntimeHandler& handler, const ContainerdRelease& release);

/// The handler with its type told as it is in that entry of one, where that does for the release as well.
RuntimeHandler told_as_in(const TomlValue* entry, RuntimeHandler handler);

/// The lines of a block. `new_main`: it is a main file that was not there, and needs a version.
std::string body_of(const EditPlace& candidate, std::span<const RuntimeHandler> handlers, bool new_main,
                    const ContainerdRelease& release);

/// What a configuration becomes by them; `section` is where the release has its runtimes.
TomlTable with_handlers(TomlTable plugins, const std::string& section,
                        std::span<const RuntimeHandler> handlers, const ContainerdRelease& release);

/// The runtimes that a block says, by name, in whichever section.
TomlTable runtimes_in(const TomlTable& block);

/// True: containerd has a snapshotter of that name, which it brings along or which a file names as a proxy
/// plugin.
bool has_snapshotter(std::span<const ContainerdFile> files, std::string_view name);

}  // namespace ferry
