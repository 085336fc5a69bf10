// SPDX-License-Identifier: Apache-2.0
// What the kubelet is told of an AllocationBook: pure.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kubevirt-plugin/allocation_book.h"
#include "kubevirt-plugin/snapshot.h"

namespace ferry {

struct NextLists {
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<bool> to_send;  ///< of each resource: whether the kubelet can tell its list from the one before
};

/// What there is to tell after `before`; absent: nothing. `stale` (AllocationBook::take_stale()): the lists
/// of other shelves are those of `before`.
std::optional<NextLists> next_lists(const AllocationBook& book, const std::vector<bool>& stale,
                                    const Snapshot& before);

}  // namespace ferry
