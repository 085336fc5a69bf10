// SPDX-License-Identifier: Apache-2.0
// kubectl-ferry, which kubectl runs as `kubectl ferry`.
#include "common/process/standard_streams.h"
#include "kubectl/kubectl_program.h"

int main(int argc, char** argv) {
  ferry::guard_standard_streams();
  return ferry::kubectl::kubectl_program(argc, argv);
}
