// SPDX-License-Identifier: Apache-2.0
// The programs that ferry replaces when it is linked under their names, with their commands, flags and
// environment variables. docs/compatibility.md lists the differences. Exit status: 0, and 1 for any error.
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "common/exit_status.h"
#include "common/result.h"

namespace CLI {
class App;
}

namespace ferry::cli {

/// Runs the program that `name` (argv[0], with or without a path) stands for. Absent: it stands for none.
std::optional<int> run_replaced_program(std::string_view name, int argc, char** argv);

// run_replaced_program() makes exit status 1 of any status of these programs but done.

/// Parses a replaced program's command line, where -name also stands for --name. A status: the help, the
/// version or an error with its hint is printed, and the program ends with it. Absent: the program goes on.
std::optional<ExitStatus> parse_replaced(CLI::App& app, int argc, char** argv);

/// Succeeds if the host's root is a folder. `option`, its environment variable or its default names that
/// root. Errc::usage: it is no folder. CLI11's own check would not do: it ignores a variable whose value
/// fails the check.
Result<> check_host_root(std::string_view option, const std::string& root);

/// Blocks the signals for this thread and those that it starts later, and returns them for sigwait(3).
sigset_t block_signals(std::initializer_list<int> signals);

/// `nvidia-vgpu-dm` of NVIDIA's vGPU device manager v0.5.0: `apply` and `assert` of a profile, with its flags
/// and environment. Only help and version go to stdout.
ExitStatus nvidia_vgpu_dm(int argc, char** argv);

/// `nvidia-k8s-vgpu-dm` of NVIDIA's vGPU device manager v0.5.0, with its flags and environment. The node's
/// label nvidia.com/vgpu.config selects a profile of a file. It runs `ferry hostd` and `ferry-agent` side by
/// side until a signal ends them (done) or one of them ends by itself (failed).
ExitStatus nvidia_k8s_vgpu_dm(int argc, char** argv);

/// `k8s-kata-manager` of NVIDIA's Kata manager, with its flags and environment. It installs the classes of
/// its file, writes its pid file, and waits for SIGTERM or another signal that ends it. The runtimes stay
/// installed.
ExitStatus k8s_kata_manager(int argc, char** argv);

}  // namespace ferry::cli
