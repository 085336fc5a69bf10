// SPDX-License-Identifier: Apache-2.0
// The socket at which hostd takes requests of `ferry dra` (api/claim_request.h). Belongs to the thread of the
// event loop, which also does the work of a request.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "api/claim_request.h"
#include "api/files.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/rpc/socket_file.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

struct ClaimServerSettings {
  uid_t user = 0;   ///< the only user whose requests are served (SO_PEERCRED)
  gid_t group = 0;  ///< may enter and read the socket's folder; this process is in it, or is root
  /// Relative to the host's root. Its folder gets mode 0750 and the group.
  std::filesystem::path socket = api::kClaimSocket;
  /// Further clients that may ask wait until a connection ends.
  std::size_t most_connections = 16;
  /// A connection without a request ends after this time.
  std::chrono::milliseconds patience = std::chrono::seconds(10);
};

class ClaimServer : Pinned {
 public:
  using Serve = std::function<Result<std::vector<api::PreparedDevice>>(const api::ClaimRequest& request)>;

  /// `loop` and `host` must outlive this object. Nothing listens before keep().
  ClaimServer(EventLoop& loop, HostFs& host, ClaimServerSettings settings, Serve serve);
  ~ClaimServer();

  /// Listens, and makes the folder and the socket anew where another program has removed or replaced them.
  /// Errors: Errc::refused, the folder belongs to another user; EPERM, this process is not in the group;
  /// those of the folder (also ELOOP or ENOTDIR for a link) and the socket. A later call tries again.
  Result<> keep();

 private:
  struct Connection {
    UniqueFd fd;
    EventLoop::Timer end;
  };

  Result<> listen(UniqueFd folder);
  void stop_listening();
  void watch_socket();
  void ignore_socket();
  /// Takes one waiting connection, so that a client which asks without end keeps no other work of the loop
  /// from its turn. A request that is there already is served at once: requests are served in the order in
  /// which their clients have connected.
  void accept_one();
  /// Answers a client that may not ask at once, and keeps no place for it.
  void turn_away(const UniqueFd& client, Error why);
  void begin(UniqueFd fd);
  /// Serves the requests that are there, in the order in which their clients have connected. An unprepare
  /// must not overtake the prepare of its claim.
  void read_all();
  void read(int fd);
  Result<std::vector<api::PreparedDevice>> result_of(const std::string& text);
  static void answer(int fd, const Result<std::vector<api::PreparedDevice>>& result);
  void end(int fd);
  void expire(int fd);
  /// Why the client may not ask; absent: it may.
  std::optional<Error> refuse_client(int fd) const;
  void warn_once(const std::string& message);

  EventLoop& loop_;
  HostFs& host_;
  const ClaimServerSettings settings_;
  const Serve serve_;
  UniqueFd folder_;  // outlives the socket, which is removed through it
  std::optional<SocketFile> socket_;
  bool accepts_ = false;  // the loop watches the socket
  EventLoop::Timer retry_;
  std::map<int, Connection> connections_;
  std::set<std::string> warned_;
};

}  // namespace ferry::host
