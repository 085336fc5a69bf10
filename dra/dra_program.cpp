// SPDX-License-Identifier: Apache-2.0
#include "dra/dra_program.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "common/process/this_process.h"
#include "dra/checkpoint.h"
#include "dra/claim.h"
#include "dra/names.h"
#include "dra/slices/publication.h"
#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/field_filter.h"

namespace ferry::dra {
namespace {

constexpr const char* kAgain = "the kubelet asks again, until the API server answers";

/// A read that has no answer yet.
struct Reading {
  ClaimReader::Done done;
  kube::ApiClient::Call call = 0;
  kube::Timers::Timer end = {};  ///< of the time for the answer
};

}  // namespace

void KubeClaimReader::read(const ClaimKey& key, Done done) {
  // All but large fields that are not read. A tenant writes most of them.
  const kube::FieldChoice fields{
      .mode = kube::FieldChoice::Mode::all_but,
      .fields = {
          {"metadata", {{"managedFields"}, {"labels"}, {"finalizers"}, {"ownerReferences"}}},
          {"spec",
           {{"devices",
             {{"constraints"},
              {"config"},
              {"requests",
               {{"firstAvailable"}, {"exactly", {{"selectors"}, {"tolerations"}, {"capacity"}}}}}}}}},
          {"status",
           {{"reservedFor"},
            {"devices"},
            {"allocation", {{"nodeSelector"}, {"devices", {{"config", {{"opaque", {{"parameters"}}}}}}}}}}}}};
  ask({.kind = kube::kResourceClaims, .space = key.space, .name = key.name}, fields, std::move(done));
}

void KubeClaimReader::read_class(const std::string& name, Done done) {
  ask({.kind = kube::kDeviceClasses, .name = name},
      {.mode = kube::FieldChoice::Mode::all_but,
       .fields = {{"metadata"}, {"spec", {{"selectors"}, {"config"}}}}},
      std::move(done));
}

void KubeClaimReader::ask(const kube::ObjectRef& object, const kube::FieldChoice& fields, Done done) {
  const auto reading = std::make_shared<Reading>();
  reading->done = std::move(done);
  reading->call = client_.get(
      object,
      [&timers = timers_, reading](Result<nlohmann::json> read) {
        timers.cancel(reading->end);
        if (read) return reading->done(std::move(read));
        Error error = std::move(read).error();
        if (error.code == kube::ApiErrc::not_found) error.code = make_error_code(Errc::not_found);
        if (kube::may_mend(error)) {
          error.code = make_error_code(Errc::unreachable);
          if (error.hint.empty()) error.hint = kAgain;
        }
        reading->done(fail(std::move(error)));
      },
      fields);
  reading->end = timers_.at(timers_.now() + kLongest, [&client = client_, reading, name = object.text()] {
    client.cancel(reading->call);
    reading->done(fail(
        Errc::unreachable,
        fmt::format("get {}: the API server has not answered for {} s", name, kLongest.count()), kAgain));
  });
}

void KubeClaimEvents::failed(const ClaimKey& claim, api::ClaimAction action, const Error& error) {
  give(claim, action == api::ClaimAction::prepare ? kPrepareFailed : kUnprepareFailed, error.text());
}

void KubeClaimEvents::warned(const ClaimKey& claim, const std::string& sentence) {
  give(claim, kWarning, sentence);
}

void KubeClaimEvents::lost(const ClaimKey& claim, const std::string& sentence) {
  give(claim, kLost, sentence);
  recorder_.record(kube::EventRecorder::Type::warning, kLost, sentence);
}

void KubeClaimEvents::give(const ClaimKey& claim, std::string_view reason, const std::string& message) {
  const auto now = timers_.now();
  std::erase_if(given_, [&](const auto& entry) { return now - entry.second.at >= kOnce; });
  const auto [given, is_first] =
      given_.try_emplace(fmt::format("{}/{}", claim.uid, reason), Given{.message = message, .at = now});
  if (!is_first && given->second.message == message) return;
  given->second = {.message = message, .at = now};
  spdlog::warn("{}: {}", reason, message);
  recorder_.record(
      {.object = {.kind = kube::kResourceClaims, .space = claim.space, .name = claim.name}, .uid = claim.uid},
      kube::EventRecorder::Type::warning, reason, message);
}

LostClaims::LostClaims(kube::Timers& timers, Settings settings)
    : timers_(timers), settings_(std::move(settings)) {}

void LostClaims::look(std::set<std::string> in_server) {
  in_server_ = std::move(in_server);
  std::map<std::string, Clock::time_point> lost;
  for (const CheckpointClaim& claim : settings_.checkpoint().claims) {
    if (in_server_.contains(claim.uid)) continue;
    const auto known = undone_at_.find(claim.uid);
    lost.emplace(claim.uid, known == undone_at_.end() ? timers_.now() + kPatience : known->second);
  }
  undone_at_ = std::move(lost);
  timer_.cancel();
  if (undone_at_.empty()) return;
  const auto first = std::ranges::min_element(undone_at_, {}, [](const auto& entry) { return entry.second; });
  timer_.set(first->second, [this] { undo_due(); });
}

void LostClaims::undo_due() {
  std::set<std::string> kept = in_server_;
  for (auto& [uid, at] : undone_at_) {
    if (at > timers_.now())
      kept.insert(uid);
    else
      at = timers_.now() + kPatience;  // a claim that still exists, or cannot be undone yet, is tried again
  }
  settings_.unprepare_all_but(kept);
  look(std::set<std::string>(in_server_));
}

namespace {

// The release of a flock raises no event. Neither does the change of a folder's mode before this process may
// watch it.
constexpr auto kBetweenTries = std::chrono::seconds(1);
// Shorter than KubeClaimReader::kLongest, so that the error of the last try says why no answer comes.
constexpr auto kPatience = std::chrono::seconds(20);
// The pause after which startup work is over and its memory can be returned.
constexpr auto kCalm = std::chrono::seconds(5);

/// The reason of an event of the Node.
constexpr const char* kNotPublished = "ResourceSlicesNotPublished";
constexpr const char* kKeepVgpus =
    ", and set mediatedDevicesConfiguration.enabled: false in the KubeVirt object if KubeVirt removes vGPUs";

}  // namespace

DraProgram::DraProgram(EventLoop& loop, HostFs& host, kube::ApiTransport& transport,
                       const kube::Random& random, DraProgramOptions options)
    : loop_(loop),
      host_(host),
      options_(std::move(options)),
      timers_(loop),
      client_(transport, timers_, random, kPatience),
      recorder_(
          client_, timers_, random, [] { return std::chrono::system_clock::now(); }, options_.node,
          [](const Error& error) { spdlog::warn("events are not recorded: {}", error.text()); },
          KubeClaimEvents::kController),
      reader_(client_, timers_),
      events_(recorder_, timers_),
      publisher_(
          host, transport, timers_, random,
          {.node = options_.node,
           .held =
               [this] { return driver_ ? held_devices(driver_->checkpoint()) : std::vector<HeldDevice>(); },
           .changed = [this] { node_changed(); },
           .settled = [] { drop_startup_memory(); },
           .refused =
               [this](const Error& error) {
                 recorder_.record(kube::EventRecorder::Type::warning, kNotPublished, error.text());
               }}),
      lost_(timers_, {.checkpoint = [this]() -> const Checkpoint& { return driver_->checkpoint(); },
                      .unprepare_all_but =
                          [this](const std::set<std::string>& kept) { driver_->unprepare_all_but(kept); }}) {}

Result<> DraProgram::run(const std::stop_token& stop) {
  loop_.post([this] { try_now(); });
  loop_.run(stop);
  server_.reset();
  if (failure_) return fail(std::move(*failure_));
  return {};
}

void DraProgram::try_now() {
  auto begun = begin();
  if (begun) {
    spdlog::info("ferry dra serves the node {}", options_.node);
    loop_.at(EventLoop::Clock::now() + kCalm, [] { drop_startup_memory(); });
    return;
  }
  const std::error_code code = begun.error().code;
  // hostd makes the folder, and gives it to this process's group.
  const bool folder_may_come = (code == std::errc::permission_denied && ::geteuid() != 0) ||
                               code == std::errc::no_such_file_or_directory;
  if (!folder_may_come && (only_ || code != Errc::refused)) return end_by(std::move(begun).error());
  wait_for(begun.error().text());
  loop_.at(EventLoop::Clock::now() + kBetweenTries, [this] { try_now(); });
}

/// Begins the parts that have not begun yet.
Result<> DraProgram::begin() {
  if (!only_) {
    auto claimed = InstanceLock::claim(host_, api::kDraLock);
    if (!claimed && claimed.error().code == Errc::refused)
      return fail(Errc::refused, "another ferry dra serves this node");
    if (!claimed) return fail(std::move(claimed).error());
    only_.emplace(std::move(*claimed));
  }
  if (!folder_) {
    auto& folder = folder_.emplace(loop_, [this] { publisher_.gpus_changed(); });
    const auto path = std::filesystem::path(api::kClaimableGpusFile).parent_path();
    if (auto added = folder.add(host_.root() / path); !added) {
      folder_.reset();
      return added;
    }
  }
  if (!driver_) {
    if (auto opened = open_driver(); !opened) return opened;
  }
  if (server_) return {};
  if (auto opened = open_server(); !opened) return opened;
  // Last, since a pod that gets a device needs the server.
  publisher_.gpus_changed();
  if (auto begun = publisher_.begin(); !begun) {
    server_.reset();
    return begun;
  }
  return {};
}

Result<> DraProgram::open_driver() {
  auto driver = ClaimDriver::open({.loop = loop_,
                                   .host = host_,
                                   .reader = reader_,
                                   .node = publisher_,
                                   .events = events_,
                                   .changed = [this] { publisher_.held_changed(); }},
                                  {.node = options_.node});
  if (!driver) return fail(std::move(driver).error());
  driver_ = std::move(*driver);
  return {};
}

Result<> DraProgram::open_server() {
  const std::filesystem::path kubelet = options_.kubelet_folder.relative_path();
  auto server = DraServer::open(
      {.loop = loop_, .queue = queue_, .host = host_, .driver = *driver_},
      {.plugin_folder = kubelet / "plugins" / kDriver,
       .registry_folder = kubelet / "plugins_registry",
       .pod_uid = options_.pod_uid},
      {.registered =
           [this] {
             spdlog::info("the kubelet has registered {}", kDriver);
             publisher_.held_changed();
           },
       .refused =
           [](const Error& error) { spdlog::error("the kubelet refuses the driver: {}", error.text()); },
       .failed = [this](Error error) { end_by(std::move(error)); }});
  if (!server) return fail(std::move(server).error());
  server_ = std::move(*server);
  return {};
}

void DraProgram::node_changed() {
  drop_memory_later();
  if (!server_) return;
  if (const auto node = publisher_.node()) {
    server_->set_health(device_health(*node, publication_of(*node)));
    report_lost_devices(*node);
  }
  if (auto claims = publisher_.claims()) lost_.look(std::move(*claims));
}

void DraProgram::report_lost_devices(const NodeModel& node) {
  std::set<std::string> now;
  for (const HeldDevice& held : node.held) {
    const std::string loss = loss_of(node, held);
    const CheckpointClaim* const claim = driver_->checkpoint().find(held.claim);
    if (loss.empty() || claim == nullptr || !now.insert(held.claim).second) continue;
    if (without_device_.contains(held.claim)) continue;
    const ClaimKey key{.uid = held.claim, .space = claim->space, .name = claim->name};
    const bool is_removed = node.find(held.asked.gpu) != nullptr && !is_whole(held.device);
    events_.lost(key, fmt::format("{}: {}, so no container can start with it; delete the pod{}", label(key),
                                  loss, is_removed ? kKeepVgpus : ""));
  }
  without_device_ = std::move(now);
}

/// Each reconcile of the slices touches as much memory as a start, even if it writes none.
void DraProgram::drop_memory_later() {
  if (!memory_timer_.is_set()) memory_timer_.set(timers_.now() + kCalm, [] { drop_startup_memory(); });
}

void DraProgram::end_by(Error error) {
  failure_ = std::move(error);
  loop_.finish();
}

void DraProgram::wait_for(const std::string& what) {
  if (std::exchange(waits_for_, what) != what) spdlog::warn("{}; trying again each second", what);
}

}  // namespace ferry::dra
