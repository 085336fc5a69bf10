// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/server/resource_server.h"

#include <array>
#include <exception>
#include <future>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "common/pinned.h"
#include "common/rpc/grpc_core.h"
#include "deviceplugin.pb.h"
#include "kubevirt-plugin/server/rpc_queue.h"
#include "pluginregistration.pb.h"

namespace ferry::plugin {
namespace {

v1beta1::ListAndWatchResponse message_of(const ListedResource& list) {
  v1beta1::ListAndWatchResponse message;
  message.mutable_devices()->Reserve(static_cast<int>(list.devices.size()));
  for (const auto& listed : list.devices) {
    auto& device = *message.add_devices();
    device.set_id(listed.id);
    device.set_health(listed.healthy() ? "Healthy" : "Unhealthy");
    if (listed.numa_node) device.mutable_topology()->add_nodes()->set_id(*listed.numa_node);
  }
  return message;
}

}  // namespace

ListStream::~ListStream() {
  grpc_call_unref(call_);
}

void ListStream::start(AllocationCore& core, const std::string& resource, std::function<void()> closed) {
  const grpc_op op = recv_close_op(&cancelled_);
  RpcQueue::start(call_, {&op, 1}, [self = shared_from_this(), closed = std::move(closed)](bool /*ok*/) {
    {
      const std::scoped_lock lock(self->mutex_);
      self->over_ = true;
      self->lists_ = nullptr;
    }
    closed();
  });

  auto lists = core.watch(resource, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->pump();
  });
  {
    const std::scoped_lock lock(mutex_);
    if (lists) {
      lists_ = std::move(*lists);
    } else {
      send_status(GRPC_STATUS_NOT_FOUND, lists.error().message);
    }
  }
  pump();
}

void ListStream::pump() {
  const std::scoped_lock lock(mutex_);
  if (sending_ || over_ || lists_ == nullptr) return;
  if (finishing_) return send_status(GRPC_STATUS_OK, {});
  const auto list = lists_->take();
  if (list == nullptr) return;

  const std::shared_ptr<grpc_byte_buffer> wire = to_wire(message_of(*list));
  const std::array ops = {send_message_op(wire.get()), send_metadata_op()};
  sending_ = true;
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), wire](bool ok) { self->sent(ok); });
}

void ListStream::sent(bool ok) {
  {
    const std::scoped_lock lock(mutex_);
    sending_ = false;
    if (!ok) over_ = true;  // the close operation of start() completes next and calls `closed`
  }
  pump();
}

void ListStream::finish() {
  {
    const std::scoped_lock lock(mutex_);
    finishing_ = true;
  }
  pump();
}

void ListStream::send_status(grpc_status_code status, const std::string& message) {
  over_ = true;
  const auto text = std::make_shared<grpc_slice>(to_slice(message));
  const std::array ops = {send_status_op(status, text.get()), send_metadata_op()};
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), text](bool /*ok*/) { grpc_slice_unref(*text); });
}

