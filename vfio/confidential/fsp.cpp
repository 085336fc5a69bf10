// SPDX-License-Identifier: Apache-2.0
#include "vfio/confidential/fsp.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry::vfio {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr std::size_t kWord = sizeof(std::uint32_t);

// The header of a message in one packet, and its second word: NVIDIA's kind, type PRC for a request. The
// answer's type differs, and it repeats the request's type.
constexpr std::uint32_t kOnePacket = 0xc0000000;
constexpr std::uint32_t kRequest = 0x1310de7e;
constexpr std::uint32_t kAnswer = 0x1510de7e;
constexpr std::uint32_t kPrc = 0x13;
constexpr std::size_t kAnswerHead = 5;
constexpr std::uint32_t kUnknownKnob = 0x1e3;

constexpr milliseconds kAnswerTime = 5s;

tl::unexpected<Error> unserved(std::uint32_t offset, std::uint32_t value) {
  return fail(
      Errc::unreachable,
      fmt::format("its security processor does not answer: register {:#x} reads {:#x}", offset, value));
}

// The queues of channel 2, and its port to the processor's memory. A queue is empty if its head is its tail.
class QueueFsp final : public Fsp {
 public:
  QueueFsp(Registers& registers, PollClock& clock) : Fsp(registers, clock) {}

  Result<> start() override {
    const auto commands = is_empty(kCommandHead);
    const auto messages = is_empty(kMessageHead);
    if (!commands) return fail(commands.error());
    if (!messages) return fail(messages.error());
    if (*commands && *messages) return {};
    // The processor may be about to answer the earlier program.
    (void)await(kMessageHead, kAnswerTime, 10ms, "",
                [&](std::uint32_t head) { return head != registers_.read32(kMessageHead + kTail); });
    for (const std::uint32_t queue : {kCommandHead, kMessageHead}) {
      registers_.write32(queue + kTail, kBase);
      registers_.write32(queue, kBase);
    }
    return {};
  }

 private:
  static constexpr std::uint32_t kCommandHead = 0x8f2c10;
  static constexpr std::uint32_t kMessageHead = 0x8f2c90;
  static constexpr std::uint32_t kTail = 4;  // behind the head
  static constexpr std::uint32_t kPort = 0x8f2ad0;
  static constexpr std::uint32_t kPortData = 0x8f2ad4;
  static constexpr std::uint32_t kBase = 2048;    // of the channel, in the processor's memory
  static constexpr std::uint32_t kWindow = 1024;  // bytes of a message at most
  static constexpr std::uint32_t kAdvanceOnWrite = 1U << 24U;
  static constexpr std::uint32_t kAdvanceOnRead = 1U << 25U;

  Result<bool> is_empty(std::uint32_t queue) {
    const auto head = read(queue);
    if (!head) return fail(head.error());
    const auto tail = read(queue + kTail);
    if (!tail) return fail(tail.error());
    return *head == *tail;
  }

  Result<> send(const FspWords& message) override {
    const auto taken = await(kCommandHead, 1s, 1ms, "to take the message before", [&](std::uint32_t head) {
      // A late answer to an earlier request keeps the processor from the next one.
      const std::uint32_t unread = registers_.read32(kMessageHead);
      if (unread != registers_.read32(kMessageHead + kTail)) registers_.write32(kMessageHead + kTail, unread);
      return head == registers_.read32(kCommandHead + kTail);
    });
    if (!taken) return fail(taken.error());
    registers_.write32(kPort, kBase | kAdvanceOnWrite);
    for (const std::uint32_t word : message) registers_.write32(kPortData, word);
    registers_.write32(kCommandHead + kTail,
                       kBase + static_cast<std::uint32_t>((message.size() - 1) * kWord));
    registers_.write32(kCommandHead, kBase);
    return {};
  }

  Result<FspWords> receive() override {
    std::uint32_t tail = 0;
    const auto head = await(kMessageHead, kAnswerTime, 10ms, "to answer", [&](std::uint32_t value) {
      tail = registers_.read32(kMessageHead + kTail);
      return value != tail;
    });
    if (!head) return fail(head.error());
    const std::uint32_t bytes = tail - *head + kWord;
    const bool fits = !is_bad_read(tail) && bytes % kWord == 0 && bytes <= kWindow;
    FspWords message(fits ? bytes / kWord : 0);
    registers_.write32(kPort, kBase | kAdvanceOnRead);
    for (std::uint32_t& word : message) word = registers_.read32(kPortData);
    // The place is free again, whatever the message was.
    registers_.write32(kMessageHead + kTail, *head);
    if (!fits)
      return fail(Errc::failed,
                  fmt::format("its queue holds no message: head {:#x}, tail {:#x}", *head, tail));
    return message;
  }
};

// Port 0 of the mailbox. The words of both directions are named from the driver's side.
class MailboxFsp final : public Fsp {
 public:
  MailboxFsp(Registers& registers, PollClock& clock) : Fsp(registers, clock) {}

  Result<> start() override {
    const auto info = read(kInfoToUs);
    if (!info) return fail(info.error());
    if ((*info & kReady) != 0) (void)receive();
    return {};
  }

