// SPDX-License-Identifier: Apache-2.0
#include "kubectl/kubevirt_permits.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/output/table.h"
#include "cli/output/text_output.h"
#include "common/kubevirt_rules.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "dra/names.h"
#include "dra/slices/resource_slice.h"
#include "kubectl/agent_pod.h"
#include "kubectl/cluster_reader.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_name.h"
#include "policy/accelerators.h"

namespace ferry::kubectl {

using nlohmann::json;

const json& permitted_devices(const json& kubevirt) {
  return field_at(kubevirt, {"spec", "configuration", "permittedHostDevices"});
}

std::optional<std::map<std::string, bool>> permitted_by(const json& kubevirt) {
  const json& permitted = permitted_devices(kubevirt);
  if (!permitted.is_object()) return std::nullopt;
  std::map<std::string, bool> out;
  for (const char* const list : {"pciHostDevices", "mediatedDevices"})
    for (const json& entry : items_field(permitted, list)) {
      bool& by_others = out[text_field(entry, "resourceName")];
      by_others = by_others || flag_field(entry, "externalResourceProvider");
    }
  return out;
}

bool removes_vgpus(const json& kubevirt) {
  const json& enabled =
      field_at(kubevirt, {"spec", "configuration", "mediatedDevicesConfiguration", "enabled"});
  return enabled.is_boolean() ? enabled.get<bool>()
                              : !has_gate(kubevirt, "featureGates", "DisableMDEVConfiguration");
}

std::string unlisted_vgpus(const json& kubevirt, std::string_view resource) {
  if (permitted_by(kubevirt) || !removes_vgpus(kubevirt) || mode_by_name(resource) != policy::Mode::vgpu)
    return {};
  return fmt::format(
      "it permits everything, but removes {} where these vGPUs are mediated devices, since nothing lists "
      "them",
      resource);
}

bool has_gate(const json& kubevirt, std::string_view list, std::string_view gate) {
  const auto& gates =
      items_field(field_at(kubevirt, {"spec", "configuration", "developerConfiguration"}), list);
  return std::ranges::find(gates, json(gate)) != gates.end();
}

std::optional<bool> is_1_9_or_newer(const json& kubevirt) {
  std::string version = text_field(json_at(kubevirt, "status"), "observedKubeVirtVersion");
  if (version.starts_with('v')) version.erase(0, 1);
  const auto dot = version.find('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto first = whole_number(std::string_view(version).substr(0, dot));
  const std::string_view rest = std::string_view(version).substr(dot + 1);
  const auto second = number_at_start(rest);
  if (!first || !second) return std::nullopt;
  return *first > 1 || (*first == 1 && *second >= 9);
}

std::vector<PermittedResource> permitted_resources(const ClusterGpus& cluster, const json& kubevirt) {
  const auto permitted = permitted_by(kubevirt);
  std::map<std::string, PermittedResource> found;
  for (const ClusterNode& node : cluster.nodes) {
    for (const auto& [name, resource] : node.resources) {
      // A container's GPU needs no entry, nor does a resource that no plugin serves any more.
      if (resource.capacity == 0 || mode_by_name(name) == policy::Mode::host) continue;
      PermittedResource& one = found[name];
      one.name = name;
      one.nodes.push_back(node.name);
    }
  }
  std::vector<PermittedResource> out;
  for (auto& [name, one] : found) {
    if (!permitted) {
      one.listed = one.by_others = true;
    } else if (const auto entry = permitted->find(name); entry != permitted->end()) {
      one.listed = true;
      one.by_others = entry->second;
    }
    out.push_back(std::move(one));
  }
  return out;
}

json permitted_document(const std::vector<PermittedResource>& resources) {
  auto list = json::array();
  for (const PermittedResource& one : resources)
    list.push_back({{"name", one.name},
                    {"nodes", one.nodes},
                    {"listed", one.listed},
                    {"external_resource_provider", one.by_others},
                    {"permitted", one.permitted()}});
  return {{"resources", std::move(list)}};
}

std::string permitted_text(const std::vector<PermittedResource>& resources, const json& kubevirt,
                           std::optional<std::size_t> columns) {
  if (resources.empty()) return "no node advertises GPUs to VMs\n";
  cli::Table table({"RESOURCE", "KUBEVIRT", "NODES"});
  for (const PermittedResource& one : resources)
    table.add({one.name,
               one.permitted() ? "permitted"
               : one.listed    ? "externalResourceProvider is missing"
                               : "not listed",
               fmt::format("{}", fmt::join(one.nodes, ", "))});
  std::string out = table.text(columns);
  const auto unlisted = std::ranges::find_if(
      resources, [&](const auto& one) { return !unlisted_vgpus(kubevirt, one.name).empty(); });
  if (unlisted != resources.end())
    out += cli::wrapped_lines("note: KubeVirt: " + unlisted_vgpus(kubevirt, unlisted->name), columns) +
           cli::wrapped_lines(fmt::format("hint: {}", kUnlistedVgpusCure), columns);
  const auto missing = std::ranges::find_if_not(resources, &PermittedResource::permitted);
  if (missing == resources.end()) return out;
  out += cli::wrapped_lines(
      "VMs can ask only for resources that the KubeVirt object lists with externalResourceProvider: true",
      columns);
  const json& metadata = json_at(kubevirt, "metadata");
  out += cli::wrapped_lines(
      fmt::format(
          "hint: in Ferry's pod on node {} `ferry --host-root=/host kubevirt-cr` prints the entries with "
          "their selectors; add them with `kubectl edit kubevirt -n {} {}`, or by the patch of "
          "`kubectl ferry kubevirt-cr --check FILE --patch`, which keeps all other entries",
          missing->nodes.front(), text_field(metadata, "namespace"), text_field(metadata, "name")),
      columns);
  return out;
}

namespace {

/// The options for names of the plugin that a pod runs. Absent: it runs none, or one with wrong options.
std::optional<plugin::NameRules> names_in(const json& pod) {
  for (const json& container : items_field(json_at(pod, "spec"), "containers")) {
    if (ferry_verb_in(container) != "plugin") continue;
    plugin::NameRules out;
    std::vector<std::string> aliases;
    CLI::App app;
    app.allow_extras();
    app.add_option("--alias", aliases)->allow_extra_args(false);
    app.add_option("--name-template", out.functions);
    app.add_option("--vgpu-name-template", out.vgpus);
    std::vector<std::string> words;
    for (const json& word : items_field(container, "args"))
      if (word.is_string()) words.push_back(word.get<std::string>());
    std::ranges::reverse(words);
    try {
      app.parse(words);
    } catch (const CLI::Error&) {
      return std::nullopt;  // such a plugin does not start either
    }
    for (const std::string& text : aliases)
      if (auto alias = plugin::parse_alias(text)) out.aliases.insert(std::move(*alias));
    return out;
  }
  return std::nullopt;
}

std::string attribute(const json& device, const char* name) {
  return text_field(field_at(device, {"attributes", name}), "string");
}

/// "0x10de" without its beginning.
std::string hex_of(const json& device, const char* name) {
  const std::string text = attribute(device, name);
  return text.starts_with("0x") ? text.substr(2) : text;
}

/// `unknown` gets the reason if the slice does not have all that the node's plugin makes the name from.
plugin::ResourceClass class_of(const json& device, const plugin::NameRules& names, std::string& unknown) {
  if (attribute(device, dra::kType) == dra::kVgpu)
    return {"vgpuType", attribute(device, "vgpuType"),
            fmt::format("{}/{}", policy::kResourceDomain, names.vgpu_part(attribute(device, "profile")))};
  const std::string vendor = hex_of(device, "vendorID");
  const std::string ids = fmt::format("{}:{}", vendor, hex_of(device, "deviceID"));
  const std::string product = attribute(device, "productName");
  std::string domain;
  for (const policy::NamedVendor& one : policy::named_vendors())
    if (fmt::format("{:04x}", one.id) == vendor) domain = fmt::format("{}.com", one.name);
  if (domain.empty()) {
    unknown = fmt::format("only the pci.ids of the node names the vendor {}", vendor);
    return {"model", ids, {}};
  }
  const auto name_for = [&](const std::string& human) {
    const auto name = names.function_name(domain, ids, human);
    return name ? name->text() : fmt::format("{}/{}", domain, names.function_part(ids, human));
  };
  const std::string name = name_for(product);
  // A character of UTF-8 that does not fit is left out whole.
  if (product.size() + 3 >= dra::kLongestText && name_for(product + "x") != name)
    unknown = "its product's name may have more characters than a ResourceSlice holds";
  return {"model", ids, name};
}

}  // namespace

PublishedClasses published_classes(const std::vector<json>& slices, const std::vector<json>& plugins) {
  std::map<std::string, plugin::NameRules> names;  // by node
  plugin::NameRules first;
  for (const json& pod : plugins)
    if (auto rules = names_in(pod)) {
      if (names.empty()) first = *rules;
      names.insert_or_assign(text_field(json_at(pod, "spec"), "nodeName"), std::move(*rules));
    }
  std::set<plugin::ResourceClass> classes;
  std::set<std::string> notes;
  for (const json& slice : slices) {
    const json& spec = json_at(slice, "spec");
    const auto of_node = names.find(text_field(spec, "nodeName"));
    for (const json& device : items_field(spec, "devices")) {
      // A virtual function that a VM gets whole has a claim, and no name of a resource.
      if (attribute(device, "vgpuType").find(':') != std::string::npos) continue;
      std::string unknown;
      auto one = class_of(device, of_node == names.end() ? first : of_node->second, unknown);
      if (!unknown.empty())
        notes.insert(fmt::format("{} is left out: {}; on node {} `ferry kubevirt-cr --device-classes` has it",
                                 one.value, unknown, text_field(spec, "nodeName")));
      else if (one.value.empty())
        notes.insert(fmt::format("a type of vGPUs without a short name is left out: {}", one.resource));
      else if (const auto name = plugin::ResourceName::parse(one.resource); !name)
        notes.insert(fmt::format("{} is left out: {}", one.value, name.error().message));
      else
        classes.insert(std::move(one));
    }
  }
  PublishedClasses out{.classes = {}, .notes = {notes.begin(), notes.end()}};
  out.classes = plugin::with_one_class_a_name({classes.begin(), classes.end()}, out.notes);
  return out;
}

namespace {

/// Describes one of the two lists of permittedHostDevices.
struct ListKind {
  const char* key;
  const char* selector;
};
constexpr ListKind kPci{.key = "pciHostDevices", .selector = "pciVendorSelector"};
constexpr ListKind kMediated{.key = "mediatedDevices", .selector = "mdevNameSelector"};

struct Entry {
  std::string selector;  ///< as KubeVirt compares it
  std::string resource;
  bool external = false;  ///< KubeVirt leaves it to others to offer it
};

tl::unexpected<Error> wrong(std::string_view key, std::string_view what) {
  return fail(Errc::malformed_host, fmt::format("{}: {}", key, what));
}

Result<std::string> text_in(const json& entry, const char* key, const std::string& place) {
  const json& value = json_at(entry, key);
  if (!value.is_string()) return wrong(place + "." + key, "is not a text");
  return value.get<std::string>();
}

Result<std::vector<Entry>> entries(const json& kubevirt, const ListKind& kind) {
  std::vector<Entry> out;
  const json& list = json_at(permitted_devices(kubevirt), kind.key);
  if (list.is_null()) return out;
  const std::string path = fmt::format("spec.configuration.permittedHostDevices.{}", kind.key);
  if (!list.is_array()) return wrong(path, "is not a list");
  const bool is_pci = std::string_view(kind.key) == kPci.key;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const json& entry = list[at];
    const std::string place = fmt::format("{}[{}]", path, at);
    auto selector = text_in(entry, kind.selector, place);
    if (!selector) return fail(std::move(selector).error());
    // PCI IDs in lower case; names of types with underscores, since KubeVirt takes either.
    std::ranges::transform(*selector, selector->begin(), [is_pci](unsigned char c) {
      if (is_pci) return static_cast<char>(std::tolower(c));
      return c == ' ' ? '_' : static_cast<char>(c);
    });
    auto resource = text_in(entry, "resourceName", place);
    if (!resource) return fail(std::move(resource).error());
    const json& external = json_at(entry, "externalResourceProvider");
    if (!external.is_null() && !external.is_boolean())
      return wrong(place + ".externalResourceProvider", "is neither true nor false");
    out.push_back({.selector = std::move(*selector),
                   .resource = std::move(*resource),
                   .external = external == json(true)});
  }
  return out;
}

/// The field manager that applies the list from a file, and so undoes changes of it: by server-side apply, or
/// by `kubectl apply` on the client's side, which the API server records as an update of that name. Empty:
/// none.
std::string applier_of(const json& kubevirt, const ListKind& kind) {
  for (const json& manager : items_field(json_at(kubevirt, "metadata"), "managedFields")) {
    const json& fields =
        field_at(manager, {"fieldsV1", "f:spec", "f:configuration", "f:permittedHostDevices"});
    std::string name = text_at(manager, "manager");
    if (json_at(fields, fmt::format("f:{}", kind.key)).is_null() || name.empty() || name == "ferry") continue;
    if (text_at(manager, "operation") == "Apply" || name == "kubectl-client-side-apply") return name;
  }
  return {};
}

/// Changes one list: adds to `theirs` the entries that it lacks of `ours`.
class ListChange {
 public:
  ListChange(const ListKind& kind, std::vector<Entry> theirs, const json& kubevirt, PermitChange& change)
      : kind_(kind), theirs_(std::move(theirs)), applier_(applier_of(kubevirt, kind)), change_(change) {
    const json& list = json_at(permitted_devices(kubevirt), kind.key);
    list_ = list.is_null() ? json::array() : list;
  }

  void add(const Entry& own, const json& as_written) {
    const std::string said = as_written.value(kind_.selector, "");
    bool there = false;
    for (std::size_t at = 0; at < theirs_.size(); ++at) {
      const Entry& entry = theirs_[at];
      if (entry.selector != own.selector) continue;
      const bool same = entry.resource == own.resource;
      there = there || same;
      if (entry.external) continue;
      if (!same) {
        change_.by_hand.push_back(
            fmt::format("KubeVirt itself offers {} as {}, in addition to {}: give that entry "
                        "externalResourceProvider: true, or remove it",
                        said, entry.resource, own.resource));
      } else if (lack(fmt::format("{} ({}) is offered by KubeVirt too: its entry lacks "
                                  "externalResourceProvider: true",
                                  own.resource, said))) {
        list_[at]["externalResourceProvider"] = true;
      }
    }
    if (there) return;
    if (lack(fmt::format("{} ({}) is not permitted", own.resource, said))) list_.push_back(as_written);
  }

  void finish() {
    if (changed_) change_.patch["spec"]["configuration"]["permittedHostDevices"][kind_.key] = list_;
  }

 private:
  /// Records that an entry is missing. True if Ferry may add it.
  bool lack(const std::string& what) {
    if (applier_.empty()) {
      change_.lacks.push_back(what);
      changed_ = true;
      return true;
    }
    change_.by_hand.push_back(fmt::format(
        "{}; the field manager {} applies {}: change it where that has it from, or it is put back", what,
        applier_, kind_.key));
    return false;
  }

  const ListKind& kind_;
  const std::vector<Entry> theirs_;
  const std::string applier_;
  PermitChange& change_;
  json list_;
  bool changed_ = false;
};

/// KubeVirt takes the last selector of a resource name for the name's only model.
void keep_grace_apart(const std::vector<Entry>& own, const std::vector<Entry>& theirs, PermitChange& change) {
  std::map<std::string, std::string> grace;
  for (const Entry& entry : own)
    if (is_grace_gpu(entry.selector)) grace.emplace(entry.resource, entry.selector);
  for (const auto* const list : {&own, &theirs}) {
    for (const Entry& entry : *list) {
      const auto found = grace.find(entry.resource);
      if (found == grace.end() || is_grace_gpu(entry.selector)) continue;
      change.by_hand.push_back(
          fmt::format("{} is the name of a Grace GPU ({}) and of {}: KubeVirt may refuse every VM that asks "
                      "for it; give the Grace GPU a name of its own with `ferry plugin --alias {}=NAME`",
                      entry.resource, found->second, entry.selector, found->second));
      grace.erase(found);  // once for each name
    }
  }
}

/// A vGPU type may be a mediated device on one node and a virtual function on another.
void report_two_kinds(const std::vector<Entry>& pci, const std::vector<Entry>& mediated,
                      const std::set<std::string>& offered_here, PermitChange& change) {
  for (const std::string& name : offered_here) {
    if (std::ranges::find(pci, name, &Entry::resource) == pci.end() ||
        std::ranges::find(mediated, name, &Entry::resource) == mediated.end())
      continue;
    change.notes.push_back(
        fmt::format("{} is a PCI function on some nodes and a mediated device on others: {}; {}", name,
                    kOneNameForTwoKinds, kOneNameForTwoKindsCure));
  }
}

void add_grace_gates(const std::vector<Entry>& own, const json& kubevirt, PermitChange& change) {
  const auto found =
      std::ranges::find_if(own, [](const Entry& entry) { return is_grace_gpu(entry.selector); });
  // The webhook of KubeVirt 1.9 is the first to know Grace GPUs.
  if (found == own.end() || !is_1_9_or_newer(kubevirt).value_or(true)) return;
  std::vector<std::string> missing;
  for (const char* const gate : kGraceGates)
    if (!has_gate(kubevirt, "featureGates", gate)) missing.emplace_back(gate);
  if (!missing.empty())
    change.by_hand.push_back(
        fmt::format("from KubeVirt 1.9 on a VM with {} starts only with the feature gates {}: add them to "
                    "spec.configuration.developerConfiguration.featureGates",
                    found->resource, fmt::join(missing, ", ")));
  change.notes.push_back(fmt::format("a VM with {} needs {}", found->resource, kGraceVm));
}

}  // namespace

Result<PermitChange> permit_change(const json& kubevirt, const json& ours) {
  PermitChange change;
  std::set<std::string> offered_here;
  std::map<std::string_view, std::vector<Entry>>
      all;  // by list, what is permitted and what is advertised here
  for (const ListKind& kind : {kPci, kMediated}) {
    auto theirs = entries(kubevirt, kind);
    if (!theirs) return fail(std::move(theirs).error());
    const auto own = entries(ours, kind);
    if (!own) return fail(Error(own.error()).during("what this node offers"));
    auto& entries_of_kind = all[kind.key];
    std::ranges::copy(*theirs, std::back_inserter(entries_of_kind));
    std::ranges::copy(*own, std::back_inserter(entries_of_kind));
    for (const Entry& entry : *own) offered_here.insert(entry.resource);
    if (std::string_view(kind.key) == kPci.key) {
      keep_grace_apart(*own, *theirs, change);
      add_grace_gates(*own, kubevirt, change);
    }
    if (permitted_devices(kubevirt).is_null()) continue;
    ListChange list(kind, std::move(*theirs), kubevirt, change);
    for (std::size_t at = 0; at < own->size(); ++at)
      list.add((*own)[at], json_at(permitted_devices(ours), kind.key)[at]);
    list.finish();
  }
  report_two_kinds(all[kPci.key], all[kMediated.key], offered_here, change);
  const bool has_vgpus = !entries(ours, kMediated)->empty();
  if (permitted_devices(kubevirt).is_null()) {
    change.notes.emplace_back("without permittedHostDevices every resource is permitted");
    if (has_vgpus && removes_vgpus(kubevirt)) {
      change.by_hand.push_back(fmt::format(
          "KubeVirt removes this node's mediated vGPUs, since nothing lists them: {}", kUnlistedVgpusCure));
    }
  }
  const json& desired = field_at(kubevirt, {"spec", "configuration", "mediatedDevicesConfiguration"});
  const bool has_types = std::ranges::any_of(
      std::array{"mediatedDeviceTypes", "mediatedDevicesTypes", "nodeMediatedDeviceTypes"},
      [&desired](const char* key) { return !json_at(desired, key).empty(); });
  if (has_vgpus && has_types && removes_vgpus(kubevirt)) {
    change.by_hand.emplace_back(
        "KubeVirt makes mediated vGPUs itself (mediatedDevicesConfiguration): remove its types, or set "
        "enabled: false");
  }
  if (!has_gate(kubevirt, "featureGates", "HostDevices"))
    change.notes.emplace_back(
        "VMs that ask under hostDevices need the feature gate HostDevices; under gpus they need none");
  return change;
}

std::string change_text(const std::string& name, const PermitChange& change) {
  std::string out = fmt::format(
      "KubeVirt {}: {}\n", name,
      change.fits() ? "permits what this node offers" : "does not permit all that this node offers");
  for (const std::string& text : change.lacks) out += fmt::format("  {}\n", text);
  for (const std::string& text : change.by_hand) out += fmt::format("  by hand: {}\n", text);
  for (const std::string& text : change.notes) out += fmt::format("  note: {}\n", text);
  return out;
}

Result<json> read_offered(const std::string& file) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file);
    if (!opened) return fail(error_from_errno(errno, "read " + file));
  }
  std::istream& in = file == "-" ? std::cin : opened;
  json offered = json::parse(in, nullptr, false);
  if (permitted_devices(offered).is_object()) return offered;
  return fail(Errc::usage, fmt::format("{} is not what `ferry kubevirt-cr -o json` prints",
                                       file == "-" ? "standard input" : file));
}

}  // namespace ferry::kubectl