namespace {

/// The largest request, room for tens of thousands of device IDs. ABI: gRPC's own limit.
constexpr std::size_t kLargestRequest = std::size_t{4} << 20;

/// The data of an incoming call.
struct Incoming : Pinned {
  Incoming() { grpc_metadata_array_init(&metadata); }
  ~Incoming() {
    grpc_metadata_array_destroy(&metadata);
    grpc_byte_buffer_destroy(payload);
  }
  grpc_call* call = nullptr;
  gpr_timespec deadline{};
  grpc_metadata_array metadata{};
  grpc_byte_buffer* payload = nullptr;
};

/// The data of a call of an unregistered method.
struct Other : Pinned {
  Other() {
    grpc_call_details_init(&details);
    grpc_metadata_array_init(&metadata);
  }
  ~Other() {
    grpc_metadata_array_destroy(&metadata);
    grpc_call_details_destroy(&details);
  }
  grpc_call* call = nullptr;
  grpc_call_details details{};
  grpc_metadata_array metadata{};
};

struct Answer {
  grpc_status_code status = GRPC_STATUS_OK;
  std::string message;
  WireMessage wire;
};

grpc_status_code status_of(const Error& error) {
  if (error.code == Errc::not_found) return GRPC_STATUS_NOT_FOUND;
  if (error.code == Errc::usage) return GRPC_STATUS_INVALID_ARGUMENT;
  return GRPC_STATUS_FAILED_PRECONDITION;
}

Answer refusal(const Error& error) {
  return {.status = status_of(error), .message = error.text(), .wire = nullptr};
}

Answer unreadable() {
  return {.status = GRPC_STATUS_INVALID_ARGUMENT, .message = "the request cannot be read", .wire = nullptr};
}

bool is_too_large(const Incoming& incoming) {
  return incoming.payload != nullptr && grpc_byte_buffer_length(incoming.payload) > kLargestRequest;
}

Answer too_large() {
  return {.status = GRPC_STATUS_RESOURCE_EXHAUSTED,
          .message = fmt::format("the request is larger than {} MiB", kLargestRequest >> 20),
          .wire = nullptr};
}

Answer answer(const google::protobuf::MessageLite& message) {
  return {.status = GRPC_STATUS_OK, .message = {}, .wire = to_wire(message)};
}

void send(grpc_call* call, Answer what) {
  struct Sent {
    Answer answer;
    grpc_slice message;
    int cancelled = 0;
  };
  const auto sent = std::make_shared<Sent>(Sent{.answer = std::move(what), .message = grpc_empty_slice()});
  sent->message = to_slice(sent->answer.message);
  const std::array ops = {send_metadata_op(), recv_close_op(&sent->cancelled),
                          send_status_op(sent->answer.status, &sent->message),
                          send_message_op(sent->answer.wire.get())};
  const std::size_t count = sent->answer.wire ? ops.size() : ops.size() - 1;
  RpcQueue::start(call, std::span(ops).first(count), [call, sent](bool /*ok*/) {
    grpc_slice_unref(sent->message);
    grpc_call_unref(call);
  });
}

template <typename Ids>
std::vector<std::string> strings(const Ids& ids) {
  return {ids.begin(), ids.end()};
}

/// Creates the server without gRPC's filters, which cost a fifth of an Allocate. This class limits messages
/// itself. The kubelet keeps its deadline and ends the call then. A compressed request, which no kubelet
/// sends, cannot be read.
grpc_server* create_server() {
  std::string minimal = GRPC_ARG_MINIMAL_STACK;
  grpc_arg setting = integer_arg(minimal.data(), 1);
  const grpc_channel_args args{.num_args = 1, .args = &setting};
  return grpc_server_create(&args, nullptr);
}

}  // namespace

class ResourceServer::Impl : Pinned {
 public:
  Impl(RpcQueue& queue, AllocationCore& core, AllocateGate& gate, std::string resource, bool cdi_names,
       StreamHook hook)
      : queue_(queue),
        core_(core),
        gate_(gate),
        resource_(std::move(resource)),
        cdi_names_(cdi_names),
        hook_(std::move(hook)),
        server_(create_server()) {
    grpc_server_register_completion_queue(server_, queue.get(), nullptr);
    for (auto& method : methods_) {
      method.handle = grpc_server_register_method(server_, method.path, nullptr,
                                                  GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    }
    grpc_server_start(server_);
    for (const auto& method : methods_) expect(method);
    expect_other();
  }

  ~Impl() {
    begin_stop();
    wait_stopped(std::chrono::steady_clock::now());
    grpc_server_destroy(server_);
  }

  void add_connection(UniqueFd connection) {
    auto* const credentials = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(server_, connection.release(), credentials);
    grpc_server_credentials_release(credentials);
  }

  void begin_stop() {
    if (stopped_.valid()) return;
    const auto promise = std::make_shared<std::promise<void>>();
    stopped_ = promise->get_future();
    grpc_server_shutdown_and_notify(server_, queue_.get(),
                                    RpcQueue::tag([promise](bool /*ok*/) { promise->set_value(); }));
    std::set<std::shared_ptr<ListStream>> streams;
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      streams = streams_;
    }
    for (const auto& stream : streams) stream->finish();
  }

  void wait_stopped(std::chrono::steady_clock::time_point give_up) {
    if (stopped_.wait_until(give_up) == std::future_status::ready) return;
    grpc_server_cancel_all_calls(server_);
    stopped_.wait();
  }

