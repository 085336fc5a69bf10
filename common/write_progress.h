// SPDX-License-Identifier: Apache-2.0
// How far a writing process is with several writes that it was given at once: a page that it shares with
// whoever gave them. Neither side makes a system call for it, and who waits need be woken only once for all.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

class WriteProgress {
 public:
  /// Of who gives the writes: nothing done, nobody waiting. The errno where there is no memory to be had.
  static Result<WriteProgress> make();
  /// Of who makes them: the page behind a descriptor of make()'s. The errno where that is something else.
  static Result<WriteProgress> of(UniqueFd memory);

  int descriptor() const { return memory_.get(); }

  /// Before several are given.
  void start();
  /// How many have been made since, each without an error.
  std::uint32_t done() const { return page_->done.load(); }
  void one_more() { ++page_->done; }

  /// Whether somebody waits for a single one of them, because it is slow: each is answered then. A write that
  /// had been made before that is seen by done(), one that is made later by its answer, if not by both.
  void wait_for_each(bool yes) { page_->each.store(yes ? 1 : 0); }
  bool each_is_waited_for() const { return page_->each.load() != 0; }

 private:
  // Both are read and written by two processes.
  struct Page {
    std::atomic<std::uint32_t> done;
    std::atomic<std::uint32_t> each;
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  struct Unmap {
    void operator()(Page* page) const;
  };

  WriteProgress(UniqueFd memory, Page* page) : memory_(std::move(memory)), page_(page) {}

  UniqueFd memory_;
  std::unique_ptr<Page, Unmap> page_;
};

}  // namespace ferry
