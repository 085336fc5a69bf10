// SPDX-License-Identifier: Apache-2.0
#include "cli/output/check_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry::cli {

using nlohmann::json;

json to_json(const Check& check) {
  return {{"id", check.id},
          {"subject", check.subject},
          {"verdict", text(check.verdict)},
          {"found", check.found},
          {"why", check.why},
          {"fix", check.fix.empty() ? json(nullptr) : json(check.fix)}};
}

std::string lines_of(const Check& check, std::size_t id_width) {
  std::string out =
      fmt::format("  {:<7}  {:<{}}  {}\n", text(check.verdict), check.id, id_width, check.found);
  if (check.verdict == Verdict::pass) return out;
  constexpr const char* kIndent = "           ";  // below the id
  out += fmt::format("{}why: {}\n", kIndent, check.why);
  if (!check.fix.empty()) out += fmt::format("{}fix: {}\n", kIndent, check.fix);
  return out;
}

}  // namespace ferry::cli
