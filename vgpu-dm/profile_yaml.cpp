// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile_yaml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/suggest.h"

namespace ferry {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kVersion = "version";
constexpr const char* kConfigs = "vgpu-configs";
constexpr const char* kFilter = "device-filter";
constexpr const char* kDevices = "devices";
constexpr const char* kVgpus = "vgpu-devices";

class Reader {
 public:
  explicit Reader(const ConfigText& source) : source_(source) {}

  Result<ProfileFile> read() {
    auto root = parse_config(source_);
    if (!root) return fail(std::move(root).error());
    ProfileFile out{.file = source_.file, .profiles = {}};
    if (root->kind == Kind::null) return out;
    if (root->kind != Kind::map) {
      return refuse(
          *root, "",
          fmt::format("expected a map with {} and {}, found {}", kVersion, kConfigs, root->described()));
    }
    if (root->members.empty()) return out;
    if (auto r = check_version(*root); !r) return fail(std::move(r).error());
    if (auto r = check_keys(*root, "", {kVersion, kConfigs}); !r) return fail(std::move(r).error());

    const ConfigMember* configs = root->find(kConfigs);
    if (configs == nullptr) return out;
    if (configs->value.kind != Kind::map || configs->value.members.empty()) {
      return refuse(configs->key, kConfigs,
                    fmt::format("expected at least one named configuration, found {}",
                                configs->value.kind == Kind::map ? "none" : configs->value.described()));
    }
    for (const ConfigMember& member : configs->value.members) {
      auto profile = read_profile(member);
      if (!profile) return fail(std::move(profile).error());
      out.profiles.push_back(std::move(*profile));
    }
    return out;
  }

 private:
  tl::unexpected<Error> refuse(const ConfigNode& at, const std::string& key, const std::string& what,
                               std::string hint = {}) const {
    const std::string where = key.empty() ? source_.place(at.line) : source_.place(at.line) + ": " + key;
    return fail(Errc::invalid_config, where + ": " + what, std::move(hint));
  }

  /// Gives the error of a part its place.
  tl::unexpected<Error> refuse(const ConfigNode& at, const std::string& key, Error error) const {
    return refuse(at, key, error.message, std::move(error.hint));
  }

  Result<> check_version(const ConfigNode& root) const {
    const ConfigMember* version = root.find(kVersion);
    if (version == nullptr) {
      return refuse(root, kVersion, "the key is missing", "begin the file with 'version: v1'");
    }
    if (!version->value.is_string() || version->value.text != "v1") {
      return refuse(version->value, kVersion,
                    fmt::format("only v1 is known here, found {}", version->value.described()));
    }
    return {};
  }

  Result<> check_keys(const ConfigNode& map, const std::string& path,
                      const std::vector<std::string>& known) const {
    for (const ConfigMember& member : map.members) {
      const std::string& key = member.key.text;
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      return refuse(member.key, path.empty() ? key : path + "." + key,
                    "unknown key" + did_you_mean(key, known),
                    fmt::format("known here: {}", fmt::join(known, ", ")));
    }
    return {};
  }

  Result<Profile> read_profile(const ConfigMember& member) const {
    const std::string path = fmt::format("{}.{}", kConfigs, member.key.text);
    if (!member.key.is_string() || member.key.text.empty()) {
      return refuse(member.key, path, "YAML readers do not agree on what this name is",
                    fmt::format("put it in quotes: \"{}\"", member.key.text));
    }
    Profile profile{.name = member.key.text, .items = {}, .place = source_.place(member.key.line)};
    if (member.value.kind != Kind::list || member.value.items.empty()) {
      return refuse(member.key, path,
                    fmt::format("expected a list of at least one item, found {}",
                                member.value.kind == Kind::list ? "an empty one" : member.value.described()));
    }
    for (std::size_t i = 0; i < member.value.items.size(); ++i) {
      auto item = read_item(member.value.items[i], fmt::format("{}[{}]", path, i));
      if (!item) return fail(std::move(item).error());
      profile.items.push_back(std::move(*item));
    }
    return profile;
  }

  Result<ProfileItem> read_item(const ConfigNode& node, const std::string& path) const {
    if (node.kind != Kind::map) {
      return refuse(
          node, path,
          fmt::format("expected a map with {} and {}, found {}", kDevices, kVgpus, node.described()));
    }
    if (auto r = check_keys(node, path, {kFilter, kDevices, kVgpus}); !r) return fail(std::move(r).error());
    for (const char* required : {kDevices, kVgpus}) {
      if (node.find(required) == nullptr) return refuse(node, path + "." + required, "the key is missing");
    }
    ProfileItem item;
    item.place = source_.place(node.line);
    if (const ConfigMember* filter = node.find(kFilter)) {
      if (auto r = read_filters(filter->value, path + "." + kFilter, item); !r)
        return fail(std::move(r).error());
    }
    if (auto r = read_devices(node.find(kDevices)->value, path + "." + kDevices, item); !r) {
      return fail(std::move(r).error());
    }
    if (auto r = read_vgpus(node.find(kVgpus)->value, path + "." + kVgpus, item); !r) {
      return fail(std::move(r).error());
    }
    return item;
  }

