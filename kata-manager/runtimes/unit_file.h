// SPDX-License-Identifier: Apache-2.0
// A systemd unit's files. ABI: systemd.unit(5), systemd.syntax(7): the folders; drop-ins follow the unit in
// order of their names; the last assignment counts; an empty one resets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hostfs/host_fs.h"

namespace ferry::kata {

class UnitFile {
 public:
  /// Absent: no unit of that name, or it is masked.
  static std::optional<UnitFile> read(const HostFs& host, const std::string& unit);
  /// The texts of the unit and of its drop-ins, in order.
  explicit UnitFile(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  /// The value of a key in a section; absent: none, so systemd's default counts.
  std::optional<std::string> value(std::string_view section, std::string_view key) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace ferry::kata
