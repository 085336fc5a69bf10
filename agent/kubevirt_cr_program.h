// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `ferry-agent kubevirt-cr`, the program behind `ferry kubevirt-cr --check` and `--apply`: compares the
/// cluster's KubeVirt object with the output of `ferry kubevirt-cr -o json` on standard input, or adds to it.
/// Exit status: 0 the object permits the node's devices, 3 it does not, 4 a person has to decide; 1 and 2 as
/// everywhere.
int kubevirt_cr_program(int argc, char** argv);

}  // namespace ferry