 private:
  struct Method {
    const char* path = nullptr;
    void (Impl::*serve)(Incoming&) = nullptr;
    void* handle = nullptr;
  };

  /// Asks gRPC for the next call of a method.
  void expect(const Method& method) {
    const auto incoming = std::make_shared<Incoming>();
    grpc_server_request_registered_call(server_, method.handle, &incoming->call, &incoming->deadline,
                                        &incoming->metadata, &incoming->payload, queue_.get(), queue_.get(),
                                        RpcQueue::tag([this, &method, incoming](bool ok) {
                                          if (!ok) return;  // shut down
                                          expect(method);
                                          if (is_too_large(*incoming))
                                            return send(incoming->call, too_large());
                                          (this->*method.serve)(*incoming);
                                        }));
  }

  /// Asks gRPC for the next call of an unknown method, which gRPC does not answer by itself.
  void expect_other() {
    const auto other = std::make_shared<Other>();
    grpc_server_request_call(
        server_, &other->call, &other->details, &other->metadata, queue_.get(), queue_.get(),
        RpcQueue::tag([this, other](bool ok) {
          if (!ok) return;  // shut down
          expect_other();
          send(other->call, {.status = GRPC_STATUS_UNIMPLEMENTED,
                             .message = fmt::format("no such method: {}", to_text(other->details.method)),
                             .wire = nullptr});
        }));
  }

  /// The last place where an exception (no memory, a library's) can still reach the kubelet.
  template <typename Work>
  static Answer guarded(Work work) {
    try {
      return work();
    } catch (const std::exception& error) {
      return {.status = GRPC_STATUS_INTERNAL, .message = error.what(), .wire = nullptr};
    }
  }

  // NOLINTBEGIN(readability-convert-member-functions-to-static): entries of one table of methods
  void options(Incoming& incoming) {
    v1beta1::DevicePluginOptions options;
    options.set_pre_start_required(false);
    options.set_get_preferred_allocation_available(kPrefersAllocations);
    send(incoming.call, answer(options));
  }

  void info(Incoming& incoming) {
    pluginregistration::PluginInfo info;
    info.set_type("DevicePlugin");
    info.set_name(resource_);
    info.add_supported_versions("v1beta1");
    send(incoming.call, answer(info));
  }

  void registration_status(Incoming& incoming) {
    pluginregistration::RegistrationStatus status;
    if (!from_wire(incoming.payload, status)) return send(incoming.call, unreadable());
    if (!status.plugin_registered())
      spdlog::error("the kubelet does not take {}: {}", resource_, status.error());
    send(incoming.call, answer(pluginregistration::RegistrationStatusResponse()));
  }

  void pre_start(Incoming& incoming) { send(incoming.call, answer(v1beta1::PreStartContainerResponse())); }
  // NOLINTEND(readability-convert-member-functions-to-static)

  void prefer(Incoming& incoming) {
    send(incoming.call, guarded([&] {
           v1beta1::PreferredAllocationRequest request;
           if (!from_wire(incoming.payload, request)) return unreadable();
           v1beta1::PreferredAllocationResponse response;
           for (const auto& container : request.container_requests()) {
             const auto chosen =
                 core_.prefer(resource_, strings(container.available_deviceids()),
                              strings(container.must_include_deviceids()), container.allocation_size());
             if (!chosen) return refusal(chosen.error());
             auto& ids = *response.add_container_responses()->mutable_deviceids();
             ids.Assign(chosen->begin(), chosen->end());
           }
           return answer(response);
         }));
  }

  void allocate(Incoming& incoming) {
    const auto request = std::make_shared<v1beta1::AllocateRequest>();
    const bool readable = from_wire(incoming.payload, *request);
    // Freed here: a thread that the host delays must free nothing of gRPC, which may have ended by then.
    grpc_byte_buffer_destroy(std::exchange(incoming.payload, nullptr));
    grpc_metadata_array_destroy(&incoming.metadata);
    grpc_metadata_array_init(&incoming.metadata);
    if (!readable) return send(incoming.call, unreadable());
    gate_.pass([this, call = incoming.call, request, here = std::this_thread::get_id()](const Error* closed) {
      if (closed != nullptr) return send(call, refused(*closed));
      if (std::this_thread::get_id() == here) return give(call, *request);
      RpcQueue::post(call, [this, call, request] { give(call, *request); });
    });
  }

