// SPDX-License-Identifier: Apache-2.0
#include "dra/claims/claim_driver.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "common/text/json.h"
#include "dra/claims/hostd_client.h"
#include "dra/names.h"
#include "dra/slices/publication.h"

namespace ferry::dra {
namespace {

using Clock = EventLoop::Clock;
using api::ClaimAction;
using Devices = Result<std::vector<DeviceAnswer>>;

// A work has a request to the API server or a connection to hostd, which has as many places. One request of
// the kubelet may name thousands of claims.
constexpr std::size_t kMostWorks = 16;

Error is_being_undone(const ClaimKey& key) {
  return {.code = Errc::refused,
          .message = label(key) + ": it is being undone",
          .hint = "the kubelet asks again; the claim waits until then"};
}

/// True: the kubelet has asked for the undo, and it has not ended.
bool is_half_undone(const CheckpointClaim& claim) {
  return claim.phase == CheckpointPhase::unpreparing;
}

bool is_prepared(const Checkpoint& checkpoint, const std::string& uid) {
  const CheckpointClaim* const claim = checkpoint.find(uid);
  return claim != nullptr && claim->phase == CheckpointPhase::prepared;
}

/// True if the claim is no more, or its allocation has no device of this pool. By then no pod has reserved
/// it: the API server ends an allocation only after that. Errors of the server prove nothing.
bool has_ended_here(const Result<nlohmann::json>& object, const ClaimKey& key, const std::string& pool) {
  if (!object) return object.error().code == Errc::not_found;
  if (text_at(json_at(*object, "metadata"), "uid") != key.uid) return true;
  const nlohmann::json& allocation = json_at(json_at(*object, "status"), "allocation");
  const nlohmann::json& results = json_at(json_at(allocation, "devices"), "results");
  if (!results.is_array()) return true;
  return std::none_of(results.begin(), results.end(), [&](const nlohmann::json& result) {
    return text_at(result, "driver") == kDriver && text_at(result, "pool") == pool;
  });
}

/// The record of an allocated claim, with its devices as the node has published them. Errors: those of
/// check_available().
Result<CheckpointClaim> with_published(CheckpointClaim claim, NodeModel node, const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  names.reserve(claim.devices.size());
  for (const ClaimDevice& device : claim.devices) names.push_back(device.device.name);
  node.held = held_devices(checkpoint);
  // The publisher may not have heard of this claim yet.
  node.allocated.insert(names.begin(), names.end());
  const Publication publication = publication_of(node);
  if (auto available = check_available(node, publication, names, claim.uid); !available)
    return fail(std::move(available).error());
  for (ClaimDevice& device : claim.devices) {
    // check_available() has found each of them.
    const PublishedDevice& published = *publication.device(device.device.name);
    device.gpu = published.asked.gpu;
    device.type = published.asked.type;
    device.placement = published.asked.placement;
    device.device = published.device;
    device.device.taints.clear();
    if (device.device.consumes.empty()) continue;
    const CounterSet* const set = publication.counter_set(device.device.consumes.front().set);
    if (set != nullptr) device.counters = *set;
  }
  return claim;
}

/// The request that has hostd prepare the devices of the record.
api::ClaimRequest prepare_request(const CheckpointClaim& claim) {
  api::ClaimRequest out{.action = api::ClaimAction::prepare,
                        .claim = claim.uid,
                        .space = claim.space,
                        .name = claim.name,
                        .pod_claim = claim.pod_claim};
  for (const ClaimDevice& device : claim.devices)
    out.devices.push_back({.device = device.asked(),
                           .request = device.request,
                           .pool = device.pool,
                           .name = device.device.name,
                           .attributes = device.device.attributes,
                           .resources = device.resources});
  return out;
}

api::ClaimRequest unprepare_request(const ClaimKey& claim) {
  return {.action = ClaimAction::unprepare, .claim = claim.uid, .space = claim.space, .name = claim.name};
}

class Driver final : public ClaimDriver {
 public:
  Driver(Parts parts, Settings settings, Checkpoint checkpoint)
      : parts_(std::move(parts)),
        settings_(std::move(settings)),
        pool_(pool_name(settings_.node)),
        checkpoint_(std::move(checkpoint)) {}

