// SPDX-License-Identifier: Apache-2.0
// Unix sockets in a directory that is held open. Reached through /proc/self/fd, so that neither a long path
// nor a directory that is moved matters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// A listening socket and its file, which goes with it as long as it is still ours.
class SocketFile {
 public:
  /// What to do about another socket of that name: a starting instance takes it over from one that ended, or
  /// is about to; a running one yields it to whoever serves it.
  enum class Rival { replace, yield };

  /// Binds and listens; mode 0600. A socket that nobody serves is always replaced. Errors name the file: in
  /// use by something that is no socket is EEXIST, by a rival that is yielded to EADDRINUSE.
  static Result<SocketFile> listen(int directory, const std::string& name, Rival rival);

  SocketFile(SocketFile&& other) noexcept = default;
  SocketFile& operator=(SocketFile&&) = delete;
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile();

  int fd() const { return fd_.get(); }
  /// Whether the name still leads to this socket.
  bool is_there() const;
  /// A connection that waits, non-blocking; absent when there is none. Errors: it cannot be had for want of
  /// descriptors or memory, and goes on waiting, so that the socket stays readable.
  Result<std::optional<UniqueFd>> accept() const;

 private:
  SocketFile(int directory, std::string name, UniqueFd fd, ino_t inode)
      : directory_(directory), name_(std::move(name)), fd_(std::move(fd)), inode_(inode) {}

  int directory_;
  std::string name_;
  UniqueFd fd_;
  ino_t inode_;
};

/// A connection to a socket of another process. ENOENT and ECONNREFUSED mean that nobody listens.
Result<UniqueFd> connect_to_socket(int directory, const std::string& name);

/// Tells a socket's file from another one that takes its name later: its inode, and when it was made (its
/// modification time, ns), since inodes are used again.
using SocketIdentity = std::pair<ino_t, std::int64_t>;

/// Absent when there is no socket of that name.
std::optional<SocketIdentity> socket_identity(int directory, const std::string& name);

/// The path under which an open directory is found.
std::filesystem::path path_of_directory(int directory);

}  // namespace ferry
