// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <sys/resource.h>

namespace ferry::test {

/// A soft limit of descriptors, until this goes. The hard one stays, so that whoever may raises it again.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t most) {
    if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) throw std::runtime_error("getrlimit");
    const rlimit few{.rlim_cur = most, .rlim_max = before_.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) throw std::runtime_error("setrlimit");
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  FewDescriptors(FewDescriptors&&) = delete;
  FewDescriptors& operator=(FewDescriptors&&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace ferry::test
