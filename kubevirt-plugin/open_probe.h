// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/host_fs.h"

namespace ferry {

/// Whether a process has an IOMMU group open, found out by opening its node: the kernel has one opener at a
/// time. That sleeps, deaf to signals, for as long as the kernel resets what a VM has just let go of, and so
/// is done by a thread that nobody waits for longer than the deadline. One such thread stays for the next
/// question: to make one takes longer than all else that is asked of the host. Safe for several threads.
class OpenProbe {
 public:
  /// Opens what an O_PATH descriptor stands for and closes it again. 0, or the errno.
  using Opener = std::function<int(int fd)>;
  /// Waits for the answer, at most until the deadline. To be called once, while its probe lives.
  using Answer = std::function<bool()>;

  static constexpr std::chrono::milliseconds kDeadline{500};

  /// `host` must outlive this; `opener` is kept for as long as a call of it lasts.
  explicit OpenProbe(const HostFs& host, std::chrono::milliseconds deadline = kDeadline);
  OpenProbe(const HostFs& host, std::chrono::milliseconds deadline, Opener opener);
  OpenProbe(const OpenProbe&) = delete;
  OpenProbe& operator=(const OpenProbe&) = delete;
  OpenProbe(OpenProbe&&) = delete;
  OpenProbe& operator=(OpenProbe&&) = delete;
  /// Waits for nobody: a thread that the kernel holds ends when it is let go.
  ~OpenProbe();

  /// Begins to ask; the deadline runs from here.
  Answer ask(std::uint32_t group) const;

  /// True, too, without an answer in time: there is one attempt at a time on each group, which all callers
  /// wait for, and one that is late is not waited for again. False where there is no node, or we may not open
  /// it; the latter is logged once.
  bool is_open(std::uint32_t group) const { return ask(group)(); }

 private:
  struct Attempt;
  struct State;

  static void serve(const std::shared_ptr<State>& state, std::shared_ptr<Attempt> attempt);
  std::shared_ptr<Attempt> join(std::uint32_t group, UniqueFd node) const;
  bool wait_for(std::uint32_t group, const Attempt& attempt) const;
  bool judge(std::uint32_t group, int error) const;

  const HostFs& host_;
  const std::chrono::milliseconds deadline_;
  const std::shared_ptr<State> state_;  // outlives this where an attempt does
};

}  // namespace ferry
