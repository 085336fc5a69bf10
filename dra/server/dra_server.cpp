// SPDX-License-Identifier: Apache-2.0
#include "dra/server/dra_server.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/file_status.h"
#include "common/owned_timer.h"
#include "common/rpc/grpc_core.h"
#include "common/rpc/rpc_queue.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/socket_file.h"
#include "common/text/text.h"
#include "dra.pb.h"
#include "dra/claims/claim_driver.h"
#include "dra/names.h"
#include "dra_health.pb.h"
#include "hostfs/directory_watch.h"
#include "pluginregistration.pb.h"

namespace ferry::dra {
namespace {

namespace wire = ::k8s::io::kubelet::pkg::apis::dra::v1;
using Clock = EventLoop::Clock;

/// ABI: a path of sockaddr_un, which ends in a NUL for most programs.
constexpr std::size_t kLongestSocketPath = 107;
constexpr Clock::duration kFirstPause = std::chrono::milliseconds(2);
constexpr Clock::duration kLongestPause = std::chrono::seconds(10);
/// The time for calls in progress at the end.
constexpr Clock::duration kPatience = std::chrono::seconds(1);

/// The kubelet chooses the first one that it knows. ABI: "<last part of the package>.<service>".
constexpr std::array kServices = {"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth",
                                  "v1alpha1.DRAResourceHealth"};

std::string registration_name(std::string_view tag) {
  return tag.empty() ? fmt::format("{}-reg.sock", kDriver) : fmt::format("{}-{}-reg.sock", kDriver, tag);
}

RpcAnswer prepared(const std::vector<ClaimAnswer>& answers) {
  wire::NodePrepareResourcesResponse response;
  for (const ClaimAnswer& answer : answers) {
    wire::NodePrepareResourceResponse& claim = (*response.mutable_claims())[answer.uid];
    if (!answer.devices) {
      claim.set_error(answer.devices.error().text());
      continue;
    }
    for (const DeviceAnswer& given : *answer.devices) {
      wire::Device& device = *claim.add_devices();
      device.add_request_names(given.request);
      device.set_pool_name(given.pool);
      device.set_device_name(given.device);
      for (const std::string& id : given.cdi_ids) device.add_cdi_device_ids(id);
    }
  }
  return rpc_answer(response);
}

RpcAnswer unprepared(const std::vector<ClaimAnswer>& answers) {
  wire::NodeUnprepareResourcesResponse response;
  for (const ClaimAnswer& answer : answers) {
    wire::NodeUnprepareResourceResponse& claim = (*response.mutable_claims())[answer.uid];
    if (!answer.devices) claim.set_error(answer.devices.error().text());
  }
  return rpc_answer(response);
}

RpcAnswer ending() {
  return {.status = GRPC_STATUS_UNAVAILABLE, .message = "ferry dra is ending"};
}

/// A folder of the kubelet with one of the two sockets.
struct Endpoint {
  UniqueFd folder;
  std::string where;  ///< its path, for people
  std::string file;
  DirectoryWatch watch;
  std::unique_ptr<SocketAcceptor> socket = {};
  EventLoop::Timer timer = {};
  Clock::duration pause = kFirstPause;
};

Result<Endpoint> open_endpoint(const HostFs& host, const std::filesystem::path& path, std::string file) {
  const std::string where = (host.root() / path).string();
  auto folder = host.open(path, O_RDONLY | O_DIRECTORY);
  if (!folder && is_gone(folder.error()))
    return fail(Errc::not_found, fmt::format("the kubelet's directory {} does not exist", where),
                "run this on a node whose kubelet has been started once, or name its directory");
  if (!folder) return fail(std::move(folder).error());
  auto watch = DirectoryWatch::open(path_of_directory(folder->get()));
  if (!watch) return fail(std::move(watch).error().during(where));
  return Endpoint{
      .folder = std::move(*folder), .where = where, .file = std::move(file), .watch = std::move(*watch)};
}

/// Errc::invalid_config: the kubelet could not connect to a socket of this name.
Result<> check_length(const std::filesystem::path& folder, const std::string& file) {
  const std::string path = (std::filesystem::path("/") / folder / file).string();
  if (path.size() <= kLongestSocketPath) return {};
  return fail(Errc::invalid_config,
              fmt::format("{}: the path has {} bytes, and that of a socket may have {}", path, path.size(),
                          kLongestSocketPath),
              "give the kubelet a folder with a shorter path (--root-dir)");
}

/// Removes sockets of other pods that no process serves any more.
void remove_former(const HostFs& host, const std::filesystem::path& path, const Endpoint& endpoint,
                   bool (*is_name)(std::string_view)) {
  const auto files = host.list(path);
  if (!files) return;
  for (const std::string& file : *files) {
    if (file == endpoint.file || !is_name(file)) continue;
    const auto served = connect_to_socket(endpoint.folder.get(), file);
    if (served || served.error().code != std::errc::connection_refused) continue;
    if (::unlinkat(endpoint.folder.get(), file.c_str(), 0) == 0)
      spdlog::info("removed {}/{}, which a former process has left", endpoint.where, file);
  }
}

}  // namespace

SocketNames socket_names(const std::filesystem::path& registry, std::string_view pod_uid) {
  if (pod_uid.empty()) return {.plugin = "dra.sock", .registration = registration_name({})};
  std::string tag(pod_uid);
  if ((registry / registration_name(tag)).native().size() > kLongestSocketPath)
    tag = fmt::format("{:016x}", stable_hash_64(pod_uid));
  return {.plugin = fmt::format("dra-{}.sock", tag), .registration = registration_name(tag)};
}

namespace {

class Server final : public DraServer {
 public:
  Server(const Parts& parts, const Settings& settings, Listener listener, Endpoint plugin,
         Endpoint registration)
      : loop_(parts.loop),
        driver_(parts.driver),
        listener_(std::move(listener)),
        interval_(settings.health_interval),
        endpoint_path_("/" + (settings.plugin_folder / plugin.file).string()),
        plugin_(std::move(plugin)),
        registration_(std::move(registration)),
        server_(parts.queue, methods()) {
    for (Endpoint* const endpoint : {&plugin_, &registration_})
      loop_.watch(endpoint->watch.fd(), [this, endpoint] { read_events(*endpoint); });
  }

