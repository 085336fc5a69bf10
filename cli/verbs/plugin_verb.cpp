// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

#include "cli/options/plugin_options.h"
#include "cli/verbs/verbs.h"
#include "common/process/signals.h"
#include "kubevirt-plugin/plugin.h"

namespace ferry::cli {

ExitStatus plugin_verb(const Session& session, const PluginVerbOptions& options) {
  const auto settings = plugin_options(session, options);
  if (!settings) return complain(settings.error());
  if (asks_for_labels(options))
    spdlog::warn(
        "ENABLE_GFD: the node is not labelled by this program but by `ferry agent --feature-labels`");
  const StopOnSignal stop;
  if (auto served = plugin::run_plugin(*session.host, *settings, stop.token()); !served)
    return complain(served.error());
  return ExitStatus::done;
}

}  // namespace ferry::cli
