// SPDX-License-Identifier: Apache-2.0
#include "hostfs/write_progress.h"

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace ferry {

void WriteProgress::Unmap::operator()(Page* page) const {
  ::munmap(page, sizeof *page);
}

Result<WriteProgress> WriteProgress::make() {
  UniqueFd memory = make_memory_file("ferry-writes");
  if (!memory.valid() || ::ftruncate(memory.get(), sizeof(Page)) != 0)
    return fail(error_from_errno(errno, "make a page of shared memory"));
  return of(std::move(memory));
}

Result<WriteProgress> WriteProgress::of(UniqueFd memory) {
  void* const page = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (page == MAP_FAILED) return fail(error_from_errno(errno, "map a page of shared memory"));
  // New memory reads as zeroes: nothing done, no single write awaited.
  return WriteProgress(std::move(memory), static_cast<Page*>(page));
}

void WriteProgress::start() {
  page_->each.store(0);
  page_->done.store(0);
}

}  // namespace ferry
