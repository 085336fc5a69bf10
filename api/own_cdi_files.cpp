// SPDX-License-Identifier: Apache-2.0
#include "api/own_cdi_files.h"

#include <set>
#include <string>
#include <vector>

#include "api/claim_files.h"
#include "common/config/config_reader.h"
#include "common/config/config_tree.h"

namespace ferry::api {
namespace {

using Kind = ConfigNode::Kind;

Result<> check_map(const ConfigReader& reader, const ConfigNode& node, const std::string& key,
                   const std::vector<std::string>& known) {
  if (node.kind != Kind::map) return reader.refuse(node, key, "is " + node.described() + " and no map");
  return reader.check_keys(node, key, known);
}

Result<> check_list(const ConfigReader& reader, const ConfigNode& edits, const std::string& list,
                    const std::vector<std::string>& paths, const std::vector<std::string>& known) {
  const ConfigMember* const found = edits.find(list);
  if (found == nullptr) return {};
  for (const ConfigNode& item : found->value.items) {
    if (auto r = check_map(reader, item, list, known); !r) return r;
    for (const std::string& path : paths) {
      const ConfigMember* const value = item.find(path);
      if (value == nullptr || !value->value.text.starts_with('/'))
        return reader.refuse(item, list, path + " is no absolute path");
    }
  }
  return {};
}

/// `names`: of the devices before it.
Result<> check_device(const ConfigReader& reader, const ConfigNode& device, std::set<std::string>& names) {
  if (auto r = check_map(reader, device, "devices", {"name", "containerEdits"}); !r) return r;
  const ConfigMember* const name = device.find("name");
  if (name == nullptr || name->value.text.empty()) return reader.refuse(device, "devices", "has no name");
  if (!names.insert(name->value.text).second)
    return reader.refuse(name->value, "devices", "has the name " + name->value.text + " twice");
  const ConfigMember* const edits = device.find("containerEdits");
  if (edits == nullptr) return reader.refuse(device, "devices", "has no containerEdits");
  if (auto r = check_map(reader, edits->value, "containerEdits", {"env", "deviceNodes", "mounts"}); !r)
    return r;
  if (auto r = check_list(reader, edits->value, "deviceNodes", {"path"}, {"path", "fileMode"}); !r) return r;
  return check_list(reader, edits->value, "mounts", {"hostPath", "containerPath"},
                    {"hostPath", "containerPath", "options"});
}

}  // namespace

bool is_own_cdi_file(std::string_view name, std::string_view text) {
  return claim_of_cdi_file(name) || (name.ends_with(".yaml") && text.starts_with(kPluginCdiHead));
}

// The file has the fields that Ferry writes, and no others: a hook would run as root.
Result<> check_own_cdi_file(const ConfigText& file) {
  const auto root = parse_config(file);
  if (!root) return fail(root.error());
  const ConfigReader reader(file);
  if (auto r = check_map(reader, *root, "", {"cdiVersion", "kind", "devices"}); !r) return r;
  const ConfigMember* const version = root->find("cdiVersion");
  if (version == nullptr || (version->value.text != "0.5.0" && version->value.text != "0.6.0"))
    return reader.refuse(version == nullptr ? *root : version->value, "cdiVersion", "is not 0.5.0 or 0.6.0");
  const ConfigMember* const kind = root->find("kind");
  if (kind == nullptr || kind->value.text.find('/') == std::string::npos)
    return reader.refuse(kind == nullptr ? *root : kind->value, "kind", "is not VENDOR/CLASS");
  const ConfigMember* const devices = root->find("devices");
  if (devices == nullptr || devices->value.items.empty())
    return reader.refuse(devices == nullptr ? *root : devices->value, "devices", "has no device");
  std::set<std::string> names;
  for (const ConfigNode& device : devices->value.items)
    if (auto r = check_device(reader, device, names); !r) return r;
  return {};
}

}  // namespace ferry::api