  void prepare(const std::vector<ClaimKey>& claims, Done done) override {
    take_on(ClaimAction::prepare, claims, std::move(done));
  }

  void unprepare(const std::vector<ClaimKey>& claims, Done done) override {
    take_on(ClaimAction::unprepare, claims, std::move(done));
  }

  void unprepare_all_but(const std::set<std::string>& kept) override {
    std::vector<ClaimKey> half_undone;
    std::vector<ClaimKey> gone;
    for (const CheckpointClaim& claim : checkpoint_.claims)
      if (!kept.contains(claim.uid) && !works_.contains(claim.uid))
        (is_half_undone(claim) ? half_undone : gone)
            .push_back({.uid = claim.uid, .space = claim.space, .name = claim.name});
    for (const ClaimKey& key : half_undone)
      queues_[ClaimAction::unprepare].push_back({.action = ClaimAction::unprepare, .key = key});
    begin_queued();
    for (const ClaimKey& key : gone) {
      // `kept` may be older than the claim.
      parts_.reader.read(
          key, [this, alive = std::weak_ptr<const bool>(alive_), key](const Result<nlohmann::json>& object) {
            if (alive.expired()) return;
            if (!has_ended_here(object, key, pool_) || checkpoint_.find(key.uid) == nullptr ||
                works_.contains(key.uid))
              return;
            spdlog::warn("{} (UID {}) has ended, and the kubelet has not had it undone: undoing it",
                         label(key), key.uid);
            unprepare_one(key, std::nullopt);
          });
    }
  }

  const Checkpoint& checkpoint() const override { return checkpoint_; }

 private:
  /// A request of the kubelet.
  struct Request {
    std::vector<ClaimAnswer> answers;  ///< until a claim has its answer: that its work goes on
    std::size_t open = 0;              ///< claims without an answer
    Done done;                         ///< empty once the request is answered
    EventLoop::Timer timer;
  };

  /// A claim of a request that waits for its answer.
  struct Waiter {
    std::shared_ptr<Request> request;
    std::size_t index = 0;
  };

  /// Work on a claim. At first the claim is read, without a call of hostd.
  struct Work {
    ClaimAction action = ClaimAction::prepare;
    ClaimKey key;
    std::uint64_t number = 0;  ///< of all works of this process
    std::unique_ptr<HostdCall> hostd;
    std::vector<Waiter> waiters;
  };

  /// A claim whose work has not begun. `waiter`: absent of one that no request asks for.
  struct Queued {
    ClaimAction action = ClaimAction::prepare;
    ClaimKey key;
    std::optional<Waiter> waiter = {};
  };

  // Requests and their answers.

  void take_on(ClaimAction action, const std::vector<ClaimKey>& claims, Done done) {
    const auto request = std::make_shared<Request>();
    const char* const what = action == ClaimAction::prepare ? "its devices are still being prepared"
                                                            : "its devices are still being undone";
    for (const ClaimKey& key : claims)
      request->answers.push_back({.uid = key.uid,
                                  .devices = fail(Errc::unreachable, fmt::format("{}: {}", label(key), what),
                                                  "the work goes on, and the kubelet asks again")});
    request->open = claims.size();
    request->done = std::move(done);
    if (claims.empty()) {
      finish(*request);
      return;
    }

    request->timer =
        parts_.loop.at(Clock::now() + settings_.answer_within,
                       [this, alive = std::weak_ptr<const bool>(alive_), weak = std::weak_ptr(request)] {
                         const auto late = weak.lock();
                         if (alive.expired() || late == nullptr || !late->done) return;
                         finish(*late);
                         drop_unawaited_reads();
                       });
    for (std::size_t i = 0; i < claims.size(); ++i) {
      Queued one{.action = action, .key = claims[i], .waiter = Waiter{.request = request, .index = i}};
      if (works_.contains(one.key.uid))
        start(one);
      else
        queues_[action].push_back(std::move(one));
    }
    begin_queued();
  }

