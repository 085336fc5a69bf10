// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/desired_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/desired_state/written_policy.h"
#include "agent/operator_compat/operands.h"
#include "api/labels.h"
#include "common/text/text.h"
#include "common/text/words.h"
#include "policy/policy_export.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::agent {
namespace {

// Finds the policy of a name in all configurations of the cluster.

struct FoundPolicy {
  policy::Policy policy;
  std::string config;       ///< the text that contains it
  bool of_profile = false;  ///< PolicyFile::of_profiles
};

/// The first policy with the name; all others with it must have the same content. `unreadable`: errors of
/// configurations that could not be fetched. Unneeded unreadable configurations, and names that no label can
/// have, are added to `warnings`. Errc::invalid_config: no policy has the name, and the message says
/// why one cannot be read, or which name was probably meant; or two policies differ.
Result<FoundPolicy> find_policy(std::span<const ConfigText> configs, std::span<const Error> unreadable,
                                const std::string& name, std::vector<std::string>& warnings) {
  std::vector<FoundPolicy> found;
  std::vector<std::string> names;
  std::vector<Error> faults(unreadable.begin(), unreadable.end());
  std::vector<std::string> unreachable;
  for (const ConfigText& config : configs) {
    const auto known = known_policies(config);
    const Result<policy::PolicyFile>& file = *known;
    if (!file) {
      faults.push_back(file.error());
      continue;
    }
    for (const policy::Policy& policy : file->policies) {
      if (std::ranges::find(names, policy.name) == names.end()) names.push_back(policy.name);
      if (!vgpu::can_be_label(policy.name))
        unreachable.push_back(vgpu::label_warning(policy.place, policy.name));
      if (policy.name == name)
        found.push_back({.policy = policy, .config = config.text, .of_profile = file->of_profiles});
    }
  }
  // A site's profile file often began as a copy of NVIDIA's, so equal content is no conflict. A profile has
  // no list of services to stop and gets the agent's. A policy has its own list, so it always differs from a
  // profile.
  const auto other = std::ranges::find_if(found, [&](const FoundPolicy& one) {
    return one.of_profile != found.front().of_profile || !same_policy(found.front().policy, one.policy);
  });
  if (!found.empty() && other == found.end()) {
    warnings.insert(warnings.end(), unreachable.begin(), unreachable.end());
    for (const Error& fault : faults) warnings.push_back("passed over: " + fault.message);
    return std::move(found.front());
  }
  if (other != found.end()) {
    return fail(Errc::invalid_config,
                fmt::format("'{}' stands at {} and, saying something else, at {}", name,
                            found.front().policy.place, other->policy.place),
                "give one of them another name");
  }
  if (!faults.empty()) {
    Error fault = std::move(faults.front());
    return fail(std::move(fault).during(
        fmt::format("no readable policy or profile is called '{}', and a file cannot be read", name)));
  }
  if (names.empty()) {
    return fail(Errc::invalid_config, fmt::format("no policy or profile is called '{}': none is given", name),
                "a policy (docs/policy.md) or a vGPU profile file, in a ConfigMap that the agent is given");
  }
  constexpr std::size_t kMost = 12;  // NVIDIA's own file has hundreds of names
  const auto first = std::span(names).first(std::min(names.size(), kMost));
  const std::string more =
      names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : std::string();
  return fail(Errc::invalid_config,
              fmt::format("no policy or profile is called '{}'{}", name, did_you_mean(name, names)),
              fmt::format("there are: {}{}", fmt::join(first, ", "), more));
}

constexpr Words<Workload, 3> kWorkloads = {{{"container", Workload::container},
                                            {"vm-passthrough", Workload::vm_passthrough},
                                            {"vm-vgpu", Workload::vm_vgpu}}};

std::string text_of(const policy::Policy& policy) {
  return policy::policy_text({.file = {}, .policies = {policy}});
}

class DesiredStateReader {
 public:
  DesiredStateReader(const policy::NodeObject& node, std::span<const ConfigText> configs,
                     const DesiredDefaults& defaults, std::span<const Error> unreadable)
      : node_(node), configs_(configs), unreadable_(unreadable), defaults_(defaults) {}

