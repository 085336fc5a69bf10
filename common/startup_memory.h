// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// Frees memory that a waiting process does not need: pages of the program and its libraries, which are read
/// from disk again when touched, and free heap. A start touches ten times as much as serving does. Any thread
/// may call it at any time; it costs a fraction of a millisecond, and the next use of a page about a
/// microsecond.
void drop_startup_memory();

}  // namespace ferry
