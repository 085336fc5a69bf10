// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "cli/command_line.h"
#include "cli/compat/replaced_programs.h"
#include "common/process/standard_streams.h"
#include "hostfs/host_writer.h"
#include "mdev/gpu_management.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/registers/register_reading.h"
#include "vfio/sanitize/sanitizing.h"

int main(int argc, char** argv) {
  // The hang guard's child process begins here, before anything else, so that it holds and starts nothing.
  if (argc > 1 && argv[1] == ferry::kHostActVerb) {
    constexpr std::array<ferry::HostLibrary, 4> kLibraries = {
        {{.name = ferry::mdev::kGpuLibrary, .answer = ferry::mdev::answer_nvml_call},
         {.name = ferry::vfio::kRegisterLibrary, .answer = ferry::vfio::answer_register_call},
         {.name = ferry::vfio::kSanitizeLibrary, .answer = ferry::vfio::answer_sanitize_call},
         {.name = ferry::vfio::kModeLibrary, .answer = ferry::vfio::answer_mode_call}}};
    return ferry::host_act_main(argc, argv, kLibraries);
  }
  ferry::guard_standard_streams();
  if (argc > 0) {
    if (const auto status = ferry::cli::run_replaced_program(argv[0], argc, argv)) return *status;
  }
  return ferry::cli::run_command_line(argc, argv);
}