  void start(const Queued& one) {
    if (one.action == ClaimAction::prepare) return prepare_one(one.key, *one.waiter);
    unprepare_one(one.key, one.waiter);
  }

  /// Begins queued claims while there is room for their works. Each action has its own room: a prepare waits
  /// for the API server, and keeps no pod from its end. The end of a work calls this, too, and a work may end
  /// at once, so an inner call leaves the queues to the outer one.
  void begin_queued() {
    if (std::exchange(begins_, true)) return;
    for (auto& [action, queue] : queues_) {
      const auto has_room = [&, action = action] {
        const auto count =
            std::ranges::count(works_, action, [](const auto& work) { return work.second.action; });
        return std::cmp_less(count, kMostWorks);
      };
      while (!queue.empty() && has_room()) {
        const Queued next = std::move(queue.front());
        queue.pop_front();
        // The kubelet asks again for a claim that is late.
        if (!next.waiter || next.waiter->request->done) start(next);
      }
    }
    begins_ = false;
  }

  void finish(Request& request) {
    parts_.loop.cancel(request.timer);
    const Done done = std::exchange(request.done, nullptr);
    done(std::move(request.answers));
  }

  void answer(const Waiter& waiter, Devices devices) {
    Request& request = *waiter.request;
    if (!request.done) return;  // it was late
    request.answers[waiter.index].devices = std::move(devices);
    if (--request.open == 0) finish(request);
  }

  /// An API server that never answers must not keep a claim from being read again.
  void drop_unawaited_reads() {
    std::erase_if(works_, [](const auto& entry) {
      const Work& work = entry.second;
      return work.hostd == nullptr && std::ranges::none_of(work.waiters, [](const Waiter& waiter) {
               return waiter.request->done != nullptr;
             });
    });
    begin_queued();
  }

  // Work.

  Work& begin_work(ClaimAction action, const ClaimKey& key) {
    Work& work = works_[key.uid];
    work.action = action;
    work.key = key;
    work.number = ++last_work_;
    return work;
  }

  /// Ends the work with an answer to all who wait for it.
  void end_work(const std::string& uid, const Devices& devices) {
    const auto found = works_.find(uid);
    const Work work = std::move(found->second);
    works_.erase(found);
    begin_queued();
    if (!devices) parts_.events.failed(work.key, work.action, devices.error());
    for (const Waiter& waiter : work.waiters) answer(waiter, devices);
  }

  void end_work(const Work& work, Error error) {
    // The message names the claim; hostd's and the file system's do not.
    const std::string name = label(work.key);
    if (!error.message.starts_with(name)) error = std::move(error).during(name);
    end_work(std::string(work.key.uid), fail(std::move(error)));
  }

  /// Writes the checkpoint; only then it counts.
  Result<> keep(Checkpoint next) {
    if (next == checkpoint_) return {};
    if (auto written = parts_.host.write_file(api::kCheckpointFile, checkpoint_text(next)); !written)
      return written;
    checkpoint_ = std::move(next);
    if (parts_.changed) parts_.changed();
    return {};
  }

  // Prepare.

