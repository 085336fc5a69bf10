// SPDX-License-Identifier: Apache-2.0
// A systemd unit as its files say it. ABI: systemd.unit(5), systemd.syntax(7): the folders, drop-ins behind
// the unit in the order of their names, the last assignment counts, an empty one takes back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"

namespace ferry {

class UnitFile {
 public:
  /// Absent: there is no unit of that name, or it is masked.
  static std::optional<UnitFile> read(const HostFs& host, const std::string& unit);
  /// The text of the unit, and of its drop-ins behind it.
  explicit UnitFile(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  /// What is assigned to a key of a section; absent: nothing, so systemd's own value counts.
  std::optional<std::string> value(std::string_view section, std::string_view key) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace ferry