  // Absent, null, "" and [] are filters that every GPU passes.
  Result<> read_filters(const ConfigNode& node, const std::string& path, ProfileItem& item) const {
    if (node.kind == Kind::null || (node.kind == Kind::scalar && node.quoted && node.text.empty())) return {};
    if (node.kind == Kind::scalar) return read_filter(node, path, item);
    if (node.kind != Kind::list) {
      return refuse(node, path,
                    fmt::format("expected a string or a list of them, found {}", node.described()));
    }
    for (const ConfigNode& element : node.items) {
      if (auto r = read_filter(element, path, item); !r) return r;
    }
    return {};
  }

  Result<> read_filter(const ConfigNode& node, const std::string& path, ProfileItem& item) const {
    if (!node.is_string()) {
      return refuse(node, path, fmt::format("expected a string, found {}", node.described()),
                    node.kind == Kind::scalar ? fmt::format("put it in quotes: \"{}\"", node.text) : "");
    }
    auto filter = DeviceFilter::parse(node.text);
    if (!filter) return refuse(node, path, std::move(filter).error());
    item.filters.push_back(*filter);
    return {};
  }

  Result<> read_devices(const ConfigNode& node, const std::string& path, ProfileItem& item) const {
    if (node.kind == Kind::scalar && node.is_string() && node.text == "all") {
      item.all_devices = true;
      return {};
    }
    if (node.kind != Kind::list) {
      return refuse(
          node, path, fmt::format("expected 'all' or a list of GPU numbers, found {}", node.described()),
          node.kind == Kind::scalar && !node.is_string() ? fmt::format("write [{}]", node.text) : "");
    }
    for (const ConfigNode& element : node.items) {
      const auto index = read_integer(element);
      if (!index) {
        return refuse(
            element, path,
            fmt::format("expected a plain whole number such as 0 or 12, found {}", element.described()));
      }
      item.indices.push_back(*index);
    }
    return {};
  }

  Result<> read_vgpus(const ConfigNode& node, const std::string& path, ProfileItem& item) const {
    if (node.kind == Kind::null) return {};
    if (node.kind != Kind::map) {
      return refuse(node, path,
                    fmt::format("expected a map from type name to count, found {}", node.described()),
                    "write {} for no vGPUs at all");
    }
    std::unordered_map<std::string, std::string> meanings;  // the driver's name, and the name written
    for (const ConfigMember& member : node.members) {
      const std::string key = path + "." + member.key.text;
      auto type = VgpuTypeName::parse(member.key.text);
      if (!type) return refuse(member.key, path, std::move(type).error());
      auto count = read_count(member.value, key);
      if (!count) return fail(std::move(count).error());
      if (!item.vgpus.empty() && item.vgpus.front().type.is_mig_backed() != type->is_mig_backed()) {
        return refuse(member.key, key,
                      fmt::format("a GPU cannot carry it beside {}: one is MIG-backed, the other time-sliced",
                                  item.vgpus.front().type.text()),
                      "give each kind an item of its own, for other GPUs");
      }
      if (const auto [other, fresh] = meanings.emplace(type->driver_short_name(), member.key.text); !fresh) {
        return refuse(member.key, key, fmt::format("means the same type as {}", other->second),
                      "keep one of them, with the sum of the counts");
      }
      item.vgpus.push_back(
          {.type = std::move(*type), .count = *count, .place = source_.place(member.key.line)});
    }
    return {};
  }

  Result<std::uint32_t> read_count(const ConfigNode& node, const std::string& key) const {
    const auto number = read_integer(node);
    if (!number) {
      return refuse(
          node, key,
          fmt::format("the count must be a plain whole number such as 4, found {}", node.described()));
    }
    if (*number <= 0) {
      return refuse(node, key, fmt::format("the count must be above 0, found {}", *number),
                    "leave the type out for none of it");
    }
    if (*number > kMostVgpus) {
      return refuse(node, key, fmt::format("no GPU carries {} vGPUs", *number));
    }
    return static_cast<std::uint32_t>(*number);
  }

  // Only the form that every reader takes for the same number: 010 is 8 for some, 0x10 and 1_0 are strings.
  static std::optional<std::int64_t> read_integer(const ConfigNode& node) {
    if (node.kind != Kind::scalar || node.quoted) return std::nullopt;
    const std::string_view text = node.text;
    const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
    if (digits.empty() || (digits.size() > 1 && digits.front() == '0')) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  }

  static constexpr std::int64_t kMostVgpus = 65536;  // far above any GPU; keeps sums small

  const ConfigText& source_;
};

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  const std::span<const std::string> some(names.data(), std::min(names.size(), kMost));
  std::string out = fmt::format("{}", fmt::join(some, ", "));
  if (names.size() > kMost) out += fmt::format(" and {} more", names.size() - kMost);
  return out;
}

}  // namespace

Result<ProfileFile> read_profiles(const ConfigText& source) {
  return Reader(source).read();
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

}  // namespace ferry
