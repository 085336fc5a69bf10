// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/options/plugin_options.h"
#include "cli/output/check_report.h"
#include "cli/output/document.h"
#include "cli/output/shown.h"
#include "cli/output/wait_note.h"
#include "cli/verbs/kata_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/text/text.h"
#include "dra/dra_checks.h"
#include "host/node_description.h"
#include "host/vgpu_checks.h"
#include "kata-manager/kata/kata_checks.h"
#include "kata-manager/runtime/found_runtime.h"
#include "kata-manager/runtime/runtime_place.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "kubevirt-plugin/kubevirt_resource.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/pci/device_facts.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

using ChecksOf = std::vector<Check> (*)(const HostFs&, const vfio::Inventory&, const plugin::ResourceRules&);

struct Purpose {
  const char* name;
  ChecksOf checks;
};
std::vector<Check> for_passthrough(const HostFs& host, const vfio::Inventory& inventory,
                                   const plugin::ResourceRules& rules) {
  return vfio::passthrough_checks(host, inventory, rules.accelerators);
}
std::vector<Check> for_vgpu(const HostFs& host, const vfio::Inventory& inventory,
                            const plugin::ResourceRules& rules) {
  return host::vgpu_checks(host, inventory, rules.accelerators);
}
std::vector<Check> for_kubevirt(const HostFs& host, const vfio::Inventory& inventory,
                                const plugin::ResourceRules& rules) {
  std::vector<Check> checks = plugin::kubevirt_checks(host, rules, vgpu::scan_known_vgpus);
  const auto has_cdev = [](const auto& entry) {
    return vfio::on_vfio_driver(entry.second) && !entry.second.vfio_devices.empty();
  };
  // The check joins those of the host, which come before the devices'.
  const auto of_a_device =
      std::ranges::find_if(checks, [](const Check& check) { return check.subject != kHostSubject; });
  if (vfio::has_iommufd(host) && std::ranges::any_of(inventory.functions, has_cdev))
    checks.insert(of_a_device, kata::device_ownership_check(host));
  return checks;
}

// The words of --for, in the order in which their checks are printed.
constexpr std::array<Purpose, 3> kPurposes = {{{.name = "passthrough", .checks = for_passthrough},
                                               {.name = "vgpu", .checks = for_vgpu},
                                               {.name = "kubevirt", .checks = for_kubevirt}}};

// This purpose's checks are about runtime classes, not GPUs.
constexpr const char* kKata = "kata";
// This one also asks the program of the container runtime.
constexpr const char* kDra = "dra";

Result<std::set<std::string>> parse_purposes(const std::string& words) {
  std::vector<std::string> known;
  known.reserve(kPurposes.size() + 2);
  for (const Purpose& purpose : kPurposes) known.emplace_back(purpose.name);
  known.emplace_back(kKata);
  known.emplace_back(kDra);
  std::set<std::string> asked;
  std::size_t start = 0;
  for (;;) {
    const std::size_t end = std::min(words.find(',', start), words.size());
    const std::string word = words.substr(start, end - start);
    if (std::ranges::find(known, word) == known.end()) {
      return fail(Errc::usage,
                  fmt::format("--for: there are no checks for '{}'{}", word, did_you_mean(word, known)),
                  fmt::format("--for takes {}; several with commas between", join(known, ", ")));
    }
    asked.insert(word);
    if (end == words.size()) return asked;
    start = end + 1;
  }
}

// Rejects options whose files no check would read.
Result<> check_usage(const DoctorOptions& options, const std::set<std::string>& purposes) {
  if (purposes.contains(kKata)) return {};
  if (!options.classes.empty())
    return fail(Errc::usage, "--classes: only the checks for kata look at classes", "add --for kata");
  if (!options.node.empty())
    return fail(Errc::usage, "--node-file: only the checks for kata look at a Node", "add --for kata");
  return {};
}

Result<std::vector<Check>> checks_for_kata(const Session& session, const DoctorOptions& options) {
  const auto mode = confidential_mode(options.node);
  if (!mode) return fail(Error(mode.error()));
  const kata::VersionOf version_of = kata::version_by(*session.writer);
  if (options.classes.empty()) return kata::kata_checks(*session.host, {}, *mode, version_of);
  const auto file = kata::read_class_file(options.classes);
  if (!file) return fail(Error(file.error()));
  return kata::kata_checks(*session.host, *file, *mode, version_of);
}

/// The release of the containerd that runs; absent: another runtime, or its program cannot be asked.
std::optional<kata::ContainerdRelease> running_containerd(const Session& session) {
  const auto place = kata::find_runtime(*session.host, {});
  if (!place || place->kind == kata::RuntimeKind::crio) return std::nullopt;
  const auto program = kata::running_containerd(*session.host, *place);
  if (!program) return std::nullopt;
  const auto release = kata::containerd_release(*session.writer, *program);
  if (!release) return std::nullopt;
  return *release;
}

