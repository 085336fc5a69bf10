// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "api/advertised_resources.h"
#include "api/files.h"
#include "cli/options/plugin_options.h"
#include "cli/output/document.h"
#include "cli/verbs/verbs.h"
#include "common/kubevirt_rules.h"
#include "common/process/standard_streams.h"
#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "hostfs/locks.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "kubevirt-plugin/discovery/resource_name.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanner.h"
#include "kubevirt-plugin/kubevirt_resource.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

json to_json(const std::string& selector, const std::vector<plugin::PermittedDevice>& devices) {
  auto list = json::array();
  for (const auto& device : devices) {
    list.push_back(
        {{selector, device.selector}, {"resourceName", device.resource}, {"externalResourceProvider", true}});
  }
  return list;
}

/// "A100-SXM4-40GB" and "A100 SXM4 40GB" name one model.
std::string simple(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// The entries of GPUs and vGPU types by the tables of names. A name such as "GA107GL [A2 / A16]" is of two
/// boards. A vGPU type has the name that its driver gives it: "NVIDIA A40-12Q".
Result<plugin::PermittedHostDevices> entries_of(const plugin::ResourceRules& rules,
                                                const std::vector<std::string>& models) {
  std::map<std::string, std::set<plugin::PermittedDevice>> gpus;   // by simple() name
  std::map<std::string, std::set<plugin::PermittedDevice>> types;  // as `gpus`
  std::vector<std::string> known;
  for (std::string_view text = plugin::shipped_device_names(); !text.empty();) {
    std::string_view line = cut(text, '\n');
    if (line.starts_with('#')) continue;
    const std::string device(cut(line, '\t'));
    const std::string name(cut(line, '\t'));
    std::string boards = name.substr(std::min(name.find('['), name.size()));
    std::erase_if(boards, [](char c) { return c == '[' || c == ']'; });

    const auto resource = rules.names.function_name(rules.domain, "10de:" + device, name);
    if (!resource) continue;  // a template makes no legal name of it
    std::string selector = "10DE:" + device;
    std::ranges::transform(selector, selector.begin(), [](unsigned char c) { return std::toupper(c); });
    for (std::string_view rest = boards; !rest.empty();) {
      const auto board = trimmed(cut(rest, '/'));
      gpus[simple(board)].insert({selector, resource->text()});
      known.emplace_back(board);
    }
  }
  for (std::string_view text = vgpu::type_table_text(); !text.empty();) {
    std::string_view line = cut(text, '\n');
    if (line.starts_with('#')) continue;
    (void)cut(line, '\t');
    (void)cut(line, '\t');
    const std::string name(cut(line, '\t'));
    const std::string type = name.substr(name.find(' ') + 1);
    types[simple(type)].insert({name, rules.domain + "/" + rules.names.vgpu_part(name)});
    known.push_back(type);
  }

  std::set<plugin::PermittedDevice> pci;
  std::set<plugin::PermittedDevice> mediated;
  for (const std::string& model : models) {
    const auto gpu = gpus.find(simple(model));
    const auto type = types.find(simple(model));
    if (gpu == gpus.end() && type == types.end())
      return fail(Errc::not_found,
                  fmt::format("no table has a GPU or a vGPU type '{}'{}", model, did_you_mean(model, known)),
                  "`ferry kubevirt-cr` on a node that has the device prints its entry");
    if (gpu != gpus.end()) pci.insert(gpu->second.begin(), gpu->second.end());
    if (type != types.end()) mediated.insert(type->second.begin(), type->second.end());
  }
  return plugin::PermittedHostDevices{.pci = {pci.begin(), pci.end()},
                                      .mediated = {mediated.begin(), mediated.end()}};
}

// The names follow this command's options. A name that the running plugin does not have permits nothing,
// unless claims have its devices.
void warn_of_other_names(const HostFs& host, const plugin::PermittedHostDevices& devices,
                         const std::vector<plugin::ResourceClass>& classes) {
  if (!is_present(host, api::kPluginLiveness).value_or(false)) return;
  const auto text = host.read_file(api::kAdvertisedFile);
  if (!text) return;
  const auto advertised = api::read_advertised_resources(*text);
  if (!advertised) return;
  std::set<std::string> others;
  for (const auto* list : {&devices.pci, &devices.mediated}) {
    for (const plugin::PermittedDevice& device : *list)
      if (advertised->resource(device.resource) == nullptr &&
          std::ranges::find(classes, device.resource, &plugin::ResourceClass::resource) == classes.end())
        others.insert(device.resource);
  }
  if (others.empty()) return;
  print_to_stderr(
      "warning: the running plugin does not advertise {}: it serves no KubeVirt, or it has options for "
      "names, "
      "which this command needs too (--alias, --name-template, --vgpu-name-template, --companions, "
      "--no-companion-places)\n",
      fmt::join(others, ", "));
}

void note_gates(const plugin::PermittedHostDevices& devices) {
  const auto grace = std::ranges::find_if(
      devices.pci, [](const plugin::PermittedDevice& one) { return is_grace_gpu(one.selector); });
  if (grace != devices.pci.end())
    print_to_stderr("From KubeVirt 1.9 on VMs with {} need the feature gates {}, and {}.\n", grace->resource,
                    fmt::join(kGraceGates, ", "), kGraceVm);
}

/// Prints the part, or complains of an ID that the object cannot have twice.
ExitStatus print_part(const Session& session, const std::string& hyperconverged,
                      const plugin::PermittedHostDevices& devices) {
  const auto twice = std::ranges::adjacent_find(devices.pci, {}, &plugin::PermittedDevice::selector);
  if (!hyperconverged.empty() && twice != devices.pci.end())
    return complain(
        {.code = make_error_code(Errc::refused),
         .message = fmt::format("a HyperConverged object takes each ID once, and {} is of {} and {}",
                                twice->selector, twice->resource, std::next(twice)->resource),
         .hint = "permit one of them: `ferry kubevirt-cr -o json` prints the entries of both"});

  const plugin::PermittingObject object = plugin::permitting_object(hyperconverged);
  json part = json::object();
  // A list replaces the one in the cluster: an empty one would take away other nodes' entries.
  if (!devices.pci.empty()) part["pciHostDevices"] = to_json(object.pci_selector, devices.pci);
  if (!devices.mediated.empty()) part["mediatedDevices"] = to_json("mdevNameSelector", devices.mediated);
  for (const std::string& key : object.path | std::views::reverse)
    part = json::object({{key, std::move(part)}});
  print(session, {.document = {{"apiVersion", object.api_version},
                               {"kind", object.kind},
                               {"metadata", {{"name", object.name}, {"namespace", object.space}}},
                               {"spec", std::move(part)}},
                  .text = plugin::kubevirt_resource(devices, object)});
  return ExitStatus::done;
}

void add(std::vector<plugin::PermittedDevice>& list, const std::vector<plugin::PermittedDevice>& more) {
  list.insert(list.end(), more.begin(), more.end());
  std::ranges::sort(list);
  const auto repeats = std::ranges::unique(list);
  list.erase(repeats.begin(), repeats.end());
}

Error nothing_to_permit(const plugin::ResourceSet& scan) {
  if (!std::ranges::all_of(scan.not_advertised, &plugin::NotAdvertised::by_kind))
    return {.code = make_error_code(Errc::refused),
            .message = "kubevirt-cr: no device for VMs can be given, so there is nothing to permit",
            .hint = "`ferry doctor --for kubevirt` says how to help those that are left out"};
  return {.code = make_error_code(Errc::refused),
          .message = "kubevirt-cr: this host has no device for VMs yet, so there is nothing to permit",
          .hint =
              "bind a GPU with `ferry vfio bind`, or make vGPUs with `ferry vgpu apply`; `ferry "
              "status` lists the GPUs"};
}

ExitStatus print_classes(const Session& session, const std::vector<plugin::ResourceClass>& classes) {
  if (classes.empty())
    return complain({.code = make_error_code(Errc::refused),
                     .message = "kubevirt-cr: this host has no device for claims that has a resource's name",
                     .hint = "a GPU needs `allocation: dra` in the policy of this node, and `ferry doctor "
                             "--for dra` says which give no device; virtual functions that VMs get whole "
                             "have claims alone"});
  std::vector<std::string> notes;
  const auto listed = plugin::with_one_class_a_name(classes, notes);
  for (const std::string& note : notes) print_to_stderr("{}\n", note);
  print(session,
        {.document = plugin::device_classes_document(listed), .text = plugin::device_classes_text(listed)});
  print_to_stderr(
      "This is one node's part of the chart's values, for Kubernetes 1.36 and newer: the lists of all nodes "
      "belong into one, without the names that the device plugin advertises.\n");
  return ExitStatus::done;
}

}  // namespace