  DesiredState desired_state() {
    if (const std::string name = label(api::kPolicyLabel); !name.empty())
      return by_name(name, said(api::kPolicyLabel));
    if (label(api::kOperandsLabel) == "false") {
      // The operator leaves such a node alone, whatever its other labels say.
      for (const char* key : {api::kWorkloadLabel, policy::kVgpuConfigLabel})
        if (!label(key).empty())
          out_.warnings.push_back(
              fmt::format("{} does not count, since {} is there; the label {} names a policy that counts",
                          said(key), said(api::kOperandsLabel), api::kPolicyLabel));
      return nothing(said(api::kOperandsLabel));
    }

    if (const auto workload = labelled_workload()) return by_workload(*workload, said(api::kWorkloadLabel));
    const std::string vgpus = label(policy::kVgpuConfigLabel);
    const bool counts = !vgpus.empty() && defaults_.workload.value_or(Workload::vm_vgpu) == Workload::vm_vgpu;
    if (!counts)
      if (auto selected = by_node_selector()) return std::move(*selected);
    if (defaults_.workload) {
      if (!vgpus.empty() && *defaults_.workload != Workload::vm_vgpu) {
        out_.warnings.push_back(fmt::format("{} does not count: this node is for {}, by default",
                                            said(policy::kVgpuConfigLabel), text(*defaults_.workload)));
      }
      return by_workload(*defaults_.workload, fmt::format("default workload {}", text(*defaults_.workload)));
    }
    // NVIDIA's vGPU device manager reads this label alone, however it was started.
    if (!vgpus.empty()) return by_vgpu_config(vgpus, said(policy::kVgpuConfigLabel));
    if (defaults_.policy)
      return by_name(*defaults_.policy, fmt::format("default policy {}", *defaults_.policy));
    return nothing("no label and no default selects a policy for this node");
  }

 private:
  std::string label(const char* key) const { return value_of(node_.labels, key); }
  std::string said(const char* key) const { return fmt::format("label {}={}", key, label(key)); }

  std::optional<Workload> labelled_workload() {
    const std::string word = label(api::kWorkloadLabel);
    const auto workload = parse_workload(word);
    if (workload || word.empty()) return workload;
    std::vector<std::string> words;
    words.reserve(kWorkloads.size());
    for (const auto& known : kWorkloads) words.emplace_back(known.first);
    // The operator, too, ignores an unknown word.
    out_.warnings.push_back(fmt::format("{} does not count: it is no workload{}", said(api::kWorkloadLabel),
                                        did_you_mean(word, words)));
    return std::nullopt;
  }

  DesiredState nothing(std::string reason) {
    out_.kind = DesiredState::Kind::nothing;
    out_.reason = std::move(reason);
    return std::move(out_);
  }
  DesiredState invalid(Error error, const std::string& source) {
    out_.kind = DesiredState::Kind::invalid;
    out_.error = std::move(error).during(source);
    return std::move(out_);
  }
  DesiredState desired_policy(policy::Policy policy, std::string config, std::string source) {
    out_.kind = DesiredState::Kind::policy;
    out_.desired_policy.name = policy.name;
    out_.desired_policy.config = std::move(config);
    out_.desired_policy.source = std::move(source);
    out_.desired_policy.policy = std::move(policy);
    return std::move(out_);
  }

  // A vGPU profile file has no list of services to stop, so the agent's list counts.
  DesiredState desired_policy(FoundPolicy found, const std::string& source) {
    if (found.of_profile && found.policy.release != defaults_.release) {
      found.policy.release = defaults_.release;
      found.config = text_of(found.policy);
    }
    return desired_policy(std::move(found.policy), std::move(found.config), source);
  }

  DesiredState by_name(const std::string& name, const std::string& source) {
    auto found = find_policy(configs_, unreadable_, name, out_.warnings);
    if (!found) return invalid(std::move(found).error(), source);
    return desired_policy(std::move(*found), source);
  }

