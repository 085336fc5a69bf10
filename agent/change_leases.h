// SPDX-License-Identifier: Apache-2.0
// Inside this room: the Leases that store a ChangeBudget. Pure.
//
//   ferry-change-0 … ferry-change-(N-1), label gpu-ferry.io/change-slot: "0" …
//     spec.holderIdentity               the Node that changes; absent: the slot is free
//     spec.renewTime                    last renewal, by that node's clock
//     gpu-ferry.io/configuration        configuration_id() of the change
//     gpu-ferry.io/policy               its name, for people
//   only on ferry-change-0
//     proven.gpu-ferry.io/ID: "gpu-3"
//     failed.gpu-ferry.io/ID: "gpu-7: why"
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "agent/change_budget.h"
#include "kube/api_path.h"

namespace ferry {

inline constexpr const char* kChangeSlotLabel = "gpu-ferry.io/change-slot";

/// A holder that does not renew its slot for this long, as other nodes observe it, has lost the slot. Clocks
/// of nodes differ and are not compared.
inline constexpr std::chrono::seconds kSlotLife{600};

ObjectRef change_lease(const std::string& space, std::size_t slot);
Selection change_leases(const std::string& space);

/// Absent: the Lease is not a rollout lease. The caller sets `silent`.
std::optional<ChangeSlot> change_slot_of(const nlohmann::json& lease);
/// Adds the verdicts of slot 0; other Leases have none.
void read_verdicts(const nlohmann::json& lease, Verdicts& out);
/// A text that changes with each write of the slot's holder.
std::string sign_of_life(const nlohmann::json& lease);

/// The holder to write into a slot, and the time of the write.
struct SlotHolder {
  std::string node;
  std::string configuration;
  std::string policy;  ///< empty: unchanged
  std::chrono::system_clock::time_point now;
};

/// A merge patch that gives the slot to the holder. `lease`: the present object; null: there is none.
nlohmann::json patch_to_take(const nlohmann::json& lease, const SlotHolder& holder);
/// A merge patch that frees the slot.
nlohmann::json patch_to_give_back();
/// A merge patch of slot 0 that writes a BudgetStep::verdict. At most kMostVerdicts of a kind are kept; the
/// patch removes others.
nlohmann::json patch_to_judge(const nlohmann::json& lease, const std::string& node,
                              const std::string& configuration, const std::string& verdict);
inline constexpr std::size_t kMostVerdicts = 32;

/// A merge patch with the changes of both; `other` wins where they differ.
nlohmann::json both(nlohmann::json patch, const nlohmann::json& other);

/// The object to create if the slot has no Lease yet.
nlohmann::json new_change_lease(const std::string& space, std::size_t slot, const nlohmann::json& patch);

}  // namespace ferry
