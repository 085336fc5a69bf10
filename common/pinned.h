// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// The base of classes that can be neither copied nor moved, since others have their address.
class Pinned {
 public:
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  Pinned(Pinned&&) = delete;
  Pinned& operator=(Pinned&&) = delete;

 protected:
  Pinned() = default;
  ~Pinned() = default;
};

}  // namespace ferry
