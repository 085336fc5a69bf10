// SPDX-License-Identifier: Apache-2.0
// How far a child is with a batch of writes: a page shared by child and parent. Neither side makes a system
// call for it, and the parent need wake only once for the whole batch.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "common/result.h"
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

class WriteProgress {
 public:
  /// The parent makes the page. At first no write is done or awaited. The errno: no memory is left.
  static Result<WriteProgress> make() {
    UniqueFd memory = make_memory_file("ferry-writes");
    if (!memory.valid() || ::ftruncate(memory.get(), sizeof(Page)) != 0)
      return fail(error_from_errno(errno, "make a page of shared memory"));
    return of(std::move(memory));
  }
  /// The child calls this: it maps the page of a descriptor from make(). The errno: the descriptor is
  /// something else.
  static Result<WriteProgress> of(UniqueFd memory) {
    void* const page = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (page == MAP_FAILED) return fail(error_from_errno(errno, "map a page of shared memory"));
    // New memory reads as zeroes: nothing done, no single write awaited.
    return WriteProgress(std::move(memory), static_cast<Page*>(page));
  }

  int descriptor() const { return memory_.get(); }

  /// Call before a batch is sent.
  void start() {
    page_->each.store(0);
    page_->done.store(0);
  }
  /// Number of writes made since start(), each without an error.
  std::uint32_t done() const { return page_->done.load(); }
  void one_more() { ++page_->done; }

  /// Set while the parent awaits a single write, because it is slow: each write is answered then. An earlier
  /// write shows in done(), a later one in its answer, or in both.
  void wait_for_each(bool yes) { page_->each.store(yes ? 1 : 0); }
  bool each_is_waited_for() const { return page_->each.load() != 0; }

 private:
  // Two processes read and write both fields.
  struct Page {
    std::atomic<std::uint32_t> done;
    std::atomic<std::uint32_t> each;
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  struct Unmap {
    void operator()(Page* page) const { ::munmap(page, sizeof *page); }
  };

  WriteProgress(UniqueFd memory, Page* page) : memory_(std::move(memory)), page_(page) {}

  UniqueFd memory_;
  std::unique_ptr<Page, Unmap> page_;
};

}  // namespace ferry
