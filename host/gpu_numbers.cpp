// SPDX-License-Identifier: Apache-2.0
#include "host/gpu_numbers.h"

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/whole_json.h"
#include "policy/policy_export.h"

namespace ferry::host {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr std::int64_t kNoGpu = -1;

bool names_by_number(const policy::PolicyItem& item) {
  return !item.gpus.all_devices && !item.gpus.only && !item.gpus.indices.empty();
}

/// The numbers in the record of this content; absent: there is no record of it.
Result<std::optional<GpuNumbers>> recorded(const HostFs& host, const std::string& content) {
  const auto unreadable = [](const std::string& why) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", kGpuNumbersFile, why),
                "it says which GPUs the numbers of the policy mean; remove it, and hostd counts them anew");
  };
  const auto text = host.read_file(kGpuNumbersFile);
  if (!text && is_gone(text.error())) return std::optional<GpuNumbers>();
  if (!text) return fail(text.error());
  try {
    const json record = parse_whole_json(*text);
    if (record.at("version").get<int>() != kVersion) return unreadable("another version of Ferry wrote it");
    GpuNumbers numbers;
    for (const auto& [key, value] : record.at("gpus").items()) {
      const auto number = whole_number(key);
      const auto address = vfio::PciAddress::parse(value.get<std::string>());
      if (!number || !address) return unreadable(fmt::format("gpus: '{}' is no number of a GPU", key));
      numbers.emplace(*number, *address);
    }
    if (record.at("policy").get<std::string>() != content) return std::optional<GpuNumbers>();
    return std::optional(std::move(numbers));
  } catch (const json::exception& error) {
    return unreadable(error.what());
  }
}

std::optional<Error> gone_of(const std::set<std::int64_t>& numbers, const GpuNumbers& gpus,
                             const mdev::VgpuInventory& vgpus) {
  std::vector<std::string> gone;
  for (const std::int64_t number : numbers)
    if (const auto gpu = gpus.find(number); gpu != gpus.end() && vgpus.find(gpu->second) == nullptr)
      gone.push_back(fmt::format("GPU {} is gone: the policy means the one at {}, and no GPU is there now",
                                 number, gpu->second.text()));
  if (gone.empty()) return std::nullopt;
  return Error{.code = make_error_code(Errc::refused),
               .message = fmt::format("{}", fmt::join(gone, "; ")),
               .hint =
                   "no other GPU takes its number. `ferry apply` with this policy counts the GPUs anew, and "
                   "so does a policy with another content; `address` names a GPU for good"};
}

}  // namespace

Result<NumberedPolicy> resolve_numbers(const HostFs& host, policy::Policy policy,
                                       const mdev::VgpuInventory& vgpus) {
  NumberedPolicy out;
  std::set<std::int64_t> numbers;
  for (const policy::PolicyItem& item : policy.items)
    if (names_by_number(item)) numbers.insert(item.gpus.indices.begin(), item.gpus.indices.end());
  if (numbers.empty()) {
    out.policy = std::move(policy);
    return out;
  }

  policy::Policy unnamed = policy;
  unnamed.name = "policy";
  out.content = policy::policy_text({.file = {}, .policies = {std::move(unnamed)}});
  auto known = recorded(host, out.content);
  if (!known) return fail(std::move(known).error());
  out.recorded = known->has_value();
  if (out.recorded) out.numbers = std::move(**known);
  // A GPU of another vendor may be there for its claim alone, and its number must not depend on that.
  const vfio::AcceleratorRules named = policy::rules_for(policy, {});
  for (const mdev::VgpuGpu& gpu : vgpus.gpus) {
    const bool counts = !gpu.by_name || named.named.contains(gpu.address()) ||
                        named.named_vendors.contains(gpu.function.vendor);
    if (!out.recorded && counts && numbers.contains(gpu.index)) out.numbers.emplace(gpu.index, gpu.address());
  }
  out.gone = gone_of(numbers, out.numbers, vgpus);
  for (const mdev::VgpuGpu& gpu : vgpus.gpus)
    if (out.recorded && !gpu.by_name && numbers.contains(gpu.index) && !out.numbers.contains(gpu.index))
      out.uncounted.push_back(fmt::format(
          "number {} had no GPU when the numbers of the policy were counted, so it means none; `ferry apply` "
          "with this policy counts the GPUs anew",
          gpu.index));

  std::vector<policy::PolicyItem> items;
  for (policy::PolicyItem& item : policy.items) {
    if (!names_by_number(item)) {
      items.push_back(std::move(item));
      continue;
    }
    const std::size_t before = items.size();
    const bool names =
        !item.gpus.filters.empty() || !item.selection.addresses.empty() || !item.selection.vendors.empty();
    for (const std::int64_t number : std::exchange(item.gpus.indices, {kNoGpu})) {
      const auto gpu = out.numbers.find(number);
      if (gpu == out.numbers.end()) continue;
      // Another item of the policy may name it: it has an index then, which selects it for no other item.
      const mdev::VgpuGpu* const there = vgpus.find(gpu->second);
      if (there != nullptr && there->by_name && !names) continue;
      items.emplace_back(item).gpus.only = gpu->second;
    }
    if (items.size() == before) items.push_back(std::move(item));
  }
  policy.items = std::move(items);
  out.policy = std::move(policy);
  return out;
}

Result<> record_numbers(HostFs& host, const NumberedPolicy& numbered) {
  if (numbered.recorded) return {};
  if (numbered.numbers.empty()) {
    if (!host.exists(kGpuNumbersFile)) return {};
    return host.remove_file(kGpuNumbersFile);
  }
  nlohmann::ordered_json gpus;
  for (const auto& [number, gpu] : numbered.numbers) gpus[std::to_string(number)] = gpu.text();
  return host.write_file(
      kGpuNumbersFile,
      json_text({{"version", kVersion}, {"policy", numbered.content}, {"gpus", std::move(gpus)}}));
}

}  // namespace ferry::host
