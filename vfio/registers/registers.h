// SPDX-License-Identifier: Apache-2.0
// The registers of a GPU or NVSwitch, which are its first memory range (BAR 0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry::vfio {

/// Accesses of 32 bits. Offsets are in bytes from the start of BAR 0, multiples of 4, and inside.
class Registers : Pinned {
 public:
  virtual ~Registers() = default;
  virtual std::uint32_t read32(std::uint32_t offset) = 0;
  virtual void write32(std::uint32_t offset, std::uint32_t value) = 0;
};

/// The answer of the bus when no device answers.
inline constexpr std::uint32_t kAllOnes = 0xffffffff;
/// Answers of register 0 after a violation of the device's security rules.
inline constexpr bool is_security_fault(std::uint32_t boot_0) {
  return boot_0 == 0xbadf0200 || boot_0 == 0xbad00200;
}
/// True for an answer that is an error and no value: no device, a register that the device does not serve, or
/// a violation of its rules.
inline constexpr bool is_bad_read(std::uint32_t value) {
  return value == kAllOnes || value >> 16U == 0xbadf || is_security_fault(value);
}

/// The size that BAR 0 has at least. Every register of this folder is inside.
inline constexpr std::size_t kRegisterBytes = std::size_t{16} << 20U;

/// A mapping of the sysfs file `resource0`. Another process that opens the device may take the mapping away:
/// each access then raises SIGBUS, so only a child process may use this.
/// ABI: drivers/pci/pci-sysfs.c, pci_mmap_resource(); kernel/resource.c, revoke_iomem().
class MappedRegisters final : public Registers {
 public:
  enum class Access {
    read,   ///< the pages cannot be written: write32() ends the process with SIGSEGV
    write,  ///< needs a file that is open for writing
  };
  /// Maps kRegisterBytes. Errors: std::errc::operation_not_permitted, the kernel is locked down;
  /// std::errc::invalid_argument, a driver or a user has requested the memory range. Others as mmap(2).
  static Result<std::unique_ptr<MappedRegisters>> map(const UniqueFd& resource0, Access access);
  ~MappedRegisters() override;

  std::uint32_t read32(std::uint32_t offset) override { return at_[offset / sizeof(std::uint32_t)]; }
  void write32(std::uint32_t offset, std::uint32_t value) override {
    at_[offset / sizeof(std::uint32_t)] = value;
  }

 private:
  explicit MappedRegisters(volatile std::uint32_t* at) : at_(at) {}

  volatile std::uint32_t* at_;  // volatile: each access is made, once, and is one of 32 bits
};

}  // namespace ferry::vfio
