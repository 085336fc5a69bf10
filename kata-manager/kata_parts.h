// SPDX-License-Identifier: Apache-2.0
// Inside this room: the parts of a drop-in for Kata's configuration (kata_configuration.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kata-manager/kata_configuration.h"

namespace ferry {

inline constexpr const char* kHypervisor = "hypervisor";
inline constexpr const char* kQemu = "qemu";
inline constexpr const char* kNoPort = "no-port";
/// The most ports of a kind that Kata makes.
inline constexpr std::int64_t kMostPorts = 16;

/// The name of the one hypervisor that a configuration has a table for; an error that says what is there
/// instead.
Result<std::string> hypervisor_of(const TomlTable& configuration);

/// A hypervisor's settings, for reading. Absent values and those of another type are as good as empty ones:
/// wrong_in() finds the latter.
class HypervisorSettings {
 public:
  HypervisorSettings(const TomlTable& configuration, std::string_view hypervisor);

  std::string text(std::string_view key) const;
  std::optional<std::int64_t> number(std::string_view key) const;
  bool flag(std::string_view key) const;
  const TomlValue* find(std::string_view key) const;

 private:
  const TomlTable* table_ = nullptr;
};

/// What they name on the host: the hypervisor, kernel, image, firmware.
std::vector<std::filesystem::path> host_files_of(const HypervisorSettings& settings);

/// The artifact's configuration with each guest extension image led to the artifact's folder, where that has
/// a file of the name.
std::string with_extension_images_of(const KataBase& base);

/// The runtime that reads a configuration: the shim's, else the one that the configuration is made for.
ShimRuntime runtime_of(const KataShim& shim, const TomlTable& configuration);

/// True: hot plug is left as it is said, since the shim asks no kubelet and cold plug would give a pod
/// nothing.
bool keeps_hot_plug(const KataShim& shim, const std::filesystem::path& pod_resources,
                    const HypervisorSettings& said);

/// What Ferry says, before what the class lays over it. `before` is what counts without it.
TomlTable ready_settings(const KataClass& kata, const KataBase& base, const KataDevices& devices,
                         const std::filesystem::path& pod_resources, const TomlTable& before,
                         const std::string& hypervisor);

/// Why no pod would get a GPU by a configuration, or a confidential VM that is none; nothing: it would.
std::optional<std::string> wrong_in(const KataClass& kata, const TomlTable& effective,
                                    const std::string& hypervisor);

/// Why the shim refuses the configuration, or its VMs get no device by it; nothing: neither.
std::optional<Error> wrong_for_shim(const KataShim& shim, const TomlTable& effective,
                                    const std::string& hypervisor,
                                    const std::filesystem::path& pod_resources);

/// Options of the guest kernel's PCI code that large BARs need and `parameters` do not have.
std::vector<std::string> missing_pci_options(std::string_view parameters);

}  // namespace ferry
