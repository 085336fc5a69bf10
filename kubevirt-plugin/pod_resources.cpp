// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/pod_resources.h"

#include <fcntl.h>
#include <utility>

#include "common/socket_file.h"
#include "common/waited_call.h"
#include "kubevirt-plugin/pod_list_call.h"

namespace ferry {
namespace {

Result<std::vector<PodDevice>> ask(UniqueFd connection, std::chrono::milliseconds deadline) {
  Result<PodList> list;
  auto answered = call_and_wait(std::move(connection), pod_list_question(), deadline,
                                [&](const ClientCall& call) { list = pod_list_answer(call); });
  if (!answered) return fail(std::move(answered).error());
  if (!list) return fail(std::move(list).error());
  return std::move(list->devices);
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
    // Pods run on without a kubelet, with unknown devices. EAGAIN: the socket's queue is full.
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
