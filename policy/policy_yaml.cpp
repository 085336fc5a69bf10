// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_yaml.h"

#include <algorithm>
#include <array>
#include <limits>
#include <strings.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/result.h"
#include "common/text/text.h"
#include "policy/accelerators.h"
#include "policy/gpu_selection.h"
#include "policy/policy.h"
#include "vfio/quiesce/release.h"
#include "vgpu-dm/profile/item_reader.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::policy {
namespace {

// Reads an item of a policy file.

using Kind = ConfigNode::Kind;

constexpr const char* kMode = "mode";
constexpr const char* kModel = "model";
constexpr const char* kAddress = "address";
constexpr const char* kNumaNode = "numa-node";
constexpr const char* kVendor = "vendor";
constexpr const char* kMixedSizes = "mixed-sizes";
constexpr const char* kAllocation = "allocation";
constexpr const char* kAllow = "allow";
constexpr const char* kWhole = "whole";

/// Keys that choose GPUs beside `devices`.
constexpr std::array kSelectors = {vgpu::ItemReader::kFilter, kModel, kAddress, kNumaNode, kVendor};

/// Reads a word of a table. Each scalar counts, since YAML 1.1 takes `off` for a boolean. `expected`
/// names the words, and `meant` is did_you_mean() or empty.
template <typename Value, std::size_t Size>
Result<Value> read_word(const vgpu::ItemReader& reader, const ConfigNode& word, const std::string& key,
                        const Words<Value, Size>& words, const char* expected, const std::string& meant,
                        const char* hint) {
  const auto known = word.kind == Kind::scalar ? value_for(words, word.text) : std::nullopt;
  if (known) return *known;
  return reader.refuse(word, key, fmt::format("expected {}, found {}{}", expected, word.described(), meant),
                       hint);
}

Result<Mode> read_mode(const vgpu::ItemReader& reader, const ConfigNode& item, const std::string& path) {
  const ConfigMember* mode = item.find(kMode);
  const std::string key = path + "." + kMode;
  if (mode == nullptr) return reader.refuse(item, key, "the key is missing", "host, passthrough or vgpu");
  return read_word(reader, mode->value, key, api::kModes, "host, passthrough or vgpu",
                   did_you_mean(mode->value.text, std::vector<std::string>{"host", "passthrough", "vgpu"}),
                   "");
}

Result<Allocation> read_allocation(const vgpu::ItemReader& reader, const ConfigNode& item,
                                   const std::string& path) {
  const ConfigMember* word = item.find(kAllocation);
  if (word == nullptr) return Allocation::device_plugin;
  return read_word(
      reader, word->value, path + "." + kAllocation, api::kAllocations, "device-plugin or dra",
      did_you_mean(word->value.text, std::vector<std::string>{"device-plugin", "dra"}),
      "with device-plugin pods ask for a resource of the node, with dra they have a ResourceClaim");
}

/// Refuses a pattern that is no glob.
Result<> check_glob(const vgpu::ItemReader& reader, const ConfigNode& node, const std::string& key) {
  const std::string fault = glob_fault(node.text);
  if (fault.empty()) return {};
  return reader.refuse(node, key, fmt::format("'{}' {}: it would match nothing", node.text, fault),
                       "a glob has * for anything, ? for one character and [...] for one of several");
}

Result<> read_model(const vgpu::ItemReader& reader, const ConfigNode& node, const std::string& key,
                    GpuSelection& into) {
  if (node.kind != Kind::scalar || node.text.empty()) {
    return reader.refuse(node, key, fmt::format("expected a model, found {}", node.described()),
                         "a glob on what `ferry status` shows, as in \"*L40S*\", or on the IDs, 10de:26b9");
  }
  if (auto good = check_glob(reader, node, key); !good) return good;
  into.models.push_back(node.text);
  return {};
}

// YAML 1.1 may take 0000:17:00.0 for another value, but only Ferry reads this file.
Result<> read_address(const vgpu::ItemReader& reader, const ConfigNode& node, const std::string& key,
                      GpuSelection& into) {
  const auto address = node.kind == Kind::scalar ? vfio::PciAddress::parse(node.text)
                                                 : Result<vfio::PciAddress>(fail(Errc::usage, ""));
  if (!address) {
    return reader.refuse(node, key, fmt::format("expected a PCI address, found {}", node.described()),
                         "as in \"0000:17:00.0\"; `ferry status` shows them");
  }
  into.addresses.push_back(*address);
  return {};
}

Result<> read_numa_node(const vgpu::ItemReader& reader, const ConfigNode& node, const std::string& key,
                        GpuSelection& into) {
  const auto number = reader.read_number(node, key);
  if (!number || *number < 0 || *number > std::numeric_limits<int>::max()) {
    return reader.refuse(node, key,
                         fmt::format("expected a NUMA node such as 0 or 1, found {}", node.described()));
  }
  into.numa_nodes.push_back(static_cast<int>(*number));
  return {};
}

Result<> read_vendor(const vgpu::ItemReader& reader, const ConfigNode& node, const std::string& key,
                     GpuSelection& into) {
  const std::string word = node.kind == Kind::scalar ? node.text : std::string();
  constexpr std::size_t kDigits = 4;
  std::optional<std::uint16_t> vendor;
  if (word.size() == kDigits) vendor = whole_number<std::uint16_t>(word, 16);
  std::vector<std::string> names;
  for (const NamedVendor& named : named_vendors()) {
    names.emplace_back(named.name);
    if (word.size() == named.name.size() && ::strncasecmp(word.data(), named.name.data(), word.size()) == 0)
      vendor = named.id;
  }
  if (!vendor) {
    return reader.refuse(
        node, key,
        fmt::format("expected a vendor, found {}{}", node.described(), did_you_mean(node.text, names)),
        fmt::format("four hex digits, as in 10de, or a name: {}", fmt::join(names, ", ")));
  }
  into.vendors.push_back(*vendor);
  return {};
}

Result<GpuSelection> read_selectors(const vgpu::ItemReader& reader, const ConfigNode& item,
                                    const std::string& path) {
  struct Selector {
    const char* key;
    const char* what;
    Result<> (*read)(const vgpu::ItemReader&, const ConfigNode&, const std::string&, GpuSelection&);
  };
  constexpr std::array kReaders = {
      Selector{kModel, "models", read_model}, Selector{kAddress, "PCI addresses", read_address},
      Selector{kNumaNode, "NUMA nodes", read_numa_node}, Selector{kVendor, "vendors", read_vendor}};
  GpuSelection out;
  for (const Selector& selector : kReaders) {
    const ConfigMember* member = item.find(selector.key);
    if (member == nullptr) continue;
    const std::string key = path + "." + selector.key;
    auto values = reader.read_some(member->value, key, selector.what);
    if (!values) return fail(std::move(values).error());
    for (const ConfigNode* value : *values)
      if (auto r = selector.read(reader, *value, key, out); !r) return fail(std::move(r).error());
  }
  return out;
}

/// Reads the vGPUs of an item. Only mode vgpu may have their keys.
Result<> read_carried(const vgpu::ItemReader& reader, const ConfigNode& item, const std::string& path,
                      Mode mode, vgpu::ProfileItem& into) {
  if (mode != Mode::vgpu) {
    for (const char* key : {vgpu::ItemReader::kVgpus, vgpu::ItemReader::kParams, kMixedSizes}) {
      if (const ConfigMember* member = item.find(key)) {
        return reader.refuse(member->key, path + "." + key,
                             fmt::format("goes with mode vgpu, not with {}", text(mode)));
      }
    }
    return {};
  }
  const ConfigMember* vgpus = item.find(vgpu::ItemReader::kVgpus);
  const std::string key = path + "." + vgpu::ItemReader::kVgpus;
  if (vgpus == nullptr)
    return reader.refuse(item, key, "the key is missing", "mode vgpu needs it: {\"L40S-12Q\": 4}, say");
  if (auto r = reader.read_vgpus(vgpus->value, key, into, vgpu::ItemReader::Counts::detailed); !r) return r;
  if (const ConfigMember* params = item.find(vgpu::ItemReader::kParams)) {
    auto read = reader.read_params(params->value, path + "." + vgpu::ItemReader::kParams);
    if (!read) return fail(std::move(read).error());
    for (vgpu::VgpuCount& entry : into.vgpus)
      if (!entry.params) entry.params = *read;
  }
  if (const ConfigMember* mixed = item.find(kMixedSizes)) {
    const std::string mixed_key = path + "." + kMixedSizes;
    const auto on = reader.read_flag(mixed->value, mixed_key);
    if (!on) return fail(on.error());
    into.mixed_sizes = *on;
    if (*on && !into.vgpus.empty() && into.vgpus.front().type.is_mig_backed()) {
      return reader.refuse(
          mixed->key, mixed_key,
          fmt::format("{} is MIG-backed: its GPU instances have one size each, and may differ",
                      into.vgpus.front().type.text()),
          "leave the key out");
    }
  }
  return {};
}

/// Reads `allow`. Without the key, claims can have the whole GPU and all of its vGPU types.
Result<AllowedDevices> read_allow(const vgpu::ItemReader& reader, const ConfigNode& item,
                                  const std::string& path) {
  const ConfigMember* member = item.find(kAllow);
  if (member == nullptr) return AllowedDevices{};
  const std::string key = path + "." + kAllow;
  auto values = reader.read_some(member->value, key, "vGPU types");
  if (!values) return fail(std::move(values).error());
  AllowedDevices out{.whole = false, .types = {}};
  for (const ConfigNode* value : *values) {
    if (!value->is_string() || value->text.empty()) {
      return reader.refuse(*value, key,
                           fmt::format("expected whole or a vGPU type, found {}", value->described()),
                           "a glob on the types that `ferry vgpu types` shows, as in \"L40S-*Q\"");
    }
    if (auto good = check_glob(reader, *value, key); !good) return fail(std::move(good).error());
    // Globs take either case, so this word does, too.
    if (lower(value->text) == kWhole)
      out.whole = true;
    else
      out.types.push_back(value->text);
  }
  return out;
}

/// Refuses the keys of the other allocation: claims decide the mode and the vGPUs of a GPU.
Result<> check_allocation(const vgpu::ItemReader& reader, const ConfigNode& item, const std::string& path,
                          Allocation allocation) {
  const bool for_dra = allocation == Allocation::dra;
  const std::vector<const char*> misplaced =
      for_dra ? std::vector<const char*>{kMode, vgpu::ItemReader::kVgpus, vgpu::ItemReader::kParams}
              : std::vector<const char*>{kAllow};
  for (const char* key : misplaced) {
    const ConfigMember* member = item.find(key);
    if (member == nullptr) continue;
    return reader.refuse(
        member->key, path + "." + key,
        fmt::format("goes with allocation {}, not with {}",
                    text(for_dra ? Allocation::device_plugin : Allocation::dra), text(allocation)),
        for_dra ? "a ResourceClaim binds the GPU or makes the vGPU when a VM starts; `allow` limits claims"
                : "claims are for GPUs with allocation: dra");
  }
  return {};
}

/// Errc::invalid_config, "file:line: key: fault".
Result<PolicyItem> read_policy_item(const vgpu::ItemReader& reader, const vgpu::NamedItems::Item& item) {
  const auto& [node, path] = item;
  if (node->kind != Kind::map) {
    return reader.refuse(
        *node, path,
        fmt::format("expected a map with {} and {}, found {}", vgpu::ItemReader::kDevices, kMode,
                    node->described()),
        fmt::format("write '- {{{}: all, {}: passthrough}}'", vgpu::ItemReader::kDevices, kMode));
  }
  std::vector<std::string> known = {vgpu::ItemReader::kDevices};
  known.insert(known.end(), kSelectors.begin(), kSelectors.end());
  known.insert(known.end(), {kMode, vgpu::ItemReader::kVgpus, kMixedSizes, vgpu::ItemReader::kParams,
                             kAllocation, kAllow});
  if (auto r = reader.check_keys(*node, path, known); !r) return fail(std::move(r).error());
  const bool chosen_otherwise =
      std::ranges::any_of(kSelectors, [&](const char* key) { return node->find(key) != nullptr; });
  auto gpus = reader.read_selection(
      *node, path, chosen_otherwise,
      fmt::format("choose GPUs by {}, or by {}", vgpu::ItemReader::kDevices, fmt::join(kSelectors, ", ")));
  if (!gpus) return fail(std::move(gpus).error());
  auto selection = read_selectors(reader, *node, path);
  if (!selection) return fail(std::move(selection).error());
  const auto allocation = read_allocation(reader, *node, path);
  if (!allocation) return fail(allocation.error());
  if (auto r = check_allocation(reader, *node, path, *allocation); !r) return fail(std::move(r).error());
  if (*allocation == Allocation::dra) {
    auto allow = read_allow(reader, *node, path);
    if (!allow) return fail(std::move(allow).error());
    if (const ConfigMember* member = node->find(kMixedSizes)) {
      const auto on = reader.read_flag(member->value, path + "." + kMixedSizes);
      if (!on) return fail(on.error());
      allow->mixed_sizes = *on;
    }
    return PolicyItem{.gpus = std::move(*gpus),
                      .selection = std::move(*selection),
                      .allocation = Allocation::dra,
                      .allow = std::move(*allow)};
  }
  auto mode = read_mode(reader, *node, path);
  if (!mode) return fail(std::move(mode).error());
  if (auto r = read_carried(reader, *node, path, *mode, *gpus); !r) return fail(std::move(r).error());
  return PolicyItem{.gpus = std::move(*gpus), .mode = *mode, .selection = std::move(*selection)};
}

constexpr const char* kVersion = "v2";
constexpr const char* kPolicies = "policies";
constexpr const char* kRelease = "release";
constexpr const char* kForeign = "foreign";
constexpr const char* kRegisters = "registers";
constexpr const char* kSanitizeKey = "sanitize";
constexpr const char* kNodeSelector = "nodeSelector";

// The key stands beside the policies, not in one: users of GPUs are the host's, whatever the policy.
Result<std::set<std::string>> read_release(const vgpu::ItemReader& reader, const ConfigNode& root) {
  const ConfigMember* list = root.find(kRelease);
  if (list == nullptr) return vfio::default_release();
  if (list->value.kind != Kind::list) {
    return reader.refuse(list->value, kRelease,
                         fmt::format("expected a list of services, found {}", list->value.described()),
                         "write [nvidia-dcgm], or [none] for none at all");
  }
  std::vector<std::string> names;
  for (const ConfigNode& name : list->value.items) {
    const std::string key = fmt::format("{}[{}]", kRelease, names.size());
    if (!name.is_string())
      return reader.refuse(name, key,
                           fmt::format("expected the name of a service, found {}", name.described()));
    names.push_back(name.text);
    if (auto known = vfio::release_list({name.text}); !known)
      return reader.refuse(name, key, known.error().message, known.error().hint);
  }
  return vfio::release_list(names);
}

// The key stands beside the policies, since a policy is a list of items.
Result<> read_node_selectors(const vgpu::ItemReader& reader, const ConfigNode& root,
                             std::vector<Policy>& policies) {
  const ConfigMember* selectors = root.find(kNodeSelector);
  if (selectors == nullptr) return {};
  if (selectors->value.kind != Kind::map)
    return reader.refuse(
        selectors->value, kNodeSelector,
        fmt::format("expected labels for names of policies, found {}", selectors->value.described()));
  std::vector<std::string> names;
  for (const Policy& policy : policies) names.push_back(policy.name);
  for (const ConfigMember& member : selectors->value.members) {
    const std::string path = fmt::format("{}.{}", kNodeSelector, member.key.text);
    const auto policy = std::ranges::find(policies, member.key.text, &Policy::name);
    if (policy == policies.end())
      return reader.refuse(member.key, path,
                           "no policy of this file has this name" + did_you_mean(member.key.text, names));
    if (member.value.kind != Kind::map || member.value.members.empty())
      return reader.refuse(member.key, path,
                           fmt::format("expected at least one label, found {}",
                                       member.value.kind == Kind::map ? "none" : member.value.described()),
                           "for all nodes without labels there is the chart's value defaults.policy");
    policy->node_selector.clear();
    for (const auto& [key, value] : member.value.members) {
      const std::string label = fmt::format("{}.{}", path, key.text);
      if (!key.is_string() || !value.is_string())
        return reader.refuse(key, label, fmt::format("expected a string, found {}", value.described()),
                             "put it in quotes");
      // Such a label may follow the policy's own changes of the node.
      if (key.text.starts_with("gpu-ferry.io/"))
        return reader.refuse(key, label, "Ferry itself sets labels with this prefix",
                             "name a label of your own, or of Node Feature Discovery");
      policy->node_selector.emplace(key.text, value.text);
    }
  }
  return {};
}

Result<PolicyFile> read_v2(const ConfigText& source, const ConfigNode& root) {
  const vgpu::ItemReader reader(source);
  auto lists = reader.read_lists(root, kVersion, kPolicies,
                                 {kRelease, kForeign, kRegisters, kSanitizeKey, kNodeSelector});
  if (!lists) return fail(std::move(lists).error());
  const auto release = read_release(reader, root);
  if (!release) return fail(release.error());
  std::optional<Foreign> foreign;
  if (const ConfigMember* word = root.find(kForeign)) {
    const auto read = read_word(
        reader, word->value, kForeign, kForeignWords, "keep or take", "",
        "keep refuses a GPU on which a mediated device that Ferry did not make would have to be removed");
    if (!read) return fail(read.error());
    foreign = *read;
  }
  Result<ReadRegisters> registers = ReadRegisters::automatic;
  if (const ConfigMember* word = root.find(kRegisters))
    registers = read_word(reader, word->value, kRegisters, kReadRegisters, "auto, all or off", "",
                          "auto reads the registers of GPUs where a Kata class is confidential");
  if (!registers) return fail(registers.error());
  Result<Sanitize> sanitize = kSanitizeByDefault;
  if (const ConfigMember* word = root.find(kSanitizeKey))
    sanitize =
        read_word(reader, word->value, kSanitizeKey, kSanitize, "required, best-effort or off", "",
                  "required keeps back a GPU that could not be reset between two VMs, or without a proof");
  if (!sanitize) return fail(sanitize.error());
  PolicyFile out{.file = source.file, .policies = {}};
  for (vgpu::NamedItems& list : *lists) {
    Policy policy{.name = std::move(list.name),
                  .items = {},
                  .place = std::move(list.place),
                  .release = *release,
                  .foreign = foreign,
                  .registers = *registers,
                  .sanitize = *sanitize};
    for (const vgpu::NamedItems::Item& item : list.items) {
      auto read = read_policy_item(reader, item);
      if (!read) return fail(std::move(read).error());
      policy.items.push_back(std::move(*read));
    }
    out.policies.push_back(std::move(policy));
  }
  if (auto r = read_node_selectors(reader, root, out.policies); !r) return fail(std::move(r).error());
  return out;
}

}  // namespace

