// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// Gives back the memory that nobody needs who waits: pages of the program and its libraries, which come from
/// disk again when they are touched, and what the heap has free. A start touches ten times what serving does.
/// Any thread, at any time; costs a fraction of a millisecond, and the next use of a page about a
/// microsecond.
void drop_startup_memory();

}  // namespace ferry
