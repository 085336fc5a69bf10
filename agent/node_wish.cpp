// SPDX-License-Identifier: Apache-2.0
#include "agent/node_wish.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "agent/cluster_words.h"
#include "agent/config_lookup.h"
#include "common/suggest.h"
#include "policy/policy_text.h"

namespace ferry {
namespace {

constexpr std::array<std::pair<std::string_view, Workload>, 3> kWorkloads = {
    {{"container", Workload::container},
     {"vm-passthrough", Workload::vm_passthrough},
     {"vm-vgpu", Workload::vm_vgpu}}};

std::string text_of(const Policy& policy) {
  return policy_text({.file = {}, .policies = {policy}});
}

class Wisher {
 public:
  Wisher(const NodeObject& node, std::span<const ConfigText> configs, const WishDefaults& defaults,
         std::span<const Error> unreadable)
      : node_(node), configs_(configs), unreadable_(unreadable), defaults_(defaults) {}

  NodeWish wish() {
    if (label(kOperandsLabel) == "false") return nothing(fmt::format("label {}=false", kOperandsLabel));
    if (const std::string name = label(kPolicyLabel); !name.empty()) return by_name(name, said(kPolicyLabel));
    if (const auto workload = labelled_workload()) return by_workload(*workload, said(kWorkloadLabel));
    const std::string vgpus = label(kVgpuConfigLabel);
    if (defaults_.workload) {
      if (!vgpus.empty() && *defaults_.workload != Workload::vm_vgpu) {
        out_.warnings.push_back(fmt::format("{} does not count: this node is for {}, by default",
                                            said(kVgpuConfigLabel), text(*defaults_.workload)));
      }
      return by_workload(*defaults_.workload, fmt::format("default workload {}", text(*defaults_.workload)));
    }
    // NVIDIA's vGPU device manager reads this label alone, however it was started.
    if (!vgpus.empty()) return by_vgpu_config(vgpus, said(kVgpuConfigLabel));
    if (defaults_.policy)
      return by_name(*defaults_.policy, fmt::format("default policy {}", *defaults_.policy));
    return nothing("no label and no default says what this node shall be");
  }

 private:
  std::string label(const char* key) const {
    const auto found = node_.labels.find(key);
    return found == node_.labels.end() ? std::string() : found->second;
  }
  std::string said(const char* key) const { return fmt::format("label {}={}", key, label(key)); }

  std::optional<Workload> labelled_workload() {
    const std::string word = label(kWorkloadLabel);
    const auto workload = parse_workload(word);
    if (workload || word.empty()) return workload;
    std::vector<std::string> words;
    words.reserve(kWorkloads.size());
    for (const auto& known : kWorkloads) words.emplace_back(known.first);
    // The operator, too, ignores an unknown word.
    out_.warnings.push_back(fmt::format("{} does not count: it is no workload{}", said(kWorkloadLabel),
                                        did_you_mean(word, words)));
    return std::nullopt;
  }

  NodeWish nothing(std::string reason) {
    out_.kind = NodeWish::Kind::nothing;
    out_.reason = std::move(reason);
    return std::move(out_);
  }
  NodeWish invalid(Error error, const std::string& asked_by) {
    out_.kind = NodeWish::Kind::invalid;
    out_.error = std::move(error).during(asked_by);
    return std::move(out_);
  }
  NodeWish wished(Policy policy, std::string config, std::string asked_by) {
    out_.kind = NodeWish::Kind::policy;
    out_.wished.name = policy.name;
    out_.wished.config = std::move(config);
    out_.wished.asked_by = std::move(asked_by);
    out_.wished.policy = std::move(policy);
    return std::move(out_);
  }

  // A vGPU profile file has no list of services to stop, so the agent's list counts.
  NodeWish wished(FoundPolicy found, const std::string& asked_by) {
    if (found.of_profile && found.policy.release != defaults_.release) {
      found.policy.release = defaults_.release;
      found.config = text_of(found.policy);
    }
    return wished(std::move(found.policy), std::move(found.config), asked_by);
  }

  NodeWish by_name(const std::string& name, const std::string& asked_by) {
    auto found = find_policy(configs_, unreadable_, name, out_.warnings);
    if (!found) return invalid(std::move(found).error(), asked_by);
    return wished(std::move(*found), asked_by);
  }

  NodeWish by_vgpu_config(const std::string& name, const std::string& asked_by) {
    out_.of_vgpu_config = true;
    auto found = find_policy(configs_, unreadable_, name, out_.warnings);
    if (!found) return invalid(std::move(found).error(), asked_by);
    // A person who changes a vGPU configuration does not expect GPUs to leave their driver.
    if (!std::ranges::all_of(found->policy.items,
                             [](const PolicyItem& item) { return item.mode == Mode::vgpu; })) {
      return invalid({.code = make_error_code(Errc::invalid_config),
                      .message = fmt::format("'{}' ({}) is more than a vGPU configuration: not all of its "
                                             "items have mode vgpu",
                                             name, found->policy.place),
                      .hint = fmt::format("choose it as a policy: kubectl label node {} {}={}", node_.name,
                                          kPolicyLabel, name)},
                     asked_by);
    }
    return wished(std::move(*found), asked_by);
  }

  NodeWish by_workload(Workload workload, const std::string& asked_by) {
    if (workload == Workload::vm_vgpu) {
      if (const std::string name = label(kVgpuConfigLabel); !name.empty())
        return by_vgpu_config(name, asked_by + ", " + said(kVgpuConfigLabel));
      return by_vgpu_config(defaults_.vgpu_config, fmt::format("{}, default vGPU configuration {}", asked_by,
                                                               defaults_.vgpu_config));
    }
    ProfileItem every;
    every.all_devices = true;
    const Mode mode = workload == Workload::container ? Mode::host : Mode::passthrough;
    Policy policy{.name = std::string(text(workload)),
                  .items = {{.gpus = std::move(every), .mode = mode}},
                  .place = {},
                  .release = defaults_.release};
    std::string config = text_of(policy);
    return wished(std::move(policy), std::move(config), asked_by);
  }

  const NodeObject& node_;
  std::span<const ConfigText> configs_;
  std::span<const Error> unreadable_;
  const WishDefaults& defaults_;
  NodeWish out_;
};

}  // namespace

std::string_view text(Workload workload) {
  return std::ranges::find(kWorkloads, workload, &std::pair<std::string_view, Workload>::second)->first;
}

std::optional<Workload> parse_workload(std::string_view word) {
  const auto* const found =
      std::ranges::find(kWorkloads, word, &std::pair<std::string_view, Workload>::first);
  if (found == kWorkloads.end()) return std::nullopt;
  return found->second;
}

NodeWish node_wish(const NodeObject& node, std::span<const ConfigText> configs, const WishDefaults& defaults,
                   std::span<const Error> unreadable) {
  return Wisher(node, configs, defaults, unreadable).wish();
}

bool same_policy(const Policy& a, const Policy& b) {
  Policy renamed = b;
  renamed.name = a.name;
  return text_of(a) == text_of(renamed);
}

}  // namespace ferry
