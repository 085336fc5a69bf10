// SPDX-License-Identifier: Apache-2.0
// What happens on a node, as events that `kubectl describe node` shows.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "kube/api_client.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry {

/// Events are for people and may be lost: nothing waits for one, and none is told to have failed. The same
/// one again within ten minutes raises the count of the first. Ten at once are written, then one each half
/// minute.
///
/// One thread. The client and the timers must outlive this.
class EventRecorder {
 public:
  enum class Type { normal, warning };
  using WallClock = std::function<std::chrono::system_clock::time_point()>;

  /// Bytes of a message that are kept: more is cut off, never in the middle of a character.
  static constexpr std::size_t kLongestMessage = 1024;

  EventRecorder(ApiClient& client, Timers& timers, Random random, WallClock wall_clock, std::string node);
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;
  EventRecorder(EventRecorder&&) = delete;
  EventRecorder& operator=(EventRecorder&&) = delete;
  ~EventRecorder();

  /// `reason` is one CamelCase word; `message` names device, holder and what to do.
  void record(Type type, std::string_view reason, std::string_view message);

 private:
  struct Recorded;
  using Key = std::pair<std::string, std::string>;  // reason, message

  bool may_write();
  void forget_old();
  void write(const Key& key);
  void create(const Key& key, Recorded& recorded);
  void raise(const Key& key, Recorded& recorded);
  void written(const Key& key, std::uint64_t count);
  std::string new_name();

  ApiClient& client_;
  Timers& timers_;
  const Random random_;
  const WallClock wall_clock_;
  const std::string node_;
  std::map<Key, std::unique_ptr<Recorded>> recorded_;
  double tokens_;
  Timers::Clock::time_point tokens_at_;
};

}  // namespace ferry
