// SPDX-License-Identifier: Apache-2.0
// Inside this room: the Leases that a ChangeBudget lies in. Pure.
//
//   ferry-change-0 … ferry-change-(N-1), label gpu-ferry.io/change-slot: "0" …
//     spec.holderIdentity               the Node that changes; absent: none
//     spec.renewTime                    when it last said so, by its own clock
//     gpu-ferry.io/configuration        to what: configuration_id()
//     gpu-ferry.io/policy               what people call that
//   and on ferry-change-0 alone
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

/// Whoever has not written to its slot for so long, as others have seen it, has lost it. Clocks of nodes
/// differ, and are not compared.
inline constexpr std::chrono::seconds kSlotLife{600};

ObjectRef change_lease(const std::string& space, std::size_t slot);
Selection change_leases(const std::string& space);

/// Absent: no slot of ours. `silent` is the caller's to say.
std::optional<ChangeSlot> change_slot_of(const nlohmann::json& lease);
/// Adds what slot 0 has.
void read_verdicts(const nlohmann::json& lease, Verdicts& out);
/// Another text whenever its holder has written to it.
std::string sign_of_life(const nlohmann::json& lease);

/// Whose it is to be, and since when it says so.
struct SlotHolder {
  std::string node;
  std::string configuration;
  std::string policy;  ///< empty: as it is
  std::chrono::system_clock::time_point now;
};

/// A merge patch that makes the slot the holder's. `lease`: as it is; null: there is none.
nlohmann::json patch_to_take(const nlohmann::json& lease, const SlotHolder& holder);
/// A merge patch that makes it nobody's.
nlohmann::json patch_to_give_back();
/// A merge patch of slot 0 for what BudgetStep::verdict says. Verdicts are not kept for ever: of more than
/// kMostVerdicts of a kind some go.
nlohmann::json patch_to_judge(const nlohmann::json& lease, const std::string& node,
                              const std::string& configuration, const std::string& verdict);
inline constexpr std::size_t kMostVerdicts = 32;

/// A merge patch that does what both do.
nlohmann::json both(nlohmann::json patch, const nlohmann::json& other);

/// The whole object that a patch makes of nothing.
nlohmann::json new_change_lease(const std::string& space, std::size_t slot, const nlohmann::json& patch);

}  // namespace ferry
