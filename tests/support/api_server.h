// SPDX-License-Identifier: Apache-2.0
// An API server in memory: what the real one does with Nodes, ConfigMaps, Pods, Events and Leases, and every
// way in which it, or the way to it, can fail. On a virtual clock: an hour passes in a millisecond.
//
// Objects are named by their paths ("/api/v1/nodes/n1"), as the client names them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "tests/support/field_owners.h"
#include "tests/support/virtual_clock.h"

namespace ferry::test {

/// What one request meets in place of an answer of its own.
struct ApiFault {
  enum class What {
    lost_before,  ///< the request never arrives
    lost_after,   ///< it is done, and the answer never arrives
    answer,       ///< it is not done, and this is said
  };
  What what = What::answer;
  int status = 500;
  std::string body = {};
  std::optional<std::chrono::seconds> retry_after = {};

  static ApiFault lost_before() { return {.what = What::lost_before}; }
  static ApiFault lost_after() { return {.what = What::lost_after}; }
  /// With a Status object, as the API server says it.
  static ApiFault status_of(int code, std::string_view reason, std::string_view message = "scripted");
};

/// How often things go wrong by themselves: chances from 0 to 1, of each request or, where it says so, event.
struct ApiChances {
  double lost_before = 0;
  double lost_after = 0;
  double server_fault = 0;       ///< 500, 502, 503, 504
  double too_many_requests = 0;  ///< with Retry-After up to 5 s, now and then without
  double unauthorized = 0;
  double forbidden = 0;
  double other_writer = 0;  ///< somebody else changes an object just before a write of ours arrives
  double late = 0;          ///< takes up to a minute in place of 20 ms, each way: longer than a client waits
  double cut = 0;           ///< of each event: the stream ends in the middle of it
  double ended = 0;         ///< of each event: the stream ends well behind it
  double again = 0;         ///< of each event: it, or one before it, is sent once more
  double compacted = 0;     ///< of each watch: its place is forgotten
  double nonsense = 0;      ///< of each event: a line that is no event
};

struct ReceivedApiRequest {
  kube::Timers::Clock::time_point time;
  kube::ApiRequest request;
  bool is_watch() const { return request.path.find("watch=1") != std::string::npos; }
};

class ApiServer final : public kube::ApiTransport {
 public:
  /// The clock must outlive this. Equal seeds fail alike.
  explicit ApiServer(VirtualClock& clock, std::uint64_t seed = 1);
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;
  ApiServer(ApiServer&&) = delete;
  ApiServer& operator=(ApiServer&&) = delete;
  ~ApiServer() override;

  Call send(kube::ApiRequest request, kube::ApiListener listener) override;
  void cancel(Call call) override;

  // What others do.
  /// Makes the object, or gives it this content; returns it as it is kept. Kind, name and namespace say
  /// where.
  nlohmann::json put(nlohmann::json object);
  /// Changes an object by a merge patch.
  void edit(const std::string& path, const nlohmann::json& patch);
  void erase(const std::string& path);
  /// null: there is none.
  nlohmann::json object(const std::string& path) const;
  /// By "namespace/name", without managedFields: what an ObjectWatch should have.
  std::map<std::string, nlohmann::json> objects(const kube::Selection& selection) const;

  // What goes wrong.
  ApiChances chances;
  /// What the next requests meet, in order; an absent one passes.
  std::deque<std::optional<ApiFault>> next;
  /// Asked of each request that `next` has nothing for.
  std::function<std::optional<ApiFault>(const kube::ApiRequest&)> script;
  /// Nothing answers, and every stream is cut, while it is down.
  void set_down(bool down);
  /// All streams end, and a client learns of it: their connections are lost.
  void cut_streams() { end_streams(fail(Errc::unreachable, "the connection was lost")); }
  /// The same, with complete answers by default.
  void end_streams(const Result<kube::ApiReply>& how = kube::ApiReply{.status = 200, .body = {}});
  /// All streams go on and carry nothing more: a dead connection.
  void silence_streams();
  /// Nothing new of these objects ("nodes") comes by any stream until that is taken back with "".
  void hold_back(std::string plural);
  /// The history is forgotten: watches of before now get 410.
  void compact() { forgotten_ = version_; }
  /// Sends a line to every open stream.
  void say(std::string_view line);

  // What it is like.
  bool knows_policy_v1 = true;                ///< false: before Kubernetes 1.22
  std::set<std::string> disruption_budgeted;  ///< "namespace/name" of pods that may not be evicted now
  std::map<std::string, std::string> logs;    ///< by "namespace/pod/container"; others are not found
  std::chrono::milliseconds grace{2'000};     ///< from a pod's deletion to its end
  /// Returns the part of a written object that the server keeps; absent: all of it.
  std::function<nlohmann::json(nlohmann::json object)> kept;

  const std::vector<ReceivedApiRequest>& seen() const { return seen_; }
  /// Requests of a method whose path contains that.
  std::size_t count(std::string_view method, std::string_view part = {}) const;
  std::size_t open_streams() const { return streams_.size(); }
  /// With those that are asked for: one whose time is over is at once asked for anew.
  std::size_t watches() const;

  /// In [0, 1), of the seed: for the clients of this server too.
  double draw();

 private:
  struct Place;
  struct Change;
  struct Waiting;
  struct Stream;

  static std::optional<Place> place_of(std::string_view path);
  static std::string plural_of(const std::string& path);
  bool happens(double chance) { return chance > 0 && draw() < chance; }
  std::chrono::milliseconds latency();
  std::optional<ApiFault> fault_for(const kube::ApiRequest& request);
  void arrive(Call call, const kube::ApiRequest& request);
  void lose(Call call);
  void answer(Call call, kube::ApiReply reply);
  void end(Call call, Result<kube::ApiReply> reply);
  bool give_body(Call call, std::string& body);

  kube::ApiReply handle(const kube::ApiRequest& request);
  kube::ApiReply read(const Place& place) const;
  void let_another_write(const Place& place);
  kube::ApiReply patch(const Place& place, const kube::ApiRequest& request);
  kube::ApiReply replace(const Place& place, nlohmann::json content);
  kube::ApiReply apply(const Place& place, const nlohmann::json& content);
  kube::ApiReply create(const Place& place, nlohmann::json content);
  kube::ApiReply remove(const Place& place, const nlohmann::json& options);
  kube::ApiReply evict(const Place& place, const nlohmann::json& eviction);
  nlohmann::json store(const std::string& path, nlohmann::json object);
  void forget(const std::string& path);
  void end_later(const std::string& path);

  void open_stream(Call call, const Place& place);
  void pump_soon();
  void pump(Call call);
  void bookmark(Call call);
  bool deliver(Call call, std::string_view line);
  void give(Call call, std::string_view bytes);
  void heard(Call call);

  VirtualClock& clock_;
  std::mt19937_64 random_;
  std::map<std::string, nlohmann::json> objects_;  ///< by path
  FieldOwners owners_;
  std::uint64_t version_ = 1'000;
  std::uint64_t forgotten_ = 0;  ///< changes up to this version are forgotten
  std::uint64_t last_uid_ = 0;
  std::vector<Change> history_;
  bool down_ = false;
  std::string held_back_;
  Call last_call_ = 0;
  std::map<Call, std::unique_ptr<Waiting>> waiting_;  ///< without an answer yet
  std::map<Call, std::unique_ptr<Stream>> streams_;
  std::vector<ReceivedApiRequest> seen_;
};

}  // namespace ferry::test
