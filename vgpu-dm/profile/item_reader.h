// SPDX-License-Identifier: Apache-2.0
// Reads the parts that items of profiles and of policies share: the GPUs, and their vGPUs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

/// A NAME of a file and its items: nodes of the document, each with its path for messages.
struct NamedItems {
  struct Item {
    const ConfigNode* node = nullptr;
    std::string path;  ///< "policies.NAME[0]"
  };
  std::string name;
  std::string place;
  std::vector<Item> items;
};

/// Reading::lenient accepts some faults with a warning, such as filters that do not parse, which then match
/// no GPU. Names may look like other values, numbers may be written as 010 or 4.0, and counts of two names of
/// one type add up.
class ItemReader : public ConfigReader {
 public:
  static constexpr const char* kFilter = "device-filter";
  static constexpr const char* kDevices = "devices";
  static constexpr const char* kVgpus = "vgpu-devices";
  static constexpr const char* kParams = "vgpu-params";

  using ConfigReader::ConfigReader;

  /// Reads {version: VERSION, KEY: {NAME: [ITEM, ...], ...}, ...} and checks it down to the items; each list
  /// has at least one. Returns none for an empty document or one with only a version. Keys of `beside` may
  /// also be present; the caller reads them.
  Result<std::vector<NamedItems>> read_lists(const ConfigNode& root, const std::string& version,
                                             const std::string& key,
                                             const std::vector<std::string>& beside = {}) const;

  /// Reads `devices`, and `device-filter` if present, without vGPUs. A missing `devices` means all GPUs if
  /// `otherwise_all`, for items that choose by another key; else it is refused with `hint`.
  Result<ProfileItem> read_selection(const ConfigNode& item, const std::string& path,
                                     bool otherwise_all = false, const std::string& hint = {}) const;
  /// Values that may follow a type's name.
  enum class Counts {
    plain,     ///< a count
    detailed,  ///< a count, or a map with `count` and a policy's other keys
  };
  /// Reads the map of `vgpu-devices` into `item`.
  Result<> read_vgpus(const ConfigNode& node, const std::string& path, ProfileItem& item,
                      Counts counts = Counts::plain) const;
  /// Reads `vgpu-params`: a string, or a map from key to value.
  Result<VgpuParams> read_params(const ConfigNode& node, const std::string& path) const;
  /// Items of a list; a scalar is a list of one item. Refuses an empty list, and null.
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

}  // namespace ferry::vgpu
