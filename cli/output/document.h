// SPDX-License-Identifier: Apache-2.0
// A verb's result as one document: JSON or YAML for programs, the verb's own text for people. Keys are
// snake_case, and are only ever added.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "common/exit_status.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/device_facts.h"
#include "vfio/pci/pci_function.h"
#include "vfio/use_probe.h"

namespace ferry::cli {

/// The form that the session asks for: `document` as JSON or YAML, or `text`.
std::string printed(const Session& session, const VerbOutput& shown);

/// Prints that form to the session's `out`; returns the status.
ExitStatus print(const Session& session, const VerbOutput& shown);

nlohmann::json to_json(const std::vector<vfio::PciAddress>& addresses);
nlohmann::json to_json(const vfio::DeviceUser& user);
nlohmann::json to_json(const Error& error);
nlohmann::json to_json(const vfio::Step& step);
nlohmann::json to_json(const vfio::PciFunction& function);

/// "0000:01:00.0, 0000:01:00.1"
std::string join(const std::vector<vfio::PciAddress>& addresses);
std::string join(const std::vector<std::string>& parts, const std::string& between);
/// The message of an error and its hint, each on a line that begins with `indent`.
std::string error_lines(const Error& error, const std::string& indent);
/// The reason of a step behind its text: "  because it holds a device", "  so that no other driver takes it".
std::string because(const std::string& why);

/// Absent facts are null, so that every key is always there. Sizes are in bytes unless the key has another
/// unit. Addresses are hex text, since many JSON readers lose the last bits of such numbers.
nlohmann::json to_json(const vfio::DeviceFacts& facts);

}  // namespace ferry::cli
