// SPDX-License-Identifier: Apache-2.0
// The same writes and nothing else: what applying is held against.
#pragma once

#include <chrono>
#include <vector>

#include "common/unique_fd.h"
#include "hostfs/host_writer.h"

namespace ferry::test {

/// One after the other, below "/", by this process. Throws at the first that fails.
void write_all(const std::vector<AttributeWrite>& writes);

/// A process that waits for an order and then carries it out, as our writing processes wait while we look and
/// plan: processors that have slept make the same writes more slowly than those that have just made others.
class BareWriter {
 public:
  /// To be made while there is one thread.
  explicit BareWriter(std::vector<AttributeWrite> writes);
  BareWriter(const BareWriter&) = delete;
  BareWriter& operator=(const BareWriter&) = delete;
  BareWriter(BareWriter&&) = delete;
  BareWriter& operator=(BareWriter&&) = delete;
  ~BareWriter();

  /// From the word to the answer.
  std::chrono::nanoseconds write_all();

 private:
  int pid_ = 0;
  UniqueFd line_;
};

}  // namespace ferry::test
