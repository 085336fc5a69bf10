// SPDX-License-Identifier: Apache-2.0
// The host as a parameter: everything below its "/", by relative paths only.
//
// No other class names an absolute /sys, /dev, /etc or /run. The root is "/" on the host itself, the mounted
// host in a container, a captured machine, or a fake in tests. Links, absolute ones too, are resolved inside
// the root (openat2, RESOLVE_IN_ROOT); before kernel 5.6 only the path itself is checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// A name in an open directory, so that no link in the path is followed a second time.
struct AtomicTarget {
  int directory = -1;  ///< open for reading
  std::string name;
  int existing = -1;  ///< file that has the name now, O_PATH is enough; -1: none
  std::string path;   ///< for messages
};

/// Replaces the target's content whole or not at all: writes a new file beside it, syncs it, renames it and
/// syncs the directory. An existing file keeps its owner and mode; a new one gets `mode`. If the writer is
/// not root, another user's file becomes the writer's. A crash leaves at most a dot-file, which is ignored.
Result<> write_atomically(const AtomicTarget& target, std::string_view content, mode_t mode = 0644);

/// The device number of a character or block device, as `stat` and sysfs `dev` files give it.
struct DeviceNumber {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  auto operator<=>(const DeviceNumber&) const = default;
};

/// A device that a process has open. Character and block devices are numbered apart.
struct OpenedDevice {
  DeviceNumber number;
  bool block = false;
  bool operator==(const OpenedDevice&) const = default;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;                                ///< false for a link to a directory
  auto operator<=>(const DirectoryEntry&) const = default;  // NOLINT(readability-implicit-bool-conversion)
};

class HostFs : Pinned {
 public:
  /// `root` must exist; otherwise each operation fails with its errno.
  explicit HostFs(std::filesystem::path root = "/");
  virtual ~HostFs() = default;

  const std::filesystem::path& root() const noexcept { return root_; }

  /// Reads a sysfs or procfs attribute to its end, without one trailing newline.
  Result<std::string> read_attribute(const std::filesystem::path& relative) const;
  /// `refused` is for a file in a folder that a less privileged process writes.
  enum class Links { followed, refused };
  /// All bytes of a file. Never waits for a writer. Errc::malformed_host: a FIFO, a device other than
  /// /dev/null, or with `refused` a link. EFBIG: more than 16 MiB, or more than 64 MiB of a file with size 0.
  Result<std::string> read_file(const std::filesystem::path& relative, Links links = Links::followed) const;
  /// The last part of a symbolic link's target: "vfio-pci" of .../driver -> ../../bus/pci/drivers/vfio-pci.
  Result<std::string> link_name(const std::filesystem::path& relative) const;
  /// The target of a symbolic link as it is written.
  Result<std::string> link_target(const std::filesystem::path& relative) const;
  /// The names in a directory, sorted, without "." and "..".
  Result<std::vector<std::string>> list(const std::filesystem::path& relative) const;
  /// list() with the kind of each entry, at no further cost.
  Result<std::vector<DirectoryEntry>> entries(const std::filesystem::path& relative) const;
  /// False: missing, a dangling link, or any error. The overload for text, not null, makes no path.
  bool exists(const char* relative) const;
  bool exists(const std::filesystem::path& relative) const { return exists(relative.c_str()); }
  /// The device of an entry in proc/PID/fd or proc/PID/map_files, under whatever path the process sees it;
  /// absent: not a device. Never opens it. This and open_below_root_of() alone follow links out of the root:
  /// these lead to open files, not to paths.
  Result<std::optional<OpenedDevice>> opened_device(const std::filesystem::path& proc_entry) const;

  /// Makes one write(2) of `value` to an existing attribute: never O_CREAT, never O_TRUNC, no retry. The
  /// error's code is the kernel's errno. A driver may block without bound; such writes go through a
  /// HostWriter.
  virtual Result<> write_attribute(const std::filesystem::path& relative, std::string_view value);

  /// Writes a file of Ferry whole or not at all: writes beside it, syncs
  /// and renames. An existing file keeps its owner and mode; a new one gets `mode`. Missing directories are
  /// made with mode 0755 and synced.
  virtual Result<> write_file(const std::filesystem::path& relative, std::string_view content,
                              mode_t mode = 0644);
  /// Removes a file; a missing file is no error.
  virtual Result<> remove_file(const std::filesystem::path& relative);
  /// Removes an empty folder. Errors: ENOTEMPTY, not empty; ENOENT, missing.
  virtual Result<> remove_empty_folder(const std::filesystem::path& relative);

  /// Makes a directory and its parents with mode 0755, but never the root; an existing directory is no error.
  Result<> make_directory(const std::filesystem::path& relative) const;

  /// Opens a file for the caller. O_CLOEXEC is added; `mode` counts only with O_CREAT.
  Result<UniqueFd> open(const std::filesystem::path& relative, int flags, mode_t mode = 0) const;
  /// Opens a file below the root directory of a process of proc, and resolves links there. Process 1 has the
  /// host's mounts, also those that this process's container lacks. Needs the right to look into the process.
  Result<UniqueFd> open_below_root_of(int pid, const std::filesystem::path& relative, int flags) const;

 private:
  std::filesystem::path root_;
  UniqueFd root_fd_;
  int root_errno_ = 0;
};

}  // namespace ferry
