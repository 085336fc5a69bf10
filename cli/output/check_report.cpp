// SPDX-License-Identifier: Apache-2.0
#include "cli/output/check_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/text.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kVerdict = 7;  // columns of "unknown"
constexpr std::size_t kIndent = 2;
constexpr std::size_t kBelow = kIndent + kVerdict + 2;  // where the reason and the fix begin
constexpr std::size_t kLeast = 24;                      // columns of a wrapped text

Tint tint_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return Tint::good;
    case Verdict::warn:
    case Verdict::unknown:
      return Tint::attention;
    case Verdict::fail:
      break;
  }
  return Tint::bad;
}

/// Adds `text` behind `head`, which takes `start` columns. Further lines begin below the text.
void add(std::string& out, const std::string& head, std::size_t start, const std::string& text,
         const TextOutput& output) {
  const std::vector<std::string> lines = wrapped(text, width_behind(output, start, kLeast));
  out += head;
  for (std::size_t i = 0; i < lines.size(); ++i)
    out += (i == 0 ? "" : std::string(start, ' ')) + tinted(output, Tint::plain, lines[i]) + "\n";
}

void add(std::string& out, const Check& check, std::size_t id_width, const TextOutput& output) {
  const std::string verdict(text(check.verdict));
  const std::string head = std::string(kIndent, ' ') + tinted(output, tint_of(check.verdict), verdict) +
                           std::string(kVerdict - verdict.size() + 2, ' ') + padded(check.id, id_width + 2);
  add(out, head, kBelow + id_width + 2, check.found, output);
  if (check.verdict == Verdict::pass) return;
  constexpr std::size_t kWord = 5;  // "why: "
  const std::string below(kBelow, ' ');
  add(out, below + "why: ", kBelow + kWord, check.why, output);
  if (!check.fix.empty()) add(out, below + "fix: ", kBelow + kWord, check.fix, output);
}

bool is_shown(const Check& check, bool all) {
  return all || check.verdict != Verdict::pass;
}

std::string verdict_line(std::string_view what, const CheckCounts& counts, const TextOutput& output) {
  const bool remarks = counts.warnings + counts.unknown > 0;
  const Tint tint = counts.failed > 0 ? Tint::bad : remarks ? Tint::attention : Tint::good;
  const char* const word = counts.failed > 0 ? "not ready" : remarks ? "ready, with remarks" : "ready";
  return fmt::format("{}: {} ({} passed, {}, {} failed, {} unknown)\n", tinted(output, Tint::plain, what),
                     tinted(output, tint, word), counts.passed, counted(counts.warnings, "warning"),
                     counts.failed, counts.unknown);
}

}  // namespace

CheckCounts counts_of(const std::vector<CheckGroup>& groups) {
  CheckCounts out;
  for (const CheckGroup& group : groups) {
    for (const Check& check : group.checks) {
      switch (check.verdict) {
        case Verdict::pass:
          ++out.passed;
          break;
        case Verdict::warn:
          ++out.warnings;
          break;
        case Verdict::fail:
          ++out.failed;
          break;
        case Verdict::unknown:
          ++out.unknown;
          break;
      }
    }
  }
  return out;
}

json to_json(const Check& check) {
  return {{"id", check.id},
          {"subject", check.subject},
          {"verdict", text(check.verdict)},
          {"found", check.found},
          {"why", check.why},
          {"fix", check.fix.empty() ? json(nullptr) : json(check.fix)}};
}

std::string checks_text(std::string_view what, const std::vector<CheckGroup>& groups, bool all,
                        const TextOutput& output) {
  const CheckCounts counts = counts_of(groups);
  std::string out = verdict_line(what, counts, output);
  std::size_t id_width = 0;
  for (const CheckGroup& group : groups)
    for (const Check& check : group.checks)
      if (is_shown(check, all)) id_width = std::max(id_width, check.id.size());
  for (const CheckGroup& group : groups) {
    if (std::ranges::none_of(group.checks, [all](const Check& check) { return is_shown(check, all); }))
      continue;
    if (!group.heading.empty()) out += tinted(output, Tint::heading, group.heading) + "\n";
    for (const Check& check : group.checks)
      if (is_shown(check, all)) add(out, check, id_width, output);
  }
  if (!all && counts.passed > 0) out += "`-v` also prints the checks that passed\n";
  return out;
}

}  // namespace ferry::cli
