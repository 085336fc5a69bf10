// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <sys/mman.h>

#include "common/unique_fd.h"

namespace ferry {

/// An empty file in memory, never executable, since hosts may refuse executable ones (sysctl
/// vm.memfd_noexec); kernels before 6.3 lack the flag. Not valid: errno says why. ABI:
/// include/uapi/linux/memfd.h, MFD_NOEXEC_SEAL.
inline UniqueFd make_memory_file(const char* name) {
  constexpr unsigned kNeverAProgram = 0x0008;
  UniqueFd memory(::memfd_create(name, MFD_CLOEXEC | kNeverAProgram));
  if (!memory.valid() && errno == EINVAL) memory.reset(::memfd_create(name, MFD_CLOEXEC));
  return memory;
}

}  // namespace ferry
