// SPDX-License-Identifier: Apache-2.0
// A model of the security processor behind BAR 0: both ways to it, its knobs, and the faults that it may
// have. Written from the meaning of each register, not from the code under test.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace ferry::test {

class FspModel {
 public:
  enum class Way { queues, mailbox };
  /// `knobs` must outlive it. A knob that is missing there reads 0.
  FspModel(Way way, std::map<unsigned, std::uint32_t>& knobs) : way_(way), knobs_(knobs) {}

  bool owns(std::uint32_t offset) const;
  std::uint32_t read(std::uint32_t offset);
  void write(std::uint32_t offset, std::uint32_t value);

  /// An answer in the queues or the mailbox that nobody has read.
  void leave_message(std::vector<std::uint32_t> words);
  /// A request in the queues that the processor has not taken.
  void leave_request(std::size_t words);

  /// Faults.
  bool gone = false;                                  ///< its registers read as errors
  bool deaf = false;                                  ///< takes no message
  bool silent = false;                                ///< gives no answer
  bool keeps_messages = false;                        ///< leaves what it has taken in its queue
  unsigned repeats = 0;                               ///< answers in its queue that come once more when read
  bool mailbox_error = false;                         ///< the mailbox shows an error
  bool no_credit = false;                             ///< the mailbox takes no part of a message
  std::optional<std::size_t> answer_words = {};       ///< an answer has so many words
  std::optional<std::uint32_t> answer_bytes = {};     ///< and says that it has so many bytes
  std::map<std::size_t, std::uint32_t> answer = {};   ///< other words of an answer, by their place
  std::uint32_t garbage = 0;                          ///< in the upper half of a knob's value
  std::set<unsigned> unknown = {};                    ///< knobs that the firmware does not know
  std::map<unsigned, std::uint32_t> refuses = {};     ///< statuses of writes, by knob
  std::map<unsigned, std::uint32_t> unreadable = {};  ///< statuses of reads, by knob
  std::set<unsigned> forgets = {};  ///< knobs whose writes it acknowledges and does not store
  std::optional<unsigned> writes_until_silent = {};  ///< it gives no answer after so many writes

  /// The writes that were stored, in their order.
  struct Write {
    unsigned knob;
    std::uint32_t value;
    bool operator==(const Write&) const = default;
  };
  std::vector<Write> stored = {};

 private:
  void take(const std::vector<std::uint32_t>& message);
  void reply(std::uint32_t status, std::vector<std::uint32_t> data);

  Way way_;
  std::map<unsigned, std::uint32_t>& knobs_;
  std::map<std::uint32_t, std::uint32_t> registers_;  // of the queues
  std::map<std::uint32_t, std::uint32_t> memory_;
  std::uint32_t port_ = 0;
  std::vector<std::uint32_t> last_;      // its last answer
  std::vector<std::uint32_t> incoming_;  // of the mailbox
  std::size_t expected_ = 0;
  std::deque<std::uint32_t> outgoing_;
  std::uint32_t outgoing_bytes_ = 0;
};

}  // namespace ferry::test
