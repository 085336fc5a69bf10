// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `ferry-agent kubevirt-cr`, which `ferry kubevirt-cr --check` and `--apply` become: compares the cluster's
/// one KubeVirt object with what `ferry kubevirt-cr -o json` says on standard input, or adds to it. Exit
/// status: 0 it permits what the node offers, 3 it does not, 4 something is left for a person to decide; 1
/// and 2 as everywhere.
int kubevirt_cr_program(int argc, char** argv);

}  // namespace ferry
