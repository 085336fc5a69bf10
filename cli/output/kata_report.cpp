// SPDX-License-Identifier: Apache-2.0
#include "cli/output/kata_report.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "cli/output/table.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"

namespace ferry::cli {
namespace {

constexpr std::chrono::seconds kTellAfter{2};

double mib(std::uint64_t bytes) {
  constexpr double kMib = 1024.0 * 1024.0;
  return static_cast<double>(bytes) / kMib;
}

}  // namespace

CheckProgressLines::CheckProgressLines(std::string name, std::function<Clock::time_point()> now)
    : name_(std::move(name)), now_(std::move(now)), last_(now_()) {}

std::optional<std::string> CheckProgressLines::line(const kata::CheckProgress& progress) {
  const auto now = now_();
  if (now - last_ < kTellAfter) return std::nullopt;
  last_ = now;
  return fmt::format("{}: {:.0f} of {:.0f} MiB\n", name_, mib(progress.done), mib(progress.total));
}

namespace {

using nlohmann::json;

json to_json(const kata::FileChange& change) {
  return {{"path", change.path.string()},
          {"action", change.after ? (change.before ? "change" : "create") : "remove"},
          {"diff", unified_diff(change.path.string(), change.before, change.after)}};
}

json to_json(const kata::KataClassSetup& setup) {
  json out = {{"name", setup.name},
              {"handlers", setup.handlers},
              {"shim", setup.shim.string()},
              {"configuration", setup.configuration.string()},
              {"artifact", nullptr}};
  if (setup.artifact)
    out["artifact"] = {{"url", setup.artifact->url},
                       {"digest", setup.artifact->digest},
                       {"folder", setup.artifact->folder.string()}};
  out["programs"] = json::array();
  for (const auto& program : setup.programs) out["programs"].push_back(program.string());
  if (setup.guest_memory_mib) out["guest_memory_mib"] = *setup.guest_memory_mib;
  return out;
}

json to_json(const kata::FoundRuntime& runtime) {
  json out = {{"name", runtime.place.name},
              {"configuration", runtime.place.configuration.string()},
              {"socket", runtime.place.socket.string()}};
  if (runtime.place.kind != kata::RuntimeKind::crio) {
    out["version"] = runtime.release.text();
    out["version_by"] = runtime.release_by;
  }
  out["program"] = runtime.program ? json(runtime.program->string()) : json(nullptr);
  return out;
}

std::vector<kata::FileChange> all_files(const kata::KataChange& report) {
  std::vector<kata::FileChange> out = report.setup.files;
  out.insert(out.end(), report.plan.changes.begin(), report.plan.changes.end());
  return out;
}

/// The reason why a file is written.
std::string reason_of(const kata::KataChange& report, const kata::FileChange& change) {
  const bool is_katas =
      std::ranges::find(report.setup.files, change.path, &kata::FileChange::path) != report.setup.files.end();
  if (is_katas && !change.after) return "its class is none any more";
  if (is_katas && change.path.filename() == kata::kKataDropIn)
    return "what GPUs need of Kata, and what the class says";
  if (is_katas) return "a copy of the artifact's, which has a folder of drop-ins of its own";
  if (report.setup.handlers.empty()) return "as it was before the first runtime of Ferry";
  return "of the places that would do the first in which the runtimes count and nothing else changes";
}

std::vector<std::string> all_notes(const kata::KataChange& report) {
  std::vector<std::string> out = report.runtime.notes;
  out.insert(out.end(), report.setup.notes.begin(), report.setup.notes.end());
  out.insert(out.end(), report.plan.notes.begin(), report.plan.notes.end());
  return out;
}

std::string ending(const kata::KataChange& report) {
  if (report.refusal) return "would be refused: " + error_lines(*report.refusal, "");
  if (!report.outcome) {
    if (report.plan.changes.empty()) return "the container runtime's files need no change\n";
    return report.control.empty()
               ? "nothing restarts the container runtime, which reads them at its next start\n"
               : "then: " + report.control + "\n";
  }
  const kata::RuntimeOutcome& outcome = *report.outcome;
  if (outcome.unverified) return fmt::format("{}: {}\n", report.runtime.text(), *outcome.unverified);
  if (!outcome.written && !outcome.acted && report.setup.files.empty())
    return "nothing to do: no file has to change\n";
  return outcome.acted ? fmt::format("{} has read its files; its handlers match the class file\n",
                                     report.runtime.text())
                       : fmt::format("{}: its handlers match the class file\n", report.runtime.text());
}

std::string text_of(const Session& session, const kata::KataChange& report) {
  constexpr std::size_t kShortDigest = 19;  // "sha256:0123456789ab"
  std::string out =
      fmt::format("{}, {}\n", report.runtime.text(), report.runtime.place.configuration.string());
  Table table({"HANDLER", "CLASS", "ARTIFACT", "SHIM"});
  for (const kata::KataClassSetup& setup : report.setup.classes) {
    std::string artifact = "to be fetched";
    if (setup.artifact)
      artifact = setup.artifact->digest.empty() ? setup.artifact->url
                                                : setup.artifact->digest.substr(0, kShortDigest);
    for (const std::string& handler : setup.handlers)
      table.add({handler, setup.name, artifact, setup.shim.string()});
  }
  if (!report.setup.classes.empty()) out += table.text();

  // "kata-gpu runs as root on the host: /opt/kata/bin/containerd-shim-kata-v2, /opt/kata/bin/qemu"
  for (const kata::KataClassSetup& setup : report.setup.classes) {
    out += fmt::format("{} runs as root on the host: {}", setup.name, setup.shim.string());
    for (const auto& program : setup.programs) out += ", " + visible_line(program.string());
    out += setup.artifact ? "\n" : ", and what its artifact names\n";
  }

  for (const kata::RefusedClass& refused : report.setup.refused)
    out += fmt::format("{}: refused: {}\n", refused.name, refused.why.message);
  for (const std::string& name : report.plan.leaving) out += fmt::format("leaves: {}\n", name);
  if (!report.outcome)
    for (const kata::FileChange& change : all_files(report))
      out += unified_diff(change.path.string(), change.before, change.after);
  if (session.explain)
    for (const kata::FileChange& change : all_files(report))
      out += fmt::format("{}  because: {}\n", change.path.string(), reason_of(report, change));
  for (const std::string& note : all_notes(report)) out += fmt::format("note: {}\n", note);
  return out + ending(report);
}

}  // namespace

VerbOutput show(const Session& session, const kata::KataChange& report) {
  VerbOutput out;
  out.document = {
      {"runtime", to_json(report.runtime)}, {"classes", json::array()},          {"files", json::array()},
      {"leaving", report.plan.leaving},     {"gone_classes", report.setup.gone}, {"refused", json::array()},
      {"notes", all_notes(report)},         {"dry_run", session.dry_run}};
  for (const kata::KataClassSetup& setup : report.setup.classes)
    out.document["classes"].push_back(to_json(setup));
  for (const kata::FileChange& change : all_files(report)) out.document["files"].push_back(to_json(change));
  for (const kata::RefusedClass& refused : report.setup.refused) {
    out.document["refused"].push_back({{"class", refused.name}, {"reason", refused.why.message}});
    out.status = ExitStatus::refused;
  }
  out.document["refusal"] = report.refusal ? to_json(*report.refusal) : json(nullptr);
  if (report.refusal) out.status = ExitStatus::refused;
  if (!report.left.empty()) {
    out.document["left"] = report.left;
    if (kata::is_left_undone(report)) out.status = ExitStatus::refused;
  }
  out.document["control"] = or_null(report.control);
  if (report.outcome) {
    out.document["written"] = report.outcome->written;
    out.document["restarted"] = report.outcome->acted;
    out.document["proven"] = !report.outcome->unverified.has_value();
    if (report.outcome->unverified) out.document["unproven"] = *report.outcome->unverified;
  }

  out.text = text_of(session, report);
  return out;
}

VerbOutput show_status(const kata::FoundRuntime& runtime,
                       const std::vector<kata::ConfiguredRuntime>& configured,
                       const Result<kata::RuntimeState>& state,
                       const Result<std::vector<kata::RunningPod>>& pods,
                       const kata::ConfidentialMode& mode) {
  VerbOutput out;
  out.document = {{"runtime", to_json(runtime)}, {"running", state.has_value()}, {"handlers", json::array()}};
  out.document["confidential_mode"] = {{"state", text(mode.state)}, {"asked_for", or_null(mode.asked_for)}};
  out.text = fmt::format("{}, {}\n", runtime.text(), runtime.place.configuration.string());
  out.text += fmt::format("confidential computing of the GPUs: {}\n", mode.text());
  if (!state) {
    out.document["problem"] = state.error().message;
    out.text += fmt::format("it cannot be asked: {}\n", state.error().message);
  }
  Table table({"HANDLER", "KNOWN", "PODS", "FILE"});
  for (const kata::ConfiguredRuntime& runtime_here : configured) {
    const kata::RuntimeHandler& handler = runtime_here;
    const bool reports_handlers = state && state->reports_handlers();
    std::vector<kata::RunningPod> with_it;
    if (pods) {
      std::ranges::copy_if(*pods, std::back_inserter(with_it),
                           [&](const kata::RunningPod& pod) { return pod.handler == handler.name; });
    }
    json entry = {{"name", handler.name},
                  {"file", runtime_here.file.string()},
                  {"shim", handler.shim.string()},
                  {"configuration", handler.configuration.string()},
                  {"unmarked", runtime_here.unmarked},
                  {"known", reports_handlers ? json(state->knows(handler)) : json(nullptr)},
                  {"pods", nullptr}};
    if (pods) {
      entry["pods"] = json::array();
      for (const kata::RunningPod& pod : with_it)
        entry["pods"].push_back({{"namespace", pod.name_space}, {"name", pod.name}});
    }
    out.document["handlers"].push_back(std::move(entry));
    table.add({handler.name, reports_handlers ? (state->knows(handler) ? "yes" : "no") : "?",
               pods ? fmt::format("{}", with_it.size()) : "?",
               runtime_here.file.string() + (runtime_here.unmarked ? " (unmarked)" : "")});
  }
  out.text += configured.empty() ? "its files have no runtime of Ferry's\n" : table.text();
  return out;
}

std::string with_hint(const Error& error) {
  return error.hint.empty() ? error.message : fmt::format("{} ({})", error.message, error.hint);
}

std::vector<std::string> differences(const kata::KataSetup& setup, const kata::RuntimePlan& plan,
                                     const Result<kata::RuntimeState>& state) {
  std::vector<std::string> out;
  for (const kata::KataClassSetup& kata : setup.classes) {
    if (!kata.artifact) out.push_back(fmt::format("{}: its files have not been fetched", kata.name));
  }
  for (const kata::RefusedClass& refused : setup.refused)
    out.push_back(fmt::format("{}: {}", refused.name, with_hint(refused.why)));
  for (const auto* files : {&setup.files, &plan.changes}) {
    for (const kata::FileChange& change : *files) {
      out.push_back(
          fmt::format("{} {}", change.path.string(),
                      !change.before ? "is not there" : (change.after ? "is other" : "should not be there")));
    }
  }
  if (!state && state.error().code != make_error_code(Errc::not_found))
    out.push_back("the container runtime cannot be asked: " + state.error().message);
  if (!state || !state->reports_handlers()) return out;
  for (const kata::RuntimeHandler& handler : setup.handlers) {
    if (!state->knows(handler))
      out.push_back(fmt::format("the container runtime does not know {} as it is written", handler.name));
  }
  return out;
}

VerbOutput show_differences(const std::vector<std::string>& differences, bool runs) {
  VerbOutput out;
  out.document = {{"differences", differences}, {"container_runtime_runs", runs}};
  for (const std::string& difference : differences) out.text += difference + "\n";
  if (differences.empty()) {
    out.text =
        runs ? "all of it is there, and known\n"
             : "all of it is there; the container runtime does not run, and knows it once it has started\n";
  }
  out.status = differences.empty() ? ExitStatus::done : ExitStatus::differs;
  return out;
}

}  // namespace ferry::cli
