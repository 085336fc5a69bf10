// SPDX-License-Identifier: Apache-2.0
#include "dra/claims/hostd_client.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <system_error>

#include <fmt/format.h>

namespace ferry::dra {
namespace {

constexpr const char* kAway =
    "does `ferry hostd` run on this node, of the same version? The kubelet asks again";

Error away(std::string message) {
  return {.code = Errc::unreachable, .message = std::move(message), .hint = kAway};
}

}  // namespace

Result<std::unique_ptr<HostdCall>> HostdCall::connect(EventLoop& loop, const HostFs& host,
                                                      const std::filesystem::path& socket) {
  const std::string action = "connect to hostd at /" + socket.string();
  const auto folder = host.open(socket.parent_path(), O_PATH | O_DIRECTORY);
  if (!folder && is_gone(folder.error())) return fail(away(error_from_errno(ENOENT, action).message));
  if (!folder) {
    Error error = Error(folder.error()).during(action);
    if (error.code == std::errc::permission_denied)
      error.hint = "does `ferry hostd` run with --dra-user and --dra-group of this process?";
    return fail(std::move(error));
  }

  // The folder's descriptor names the socket, so that a long path does no harm.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", folder->get(), socket.filename().string());
  if (path.size() >= sizeof(address.sun_path))
    return fail(error_from_errno(ENAMETOOLONG, "connect to /" + socket.string()));
  std::memcpy(address.sun_path, path.c_str(), path.size());

  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail(error_from_errno(errno, action));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_un)) != 0) {
    Error error = error_from_errno(errno, action);
    // EAGAIN: the socket's queue is full.
    if (error.code == std::errc::no_such_file_or_directory || error.code == std::errc::connection_refused ||
        error.code == std::errc::resource_unavailable_try_again)
      return fail(away(std::move(error.message)));
    return fail(std::move(error));
  }
  return std::unique_ptr<HostdCall>(new HostdCall(loop, std::move(fd)));
}

HostdCall::~HostdCall() {
  loop_.forget(connection_.get());
}

void HostdCall::send(const api::ClaimRequest& request, std::chrono::milliseconds limit, Done done) {
  done_ = std::move(done);
  limit_ = limit;
  const auto fail_soon = [this](Error error) {
    timer_.set(EventLoop::Clock::now(), [this, error = std::move(error)] { finish(fail(error)); });
  };
  const std::string text = api::claim_request_text(request);
  if (text.size() > api::kLongestClaimMessage)
    return fail_soon({.code = Errc::usage,
                      .message = fmt::format("the request to hostd has {} bytes, more than {}", text.size(),
                                             api::kLongestClaimMessage),
                      .hint = "let the claim ask for fewer devices"});
  // The packet goes whole or not at all. EPIPE: hostd has refused this user and closed the connection, and
  // its answer can be read.
  if (::send(connection_.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE)
    return fail_soon(away(error_from_errno(errno, "send a request to hostd").message));
  loop_.watch(connection_.get(), [this] { read_answer(); });
  timer_.set(EventLoop::Clock::now() + limit, [this] {
    finish(fail(away(fmt::format("hostd has not answered in {} s", limit_.count() / 1000))));
  });
}

void HostdCall::read_answer() {
  std::string text(api::kLongestClaimMessage, '\0');
  const ssize_t size = ::recv(connection_.get(), text.data(), text.size(), MSG_TRUNC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0) return finish(fail(away(error_from_errno(errno, "read hostd's answer").message)));
  if (size == 0) return finish(fail(away("hostd has closed the connection without an answer")));
  // MSG_TRUNC: the length of the packet, of which the rest is lost.
  if (static_cast<std::size_t>(size) > text.size())
    return finish(fail(Errc::malformed_host,
                       fmt::format("hostd's answer has {} bytes, more than {}", size, text.size()),
                       "are hostd and `ferry dra` of the same version?"));
  text.resize(static_cast<std::size_t>(size));
  has_answered_ = true;
  finish(api::read_claim_answer(text));
}

void HostdCall::finish(Result<std::vector<api::PreparedDevice>> result) {
  timer_.cancel();
  loop_.forget(connection_.get());
  const Done done = std::move(done_);
  done(std::move(result));  // last: it may destroy this
}

}  // namespace ferry::dra
