// SPDX-License-Identifier: Apache-2.0
// A client of hostd's socket for ResourceClaims (api/claim_request.h) that waits for the answer in its own
// thread.
#pragma once

#include <chrono>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"

namespace ferry::test {

/// Connects to hostd and sends the request as one packet. The connection may be closed before the answer:
/// hostd finishes the work all the same. Errors: those of the folder and the socket.
Result<UniqueFd> send_to_hostd(const HostFs& host, const std::string& request);

/// Sends the request and returns the answer's text. Errors as send_to_hostd(); Errc::unreachable: hostd has
/// closed the connection without an answer, or none came within `limit`.
Result<std::string> ask_hostd(const HostFs& host, const std::string& request,
                              std::chrono::milliseconds limit);

}  // namespace ferry::test
