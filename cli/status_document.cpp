// SPDX-License-Identifier: Apache-2.0
#include "cli/status_document.h"

#include <nlohmann/json.hpp>

#include "cli/document.h"
#include "cli/facts_document.h"

namespace ferry {
namespace {

using nlohmann::json;

json or_null(const std::string& text) {
  return text.empty() ? json(nullptr) : json(text);
}

json to_json(const MemberView& member) {
  json out = to_json(member.function);
  out["what"] = member.what;
  return out;
}

json to_json(const NamedView& view) {
  json out = to_json(view.function);
  out["what"] = kind_of(view.function);
  out["model"] = view.model.empty() ? view.function.ids() : view.model;
  out["offers"] = json::array();
  for (const OfferedAs& offer : view.offers) out["offers"].push_back(to_json(offer));
  out["not_offered"] = or_null(view.not_offered);
  return out;
}

json to_json(const PriorState& prior) {
  return {{"driver", prior.driver ? json(*prior.driver) : json(nullptr)},
          {"driver_override", prior.driver_override ? json(*prior.driver_override) : json(nullptr)}};
}

json wish_of(const AcceleratorState& wish) {
  return {{"mode", wish.wanted ? json(std::string(text(*wish.wanted))) : json(nullptr)},
          {"state", std::string(text(wish.state))},
          {"reason", wish.reason},
          {"hint", wish.hint}};
}

json to_json(const WantedMark& wanted) {
  return {{"policy", wanted.policy},
          {"asked_by", wanted.asked_by},
          {"generation", wanted.generation ? json(*wanted.generation) : json(nullptr)}};
}

template <typename T>
json list_of(const std::vector<T>& values) {
  json out = json::array();
  for (const T& value : values) out.push_back(to_json(value));
  return out;
}

}  // namespace

json to_json(const Condition& condition) {
  return {{"word", condition.word},
          {"health", std::string(text(condition.health))},
          {"reason", condition.reason},
          {"hint", condition.hint}};
}

json to_json(const OfferedAs& offer) {
  return {{"resource", offer.resource},   {"id", offer.id},         {"healthy", offer.healthy},
          {"allocated", offer.allocated}, {"reason", offer.reason}, {"pod", or_null(offer.pod)}};
}

json to_json(const VgpuPicture& view) {
  return {{"id", view.device.id.text},        {"type", view.device.type_name},
          {"type_id", view.device.type_id},   {"parent", view.device.parent.text()},
          {"holders", list_of(view.holders)}, {"offers", list_of(view.offers)}};
}

json to_json(const AcceleratorView& view) {
  json entry = to_json(view.function);
  entry["model"] = view.model;
  entry["mode"] = std::string(text(view.mode));
  entry["condition"] = to_json(view.condition);
  entry["members"] = list_of(view.members);
  entry["group_viable"] = view.group_viable;
  entry["group_blockers"] = to_json(view.group_blockers);
  entry["movable"] = view.movable;
  entry["movable_reasons"] = view.movable_reasons;
  if (view.facts) entry["facts"] = to_json(*view.facts);
  entry["vgpu_framework"] =
      view.framework == VgpuFramework::none ? "none" : std::string(text(view.framework));
  entry["vgpus"] = list_of(view.vgpus);
  entry["holders"] = list_of(view.holders);
  entry["offers"] = list_of(view.offers);
  entry["not_offered"] = or_null(view.not_offered);
  entry["wanted"] = view.wish ? wish_of(*view.wish) : json(nullptr);
  entry["before"] = view.prior ? to_json(*view.prior) : json(nullptr);
  entry["problem"] = view.function.problem ? to_json(*view.function.problem) : json(nullptr);
  return entry;
}

json to_json(const NodePicture& view) {
  return {{"accelerators", list_of(view.accelerators)},
          {"by_name", list_of(view.by_name)},
          {"iommu", view.iommu},
          {"wanted", view.wanted ? to_json(*view.wanted) : json(nullptr)},
          {"phase", view.phase ? json(std::string(text(*view.phase))) : json(nullptr)},
          {"hostd_runs", view.hostd_runs},
          {"unknown", view.unknown},
          {"notes", view.notes}};
}

}  // namespace ferry
