// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace ferry::test {

/// Runs `job` in a child and kills it right before the system call number `change` (from 1) with which it
/// would change something in the file system. False: it came to its end before.
bool killed_at(unsigned change, const std::function<void()>& job);

}  // namespace ferry::test
