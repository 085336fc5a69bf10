// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/profile_yaml.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "vgpu-dm/profile/item_reader.h"

namespace ferry::vgpu {
namespace {

constexpr const char* kVersion = "v1";
constexpr const char* kConfigs = "vgpu-configs";

Result<ProfileItem> read_item(const ItemReader& reader, const NamedItems::Item& item) {
  constexpr const char* kDevices = ItemReader::kDevices;
  constexpr const char* kVgpus = ItemReader::kVgpus;
  const auto& [node, path] = item;
  if (node->kind != ConfigNode::Kind::map) {
    return reader.refuse(
        *node, path,
        fmt::format("expected a map with {} and {}, found {}", kDevices, kVgpus, node->described()),
        fmt::format("write '- {{{}: all, {}: {{{}: 2}}}}' for two vGPUs on each GPU", kDevices, kVgpus,
                    VgpuTypeName::parse(node->text) ? node->text : "L40S-12Q"));
  }
  if (auto r = reader.check_keys(*node, path, {ItemReader::kFilter, kDevices, kVgpus}); !r)
    return fail(std::move(r).error());
  for (const char* required : {kDevices, kVgpus}) {
    if (node->find(required) == nullptr)
      return reader.refuse(*node, path + "." + required, "the key is missing");
  }
  auto out = reader.read_selection(*node, path);
  if (!out) return out;
  if (auto r = reader.read_vgpus(node->find(kVgpus)->value, path + "." + kVgpus, *out); !r) {
    return fail(std::move(r).error());
  }
  return out;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  const std::span<const std::string> some(names.data(), std::min(names.size(), kMost));
  std::string out = fmt::format("{}", fmt::join(some, ", "));
  if (names.size() > kMost) out += fmt::format(" and {} more", names.size() - kMost);
  return out;
}

}  // namespace

Result<ProfileFile> read_profiles(const ConfigText& source, Reading how) {
  ProfileFile out{.file = source.file, .profiles = {}, .warnings = {}};
  std::vector<std::string>* const tolerated = how == Reading::lenient ? &out.warnings : nullptr;
  auto root = parse_config(source, tolerated);
  if (!root) return fail(std::move(root).error());
  const ItemReader reader(source, tolerated);
  auto lists = reader.read_lists(*root, kVersion, kConfigs);
  if (!lists) return fail(std::move(lists).error());
  for (NamedItems& list : *lists) {
    Profile profile{.name = std::move(list.name), .items = {}, .place = std::move(list.place)};
    for (const NamedItems::Item& item : list.items) {
      auto read = read_item(reader, item);
      if (!read) return fail(std::move(read).error());
      profile.items.push_back(std::move(*read));
    }
    out.profiles.push_back(std::move(profile));
  }
  return out;
}

Result<Profile> select_profile(const ProfileFile& file, const std::optional<std::string>& name) {
  const std::vector<std::string> names = file.names();
  if (names.empty()) {
    return fail(Errc::invalid_config, file.file + ": holds no configurations",
                fmt::format("it needs 'version: v1' and at least one entry under {}", kConfigs));
  }
  if (!name) {
    if (names.size() == 1) return file.profiles.front();
    return fail(Errc::invalid_config,
                fmt::format("{}: holds {} configurations, and none was chosen", file.file, names.size()),
                "choose one of: " + listed(names));
  }
  const auto found = std::find(names.begin(), names.end(), *name);
  if (found == names.end()) {
    return fail(
        Errc::invalid_config,
        fmt::format("{}: holds no configuration '{}'{}", file.file, *name, did_you_mean(*name, names)),
        "it holds: " + listed(names));
  }
  return file.profiles[static_cast<std::size_t>(found - names.begin())];
}

}  // namespace ferry::vgpu
