// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/item_reader.h"

#include <fmt/format.h>

namespace ferry::vgpu {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kVersion = "version";

}  // namespace

Result<> ItemReader::check_version(const ConfigNode& root, const std::string& version) const {
  const ConfigMember* found = root.find(kVersion);
  if (found == nullptr) {
    return refuse(root, kVersion, "the key is missing",
                  fmt::format("begin the file with 'version: {}'", version));
  }
  if (!found->value.is_string() || found->value.text != version) {
    return refuse(
        found->value, kVersion,
        fmt::format("only {} is known here, found {}", version, found->value.described()),
        version == "v1" && found->value.text == "v2"
            ? "this reads vGPU profile files (v1): `ferry convert -f FILE` checks a policy file (v2), "
              "`ferry apply -f FILE` makes the node agree with one"
            : fmt::format("write 'version: {}'", version));
  }
  return {};
}

Result<std::vector<NamedItems>> ItemReader::read_lists(const ConfigNode& root, const std::string& version,
                                                       const std::string& key,
                                                       const std::vector<std::string>& beside) const {
  std::vector<NamedItems> out;
  if (root.kind == Kind::null) return out;
  if (root.kind != Kind::map) {
    return refuse(root, "",
                  fmt::format("expected a map with {} and {}, found {}", kVersion, key, root.described()),
                  fmt::format("begin the file with '{}: {}', and '{}:' below it", kVersion, version, key));
  }
  if (root.members.empty()) return out;
  if (auto r = check_version(root, version); !r) return fail(std::move(r).error());
  std::vector<std::string> known = {kVersion, key};
  known.insert(known.end(), beside.begin(), beside.end());
  if (auto r = check_keys(root, "", known); !r) return fail(std::move(r).error());

  const ConfigMember* lists = root.find(key);
  if (lists == nullptr) return out;
  if (lists->value.kind != Kind::map || lists->value.members.empty()) {
    return refuse(lists->key, key,
                  fmt::format("expected at least one named configuration, found {}",
                              lists->value.kind == Kind::map ? "none" : lists->value.described()));
  }
  for (const ConfigMember& member : lists->value.members) {
    const std::string path = fmt::format("{}.{}", key, member.key.text);
    if (!member.key.is_string() || member.key.text.empty()) {
      constexpr const char* kOdd = "YAML readers do not agree on what this name is";
      if (member.key.text.empty() ||
          !let_pass(member.key, path, std::string(kOdd) + "; taken as it stands")) {
        return refuse(member.key, path, kOdd, fmt::format("put it in quotes: \"{}\"", member.key.text));
      }
    }
    if (member.value.kind != Kind::list || member.value.items.empty()) {
      return refuse(member.key, path,
                    fmt::format("expected a list of at least one item, found {}",
                                member.value.kind == Kind::list ? "an empty one" : member.value.described()),
                    fmt::format("each item begins with '- ', as in '- {}: all'", kDevices));
    }
    NamedItems list{.name = member.key.text, .place = place(member.key), .items = {}};
    for (std::size_t i = 0; i < member.value.items.size(); ++i) {
      list.items.push_back({.node = &member.value.items[i], .path = fmt::format("{}[{}]", path, i)});
    }
    out.push_back(std::move(list));
  }
  return out;
}

Result<ProfileItem> ItemReader::read_selection(const ConfigNode& item, const std::string& path,
                                               bool otherwise_all, const std::string& hint) const {
  const ConfigMember* devices = item.find(kDevices);
  if (devices == nullptr && !otherwise_all) {
    return refuse(item, path + "." + kDevices, "the key is missing", hint);
  }
  ProfileItem out;
  out.place = place(item);
  bool matches_nothing = false;
  if (const ConfigMember* filter = item.find(kFilter)) {
    const std::size_t before = tolerated();
    if (auto r = read_filters(filter->value, path + "." + kFilter, out); !r)
      return fail(std::move(r).error());
    matches_nothing = out.filters.empty() && tolerated() > before;
  }
  if (devices == nullptr) {
    out.all_devices = true;
  } else if (auto r = read_devices(devices->value, path + "." + kDevices, out); !r) {
    return fail(std::move(r).error());
  }
  if (matches_nothing) {  // without filters it would match any GPU
    out.all_devices = false;
    out.indices.clear();
  }
  return out;
}

// Absent, null, "" and [] match every GPU.
Result<> ItemReader::read_filters(const ConfigNode& node, const std::string& path, ProfileItem& item) const {
  if (node.kind == Kind::null || (node.kind == Kind::scalar && node.quoted && node.text.empty())) return {};
  if (node.kind == Kind::scalar) return read_filter(node, path, item);
  if (node.kind != Kind::list) {
    return refuse(node, path, fmt::format("expected a string or a list of them, found {}", node.described()));
  }
  for (const ConfigNode& element : node.items) {
    if (auto r = read_filter(element, path, item); !r) return r;
  }
  return {};
}

Result<> ItemReader::read_filter(const ConfigNode& node, const std::string& path, ProfileItem& item) const {
  if (!node.is_string()) {
    return refuse(node, path, fmt::format("expected a string, found {}", node.described()),
                  node.kind == Kind::scalar ? fmt::format("put it in quotes: \"{}\"", node.text) : "");
  }
  auto filter = DeviceFilter::parse(node.text);
  if (!filter) {
    if (let_pass(node, path, filter.error().message + ": it matches nothing")) return {};
    return refuse(node, path, std::move(filter).error());
  }
  item.filters.push_back(*filter);
  return {};
}

Result<> ItemReader::read_devices(const ConfigNode& node, const std::string& path, ProfileItem& item) const {
  if (node.kind == Kind::scalar && node.is_string() && node.text == "all") {
    item.all_devices = true;
    return {};
  }
  if (node.kind != Kind::list) {
    return refuse(node, path,
                  fmt::format("expected 'all' or a list of GPU numbers, found {}", node.described()),
                  plain_number(node) ? fmt::format("write [{}]", node.text) : "");
  }
  for (const ConfigNode& element : node.items) {
    const auto index = read_number(element, path);
    if (!index) {
      return refuse(
          element, path,
          fmt::format("expected a plain whole number such as 0 or 12, found {}", element.described()));
    }
    if (*index < 0 && !let_pass(element, path, fmt::format("no GPU has the number {}", *index))) {
      return refuse(element, path, fmt::format("no GPU has the number {}", *index),
                    "GPUs count from 0, in order of their addresses");
    }
    item.indices.push_back(*index);
  }
  return {};
}

Result<std::vector<const ConfigNode*>> ItemReader::read_some(const ConfigNode& node, const std::string& path,
                                                             const std::string& of_what) const {
  std::vector<const ConfigNode*> out;
  if (node.kind == Kind::scalar) out.push_back(&node);
  for (const ConfigNode& item : node.items) out.push_back(&item);
  if (!out.empty()) return out;
  return refuse(node, path,
                fmt::format("expected one or a list of {}, found {}", of_what,
                            node.kind == Kind::list ? "an empty list" : node.described()),
                "leave the key out for any");
}

}  // namespace ferry::vgpu
