// SPDX-License-Identifier: Apache-2.0
// kubectl-ferry, which kubectl runs as `kubectl ferry`. Called kubectl_complete-ferry it answers kubectl's
// completion.
#include "common/process/standard_streams.h"
#include "kubectl/kubectl_program.h"

int main(int argc, char** argv) {
  ferry::guard_standard_streams();
  if (argc > 0 && ferry::kubectl::is_kubectl_completion(argv[0]))
    return ferry::kubectl::kubectl_completion_program(argc, argv);
  return ferry::kubectl::kubectl_program(argc, argv);
}
