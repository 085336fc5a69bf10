// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_yaml.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/suggest.h"
#include "policy/policy_item_reader.h"
#include "vfio/quiesce/release.h"
#include "vgpu-dm/profile/item_reader.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::policy {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kVersion = "v2";
constexpr const char* kPolicies = "policies";
constexpr const char* kRelease = "release";
constexpr const char* kForeign = "foreign";

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

Result<std::optional<Foreign>> read_foreign(const vgpu::ItemReader& reader, const ConfigNode& root) {
  const ConfigMember* word = root.find(kForeign);
  if (word == nullptr) return std::nullopt;
  auto known = word->value.is_string() ? parse_foreign(word->value.text) : std::nullopt;
  if (known) return known;
  return reader.refuse(word->value, kForeign,
                       fmt::format("expected keep or take, found {}", word->value.described()),
                       "keep refuses a GPU on which a mediated device of somebody else's would have to go");
}

Result<PolicyFile> read_v2(const ConfigText& source, const ConfigNode& root) {
  const vgpu::ItemReader reader(source);
  auto lists = reader.read_lists(root, kVersion, kPolicies, {kRelease, kForeign});
  if (!lists) return fail(std::move(lists).error());
  const auto release = read_release(reader, root);
  if (!release) return fail(Error(release.error()));
  const auto foreign = read_foreign(reader, root);
  if (!foreign) return fail(Error(foreign.error()));
  PolicyFile out{.file = source.file, .policies = {}};
  for (vgpu::NamedItems& list : *lists) {
    Policy policy{.name = std::move(list.name),
                  .items = {},
                  .place = std::move(list.place),
                  .release = *release,
                  .foreign = *foreign};
    for (const vgpu::NamedItems::Item& item : list.items) {
      auto read = read_policy_item(reader, item);
      if (!read) return fail(std::move(read).error());
      policy.items.push_back(std::move(*read));
    }
    out.policies.push_back(std::move(policy));
  }
  return out;
}

Policy policy_of(const vgpu::Profile& profile) {
  Policy out{.name = profile.name, .items = {}, .place = profile.place};
  out.items.reserve(profile.items.size());
  for (const vgpu::ProfileItem& item : profile.items) out.items.push_back({.gpus = item, .mode = Mode::vgpu});
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
