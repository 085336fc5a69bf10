// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"
#include "cli/replaced_programs.h"
#include "common/host_writer.h"

int main(int argc, char** argv) {
  // The child of a write that may hang: before anything else, so that it holds and starts nothing.
  if (argc > 1 && argv[1] == ferry::kHostActVerb) return ferry::host_act_main(argc, argv);
  if (argc > 0) {
    if (const auto status = ferry::run_replaced_program(argv[0], argc, argv)) return *status;
  }
  return ferry::run_command_line(argc, argv);
}
