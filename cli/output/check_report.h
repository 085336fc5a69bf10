// SPDX-License-Identifier: Apache-2.0
// The results of a doctor's checks as JSON and as text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/output/text_output.h"
#include "common/check.h"

namespace ferry::cli {

/// The checks of one purpose or one object.
struct CheckReport {
  std::string what;                    ///< "passthrough", "node gpu-1"
  std::vector<Check> checks = {};      ///< in their order, those of a subject together
  std::vector<std::string> gpus = {};  ///< addresses of the GPUs that may be ready; empty: it is about none
  /// Why no GPU of this host counts: "there are no GPUs on this host". Empty: one does, or Kata is checked.
  std::string not_applicable = {};

  std::size_t count_of(Verdict verdict) const;
  /// The GPUs without a failed check of their own; 0 if a check of the host failed.
  std::size_t gpus_ready() const;
  /// True if a GPU is ready, or if no check failed; false if it is not applicable.
  bool ready() const;
};

nlohmann::json to_json(const Check& check);
/// "for", "ready", and the numbers of GPUs: null for a report about none.
nlohmann::json verdict_json(const CheckReport& report);

/// The verdict of each report in a line, followed by its checks. A passed check is one line, and only with
/// `all`. Any other check has its reason and its fix below it. If it has the same finding for several GPUs,
/// it is printed for the first one, with the addresses of the others. `heading` is the line above the checks
/// of a subject, "0000:65:00.0 AD102 [GeForce RTX 4090]"; absent: none.
std::string checks_text(const std::vector<CheckReport>& reports,
                        const std::function<std::string(const Check&)>& heading, bool all,
                        const TextOutput& output);

}  // namespace ferry::cli
