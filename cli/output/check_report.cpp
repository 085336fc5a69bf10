// SPDX-License-Identifier: Apache-2.0
#include "cli/output/check_report.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
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

/// Adds `text` behind `head`, which takes `start` columns. Further lines begin below the text.
void add(std::string& out, const std::string& head, std::size_t start, const std::string& text,
         const TextOutput& output) {
  const std::vector<std::string> lines = wrapped(text, width_behind(output, start, kLeast));
  out += head;
  for (std::size_t i = 0; i < lines.size(); ++i)
    out += (i == 0 ? "" : std::string(start, ' ')) + tinted(output, Tint::plain, lines[i]) + "\n";
}

/// `others`: the addresses of further GPUs with the same finding.
void add(std::string& out, const Check& check, const std::vector<std::string>& others, std::size_t id_width,
         const TextOutput& output) {
  const std::string verdict(text(check.verdict));
  const Tint tint = check.verdict == Verdict::pass   ? Tint::good
                    : check.verdict == Verdict::fail ? Tint::bad
                                                     : Tint::attention;
  const std::string head = std::string(kIndent, ' ') + tinted(output, tint, verdict) +
                           std::string(kVerdict - verdict.size() + 2, ' ') + padded(check.id, id_width + 2);
  add(out, head, kBelow + id_width + 2, check.found, output);
  if (check.verdict == Verdict::pass) return;
  constexpr std::size_t kWord = 5;  // "why: "
  const std::string below(kBelow, ' ');
  add(out, below + "why: ", kBelow + kWord, check.why, output);
  if (!check.fix.empty()) add(out, below + "fix: ", kBelow + kWord, check.fix, output);
  if (!others.empty())
    add(out, below + "also: ", kBelow + kWord + 1, fmt::format("{}", fmt::join(others, ", ")), output);
}

/// The same text for GPUs with the same finding, whose own addresses it may name.
std::string finding(const Check& check) {
  std::string out =
      fmt::format("{}\n{}\n{}\n{}\n{}", check.id, text(check.verdict), check.found, check.why, check.fix);
  for (auto at = out.find(check.subject); at != std::string::npos; at = out.find(check.subject, at))
    out.replace(at, check.subject.size(), "GPU");
  return out;
}

void add_verdict(std::string& out, const CheckReport& report, const TextOutput& output) {
  const auto failed = report.count_of(Verdict::fail);
  const auto unknown = report.count_of(Verdict::unknown);
  const auto warnings = report.count_of(Verdict::warn);
  std::string word = "ready";
  Tint tint = Tint::good;
  if (!report.not_applicable.empty()) {
    word = "not applicable: " + report.not_applicable;
    tint = Tint::attention;
  } else if (!report.ready()) {
    word = "not ready";
    tint = Tint::bad;
  } else if (failed > 0) {
    word = fmt::format("{} of {} ready", report.gpus_ready(), counted(report.gpus.size(), "GPU"));
    tint = Tint::attention;
  } else if (warnings + unknown > 0) {
    word = "ready, with remarks";
    tint = Tint::attention;
  }
  out += fmt::format("{}: {} ({} passed, {}, {} failed, {} unknown)\n",
                     tinted(output, Tint::plain, report.what), tinted(output, tint, word),
                     report.count_of(Verdict::pass), counted(warnings, "warning"), failed, unknown);
}

void add(std::string& out, const CheckReport& report, const std::function<std::string(const Check&)>& heading,
         bool all, const TextOutput& output) {
  add_verdict(out, report, output);
  std::size_t id_width = 0;
  std::map<std::string, std::vector<std::string>> subjects;  // by finding
  for (const Check& check : report.checks) {
    if (!all && check.verdict == Verdict::pass) continue;
    id_width = std::max(id_width, check.id.size());
    const bool of_a_gpu = std::ranges::find(report.gpus, check.subject) != report.gpus.end();
    if (check.verdict != Verdict::pass && of_a_gpu) subjects[finding(check)].push_back(check.subject);
  }
  std::string subject;
  for (const Check& check : report.checks) {
    if (!all && check.verdict == Verdict::pass) continue;
    std::vector<std::string> others;
    if (const auto same = subjects.find(finding(check)); same != subjects.end()) {
      if (same->second.front() != check.subject) continue;
      others.assign(same->second.begin() + 1, same->second.end());
    }
    if (heading && check.subject != subject) out += tinted(output, Tint::heading, heading(check)) + "\n";
    subject = check.subject;
    add(out, check, others, id_width, output);
  }
}

}  // namespace

std::size_t CheckReport::count_of(Verdict verdict) const {
  return static_cast<std::size_t>(std::ranges::count(checks, verdict, &Check::verdict));
}

std::size_t CheckReport::gpus_ready() const {
  const auto fails = [this](std::string_view subject) {
    return std::ranges::any_of(checks, [subject](const Check& check) {
      return check.verdict == Verdict::fail && check.subject == subject;
    });
  };
  if (fails(kHostSubject)) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(gpus, [&](const auto& gpu) { return !fails(gpu); }));
}

bool CheckReport::ready() const {
  return not_applicable.empty() && (count_of(Verdict::fail) == 0 || gpus_ready() > 0);
}

json to_json(const Check& check) {
  return {{"id", check.id},       {"subject", check.subject}, {"verdict", text(check.verdict)},
          {"found", check.found}, {"why", check.why},         {"fix", or_null(check.fix)}};
}

json verdict_json(const CheckReport& report) {
  json out = {{"for", report.what}, {"ready", report.ready()}, {"gpus", nullptr}, {"gpus_ready", nullptr}};
  if (report.gpus.empty() && report.not_applicable.empty()) return out;
  out["gpus"] = report.gpus.size();
  out["gpus_ready"] = report.gpus_ready();
  return out;
}

std::string checks_text(const std::vector<CheckReport>& reports,
                        const std::function<std::string(const Check&)>& heading, bool all,
                        const TextOutput& output) {
  std::string out;
  for (const CheckReport& report : reports) add(out, report, heading, all, output);
  const auto passed = [](const CheckReport& report) { return report.count_of(Verdict::pass) > 0; };
  if (!all && std::ranges::any_of(reports, passed)) out += "`-v` also prints the checks that passed\n";
  return out;
}

}  // namespace ferry::cli
