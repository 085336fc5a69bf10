// SPDX-License-Identifier: Apache-2.0
// Publishes the GPUs of the node as ResourceSlices, and keeps them as they should be. It reads hostd's list
// of GPUs (kClaimableGpusFile), the devices that claims have on the node, the allocations of ResourceClaims,
// and its own slices, and writes the difference alone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "dra/claims/claim_driver.h"
#include "dra/slices/node_model.h"
#include "dra/slices/resource_slice.h"
#include "hostfs/host_fs.h"
#include "kube/api_client.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry::dra {

// server_features.cpp finds out which fields of ResourceSlices the API server stores, by a dry-run create of
// a slice that has all of them (docs/adr/0035). The server must have resource.k8s.io/v1.

/// The features by the server's answer to the trial. Errc::unsupported: the server has no resource.k8s.io/v1,
/// with a hint. A server that refuses the slice as invalid has no feature. Errors: those of the transport, of
/// kube::error_of() and of features_of_probe().
Result<ServerFeatures> features_of_answer(const Result<kube::ApiReply>& reply);

/// Asks the server, once for each begin(). Only one thread may use it.
class FeatureProbe : Pinned {
 public:
  using Done = std::function<void(Result<ServerFeatures>)>;

  /// The transport must outlive this.
  explicit FeatureProbe(kube::ApiTransport& transport) : transport_(transport) {}
  ~FeatureProbe();

  /// Begins a trial; none may be under way. `done` runs once, never within this call, and not after the end
  /// of this object.
  void begin(const SliceOwner& owner, Done done);
  bool is_under_way() const { return call_.has_value(); }

 private:
  kube::ApiTransport& transport_;
  std::optional<kube::ApiTransport::Call> call_;
};

// slice_plan.cpp plans the requests that make the published ResourceSlices of a node the desired ones: a pure
// function.

/// A slice of Ferry's driver and this node, as the API server has it.
struct StoredSlice {
  std::string name;
  std::string uid;
  std::string version;                      ///< resourceVersion
  std::optional<ResourceSlice> slice = {};  ///< absent: the object cannot be read, and is removed
};

struct SliceRequest {
  enum class Action { create, update, remove };
  Action action = Action::create;
  std::string name = {};     ///< of the stored slice; empty with Action::create
  std::string uid = {};      ///< as `name`
  std::string version = {};  ///< as `name`: the object is updated in this state alone
  ResourceSlice slice = {};  ///< its content afterwards; empty with Action::remove
};

struct SlicePlan {
  std::uint64_t generation = 0;  ///< of the pool afterwards
  /// They are sent in this order, each after the success of the one before it. Empty: the API server
  /// has the desired slices already.
  ///
  /// Either all slices get another generation, and the scheduler allocates nothing from the pool until the
  /// last one is written; former slices are removed after that. Or the generation stays, since counters and
  /// devices stay, and slices with additional taints are written first.
  std::vector<SliceRequest> requests = {};
};

/// `desired`: as slices_of() has them, one at least; their generation is not read. `last`: the last
/// generation that this process sent or found; 0: none. A slice that exists is updated in place, since
/// schedulers read slices in order of their names. A desired slice without the UID of its Node keeps the
/// stored one.
SlicePlan plan_slices(std::vector<StoredSlice> stored, std::vector<ResourceSlice> desired,
                      std::uint64_t last = 0);

/// True: the server has stored all that was sent. It sets the times of new taints.
bool is_stored_as_sent(const ResourceSlice& stored, const ResourceSlice& sent);

/// Only one thread may use it. When idle it has two open watches: of its slices, and of the ResourceClaims of
/// the cluster, of which it keeps the names of this node's devices. It has no timer except the watches' own.
/// A request that fails is repeated after a growing pause.
///
/// Each time the server begins a watch of the slices anew, the server's features are probed: it may have been
/// restarted with another version or other feature gates. Nothing is written before the answer, nor before
/// GPUs, claims and slices are known.
///
/// The slices stay in the server when this object ends.
class SlicePublisher final : public ModelSource {
 public:
  struct Settings {
    std::string node;
    /// The devices that claims have on this node: held_devices() of the checkpoint. It is called in this
    /// thread.
    std::function<std::vector<HeldDevice>()> held;
    /// Runs when node() or claims() may have changed. It may be absent.
    std::function<void()> changed = {};
    /// Runs when the slices in the server are the desired ones again after requests. It may be absent.
    std::function<void()> settled = {};
    /// Runs with an error that keeps slices from being published and that needs a person: once, and again for
    /// another message. It may be absent.
    std::function<void(const Error&)> refused = {};
  };

