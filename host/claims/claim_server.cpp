// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_server.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/file_status.h"
#include "hostfs/descriptor_reads.h"

namespace ferry::host {
namespace {

// `ferry dra` watches the folder, for which inotify wants the right to read it.
constexpr mode_t kFolderMode = 0750;
// Clients choose some of the texts.
constexpr std::size_t kMostWarnings = 100;
constexpr std::size_t kLongestWarning = 500;
// Descriptors are short: a waiting connection would wake the loop all the time.
constexpr auto kBeforeRetry = std::chrono::seconds(1);

/// Gives the folder that `fd` has open its group and mode.
Result<> give_folder(int fd, const std::filesystem::path& folder, gid_t group) {
  const std::string what = fmt::format("give /{} to group {}", folder.string(), group);
  const auto now = file_status(fd);
  if (!now) return fail(error_from_errno(errno, what));
  if (now->st_uid != ::geteuid()) {
    return fail(Errc::refused,
                fmt::format("/{} belongs to user {}, and not to hostd", folder.string(), now->st_uid),
                "remove it; hostd makes the folder");
  }
  if (now->st_gid != group && ::fchown(fd, static_cast<uid_t>(-1), group) != 0) {
    const int why = errno;
    Error error = error_from_errno(why, what);
    if (why == EPERM) error.hint = fmt::format("hostd needs group {} among its supplementary groups", group);
    return fail(std::move(error));
  }
  if ((now->st_mode & 07777U) != kFolderMode && ::fchmod(fd, kFolderMode) != 0)
    return fail(error_from_errno(errno, what));
  return {};
}

}  // namespace

ClaimServer::ClaimServer(EventLoop& loop, HostFs& host, ClaimServerSettings settings, Serve serve)
    : loop_(loop), host_(host), settings_(std::move(settings)), serve_(std::move(serve)) {}

ClaimServer::~ClaimServer() {
  stop_listening();
  for (const auto& [fd, connection] : connections_) {
    loop_.cancel(connection.end);
    loop_.forget(fd);
  }
}

Result<> ClaimServer::keep() {
  const std::filesystem::path folder = settings_.socket.parent_path();
  if (auto made = host_.make_directory(folder); !made) return made;
  auto opened = host_.open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!opened) return fail(std::move(opened).error());
  if (auto given = give_folder(opened->get(), folder, settings_.group); !given) {
    stop_listening();
    return given;
  }
  if (socket_ && socket_->is_there() && is_same_file(folder_.get(), opened->get())) return {};
  return listen(std::move(*opened));
}

Result<> ClaimServer::listen(UniqueFd folder) {
  stop_listening();
  folder_ = std::move(folder);
  auto socket = SocketFile::listen(folder_.get(), settings_.socket.filename(), SocketFile::Rival::replace,
                                   {.type = SOCK_SEQPACKET, .group = settings_.group});
  if (!socket) return fail(std::move(socket).error());
  socket_.emplace(std::move(*socket));
  watch_socket();
  return {};
}

void ClaimServer::stop_listening() {
  loop_.cancel(retry_);
  if (!socket_) return;
  ignore_socket();
  socket_.reset();
}

void ClaimServer::watch_socket() {
  if (!socket_ || accepts_ || connections_.size() >= settings_.most_connections) return;
  accepts_ = true;
  loop_.watch(socket_->fd(), [this] { accept_one(); });
}

void ClaimServer::ignore_socket() {
  if (std::exchange(accepts_, false)) loop_.forget(socket_->fd());
}

void ClaimServer::accept_one() {
  read_all();
  auto connection = socket_->accept();
  if (!connection) {
    warn_once(connection.error().message);
    retry_ = loop_.at(EventLoop::Clock::now() + kBeforeRetry, [this] { watch_socket(); });
    return ignore_socket();
  }
  if (!*connection) return;  // none waits
  if (auto refusal = refuse_client((*connection)->get())) return turn_away(**connection, std::move(*refusal));
  begin(std::move(**connection));
  if (connections_.size() >= settings_.most_connections) ignore_socket();
}

/// The kernel drops the answer of a connection that is closed with an unread packet. So no further packets
/// are taken, and those that are there are read.
void ClaimServer::turn_away(const UniqueFd& client, Error why) {
  warn_once(why.message);
  ::shutdown(client.get(), SHUT_RD);
  char packet = 0;
  while (::recv(client.get(), &packet, sizeof(packet), MSG_DONTWAIT) > 0) {
  }
  answer(client.get(), fail(std::move(why)));
}

void ClaimServer::begin(UniqueFd fd) {
  const int number = fd.get();
  const auto end_at = EventLoop::Clock::now() + settings_.patience;
  connections_.insert_or_assign(
      number, Connection{.fd = std::move(fd), .end = loop_.at(end_at, [this, number] { expire(number); })});
  loop_.watch(number, [this] { read_all(); });
  read(number);
}

std::optional<Error> ClaimServer::refuse_client(int fd) const {
  ucred client{};
  socklen_t size = sizeof(client);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &client, &size) != 0)
    return error_from_errno(errno, "find out who asks about claims");
  if (client.uid == settings_.user) return std::nullopt;
  return Error{.code = make_error_code(Errc::refused),
               .message = fmt::format("user {} may not ask about claims: hostd serves user {}", client.uid,
                                      settings_.user),
               .hint = "`ferry hostd --dra-user` names the user of `ferry dra`"};
}

void ClaimServer::read_all() {
  std::vector<std::pair<EventLoop::Timer, int>> in_order;  // all get the same time, from their connection on
  in_order.reserve(connections_.size());
  for (const auto& [fd, connection] : connections_) in_order.emplace_back(connection.end, fd);
  std::ranges::sort(in_order);
  for (const auto& [end_at, fd] : in_order) read(fd);
}

void ClaimServer::read(int fd) {
  std::string text(api::kLongestClaimMessage, '\0');
  const ssize_t size = ::recv(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) {
    // MSG_TRUNC gives the packet's whole size. The reader names the limit.
    text.resize(static_cast<std::size_t>(size));
    answer(fd, result_of(text));
  }
  end(fd);
}

Result<std::vector<api::PreparedDevice>> ClaimServer::result_of(const std::string& text) {
  const auto request = api::read_claim_request(text);
  if (request) return serve_(*request);
  warn_once(request.error().message);
  return fail(request.error());
}

void ClaimServer::answer(int fd, const Result<std::vector<api::PreparedDevice>>& result) {
  const std::string text = api::claim_answer_text(result);
  // The client may have gone. It asks again, and gets the same answer then.
  if (::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    spdlog::debug("an answer about a claim was not sent: {}", error_from_errno(errno, "send").message);
}

void ClaimServer::end(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  loop_.cancel(found->second.end);
  loop_.forget(fd);
  connections_.erase(found);
  watch_socket();
}

void ClaimServer::expire(int fd) {
  read(fd);  // its request may have come while another one was served
  end(fd);
}

void ClaimServer::warn_once(const std::string& message) {
  const std::string text = message.substr(0, kLongestWarning);
  if (warned_.size() < kMostWarnings && warned_.insert(text).second) spdlog::warn("{}", text);
}

}  // namespace ferry::host
