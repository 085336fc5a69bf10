// SPDX-License-Identifier: Apache-2.0
#include "cli/output/status_document.h"

#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "mdev/framework.h"

namespace ferry::cli {
namespace {

using ferry::cli::to_json;
using nlohmann::json;

json or_null(const std::string& text) {
  return text.empty() ? json(nullptr) : json(text);
}

json to_json(const host::MemberDescription& member) {
  json out = to_json(member.function);
  out["what"] = member.what;
  return out;
}

json to_json(const host::NamedDescription& view) {
  json out = to_json(view.function);
  out["what"] = vfio::kind_of(view.function);
  out["model"] = view.model.empty() ? view.function.ids() : view.model;
  out["advertised"] = json::array();
  for (const host::AdvertisedAs& offer : view.advertised_as) out["advertised"].push_back(to_json(offer));
  out["not_advertised"] = or_null(view.not_advertised);
  return out;
}

json to_json(const vfio::PriorState& prior) {
  return {{"driver", prior.driver ? json(*prior.driver) : json(nullptr)},
          {"driver_override", prior.driver_override ? json(*prior.driver_override) : json(nullptr)}};
}

json status_of(const api::AcceleratorStatus& status) {
  return {{"mode", status.desired ? json(std::string(text(*status.desired))) : json(nullptr)},
          {"allocation", std::string(text(status.allocation))},
          {"state", std::string(text(status.state))},
          {"reason", status.reason},
          {"hint", status.hint}};
}

json to_json(const api::DesiredMark& desired) {
  return {{"policy", desired.policy},
          {"source", desired.source},
          {"generation", desired.generation ? json(*desired.generation) : json(nullptr)}};
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

json to_json(const host::AdvertisedAs& offer) {
  return {{"resource", offer.resource},   {"id", offer.id},         {"healthy", offer.healthy},
          {"allocated", offer.allocated}, {"reason", offer.reason}, {"pod", or_null(offer.pod)}};
}

json to_json(const host::VgpuDescription& view) {
  return {{"id", view.device.id.text},      {"type", view.device.type_name},
          {"type_id", view.device.type_id}, {"parent", view.device.parent.text()},
          {"users", list_of(view.users)},   {"advertised", list_of(view.advertised_as)}};
}

json to_json(const host::AcceleratorDescription& view) {
  json entry = to_json(view.function);
  entry["model"] = view.model;
  entry["mode"] = std::string(text(view.mode));
  entry["condition"] = to_json(view.condition);
  entry["members"] = list_of(view.members);
  entry["group_viable"] = view.group_viable;
  entry["group_blockers"] = to_json(view.group_blockers);
  entry["movable"] = view.movable;
  entry["movable_reasons"] = view.movable_reasons;
  entry["not_viable"] = view.not_viable;
  if (view.facts) entry["facts"] = to_json(*view.facts);
  entry["vgpu_framework"] = view.framework->name();
  entry["vgpus"] = list_of(view.vgpus);
  entry["users"] = list_of(view.users);
  entry["advertised"] = list_of(view.advertised_as);
  entry["not_advertised"] = or_null(view.not_advertised);
  entry["desired"] = view.status ? status_of(*view.status) : json(nullptr);
  entry["before"] = view.prior ? to_json(*view.prior) : json(nullptr);
  entry["problem"] = view.function.problem ? to_json(*view.function.problem) : json(nullptr);
  return entry;
}

json to_json(const host::NodeDescription& view) {
  return {{"accelerators", list_of(view.accelerators)},
          {"by_name", list_of(view.by_name)},
          {"iommu", view.iommu},
          {"desired", view.desired ? to_json(*view.desired) : json(nullptr)},
          {"phase", view.phase ? json(std::string(text(*view.phase))) : json(nullptr)},
          {"hostd_runs", view.hostd_runs},
          {"unknown", view.unknown},
          {"notes", view.notes}};
}

}  // namespace ferry::cli