  void prepare_one(const ClaimKey& key, const Waiter& waiter) {
    if (auto valid = check_key(key); !valid) return answer(waiter, fail(std::move(valid).error()));
    if (const auto found = works_.find(key.uid); found != works_.end()) {
      if (found->second.action == ClaimAction::prepare) {
        found->second.waiters.push_back(waiter);
        return;
      }
      return answer(waiter, fail(is_being_undone(key)));
    }
    if (const CheckpointClaim* const known = checkpoint_.find(key.uid);
        known != nullptr && is_half_undone(*known)) {
      // A kubelet that has lost its own records does not ask for the rest.
      answer(waiter, fail(is_being_undone(key)));
      return unprepare_one(key, std::nullopt);
    }
    Work& work = begin_work(ClaimAction::prepare, key);
    work.waiters.push_back(waiter);
    parts_.reader.read(key, [this, alive = std::weak_ptr<const bool>(alive_), uid = key.uid,
                             number = work.number](const Result<nlohmann::json>& object) {
      if (alive.expired()) return;
      const auto reading = works_.find(uid);
      if (reading != works_.end() && reading->second.number == number) claim_read(reading->second, object);
    });
  }

  void claim_read(Work& work, const Result<nlohmann::json>& object) {
    if (!object) {
      if (is_prepared(checkpoint_, work.key.uid) && object.error().code != Errc::not_found)
        return ask_hostd(work, checkpoint_);
      return end_work(work, object.error());
    }
    const auto claim = read_allocated_claim(*object, work.key, pool_);
    if (!claim) return end_work(work, claim.error());
    if (!claim->warnings.empty() && warned_.insert(work.key.uid).second)
      for (const std::string& warning : claim->warnings) parts_.events.warned(work.key, warning);
    read_classes(work, *claim);
  }

  /// Reads the DeviceClasses of a new claim one after the other, and begins. A claim that is known keeps its
  /// names.
  void read_classes(Work& work, AllocatedClaim claim) {
    const auto unread =
        std::ranges::find_if(claim.classes, [](const std::string& name) { return !name.empty(); });
    if (unread == claim.classes.end() || checkpoint_.find(work.key.uid) != nullptr)
      return begin(work, std::move(claim.record));
    const std::string name = *unread;
    parts_.reader.read_class(name, [this, alive = std::weak_ptr<const bool>(alive_), number = work.number,
                                    name, claim = std::move(claim)](const Result<nlohmann::json>& object) {
      if (alive.expired()) return;
      const auto reading = works_.find(claim.record.uid);
      if (reading == works_.end() || reading->second.number != number) return;
      if (!object) return end_work(reading->second, object.error());
      const auto resources = resources_of(*object, name);
      if (!resources) return end_work(reading->second, resources.error());
      AllocatedClaim next = claim;
      for (std::size_t i = 0; i < next.classes.size(); ++i)
        if (next.classes[i] == name) {
          next.classes[i].clear();
          next.record.devices[i].resources = *resources;
        }
      read_classes(reading->second, std::move(next));
    });
  }

  void begin(Work& work, CheckpointClaim record) {
    if (checkpoint_.find(work.key.uid) == nullptr) {
      auto node = parts_.node.node();
      if (!node) return end_work(work, std::move(node).error());
      auto published = with_published(std::move(record), std::move(*node), checkpoint_);
      if (!published) return end_work(work, std::move(published).error());
      record = std::move(*published);
    }
    Checkpoint next = checkpoint_;
    if (auto begun = begin_prepare(next, std::move(record)); !begun) {
      const ClaimKey key = work.key;
      end_work(work, std::move(begun).error());
      // The record has the devices of a former allocation. A kubelet that has lost its own records never asks
      // to undo them.
      if (checkpoint_.find(key.uid) != nullptr) unprepare_one(key, std::nullopt);
      return;
    }
    ask_hostd(work, std::move(next));
  }

