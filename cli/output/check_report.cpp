// SPDX-License-Identifier: Apache-2.0
#include "cli/output/check_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/json.h"
#include "common/text/text.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kVerdict = 7;  // columns of "unknown"
constexpr std::size_t kIndent = 2;
constexpr std::size_t kBelow = kIndent + kVerdict + 2;  // where the reason and the fix begin
constexpr std::size_t kLeast = 24;                      // columns of a wrapped text

Tint tint_of(Verdict verdict) {
  if (verdict == Verdict::pass) return Tint::good;
  return verdict == Verdict::fail ? Tint::bad : Tint::attention;
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

std::string verdict_line(std::string_view what, const std::vector<CheckGroup>& groups,
                         const TextOutput& output) {
  const auto warnings = count_of(groups, Verdict::warn);
  const auto failed = count_of(groups, Verdict::fail);
  const auto unknown = count_of(groups, Verdict::unknown);
  const bool remarks = warnings + unknown > 0;
  const Tint tint = failed > 0 ? Tint::bad : remarks ? Tint::attention : Tint::good;
  const char* const word = failed > 0 ? "not ready" : remarks ? "ready, with remarks" : "ready";
  return fmt::format("{}: {} ({} passed, {}, {} failed, {} unknown)\n", tinted(output, Tint::plain, what),
                     tinted(output, tint, word), count_of(groups, Verdict::pass),
                     counted(warnings, "warning"), failed, unknown);
}

}  // namespace

std::size_t count_of(const std::vector<CheckGroup>& groups, Verdict verdict) {
  std::ptrdiff_t out = 0;
  for (const CheckGroup& group : groups) out += std::ranges::count(group.checks, verdict, &Check::verdict);
  return static_cast<std::size_t>(out);
}

json to_json(const Check& check) {
  return {{"id", check.id},       {"subject", check.subject}, {"verdict", text(check.verdict)},
          {"found", check.found}, {"why", check.why},         {"fix", or_null(check.fix)}};
}

std::string checks_text(std::string_view what, const std::vector<CheckGroup>& groups, bool all,
                        const TextOutput& output) {
  std::string out = verdict_line(what, groups, output);
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
  if (!all && count_of(groups, Verdict::pass) > 0) out += "`-v` also prints the checks that passed\n";
  return out;
}

}  // namespace ferry::cli
