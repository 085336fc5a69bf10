// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

#include "cli/options/plugin_options.h"
#include "cli/verbs/verbs.h"
#include "common/process/signals.h"
#include "kubevirt-plugin/plugin.h"

namespace ferry::cli {

ExitStatus plugin_verb(const Session& session, const PluginVerbOptions& serving) {
  const auto options = plugin_options(session, serving);
  if (!options) return complain(options.error());
  if (asks_for_labels(serving))
    spdlog::warn(
        "ENABLE_GFD: the node is not labelled by this program but by `ferry agent --feature-labels`");
  const StopOnSignal stop;
  if (auto served = plugin::run_plugin(*session.host, *options, stop.token()); !served)
    return complain(served.error());
  return ExitStatus::done;
}

}  // namespace ferry::cli