  /// Records the intent, and asks hostd. Another program may have removed a vGPU of a claim that is prepared
  /// already: hostd then makes the vGPU again. Without an answer of hostd, such a claim is answered from its
  /// record.
  void ask_hostd(Work& work, Checkpoint next) {
    const std::string uid = work.key.uid;
    // The connection comes before the record: while hostd is away, there is nothing to undo.
    auto hostd = HostdCall::connect(parts_.loop, parts_.host, api::kClaimSocket);
    if (!hostd && is_prepared(next, uid)) return hand_over(work);
    if (!hostd) return end_work(work, std::move(hostd).error());
    if (auto kept = keep(std::move(next)); !kept) return end_work(work, std::move(kept).error());
    work.hostd = std::move(*hostd);
    work.hostd->send(prepare_request(*checkpoint_.find(uid)), settings_.hostd_limit,
                     [this, uid](const Result<std::vector<api::PreparedDevice>>& devices) {
                       hostd_has_prepared(works_.at(uid), devices);
                     });
  }

  void hostd_has_prepared(Work& work, const Result<std::vector<api::PreparedDevice>>& devices) {
    if (!devices && devices.error().code == Errc::unreachable && is_prepared(checkpoint_, work.key.uid))
      return hand_over(work);
    if (!devices) return undo_refused(work, devices.error());
    Checkpoint next = checkpoint_;
    if (auto finished = finish_prepare(next, work.key.uid, *devices); !finished)
      return end_work(work, std::move(finished).error());
    if (auto kept = keep(std::move(next)); !kept) return end_work(work, std::move(kept).error());
    hand_over(work);
  }

  /// Drops the record of a claim that hostd has refused, once hostd has nothing of it: its error does not say
  /// what it could undo. Without that the record stays, and the next request goes on from it. So does the
  /// record of a claim that was prepared before: its pods may have its devices. But hostd may have undone
  /// some, so such a claim gets no answer without hostd any more.
  void undo_refused(Work& work, Error why) {
    if (why.code == Errc::unreachable) return end_work(work, std::move(why));
    Checkpoint again = checkpoint_;
    if (begin_again(again, work.key.uid)) {
      if (auto kept = keep(std::move(again)); !kept) spdlog::error("{}", kept.error().text());
      return end_work(work, std::move(why));
    }
    auto hostd = HostdCall::connect(parts_.loop, parts_.host, api::kClaimSocket);
    if (!hostd) return end_work(work, std::move(why));
    const std::string uid = work.key.uid;
    work.hostd = std::move(*hostd);
    work.hostd->send(
        unprepare_request(work.key), settings_.hostd_limit,
        [this, uid, why = std::move(why)](const Result<std::vector<api::PreparedDevice>>& undone) {
          if (undone) {
            Checkpoint next = checkpoint_;
            finish_unprepare(next, uid);
            if (auto kept = keep(std::move(next)); !kept) spdlog::error("{}", kept.error().text());
          }
          end_work(works_.at(uid), why);
        });
  }

  void hand_over(Work& work) {
    const CheckpointClaim& claim = *checkpoint_.find(work.key.uid);
    std::vector<std::string> names;
    std::set<std::string> requests;
    std::vector<DeviceAnswer> answers;
    for (const ClaimDevice& device : claim.devices) {
      const std::string request(main_request(device.request));
      DeviceAnswer answer{.request = request,
                          .pool = device.pool,
                          .device = device.device.name,
                          .cdi_ids = {api::claim_cdi_id(claim.uid, device.device.name)}};
      if (requests.insert(request).second) answer.cdi_ids.push_back(api::metadata_cdi_id(claim.uid, request));
      answers.push_back(std::move(answer));
      names.push_back(device.device.name);
    }
    spdlog::info("{} is prepared: {}", label(work.key), fmt::join(names, ", "));
    end_work(std::string(work.key.uid), answers);
  }

  // Unprepare.

