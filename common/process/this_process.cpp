// SPDX-License-Identifier: Apache-2.0
#include "common/process/this_process.h"

#include <cstdint>
#include <cstring>
#include <link.h>
#include <malloc.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace ferry {

Environment process_environment() {
  Environment out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto sign = text.find('=');
    if (sign != std::string_view::npos) out.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  return out;
}

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

void hide_process() {
  static_cast<void>(::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));  // fails for no such value
}

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
