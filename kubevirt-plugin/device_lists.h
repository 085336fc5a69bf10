// SPDX-License-Identifier: Apache-2.0
// The lists for the kubelet, made from an AllocationBook by pure functions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kubevirt-plugin/allocation_book.h"
#include "kubevirt-plugin/snapshot.h"

namespace ferry {

struct NextLists {
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<bool> to_send;  ///< by resource: the kubelet would notice a difference to the list before
};

/// The next lists after `before`; absent: nothing has changed. `stale` is the result of
/// AllocationBook::take_stale(): other shelves keep their lists.
std::optional<NextLists> next_lists(const AllocationBook& book, const std::vector<bool>& stale,
                                    const Snapshot& before);

}  // namespace ferry
