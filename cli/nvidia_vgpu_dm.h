// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `nvidia-vgpu-dm` of NVIDIA's vGPU device manager v0.5.0: `apply` and `assert` of a profile, by its flags
/// and environment. Nothing goes to stdout but help and version. Exit status 0, and 1 for everything else.
int nvidia_vgpu_dm(int argc, char** argv);

}  // namespace ferry
