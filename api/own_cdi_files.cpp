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

/// Checks that a file has the fields that Ferry writes, and no others: a hook would run as root.
class OwnFile {
 public:
  explicit OwnFile(const ConfigText& text) : reader_(text) {}

  Result<> check(const ConfigNode& root) {
    if (auto r = check_map(root, "", {"cdiVersion", "kind", "devices"}); !r) return r;
    const ConfigMember* const version = root.find("cdiVersion");
    if (version == nullptr || (version->value.text != "0.5.0" && version->value.text != "0.6.0"))
      return reader_.refuse(version == nullptr ? root : version->value, "cdiVersion",
                            "is not 0.5.0 or 0.6.0");
    const ConfigMember* const kind = root.find("kind");
    if (kind == nullptr || kind->value.text.find('/') == std::string::npos)
      return reader_.refuse(kind == nullptr ? root : kind->value, "kind", "is not VENDOR/CLASS");
    const ConfigMember* const devices = root.find("devices");
    if (devices == nullptr || devices->value.items.empty())
      return reader_.refuse(devices == nullptr ? root : devices->value, "devices", "has no device");
    for (const ConfigNode& device : devices->value.items)
      if (auto r = check_device(device); !r) return r;
    return {};
  }

 private:
  Result<> check_map(const ConfigNode& node, const std::string& key, const std::vector<std::string>& known) {
    if (node.kind != Kind::map) return reader_.refuse(node, key, "is " + node.described() + " and no map");
    return reader_.check_keys(node, key, known);
  }

  Result<> check_device(const ConfigNode& device) {
    if (auto r = check_map(device, "devices", {"name", "containerEdits"}); !r) return r;
    const ConfigMember* const name = device.find("name");
    if (name == nullptr || name->value.text.empty()) return reader_.refuse(device, "devices", "has no name");
    if (!names_.insert(name->value.text).second)
      return reader_.refuse(name->value, "devices", "has the name " + name->value.text + " twice");
    const ConfigMember* const edits = device.find("containerEdits");
    if (edits == nullptr) return reader_.refuse(device, "devices", "has no containerEdits");
    if (auto r = check_map(edits->value, "containerEdits", {"env", "deviceNodes", "mounts"}); !r) return r;
    if (auto r = check_list(edits->value, "deviceNodes", {"path"}, {"path", "fileMode"}); !r) return r;
    return check_list(edits->value, "mounts", {"hostPath", "containerPath"},
                      {"hostPath", "containerPath", "options"});
  }

  Result<> check_list(const ConfigNode& edits, const std::string& list, const std::vector<std::string>& paths,
                      const std::vector<std::string>& known) {
    const ConfigMember* const found = edits.find(list);
    if (found == nullptr) return {};
    for (const ConfigNode& item : found->value.items) {
      if (auto r = check_map(item, list, known); !r) return r;
      for (const std::string& path : paths) {
        const ConfigMember* const value = item.find(path);
        if (value == nullptr || !value->value.text.starts_with('/'))
          return reader_.refuse(item, list, path + " is no absolute path");
      }
    }
    return {};
  }

  ConfigReader reader_;
  std::set<std::string> names_;
};

}  // namespace

bool is_own_cdi_file(std::string_view name, std::string_view text) {
  return claim_of_cdi_file(name) || (name.ends_with(".yaml") && text.starts_with(kPluginCdiHead));
}

Result<> check_own_cdi_file(const ConfigText& file) {
  const auto root = parse_config(file);
  if (!root) return fail(root.error());
  return OwnFile(file).check(*root);
}

}  // namespace ferry::api
