// SPDX-License-Identifier: Apache-2.0
#include "tests/vfio/bar_model.h"

#include <array>
#include <fstream>

namespace ferry::test {
namespace {

constexpr std::uint32_t kBlocked = 0xbadf1301;
constexpr std::array<std::uint32_t, 17> kKnown = {0x0,      0x590,    0x200bc,  0x20120,  0x28c50,  0x660bc,
                                                  0x66120,  0x100b20, 0x100ce0, 0x1182cc, 0x1fa3e0, 0x820344,
                                                  0x820348, 0x8a004c, 0x8aa128, 0x9a0470, 0xad00bc};

}  // namespace

void BarModel::reset() {
  polls_left_ = polls_until_boot;
  if (resets_without_effect > 0) {
    --resets_without_effect;
    return;
  }
  effective_on_ = knob(kConfidential) == 1;
  effective_devtools_ = knob(kDevtools) == 1;
  const bool has_ppcie = kind_ == Kind::gh100 || kind_ == Kind::ls10;
  effective_ppcie_ = has_ppcie && knob(kProtectedPcie) == 1;
  effective_filter_ = knob(kDecoupler) == 2;
}

std::uint32_t BarModel::knob(unsigned number) const {
  const auto found = knobs_.find(number);
  return found == knobs_.end() ? 0 : found->second;
}

std::uint32_t BarModel::mode_word() const {
  const std::uint32_t mode = (effective_on_ ? 1U : 0U) | (effective_devtools_ ? 2U : 0U);
  if (kind_ == Kind::gh100) return mode | (effective_ppcie_ ? 0x20U : 0U);
  return mode | (effective_filter_ ? 0x4U : 0U) | (effective_on_ ? 0x40U : 0U);
}

std::uint32_t BarModel::value_of(std::uint32_t offset) {
  const bool hopper = kind_ == Kind::gh100;
  const bool blackwell = kind_ == Kind::gb100 || kind_ == Kind::gb202;
  const bool ls10 = kind_ == Kind::ls10;
  std::uint32_t boot = 0x200bc;
  if (kind_ == Kind::gb202) boot = 0xad00bc;
  if (ls10) boot = 0x660bc;

  if (offset == 0) {
    if (ls10) return 0x007000a1;
    if (kind_ == Kind::lr10) return 0x006000a1;
    if (hopper && recovery) return 0;
    return blocks() ? kBlocked : hopper ? 0x180000a1 : 0x1a0000a1;
  }
  if (offset == boot) {
    if (polls_left_ == 0 && !recovery) return 0xff;
    if (polls_left_ > 0) --polls_left_;
    return boot_reads_bad ? 0xbadf5040 : 0x1f;
  }
  if (hopper && offset == 0x20120) return recovery ? 0x40000000 : 0x3;
  if (ls10 && offset == 0x66120) return recovery ? 0x40000000 : 0x3;
  if (blackwell && offset == 0x8aa128) return recovery ? 0xab07 : 0xab01;
  if (hopper && offset == 0x1182cc) return mode_word();
  if (blackwell && offset == 0x590) return mode_word();
  if (ls10 && offset == 0x28c50) return effective_ppcie_ ? 1 : 0;
  if (blocks() || kind_ == Kind::lr10) return kBlocked;
  if (offset == (hopper ? 0x100b20U : 0x8a004cU)) return scrubbed ? 1 : 0;
  if (offset == (hopper ? 0x100ce0U : 0x1fa3e0U)) return memory_word;
  if (offset == 0x9a0470) return 0x11;
  if (offset == 0x820344) return 0x89abcdef;
  if (offset == 0x820348) return 0x01234567;
  return kBlocked;
}

std::uint32_t BarModel::read32(std::uint32_t offset) {
  ++reads[offset];
  if (dead) return 0xffffffff;
  if (const auto found = forced.find(offset); found != forced.end()) return found->second;
  return fsp.owns(offset) ? fsp.read(offset) : value_of(offset);
}

void BarModel::write32(std::uint32_t offset, std::uint32_t value) {
  ++writes;
  if (!dead && fsp.owns(offset)) fsp.write(offset, value);
}

void BarModel::save(const std::string& path) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  for (const std::uint32_t offset : kKnown) {
    const std::uint32_t value = read32(offset);
    out.seekp(offset);
    out.write(reinterpret_cast<const char*>(&value), sizeof value);  // NOLINT(*-reinterpret-cast)
  }
  out.seekp((16 << 20) - 1);
  out.put('\0');
}

}  // namespace ferry::test
