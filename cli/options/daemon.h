// SPDX-License-Identifier: Apache-2.0
// The parts that the programs of `ferry agent` and `ferry dra` have in common.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace CLI {
class App;
}  // namespace CLI

namespace ferry::cli {

struct DaemonOptions {
  std::filesystem::path host_root = "/";
  std::string log_level = "info";
  std::string log_format = "text";
};
void add_daemon_options(CLI::App& app, DaemonOptions& options);

/// Parses the command line of `app`, whose name is that of the verb ("ferry agent"), sets up the log, and
/// calls `serve` until SIGINT or SIGTERM. Errors are printed as those of `program`. Returns the exit status.
int run_daemon(CLI::App& app, int argc, char** argv, const DaemonOptions& options, const char* program,
               const std::function<Result<>(HostFs&, const std::stop_token&)>& serve);

}  // namespace ferry::cli
