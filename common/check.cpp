// SPDX-License-Identifier: Apache-2.0
#include "common/check.h"

#include "common/text/words.h"

namespace ferry {

std::string_view text(Verdict verdict) {
  constexpr Words<Verdict, 4> kWords = {{{"pass", Verdict::pass},
                                         {"warn", Verdict::warn},
                                         {"fail", Verdict::fail},
                                         {"unknown", Verdict::unknown}}};
  return word_for(kWords, verdict, "unknown");
}

}  // namespace ferry
