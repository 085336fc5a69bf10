// SPDX-License-Identifier: Apache-2.0
// Records events of a node and of other objects, which `kubectl describe` shows.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/pinned.h"
#include "common/result.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry::kube {

/// An object that an event is about.
struct EventSubject {
  ObjectRef object;
  std::string uid;
};

/// Events are for people and may be lost: nothing waits for one. An equal event within ten minutes raises the
/// count of the first. Ten are written at once, then one each half minute, in the order in which they came;
/// an event that has waited for ten minutes is lost. Each type has its own budget, so that no warning waits
/// for normal events.
///
/// Only one thread may use it. Client and timers must outlive this.
class EventRecorder : Pinned {
 public:
  enum class Type { normal, warning };
  using WallClock = std::function<std::chrono::system_clock::time_point()>;

  /// Bytes of a message that are kept; the rest is cut off, never within a character.
  static constexpr std::size_t kLongestMessage = 1024;

  /// `refused` runs if the server takes no events: once, and again after it has taken one. `controller` is
  /// the reportingComponent of the events.
  EventRecorder(ApiClient& client, Timers& timers, Random random, WallClock wall_clock, std::string node,
                std::function<void(const Error&)> refused = {},
                std::string controller = "gpu-ferry.io/agent");
  ~EventRecorder();

  /// `reason` is one CamelCase word; `message` names the device, its user and a remedy.
  void record(Type type, std::string_view reason, std::string_view message);
  /// The same for another object than the node. The event is in the object's namespace.
  void record(const EventSubject& subject, Type type, std::string_view reason, std::string_view message);

 private:
  struct Recorded;
  /// The events of one type that may still be written.
  struct Budget {
    double tokens = 0;
    Timers::Clock::time_point at = {};  ///< time at which `tokens` was right
    bool waits = false;                 ///< an event waits for a token
    Timers::Timer token = {};
  };
  struct Key {
    std::string space;  ///< of the object, as `uid`
    std::string uid;
    std::string reason;
    std::string message;
    auto operator<=>(const Key&) const = default;
  };

  Budget& budget(Type type) { return type == Type::warning ? warnings_ : normals_; }
  bool may_write(Budget& budget);
  void forget_old();
  void write(const Key& key);
  void wait_for_token(Type type);
  void write_waiting(Type type);
  void create(const Key& key, Recorded& recorded);
  void raise(const Key& key, Recorded& recorded);
  void written(const Key& key, std::uint64_t count);
  void hear(const Result<nlohmann::json>& answer);
  static std::string space_of(const Recorded& recorded);
  std::string new_name(std::string_view object);

  ApiClient& client_;
  Timers& timers_;
  const Random random_;
  const WallClock wall_clock_;
  const std::string node_;
  const std::string controller_;
  const std::function<void(const Error&)> refused_;
  bool refusal_reported_ = false;
  std::map<Key, std::unique_ptr<Recorded>> recorded_;
  std::uint64_t last_number_ = 0;
  Budget normals_;
  Budget warnings_;
};

}  // namespace ferry::kube
