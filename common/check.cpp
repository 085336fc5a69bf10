// SPDX-License-Identifier: Apache-2.0
#include "common/check.h"

namespace ferry {

std::string_view text(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "pass";
    case Verdict::warn:
      return "warn";
    case Verdict::fail:
      return "fail";
    case Verdict::unknown:
      return "unknown";
  }
  return "unknown";
}

}  // namespace ferry
