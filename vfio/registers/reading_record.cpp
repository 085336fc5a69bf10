// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/reading_record.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <optional>
#include <ranges>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "hostfs/descriptor_reads.h"
#include "hostfs/kernel_facts.h"
#include "vfio/pci/config_space.h"
#include "vfio/pci/pci_function.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {
namespace {

constexpr std::string_view kControl = "control";
constexpr std::string_view kMemory = "memory";
constexpr const char* kNoDriver = "-";
// PCI Local Bus 3.0, 6.2.2: the command register, and its bit for the memory range.
constexpr off_t kCommand = 0x04;
constexpr unsigned kMemoryBit = 0x2;

// Opening truncates, like a shell's `echo`, which sysfs ignores.
Result<> write_control(const HostFs& host, const std::filesystem::path& path, std::string_view word) {
  const auto file = host.open(path, O_WRONLY | O_TRUNC);
  if (!file) return fail(file.error());
  if (::write(file->get(), word.data(), word.size()) != static_cast<ssize_t>(word.size()))
    return fail(error_from_errno(errno, "write /" + path.string()));
  return {};
}

// Returns the memory bit as it was, and gives it another value if that is asked for.
Result<bool> memory_bit(const HostFs& host, const PciAddress& address, std::optional<bool> value = {}) {
  const auto path = sysfs_path(address) / "config";
  const auto file = host.open(path, value ? O_RDWR : O_RDONLY);
  if (!file) return fail(file.error());
  std::string command(sizeof(std::uint16_t), '\0');
  const auto size = static_cast<ssize_t>(command.size());
  if (::pread(file->get(), command.data(), command.size(), kCommand) != size)
    return fail(error_from_errno(errno, "read /" + path.string()));
  const bool before = (byte_at(command, 0) & kMemoryBit) != 0;
  if (!value || *value == before) return before;
  command[0] = static_cast<char>(byte_at(command, 0) ^ kMemoryBit);
  if (::pwrite(file->get(), command.data(), command.size(), kCommand) != size)
    return fail(error_from_errno(errno, "write /" + path.string()));
  return before;
}

std::string driver_of(const HostFs& host, const PciAddress& address) {
  return host.link_name(sysfs_path(address) / "driver").value_or(kNoDriver);
}

}  // namespace

bool is_opened(const HostFs& host, const PciAddress& address) {
  if (host.read_attribute(sysfs_path(address) / "enable").value_or("") == "0") return false;

  // An earlier driver may have left it enabled. The kernel opens a group for one user alone.
  const auto group =
      whole_number<std::uint32_t>(host.link_name(sysfs_path(address) / "iommu_group").value_or(""));
  return !group || std::ranges::none_of(group_node_names(*group), [&](const std::string& node) {
    return host.open("dev/vfio/" + node, O_RDWR).has_value();
  });
}

Result<ReadingRecord> ReadingRecord::take(const HostFs& host) {
  if (auto made = host.make_directory(std::filesystem::path(kReadingRecord).parent_path()); !made)
    return fail(std::move(made).error());
  auto file = host.open(kReadingRecord, O_RDWR | O_CREAT, 0600);
  if (!file) return fail(std::move(file).error());
  if (::flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, fmt::format("lock /{}", kReadingRecord)));
    return fail(Errc::stuck, "another process reads registers, or has not returned from the kernel");
  }
  const auto boot = boot_id(host);
  if (!boot) return fail(boot.error());
  const auto text = read_to_end(file->get(), [] { return fmt::format("read /{}", kReadingRecord); });
  if (!text) return fail(text.error());
  ReadingRecord record(std::move(*file), *boot);
  record.parse(*text);
  if (record.changes_.empty() && !text->empty())  // of another boot, or its first line was cut off
    if (auto emptied = record.write(); !emptied) return fail(std::move(emptied).error());
  return record;
}

// A line without its end, which a killed process left, is of a change that was not made.
void ReadingRecord::parse(std::string_view text) {
  if (!text.starts_with(boot_ + "\n")) return;
  text.remove_prefix(boot_.size() + 1);
  while (text.find('\n') != std::string_view::npos) {
    const auto words = words_of(cut(text, '\n'));
    if (words.size() != 4) continue;
    const auto address = PciAddress::parse(words[0]);
    if (!address) continue;
    changes_.push_back({.address = *address,
                        .driver = std::string(words[1]),
                        .memory = words[2] == kMemory,
                        .before = std::string(words[3])});
  }
}

Result<> ReadingRecord::write() const {
  std::string text;
  if (!changes_.empty()) text = boot_ + "\n";
  for (const Change& change : changes_)
    text += fmt::format("{} {} {} {}\n", change.address.text(), change.driver,
                        change.memory ? kMemory : kControl, change.before);
  if (::pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::ftruncate(file_.get(), static_cast<off_t>(text.size())) != 0)
    return fail(error_from_errno(errno, fmt::format("write /{}", kReadingRecord)));
  return {};
}

Result<> ReadingRecord::keep_awake(const HostFs& host, const PciAddress& address) {
  const auto path = sysfs_path(address) / "power/control";
  const auto before = host.read_attribute(path);
  if (!before) return fail(before.error());
  if (*before == "on") return {};
  changes_.push_back({.address = address, .driver = driver_of(host, address), .before = *before});
  if (auto written = write(); !written) return written;
  return write_control(host, path, "on");
}

Result<> ReadingRecord::enable_memory(const HostFs& host, const PciAddress& address) {
  const auto before = memory_bit(host, address);
  if (!before) return fail(before.error());
  if (*before) return {};
  changes_.push_back(
      {.address = address, .driver = driver_of(host, address), .memory = true, .before = "off"});
  if (auto written = write(); !written) return written;
  if (auto set = memory_bit(host, address, true); !set) return fail(std::move(set).error());
  return {};
}

Result<> ReadingRecord::undo(const HostFs& host, const Change& change) {
  const auto path = sysfs_path(change.address);
  if (!host.exists(path) || driver_of(host, change.address) != change.driver) return {};
  if (!change.memory) return write_control(host, path / "power/control", change.before);
  if (change.driver != kNoDriver && is_opened(host, change.address)) return {};
  if (auto cleared = memory_bit(host, change.address, false); !cleared)
    return fail(std::move(cleared).error());
  return {};
}

std::vector<std::string> ReadingRecord::restore(const HostFs& host) {
  std::vector<std::string> faults;
  if (changes_.empty()) return faults;
  std::vector<Change> left;
  for (const Change& change : std::views::reverse(changes_)) {
    const auto undone = undo(host, change);
    if (undone) continue;
    faults.push_back(fmt::format("{}: {} could not be restored to {}: {}", change.address.text(),
                                 change.memory ? "the memory bit of its command register" : "power/control",
                                 change.before, undone.error().message));
    left.insert(left.begin(), change);
  }
  changes_ = std::move(left);
  if (const auto written = write(); !written) faults.push_back(written.error().message);
  return faults;
}

}  // namespace ferry::vfio
