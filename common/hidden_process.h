// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// From here on nobody else reads this process by /proc, its memory, its environment, the files that it sees,
/// but who may trace every process: another container of the same user in the host's PID namespace could
/// else read the token that is mounted into this one alone. What it starts is not hidden. It leaves no core.
void hide_process();

}  // namespace ferry
