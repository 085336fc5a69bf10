// SPDX-License-Identifier: Apache-2.0
// The Kata runtimes that a node must have: var/lib/ferry/kata-classes.json. The agent writes it atomically,
// and `ferry hostd --kata` applies it. It outlives a reboot.
//
//   {"version": 2,
//    "generation": 3,                              raised whenever the desired state changes
//    "config": "version: v2\nruntimeClasses: ...", a class file's whole text (class_file.h, strict)
//    "classes": ["kata-nvidia-gpu"],               names of its classes that this node must have
//    "permitted": true,                            the node may be changed: it holds its Lease
//    "unlabelled": ["kata-old"],                   handlers without a label, as the API server confirmed
//    "source": "ConfigMap gpu-ferry/kata-classes",  for people
//    "confidential_mode": "on"}                    the GPUs' mode by its label (confidential_mode.h)
//
// The last three may be left out. Reading is strict: unknown and repeated keys are refused. So the agent
// writes `confidential_mode`, which an older hostd does not know, only if a desired class is confidential
// and the mode is known.
//
// Without the file no class is desired, and nothing changes. Empty `classes`: all of Ferry's runtimes leave.
// The class file's settings for the node (runtime, restart, artifactsDir) count in both cases.
//
// hostd answers in run/ferry/kata.json (ready_handlers.h), where `generation` is that of the file that
// hostd read last:
//  - A handler that must go is `leaving` there and no longer ready, so it loses its label. Its name then
//    comes into `unlabelled`, and only then does it go. The agent may list each handler that is not ready
//    and has no label; a handler that is labelled again comes off the list first.
//  - A handler that would change is `pending` until `permitted`. The agent asks for the Lease while any
//    handler is `pending` or `applying` is set (a run was killed), and keeps the Lease while `applying`.
//  - A class without its files is `missing_artifact`. The agent fetches them (ferry-fetch); this needs no
//    permission.
// The file's present content counts: `unlabelled` and `permitted` may change within a generation, and so
// may `confidential_mode` if it admits the same classes. A rewrite, even with the same text, makes hostd
// look again, as after a fetch.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/config/config_tree.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/classes/confidential_mode.h"

namespace ferry::kata {

struct DesiredClasses {
  std::uint64_t generation = 0;
  ConfigText config;
  std::vector<std::string> classes;  ///< names of handlers, each once
  bool permitted = false;
  std::set<std::string> unlabelled = {};
  std::string source = {};  ///< empty: not said
  ConfidentialMode::State confidential_mode = ConfidentialMode::State::unknown;
};

/// Errc::invalid_config: "file:line: key: reason". The class file in it is not read yet.
Result<DesiredClasses> read_desired_classes(const ConfigText& source);

/// The text for read_desired_classes(). UTF-8; invalid bytes are replaced.
std::string desired_classes_text(const DesiredClasses& desired);

/// The carried class file with only its desired classes, in the file's order. Errc::invalid_config: as
/// read_classes(), or the file lacks a desired class.
Result<ClassFile> desired_class_file(const DesiredClasses& desired);

/// The mode of the node's GPUs, from `desired`.
ConfidentialMode confidential_mode_of(const DesiredClasses& desired);

/// This host's file; absent: there is none. Errors: as read_desired_classes(), and read errors.
Result<std::optional<DesiredClasses>> read_desired_classes(const HostFs& host);

}  // namespace ferry::kata