  /// Without a waiter, ClaimEvents alone gets a failure.
  void unprepare_one(const ClaimKey& key, const std::optional<Waiter>& waiter) {
    if (const auto found = works_.find(key.uid); found != works_.end()) {
      if (found->second.action == ClaimAction::unprepare) {
        if (waiter) found->second.waiters.push_back(*waiter);
        return;
      }
      // The wait for hostd ends, which finishes its work and then undoes it.
      const Work work = std::move(found->second);
      works_.erase(found);
      const Devices stopped = fail(Errc::refused, label(work.key) + ": it is being undone",
                                   "the kubelet has asked for that; the claim waits until then");
      for (const Waiter& preparing : work.waiters) answer(preparing, stopped);
    }
    Checkpoint next = checkpoint_;
    const bool is_known = begin_unprepare(next, key.uid);
    if (!is_known && !check_key(key)) {  // no claim has such names
      if (waiter) answer(*waiter, std::vector<DeviceAnswer>());
      return;
    }
    Work& work = begin_work(ClaimAction::unprepare, key);
    if (waiter) work.waiters.push_back(*waiter);
    auto hostd = HostdCall::connect(parts_.loop, parts_.host, api::kClaimSocket);
    if (!hostd) return hostd_has_undone(work, fail(std::move(hostd).error()), is_known);
    if (auto kept = keep(std::move(next)); !kept) return end_work(work, std::move(kept).error());
    work.hostd = std::move(*hostd);
    work.hostd->send(unprepare_request(key), settings_.hostd_limit,
                     [this, uid = key.uid, is_known](const Result<std::vector<api::PreparedDevice>>& undone) {
                       Work& asked = works_.at(uid);
                       // hostd fails only for a claim that its record has, or may have.
                       hostd_has_undone(asked, undone, is_known || asked.hostd->has_answered());
                     });
  }

  /// hostd's record may have a claim that the checkpoint has lost. Without an answer of hostd, an unknown
  /// claim is most likely one that was never begun, and its pod may end. `ferry claims release` frees the
  /// others.
  void hostd_has_undone(Work& work, const Result<std::vector<api::PreparedDevice>>& undone, bool is_known) {
    if (!undone && (is_known || undone.error().code != Errc::unreachable))
      return end_work(work, undone.error());
    const std::string uid = work.key.uid;
    Checkpoint next = checkpoint_;
    finish_unprepare(next, uid);
    if (auto kept = keep(std::move(next)); !kept) return end_work(work, std::move(kept).error());
    warned_.erase(uid);
    if (undone)
      spdlog::info("{} is undone", label(work.key));
    else
      spdlog::warn("{} (UID {}) ends without hostd, since the checkpoint does not have it: {}",
                   label(work.key), uid, undone.error().message);
    end_work(uid, std::vector<DeviceAnswer>());
  }

  const Parts parts_;
  const Settings settings_;
  const std::string pool_;
  Checkpoint checkpoint_;
  std::map<std::string, Work> works_;  // by UID
  std::map<ClaimAction, std::deque<Queued>> queues_;
  bool begins_ = false;  // begin_queued() runs
  std::uint64_t last_work_ = 0;
  std::set<std::string> warned_;  // UIDs
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace

Result<std::unique_ptr<ClaimDriver>> ClaimDriver::open(const Parts& parts, Settings settings) {
  const auto boot_id = parts.host.read_attribute("proc/sys/kernel/random/boot_id");
  if (!boot_id) return fail(boot_id.error());
  const auto text = parts.host.read_file(api::kCheckpointFile);
  if (!text && !is_gone(text.error())) {
    Error error = text.error();
    // Only a file that cannot be a checkpoint has a hint already.
    if (!error.hint.empty()) error.hint = kCheckpointHint;
    return fail(std::move(error));
  }
  Checkpoint checkpoint{.boot_id = *boot_id};
  if (text) {
    auto read = read_checkpoint(*text);
    if (!read) return fail(std::move(read).error());
    checkpoint = for_boot(std::move(*read), *boot_id);
  }
  const std::string now = checkpoint_text(checkpoint);
  if (!text || *text != now)
    if (auto written = parts.host.write_file(api::kCheckpointFile, now); !written)
      return fail(std::move(written).error());
  return std::make_unique<Driver>(parts, std::move(settings), std::move(checkpoint));
}

}  // namespace ferry::dra
