// SPDX-License-Identifier: Apache-2.0
#include "common/hidden_process.h"

#include <sys/prctl.h>

namespace ferry {

void hide_process() {
  static_cast<void>(::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));  // fails for no such value
}

}  // namespace ferry
