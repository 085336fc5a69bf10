// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/policy_inputs.h"
#include "cli/verbs.h"
#include "common/stop_on_signal.h"
#include "host/node_loop.h"
#include "host/wanted_file.h"

namespace ferry {
namespace {

ExitStatus preview_wanted(const Session& session, const std::filesystem::path& file) {
  const auto wanted = read_wanted(*session.host, file);
  if (!wanted) return complain(wanted.error());
  if (*wanted) return apply_preview(session, (*wanted)->policy);
  fmt::print(stderr, "ferry: there is no /{}: nothing is wanted, and nothing would be changed\n",
             file.string());
  return ExitStatus::done;
}

}  // namespace

ExitStatus hostd_verb(const Session& session, const KeepingOptions& keeping) {
  NodeLoopOptions options;
  options.once = keeping.once;
  options.files.wanted_file = keeping.wanted.relative_path();
  options.files.state_file = keeping.state.relative_path();
  if (session.dry_run) return preview_wanted(session, options.files.wanted_file);
  if (auto root = require_root(session); !root) return complain(root.error());
  const StopOnSignal stop;
  const auto ended = run_node_loop(
      *session.host, *session.probe, [&session](UseProbe& uses) { return node_host(session, uses); }, options,
      stop.token());
  if (!ended) return complain(ended.error());
  return *ended;
}

}  // namespace ferry
