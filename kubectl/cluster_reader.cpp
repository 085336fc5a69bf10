// SPDX-License-Identifier: Apache-2.0
#include "kubectl/cluster_reader.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/text/suggest.h"
#include "kube/api_error.h"
#include "kubectl/object_fields.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

Result<> read_vmis(const kube::AskForPart& ask, ClusterObjects& objects) {
  auto vmis = kube::list_by_parts(ask, {.kind = kube::kVmis}, counted_vmi);
  if (vmis) {
    objects.vmis = std::move(*vmis);
    return {};
  }
  const auto code = vmis.error().code;
  if (code == kube::ApiErrc::not_found) return {};
  if (code != kube::ApiErrc::forbidden) return fail(std::move(vmis).error());
  objects.notes.push_back("VMs that have no pod yet are not shown: " + vmis.error().message);
  return {};
}

// Suggests similar names. The list of Nodes is read only here, once the node is known to be absent.
Error no_such_node(const kube::AskForPart& ask, const std::string& name) {
  std::vector<std::string> names;
  if (const auto nodes = kube::list_by_parts(ask, {.kind = kube::kNodes}, counted_node))
    for (const json& node : *nodes) names.push_back(text_field(field(node, "metadata"), "name"));
  return {.code = make_error_code(Errc::not_found),
          .message = "there is no node '" + name + "'" + did_you_mean(name, names),
          .hint = "`kubectl ferry list` shows those that have GPUs"};
}

}  // namespace

Result<ClusterObjects> read_cluster(const kube::AskForPart& ask, VmisRead vmis) {
  ClusterObjects out;
  auto nodes = kube::list_by_parts(ask, {.kind = kube::kNodes}, counted_node);
  if (!nodes) return fail(std::move(nodes).error());
  out.nodes = std::move(*nodes);
  auto pods = kube::list_by_parts(ask, {.kind = kube::kPods, .fields = std::string(kube::kNotEndedPods)},
                                  counted_pod);
  if (!pods) return fail(std::move(pods).error());
  out.pods = std::move(*pods);
  if (vmis == VmisRead::yes)
    if (auto read = read_vmis(ask, out); !read) return fail(std::move(read).error());
  return out;
}

Result<ClusterObjects> read_cluster_node(const kube::AskForPart& ask, const std::string& node) {
  ClusterObjects out;
  // A name that no object can have is a usage error, and must not become a selector.
  if (auto path = kube::path_of(kube::node_ref(node)); !path) return fail(std::move(path).error());
  auto nodes = kube::list_by_parts(ask, kube::only(kube::node_ref(node)));
  if (!nodes) return fail(std::move(nodes).error());
  if (nodes->empty()) return fail(no_such_node(ask, node));
  out.nodes = std::move(*nodes);
  auto pods = kube::list_by_parts(ask, kube::pods_of_node(node));
  if (!pods) return fail(std::move(pods).error());
  out.pods = std::move(*pods);
  return out;
}

Result<std::optional<std::vector<json>>> read_kubevirts(const kube::AskForPart& ask) {
  using Kubevirts = std::optional<std::vector<json>>;
  auto objects = kube::list_by_parts(ask, {.kind = kube::kKubeVirts});
  if (objects) return Kubevirts(std::move(*objects));
  if (objects.error().code == kube::ApiErrc::not_found) return Kubevirts(std::in_place);
  if (objects.error().code == kube::ApiErrc::forbidden) return Kubevirts();
  return fail(std::move(objects).error());
}

}  // namespace ferry::kubectl
