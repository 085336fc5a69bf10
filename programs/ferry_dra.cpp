// SPDX-License-Identifier: Apache-2.0
// ferry-dra, the program of `ferry dra` (docs/adr/0035). It is a program of its own, since `ferry` links no
// libcurl.
#include <stop_token>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/options/daemon.h"
#include "common/event_loop.h"
#include "common/process/standard_streams.h"
#include "common/process/this_process.h"
#include "common/version.h"
#include "dra/dra_options.h"
#include "dra/dra_program.h"
#include "hostfs/host_fs.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"

namespace ferry::dra {
namespace {

Result<> serve(const DraProgramOptions& options, HostFs& host, const std::stop_token& stop) {
  auto access = kube::cluster_access({.kubeconfig = options.kubeconfig, .context = options.context},
                                     process_environment());
  if (!access) return fail(std::move(access).error());
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  kube::CurlTransport transport(**loop, std::move(*access));
  const kube::Random random = kube::random_numbers();
  DraProgram program(**loop, host, transport, random, options);
  return program.run(stop);
}

}  // namespace
}  // namespace ferry::dra

int main(int argc, char** argv) {
  ferry::guard_standard_streams();
  CLI::App app("Publishes GPUs as ResourceSlices, and prepares the devices of ResourceClaims", "ferry dra");
  app.set_version_flag("--version", std::string("ferry ") + ferry::kVersion);
  ferry::dra::DraProgramOptions options;
  ferry::dra::add_dra_options(app, options);
  app.get_option("--node-name")->envname("NODE_NAME")->required();
  app.get_option("--pod-uid")->envname("POD_UID");
  ferry::cli::DaemonOptions daemon;
  ferry::cli::add_daemon_options(app, daemon);
  return ferry::cli::run_daemon(app, argc, argv, daemon, "ferry-dra",
                                [&](ferry::HostFs& host, const std::stop_token& stop) {
                                  return ferry::dra::serve(options, host, stop);
                                });
}
