// SPDX-License-Identifier: Apache-2.0
// A question about a host that matters before VMs get its GPUs, with its answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/result.h"
#include "common/text/words.h"

namespace ferry {

enum class Verdict {
  pass,
  warn,     ///< works, with a risk or a limit worth knowing
  fail,     ///< a VM can get no device, or not this one
  unknown,  ///< the host does not show it, or it cannot be read; never a guess
};
/// "pass", "warn", "fail", "unknown"
inline std::string_view text(Verdict verdict) {
  constexpr Words<Verdict, 4> kWords = {{{"pass", Verdict::pass},
                                         {"warn", Verdict::warn},
                                         {"fail", Verdict::fail},
                                         {"unknown", Verdict::unknown}}};
  return word_for(kWords, verdict, "unknown");
}

/// Check::subject of checks that are not about one device.
inline constexpr const char* kHostSubject = "host";

struct Check {
  std::string id;       ///< stable, in kebab-case: "iommu-active"
  std::string subject;  ///< kHostSubject, a PCI address, or the name of another thing
  std::string why;      ///< why it matters
  Verdict verdict = Verdict::unknown;
  std::string found = {};  ///< state of the host, with the absolute path it was read from
  std::string fix = {};    ///< action for the user; empty on a pass, or if there is none

  /// The same question with an answer.
  Check passed(std::string what) && { return std::move(*this).answered(Verdict::pass, std::move(what), {}); }
  Check warned(std::string what, std::string cure) && {
    return std::move(*this).answered(Verdict::warn, std::move(what), std::move(cure));
  }
  Check failed(std::string what, std::string cure) && {
    return std::move(*this).answered(Verdict::fail, std::move(what), std::move(cure));
  }
  Check unknown(std::string reason, std::string cure = {}) && {
    return std::move(*this).answered(Verdict::unknown, std::move(reason), std::move(cure));
  }

  /// The answer after a failed read; users other than root may not read everything.
  Check unreadable(const Error& error) && {
    return std::move(*this).unknown(error.message, error.hint.empty() ? "run as root" : error.hint);
  }

  Check answered(Verdict answer, std::string what, std::string cure) && {
    verdict = answer;
    found = std::move(what);
    fix = std::move(cure);
    return std::move(*this);
  }
};

}  // namespace ferry
