// SPDX-License-Identifier: Apache-2.0
#include "tests/support/claim_client.h"

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <utility>

#include "api/claim_request.h"
#include "api/files.h"
#include "common/rpc/socket_file.h"

namespace ferry::test {

Result<UniqueFd> send_to_hostd(const HostFs& host, const std::string& request) {
  const std::filesystem::path socket = api::kClaimSocket;
  // The group of the folder may enter it, and may not list it.
  const auto folder = host.open(socket.parent_path(), O_PATH | O_DIRECTORY);
  if (!folder) return fail(folder.error());
  auto connection = connect_to_socket(folder->get(), socket.filename().string(), SOCK_SEQPACKET);
  if (!connection) return fail(std::move(connection).error());
  // EPIPE: hostd has refused this user and closed the connection, and its answer can be read.
  if (::send(connection->get(), request.data(), request.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE)
    return fail(error_from_errno(errno, "send a request to hostd"));
  return connection;
}

Result<std::string> ask_hostd(const HostFs& host, const std::string& request,
                              std::chrono::milliseconds limit) {
  const auto connection = send_to_hostd(host, request);
  if (!connection) return fail(connection.error());
  pollfd answered{.fd = connection->get(), .events = POLLIN, .revents = 0};
  const int ready = ::poll(&answered, 1, static_cast<int>(limit.count()));
  if (ready < 0) return fail(error_from_errno(errno, "wait for hostd's answer"));
  if (ready == 0) return fail(Errc::unreachable, "hostd has not answered in time");
  std::string answer(api::kLongestClaimMessage, '\0');
  const ssize_t size = ::recv(connection->get(), answer.data(), answer.size(), 0);
  if (size < 0) return fail(error_from_errno(errno, "read hostd's answer"));
  if (size == 0) return fail(Errc::unreachable, "hostd has closed the connection without an answer");
  answer.resize(static_cast<std::size_t>(size));
  return answer;
}

}  // namespace ferry::test
