// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <poll.h>
#include <string>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/output/wait_note.h"
#include "cli/session.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/exit_status.h"
#include "common/result.h"
#include "common/text/json.h"
#include "common/text/visible_text.h"
#include "host/sanitize/gpu_history.h"
#include "host/sanitize_look.h"
#include "hostfs/directory_watch.h"
#include "hostfs/locks.h"
#include "policy/policy.h"
#include "vfio/pci/pci_function.h"

namespace ferry::cli {
namespace {

using host::GpuHistory;
using nlohmann::json;

// The plugin answers within a second, and a GPU boots within vfio::kSanitizeDeadline.
constexpr std::chrono::seconds kLongestWait{60};

std::string time_text(std::uint64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

json document_of(const GpuHistory& gpu) {
  auto events = json::array();
  for (const host::GpuEvent& event : gpu.events)
    events.push_back({{"time", time_text(event.at)}, {"state", text(event.state)}, {"text", event.text}});
  return {{"address", gpu.address.text()},
          {"id", gpu.id},
          {"state", text(gpu.status.state)},
          {"since", time_text(gpu.status.since)},
          {"result", text(gpu.status.result)},
          {"method", or_null(gpu.status.method)},
          {"detail", or_null(gpu.status.detail)},
          {"milliseconds", gpu.status.milliseconds},
          {"count", gpu.status.count},
          {"events", std::move(events)}};
}

/// `policy`: the node's.
Result<GpuHistory> history_of(const Session& session, const std::string& word,
                              policy::Sanitize* policy = nullptr) {
  const auto gpu = vfio::PciAddress::parse(word);
  if (!gpu) return fail(gpu.error());
  const auto histories = host::load_gpu_histories(*session.host);
  if (!histories) return fail(histories.error());
  const GpuHistory* const found = histories->find(*gpu);
  if (found == nullptr)
    return fail(Errc::not_found, fmt::format("ferry hostd has no record of GPU {}", gpu->text()),
                "it begins one for each GPU on vfio-pci, unless the node's policy has `sanitize: off`");
  if (policy != nullptr) *policy = histories->policy;
  return *found;
}

/// Waits until hostd has recorded the end of a request.
Result<GpuHistory> wait_for_end(const Session& session, const GpuHistory& before) {
  const WaitNote waits("sanitizing the GPU");
  const auto folder = std::filesystem::path(host::kGpuHistoryFile).parent_path();
  const auto watch = DirectoryWatch::open(*session.host, folder);
  if (!watch) return fail(watch.error());
  const auto until = std::chrono::steady_clock::now() + kLongestWait;
  while (true) {
    auto now = history_of(session, before.address.text());
    if (!now || now->status.count != before.status.count || now->status.state == api::SanitizeState::in_use)
      return now;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd event{.fd = watch->fd(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&event, 1, static_cast<int>(left.count())) <= 0)
      return fail(Errc::failed,
                  fmt::format("{}: ferry hostd has not ended it within {} s", before.address.text(),
                              kLongestWait.count()),
                  "it goes on; `ferry history` shows its end, and hostd's log says what it waits for");
    (void)watch->read();
  }
}

}  // namespace

ExitStatus history_verb(const Session& session, const std::string& word) {
  VerbOutput shown;
  auto gpus = json::array();
  Table table({"GPU", "TIME", "STATE", "REASON"});
  const auto add = [&](const GpuHistory& gpu) {
    gpus.push_back(document_of(gpu));
    for (const host::GpuEvent& event : gpu.events)
      table.add({gpu.address.text(), time_text(event.at), std::string(text(event.state)),
                 visible_line(event.text)});
  };
  if (word.empty()) {
    const auto histories = host::load_gpu_histories(*session.host);
    if (!histories) return complain(histories.error());
    for (const GpuHistory& gpu : histories->gpus) add(gpu);
  } else {
    const auto gpu = history_of(session, word);
    if (!gpu) return complain(gpu.error());
    add(*gpu);
  }
  const bool empty = gpus.empty();
  shown.document = {{"gpus", std::move(gpus)}};
  shown.text =
      empty
          ? "ferry hostd has no record of a GPU: it has not run with the policy, none is on vfio-pci, or the "
            "policy has `sanitize: off`\n"
          : table.text(text_output(session).columns);
  return print(session, shown);
}

ExitStatus sanitize_verb(const Session& session, const SanitizeOptions& options) {
  auto policy = policy::Sanitize::off;
  const auto before = history_of(session, options.gpu, &policy);
  if (!before) return complain(before.error());
  if (auto root = require_root(session); !root) return complain(root.error());
  const auto refuse = [](std::string why, std::string hint) {
    return complain(
        {.code = make_error_code(Errc::refused), .message = std::move(why), .hint = std::move(hint)});
  };
  const std::string name = before->address.text();
  if (policy == policy::Sanitize::off)
    return refuse("the node has no policy, or its policy has `sanitize: off`",
                  "set its key `sanitize` to best-effort or required");
  const auto function = vfio::read_function(*session.host, before->address);
  const bool has_failed = before->status.state == api::SanitizeState::failed;
  if (!options.accepts && (!function || !vfio::on_vfio_driver(*function)))
    return refuse(fmt::format("{} is not on vfio-pci", name),
                  fmt::format("`ferry vfio bind --device {}` binds it, and it is sanitized then{}", name,
                              has_failed ? "; `--accept` lets the next claim have it" : ""));
  if (before->status.state == api::SanitizeState::in_use)
    return refuse(
        fmt::format("{} is in use: {}", name, before->events.empty() ? "" : before->events.back().text),
        "it is sanitized once that user has ended");
  if (options.accepts && !has_failed)
    return refuse(fmt::format("{} is {}: there is no failure to accept", name, text(before->status.state)),
                  "");
  const auto runs = is_present(*session.host, api::kHostdLiveness);
  if (!runs) return complain(runs.error());
  if (!*runs) return refuse("ferry hostd does not run, which resets the GPU", "start it first");
  VerbOutput out;
  if (session.dry_run) {
    out.document = document_of(*before);
    out.text = fmt::format("{}: would {}\n", name,
                           options.accepts ? "make it available without a proof" : "reset it");
    return print(session, out);
  }
  if (auto asked =
          host::write_sanitize_request(*session.host, {.gpu = before->address, .accepts = options.accepts});
      !asked)
    return complain(asked.error());
  const auto after = wait_for_end(session, *before);
  if (!after) return complain(after.error());
  out.document = document_of(*after);
  out.text = fmt::format("{}: {}: {}\n", name, text(after->status.state),
                         after->events.empty() ? "" : visible_line(after->events.back().text));
  const ExitStatus printed = print(session, out);
  if (printed != ExitStatus::done) return printed;
  if (after->status.state == api::SanitizeState::in_use) return ExitStatus::refused;
  const bool failed = after->status.result == api::SanitizeResult::failed ||
                      after->status.state == api::SanitizeState::failed;
  return failed ? ExitStatus::failed : ExitStatus::done;
}

}  // namespace ferry::cli
