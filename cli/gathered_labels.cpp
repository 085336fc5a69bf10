// SPDX-License-Identifier: Apache-2.0
#include "cli/gathered_labels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "cli/cluster_facts.h"
#include "cli/masked_text.h"
#include "cli/object_fields.h"

namespace ferry {

using nlohmann::json;

namespace {

// True: the values are as long and mixed as keys, so masked_text() would hide some.
bool is_known_name(std::string_view key) {
  return key == "nvidia.com/gpu.product";
}

}  // namespace

bool is_needed_label(std::string_view key) {
  constexpr std::array<std::string_view, 6> kDomains = {
      kGpuResources,        "feature.node.kubernetes.io/", "node-role.kubernetes.io/",
      "katacontainers.io/", "app.kubernetes.io/",          "helm.sh/"};
  // These domains have other keys, too, with UIDs of objects or the node's own name, which may be an address.
  constexpr std::array<std::string_view, 13> kKeys = {"app",
                                                      "kubernetes.io/arch",
                                                      "kubernetes.io/os",
                                                      "node.kubernetes.io/instance-type",
                                                      "topology.kubernetes.io/region",
                                                      "topology.kubernetes.io/zone",
                                                      "kubevirt.io",
                                                      "kubevirt.io/schedulable",
                                                      "kubevirt.io/nodeName",
                                                      "kubevirt.io/domain",
                                                      "kubevirt.io/vm",
                                                      "kubevirt.io/migrationTargetNodeName",
                                                      "vm.kubevirt.io/name"};
  // The value is the UUID of the machine's NVLink domain.
  if (key == "nvidia.com/gpu.clique") return false;
  return key.find("gpu-ferry.io/") != std::string_view::npos ||
         std::ranges::any_of(kDomains, [&](std::string_view domain) { return key.starts_with(domain); }) ||
         std::ranges::find(kKeys, key) != kKeys.end();
}

void take_labels(const json& object, const char* key, json& out) {
  std::size_t left_out = 0;
  for (const auto& [name, value] : texts_field(object, key)) {
    if (is_needed_label(name))
      out[key][name] = is_known_name(name) ? value : masked_text(value);
    else
      ++left_out;
  }
  if (left_out > 0) out[std::string(key) + "_left_out"] = left_out;
}

}  // namespace ferry
