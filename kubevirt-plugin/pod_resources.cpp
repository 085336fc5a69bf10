// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/pod_resources.h"

#include <fcntl.h>
#include <utility>

#include <fmt/format.h>

#include "kubevirt-plugin/client_call.h"
#include "kubevirt-plugin/pod_list.h"
#include "kubevirt-plugin/socket_file.h"

namespace ferry {
namespace {

// A node of 250 pods with a dozen containers each makes about one: processors and memory are listed too.
constexpr int kLargestAnswer = 16 * 1024 * 1024;

/// A queue that its owner waits on, without a thread of its own, and gRPC for as long as that takes.
class WaitedQueue {
 public:
  WaitedQueue() : queue_(make()) {}
  WaitedQueue(const WaitedQueue&) = delete;
  WaitedQueue& operator=(const WaitedQueue&) = delete;
  WaitedQueue(WaitedQueue&&) = delete;
  WaitedQueue& operator=(WaitedQueue&&) = delete;
  ~WaitedQueue() {
    grpc_completion_queue_shutdown(queue_);
    wait();
    grpc_completion_queue_destroy(queue_);
    grpc_shutdown_blocking();  // joins gRPC's own threads, if nobody else uses it
  }

  grpc_completion_queue* get() const { return queue_; }
  /// False: nothing has been done by then.
  bool wait(gpr_timespec end = gpr_inf_future(GPR_CLOCK_MONOTONIC)) {
    return grpc_completion_queue_next(queue_, end, nullptr).type != GRPC_QUEUE_TIMEOUT;
  }

 private:
  static grpc_completion_queue* make() {
    grpc_init();
    return grpc_completion_queue_create_for_next(nullptr);
  }
  grpc_completion_queue* const queue_;
};

WireMessage empty_message() {
  return WireMessage(grpc_raw_byte_buffer_create(nullptr, 0));
}

Result<std::string> ask(UniqueFd connection, std::chrono::milliseconds deadline) {
  WaitedQueue queue;
  ClientCall call(queue.get(), std::move(connection),
                  {.method = "/v1.PodResourcesLister/List",
                   .message = empty_message(),
                   .deadline = {},
                   .largest_answer = kLargestAnswer});
  const auto ops = call.ops();
  if (const auto error = grpc_call_start_batch(call.get(), ops.data(), ops.size(), nullptr, nullptr);
      error != GRPC_CALL_OK) {
    return fail(Errc::failed, fmt::format("gRPC takes no call: {}", grpc_call_error_to_string(error)));
  }
  // The deadline is ours: gRPC keeps its own in a thread that may still have the call when it is over, and
  // then end, with gRPC's other threads, some time after we have returned.
  const auto end =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline.count(), GPR_TIMESPAN));
  if (!queue.wait(end)) {
    grpc_call_cancel(call.get(), nullptr);
    queue.wait();
    return fail(Errc::unreachable, fmt::format("no answer in {} ms", deadline.count()));
  }
  if (call.status() != GRPC_STATUS_OK) {
    return fail(
        call.silent() ? Errc::unreachable : Errc::failed,
        fmt::format("the kubelet {}: {}", call.silent() ? "does not answer" : "refuses", call.text()));
  }
  auto answer = bytes_of(call.answer());
  if (!answer) return fail(Errc::malformed_host, "the kubelet's answer cannot be unpacked");
  return std::move(*answer);
}

}  // namespace

Result<std::vector<PodDevice>> list_pod_devices(const HostFs& host, const std::filesystem::path& socket,
                                                std::chrono::milliseconds deadline) {
  const std::vector<PodDevice> nothing;
  const auto directory = host.open(socket.parent_path(), O_PATH | O_DIRECTORY);
  if (!directory && is_gone(directory.error())) return nothing;
  if (!directory) return fail(directory.error());
  auto connection = connect_to_socket(directory->get(), socket.filename());
  if (!connection && is_gone(connection.error())) return nothing;
  if (!connection) {
    auto error = std::move(connection).error().during("/" + socket.parent_path().string());
    // Its pods run on while a kubelet does not: nobody can say what they were given. EAGAIN: others wait too.
    if (error.code == std::errc::connection_refused ||
        error.code == std::errc::resource_unavailable_try_again)
      error.code = make_error_code(Errc::unreachable);
    return fail(std::move(error));
  }
  const auto answer = ask(std::move(*connection), deadline);
  if (!answer) return fail(Error(answer.error()).during("/" + socket.string()));
  auto devices = read_pod_list(*answer);
  if (!devices) return fail(std::move(devices).error().during("/" + socket.string()));
  return devices;
}

}  // namespace ferry
