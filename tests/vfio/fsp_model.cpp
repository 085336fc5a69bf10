// SPDX-License-Identifier: Apache-2.0
#include "tests/vfio/fsp_model.h"

namespace ferry::test {
namespace {

constexpr std::uint32_t kCommandHead = 0x8f2c10;
constexpr std::uint32_t kCommandTail = 0x8f2c14;
constexpr std::uint32_t kMessageHead = 0x8f2c90;
constexpr std::uint32_t kMessageTail = 0x8f2c94;
constexpr std::uint32_t kPort = 0x8f2ad0;
constexpr std::uint32_t kPortData = 0x8f2ad4;
constexpr std::uint32_t kBase = 2048;
constexpr std::uint32_t kInfoOut = 0x8f1f04;
constexpr std::uint32_t kDataOut = 0x8f1f08;
constexpr std::uint32_t kInfoIn = 0x8f1f84;
constexpr std::uint32_t kDataIn = 0x8f1f88;
constexpr std::uint32_t kReady = 1U << 24U;
constexpr std::uint32_t kError = 1U << 25U;
constexpr std::uint32_t kCredit = 1U << 26U;

}  // namespace

bool FspModel::owns(std::uint32_t offset) const {
  if (way_ == Way::queues)
    return offset == kCommandHead || offset == kCommandTail || offset == kMessageHead ||
           offset == kMessageTail || offset == kPort || offset == kPortData;
  return offset == kInfoOut || offset == kDataOut || offset == kInfoIn || offset == kDataIn;
}

std::uint32_t FspModel::read(std::uint32_t offset) {
  if (gone) return 0xbadf1301;
  if (way_ == Way::queues) {
    if (offset != kPortData) return offset == kPort ? port_ : registers_[offset];
    const std::uint32_t at = port_ & 0xffffffU;
    if ((port_ & (1U << 25U)) != 0) port_ += 4;
    return memory_[at];
  }
  const std::uint32_t fault = mailbox_error ? kError : 0;
  if (offset == kInfoIn) return fault | (deaf ? 0 : kReady) | (no_credit ? 0 : kCredit);
  if (offset == kInfoOut) return fault | (outgoing_.empty() ? 0 : kReady | outgoing_bytes_);
  if (offset != kDataOut || outgoing_.empty()) return 0;
  const std::uint32_t word = outgoing_.front();
  outgoing_.pop_front();
  return word;
}

void FspModel::write(std::uint32_t offset, std::uint32_t value) {
  if (way_ == Way::queues) {
    if (offset == kPort) {
      port_ = value;
    } else if (offset == kPortData) {
      memory_[port_ & 0xffffffU] = value;
      if ((port_ & (1U << 24U)) != 0) port_ += 4;
    } else {
      registers_[offset] = value;
    }
    const bool was_read = offset == kMessageTail && value == registers_[kMessageHead];
    if (was_read && repeats > 0) {
      --repeats;
      return leave_message(last_);
    }
    // It takes no message while its answer is not read.
    const bool has_answered = registers_[kMessageHead] != registers_[kMessageTail];
    const bool looks = offset == kCommandHead || (was_read && !keeps_messages);
    if (!looks || deaf || has_answered || registers_[kCommandHead] == registers_[kCommandTail]) return;
    std::vector<std::uint32_t> message;
    for (std::uint32_t at = registers_[kCommandHead]; at <= registers_[kCommandTail]; at += 4)
      message.push_back(memory_[at]);
    if (!keeps_messages) registers_[kCommandHead] = registers_[kCommandTail];
    take(message);
    return;
  }
  if (offset == kInfoIn) {
    incoming_.clear();
    expected_ = (value & 0xfffffU) / 4;
  } else if (offset == kDataIn) {
    incoming_.push_back(value);
    if (incoming_.size() == expected_) take(incoming_);
  }
}

void FspModel::leave_request(std::size_t words) {
  registers_[kCommandHead] = kBase;
  registers_[kCommandTail] = kBase + static_cast<std::uint32_t>(words * 4) - 4;
}

void FspModel::leave_message(std::vector<std::uint32_t> words) {
  if (way_ == Way::queues) {
    for (std::size_t i = 0; i < words.size(); ++i)
      memory_[kBase + static_cast<std::uint32_t>(i * 4)] = words[i];
    registers_[kMessageHead] = kBase;
    registers_[kMessageTail] =
        kBase + answer_bytes.value_or(static_cast<std::uint32_t>(words.size() * 4)) - 4;
    return;
  }
  outgoing_bytes_ = answer_bytes.value_or(static_cast<std::uint32_t>(words.size() * 4));
  outgoing_.assign(words.begin(), words.end());
}

void FspModel::take(const std::vector<std::uint32_t>& message) {
  constexpr std::uint32_t kUnknownKnob = 0x1e3;
  if (silent || message.size() < 3 || message[0] != 0xc0000000 || message[1] != 0x1310de7e) return;
  const std::uint32_t action = message[2] & 0xffffU;
  const unsigned knob = message[2] >> 16U;
  if (unknown.contains(knob)) return reply(kUnknownKnob, {});
  if (action == 0x20c) {
    if (const auto found = unreadable.find(knob); found != unreadable.end()) return reply(found->second, {});
    // The knob before each one that has a name lets the host set it.
    constexpr unsigned kAllowed = 1;
    static const std::set<unsigned> kAllow = {1, 3, 5, 7, 9, 33, 44};
    const auto found = knobs_.find(knob);
    const std::uint32_t value = found != knobs_.end() ? found->second : kAllow.contains(knob) ? kAllowed : 0;
    return reply(0, {value | garbage << 16U});
  }
  if (action != 0x20d || message.size() < 4) return reply(1, {});
  if (writes_until_silent && (*writes_until_silent)-- == 0) {
    silent = true;
    return;
  }
  if (const auto found = refuses.find(knob); found != refuses.end()) return reply(found->second, {});
  if (!forgets.contains(knob)) {
    knobs_[knob] = message[3];
    stored.push_back({knob, message[3]});
  }
  reply(0, {});
}

void FspModel::reply(std::uint32_t status, std::vector<std::uint32_t> data) {
  std::vector<std::uint32_t> words = {0xc0000000, 0x1510de7e, 0x77, 0x13, status};
  words.insert(words.end(), data.begin(), data.end());
  if (answer_words) words.resize(*answer_words);
  for (const auto& [at, word] : answer)
    if (at < words.size()) words[at] = word;
  last_ = words;
  leave_message(std::move(words));
}

}  // namespace ferry::test
