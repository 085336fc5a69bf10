// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "common/pinned.h"
#include "common/rpc/grpc_core.h"
#include "common/rpc/rpc_queue.h"
#include "common/rpc/rpc_server.h"
#include "deviceplugin.pb.h"
#include "kubevirt-plugin/server/kubelet_transport.h"
#include "pluginregistration.pb.h"

namespace ferry::plugin {
namespace {

v1beta1::ListAndWatchResponse message_of(const ListedResource& list) {
  v1beta1::ListAndWatchResponse message;
  message.mutable_devices()->Reserve(static_cast<int>(list.devices.size()));
  for (const auto& listed : list.devices) {
    auto& device = *message.add_devices();
    device.set_id(listed.id);
    device.set_health(listed.healthy ? "Healthy" : "Unhealthy");
    if (listed.numa_node) device.mutable_topology()->add_nodes()->set_id(*listed.numa_node);
  }
  return message;
}

RpcAnswer refusal(const Error& error) {
  grpc_status_code status = GRPC_STATUS_FAILED_PRECONDITION;
  if (error.code == Errc::not_found) status = GRPC_STATUS_NOT_FOUND;
  if (error.code == Errc::usage) status = GRPC_STATUS_INVALID_ARGUMENT;
  return {.status = status, .message = error.text()};
}

template <typename Ids>
std::vector<std::string> strings(const Ids& ids) {
  return {ids.begin(), ids.end()};
}

class Server final : public ResourceServer {
 public:
  Server(RpcQueue& queue, AllocationCore& core, AllocateGate& gate, std::string resource, bool cdi_names,
         StreamHook hook)
      : queue_(queue),
        core_(core),
        gate_(gate),
        resource_(std::move(resource)),
        cdi_names_(cdi_names),
        hook_(std::move(hook)),
        server_(queue, methods()) {}

  ~Server() override { Server::begin_stop(); }

  void add_connection(UniqueFd connection) override { server_.add_connection(std::move(connection)); }

  void begin_stop() override {
    server_.begin_stop();
    std::set<std::shared_ptr<RpcStream>> streams;
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      streams = streams_;
    }
    for (const auto& stream : streams) stream->finish();
  }

  void wait_stopped(std::chrono::steady_clock::time_point give_up) override { server_.wait_stopped(give_up); }

 private:
  std::vector<RpcServer::Method> methods() {
    const auto to = [this](void (Server::*serve)(grpc_call*, WireMessage)) {
      return
          [this, serve](grpc_call* call, WireMessage request) { (this->*serve)(call, std::move(request)); };
    };
    return {{.path = "/v1beta1.DevicePlugin/GetDevicePluginOptions", .serve = to(&Server::options)},
            {.path = "/v1beta1.DevicePlugin/ListAndWatch", .serve = to(&Server::list_and_watch)},
            {.path = "/v1beta1.DevicePlugin/GetPreferredAllocation", .serve = to(&Server::prefer)},
            {.path = "/v1beta1.DevicePlugin/Allocate", .serve = to(&Server::allocate)},
            {.path = "/v1beta1.DevicePlugin/PreStartContainer", .serve = to(&Server::pre_start)},
            {.path = "/pluginregistration.Registration/GetInfo", .serve = to(&Server::info)},
            {.path = "/pluginregistration.Registration/NotifyRegistrationStatus",
             .serve = to(&Server::registration_status)}};
  }

  /// The last place where an exception (no memory, a library's) can still reach the kubelet.
  template <typename Work>
  static RpcAnswer guarded(Work work) {
    try {
      return work();
    } catch (const std::exception& error) {
      return {.status = GRPC_STATUS_INTERNAL, .message = error.what()};
    }
  }

  // NOLINTBEGIN(readability-convert-member-functions-to-static): entries of one table of methods
  void options(grpc_call* call, WireMessage /*request*/) {
    v1beta1::DevicePluginOptions options;
    options.set_pre_start_required(false);
    options.set_get_preferred_allocation_available(kPrefersAllocations);
    send_answer(call, rpc_answer(options));
  }

  void info(grpc_call* call, WireMessage /*request*/) {
    pluginregistration::PluginInfo info;
    info.set_type("DevicePlugin");
    info.set_name(resource_);
    info.add_supported_versions("v1beta1");
    send_answer(call, rpc_answer(info));
  }

  void registration_status(grpc_call* call, WireMessage request) {
    pluginregistration::RegistrationStatus status;
    if (!from_wire(request.get(), status)) return send_answer(call, unreadable_request());
    if (!status.plugin_registered())
      spdlog::error("the kubelet does not take {}: {}", resource_, status.error());
    send_answer(call, rpc_answer(pluginregistration::RegistrationStatusResponse()));
  }

  void pre_start(grpc_call* call, WireMessage /*request*/) {
    send_answer(call, rpc_answer(v1beta1::PreStartContainerResponse()));
  }
  // NOLINTEND(readability-convert-member-functions-to-static)

  void prefer(grpc_call* call, WireMessage message) {
    send_answer(call, guarded([&] {
                  v1beta1::PreferredAllocationRequest request;
                  if (!from_wire(message.get(), request)) return unreadable_request();
                  v1beta1::PreferredAllocationResponse response;
                  for (const auto& container : request.container_requests()) {
                    const auto chosen = core_.prefer(resource_, strings(container.available_deviceids()),
                                                     strings(container.must_include_deviceids()),
                                                     container.allocation_size());
                    if (!chosen) return refusal(chosen.error());
                    auto& ids = *response.add_container_responses()->mutable_deviceids();
                    ids.Assign(chosen->begin(), chosen->end());
                  }
                  return rpc_answer(response);
                }));
  }

