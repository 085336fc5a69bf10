// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <sys/mman.h>

#include "common/unique_fd.h"

namespace ferry {

/// An empty file in memory. Never a program, since hosts may refuse any other (sysctl vm.memfd_noexec);
/// kernels before 6.3 do not know the word for that. Not valid: errno says why. ABI:
/// include/uapi/linux/memfd.h, MFD_NOEXEC_SEAL.
inline UniqueFd make_memory_file(const char* name) {
  constexpr unsigned kNeverAProgram = 0x0008;
  UniqueFd memory(::memfd_create(name, MFD_CLOEXEC | kNeverAProgram));
  if (!memory.valid() && errno == EINVAL) memory.reset(::memfd_create(name, MFD_CLOEXEC));
  return memory;
}

}  // namespace ferry
