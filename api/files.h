// SPDX-License-Identifier: Apache-2.0
// Files by which Ferry's processes exchange their state, relative to the host's root, with the version that
// each file names in its key `version`.
#pragma once

namespace ferry::api {

// The agent writes, hostd reads. These files outlive a reboot.

inline constexpr const char* kDesiredFile = "var/lib/ferry/desired.json";  ///< desired_state.h
inline constexpr int kDesiredVersion = 2;
inline constexpr const char* kServingFile = "var/lib/ferry/serving.json";  ///< serving.h
inline constexpr int kServingVersion = 1;
/// kata-manager/classes/desired_classes.h
inline constexpr const char* kDesiredClassesFile = "var/lib/ferry/kata-classes.json";
inline constexpr int kDesiredClassesVersion = 2;

// hostd writes; the device plugin, the agent and people read.

inline constexpr const char* kStatusFile = "run/ferry/status.json";  ///< host_status.h
inline constexpr int kStatusVersion = 2;
/// kata-manager/controller/ready_handlers.h
inline constexpr const char* kReadyHandlersFile = "run/ferry/kata.json";
inline constexpr int kReadyHandlersVersion = 2;

// The device plugin writes; hostd, the agent and people read. The plugin writes to this folder alone: hostd's
// records lie beside it, and a plugin that is taken over must not plant one.

inline constexpr const char* kAdvertisedFile =
    "run/ferry/plugin/advertised.json";  ///< advertised_resources.h
inline constexpr int kAdvertisedVersion = 2;

// `ferry dra` writes; `ferry status`, the agent and people read.

inline constexpr const char* kCheckpointFile = "run/ferry/dra/claims.json";  ///< dra/checkpoint.h
inline constexpr int kClaimsVersion = 1;

// hostd writes and listens; `ferry dra` reads and connects. Only root and the group of `ferry dra` may enter
// the folder.

inline constexpr const char* kClaimableGpusFile = "run/ferry/claims/gpus.json";  ///< claimable_gpus.h
inline constexpr int kClaimableGpusVersion = 1;
inline constexpr const char* kClaimSocket = "run/ferry/claims/hostd.sock";  ///< claim_request.h

// File locks (hostfs/locks.h). A process holds its lock while it serves the node.

inline constexpr const char* kHostdLock = "run/ferry/hostd/hostd.lock";  ///< a single hostd of a host
/// A file of its own: a process that probes it holds that lock for a moment, which would keep hostd away.
inline constexpr const char* kHostdLiveness = "run/ferry/hostd.running";
inline constexpr const char* kPluginLiveness = "run/ferry/plugin/plugin.lock";
inline constexpr const char* kDraLock = "run/ferry/dra/dra.lock";      ///< a single `ferry dra` of a host
inline constexpr const char* kAgentLock = "var/lib/ferry/agent.lock";  ///< a single agent of a host

}  // namespace ferry::api
