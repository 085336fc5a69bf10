// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/register_facts.h"

#include <fmt/format.h>

namespace ferry::vfio {
namespace {

constexpr std::uint32_t kBootComplete = 0xff;

std::string reading(std::uint32_t offset, std::uint32_t value) {
  return fmt::format("register {:#x} reads {:#x}", offset, value);
}

/// Reads facts, and notes those that are not known.
class FactReader {
 public:
  FactReader(Registers& registers, std::vector<UnknownFact>& unknown)
      : registers_(registers), unknown_(unknown) {}

  /// From now on every fact is unknown, for this reason.
  void close(std::string reason) { closed_ = std::move(reason); }
  /// Absent: not known, or the family has no such field.
  std::optional<std::uint32_t> read(const char* fact, const Field& field) {
    if (!field.exists()) return std::nullopt;
    const auto value = word(fact, field.offset);
    return value ? std::optional(field.of(*value)) : std::nullopt;
  }
  std::optional<bool> flag(const char* fact, const Field& field) {
    const auto value = read(fact, field);
    return value ? std::optional(*value == 1) : std::nullopt;
  }
  std::optional<std::uint32_t> word(const char* fact, std::uint32_t offset) {
    if (!closed_.empty()) return note(fact, closed_), std::nullopt;
    return checked(fact, offset, registers_.read32(offset));
  }
  /// Absent: the value is an error.
  std::optional<std::uint32_t> checked(const char* fact, std::uint32_t offset, std::uint32_t value) {
    if (!is_bad_read(value)) return value;
    note(fact, closed_.empty() ? reading(offset, value) + ", an error" : closed_);
    return std::nullopt;
  }
  void note(const char* fact, std::string reason) {
    unknown_.push_back({.fact = fact, .reason = std::move(reason)});
  }

 private:
  Registers& registers_;
  std::vector<UnknownFact>& unknown_;
  std::string closed_;
};

// An error of register 0 says why nothing can be read. Another bad read of it says nothing: the mode may
// block the register.
std::string problem_in(std::uint32_t boot_0) {
  if (boot_0 == kAllOnes)
    return reading(0, boot_0) + ": the function sleeps (D3), is dead, or its firewall is up";
  if (is_security_fault(boot_0)) return reading(0, boot_0) + ", a security fault";
  return {};
}

}  // namespace

RegisterFacts read_register_facts(Registers& registers, const Chip& chip) {
  RegisterFacts facts{.chip = std::string(chip.name)};
  const std::uint32_t boot_0 = registers.read32(0);
  facts.problem = problem_in(boot_0);
  const RegisterPlaces* const places = register_places(chip.family);
  if (places == nullptr)
    facts.problem = "this chip has no confidential mode, and no registers that are known";
  if (!facts.problem.empty()) return facts;

  FactReader reader(registers, facts.unknown);
  const std::uint32_t boot = registers.read32(places->boot);  // a bad read is normal while it boots
  facts.booted = boot == kBootComplete;
  const std::uint32_t recovery = registers.read32(places->recovery.offset);
  if (chip.family == ChipFamily::hopper && boot_0 == 0) {
    facts.recovery = true;
  } else if (!is_bad_read(recovery)) {
    facts.recovery = places->recovery.of(recovery) > places->last_good;
  }
  if (facts.recovery.value_or(false)) {
    reader.close("its firmware is in recovery mode");
  } else if (!*facts.booted) {
    reader.close(fmt::format("its boot is not complete: {}", reading(places->boot, boot)));
  }

  if (const auto mode = reader.read("cc_mode", places->cc_mode)) facts.cc_mode = static_cast<CcMode>(*mode);
  facts.ppcie = reader.flag("ppcie", places->ppcie);
  facts.bar0_filter = reader.flag("bar0_filter", places->bar0_filter);
  facts.nvlink_encryption = reader.flag("nvlink_encryption", places->nvlink_encryption);
  if (facts.cc_mode == CcMode::on || facts.ppcie.value_or(false))
    reader.close(fmt::format("blocked by the mode '{}'", facts.mode()));
  if (!facts.recovery) (void)reader.checked("recovery", places->recovery.offset, recovery);

  facts.scrubbed = reader.flag("scrubbed", places->scrubbed);
  if (const auto memory = reader.read("memory_bytes", places->memory)) {
    facts.memory_bytes = memory_bytes(*memory);
    if (*facts.memory_bytes == 0) {
      facts.memory_bytes.reset();
      reader.note("memory_bytes", reading(places->memory.offset, *memory) + ", which is no size");
    }
  }
  facts.ecc = reader.flag("ecc", places->ecc);
  if (places->chip_id != 0) {
    if (const auto low = reader.word("chip_id", places->chip_id)) {
      if (const auto high = reader.word("chip_id", places->chip_id + sizeof(std::uint32_t)))
        facts.chip_id = fmt::format("{:08x}{:08x}", *high, *low);
    }
  }
  // No fact counts that was read before or after a fault: the values may be the fault's.
  if (const std::uint32_t now = registers.read32(0); is_security_fault(now))
    return {.chip = facts.chip, .problem = problem_in(now)};
  return facts;
}

RegisterFacts read_switch_facts(Registers& registers) {
  const std::uint32_t boot_0 = registers.read32(0);
  if (const auto chip = switch_chip(boot_0)) return read_register_facts(registers, *chip);
  std::string problem = problem_in(boot_0);
  if (problem.empty()) problem = reading(0, boot_0) + ", which is no chip of an NVSwitch that is known";
  return {.problem = std::move(problem)};
}

std::string_view RegisterFacts::mode() const {
  if (ppcie.value_or(false)) return "ppcie";
  if (cc_mode) return word_for(words_of(*cc_mode), *cc_mode);
  return ppcie ? "off" : "";  // an NVSwitch has no other mode
}

}  // namespace ferry::vfio
