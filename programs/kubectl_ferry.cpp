// SPDX-License-Identifier: Apache-2.0
// kubectl-ferry, which kubectl runs as `kubectl ferry`.
#include <cstdio>
#include <string_view>

#include "common/process/standard_streams.h"
#include "kubectl/kubectl_program.h"

int main(int argc, char** argv) {
  ferry::guard_standard_streams();
  // kubectl runs a program of that name for each TAB, with the words that are typed. It may be a link to this
  // one.
  if (argc > 0 && std::string_view(argv[0]).ends_with("kubectl_complete-ferry")) {
    return std::puts(":4") < 0 ? 1 : 0;
  }
  return ferry::kubectl::kubectl_program(argc, argv);
}