  /// The interval at which a write is looked for in the watch, while it has not been reported.
  static constexpr kube::Backoff::Pause kPollPeriod{10'000};

  /// The references must outlive this object.
  SlicePublisher(const HostFs& host, kube::ApiTransport& transport, kube::Timers& timers, kube::Random random,
                 Settings settings);

  /// Errc::usage: the node's name cannot be one.
  Result<> begin();

  /// Call this when hostd's file may have changed.
  void gpus_changed();
  /// Call this when Settings::held has changed.
  void held_changed() { schedule(); }

  /// The node with all that claims have. Errors: hostd's list, the claims or the server's features are not
  /// known yet.
  Result<NodeModel> node() const override;
  /// The UIDs of claims that have a device of the node's pool, in the API server. Absent: they are not known
  /// yet.
  std::optional<std::set<std::string>> claims() const;
  /// An error that keeps slices from being published; absent: there is none now.
  std::optional<Error> problem() const;
  /// True: the slices in the server are the desired ones, as far as it is known.
  bool is_settled() const { return settled_; }

 private:
  void schedule();
  void reconcile();
  void read_gpus();
  std::vector<StoredSlice> stored_slices();
  bool is_news(const char* subject, const Error& error);
  void report(const char* subject, const Error& error);
  void log_notes(const std::vector<std::string>& notes);

  void probe();
  void probed(Result<ServerFeatures> features);
  void read_node();
  void node_read(const Result<nlohmann::json>& node);

  void send_next();
  void written(const Result<nlohmann::json>& answer);
  void removed(const Result<>& answer);
  void sent_one();
  void failed(const Error& error);
  void retry(const Error& error);
  void pause();
  /// True: the watch has reported all slices that were written.
  bool is_reported();
  void look_again();
  void settle();

  kube::ObjectWatch::Listener listener(const char* what);

  const HostFs& host_;
  kube::Timers& timers_;
  const kube::Random random_;
  const Settings settings_;
  kube::ApiClient client_;
  FeatureProbe probe_;
  kube::ObjectWatch slices_;
  kube::ObjectWatch claims_;

  std::optional<std::vector<Gpu>> gpus_;  ///< absent: hostd has not listed them yet
  /// The file has been read since it last changed; after a failed read `gpus_` is the former list.
  bool gpus_read_ = false;
  std::optional<ServerFeatures> features_;
  bool probed_ = false;  ///< features_ are those of the server that answers now
  std::string node_uid_;
  bool node_read_ = false;  ///< the Node's UID was read for the plan that comes next
  bool reading_node_ = false;

  std::deque<SliceRequest> requests_;  ///< still to be answered; the first one is under way
  bool wrote_ = false;                 ///< since the slices were settled
  std::uint64_t last_generation_ = 0;  ///< that was sent or found; 0: none
  std::string awaited_version_;        ///< the watch has to report it; empty: none
  std::set<std::string> removed_;      ///< UIDs of removed slices that the watch may still have

  bool settled_ = false;
  std::map<std::string, Error> problems_;  ///< the present ones, by their subjects
  std::vector<std::string> notes_;         ///< as they were logged last
  kube::Backoff backoff_;                  ///< of requests
  kube::Backoff probe_backoff_;
  kube::OwnedTimer reconcile_timer_{timers_};
  kube::OwnedTimer retry_timer_{timers_};  ///< set after a request has failed
  kube::OwnedTimer poll_timer_{timers_};   ///< set while the watch has not reported a write
  kube::OwnedTimer probe_timer_{timers_};
};

}  // namespace ferry::dra
