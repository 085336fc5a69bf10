// SPDX-License-Identifier: Apache-2.0
// Every configuration that NVIDIA's vGPU device manager v0.5.0 ships is read as it is meant, and our edition
// of the file is the same but for boards that share a device ID.
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "vgpu-dm/profile/profile_yaml.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {
namespace {

constexpr const char* kTable = FERRY_SOURCE_DIR "/tests/fixtures/shipped-vgpu-config.tsv";
constexpr const char* kOurs = FERRY_SOURCE_DIR "/configs/vgpu-config.yaml";

/// One item: its filter, devices and counts, in the words of the table.
using Item = std::pair<std::string, std::map<std::string, unsigned>>;
using Configs = std::map<std::string, std::map<int, Item>>;

Configs table() {
  std::ifstream in(kTable);
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

Configs read_back(const ConfigText& text) {
  Configs found;
  const auto file = read_profiles(text);
  EXPECT_TRUE(file) << file.error().message;
  if (!file) return found;
  for (const Profile& profile : file->profiles) {
    for (std::size_t i = 0; i < profile.items.size(); ++i) {
      const ProfileItem& item = profile.items[i];
      EXPECT_TRUE(item.all_devices);
      Item& into = found[profile.name][static_cast<int>(i) + 1];
      if (!item.filters.empty()) into.first = item.filters.front().text();
      for (const VgpuCount& entry : item.vgpus) into.second[entry.type.text()] = entry.count;
    }
  }
  return found;
}

ConfigText our_edition() {
  const auto text = read_config_text(kOurs);
  EXPECT_TRUE(text) << text.error().message;
  return text ? *text : ConfigText{};
}

TEST(ShippedProfiles, AreAllReadAsTheyAreMeant) {
  const Configs desired = table();
  ASSERT_EQ(desired.size(), 711U);
  EXPECT_EQ(read_back({.file = "shipped", .text = as_yaml(desired), .first_line = 1, .one_line = false}),
            desired);
}

TEST(ShippedProfiles, AreOursButForBoardsOfOneDeviceId) {
  Configs desired = table();
  std::map<int, Item>& items = desired["default"];
  EXPECT_EQ(std::exchange(items.at(7).first, "0x1E7810DE:0x13D810DE"), "0x1E7810DE");
  EXPECT_EQ(std::exchange(items.at(8).first, "0x1E7810DE:0x13D910DE"), "0x1E7810DE");
  EXPECT_EQ(std::exchange(items.at(41).first, "0x25B610DE:0x14A910DE"), "0x25B610DE");
  EXPECT_EQ(std::exchange(items.at(42).first, "0x25B610DE:0x157E10DE"), "0x25B610DE");
  EXPECT_EQ(read_back(our_edition()), desired);
}

TEST(ShippedProfiles, GiveEachBoardTypesThatItHasAndNoMoreThanFit) {
  const auto file = read_profiles(our_edition());
  ASSERT_TRUE(file);
  const auto profile = select_profile(*file, "default");
  ASSERT_TRUE(profile);
  // No public source lists their time-sliced types.
  const std::set<std::string> only_mig_backed_known = {"0x20B810DE", "0x20B910DE", "0x20FD10DE",
                                                       "0x233610DE"};
  std::set<std::string> filters;
  for (const ProfileItem& item : profile->items) {
    ASSERT_EQ(item.filters.size(), 1U) << item.place;
    const DeviceFilter& filter = item.filters.front();
    EXPECT_TRUE(filters.insert(filter.text()).second) << item.place << ": two items for one board";
    vfio::PciFunction board;
    board.vendor = filter.vendor;
    board.device = filter.device;
    board.subsystem_vendor = filter.subsystem_vendor;
    board.subsystem_device = filter.subsystem_device;
    const BoardTypes types(board);
    ASSERT_EQ(item.vgpus.size(), 1U) << item.place;
    const VgpuCount& desired = item.vgpus.front();
    const mdev::VgpuType* type = types.find(desired.type.driver_short_name());
    if (only_mig_backed_known.contains(filter.text())) {
      EXPECT_EQ(type, nullptr) << item.place;
      continue;
    }
    ASSERT_NE(type, nullptr) << item.place << ": " << desired.type.text();
    EXPECT_EQ(type->max_instances.value_or(0), desired.count) << item.place << ": " << desired.type.text();
  }
}

// The board that each filter is for, and the other one that has its device ID.
TEST(ShippedProfiles, TellTheFourBoardsApart) {
  const auto file = read_profiles(our_edition());
  ASSERT_TRUE(file);
  const auto profile = select_profile(*file, "default");
  ASSERT_TRUE(profile);
  struct Board {
    std::uint16_t device;
    std::uint16_t subsystem;
    const char* type;
  };
  for (const Board& board : {Board{.device = 0x25b6, .subsystem = 0x14a9, .type = "A16-8Q"},
                             Board{.device = 0x25b6, .subsystem = 0x157e, .type = "A2-8Q"},
                             Board{.device = 0x1e78, .subsystem = 0x13d8, .type = "RTX8000P-24Q"},
                             Board{.device = 0x1e78, .subsystem = 0x13d9, .type = "RTX6000P-12Q"}}) {
    mdev::VgpuGpu gpu;
    gpu.function.vendor = 0x10de;
    gpu.function.device = board.device;
    gpu.function.subsystem_vendor = 0x10de;
    gpu.function.subsystem_device = board.subsystem;
    const ProfileItem* item = profile->item_for(gpu);
    ASSERT_NE(item, nullptr) << board.type;
    EXPECT_EQ(item->vgpus.front().type.text(), board.type);
  }
}

}  // namespace
}  // namespace ferry::vgpu
