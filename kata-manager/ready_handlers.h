// SPDX-License-Identifier: Apache-2.0
// Which Kata handlers of ours pods can be started with on this host, and what becomes of the others, for the
// cluster: run/ferry/kata.json, a file of hostd's, which the agent reads.
//
//   {"version": 1,
//    "handlers": [{"name": "kata-nvidia-gpu"}],   ready, and nothing else: who knows only this key needs no
//                                                 other
//    "generation": 3,                             of kata-classes.json (wanted_classes.h), as last read;
//                                                 absent: there is none, or hostd does not obey one
//    "changing": false,                           a change has begun and is not proven or put back: the
//                                                 node's Lease is kept
//    "others": [{"name": "kata-old", "state": "leaving", "why": "..."}],
//    "error": "..."}                              what is in the way of all of it: the file cannot be read
//
// States of others:
//   installing        is being put on the host now
//   missing_artifact  its files are to be fetched
//   waiting           would be changed or taken away, once it is permitted
//   leaving           would go, once its name is among `unlabelled`
//   refused           cannot be, or cannot go, as things are: a pod runs with it, the host has no such VMs,
//                     a restart of the container runtime would end pods
//   failed            was tried; what was there before is back, and it is tried again
//
// A handler stands among both if it is ready as it was until now, and something new of it waits, misses its
// files, is refused or has failed. What leaves is never among `handlers`, from its first `leaving` on.
//
// Keys and states are only ever added; what a reader does not know it passes over.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/container_runtime.h"

namespace ferry {

/// Relative to the host's root.
inline constexpr const char* kReadyHandlersFile = "run/ferry/kata.json";

enum class HandlerState { installing, missing_artifact, waiting, leaving, refused, failed };
/// "installing", "missing_artifact", …
std::string_view text(HandlerState state);

struct OtherHandler {
  std::string name;
  HandlerState state = HandlerState::waiting;
  std::string why = {};  ///< for people; empty: its state says it all
  bool operator==(const OtherHandler&) const = default;
};

struct HandlersFile {
  std::set<std::string> ready;
  std::optional<std::uint64_t> generation = {};
  bool changing = false;
  std::vector<OtherHandler> others = {};  ///< none twice
  std::string error = {};                 ///< empty: none
  bool operator==(const HandlersFile&) const = default;
};

/// Those that the running container runtime has with a configuration of ours. Absent: it does not tell what
/// it has them with (CRI-O).
std::optional<std::set<std::string>> ready_handlers(const RuntimeState& state);

/// Those of ours that it has by a type of which it starts no shim. Sorted.
std::vector<std::string> unstartable_handlers(const RuntimeState& state);

/// The text of such a file, as read_handlers_file() takes it. UTF-8; a byte that is none is replaced.
std::string handlers_file_text(const HandlersFile& file);
/// One that says only what is ready.
std::string ready_handlers_text(const std::set<std::string>& handlers);

/// Keys and states that are not known are passed over. Errc::malformed_host: no such file, or another
/// version's.
Result<HandlersFile> read_handlers_file(std::string_view text);
/// The ready ones alone, whatever the rest of it is.
Result<std::set<std::string>> read_ready_handlers(std::string_view text);

}  // namespace ferry