ExitStatus kubevirt_cr_verb(const Session& session, const KubevirtCrOptions& options) {
  const auto rules = resource_rules(session, options.naming);
  if (!rules) return complain(rules.error());
  if (!options.models.empty()) {
    const auto devices = entries_of(*rules, options.models);
    if (!devices) return complain(devices.error());
    const ExitStatus status = print_part(session, options.hyperconverged, *devices);
    if (status != ExitStatus::done) return status;
    if (!devices->mediated.empty())
      print_to_stderr(
          "A driver that makes vGPUs on virtual functions has these types below pciHostDevices: run `ferry "
          "kubevirt-cr` on a node that has one.\n");
    note_gates(*devices);
    return ExitStatus::done;
  }
  const auto claimable = plugin::claimable_resources(*session.host, *rules);
  if (!claimable) return complain(claimable.error());
  for (const auto& device : claimable->not_named)
    print_to_stderr("{} is left out: {}\n", device.id, device.reason);
  if (options.device_classes) return print_classes(session, claimable->classes);
  const auto resources = plugin::Scanner(*session.host, *rules, vgpu::scan_known_vgpus).scan();
  if (!resources) return complain(resources.error());
  for (const auto& device : resources->not_advertised)
    print_to_stderr("{} is left out: {}\n", device.id, device.reason);
  auto devices = plugin::permitted_host_devices(*session.host, *resources);
  if (!devices) return complain(devices.error());
  warn_of_other_names(*session.host, *devices, claimable->classes);
  add(devices->pci, claimable->permitted.pci);
  add(devices->mediated, claimable->permitted.mediated);
  if (devices->pci.empty() && devices->mediated.empty()) {
    if (!is_text(session.output)) (void)print_part(session, options.hyperconverged, *devices);
    return complain(nothing_to_permit(*resources));
  }
  const ExitStatus status = print_part(session, options.hyperconverged, *devices);
  if (status != ExitStatus::done) return status;
  fmt::print(stderr,
             "This is one node's part: the lists of all nodes belong into the one object of the cluster.\n"
             "`kubectl apply` or a merge patch of this alone would replace them, and\n"
             "remove the entries of other nodes and of other programs.\n");
  if (options.hyperconverged.empty())
    fmt::print(stderr,
               "`kubectl ferry kubevirt-cr --check FILE --patch` makes a patch that keeps them.\n"
               "VMs that ask under hostDevices need KubeVirt's feature gate HostDevices.\n");
  note_gates(*devices);
  return ExitStatus::done;
}

}  // namespace ferry::cli
