// SPDX-License-Identifier: Apache-2.0
// The device nodes of NVIDIA's drivers, which they make without telling sysfs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Reads a file below the host's root, which its driver may keep whoever asks waiting for.
using ReadElsewhere = std::function<Result<std::string>(const std::filesystem::path& file)>;

/// By a process of its own, waited for up to kReadDeadline; none is started before the first question.
ReadElsewhere read_by_another_process(const HostFs& host);

/// Adds the nodes through which a GPU or an NVSwitch on a driver of NVIDIA's is held. Which of the switches'
/// nodes is which switch's is not told anywhere, so whoever has one of them holds them all, as far as can be
/// known; they are called "/dev/nvidia-nvswitch*". Errors: the driver does not tell which node is this GPU's.
/// One that an act which hangs (stuck_writes.h) concerns is not asked.
Result<> add_nvidia_nodes(const HostFs& host, const ReadElsewhere& read, UseQuestion& question);

/// N of /dev/nvidiaN, from a file proc/driver/nvidia/gpus/ADDRESS/information: "Device Minor: \t 0".
/// NVIDIA's driver README, "/proc interface".
std::optional<std::uint32_t> device_minor(std::string_view information);

/// The number of a driver of character devices, by its name in proc/devices. ABI: proc(5).
std::optional<std::uint32_t> character_major(std::string_view devices, std::string_view driver);

}  // namespace ferry
