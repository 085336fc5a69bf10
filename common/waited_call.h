// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "common/client_call.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// Makes one call and waits, without a thread of its own. `answered` runs once the other side has answered or
/// the connection broke, with any ClientCall::status. Leaves no thread and no connection behind. The
/// question's own deadline is ignored. Errors: Errc::unreachable, no answer by the deadline.
Result<> call_and_wait(UniqueFd connection, ClientCall::Question question, std::chrono::milliseconds deadline,
                       const std::function<void(const ClientCall&)>& answered);

}  // namespace ferry
