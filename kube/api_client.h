// SPDX-License-Identifier: Apache-2.0
// Ferry's requests to an API server, tried again as long as that is safe and may help.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "common/pinned.h"
#include "common/result.h"
#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/field_filter.h"
#include "kube/timers.h"

namespace ferry::kube {

/// The end of a request to the API server, as it is counted.
struct RequestOutcome {
  std::string verb;  ///< "get", "patch", "post", "put", "delete", "watch", "other"
  std::string code;  ///< "200"; "none": no answer came; "other": not a status of HTTP
  auto operator<=>(const RequestOutcome&) const = default;
};
using RequestCounts = std::map<RequestOutcome, std::uint64_t>;

/// Counts the requests that pass to another transport, each when it has ended, watches too. A cancelled
/// request is not counted.
class CountedTransport final : public ApiTransport {
 public:
  /// `under` must outlive this.
  explicit CountedTransport(ApiTransport& under) : under_(under) {}

  Call send(ApiRequest request, ApiListener listener) override;
  void cancel(Call call) override { under_.cancel(call); }

  const RequestCounts& counts() const { return *counts_; }

 private:
  ApiTransport& under_;
  const std::shared_ptr<RequestCounts> counts_ = std::make_shared<RequestCounts>();
};

/// The server's answer to an eviction. With neither `gone` nor `why` it has begun, which does not say when
/// the pod is gone.
struct Eviction {
  bool gone = false;  ///< the pod does not exist any more
  /// The server's message if a disruption budget or a webhook is against it now; it may be tried again.
  std::string why = {};
  std::optional<std::chrono::seconds> retry_after = {};
};

/// Only one thread may use it. Each call's function runs once, never within the call that began it, and not
/// after cancel() or the end of this object. The function may begin and cancel calls, and must not destroy
/// this object.
///
/// A few tries with growing pauses are made for requests that the server did not do: 429; 401 once, since
/// tokens are replaced. The same holds without an answer or after 5xx, if a second time does no harm. Errors:
/// those of ApiErrc and of the transport; Errc::usage: a name that no object can have; Errc::malformed_host:
/// an unreadable answer.
class ApiClient : Pinned {
 public:
  using Call = std::uint64_t;
  using Done = std::function<void(Result<nlohmann::json>)>;
  /// Makes a merge patch from the object as it is now; null or {}: nothing needs a change. An error ends the
  /// change and is its result.
  using MakePatch = std::function<Result<nlohmann::json>(const nlohmann::json& object)>;

  /// Tries of one request before its failure is reported.
  static constexpr unsigned kMostTries = 5;
  /// Rounds of one change(), since others write the object too.
  static constexpr unsigned kMostRounds = 10;
  /// The name under which the server records the fields that Ferry sets.
  static constexpr std::string_view kFieldManager = "ferry";

  /// Transport and timers must outlive this. `patience`: the time for all tries of one request and their
  /// pauses, if the server fails or does not answer; absent: only kMostTries counts.
  ApiClient(ApiTransport& transport, Timers& timers, Random random,
            std::optional<std::chrono::milliseconds> patience = {});
  ~ApiClient();

  /// Gets only these fields, so that the object's size does not matter.
  Call get(const ObjectRef& object, Done done, const FieldChoice& fields);
  /// Gets the List object: its `items`, as of its `metadata.resourceVersion`. paged_list.h gets a list in
  /// parts.
  Call list(const Selection& selection, const ListRange& range, Done done);

  /// Patches the object in any state: the last patch wins, and a patch that was slow on its way may be the
  /// last. Use change() where that matters.
  Call merge_patch(const ObjectRef& object, const nlohmann::json& patch, Done done);

  /// Changes the object only in the state that `make` saw. After a conflict, and if the outcome is unknown,
  /// the object is read and `make` runs again. `known`: the object as last seen, which saves the first read.
  /// The result is the changed object.
  Call change(const ObjectRef& object, MakePatch make, Done done, const nlohmann::json* known = nullptr);

  /// Replaces the object with `content`, which names it and its state by metadata.resourceVersion.
  /// ApiErrc::conflict: the object is in another state, perhaps that of our own first try, whose answer was
  /// lost.
  Call replace(const ObjectRef& object, const nlohmann::json& content, Done done);

  /// Server-side apply: `content` is all that Ferry wants of the object, which is created if it does not
  /// exist. Overrides other field managers.
  Call apply(const ObjectRef& object, nlohmann::json content, Done done);

  /// ApiErrc::already_exists may come of our own first try, whose answer was lost. An object whose name the
  /// server makes up (generateName) is not sent twice.
  Call create(ApiKind kind, std::string_view space, const nlohmann::json& content, Done done);

  /// Evicts the pod with this `uid`, never a later pod of its name.
  Call evict(const ObjectRef& pod, std::string_view uid, std::function<void(Result<Eviction>)> done);

  /// Success also if the object is gone already. Without a `uid` the request is not repeated after silence:
  /// the name may be another object's by then. `dependents_first`: the object is there until its dependents
  /// are gone, which are otherwise deleted after it.
  Call remove(const ObjectRef& object, std::string_view uid, std::function<void(Result<>)> done,
              bool dependents_first = false);

  /// The call's function does not run. A request that has been sent may still take effect.
  void cancel(Call call);

  std::size_t under_way() const { return running_.size(); }

 private:
  struct Exchange;
  struct Changing;
  /// Gets the result of an exchange, and the pause that a refusing server asks for.
  using Answered = std::function<void(Call, Result<ApiReply>, std::optional<std::chrono::seconds>)>;

  Call begin(Result<std::string> path, Exchange exchange);
  void go_on(Call call, Exchange exchange, Backoff::Pause pause);
  void later(Call call, Backoff::Pause pause, EventLoop::Job job);
  void send(Call call);
  void received(Call call, std::string_view bytes);
  void ended(Call call, Result<ApiReply> reply);
  void finish(Call call, Result<ApiReply> reply, std::optional<std::chrono::seconds> retry_after);
  void read(Call call, const std::shared_ptr<Changing>& changing, Backoff::Pause pause);
  void make(Call call, const std::shared_ptr<Changing>& changing, const nlohmann::json& object);
  /// `first`: the error of the same request in the other API version, if that was sent before.
  Exchange eviction(const ObjectRef& pod, std::string_view uid, bool old_policy,
                    const std::optional<Error>& first, std::function<void(Result<Eviction>)> done);

  ApiTransport& transport_;
  Timers& timers_;
  const Random random_;
  const std::optional<std::chrono::milliseconds> patience_;
  Call last_call_ = 0;
  std::map<Call, std::unique_ptr<Exchange>> running_;
  bool old_policy_ = false;  ///< evictions use policy/v1beta1: needed before 1.22, unknown after 1.24
};

}  // namespace ferry::kube
