// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/pod_resources.h"

#include <fcntl.h>
#include <utility>

#include <fmt/format.h>

#include "kubevirt-plugin/client_call.h"
#include "kubevirt-plugin/pod_list_call.h"
#include "kubevirt-plugin/socket_file.h"

namespace ferry {
namespace {

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

Result<std::vector<PodDevice>> ask(UniqueFd connection, std::chrono::milliseconds deadline) {
  WaitedQueue queue;
  ClientCall call(queue.get(), std::move(connection), pod_list_question());
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
  return pod_list_answer(call);
}

}  // namespace

Result<std::optional<UniqueFd>> connect_pod_resources(const HostFs& host,
                                                      const std::filesystem::path& socket) {
  std::optional<UniqueFd> nobody;
  const auto directory = host.open(socket.parent_path(), O_PATH | O_DIRECTORY);
  if (!directory && is_gone(directory.error())) return nobody;
  if (!directory) return fail(directory.error());
  auto connection = connect_to_socket(directory->get(), socket.filename());
  if (!connection && is_gone(connection.error())) return nobody;
  if (!connection) {
    auto error = std::move(connection).error().during("/" + socket.parent_path().string());
    // Its pods run on while a kubelet does not: nobody can say what they were given. EAGAIN: others wait too.
    if (error.code == std::errc::connection_refused ||
        error.code == std::errc::resource_unavailable_try_again)
      error.code = make_error_code(Errc::unreachable);
    return fail(std::move(error));
  }
  return std::optional<UniqueFd>(std::move(*connection));
}

Result<std::vector<PodDevice>> list_pod_devices(const HostFs& host, const std::filesystem::path& socket,
                                                std::chrono::milliseconds deadline) {
  auto connection = connect_pod_resources(host, socket);
  if (!connection) return fail(std::move(connection).error());
  std::optional<UniqueFd>& nobody_or_it = *connection;
  if (!nobody_or_it) return std::vector<PodDevice>();
  auto devices = ask(std::move(*nobody_or_it), deadline);
  if (!devices) return fail(std::move(devices).error().during("/" + socket.string()));
  return devices;
}

}  // namespace ferry
