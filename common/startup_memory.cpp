// SPDX-License-Identifier: Apache-2.0
#include "common/startup_memory.h"

#include <cstdint>
#include <cstring>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ferry {
namespace {

// Read-only segments are as on disk: relocations change only writable ones.
int drop_segments(dl_phdr_info* object, std::size_t /*size*/, void* /*nothing*/) {
  if (std::strncmp(object->dlpi_name, "linux-vdso", 10) == 0) return 0;  // the kernel's, not from disk
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const std::uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) / page * page;
    const std::uintptr_t end = object->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses are what the loader gives
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 0;
}

}  // namespace

void drop_startup_memory() {
  ::malloc_trim(0);
  ::dl_iterate_phdr(drop_segments, nullptr);
}

}  // namespace ferry
