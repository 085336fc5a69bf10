// SPDX-License-Identifier: Apache-2.0
// Plans the requests that make the published ResourceSlices of a node the desired ones: a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dra/slices/resource_slice.h"

namespace ferry::dra {

/// A slice of Ferry's driver and this node, as the API server has it.
struct StoredSlice {
  std::string name;
  std::string uid;
  std::string version;                      ///< resourceVersion
  std::optional<ResourceSlice> slice = {};  ///< absent: the object cannot be read, and is removed
};

struct SliceRequest {
  enum class Action { create, update, remove };
  Action action = Action::create;
  std::string name = {};     ///< of the stored slice; empty with Action::create
  std::string uid = {};      ///< as `name`
  std::string version = {};  ///< as `name`: the object is updated in this state alone
  ResourceSlice slice = {};  ///< its content afterwards; empty with Action::remove
};

struct SlicePlan {
  std::uint64_t generation = 0;  ///< of the pool afterwards
  /// They are sent in this order, each after the success of the one before it. Empty: the API server
  /// has the desired slices already.
  ///
  /// Either all slices get a higher generation, and the scheduler allocates nothing from the pool until the
  /// last one is written; former slices are removed after that. Or the generation stays, since counters and
  /// devices stay, and slices with additional taints are written first.
  std::vector<SliceRequest> requests = {};
};

/// `desired`: as slices_of() has them, one at least; their generation is not read. `last`: the last
/// generation that this process sent or found; 0: none. A slice that exists is updated in place, since
/// schedulers read slices in order of their names. A desired slice without the UID of its Node keeps the
/// stored one.
SlicePlan plan_slices(std::vector<StoredSlice> stored, std::vector<ResourceSlice> desired,
                      std::uint64_t last = 0);

/// True: the server has stored all that was sent. It sets the times of new taints.
bool is_stored_as_sent(const ResourceSlice& stored, const ResourceSlice& sent);

}  // namespace ferry::dra
