// SPDX-License-Identifier: Apache-2.0
#include "cli/output/rebind_report.h"

#include <fmt/format.h>

#include "common/text/json.h"
#include "common/text/words.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

std::string_view text(vfio::RebindResult::Status status) {
  using Status = vfio::RebindResult::Status;
  constexpr Words<Status, 4> kWords = {{{"done", Status::done},
                                        {"already so", Status::already},
                                        {"refused", Status::refused},
                                        {"failed", Status::failed}}};
  return word_for(kWords, status, "unknown");
}

json to_json(const vfio::Rebind& rebind) {
  json members = json::array();
  for (const vfio::Member& member : rebind.members) {
    members.push_back({{"address", member.address.text()},
                       {"role", text(member.role)},
                       {"driver_before", or_null(member.driver_before)},
                       {"driver_after", or_null(member.driver_after)}});
  }
  json steps = json::array();
  for (const vfio::Step& step : rebind.steps) steps.push_back(ferry::cli::to_json(step));
  return {{"groups", rebind.groups}, {"members", members}, {"steps", steps}, {"notes", rebind.notes}};
}

// The lines of one unit: each member's drivers before and after, then the steps if they are asked for.
std::string rebind_lines(const vfio::Rebind& rebind, bool with_steps, bool explain) {
  std::string out;
  for (const vfio::Member& member : rebind.members) {
    const std::string before = member.driver_before.empty() ? "no driver" : member.driver_before;
    const std::string after = member.driver_after.empty() ? "no driver" : member.driver_after;
    out += before == after ? fmt::format("  {}  {} ({})\n", member.address.text(), before, text(member.role))
                           : fmt::format("  {}  {} -> {} ({})\n", member.address.text(), before, after,
                                         text(member.role));
  }
  if (with_steps) {
    for (const vfio::Step& step : rebind.steps) {
      out += "    " + step.text() + (explain ? because(step.why) : "") + "\n";
    }
  }
  for (const std::string& note : rebind.notes) out += "  note: " + note + "\n";
  return out;
}

/// Collects the output about several units.
class Report {
 public:
  Report(const Session& session, const std::map<vfio::PciAddress, std::string>& skipped) : session_(session) {
    for (const auto& [address, reason] : skipped) {
      skipped_.push_back({{"address", address.text()}, {"reason", reason}});
      tail_ += fmt::format("{}: skipped: {}\n", address.text(), reason);
    }
  }
  void add(std::string_view status, const std::vector<vfio::PciAddress>& devices,
           const std::vector<std::uint32_t>& groups, const std::string& lines, json more) {
    const std::string where = groups.empty() ? "no group"
                                             : fmt::format("{} {}", groups.size() == 1 ? "group" : "groups",
                                                           fmt::join(groups, ", "));
    text_ += fmt::format("{} ({}): {}\n{}", join(devices), where, status, lines);
    more["status"] = status;
    more["devices"] = ferry::cli::to_json(devices);
    more["groups"] = groups;
    results_.push_back(std::move(more));
  }
  void refuse(const vfio::Refusal& refusal) {
    json more = {{"reasons", refusal.reasons},
                 {"hint", refusal.hint},
                 {"group_viable", nullptr},
                 {"group_blockers", nullptr}};
    std::string lines;
    for (const std::string& reason : refusal.reasons) lines += "  " + reason + "\n";
    if (!refusal.hint.empty()) lines += "  hint: " + refusal.hint + "\n";

    // The kernel's answer stands beside Ferry's reasons: the kernel may let a VM have a group that Ferry
    // refuses.
    if (refusal.blockers) {
      const bool viable = !refusal.groups.empty() && refusal.blockers->empty() && !refusal.kernel_refuses;
      more["group_viable"] = viable;
      more["group_blockers"] = ferry::cli::to_json(*refusal.blockers);
      if (viable)
        lines += "  the kernel's own rule would let a VM have all that is asked for, once it is on vfio\n";
      else if (!refusal.blockers->empty())
        lines += fmt::format("  the kernel's own rule is against it too: {} would still not be on vfio\n",
                             join(*refusal.blockers));
    }
    add("refused", refusal.devices, refusal.groups, lines, std::move(more));
  }
  void note(const std::vector<std::string>& notes) {
    for (const std::string& note : notes) {
      tail_ += "note: " + note + "\n";
      notes_.push_back(note);
    }
  }
  void fail(const Error& error) {
    tail_ += "failed: " + error_lines(error, "");
    errors_.push_back(ferry::cli::to_json(error));
  }
  VerbOutput shown(vfio::Direction direction, ExitStatus status, std::chrono::nanoseconds applied = {}) {
    if (results_.empty()) text_ += "nothing to do\n";
    return {.document = {{"direction", direction == vfio::Direction::to_vfio ? "to_vfio" : "back"},
                         {"dry_run", session_.dry_run},
                         {"applied_seconds", std::chrono::duration<double>(applied).count()},
                         {"results", results_},
                         {"skipped", skipped_},
                         {"notes", notes_},
                         {"errors", errors_}},
            .text = text_ + tail_,
            .status = status};
  }

 private:
  const Session& session_;
  std::string text_;
  std::string tail_;
  json results_ = json::array();
  json skipped_ = json::array();
  json notes_ = json::array();
  json errors_ = json::array();
};

}  // namespace

VerbOutput show_rebinds(const Session& session, const vfio::RebindPreview& preview,
                        const std::map<vfio::PciAddress, std::string>& skipped, vfio::Direction direction) {
  Report report(session, skipped);
  const char* would = direction == vfio::Direction::to_vfio ? "would bind" : "would unbind";
  for (const vfio::Refusal& refusal : preview.plan.refusals) report.refuse(refusal);
  for (const vfio::Rebind& rebind : preview.plan.rebinds) {
    report.add(rebind.steps.empty() ? "already so" : would, rebind.devices, rebind.groups,
               rebind_lines(rebind, true, session.explain), to_json(rebind));
  }
  report.note(preview.notes);
  return report.shown(direction, preview.plan.refusals.empty() ? ExitStatus::done : ExitStatus::refused);
}

VerbOutput show_rebinds(const Session& session, const vfio::RebindOutcome& outcome,
                        const std::map<vfio::PciAddress, std::string>& skipped, vfio::Direction direction) {
  Report report(session, skipped);
  ExitStatus status = ExitStatus::done;
  for (const vfio::RebindResult& result : outcome.results) {
    if (result.status == vfio::RebindResult::Status::refused) {
      status = worse(status, ExitStatus::refused);
      report.refuse(result.refusal);
      continue;
    }
    if (result.status == vfio::RebindResult::Status::failed) status = worse(status, ExitStatus::failed);
    std::string lines = rebind_lines(result.rebind, session.explain, session.explain);
    json more = to_json(result.rebind);
    if (result.error) {
      lines += error_lines(*result.error, "  ");
      more["error"] = ferry::cli::to_json(*result.error);
    }
    report.add(text(result.status), result.devices, result.rebind.groups, lines, std::move(more));
  }
  report.note(outcome.notes);
  for (const Error& error : outcome.errors) {
    status = worse(status, ExitStatus::failed);
    report.fail(error);
  }
  return report.shown(direction, status, outcome.applied);
}

}  // namespace ferry::cli
