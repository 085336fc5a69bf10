// SPDX-License-Identifier: Apache-2.0
// What Ferry asks of an API server, tried again for as long as that is safe and may help.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/field_filter.h"
#include "kube/timers.h"

namespace ferry {

/// What became of an eviction. That it has begun says nothing of when the pod is gone.
struct Eviction {
  enum class Outcome {
    begun,
    gone,     ///< there is no such pod any more
    not_now,  ///< a disruption budget or a webhook stands against it; it may be asked again
  };
  Outcome outcome = Outcome::begun;
  std::string why = {};  ///< what the server said, of `not_now`
  std::optional<std::chrono::seconds> retry_after = {};
};

/// One thread. Every call's function is called once, never from within the call that began it, and not at all
/// after cancel() or once this is gone. It may begin and cancel calls, and must not destroy this.
///
/// Tried again, a few times and with growing pauses: what the server did not do (429; 401 once, since a token
/// is replaced now and then), and what does no harm twice when no answer came or the server failed (5xx).
/// Errors: those of ApiErrc and of the transport; Errc::usage for a name that no object can have;
/// Errc::malformed_host for an answer that cannot be read.
class ApiClient {
 public:
  using Call = std::uint64_t;
  using Done = std::function<void(Result<nlohmann::json>)>;
  /// A merge patch made from the object as it is now; null or {}: nothing needs to be changed. An error ends
  /// the change and is its result.
  using MakePatch = std::function<Result<nlohmann::json>(const nlohmann::json& object)>;

  /// How often one request is sent before its failure is told.
  static constexpr unsigned kMostTries = 5;
  /// How often an object is read again because others write it too.
  static constexpr unsigned kMostRounds = 10;
  /// Under what name the server keeps which fields are ours.
  static constexpr std::string_view kFieldManager = "ferry";

  /// Both must outlive this. `patience`: how long a server that does not answer, or fails, is tried for one
  /// request, its tries and the pauses between them together; absent: kMostTries times.
  ApiClient(ApiTransport& transport, Timers& timers, Random random,
            std::optional<std::chrono::milliseconds> patience = {});
  ApiClient(const ApiClient&) = delete;
  ApiClient& operator=(const ApiClient&) = delete;
  ApiClient(ApiClient&&) = delete;
  ApiClient& operator=(ApiClient&&) = delete;
  ~ApiClient();

  Call get(const ObjectRef& object, Done done);
  /// These fields of it, so that its size does not matter.
  Call get(const ObjectRef& object, Done done, const FieldChoice& fields);
  /// The List object: its `items`, as of its `metadata.resourceVersion`.
  Call list(const Selection& selection, Done done) { return list(selection, {}, std::move(done)); }
  /// A part of it; paged_list.h has the whole by parts.
  Call list(const Selection& selection, const ListRange& range, Done done);

  /// Text, as the container wrote it.
  Call log(const ObjectRef& pod, const LogEnd& end, std::function<void(Result<std::string>)> done);

  /// Whatever the object is like: the last one wins, and one that was slow on its way may be the last. Where
  /// that matters, change().
  Call merge_patch(const ObjectRef& object, const nlohmann::json& patch, Done done);

  /// Changes the object only as it was when `make` saw it: after a conflict, and when it is not known whether
  /// the change was made, it is read and `make` called anew. `known`: as it was lately, which saves the first
  /// read. The result is the object as it is then.
  Call change(const ObjectRef& object, MakePatch make, Done done, const nlohmann::json* known = nullptr);

  enum class Force { no, yes };
  /// Server-side apply: `content` says all that we want of the object, and nothing else. It is made when it
  /// does not exist. ApiErrc::conflict: a field is another's, and not taken from it without Force::yes.
  Call apply(const ObjectRef& object, nlohmann::json content, Force force, Done done);

  /// ApiErrc::already_exists may come of our own first try, whose answer was lost. One whose name the server
  /// shall make up (generateName) is not sent twice.
  Call create(ApiKind kind, std::string_view space, const nlohmann::json& content, Done done);

  /// Of the pod with this `uid`, and no later one of its name.
  Call evict(const ObjectRef& pod, std::string_view uid, std::function<void(Result<Eviction>)> done);

  /// When what it owns goes: after it, or before it, so that it is there until they are gone.
  enum class Dependents { after, first };
  /// Success too when it is gone already. Without a `uid` it is not tried again after silence: the name may
  /// be another object's by then.
  Call remove(const ObjectRef& object, std::string_view uid, std::function<void(Result<>)> done,
              Dependents dependents = Dependents::after);

  /// Its function is not called. What has been sent may still be done.
  void cancel(Call call);

  std::size_t under_way() const { return running_.size(); }

 private:
  struct Exchange;
  struct Changing;
  /// What came of an exchange, and how long a server that refused asks to wait.
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
  /// `first`: the error of the same request in the other version, where that was sent before.
  Exchange eviction(const ObjectRef& pod, std::string_view uid, bool old_policy,
                    const std::optional<Error>& first, std::function<void(Result<Eviction>)> done);

  ApiTransport& transport_;
  Timers& timers_;
  const Random random_;
  const std::optional<std::chrono::milliseconds> patience_;
  Call last_call_ = 0;
  std::map<Call, std::unique_ptr<Exchange>> running_;
  bool old_policy_ = false;  ///< evictions are policy/v1beta1's, as before 1.22; one after 1.24 knows no such
};

}  // namespace ferry
