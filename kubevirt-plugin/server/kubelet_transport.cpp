// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/server/kubelet_transport.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/file_status.h"
#include "common/rpc/client_call.h"
#include "common/rpc/grpc_core.h"
#include "common/rpc/rpc_queue.h"
#include "common/rpc/socket_file.h"
#include "deviceplugin.pb.h"
#include "hostfs/directory_watch.h"
#include "kubevirt-plugin/allocation/kubelet_call.h"
#include "kubevirt-plugin/plugin.h"

namespace ferry::plugin {
namespace {

WireMessage request_of(const std::string& endpoint, const std::string& resource) {
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(endpoint);
  request.set_resource_name(resource);
  // Present kubelets ask for the options; older ones take them from here.
  request.mutable_options()->set_get_preferred_allocation_available(kPrefersAllocations);
  return to_wire(request);
}

using Clock = EventLoop::Clock;

constexpr const char* kKubeletSocket = "kubelet.sock";
constexpr Clock::duration kFirstPause = std::chrono::milliseconds(2);
constexpr Clock::duration kLongestPause = std::chrono::seconds(10);
// The time for calls in progress at the end.
constexpr Clock::duration kPatience = std::chrono::seconds(1);

class Transport final : public KubeletTransport {
 public:
  Transport(const Parts& parts, UniqueFd directory, std::string where, DirectoryWatch watch,
            Listener listener)
      : parts_(parts),
        directory_(std::move(directory)),
        where_(std::move(where)),
        watch_(std::move(watch)),
        listener_(std::move(listener)) {
    parts_.loop.watch(watch_.fd(), [this] { read_directory_events(); });
  }

  ~Transport() override {
    parts_.loop.forget(watch_.fd());
    watch_.leave();
    for (auto& endpoint : endpoints_) {
      parts_.loop.cancel(endpoint.timer);
      endpoint.socket.reset();  // first, so that no new connection reaches a server that ends
      endpoint.call.reset();
    }
    for (auto& endpoint : endpoints_) endpoint.server->begin_stop();
    const auto give_up = Clock::now() + kPatience;
    for (auto& endpoint : endpoints_) endpoint.server->wait_stopped(give_up);
  }

  Result<> advertise_resources(const std::set<std::string>& names) override {
    Result<> all;
    for (const auto& resource : parts_.core.snapshot()->resources) {
      const std::string& name = resource->name.text();
      if (!names.contains(name) || find(name) != nullptr) continue;
      auto& endpoint = endpoints_.emplace_back(name, endpoint_name(resource->name, resource->env_prefix));
      endpoint.server =
          ResourceServer::make(parts_.queue, parts_.core, parts_.gate, name,
                               parts_.options.cdi_names && resource->env_prefix == EnvPrefix::none,
                               poster(name, &Transport::stream_changed));
      if (auto opened = open_socket(endpoint, SocketFile::Rival::replace); !opened) {
        endpoints_.pop_back();  // without an endpoint, so that the next call tries again
        if (all) all = std::move(opened);
        continue;
      }
      attempt(endpoint);
    }
    return all;
  }

  bool serves_any() const override { return !endpoints_.empty(); }

  std::set<std::string> registered() const override {
    std::set<std::string> names;
    for (const auto& endpoint : endpoints_)
      if (!endpoint.readers.empty()) names.insert(endpoint.resource);
    return names;
  }

 private:
  struct Endpoint {
    Endpoint(std::string resource_name, std::string socket_name)
        : resource(std::move(resource_name)), file(std::move(socket_name)) {}
    std::string resource;
    std::string file;
    std::unique_ptr<ResourceServer> server;
    std::unique_ptr<SocketAcceptor> socket;    // after the server, which gets its connections
    std::set<ResourceServer::Stream> readers;  // of its list, without those of a former kubelet
    std::optional<SocketIdentity> read_by;     // the kubelet when the first of them came
    bool removed = false;                      // its socket was removed since
    Clock::time_point streaming_since;

    std::unique_ptr<KubeletCall> call;              // in progress
    std::optional<SocketIdentity> registered_with;  // the kubelet of the call, or of the last successful call
    bool once_more = false;                         // when the call is over
    bool read_since_call = false;                   // a reader has come since the call started
    EventLoop::Timer timer;
    Clock::duration pause = kFirstPause;
    bool complained = false;
    bool dropped = false;  // by the reader of its list
  };

  Endpoint* find(const std::string& resource) {
    const auto found = std::ranges::find(endpoints_, resource, &Endpoint::resource);
    return found == endpoints_.end() ? nullptr : &*found;
  }

