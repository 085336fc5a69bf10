// SPDX-License-Identifier: Apache-2.0
// What public sources tell of a GPU by its IDs alone, for nodes where no driver can be asked. The size of a
// BAR is not the size of the memory (a T4 with 16 GB has a BAR of 256 MiB), so only a table can tell.
// Source: configs/gpu-models.tsv, which says where each figure comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

/// Texts point into the table, which is part of the program.
struct GpuModel {
  /// Of a board that shares its device ID with others, "A16"; empty: the name of the device ID says it.
  std::string_view product;
  std::optional<std::uint32_t> memory_mib;  ///< as in its name, GB times 1024; absent: nobody says it
  std::string_view family;  ///< as NVIDIA's GPU feature discovery calls it, "ada-lovelace"; or empty
};

/// By PCI vendor and device ID and those of its subsystem, "10de:25b6" and "10de:14a9". A board of a shared
/// device ID that nobody has seen is what all boards of that ID are. Empty: the table does not know the
/// device.
GpuModel gpu_model(std::string_view ids, std::string_view subsystem_ids);

/// The table as it is in the repository.
std::string_view gpu_models_text();

}  // namespace ferry