  ~Server() override {
    for (Endpoint* const endpoint : {&registration_, &plugin_}) {
      loop_.forget(endpoint->watch.fd());
      endpoint->watch.leave();
      loop_.cancel(endpoint->timer);
      endpoint->socket.reset();  // first, so that no new connection reaches a server that ends
    }
    server_.begin_stop();
    std::map<std::uint64_t, grpc_call*> calls;
    std::set<std::shared_ptr<RpcStream>> streams;
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      calls.swap(calls_);
      streams = streams_;
    }
    for (const auto& [number, call] : calls) send_answer(call, ending());
    for (const auto& stream : streams) stream->finish();
    server_.wait_stopped(Clock::now() + kPatience);
  }

  /// The plugin's socket first: the kubelet connects to it once it has found the other one.
  Result<> listen() {
    for (Endpoint* const endpoint : {&plugin_, &registration_})
      if (auto opened = open_socket(*endpoint, SocketFile::Rival::replace); !opened) return opened;
    return {};
  }

  void set_health(std::vector<DeviceHealth> devices) override {
    {
      const std::scoped_lock lock(mutex_);
      if (health_version_ != 0 && health_ == devices) return;
      health_ = std::move(devices);
      ++health_version_;
    }
    pump_streams();
  }

 private:
  // Sockets.

  Result<> open_socket(Endpoint& endpoint, SocketFile::Rival rival) {
    endpoint.socket.reset();
    auto socket = SocketFile::listen(endpoint.folder.get(), endpoint.file, rival);
    if (!socket) return fail(std::move(socket).error().during("in " + endpoint.where));
    endpoint.socket = std::make_unique<SocketAcceptor>(
        loop_, std::move(*socket),
        [this](UniqueFd connection) { server_.add_connection(std::move(connection)); });
    endpoint.pause = kFirstPause;
    return {};
  }

  static bool is_served(const Endpoint& endpoint) { return endpoint.socket && endpoint.socket->is_there(); }

  void read_events(Endpoint& endpoint) {
    for (const DirectoryEvent& event : endpoint.watch.read()) {
      if (event.kind == DirectoryEvent::Kind::gone) return fail_without(endpoint);
      const bool may_be_ours = event.kind == DirectoryEvent::Kind::lost ||
                               (event.kind == DirectoryEvent::Kind::vanished && event.name == endpoint.file);
      // The removal of the whole directory may follow, so the socket is not made again at once.
      if (may_be_ours && !is_served(endpoint)) retry(endpoint);
    }
  }

  void retry(Endpoint& endpoint) {
    loop_.cancel(endpoint.timer);
    endpoint.timer = loop_.at(Clock::now() + endpoint.pause, [this, &endpoint] {
      if (is_served(endpoint)) return;
      const auto opened = open_socket(endpoint, SocketFile::Rival::yield);
      if (opened) return;
      // The removal of an open directory raises no event.
      const auto now = file_status(endpoint.folder.get());
      if (now && now->st_nlink == 0) return fail_without(endpoint);
      spdlog::warn("{}; trying again until it is done", opened.error().text());
      retry(endpoint);
    });
    endpoint.pause = std::min(2 * endpoint.pause, kLongestPause);
  }

