// SPDX-License-Identifier: Apache-2.0
// Which Kata runtimes a node shall have: var/lib/ferry/kata-classes.json, written by the agent, replaced
// atomically, and obeyed by `ferry hostd --kata`. It outlives a reboot.
//
//   {"version": 1,
//    "generation": 3,                              raised whenever what is wanted becomes another
//    "config": "version: v2\nruntimeClasses: ...", the text of a class file, whole (class_file.h, strict)
//    "classes": ["kata-nvidia-gpu"],               those of its classes that this node shall have, by name
//    "permitted": true,                            the node may be changed: its Lease is held
//    "unlabelled": ["kata-old"],                   handlers that the node has no label for, as the API server
//                                                  has confirmed
//    "asked_by": "ConfigMap gpu-ferry/kata-classes",  for people
//    "confidential_mode": "on"}                    of the node's GPUs, as its label says
//    (confidential_mode.h)
//
// The last three may be left out. Strict: unknown keys and keys that stand twice are refused, so that a key
// which an older hostd does not know is written only where it counts: `confidential_mode` where a class that
// is wanted is confidential and the mode is known.
//
// Without the file nothing is wanted, and nothing is touched. `classes` empty: all runtimes of ours go. What
// the rest of the class file says of the node (runtime, restart, artifactsDir) counts in both cases.
//
// The two files are a conversation. hostd answers in run/ferry/kata.json (ready_handlers.h), in which
// `generation` is that of the file that it has read last:
//  - A handler that would go is `leaving` there, and no more among the ready ones, so it loses its label.
//  Once
//    it has none, its name comes into `unlabelled`; only then it goes. Whoever writes the file may name every
//    handler there that is not ready and has no label; one that is labelled again has to be taken off first.
//  - What would be changed is `waiting` there until `permitted`. The Lease is asked for while any is
//  `waiting`,
//    or `changing` is said (somebody's run was killed), and kept while `changing`.
//  - A class whose files are not here is `missing_artifact`; they are fetched by whoever writes this file
//    (ferry-fetch), and no permission is needed for it.
// The file counts as it stands: `unlabelled` and `permitted` may change within a generation, and so may
// `confidential_mode` where the same classes are let onto the GPUs. That it is written anew, be it with the
// same text, has hostd look again, as after a fetch.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/config_tree.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/class_file.h"
#include "kata-manager/confidential_mode.h"

namespace ferry {

/// Relative to the host's root.
inline constexpr const char* kWantedClassesFile = "var/lib/ferry/kata-classes.json";

struct WantedClasses {
  std::uint64_t generation = 0;
  ConfigText config;
  std::vector<std::string> classes;  ///< each a handler's name, none twice
  bool permitted = false;
  std::set<std::string> unlabelled = {};
  std::string asked_by = {};  ///< empty: not said
  ConfidentialMode::State confidential_mode = ConfidentialMode::State::unknown;
};

/// Errc::invalid_config: "file:line: key: what". Of the class file only that it is a text.
Result<WantedClasses> read_wanted_classes(const ConfigText& source);

/// The text of such a file, as read_wanted_classes() takes it. UTF-8; a byte that is none is replaced.
std::string wanted_classes_text(const WantedClasses& wanted);

/// The class file that is carried, with no classes but those that are wanted, in its own order.
/// Errc::invalid_config: as read_classes(), or it has none of such a name.
Result<ClassFile> wanted_class_file(const WantedClasses& wanted);

/// In which mode the node's GPUs are, by what such a file says of it.
ConfidentialMode confidential_mode_of(const WantedClasses& wanted);

/// The file of this host; absent: there is none. Errors: as read_wanted_classes(); it cannot be read.
Result<std::optional<WantedClasses>> read_wanted_classes(const HostFs& host);

}  // namespace ferry