  /// Calls a member in the loop, from the queue's thread. The call and the job may outlive this object, so
  /// they check that it exists before they use it.
  template <typename... Arguments>
  std::function<void(Arguments...)> poster(const std::string& resource,
                                           void (Transport::*member)(Endpoint&, Arguments...)) {
    return [this, &loop = parts_.loop, alive = std::weak_ptr<const bool>(alive_), resource,
            member](Arguments... arguments) {
      loop.post([this, alive, resource, member, arguments...] {
        if (alive.expired()) return;
        if (auto* const endpoint = find(resource)) (this->*member)(*endpoint, arguments...);
      });
    };
  }

  Result<> open_socket(Endpoint& endpoint, SocketFile::Rival rival) {
    endpoint.socket.reset();
    auto socket = SocketFile::listen(directory_.get(), endpoint.file, rival);
    if (!socket) {
      // The removal of an open directory raises no event.
      const auto directory = file_status(directory_.get());
      if (directory && directory->st_nlink == 0) return fail(gone());
      return fail(std::move(socket).error().during("in " + where_));
    }
    endpoint.socket = std::make_unique<SocketAcceptor>(parts_.loop, std::move(*socket),
                                                       [server = endpoint.server.get()](UniqueFd connection) {
                                                         server->add_connection(std::move(connection));
                                                       });
    return {};
  }

  void read_directory_events() {
    for (const auto& event : watch_.read()) {
      switch (event.kind) {
        case DirectoryEvent::Kind::appeared:
          if (event.name == kKubeletSocket && !parts_.options.plugin_watcher) {
            spdlog::info("the kubelet's socket has appeared in {}", where_);
            for (auto& endpoint : endpoints_)
              if (!is_registered(endpoint)) begin_again(endpoint);
          }
          break;
        case DirectoryEvent::Kind::vanished:
          for (auto& endpoint : endpoints_)
            if (endpoint.file == event.name && !(endpoint.socket && endpoint.socket->is_there())) {
              // The removal of the whole directory may follow, so the socket is not made again at once.
              endpoint.pause = kFirstPause;
              forget_former_readers(endpoint);
              retry(endpoint);
            }
          break;
        case DirectoryEvent::Kind::lost:
          for (auto& endpoint : endpoints_)
            if (!is_registered(endpoint)) begin_again(endpoint);
          break;
        case DirectoryEvent::Kind::written:  // neither is asked for
        case DirectoryEvent::Kind::changed:
          break;
        case DirectoryEvent::Kind::gone:
          parts_.loop.forget(watch_.fd());
          listener_.failed(gone());
          return;
      }
    }
  }

  Error gone() const {
    return {.code = Errc::not_found,
            .message = fmt::format("the kubelet's directory {} has gone away", where_),
            .hint = "start again when the kubelet has made it"};
  }

  void begin_again(Endpoint& endpoint) {
    endpoint.pause = kFirstPause;
    attempt(endpoint);
  }

  /// True if the present kubelet knows the present socket, or a call to register it is in progress. A
  /// registration may precede the event of the kubelet's socket.
  bool is_registered(const Endpoint& endpoint) const {
    return endpoint.registered_with &&
           endpoint.registered_with == socket_identity(directory_.get(), kKubeletSocket) && endpoint.socket &&
           endpoint.socket->is_there();
  }

  /// The connection of all calls in progress to this kubelet, until one of them fails.
  Result<std::shared_ptr<const ClientChannel>> connection_to(const std::optional<SocketIdentity>& kubelet) {
    auto channel = channel_.lock();
    if (channel && kubelet && kubelet == channel_to_) return channel;
    auto connection = connect_to_socket(directory_.get(), kKubeletSocket);
    if (!connection) return fail(std::move(connection).error());
    channel = std::make_shared<const ClientChannel>(std::move(*connection));
    channel_ = channel;
    channel_to_ = kubelet;
    return channel;
  }

  /// A kubelet that starts removes the plugin's socket (a new socket of its own alone does not mean that). A
  /// remaining reader is then the earlier kubelet, which has not ended yet, or a stranger.
  void forget_former_readers(Endpoint& endpoint) {
    if (endpoint.readers.empty()) return;
    if (endpoint.socket && !endpoint.socket->is_there()) endpoint.removed = true;
    if (!endpoint.removed || endpoint.read_by == socket_identity(directory_.get(), kKubeletSocket)) return;
    endpoint.readers.clear();
    listener_.changed();
  }

