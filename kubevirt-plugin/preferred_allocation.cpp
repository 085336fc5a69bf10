// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/preferred_allocation.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace ferry {
namespace {

using Node = std::optional<int>;

struct Choice {
  const std::string* id;
  Node node;
};

/// The IDs with their nodes, each ID once: those already in `seen` are left out.
std::vector<Choice> choices(std::span<const std::string> ids,
                            const std::unordered_map<std::string_view, Node>& nodes,
                            std::unordered_set<std::string_view>& seen) {
  std::vector<Choice> result;
  for (const auto& id : ids) {
    if (!seen.insert(id).second) continue;
    const auto known = nodes.find(id);
    result.push_back({&id, known == nodes.end() ? Node() : known->second});
  }
  return result;
}

}  // namespace

Result<std::vector<std::string>> preferred_allocation(std::span<const Candidate> candidates,
                                                      std::span<const std::string> available,
                                                      std::span<const std::string> must_include, int size) {
  if (size < 0) return fail(Errc::usage, fmt::format("allocation size {} is negative", size));
  const auto wanted = static_cast<std::size_t>(size);

  std::unordered_map<std::string_view, Node> nodes;
  for (const auto& candidate : candidates) nodes.emplace(candidate.id, candidate.numa_node);
  std::unordered_set<std::string_view> seen;
  auto chosen = choices(must_include, nodes, seen);
  const auto free = choices(available, nodes, seen);
  if (chosen.size() > wanted) {
    return fail(Errc::usage,
                fmt::format("{} devices must be included in an allocation of {}", chosen.size(), wanted));
  }

  std::map<Node, std::size_t> on_node;
  for (const auto& choice : chosen) ++on_node[choice.node];
  for (const auto& choice : free) ++on_node[choice.node];
  std::optional<Node> whole;  // the node that can hold the whole request
  for (const auto* const group : {&std::as_const(chosen), &free}) {
    for (const auto& choice : *group)
      if (!whole && on_node[choice.node] >= wanted) whole = choice.node;
  }
  for (const auto& choice : free)
    if (chosen.size() < wanted && (!whole || choice.node == *whole)) chosen.push_back(choice);

  std::vector<std::string> ids;
  ids.reserve(chosen.size());
  for (const auto& choice : chosen) ids.push_back(*choice.id);
  return ids;
}

}  // namespace ferry
