// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "kubevirt-plugin/allocation/allocation_core.h"

namespace ferry::plugin {
namespace {

using Node = std::optional<int>;

struct Choice {
  const std::string* id = nullptr;
  const ScannedDevice* known = nullptr;  // nullptr: not in `candidates`
  std::size_t rank = 0;                  // position in its list

  std::string gpu() const { return known == nullptr ? std::string() : known->gpu; }
  Node node() const { return known == nullptr ? Node() : known->numa_node; }
  /// The key of its branch at a level: its NUMA node, the path from the host bridge down, its IOMMU group. A
  /// device without that level is its own branch.
  std::string step(std::size_t level) const {
    const Node of = node();
    if (level == 0) return of ? fmt::format("{}", *of) : std::string();
    if (!has_step(level)) return *id;
    const auto& path = known->bus_path;
    return level <= path.size() ? path[level - 1] : fmt::format("{}", known->iommu_group);
  }
  bool has_step(std::size_t level) const {
    return level == 0 || (known != nullptr && level <= known->bus_path.size() + 1);
  }
};
using Choices = std::vector<Choice>;
using Known = std::unordered_map<std::string_view, const ScannedDevice*>;

/// The IDs with their candidates, in the kubelet's order, which is random. Each ID counts once, and those in
/// `seen` are left out.
Choices choices(std::span<const std::string> ids, const Known& known,
                std::unordered_set<std::string_view>& seen) {
  Choices result;
  for (const auto& id : ids) {
    if (!seen.insert(id).second) continue;
    const auto found = known.find(id);
    result.push_back({&id, found == known.end() ? nullptr : found->second, result.size()});
  }
  return result;
}

Choices by_id(Choices of) {
  std::ranges::sort(of, {}, [](const Choice& choice) -> const std::string& { return *choice.id; });
  return of;
}

/// The devices of one NUMA node, below one bridge, or in one IOMMU group.
struct Branch {
  Choices free;
  Choices chosen;  // chosen already, or included by request
};

/// Appends the `needed` devices of `free` that are closest to each other and to `chosen`.
void take_closest(const Choices& free, const Choices& chosen, std::size_t level, std::size_t needed,
                  Choices& taken) {
  const bool leaves = std::ranges::none_of(free, [&](const Choice& one) { return one.has_step(level); });
  if (free.size() <= needed || leaves) {
    taken.insert(taken.end(), free.begin(),
                 free.begin() + static_cast<Choices::difference_type>(std::min(needed, free.size())));
    return;
  }

  std::vector<Branch> rest;  // in order of their first device
  std::map<std::string, std::size_t> index;
  for (const auto& choice : free) {
    const auto [entry, is_new] = index.emplace(choice.step(level), rest.size());
    if (is_new) rest.emplace_back();
    rest[entry->second].free.push_back(choice);
  }
  for (const auto& choice : chosen)
    if (const auto entry = index.find(choice.step(level)); entry != index.end())
      rest[entry->second].chosen.push_back(choice);

  while (needed > 0 && !rest.empty()) {
    // The best branch is the smallest one with room for all, else the one that leaves the fewest to find.
    const auto worse = [&](const Branch& a, const Branch& b) {
      const bool a_holds = a.free.size() >= needed;
      const bool b_holds = b.free.size() >= needed;
      if (a_holds != b_holds) return b_holds;
      if (a.chosen.size() != b.chosen.size()) return a.chosen.size() < b.chosen.size();
      return a_holds ? a.free.size() > b.free.size() : a.free.size() < b.free.size();
    };
    const auto best = std::max_element(rest.begin(), rest.end(), worse);
    const auto count = std::min(needed, best->free.size());
    take_closest(best->free, best->chosen, level + 1, count, taken);
    needed -= count;
    rest.erase(best);
  }
}

/// True if GPU a, with `in_a` taken vGPUs, suits worse than GPU b with `in_b`.
bool is_worse(VgpuPlacement placement, std::size_t in_a, std::size_t in_b) {
  return placement == VgpuPlacement::pack ? in_a < in_b : in_a > in_b;
}

/// Appends `needed` vGPUs of `free`, GPU by GPU. `taken_of`: the number of taken vGPUs by GPU.
void take_vgpus(const Choices& free, std::map<std::string, std::size_t> taken_of, VgpuPlacement placement,
                std::size_t needed, Choices& taken) {
  std::vector<Choices> gpus;  // in order of their first vGPU
  std::map<std::string, std::size_t> index;
  for (const auto& choice : free) {
    const auto [entry, is_new] = index.emplace(choice.gpu(), gpus.size());
    if (is_new) gpus.emplace_back();
    gpus[entry->second].push_back(choice);
  }
  for (auto& gpu : gpus) std::ranges::reverse(gpu);  // the first to take is at the back
  for (; needed > 0 && !gpus.empty(); --needed) {
    const auto worse = [&](const Choices& a, const Choices& b) {
      return is_worse(placement, taken_of[a.back().gpu()], taken_of[b.back().gpu()]);
    };
    const auto best = std::max_element(gpus.begin(), gpus.end(), worse);
    ++taken_of[best->back().gpu()];
    taken.push_back(best->back());
    best->pop_back();
    if (best->empty()) gpus.erase(best);
  }
}

/// The vGPUs of the NUMA node that can hold the whole request; if none can, all of them.
Choices of_one_node(const Choices& free, const Choices& chosen, std::size_t needed,
                    std::map<std::string, std::size_t> taken_of, VgpuPlacement placement) {
  std::map<Node, std::size_t> on_node;  // the unknown node counts as a node
  for (const auto* const group : {&chosen, &free})
    for (const auto& choice : *group) ++on_node[choice.node()];
  const auto holds = [&](const Choice& choice) { return on_node[choice.node()] >= needed; };
  const Choice* best = nullptr;
  if (const auto first = std::ranges::find_if(chosen, holds); first != chosen.end()) best = &*first;
  if (best == nullptr) {
    for (const auto& choice : free) {
      if (!holds(choice)) continue;
      if (best == nullptr || is_worse(placement, taken_of[best->gpu()], taken_of[choice.gpu()]))
        best = &choice;
    }
  }
  if (best == nullptr) return free;
  Choices pool;
  std::ranges::copy_if(free, std::back_inserter(pool),
                       [&](const Choice& choice) { return choice.node() == best->node(); });
  return pool;
}

}  // namespace

Result<std::vector<std::string>> preferred_allocation(std::span<const ScannedDevice> candidates,
                                                      std::span<const std::string> available,
                                                      std::span<const std::string> must_include, int size,
                                                      VgpuPlacement placement) {
  if (size < 0) return fail(Errc::usage, fmt::format("allocation size {} is negative", size));
  const auto needed = static_cast<std::size_t>(size);

  Known known;
  for (const auto& candidate : candidates) known.emplace(candidate.id, &candidate);
  std::unordered_set<std::string_view> seen;
  const auto chosen = choices(must_include, known, seen);
  const auto free = choices(available, known, seen);
  if (chosen.size() > needed) {
    return fail(Errc::usage,
                fmt::format("{} devices must be included in an allocation of {}", chosen.size(), needed));
  }

  Choices taken;
  const std::size_t more = needed - chosen.size();
  const auto sorted = by_id(free);
  if (std::ranges::any_of(free, [](const Choice& choice) { return !choice.gpu().empty(); })) {
    std::map<std::string, std::size_t> taken_of;
    for (const auto& candidate : candidates) ++taken_of[candidate.gpu];
    for (const auto& choice : free)
      if (choice.known != nullptr) --taken_of[choice.gpu()];
    const auto pool = of_one_node(sorted, by_id(chosen), needed, taken_of, placement);
    take_vgpus(pool, taken_of, placement, more, taken);
  } else {
    take_closest(sorted, chosen, 0, more, taken);
  }
  std::ranges::sort(taken, {}, &Choice::rank);

  std::vector<std::string> ids;
  ids.reserve(chosen.size() + taken.size());
  for (const auto& choice : chosen) ids.push_back(*choice.id);
  for (const auto& choice : taken) ids.push_back(*choice.id);
  return ids;
}

}  // namespace ferry::plugin
