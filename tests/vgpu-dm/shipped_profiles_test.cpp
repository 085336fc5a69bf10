// SPDX-License-Identifier: Apache-2.0
// Every configuration that NVIDIA's vGPU device manager v0.5.0 ships is read as it is meant.
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "vgpu-dm/profile_yaml.h"

namespace ferry {
namespace {

/// One item: its filter, devices and counts, in the words of the table.
using Item = std::pair<std::string, std::map<std::string, unsigned>>;
using Configs = std::map<std::string, std::map<int, Item>>;

Configs table() {
  std::ifstream in(FERRY_SOURCE_DIR "/tests/fixtures/shipped-vgpu-config.tsv");
  Configs out;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> fields;
    std::istringstream split(line);
    for (std::string field; std::getline(split, field, '\t');) fields.push_back(field);
    Item& item = out[fields.at(0)][std::stoi(fields.at(1))];
    item.first = fields.at(2);
    item.second[fields.at(4)] = static_cast<unsigned>(std::stoul(fields.at(5)));
  }
  return out;
}

std::string as_yaml(const Configs& configs) {
  std::string out = "version: v1\nvgpu-configs:\n";
  for (const auto& [name, items] : configs) {
    out += fmt::format("  {}:\n", name);
    for (const auto& [number, item] : items) {
      out += "    - devices: all\n";
      if (!item.first.empty()) out += fmt::format("      device-filter: \"{}\"\n", item.first);
      out += "      vgpu-devices:\n";
      for (const auto& [type, count] : item.second) out += fmt::format("        \"{}\": {}\n", type, count);
    }
  }
  return out;
}

TEST(ShippedProfiles, AreAllReadAsTheyAreMeant) {
  const Configs wanted = table();
  ASSERT_EQ(wanted.size(), 711U);
  const auto file =
      read_profiles({.file = "shipped", .text = as_yaml(wanted), .first_line = 1, .one_line = false});
  ASSERT_TRUE(file) << file.error().message;
  Configs found;
  for (const Profile& profile : file->profiles) {
    for (std::size_t i = 0; i < profile.items.size(); ++i) {
      const ProfileItem& item = profile.items[i];
      EXPECT_TRUE(item.all_devices);
      Item& into = found[profile.name][static_cast<int>(i) + 1];
      if (!item.filters.empty()) into.first = item.filters.front().text();
      for (const VgpuCount& entry : item.vgpus) into.second[entry.type.text()] = entry.count;
    }
  }
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace ferry
