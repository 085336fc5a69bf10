// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_reader.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "cli/object_fields.h"
#include "common/suggest.h"
#include "kube/api_error.h"

namespace ferry {
namespace {

using nlohmann::json;

Result<> read_vmis(const AskForPart& ask, ClusterObjects& objects) {
  auto vmis = list_by_parts(ask, {.kind = kVmis}, counted_vmi);
  if (vmis) {
    objects.vmis = std::move(*vmis);
    return {};
  }
  const auto code = vmis.error().code;
  if (code == ApiErrc::not_found) return {};
  if (code != ApiErrc::forbidden) return fail(std::move(vmis).error());
  objects.notes.push_back("VMs that have no pod yet are not shown: " + vmis.error().message);
  return {};
}

// Suggests similar names. The list of Nodes is read only here, once the node is known to be absent.
Error no_such_node(const AskForPart& ask, const std::string& name) {
  std::vector<std::string> names;
  if (const auto nodes = list_by_parts(ask, {.kind = kNodes}, counted_node))
    for (const json& node : *nodes) names.push_back(text_field(field(node, "metadata"), "name"));
  return {.code = make_error_code(Errc::not_found),
          .message = "there is no node '" + name + "'" + did_you_mean(name, names),
          .hint = "`kubectl ferry list` shows those that have GPUs"};
}

}  // namespace

Result<ClusterObjects> read_cluster(const AskForPart& ask, VmisRead vmis) {
  ClusterObjects out;
  auto nodes = list_by_parts(ask, {.kind = kNodes}, counted_node);
  if (!nodes) return fail(std::move(nodes).error());
  out.nodes = std::move(*nodes);
  auto pods = list_by_parts(ask, {.kind = kPods, .fields = std::string(kNotEndedPods)}, counted_pod);
  if (!pods) return fail(std::move(pods).error());
  out.pods = std::move(*pods);
  if (vmis == VmisRead::yes)
    if (auto read = read_vmis(ask, out); !read) return fail(std::move(read).error());
  return out;
}

Result<ClusterObjects> read_cluster_node(const AskForPart& ask, const std::string& node) {
  ClusterObjects out;
  // A name that no object can have is a usage error, and must not become a selector.
  if (auto path = path_of(node_ref(node)); !path) return fail(std::move(path).error());
  auto nodes = list_by_parts(ask, only(node_ref(node)));
  if (!nodes) return fail(std::move(nodes).error());
  if (nodes->empty()) return fail(no_such_node(ask, node));
  out.nodes = std::move(*nodes);
  auto pods = list_by_parts(ask, pods_of_node(node));
  if (!pods) return fail(std::move(pods).error());
  out.pods = std::move(*pods);
  return out;
}

Result<std::optional<std::vector<json>>> read_kubevirts(const AskForPart& ask) {
  using Kubevirts = std::optional<std::vector<json>>;
  auto objects = list_by_parts(ask, {.kind = kKubeVirts});
  if (objects) return Kubevirts(std::move(*objects));
  if (objects.error().code == ApiErrc::not_found) return Kubevirts(std::in_place);
  if (objects.error().code == ApiErrc::forbidden) return Kubevirts();
  return fail(std::move(objects).error());
}

}  // namespace ferry
