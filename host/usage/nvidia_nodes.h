// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

// The device nodes of NVIDIA's drivers, which these drivers create without an entry in sysfs.

/// Reads a file below the host's root. Its driver may block the read.
using ReadElsewhere = std::function<Result<std::string>(const std::filesystem::path& file)>;

/// Reads in a child process, with kReadDeadline as the limit. The child is started with the first question.
ReadElsewhere read_by_another_process(const HostFs& host);

/// Adds the nodes through which a process uses a GPU or an NVSwitch on a driver of NVIDIA's. The driver does
/// not say which node belongs to which switch. A user of one switch node therefore counts as a user of every
/// switch; the nodes appear as "/dev/nvidia-nvswitch*". Errors: the driver does not say which node is this
/// GPU's. The driver is not asked about a GPU that a stuck write concerns (stuck_writes.h).
Result<> add_nvidia_nodes(const HostFs& host, const ReadElsewhere& read, vfio::UseQuestion& question);

/// N of /dev/nvidiaN, from a file proc/driver/nvidia/gpus/ADDRESS/information: "Device Minor: \t 0". ABI:
/// NVIDIA's driver README, "/proc interface".
std::optional<std::uint32_t> device_minor(std::string_view information);

/// The major number of a character device driver, by its name in proc/devices. ABI: proc(5).
std::optional<std::uint32_t> character_major(std::string_view devices, std::string_view driver);

}  // namespace ferry::host