  void allocate(grpc_call* call, WireMessage message) {
    const auto request = std::make_shared<v1beta1::AllocateRequest>();
    const bool readable = from_wire(message.get(), *request);
    // Freed here: a thread that the host delays must free nothing of gRPC, which may have ended by then.
    message.reset();
    if (!readable) return send_answer(call, unreadable_request());
    gate_.pass([this, call, request, here = std::this_thread::get_id()](const Error* closed) {
      if (closed != nullptr) return send_answer(call, refused(*closed));
      const auto attempt = gate_.first_attempt();
      if (std::this_thread::get_id() == here) return give(call, request, attempt);
      RpcQueue::post(call, [this, call, request, attempt] { give(call, request, attempt); });
    });
  }

  using Request = std::shared_ptr<const v1beta1::AllocateRequest>;

  /// Runs on the queue's thread.
  void give(grpc_call* call, const Request& request, const AllocateGate::Attempt& attempt) {
    std::vector<std::vector<std::string>> containers;
    containers.reserve(static_cast<std::size_t>(request->container_requests_size()));
    for (const auto& container : request->container_requests())
      containers.push_back(strings(container.devices_ids()));
    // Another thread that answers tells this one through `relieved` if it has been replaced.
    const auto by_this_thread = std::make_shared<bool>(false);
    const auto relieved = std::make_shared<std::promise<bool>>();
    core_.allocate(resource_, containers,
                   [this, call, request, attempt, by_this_thread, relieved,
                    here = std::this_thread::get_id()](auto allocated) {
                     const bool is_here = std::this_thread::get_id() == here;
                     if (is_here) *by_this_thread = true;
                     if (!allocated && allocated.error().code == kBeingSanitized)
                       hold(call, request, attempt, std::move(allocated).error());
                     else
                       send_answer(call, guarded([&] { return answer_of(allocated); }));
                     // Last, because nothing of this is destroyed until the queue is served again.
                     if (!is_here) relieved->set_value(queue_.relieve(here));
                   });
    // If this thread has been replaced, this object may be gone from here on.
    if (!*by_this_thread && relieved->get_future().get()) RpcQueue::leave();
  }

  /// The call is tried again whenever hostd's orders change, until its patience ends.
  void hold(grpc_call* call, const Request& request, const AllocateGate::Attempt& attempt, Error why) {
    why.code = make_error_code(Errc::refused);
    why.message += fmt::format("; hostd has not finished within {:g} s",
                               std::chrono::duration<double>(gate_.patience()).count());
    gate_.hold(attempt, std::move(why), [this, call, request, until = attempt.until](const Error* late) {
      if (late != nullptr) return send_answer(call, refused(*late));
      RpcQueue::post(call, [this, call, request, until] { give(call, request, gate_.next_attempt(until)); });
    });
  }

  static RpcAnswer refused(const Error& error) {
    spdlog::error("{}", error.text());
    return refusal(error);
  }

  RpcAnswer answer_of(const Result<std::vector<Allocation>>& allocations) {
    if (!allocations) return refused(allocations.error());
    v1beta1::AllocateResponse response;
    for (const auto& allocation : *allocations) {
      spdlog::info("allocated {}: {}", resource_, fmt::join(allocation.ids, ","));
      auto& container = *response.add_container_responses();
      if (!allocation.env_name.empty())
        (*container.mutable_envs())[allocation.env_name] = allocation.env_value;
      for (const auto& [name, addresses] : allocation.companions)
        (*container.mutable_envs())[name] = addresses;
      if (cdi_names_) {
        for (const auto& id : allocation.ids) container.add_cdi_devices()->set_name(resource_ + "=" + id);
        continue;
      }
      for (const auto& node : allocation.nodes) {
        auto& device = *container.add_devices();
        device.set_container_path(node);
        device.set_host_path(node);
        device.set_permissions("mrw");
      }
    }
    return rpc_answer(response);
  }

  void list_and_watch(grpc_call* call, WireMessage /*request*/) {
    std::shared_ptr<RpcStream> stream;
    Stream number = 0;
    {
      const std::scoped_lock lock(mutex_);
      number = ++last_stream_;
      if (!stopping_) stream = *streams_.insert(std::make_shared<RpcStream>(call)).first;
    }
    if (stream == nullptr)
      return send_answer(call, {.status = GRPC_STATUS_UNAVAILABLE, .message = "it is ending"});
    hook_(number, true);
    stream->start([this, stream, number] {
      {
        const std::scoped_lock lock(mutex_);
        streams_.erase(stream);
      }
      hook_(number, false);
    });
    auto lists = core_.watch(resource_, [weak = std::weak_ptr(stream)] {
      if (const auto waiting = weak.lock()) waiting->pump();
    });
    if (!lists) return stream->refuse(GRPC_STATUS_NOT_FOUND, lists.error().message);
    stream->send_from([lists = std::move(*lists)]() -> WireMessage {
      const auto list = lists->take();
      if (list == nullptr) return nullptr;
      return to_wire(message_of(*list));
    });
  }

  RpcQueue& queue_;
  AllocationCore& core_;
  AllocateGate& gate_;
  const std::string resource_;
  const bool cdi_names_;
  const StreamHook hook_;

  std::mutex mutex_;
  std::set<std::shared_ptr<RpcStream>> streams_;
  Stream last_stream_ = 0;
  bool stopping_ = false;
  RpcServer server_;  // last: its calls use all of the above until it has ended
};

}  // namespace

std::unique_ptr<ResourceServer> ResourceServer::make(RpcQueue& queue, AllocationCore& core,
                                                     AllocateGate& gate, std::string resource, bool cdi_names,
                                                     StreamHook hook) {
  return std::make_unique<Server>(queue, core, gate, std::move(resource), cdi_names, std::move(hook));
}

}  // namespace ferry::plugin
