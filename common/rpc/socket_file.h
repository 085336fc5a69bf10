// SPDX-License-Identifier: Apache-2.0
// Unix sockets in a directory that is held open. Paths go through /proc/self/fd, so that a long path or a
// moved directory does no harm.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <utility>

#include "common/event_loop.h"
#include "common/owned_timer.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// The type of a socket, and who may connect to it.
struct SocketKind {
  int type = SOCK_STREAM;           ///< or SOCK_SEQPACKET
  std::optional<gid_t> group = {};  ///< may connect too; this process is in it, or is root
};

/// A listening socket and its file, which is removed with it if the name still leads to this socket.
class SocketFile {
 public:
  /// Decides about another socket of that name. A starting instance replaces it, since its owner has ended or
  /// is about to. A running instance yields to an owner that serves it.
  enum class Rival { replace, yield };

  /// Binds and listens with mode 0600, or 0660 with a group. A socket that no process serves is always
  /// replaced. Errors name the file: EEXIST, the name is no socket; EADDRINUSE, a rival serves it and is
  /// yielded to; EPERM, the group is none of this process's.
  static Result<SocketFile> listen(int directory, const std::string& name, Rival rival,
                                   const SocketKind& kind = {});

  SocketFile(SocketFile&& other) noexcept = default;
  SocketFile& operator=(SocketFile&&) = delete;
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile();

  int fd() const { return fd_.get(); }
  /// True: the name still leads to this socket.
  bool is_there() const;
  /// A waiting connection, non-blocking; absent: none. Errors: descriptors or memory are short; the
  /// connection goes on waiting, and the socket stays readable.
  Result<std::optional<UniqueFd>> accept() const;

 private:
  SocketFile(int directory, std::string name, UniqueFd fd, ino_t inode)
      : directory_(directory), name_(std::move(name)), fd_(std::move(fd)), inode_(inode) {}

  int directory_;
  std::string name_;
  UniqueFd fd_;
  ino_t inode_;
};

/// Accepts the connections of a socket in the loop. While descriptors are short, it pauses: the socket would
/// stay readable and keep the loop busy. Belongs to the loop's thread.
class SocketAcceptor : Pinned {
 public:
  /// `take` gets each connection, non-blocking. The loop must outlive this object.
  SocketAcceptor(EventLoop& loop, SocketFile socket, std::function<void(UniqueFd)> take);
  ~SocketAcceptor();

  /// True: the name still leads to this socket.
  bool is_there() const { return socket_.is_there(); }

 private:
  void accept_all();

  EventLoop& loop_;
  const SocketFile socket_;
  const std::function<void(UniqueFd)> take_;
  OwnedTimer timer_{loop_};  // until it fires, no connection is accepted
};

/// Connects to another process's socket. ENOENT and ECONNREFUSED: no process listens.
Result<UniqueFd> connect_to_socket(int directory, const std::string& name, int type = SOCK_STREAM);

/// Tells a socket's file from a later one of its name: its inode, and its modification time in ns, since
/// inodes are reused.
using SocketIdentity = std::pair<ino_t, std::int64_t>;

/// Absent: there is no socket of that name.
std::optional<SocketIdentity> socket_identity(int directory, const std::string& name);

std::filesystem::path path_of_directory(int directory);

}  // namespace ferry
