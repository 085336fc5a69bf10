// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `nvidia-vgpu-dm` of NVIDIA's vGPU device manager v0.5.0: `apply` and `assert` of a profile, with its flags
/// and environment. Only help and version go to stdout. Exit status 0, and 1 for any error.
int nvidia_vgpu_dm(int argc, char** argv);

}  // namespace ferry
