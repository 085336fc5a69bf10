// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/completed_names.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>
#include <unistd.h>

#include "common/process/this_process.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "host/claims/claim_record.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "policy/accelerators.h"
#include "policy/kubernetes_files.h"
#include "vfio/pci/inventory.h"

namespace ferry::cli {
namespace {

/// Descriptions by name.
using Names = std::map<std::string, std::string>;

/// True: every shell takes the name as one word, without quotes.
bool is_plain(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return is_alphanumeric(c) || std::string_view("._:/@%+-").find(c) != std::string_view::npos;
  });
}

/// The value of an option that the words give: "-f FILE", "--file FILE", "--file=FILE", "--file = FILE".
std::string given_value(const std::vector<std::string>& words, std::string_view long_name,
                        std::string_view short_name = {}) {
  const std::string with_sign = std::string(long_name) + "=";
  std::string out;
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at].starts_with(with_sign)) out = words[at].substr(with_sign.size());
    if (words[at] != long_name && (short_name.empty() || words[at] != short_name)) continue;
    const std::size_t value = at + 1 < words.size() && words[at + 1] == "=" ? at + 2 : at + 1;
    if (value < words.size()) out = words[value];
  }
  if (out.starts_with("~/")) out.replace(0, 1, value_of(process_environment(), "HOME"));
  return out;
}

/// The accelerators that a command may name. `name_of` is empty for one without such a name.
template <typename NameOf>
Names names_of_accelerators(const HostFs& host, const NameOf& name_of) {
  const auto inventory = vfio::scan(host);
  if (!inventory) return {};
  const vfio::AcceleratorRules rules = policy::default_accelerator_rules();
  plugin::DeviceNames products(host);
  Names out;
  for (const auto& [address, function] : inventory->functions) {
    const std::string name =
        rules.match(function) || rules.match_by_name(function) ? name_of(function) : std::string();
    if (name.empty()) continue;
    const std::string model = products.find(function.vendor, function.device).value_or(function.ids());
    std::string& text = out[name];
    if (text.find(model) == std::string::npos) text += (text.empty() ? "" : ", ") + model;
  }
  return out;
}

Names addresses(const HostFs& host) {
  return names_of_accelerators(host,
                               [](const vfio::PciFunction& function) { return function.address.text(); });
}

Names devices(const HostFs& host) {
  Names out = addresses(host);
  if (const auto vgpus = host.list("sys/bus/mdev/devices"))
    for (const std::string& uuid : *vgpus) out.emplace(uuid, "mediated device");
  if (const auto advertised = host::read_advertised_resources(host); advertised && *advertised)
    for (const api::AdvertisedResource& resource : (*advertised)->resources)
      out.emplace(resource.name, "resource");
  return out;
}

Names claims(const HostFs& host) {
  Names out;
  if (const auto record = host::load_claim_record(host))
    for (const host::Claim& claim : record->claims) out.emplace(claim.uid, claim.label());
  return out;
}

Names policies(const std::vector<std::string>& words) {
  const std::filesystem::path path = given_value(words, "--file", "-f");
  std::error_code fault;
  // Reading a pipe would wait for its writer.
  if (!std::filesystem::is_regular_file(path, fault)) return {};
  Names out;
  if (const auto file = policy::read_policy_file(path, Reading::lenient))
    for (const policy::Policy& one : file->policies) out.emplace(one.name, "");
  return out;
}

Names names(std::string_view kind, const std::vector<std::string>& words) {
  if (kind == "policies") return policies(words);
  const std::string root = given_value(words, "--host-root");
  const HostFs host(root.empty() ? "/" : root);
  const auto number = [](const auto& value) { return value ? std::to_string(*value) : std::string(); };
  if (kind == "addresses") return addresses(host);
  if (kind == "devices") return devices(host);
  if (kind == "models")
    return names_of_accelerators(host, [](const vfio::PciFunction& function) { return function.ids(); });
  if (kind == "groups")
    return names_of_accelerators(
        host, [&](const vfio::PciFunction& function) { return number(function.iommu_group); });
  if (kind == "numa-nodes")
    return names_of_accelerators(
        host, [&](const vfio::PciFunction& function) { return number(function.numa_node); });
  if (kind == "claims") return claims(host);
  return {};
}

}  // namespace

std::string_view name_kind(const OptionModel& option) {
  const auto is_called = [&option](std::string_view name) {
    return std::ranges::find(option.names, name) != option.names.end();
  };
  if (option.value == "ADDRESS") return "addresses";
  if (option.value.starts_with("ADDRESS|")) return "devices";
  if (option.value == "MODEL") return "models";
  if (option.value == "UID" && option.names.empty()) return "claims";
  if (is_called("--group")) return "groups";
  if (is_called("--numa")) return "numa-nodes";
  // A --config with a default names a policy to print.
  if (is_called("--config") && option.value == "NAME" && option.usual.empty()) return "policies";
  return {};
}

std::string completed_names(std::string_view kind, const std::vector<std::string>& words) {
  std::string out;
  for (const auto& [name, description] : names(kind, words))
    if (is_plain(name))
      out += description.empty() ? name + "\n" : name + "\t" + visible_line(description) + "\n";
  return out;
}

int print_completed_names(const std::vector<std::string>& words) {
  constexpr unsigned kSeconds = 2;
  (void)std::signal(SIGALRM, [](int /*signal*/) { ::_exit(0); });
  ::alarm(kSeconds);
  if (words.empty()) return 0;
  const std::string out = completed_names(words.front(), {words.begin() + 1, words.end()});
  ::alarm(0);
  return std::fwrite(out.data(), 1, out.size(), stdout) == out.size() && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace ferry::cli
