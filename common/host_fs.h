// SPDX-License-Identifier: Apache-2.0
// The host as a parameter: everything below its "/", by relative paths only.
//
// Nothing outside this class names an absolute /sys, /dev, /etc or /run. The root is "/" on the host itself,
// the mounted host in a container, a captured machine or a reacting fake in tests. Links, absolute ones too,
// are resolved inside the root (openat2, RESOLVE_IN_ROOT); a kernel before 5.6 cannot do that, and there only
// the path itself is checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

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

/// A name in a directory.
struct DirectoryEntry {
  std::string name;
  bool is_directory = false;                                ///< a directory itself: a link to one is not
  auto operator<=>(const DirectoryEntry&) const = default;  // NOLINT(readability-implicit-bool-conversion)
};

class HostFs {
 public:
  /// `root` must exist; if it does not, each operation fails with its errno.
  explicit HostFs(std::filesystem::path root = "/");
  HostFs(const HostFs&) = delete;
  HostFs& operator=(const HostFs&) = delete;
  HostFs(HostFs&&) = delete;
  HostFs& operator=(HostFs&&) = delete;
  virtual ~HostFs() = default;

  const std::filesystem::path& root() const noexcept { return root_; }

  /// A sysfs or procfs attribute, read to its end, less one trailing newline.
  Result<std::string> read_attribute(const std::filesystem::path& relative) const;
  /// All bytes of a file, unchanged. Never waits for a writer: a FIFO or a device in the file's place is
  /// Errc::malformed_host, and more than 16 MiB, or 64 MiB of a file that says it is empty, are EFBIG.
  enum class Links { followed, refused };
  /// `refused`: for a file in a folder that a process with fewer rights writes. Errc::malformed_host: it is a
  /// link.
  Result<std::string> read_file(const std::filesystem::path& relative, Links links = Links::followed) const;
  /// The last part of a symbolic link's target: "vfio-pci" of .../driver -> ../../bus/pci/drivers/vfio-pci.
  Result<std::string> link_name(const std::filesystem::path& relative) const;
  /// A symbolic link's target as it is written.
  Result<std::string> link_target(const std::filesystem::path& relative) const;
  /// The names in a directory, sorted, without "." and "..".
  Result<std::vector<std::string>> list(const std::filesystem::path& relative) const;
  /// The same with what each name is, at no further cost.
  Result<std::vector<DirectoryEntry>> entries(const std::filesystem::path& relative) const;
  /// Whether something is there (a dangling link is not). Any error counts as "not". Text, which is not null,
  /// is not made a path of for that.
  bool exists(const char* relative) const;
  bool exists(const std::filesystem::path& relative) const { return exists(relative.c_str()); }
  /// The number of the device node at `relative`; ENODEV when it is no device node.
  Result<DeviceNumber> device_number(const std::filesystem::path& relative) const;
  /// The device that an entry of proc/PID/fd or proc/PID/map_files leads to, whatever path the process sees
  /// it under; absent when it is no device. Never opens it. The one place where a link is followed out of the
  /// root: these lead to open files, not to paths.
  Result<std::optional<OpenedDevice>> opened_device(const std::filesystem::path& proc_entry) const;

  /// One write(2) of `value` to an existing attribute: never O_CREAT, never O_TRUNC, no retry. The kernel's
  /// errno is the error's code. May block for as long as a driver likes: what can hang goes through a
  /// HostWriter.
  virtual Result<> write_attribute(const std::filesystem::path& relative, std::string_view value);

  /// Files of our own (below run/ferry, var/lib/ferry). The new content is there whole or not at all: a file
  /// in the same directory is written, synced and renamed; an existing file keeps its owner and mode, a new
  /// one gets `mode`. Missing directories are made with mode 0755.
  virtual Result<> write_file(const std::filesystem::path& relative, std::string_view content,
                              mode_t mode = 0644);
  /// Removes a file; that it was not there is no error.
  virtual Result<> remove_file(const std::filesystem::path& relative);
  /// Removes a folder that is empty. Errors: ENOTEMPTY, something is in it; ENOENT, it is not there.
  virtual Result<> remove_empty_folder(const std::filesystem::path& relative);

  /// Makes a directory with mode 0755, and those above it, but never the root; that it is there is no error.
  Result<> make_directory(const std::filesystem::path& relative) const;

  /// Opens for the caller's own use. O_CLOEXEC is added; `mode` counts with O_CREAT only.
  Result<UniqueFd> open(const std::filesystem::path& relative, int flags, mode_t mode = 0) const;

 private:
  std::filesystem::path root_;
  UniqueFd root_fd_;
  int root_errno_ = 0;
};

}  // namespace ferry
