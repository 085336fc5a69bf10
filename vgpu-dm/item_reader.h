// SPDX-License-Identifier: Apache-2.0
// The parts that a profile's item and a policy's item share: which GPUs, and which vGPUs on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config_reader.h"
#include "common/config_tree.h"
#include "common/result.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// One NAME of a file and its items: nodes of the document, each with its path for messages.
struct NamedItems {
  struct Item {
    const ConfigNode* node = nullptr;
    std::string path;  ///< "policies.NAME[0]"
  };
  std::string name;
  std::string place;
  std::vector<Item> items;
};

/// Where leniency is asked for, filters that do not parse match nothing, names may be what other readers take
/// for something else, numbers may be written as 010 or 4.0, and of two names of one type the counts add up.
class ItemReader : public ConfigReader {
 public:
  static constexpr const char* kFilter = "device-filter";
  static constexpr const char* kDevices = "devices";
  static constexpr const char* kVgpus = "vgpu-devices";
  static constexpr const char* kParams = "vgpu-params";

  using ConfigReader::ConfigReader;

  /// A document of the form {version: VERSION, KEY: {NAME: [ITEM, ...], ...}}, checked down to the items, of
  /// which each list has at least one. None for an empty document or one with only a version. Keys of
  /// `beside` may stand there too and are the caller's to read.
  Result<std::vector<NamedItems>> read_lists(const ConfigNode& root, const std::string& version,
                                             const std::string& key,
                                             const std::vector<std::string>& beside = {}) const;

  /// `devices`, and `device-filter` where there is one; without vGPUs. Without `devices` all of them where
  /// `otherwise_all`, which is for items that choose by something else; else it is refused, with `hint`.
  Result<ProfileItem> read_selection(const ConfigNode& item, const std::string& path,
                                     bool otherwise_all = false, const std::string& hint = {}) const;
  /// What stands behind a type's name.
  enum class Counts {
    plain,     ///< how many
    detailed,  ///< how many, or a map with `count` and what else a policy can say of them
  };
  /// `vgpu-devices`: its value's map goes into `item`.
  Result<> read_vgpus(const ConfigNode& node, const std::string& path, ProfileItem& item,
                      Counts counts = Counts::plain) const;
  /// `vgpu-params`: a string, or a map from key to value.
  Result<VgpuParams> read_params(const ConfigNode& node, const std::string& path) const;
  /// A list's items; a single thing is a list of itself. Refuses an empty one, and null.
  Result<std::vector<const ConfigNode*>> read_some(const ConfigNode& node, const std::string& path,
                                                   const std::string& of_what) const;

 private:
  Result<> check_version(const ConfigNode& root, const std::string& version) const;
  Result<> read_filters(const ConfigNode& node, const std::string& path, ProfileItem& item) const;
  Result<> read_filter(const ConfigNode& node, const std::string& path, ProfileItem& item) const;
  Result<> read_devices(const ConfigNode& node, const std::string& path, ProfileItem& item) const;
  Result<std::uint32_t> read_count(const ConfigNode& node, const std::string& key) const;
  Result<VgpuCount> read_details(const ConfigNode& node, const std::string& key) const;
  Result<> read_placement(const ConfigNode& node, const std::string& key, VgpuCount& entry) const;
  Result<> check_placement(const ConfigMember& member, const std::string& key, const VgpuTypeName& type,
                           const VgpuCount& entry, const ProfileItem& item) const;
};

}  // namespace ferry
