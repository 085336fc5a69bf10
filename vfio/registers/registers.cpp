// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/registers.h"

#include <cerrno>
#include <sys/mman.h>

namespace ferry::vfio {

Result<std::unique_ptr<MappedRegisters>> MappedRegisters::map(const UniqueFd& resource0, Access access) {
  const int pages = PROT_READ | (access == Access::write ? PROT_WRITE : 0);
  void* const at = ::mmap(nullptr, kRegisterBytes, pages, MAP_SHARED, resource0.get(), 0);
  if (at == MAP_FAILED) return fail(error_from_errno(errno, "map resource0"));
  return std::unique_ptr<MappedRegisters>(new MappedRegisters(static_cast<volatile std::uint32_t*>(at)));
}

MappedRegisters::~MappedRegisters() {
  ::munmap(const_cast<std::uint32_t*>(at_), kRegisterBytes);  // NOLINT(*-const-cast): munmap(2) reads nothing
}

}  // namespace ferry::vfio
