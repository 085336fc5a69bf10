// SPDX-License-Identifier: Apache-2.0
// Internal: the parts of a drop-in for Kata's configuration (kata_configuration.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kata-manager/configuration/kata_configuration.h"

namespace ferry::kata {

inline constexpr const char* kHypervisor = "hypervisor";
inline constexpr const char* kQemu = "qemu";
inline constexpr const char* kNoPort = "no-port";
/// Kata's limit for ports of each kind.
inline constexpr std::int64_t kMostPorts = 16;

/// The name of the only hypervisor that has a table in a configuration. An error lists the tables that are
/// there.
Result<std::string> hypervisor_of(const TomlTable& configuration);

/// A hypervisor's settings in a configuration, which must outlive the result; empty: it has none. Values of
/// another type read as absent (text_at()); wrong_in() reports them.
const TomlTable& settings_of(const TomlTable& configuration, std::string_view hypervisor);

/// Host paths in the settings: the hypervisor, kernel, image, firmware.
std::vector<std::filesystem::path> host_files_of(const TomlTable& settings);

/// The artifact's configuration. The path of each guest extension image points into the artifact's folder
/// if that has a file of the name.
std::string with_extension_images_of(const KataBase& base);

/// The runtime that reads a configuration: the shim's, else the runtime that the configuration is made for.
ShimRuntime runtime_of(const KataShim& shim, const TomlTable& configuration);

/// True: the hot plug setting stays, because the shim does not ask the kubelet, and cold plug would give a
/// pod no device.
bool keeps_hot_plug(const KataShim& shim, const std::filesystem::path& pod_resources, const TomlTable& said);

/// Ferry's settings, before the class's settings override them. `before` is the configuration without
/// either.
TomlTable ready_settings(const KataClass& kata, const KataBase& base, const KataDevices& devices,
                         const std::filesystem::path& pod_resources, const TomlTable& before,
                         const std::string& hypervisor);

/// Why a pod would get no GPU, or a confidential class a plain VM; absent: neither.
std::optional<std::string> wrong_in(const KataClass& kata, const TomlTable& effective,
                                    const std::string& hypervisor);

/// Why the shim refuses the configuration, or its VMs get no device; absent: neither.
std::optional<Error> wrong_for_shim(const KataShim& shim, const TomlTable& effective,
                                    const std::string& hypervisor,
                                    const std::filesystem::path& pod_resources);

/// Options of the guest kernel's `pci=` that large BARs need and `parameters` lack.
std::vector<std::string> missing_pci_options(std::string_view parameters);

}  // namespace ferry::kata
