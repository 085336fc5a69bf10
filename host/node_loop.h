// SPDX-License-Identifier: Apache-2.0
// `ferry hostd` as one call: rounds of a NodeKeeper whenever something has happened that may matter.
#pragma once

#include <stop_token>

#include "common/exit_status.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "host/node_keeper.h"

namespace ferry {

struct NodeLoopOptions {
  KeeperSettings files;
  bool once = false;  ///< until the node is as wanted, or is known not to become so
};

/// Runs until `stop` is requested; a round that has begun is finished. The host is left as it is then.
///
/// Told of by inotify: wanted.json, the policy file that it names, offered.json; by the kernel: devices that
/// come, go and change drivers, and the ends of processes that hold what is refused. Nothing is polled but by
/// Round::again. Of several at a time one works, the others wait until it ends.
///
/// Gives the exit status of the last round with `once`, else ExitStatus::done. Errors: Errc::refused with
/// `once` where another one runs; what the operating system said when nothing can be watched.
Result<ExitStatus> run_node_loop(HostFs& host, UseProbe& uses, NodeKeeper::HostFor node_host,
                                 const NodeLoopOptions& options, const std::stop_token& stop);

}  // namespace ferry
