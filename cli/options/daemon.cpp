// SPDX-License-Identifier: Apache-2.0
#include "cli/options/daemon.h"

#include <cstddef>
#include <span>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/options/usage_fault.h"
#include "cli/options/value_option.h"
#include "cli/output/help_text.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/process/signals.h"
#include "common/process/this_process.h"

namespace ferry::cli {

void add_daemon_options(CLI::App& app, DaemonOptions& options) {
  add_value(app, "--host-root DIR [/]", options.host_root,
            "the folder on which the root of the host is mounted")
      ->check(CLI::ExistingDirectory);
  add_value(app, "--log-level LEVEL [info]", options.log_level,
            "the least severe messages to log: trace, debug, info, warn, error or off");
  add_value(app, "--log-format FORMAT [text]", options.log_format, "the format of the log: text or json")
      ->check(CLI::IsMember({"text", "json"}));
}

int run_daemon(CLI::App& app, int argc, char** argv, const DaemonOptions& options, const char* program,
               const std::function<Result<>(HostFs&, const std::stop_token&)>& serve) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return print_help(app, help_or_version);
  } catch (const CLI::ParseError& error) {
    const std::string name = app.get_name();
    const std::span<char* const> words(argv, static_cast<std::size_t>(argc));
    return static_cast<int>(print_error(name, usage_fault(app, error, words, {.program = name})));
  }
  const auto format = options.log_format == "json" ? LogFormat::json : LogFormat::text;
  if (auto log = set_up_log(options.log_level, format); !log)
    return static_cast<int>(print_error(program, log.error()));
  hide_process();  // its memory has a token of the API server
  const StopOnSignal stop;
  HostFs host(options.host_root);
  if (auto served = serve(host, stop.token()); !served)
    return static_cast<int>(print_error(program, served.error()));
  return 0;
}

}  // namespace ferry::cli