  void attempt(Endpoint& endpoint) {
    parts_.loop.cancel(endpoint.timer);
    forget_former_readers(endpoint);
    if (endpoint.call) {
      if (is_registered(endpoint)) return;  // the answer to this call decides
      // The call may be with a kubelet that has ended or hangs.
      endpoint.once_more = true;
      endpoint.call->cancel();
      return;
    }
    // A kubelet that finds plugins by itself looks at a socket once; after a drop it needs a new socket.
    const bool show_again = parts_.options.plugin_watcher && std::exchange(endpoint.dropped, false);
    if (!endpoint.socket || !endpoint.socket->is_there() || show_again) {
      if (auto opened = open_socket(endpoint, SocketFile::Rival::yield); !opened)
        return opened.error().code == Errc::not_found ? listener_.failed(opened.error())
                                                      : failed(endpoint, opened.error());
    }
    if (parts_.options.plugin_watcher) return;
    // Read before the connection: the connected kubelet is then this one, or a later one whose event follows.
    endpoint.registered_with = socket_identity(directory_.get(), kKubeletSocket);
    auto kubelet = connection_to(endpoint.registered_with);
    if (!kubelet) return failed(endpoint, kubelet.error());
    endpoint.read_since_call = false;
    endpoint.call = std::make_unique<KubeletCall>(
        std::make_shared<ClientCall>(
            parts_.queue.get(), std::move(*kubelet),
            ClientCall::Question{.method = "/v1beta1.Registration/Register",
                                 .message = request_of(endpoint.file, endpoint.resource),
                                 .deadline = parts_.options.unanswered}),
        [over = poster(endpoint.resource, &Transport::answered)](const ClientCall& call) {
          over(result_of(call, Errc::refused));
        });
  }

  void answered(Endpoint& endpoint, Result<> result) {
    endpoint.call.reset();
    if (std::exchange(endpoint.once_more, false)) return attempt(endpoint);
    if (!result) return failed(endpoint, result.error());
    spdlog::info("registered {} ({})", endpoint.resource, endpoint.file);
    endpoint.complained = false;
    endpoint.read_by = endpoint.registered_with;  // a present reader is that kubelet
    endpoint.removed = false;
    // The list may have been read and dropped already.
    if (endpoint.readers.empty())
      retry_in(endpoint, endpoint.read_since_call
                             ? std::max<Clock::duration>(endpoint.pause, parts_.options.dropped)
                             : parts_.options.unread);
  }

  void failed(Endpoint& endpoint, const Error& error) {
    endpoint.registered_with.reset();
    channel_.reset();
    // A kubelet reads the list, so it knows the plugin and has only refused a second registration.
    if (!endpoint.readers.empty()) {
      spdlog::debug("register {}: {}", endpoint.resource, error.message);
      return;
    }
    if (!std::exchange(endpoint.complained, true)) {
      spdlog::warn("register {}: {}; trying again until it is done", endpoint.resource, error.message);
    } else {
      spdlog::debug("register {}: {}", endpoint.resource, error.message);
    }
    retry(endpoint);
  }

  void retry(Endpoint& endpoint, Clock::duration at_least = {}) {
    retry_in(endpoint, std::max(endpoint.pause, at_least));
    endpoint.pause = std::min(2 * endpoint.pause, kLongestPause);
  }

  void retry_in(Endpoint& endpoint, Clock::duration pause) {
    parts_.loop.cancel(endpoint.timer);
    endpoint.timer = parts_.loop.at(Clock::now() + pause, [this, &endpoint] { attempt(endpoint); });
  }

  void stream_changed(Endpoint& endpoint, ResourceServer::Stream stream, bool begins) {
    if (begins) {
      if (endpoint.readers.empty()) {
        endpoint.read_by = socket_identity(directory_.get(), kKubeletSocket);
        endpoint.removed = false;
      }
      endpoint.readers.insert(stream);
      parts_.loop.cancel(endpoint.timer);
      endpoint.dropped = false;
      endpoint.read_since_call = true;
      endpoint.streaming_since = Clock::now();
    } else if (endpoint.readers.erase(stream) > 0 && endpoint.readers.empty()) {
      endpoint.dropped = true;
      spdlog::warn("the kubelet no longer reads the list of {}", endpoint.resource);
      // A kubelet that drops the plugin at once, perhaps for another one, is not asked ever faster.
      if (Clock::now() - endpoint.streaming_since > kLongestPause) endpoint.pause = kFirstPause;
      retry(endpoint, parts_.options.dropped);
    }
    listener_.changed();
  }

  const Parts parts_;
  const UniqueFd directory_;
  const std::string where_;
  const DirectoryWatch watch_;
  const Listener listener_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  std::weak_ptr<const ClientChannel> channel_;  // the last connection, while a call on it is in progress
  std::optional<SocketIdentity> channel_to_;    // the kubelet of that connection
  std::deque<Endpoint> endpoints_;              // only grows, since timers and sockets refer to its elements
};

}  // namespace

Result<std::unique_ptr<KubeletTransport>> KubeletTransport::open(const Parts& parts, UniqueFd directory,
                                                                 std::string where, Listener listener) {
  auto watch = DirectoryWatch::open(path_of_directory(directory.get()));
  if (!watch) return fail(std::move(watch).error().during(where));
  return std::make_unique<Transport>(parts, std::move(directory), std::move(where), std::move(*watch),
                                     std::move(listener));
}

}  // namespace ferry::plugin
