// SPDX-License-Identifier: Apache-2.0
// A model of BAR 0 of a GPU or an NVSwitch: its modes follow from knobs at a reset alone, and it has the
// faults that hardware has. Written from the meaning of each register, not from the code under test.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/vfio/fsp_model.h"
#include "vfio/registers/registers.h"

namespace ferry::test {

class BarModel final : public vfio::Registers {
 public:
  enum class Kind { gh100, gb100, gb202, ls10, lr10 };
  explicit BarModel(Kind kind)
      : fsp(kind == Kind::gb100 || kind == Kind::gb202 ? FspModel::Way::mailbox : FspModel::Way::queues,
            knobs_),
        kind_(kind) {
    reset();
  }

  /// Knobs, by their numbers in the firmware. They take effect at the next reset.
  static constexpr unsigned kDevtools = 6;
  static constexpr unsigned kConfidential = 8;
  static constexpr unsigned kDecoupler = 10;
  static constexpr unsigned kProtectedPcie = 45;
  void set_knob(unsigned knob, std::uint32_t value) { knobs_[knob] = value; }
  std::uint32_t knob(unsigned number) const;
  /// Any reset: modes become those of the knobs, and the boot begins anew.
  void reset();
  /// The boot that has begun is complete.
  void end_boot() { polls_left_ = 0; }

  /// Faults.
  bool dead = false;              ///< every read is all ones
  unsigned polls_until_boot = 0;  ///< reads of the boot register before it is complete
  bool boot_reads_bad = false;    ///< meanwhile it reads 0xbadf...
  bool recovery = false;
  bool scrubbed = true;
  std::uint32_t memory_word = 0;
  std::map<std::uint32_t, std::uint32_t> forced = {};  ///< the value of an offset, whatever else holds
  unsigned resets_without_effect = 0;                  ///< so many next resets leave the modes as they are

 private:
  std::map<unsigned, std::uint32_t> knobs_;

 public:
  FspModel fsp;

  std::uint32_t read32(std::uint32_t offset) override;
  void write32(std::uint32_t offset, std::uint32_t value) override;

  unsigned writes = 0;
  std::map<std::uint32_t, unsigned> reads = {};  ///< by offset

  /// A sparse file of 16 MiB in which the registers have their present values.
  void save(const std::string& path);

 private:
  std::uint32_t value_of(std::uint32_t offset);
  std::uint32_t mode_word() const;
  bool blocks() const { return effective_on_ || effective_ppcie_; }

  Kind kind_;
  bool effective_on_ = false;
  bool effective_devtools_ = false;
  bool effective_ppcie_ = false;
  bool effective_filter_ = false;
  unsigned polls_left_ = 0;
};

}  // namespace ferry::test
