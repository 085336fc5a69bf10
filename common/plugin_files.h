// SPDX-License-Identifier: Apache-2.0
// Where `ferry plugin` is seen by the other processes, relative to the host's root. The plugin writes to this
// folder alone: hostd's records lie beside it, and a plugin that is taken over must not plant one.
#pragma once

namespace ferry {

/// What it offers, and who has it (kubevirt-plugin/offered_file.h). Outlives its writer.
inline constexpr const char* kOfferedFile = "run/ferry/plugin/offered.json";
/// Held while one runs (common/presence.h).
inline constexpr const char* kPluginPresence = "run/ferry/plugin/plugin.lock";

}  // namespace ferry