Result<PolicyFile> read_policies(const ConfigText& source, Reading how) {
  std::vector<std::string> tolerated;
  auto root = parse_config(source, how == Reading::lenient ? &tolerated : nullptr);
  if (!root) return fail(std::move(root).error());
  const ConfigMember* version = root->find("version");
  if (version == nullptr || !version->value.is_string() || version->value.text == kVersion) {
    if (tolerated.empty()) return read_v2(source, *root);
    auto strict = parse_config(source);
    if (!strict) return fail(std::move(strict).error());
    return read_v2(source, *strict);
  }
  if (version->value.text != "v1") {
    return vgpu::ItemReader(source).refuse(
        version->value, "version",
        "expected v2, or v1 for a vGPU profile, found " + version->value.described(),
        "write 'version: v2' above policies, or 'version: v1' above vgpu-configs");
  }
  auto profiles = vgpu::read_profiles(source, how);
  if (!profiles) return fail(std::move(profiles).error());
  PolicyFile out{
      .file = source.file, .policies = {}, .of_profiles = true, .warnings = std::move(profiles->warnings)};
  for (const vgpu::Profile& profile : profiles->profiles) out.policies.push_back(policy_of(profile));
  return out;
}

Policy policy_of(const vgpu::Profile& profile) {
  Policy out{.name = profile.name, .items = {}, .place = profile.place};
  for (const vgpu::ProfileItem& item : profile.items) out.items.push_back({.gpus = item, .mode = Mode::vgpu});
  return out;
}

Result<Policy> select_policy(const PolicyFile& file, const std::optional<std::string>& name) {
  std::vector<std::string> names;
  names.reserve(file.policies.size());
  for (const Policy& policy : file.policies) names.push_back(policy.name);
  if (names.empty()) {
    return fail(Errc::invalid_config, file.file + ": holds no policies",
                fmt::format("it needs 'version: {}' and at least one entry under {}", kVersion, kPolicies));
  }
  if (!name) {
    if (names.size() == 1) return file.policies.front();
    return fail(Errc::invalid_config,
                fmt::format("{}: holds {} policies, and none was chosen", file.file, names.size()),
                fmt::format("choose one of: {}", fmt::join(names, ", ")));
  }
  const auto found = std::ranges::find(names, *name);
  if (found == names.end()) {
    return fail(Errc::invalid_config,
                fmt::format("{}: holds no policy '{}'{}", file.file, *name, did_you_mean(*name, names)),
                fmt::format("it holds: {}", fmt::join(names, ", ")));
  }
  return file.policies[static_cast<std::size_t>(found - names.begin())];
}

}  // namespace ferry::policy
