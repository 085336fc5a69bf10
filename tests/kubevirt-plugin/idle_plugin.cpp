// SPDX-License-Identifier: Apache-2.0
// The plugin as a process of its own, on any root: what is measured of it, and nothing else.
#include <csignal>
#include <iostream>
#include <stop_token>
#include <thread>
#include <unistd.h>

#include "kubevirt-plugin/plugin.h"
#include "tests/kubevirt-plugin/nvidia_rules.h"

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ferry::HostFs host(argc > 1 ? argv[1] : "/");
  std::stop_source stop;
  const std::jthread waiting([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    stop.request_stop();
  });
  const auto ended = ferry::run_plugin(host, {.rules = ferry::test::nvidia_rules()}, stop.get_token());
  if (!ended) std::cerr << ended.error().message << "\n";
  ::kill(::getpid(), SIGTERM);
  return ended ? 0 : 1;
}
