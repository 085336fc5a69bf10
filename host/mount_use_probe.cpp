// SPDX-License-Identifier: Apache-2.0
#include "host/mount_use_probe.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace ferry {
namespace {

struct Mount {
  std::string number;  // "8:17"
  std::string point;
  std::string source;  // "/dev/sdb1"; btrfs shows numbers of its own, so this counts too
};

// Blanks and backslashes are written as \ooo.
std::string unescaped(std::string_view text) {
  std::string out;
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  while (!text.empty()) {
    if (text.size() >= 4 && text[0] == '\\' && std::ranges::all_of(text.substr(1, 3), octal)) {
      out += static_cast<char>((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
      text.remove_prefix(4);
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

// "36 35 8:17 / /media/disk rw,noatime shared:1 - ext4 /dev/sdb1 rw": any number of optional fields before
// the dash.
std::vector<Mount> parse(const std::string& mountinfo) {
  std::vector<Mount> mounts;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string skipped;
    Mount mount;
    fields >> skipped >> skipped >> mount.number >> skipped >> mount.point;
    while (fields >> skipped && skipped != "-") {
    }
    fields >> skipped >> mount.source;
    if (!fields) continue;
    mount.point = unescaped(mount.point);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

bool is_from(const Mount& mount, const DeviceNode& node) {
  return mount.number == fmt::format("{}:{}", node.number.major, node.number.minor) ||
         mount.source == node.name;
}

}  // namespace

Result<UseReport> MountUseProbe::look(std::span<const UseQuestion> questions) {
  UseReport report;
  const bool asked = std::ranges::any_of(
      questions, [](const UseQuestion& q) { return std::ranges::any_of(q.nodes, &DeviceNode::block); });
  if (!asked) return report;
  const auto mountinfo = host_->read_file("proc/1/mountinfo");
  if (!mountinfo) {
    report.blind = "mounted file systems: " + mountinfo.error().message;
    report.unknown.push_back(report.blind);
    return report;
  }
  const auto mounts = parse(*mountinfo);
  for (const UseQuestion& question : questions) {
    for (const DeviceNode& node : question.nodes) {
      for (const Mount& mount : mounts) {
        if (!node.block || !is_from(mount, node)) continue;
        report.holders[question.device].push_back(
            {.kind = Holder::Kind::mount, .name = mount.point, .pid = {}, .what = node.name, .pod_uid = {}});
      }
    }
  }
  return report;
}

}  // namespace ferry