  /// Runs on the queue's thread.
  void give(grpc_call* call, const v1beta1::AllocateRequest& request) {
    std::vector<std::vector<std::string>> containers;
    containers.reserve(static_cast<std::size_t>(request.container_requests_size()));
    for (const auto& container : request.container_requests())
      containers.push_back(strings(container.devices_ids()));
    // Another thread that answers tells this one through `relieved` if it has been replaced.
    const auto by_this_thread = std::make_shared<bool>(false);
    const auto relieved = std::make_shared<std::promise<bool>>();
    core_.allocate(resource_, containers,
                   [this, call, by_this_thread, relieved, here = std::this_thread::get_id()](auto allocated) {
                     const bool is_here = std::this_thread::get_id() == here;
                     if (is_here) *by_this_thread = true;
                     send(call, guarded([&] { return answer_of(allocated); }));
                     // Last, because nothing of this is destroyed until the queue is served again.
                     if (!is_here) relieved->set_value(queue_.relieve(here));
                   });
    // If this thread has been replaced, this object may be gone from here on.
    if (!*by_this_thread && relieved->get_future().get()) RpcQueue::leave();
  }

  static Answer refused(const Error& error) {
    spdlog::error("{}", error.text());
    return refusal(error);
  }

  Answer answer_of(const Result<std::vector<Allocation>>& allocations) {
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
    return answer(response);
  }

  void list_and_watch(Incoming& incoming) {
    std::shared_ptr<ListStream> stream;
    Stream number = 0;
    {
      const std::scoped_lock lock(mutex_);
      number = ++last_stream_;
      if (!stopping_) stream = *streams_.insert(std::make_shared<ListStream>(incoming.call)).first;
    }
    if (stream == nullptr)
      return send(incoming.call, {.status = GRPC_STATUS_UNAVAILABLE, .message = "it is ending", .wire = {}});
    hook_(number, true);
    stream->start(core_, resource_, [this, stream, number] {
      {
        const std::scoped_lock lock(mutex_);
        streams_.erase(stream);
      }
      hook_(number, false);
    });
  }

  RpcQueue& queue_;
  AllocationCore& core_;
  AllocateGate& gate_;
  const std::string resource_;
  const bool cdi_names_;
  const StreamHook hook_;
  grpc_server* const server_;
  std::future<void> stopped_;
  std::array<Method, 7> methods_ = {{
      {.path = "/v1beta1.DevicePlugin/GetDevicePluginOptions", .serve = &Impl::options},
      {.path = "/v1beta1.DevicePlugin/ListAndWatch", .serve = &Impl::list_and_watch},
      {.path = "/v1beta1.DevicePlugin/GetPreferredAllocation", .serve = &Impl::prefer},
      {.path = "/v1beta1.DevicePlugin/Allocate", .serve = &Impl::allocate},
      {.path = "/v1beta1.DevicePlugin/PreStartContainer", .serve = &Impl::pre_start},
      {.path = "/pluginregistration.Registration/GetInfo", .serve = &Impl::info},
      {.path = "/pluginregistration.Registration/NotifyRegistrationStatus",
       .serve = &Impl::registration_status},
  }};

  std::mutex mutex_;
  std::set<std::shared_ptr<ListStream>> streams_;
  Stream last_stream_ = 0;
  bool stopping_ = false;
};

ResourceServer::ResourceServer(RpcQueue& queue, AllocationCore& core, AllocateGate& gate,
                               std::string resource, bool cdi_names, StreamHook hook)
    : impl_(std::make_unique<Impl>(queue, core, gate, std::move(resource), cdi_names, std::move(hook))) {}
ResourceServer::~ResourceServer() = default;

void ResourceServer::add_connection(UniqueFd connection) {
  impl_->add_connection(std::move(connection));
}
void ResourceServer::begin_stop() {
  impl_->begin_stop();
}
void ResourceServer::wait_stopped(std::chrono::steady_clock::time_point give_up) {
  impl_->wait_stopped(give_up);
}

}  // namespace ferry::plugin
