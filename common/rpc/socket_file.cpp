// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/socket_file.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/file_status.h"

namespace ferry {
namespace {

// A kubelet makes two connections to a socket at most; further clients may have to wait.
constexpr int kBacklog = 64;
// The pause until descriptors may be available again.
constexpr EventLoop::Clock::duration kNoDescriptors = std::chrono::seconds(1);

Result<sockaddr_un> address_of(int directory, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = path_of_directory(directory) / name;
  if (path.size() >= sizeof(address.sun_path)) return fail(error_from_errno(ENAMETOOLONG, name));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

Result<UniqueFd> make_socket(int type) {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail(error_from_errno(errno, "make a socket"));
  return fd;
}

}  // namespace

std::filesystem::path path_of_directory(int directory) {
  return std::filesystem::path("/proc/self/fd") / std::to_string(directory);
}

Result<SocketFile> SocketFile::listen(int directory, const std::string& name, Rival rival,
                                      const SocketKind& kind) {
  const std::string what = "make socket " + name;
  if (const auto other = entry_status(directory, name)) {
    if (!S_ISSOCK(other->st_mode)) return fail(error_from_errno(EEXIST, what));
    if (rival == Rival::yield && connect_to_socket(directory, name, kind.type))
      return fail(error_from_errno(EADDRINUSE, what + ": another process serves it"));
  }

  auto fd = make_socket(kind.type);
  if (!fd) return fail(std::move(fd).error());
  const auto unbound = file_status(fd->get());
  if (!unbound) return fail(error_from_errno(errno, what));
  // Made under another name and moved into place: the name always has a socket, so no rival makes its own.
  // A process number would be that of rivals too, since each container has a process 1.
  const std::string scratch = fmt::format(".{}.{}", unbound->st_ino, name);
  const auto address = address_of(directory, scratch);
  if (!address) return fail(address.error());
  ::unlinkat(directory, scratch.c_str(), 0);
  // On Linux the file gets the mode set before bind(2), so it is never open to others.
  if (::fchmod(fd->get(), S_IRUSR | S_IWUSR) != 0 ||
      ::bind(fd->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(sockaddr_un)) != 0)
    return fail(error_from_errno(errno, what));
  const auto is_given = [&] {
    const auto& group = kind.group;
    return !group || (::fchownat(directory, scratch.c_str(), static_cast<uid_t>(-1), *group, 0) == 0 &&
                      ::fchmodat(directory, scratch.c_str(), 0660, 0) == 0);
  };
  const bool listens = is_given() && ::listen(fd->get(), kBacklog) == 0;
  const auto made = listens ? entry_status(directory, scratch) : std::nullopt;
  if (!made || ::renameat(directory, scratch.c_str(), directory, name.c_str()) != 0) {
    auto error = error_from_errno(errno, what);
    ::unlinkat(directory, scratch.c_str(), 0);
    return fail(std::move(error));
  }
  return SocketFile(directory, name, std::move(*fd), made->st_ino);
}

SocketFile::~SocketFile() {
  if (fd_.valid() && is_there()) ::unlinkat(directory_, name_.c_str(), 0);
}

bool SocketFile::is_there() const {
  const auto now = entry_status(directory_, name_);
  return now && S_ISSOCK(now->st_mode) && now->st_ino == inode_;
}

Result<std::optional<UniqueFd>> SocketFile::accept() const {
  UniqueFd connection(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) return std::optional(std::move(connection));
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
    return fail(error_from_errno(errno, "accept a connection to " + name_));
  return std::optional<UniqueFd>();
}

SocketAcceptor::SocketAcceptor(EventLoop& loop, SocketFile socket, std::function<void(UniqueFd)> take)
    : loop_(loop), socket_(std::move(socket)), take_(std::move(take)) {
  loop_.watch(socket_.fd(), [this] { accept_all(); });
}

SocketAcceptor::~SocketAcceptor() {
  loop_.forget(socket_.fd());
}

void SocketAcceptor::accept_all() {
  auto connection = socket_.accept();
  for (; connection && *connection; connection = socket_.accept()) take_(std::move(**connection));
  if (connection) return;
  spdlog::warn("{}; trying again in a moment", connection.error().message);
  loop_.forget(socket_.fd());
  timer_.set(EventLoop::Clock::now() + kNoDescriptors,
             [this] { loop_.watch(socket_.fd(), [this] { accept_all(); }); });
}

std::optional<SocketIdentity> socket_identity(int directory, const std::string& name) {
  const auto now = entry_status(directory, name);
  if (!now || !S_ISSOCK(now->st_mode)) return std::nullopt;
  return SocketIdentity(
      now->st_ino, std::int64_t{now->st_mtim.tv_sec} * 1'000'000'000 + std::int64_t{now->st_mtim.tv_nsec});
}

Result<UniqueFd> connect_to_socket(int directory, const std::string& name, int type) {
  const auto address = address_of(directory, name);
  if (!address) return fail(address.error());
  auto fd = make_socket(type);
  if (!fd) return fd;
  if (::connect(fd->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(sockaddr_un)) != 0)
    return fail(error_from_errno(errno, "connect to " + name));
  return fd;
}

}  // namespace ferry
