// SPDX-License-Identifier: Apache-2.0
#include "kube/api_path.h"

#include <fmt/format.h>

#include "common/text/encoding.h"

namespace ferry::kube {
namespace {

// Kubernetes' own rule for names of any kind (IsValidPathSegmentName), and the bound of etcd.
Result<> check_name(std::string_view name, std::string_view whose) {
  constexpr std::size_t kLongest = 253;
  if (!name.empty() && name.size() <= kLongest && name != "." && name != ".." &&
      name.find_first_of(std::string_view("/%\0", 3)) == std::string_view::npos)
    return {};
  return fail(Errc::usage, fmt::format("'{}' cannot be the name of a {}", name, whose));
}

// Escapes the characters that divide terms of a field selector.
std::string selector_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == ',' || c == '=') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

}  // namespace

std::string ObjectRef::text() const {
  return space.empty() ? fmt::format("{} {}", kind.kind, name)
                       : fmt::format("{} {}/{}", kind.kind, space, name);
}

std::string Selection::text() const {
  std::string out(kind.kind);
  if (!space.empty()) out += " in " + space;
  for (const auto& selector : {fields, labels})
    if (!selector.empty()) out += " " + selector;
  return out;
}

ObjectRef node_ref(std::string name) {
  return {.kind = kNodes, .name = std::move(name)};
}

ObjectRef config_map_ref(std::string space, std::string name) {
  return {.kind = kConfigMaps, .space = std::move(space), .name = std::move(name)};
}

ObjectRef pod_ref(std::string space, std::string name) {
  return {.kind = kPods, .space = std::move(space), .name = std::move(name)};
}

Selection only(const ObjectRef& object) {
  return {
      .kind = object.kind, .space = object.space, .fields = "metadata.name=" + selector_value(object.name)};
}

Selection pods_of_node(std::string_view node) {
  return {.kind = kPods,
          .fields = "spec.nodeName=" + selector_value(node) + "," + std::string(kNotEndedPods)};
}

Selection slices_of_node(std::string_view node, std::string_view driver) {
  return {.kind = kResourceSlices,
          .fields = "spec.nodeName=" + selector_value(node) + ",spec.driver=" + selector_value(driver)};
}

Result<std::string> collection_of(ApiKind kind, std::string_view space) {
  // The core API has no group, and a root of its own.
  const bool core = kind.api_version.find('/') == std::string_view::npos;
  std::string path = fmt::format("/{}/{}", core ? "api" : "apis", kind.api_version);
  if (!space.empty()) {
    if (auto good = check_name(space, "namespace"); !good) return fail(std::move(good).error());
    path += "/namespaces/" + percent_escaped(space);
  }
  return path + fmt::format("/{}", kind.plural);
}

Result<std::string> path_of(const ObjectRef& object, std::string_view subresource) {
  auto collection = collection_of(object.kind, object.space);
  if (!collection) return collection;
  if (auto good = check_name(object.name, object.kind.kind); !good) return fail(std::move(good).error());
  std::string path = *collection + "/" + percent_escaped(object.name);
  if (!subresource.empty()) path += fmt::format("/{}", subresource);
  return path;
}

Result<std::string> path_of(const Selection& selection, const ListRange& range) {
  auto collection = collection_of(selection.kind, selection.space);
  if (!collection) return collection;
  std::string out = fmt::format("{}?fieldSelector={}&labelSelector={}", *collection,
                                percent_escaped(selection.fields), percent_escaped(selection.labels));
  if (range.most > 0) out += fmt::format("&limit={}", range.most);
  if (!range.after.empty()) out += "&continue=" + percent_escaped(range.after);
  return out;
}

Result<std::string> log_path(const ObjectRef& pod, const LogEnd& end) {
  // Bounds lines of any length: the kubelet takes that many bytes from the first line on.
  constexpr unsigned kMostBytes = 4U << 20U;
  auto path = path_of(pod, "log");
  if (!path) return path;
  *path += fmt::format("?container={}&tailLines={}&limitBytes={}&timestamps=true{}",
                       percent_escaped(end.container), end.lines, kMostBytes,
                       end.previous ? "&previous=true" : "");
  return path;
}

}  // namespace ferry::kube