 private:
  static constexpr std::uint32_t kInfoToUs = 0x8f1f04;
  static constexpr std::uint32_t kDataToUs = 0x8f1f08;
  static constexpr std::uint32_t kInfoToFsp = 0x8f1f84;
  static constexpr std::uint32_t kDataToFsp = 0x8f1f88;
  static constexpr std::uint32_t kBytes = 0xfffff;
  static constexpr std::uint32_t kTrigger = 1U << 20U;
  static constexpr std::uint32_t kReady = 1U << 24U;
  static constexpr std::uint32_t kError = 1U << 25U;
  static constexpr std::uint32_t kCredit = 1U << 26U;
  static constexpr std::uint32_t kLargest = 4160;
  static constexpr std::size_t kBlock = 16;  // words for a credit

  Result<> expect_no_error(std::uint32_t info) {
    const auto value = read(info);
    if (!value) return fail(value.error());
    if ((*value & kError) != 0)
      return fail(Errc::failed, fmt::format("its mailbox shows an error: {:#x} reads {:#x}", info, *value));
    return {};
  }

  Result<> send(const FspWords& message) override {
    if (auto drained = start(); !drained) return drained;
    if (auto good = expect_no_error(kInfoToFsp); !good) return good;
    const auto ready = await(kInfoToFsp, kAnswerTime, 1ms, "to take a message",
                             [](std::uint32_t info) { return (info & kReady) != 0; });
    if (!ready) return fail(ready.error());
    registers_.write32(kInfoToFsp, static_cast<std::uint32_t>(message.size() * kWord) | kTrigger);
    for (std::size_t i = 0; i < message.size(); ++i) {
      if (i % kBlock == 0) {
        const auto credit = await(kInfoToFsp, 1s, 1ms, "to take a part of a message",
                                  [](std::uint32_t info) { return (info & kCredit) != 0; });
        if (!credit) return fail(credit.error());
      }
      registers_.write32(kDataToFsp, message[i]);
    }
    return expect_no_error(kInfoToFsp);
  }

  Result<FspWords> receive() override {
    const auto info = await(kInfoToUs, kAnswerTime, 1ms, "to answer",
                            [](std::uint32_t value) { return (value & (kReady | kError)) != 0; });
    if (!info) return fail(info.error());
    if (auto good = expect_no_error(kInfoToUs); !good) return fail(std::move(good).error());
    const std::uint32_t bytes = *info & kBytes;
    if (bytes % kWord != 0 || bytes > kLargest)
      return fail(Errc::failed, fmt::format("its mailbox offers {} bytes", bytes));
    FspWords message(bytes / kWord);
    for (std::uint32_t& word : message) word = registers_.read32(kDataToUs);
    if (auto good = expect_no_error(kInfoToUs); !good) return fail(std::move(good).error());
    return message;
  }
};

}  // namespace

bool poll_until(PollClock& clock, milliseconds most, milliseconds pause, const std::function<bool()>& holds) {
  const auto until = clock.now() + most;
  while (!holds()) {
    if (clock.now() >= until) return false;
    clock.sleep(pause);
  }
  return true;
}

Result<std::uint32_t> Fsp::read(std::uint32_t offset) {
  const std::uint32_t value = registers_.read32(offset);
  if (is_bad_read(value)) return unserved(offset, value);
  return value;
}

Result<std::uint32_t> Fsp::await(std::uint32_t offset, milliseconds most, milliseconds pause,
                                 const char* awaited, const std::function<bool(std::uint32_t)>& holds) {
  std::uint32_t value = 0;
  const bool came = poll_until(clock_, most, pause, [&] {
    value = registers_.read32(offset);
    return is_bad_read(value) || holds(value);
  });
  if (is_bad_read(value)) return unserved(offset, value);
  if (came) return value;
  return fail(Errc::unreachable,
              fmt::format("its security processor took more than {:g} s {} (register {:#x} reads {:#x})",
                          std::chrono::duration<double>(most).count(), awaited, offset, value));
}

Result<FspWords> Fsp::call(std::span<const std::uint32_t> request) {
  FspWords message = {kOnePacket, kRequest};
  message.insert(message.end(), request.begin(), request.end());
  if (auto sent = send(message); !sent) return fail(std::move(sent).error());
  auto answer = receive();
  if (!answer) return answer;
  const auto wrong = [](const std::string& why) {
    return fail(Errc::failed, "its security processor gave a wrong answer: " + why);
  };
  if (answer->size() < kAnswerHead) return wrong(fmt::format("{} words", answer->size()));
  if (((*answer)[0] & kOnePacket) != kOnePacket || (*answer)[1] != kAnswer)
    return wrong(fmt::format("its header is {:#x} {:#x}", (*answer)[0], (*answer)[1]));
  if ((*answer)[3] != kPrc) return wrong(fmt::format("it answers a request of type {:#x}", (*answer)[3]));
  if (const std::uint32_t status = (*answer)[4]; status != 0)
    return fail(status == kUnknownKnob ? Errc::unsupported : Errc::failed,
                fmt::format("its security processor refused with status {:#x}", status));
  answer->erase(answer->begin(), answer->begin() + kAnswerHead);
  return answer;
}

std::unique_ptr<Fsp> make_fsp(Registers& registers, ChipFamily family, PollClock& clock) {
  if (family == ChipFamily::hopper || family == ChipFamily::ls10)
    return std::make_unique<QueueFsp>(registers, clock);
  return std::make_unique<MailboxFsp>(registers, clock);
}

}  // namespace ferry::vfio
