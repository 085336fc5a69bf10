// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_logs.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/agent_pod.h"
#include "cli/masked_text.h"
#include "cli/object_fields.h"
#include "common/counted.h"
#include "kube/api_error.h"

namespace ferry {
namespace {

using nlohmann::json;

struct Log {
  ObjectRef pod;
  std::string node;
  LogEnd end;
  bool trouble = false;
};

const json& status_of(const json& pod, const char* list, const std::string& container) {
  static const json kNothing;
  for (const json& status : items_field(field(pod, "status"), list))
    if (text_field(status, "name") == container) return status;
  return kNothing;
}

std::vector<Log> logs_of(const std::vector<json>& pods) {
  std::vector<Log> out;
  for (const json& pod : pods) {
    const json& metadata = field(pod, "metadata");
    for (const auto& [containers, statuses] :
         {std::pair("initContainers", "initContainerStatuses"), {"containers", "containerStatuses"}}) {
      for (const json& container : items_field(field(pod, "spec"), containers)) {
        if (ferry_program_in(container).empty()) continue;
        const std::string name = text_field(container, "name");
        const json& status = status_of(pod, statuses, name);
        const bool restarted = field(status, "restartCount").is_number_unsigned() &&
                               field(status, "restartCount").get<std::uint64_t>() > 0;
        Log log{.pod = pod_ref(text_field(metadata, "namespace"), text_field(metadata, "name")),
                .node = text_field(field(pod, "spec"), "nodeName"),
                .end = {.container = name, .lines = kMostLogLines},
                .trouble = restarted || !flag_field(status, "ready")};
        out.push_back(log);
        log.end.previous = true;
        if (restarted) out.push_back(std::move(log));
      }
    }
  }
  std::ranges::stable_sort(out, [](const Log& a, const Log& b) { return a.trouble && !b.trouble; });
  return out;
}

/// The last whole lines within the limits, and whether earlier lines are missing.
std::pair<std::vector<std::string>, bool> last_lines(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t size = 0;
  if (text.ends_with('\n')) text.remove_suffix(1);
  while (!text.empty()) {
    const auto begin = text.rfind('\n');
    const auto line = begin == std::string_view::npos ? text : text.substr(begin + 1);
    if (lines.size() == kMostLogLines || size + line.size() > kMostOfALog) break;
    size += line.size() + 1;
    lines.emplace_back(line);
    text.remove_suffix(begin == std::string_view::npos ? text.size() : text.size() - begin);
  }
  // The kubelet was asked for kMostLogLines lines at most, so an answer of that length may have been cut.
  const bool cut = !text.empty() || lines.size() == kMostLogLines;
  std::ranges::reverse(lines);
  return {std::move(lines), cut};
}

json document_of(const Log& log, std::vector<std::string> lines, bool cut) {
  return {{"namespace", log.pod.space},     {"pod", log.pod.name},          {"node", log.node},
          {"container", log.end.container}, {"previous", log.end.previous}, {"cut", cut},
          {"lines", std::move(lines)}};
}

}  // namespace

GatheredLogs gather_logs(const AskForLog& ask, const std::vector<json>& pods) {
  GatheredLogs out;
  const std::vector<Log> logs = logs_of(pods);
  if (logs.empty())
    out.notes.emplace_back(
        "logs: no container of Ferry's is shown; of services on a node `journalctl -u 'ferry-*'` has them");
  std::size_t size = 0;
  std::size_t left_out = 0;
  std::size_t cut = 0;
  std::set<std::string> silent;  // nodes that do not answer: their other containers would wait as long
  for (const Log& log : logs) {
    if (size >= kMostOfLogs) {
      ++left_out;
      continue;
    }
    if (silent.contains(log.node)) continue;
    const auto text = ask(log.pod, log.end);
    if (!text) {
      const auto& code = text.error().code;
      // The container is gone, or has no earlier run.
      if (code == ApiErrc::not_found || (log.end.previous && code == ApiErrc::invalid)) continue;
      // The container has not started; its status has the reason.
      if (code == ApiErrc::invalid) continue;
      out.notes.push_back("logs: " + text.error().message);
      if (code == ApiErrc::forbidden) return out;
      out.whole = false;
      silent.insert(log.node);
      continue;
    }
    auto [lines, shortened] = last_lines(masked_text(*text));
    for (const std::string& line : lines) size += line.size();
    if (shortened) ++cut;
    out.logs.push_back(document_of(log, std::move(lines), shortened));
  }
  if (cut > 0)
    out.notes.push_back(fmt::format("logs: {} cut to the last {} lines or {} KiB", counted(cut, "log"),
                                    kMostLogLines, kMostOfALog >> 10U));
  if (left_out > 0)
    out.notes.push_back(
        fmt::format("logs: {} left out, since all in all it would be more than {} MiB: `kubectl "
                    "logs` shows them",
                    counted(left_out, "log"), kMostOfLogs >> 20U));
  return out;
}

}  // namespace ferry
