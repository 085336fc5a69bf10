// SPDX-License-Identifier: Apache-2.0
// The state of Ferry's Kata handlers on this host: run/ferry/kata.json. hostd writes it, the agent reads it.
//
//   {"version": 2,
//    "handlers": [{"name": "kata-nvidia-gpu"}],   ready; a reader may know only this key
//    "generation": 3,                             of kata-classes.json (desired_classes.h), as last read;
//                                                 absent: no such file, or hostd does not follow one
//    "applying": false,                           true: a change is neither verified nor rolled back, and the
//                                                 agent keeps the node's Lease
//    "others": [{"name": "kata-old", "state": "leaving", "why": "..."}],
//    "error": "..."}                              blocks all classes, such as an unreadable file
//
// States of others:
//   installing        is being installed now
//   missing_artifact  its files must be fetched
//   pending           needs a permission to be changed or removed
//   leaving           goes once its name is among `unlabelled`
//   blocked           cannot come or go for now: a pod uses it, the host has no such VMs,
//                     a restart of the container runtime would end pods
//   failed            was rolled back, and will be retried
//
// A handler is in both lists if it is ready in its old form, and its new form is pending, misses its files,
// is blocked or failed. A handler that leaves is not in `handlers` from its first `leaving` on.
//
// Keys and states are only ever added; readers skip unknown ones.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

enum class HandlerState { installing, missing_artifact, pending, leaving, blocked, failed };
/// "installing", "missing_artifact", …
std::string_view text(HandlerState state);

struct OtherHandler {
  std::string name;
  HandlerState state = HandlerState::pending;
  std::string why = {};  ///< for people; empty: the state explains itself
  bool operator==(const OtherHandler&) const = default;
};

struct HandlersFile {
  std::set<std::string> ready;
  std::optional<std::uint64_t> generation = {};
  bool applying = false;                  ///< a change is neither verified nor rolled back
  std::vector<OtherHandler> others = {};  ///< each name once
  std::string error = {};                 ///< empty: none
  bool operator==(const HandlersFile&) const = default;
};

/// Handlers that the running container runtime has with Ferry's configuration. Absent: the runtime does not
/// report configurations (CRI-O).
std::optional<std::set<std::string>> ready_handlers(const RuntimeState& state);

/// Ferry's handlers whose type makes the runtime start no shim of theirs. Sorted.
std::vector<std::string> unstartable_handlers(const RuntimeState& state);

/// The text for read_handlers_file(). UTF-8; invalid bytes are replaced.
std::string handlers_file_text(const HandlersFile& file);

/// Skips unknown keys and states. Errc::malformed_host: no such file, or another version.
Result<HandlersFile> read_handlers_file(std::string_view text);
/// Reads the ready handlers only, whatever else the text has.
Result<std::set<std::string>> read_ready_handlers(std::string_view text);

}  // namespace ferry::kata