  void fail_without(const Endpoint& endpoint) {
    loop_.forget(endpoint.watch.fd());
    if (!listener_.failed) return;
    listener_.failed({.code = Errc::not_found,
                      .message = fmt::format("the kubelet's directory {} has gone away", endpoint.where),
                      .hint = "start again when the kubelet has made it"});
  }

  // Calls. They arrive on the queue's thread, and the driver belongs to the loop's.

  std::vector<RpcServer::Method> methods() {
    const auto to = [this](void (Server::*serve)(grpc_call*, WireMessage)) {
      return
          [this, serve](grpc_call* call, WireMessage request) { (this->*serve)(call, std::move(request)); };
    };
    return {{.path = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
             .serve = to(&Server::prepare)},
            {.path = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
             .serve = to(&Server::unprepare)},
            {.path = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
             .serve = to(&Server::prepare)},
            {.path = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
             .serve = to(&Server::unprepare)},
            {.path = "/v1.DRAResourceHealth/NodeWatchResources", .serve = to(&Server::watch_health)},
            {.path = "/v1alpha1.DRAResourceHealth/NodeWatchResources", .serve = to(&Server::watch_health)},
            {.path = "/pluginregistration.Registration/GetInfo", .serve = to(&Server::info)},
            {.path = "/pluginregistration.Registration/NotifyRegistrationStatus",
             .serve = to(&Server::registration_status)}};
  }

  /// Runs `job` in the loop, unless this object has ended by then.
  void post(std::function<void()> job) {
    loop_.post([alive = std::weak_ptr<const bool>(alive_), job = std::move(job)] {
      if (!alive.expired()) job();
    });
  }

  void answer(std::uint64_t number, RpcAnswer what) {
    grpc_call* call = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      const auto found = calls_.find(number);
      if (found == calls_.end()) return;
      call = found->second;
      calls_.erase(found);
    }
    send_answer(call, std::move(what));
  }

  void prepare(grpc_call* call, WireMessage message) {
    give<wire::NodePrepareResourcesRequest>(call, message, &ClaimDriver::prepare, prepared);
  }

  void unprepare(grpc_call* call, WireMessage message) {
    give<wire::NodeUnprepareResourcesRequest>(call, message, &ClaimDriver::unprepare, unprepared);
  }

  /// Has the driver do the work, and answers by its answers.
  template <typename Request>
  void give(grpc_call* call, const WireMessage& message,
            void (ClaimDriver::*work)(const std::vector<ClaimKey>&, ClaimDriver::Done),
            RpcAnswer (*answer_by)(const std::vector<ClaimAnswer>&)) {
    Request request;
    if (!from_wire(message.get(), request)) return send_answer(call, unreadable_request());
    std::uint64_t number = 0;  // by which answer() finds the call; 0: the server ends
    {
      const std::scoped_lock lock(mutex_);
      if (!stopping_) {
        number = ++last_call_;
        calls_.emplace(number, call);
      }
    }
    if (number == 0) return send_answer(call, ending());

    std::vector<ClaimKey> keys;
    for (const wire::Claim& claim : request.claims())
      keys.push_back({.uid = claim.uid(), .space = claim.namespace_(), .name = claim.name()});
    post([this, number, keys = std::move(keys), work, answer_by] {
      (driver_.*work)(keys, [this, number, answer_by, alive = std::weak_ptr<const bool>(alive_)](
                                const std::vector<ClaimAnswer>& answers) {
        if (!alive.expired()) answer(number, answer_by(answers));
      });
    });
  }

  void info(grpc_call* call, WireMessage /*request*/) {
    pluginregistration::PluginInfo info;
    info.set_type("DRAPlugin");
    info.set_name(std::string(kDriver));
    info.set_endpoint(endpoint_path_);
    for (const char* const service : kServices) info.add_supported_versions(service);
    send_answer(call, rpc_answer(info));
  }

  void registration_status(grpc_call* call, WireMessage message) {
    pluginregistration::RegistrationStatus status;
    if (!from_wire(message.get(), status)) return send_answer(call, unreadable_request());
    send_answer(call, rpc_answer(pluginregistration::RegistrationStatusResponse()));
    post([this, taken = status.plugin_registered(), why = status.error()] {
      if (taken) {
        if (listener_.registered) listener_.registered();
        return;
      }
      const Error error{.code = Errc::refused,
                        .message = fmt::format("the kubelet does not take {}: {}", kDriver, why),
                        .hint = "is there another driver of this name? Claims need Kubernetes 1.34 or later"};
      if (listener_.refused) listener_.refused(error);
    });
  }

