// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/pod_resources.h"

#include <fcntl.h>
#include <utility>

#include "common/rpc/grpc_core.h"
#include "common/rpc/socket_file.h"

namespace ferry::plugin {
namespace {

// A node of 250 pods with a dozen containers each makes about 1 MiB, with CPUs and memory listed too.
constexpr int kLargestAnswer = 16 * 1024 * 1024;

ClientCall::Question pod_list_question() {
  return {.method = "/v1.PodResourcesLister/List",
          .message = WireMessage(grpc_raw_byte_buffer_create(nullptr, 0)),
          .deadline = kPodListDeadline,
          .largest_answer = kLargestAnswer};
}

Result<PodList> pod_list_answer(const ClientCall& call) {
  if (auto answered = result_of(call, Errc::failed); !answered) return fail(std::move(answered).error());
  const auto answer = bytes_of(call.answer());
  if (!answer) return fail(Errc::malformed_host, "the kubelet's answer cannot be unpacked");
  return read_pod_list(*answer);
}

}  // namespace

Result<std::optional<UniqueFd>> connect_pod_resources(const HostFs& host,
                                                      const std::filesystem::path& socket) {
  std::optional<UniqueFd> no_server;
  const auto directory = host.open(socket.parent_path(), O_PATH | O_DIRECTORY);
  if (!directory && is_gone(directory.error())) return no_server;
  if (!directory) return fail(directory.error());
  auto connection = connect_to_socket(directory->get(), socket.filename());
  if (!connection && is_gone(connection.error())) return no_server;
  if (!connection) {
    auto error = std::move(connection).error().during("/" + socket.parent_path().string());
    // Pods run on without a kubelet, with unknown devices. EAGAIN: the socket's queue is full.
    if (error.code == std::errc::connection_refused ||
        error.code == std::errc::resource_unavailable_try_again)
      error.code = Errc::unreachable;
    return fail(std::move(error));
  }
  return std::optional<UniqueFd>(std::move(*connection));
}

Result<std::vector<vfio::PodDevice>> list_pod_devices(const HostFs& host, const std::filesystem::path& socket,
                                                      std::chrono::milliseconds deadline) {
  auto connection = connect_pod_resources(host, socket);
  if (!connection) return fail(std::move(connection).error());
  std::optional<UniqueFd>& server = *connection;
  if (!server) return std::vector<vfio::PodDevice>();
  Result<PodList> list;
  const auto answered = call_and_wait(std::move(*server), pod_list_question(), deadline,
                                      [&](const ClientCall& call) { list = pod_list_answer(call); });
  if (!answered) list = fail(answered.error());
  if (!list) return fail(std::move(list).error().during("/" + socket.string()));
  return std::move(list->devices);
}

std::unique_ptr<KubeletCall> list_pods(RpcQueue& queue, UniqueFd connection,
                                       std::function<void(Result<PodList>)> done) {
  return std::make_unique<KubeletCall>(
      std::make_shared<ClientCall>(queue.get(), std::move(connection), pod_list_question()),
      [done = std::move(done)](const ClientCall& call) { done(pod_list_answer(call)); });
}

}  // namespace ferry::plugin
