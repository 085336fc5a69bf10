// SPDX-License-Identifier: Apache-2.0
// The files run/ferry/hostd/acts/<pid> hold the in-flight writes of the host writer's children. A child makes
// its file at its first act, or when acts are announced, and removes it at its end. The child locks the file
// (flock) and writes each act there before it begins. The file is mapped, so recording costs no system call.
// Content, up to the first NUL byte:
//          700 pid:[4026531836]   process number of the child, or of the program that it runs, ten characters
//                                 wide; then the PID namespace of that number, empty if not known
//   write /sys/bus/pci/...        StuckWrite::act; the line is absent while no act is in flight
//   0000:65:00.0                  StuckWrite::value, at most 1024 bytes of it
//
// A killed process leaves its child behind, and the child finishes its act. Only slow acts have a record in
// stuck_writes.h. These files also show an act that has just begun, so that the next process does not plan
// from a host that is about to change.
#pragma once

#include <chrono>
#include <filesystem>
#include <span>
#include <string_view>

#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"

namespace ferry {

/// The file of one child. If it cannot be made (nothing below the root is writable), nothing is recorded.
class InFlightWrite : Pinned {
 public:
  explicit InFlightWrite(HostFs& host) : host_(host) {}
  ~InFlightWrite();

  /// Call before the first of several acts. Makes the file if it is not there; may wait for its lock.
  void prepare();
  /// Makes the file in advance, unless another process has it locked.
  void try_prepare();
  /// `act` is StuckWrite::act, one line; `value` is StuckWrite::value.
  void begin(std::string_view act, std::string_view value);
  void end();

  /// A program that performs the act inherits this and so keeps the lock while it lives. -1: no file.
  int descriptor() const { return file_.get(); }
  /// Records `pid` as the performing process. A started program records itself, the child itself after it.
  void is_done_by(int pid);

 private:
  void open(int how_to_lock);
  void close();

  HostFs& host_;
  std::filesystem::path path_;
  UniqueFd file_;
  std::span<char> text_;  ///< the mapped file; empty: nothing is recorded
  std::span<char> act_;   ///< `text_` after its first line
};

/// Waits for in-flight acts of killed processes; the caller has just taken the node lock. An act that is not
/// done after `patience` is recorded as stuck, so that its device is left alone. Errors: the files cannot be
/// read or written; Errc::stuck: a locked file does not parse.
Result<> wait_for_acts(HostFs& host, std::chrono::milliseconds patience);

}  // namespace ferry