  // Health.

  void watch_health(grpc_call* call, WireMessage /*request*/) {
    std::shared_ptr<RpcStream> stream;
    {
      const std::scoped_lock lock(mutex_);
      if (!stopping_) stream = *streams_.insert(std::make_shared<RpcStream>(call)).first;
    }
    if (stream == nullptr) return send_answer(call, ending());
    stream->start([this, stream] {
      const std::scoped_lock lock(mutex_);
      streams_.erase(stream);
    });
    stream->send_from([this, sent = std::uint64_t{0}]() mutable { return next_health(sent); });
    post([this] {
      if (!health_timer_.is_set()) send_health_later();
    });
  }

  /// The message, if it is newer than `sent`.
  WireMessage next_health(std::uint64_t& sent) {
    const auto now =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
    const auto limit = std::chrono::ceil<std::chrono::seconds>(3 * interval_);
    ::v1alpha1::NodeWatchResourcesResponse message;
    const std::scoped_lock lock(mutex_);
    if (std::exchange(sent, health_version_) == health_version_) return nullptr;
    for (const DeviceHealth& health : health_) {
      ::v1alpha1::DeviceHealth& device = *message.add_devices();
      device.mutable_device()->set_pool_name(health.pool);
      device.mutable_device()->set_device_name(health.device);
      device.set_health(health.message.empty() ? ::v1alpha1::HEALTHY : ::v1alpha1::UNHEALTHY);
      device.set_last_updated_time(now.count());
      device.set_health_check_timeout_seconds(limit.count());
      device.set_message(health.message);
    }
    return to_wire(message);
  }

  void pump_streams() {
    std::set<std::shared_ptr<RpcStream>> streams;
    {
      const std::scoped_lock lock(mutex_);
      streams = streams_;
    }
    for (const auto& stream : streams) stream->pump();
  }

  /// Runs while there are streams.
  void send_health_later() {
    health_timer_.set(Clock::now() + interval_, [this] {
      {
        const std::scoped_lock lock(mutex_);
        if (health_version_ != 0) ++health_version_;
        if (streams_.empty()) return;
      }
      pump_streams();
      send_health_later();
    });
  }

  EventLoop& loop_;
  ClaimDriver& driver_;
  const Listener listener_;
  const std::chrono::milliseconds interval_;
  const std::string endpoint_path_;
  Endpoint plugin_;
  Endpoint registration_;
  OwnedTimer health_timer_{loop_};
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);

  std::mutex mutex_;
  bool stopping_ = false;
  std::map<std::uint64_t, grpc_call*> calls_;  // without an answer
  std::uint64_t last_call_ = 0;
  std::set<std::shared_ptr<RpcStream>> streams_;
  std::vector<DeviceHealth> health_;
  std::uint64_t health_version_ = 0;  // 0: unknown
  RpcServer server_;                  // last: its calls use all of the above until it has ended
};

}  // namespace

Result<std::unique_ptr<DraServer>> DraServer::open(const Parts& parts, const Settings& settings,
                                                   Listener listener) {
  const SocketNames names =
      socket_names(std::filesystem::path("/") / settings.registry_folder, settings.pod_uid);
  if (auto fits = check_length(settings.plugin_folder, names.plugin); !fits)
    return fail(std::move(fits).error());
  if (auto fits = check_length(settings.registry_folder, names.registration); !fits)
    return fail(std::move(fits).error());
  if (auto made = parts.host.make_directory(settings.plugin_folder); !made)
    return fail(std::move(made).error());
  auto plugin = open_endpoint(parts.host, settings.plugin_folder, names.plugin);
  if (!plugin) return fail(std::move(plugin).error());
  auto registration = open_endpoint(parts.host, settings.registry_folder, names.registration);
  if (!registration) return fail(std::move(registration).error());
  remove_former(parts.host, settings.registry_folder, *registration, [](std::string_view file) {
    return file == registration_name({}) ||
           (file.starts_with(fmt::format("{}-", kDriver)) && file.ends_with("-reg.sock"));
  });
  remove_former(parts.host, settings.plugin_folder, *plugin, [](std::string_view file) {
    return file == "dra.sock" || (file.starts_with("dra-") && file.ends_with(".sock"));
  });
  auto server = std::make_unique<Server>(parts, settings, std::move(listener), std::move(*plugin),
                                         std::move(*registration));
  if (auto listening = server->listen(); !listening) return fail(std::move(listening).error());
  return server;
}

}  // namespace ferry::dra