std::vector<Check> checks_for_dra(const Session& session, const vfio::Inventory& inventory,
                                  const plugin::ResourceRules& rules) {
  std::vector<Check> checks = dra::dra_checks(*session.host, inventory, rules.accelerators);
  const auto of_a_device =
      std::ranges::find_if(checks, [](const Check& check) { return check.subject != kHostSubject; });
  checks.insert(of_a_device, kata::cdi_check(*session.host, running_containerd(session)));
  return checks;
}

// "0000:65:00.0 AD102 [GeForce RTX 4090]"
std::string heading(const Check& check, const vfio::Inventory& inventory, plugin::DeviceNames& names) {
  const auto address = vfio::PciAddress::parse(check.subject);
  const vfio::PciFunction* function = address ? inventory.find(*address) : nullptr;
  if (function == nullptr) return check.subject;
  return fmt::format("{} {}", check.subject,
                     names.find(function->vendor, function->device).value_or(function->ids()));
}

// To root a missing file is no matter of permissions.
std::vector<Check> as_root_sees_them(std::vector<Check> checks) {
  constexpr std::string_view kAdvice = "run as root";
  if (::geteuid() != 0) return checks;
  for (Check& check : checks) {
    if (!check.fix.starts_with(kAdvice)) continue;
    const auto more = check.fix.find("; ");
    if (check.fix == kAdvice)
      check.fix.clear();
    else if (more == kAdvice.size())
      check.fix.erase(0, more + 2);
  }
  return checks;
}

/// Checks of one purpose.
struct OfPurpose {
  std::string purpose;
  std::vector<Check> checks;
};

// Several purposes check the same subjects, so their headings name the purpose, too.
std::vector<CheckGroup> groups_of(const std::vector<OfPurpose>& all, const vfio::Inventory& inventory,
                                  plugin::DeviceNames names) {
  std::vector<CheckGroup> out;
  for (const OfPurpose& one : all) {
    std::string subject;
    for (const Check& check : one.checks) {
      if (check.subject != subject) {
        const std::string suffix = all.size() > 1 ? fmt::format(", for {}", one.purpose) : std::string();
        out.push_back({.heading = heading(check, inventory, names) + suffix, .checks = {}});
      }
      subject = check.subject;
      out.back().checks.push_back(check);
    }
  }
  return out;
}

}  // namespace

ExitStatus doctor_verb(const Session& session, const DoctorOptions& options) {
  const auto purposes = parse_purposes(options.purposes);
  if (!purposes) return complain(purposes.error());
  if (const auto asked = check_usage(options, *purposes); !asked) return complain(asked.error());
  const auto rules = resource_rules(session, options.naming);
  if (!rules) return complain(rules.error());
  std::optional<WaitNote> waits(std::in_place, "checking the host");
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return complain(inventory.error());
  const auto members = host::asked_of(*inventory, session.rules);
  vfio::read_overrides(*session.host, *session.writer, members, *inventory);
  std::vector<OfPurpose> all;
  for (const Purpose& purpose : kPurposes) {
    if (!purposes->contains(purpose.name)) continue;
    all.push_back({.purpose = purpose.name,
                   .checks = as_root_sees_them(purpose.checks(*session.host, *inventory, *rules))});
  }
  if (purposes->contains(kKata)) {
    auto more = checks_for_kata(session, options);
    if (!more) return complain(more.error());
    all.push_back({.purpose = kKata, .checks = as_root_sees_them(std::move(*more))});
  }
  if (purposes->contains(kDra))
    all.push_back(
        {.purpose = kDra, .checks = as_root_sees_them(checks_for_dra(session, *inventory, *rules))});
  const auto groups = groups_of(all, *inventory, plugin::DeviceNames(*session.host));
  const CheckCounts counts = counts_of(groups);
  json list = json::array();
  for (const CheckGroup& group : groups)
    for (const Check& check : group.checks) list.push_back(to_json(check));
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const OfPurpose& one : all) names.push_back(one.purpose);
  waits.reset();
  return print(session, VerbOutput{.document = {{"for", *purposes},
                                                {"checks", list},
                                                {"summary",
                                                 {{"passed", counts.passed},
                                                  {"warnings", counts.warnings},
                                                  {"failed", counts.failed},
                                                  {"unknown", counts.unknown}}}},
                                   .text = checks_text(join(names, ", "), groups, options.verbose,
                                                       text_output(session)),
                                   .status = counts.failed > 0 ? ExitStatus::failed : ExitStatus::done,
                                   .tinted = true});
}

}  // namespace ferry::cli