  /// Absent: no policy names this node. A default must not take effect while a configuration that may name
  /// the node cannot be read.
  std::optional<DesiredState> by_node_selector() {
    constexpr std::string_view kKey = "nodeSelector";
    std::optional<Error> fault;
    // Where no configuration has the key, one that cannot be read stops no default.
    if (!unreadable_.empty() && std::ranges::any_of(configs_, [&](const ConfigText& config) {
          return config.text.find(kKey) != std::string::npos;
        }))
      fault = unreadable_.front();
    std::string name;
    std::string place;
    for (const ConfigText& config : configs_) {
      const auto known = known_policies(config);
      if (!*known) {
        if (config.text.find(kKey) != std::string::npos) fault = known->error();
        continue;
      }
      for (const policy::Policy& policy : (*known)->policies) {
        const bool names_node = !policy.node_selector.empty() && has_all(node_.labels, policy.node_selector);
        if (!names_node || policy.name == name) continue;
        if (!name.empty())
          return invalid(
              {.code = Errc::invalid_config,
               .message = fmt::format("the labels of {} fit those of the policies '{}' ({}) and '{}' ({})",
                                      node_.name, name, place, policy.name, policy.place),
               .hint = fmt::format("change one of the two, or choose one: kubectl label node {} {}={}",
                                   node_.name, api::kPolicyLabel, name)},
              "nodeSelector");
        name = policy.name;
        place = policy.place;
      }
    }
    if (!name.empty()) return by_name(name, fmt::format("nodeSelector of policy {}", name));
    if (fault)
      return invalid(std::move(*fault).during("this configuration may name the node"), "nodeSelector");
    return std::nullopt;
  }

  DesiredState by_vgpu_config(const std::string& name, const std::string& source) {
    out_.of_vgpu_config = true;
    auto found = find_policy(configs_, unreadable_, name, out_.warnings);
    if (!found) return invalid(std::move(found).error(), source);
    // A person who changes a vGPU configuration does not expect GPUs to leave their driver.
    if (!std::ranges::all_of(found->policy.items, [](const policy::PolicyItem& item) {
          return item.mode == policy::Mode::vgpu;
        })) {
      return invalid({.code = Errc::invalid_config,
                      .message = fmt::format("'{}' ({}) is more than a vGPU configuration: not all of its "
                                             "items have mode vgpu",
                                             name, found->policy.place),
                      .hint = fmt::format("choose it as a policy: kubectl label node {} {}={}", node_.name,
                                          api::kPolicyLabel, name)},
                     source);
    }
    return desired_policy(std::move(*found), source);
  }

  DesiredState by_workload(Workload workload, const std::string& source) {
    if (workload == Workload::vm_vgpu) {
      if (const std::string name = label(policy::kVgpuConfigLabel); !name.empty())
        return by_vgpu_config(name, source + ", " + said(policy::kVgpuConfigLabel));
      return by_vgpu_config(defaults_.vgpu_config,
                            fmt::format("{}, default vGPU configuration {}", source, defaults_.vgpu_config));
    }
    vgpu::ProfileItem every;
    every.all_devices = true;
    const policy::Mode mode =
        workload == Workload::container ? policy::Mode::host : policy::Mode::passthrough;
    policy::Policy policy{.name = std::string(text(workload)),
                          .items = {{.gpus = std::move(every), .mode = mode}},
                          .place = {},
                          .release = defaults_.release};
    std::string config = text_of(policy);
    return desired_policy(std::move(policy), std::move(config), source);
  }

  const policy::NodeObject& node_;
  std::span<const ConfigText> configs_;
  std::span<const Error> unreadable_;
  const DesiredDefaults& defaults_;
  DesiredState out_;
};

}  // namespace

std::string_view text(Workload workload) {
  return word_for(kWorkloads, workload);
}

std::optional<Workload> parse_workload(std::string_view word) {
  return value_for(kWorkloads, word);
}

DesiredState resolve_desired_state(const policy::NodeObject& node, std::span<const ConfigText> configs,
                                   const DesiredDefaults& defaults, std::span<const Error> unreadable) {
  return DesiredStateReader(node, configs, defaults, unreadable).desired_state();
}

bool same_policy(const policy::Policy& a, const policy::Policy& b) {
  policy::Policy renamed = b;
  renamed.name = a.name;
  renamed.node_selector = a.node_selector;
  return text_of(a) == text_of(renamed);
}

}  // namespace ferry::agent
