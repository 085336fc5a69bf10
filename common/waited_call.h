// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "common/client_call.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// Asks once and waits, without a thread of its own. `answered` is called when the other side has answered or
/// the connection broke, whatever it says (ClientCall::status). Leaves no thread and no connection behind.
/// The question's own deadline is not used. Errors: Errc::unreachable, nothing came by the deadline.
Result<> call_and_wait(UniqueFd connection, ClientCall::Question question, std::chrono::milliseconds deadline,
                       const std::function<void(const ClientCall&)>& answered);

}  // namespace ferry
