// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/rpc_server.h"

#include <array>
#include <cstddef>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "common/rpc/rpc_queue.h"

namespace ferry {
namespace {

/// The largest request, room for tens of thousands of device IDs. ABI: gRPC's own limit.
constexpr std::size_t kLargestRequest = std::size_t{4} << 20;

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

grpc_server* create_server() {
  std::string minimal = GRPC_ARG_MINIMAL_STACK;
  grpc_arg setting = integer_arg(minimal.data(), 1);
  const grpc_channel_args args{.num_args = 1, .args = &setting};
  return grpc_server_create(&args, nullptr);
}

}  // namespace

RpcAnswer rpc_answer(const google::protobuf::MessageLite& message) {
  return {.wire = to_wire(message)};
}

RpcAnswer unreadable_request() {
  return {.status = GRPC_STATUS_INVALID_ARGUMENT, .message = "the request cannot be read"};
}

void send_answer(grpc_call* call, RpcAnswer answer) {
  struct Sent {
    RpcAnswer answer;
    grpc_slice message;
    int cancelled = 0;
  };
  const auto sent = std::make_shared<Sent>(Sent{.answer = std::move(answer), .message = grpc_empty_slice()});
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

RpcServer::RpcServer(RpcQueue& queue, std::vector<Method> methods) : queue_(queue), server_(create_server()) {
  grpc_server_register_completion_queue(server_, queue.get(), nullptr);
  methods_.reserve(methods.size());
  for (Method& method : methods) {
    void* const handle = grpc_server_register_method(server_, method.path, nullptr,
                                                     GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    methods_.push_back({.serve = std::move(method.serve), .handle = handle});
  }
  grpc_server_start(server_);
  for (const auto& method : methods_) expect(method);
  expect_other();
}

RpcServer::~RpcServer() {
  begin_stop();
  wait_stopped(std::chrono::steady_clock::now());
  grpc_server_destroy(server_);
}

void RpcServer::add_connection(UniqueFd connection) {
  auto* const credentials = grpc_insecure_server_credentials_create();
  grpc_server_add_channel_from_fd(server_, connection.release(), credentials);
  grpc_server_credentials_release(credentials);
}

void RpcServer::begin_stop() {
  if (stopped_.valid()) return;
  const auto promise = std::make_shared<std::promise<void>>();
  stopped_ = promise->get_future();
  grpc_server_shutdown_and_notify(server_, queue_.get(),
                                  RpcQueue::tag([promise](bool /*ok*/) { promise->set_value(); }));
}

void RpcServer::wait_stopped(std::chrono::steady_clock::time_point give_up) {
  if (stopped_.wait_until(give_up) == std::future_status::ready) return;
  grpc_server_cancel_all_calls(server_);
  stopped_.wait();
}

void RpcServer::expect(const Registered& method) {
  const auto incoming = std::make_shared<Incoming>();
  grpc_server_request_registered_call(
      server_, method.handle, &incoming->call, &incoming->deadline, &incoming->metadata, &incoming->payload,
      queue_.get(), queue_.get(), RpcQueue::tag([this, &method, incoming](bool ok) {
        if (!ok) return;  // shut down
        expect(method);
        WireMessage request(std::exchange(incoming->payload, nullptr));
        // Freed here: a thread that the host delays must free nothing of gRPC, which may have ended by then.
        grpc_metadata_array_destroy(&incoming->metadata);
        grpc_metadata_array_init(&incoming->metadata);
        if (request != nullptr && grpc_byte_buffer_length(request.get()) > kLargestRequest)
          return send_answer(incoming->call, {.status = GRPC_STATUS_RESOURCE_EXHAUSTED,
                                              .message = fmt::format("the request is larger than {} MiB",
                                                                     kLargestRequest >> 20)});
        method.serve(incoming->call, std::move(request));
      }));
}

void RpcServer::expect_other() {
  const auto other = std::make_shared<Other>();
  grpc_server_request_call(
      server_, &other->call, &other->details, &other->metadata, queue_.get(), queue_.get(),
      RpcQueue::tag([this, other](bool ok) {
        if (!ok) return;  // shut down
        expect_other();
        send_answer(other->call,
                    {.status = GRPC_STATUS_UNIMPLEMENTED,
                     .message = fmt::format("no such method: {}", to_text(other->details.method))});
      }));
}

RpcStream::~RpcStream() {
  grpc_call_unref(call_);
}

void RpcStream::start(std::function<void()> closed) {
  const grpc_op op = recv_close_op(&cancelled_);
  RpcQueue::start(call_, {&op, 1}, [self = shared_from_this(), closed = std::move(closed)](bool /*ok*/) {
    Source source;  // ends after the lock
    {
      const std::scoped_lock lock(self->mutex_);
      self->over_ = true;
      source = std::exchange(self->source_, nullptr);
    }
    closed();
  });
}

void RpcStream::send_from(Source source) {
  {
    const std::scoped_lock lock(mutex_);
    if (!over_) source_ = std::move(source);
  }
  pump();
}

void RpcStream::refuse(grpc_status_code status, const std::string& message) {
  const std::scoped_lock lock(mutex_);
  if (!over_) send_status(status, message);
}

void RpcStream::pump() {
  const std::scoped_lock lock(mutex_);
  if (sending_ || over_ || source_ == nullptr) return;
  if (finishing_) return send_status(GRPC_STATUS_OK, {});
  const std::shared_ptr<grpc_byte_buffer> wire = source_();
  if (wire == nullptr) return;

  const std::array ops = {send_message_op(wire.get()), send_metadata_op()};
  sending_ = true;
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), wire](bool ok) { self->sent(ok); });
}

void RpcStream::sent(bool ok) {
  {
    const std::scoped_lock lock(mutex_);
    sending_ = false;
    if (!ok) over_ = true;  // the close operation of start() completes next and calls `closed`
  }
  pump();
}

void RpcStream::finish() {
  {
    const std::scoped_lock lock(mutex_);
    finishing_ = true;
  }
  pump();
}

void RpcStream::send_status(grpc_status_code status, const std::string& message) {
  over_ = true;
  const auto text = std::make_shared<grpc_slice>(to_slice(message));
  const std::array ops = {send_status_op(status, text.get()), send_metadata_op()};
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), text](bool /*ok*/) { grpc_slice_unref(*text); });
}

}  // namespace ferry
