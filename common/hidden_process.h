// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// Hides this process's memory, environment and files in /proc from all but tracers of every process. Else
/// another container of the same user in the host's PID namespace could read the token that is mounted only
/// here. Started programs are not hidden. The process leaves no core dump.
void hide_process();

}  // namespace ferry
