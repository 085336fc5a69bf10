// SPDX-License-Identifier: Apache-2.0
// One question about a host that a person would ask before giving GPUs away, with its answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/result.h"

namespace ferry {

enum class Verdict {
  pass,
  warn,     ///< works, but with a risk or a limit that somebody should know
  fail,     ///< nothing, or not this device, can be given to a VM like this
  unknown,  ///< the host does not say, or what it says cannot be read; never a guess
};
/// "pass", "warn", "fail", "unknown"
std::string_view text(Verdict verdict);

/// Check::subject of what is not about one device.
inline constexpr const char* kHostSubject = "host";

struct Check {
  std::string id;       ///< stable, in kebab-case: "iommu-active"
  std::string subject;  ///< kHostSubject, a PCI address, or the name of another thing
  std::string why;      ///< why it matters
  Verdict verdict = Verdict::unknown;
  std::string found = {};  ///< what the host shows, with the absolute path it was read from
  std::string fix = {};    ///< what to do; empty on a pass, and where nobody can do anything

  /// This question, answered.
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

  /// What it asks about could not be read, as another user than root may not.
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
