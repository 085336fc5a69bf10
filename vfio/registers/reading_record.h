// SPDX-License-Identifier: Apache-2.0
// The record of a reading's changes (register_reading.h). Content of run/ferry/hostd/register-reading:
//   6f1c...                               id of the boot in which the changes were made
//   0000:17:00.0 vfio-pci control auto    `power/control` was "auto", and is "on" now
//   0000:17:00.0 vfio-pci memory off      the memory bit of the PCI command register was 0, and is 1 now
// The second word is the function's driver, "-" without one.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"

namespace ferry::vfio {

class ReadingRecord {
 public:
  /// Takes over the changes of a killed process, of this boot. Errc::stuck: another process reads, or does
  /// not come back.
  static Result<ReadingRecord> take(const HostFs& host);

  /// Writes "on" to `power/control` unless it is there.
  Result<> keep_awake(const HostFs& host, const PciAddress& address);
  /// Sets the memory bit of the PCI command register unless it is set.
  Result<> enable_memory(const HostFs& host, const PciAddress& address);

  /// Undoes all changes, the last first, and returns those that failed, for people. A function that has
  /// another driver since is left alone, and so is the memory bit of one that a user has opened.
  std::vector<std::string> restore(const HostFs& host);

 private:
  struct Change {
    PciAddress address;
    std::string driver;   ///< "-": none
    bool memory = false;  ///< of the memory bit; else of `power/control`
    std::string before;
  };
  ReadingRecord(UniqueFd file, std::string boot) : file_(std::move(file)), boot_(std::move(boot)) {}
  static Result<> undo(const HostFs& host, const Change& change);
  Result<> write() const;
  void parse(std::string_view text);

  UniqueFd file_;  // locked
  std::string boot_;
  std::vector<Change> changes_;
};

/// The file, relative to the host's root.
inline constexpr const char* kReadingRecord = "run/ferry/hostd/register-reading";

/// True if a user has opened a function on vfio-pci, which enables it; also if that cannot be read. A
/// function that is enabled while its group can be opened has no user: a driver has left it so. ABI: sysfs
/// `enable`, drivers/pci/pci-sysfs.c; drivers/vfio/pci/vfio_pci_core.c, vfio_pci_core_enable().
bool is_opened(const HostFs& host, const PciAddress& address);

}  // namespace ferry::vfio
