// SPDX-License-Identifier: Apache-2.0
#include "cli/output/status_document.h"

#include <nlohmann/json.hpp>

#include "api/sanitize_fields.h"
#include "cli/output/document.h"
#include "common/text/json.h"
#include "common/text/json_fields.h"
#include "mdev/framework.h"
#include "vfio/registers/register_fields.h"

namespace ferry::cli {
namespace {

using ferry::cli::to_json;
using nlohmann::json;

json to_json(const host::MemberDescription& member) {
  json out = to_json(member.function);
  out["what"] = member.what;
  return out;
}

json to_json(const vfio::Finding& finding) {
  const api::ReportedFinding reported = api::reported(finding);
  return {{"rule", reported.rule},
          {"about", reported.about.text()},
          {"answer", std::string(vfio::text(reported.answer))},
          {"blocks", reported.blocks},
          {"text", reported.text},
          {"advice", reported.advice}};
}

json to_json(const host::NamedDescription& description) {
  json out = to_json(description.function);
  out["what"] = vfio::kind_of(description.function);
  out["model"] = description.model.empty() ? description.function.ids() : description.model;
  out["advertised"] = json::array();
  for (const api::AdvertisedDevice& advertised : description.advertised_as)
    out["advertised"].push_back(to_json(advertised));
  out["not_advertised"] = or_null(description.not_advertised);
  out["findings"] = json::array();
  for (const vfio::Finding& finding : description.findings) out["findings"].push_back(to_json(finding));
  return out;
}

json to_json(const vfio::PriorState& prior) {
  return {{"driver", or_null(prior.driver)}, {"driver_override", or_null(prior.driver_override)}};
}

json to_json(const api::AcceleratorStatus& status) {
  return {{"mode", status.desired ? json(std::string(text(*status.desired))) : json(nullptr)},
          {"allocation", std::string(text(status.allocation))},
          {"state", std::string(text(status.state))},
          {"reason", status.reason},
          {"hint", status.hint}};
}

json to_json(const api::DesiredMark& desired) {
  return {
      {"policy", desired.policy}, {"source", desired.source}, {"generation", or_null(desired.generation)}};
}

template <typename T>
json list_of(const std::vector<T>& values) {
  json out = json::array();
  for (const T& value : values) out.push_back(to_json(value));
  return out;
}

}  // namespace

json to_json(const host::Condition& condition) {
  return {{"word", condition.word},
          {"health", std::string(text(condition.health))},
          {"reason", condition.reason},
          {"hint", condition.hint}};
}

json to_json(const api::AdvertisedDevice& advertised) {
  return {{"resource", advertised.resource}, {"id", advertised.id},
          {"healthy", advertised.healthy},   {"allocated", advertised.allocated},
          {"reason", advertised.reason},     {"pod", or_null(advertised.pod)}};
}

json to_json(const host::VgpuDescription& description) {
  return {{"id", description.device.id.text},      {"type", description.device.type_name},
          {"type_id", description.device.type_id}, {"parent", description.device.parent.text()},
          {"users", list_of(description.users)},   {"advertised", list_of(description.advertised_as)}};
}

json to_json(const host::AcceleratorDescription& description) {
  json entry = to_json(description.function);
  entry["model"] = description.model;
  entry["mode"] = std::string(text(description.mode));
  entry["condition"] = to_json(description.condition);
  entry["members"] = list_of(description.members);
  entry["group_viable"] = description.group_viable;
  entry["group_blockers"] = to_json(description.group_blockers);
  entry["movable"] = description.bindable;
  entry["movable_reasons"] = description.bindable_reasons;
  entry["not_viable"] = description.not_viable;
  entry["findings"] = list_of(description.findings);
  if (description.facts) entry["facts"] = to_json(*description.facts);
  entry["vgpu_framework"] = description.framework->name();
  entry["vgpus"] = list_of(description.vgpus);
  entry["users"] = list_of(description.users);
  entry["advertised"] = list_of(description.advertised_as);
  entry["not_advertised"] = or_null(description.not_advertised);
  entry["desired"] = description.status ? to_json(*description.status) : json(nullptr);
  entry["registers"] = nullptr;
  if (description.status && description.status->registers) {
    entry["registers"] = json(written_fields(description.status->registers->facts));
    entry["registers"]["read_at"] = description.status->registers->read_at;
  }
  entry["sanitize"] = nullptr;
  if (description.status && description.status->sanitize)
    entry["sanitize"] = json(written_fields(*description.status->sanitize));
  entry["before"] = description.prior ? to_json(*description.prior) : json(nullptr);
  entry["problem"] = description.function.problem ? to_json(*description.function.problem) : json(nullptr);
  return entry;
}

json to_json(const host::NodeDescription& description) {
  return {{"accelerators", list_of(description.accelerators)},
          {"by_name", list_of(description.by_name)},
          {"iommu", description.iommu},
          {"desired", description.desired ? to_json(*description.desired) : json(nullptr)},
          {"phase", description.phase ? json(std::string(text(*description.phase))) : json(nullptr)},
          {"hostd_runs", description.hostd_runs},
          {"unknown", description.unknown},
          {"notes", description.notes}};
}

}  // namespace ferry::cli
