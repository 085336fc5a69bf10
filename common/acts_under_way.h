// SPDX-License-Identifier: Apache-2.0
// What the host writer's children change, in run/ferry/hostd/acts/<pid>: each has a file there until it ends,
// from its first act or when acts are expected, locked (flock), in which the act stands while it is done. The
// file is mapped, so that telling costs no call of the kernel's. It counts up to the first NUL byte:
//          700 pid:[4026531836]   the process's number, or that of the program that it runs, ten characters
//                                 wide, and the PID namespace that it counts in; that is empty if not known
//   write /sys/bus/pci/...        as StuckWrite::act; where nothing is under way this line is not there
//   0000:65:00.0                  the rest: as StuckWrite::value, at most 1024 bytes of it
//
// A run that is killed leaves its child behind, and that ends the act that it is at. Acts that are slow are
// recorded (stuck_writes.h); without this one that had only just begun would be nobody's, and the next run
// would plan from a host on which the last write of the one before is still to come.
#pragma once

#include <chrono>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// Of one child. Where no file can be had (nothing can be written below the root) nothing is told.
class ActUnderWay {
 public:
  explicit ActUnderWay(HostFs& host) : host_(host) {}
  ActUnderWay(const ActUnderWay&) = delete;
  ActUnderWay& operator=(const ActUnderWay&) = delete;
  ActUnderWay(ActUnderWay&&) = delete;
  ActUnderWay& operator=(ActUnderWay&&) = delete;
  ~ActUnderWay();

  /// Before the first of several acts: has a file, a new one where somebody has removed it.
  void prepare();
  /// Long before: the same, unless it would have to wait for whoever has locked that file.
  void try_prepare();
  /// As StuckWrite::act, one line, and StuckWrite::value.
  void begin(std::string_view act, std::string_view value);
  void end();

  /// A program that does the act keeps this open, so that its lock lives as long as it does. -1: there is
  /// none.
  int descriptor() const { return file_.get(); }
  /// Its number, told by itself; and ours again when it has ended.
  void is_done_by(int pid);

 private:
  void open(int how_to_lock);
  void close();

  HostFs& host_;
  std::filesystem::path path_;
  UniqueFd file_;
  std::span<char> text_;  ///< the file's, mapped; empty: nothing is told
  std::span<char> act_;   ///< behind the first line
};

/// For who has just taken the node's lock: what is under way then was begun by runs that were killed. Waits
/// until all of it is done; what is not when `patience` is over is recorded as stuck, so that its device is
/// left alone. Errors: it cannot be seen what is under way.
Result<> wait_for_acts(HostFs& host, std::chrono::milliseconds patience);

}  // namespace ferry
