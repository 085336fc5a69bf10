// SPDX-License-Identifier: Apache-2.0
// Files by which other processes see `ferry plugin`, relative to the host's root. The plugin writes to this
// folder alone: hostd's records lie beside it, and a plugin that is taken over must not plant one.
#pragma once

namespace ferry {

/// Advertised resources and allocations (kubevirt-plugin/offered_file.h). Outlives its writer.
inline constexpr const char* kOfferedFile = "run/ferry/plugin/offered.json";
/// File lock of a running plugin (common/presence.h).
inline constexpr const char* kPluginPresence = "run/ferry/plugin/plugin.lock";

}  // namespace ferry
