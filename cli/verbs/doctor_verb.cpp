// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/options/plugin_options.h"
#include "cli/options/selection.h"
#include "cli/output/check_report.h"
#include "cli/output/document.h"
#include "cli/output/wait_note.h"
#include "cli/verbs/kata_inputs.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/text/text.h"
#include "dra/dra_checks.h"
#include "host/claims/claim_record.h"
#include "host/node_description.h"
#include "host/usage/advertised_use_probe.h"
#include "host/usage/use_probes.h"
#include "host/vgpu_checks.h"
#include "kata-manager/configuration/kata_checks.h"
#include "kata-manager/controller/found_runtime.h"
#include "kata-manager/runtimes/runtime_place.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/kubevirt_resource.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/pci/device_facts.h"
#include "vfio/quiesce/stopped_services.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

constexpr const char* kKata = "kata";
constexpr const char* kVgpu = "vgpu";

Result<std::set<std::string>> parse_purposes(const std::string& words) {
  std::set<std::string> asked;
  // The added comma keeps an empty word at the end, which is an error.
  for (const std::string& word : words_between(words + ",", ',')) {
    const auto& known = doctor_purposes();
    if (std::ranges::find(known, word) == known.end()) {
      return fail(Errc::usage,
                  fmt::format("--for: there are no checks for '{}'{}", word, did_you_mean(word, known)),
                  fmt::format("--for takes {}; several with commas between", join(known, ", ")));
    }
    asked.insert(word);
  }
  return asked;
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

/// The checks of the host come before those of its devices.
void add_of_host(std::vector<Check>& checks, Check check) {
  const auto of_a_device =
      std::ranges::find_if(checks, [](const Check& one) { return one.subject != kHostSubject; });
  checks.insert(of_a_device, std::move(check));
}

/// Adds the checks of the records without which Ferry changes no GPU. Each is left out while there is none.
void add_records(std::vector<Check>& checks, const HostFs& host) {
  const auto add = [&](const char* id, const char* why, const std::optional<Error>& error,
                       std::string found) {
    Check check{id, kHostSubject, why};
    add_of_host(checks, error ? std::move(check).failed(error->message, error->hint)
                              : std::move(check).passed(std::move(found)));
  };
  const auto error_of = [](const auto& read) {
    return read ? std::optional<Error>() : std::optional(read.error());
  };
  if (host.exists(host::kClaimRecordFile)) {
    const auto record = host::load_claim_record(host);
    add("claims-record", "without its record hostd prepares and ends no claim, and no GPU is changed",
        error_of(record),
        fmt::format("/{} has {}", host::kClaimRecordFile,
                    counted(record ? record->claims.size() : 0, "claim")));
  }
  if (const auto list = host::read_list_of_running_plugin(host); !list || *list)
    add("plugin-list", "without its list Ferry changes no GPU that the device plugin may have",
        error_of(list),
        fmt::format("/{} has {}", api::kAdvertisedFile,
                    counted(list ? (*list)->devices.size() : 0, "device")));
  if (const auto stopped = vfio::read_service_record(host); !stopped || !stopped->services.empty())
    add("stopped-services", "without their record they would stay down, so no driver and no vGPU is changed",
        error_of(stopped),
        fmt::format("the record has {} that Ferry has stopped",
                    counted(stopped ? stopped->services.size() : 0, "service, module or GPU's persistence",
                            "services, modules and GPUs' persistence")));
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

/// The checks of one purpose. Those for kata are about runtime classes, not GPUs.
Result<std::vector<Check>> checks_for(const std::string& purpose, const Session& session,
                                      const DoctorOptions& options, const vfio::Inventory& inventory,
                                      const plugin::ResourceRules& rules) {
  if (purpose == kKata) {
    const auto mode = confidential_mode(*session.host, options.node);
    if (!mode) return fail(mode.error());
    const kata::VersionOf version_of = kata::version_by(*session.writer);
    if (options.classes.empty()) return kata::kata_checks(*session.host, {}, *mode, version_of);
    const auto file = kata::read_class_file(options.classes);
    if (!file) return fail(file.error());
    return kata::kata_checks(*session.host, *file, *mode, version_of);
  }

  if (purpose == kVgpu) return host::vgpu_checks(*session.host, inventory, rules.accelerators);

  if (purpose == "kubevirt") {
    std::vector<Check> checks = plugin::kubevirt_checks(*session.host, rules, vgpu::scan_known_vgpus);
    const auto has_cdev = [](const auto& entry) {
      return vfio::on_vfio_driver(entry.second) && !entry.second.vfio_devices.empty();
    };
    if (vfio::has_iommufd(*session.host) && std::ranges::any_of(inventory.functions, has_cdev))
      add_of_host(checks, kata::device_ownership_check(*session.host));
    return checks;
  }

  if (purpose == "passthrough") {
    const vfio::AcceleratorRules counted = node_rules(session);
    const auto snapshot = snapshot_node(session, counted);
    if (!snapshot) return fail(snapshot.error());
    const vfio::GpuFindings findings = host::judge_node(*snapshot, counted, {});
    auto checks = vfio::passthrough_checks(*session.host, inventory, counted, findings);
    if (auto manager = vfio::cc_manager_check(*session.host, inventory, findings))
      add_of_host(checks, std::move(*manager));
    if (auto fabric = host::fabric_check(*session.host, inventory, counted))
      add_of_host(checks, std::move(*fabric));
    return checks;
  }

  std::vector<Check> checks = dra::dra_checks(*session.host, inventory, node_rules(session));
  add_of_host(checks, kata::cdi_check(*session.host, running_containerd(session)));
  add_of_host(checks, plugin::claimable_names_check(*session.host, rules));
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

/// The GPUs that checks of a purpose are about, with the virtual functions that VMs get whole: no switches.
/// The checks for kubevirt name only GPUs that cannot be advertised.
std::vector<std::string> gpus_of(const std::string& purpose, const std::vector<Check>& checks,
                                 const vfio::Inventory& inventory, const plugin::ResourceRules& rules) {
  std::vector<std::string> out;
  for (const auto& [address, function] : inventory.functions) {
    const bool checked = std::ranges::find(checks, address.text(), &Check::subject) != checks.end();
    const bool on_vfio = purpose == "kubevirt" && vfio::on_vfio_driver(function);
    const bool is_gpu = (rules.accelerators.match_by_name(function) &&
                         !rules.accelerators.on_request.contains(function.pci_class())) ||
                        (!rules.accelerators.vendors.contains(function.vendor) &&
                         vfio::is_accelerators_vf(inventory, rules.accelerators, function));
    if (is_gpu && (checked || on_vfio)) out.push_back(address.text());
  }
  return out;
}

/// True if the checks are about no device, and no vGPU of a GPU that counts only by name is advertised.
bool is_about_no_device(const std::vector<Check>& checks) {
  return std::ranges::all_of(checks, [](const Check& one) {
    return one.subject == kHostSubject && (one.id != "resources-advertised" || one.verdict != Verdict::pass);
  });
}

/// The answer on a host without any GPU: no check is made.
ExitStatus print_not_applicable(const Session& session, const std::set<std::string>& purposes,
                                const std::string& why) {
  json verdicts = json::array();
  for (const std::string& purpose : purposes)
    verdicts.push_back(verdict_json({.what = purpose, .not_applicable = why}));
  return print(
      session,
      {.document = {{"for", purposes},
                    {"checks", json::array()},
                    {"verdicts", verdicts},
                    {"summary", {{"passed", 0}, {"warnings", 0}, {"failed", 0}, {"unknown", 0}}}},
       .text = fmt::format("{}: not applicable: {}\n", join({purposes.begin(), purposes.end()}, ", "), why)});
}

}  // namespace

const std::vector<std::string>& doctor_purposes() {
  static const std::vector<std::string> kPurposes = {"passthrough", kVgpu, "kubevirt", kKata, "dra"};
  return kPurposes;
}

ExitStatus doctor_verb(const Session& session, const DoctorOptions& options) {
  const auto purposes = parse_purposes(options.purposes);
  if (!purposes) return complain(purposes.error());
  if (const auto asked = check_usage(options, *purposes); !asked) return complain(asked.error());
  const auto rules = resource_rules(session, options.naming);
  if (!rules) return complain(rules.error());
  std::optional<WaitNote> waits(std::in_place, "checking the host");
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return complain(inventory.error());
  const vfio::AcceleratorRules counted = node_rules(session);
  const auto any_counts = [&](const vfio::AcceleratorRules& by) {
    return std::ranges::any_of(inventory->functions, [&](const auto& one) { return by.match(one.second); });
  };
  if (!purposes->contains(kKata) && !any_counts(counted) &&
      gpu_of_another_vendor(*inventory, counted) == nullptr) {
    waits.reset();
    return print_not_applicable(session, *purposes, no_gpus(*inventory, counted));
  }
  const auto members = host::asked_of(*inventory, counted);
  vfio::read_overrides(*session.host, *session.writer, members, *inventory);
  plugin::DeviceNames names(*session.host);
  std::vector<CheckReport> reports;
  json list = json::array();
  json verdicts = json::array();
  std::map<std::string_view, std::size_t> counts;
  for (const std::string& purpose : doctor_purposes()) {
    if (!purposes->contains(purpose)) continue;
    auto checks = checks_for(purpose, session, options, *inventory, *rules);
    if (!checks) return complain(checks.error());
    if (purpose != kKata) add_records(*checks, *session.host);
    CheckReport& report = reports.emplace_back();
    report.what = purpose;
    report.gpus = gpus_of(purpose, *checks, *inventory, *rules);
    report.checks = as_root_sees_them(std::move(*checks));
    // The checks for vGPUs find other vendors' GPUs that can have some without a policy.
    const bool concerned = purpose == kKata || any_counts(purpose == kVgpu ? session.rules : counted);
    if (!concerned && report.gpus.empty() && is_about_no_device(report.checks))
      report.not_applicable = no_gpus(*inventory, session.rules);
    verdicts.push_back(verdict_json(report));
    for (const Check& check : report.checks) {
      list.push_back(to_json(check));
      ++counts[text(check.verdict)];
    }
  }
  waits.reset();
  const auto passes = [](const CheckReport& one) { return one.ready() || !one.not_applicable.empty(); };
  return print(session,
               {.document = {{"for", *purposes},
                             {"checks", list},
                             {"verdicts", verdicts},
                             {"summary",
                              {{"passed", counts["pass"]},
                               {"warnings", counts["warn"]},
                               {"failed", counts["fail"]},
                               {"unknown", counts["unknown"]}}}},
                .text = checks_text(
                    reports, [&](const Check& check) { return heading(check, *inventory, names); },
                    options.verbose, text_output(session)),
                .status = std::ranges::all_of(reports, passes) ? ExitStatus::done : ExitStatus::failed,
                .tinted = true});
}

}  // namespace ferry::cli
